r"""Secure randomness for deployment: noise on an integer grid, and batches, from the operating system alone.

Noise comes in two implementations that are held against each other: `exact_*` (`secure_exact`: no rounding at all,
slow, the oracle) and the tables (`secure_table`: fast, fixed work per draw, error below 1e-34 per draw, stated).

Nothing here takes a seed and nothing keeps random bytes between calls: a fork, a restored snapshot or a clone of
the process draws afresh. Floating-point noise never leaves a party: float32 normals have so few values that one
coordinate can rule out a data set, while the integers Z of `grid_noise` can all occur under every data set.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from coterie.errors import InputError
from coterie.privacy.secure_exact import (
    exact_discrete_gaussian,
    exact_discrete_laplace,
    rational,
)
from coterie.privacy.secure_table import (
    DiscreteGaussianTable,
    DiscreteLaplaceTable,
    IntegerTable,
    Shape,
    Words,
    count_of,
    system,
)

__all__ = [
    "GRID_LAPLACE_SCALE",
    "GRID_VARIANCE",
    "DiscreteGaussianTable",
    "DiscreteLaplaceTable",
    "IntegerTable",
    "exact_discrete_gaussian",
    "exact_discrete_laplace",
    "grid_noise",
    "uniform",
    "uniform_bits",
]

GRID_VARIANCE = 1024**2 * (1 + 64**2)
"""σ₀² of the Gaussian `grid_noise`: X₁ + 64 X₂ with σ = 1024 each, so σ₀ ≈ 65,544 grid steps."""

GRID_LAPLACE_SCALE = 2**16
"""Scale of the Laplace `grid_noise`, in grid steps."""


def grid_noise(
    scale: float, shape: Shape, law: Literal["gaussian", "laplace"] = "gaussian"
) -> tuple[NDArray[np.int64], float]:
    """Integers Z and a grid step g such that g·(round(x/g) + Z) is x with noise of the given scale.

    `scale` is σ of the Gaussian or b of the Laplace law. g is scale/√GRID_VARIANCE or scale/GRID_LAPLACE_SCALE, rounded
    upwards, so that the noise is never smaller than asked for. Release the integers (g is public), or their
    float64 product with g, which is a function of them. Rounding x to the grid can add g√d to the L2 sensitivity
    of a d-vector and g·d to its L1 sensitivity: charge it.

    >>> z, g = grid_noise(0.5, 2)
    >>> released = g * (np.rint(np.array([1.0, 2.0]) / g) + z)
    """
    wanted = rational("scale", scale)
    match law:
        case "gaussian":
            table: DiscreteGaussianTable | DiscreteLaplaceTable = DiscreteGaussianTable.from_variance(GRID_VARIANCE)
            step, power, units = scale / math.sqrt(GRID_VARIANCE), 2, GRID_VARIANCE
        case "laplace":
            table = DiscreteLaplaceTable(GRID_LAPLACE_SCALE)
            step, power, units = scale / GRID_LAPLACE_SCALE, 1, GRID_LAPLACE_SCALE
        case _:
            raise InputError(f"law must be 'gaussian' or 'laplace', got {law!r}")
    if step < 2.0**-1022:
        raise InputError(f"scale must leave a normal float64 grid step, got {scale}")
    while Fraction(step) ** power * units < wanted**power:
        step = math.nextafter(step, math.inf)
    return table.sample(shape), float(step)


def uniform_bits(shape: Shape, bits: int = 64, opened: Callable[[int], Words] = system) -> NDArray[np.uint64]:
    """Independent uniform integers in 0 … 2^bits - 1, 1 ≤ bits ≤ 64, as uint64."""
    if not 1 <= bits <= 64:
        raise InputError(f"bits must be in 1..64, got {bits}")
    count = count_of(shape)
    return (opened(count)(count) >> np.uint64(64 - bits)).reshape(shape)


def uniform(shape: Shape, opened: Callable[[int], Words] = system) -> NDArray[np.float64]:
    """Independent uniforms (K + ½)/2^64, K uniform in 0 … 2^64-1, rounded to float64 within the open (0, 1)."""
    centred = uniform_bits(shape, opened=opened).astype(np.float64) + 0.5
    return np.minimum(centred * 2.0**-64, 1 - 2.0**-53)
