"""`train`: one model on the records of several parties, within a privacy budget, in one call; and its price alone.

The way is that of a plan, because a plan is made of the call: `ask` checks everything public, `pricing.price` fixes
the noise from public sizes, and only then are records read. The estimators are built on it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coterie.api.accounts import ACCOUNT, as_account, draw_fit, need_unseeded
from coterie.api.asked import Asked, ask, need_dimension
from coterie.api.given import FACT, FLAG, FUNCTION, NOTHING_GIVEN, PLACE, TEXT, WHOLE, Expected, listed, takes
from coterie.api.parties import Parties
from coterie.api.sites import site_words
from coterie.api.tasks import Task
from coterie.api.trained import Trained, events_of
from coterie.api.watching import COVERED, Callback, tell_end, watcher
from coterie.data import ALL_PUBLIC
from coterie.deploy.accounts import DataAccount, unit_of
from coterie.drivers.budget import accounts
from coterie.drivers.checkpoint import Checkpoint
from coterie.drivers.seeds import fresh_seed
from coterie.drivers.simulate import Test
from coterie.errors import InputError
from coterie.experiment import Experiment, assemble
from coterie.pricing import Priced
from coterie.pricing import price as price_plan
from coterie.privacy.accountants import Account
from coterie.privacy.adaptive import Rule
from coterie.privacy.events import Event
from coterie.privacy.ledger import Budget
from coterie.privacy.lifetime import Unit
from coterie.problems import Problem
from coterie.problems.additive import AdditiveModel
from coterie.tables.algorithm import AlgorithmPlan
from coterie.worth.judge import judge

if TYPE_CHECKING:
    from coterie.api.sites import Site

__all__ = ["Price", "Trained", "price", "train", "train_paid"]

Levels = Sequence[float] | Sequence[Sequence[float]]
Away = Mapping[str | int, Sequence[tuple[int, int]]]
SPANS = listed(Expected("(first, last)", lambda value: listed(WHOLE).fits(value) and np.asarray(value).shape == (2,)))
AWAY = NOTHING_GIVEN | Expected(
    "a dictionary from parties to lists of (first, last) rounds",
    lambda value: isinstance(value, Mapping) and all(map(SPANS.fits, value.values())),
)
LEVELS = listed(FACT) | listed(listed(FACT)) | NOTHING_GIVEN
RECORDS = Expected("(X, y)", lambda value: True)  # `Coding.records` looks at them


@takes(
    rounds=WHOLE | NOTHING_GIVEN, seeds=WHOLE, seed=WHOLE | NOTHING_GIVEN, references=FLAG, name=TEXT,
    own_test=listed(RECORDS) | NOTHING_GIVEN, account=ACCOUNT | NOTHING_GIVEN, levels=LEVELS, away=AWAY,
    callbacks=listed(FUNCTION), checkpoint=PLACE | NOTHING_GIVEN, checkpoint_every=WHOLE,
    adaptive=FUNCTION | NOTHING_GIVEN,
)  # fmt: skip
def train(
    task: Task | Problem,
    parties: Parties,
    algorithm: AlgorithmPlan | None = None,
    budget: Budget | Sequence[Budget] | None = None,
    *,
    rounds: int | None = None,
    seeds: int = 1,
    seed: int | None = None,
    test: Site | None = None,
    own_test: Sequence[Site] | None = None,
    references: bool = False,
    name: str = "python",
    account: DataAccount | str | Path | None = None,
    levels: Levels | None = None,
    away: Away | None = None,
    callbacks: Sequence[Callback] = (),
    checkpoint: str | Path | None = None,
    checkpoint_every: int = 100,
    adaptive: Rule | None = None,
) -> Trained:
    """Train one model on the records of several parties, every message of every party noised to its budget.

    The guarantee is for one record of one party replaced by another (for one person with all of its records, where the
    parties have `people`), sizes public, against a reader of all messages.
    All parties run in this process, with seeded floating-point noise: a simulation, for study and for choosing
    settings on public data. Between real parties use `coterie agent`.

    Args:
        task: what is learned, such as `ct.logistic()`; or a `Problem`, with targets in its own coding.
        parties: who holds which records and who talks to whom, such as `ct.ring(sites)`.
        algorithm: such as `ct.dp_dsgd()`. Left out: `dp-dsgd`, or one noisy release and free averaging for a mean.
        budget: (ε, δ) of every party, or a list with one for each; left out only for an algorithm without privacy.
        rounds: rounds of messages; default: the algorithm's public rule.
        seeds: how often to repeat it, to see how much the noise matters. The model is that of the first; what all
            together would cost is `result["privacy"]["all_seeds_epsilon"]`.
        seed: of the noise and of batches, from 0 to 2⁶⁴ − 1; None: 64 bits from the operating system. Anyone who knows
            it can subtract the noise, so none goes with an account.
        test: records that are not private, to draw a curve of the score on.
        own_test: test records of each party, such as [(X, y), …], instead of `test`: with `references`, what joining is
            worth to each party is in `result["worth"]`.
        references: also train on all records in one place, and at every party alone, without privacy, and score that on
            `test`: numbers for study, in `result["references"]`.
        name: what reports call it.
        account: of the data set that all parties' records are: what the party that pays most pays, for every seed, is
            drawn from it before a round is computed, or the call is refused. Left out, nothing is drawn: a simulation
            of which nothing is published costs nobody anything.
        levels: how the budget is spread, public: the privacy level α of each round, or a list of these for each party.
            Noise goes as 1/α; only ratios count, and (ε, δ) is still that of the whole run. With pure rounds, whose ε
            add up, `budget=ct.Budget(sum(levels), 0)` gives every round its level.
        away: who leaves and joins when, public: by a party's name or number, spans (first, last) of rounds, counted
            from 1, in which it neither speaks nor hears. It pays for the rounds in which it speaks.
        callbacks: each is called with a `Moment`: the round, and what was measured, apart by whether ε pays for it.
            What it returns is not looked at, so none can end a run because of the records; what it raises ends it.
        checkpoint: a folder for the state, every `checkpoint_every` rounds and on Ctrl-C. The same call again, with the
            same seed, goes on from there and gives the same numbers. The state is from before noise: keep it at home.
        adaptive: a public rule, called as rule(round, released) before every round: how much noise it gets, as a
            multiple of the planned. It sees a `History` (coterie.privacy.adaptive), the messages that were sent so
            far, and must look at nothing else. (ε, δ) is a limit that no rule can pass: a round that does not fit is
            not played, nor is any after it. What was used is `result["privacy"]["adaptive"]`.

    >>> import coterie as ct
    >>> rng = np.random.default_rng(0)
    >>> sites = [rng.uniform(-1, 1, (500, 2)) for _ in range(4)]
    >>> run = ct.train(ct.mean(), ct.ring(sites), budget=ct.Budget(1.0, 1e-5), seed=0)
    >>> bool(np.abs(run.model).max() < 0.05), round(run.epsilon, 6)
    (True, 1.0)
    """
    drawn = as_account(account)
    if checkpoint is not None and seed is None:
        raise InputError("checkpoint is for going on with the same run: give seed, a whole number, too")
    if checkpoint is not None and drawn is not None:
        raise InputError("a call draws from its account, so going on from a checkpoint would pay twice: leave one out")
    if checkpoint is not None:
        from coterie.report.files import check_out

        check_out(Path(checkpoint), "checkpoint")
    stored = None if checkpoint is None else Checkpoint(Path(checkpoint), checkpoint_every)
    need_unseeded(drawn, seed)
    pay = None
    if drawn is not None:
        whose = None if parties.people is None else list(parties.people)
        pay = lambda several, unit: draw_fit(drawn, several, parties, f"fit {name}", unit, people=whose)  # noqa: E731
    return train_paid(
        task, parties, algorithm, budget, rounds=rounds, seeds=seeds, seed=seed, test=test, own_test=own_test,
        references=references, name=name, pay=pay, stacklevel=4, levels=levels, away=away, callbacks=callbacks,
        checkpoint=stored, adaptive=adaptive,
    )  # fmt: skip


def train_paid(
    task: Task | Problem, parties: Parties, algorithm: AlgorithmPlan | None, budget: Budget | Sequence[Budget] | None,
    *, rounds: int | None = None, seeds: int = 1, seed: int | None = None, test: Site | None = None,
    own_test: Sequence[Site] | None = None, references: bool = False, name: str = "python",
    pay: Callable[[Sequence[Sequence[Event]], Unit], object] | None = None, stacklevel: int = 3,
    levels: Levels | None = None, away: Away | None = None,
    callbacks: Sequence[Callback] = (), checkpoint: Checkpoint | None = None, adaptive: Rule | None = None,
) -> Trained:  # fmt: skip
    """`train`, with a function that is called with every party's events and their unit before a round is computed."""
    first = fresh_seed() if seed is None else seed
    asked = ask(
        task, parties, algorithm, budget, rounds=rounds, seeds=seeds, seed=first, name=name, levels=levels, away=away,
        adaptive=adaptive is not None,
    )  # fmt: skip
    if adaptive is not None and checkpoint is not None:
        raise InputError("a run whose noise follows its messages is not stored half-way: leave out checkpoint")
    if parties.sites is None:
        raise InputError("these parties have sizes only: give sites, the records of each, to train on them")
    if references and test is None and own_test is None:
        raise InputError("references are scored on test records: give test=(X, y)")
    if own_test is not None and (test is not None or len(own_test) != len(parties.names)):
        given = "test too" if test is not None else f"{len(own_test)} of them"
        raise InputError(f"own_test is one (X, y) for each of the {len(parties.names)} parties, got {given}")
    if pay is not None and budget is None:
        raise InputError(f"{asked.plan.algorithm.name} is not private: no account can pay for it")
    if pay is not None and references:
        raise InputError("references are computed from the records without noise: no account can pay for them")
    priced = price_plan(asked.plan, asked.network)
    if pay is not None and not priced.private:
        raise InputError(f"{priced.leaks[0] if priced.leaks else 'the run is not private'}: no account can pay for it")
    for complaint in priced.warnings:
        warnings.warn(complaint, stacklevel=stacklevel)  # past `takes`
    experiment, run = _experiment(asked, parties, test, own_test), asked.plan.run
    drawn = [run.seed + k for k in range(run.seeds)]
    if pay is not None:
        pay([list(events) * run.seeds for events in events_of(_against_all(priced))], unit_of(asked.plan))
    covered = [curve for curve in COVERED if priced.private and (own_test is None or curve != "test_score")]
    watch = watcher(callbacks, name, priced.rounds, covered)
    trace = experiment.run(priced, drawn, watch=watch, checkpoint=checkpoint, rule=adaptive)
    if not np.isfinite(trace.points).all():
        raise InputError(f"{priced.algorithm.slug} diverged: use a smaller step, a clip, or another algorithm")
    judged = judge(experiment, trace.points, "all" if references else "none", clip=priced.algorithm.clips(priced.cfg))
    trained = Trained.of(experiment, priced, trace, drawn, judged, asked.coding)
    tell_end(callbacks, trained)
    return trained


def _against_all(priced: Priced) -> Priced:
    """What everybody else together could learn: an account is for the life of the data, whoever turns out curious.

    Noise that neighbours share hides nothing then; what is left is each party's own, so parties' events add up.
    """
    algorithm = priced.algorithm
    if algorithm.own_cost is None:
        return priced
    return replace(priced, algorithm=replace(algorithm, cost=algorithm.own_cost))


def _experiment(
    asked: Asked, parties: Parties, test: Site | None, own_test: Sequence[Site] | None
) -> Experiment:  # fmt: skip
    """The records, read and checked."""
    coding = asked.coding
    records = [coding.records(site, site_words(i, parties.names)) for i, site in enumerate(parties.sites or ())]
    shown, owned = None if test is None else Test(*coding.records(test, "test")), None
    if own_test is not None:
        each = [coding.records(site, f"own_test {i}") for i, site in enumerate(own_test)]
        shown = Test(*(np.concatenate(part) for part in zip(*each, strict=True)))
        owned = np.split(np.arange(len(shown.targets)), np.cumsum([len(y) for _, y in each])[:-1])
    lengths, people = [len(x) for x, _ in records], None
    if parties.people is not None:  # a person at two parties is two people: each party has its own part of it
        people = np.concatenate([k * sum(lengths) + ids for k, ids in enumerate(parties.people)])
    if lengths != list(parties.sizes if parties.people is None else map(len, parties.people)):
        raise InputError("a site has changed its number of records since the parties were made")
    parts = np.split(np.arange(sum(lengths)), np.cumsum(lengths)[:-1])
    features = np.concatenate([x for x, _ in records])
    columns = list(parties.columns or ())
    if isinstance(asked.problem, AdditiveModel):
        columns = list(asked.problem.bins.feature_names)
    columns += ["constant"] * (features.shape[1] - len(columns))
    return assemble(
        asked.plan, asked.problem, features, np.concatenate([y for _, y in records]), parts, names=parties.names,
        test=shown, own_test=owned, origins=replace(ALL_PUBLIC, scale=parties.leaks), columns=columns, people=people,
    )  # fmt: skip


# ---- the price alone -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Price:
    """What a run would cost and how it would be run, known from public numbers alone.

    `noise` is every party's noise multiplier: the standard deviation of its noise in units of what one record can move.
    `accounts` holds every party's total: `.epsilon`, and `.all`, the ε that each valid accountant proves.

    >>> import coterie as ct
    >>> cost = ct.price(ct.logistic(), ct.ring(sizes=[500] * 4, features=3), ct.dp_dsgd(), ct.Budget(1.0, 1e-5))
    >>> round(cost.epsilon, 6), cost.rounds, sorted(cost.accounts[0].all)[:2]
    (1.0, 116, ['gdp', 'pld'])
    """

    algorithm: str
    settings: dict[str, object]  # as the public rules have filled them in
    rounds: int
    names: tuple[str, ...]
    noise: NDArray[np.float64]
    accounts: tuple[Account, ...]
    private: bool  # whether that is a guarantee
    leaks: tuple[str, ...]  # if not, what was read from the records without being paid for
    warnings: tuple[str, ...]

    @property
    def worst(self) -> Account:
        """The account of the party that pays most."""
        return max(self.accounts, key=lambda account: account.epsilon)

    @property
    def epsilon(self) -> float:
        """ε of the party that pays most: a record sits at one party, so it is everybody's."""
        return self.worst.epsilon

    @property
    def delta(self) -> float:
        """δ of the budget."""
        return self.worst.delta

    def __repr__(self) -> str:
        by = ", ".join(f"{name} {value:.4g}" for name, value in self.worst.all.items())
        noise = f"{self.noise.min():.4g}" + (f" to {self.noise.max():.4g}" if np.ptp(self.noise) else "")
        head = f"<{self.algorithm}, {self.rounds} rounds, {len(self.names)} parties: ε = {self.epsilon:.4g} at "
        return f"{head}δ = {self.delta:g} ({by}), noise multiplier {noise}{'' if self.private else ', NOT private'}>"


@takes(rounds=WHOLE | NOTHING_GIVEN, levels=LEVELS, away=AWAY)
def price(
    task: Task | Problem, parties: Parties, algorithm: AlgorithmPlan | None, budget: Budget | Sequence[Budget], *,
    rounds: int | None = None, levels: Levels | None = None, away: Away | None = None,
) -> Price:  # fmt: skip
    """What `train` would cost every party, and with how much noise. Reads no record: sizes are enough.

    >>> import coterie as ct
    >>> parties = ct.ring(sizes=[100, 200, 400])
    >>> ct.price(ct.logistic(), parties, ct.dp_dsgd(clip=1.0, mixing=1), ct.Budget(1.0, 1e-5), rounds=50).noise.round(1)
    array([26.4, 26.4, 26.4])
    """
    if budget is None:
        raise InputError("a price is for a budget: give ct.Budget(epsilon, delta)")
    asked = ask(task, parties, algorithm, budget, rounds=rounds, levels=levels, away=away)
    need_dimension(asked, parties)
    priced = price_plan(asked.plan, asked.network)
    assert asked.plan.privacy is not None
    each = accounts(priced.algorithm, priced.cfg, priced.places, asked.plan.privacy.delta)
    return Price(
        priced.algorithm.slug, priced.cfg.model_dump(), priced.rounds, parties.names, priced.noise, each,
        priced.private, priced.leaks, tuple(priced.warnings),
    )  # fmt: skip
