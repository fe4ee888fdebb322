"""Parties that are rounds and batches behind, or start again long after: rows of settled rounds are gone by then."""

from __future__ import annotations

import pytest

from coterie.sums.core import Outgoing
from coterie.sums.messages import Step, SumFrame
from coterie.sums.opening import RECENT
from coterie.sums.store import Key
from coterie.sums.terms import ROSTER_BIT
from tests.sums.test_blame import lying
from tests.sums.world import Watched, World, keys_of, terms_of


def without_first_set(world: World, round_: int) -> None:
    """The first ballot of a round fails: everybody promises the next one."""

    def cross(to: int, frame: SumFrame) -> list[Outgoing]:
        return [] if (frame.kind, frame.round, frame.ballot) == (Step.SET, round_, 0) else [(to, frame)]

    world.cross = cross


def test_a_party_that_starts_again_long_after_a_promise_is_no_old_copy() -> None:
    """The others still hold its promise of round 0, and it does not: what it settled, no frame can show to be old."""
    world = World(terms_of(5, 1, rounds=12), offers=6)
    without_first_set(world, 0)
    assert world.run(lambda w: w.at(6), most=100)
    assert not [key for key in world.stores[2].keys("own") if key[2] == 0]  # pruned
    assert isinstance(world.stores[0].rows["held", 2, int(Step.PROMISE)], SumFrame)
    world.kill(2)
    world.offers = 8
    world.start(2)
    assert world.run(lambda w: w.at(8), most=100)
    party = world.parties[2]
    assert party is not None
    assert not party.refusal
    assert party.finished[-1].members == (0, 1, 2, 3, 4)
    world.check()


def test_a_party_that_caught_up_without_taking_part_starts_again() -> None:
    """Its last commitment and vote are those of round 0, and it has settled round 6 since."""
    world = World(terms_of(5, 1, rounds=12), offers=7)
    world.cross = lambda to, frame: [] if 3 in (to, frame.sender) and world.live[0].round > 0 else [(to, frame)]
    assert world.run(lambda w: all(p.round == 7 for p in w.live if p.me != 3), most=200)
    world.cross = lambda to, frame: [(to, frame)]
    assert world.run(lambda w: w.at(7), most=200)
    world.kill(3)
    world.start(3)
    world.offers = 8
    assert world.run(lambda w: w.at(8), most=100), [(p.me, p.round, p.refusal) for p in world.live]
    world.check()


@pytest.mark.parametrize("rounds", [2, 12])
def test_who_is_rounds_and_batches_behind_learns_every_total_and_tells_the_next_one(rounds: int) -> None:
    """Parties 5 and 6 are away from the start; 5 comes back and starts again, then 6 hears of the past from 5 alone."""
    world = World(terms_of(7, 0, rounds=rounds), offers=7)
    world.kill(5)
    world.kill(6)
    assert world.run(lambda w: w.at(7), most=400)
    world.start(5)
    assert world.run(lambda w: w.at(7), most=400)
    world.kill(5)
    world.start(5)  # nothing that it only remembered is left
    world.cross = lambda to, frame: [(to, frame)] if to != 6 or frame.kind is Step.STAND else []
    world.start(6)
    assert world.run(lambda w: all(p.ready for p in w.live), most=5)
    for i in range(5):
        world.kill(i)
    world.cross = lambda to, frame: [(to, frame)]
    assert world.run(lambda w: w.at(7), most=400), [(p.me, p.round) for p in world.live]
    last = world.parties[6]
    assert last is not None
    assert [(o.round, o.members) for o in last.finished] == [(t, (0, 1, 2, 3, 4)) for t in range(7)]
    assert not world.stores[6].charges  # and it masked nothing for rounds that were over
    world.check()


def test_what_a_settled_round_leaves_is_what_a_late_party_needs_and_little_more() -> None:
    world = World(terms_of(5, 1, rounds=40), offers=3)
    sizes = []
    for rounds in (10, 20, 30):
        world.offers = rounds
        assert world.run(lambda w: w.at(w.offers), most=100)
        store = world.stores[1]
        sizes.append({kind: len(store.keys(kind)) for kind in ("own", "to", "words", "given", "vote", "final")})
    for kind in ("own", "to", "words", "given", "vote"):
        assert sizes[2][kind] <= sizes[1][kind] + 12, kind  # leaders say more than others
    assert sizes[2]["final"] == sizes[0]["final"] + 20
    kept = {int(key[1]) for key in world.stores[1].keys("given in")}
    assert kept == set(range(29 - RECENT, 30))


def test_what_was_added_can_be_shown_two_rounds_later_in_the_next_batch_too() -> None:
    """A lie may come out when the next sum is open already, and that may be the first of another batch."""
    terms = terms_of(5, 1, rounds=2)
    world = World(terms, offers=3)
    without_first_set(world, 1)  # round 1 takes a spare
    assert world.run(lambda w: w.at(3), most=100)
    for store in world.stores:
        slots = {int(key[1]) for key in store.keys("words")}
        assert slots == {0, 1, terms.rounds, 1 << 16}
    world.offers = 6
    assert world.run(lambda w: w.at(6), most=100)
    for store in world.stores:
        assert {int(key[1]) for key in store.keys("words")} == {1 << 16 | 1, 2 << 16, 2 << 16 | 1}


def test_nobody_waits_long_for_who_is_away_nor_for_those_behind_it() -> None:
    """On a ring led by 0, words of 2 go by way of 1. Once 1 was missing from a sum, no tree leads through it."""
    world = World(terms_of(5, 1, rounds=12), offers=1)
    assert world.run(lambda w: w.at(1), most=20)
    world.kill(1)
    world.offers = 7
    times = []
    for t in range(1, 7):
        begun = world.now
        assert world.run(lambda w: w.at(t + 1), most=60)  # noqa: B023
        if t % 5 != 1:  # rounds that 1 should lead wait for it
            times.append(world.now - begun)
    assert max(times[1:]) <= world.terms.patience / 8
    world.check()


# ---- stands ----------------------------------------------------------------------------------------------------------


def test_an_answer_that_comes_again_and_again_keeps_nobody_from_starting() -> None:
    world = World(terms_of(5, 1), offers=1)
    assert world.run(lambda w: w.at(1), most=20)
    world.kill(2)
    world.cross = lambda to, frame: [] if frame.kind is Step.STAND and frame.sender == 4 else [(to, frame)]
    world.start(2)
    stand = SumFrame(world.terms.plan, Step.STAND, 0, 0, 0, 0, b"", b"").sign(keys_of(0)[0])
    for _ in range(40):
        world.post(2, stand)
        world.step()
    party = world.parties[2]
    assert party is not None
    assert party.ready


def test_the_last_frame_of_a_party_is_the_last_in_time() -> None:
    """Rounds and rosters are numbered apart: a vote for the roster of batch 1 comes after all of batch 0."""
    world = World(terms_of(5, 1, rounds=4), offers=6)

    def cross(to: int, frame: SumFrame) -> list[Outgoing]:
        lost = (
            frame.kind is Step.ROSTER and frame.ballot == 0 and frame.round == ROSTER_BIT
        )  # its votes are of ballot 1
        return [] if lost else [(to, frame)]

    world.cross = cross

    def held() -> list[tuple[int, int]]:
        key: Key = ("held", 4, int(Step.VOTE))
        frames = [f for p in world.live if isinstance(f := p._fresh.get(key) or p.store.get(key), SumFrame)]
        return [(frame.round, frame.ballot) for frame in frames]

    assert world.run(lambda w: w.at(1), most=100)
    assert (0, 0) in held()
    seen: set[tuple[int, int]] = set()
    while not world.at(6):
        world.step()
        seen |= set(held())
    assert ROSTER_BIT | 1 in {round_ for round_, _ in seen}
    assert {5, ROSTER_BIT | 1} <= {round_ for round_, _ in held()}  # at those who led


# ---- disputes --------------------------------------------------------------------------------------------------------


def test_a_dispute_outlives_the_party_that_stopped_in_it() -> None:
    world = lying(5, 2, ("alter", 1, 7))
    assert all(party.disputed for party in world.live)
    world.kill(4)
    world.make = Watched
    world.offers = 2
    world.start(4)
    world.run(lambda w: False, most=2)
    party = world.parties[4]
    assert party is not None
    assert party.disputed
    assert "no step" in party.stuck
    assert set(party.named) == {2}
    assert not [frame for _, frame in world.sent if frame.round == 1 and frame.kind is Step.COMMIT]
