"""Squared loss of a linear model: ½ (score − y)².

The slope in the score has no bound (algorithms clip it, or need another loss) and both signs; the curvature is 1.
"""

from __future__ import annotations

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array

from coterie.losses.base import LossSettings
from coterie.problems.glm import Linear, Pointwise
from coterie.problems.labels import NUMBERS, Labels

__all__ = ["Squared"]

MODEL = "linear regression"


class Squared(Linear):
    """Least squares without an intercept."""

    labels: ClassVar[Labels] = NUMBERS
    convex: ClassVar[bool] = True
    scored: ClassVar[bool] = True
    directed: ClassVar[bool] = True

    @property
    def smoothness(self) -> float:
        return self.bound**2

    def of_score(self, score: Array, targets: Array) -> Pointwise:
        gap = score - targets
        return Pointwise(0.5 * gap**2, gap, jnp.ones_like(gap))


def make(settings: LossSettings, features: int, classes: int) -> Squared:
    """The problem on records with this many features."""
    return Squared(features, constraint=settings.ball)


EXAMPLE = Squared(2)
