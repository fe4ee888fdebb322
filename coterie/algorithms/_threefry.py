"""`jax.random`'s uniforms, normals, keys and the like, number for number, several times faster on a core.

JAX's generator, Threefry-2x32, goes over its words five times on a CPU, in a loop: for the noise of a network that is
five trips to memory. Here its twenty rounds are written out, so that a number is made in one go, and the compiler is
done sooner too. On an accelerator, where JAX does the same, JAX itself is called.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Key

from coterie.problems.records import apart

__all__ = ["exponential", "fold_in", "laplace", "normal", "uniform"]

IMPL = "threefry2x32"
TURNS = ((13, 15, 26, 6), (17, 29, 16, 24))


def normal(key: Key[Array, ""], shape: tuple[int, ...], dtype: DTypeLike) -> Array:
    """`jax.random.normal(key, shape, dtype)`."""
    if not _written_out(key, shape, dtype):
        return jax.random.normal(key, shape, dtype)
    low = np.nextafter(np.array(-1.0, dtype), np.array(0.0, dtype))
    return apart(jax.lax.erf_inv(_between(key, shape, dtype, low)) * np.array(math.sqrt(2), dtype))


def uniform(key: Key[Array, ""], shape: tuple[int, ...], dtype: DTypeLike) -> Array:
    """`jax.random.uniform(key, shape, dtype)`."""
    if not _written_out(key, shape, dtype):
        return jax.random.uniform(key, shape, dtype)
    return apart(_between(key, shape, dtype, np.array(0.0, dtype)))


def laplace(key: Key[Array, ""], shape: tuple[int, ...], dtype: DTypeLike) -> Array:
    """`jax.random.laplace(key, shape, dtype)`."""
    if not _written_out(key, shape, dtype):
        return jax.random.laplace(key, shape, dtype)
    u = _between(key, shape, dtype, np.array(-1.0 + jnp.finfo(dtype).epsneg, dtype))
    return apart(jnp.sign(u) * jnp.log1p(-jnp.abs(u)))


def exponential(key: Key[Array, ""], shape: tuple[int, ...], dtype: DTypeLike) -> Array:
    """`jax.random.exponential(key, shape, dtype)`."""
    if not _written_out(key, shape, dtype):
        return jax.random.exponential(key, shape, dtype)
    return apart(-jnp.log1p(-_between(key, shape, dtype, np.array(0.0, dtype))))


def fold_in(key: Key[Array, ""], number: ArrayLike) -> Key[Array, ""]:
    """`jax.random.fold_in(key, number)`."""
    if key.ndim or jnp.ndim(number) or not _threefry_on_a_core(key):
        return jax.random.fold_in(key, number)
    first, second = jax.random.key_data(key)
    word = jnp.asarray(number, jnp.uint32)
    return jax.random.wrap_key_data(jnp.stack(_hashed(first, second, jnp.zeros_like(word), word)), impl=IMPL)


def _written_out(key: Key[Array, ""], shape: tuple[int, ...], dtype: DTypeLike) -> bool:
    return (
        math.prod(shape) < 1 << 32
        and np.dtype(dtype) in (np.float32, np.float64)
        and bool(getattr(jax.config, "jax_threefry_partitionable", False))
        and _threefry_on_a_core(key)
    )


def _threefry_on_a_core(key: Key[Array, ""]) -> bool:
    return (
        jax.default_backend() == "cpu"
        and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
        and str(jax.random.key_impl(key)) == IMPL
    )


def _between(key: Key[Array, ""], shape: tuple[int, ...], dtype: DTypeLike, low: np.ndarray | np.floating) -> Array:
    """Uniform on [low, 1): random bits behind the point of a number from 1 to 2, moved and stretched."""
    kind, facts = np.dtype(dtype), jnp.finfo(dtype)
    bits = _bits(key, math.prod(shape), facts.bits)
    one = np.array(1.0, kind).view(bits.dtype)
    shifted = (bits >> np.array(facts.bits - facts.nmant, bits.dtype)) | one
    floats = jax.lax.bitcast_convert_type(shifted, kind) - np.array(1.0, kind)
    return jnp.maximum(low, floats * (np.array(1.0, kind) - low) + low).reshape(shape)


def _bits(key: Key[Array, ""], count: int, width: int) -> Array:
    first, second = jax.random.key_data(key)
    places = jnp.arange(count, dtype=jnp.uint32)
    high, low = _hashed(first, second, jnp.zeros_like(places), places)
    if width == 32:
        return high ^ low
    return (high.astype(jnp.uint64) << np.uint64(32)) | low.astype(jnp.uint64)


@jax.jit  # traced once, not for every draw and every batch that it is in; the program is the same
def _hashed(first: Array, second: Array, x: Array, y: Array) -> tuple[Array, Array]:
    """Threefry-2x32 of (x, y) under a key (Salmon, Moraes, Dror, Shaw 2011)."""
    word: Any = np.uint32
    keys = (first, second, first ^ second ^ word(0x1BD11BDA))
    x, y = x + keys[0], y + keys[1]
    for k in range(5):
        for turn in TURNS[k % 2]:
            x = x + y
            y = x ^ ((y << word(turn)) | (y >> word(32 - turn)))
        x, y = x + keys[(k + 1) % 3], y + keys[(k + 2) % 3] + word(k + 1)
    return x, y
