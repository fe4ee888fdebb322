"""Problems and shards: the whole interface between algorithms and models is `argmin` and `gradient`.

Agent i minimises f_i(x) = unit Σ_r loss(x; record r) + ridge/2 ‖x‖², unit = 1/n_i unless the plan weights agents by
their records. A point is one flat vector; a problem with structured parameters unravels it inside.
"""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from coterie.errors import InputError
from coterie.problems.solve import Settings, Solver, newton_like, projected, quasi_newton

__all__ = ["Ball", "Box", "Constraint", "HeldShard", "Problem", "Shard", "clip_factor"]

DENSE_HESSIAN = 600  # up to this dimension a d × d factor is kept between rounds


class Constraint(eqx.Module):
    """A closed convex set with a projection."""

    @abc.abstractmethod
    def project(self, x: Array) -> Array:
        """The nearest point of the set."""

    @property
    @abc.abstractmethod
    def radius(self) -> float:
        """Largest Euclidean norm in the set (per coordinate for a box)."""


class Ball(Constraint):
    """{x : ‖x‖₂ ≤ r}."""

    r: float = eqx.field(static=True)

    def project(self, x: Array) -> Array:
        return x * jnp.minimum(1.0, self.r / jnp.maximum(jnp.linalg.norm(x), 1e-30))

    @property
    def radius(self) -> float:
        return self.r


class Box(Constraint):
    """{x : low ≤ x_l ≤ high}."""

    low: float = eqx.field(static=True)
    high: float = eqx.field(static=True)

    def project(self, x: Array) -> Array:
        return jnp.clip(x, self.low, self.high)

    @property
    def radius(self) -> float:
        return max(abs(self.low), abs(self.high))


def clip_factor(norms: Array, clip: Array | float | None) -> Array:
    """min(1, clip/norm): what a record's gradient is multiplied by."""
    return jnp.ones_like(norms) if clip is None else jnp.minimum(1.0, clip / jnp.maximum(norms, 1e-30))


class Problem(eqx.Module):
    """A loss over records, with the public bounds that privacy and step sizes rest on.

    `lipschitz` bounds the norm of one record's gradient and `smoothness` its curvature; `inf` where there is no
    bound, and then only algorithms that clip can be private.
    """

    if TYPE_CHECKING:  # each problem supplies these, as a field or as a property

        @property
        def dim(self) -> int: ...

        @property
        def lipschitz(self) -> float: ...

        @property
        def smoothness(self) -> float: ...

        @property
        def constraint(self) -> Constraint | None: ...

    convex: ClassVar[bool] = True
    metric: ClassVar[str] = "accuracy"  # what `score` is

    @abc.abstractmethod
    def losses(self, x: Float[Array, " d"], features: Array, targets: Array) -> Float[Array, " rows"]:
        """Loss of each record."""

    @abc.abstractmethod
    def weighted_gradient(
        self, x: Float[Array, " d"], features: Array, targets: Array, weights: Array, clip: Any = None
    ) -> Float[Array, " d"]:
        """Σ_r weights_r · clip(∇loss_r(x)), without forming the single gradients where a closed form exists."""

    def weighted_hessian(
        self, x: Float[Array, " d"], features: Array, targets: Array, weights: Array
    ) -> Float[Array, "d d"]:
        """Σ_r weights_r ∇²loss_r(x)."""
        return jax.hessian(lambda v: jnp.sum(weights * self.losses(v, features, targets)))(x)

    @abc.abstractmethod
    def predict(self, x: Float[Array, " d"], features: Array) -> Array:
        """Predicted targets, in the coding of `encode`."""

    def score(self, x: Float[Array, " d"], features: Array, targets: Array) -> Float[Array, ""]:
        """Share of records predicted right (see `metric`)."""
        return jnp.mean(self.predict(x, features) == targets, dtype=x.dtype)

    @abc.abstractmethod
    def encode(self, targets: np.ndarray, classes: tuple[str, ...] | None) -> np.ndarray:
        """The data set's targets in the coding of this loss; an InputError if they do not fit it."""

    def start(self, seed: int) -> np.ndarray:
        """A public, data-free starting point."""
        return np.zeros(self.dim)

    def project(self, x: Array) -> Array:
        """The nearest feasible point (x itself without a constraint)."""
        return x if self.constraint is None else self.constraint.project(x)

    @property
    def bounded(self) -> bool:
        """Whether the curvature of a record's loss has a public bound."""
        return bool(np.isfinite(self.smoothness))

    @property
    def keeps_factor(self) -> bool:
        """Whether `argmin` keeps a dense factor between rounds."""
        return self.convex and self.constraint is None and self.dim <= DENSE_HESSIAN


class Shard(eqx.Module):
    """One agent's records and what may be asked of them; where they are kept is its subclasses' business."""

    if TYPE_CHECKING:  # every subclass has these fields, in its own order

        @property
        def problem(self) -> Problem: ...
        @property
        def count(self) -> Int[Array, "*agents"]: ...
        @property
        def unit(self) -> Float[Array, "*agents"]: ...
        @property
        def ridge(self) -> Float[Array, ""]: ...

    @abc.abstractmethod
    def gradient(
        self,
        x: Float[Array, " d"],
        clip: Array | float | None = None,
        rows: Int[Array, " b"] | None = None,
        mask: Bool[Array, " b"] | None = None,
    ) -> Float[Array, " d"]:
        """Sum over records of their clipped loss gradients at x (no weights, no regularizer).

        `rows` picks records (all by default); `mask` leaves some of those out. Padding never counts.
        """

    @abc.abstractmethod
    def losses(self, x: Float[Array, " d"]) -> Float[Array, " rows"]:
        """Loss of each record, 0 on padding."""

    @abc.abstractmethod
    def value(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        """f_i(x)."""

    @abc.abstractmethod
    def argmin(
        self, linear: Float[Array, " d"], curvature: Array | float, solver: Solver
    ) -> tuple[Float[Array, " d"], Solver]:
        """argmin_x f_i(x) + ⟨linear, x⟩ + curvature/2 ‖x‖², from the solver's last answer.

        `solver.residual` is the gradient norm reached: with strong convexity m the answer is off by at most
        residual / m.
        """

    def slope(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        """∇f_i(x)."""
        return self.unit * self.gradient(x) + self.ridge * x

    def solver(self, x: Float[Array, " d"]) -> Solver:
        """A fresh solver that starts at x (data-free)."""
        return Solver.fresh(x, self.problem.keeps_factor)


class HeldShard(Shard):
    """Records in memory, padded with rows that no result depends on."""

    problem: Problem
    features: Float[Array, ...]  # (rows, features); with a leading agent axis where shards are batched
    targets: Array
    count: Int[Array, "*agents"]
    unit: Float[Array, "*agents"]
    ridge: Float[Array, ""]
    how: Settings = eqx.field(default_factory=Settings)

    @property
    def mask(self) -> Bool[Array, " rows"]:
        """True on real records, False on padding."""
        return jnp.arange(self.features.shape[0]) < self.count

    def gradient(
        self,
        x: Float[Array, " d"],
        clip: Array | float | None = None,
        rows: Int[Array, " b"] | None = None,
        mask: Bool[Array, " b"] | None = None,
    ) -> Float[Array, " d"]:
        features, targets, here = self.features, self.targets, self.mask
        if rows is not None:
            features, targets, here = features[rows], targets[rows], here[rows]
        if mask is not None:
            here = here & mask
        return self.problem.weighted_gradient(x, features, targets, here.astype(x.dtype), clip)

    def losses(self, x: Float[Array, " d"]) -> Float[Array, " rows"]:
        return jnp.where(self.mask, self.problem.losses(x, self.features, self.targets), 0.0)

    def value(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return self.unit * jnp.sum(self.losses(x)) + self.ridge / 2 * jnp.dot(x, x)

    def hessian(self, x: Float[Array, " d"]) -> Float[Array, "d d"]:
        """∇²f_i(x)."""
        weights = self.unit * self.mask.astype(x.dtype)
        data = self.problem.weighted_hessian(x, self.features, self.targets, weights)
        return data + self.ridge * jnp.eye(x.shape[0], dtype=x.dtype)

    def argmin(
        self, linear: Float[Array, " d"], curvature: Array | float, solver: Solver
    ) -> tuple[Float[Array, " d"], Solver]:
        def gradient(x: Array) -> Array:
            return self.slope(x) + linear + curvature * x

        if self.problem.constraint is not None:
            smooth = self.unit * self.count * self.problem.smoothness + self.ridge + curvature
            solver = projected(gradient, self.problem.project, smooth, solver, self.how, self.problem.bounded)
        elif self.problem.keeps_factor:
            eye = jnp.eye(linear.shape[0], dtype=linear.dtype)
            solver = newton_like(gradient, lambda x: self.hessian(x) + curvature * eye, solver, self.how)
        else:

            def value(x: Array) -> Array:
                return self.value(x) + jnp.dot(linear, x) + curvature / 2 * jnp.dot(x, x)

            solver = quasi_newton(lambda x: (value(x), gradient(x)), solver, self.how)
        return solver.x, solver


def need_binary(targets: np.ndarray, classes: tuple[str, ...] | None, loss: str) -> np.ndarray:
    """±1 targets from class indices 0 and 1, or an error that says what the labels are."""
    if classes is None or len(classes) != 2:
        what = "continuous values" if classes is None else f"{len(classes)} classes {classes[:4]}"
        raise InputError(f"loss {loss!r} needs labels of two classes, but the label column has {what}")
    return np.where(np.asarray(targets) == 1, 1.0, -1.0)
