"""Convolutions as products of patches, cut out by slices.

A record's gradient of the kernel is the product of its patches and what comes back. On a core the convolution itself is
computed so too: inside a compiled loop, which training is, XLA's own is ten times slower there.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TypedDict

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import ConvDimensionNumbers
from jaxtyping import Array, Float

__all__ = ["Convolution", "convolved", "kernel_gradient", "patches"]


class Convolution(TypedDict):
    """Parameters of `conv_general_dilated`."""

    dimension_numbers: ConvDimensionNumbers
    padding: Sequence[tuple[int, int]]
    window_strides: Sequence[int]
    lhs_dilation: Sequence[int]
    rhs_dilation: Sequence[int]
    feature_group_count: int


def patches(
    a: Array, given: Convolution, window: Sequence[int]
) -> tuple[Float[Array, "images groups patch places"], list[int]]:
    """What the kernel sees at every place, and how many places there are in each direction."""
    a = a.transpose(given["dimension_numbers"].lhs_spec)  # images, channels, directions
    edges = [(low, high, hole - 1) for (low, high), hole in zip(given["padding"], given["lhs_dilation"], strict=True)]
    a = jax.lax.pad(a, jnp.zeros((), a.dtype), [(0, 0, 0), (0, 0, 0), *edges])
    strides, gaps = given["window_strides"], given["rhs_dilation"]
    lengths = [g * (k - 1) + 1 for g, k in zip(gaps, window, strict=True)]
    many = [(n - length) // s + 1 for n, length, s in zip(a.shape[2:], lengths, strides, strict=True)]
    seen = []
    for at in np.ndindex(*window):
        first = [int(k * gap) for k, gap in zip(at, gaps, strict=True)]
        last = [f + (n - 1) * s + 1 for f, n, s in zip(first, many, strides, strict=True)]
        seen.append(jax.lax.slice(a, [0, 0, *first], [*a.shape[:2], *last], [1, 1, *strides]))
    stacked = jnp.stack(seen, axis=2)
    return stacked.reshape(a.shape[0], given["feature_group_count"], -1, prod(many)), many


def _window(kernel: Array, given: Convolution) -> list[int]:
    return [kernel.shape[d] for d in given["dimension_numbers"].rhs_spec[2:]]


def convolved(a: Array, kernel: Array, given: Convolution) -> Array:
    """`lax.conv_general_dilated` (without batch groups)."""
    numbers, groups = given["dimension_numbers"], given["feature_group_count"]
    seen, many = patches(a, given, _window(kernel, given))
    flat = kernel.transpose(numbers.rhs_spec).reshape(groups, -1, seen.shape[2])
    out = jnp.einsum("igpt,gop->igot", seen, flat).reshape(seen.shape[0], -1, *many)
    return out.transpose(np.argsort(numbers.out_spec))


def kernel_gradient(a: Array, kernel: Array, slope: Array, given: Convolution) -> Array:
    """The gradient of the kernel for what goes in and what comes back."""
    numbers, window = given["dimension_numbers"], _window(kernel, given)
    seen, _ = patches(a, given, window)
    back = slope.transpose(numbers.out_spec).reshape(*seen.shape[:2], -1, seen.shape[3])
    found = jnp.einsum("igpt,igot->gop", seen, back)
    return found.reshape([kernel.shape[d] for d in numbers.rhs_spec]).transpose(np.argsort(numbers.rhs_spec))
