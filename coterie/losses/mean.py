"""Mean estimation over a box: loss(x; v) = ½ ‖x − v‖² for records v ∈ [−r, r]^p.

Two records are at most 2r√p apart, which bounds what replacing one can change of a gradient, whatever the point; the
gradient itself has no bound outside the box. The records are the features; there are no targets.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from pydantic import Field

from coterie.losses.base import LossSettings
from coterie.problems.base import Problem
from coterie.problems.labels import NOTHING, Labels
from coterie.problems.records import ROUNDING, Rows, bounded_rows, clip_factor, namespace
from coterie.problems.sets import Box, Constraint

__all__ = ["Mean", "Settings"]

MODEL = "vector of means"


class Settings(LossSettings):
    """What a plan may say for it."""

    radius: float | None = Field(None, gt=0, description="half-width of the box that the records lie in; default 1")


class Mean(Problem):
    """Mean of records in [−radius, radius]^dim; the constraint is that box."""

    dim: int = eqx.field(static=True)
    radius: float = eqx.field(static=True, default=1.0)
    boxed: bool = eqx.field(static=True, default=True)
    within: Constraint | None = None  # a set that is stated; the box of the records else
    labels: ClassVar[Labels] = NOTHING
    metric: ClassVar[str] = "negative squared error"  # type: ignore[misc]
    convex: ClassVar[bool] = True
    directed: ClassVar[bool] = True
    isotropic: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return "mean"

    @property
    def premise(self) -> str:
        return f"every record lies in the box from {-self.radius:g} to {self.radius:g}"

    def outside(self, features: np.ndarray) -> str | None:
        largest = float(np.max(np.abs(features), initial=0.0))
        if largest <= self.radius * (1 + ROUNDING):
            return None
        return f"reach {largest:.6g}; expected at most problem.radius = {self.radius}"

    @property
    def constraint(self) -> Constraint | None:  # type: ignore[override]
        """The stated set, or the box of all records where estimates are kept in it."""
        if self.within is not None:
            return self.within
        return Box(-self.radius, self.radius) if self.boxed else None

    @property
    def interior(self) -> bool:
        """The mean of records in the box lies in the box; in a stated set it need not."""
        return self.within is None

    def kept_in(self, constraint: Constraint) -> Mean:
        return dataclasses.replace(self, within=constraint)

    @property
    def half_gap(self) -> float:
        """Half of what one replacement can change: r√p."""
        return self.radius * self.dim**0.5

    @property
    def smoothness(self) -> float:
        """A record's curvature."""
        return 1.0

    def losses(self, x: Float[Array, " d"], features: Array, targets: Array) -> Float[Array, " rows"]:
        return 0.5 * jnp.sum((x - features) ** 2, axis=1)

    def weighted_gradient(
        self, x: Float[Array, " d"], features: Array, targets: Array, weights: Array, clip: Array | float | None = None
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

    def admit(self, features: Rows, targets: Rows) -> tuple[Rows, Rows]:
        rows = bounded_rows(features, None)
        return namespace(rows).clip(rows, -self.radius, self.radius), self.admit_targets(targets)


def make(settings: Settings, features: int, classes: int) -> Mean:
    """The problem on records with this many features."""
    return Mean(features, radius=settings.radius or 1.0)


EXAMPLE = Mean(2, boxed=False)
