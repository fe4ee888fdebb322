"""Whole sums between members of one process. Everybody must answer; sums that some may miss are in `coterie.sums`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coterie.errors import InputError
from coterie.exchange.additive import Additive
from coterie.exchange.sums import Opened, SumTerms

__all__ = ["Opens", "Sums", "SumsHere", "member"]


def member(terms: SumTerms, me: int, size: int, plan: bytes = b"", *, seeds: bool = True) -> Additive:
    """A member of sums of `size` numbers; `seeds`: shares as seeds, or word by word."""
    if terms.dropouts:
        raise InputError(f"additive shares need everybody, and threshold {terms.threshold} lets some be missing")
    return Additive(terms, me, size, seeds=seeds)


class Opens(Protocol):
    """What opens everybody's sums, for a caller that drives all parties."""

    def open(self, values: Sequence[ArrayLike], noise: Sequence[NDArray[np.int64]] | None = None) -> Opened:
        """The next sum: of everybody's numbers, and of their noise in grid steps."""


Sums = Callable[[SumTerms, int], Opens]
"""Makes what opens sums of so many numbers under some terms."""


class SumsHere:
    """Secret sums between members of one process. The shares are real; nobody is there from whom to seal them.

    >>> from coterie.exchange.fixed_point import FixedPoint
    >>> SumsHere(SumTerms(FixedPoint(parties=3)), size=2).open([[3, -5], [-4, 1], [2, 2]]).values
    array([ 1., -2.])
    """

    def __init__(self, terms: SumTerms, size: int) -> None:
        self._members = [member(terms, i, size, seeds=False) for i in range(terms.parties)]
        self._code, self._number = terms.code, count()

    def open(self, values: Sequence[ArrayLike], noise: Sequence[NDArray[np.int64]] | None = None) -> Opened:
        """The next sum: of everybody's numbers, and of their noise in grid steps."""
        number, first = next(self._number), self._members[0]
        own = [self._code.encode(v, None if noise is None else noise[i]) for i, v in enumerate(values)]
        for k, kind in enumerate(first.kinds):
            said = [m.proceed() if k else m.share(number, words) for m, words in zip(self._members, own, strict=True)]
            for sender, parts in enumerate(said):
                for part in parts:
                    for j in self._members[sender].others if part.receiver is None else [part.receiver]:
                        self._members[j].take(number, sender, kind, part.body)
        return first.result()
