"""Problems and shards: the whole interface between algorithms and models is `argmin` and `gradient`.

Agent i minimises f_i(x) = unit Σ_r loss(x; record r) + ridge/2 ‖x‖², unit = 1/n_i unless the plan weights agents by
their records. A point is one flat vector; a problem with structured parameters unravels it inside.
"""

from __future__ import annotations

import abc
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from coterie.errors import InputError
from coterie.problems.solve import Settings, Solver, newton_like, projected, quasi_newton, surely

__all__ = ["Ball", "Box", "Constraint", "HeldShard", "Problem", "Shard", "clip_factor", "sound"]

DENSE_HESSIAN = 600  # up to this dimension a d × d factor is kept between rounds
ROUNDING = 1e-9  # a norm may exceed its bound by this part of it
FACTS: dict[str, Any] = {
    "convex": False, "lipschitz": float("inf"), "smoothness": float("inf"),
    "directed": False, "scored": False, "monotone": False, "interior": False,
}  # fmt: skip
# what has no part in a loss: a class that changes anything else has to state its facts anew
HARMLESS = {"name", "metric", "predict", "score", "encode", "start", *FACTS, "half_gap"}


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
    """min(1, clip/norm), and 0 where the norm is not finite: what a record's gradient is multiplied by.

    A gradient that is not a number counts as zero, so that one record moves a sum by `clip` at most whatever it says
    and wherever the point is. (Multiply a vector that is finite: 0 · ∞ is no number.)
    """
    sound = jnp.isfinite(norms)
    factor = 1.0 if clip is None else jnp.minimum(1.0, clip / jnp.maximum(norms, 1e-30))
    return jnp.where(sound, factor, 0.0).astype(norms.dtype)


def sound(x: Array) -> Array:
    """The numbers, 0 for one that is not finite."""
    return jnp.where(jnp.isfinite(x), x, 0.0)


def rescale(vectors: Float[Array, "rows d"], norms: Float[Array, " rows"], clip: Array | float | None) -> Array:
    """Every row times its `clip_factor`; one whose norm is not finite becomes zero."""
    return jnp.where(jnp.isfinite(norms)[:, None], vectors, 0.0) * clip_factor(norms, clip)[:, None]


def bounded_rows(features: Any, bound: float | None) -> Any:
    """The rows, pulled back to norm `bound` where they are longer; zeros for one that is not finite (or overflows).

    On the host the very array is returned if nothing is to be changed.
    """
    xp = namespace(features)
    with np.errstate(over="ignore", invalid="ignore"):
        norms = xp.linalg.norm(features, axis=-1, keepdims=True)
    sound, limit = xp.isfinite(norms), np.inf if bound is None else bound * (1 + ROUNDING)
    if xp is np and np.all(sound & (norms <= limit)):
        return features
    rows = xp.where(sound, features, xp.zeros((), features.dtype))
    return rows if bound is None else xp.where(norms > limit, rows * (bound / xp.maximum(norms, 1e-30)), rows)


def class_numbers(targets: Any, classes: int) -> Any:
    """Whole numbers from 0 to classes − 1, whatever was given."""
    xp = namespace(targets)
    numbers = xp.where(xp.isfinite(targets), targets, xp.zeros((), targets.dtype))
    return xp.clip(numbers, 0, classes - 1).astype(xp.int32)


def namespace(x: Any) -> ModuleType:
    """NumPy for records on the host, jax.numpy inside a compiled round."""
    return jnp if isinstance(x, jax.Array) else np


def _stated(cls: type) -> set[str]:
    """What a class says itself: names in its body, with or without a value."""
    return {*vars(cls), *vars(cls).get("__annotations__", ())}


def _changes(cls: type) -> bool:
    """Whether a class says anything that a loss, or the records that it is about, may depend on."""
    return any(not (name.startswith("__") or name.startswith("_abc_") or name in HARMLESS) for name in _stated(cls))


class Problem(eqx.Module):
    """A loss over records, with the public facts that privacy and step sizes rest on.

    A fact holds for every record that `admit` returns and for every point. Nothing is known of a loss until its class
    says so: the facts below are the most careful ones, and a subclass that changes the loss starts from them again.
    """

    if TYPE_CHECKING:  # each problem supplies these, as a field or as a property

        @property
        def dim(self) -> int: ...

        @property
        def constraint(self) -> Constraint | None: ...

        @property
        def convex(self) -> bool:
            """Whether a record's loss is convex in the point."""

        @property
        def lipschitz(self) -> float:
            """Bound on the norm of a record's gradient."""

        @property
        def smoothness(self) -> float:
            """Bound on the curvature of a record's loss, which is then differentiable everywhere."""

        @property
        def directed(self) -> bool:
            """Whether a record's gradient has one direction, or changes by one constant vector, whatever the point."""

        @property
        def scored(self) -> bool:
            """Whether a record's loss is a function of one score ⟨features, x⟩: its Hessian has rank one."""

        @property
        def monotone(self) -> bool:
            """Whether it is scored, and its slope in the score never changes sign."""

        @property
        def interior(self) -> bool:
            """Whether the optimum lies in the constraint set anyway, so that a method may leave the set aside."""

        @property
        def bound(self) -> float | None:
            """Bound on the norm of a record's features, which `admit` keeps; None: none is needed."""

    else:
        convex, lipschitz, smoothness = False, float("inf"), float("inf")
        directed, scored, monotone, interior, bound = False, False, False, False, None

    metric: ClassVar[str] = "accuracy"  # what `score` is

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        line = cls.__mro__[: cls.__mro__.index(Problem)]
        for fact, nothing in {**FACTS, "half_gap": Problem.half_gap}.items():
            owner = next((i for i, c in enumerate(line) if fact in _stated(c)), len(line))
            if owner < len(line) and any(_changes(c) for c in line[:owner]):
                setattr(cls, fact, nothing)

    @property
    def half_gap(self) -> float:
        """Bound on half of what replacing a record can change of its gradient: that of the gradient, or less."""
        return self.lipschitz

    @property
    def name(self) -> str:
        """What messages call it."""
        return type(self).__name__

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

    def admit(self, features: Any, targets: Any) -> tuple[Any, Any]:
        """The records (targets in the coding of `encode`) as the facts take them, whatever they say.

        Every record is mapped to an admissible one on its own: rows that are not finite become zeros, rows beyond
        `bound` are pulled back to it. So no record can break a sensitivity, and none can make its owner fail.
        """
        return bounded_rows(features, self.bound), self.admit_targets(targets)

    def admit_targets(self, targets: Any) -> Any:
        """The targets as the facts take them: by default any finite number."""
        xp = namespace(targets)
        return xp.where(xp.isfinite(targets), targets, xp.zeros((), targets.dtype))

    def start(self, seed: int) -> np.ndarray:
        """A public, data-free starting point."""
        return np.zeros(self.dim)

    def project(self, x: Array) -> Array:
        """The nearest feasible point (x itself without a constraint)."""
        return x if self.constraint is None else self.constraint.project(x)

    @property
    def smooth(self) -> bool:
        """Whether the curvature of a record's loss has a public bound."""
        return bool(np.isfinite(self.smoothness))

    @property
    def bounded(self) -> bool:
        """Whether what replacing a record changes of the gradient has a public bound."""
        return bool(np.isfinite(self.half_gap))

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
    def descend(
        self, x: Float[Array, " d"], linear: Float[Array, " d"], curvature: Array | float, steps: int
    ) -> Float[Array, " d"]:
        """x after `steps` gradient steps of length 2/(m + M) on f_i(v) + ⟨linear, v⟩ + curvature/2 ‖v‖².

        m = ridge + curvature and M = m + unit · count · smoothness enclose the curvature, so every step brings any two
        points closer by `contraction` = (M − m)/(M + m): for convex losses with a curvature bound, and for no other.
        """

    @abc.abstractmethod
    def argmin(
        self, linear: Float[Array, " d"], curvature: Array | float, solver: Solver, tolerance: Array | float
    ) -> tuple[Float[Array, " d"], Solver]:
        """argmin_x f_i(x) + ⟨linear, x⟩ + curvature/2 ‖x‖²; `solver` is a warm start.

        `solver.residual` is the gradient norm reached: with strong convexity m the answer is off by at most
        residual / m. It is at most `tolerance` whatever the records and whatever `linear`, if the loss is convex with
        bounds on gradient and curvature (`sure_steps` says how long that takes); otherwise it is what was reached.
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

    def descend(
        self, x: Float[Array, " d"], linear: Float[Array, " d"], curvature: Array | float, steps: int
    ) -> Float[Array, " d"]:
        if not (self.problem.convex and self.problem.smooth):
            raise InputError(f"gradient steps on {self.problem.name} need not contract: it is not convex and smooth")
        low = self.ridge + curvature
        length = 2 / (2 * low + self.unit * self.count * self.problem.smoothness)

        def step(_: Array, x: Array) -> Array:
            return self.problem.project(x - length * (self.slope(x) + linear + curvature * x))

        return jax.lax.fori_loop(0, steps, step, x)

    def argmin(
        self, linear: Float[Array, " d"], curvature: Array | float, solver: Solver, tolerance: Array | float
    ) -> tuple[Float[Array, " d"], Solver]:
        problem, how = self.problem, self.how
        low = self.ridge + curvature
        high = low + self.unit * self.count * problem.smoothness
        sure = problem.convex and problem.smooth and bool(np.isfinite(problem.lipschitz)) and problem.constraint is None

        def gradient(x: Array) -> Array:
            return self.slope(x) + linear + curvature * x

        if how.fixed and not sure:
            raise InputError(f"no number of steps is known to solve subproblems of {problem.name} on any records")
        if not how.fixed:
            if problem.constraint is not None:
                solver = projected(gradient, problem.project, high, solver, how, tolerance, problem.smooth)
            elif problem.keeps_factor:
                eye = jnp.eye(linear.shape[0], dtype=linear.dtype)
                solver = newton_like(gradient, lambda x: self.hessian(x) + curvature * eye, solver, how, tolerance)
            else:

                def value(x: Array) -> Array:
                    return self.value(x) + jnp.dot(linear, x) + curvature / 2 * jnp.dot(x, x)

                solver = quasi_newton(lambda x: (value(x), gradient(x)), solver, how, tolerance)
        if sure:
            # whatever the records, the minimiser is within `far` of the minimiser of all but their losses
            far = self.unit * self.count * problem.lipschitz / low
            solver = surely(gradient, -linear / low, far, low, high, solver, tolerance, how.fixed)
        return solver.x, solver


def need_binary(targets: np.ndarray, classes: tuple[str, ...] | None, loss: str) -> np.ndarray:
    """±1 targets from class indices 0 and 1, or an error that says what the labels are."""
    if classes is None or len(classes) != 2:
        what = "continuous values" if classes is None else f"{len(classes)} classes {classes[:4]}"
        raise InputError(f"loss {loss!r} needs labels of two classes, but the label column has {what}")
    return np.where(np.asarray(targets) == 1, 1.0, -1.0)
