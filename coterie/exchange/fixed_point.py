"""Numbers as integers modulo 2^64: fixed point with public bounds, so that a sum of all parties cannot wrap around.

v becomes e = round(2^f v) in Z_2^64 (ties to even); the sum of N of them is read as a signed number of 64 bits and
multiplied by 2^−f. Each party's rounding is off by at most 2^(−f−1), so the sum by at most N 2^(−f−1).

Every check of a number against its public bound is here: `encode` refuses what is beyond it, `to_steps` cuts it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coterie.errors import InputError

if TYPE_CHECKING:  # words are added up without JAX
    from jax import Array

__all__ = ["BOUND", "FRACTION_BITS", "FixedPoint", "Words", "to_steps"]

Words = NDArray[np.uint64]
Vector = TypeVar("Vector", np.ndarray, "Array")

FRACTION_BITS = 24
BOUND = 2.0**20


def to_steps(values: Vector, step: Vector | float, most: Vector | float) -> Vector:
    """Whole numbers of steps, cut to at most `most` in size, of a NumPy or JAX array; what is no number is 0.

    To stop instead of cutting would be a message that nobody has paid for.
    """
    xp = values.__array_namespace__()
    whole = xp.round(xp.nan_to_num(values / step, nan=0.0, posinf=xp.inf, neginf=-xp.inf))
    return xp.clip(whole, -most, most)


@dataclass(frozen=True)
class FixedPoint:
    """The public encoding of a sum over `parties`: `fraction_bits` f, and `bound` ≥ |v| for every number.

    `reach` is how far noise may move an encoded number, in grid steps of 2^−f. Settings under which a sum could leave
    (−2^63, 2^63) are refused here, numbers beyond `bound` by `encode`: a wrap-around cannot happen unnoticed.

    >>> code = FixedPoint(parties=3, fraction_bits=8, bound=100.0)
    >>> total = code.encode([1.5]) + code.encode([-4.25]) + code.encode([0.5])
    >>> code.decode(total)
    array([-2.25])
    """

    parties: int
    fraction_bits: int = FRACTION_BITS
    bound: float = BOUND
    reach: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.fraction_bits <= 62:
            raise InputError(f"fraction_bits must be in 0..62, got {self.fraction_bits}")
        if not (self.bound > 0 and math.isfinite(self.bound)):
            raise InputError(f"bound must be a number > 0, got {self.bound}")
        most = self.parties * (self.bound * 2.0**self.fraction_bits + 1 + self.reach)
        if not most < 2.0**63:
            raise InputError(
                f"{self.parties} parties with numbers up to {self.bound:g} at {self.fraction_bits} fraction bits can "
                f"reach 2^{math.log2(most):.2f} ≥ 2^63: lower bound or fraction_bits"
            )

    @property
    def grid(self) -> float:
        """The grid step 2^−f."""
        return 2.0**-self.fraction_bits

    @property
    def error(self) -> float:
        """How far a decoded sum can be from the exact one: N 2^(−f−1)."""
        return self.parties * self.grid / 2

    @property
    def most(self) -> float:
        """The bound in whole grid steps."""
        return float(np.rint(np.ldexp(self.bound, self.fraction_bits)))

    def encode(self, values: ArrayLike, noise: NDArray[np.int64] | None = None) -> Words:
        """round(2^f v) modulo 2^64, with `noise` in grid steps on it.

        An error where |v| > bound, v is not a number, or noise goes further than `reach`.
        """
        values = np.asarray(values, np.float64)
        good = np.abs(values) <= self.bound
        if not good.all():
            worst = values[~good].flat[0]
            raise InputError(f"a number to be summed is {worst:g}; expected at most bound = {self.bound:g} in size")
        steps = np.rint(np.ldexp(values, self.fraction_bits)).astype(np.int64)
        if noise is not None:
            far = max(-int(noise.min(initial=0)), int(noise.max(initial=0)))
            if far > self.reach:
                raise InputError(f"noise of {far} steps, but the encoding has room for {self.reach}")
            steps = steps + noise
        return steps.view(np.uint64)

    def decode(self, total: Words) -> NDArray[np.float64]:
        """A sum of encoded numbers, read as signed and put back to scale."""
        return np.ldexp(total.view(np.int64).astype(np.float64), -self.fraction_bits)
