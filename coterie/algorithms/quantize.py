r"""Numbers on a grid: stochastic rounding, how it moves sensitivities, discrete Gaussian noise, and packed bytes.

Stochastic rounding Q(x) = η⌊x/η + U⌋, U uniform on [0, 1), is unbiased with variance η² f(1 − f), f the fractional
part of x/η. U is public and data-free. Clamping to s bits comes after and is counted, since it is neither.
"""

from __future__ import annotations

import struct
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from coterie.algorithms.laws import Grid
from coterie.errors import InputError

__all__ = [
    "HEADER_BITS",
    "common_dither",
    "discrete_gaussian",
    "dithered",
    "pack_integers",
    "pack_sparse",
    "packed_bits",
    "released",
    "saturate",
    "sparse_bits",
    "unpack_integers",
    "unpack_sparse",
    "whole",
    "width_of",
]

_HEADER = struct.Struct("<BI")  # width of a number in bits, how many numbers
HEADER_BITS = 8 * _HEADER.size


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


# ---- bytes -----------------------------------------------------------------------------------------------------------


def packed_bits(count: Array | int, bits: Array | int) -> Any:
    """Size of `count` numbers of `bits` bits with their header, before padding to whole bytes."""
    return HEADER_BITS + count * bits


def width_of(whole: Float[Array, " d"]) -> Int[Array, ""]:
    """Bits that hold every one of these whole numbers, sign included (at least 1)."""
    high = jnp.maximum(jnp.max(whole) + 1, -jnp.min(whole))
    powers = 2.0 ** jnp.arange(64)
    return 1 + jnp.sum(powers < high)


def pack_integers(whole: np.ndarray, bits: int) -> bytes:
    """Whole numbers in −2^{bits−1} … 2^{bits−1} − 1 as `bits` bits each, low bit first, after a 5-byte header.

    >>> data = pack_integers(np.array([-4, 3, 0]), 3)
    >>> len(data), unpack_integers(data).tolist()
    (7, [-4, 3, 0])
    """
    if not 1 <= bits <= 64:
        raise InputError(f"bits must be in 1..64, got {bits}")
    values = np.asarray(np.rint(whole), np.int64)
    half = 1 << (bits - 1)
    if values.size and (values.min() < -half or values.max() >= half):
        raise InputError(f"numbers from {values.min()} to {values.max()} do not fit {bits} bits")
    table = (values[:, None] >> np.arange(bits)) & 1  # two's complement
    return _HEADER.pack(bits, values.size) + np.packbits(table.astype(np.uint8), bitorder="little").tobytes()


def unpack_integers(data: bytes) -> np.ndarray:
    """What `pack_integers` packed, as int64."""
    bits, count = _HEADER.unpack_from(data)
    flat = np.unpackbits(_body(data, bits * count), count=bits * count, bitorder="little").reshape(count, bits)
    weights = 1 << np.arange(bits, dtype=np.int64)
    weights[-1] = -weights[-1] if bits < 64 else weights[-1]
    return flat.astype(np.int64) @ weights


def sparse_bits(values: Float[Array, " d"]) -> Array:
    """Size of `pack_sparse(values)`, before padding: header, the shorter of bitmap and list of places, the values."""
    kept, dim = jnp.count_nonzero(values), values.shape[0]
    where = jnp.minimum(dim, kept * _place_bits(dim))
    return HEADER_BITS + 32 + where + kept * values.dtype.itemsize * 8


def pack_sparse(values: np.ndarray) -> bytes:
    """A vector with many zeros: where the others are (bitmap, or list of places if shorter), then they, as floats.

    >>> unpack_sparse(pack_sparse(np.array([0.0, 2.5, 0.0, 0.0]))).tolist()
    [0.0, 2.5, 0.0, 0.0]
    """
    values = np.asarray(values)
    places, dim = np.flatnonzero(values), values.size
    width = _place_bits(dim)
    if len(places) * width < dim:
        bits = ((places[:, None] >> np.arange(width)) & 1).astype(np.uint8).ravel()
    else:
        bits = (values != 0).astype(np.uint8)
    body = np.packbits(bits, bitorder="little").tobytes() + values[places].tobytes()
    return _HEADER.pack(values.dtype.itemsize, dim) + struct.pack("<I", len(places)) + body


def unpack_sparse(data: bytes) -> np.ndarray:
    """What `pack_sparse` packed."""
    size, dim = _HEADER.unpack_from(data)
    (kept,) = struct.unpack_from("<I", data, _HEADER.size)
    width, rest = _place_bits(dim), data[_HEADER.size + 4 :]
    as_list = kept * width < dim
    used = kept * width if as_list else dim
    flat = np.unpackbits(np.frombuffer(rest, np.uint8, -(-used // 8)), count=used, bitorder="little")
    places = flat.reshape(kept, width).astype(np.int64) @ (1 << np.arange(width)) if as_list else np.flatnonzero(flat)
    out = np.zeros(dim, {4: np.float32, 8: np.float64}[size])
    out[places] = np.frombuffer(rest, out.dtype, kept, -(-used // 8))
    return out


def _place_bits(dim: int) -> int:
    return max(1, (dim - 1).bit_length())


def _body(data: bytes, bits: int) -> np.ndarray:
    need = _HEADER.size + -(-bits // 8)
    if len(data) != need:
        raise InputError(f"a packed message of {bits} bits has {need} bytes, got {len(data)}")
    return np.frombuffer(data, np.uint8, offset=_HEADER.size)
