"""Networks that lose, repeat, delay and split; parties that die while secrets are dealt; nobody missing at all."""

from __future__ import annotations

import heapq
import random

import numpy as np
import pytest
from scipy import stats

from coterie.sums.core import Outgoing
from coterie.sums.messages import Answered, Partial, Step, SumFrame
from coterie.sums.secrets import Context, SlotSecrets, pair_mask
from coterie.sums.words import add
from tests.sums.test_deaths import dealt
from tests.sums.world import World, terms_of


def rough(seed: int, n: int = 5, c: int = 1) -> World:
    """Some seconds of a bad network with deaths and returns, then a quiet one."""
    rng = random.Random(seed)
    world = World(terms_of(n, c), offers=3)
    loss, split, until = rng.choice([0.05, 0.2, 0.5]), set(rng.sample(range(n), n // 2)), rng.choice([4.0, 12.0, 30.0])

    def cross(to: int, frame: SumFrame) -> list[Outgoing]:
        if world.now > until:
            return [(to, frame)]
        if world.now < until / 3 and (frame.sender in split) != (to in split):
            return []
        for _ in range((rng.random() >= loss) + (rng.random() < 0.05)):
            late = world.now + rng.choice([0.01, 0.3, 2.0])
            heapq.heappush(world.events, (late, next(world.order), to, frame))
        return []

    world.cross = cross
    while world.now < until:
        world.step()
        world.check()
        i = rng.randrange(n)
        if rng.random() < 0.05:
            if world.parties[i] is None:
                world.start(i)
            elif len(world.live) > n - world.terms.dropouts:
                world.kill(i)
    for i in range(n):
        if world.parties[i] is None:
            world.start(i)
    assert world.run(lambda w: w.at(3), most=600), [
        (p.me, p.round, hex(p.instance), p.promised(), p.stuck) for p in world.live
    ]
    world.check()
    return world


@pytest.mark.parametrize("seed", range(4))
def test_a_rough_network_opens_nothing_wrong_and_everything_once_it_is_quiet(seed: int) -> None:
    rough(seed)


@pytest.mark.slow
def test_many_rough_networks() -> None:
    for seed in range(4, 150):
        rough(seed, *((5, 1), (6, 1), (4, 0))[seed % 3])


def test_nobody_may_be_missing() -> None:
    """D = 0, t = N is the same protocol: the round waits for everybody, and opens when all are there."""
    stores, _ = dealt(4, 2, 0)
    world = World(terms_of(4, 2, 0), [store.copy() for store in stores], offers=1)
    assert world.terms.threshold == 4
    world.kill(2)
    assert not world.run(lambda w: any(p.round for p in w.live), most=60)
    world.start(2)
    assert world.run(lambda w: w.at(1), most=200)
    world.check()
    assert world.live[0].finished[0].members == (0, 1, 2, 3)


def test_a_party_comes_back_after_rounds_whose_frames_it_has_erased() -> None:
    """Leaders hold its votes of long ago, which say nothing about its ledger; a newer one does."""
    world = World(terms_of(5, 1, rounds=8))
    assert world.run(lambda w: w.at(6))
    old = world.stores[3].copy()
    assert world.run(lambda w: w.at(7))
    world.kill(3)
    world.start(3)
    assert world.run(lambda w: w.at(9))
    assert world.parties[3] is not None
    assert not world.parties[3].refusal
    world.kill(3)
    world.stores[3] = old
    world.start(3)
    assert world.run(lambda w: bool(w.parties[3] and w.parties[3].refusal))


def test_who_is_away_while_secrets_are_dealt_counts_as_dropped_for_the_batch() -> None:
    world = World(terms_of(5, 1), offers=4)
    world.kill(3)
    assert world.run(lambda w: w.at(1), most=100)
    world.start(3)
    assert world.run(lambda w: w.at(4), most=300)
    world.check()
    sets = {o.round: o.members for o in world.live[0].finished}
    assert sets[0] == sets[1] == (0, 1, 2, 4)
    assert sets[3] == (0, 1, 2, 3, 4)  # rounds 2 and 3 have a batch of their own
    late = world.parties[3]
    assert late is not None
    assert late.total(0) is not None  # it holds no secret of that batch, and still learns the sum


def test_noise_left_is_what_was_planned_with_and_without_drop_outs() -> None:
    """Variance of the opened total around the sum of vectors, over many coordinates."""
    for missing in (0, 1):
        world = World(terms_of(5, 1, size=4000), offers=1)
        assert world.run(lambda w: all(p.batch == 0 for p in w.live), most=5)
        if missing:
            world.kill(2)
        assert world.run(lambda w: w.at(1), most=100)
        world.check()
        party = world.live[0]
        value = party.known(party.row(("final", 0), bytes) or b"")
        members = Answered.read(value.body, world.terms).members
        vectors = np.sum([world.drawn[i, value.slot][0] for i in members], axis=0)
        noise = world.honest_sum(party, 0) - vectors
        layers = world.terms.layers
        expected = float(len(members) * layers.kept(layers.keep(5 - len(members))))
        assert expected >= float(layers.variance)
        assert np.var(noise) / expected == pytest.approx(1, abs=0.11)  # five standard errors


def test_words_look_uniform_to_colluders() -> None:
    """What c parties see of an honest one, less the masks that they share with it, is evenly spread and hides it."""
    world = World(terms_of(5, 1, size=4000), offers=0)
    assert world.run(lambda w: all(p.batch == 0 for p in w.live), most=5)
    colluder = world.parties[0]
    assert colluder is not None
    drawn = colluder.row(("secret", 0), SlotSecrets)
    assert drawn is not None
    world.offers = 1
    for i in range(5):
        world._offer(i)
    assert world.run(lambda w: w.at(1), most=20)
    where = Context(world.terms.plan, 0)
    for frame in {f.digest: f for _, f in world.sent if f.kind is Step.WORDS}.values():
        partial = Partial.read(frame.body, world.terms)
        words = partial.words
        for i in partial.members:
            public = colluder.deal_of(0, i).public[0][:32]
            words = add(words, pair_mask(where, 0, drawn.a, i, public, partial.start, world.terms.size))
        for shift in (57, 0):  # the highest and the lowest four bits
            counts = np.bincount((words >> np.uint64(shift) & np.uint64(15)).astype(np.int64), minlength=16)
            assert stats.chisquare(counts).pvalue > 1e-4
