"""Huber loss of a linear model: squares near the answer, straight lines beyond `corner`, so outliers pull no harder.

The slope in the score is at most `corner` and has both signs; the curvature is 1 inside the corners and 0 outside.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array
from pydantic import Field

from coterie.losses.base import LossSettings
from coterie.problems.glm import Linear, Pointwise
from coterie.problems.labels import NUMBERS, Labels

MODEL = "robust linear regression"


class Settings(LossSettings):
    """What a plan's [problem] may say for it."""

    corner: float = Field(1.0, gt=0, description="beyond this residual the loss is linear")


class Huber(Linear):
    """Regression that outliers do not bend. What is stated here is what privacy rests on."""

    corner: float = eqx.field(static=True, default=1.0)
    labels: ClassVar[Labels] = NUMBERS
    convex: ClassVar[bool] = True
    scored: ClassVar[bool] = True
    directed: ClassVar[bool] = True

    @property
    def lipschitz(self) -> float:
        return self.corner * self.bound

    @property
    def smoothness(self) -> float:
        return self.bound**2

    def of_score(self, score: Array, targets: Array) -> Pointwise:
        gap = score - targets
        inside = jnp.abs(gap) <= self.corner
        value = jnp.where(inside, gap**2 / 2, self.corner * (jnp.abs(gap) - self.corner / 2))
        return Pointwise(value, jnp.clip(gap, -self.corner, self.corner), jnp.where(inside, 1.0, 0.0))


def make(settings: Settings, features: int, classes: int) -> Huber:
    """The problem on records with this many features."""
    return Huber(features, constraint=settings.ball, corner=settings.corner)


EXAMPLE = Huber(2)
