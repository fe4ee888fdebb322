"""From a plan to something that runs: data, graph, problem, algorithm, and noise for the budget.

The order matters. Everything public is checked first; noise is fixed from public sizes before a record is used; only
then does a driver see data.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from coterie.algorithms.base import Algorithm, Config, Place, Public, find
from coterie.algorithms.batches import rows
from coterie.contracts import check_contract, hollow, need_fit, need_room, need_short, need_solvable
from coterie.data import Dataset, Origins, find_source, split
from coterie.data.partition import by_site
from coterie.data.partition import own_test as deal_test
from coterie.data.planned import agents_of, leaks_of, load_planned, parts_of, people_of, public_sizes, sizes_of
from coterie.data.store import Store
from coterie.drivers.adaptive import Steering
from coterie.drivers.budget import Spending, calibrate_agents, spending
from coterie.drivers.dry_run import need_sums
from coterie.drivers.layout import Layout, make_layout, make_places
from coterie.drivers.simulate import Run, Test, Trace, simulate
from coterie.drivers.steered import simulate_steered
from coterie.errors import InputError
from coterie.exchange.central import cap_of, local_words, own_events
from coterie.exchange.planned import central_noise, claim_of, exchange_of, fitted, grid_warnings
from coterie.exchange.statement import Claim
from coterie.exchange.sums import SumTerms
from coterie.losses import by_labels
from coterie.losses.base import make_problem, need_facts, problem_of
from coterie.network import Network, ObserverAccount, graph_of, present_of, public_facts, seats_of, shape_of
from coterie.plan import REFERENCES, Plan
from coterie.privacy.adaptive import Rule
from coterie.privacy.adaptive import make as make_rule
from coterie.problems import Problem

__all__ = [
    "Experiment",
    "Network",
    "Outsider",
    "Priced",
    "assemble",
    "needs_dimension",
    "noise_of",
    "prepare",
    "price",
    "public_network",
    "public_sizes",
    "settle",
]

DEFAULT_ROUNDS = 50


@dataclass(frozen=True)
class Priced:
    """An algorithm with its settings filled in and its noise fixed for a budget."""

    algorithm: Algorithm
    cfg: Config
    rounds: int
    public: Public
    places: Place
    noise: np.ndarray
    shape: np.ndarray
    spending: Spending | None  # None for an algorithm without privacy
    claim: float | None  # what the paper would print, if the module says
    central: Claim | None = field(default=None, kw_only=True)  # what opened sums cost, if the plan asks
    cap: Claim | None = field(default=None, kw_only=True)  # and a party's vectors, if all are sent again that may be
    terms: SumTerms | None = field(default=None, kw_only=True)  # of the sums that are opened, if only those are
    alone: Claim | None = field(default=None, kw_only=True)  # against everybody else, where they share secrets
    seats: tuple[ObserverAccount, ...] = field(default=(), kw_only=True)  # single observers that the plan names
    leaks: tuple[str, ...] = field(kw_only=True)  # of the network: what was read from the records, unpaid
    warnings: list[str] = field(default_factory=list)

    @property
    def claims(self) -> tuple[Claim, ...]:
        """Every guarantee, each against its own adversary: the one that the plan's budget is for comes first."""
        if self.spending is None:
            return ()
        if self.algorithm.against is not None and self.alone is not None:
            return Claim(*self.algorithm.against(self.cfg), self.spending.worst), self.alone
        local = Claim(*local_words(shared=self.for_sums), self.spending.worst)
        if self.central is None:
            return (local,)
        if not self.for_sums:
            return local, self.central
        return (self.central, local) if self.cap is None else (self.central, local, self.cap)

    @property
    def for_sums(self) -> bool:
        """Whether the budget is for opened sums, not for messages."""
        return self.terms is not None and self.terms.shared

    @property
    def private(self) -> bool:
        """Whether what the budget is for is a guarantee: finite, proved, and nothing else was read from the records."""
        printed = bool(getattr(self.cfg, "as_printed", False))
        finite = bool(self.claims) and bool(np.isfinite(self.claims[0].account.epsilon))
        return finite and not printed and not self.leaks


@dataclass(frozen=True)
class Outsider:
    """A site that takes no part: what it has at home, and test records of its own."""

    name: str
    features: np.ndarray
    targets: np.ndarray
    test: Test


@dataclass(frozen=True)
class Experiment:
    """Everything a driver needs."""

    plan: Plan
    network: Network
    dataset: Dataset
    parts: Sequence[Any]
    features: np.ndarray  # empty, like the targets, where records are streamed from `network.store`
    targets: np.ndarray
    test: Test | None
    own_test: Sequence[np.ndarray] | None = None  # which of the test records are each party's own
    outsiders: Sequence[Outsider] = ()
    people: np.ndarray | None = None  # whose each record is, where the person is the unit
    whose: np.ndarray | None = None  # the same wherever it is known: for those who hold the records
    tested: np.ndarray | None = None  # whose each test record is, where that is known

    def layout(self, rounds: int, shape: np.ndarray | None = None, make: Callable[..., Any] = make_layout) -> Any:
        """Lay the agents out for `rounds` rounds, on one device (a `Layout`) or as `make` does.

        Without a `shape` no round is played, so nobody is away: what all hold is looked at.
        """
        plan, dtype = self.plan, jnp.dtype(self.plan.run.dtype)
        records = self.features if self.network.store is None else self.network.store
        with jax.enable_x64(dtype == jnp.float64):
            return make(
                self.network.problem, records, self.targets, self.parts, self.network.graph, self.network.mixing,
                rounds=rounds, ridge=plan.ridge, weighting=plan.weighting, shape=shape,
                start=self.network.problem.start(plan.data.seed), dtype=dtype,
                people=self.people, per_person=plan.data.records_per_person,
                present=None if shape is None else present_of(plan, rounds, self.network),
            )  # fmt: skip

    def run(
        self, priced: Priced, seeds: Sequence[int], progress: Callable[[int], None] | None = None, *,
        make: Callable[..., Any] = make_layout, drive: Callable[..., Trace] = simulate, laid: Layout | None = None,
        rule: Rule | None = None, **options: Any,
    ) -> Trace:  # fmt: skip
        """Simulate the priced algorithm with these seeds in one batch, laid out by `make` and run by `drive`.

        `laid`: the layout of these rounds, from a caller who uses it again. `rule`: what privacy.adaptive = "own" is.
        """
        drive = self._steered(priced, rule, drive)
        runs = [Run(s, priced.cfg, priced.noise) for s in seeds]
        store = self.network.store
        if store is not None and make is not make_layout:
            raise InputError("data.source = 'store' streams records on one device: leave out --devices and processes")
        # Unless the plan asks for more, at both ends: of a store, as measuring reads every record; of a release, as
        # nothing is there to be scored before, and a model has to be made of it.
        ends = store is not None or bool(self.network.problem.released)
        every = self.plan.run.every or max(1, priced.rounds if ends else priced.rounds // 50)
        layout = laid or self.layout(priced.rounds, priced.shape, make)
        exchange = exchange_of(
            self.plan, priced.algorithm, self.network.graph, self.network.mixing, priced.terms
        )  # fmt: skip
        options = {"every": every, "test": self.test, "exchange": exchange, **options}
        if store is None:
            return drive(priced.algorithm, layout, runs, rounds=priced.rounds, progress=progress, **options)
        before = dataclasses.replace(store.tally)
        try:
            trace = drive(priced.algorithm, layout, runs, rounds=priced.rounds, progress=progress, **options)
        except jax.errors.JaxRuntimeError:
            if store.tally.trouble:
                raise InputError(store.tally.trouble) from None
            raise
        trace.timing |= store.tally.since(before, trace.timing["run_s"])
        return trace

    def _steered(self, priced: Priced, rule: Rule | None, drive: Callable[..., Trace]) -> Callable[..., Trace]:
        """How it is run: by `drive`, or run by run where the noise follows what was released."""
        privacy = self.plan.privacy
        if privacy is None or privacy.adaptive is None:
            return drive
        if drive is not simulate:
            raise InputError("privacy.adaptive runs on one device: leave out --devices and processes")
        chosen = rule or make_rule(privacy.adaptive, privacy.adaptive_options)
        what = (priced.algorithm, priced.cfg, priced.places, privacy.delta)
        return partial(simulate_steered, steering=lambda: Steering.of(*what, chosen))


def prepare(plan: Plan, split_number: int = 0) -> Experiment:
    """Load the data, split it over agents and build graph and problem.

    `split_number`: another number holds other records out for testing.
    """
    if plan.algorithm.name not in REFERENCES:
        check_contract(plan)
    if (source := find_source(plan.data.source)).stream is not None:
        return _prepare_store(plan, source.stream)
    if agents := agents_of(plan):
        graph_of(plan, agents)  # a bad graph is refused before data is read
    dataset, others = load_planned(plan), list[Dataset]()
    if plan.partition.outsiders:
        dataset, others = dataset.leave_out(plan.partition.outsiders)
    drawn = [plan.data.seed, split_number] if split_number else plan.data.seed
    train, held_out = split(dataset, plan.data.test_fraction, seed=drawn)
    training = dataset.take(train)
    parts = parts_of(plan, training)
    problem = make_problem(plan, dataset.name, dataset.features.shape[1], dataset.classes)
    if wrong := problem.outside(dataset.features):
        raise InputError(f"records of {dataset.name!r} {wrong}")
    need_facts(problem, problem.columns)
    targets = problem.encode(dataset.targets, dataset.classes)
    names = dataset.site_names if by_site(plan.partition.kind) else _names(plan, len(parts))
    people = people_of(plan, training)
    network = Network.of(plan, problem, np.array(sizes_of(parts, people)), names, leaks=dataset.leaks)
    judged = held_out if len(held_out) else train  # where there is nothing to predict, nothing is held out
    test = Test(*problem.admit(dataset.features[judged], targets[judged]))
    owned = None
    if len(held_out):
        owned = deal_test(training, parts, dataset.take(held_out), plan.partition.kind, seed=plan.data.seed)
    admitted = problem.admit(training.features, targets[train])
    if problem.coupled and np.any(beyond := np.any(admitted[0] != training.features, axis=1)):
        whose = names[next(i for i, part in enumerate(parts) if beyond[part].any())]
        raise InputError(f"records of {whose!r} lie outside of the ranges that problem.variables states for it")
    outside = [
        _outsider(name, problem, other, plan.data.test_fraction, drawn)
        for name, other in zip(plan.partition.outsiders, others, strict=True)
    ]
    tested = None if dataset.people is None else dataset.people[judged]
    return Experiment(plan, network, dataset, parts, *admitted, test, owned, outside, people, training.people, tested)


def _outsider(name: str, problem: Problem, its: Dataset, fraction: float, seed: int | list[int]) -> Outsider:
    """A site's own records, split as the others' are."""
    train, held = split(its, fraction, seed=seed)
    features, targets = problem.admit(its.features, problem.encode(its.targets, its.classes))
    return Outsider(name, features[train], targets[train], Test(features[held], targets[held]))


def _prepare_store(plan: Plan, stream: Callable[[Path], Store]) -> Experiment:
    """Open the plan's store: its manifest and its test records are read, nobody's training records are."""
    if plan.data.path is None:
        raise InputError(f"data.path is needed for data.source = {plan.data.source!r}")
    store, p = stream(plan.data.path), plan.partition
    if p.kind != "site" or p.agents not in (None, len(store.names)):
        raise InputError(
            f"a store fixes who holds which records: use partition.kind = 'site', {len(store.names)} agents"
        )
    if plan.by_person if store.people is None else plan.data.unit is None:
        does = "does not say" if store.people is None else "says"
        state = "write it with people" if plan.by_person else "state data.unit = 'person', or 'record'"
        raise InputError(f"the store {store.folder} {does} whose its records are: {state}")
    sizes = store.people if plan.by_person and store.people is not None else store.counts
    if p.sizes is not None and list(p.sizes) != list(sizes):
        raise InputError(f"partition.sizes says {p.sizes[:8]}, but the store has {list(sizes[:8])}")
    problem = make_problem(plan, store.folder.name, store.width, store.classes)
    need_facts(problem, problem.columns)
    features, targets = store.test()
    dataset = Dataset(
        store.folder.name, features, targets, store.classes, store.feature_names, origins=store.origins
    )  # fmt: skip
    test = Test(*problem.admit(features, problem.encode(targets, store.classes)))
    network = Network.of(plan, problem, np.array(sizes), store.names, store, leaks=dataset.leaks)
    parts = [range(count) for count in sizes]  # of records, or of people
    return Experiment(plan, network, dataset, parts, features[:0], targets[:0], test)


def assemble(
    plan: Plan,
    problem: Problem,
    features: np.ndarray,
    targets: np.ndarray,
    parts: list[np.ndarray],
    *,
    names: Sequence[str],
    origins: Origins,
    test: Test | None = None,
    own_test: Sequence[np.ndarray] | None = None,
    columns: Sequence[str] | None = None,
    people: np.ndarray | None = None,
) -> Experiment:
    """An experiment on records that are at hand; of the plan's data, partition and problem.loss nothing is used.

    `targets` are in the problem's coding; party i holds the records `parts[i]`; `origins` says what was read to make
    them, `own_test` whose test records are whose, and `columns` what the features are called. `people` says whose each
    record is, where the plan's unit is a person.
    """
    if plan.by_person != (people is not None) or plan.by_person != problem.per_person:
        raise InputError("people go with data.unit = 'person' and a loss for people (`of_people`), and with no other")
    need_facts(problem, features.shape[1])
    columns = range(features.shape[1]) if columns is None else columns  # type: ignore[assignment]
    dataset = Dataset(plan.name, features, targets, None, tuple(map(str, columns or ())), origins=origins)
    network = Network.of(plan, problem, np.array(sizes_of(parts, people)), names, leaks=dataset.leaks)
    return Experiment(plan, network, dataset, parts, features, targets, test, own_test, people=people)


def public_network(plan: Plan) -> Network:
    """The public side of a plan without reading data: sizes from the plan (or made, for synthetic data)."""
    sizes, source = public_sizes(plan), find_source(plan.data.source)
    if source.made and (sizes is None or plan.problem.loss is None or plan.problem.dim is None):
        return prepare(plan).network  # made here, so nobody's data is read
    if source.stream is not None and plan.deploy is None:
        return prepare(plan).network  # sizes are in its manifest
    if sizes is None:
        raise InputError(
            "accounting reads no data, so the plan must state partition.sizes, or agents and records (iid)"
        )
    if plan.problem.loss is None:
        raise InputError("accounting reads no data, so the plan must state problem.loss")
    problem = problem_of(plan, plan.problem.loss)
    need_facts(problem, problem.columns)
    return Network.of(plan, problem, sizes, _names(plan, len(sizes)), leaks=leaks_of(plan))


def _names(plan: Plan, count: int) -> tuple[str, ...]:
    """What people call the parties, where the plan says it."""
    if plan.deploy is not None and len(plan.deploy.parties) == count:
        return tuple(party.shown for party in plan.deploy.parties)
    return tuple(f"agent {i}" for i in range(count))


def needs_dimension(plan: Plan, network: Network) -> bool:
    """Whether the price depends on the number of parameters, which a plan without data need not state."""
    source = find_source(plan.data.source)
    if plan.problem.dim is not None or source.made or source.stream is not None:
        return False
    other = dataclasses.replace(network, problem=problem_of(plan, plan.problem.loss or by_labels(2), 7))
    return not np.allclose(price(plan, network).noise, price(plan, other).noise, rtol=1e-6)


def settle(plan: Plan, network: Network, algorithm: Algorithm | None = None, cfg: Config | None = None) -> Priced:
    """Fill in the algorithm's settings by its public rules; noise is still 0 and nothing is spent."""
    algorithm = algorithm or find(plan.algorithm.name)
    need_fit(algorithm, plan)
    exchange_of(plan, algorithm, network.graph, network.mixing)
    cfg = cfg or plan.algorithm.config()
    algorithm.check(cfg, network.problem)
    rounds = plan.run.rounds or 0
    public = public_facts(plan, network, rounds)
    if not rounds:
        rounds = algorithm.suggest_rounds(public) if algorithm.suggest_rounds is not None else DEFAULT_ROUNDS
        public = public_facts(plan, network, rounds)
    if algorithm.tune is not None:
        cfg = algorithm.tune(cfg, public)
    warnings = []
    if getattr(cfg, "as_printed", False):
        warnings.append(f"{algorithm.slug} runs as its paper printed it: it is not private as claimed")
    if algorithm.private:
        warnings += [f"no privacy can be claimed: {leak}" for leak in network.leaks]
        if network.problem.before:
            warnings.append(f"{network.problem.before} were released before: what that cost adds to this price")
    warnings += hollow(plan, int(network.sizes.sum()))
    if algorithm.convergent is not None and (complaint := algorithm.convergent(cfg, public)):
        warnings.append(complaint)
    shape = shape_of(plan, rounds, len(network.sizes))
    with jax.enable_x64(True):
        places = make_places(
            network.problem, network.sizes, network.graph, network.mixing,
            rounds=rounds, ridge=plan.ridge, weighting=plan.weighting, shape=shape,
            present=present_of(plan, rounds, network),
        )  # fmt: skip
    if network.store is not None:
        need_sums(algorithm, cfg, rows(places, 0), network.problem, network.store)
    need_solvable(plan, algorithm, cfg, places, network.problem)
    return Priced(
        algorithm, cfg, rounds, public, places, np.zeros(len(network.sizes)), shape, None, None, warnings,
        leaks=network.leaks,
    )  # fmt: skip


def price(
    plan: Plan, network: Network, algorithm: Algorithm | None = None, cfg: Config | None = None, *, fast: bool = False
) -> Priced:
    """Fill in the algorithm's settings by its public rules and fix the noise for the plan's budget.

    `fast`: what is spent is worked out as the noise is, by closed forms where they exist.
    """
    settled = settle(plan, network, algorithm, cfg)
    algorithm, cfg, places = settled.algorithm, settled.cfg, settled.places
    if plan.privacy is None:
        return settled
    (noise, terms), delta = noise_of(plan, settled), plan.privacy.delta
    with jax.enable_x64(True):
        places = eqx.tree_at(lambda p: p.noise, places, jax.device_put(np.asarray(noise)))
    need_room(algorithm, cfg, places)
    need_short(plan, places)
    spent = spending(algorithm, cfg, places, delta, fast, events=partial(own_events, terms=terms))
    central = claim_of(plan, algorithm, cfg, places, terms)
    claim = None
    if algorithm.claim is not None:
        with jax.enable_x64(True):
            claim = float(algorithm.claim(cfg, rows(places, int(np.argmax(spent.per_agent))), delta))
    alone = None
    if algorithm.own_cost is not None:
        other = dataclasses.replace(algorithm, cost=algorithm.own_cost)
        alone = Claim(*local_words(shared=True), spending(other, cfg, places, delta, fast).worst)
    return dataclasses.replace(
        settled, places=places, noise=noise, spending=spent, claim=claim, central=central,
        cap=cap_of(algorithm, cfg, places, terms, delta), terms=terms, alone=alone,
        seats=seats_of(plan, network, algorithm, cfg, places),
        warnings=[*settled.warnings, *grid_warnings(algorithm, cfg, places, terms)],
    )  # fmt: skip


def noise_of(plan: Plan, settled: Priced) -> tuple[np.ndarray, SumTerms | None]:
    """The noise multiplier of every agent that the plan's budget gives, from public numbers only; and the terms of the
    plan's sums, whose grid may follow from it.
    """
    assert plan.privacy is not None
    algorithm, places, epsilon = settled.algorithm, settled.places, plan.privacy.epsilon
    if isinstance(epsilon, list) and len(epsilon) != places.agents:
        raise InputError(f"privacy.epsilon lists {len(epsilon)} budgets for {places.agents} agents")
    printed = getattr(settled.cfg, "as_printed", False)
    fixed = settled.cfg.replace(as_printed=False) if printed else settled.cfg
    if plan.exchange.central:
        return central_noise(plan, algorithm, fixed, places)
    noise = calibrate_agents(algorithm, fixed, places, np.asarray(epsilon, float), plan.privacy.delta)
    with jax.enable_x64(True):
        noisy = eqx.tree_at(lambda p: p.noise, places, jax.device_put(noise))
    return noise, fitted(plan, algorithm, fixed, noisy)
