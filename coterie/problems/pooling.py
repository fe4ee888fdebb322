"""The greatest number of every window, with a gradient made of slices: XLA scatters one number after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

__all__ = ["Pooling", "greatest"]


class Pooling(TypedDict):
    """Parameters of `reduce_window_max`."""

    window_dimensions: Sequence[int]
    window_strides: Sequence[int]
    window_dilation: Sequence[int]
    padding: Sequence[tuple[int, int]]


def greatest(x: Array, given: Pooling) -> Array:
    """`lax.reduce_window` with max; `given` are its parameters. Of equal numbers the first gets all of the gradient."""

    def pooled(x: Array) -> Array:
        lowest = jnp.asarray(-jnp.inf, x.dtype)
        return jax.lax.reduce_window(
            x, lowest, jax.lax.max, given["window_dimensions"], given["window_strides"], given["padding"],
            window_dilation=given["window_dilation"],
        )  # fmt: skip

    def back(of: tuple[Array, Array], slope: Array) -> tuple[Array]:
        x, out = of
        wide = jax.lax.pad(x, jnp.asarray(-jnp.inf, x.dtype), [(low, high, 0) for low, high in given["padding"]])
        free, total = jnp.ones(out.shape, bool), jnp.zeros(wide.shape, x.dtype)
        steps = given["window_strides"]
        for at in np.ndindex(*given["window_dimensions"]):
            first = [int(k * gap) for k, gap in zip(at, given["window_dilation"], strict=True)]
            last = [f + (n - 1) * s + 1 for f, n, s in zip(first, out.shape, steps, strict=True)]
            here = free & (jax.lax.slice(wide, first, last, steps) == out)
            edges = [(f, n - l, s - 1) for f, l, n, s in zip(first, last, wide.shape, steps, strict=True)]
            total += jax.lax.pad(jnp.where(here, slope, 0.0), jnp.zeros((), x.dtype), edges)
            free &= ~here
        low = [edge[0] for edge in given["padding"]]
        return (jax.lax.slice(total, low, [a + n for a, n in zip(low, x.shape, strict=True)]),)

    def forward(x: Array) -> tuple[Array, tuple[Array, Array]]:
        out = pooled(x)
        return out, (x, out)

    best = jax.custom_vjp(pooled)
    best.defvjp(forward, back)
    return best(x)
