"""What a sum costs when all goes well, and how long those that are there wait for those that are not."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from coterie.exchange.fixed_point import FixedPoint
from coterie.exchange.sums import SumTerms, bytes_per_round
from coterie.sums.messages import Step
from coterie.sums.party import SumParty
from coterie.sums.terms import BATCH, least_threshold, spares_for
from tests.sums.world import Watched, World, terms_of
from tests.support import mostly_slow

DIMENSION = 142


def test_what_parties_make_is_what_is_said_and_nothing_is_dealt_twice_or_for_rounds_that_never_come() -> None:
    terms = replace(terms_of(5, 1, size=DIMENSION, rounds=BATCH, spares=spares_for(5)), last=BATCH)
    world = World(terms)
    assert world.run(lambda w: w.at(BATCH))
    world.run(lambda _: False, most=20)
    packets = Counter((to, frame.digest) for to, frame in world.sent if frame.kind in (Step.KEYS, Step.ENVELOPE))
    assert set(packets.values()) == {1}
    assert len({frame.digest for _, frame in world.sent if frame.kind is Step.DEAL}) == 5
    made = sum(len(frame) for frame in {frame.pack() for _, frame in world.sent}) / 5 / BATCH
    said = bytes_per_round(SumTerms(FixedPoint(5), honest=4, threshold=4, shared=True), DIMENSION)
    assert said <= made <= 1.05 * said


def test_bytes_are_within_the_limit_for_all_numbers_of_parties_and_colluders() -> None:
    for n in range(3, 101):
        for c in range(n - 1):
            terms = SumTerms(FixedPoint(n), honest=n - c, threshold=least_threshold(n, c), shared=True)
            assert bytes_per_round(terms, DIMENSION) <= 24 * DIMENSION + 200 * n, (n, c)


class Forgetful(Watched):
    """The broken twin: does not know who was missing from the last sum."""

    def next_instance(self) -> None:
        self._absent = set()
        super().next_instance()


def waits(kind: type[SumParty], ring: bool) -> tuple[list[float], set[int]]:
    """Seconds of each round after the one in which a party of eight dies, and the slots that were started."""
    world = World(replace(terms_of(8, 1, rounds=BATCH, ring=ring), last=BATCH))
    for i in range(8):
        world.make = kind
        world.start(i)
    assert world.run(lambda w: w.at(1))
    world.kill(5)
    missed = lambda w: any(5 not in outcome.members for outcome in w.live[0].finished)  # noqa: E731
    assert world.run(lambda w: missed(w) and w.at(w.live[0].round))
    seconds, starts, first = [], len(world.sent), world.live[0].round
    for t in range(first + 1, first + 10):
        before = world.now
        assert world.run(lambda w, t=t: w.at(t))  # type: ignore[misc]
        seconds.append(world.now - before)
    world.check()
    return seconds, {frame.slot & 0xFFFF for _, frame in world.sent[starts:] if frame.kind is Step.START}


@pytest.mark.parametrize("ring", mostly_slow([True, False], True), ids=["ring", "complete"])
def test_nobody_waits_long_for_one_that_is_known_to_be_gone(ring: bool) -> None:
    """The dead one leads one of these rounds, and has children in most of their trees."""
    seconds, slots = waits(Watched, ring)
    patience = terms_of(8, 1).patience
    assert max(seconds) < patience / 4
    assert max(slots) < BATCH  # no spare is used where nobody has started
    twin, _ = waits(Forgetful, ring)
    assert max(twin) > patience
