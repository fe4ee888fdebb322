r"""Numbers on a grid: stochastic rounding, how it moves sensitivities, discrete Gaussian noise, and its size.

Stochastic rounding Q(x) = η⌊x/η + U⌋, U uniform on [0, 1), is unbiased with variance η² f(1 − f), f the fractional
part of x/η. U is public and data-free. Clamping to s bits comes after and is counted, since it is neither.
"""

from __future__ import annotations

from typing import TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from coterie.algorithms.laws import Grid

__all__ = [
    "HEADER_BITS",
    "common_dither",
    "discrete_gaussian",
    "dithered",
    "packed_bits",
    "released",
    "saturate",
    "sparse_bits",
    "whole",
    "width_of",
]

HEADER_BITS = 40  # width of a number in a byte, how many numbers in four
Whole = TypeVar("Whole", int, Array)


# ---- rounding --------------------------------------------------------------------------------------------------------


def dithered(x: Float[Array, " d"], dither: Float[Array, " d"], step: Array | float) -> Float[Array, " d"]:
    """Q(x)/η as whole numbers: ⌊x/step + dither⌋."""
    return jnp.floor(x / step + dither)


def saturate(whole: Float[Array, " d"], bits: int) -> tuple[Float[Array, " d"], Float[Array, ""]]:
    """Whole numbers cut to −2^{bits−1} … 2^{bits−1} − 1, and how many were cut."""
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    outside = (whole < low) | (whole > high)
    return jnp.clip(whole, low, high), jnp.sum(outside, dtype=whole.dtype)


def common_dither(shift: Array | float, step: Array | float, dim: int, failure: Array | float) -> Float[Array, ""]:
    r"""S(Δ, η, p, β): with probability ≥ 1 − β over U, ‖Q_U(x) − Q_U(x')‖ ≤ S for all ‖x − x'‖ ≤ Δ.

    Q_U(x) − Q_U(x') is an unbiased stochastic rounding of x − x' with independent coordinates, so with Λ = ln(1/β) and
    M = min(p/4, √p Δ/η) it is at most the least of (S(0, ·) = 0)

        Δ + η√p                                             (certain; the only one for β = 0)
        √(Δ² + η²p/4 + √(2Λ) η (Δ + η√p/2))                  (Hoeffding on the squares)
        Δ + η √(M + √(2MΛ) + 2Λ/3)                           (Bernstein on the rounding errors)
    """
    shift, step, failure = jnp.asarray(shift), jnp.asarray(step), jnp.asarray(failure)
    root = dim**0.5
    log = -jnp.log(jnp.where(failure > 0, failure, 1.0))
    flips = jnp.minimum(dim / 4, root * shift / jnp.where(step > 0, step, 1.0))
    hoeffding = jnp.sqrt(shift**2 + step**2 * dim / 4 + jnp.sqrt(2 * log) * step * (shift + step * root / 2))
    bernstein = shift + step * jnp.sqrt(flips + jnp.sqrt(2 * flips * log) + 2 * log / 3)
    likely = jnp.where(failure > 0, jnp.minimum(hoeffding, bernstein), jnp.inf)
    return jnp.where(shift > 0, jnp.minimum(shift + step * root, likely), 0.0)


# ---- noise on the grid -----------------------------------------------------------------------------------------------


@jax.custom_jvp
def whole(x: Float[Array, " d"]) -> Float[Array, " d"]:
    """The nearest whole numbers, with the derivative of x: what rounding does as seen from afar.

    Nothing is trained through it; an audit follows noise through it (`coterie.audit.coupling`).
    """
    return jnp.round(x)


@whole.defjvp
def _whole_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    return whole(*primals), tangents[0]


def discrete_gaussian(normal: Float[Array, " d"], scale: Array | float) -> Float[Array, " d"]:
    """A simulated discrete Gaussian of parameter `scale` ≥ 1 (in grid steps) from standard normals.

    The midpoint rule gives its distribution function as Φ(u + u/(24 scale²)) at u = (k + ½)/scale, up to O(scale⁻⁴):
    so it is a normal of variance scale²/(1 + 1/(24 scale²))² rounded to whole numbers. Off by less than 1e-4 in
    total variation from scale 2 on, 1.1e-8 from 20 on; deployed agents draw exact integers instead.
    """
    shrunk = scale / (1 + 1 / (24 * jnp.maximum(scale, 1.0) ** 2))
    return whole(shrunk * normal)


def released(
    x: Float[Array, " d"],
    dither: Float[Array, " d"],
    noise: Array | Grid,
    step: Array | float,
    scale: Array | float,
) -> Float[Array, " d"]:
    """Q(x) + discrete Gaussian noise of std `scale` (0: none) on the grid of `step`: all that may be released of x.

    A simulated draw (standard normals) works on that grid. A deployed `Grid` draw brings whole numbers of its own finer
    grid, scale / noise.unit ≤ step (a plan where that is not so is refused, `coterie.deploy.noise`): less rounding, so
    a sensitivity computed for `step` covers it; rounding the sum to `step` afterwards is post-processing.
    """
    quiet = dithered(x, dither, step)
    if isinstance(noise, Grid):
        fine = jnp.asarray(scale / noise.unit)
        some = jnp.where(fine > 0, fine, step)
        noisy = jnp.round(some * (dithered(x, dither, some) + noise.steps) / step)
        return step * jnp.where(fine > 0, noisy, quiet)
    return step * (quiet + discrete_gaussian(noise, scale / step))


# ---- sizes -----------------------------------------------------------------------------------------------------------


def packed_bits(count: int, bits: Whole) -> Whole:
    """Size of `count` numbers of `bits` bits with their header, before padding to whole bytes."""
    return HEADER_BITS + count * bits


def width_of(whole: Float[Array, " d"]) -> Int[Array, ""]:
    """Bits that hold every one of these whole numbers, sign included (at least 1)."""
    high = jnp.maximum(jnp.max(whole) + 1, -jnp.min(whole))
    powers = 2.0 ** jnp.arange(64)
    return 1 + jnp.sum(powers < high)


def sparse_bits(values: Float[Array, " d"]) -> Array:
    """Size of a vector with many zeros, unpadded: header, the shorter of bitmap and list of places, the values."""
    kept, dim = jnp.count_nonzero(values), values.shape[0]
    where = jnp.minimum(dim, kept * _place_bits(dim))
    return HEADER_BITS + 32 + where + kept * values.dtype.itemsize * 8


def _place_bits(dim: int) -> int:
    return max(1, (dim - 1).bit_length())
