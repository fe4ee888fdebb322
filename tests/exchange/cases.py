"""Seats of secret sums, by their numbers."""

from __future__ import annotations

from coterie.exchange.fixed_point import BOUND, FRACTION_BITS, FixedPoint
from coterie.exchange.protocol import Seat, make_seats
from coterie.exchange.sums import SumTerms


def seats(
    count: int,
    size: int,
    *,
    fraction_bits: int = FRACTION_BITS,
    bound: float = BOUND,
    reach: int = 0,
    seeds: bool = True,
) -> list[Seat]:
    """So many parties with fresh keys, for sums of `size` numbers."""
    return make_seats(SumTerms(FixedPoint(count, fraction_bits, bound, reach)), size, seeds=seeds)
