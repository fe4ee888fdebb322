r"""Scores as a problem: how good a public model is on held-out records, by noisy sums that may leave.

A record is what the public model says of it: a chance p in [0, 1] that something happens, whether its prediction is
right, whether it happened (y), and a group g. Its vector has, for its own group,

    a · right,   c · (p − y),   b · one at its place among score bin × happened,

and zeros elsewhere. Replacing a record of one group moves it by Δ² = a² + 4c² + 2b²; with several groups the two
records may be of different ones, Δ² = max(a² + 4c², 2a² + 2c²) + 2b². Both are reached. So the number right costs what
one count costs, and the mean of p − y (calibration in the large) has no error of binning.

Bins are public: their edges are sin²(πk/2B), fine where chances are near 0 and 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import NDArray
from pydantic import Field, field_validator

from coterie.losses.settings import LossSettings
from coterie.problems.labels import ClassNumbers, Labels
from coterie.problems.records import Rows, class_numbers, namespace
from coterie.problems.released import Released

if TYPE_CHECKING:
    from coterie.released.covered import CoveredScores

__all__ = ["CLASSES", "EXAMPLE", "MODEL", "Scores", "Settings", "edges_of", "make"]

CLASSES = 2
MODEL = "scores of a public model"
SHARES = (0.15, 0.15, 0.7)  # of Δ² between the number right, calibration, and counts


def edges_of(bins: int) -> NDArray[np.float64]:
    """The bounds of so many bins, from 0 to 1."""
    return np.sin(np.pi * np.arange(bins + 1) / (2 * bins)) ** 2


class Settings(LossSettings):
    """What a plan may say for it."""

    radius: None = Field(None, description="has no use here: nothing is minimised")
    cells: int = Field(20, ge=2, le=200, description="score bins, an even number")
    groups: int = Field(1, ge=1, le=100, description="public groups of records")

    @field_validator("cells")
    @classmethod
    def _even(cls, cells: int) -> int:
        if cells % 2:
            raise ValueError(f"cells must be even, as one half is an edge, got {cells}")
        return cells


class Scores(Released):
    """Means of what is right, of p − y, and of counts per bin, over records (p, right) with target y + 2·group."""

    bins: int = eqx.field(static=True, default=20)
    groups: int = eqx.field(static=True, default=1)
    convex: ClassVar[bool] = True
    directed: ClassVar[bool] = True
    smoothness: ClassVar[float] = 1.0  # it is 0; solvers divide by it
    metric: ClassVar[str] = "accuracy"  # type: ignore[misc]

    @property
    def name(self) -> str:
        return "scores"

    @property
    def labels(self) -> Labels:
        return ClassNumbers(2 * self.groups)

    @property
    def columns(self) -> int:
        """A chance, and whether the prediction is right."""
        return 2

    @property
    def size(self) -> int:
        return self.groups * (2 + 2 * self.bins)

    @property
    def weights(self) -> tuple[float, float, float]:
        """a, c and b: each part has its share of Δ² = 1 in one group."""
        right, gap, counts = SHARES
        return right**0.5, (gap / 4) ** 0.5, (counts / 2) ** 0.5

    @property
    def half_gap(self) -> float:
        """Δ/2."""
        a, c, b = self.weights
        one, two = a**2 + 4 * c**2, 2 * a**2 + 2 * c**2
        return 0.5 * ((one if self.groups == 1 else max(one, two)) + 2 * b**2) ** 0.5

    @property
    def lipschitz(self) -> float:
        """Bound on a record's vector."""
        return float(np.linalg.norm(self.weights))

    def each(self, features: Array, targets: Array) -> Float[Array, "rows size"]:
        chance, right, kind = features[:, 0], features[:, 1], features.dtype
        happened, group = targets % 2, jax.nn.one_hot(targets // 2, self.groups, dtype=kind)
        a, c, b = self.weights
        at = jnp.clip(jnp.searchsorted(jnp.asarray(edges_of(self.bins)[1:-1], kind), chance, side="right"), 0, None)
        cell = jax.nn.one_hot(2 * at + happened, 2 * self.bins, dtype=kind)
        own = jnp.concatenate([(a * right)[:, None], (c * (chance - happened))[:, None], b * cell], axis=1)
        return (group[:, :, None] * own[:, None, :]).reshape(len(features), -1)

    def admit(self, features: Rows, targets: Rows) -> tuple[Rows, Rows]:
        xp = namespace(features)
        stated, right = features[..., 0], features[..., 1] > 0.5  # agents may come before the rows
        chance = xp.clip(xp.where(xp.isfinite(stated), stated, 0.0), 0.0, 1.0)
        kept = xp.stack([chance, xp.where(right, 1.0, 0.0)], axis=-1).astype(features.dtype)
        return kept, class_numbers(targets, 2 * self.groups)

    @property
    def premise(self) -> str:
        return "every record is a chance between 0 and 1, whether the prediction is right, and what happened"

    def outside(self, features: np.ndarray) -> str | None:
        kept, _ = self.admit(features, np.zeros(len(features)))
        return None if np.array_equal(kept, features) else "are no chances and answers: make them by `scored_records`"

    def predict(self, x: Float[Array, " dim"], features: Array) -> Array:
        """Whether it happens: chances above one half."""
        return (features[:, 0] > 0.5).astype(jnp.int32)

    def score(self, x: Float[Array, " dim"], features: Array, targets: Array) -> Float[Array, ""]:
        return jnp.mean(features[:, 1])

    def shaped(self, point: np.ndarray) -> CoveredScores:
        """The scores with their errors."""
        from coterie.released.covered import CoveredScores

        return CoveredScores.of(self, np.asarray(point, float))


def make(settings: Settings, features: int, classes: int) -> Scores:
    """The problem; its groups are stated, and classes are what happened in every group."""
    return Scores(settings.cells, settings.groups)


EXAMPLE = Scores(4, 2)
