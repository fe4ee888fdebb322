"""`train`: any problem, on the records of several parties, within a privacy budget, in one call.

The way is that of a plan: `experiment.price` fixes the noise from public sizes, `drivers.simulate` runs all parties in
this process, and the ledgers hold what each of them paid. The estimators are built on it.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from coterie.algorithms.batches import rows
from coterie.contracts import check_contract
from coterie.data import ALL_PUBLIC, Dataset
from coterie.drivers.budget import run_events
from coterie.drivers.seeds import fresh_seed
from coterie.drivers.simulate import Test
from coterie.errors import InputError
from coterie.experiment import Priced, assemble, price
from coterie.plan import Plan, validate
from coterie.privacy.events import Event, flat
from coterie.privacy.ledger import Budget, MemoryLedger
from coterie.problems import Custom, Problem

__all__ = ["Trained", "check_settings", "train"]

Site = tuple[ArrayLike, ArrayLike] | Dataset
ROUNDING = 1e-9  # a norm may exceed its bound by this part of it


@dataclass(frozen=True)
class Trained:
    """What a private run leaves. Everything here is a function of noisy messages and of public numbers.

    `point` is the average of the parties' answers (`points`, one row each), which further rounds of averaging, that
    cost nothing, would bring to every party. `history` holds curves over the rounds `history["round"]`: how far the
    parties disagree and, if test records were given, their mean score on them. The training loss is not in it: it is a
    number about the records that nobody has paid for.
    """

    problem: Problem
    points: NDArray[np.float64]
    history: dict[str, NDArray]
    names: tuple[str, ...]
    priced: Priced
    budget: float | Sequence[float]  # ε allowed, to all parties or to each
    delta: float
    bytes_sent: NDArray[np.float64]  # by each party to one neighbour

    @property
    def point(self) -> NDArray[np.float64]:
        """The model as one flat vector."""
        return self.points.mean(axis=0)

    @property
    def params(self) -> Any:
        """The model in the shape of the parameters that a `Custom` problem was made with."""
        if not isinstance(self.problem, Custom):
            raise InputError(f"{type(self.problem).__name__} has no tree of parameters: use `point`")
        return self.problem.template.unravel(jnp.asarray(self.point))

    @property
    def rounds(self) -> int:
        """Rounds of messages."""
        return self.priced.rounds

    @property
    def private(self) -> bool:
        """Whether `epsilon` is a guarantee: not if anything was read from the records unpaid (`leaks`)."""
        return self.priced.private

    @property
    def leaks(self) -> tuple[str, ...]:
        """What was read from the records to make features, targets or labels."""
        return self.priced.leaks

    @property
    def epsilon(self) -> float:
        """ε that the party who paid most has paid, at `delta`, by the tightest accountant."""
        return self.priced.claims[0].account.epsilon

    @cached_property
    def events(self) -> tuple[tuple[Event, ...], ...]:
        """What each party released: one tuple of events a party."""
        priced, seen = self.priced, {}
        place = priced.places
        facts = (place.count, place.degree, place.self_weight, place.unit, place.noise)
        out = []
        for i, row in enumerate(zip(*(np.asarray(x, float).tolist() for x in facts), strict=True)):
            if row not in seen:  # parties in like places pay alike
                with jax.enable_x64(True):
                    seen[row] = tuple(flat(e) for e in run_events(priced.algorithm, priced.cfg, rows(place, i)))
            out.append(seen[row])
        return tuple(out)

    @cached_property
    def ledgers(self) -> tuple[MemoryLedger, ...]:
        """Each party's ledger: the events planned before any record was read, all charged (`times` says how often)."""
        budgets = np.broadcast_to(np.asarray(self.budget, float), (len(self.names),))
        out = []
        for epsilon, events in zip(budgets, self.events, strict=True):
            ledger = MemoryLedger(Budget(float(epsilon), self.delta), plan=events)
            for event in events:
                ledger.charge(self.rounds - 1, event)
            out.append(ledger)
        return tuple(out)


def train(
    problem: Problem,
    sites: Sequence[Site],
    *,
    epsilon: float | Sequence[float] = 1.0,
    delta: float = 1e-5,
    algorithm: str = "auto",
    settings: Mapping[str, Any] | None = None,
    graph: str | Mapping[str, Any] = "ring",
    ridge: float = 1e-3,
    rounds: int | None = None,
    weighting: str = "agents",
    seed: int | None = None,
    test: Site | None = None,
    names: Sequence[str] | None = None,
    leaks: Sequence[str] = (),
) -> Trained:
    """Train one model on the records of several parties, every message of every party noised to its budget.

    The guarantee is for one record of one party replaced by another, sizes public, against a reader of all messages.
    All parties run in this process: for a real network use `coterie deploy`, whose noise also withstands an attacker
    of floating-point numbers.

    Args:
        problem: `Custom.make(loss, params)` for a loss of your own, or one of `coterie.losses`.
        sites: for each party its (features, targets): numbers, one row a record. Targets in the problem's coding:
            ±1 (logistic, hinge), 0 … k − 1 (softmax, perceptron), numbers (squared), anything (mean). Or, for each
            party, a `Dataset`, whose `leaks` count.
        epsilon, delta: the budget of every party; a list gives each party its own ε.
        algorithm: a name from `coterie algorithms`, or "auto": `dp-consensus-gd` with a single noisy round for means
            (no method with this adversary has less error), `dp-dsgd` for everything else.
        settings: the algorithm's own settings, such as {"clip": 1.0}; what is left out it fills by public rules.
        graph: a kind such as "ring", "star", "complete", or {"kind": "small-world", "k": 4, "p": 0.1}.
        ridge: ridge/2 ‖x‖² is added to every party's objective (not to a mean's).
        rounds: rounds of messages; default: the algorithm's public rule.
        weighting: what counts equally in the objective, "agents" or "records".
        seed: of the noise and of batches, from 0 to 2⁶⁴ − 1; None: 64 bits from the operating system, all that the
            generator takes. Who knows it can subtract the noise.
        test: (features, targets) that are not private, to draw a curve of the score on.
        names: of the parties.
        leaks: what was read from these or other private records to make the arrays, such as a column's mean. ε does
            not pay for it, so the model is then not private, and a warning says so.

    >>> rng = np.random.default_rng(0)
    >>> sites = [(rng.uniform(-1, 1, (500, 2)), np.zeros(500)) for _ in range(4)]
    >>> from coterie.losses.mean import Mean
    >>> model = train(Mean(2, boxed=False), sites, epsilon=1.0, delta=1e-5, seed=0)
    >>> bool(np.abs(model.point).max() < 0.05), round(model.epsilon, 6)
    (True, 1.0)
    """
    plan = _plan(problem, epsilon, delta, algorithm, settings, graph, rounds, ridge=ridge, weighting=weighting)
    check_contract(plan, problem)
    features, targets, parts = _records(problem, sites)
    leaks = (*leaks, *dict.fromkeys(leak for site in sites if isinstance(site, Dataset) for leak in site.leaks))
    if names is None:
        names = [f"agent {i}" for i in range(len(parts))]
    if len(names) != len(parts):
        raise InputError(f"{len(names)} names for {len(parts)} sites")
    shown = None if test is None else Test(*_checked(problem, *_arrays(problem, test), "test"))
    made = replace(ALL_PUBLIC, scale=tuple(leaks))
    experiment = assemble(plan, problem, features, targets, parts, names=names, test=shown, origins=made)
    priced = price(plan, experiment.network)
    for complaint in priced.warnings:
        warnings.warn(complaint, stacklevel=2)
    seed = fresh_seed() if seed is None else seed
    trace = experiment.run(priced, [seed])
    points = np.asarray(trace.points[0], float)
    if not np.isfinite(points).all():
        raise InputError(f"{plan.algorithm.name} diverged: use a smaller step, a clip, or another algorithm")
    public = ("consensus_gap", "test_score", "time")
    history = {"round": trace.rounds, **{k: v[0] for k, v in trace.curves.items() if k in public}}
    return Trained(problem, points, history, tuple(names), priced, epsilon, delta, np.asarray(trace.bytes[0]))


def check_settings(
    problems: Sequence[Problem], *, epsilon: float | Sequence[float], delta: float, algorithm: str,
    settings: Mapping[str, Any] | None, graph: str | Mapping[str, Any], rounds: int | None,
) -> None:  # fmt: skip
    """Refuse settings of `train` that fit none of these problems; no record is needed for that."""
    plan = _plan(problems[0], epsilon, delta, algorithm, settings, graph, rounds)
    check_contract(plan, *problems)


def _plan(
    problem: Problem, epsilon: float | Sequence[float], delta: float, algorithm: str,
    settings: Mapping[str, Any] | None, graph: str | Mapping[str, Any], rounds: int | None, **of_problem: Any,
) -> Plan:  # fmt: skip
    """The plan that `train` runs."""
    name, chosen = (algorithm, dict(settings or {})) if algorithm != "auto" else _auto(problem, dict(settings or {}))
    if chosen.get("as_printed"):
        raise InputError("as_printed runs are for study and not private: ask for one in a plan file")
    if problem.isotropic:
        of_problem["ridge"] = 0.0
        if algorithm == "auto" and rounds is None:
            rounds = 1 + MEAN_MIXING
    return validate(
        {
            "name": "train",
            "graph": dict(graph) if isinstance(graph, Mapping) else {"kind": graph},
            "problem": of_problem,
            "algorithm": {"name": name, **chosen},
            "privacy": {"epsilon": epsilon if np.ndim(epsilon) == 0 else list(epsilon), "delta": delta},  # type: ignore[arg-type]
            "run": {"seed": 0} if rounds is None else {"seed": 0, "rounds": rounds},
        }
    )


MEAN_MIXING = 20  # rounds of averaging after a mean's one release: for the parties' own copies, `point` needs none


def _auto(problem: Problem, settings: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The public rule behind "auto": it looks at the kind of problem and at nothing else."""
    if problem.isotropic:
        return "dp-consensus-gd", {"step": 1.0, "stage_one": 1, **settings}
    return "dp-dsgd", settings


def _records(problem: Problem, sites: Sequence[Site]) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    if len(sites) < 2:
        raise InputError(f"a network needs at least 2 sites, got {len(sites)}")
    checked = [_checked(problem, *_arrays(problem, site), f"site {i}") for i, site in enumerate(sites)]
    widths = {x.shape[1] for x, _ in checked}
    if len(widths) > 1:
        raise InputError(f"sites must have the same features, got {sorted(widths)} columns")
    sizes = [len(x) for x, _ in checked]
    parts = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    return np.concatenate([x for x, _ in checked]), np.concatenate([y for _, y in checked]), parts


def _arrays(problem: Problem, site: Site) -> tuple[ArrayLike, ArrayLike]:
    if isinstance(site, Dataset):
        return site.features, problem.encode(site.targets, site.classes)
    return site


def _checked(problem: Problem, features: ArrayLike, targets: ArrayLike, where: str) -> tuple[np.ndarray, np.ndarray]:
    """Records as arrays; refused where the bounds that the problem's price rests on do not hold."""
    x, y = np.asarray(features, float), np.asarray(targets)
    if x.ndim != 2 or y.shape != (len(x),):
        raise InputError(f"{where}: expected features (records, columns) and one target each, got {x.shape}, {y.shape}")
    if wrong := problem.outside(x):
        raise InputError(f"{where}: records {wrong}")
    try:
        return problem.admit(x, problem.labels.taken(y))
    except InputError as error:
        raise InputError(f"{where}: {error} for {problem.name}") from None
