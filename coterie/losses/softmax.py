"""Softmax loss of a linear model with one vector for each class: the cross-entropy of its class probabilities p.

A record's gradient is features ⊗ (p − onehot), of norm ‖features‖ · ‖p − onehot‖ ≤ √2 · bound. Its curvature is at most
that of diag(p) − ppᵀ ≤ 1/2, times bound².
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from coterie.losses.base import LossSettings
from coterie.problems.base import Problem
from coterie.problems.labels import ClassNumbers, Labels
from coterie.problems.records import apart, clip_factor, sound
from coterie.problems.sets import Constraint

__all__ = ["Softmax"]

MODEL = "softmax classifier"


def cross_entropy(scores: Float[Array, "rows classes"], targets: Array) -> Float[Array, " rows"]:
    """−ln of the chance that the softmax of the scores gives to each record's class."""
    chances = jax.nn.log_softmax(scores)
    return -jnp.take_along_axis(chances, targets[:, None].astype(int), axis=1)[:, 0]


class Softmax(Problem):
    """Multi-class logistic regression; the point is the (features × classes) matrix, flattened."""

    features: int = eqx.field(static=True)
    classes: int = eqx.field(static=True)
    bound: float = eqx.field(static=True, default=1.0)
    constraint: Constraint | None = None
    convex: ClassVar[bool] = True
    likely: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return "softmax loss"

    @property
    def labels(self) -> Labels:
        return ClassNumbers(self.classes)

    @property
    def columns(self) -> int:
        return self.features

    def shaped(self, point: np.ndarray) -> np.ndarray:
        return point.reshape(self.features, self.classes)

    @property
    def dim(self) -> int:
        """Parameters: one vector for each class."""
        return self.features * self.classes

    @property
    def lipschitz(self) -> float:
        """Bound on the norm of one record's gradient: √2 where the wrong class is certain."""
        return 2**0.5 * self.bound

    @property
    def smoothness(self) -> float:
        """Bound on one record's curvature: diag(p) − ppᵀ ≤ 1/2."""
        return 0.5 * self.bound**2

    def scores(self, x: Float[Array, " d"], features: Array) -> Float[Array, "rows classes"]:
        """Unnormalised log-probabilities."""
        return sound(features @ x.reshape(self.features, self.classes))

    def losses(self, x: Float[Array, " d"], features: Array, targets: Array) -> Float[Array, " rows"]:
        return cross_entropy(self.scores(x, features), targets)

    def weighted_gradient(
        self, x: Float[Array, " d"], features: Array, targets: Array, weights: Array, clip: Array | float | None = None
    ) -> Float[Array, " d"]:
        gap = jax.nn.softmax(self.scores(x, features)) - jax.nn.one_hot(targets, self.classes, dtype=x.dtype)
        if clip is not None:
            norms = jnp.linalg.norm(gap, axis=1) * jnp.linalg.norm(features, axis=1)
            weights = weights * clip_factor(norms, clip)
        return (features.T @ apart(weights[:, None] * gap)).reshape(-1)

    def evidence(self, x: Float[Array, " d"], features: Array) -> Float[Array, "rows classes"]:
        return self.scores(x, features)

    def predict(self, x: Float[Array, " d"], features: Array) -> Array:
        return jnp.argmax(self.scores(x, features), axis=1)


def make(settings: LossSettings, features: int, classes: int) -> Softmax:
    """The problem on records with this many features and classes."""
    return Softmax(features, classes, constraint=settings.ball)


EXAMPLE = Softmax(2, 3)
