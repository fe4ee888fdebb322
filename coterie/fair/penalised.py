r"""The covariance penalty for iterative algorithms: logistic loss plus a public, smooth α Σ_j h(v̂_jᵀw).

The direction v̂ = (1/n) Σ u_z x is released once, with noise (`release_direction`); from then on the penalty is public
and every iteration pays for the loss only. h is |·| with a quadratic corner of half-width c (Huber), so that gradients
and curvature stay bounded:

    a record's gradient    slope·x + p(w),  p = α Σ_j h'(v̂_jᵀw) v̂_j     ‖·‖ ≤ bound + α Σ‖v̂_j‖
    a record's curvature                                                  ≤ ¼ bound² + (α/c)‖V̂‖²

Clipping acts on the whole of a record's gradient, so sampled algorithms (where a record's absence also removes its
copy of p) stay within their bound.

A plan asks for it by `problem.loss = "fair-logistic"` with the released `directions`, on the records of `fair`: targets
are then classes, the label and, for those who measure, the group. `directions_of` reads them from a fair release.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import NDArray
from pydantic import Field

from coterie.errors import InputError
from coterie.fair.mechanisms import levels_for, noisy_covariance, noisy_shares
from coterie.fair.moments import FairMoments
from coterie.fair.noise import Charge, Noise
from coterie.fair.polynomial import Statistics
from coterie.losses.logistic import Logistic
from coterie.losses.settings import LossSettings
from coterie.privacy.accountants import Account
from coterie.privacy.events import Event
from coterie.problems import Constraint, Linear, Problem
from coterie.problems.labels import ClassNumbers, Labels
from coterie.problems.records import clip_factor, sound

__all__ = ["CovariancePenalised", "Direction", "Settings", "directions_of", "make", "release_direction"]

MODEL = "fair logistic classifier"


class Settings(LossSettings):
    """What [problem] says for it."""

    directions: list[list[float]] = Field(
        min_length=1, description="V̂/n, a list for each group that is compared; released before, at a price of its own"
    )
    penalty: float = Field(1.0, ge=0, description="α, the weight of the covariance of score and group")
    corner: float = Field(0.01, gt=0, description="c: below it |·| is a square")

    @property
    def features(self) -> int:
        """Each direction has a number for every feature."""
        return len(self.directions[0])


@dataclass(frozen=True, eq=False)
class Direction:
    """The released covariance of features and groups, per record, with its price."""

    rows: NDArray[np.float64]  # (penalties, d)
    share: NDArray[np.float64]
    events: tuple[Event, ...]
    account: Account


def release_direction(
    statistics: Statistics,
    *,
    epsilon: float,
    delta: float,
    noise: Noise,
    signed: bool = True,
    of_shares: float = 0.1,
    charge: Charge | None = None,
) -> Direction:
    """Release the group shares and V̂/n with Gaussian noise; `of_shares` is the part of μ² that the shares get.

    `charge` hears the events before anything is released, and may refuse.
    """
    split = (of_shares, 0.0, 1 - of_shares)
    groups = len(statistics.groups)
    levels = levels_for(
        "gaussian", statistics.dim, groups, epsilon=epsilon, delta=delta, shares=split, noise=noise
    )  # fmt: skip
    if charge is not None:
        charge(levels.events)
    share = noisy_shares(statistics, levels, noise)
    if share is None:
        raise InputError(f"of_shares must be in (0, 1), got {of_shares}")
    rows = noisy_covariance(statistics, share, levels, noise, signed)
    assert rows is not None
    return Direction(rows / statistics.count, share, levels.events, levels.account)


class CovariancePenalised(Problem):
    """A linear model whose every record's loss carries the public penalty α Σ_j h(v̂_jᵀw); build it with `make`."""

    base: Linear  # the loss without the penalty
    directions: tuple[tuple[float, ...], ...] = eqx.field(static=True, kw_only=True)  # V̂; a shard's arrays are its own
    alpha: float = eqx.field(static=True, kw_only=True)
    corner: float = eqx.field(static=True, kw_only=True)
    reach: float = eqx.field(static=True, kw_only=True)  # Σ‖v̂_j‖
    bend: float = eqx.field(static=True, kw_only=True)  # ‖V̂‖²
    groups: int = eqx.field(static=True, kw_only=True, default=1)  # above 1: targets are label + 2 · group
    convex: ClassVar[bool] = True  # a convex loss and a convex penalty
    before: ClassVar[str] = "problem.directions"

    @classmethod
    def make(
        cls, base: Linear, directions: NDArray, alpha: float = 1.0, corner: float = 0.01, groups: int = 1
    ) -> CovariancePenalised:
        """`base` (logistic or hinge) with penalties along the rows of `directions` (released, hence public)."""
        directions = np.asarray(directions, float)
        if directions.ndim != 2 or directions.shape[1] != base.dim:
            raise InputError(f"directions must have shape (penalties, {base.dim}), got {directions.shape}")
        if not alpha >= 0 or not np.isfinite(alpha):
            raise InputError(f"alpha must be >= 0 and finite, got {alpha}")
        if not corner > 0:
            raise InputError(f"corner must be > 0, got {corner}")
        return cls(
            base, directions=tuple(map(tuple, directions.tolist())), alpha=float(alpha), corner=float(corner),
            reach=float(np.linalg.norm(directions, axis=1).sum()), bend=float(np.linalg.norm(directions, 2) ** 2),
            groups=groups,
        )  # fmt: skip

    @property
    def name(self) -> str:
        return f"{self.base.name} with a covariance penalty"

    @property
    def dim(self) -> int:
        """Parameters of the loss without the penalty."""
        return self.base.dim

    @property
    def bound(self) -> float:
        """As without the penalty."""
        return self.base.bound

    @property
    def constraint(self) -> Constraint | None:
        """As without the penalty."""
        return self.base.constraint

    @property
    def labels(self) -> Labels:
        return self.base.labels if self.groups == 1 else ClassNumbers(2 * self.groups)

    def _signs(self, targets: Array) -> Array:
        """The labels as −1 and 1, whatever the group."""
        return targets if self.groups == 1 else 2.0 * (targets % 2) - 1.0

    @property
    def lipschitz(self) -> float:
        """Bound on the norm of one record's gradient, penalty included."""
        return self.base.lipschitz + self.alpha * self.reach

    @property
    def smoothness(self) -> float:
        """Bound on one record's curvature, penalty included."""
        return self.base.smoothness + self.alpha / self.corner * self.bend

    def _rows(self, x: Array) -> Float[Array, "k d"]:
        return jnp.asarray(np.array(self.directions), x.dtype)

    def penalty(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        """α Σ_j h(v̂_jᵀx)."""
        u = jnp.abs(self._rows(x) @ x)
        return self.alpha * jnp.sum(jnp.where(u <= self.corner, u**2 / (2 * self.corner), u - self.corner / 2))

    def pull(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        """The penalty's gradient."""
        v = self._rows(x)
        return self.alpha * jnp.clip(sound(v @ x / self.corner), -1.0, 1.0) @ v

    def losses(self, x: Float[Array, " d"], features: Array, targets: Array) -> Float[Array, " rows"]:
        return self.base.at(x, features, self._signs(targets)).value + self.penalty(x)

    def weighted_gradient(
        self, x: Float[Array, " d"], features: Array, targets: Array, weights: Array, clip: Array | float | None = None
    ) -> Float[Array, " d"]:
        slope, p = sound(self.base.at(x, features, self._signs(targets)).slope), self.pull(x)
        if clip is not None:
            # of the sum itself: a norm from squares and products is off where slope·x and a long p nearly cancel
            norms = jnp.linalg.norm(slope[:, None] * features + p, axis=1)
            weights = weights * clip_factor(norms, clip)
        return (weights * slope) @ features + jnp.sum(weights) * p

    def weighted_hessian(
        self, x: Float[Array, " d"], features: Array, targets: Array, weights: Array
    ) -> Float[Array, "d d"]:
        v = self._rows(x)
        inside = (jnp.abs(v @ x) <= self.corner).astype(x.dtype)
        penalty = self.alpha / self.corner * (v.T * inside) @ v
        return self.base.weighted_hessian(x, features, self._signs(targets), weights) + jnp.sum(weights) * penalty

    def predict(self, x: Float[Array, " d"], features: Array) -> Array:
        """Decisions; with groups 0 or 1, which is no statement about them."""
        said = self.base.predict(x, features)
        return said if self.groups == 1 else (said > 0).astype(jnp.int32)

    def score(self, x: Float[Array, " d"], features: Array, targets: Array) -> Float[Array, ""]:
        if self.groups == 1:
            return self.base.score(x, features, targets)
        return jnp.mean(self.predict(x, features) == targets % 2, dtype=x.dtype)


def make(settings: Settings, features: int, classes: int) -> CovariancePenalised:
    """The problem on records with this many features, and two labels in each group."""
    if classes % 2:
        raise InputError(f"problem.loss = 'fair-logistic' has two labels in each group, got {classes} classes")
    rows = {len(row) for row in settings.directions}
    if rows != {features}:
        raise InputError(f"problem.directions must list {features} numbers each, one for a feature, got {sorted(rows)}")
    base = Logistic(features, constraint=settings.ball)
    rows_of = np.array(settings.directions, float)
    if not np.all(np.isfinite(rows_of)):
        raise InputError("problem.directions must be finite")
    return CovariancePenalised.make(base, rows_of, settings.penalty, settings.corner, max(1, classes // 2))


def directions_of(point: NDArray[np.float64], groups: int = 2) -> NDArray[np.float64]:
    """V̂/n from what a fair release left (`point` in its model.npz): a row for each group that is compared."""
    own = FairMoments.of_length(len(point), groups).parts(np.asarray(point, float))
    rows = own.sums[np.any(own.sums != 0, axis=1)]
    if not len(rows):
        raise InputError("this release has no covariance of features and groups: release stages 0, 1 and 2")
    return np.asarray(rows / own.groups.sum())


EXAMPLE = CovariancePenalised.make(Logistic(2), np.array([[0.3, 0.1]]))
