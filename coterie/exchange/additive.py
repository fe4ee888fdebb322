"""Additive shares over Z_2^64 (Xiao, Ye, Devadas, Alg. 3) between parties of one process: everybody must answer.

Party i deals a share s_ij to every j, its own among them, with Σ_j s_ij = e_i; then it tells everybody ŝ_i = Σ_j s_ji,
and Σ_i ŝ_i = Σ_i e_i. Any N − 1 shares of a vector are uniform words, so that the view of colluders is simulatable from
their own vectors and the sum of the others' as long as two parties are honest. That is not differential privacy: the
sum itself leaks, and whoever opens it must have paid.

Between machines, with drop-outs and on any graph, sums are those of `coterie.sums`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coterie.errors import InputError
from coterie.exchange.fixed_point import Words
from coterie.exchange.sums import Opened, SumTerms
from coterie.privacy.secure import uniform_bits

__all__ = ["Opens", "Sums", "SumsHere", "deal"]


def deal(words: Words, parties: int) -> Words:
    """A share of the words for each party, (parties, size): all but the last drawn, the last what is left.

    >>> bool((deal(np.arange(4, dtype=np.uint64), 3).sum(axis=0) == np.arange(4)).all())
    True
    """
    drawn = uniform_bits((parties - 1, words.size))
    return np.concatenate([drawn, [words - drawn.sum(axis=0)]])


class Opens(Protocol):
    """What opens everybody's sums, for a caller that drives all parties."""

    def open(self, values: Sequence[ArrayLike], noise: Sequence[NDArray[np.int64]] | None = None) -> Opened:
        """The next sum: of everybody's numbers, and of their noise in grid steps."""


Sums = Callable[[SumTerms, int], Opens]
"""Makes what opens sums of so many numbers under some terms."""


class SumsHere:
    """Secret sums of `size` numbers in one process. The shares are real; nobody is there from whom to hide them.

    >>> from coterie.exchange.fixed_point import FixedPoint
    >>> SumsHere(SumTerms(FixedPoint(parties=3)), size=2).open([[3, -5], [-4, 1], [2, 2]]).values
    array([ 1., -2.])
    """

    def __init__(self, terms: SumTerms, size: int) -> None:
        if terms.dropouts:
            raise InputError(f"additive shares need everybody, and threshold {terms.threshold} lets some be missing")
        self._terms, self._size = terms, size

    def open(self, values: Sequence[ArrayLike], noise: Sequence[NDArray[np.int64]] | None = None) -> Opened:
        """The next sum: of everybody's numbers, and of their noise in grid steps."""
        code, told = self._terms.code, np.zeros((self._terms.parties, self._size), np.uint64)
        for i, numbers in zip(range(self._terms.parties), values, strict=True):
            words = code.encode(numbers, None if noise is None else noise[i])
            if words.shape != (self._size,):
                raise InputError(f"expected {self._size} numbers to sum, got shape {words.shape}")
            told += deal(words, self._terms.parties)
        total = told.sum(axis=0)
        return Opened(code.decode(total), total)
