"""Hinge loss of a linear model with its corner smoothed over [1 − width, 1 + width] (Huber), for labels −1 and 1.

It is the average of (1 − margin + u)₊ over u uniform on [−width, width]. The slope in the score is at most 1 and never
changes sign; the curvature is 1/(2 width) inside the bend and 0 outside.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array
from pydantic import Field

from coterie.losses.base import LossSettings
from coterie.problems.glm import Linear, Pointwise
from coterie.problems.labels import SIGNS, Labels

__all__ = ["Hinge", "Settings"]

MODEL = "support vector classifier"


class Settings(LossSettings):
    """What a plan may say for it."""

    width: float = Field(0.5, gt=0, description="half-width of the smoothed corner")


class Hinge(Linear):
    """A support vector classifier without an intercept, for two classes."""

    width: float = eqx.field(static=True, default=0.5)
    labels: ClassVar[Labels] = SIGNS
    convex: ClassVar[bool] = True
    scored: ClassVar[bool] = True
    directed: ClassVar[bool] = True
    monotone: ClassVar[bool] = True
    margins: ClassVar[bool] = True

    @property
    def lipschitz(self) -> float:
        return self.bound

    @property
    def smoothness(self) -> float:
        return 0.5 / self.width * self.bound**2

    def of_score(self, score: Array, targets: Array) -> Pointwise:
        short = 1 + self.width - targets * score  # how far the margin is from where the loss vanishes
        bend = (short > 0) & (short < 2 * self.width)
        value = jnp.where(short <= 0, 0.0, jnp.where(bend, short**2 / (4 * self.width), short - self.width))
        slope = -targets * jnp.clip(short / (2 * self.width), 0.0, 1.0)
        return Pointwise(value, slope, jnp.where(bend, 1 / (2 * self.width), 0.0))


def make(settings: Settings, features: int, classes: int) -> Hinge:
    """The problem on records with this many features."""
    return Hinge(features, constraint=settings.ball, width=settings.width)


EXAMPLE = Hinge(2)
