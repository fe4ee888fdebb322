r"""The objective of fair logistic regression as a problem: sums over records, of which parties release what they need.

A point is an objective: (counts of the groups, b, A, Σ x over each group), see `coterie.fair.polynomial`. A record's
loss at it is the scalar product with the record's own part φ of those sums, so its gradient is φ whatever the point,
and `shard.gradient` of an agent gives the sums over its records. With x in the unit ball

    ‖φ‖² = 1 + ¼‖x‖² + ‖upper triangle of xxᵀ/8‖² + ‖x‖² ≤ 9/4 + 1/64,

as the upper triangle of a matrix is no longer than the matrix. A record's target is y + 2z: its label y, its group z.
"""

from __future__ import annotations

from typing import ClassVar, NoReturn

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpy.typing import NDArray
from pydantic import Field

from coterie.errors import InputError
from coterie.fair.polynomial import Numbers, Statistics, from_upper, upper
from coterie.fair.solve import minimise, minimise_here
from coterie.losses.settings import LossSettings
from coterie.problems import Problem, Shard
from coterie.problems.labels import ClassNumbers, Labels
from coterie.problems.records import clip_factor, namespace

__all__ = ["CLASSES", "EXAMPLE", "MODEL", "FairMoments", "Settings", "SummedShard", "make"]

CLASSES = 4  # two labels in two groups
MODEL = "fair logistic classifier"


class Settings(LossSettings):
    """What a plan may say for it."""

    radius: None = Field(None, description="has no use here: nothing is minimised between the parties")
    penalty: float = Field(1.0, ge=0, description="α, the weight of the covariance of score and group")


class FairMoments(Problem):
    """Sums over records that the objective is made of; a point's predictions are those of its minimiser."""

    features: int = eqx.field(static=True)  # d
    groups: int = eqx.field(static=True, default=2)  # k
    penalty: float = eqx.field(static=True, default=1.0)  # α of the minimiser
    convex: ClassVar[bool] = True
    directed: ClassVar[bool] = True
    smoothness: ClassVar[float] = 1.0  # it is 0; solvers divide by it
    bound: ClassVar[float] = 1.0
    constraint: ClassVar[None] = None
    released: ClassVar[str] = "fair-release"

    @classmethod
    def of_length(cls, dim: int, groups: int) -> FairMoments:
        """The problem whose points have so many numbers."""
        half = 1.5 + groups
        made = cls(round((half**2 + 2 * (dim - groups)) ** 0.5 - half), groups)
        if made.dim != dim:
            raise InputError(f"no objective of {groups} groups has {dim} numbers")
        return made

    @property
    def name(self) -> str:
        return "fair logistic regression"

    @property
    def labels(self) -> Labels:
        return ClassNumbers(2 * self.groups)

    @property
    def columns(self) -> int:
        return self.features

    @property
    def dim(self) -> int:
        """Counts, the objective's moments and each group's covariances."""
        d = self.features
        return self.groups + d + d * (d + 1) // 2 + self.groups * d

    @property
    def lipschitz(self) -> float:
        """Bound on ‖φ‖."""
        return (9 / 4 + 1 / 64) ** 0.5

    def flat(self, parts: Statistics) -> Numbers:
        """The sums, or what was released of them, as a point."""
        sums = (parts.groups, parts.linear, upper(parts.quadratic), parts.sums.ravel())
        return namespace(parts.linear).concatenate(sums)

    def parts(self, point: Numbers) -> Statistics:
        """Inverse of `flat`. The number of records is not in it."""
        k, d = self.groups, self.features
        ends = np.cumsum([k, d, d * (d + 1) // 2])
        groups, linear, above, sums = namespace(point).split(point, ends)
        return Statistics(0, groups, linear, from_upper(above, d), sums.reshape(k, d))

    def _records(self, features: Array, targets: Array) -> Float[Array, "rows dim"]:
        """φ of each record."""
        d, label, group = self.features, targets % 2, targets // 2
        member = jax.nn.one_hot(group, self.groups, dtype=features.dtype)
        row, column = (np.concatenate([np.arange(d), side]) for side in np.triu_indices(d, 1))
        products = features[:, row] * features[:, column] / 8
        each = (member[:, :, None] * features[:, None, :]).reshape(len(features), -1)
        return jnp.concatenate([member, (0.5 - label)[:, None] * features, products, each], axis=1)

    def losses(self, x: Float[Array, " dim"], features: Array, targets: Array) -> Float[Array, " rows"]:
        return self._records(features, targets) @ x

    def weighted_gradient(
        self, x: Float[Array, " dim"], features: Array, targets: Array, weights: Array,
        clip: Array | float | None = None,
    ) -> Float[Array, " dim"]:  # fmt: skip
        if clip is not None:
            own = self._records(features, targets)
            return weights * clip_factor(jnp.linalg.norm(own, axis=1), clip) @ own
        member = weights[:, None] * jax.nn.one_hot(targets // 2, self.groups, dtype=features.dtype)
        linear = (weights * (0.5 - targets % 2)) @ features
        products = upper((weights[:, None] * features).T @ features / 8)
        return jnp.concatenate([member.sum(0), linear, products, (member.T @ features).ravel()])

    def predict(self, x: Float[Array, " dim"], features: Array) -> Array:
        """Decisions on the features alone: 0 or 1, which is no statement about groups."""
        own = self.parts(x)
        return (features @ minimise_here(own.quadratic, own.linear, own.sums, self.penalty) > 0).astype(jnp.int32)

    def score(self, x: Float[Array, " dim"], features: Array, targets: Array) -> Float[Array, ""]:
        return jnp.mean(self.predict(x, features) == targets % 2, dtype=x.dtype)

    def weights(self, point: NDArray[np.float64]) -> NDArray[np.float64]:
        """The minimiser of the objective that a point is: rows of its last part are penalties, zeros are none."""
        own = self.parts(np.asarray(point, float))
        rows = own.sums[np.any(own.sums != 0, axis=1)]
        return minimise(own.quadratic, own.linear, rows if len(rows) else None, self.penalty)


class SummedShard(Shard):
    """An agent's records as their sums, made once: of a loss that is linear in the point nobody needs more."""

    problem: FairMoments
    sums: Float[Array, "*agents dim"]
    count: Int[Array, "*agents"]
    unit: Float[Array, "*agents"]
    ridge: Float[Array, ""]

    def gradient(self, x: Float[Array, " dim"], clip: object = None, rows: object = None, mask: object = None) -> Array:
        if clip is not None or rows is not None or mask is not None:
            raise InputError("these records are there as sums only: none can be picked or clipped")
        return self.sums

    def value(self, x: Float[Array, " dim"]) -> Float[Array, ""]:
        return self.unit * jnp.dot(self.sums, x) + self.ridge / 2 * jnp.dot(x, x)

    def losses(self, x: Float[Array, " dim"]) -> NoReturn:
        """Refused: the records are gone."""
        raise InputError("these records are there as sums only: they have no losses of their own")

    def descend(self, *what: object) -> NoReturn:
        """Refused: a linear loss has no least point."""
        raise InputError(f"{self.problem.name} is released in sums, not descended on")

    def argmin(self, *what: object) -> NoReturn:
        """Refused, as `descend` is."""
        self.descend()


def make(settings: Settings, features: int, classes: int) -> FairMoments:
    """The problem on records with this many features, whose classes are every label in every group."""
    if classes < CLASSES or classes % 2:
        raise InputError(
            f"problem.loss = 'fair' has two labels in each of two groups or more, got {classes} classes: state "
            "data.options.protected, the column of the groups"
        )
    return FairMoments(features, classes // 2, settings.penalty)


EXAMPLE = FairMoments(2)
