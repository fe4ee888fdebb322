"""Two worlds of parties that share their noise, one record of party 0 apart, as `coterie.audit.sums` plays them."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import jax
import numpy as np
from numpy.typing import NDArray

from coterie.algorithms.base import find
from coterie.audit.setting import ANGLE, CROWD, FAR, RIDGE
from coterie.deploy.agreement import Agreement, read_agreement
from coterie.deploy.keys import PartyKeys, load_party
from coterie.deploy.party import Records, Terms
from coterie.deploy.shared import SharedCarry, SharedParty, join
from coterie.deploy.trial import sign_trial
from coterie.deploy.work import Turns
from coterie.errors import InputError
from coterie.plan import Plan, validate
from coterie.privacy.accountants import account, total_mu
from coterie.privacy.events import Event, Free
from coterie.sums.terms import SharedTerms

__all__ = ["TARGET", "Claimed", "SumWorlds", "sum_worlds", "sums_of_plan"]

TARGET = 0
SHARED: dict[str, object] = {"noise": "central", "honest": 4, "threshold": 4}  # of five parties, without a plan
PARTIES, RECORDS, ROUNDS = 5, 4, 20


@dataclass(frozen=True)
class Claimed:
    """What is claimed of the rounds against one adversary."""

    words: str
    epsilon: float
    mu: float


@dataclass(frozen=True)
class SumWorlds:
    """Party 0 with either record, and all that the parties of its sums agreed on."""

    plan: Plan
    agreement: Agreement
    keys: tuple[PartyKeys, ...]
    parties: tuple[SharedParty, SharedParty]
    point: NDArray[np.float64]  # what everybody else says
    delta: float
    main: Claimed
    local: Claimed

    @property
    def slug(self) -> str:
        """The algorithm."""
        return self.plan.algorithm.name

    @property
    def dim(self) -> int:
        """Numbers of a message."""
        return self.parties[0].count

    @property
    def rounds(self) -> int:
        """Rounds that are played."""
        return self.parties[0].rounds

    def terms(self, runs: int) -> SharedTerms:
        """The terms of a sum that serves so many runs of each world."""
        return self.parties[0].sharing.terms(self.agreement, 2 * runs * self.dim)

    @cached_property
    def crowd(self) -> _SumCrowd:
        """Party 0 in both worlds, compiled for many runs at once."""
        return _SumCrowd(self.parties)


def sum_worlds(
    slug: str, *, epsilon: float = 8.0, delta: float = 1e-5, rounds: int = ROUNDS, parties: int = PARTIES,
    exchange: Mapping[str, object] | None = None, settings: Mapping[str, object] | None = None,
    graph: Mapping[str, object] | None = None, person: bool = False,
) -> SumWorlds:  # fmt: skip
    """Two worlds of a deployed plan with shared noise that differ in one record of party 0, or in a `person` there."""
    algorithm = find(slug)
    if algorithm.wire is None:
        raise InputError(f"{slug} cannot be deployed, so it sends no bytes to attack")
    example = algorithm.example.model_dump(exclude_none=True)
    names = [f"party-{i}" for i in range(parties)]
    plan = validate(
        {
            "data": {"source": "csv"} | ({"unit": "person", "records_per_person": CROWD} if person else {}),
            "partition": {"kind": "iid", "sizes": [RECORDS] * parties},
            "graph": dict(graph or {"kind": "ring"}),
            "problem": {"loss": "hinge", "dim": 2, "ridge": RIDGE},  # its slope is at its bound from the start on
            "algorithm": {"name": slug, **example, **(settings or {})},
            "exchange": {"kind": "secret-sum", **(exchange or SHARED)},
            "privacy": {"epsilon": epsilon, "delta": delta},
            "run": {"rounds": rounds},
            "deploy": {"parties": [{"name": n, "address": f"{n}.example:443"} for n in names]},
        }
    )
    terms = Terms.of(plan)
    if terms.sum is None or not terms.sum.shared:
        raise InputError("an audit of opened sums needs exchange.noise = 'central'")
    turns = Turns.of(terms, TARGET)
    pair, shards = [], []
    for sign, many in ((1.0, CROWD), (-1.0, 1)):
        features = np.zeros((RECORDS, 2))
        features[0] = sign * np.cos(ANGLE), np.sin(ANGLE)
        whose = None
        if person:
            whose = np.repeat(np.arange(RECORDS), np.where(np.arange(RECORDS) == 0, many, 1))
            features = features[whose]
        shards.append(Records(features, np.ones(len(features), int), ("no", "yes"), (), people=whose))
        party = join(turns, shards[-1])
        assert isinstance(party, SharedParty)
        pair.append(party)
    agreement, keys = _agreed(plan, shards[0], parties)
    sharing, c = pair[0].sharing, terms.sum.colluders
    main = _claimed(f"any {c} of {parties} collude", [e for r in turns.charges for e in r], delta)
    local = _claimed("everybody else colludes", sharing.local, delta)
    point = np.array([0.0, -FAR]) if turns.count == 2 else np.zeros(turns.count)  # where messages are no points
    return SumWorlds(plan, agreement, keys, (pair[0], pair[1]), point, delta, main, local)


def sums_of_plan(plan: Plan) -> SumWorlds:
    """The worlds of a plan with shared noise: its parties, graph, exchange, algorithm and budget, two features, and no
    more rounds than are played; the grid is chosen anew, as everybody stands far away."""
    if not plan.exchange.central or plan.privacy is None:
        raise InputError("--wire takes an algorithm, or a plan with [privacy] and exchange.noise = 'central'")
    chosen = plan.exchange.model_dump(exclude_none=True)
    exchange = {k: v for k, v in chosen.items() if k not in ("kind", "bound", "fraction_bits")}
    parties = plan.partition.agents or len(plan.partition.sizes or ())
    if plan.deploy is not None:
        parties = len(plan.deploy.parties)
    return sum_worlds(
        plan.algorithm.name, epsilon=float(np.min(plan.privacy.epsilon)), delta=plan.privacy.delta,
        rounds=min(plan.run.rounds or ROUNDS, ROUNDS), parties=parties, exchange=exchange,
        settings=dict(plan.algorithm.model_extra or {}), graph=plan.graph.model_dump(exclude_none=True),
        person=plan.by_person,
    )  # fmt: skip


def _claimed(words: str, events: Sequence[Event], delta: float) -> Claimed:
    paid = [event for event in events if not isinstance(event, Free)]
    mu = total_mu([replace(e, tv=0.0) for e in paid])  # type: ignore[type-var]  # beyond any attack
    assert mu is not None
    return Claimed(words, account(paid, delta).epsilon, mu)


def _agreed(plan: Plan, records: Records, parties: int) -> tuple[Agreement, tuple[PartyKeys, ...]]:
    """An agreement between parties with keys of their own, as a rehearsal makes it."""
    with tempfile.TemporaryDirectory() as folder:
        path, sites = sign_trial(plan, [records] * parties, Path(folder) / "trial")
        keys = tuple(load_party(site.keys) for site in sites)
        return read_agreement(path, keys[0].authority), keys


class _SumCrowd:
    """Many runs of party 0 at once, in both worlds: its own `turn` and `told`, over an axis of runs."""

    def __init__(self, parties: tuple[SharedParty, SharedParty]):
        self.parties = parties
        with jax.enable_x64(True):
            self._turn = jax.jit(jax.vmap(parties[0].turns.turn, (None, None, 0, None)))
        self._bare = {name: np.zeros(law.shape) for name, law in parties[0].turns.laws.items()}

    def begin(self, runs: int) -> SharedCarry:
        return jax.tree.map(lambda x: np.broadcast_to(x, (runs, *np.shape(x))), self.parties[0].begin())  # type: ignore[no-any-return]

    def utter(self, world: int, t: int, carry: SharedCarry) -> SharedCarry:
        """The messages of round t."""
        with jax.enable_x64(True):
            kept, values, _ = self._turn(self.parties[world].shard, np.array(t), carry.inner, self._bare)
            return SharedCarry(carry.inner.spoken(kept, values), np.asarray(values), np.full_like(carry.when, t))

    def told(self, carry: SharedCarry, total: NDArray[np.float64], answered: int) -> SharedCarry:
        """After the sum was opened."""
        with jax.enable_x64(True):
            told = jax.vmap(lambda one, sum_: self.parties[0].told(one, sum_, answered))
            return told(carry, total)  # type: ignore[no-any-return]
