"""Logistic loss of a linear model: log(1 + exp(−y · score)) for labels −1 and 1.

The slope in the score is at most 1 and never changes sign; the curvature p(1 − p) is at most 1/4.
"""

from __future__ import annotations

from typing import ClassVar

import jax
from jaxtyping import Array

from coterie.losses.base import LossSettings
from coterie.problems.glm import Linear, Pointwise
from coterie.problems.labels import SIGNS, Labels

__all__ = ["Logistic"]

MODEL = "logistic classifier"


class Logistic(Linear):
    """Logistic regression without an intercept, for two classes."""

    labels: ClassVar[Labels] = SIGNS
    convex: ClassVar[bool] = True
    scored: ClassVar[bool] = True
    directed: ClassVar[bool] = True
    monotone: ClassVar[bool] = True
    likely: ClassVar[bool] = True

    @property
    def lipschitz(self) -> float:
        return self.bound

    @property
    def smoothness(self) -> float:
        return 0.25 * self.bound**2

    def of_score(self, score: Array, targets: Array) -> Pointwise:
        margin = targets * score
        p = jax.nn.sigmoid(-margin)
        return Pointwise(jax.nn.softplus(-margin), -targets * p, p * (1 - p))


def make(settings: LossSettings, features: int, classes: int) -> Logistic:
    """The problem on records with this many features."""
    return Logistic(features, constraint=settings.ball)


EXAMPLE = Logistic(2)
