"""Losses of linear models: a record's loss depends on x only through its score ⟨features, x⟩.

A record's gradient is slope(score) · features, so clipped gradients need no per-record vectors: their norms are
|slope| · ‖features‖. With ‖features‖ ≤ `bound` (`admit` sees to it), a slope of at most s and a curvature of at most c
in the score give `lipschitz` = s · bound and `smoothness` = c · bound². A loss states both, and everything else that
it wants believed of itself: nothing is inherited from here.
"""

from __future__ import annotations

import abc
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from coterie.problems import sparse
from coterie.problems.base import Problem
from coterie.problems.once import gradients, worth_it
from coterie.problems.records import clip_factor, sound
from coterie.problems.sets import Constraint
from coterie.problems.sparse import Sparse, as_array

__all__ = ["Linear", "Pointwise"]


class Pointwise(NamedTuple):
    """A loss as a function of the score, record by record: its value and two derivatives."""

    value: Array
    slope: Array
    curvature: Array


class Linear(Problem):
    """Empirical risk of a linear model: a loss says what `of_score` is."""

    margins: ClassVar[bool] = False  # the value is a function of target · score, of targets −1 and 1
    dim: int = eqx.field(static=True)
    bound: float = eqx.field(static=True, default=1.0)
    constraint: Constraint | None = None

    @property
    def name(self) -> str:
        return f"{type(self).__name__.lower()} loss"

    @abc.abstractmethod
    def of_score(self, score: Float[Array, " rows"], targets: Array) -> Pointwise:
        """Value, slope and curvature of every record's loss as a function of its score."""

    @property
    def _by_margin(self) -> bool:
        """What `margins` says, if whoever wrote `of_score` has said it."""
        author = next(kind for kind in type(self).__mro__ if {"margins", "of_score"} & vars(kind).keys())
        return "margins" in vars(author) and self.margins

    def at(self, x: Float[Array, " d"], features: Array | Sparse, targets: Array) -> Pointwise:
        """The same at a point."""
        return self.of_score(features @ x, targets)

    def losses(self, x: Float[Array, " d"], features: Array | Sparse, targets: Array) -> Float[Array, " rows"]:
        return self.at(x, features, targets).value

    def weighted_value(
        self, x: Float[Array, " d"], features: Array | Sparse, targets: Array, weights: Array
    ) -> Float[Array, ""]:
        if isinstance(features, Sparse):
            value = lambda score, targets, *_: self.of_score(score, targets).value  # noqa: E731
            return sparse.values(value, x, features, targets, weights, self._by_margin)
        return super().weighted_value(x, features, targets, weights)

    def weighted_gradient(
        self,
        x: Float[Array, " d"],
        features: Array | Sparse,
        targets: Array,
        weights: Array,
        clip: Array | float | None = None,
    ) -> Float[Array, " d"]:
        def steep(score: Array, targets: Array, norms: Array, clip: Array | None) -> Array:
            slope = sound(self.of_score(score, targets).slope)
            return slope if clip is None else slope * clip_factor(jnp.abs(slope) * norms, clip)

        if isinstance(features, Sparse) and clip is not None and jnp.ndim(clip):  # one for each record
            features = as_array(features)
        if isinstance(features, Sparse):
            cut = steep if clip is not None else lambda score, targets, norms, _: steep(score, targets, norms, None)
            return sparse.gradients(cut, x, features, targets, weights, clip, self._by_margin)

        def plain(x: Array, features: Array, targets: Array, weights: Array, clip: Array | None = None) -> Array:
            norms = jnp.zeros(()) if clip is None else jnp.linalg.norm(features, axis=1)
            return (weights * steep(features @ x, targets, norms, clip)) @ features

        def slope(score: Array, targets: Array) -> Array:
            return self.of_score(score, targets).slope

        cap = None if clip is None else jnp.asarray(clip)
        if (cap is None or cap.ndim == 0) and worth_it(slope, features, targets):
            return gradients(plain, slope, x, features, targets, weights, cap)
        return plain(x, features, targets, weights, cap)

    def listed(self, features: Array) -> Array | Sparse:
        ours = ("at", "losses", "weighted_gradient")  # a loss with its own may want an array
        own = any(getattr(type(self), name) is not getattr(Linear, name) for name in ours)
        return features if own or jax.default_backend() != "cpu" else sparse.sparse(features)

    def weighted_hessian(
        self, x: Float[Array, " d"], features: Array, targets: Array, weights: Array
    ) -> Float[Array, "d d"]:
        curvature = weights * self.at(x, features, targets).curvature
        return features.T @ (curvature[:, None] * features)

    def predict(self, x: Float[Array, " d"], features: Array) -> Array:
        score = features @ x
        return score if self.labels.classes is None else jnp.where(score > 0, 1.0, -1.0)

    def evidence(self, x: Float[Array, " d"], features: Array) -> Float[Array, "rows classes"] | None:
        if self.labels.classes is None:
            return None
        score = features @ x
        return jnp.stack([jnp.zeros_like(score), score], axis=1)
