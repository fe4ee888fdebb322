"""What records and their gradients are cut to: a norm, a range, and 0 for what is not a number.

The same lines serve NumPy arrays on the host and JAX arrays inside a compiled round.
"""

from __future__ import annotations

from types import ModuleType
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from coterie.passes import over

__all__ = [
    "ROUNDING",
    "Rows",
    "apart",
    "bounded_rows",
    "class_numbers",
    "clip_factor",
    "lengths",
    "namespace",
    "of_a_batch",
    "rescale",
    "sound",
]

T = TypeVar("T")
Rows = TypeVar("Rows", np.ndarray, Array)  # numbers of records
CACHED = 1 << 17  # numbers that are looked at at once: in float64 they stay in a core's own cache
ROUNDING = 1e-9  # a norm may exceed its bound by this part of it


def clip_factor(norms: Array, clip: Array | float | None) -> Array:
    """min(1, clip/norm), and 0 where the norm is not finite: what a record's gradient is multiplied by.

    A gradient that is not a number counts as zero, so that one record moves a sum by `clip` at most whatever it says
    and wherever the point is. (Multiply a vector that is finite: 0 · ∞ is not a number.)
    """
    sound = jnp.isfinite(norms)
    factor = 1.0 if clip is None else jnp.minimum(1.0, clip / jnp.maximum(norms, 1e-30))
    return jnp.where(sound, factor, 0.0).astype(norms.dtype)


def sound(x: Array) -> Array:
    """The numbers, 0 for one that is not finite."""
    return jnp.where(jnp.isfinite(x), x, 0.0)


def apart(x: T) -> T:
    """The same numbers, made before what uses them: inside a matrix product a GPU's compiler may make them per tile."""
    return jax.lax.optimization_barrier(x)


def of_a_batch(numbers: T, x: Array) -> T:
    """The same numbers, one of each for every x of a batch: what a loop begins with.

    JAX goes over the body of a loop again, and over the loops in it, for whatever turns out to differ in a batch though
    it began alike. That is half of the time to trace a solver; the compiler takes the selection out.
    """
    always = jnp.sum(x) == 0
    return jax.tree.map(lambda number: jax.lax.select(always, number, number), numbers)


def rescale(vectors: Float[Array, "rows d"], norms: Float[Array, " rows"], clip: Array | float | None) -> Array:
    """Every row times its `clip_factor`; one whose norm is not finite becomes zero."""
    return jnp.where(jnp.isfinite(norms)[:, None], vectors, 0.0) * clip_factor(norms, clip)[:, None]


def bounded_rows(features: Rows, bound: float | None) -> Rows:
    """The rows, pulled back to norm `bound` where they are longer; zeros for one that is not finite (or overflows).

    On the host the very array is returned if nothing is to be changed.
    """
    xp = namespace(features)
    with np.errstate(over="ignore", invalid="ignore"):
        norms = xp.linalg.norm(features, axis=-1, keepdims=True) if xp is jnp else lengths(np.asarray(features))
    sound, limit = xp.isfinite(norms), np.inf if bound is None else bound * (1 + ROUNDING)
    if xp is np and np.all(sound & (norms <= limit)):
        return features
    rows = xp.where(sound, features, xp.zeros((), features.dtype))
    if bound is None:
        return rows
    shorter = bound / xp.maximum(norms, 1e-30)
    # Halves would round a row, and a factor near their smallest number, to one that is 1 % too long.
    kind = features.dtype if features.dtype.kind == "f" and features.dtype.itemsize > 2 else shorter.dtype
    return xp.where(norms > limit, rows * shorter.astype(kind), rows)


def lengths(rows: np.ndarray) -> np.ndarray:
    """The norms of rows on the host, (…, 1), in float64, without storing the squares of all records."""
    flat = rows.reshape(int(np.prod(rows.shape[:-1], dtype=int)), rows.shape[-1])
    norms, step = np.empty(len(flat)), max(1, CACHED // max(1, flat.shape[1]))

    def of(own: slice) -> None:
        room = np.empty((min(step, own.stop - own.start), flat.shape[1]))
        for low in range(own.start, own.stop, step):
            some = slice(low, min(low + step, own.stop))
            held = flat[some]
            if held.dtype != float:  # whole numbers may overflow, and sums of many halves be short
                held = room[: len(held)]
                held[...] = flat[some]
            np.sqrt(np.einsum("ri,ri->r", held, held), out=norms[some])

    over(*flat.shape, of)
    return norms.reshape(*rows.shape[:-1], 1)


def class_numbers(targets: Rows, classes: int) -> Rows:
    """Whole numbers from 0 to classes − 1, whatever was given."""
    xp = namespace(targets)
    numbers = xp.where(xp.isfinite(targets), targets, xp.zeros((), targets.dtype))
    return xp.clip(numbers, 0, classes - 1).astype(xp.int32)


def namespace(x: Rows) -> ModuleType:
    """NumPy for records on the host, jax.numpy inside a compiled round."""
    return jnp if isinstance(x, jax.Array) else np
