"""Problems: a loss over records, and the public facts that privacy and step sizes rest on.

A point is one flat vector; a problem with structured parameters unravels it inside. What an algorithm may ask of an
agent's records is `coterie.problems.shards`.
"""

from __future__ import annotations

import abc
import dataclasses
from typing import TYPE_CHECKING, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from coterie.errors import InputError
from coterie.problems.labels import Labels
from coterie.problems.records import ROUNDING, Rows, bounded_rows, lengths
from coterie.problems.sets import Constraint
from coterie.problems.sparse import Sparse

__all__ = ["FACTS", "Problem"]

DENSE_HESSIAN = 600  # up to this dimension a d × d factor is kept between rounds
FACTS: dict[str, bool | float] = {
    "convex": False, "lipschitz": float("inf"), "smoothness": float("inf"), "directed": False, "scored": False,
    "monotone": False, "isotropic": False, "interior": False,
}  # fmt: skip
# what has no part in a loss: a class that changes anything else has to state its facts anew
HARMLESS = {
    "name",
    "metric",
    "predict",
    "evidence",
    "likely",
    "score",
    "encode",
    "start",
    "columns",
    "premise",
    "outside",
    "owned",
    "shaped",
    "per_person",
    *FACTS,
    "half_gap",
}


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
        def isotropic(self) -> bool:
            """Whether a record's Hessian is the identity, so that one gradient step of length 1 gives the answer."""

        @property
        def interior(self) -> bool:
            """Whether the optimum lies in the constraint set anyway, so that a method may leave the set aside."""

        @property
        def released(self) -> str:
            """The algorithm that releases its sums over records, if that is all it asks for; "": it is minimised."""

        @property
        def coupled(self) -> bool:
            """Whether every party has variables of its own, so that a record's target is the number of its party."""

        @property
        def predicts(self) -> bool:
            """Whether `predict` says something of a record's target."""

        @property
        def bound(self) -> float | None:
            """Bound on the norm of a record's features, which `admit` keeps; None: none is needed."""

    else:
        convex, lipschitz, smoothness = False, float("inf"), float("inf")
        directed, scored, monotone, isotropic, interior, bound = False, False, False, False, False, None
        released, coupled, predicts = "", False, True

    def __init_subclass__(cls, **options: object) -> None:
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

    @property
    @abc.abstractmethod
    def labels(self) -> Labels:
        """What it learns to predict (`coterie.problems.labels`)."""

    @property
    def columns(self) -> int:
        """Features of a record: by default one for each parameter."""
        return self.dim

    @property
    def metric(self) -> str:
        """What `score` is: by default the share of classes that are right, or R² of numbers."""
        return "r2" if self.labels.classes is None else "accuracy"

    @property
    def premise(self) -> str | None:
        """What the facts take for granted of every record, in words; None: nothing."""
        ball = "the unit ball" if self.bound == 1 else f"the ball of radius {self.bound}"
        return None if self.bound is None else f"every record's features lie in {ball}"

    def outside(self, features: np.ndarray) -> str | None:
        """How far records are from what the facts are about, in words; None: `admit` would leave them as they are."""
        largest = float(np.max(lengths(features), initial=0.0))
        if self.bound is None or largest <= self.bound * (1 + ROUNDING):
            return None
        return f"have norms up to {largest:.6g}; the price rests on at most {self.bound:g}: scale by public bounds"

    @abc.abstractmethod
    def losses(self, x: Float[Array, " d"], features: Array, targets: Array) -> Float[Array, " rows"]:
        """Loss of each record."""

    def weighted_value(
        self, x: Float[Array, " d"], features: Array, targets: Array, weights: Array
    ) -> Float[Array, ""]:
        """Σ_r weights_r · loss_r(x), of weights 0 and more; what weighs nothing does not count whatever it is."""
        return jnp.sum(jnp.where(weights > 0, weights * self.losses(x, features, targets), 0.0))

    @abc.abstractmethod
    def weighted_gradient(
        self, x: Float[Array, " d"], features: Array, targets: Array, weights: Array, clip: Array | float | None = None
    ) -> Float[Array, " d"]:
        """Σ_r weights_r · clip(∇loss_r(x)), without forming the single gradients where a closed form exists.

        `clip` is one number, or one for each record; with an infinite one only what is not finite is left out.
        """

    def each_gradient(
        self, x: Float[Array, " d"], features: Array, targets: Array, clip: Array | float
    ) -> Float[Array, "rows d"]:
        """clip(∇loss_r(x)) of every record, one row each."""

        def one(f: Array, y: Array) -> Array:
            return self.weighted_gradient(x, f[None], y[None], jnp.ones(1, x.dtype), clip)

        return jax.vmap(one)(features, targets)

    def listed(self, features: Array) -> Array | Sparse:
        """A simulation's features (agents, rows, d), or a `Sparse` in their place where its sums make use of one."""
        return features

    def weighted_hessian(
        self, x: Float[Array, " d"], features: Array, targets: Array, weights: Array
    ) -> Float[Array, "d d"]:
        """Σ_r weights_r ∇²loss_r(x)."""
        return jax.hessian(lambda v: jnp.sum(weights * self.losses(v, features, targets)))(x)

    @abc.abstractmethod
    def predict(self, x: Float[Array, " d"], features: Array) -> Array:
        """Predicted targets, in the coding of `encode`."""

    before: ClassVar[str] = ""
    """What it rests on that was released before, as a plan's key: that is not in the price of what is learned now."""

    per_person: ClassVar[bool] = False
    """Whether the unit is a person with the mean loss of its records (`coterie.problems.people`), and not a record."""

    likely: ClassVar[bool] = False
    """Whether softmax(`evidence`) are the chances of the classes, whose log-likelihood is the loss."""

    def evidence(self, x: Float[Array, " d"], features: Array) -> Float[Array, "rows classes"] | None:
        """What speaks for each class, more is more; None where a loss does not say, or has no classes."""
        return None

    def score(self, x: Float[Array, " d"], features: Array, targets: Array) -> Float[Array, ""]:
        """How good the predictions are; more is better (see `metric`)."""
        if self.labels.classes is not None:
            return jnp.mean(self.predict(x, features) == targets, dtype=x.dtype)
        residual = jnp.mean((self.predict(x, features) - targets) ** 2)
        return 1 - residual / jnp.maximum(jnp.var(targets), 1e-30)

    def encode(self, targets: np.ndarray, classes: tuple[str, ...] | None) -> np.ndarray:
        """The data set's targets in the coding of this loss; an InputError if they do not fit it."""
        return self.labels.encode(targets, classes, self.name)

    def admit(self, features: Rows, targets: Rows) -> tuple[Rows, Rows]:
        """The records (targets in the coding of `encode`) as the facts take them, whatever they say.

        Every record is mapped to an admissible one on its own: rows that are not finite become zeros, rows beyond
        `bound` are pulled back to it. So no record can break a sensitivity, and none can make its owner fail.
        """
        return bounded_rows(features, self.bound), self.admit_targets(targets)

    def admit_targets(self, targets: Rows) -> Rows:
        """The targets as the facts take them."""
        return self.labels.admit(targets)

    def owned(self, features: np.ndarray, targets: np.ndarray, node: int) -> tuple[np.ndarray, np.ndarray]:
        """Records of the party at a node, before they are admitted: where a target is a party, it is this one."""
        return features, targets

    def start(self, seed: int) -> np.ndarray:
        """A public, data-free starting point."""
        return np.zeros(self.dim)

    def shaped(self, point: np.ndarray) -> object:
        """A point in the shape that people know the model in."""
        return point

    def kept_in(self, constraint: Constraint) -> Problem:
        """The same problem, over this set."""
        if self.constraint is not None:
            raise InputError("problem.within and problem.radius both state a set: leave one out")
        if "constraint" not in {field.name for field in dataclasses.fields(self)}:
            raise InputError(f"{self.name} has no point to keep in a set: leave out problem.within")
        return dataclasses.replace(self, **{"constraint": constraint})  # a field of most losses, not of all

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
