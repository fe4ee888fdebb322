"""From a plan to something that runs: data, partition, graph and problem, ready for a driver.

The order matters. Everything public is checked first; `coterie.pricing` fixes the noise from public sizes before a
record is used; only then does a driver see data.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from coterie.contracts import check_contract
from coterie.data import Dataset, Origins, find_source, split
from coterie.data.partition import by_site
from coterie.data.partition import own_test as deal_test
from coterie.data.planned import agents_of, leaks_of, load_planned, parts_of, people_of, public_sizes, sizes_of
from coterie.data.store import Store
from coterie.drivers.adaptive import Steering
from coterie.drivers.layout import Layout, make_layout
from coterie.drivers.simulate import Run, Test, Trace, simulate
from coterie.drivers.steered import simulate_steered
from coterie.errors import InputError
from coterie.exchange.planned import exchange_of
from coterie.losses.base import make_problem, need_facts, problem_of
from coterie.network import Network, graph_of, present_of
from coterie.passes import gather
from coterie.plan import Plan
from coterie.pricing import Priced
from coterie.privacy.adaptive import Rule
from coterie.privacy.adaptive import make as make_rule
from coterie.problems import Problem
from coterie.tables.algorithm import REFERENCES

__all__ = ["Experiment", "Outsider", "assemble", "prepare", "public_network"]

L = TypeVar("L")


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
    parts: Sequence[np.ndarray | range]  # rows of each party; ranges where they are streamed
    features: np.ndarray  # empty, like the targets, where records are streamed from `network.store`
    targets: np.ndarray
    test: Test | None
    own_test: Sequence[np.ndarray] | None = None  # which of the test records are each party's own
    outsiders: Sequence[Outsider] = ()
    people: np.ndarray | None = None  # whose each record is, where the person is the unit
    whose: np.ndarray | None = None  # the same wherever it is known: for those who hold the records
    tested: np.ndarray | None = None  # whose each test record is, where that is known

    def layout(self, rounds: int, shape: np.ndarray | None = None) -> Layout:
        """The agents laid out for `rounds` rounds on one device; without a `shape` no round is played."""
        return self.laid(make_layout, rounds, shape)

    def laid(self, make: Callable[..., L], rounds: int, shape: np.ndarray | None) -> L:
        """The same as `make` does it. Where no round is played, nobody is away."""
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
        make: Callable[..., object] = make_layout, drive: Callable[..., Trace] = simulate, laid: Layout | None = None,
        rule: Rule | None = None, **options: object,
    ) -> Trace:  # fmt: skip
        """Simulate the priced algorithm with these seeds in one batch, laid out by `make` and run by `drive`.

        `laid`: a layout for these rounds, from a caller that reuses it. `rule`: what privacy.adaptive = "own" is.
        """
        drive = self._steered(priced, rule, drive)
        runs = [Run(s, priced.cfg, priced.noise) for s in seeds]
        store = self.network.store
        if store is not None and make is not make_layout:
            raise InputError("data.source = 'store' streams records on one device: leave out --devices and processes")
        # Unless the plan asks for more, measure only at both ends: for a store because measuring reads every record,
        # for a release because there is nothing to score before its end.
        ends = store is not None or bool(self.network.problem.released)
        every = self.plan.run.every or max(1, priced.rounds if ends else priced.rounds // 50)
        layout = laid or self.laid(make, priced.rounds, priced.shape)
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
            if rule is not None:
                raise InputError("a rule chooses the noise of a plan that says so: privacy.adaptive is not set")
            return drive
        if drive is not simulate:
            raise InputError("privacy.adaptive runs on one device: leave out --devices and processes")
        chosen = rule or make_rule(privacy.adaptive, privacy.adaptive_options)
        what = (priced.algorithm, priced.cfg, priced.places, privacy.delta)
        return partial(simulate_steered, steering=lambda: Steering.of(*what, chosen))


def prepare(plan: Plan, split_number: int = 0, *, loaded: Callable[[], object] = lambda: None) -> Experiment:
    """Load the data, split it over agents and build graph and problem.

    `split_number`: each number holds out other records for testing. `loaded` is called once the data is there.
    """
    source = find_source(plan.data.source)
    with ThreadPoolExecutor(1) as aside:  # records that are made are nobody's: they are, while the plan is looked at
        made = aside.submit(load_planned, plan) if source.made else None
        if plan.algorithm.name not in REFERENCES:
            check_contract(plan)
        if source.stream is not None:
            return _prepare_store(plan, source.stream)
        if agents := agents_of(plan):
            graph_of(plan, agents)  # a bad graph is refused before data is read
        dataset, others = made.result() if made else load_planned(plan), list[Dataset]()
    loaded()
    if plan.partition.outsiders:
        dataset, others = dataset.leave_out(plan.partition.outsiders)
    drawn = [plan.data.seed, split_number] if split_number else plan.data.seed
    train, held_out = split(dataset, plan.data.test_fraction, seed=drawn)
    training = dataset.take(train)
    parts = parts_of(plan, training)
    with ThreadPoolExecutor(1) as aside:  # whose the test records are is worked out beside the rest
        judged = held_out if len(held_out) else train  # where there is nothing to predict, nothing is held out
        owned = None
        if len(held_out):
            among = training, parts, dataset.take(held_out), plan.partition.kind
            owned = aside.submit(deal_test, *among, seed=plan.data.seed)
        problem = make_problem(plan, dataset.name, dataset.features.shape[1], dataset.classes)
        if wrong := problem.outside(dataset.features):
            raise InputError(f"records of {dataset.name!r} {wrong}")
        need_facts(problem, problem.columns)
        targets = problem.encode(dataset.targets, dataset.classes)
        names = dataset.site_names if by_site(plan.partition.kind) else _names(plan, len(parts))
        people = people_of(plan, training)
        network = Network.of(plan, problem, np.array(sizes_of(parts, people)), names, leaks=dataset.leaks)
        test = Test(*problem.admit(gather(dataset.features, judged), gather(targets, judged)))
        admitted = problem.admit(training.features, gather(targets, train))
        if problem.coupled and np.any(beyond := np.any(admitted[0] != training.features, axis=1)):
            whose = names[next(i for i, part in enumerate(parts) if beyond[part].any())]
            raise InputError(f"records of {whose!r} lie outside of the ranges that problem.variables states for it")
    outside = [
        _outsider(name, problem, other, plan.data.test_fraction, drawn)
        for name, other in zip(plan.partition.outsiders, others, strict=True)
    ]
    tested = None if dataset.people is None else dataset.people[judged]
    own = None if owned is None else owned.result()
    return Experiment(plan, network, dataset, parts, *admitted, test, own, outside, people, training.people, tested)


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
            f"a store fixes who holds which records: use partition.kind = 'site', {len(store.names)} parties"
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
    parts: Sequence[np.ndarray],
    *,
    names: Sequence[str],
    origins: Origins,
    test: Test | None = None,
    own_test: Sequence[np.ndarray] | None = None,
    columns: Sequence[str] | None = None,
    people: np.ndarray | None = None,
) -> Experiment:
    """An experiment on records in memory; the plan's data, partition and problem.loss are not used.

    `targets` are in the problem's coding; party i holds the records `parts[i]`; `origins` says what was read to make
    them, `own_test` who holds which test records, and `columns` what the features are called. `people` says whose each
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
