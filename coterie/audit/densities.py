"""Densities that the likelihood of a transcript needs and none of the laws has."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array

__all__ = ["blurred"]


def blurred(value: Array, width: Array) -> Array:
    """Log-density of a Laplace variable of scale 1 plus U(0, width), coordinate by coordinate, summed."""
    high, low = jnp.maximum(value, value - width), jnp.minimum(value, value - width)
    h = high - low
    wide = h > 1e-9
    safe = jnp.where(wide, h, 1.0)
    # both ends on one side of 0: ½ e^{−near} (1 − e^{−h})/h; else what is left of 1 beyond each end
    near = jnp.minimum(jnp.abs(high), jnp.abs(low))
    same = jnp.log(-jnp.expm1(-safe) / 2) - near - jnp.log(safe)
    across = jnp.log(jnp.maximum((-jnp.expm1(-jnp.abs(high)) - jnp.expm1(-jnp.abs(low))) / 2, 1e-300) / safe)
    return jnp.sum(jnp.where(wide, jnp.where(high * low > 0, same, across), -jnp.abs(value) - jnp.log(2.0)))
