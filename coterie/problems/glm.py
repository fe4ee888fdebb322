"""Generalised linear models: the loss of a record depends on x only through its score ⟨features, x⟩.

A record's gradient is slope(score) · features, so clipped gradients need no per-record vectors: their norms are
|slope| · ‖features‖. With ‖features‖ ≤ `bound` (the data loaders see to it) the public bounds are

    loss       slope bound   curvature bound
    logistic   1             1/4
    hinge      1             1/(2 width)      (Huber-smoothed on [1 − width, 1 + width])
    squared    none          1                (clip, or use a bounded loss)
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from coterie.errors import InputError
from coterie.problems.base import Constraint, Problem, class_numbers, clip_factor, namespace, need_binary, sound

__all__ = ["Linear", "Softmax"]


class _Pointwise(NamedTuple):
    value: Array
    slope: Array
    curvature: Array


def _logistic(score: Array, y: Array) -> _Pointwise:
    margin = y * score
    p = jax.nn.sigmoid(-margin)
    return _Pointwise(jax.nn.softplus(-margin), -y * p, p * (1 - p))


def _hinge(score: Array, y: Array, width: float) -> _Pointwise:
    short = 1 + width - y * score  # how far the margin is from where the loss vanishes
    bend = (short > 0) & (short < 2 * width)
    value = jnp.where(short <= 0, 0.0, jnp.where(bend, short**2 / (4 * width), short - width))
    slope = -y * jnp.clip(short / (2 * width), 0.0, 1.0)
    return _Pointwise(value, slope, jnp.where(bend, 1 / (2 * width), 0.0))


def _squared(score: Array, y: Array) -> _Pointwise:
    gap = score - y
    return _Pointwise(0.5 * gap**2, gap, jnp.ones_like(gap))


class Linear(Problem):
    """Empirical risk of a linear model with logistic, Huber-smoothed hinge or squared loss."""

    dim: int = eqx.field(static=True)
    loss: Literal["logistic", "hinge", "squared"] = eqx.field(static=True, default="logistic")
    bound: float = eqx.field(static=True, default=1.0)
    width: float = eqx.field(static=True, default=0.5)
    constraint: Constraint | None = None
    convex: ClassVar[bool] = True
    scored: ClassVar[bool] = True
    directed: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return f"{self.loss} loss"

    @property
    def lipschitz(self) -> float:
        """Bound on the norm of one record's gradient; none for squares."""
        return float("inf") if self.loss == "squared" else self.bound

    @property
    def smoothness(self) -> float:
        """Bound on one record's curvature."""
        return {"logistic": 0.25, "hinge": 0.5 / self.width, "squared": 1.0}[self.loss] * self.bound**2

    @property
    def metric(self) -> str:  # type: ignore[override]
        return "r2" if self.loss == "squared" else "accuracy"

    @property
    def monotone(self) -> bool:
        """Whether the slope never changes sign."""
        return self.loss != "squared"

    def at(self, x: Float[Array, " d"], features: Array, targets: Array) -> _Pointwise:
        """Value, slope and curvature of every record's loss as a function of its score."""
        score = features @ x
        if self.loss == "logistic":
            return _logistic(score, targets)
        return _hinge(score, targets, self.width) if self.loss == "hinge" else _squared(score, targets)

    def losses(self, x: Float[Array, " d"], features: Array, targets: Array) -> Float[Array, " rows"]:
        return self.at(x, features, targets).value

    def weighted_gradient(
        self,
        x: Float[Array, " d"],
        features: Array,
        targets: Array,
        weights: Array,
        clip: Array | float | None = None,
    ) -> Float[Array, " d"]:
        slope = sound(self.at(x, features, targets).slope)
        if clip is not None:
            slope = slope * clip_factor(jnp.abs(slope) * jnp.linalg.norm(features, axis=1), clip)
        return (weights * slope) @ features

    def weighted_hessian(
        self, x: Float[Array, " d"], features: Array, targets: Array, weights: Array
    ) -> Float[Array, "d d"]:
        curvature = weights * self.at(x, features, targets).curvature
        return features.T @ (curvature[:, None] * features)

    def predict(self, x: Float[Array, " d"], features: Array) -> Array:
        score = features @ x
        return score if self.loss == "squared" else jnp.where(score > 0, 1.0, -1.0)

    def score(self, x: Float[Array, " d"], features: Array, targets: Array) -> Float[Array, ""]:
        if self.loss != "squared":
            return jnp.mean(self.predict(x, features) == targets, dtype=x.dtype)
        residual = jnp.mean((self.predict(x, features) - targets) ** 2)
        return 1 - residual / jnp.maximum(jnp.var(targets), 1e-30)

    def encode(self, targets: np.ndarray, classes: tuple[str, ...] | None) -> np.ndarray:
        if self.loss == "squared":
            if classes is not None:
                raise InputError(f"loss 'squared' needs a numeric label, but it has the classes {classes[:4]}")
            return np.asarray(targets, dtype=float)
        return need_binary(targets, classes, self.loss)

    def admit_targets(self, targets: Any) -> Any:
        if self.loss == "squared":
            return super().admit_targets(targets)
        xp = namespace(targets)
        return xp.where(targets > 0, xp.ones((), targets.dtype), -xp.ones((), targets.dtype))


class Softmax(Problem):
    """Multi-class logistic regression; the point is the (features × classes) matrix, flattened.

    A record's gradient is features ⊗ (p − onehot), of norm ‖features‖ · ‖p − onehot‖ ≤ √2 · bound.
    """

    features: int = eqx.field(static=True)
    classes: int = eqx.field(static=True)
    bound: float = eqx.field(static=True, default=1.0)
    constraint: Constraint | None = None
    convex: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return "softmax loss"

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
        logits = jax.nn.log_softmax(self.scores(x, features))
        return -jnp.take_along_axis(logits, targets[:, None].astype(int), axis=1)[:, 0]

    def weighted_gradient(
        self,
        x: Float[Array, " d"],
        features: Array,
        targets: Array,
        weights: Array,
        clip: Array | float | None = None,
    ) -> Float[Array, " d"]:
        gap = jax.nn.softmax(self.scores(x, features)) - jax.nn.one_hot(targets, self.classes, dtype=x.dtype)
        if clip is not None:
            norms = jnp.linalg.norm(gap, axis=1) * jnp.linalg.norm(features, axis=1)
            weights = weights * clip_factor(norms, clip)
        return (features.T @ (weights[:, None] * gap)).reshape(-1)

    def predict(self, x: Float[Array, " d"], features: Array) -> Array:
        return jnp.argmax(self.scores(x, features), axis=1)

    def encode(self, targets: np.ndarray, classes: tuple[str, ...] | None) -> np.ndarray:
        if classes is None or len(classes) != self.classes:
            have = "continuous values" if classes is None else f"{len(classes)} classes"
            raise InputError(f"loss 'softmax' was set up for {self.classes} classes, but the label column has {have}")
        return np.asarray(targets, dtype=np.int32)

    def admit_targets(self, targets: Any) -> Any:
        return class_numbers(targets, self.classes)
