r"""Second moments as a problem: the means of x xᵀ and of y x over all records, released once.

A record in the unit ball with label y, |y| ≤ 1, gives the vector

    φ = (x_a² for every a,  √2 x_a x_b for a < b,  w y x),      ‖φ‖² = ‖x‖⁴ + w² y² ‖x‖² ≤ 1 + w².

With √2 on the pairs ‖φ(r) − φ(r')‖ is the Frobenius distance of the matrices, and noise that is the same on every
number is symmetric noise on the matrix: variance σ² on its diagonal, σ²/2 off it, with a law that is the same in every
basis.

**How far one record moves it.** For records x, z of norms a, b with u = ⟨x, z⟩

    ‖φ − φ'‖² = a⁴ + b⁴ − 2u² + w² ‖yx − y'z‖²,

convex in (y, y'), so largest at labels ±1; the same labels at u are opposite ones at −u. With opposite ones it is
a⁴ + b⁴ − 2u² + w² (a² + b² + 2u), which grows with a and b, as does the range |u| ≤ ab: a = b = 1. Then u = min(1,
w²/2) is best: Δ² = 2 + 2w² + w⁴/2 for w² ≤ 2, which is 4.5 at w = 1, and 4w² beyond. Both are reached.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from pydantic import Field

from coterie.data.bins import ALIKE, Bins
from coterie.errors import InputError
from coterie.losses.settings import LossSettings
from coterie.problems.labels import NUMBERS, SIGNS, Labels
from coterie.problems.records import Rows, namespace
from coterie.problems.released import Released
from coterie.released.additive_moments import AdditiveMoments
from coterie.released.second_moments import SecondMoments, default_penalty, ridge_weights

__all__ = ["CLASSES", "EXAMPLE", "MODEL", "MOST", "Moments", "Settings", "make"]

CLASSES = 2
MODEL = "second moments, and every ridge model of them"
BINNED_WEIGHT = 0.7  # w for records in bins: chosen on made problems and diabetes
MOST = 300  # features: noise on the matrix grows with their number, and messages with its square


class Settings(LossSettings):
    """What a plan may say for it."""

    radius: None = Field(None, description="has no use here: nothing is minimised between the parties")
    penalty: float | None = Field(
        None,
        gt=0,
        description="λ of the model that is scored, ½ mean (⟨θ, x⟩ − y)² + λ/2 ‖θ‖², of bins and two classes with the "
        "logistic loss instead; default: by the noise",
    )
    weight: float | None = Field(
        None, gt=0, description="w, the weight of y x beside x xᵀ: more of it is less noise on y x; default 1, bins .7"
    )
    numbers: bool = Field(False, description="whether labels are numbers; else they are two classes")
    reach: float = Field(1.0, gt=0, description="where labels are numbers: they are cut to ± this public bound")


class Moments(Released):
    """Means of x xᵀ and y x; a point's predictions are those of its ridge model."""

    features: int = eqx.field(static=True)  # d
    numbers: bool = eqx.field(static=True, default=False)  # whether labels are numbers; else −1 and 1
    penalty: float | None = eqx.field(static=True, default=None)
    weight: float | None = eqx.field(static=True, default=None)
    reach: float = eqx.field(static=True, default=1.0)
    bins: Bins | None = eqx.field(static=True, default=None)  # of an additive model
    convex: ClassVar[bool] = True
    directed: ClassVar[bool] = True
    smoothness: ClassVar[float] = 1.0  # it is 0; solvers divide by it
    bound: ClassVar[float] = 1.0

    def __check_init__(self) -> None:
        if self.features > MOST:
            raise InputError(
                f"second moments of {self.features} features are {self.size} numbers, each with noise: at most {MOST} "
                "features are released; use a gradient method, e.g. dp-dsgd"
            )

    @property
    def name(self) -> str:
        return "second moments"

    @property
    def w(self) -> float:
        """The weight of y x."""
        return self.weight if self.weight is not None else 1.0 if self.bins is None else BINNED_WEIGHT

    @property
    def labels(self) -> Labels:
        return NUMBERS if self.numbers else SIGNS

    @property
    def likely(self) -> bool:  # type: ignore[override]
        """Over bins scores are log-odds; those of least squares are between −1 and 1, and no chances."""
        return self.bins is not None and not self.numbers

    @property
    def columns(self) -> int:
        return self.features

    @property
    def size(self) -> int:
        """The upper triangle, and one number for each feature."""
        return self.features * (self.features + 1) // 2 + self.features

    @property
    def lipschitz(self) -> float:
        """Bound on ‖φ‖."""
        return (1 + self.w**2) ** 0.5

    @property
    def half_gap(self) -> float:
        """Δ/2."""
        square = self.w**2
        return 0.5 * (2 + 2 * square + square**2 / 2 if square <= 2 else 4 * square) ** 0.5

    def each(self, features: Array, targets: Array) -> Float[Array, "rows size"]:
        row, column = np.triu_indices(self.features, 1)
        pairs = 2**0.5 * features[:, row] * features[:, column]
        return jnp.concatenate([features**2, pairs, self._labelled(features, targets)], axis=1)

    def total(self, features: Array, targets: Array, weights: Array) -> Float[Array, " size"]:
        weighed = weights[:, None] * features
        products = weighed.T @ features
        row, column = np.triu_indices(self.features, 1)
        labelled = weights @ self._labelled(features, targets)
        return jnp.concatenate([jnp.diag(products), 2**0.5 * products[row, column], labelled])

    def inner(self, x: Float[Array, " size"], features: Array, targets: Array) -> Float[Array, " rows"]:
        matrix, cross = self._matrix(x), x[-self.features :]
        return jnp.sum((features @ matrix) * features, axis=1) + self._labelled(features, targets) @ cross

    def _labelled(self, features: Array, targets: Array) -> Float[Array, "rows d"]:
        bounded = jnp.clip(targets / self.reach, -1.0, 1.0)
        return self.w * bounded[:, None] * features

    def _matrix(self, x: Float[Array, " size"]) -> Float[Array, "d d"]:
        """The symmetric matrix of which the first numbers are the diagonal and √2 times what is above it."""
        d = self.features
        row, column = np.triu_indices(d, 1)
        pairs = x[d : d + len(row)] / 2**0.5
        return jnp.diag(x[:d]).at[row, column].set(pairs).at[column, row].set(pairs)

    def admit_targets(self, targets: Rows) -> Rows:
        kept = self.labels.admit(targets)
        return namespace(kept).clip(kept, -self.reach, self.reach) if self.numbers else kept

    def over(self, bins: Bins, alike: float | None) -> Moments:
        """The same of records in these bins; `alike` is for the penalty, features are ones and zeros."""
        return replace(self, features=bins.width, bins=replace(bins, alike=ALIKE if alike is None else alike))

    def _score(self, x: Float[Array, " dim"], features: Array) -> Float[Array, " rows"]:
        if self.bins is not None:
            return features @ self._binned(x)
        matrix, cross = self._matrix(x[:-1]), x[-1 - self.features : -1] / self.w
        penalty = default_penalty(x[-1], self.features) if self.penalty is None else self.penalty
        return features @ ridge_weights(matrix, cross, penalty)

    def _binned(self, x: Float[Array, " dim"]) -> Float[Array, " d"]:
        """The weights of the additive model, from the host, which finds them once where all parties have the same
        moments. Numbers go there and back as bits: in its threads JAX would round them to 32.
        """
        words = x.dtype.itemsize // 4

        def found(bits: np.ndarray) -> np.ndarray:
            point = np.ascontiguousarray(bits).view(x.dtype).reshape(-1)
            seen = self.shaped(point)
            assert isinstance(seen, AdditiveMoments)
            weights = seen.weights(self.penalty) if np.isfinite(point).all() else np.full(self.features, np.nan)
            return weights.astype(x.dtype).view(np.uint32).reshape(self.features, words)

        shape = jax.ShapeDtypeStruct((self.features, words), jnp.uint32)
        flat = jax.lax.bitcast_convert_type(x, jnp.uint32).reshape(x.shape[0], words)
        bits = jax.pure_callback(found, shape, flat, vmap_method="sequential")
        return jax.lax.bitcast_convert_type(bits if words > 1 else bits[:, 0], x.dtype)

    def predict(self, x: Float[Array, " dim"], features: Array) -> Array:
        score = self._score(x, features)
        return self.reach * score if self.numbers else jnp.where(score > 0, 1.0, -1.0)

    def evidence(self, x: Float[Array, " dim"], features: Array) -> Float[Array, "rows classes"] | None:
        if self.numbers:
            return None
        score = self._score(x, features)
        return jnp.stack([jnp.zeros_like(score), score], axis=1)

    def shaped(self, point: np.ndarray) -> SecondMoments | AdditiveMoments:
        """The released means as a matrix and a vector, of which any model may be made."""
        flat = np.asarray(point, float)
        d, w = self.features, self.w
        row, column = np.triu_indices(d, 1)
        matrix = np.diag(flat[:d])
        matrix[row, column] = matrix[column, row] = flat[d : d + len(row)] / 2**0.5
        cross = flat[-1 - d : -1] / w
        if self.bins is not None:
            return AdditiveMoments(
                matrix, cross, float(flat[-1]), float(flat[-1]) / w, self.bins, self.reach, self.numbers
            )
        return SecondMoments(matrix, cross, float(flat[-1]), float(flat[-1]) / w, self.reach, self.numbers)


def make(settings: Settings, features: int, classes: int) -> Moments:
    """The problem on records with this many features."""
    if classes > CLASSES:
        raise InputError(f"problem.loss = 'moments' takes two classes, or numbers, got {classes} classes")
    return Moments(features, settings.numbers, settings.penalty, settings.weight, settings.reach)


EXAMPLE = Moments(2)
