r"""Fast discrete samplers from the operating system's randomness: tables of 128-bit probabilities.

A law is computed once, in 256-bit fixed point, as integers over 2^128, and drawn by Walker's alias method: one table
row and one 128-bit comparison per draw. The lower half of the uniform word is drawn only if the upper half leaves the
comparison open, which happens once in 2^50 draws or so; but for that the work is the same whatever the outcome, so
the time a release takes says nothing about its noise. (Which table rows are read does depend on the noise: an observer
of this machine's caches is outside the threat model.) The distance to the ideal law is bounded in `total_variation`;
whoever releases n such coordinates adds (1 + e^ε) n · total_variation to δ.

References: Walker 1977 and Vose 1991 (alias method); Canonne, Kamath, Steinke 2020 (discrete Gaussian);
Micciancio, Walter 2017 (sums of scaled discrete Gaussians).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from coterie.errors import InputError
from coterie.privacy.secure_exact import rational

__all__ = ["DiscreteGaussianTable", "DiscreteLaplaceTable", "IntegerTable", "Shape", "WideGaussianTable", "Words",
           "count_of", "system", "words64"]  # fmt: skip

Shape = int | tuple[int, ...]
Words = Callable[[int], NDArray[np.uint64]]
"""The next so many uniform 64-bit integers of one stream."""

_BITS = 128  # probabilities are integers over 2^_BITS
_ONE = 1 << _BITS
_FIXED = 256  # fractional bits of the arithmetic that computes them
_BLOCK = 1 << 14  # draws at a time: their words, rows and masks stay in cache
_BASE_SIGMA = 1024  # a folded Gaussian's table has about this σ
_MAX_SIGMA = 1 << 18  # up to here the error of folding stays far below 2^-128
_MAX_LAPLACE = 1 << 26


def count_of(shape: Shape) -> int:
    """Number of entries of an array of this shape."""
    lengths = shape if isinstance(shape, tuple) else (shape,)
    if min(lengths, default=0) < 0:
        raise InputError(f"shape must have no negative length, got {shape}")
    return math.prod(lengths)


def words64(count: int) -> NDArray[np.uint64]:
    """`count` uniform 64-bit integers, fresh from the operating system."""
    return np.frombuffer(os.urandom(8 * count), np.uint64)


def system(count: int) -> Words:
    """A stream for one table and one call, of about `count` integers: here, every one from the operating system.

    What a `sample` takes as its `opened` must be such a function: a stream that no other table and no other call has.
    """
    return words64


class IntegerTable:
    """A law on first, first+1, … whose probabilities are `numerators` over 2^128, drawn without error.

    The uniform 128-bit word u picks row u >> (128 - b) of 2^b; a row holds one threshold and two outcomes, and u
    lies below the threshold or not (alias method). Every draw does the same operations.

    >>> coin = IntegerTable([2**127, 2**127], first=-1)
    >>> set(coin.sample(100).tolist()) == {-1, 0}
    True
    """

    def __init__(self, numerators: Sequence[int], first: int) -> None:
        if min(numerators, default=0) < 0 or sum(numerators) != _ONE:
            raise InputError(f"numerators must be >= 0 and sum to 2^128, got sum {sum(numerators)}")
        bits = max(1, (len(numerators) - 1).bit_length())
        rows, room = 1 << bits, _ONE >> bits
        keep = [*numerators, *[0] * (rows - len(numerators))]
        other = list(range(rows))
        small = [r for r in range(rows) if keep[r] < room]
        large = [r for r in range(rows) if keep[r] > room]
        while small:  # in integers the rows fill up exactly, so both lists run out together
            r, donor = small.pop(), large[-1]
            other[r] = donor
            keep[donor] -= room - keep[r]
            if keep[donor] <= room:
                large.pop()
                if keep[donor] < room:
                    small.append(donor)
        # a full row's two outcomes are the same, so any threshold does (its upper end may be 2^128: no word)
        limit = [r * room + keep[r] % room for r in range(rows)]
        self._first, self._shift = first, np.uint64(64 - bits)
        self._high = np.array([x >> 64 for x in limit], np.uint64)
        self._low = np.array([x & (2**64 - 1) for x in limit], np.uint64)
        self._outcome = np.array([x for r in range(rows) for x in (first + other[r], first + r)], np.int64)
        for table in (self._high, self._low, self._outcome):
            table.setflags(write=False)

    def sample(self, shape: Shape, opened: Callable[[int], Words] = system) -> NDArray[np.int64]:
        """Independent draws, as an int64 array of the given shape."""
        out = np.empty(count_of(shape), np.int64)
        words = opened(out.size)
        for start in range(0, out.size, _BLOCK):
            block = out[start : start + _BLOCK]
            high = words(block.size)
            row = (high >> self._shift).view(np.int64)
            limit = self._high[row]
            below = high < limit
            if (open := high == limit).any():
                below |= open & (words(block.size) < self._low[row])
            row += row
            row += below
            np.take(self._outcome, row, out=block, mode="clip")  # rows are in range; "clip" spares a copy
        return out.reshape(shape)

    def read(self, words: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The draws that these 64-bit words give, two for each: the same integers on every machine.

        >>> IntegerTable([2**127, 2**127], first=0).read(np.array([0, 5, 2**63, 0], np.uint64))
        array([0, 1])
        """
        high, low = words[0::2], words[1::2]
        row = (high >> self._shift).view(np.int64)
        limit = self._high[row]
        below = (high < limit) | ((high == limit) & (low < self._low[row]))
        return self._outcome[2 * row + below]

    def law(self) -> tuple[int, list[int]]:
        """`(first, numerators)` over 2^128, read back from the arrays that `sample` uses."""
        bits = 64 - int(self._shift)
        rows, room = 1 << bits, _ONE >> bits
        mass = [0] * rows
        for r in range(rows):
            keep = (int(self._high[r]) << 64 | int(self._low[r])) - r * room
            mass[int(self._outcome[2 * r + 1]) - self._first] += keep
            mass[int(self._outcome[2 * r]) - self._first] += room - keep
        while mass[-1] == 0:
            mass.pop()
        return self._first, mass


def _exp_fixed(gamma: Fraction) -> int:
    """2^256 e^(-gamma), rounded down, gamma > 0."""
    if gamma > 256:
        return 0
    digits = Context(prec=110)
    power = digits.exp(digits.divide(Decimal(-gamma.numerator), Decimal(gamma.denominator)))
    return int(digits.multiply(power, Decimal(1 << _FIXED)))


def _geometric(ratio: Fraction, count: int) -> list[int]:
    """2^256 e^(-k · ratio) for k = 0 … count-1, each at most 2k too small."""
    step, weight, weights = _exp_fixed(ratio), 1 << _FIXED, []
    for _ in range(count):
        weights.append(weight)
        weight = weight * step >> _FIXED
    return weights


def _nearest(part: int, total: int) -> int:
    """part/total to the nearest multiple of 2^-128, as its numerator."""
    return (2 * _ONE * part + total) // (2 * total)


def _round_law(weights: Sequence[int]) -> list[int]:
    """Numerators of the law ∝ weights. The cumulative sums are what is rounded: the CDF is within 2^-129."""
    total, running, last, numerators = sum(weights), 0, 0, []
    for weight in weights:
        running += weight
        threshold = _nearest(running, total)
        numerators.append(threshold - last)
        last = threshold
    return numerators


@lru_cache(maxsize=32)
def _gaussian_table(variance: Fraction) -> tuple[IntegerTable, int]:
    """Table of the discrete Gaussian, σ < 2^11, and the largest |k| in it.

    w_k = e^(-k²/2σ²) by w_(k+1) = w_k r_k, r_(k+1) = r_k e^(-1/σ²), to 2^-200 in all. The tails P(X ≥ k), k ≥ 1, are
    rounded to 2^-128 and mirrored, so the table is exactly symmetric.
    """
    ratio, step = _exp_fixed(1 / (2 * variance)), _exp_fixed(1 / variance)
    weight, weights = 1 << _FIXED, []
    while weight >> (_FIXED - 160):  # what lies beyond weighs less than 2^-150
        weights.append(weight)
        weight = weight * ratio >> _FIXED
        ratio = ratio * step >> _FIXED
    total = 2 * sum(weights) - weights[0]
    half, tail, above = [], 0, 0
    for weight in reversed(weights[1:]):
        tail += weight
        threshold = _nearest(tail, total)
        if threshold:
            half.append(threshold - above)  # from the outermost k inwards
        above = threshold
    return IntegerTable([*half, _ONE - 2 * above, *reversed(half)], first=-len(half)), len(half)


class DiscreteGaussianTable:
    """The discrete Gaussian P(x) ∝ e^(-x²/2σ²) on the integers, 0 < σ ≤ 2^18, by table.

    σ < 2048 is one table; above, X₁ + m X₂ with m = ⌊σ/1024⌋, both from the table with σ₁² = σ²/(1+m²): completing
    the square, P(z) is e^(-z²/2σ²) times a theta series of width s = σ₁/√(1+m²) > 3.9, flat to 2 e^(-2π²s²).

    A shift by an integer vector k costs ρ = ‖k‖²/(2σ²) of zCDP, exactly as for the Gaussian (CKS20).

    Attributes: `variance` σ², exactly; `fold` m, or 0 when one table does; `base` the table of X₁ and X₂; `reach` the
    largest |x| that can be drawn; `total_variation` a bound on the distance of one draw to the ideal law.

    >>> table = DiscreteGaussianTable(10.0)
    >>> table.sample((2, 3)).shape, table.total_variation < 1e-35
    ((2, 3), True)
    """

    def __init__(self, sigma: float | Fraction) -> None:
        self._build(rational("sigma", sigma) ** 2)

    @classmethod
    def from_variance(cls, variance: float | Fraction) -> DiscreteGaussianTable:
        """The table whose σ² is exactly `variance`: the way to a σ that is no rational number."""
        table = cls.__new__(cls)
        table._build(rational("variance", variance))
        return table

    def _build(self, variance: Fraction) -> None:
        if variance > _MAX_SIGMA**2:
            raise InputError(f"sigma must be <= {_MAX_SIGMA}, got {math.sqrt(variance)}: use a coarser grid")
        fold = math.isqrt(int(variance)) // _BASE_SIGMA
        self.variance = variance
        self.fold = fold if fold >= 2 else 0
        base_variance = variance / (1 + self.fold**2)
        self.base, reach = _gaussian_table(base_variance)
        self.reach = reach * (1 + self.fold)
        # half of 2 reach + 1 errors of at most one unit of 2^-128, and less than one unit that is cut off
        self.total_variation = math.ldexp(reach + 2, -_BITS)
        if self.fold:
            theta = math.exp(-2 * math.pi**2 * float(base_variance) / (1 + self.fold**2))
            self.total_variation = 2 * self.total_variation + 4 * theta

    @property
    def sigma(self) -> float:
        """The parameter σ to float64 precision (`variance` is exact)."""
        return math.sqrt(self.variance)

    @property
    def words_per_draw(self) -> int:
        """How many 64-bit words `read` takes for one draw."""
        return 4 if self.fold else 2

    def read(self, words: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The draws that these words give, `words_per_draw` for each: the same integers on every machine."""
        if not self.fold:
            return self.base.read(words)
        half = words.size // 2
        return self.base.read(words[:half]) + self.fold * self.base.read(words[half:])

    def sample(self, shape: Shape, opened: Callable[[int], Words] = system) -> NDArray[np.int64]:
        """Independent draws, as an int64 array of the given shape."""
        if not self.fold:
            return self.base.sample(shape, opened)
        draws, folded = self.base.sample((2, count_of(shape)), opened)
        folded *= self.fold
        draws += folded
        return draws.reshape(shape)


class WideGaussianTable:
    """The discrete Gaussian on the integers for σ up to 10⁹, from words: one table up to 2^18, above it X + m Y.

    X has σ₁ = 2^18 (or σ/√2), Y has σ₂² = (σ² − σ₁²)/m² ≤ 2^34, and P(x) is e^(-x²/2σ²) times a theta series of width
    s, 1/s² = 1/σ₂² + m²/σ₁², as in `DiscreteGaussianTable`: s ≥ 4 here, so it is flat to 2 e^(-2π²s²) < 2^-450.

    >>> WideGaussianTable(Fraction(2**50)).total_variation < 1e-33
    True
    """

    def __init__(self, variance: Fraction) -> None:
        self.variance, self.fold = variance, 0
        if variance <= _MAX_SIGMA**2:
            self._tables = [DiscreteGaussianTable.from_variance(variance)]
            self.total_variation = self._tables[0].total_variation
            return
        fine = min(Fraction(_MAX_SIGMA**2), variance / 2)
        self.fold = math.isqrt(int((variance - fine) / (_MAX_SIGMA // 2) ** 2)) + 1
        coarse = (variance - fine) / self.fold**2
        width = 1 / (1 / coarse + self.fold**2 / fine)
        if width < 16:
            raise InputError(f"sigma must be at most 1e9, got {math.sqrt(variance):.3g}")
        self._tables = [DiscreteGaussianTable.from_variance(v) for v in (fine, coarse)]
        self.total_variation = sum(t.total_variation for t in self._tables) + 4 * math.exp(-2 * math.pi**2 * width)

    @property
    def words_per_draw(self) -> int:
        """How many 64-bit words `read` takes for one draw."""
        return sum(table.words_per_draw for table in self._tables)

    def read(self, words: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The draws that these words give, `words_per_draw` for each: the same integers on every machine."""
        if not self.fold:
            return self._tables[0].read(words)
        count = words.size // self.words_per_draw
        fine, coarse = self._tables
        cut = count * fine.words_per_draw
        return fine.read(words[:cut]) + self.fold * coarse.read(words[cut:])


@lru_cache(maxsize=32)
def _laplace_tables(scale: Fraction) -> tuple[IntegerTable, IntegerTable, int, float]:
    """Tables of U and of the signed block number, the block length M, and the total-variation bound."""
    block = math.isqrt(math.ceil(90 * scale)) + 1
    count = math.ceil(90 * scale / block)  # blocks kept on each side: e^-90 < 2^-129 is cut off
    up = _geometric(block / scale, count)
    flip = _exp_fixed(1 / scale)
    down = [weight * flip >> _FIXED for weight in reversed(up)]
    units, blocks = _round_law(_geometric(1 / scale, block)), _round_law([*down, *up])
    # half the sum of errors of at most one unit of 2^-128 each, and less than one unit that is cut off
    bound = math.ldexp(block + 2 * count + 4, -_BITS - 1)
    return IntegerTable(units, 0), IntegerTable(blocks, -count), block, bound


class DiscreteLaplaceTable:
    """The discrete Laplace law P(x) ∝ e^(-|x|/scale) on the integers, 0 < scale ≤ 2^26, by table.

    G ≥ 0 with P(k) ∝ e^(-k/scale) is U + M V with independent U in 0 … M-1 and V ≥ 0; X is G, or -1-G with probability
    e^(-1/scale)/(1 + e^(-1/scale)), and this sign is drawn together with V. Two table draws in all.

    A shift by an integer vector k costs ε = ‖k‖₁/scale.

    Attributes: `scale`, exactly; `units` and `blocks` the tables of U and of V or -1-V; `block` M; `total_variation` a
    bound on the distance of one draw to the ideal law.

    >>> DiscreteLaplaceTable(0.001).sample(3)
    array([0, 0, 0])
    """

    def __init__(self, scale: float | Fraction) -> None:
        self.scale = rational("scale", scale)
        if self.scale > _MAX_LAPLACE:
            raise InputError(f"scale must be <= {_MAX_LAPLACE}, got {scale}: use a coarser grid")
        self.units, self.blocks, self.block, self.total_variation = _laplace_tables(self.scale)

    def sample(self, shape: Shape, opened: Callable[[int], Words] = system) -> NDArray[np.int64]:
        """Independent draws, as an int64 array of the given shape."""
        signed = self.blocks.sample(shape, opened)
        sign = signed >> 63  # 0, or -1 where negative: x ^ sign is x or -1-x
        return (self.block * (signed ^ sign) + self.units.sample(shape, opened)) ^ sign
