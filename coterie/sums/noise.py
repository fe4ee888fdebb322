r"""Shared noise in layers that are taken off again, so that what stays in a sum is σ² whoever dropped out.

c of the N parties may collude and up to D may drop out. With levels 0 = ℓ_0 < … < ℓ_m = D, every party adds layer 0 of
variance σ²/(N − c) and layers k = 1 … m of σ²/(N − c − ℓ_k) − σ²/(N − c − ℓ_{k−1}). If r dropped out, the layers above
κ, the least index with ℓ_κ ≥ r, are removed, and the N − r − c or more honest parties that answered leave at least
(N − r − c) σ²/(N − c − ℓ_κ) ≥ σ².

Every layer is a discrete Gaussian of exactly its variance, read from a ChaCha20 stream by the alias tables of
`coterie.privacy`: sixteen bytes per draw (thirty-two above σ = 2048), integers only, so that all machines remove the
same numbers. Layers may have unequal variances: for parts of at least 9 the sum of two is within log-ratio 1.07e-38 of
a discrete Gaussian of the summed variance (Poisson summation).

Variance 0 stands for a round whose vectors need no noise here: they carry their own, or say nothing that is not known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from coterie.errors import InputError
from coterie.privacy.secure import DiscreteGaussianTable
from coterie.sums.words import keyed, keystream

__all__ = ["SMOOTHING", "Layers", "default_levels"]

SMOOTHING = 9
"""Least variance of a layer, in grid steps², and what a claim in terms of a normal law gives up."""


def default_levels(dropouts: int) -> tuple[int, ...]:
    """Drop-outs for which the noise left is exactly σ²: all up to four, powers of two beyond.

    >>> default_levels(3), default_levels(25)
    ((0, 1, 2, 3), (0, 1, 2, 4, 8, 16, 25))
    """
    if dropouts <= 4:
        return tuple(range(dropouts + 1))
    powers = [1 << k for k in range(dropouts.bit_length()) if 1 << k < dropouts]
    return (0, *powers, dropouts)


@dataclass(frozen=True)
class Layers:
    """The layers of one round; `variance` is σ² in grid steps², or 0 for no noise at all.

    >>> layers = Layers(parties=10, colluders=2, levels=(0, 1, 2, 3), variance=Fraction(8 * 7 * 6 * 5 * 100))
    >>> [str(v / layers.variance) for v in layers.variances]
    ['1/8', '1/56', '1/42', '1/30']
    """

    parties: int
    colluders: int
    levels: tuple[int, ...]
    variance: Fraction

    def __post_init__(self) -> None:
        honest = self.parties - self.colluders
        if self.levels[0] != 0 or any(a >= b for a, b in pairwise(self.levels)):
            raise InputError(f"levels must rise from 0, got {self.levels}")
        if honest - self.levels[-1] < 1:
            raise InputError(f"{self.levels[-1]} drop-outs and {self.colluders} colluders leave nobody honest")
        least = min(self.variances)
        if self.variance and least < SMOOTHING:
            raise InputError(
                f"the smallest layer of noise has variance {float(least):.3g} grid steps², expected at least "
                f"{SMOOTHING}: use more fraction_bits"
            )

    @property
    def variances(self) -> tuple[Fraction, ...]:
        """The variance of each layer."""
        kept = [self.kept(k) for k in range(len(self.levels))]
        return (kept[0], *(b - a for a, b in pairwise(kept)))

    @property
    def last(self) -> int:
        """m, the index of the last layer."""
        return len(self.levels) - 1

    def kept(self, k: int) -> Fraction:
        """What one party's layers up to k add up to."""
        return self.variance / (self.parties - self.colluders - self.levels[k])

    def keep(self, dropped: int) -> int:
        """κ: the last layer that stays when `dropped` parties are missing."""
        return next(k for k, level in enumerate(self.levels) if level >= dropped)

    def honest(self, dropped: int, colluders: int) -> Fraction:
        """Variance in the opened sum that `colluders` of those who answered do not know."""
        return (self.parties - dropped - colluders) * self.kept(self.keep(dropped))

    @cached_property
    def tables(self) -> tuple[DiscreteGaussianTable, ...]:
        """What each layer is drawn from; none where there is no noise."""
        return tuple(DiscreteGaussianTable.from_variance(v) for v in self.variances if self.variance)

    @property
    def reach(self) -> int:
        """The largest noise that one party can add, in grid steps."""
        return sum(table.reach for table in self.tables)

    def read(self, k: int, seed: bytes, size: int) -> NDArray[np.int64]:
        """Layer k ≥ 1 from its seed."""
        if not self.variance:
            return np.zeros(size, np.int64)
        table = self.tables[k]
        raw = keystream(seed)(8 * table.words_per_draw * size)
        return table.read(np.frombuffer(raw, "<u8").astype(np.uint64))

    def fresh(self, size: int) -> NDArray[np.int64]:
        """Layer 0, by a fresh key of the operating system: it comes from no seed that is shared with anybody."""
        return self.tables[0].sample(size, keyed) if self.variance else np.zeros(size, np.int64)

    def distance(self, size: int) -> float:
        """Total variation between all that all parties draw in one round and the ideal laws: for δ.

        Tables: N · d draws of each layer. Sums: N (m + 1) additions per coordinate, and one rounding of a normal law.
        """
        if not self.variance:
            return 0.0
        tables = self.parties * size * math.fsum(table.total_variation for table in self.tables)
        return tables + size * (self.parties * (self.last + 1) + 1) * _addition()


def _addition() -> float:
    u = sum(math.exp(-2 * math.pi**2 * SMOOTHING / 2 * m * m) for m in range(1, 20))
    return math.log1p(4 * u / (1 - 2 * u))
