r"""Additive models: a score that is a sum of curves, one for each attribute, over public bins.

A record is a unit vector for its bin of each of A attributes, divided by √A (`coterie.data.bins`): its features have
norm 1 exactly, so a loss with slope s in the score has gradients of norm |s|, and every fact of the loss holds as it
stands. `AdditiveModel` is that loss, and every algorithm runs on it unchanged. Bin b of a curve is ⟨θ, φ_b⟩/√A.

What makes the curves is done to the released point, so it costs nothing. The noise has the same size in every bin, so
all bins weigh the same; with v for the numbers ⟨θ, φ_b⟩,

    smoothing   argmin_u ‖u − v‖² + κ uᵀLu = (I + κL)⁻¹ v within an attribute, L the Laplacian of the path of its
                bins: Σ (u_k − u_{k+1})² = uᵀLu. Categories and the bin `missing` have no neighbours, and pairs of
                attributes have those of both (a grid of bins).
    monotone    the nearest curve that never falls (or never rises): max_{i ≤ k} min_{j ≥ k} mean(v_i … v_j).

`predict` and `evidence` use the curves, `losses` and gradients the point: what is minimised is the loss's own.
"""

from __future__ import annotations

from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import NDArray

from coterie.data.bins import Bins, Block, Direction, Finish
from coterie.errors import InputError
from coterie.problems.base import Problem
from coterie.problems.labels import Labels
from coterie.problems.sets import Constraint

__all__ = ["AdditiveModel", "bare"]


class AdditiveModel(Problem):
    """A loss of one score, or of one for each class, on records in bins."""

    of: Problem
    bins: Bins = eqx.field(static=True)
    finish: Finish = eqx.field(static=True, default=Finish())

    def __check_init__(self) -> None:
        if self.of.columns != self.bins.width:
            raise InputError(f"{self.of.name} has {self.of.columns} features, and there are {self.bins.width} bins")
        if self.finish.monotone and self.outputs > 1:
            raise InputError("problem.monotone goes with one score: two classes, or a number")
        self.finish.check(self.bins)

    # -- all that is minimised is the loss's own: rows of norm 1 are rows of norm at most 1 ---------------------------

    @property
    def name(self) -> str:
        return f"additive {self.of.name}"

    @property
    def dim(self) -> int:
        """Numbers of a point: the loss's own."""
        return self.of.dim

    @property
    def columns(self) -> int:
        return self.of.columns

    @property
    def constraint(self) -> Constraint | None:
        """The set that points stay in: the loss's own."""
        return self.of.constraint

    @property
    def bound(self) -> float | None:
        """Bound on the norm of a row: 1 by construction is within the loss's own."""
        return self.of.bound

    @property
    def labels(self) -> Labels:
        return self.of.labels

    @property
    def likely(self) -> bool:  # type: ignore[override]
        return self.of.likely

    @property
    def convex(self) -> bool:
        return self.of.convex

    @property
    def lipschitz(self) -> float:
        return self.of.lipschitz

    @property
    def half_gap(self) -> float:
        return self.of.half_gap

    @property
    def smoothness(self) -> float:
        return self.of.smoothness

    @property
    def directed(self) -> bool:
        return self.of.directed

    @property
    def scored(self) -> bool:
        return self.of.scored

    @property
    def monotone(self) -> bool:
        return self.of.monotone

    @property
    def isotropic(self) -> bool:
        return self.of.isotropic

    @property
    def interior(self) -> bool:
        return self.of.interior

    @property
    def before(self) -> str:  # type: ignore[override]
        return self.of.before

    @property
    def premise(self) -> str | None:
        return f"every record lies in one bin of each of {self.bins.ones} attributes: its features have norm 1"

    def losses(self, x: Float[Array, " d"], features: Array, targets: Array) -> Float[Array, " rows"]:
        return self.of.losses(x, features, targets)

    def weighted_gradient(
        self, x: Float[Array, " d"], features: Array, targets: Array, weights: Array, clip: Array | float | None = None
    ) -> Float[Array, " d"]:
        return self.of.weighted_gradient(x, features, targets, weights, clip)

    def weighted_hessian(
        self, x: Float[Array, " d"], features: Array, targets: Array, weights: Array
    ) -> Float[Array, "d d"]:
        return self.of.weighted_hessian(x, features, targets, weights)

    # -- the curves ----------------------------------------------------------------------------------------------------

    @property
    def outputs(self) -> int:
        """Scores: one, or one for each class."""
        return self.of.dim // self.bins.width

    def predict(self, x: Float[Array, " d"], features: Array) -> Array:
        return self.of.predict(self.curved(x), features)

    def evidence(self, x: Float[Array, " d"], features: Array) -> Float[Array, "rows classes"] | None:
        return self.of.evidence(self.curved(x), features)

    def curved(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        """The point after smoothing and shaping: a function of it and of the plan."""
        if not self.finish.smooth and not self.finish.monotone:
            return x
        point = x.reshape(self.bins.width, self.outputs)
        ways = dict(self.finish.monotone)
        parts = []
        for block in self.bins.blocks:
            basis = self.bins.basis(block)
            curve = self._curve(block, jnp.asarray(basis, x.dtype) @ point[block.where], ways)
            parts.append(jnp.asarray(np.linalg.inv(basis), x.dtype) @ curve)
        return jnp.concatenate(parts).reshape(-1)

    def _curve(self, block: Block, values: Array, ways: dict[str, Direction]) -> Array:
        if self.finish.smooth and any(self.bins.attributes[k].ordered for k in block.of):
            values = jnp.asarray(_smoother(self.bins, block, self.finish.smooth), values.dtype) @ values
        if len(block.of) == 1 and block.name in ways:
            sign = 1.0 if ways[block.name] == "up" else -1.0
            values = jnp.concatenate([sign * _rising(sign * values[:-1, 0])[:, None], values[-1:]])
        return values

    def shaped(self, point: np.ndarray) -> dict[str, NDArray[np.float64]]:
        """The curves: what each bin of an attribute adds to the score, `missing` last; pairs are tables."""
        with jax.enable_x64(True):
            curved = np.asarray(self.curved(jnp.asarray(point, float)), float)
        values = curved.reshape(self.bins.width, self.outputs) / np.sqrt(self.bins.ones)
        more = () if self.outputs == 1 else (self.outputs,)
        return {
            block.name: (self.bins.basis(block) @ values[block.where]).reshape(*block.shape, *more)
            for block in self.bins.blocks
        }


def bare(problem: Problem) -> Problem:
    """The loss of an additive model; of any other problem, itself."""
    return problem.of if isinstance(problem, AdditiveModel) else problem


def _path(bins: int) -> NDArray[np.float64]:
    """Laplacian of a path of bins, to which one that stands apart is added at the end."""
    out = np.zeros((bins + 1, bins + 1))
    for k in range(bins - 1):
        out[k : k + 2, k : k + 2] += [[1, -1], [-1, 1]]
    return out


@cache
def _smoother(bins: Bins, block: Block, smooth: float) -> NDArray[np.float64]:
    """(I + κL)⁻¹ on the bins of a block."""
    total = np.zeros((block.count, block.count))
    for place, k in enumerate(block.of):
        attribute = bins.attributes[k]
        own = _path(attribute.count) if attribute.ordered else np.zeros((attribute.count + 1,) * 2)
        before, after = int(np.prod(block.shape[:place])), int(np.prod(block.shape[place + 1 :]))
        total += np.kron(np.kron(np.eye(before), own), np.eye(after))
    return np.asarray(np.linalg.inv(np.eye(block.count) + smooth * total), np.float64)


def _rising(values: Float[Array, " k"]) -> Float[Array, " k"]:
    """The nearest sequence that never falls: max over i ≤ k of min over j ≥ k of the mean of values i to j."""
    size = values.shape[0]
    sums = jnp.concatenate([jnp.zeros(1, values.dtype), jnp.cumsum(values)])
    i, j = jnp.arange(size)[:, None], jnp.arange(size)[None]
    means = jnp.where(i <= j, (sums[None, 1:] - sums[:-1, None]) / jnp.maximum(j - i + 1, 1), jnp.inf)
    least = jax.lax.cummin(means, axis=1, reverse=True)
    return jnp.max(jnp.where(i <= j, least, -jnp.inf), axis=0)
