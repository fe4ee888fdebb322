r"""The step that every decentralized ADMM variant shares: one agent's subproblem and its dual.

    x ← argmin f_i(v) + ⟨α + extra, v⟩ + η Σ_j ‖v − ½(x_i + x_j)‖²
    α ← α + η (|V_i| x_i − Σ_j x_j)

The subproblem is Λ-strongly convex, Λ = ridge + 2η|V_i|, whatever the data: this is what sensitivities rest on.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import jax.numpy as jnp
from jaxtyping import Array, Float

from coterie.algorithms.base import Place
from coterie.problems import Shard, Solver

__all__ = ["Number", "Standing", "convexity", "dual_step", "solve", "tail_mean"]

Vector = Float[Array, " d"]
Number = Any  # a float or a traced scalar; None only in a configuration that `tune` has not seen


@runtime_checkable
class Standing(Protocol):
    """The part of an agent's state that the subproblem reads."""

    @property
    def x(self) -> Vector:
        """The point that the agent stands at (what its neighbours have seen)."""

    @property
    def dual(self) -> Vector:
        """α."""

    @property
    def near(self) -> Vector:
        """Sum of the neighbours' points."""

    @property
    def solver(self) -> Solver:
        """Warm start of the inner solver."""


def convexity(penalty: Number, place: Place) -> Array:
    """Λ = ridge + 2η|V_i|: strong convexity of the agent's subproblem."""
    return place.ridge + 2 * penalty * place.degree


def solve(penalty: Number, place: Place, state: Standing, shard: Shard, extra: Number = 0.0) -> tuple[Vector, Solver]:
    """The subproblem's minimiser from (x, α, near), with `extra` added to its linear term; and the solver after it.

    `solver.residual` ≤ the shard's tolerance β, so the answer is within β/Λ of the exact one.
    """
    linear = state.dual + extra - penalty * (place.degree * state.x + state.near)
    return shard.argmin(linear, 2 * penalty * place.degree, state.solver)


def dual_step(penalty: Number, place: Place, dual: Vector, x: Vector, near: Vector) -> Vector:
    """α + η (|V_i| x_i − Σ_j x_j), near = Σ_j x_j; over all agents the duals keep summing to zero."""
    return dual + penalty * (place.degree * x - near)


def tail_mean(tail: Number, place: Place, t: Array, mean: Array, new: Array) -> Array:
    """Mean of the last ⌈tail · rounds⌉ values (at least one), updated at round t; before those, the newest value."""
    first = place.rounds - jnp.ceil(tail * place.rounds)
    return mean + (new - mean) / jnp.maximum(1, t - first + 1)
