"""Lies about partial sums are found and their authors named; honest rounds raise no alarm."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from coterie.sums.core import Outgoing
from coterie.sums.messages import Step, SumFrame
from coterie.sums.words import MODULUS, Words, add
from tests.sums.test_deaths import dealt
from tests.sums.world import Watched, World, keys_of, terms_of


class Liar(Watched):
    """A party that alters what it passes on after it committed to its own words."""

    lie: tuple[str, int, int] | None = None

    def functionals(self, value: SumFrame) -> bytes:
        honest = super().functionals(value)
        lies = self.lie is not None and self.lie[0] == "functional" and any(honest)
        return honest[:-1] + bytes([honest[-1] ^ 1]) if lies else honest

    def disjoint(self, start: SumFrame, allowed: set[int]) -> tuple[list[SumFrame], Words, set[int]]:
        chosen, total, members = super().disjoint(start, allowed)
        if self.lie is not None and self.lie[0] != "functional":
            how, where, size = self.lie
            if how == "leave out" and chosen:
                words = np.frombuffer(chosen[-1].body[-8 * self.terms.size :], "<u8").astype(np.uint64)
                total = add(total, (np.uint64(MODULUS) - words) % np.uint64(MODULUS))
            elif how == "double" and chosen:
                words = np.frombuffer(chosen[-1].body[-8 * self.terms.size :], "<u8").astype(np.uint64)
                total = add(total, words)
            else:
                error = np.zeros_like(total)
                error[where] = size
                total = add(total, error)
        return chosen, total, members


def lying(n: int, liar: int, lie: tuple[str, int, int] | None) -> World:
    stores, _ = dealt(n, 1)
    world = World(terms_of(n, 1), [store.copy() for store in stores], offers=0)
    party = Liar(world.terms, liar, *keys_of(liar), world.stores[liar])
    party.drawn, party.lie = world.drawn, lie
    world.parties[liar], world.offers = party, 1
    world._do(liar, lambda: party.begin(0.0))
    for i in range(n):
        world._offer(i)
    assert world.run(lambda w: w.at(1), most=60)
    world.run(lambda w: not w.events, most=2)
    return world


def lies(count: int) -> None:
    rng = random.Random(count)
    for _ in range(count):
        how = rng.choice(["alter", "leave out", "double", "functional"])
        size = rng.choice([1, 2**60, MODULUS - 1, rng.randrange(1, MODULUS)])
        liar = rng.randrange(5)
        world = lying(5, liar, (how, rng.randrange(3), size))
        for party in world.live:
            assert set(party.named) == {liar}, (how, liar, party.named)
            assert party.finished[0].checked is False
            assert "no step" in party.stuck


def test_lies_are_found_and_named() -> None:
    lies(25)


@pytest.mark.slow
def test_a_thousand_lies() -> None:
    lies(1000)


@pytest.mark.slow
def test_a_thousand_honest_rounds() -> None:
    for _ in range(1000):
        world = lying(5, 0, None)
        assert all(not party.named and party.finished[0].checked for party in world.live)


def test_honest_rounds_raise_no_alarm() -> None:
    for _ in range(5):
        world = lying(5, 3, None)
        assert all(not party.named and party.finished[0].checked for party in world.live)


# ---- wrong shares ----------------------------------------------------------------------------------------------------


def spoiled(change: Callable[[World], None]) -> World:
    stores, _ = dealt(5, 1)
    world = World(terms_of(5, 1), [store.copy() for store in stores], offers=1)
    change(world)
    world.run(lambda w: w.at(1), most=40)
    return world


def test_a_holder_with_a_wrong_share_is_named_and_does_not_stop_the_round() -> None:
    def change(world: World) -> None:
        row = world.stores[1].rows[("shares", 0, 3)]
        assert isinstance(row, tuple)
        world.stores[1].rows[("shares", 0, 3)] = tuple(bytes([s[0]]) + s[1:-1] + bytes([s[-1] ^ 1]) for s in row)

    world = spoiled(change)
    assert world.at(1)
    named = [party.named for party in world.live if party.named]
    assert named
    assert all(set(names) == {1} for names in named)
    world.check()


def test_an_owner_who_dealt_wrongly_is_named_and_the_round_stays_closed() -> None:
    stores, _ = dealt(5, 1)
    world = World(terms_of(5, 1), [store.copy() for store in stores], offers=0)
    assert world.run(lambda w: all(p.ready for p in w.live), most=2)
    # what party 3 published does not belong to what it shared: as if it had signed this from the start
    for store in world.stores:
        frame = store.rows[("deal", 0, 3)]
        assert isinstance(frame, SumFrame)
        body = bytearray(frame.body)
        body[32 + 32] ^= 1  # C_3 of slot 0
        store.rows[("deal", 0, 3)] = replace(frame, body=bytes(body))
    world.offers = 1
    for i in range(5):
        world._offer(i)
    assert not world.run(lambda w: any(p.round for p in w.live), most=20)
    named = [party.named for party in world.live if party.named]
    assert named
    assert all(set(names) == {3} for names in named)
    assert any("final and paid" in party.stuck for party in world.live)


# ---- members that did not vote ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dead", [1, 2])
@pytest.mark.parametrize("lie", [None, ("alter", 1, 5)])
def test_a_sum_is_checked_though_a_member_died_before_it_voted(dead: int, lie: tuple[str, int, int] | None) -> None:
    """On a ring led by 0, 2 sends its words to 1 and 1 to 0. Party 4 may lie all the same, and is named."""
    stores, _ = dealt(5, 1)
    world = World(terms_of(5, 1), [store.copy() for store in stores], offers=0)
    party = Liar(world.terms, 4, *keys_of(4), world.stores[4])
    party.drawn, party.lie = world.drawn, lie
    world.parties[4], world.offers = party, 1
    world._do(4, lambda: party.begin(0.0))

    def cross(to: int, frame: SumFrame) -> list[Outgoing]:
        return [] if frame.kind is Step.VOTE and frame.sender == dead and frame.round == 0 else [(to, frame)]

    world.cross = cross
    for i in range(5):
        world._offer(i)
    assert world.run(lambda w: w.at(1), most=60)
    world.run(lambda w: not w.events, most=2)
    for one in world.live:
        assert one.finished[0].checked is (lie is None)
        assert set(one.named) == (set() if lie is None else {4})
