"""Slow machines: a batch by the clock reads no record to decide its size, costs what a full one does; late messages."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coterie.algorithms import _quantized as q
from coterie.algorithms._sampling import PIECES, Pace, first_of_permutation
from coterie.algorithms.base import find
from coterie.deploy import agent as agent_module
from coterie.deploy import party as party_module
from coterie.deploy.agent import Agent
from coterie.deploy.noise import SystemSource
from coterie.deploy.party import Carry, Party, Records, Terms
from coterie.deploy.trial import shards_of
from coterie.errors import InputError
from coterie.plan import Plan, validate
from coterie.privacy import profiles, rdp
from tests.deploy.house import House, Setting, rows, together
from tests.deploy.test_everything import planned
from tests.support import agent, mostly_slow, network

CLOCK = ("algorithm.scheme=clock", "algorithm.bits=10", "algorithm.batch=16")


def with_work(plan: Plan, seconds: float) -> Plan:
    tree = plan.as_json()
    tree["deploy"]["work"] = seconds
    return validate(tree)


# ---- the batch -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", mostly_slow([16, 21, 5], 21))
def test_pieces_are_the_first_records_of_the_permutation(batch: int) -> None:
    place, shard = agent(network(records=40, d=4, ridge=0.0))
    cfg = find("qdpsgd1").example.replace(scheme="clock", batch=batch)
    with jax.enable_x64(True):
        coins, x = jax.random.uniform(jax.random.key(1), (place.rows,), jnp.float64), jnp.array([0.3, -0.2, 0.1, 0.4])
        sizes = []
        for k in range(1, PIECES + 1):
            total, size = q.batch_sum(cfg, place, shard, x, {"coins": coins, "speed": jnp.array(k / PIECES)}, 0.1)
            own, here = first_of_permutation(coins, place.count, size, batch)
            np.testing.assert_allclose(total, shard.gradient(x, clip=0.1, rows=own, mask=here), atol=1e-12)
            sizes.append(int(size))
        assert sizes[0] == int(q.smallest_batch(cfg, place))
    assert sizes == sorted(sizes)
    assert sizes[-1] == batch


def test_the_pace_of_virtual_machines_has_its_stated_law() -> None:
    law = Pace()
    with jax.enable_x64(True):
        drawn = np.asarray(jax.vmap(lambda k: law.sample(k, jnp.float64))(jax.random.split(jax.random.key(0), 20_000)))
        values = np.arange(1, PIECES + 1) / PIECES
        chance = np.exp([float(law.log_density(jnp.array(v))) for v in values])
        assert float(law.log_density(jnp.array(9 / PIECES))) == -np.inf
    assert chance.sum() == pytest.approx(1)
    seen = np.array([(drawn == v).mean() for v in values])
    assert np.abs(seen - chance).max() < 5 * np.sqrt(0.25 / 20_000)


# ---- the price -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nu", [0.7, 3.0])
def test_what_one_multiplier_costs_grows_with_the_batch(nu: float) -> None:
    """The proof's lemma (docs/stragglers.md) for every bound that a round may be charged by."""
    eps, orders = np.linspace(0, 6, 25), np.array([2.0, 3.0, 8.0, 32.0])
    shares = np.linspace(0.02, 1, 15)
    curves = {
        "profile": [profiles.sampled_gaussian(nu, s).delta(eps) for s in shares],
        "symmetric": [rdp.symmetric_sampled_gaussian(nu, s, orders) for s in shares[:-1]],
        "integer orders": [rdp.wbk_sampled_gaussian(nu, s, orders) for s in shares[:-1]],
    }
    for name, curve in curves.items():
        assert (np.diff(np.array(curve), axis=0) >= -1e-12).all(), name


@pytest.mark.parametrize("slug", mostly_slow(["qdpsgd1", "qdpsgd2", "qdpsgd2-grad"], "qdpsgd2"))
def test_a_batch_by_the_clock_is_charged_as_a_full_one(slug: str) -> None:
    own = tuple(s for s in CLOCK if "bits" not in s or slug != "qdpsgd2")
    clock = Terms.of(planned(slug, own)[0])
    fixed = Terms.of(planned(slug, (*own, "algorithm.scheme=fixed"))[0])
    ((ours,), (theirs,)) = clock.charges(2)[3], fixed.charges(2)[3]
    assert (ours.rate, ours.slack, ours.times) == (theirs.rate, theirs.slack, theirs.times)  # type: ignore[attr-defined]
    assert ours.noise_multiplier == pytest.approx(theirs.noise_multiplier, rel=1e-9)  # type: ignore[attr-defined]
    assert theirs.tv - ours.tv == pytest.approx(2**-53, rel=1e-3)  # "fixed" draws a speed that only its clock reads
    cfg, place = clock.priced.cfg, clock._priced_place(2)
    small = q.Message(place.start, jnp.array(1.0))  # what was sent tells no more: the clock chose it
    with jax.enable_x64(True):
        told = find(slug).cost(cfg, place, jnp.array(0), small)
        planned_for = find(slug).cost(cfg, place, jnp.array(0), None)
        assert float(told.rate) == float(planned_for.rate) == 16 / float(place.count)  # type: ignore[union-attr]


def test_noise_that_does_not_grow_with_a_smaller_batch_is_refused() -> None:
    with pytest.raises(InputError, match="as_printed has the same noise whatever the batch"):
        planned("qdpsgd1", (*CLOCK, "algorithm.as_printed=true"))


# ---- the clock -------------------------------------------------------------------------------------------------------


class Watched:
    """A turn that notes whose records it was given, and takes as long as it is told."""

    def __init__(self, turn: Any, took: float):
        self.turn, self.took, self.now = turn, took, 0.0
        self.largest: list[float] = []
        self.paces: list[float] = []

    def __call__(self, shard: Any, t: Any, carry: Carry, draw: dict[str, Any]) -> Any:
        self.largest.append(float(np.abs(np.asarray(shard.features)).max()))
        self.paces.append(float(np.asarray(draw["speed"])))
        self.now += self.took
        return self.turn(shard, t, carry, draw)

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def timed() -> tuple[Terms, list[Records]]:
    plan, experiment = planned("qdpsgd1", CLOCK, rounds=3)
    return Terms.of(with_work(plan, 0.35)), shards_of(experiment)


@pytest.mark.parametrize(("took", "share"), [(0.1, 3 / 8), (0.01, 1.0), (5.0, 1 / 8)], ids=["slow", "fast", "stuck"])
def test_the_clock_decides_before_a_record_is_read(
    timed: tuple[Terms, list[Records]], monkeypatch: pytest.MonkeyPatch, took: float, share: float
) -> None:
    terms, shards = timed
    for features in (shards[0].features, -0.5 * shards[0].features):  # the same clock, other records
        party = Party.of(terms, 0, shards[0]._replace(features=features))
        watched = Watched(party.turns.turn, took)
        party.turns = replace(party.turns, turn=watched)
        monkeypatch.setattr(party_module, "time", watched)
        carry = party.begin()
        for t in range(2):
            carry, _, _ = party.speak(t, carry, SystemSource())
        assert watched.paces == [1 / PIECES, 1 / PIECES, share, 1 / PIECES, share]
        assert [size > 0 for size in watched.largest] == [False, False, True, False, True]


def test_without_a_deadline_all_of_a_batch_is_worked_off(timed: tuple[Terms, list[Records]]) -> None:
    terms, shards = timed
    party = Party.of(terms, 0, shards[0])
    watched = Watched(party.turns.turn, 9.0)
    party.turns = replace(party.turns, turn=watched, work=None)
    party.speak(0, party.begin(), SystemSource())
    assert watched.paces == [1.0]


@pytest.mark.parametrize("settings", [("qdpsgd1", ()), ("dp-dsgd", ())], ids=["virtual", "no batch"])
def test_time_for_work_that_no_clock_decides_on_is_refused(settings: tuple[str, tuple[str, ...]]) -> None:
    with pytest.raises(InputError, match=r"deploy.work = 0.5 is for batches that go by the clock"):
        Terms.of(with_work(planned(*settings)[0], 0.5))


# ---- late messages ---------------------------------------------------------------------------------------------------


class Slow(Agent):
    """A party that takes its time."""

    async def _speak(self, t: int, carry: Carry) -> Carry:
        await asyncio.sleep(0.5)
        return await super()._speak(t, carry)


@pytest.mark.parametrize(
    ("algorithm", "graph", "goes_on"),
    mostly_slow(
        [
            ("qdpsgd1", "ring", True),
            ("qdpsgd2", "ring", True),
            ("ldp-dgd", "complete", True),
            ("ldp-dgd-range", "ring", True),
            ("sdm", "ring", False),
        ],
        ("sdm", "ring", False),
    ),
)
def test_averaging_goes_on_without_a_slow_party(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: str, graph: str, goes_on: bool
) -> None:
    monkeypatch.setattr(agent_module, "GRACE", 0.05)
    plan = {"deadline": 0.15, "patience": 60.0}
    house = House(Setting.small(tmp_path / "t", 4, algorithm, None, graph, **plan), tmp_path / "h")
    ada, ben, cleo = house.names
    together(house.live(ada), house.live(ben), house.live(cleo, kind=Slow), seconds=60)
    assert house.violations(4) == []  # every round charged once, as declared, whatever came late
    missed = [facts for name, event, facts in house.notes if event == "late" and name in (ada, ben)]
    assert bool(missed) == goes_on
    _, held = rows(house.state[ada] / "ledger.db")
    old = [t - 1 - held[t][cleo].round for t in range(1, 4) if cleo in held[t]]
    assert (any(age > 0 for age in old) or not old) == goes_on
    assert all(np.isfinite(model).all() for model in house.models.values())
