"""Mean estimation over a box: loss(x; v) = ½ ‖x − v‖² for records v ∈ [−r, r]^p.

Every point of the box is at most 2r√p from another, which bounds a record's gradient (√p · 2r) and what replacing it
can change (the same). The records are the features; there are no targets.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from coterie.problems.base import Box, Constraint, Problem, clip_factor

__all__ = ["Mean"]


class Mean(Problem):
    """Mean of records in [−radius, radius]^dim; the constraint is that box."""

    dim: int = eqx.field(static=True)
    radius: float = eqx.field(static=True, default=1.0)
    boxed: bool = eqx.field(static=True, default=True)
    metric: ClassVar[str] = "negative squared error"

    @property
    def constraint(self) -> Constraint | None:  # type: ignore[override]
        """The box of all records, where estimates are kept in it."""
        return Box(-self.radius, self.radius) if self.boxed else None

    @property
    def lipschitz(self) -> float:
        """Half of what one replacement can change, 2r√p, so that 2 · lipschitz is the replace-one gap everywhere."""
        return self.radius * self.dim**0.5

    @property
    def smoothness(self) -> float:
        """A record's curvature."""
        return 1.0

    def losses(self, x: Float[Array, " d"], features: Array, targets: Array) -> Float[Array, " rows"]:
        return 0.5 * jnp.sum((x - features) ** 2, axis=1)

    def weighted_gradient(
        self,
        x: Float[Array, " d"],
        features: Array,
        targets: Array,
        weights: Array,
        clip: Array | float | None = None,
    ) -> Float[Array, " d"]:
        if clip is not None:
            weights = weights * clip_factor(jnp.linalg.norm(x - features, axis=1), clip)
        return jnp.sum(weights) * x - weights @ features

    def weighted_hessian(
        self, x: Float[Array, " d"], features: Array, targets: Array, weights: Array
    ) -> Float[Array, "d d"]:
        return jnp.sum(weights) * jnp.eye(x.shape[0], dtype=x.dtype)

    def predict(self, x: Float[Array, " d"], features: Array) -> Array:
        return jnp.broadcast_to(x, features.shape)

    def score(self, x: Float[Array, " d"], features: Array, targets: Array) -> Float[Array, ""]:
        return -jnp.sum((x - jnp.mean(features, axis=0)) ** 2)

    def encode(self, targets: np.ndarray, classes: tuple[str, ...] | None) -> np.ndarray:
        return np.zeros(len(targets))
