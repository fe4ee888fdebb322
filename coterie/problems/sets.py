"""Closed convex sets that a point is kept in."""

from __future__ import annotations

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

__all__ = ["Ball", "Box", "Constraint"]


class Constraint(eqx.Module):
    """A closed convex set with a projection."""

    @abc.abstractmethod
    def project(self, x: Array) -> Array:
        """The nearest point of the set."""

    @property
    @abc.abstractmethod
    def radius(self) -> float:
        """Largest Euclidean norm in the set (per coordinate for a box)."""


class Ball(Constraint):
    """{x : ‖x‖₂ ≤ r}."""

    r: float = eqx.field(static=True)

    def project(self, x: Array) -> Array:
        return x * jnp.minimum(1.0, self.r / jnp.maximum(jnp.linalg.norm(x), 1e-30))

    @property
    def radius(self) -> float:
        return self.r


class Box(Constraint):
    """{x : low ≤ x_l ≤ high}."""

    low: float = eqx.field(static=True)
    high: float = eqx.field(static=True)

    def project(self, x: Array) -> Array:
        return jnp.clip(x, self.low, self.high)

    @property
    def radius(self) -> float:
        return max(abs(self.low), abs(self.high))
