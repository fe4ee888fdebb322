"""Shards: one agent's records, and all that an algorithm may ask of them.

Agent i minimises f_i(x) = unit Σ_r loss(x; record r) + ridge/2 ‖x‖², unit = 1/n_i unless the plan weights agents by
their records. Where people are the unit of privacy (`coterie.problems.people`), "record" means person here and in every
algorithm: what is counted, picked, clipped and weighed is a person, whose loss is the mean of its records'.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from coterie.errors import InputError
from coterie.problems.base import Problem
from coterie.problems.people import People, clipped_sum, grouped
from coterie.problems.single import once_if_alike
from coterie.problems.solve import Solver, SolverSettings, newton_like, projected, quasi_newton, surely
from coterie.problems.sparse import Sparse, as_array

__all__ = ["HELD", "HeldShard", "Shard"]


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
        self, x: Float[Array, " d"], clip: Array | float | None = None, rows: Int[Array, " b"] | None = None,
        mask: Bool[Array, " b"] | None = None,
    ) -> Float[Array, " d"]:  # fmt: skip
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
        self, x: Float[Array, " d"], linear: Float[Array, " d"], curvature: Array | float, steps: int | Array
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
        bounds on gradient and curvature (`sure_steps` says how long that takes); otherwise it is what was reached. In
        a set the minimiser is that over the set, the residual the norm of the gradient mapping, and `solver.aside` is
        −∇/m at the answer.
        """

    def slope(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        """∇f_i(x)."""
        return self.unit * self.gradient(x) + self.ridge * x

    def solver(self, x: Float[Array, " d"]) -> Solver:
        """A fresh solver that starts at x (data-free)."""
        return Solver.fresh(x, self.problem.keeps_factor, self.problem.constraint is not None)


class HeldShard(Shard):
    """Records in memory, padded with rows that no result depends on."""

    problem: Problem
    if TYPE_CHECKING:  # a `Sparse` stands for one where the problem knows it (`Problem.listed`)
        features: Float[Array, ...]  # (rows, features); with a leading agent axis where shards are batched
    else:
        features: Float[Array, ...] | Sparse
    targets: Array
    count: Int[Array, "*agents"]
    unit: Float[Array, "*agents"]
    ridge: Float[Array, ""]
    how: SolverSettings = eqx.field(default_factory=SolverSettings)
    people: People | None = None  # whose the rows are; None: a record is nobody's but its own
    full: bool = eqx.field(static=True, default=False)  # no agent of the batch is padded

    @property
    def mask(self) -> Bool[Array, " rows"]:
        """True on real records (or people), False on padding."""
        if self.full:  # the same for every agent of a batch, so none has to be read
            return jnp.ones(self.features.shape[0], bool)
        return jnp.arange(self.features.shape[0] if self.people is None else self.people.size) < self.count

    def gradient(
        self, x: Float[Array, " d"], clip: Array | float | None = None, rows: Int[Array, " b"] | None = None,
        mask: Bool[Array, " b"] | None = None,
    ) -> Float[Array, " d"]:  # fmt: skip
        features, targets, here = self.features, self.targets, self.mask
        if self.people is not None:
            chosen = grouped(self.people, features, targets, here, rows, mask, x.dtype)
            return clipped_sum(self.problem, x, chosen, clip)
        if rows is not None:
            features, targets, here = features[rows], targets[rows], here[rows]
        if mask is not None:
            here = here & mask
        return self.problem.weighted_gradient(x, features, targets, here.astype(x.dtype), clip)

    def losses(self, x: Float[Array, " d"]) -> Float[Array, " rows"]:
        each = self.problem.losses(x, self.features, self.targets)
        if self.people is not None:
            own = jnp.where(self.people.share > 0, self.people.share * each, 0.0)
            each = jax.ops.segment_sum(own, self.people.owner, self.people.size, indices_are_sorted=True)
        return jnp.where(self.mask, each, 0.0)

    def value(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        if isinstance(self.features, Sparse):
            weights = self.mask.astype(x.dtype)
            total = self.problem.weighted_value(x, self.features, self.targets, weights)
        else:
            total = jnp.sum(self.losses(x))
        return self.unit * total + self.ridge / 2 * jnp.dot(x, x)

    def hessian(self, x: Float[Array, " d"]) -> Float[Array, "d d"]:
        """∇²f_i(x)."""
        return self._hessian(x, self.problem.weighted_hessian)

    def _hessian(self, x: Float[Array, " d"], of_records: Callable[..., Array]) -> Float[Array, "d d"]:
        weights = self.unit * self.mask.astype(x.dtype)
        if self.people is not None:
            weights = weights[self.people.owner] * self.people.share
        data = of_records(x, as_array(self.features), self.targets, weights)
        return data + self.ridge * jnp.eye(x.shape[0], dtype=x.dtype)

    def descend(
        self, x: Float[Array, " d"], linear: Float[Array, " d"], curvature: Array | float, steps: int | Array
    ) -> Float[Array, " d"]:
        if not (self.problem.convex and self.problem.smooth):
            raise InputError(f"gradient steps on {self.problem.name} need not contract: it is not convex and smooth")
        low = self.ridge + curvature
        length = 2 / (2 * low + self.unit * self.count * self.problem.smoothness)

        def step(_: Array, x: Array) -> Array:
            return self.problem.project(x - length * (self.slope(x) + linear + curvature * x))

        return jax.lax.fori_loop(0, jnp.asarray(steps, jnp.int32), step, x)

    def argmin(
        self, linear: Float[Array, " d"], curvature: Array | float, solver: Solver, tolerance: Array | float
    ) -> tuple[Float[Array, " d"], Solver]:
        problem, how = self.problem, self.how
        low = self.ridge + curvature
        high = low + self.unit * self.count * problem.smoothness
        sure = problem.convex and problem.smooth and bool(np.isfinite(problem.lipschitz))
        project = None if problem.constraint is None else problem.project

        if project is not None:
            tolerance = tolerance / 2  # the other half is for the rounding of projections (`_admm.longest`)

        def gradient(x: Array) -> Array:
            return self.slope(x) + linear + curvature * x

        if how.fixed and not sure:
            raise InputError(f"no number of steps is known to solve subproblems of {problem.name} on any records")
        if not how.fixed:
            if project is not None:
                solver = projected(gradient, project, high, solver, how, tolerance, problem.smooth)
            elif problem.keeps_factor:
                eye, once = jnp.eye(linear.shape[0], dtype=linear.dtype), once_if_alike(problem.weighted_hessian)
                hessian = lambda x: self._hessian(x, once) + curvature * eye  # noqa: E731
                solver = newton_like(gradient, hessian, solver, how, tolerance)
            else:

                def value(x: Array) -> Array:
                    return self.value(x) + jnp.dot(linear, x) + curvature / 2 * jnp.dot(x, x)

                solver = quasi_newton(lambda x: (value(x), gradient(x)), solver, how, tolerance)
        if sure:
            # whatever the records, the minimiser is within `far` of the minimiser of all but their losses
            far = self.unit * self.count * problem.lipschitz / low
            solver = surely(gradient, -linear / low, far, low, high, solver, tolerance, how.fixed, project)
        if project is not None:
            solver = dataclasses.replace(solver, aside=-gradient(solver.x) / low)
        return solver.x, solver


HELD = tuple(field.name for field in dataclasses.fields(HeldShard))
"""What a `HeldShard` is made of, for whoever makes another kind of it."""
