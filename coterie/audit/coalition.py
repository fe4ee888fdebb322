"""What colluding parties of a secret sum make of what they hold: what is left when all that they know is taken off."""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coterie.audit.sum_hall import SumHall, SumSeat
from coterie.audit.sum_worlds import TARGET
from coterie.sums.messages import Answered, SumFrame, read_secrets, read_words
from coterie.sums.party import SumParty
from coterie.sums.secrets import Context, SlotSecrets, pair_mask, self_mask, walk
from coterie.sums.shamir import SECRET, Weights
from coterie.sums.words import add, subtract, to_signed

__all__ = ["Rest", "foreseen", "local_rest", "main_rest"]


@dataclass(frozen=True)
class Rest:
    """What is left of something when all that is known is taken off, and the variance of the noise that is left."""

    numbers: NDArray[np.int64]
    variance: float


def _opened(seat: SumSeat, t: int) -> tuple[SumFrame, Answered, dict[int, bytes]]:
    """The set of a round and the secrets that were shown for it, by the seat's own store."""
    value = seat.known(seat.row(("final", t), bytes) or b"")
    opened = seat.row(("opened", t), SumFrame)
    assert opened is not None
    return value, Answered.read(value.body, seat.terms), read_secrets(opened.body, seat.members())[1]


def foreseen(
    seat: SumSeat, t: int, slot: int, owner: int, link: bytes, level: int
) -> dict[int, NDArray[np.int64]]:  # fmt: skip
    """An owner's layers of noise that follow from B_{owner,level}: what the product's own code draws again from it.

    It is run twice; links before the known one are guesses, other ones each time. What comes out alike is known.
    """
    where, last = Context(seat.terms.plan, slot), seat.terms.layers.last
    chain, pretender = walk(where, owner, link, level, last), copy.copy(seat)
    pretender.me = owner
    one, two = (
        SumParty.draw_layers(pretender, t, slot, [*(os.urandom(SECRET) for _ in range(level)), *chain])
        for _ in range(2)
    )
    return {k: a for k, (a, b) in enumerate(zip(one, two, strict=True)) if np.array_equal(a, b)}


def main_rest(hall: SumHall, t: int, colluders: Sequence[int], vectors: Sequence[NDArray[np.float64]]) -> Rest:
    """The opened total without what the colluders know: party 0's message and the honest parties' noise."""
    seat, code = hall.seats[colluders[0]] if colluders else hall.seats[-1], hall.terms.code
    value, answered, shown = _opened(seat, t)
    total, layers, level = seat.total(t), hall.terms.noise(t), seat.level(value)
    assert total is not None
    rest, variance = to_signed(total), 0.0
    for i in answered.members:
        if i != TARGET:
            rest = rest - to_signed(code.encode(vectors[i]))
        if i in colluders:
            rest = rest - np.sum(hall.seats[i].drawn[value.slot][: level + 1], axis=0)
        else:
            known = foreseen(seat, t, value.slot, i, shown[i], level)
            for k in range(level + 1):
                rest = rest - known.get(k, 0)
                variance += 0.0 if k in known else float(layers.variances[k])
    return Rest(rest, variance)


def local_rest(hall: SumHall, t: int) -> Rest:
    """Party 0's words without the masks and the noise that all others can take off together."""
    others = [seat for seat in hall.seats if seat.me != TARGET]
    here = next(seat for seat in others if seat.me not in hall.away)
    value, answered, shown = _opened(here, t)
    where, size, layers = Context(hall.terms.plan, value.slot), hall.terms.size, hall.terms.noise(t)
    left = answered.words
    for seat in others:
        if seat.me in answered.members:
            words = seat.used(value.slot)
            assert words is not None
            left = subtract(left, read_words(words[1]))
        drawn = seat.row(("secret", value.slot), SlotSecrets)
        if drawn is not None and seat.me in here.members():  # what it adds, party 0 takes off
            public = here.deal_of(value.slot >> 16, TARGET).public[value.slot & 0xFFFF][:32]
            left = add(left, pair_mask(where, seat.me, drawn.a, TARGET, public, answered.start, size))
    first = _first_link(others, value.slot)
    link, level = (shown[TARGET], here.level(value)) if first is None else (first, 0)
    left = subtract(left, self_mask(where, TARGET, walk(where, TARGET, link, level, layers.last)[-1], size))
    known = foreseen(here, t, value.slot, TARGET, link, level)
    rest, variance = to_signed(left), 0.0
    for k in range(layers.last + 1):
        rest = rest - known.get(k, 0)
        variance += 0.0 if k in known else float(layers.variances[k])
    return Rest(rest, variance)


def _first_link(others: Sequence[SumSeat], slot: int) -> bytes | None:
    """B_{0,0} from the shares that the others hold, where they are enough."""
    rows = {seat.me: seat.row(("shares", slot, TARGET), tuple) for seat in others}
    held = {i: row[0] for i, row in rows.items() if row is not None}
    if len(held) < others[0].terms.threshold:
        return None
    chosen = sorted(held)[: others[0].terms.threshold]
    return Weights(chosen).recover({i: held[i] for i in chosen})
