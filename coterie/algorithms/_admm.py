r"""The step that every decentralized ADMM variant shares: one agent's subproblem and its dual.

    x ← argmin f_i(v) + ⟨α + extra, v⟩ + η Σ_j ‖v − ½(x_i + x_j)‖²
    α ← α + η (|V_i| x_i − Σ_j x_j)

The subproblem is Λ-strongly convex, Λ = ridge + 2η|V_i|, whatever the data: this is what sensitivities rest on.

**Steps instead of a solution.** K gradient steps of length 2/(M + Λ) from a *released* point, M = Λ + unit · n · c₁,
c₁ the bound on a record's curvature. For convex losses a step is a contraction by q = (M − Λ)/(M + Λ), and replacing a
record changes it by at most 2/(M + Λ) · 2V unit. Two worlds start at the same point, so after K steps they are at most

    2/(M + Λ) · 2V unit · (1 + q + … + q^{K−1}) = 2V unit (1 − q^K)/Λ

apart: for every K, with no residual to certify and none to hide. K is a matter of utility only: the next round goes on
where this one stopped, and fewer steps need less noise, so the last part of the way is worth little (`enough_steps`).

**Messages beyond reason.** A solver in floating point reaches gradient norm β only where the subproblem's linear term
is not so long that its own rounding exceeds β, and a neighbour may send any number. `heed` therefore shortens what was
heard, by a public rule, before any secret noise goes on it: a function of the transcript, so it costs nothing.
"""

from __future__ import annotations

import math
from typing import Protocol, runtime_checkable

import jax.numpy as jnp
from jaxtyping import Array, Float

from coterie.algorithms.base import Place, Public
from coterie.problems import Shard, Solver
from coterie.problems.records import sound

__all__ = [
    "LEAST_TOLERANCE", "Number", "Solving", "Standing", "asked", "contraction", "convexity", "dual_step",
    "enough_steps", "heed", "left_over", "longest", "short_way", "solve", "tail_mean",
]  # fmt: skip

LEAST_TOLERANCE = 1e-11  # gradient norm that rounding lets a solver reach, with few records
LEFT = 0.1  # part of the way to a subproblem's minimiser that the default number of steps may leave
MOST_STEPS = 64  # of those, at most
Vector = Float[Array, " d"]
Number = int | float | Array  # a setting, or a traced scalar


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


@runtime_checkable
class Solving(Standing, Protocol):
    """A state that also keeps a solver."""

    @property
    def solver(self) -> Solver:
        """Warm start of the inner solver."""


def convexity(penalty: Number, place: Place) -> Array:
    """Λ = ridge + 2η|V_i|: strong convexity of the agent's subproblem."""
    return place.ridge + 2 * penalty * place.degree


def asked(penalty: Number, place: Place, state: Standing) -> tuple[Vector, Array]:
    """(linear, curvature) of the subproblem f_i(v) + ⟨linear, v⟩ + curvature/2 ‖v‖², from (x, α, near)."""
    return state.dual - penalty * (place.degree * state.x + state.near), 2 * penalty * place.degree


def longest(place: Place, low: Number, tolerance: Number) -> Array:
    """The longest linear term with which rounding stays below half of the tolerance, at convexity `low` or more.

    Then the answer's norm is at most r = longest/low and a little. Sum and scores are off by at most 2ε·low·r and by
    d·ε·r, ε the unit of rounding; a score's error turns the gradient by load · c₁ times that. In a set the projection
    of a point up to 3r long is off by `rounding` · 3ε·r, twice, and the gradient mapping by M times that.
    """
    bend = place.unit * place.count * place.smoothness
    tolerance = jnp.maximum(tolerance, LEAST_TOLERANCE)  # plans ask for no less
    cut = 0.0 if place.within is None else 12 * place.within.rounding(place.dim) * (1 + bend / low)
    return tolerance / (8 * jnp.finfo(place.start.dtype).eps * (1 + place.dim * bend / low + cut))


def heed(linear: Vector, place: Place, low: Number, tolerance: Number) -> Vector:
    """The linear term, at most half as long as `longest`: the rest is for noise. One that is not a number becomes 0."""
    linear = sound(linear)
    size = jnp.max(jnp.abs(linear))  # of a huge vector the norm would overflow
    norm = size * jnp.linalg.norm(linear / jnp.where(size > 0, size, 1.0))
    return linear * jnp.minimum(1.0, longest(place, low, tolerance) / 2 / jnp.where(norm > 0, norm, 1.0))


def left_over(penalty: Number, place: Place, steps: Number) -> Number:
    """q^K, q = (M − Λ)/(M + Λ), M = Λ + unit · count · smoothness: the part of the way that K steps do not go."""
    return contraction(convexity(penalty, place), place.unit * place.count * place.smoothness) ** steps


def contraction(low: Number, bend: Number) -> Number:
    """(M − m)/(M + m) for curvatures from m = low to M = low + bend."""
    return bend / (2 * low + bend)


def enough_steps(public: Public, penalty: float) -> int:
    """The least number of steps that leaves `LEFT` of the way to a subproblem's minimiser, at most `MOST_STEPS`.

    On Adult and on made clinics, ε from .1 to 10, up to 300 steps that leave 1/1000 of the way reach the same loss and
    accuracy within the spread of seeds, for four times the work; with far fewer the loss is worse
    (benchmarks/history.md, Sweeps).
    """
    low, bend = public.ridge + 2 * penalty * public.degree_min, public.load * public.smoothness
    rate = float(contraction(low, bend))
    if not rate < 1:  # no curvature bound, or none below: the contract refuses the former
        return MOST_STEPS
    return int(min(MOST_STEPS, max(1, math.ceil(math.log(LEFT) / math.log(rate))))) if rate > 0 else 1


def short_way(public: Public, penalty: float, steps: int) -> str | None:
    """A warning where `steps` leave more than half of the way to a subproblem's minimiser, else None."""
    low, bend = public.ridge + 2 * penalty * public.degree_min, public.load * public.smoothness
    left = float(contraction(low, bend)) ** steps
    if left <= 0.5:
        return None
    return (
        f"{steps} gradient steps leave {left:.0%} of the way to a subproblem's minimiser: the loss may bend "
        f"{bend / low:.3g} times as sharply as the penalty; use a larger penalty, a smoother loss or more steps"
    )


def solve(
    penalty: Number, place: Place, state: Solving, shard: Shard, tolerance: Number, extra: Number = 0.0
) -> tuple[Vector, Solver]:
    """The subproblem's minimiser, with `extra` added to its linear term; and the solver after it.

    `solver.residual` ≤ tolerance = β (see `Shard.argmin`), so the answer is within β/Λ of the exact one.
    """
    linear, curvature = asked(penalty, place, state)
    linear = heed(linear, place, convexity(penalty, place), tolerance)
    return shard.argmin(linear + extra, curvature, state.solver, tolerance)


def dual_step(penalty: Number, place: Place, dual: Vector, x: Vector, near: Vector) -> Vector:
    """α + η (|V_i| x_i − Σ_j x_j), near = Σ_j x_j; over all agents the duals keep summing to zero."""
    return dual + penalty * (place.degree * x - near)


def tail_mean(tail: Number, place: Place, t: Array, mean: Array, new: Array) -> Array:
    """Mean of the last ⌈tail · rounds⌉ values (at least one), updated at round t; before those, the newest value."""
    first = place.length - jnp.ceil(tail * place.length)
    return mean + (new - mean) / jnp.maximum(1, t - first + 1)
