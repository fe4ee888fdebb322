r"""Coupled problems: min Σ_i f_i(x_i) subject to Σ_i A_i x_i = c and x_i ∈ [low_i, high_i].

Agent i has its own variable x_i of its own dimension. Public: A_i, c, the bounds, the start, the constants m_i
(`strong`) and L_i (`smooth`) between which the curvature of every admissible f_i lies, and `gap`, which says how far
the gradients of two admissible f_i can be apart on the box. Private: f_i itself (`cost`).

**What is hidden.** Neighbouring inputs differ in one agent's f_i, replaced by another f̂_i of its public class F_i
(Xiao, Ye, Devadas, Def. 1). Everything a mechanism needs to know of F_i is

    gap_q = sup { ‖∇f(x) − ∇f̂(x)‖_q : f, f̂ ∈ F_i, x in the box },  q = 1, 2, ∞.

A class of whole cost curves hides the curve. A class of curves that differ in one of n records hides a record, at a gap
n times smaller: the class is the choice, the mathematics is the same.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from coterie.errors import InputError
from coterie.problems.records import clip_factor, sound

__all__ = ["Cost", "Coupled", "CoupledAgent", "Gap", "Kkt", "Quadratic", "Smooth", "quadratic_agent", "smooth_agent"]

Numbers = np.ndarray | Array  # float64 on the host, traced inside a run
Norm = float | np.ndarray | Array
Values = float | int | Sequence[object] | np.ndarray  # one number, or one per coordinate
LEFT = 1e-9  # part of the way to the minimiser that the steps of an iterated `prox` leave


class Gap(NamedTuple):
    """How far two admissible vectors can be apart, in three norms; ∞ where nothing is promised."""

    l1: Norm
    l2: Norm
    linf: Norm


class Curved(NamedTuple):
    """Bounds on the curvature of every function of a class."""

    least: Norm
    most: Norm


class Kkt(NamedTuple):
    """Residuals of the optimality conditions."""

    stationarity: float  # largest |x − P(x − ∇f_i(x) + A_iᵀλ)| over all coordinates
    feasibility: float  # largest |Σ A_i x_i − c|


class Cost(eqx.Module):
    """A private convex function of one agent's variable."""

    separable: ClassVar[bool] = False  # a sum of functions of single coordinates

    @abc.abstractmethod
    def value(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        """f(x)."""

    @abc.abstractmethod
    def gradient(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        """∇f(x)."""

    @abc.abstractmethod
    def prox(self, linear: Array, centre: Array, weight: Numbers, low: Numbers, high: Numbers, curved: Curved) -> Array:
        """argmin f(x) + ⟨linear, x⟩ + weight/2 ‖x − centre‖² over low ≤ x ≤ high, or a point near it.

        If the gradients of two functions of the class are at most `gap` apart on the box, the answers are at most
        gap/(m + weight) apart, in every norm if the functions are separable, else in L2.
        """


class Quadratic(Cost):
    """f(x) = Σ_l curvature_l x_l²/2 + slope_l x_l."""

    curvature: Float[Numbers, " d"]
    slope: Float[Numbers, " d"]
    separable: ClassVar[bool] = True

    def value(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return jnp.sum((self.curvature * x / 2 + self.slope) * x)

    def gradient(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        return jnp.asarray(self.curvature) * x + self.slope

    def prox(self, linear: Array, centre: Array, weight: Numbers, low: Numbers, high: Numbers, curved: Curved) -> Array:
        return jnp.clip((weight * centre - linear - self.slope) / (self.curvature + weight), low, high)


class Smooth(Cost):
    """f(x) = function(data, x) for any smooth convex function that JAX can differentiate; `data` are private.

    `clip` cuts the gradient's norm, which makes gap = 2 clip true whatever the function (first-order method only). A
    derivative that is not finite counts as 0: nobody can fail because of the data.

    `prox` takes a public number of projected gradient steps of length 2/(M + m) from the centre, which is public. Each
    brings two points closer by (M − m)/(M + m), where m and M enclose the curvature of f + weight/2 ‖·‖²; so whatever
    the number of steps, two functions whose gradients are `gap` apart end within gap/m of each other. No error is left
    to charge.
    """

    data: PyTree
    function: Callable[[PyTree, Array], Array] = eqx.field(static=True)
    clip: float | None = eqx.field(static=True, default=None)

    def value(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return self.function(self.data, x)

    def gradient(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        slope = sound(jax.grad(self.function, argnums=1)(self.data, x))
        return slope * clip_factor(jnp.linalg.norm(slope), self.clip)

    def prox(self, linear: Array, centre: Array, weight: Numbers, low: Numbers, high: Numbers, curved: Curved) -> Array:
        if self.clip is not None:
            raise InputError("a clipped gradient has no exact step: use method 'first-order'")
        total = 2 * weight + curved.least + curved.most
        rate = (curved.most - curved.least) / total

        def step(_: Array, x: Array) -> Array:
            slope = self.gradient(x) + linear + weight * (x - centre)
            return jnp.clip(x - 2 / total * slope, low, high)

        steps = jnp.ceil(jnp.log(LEFT) / jnp.log(jnp.maximum(rate, LEFT))).astype(int)
        return jax.lax.fori_loop(0, steps, step, jnp.clip(centre, low, high))


class CoupledAgent(eqx.Module):
    """One agent: its private `cost` and, public, everything else. Make one with `quadratic_agent` or `smooth_agent`."""

    cost: Cost
    matrix: Float[Numbers, "rows d"]  # A_i
    low: Float[Numbers, " d"]
    high: Float[Numbers, " d"]
    start: Float[Numbers, " d"]
    strong: Float[Numbers, ""]  # m_i: least curvature in the class
    smooth: Float[Numbers, ""]  # L_i: largest curvature in the class
    gap: Gap

    @property
    def dim(self) -> int:
        """Dimension of x_i."""
        return int(self.matrix.shape[1])


def quadratic_agent(
    curvature: Values,
    slope: Values,
    *,
    matrix: Values | None = None,
    low: Values = -np.inf,
    high: Values = np.inf,
    curvature_range: tuple[Values, Values] | None = None,
    slope_range: tuple[Values, Values] | None = None,
    records: int = 1,
    start: Values | None = None,
) -> CoupledAgent:
    """An agent with cost Σ curvature x²/2 + slope x.

    Args:
        curvature: one per coordinate, > 0.
        slope: one per coordinate.
        matrix: A_i, (rows, d); None: the identity.
        low: lower bounds.
        high: upper bounds.
        curvature_range: public range of the curvature; None: not hidden, it is public itself.
        slope_range: public range of the slope; None: nothing is promised and the agent is not private.
        records: the coefficients are means over this many records, each in the range; ε then protects one record.
        start: public starting point; None: the middle of the box, or the point of it nearest to 0.

    >>> plant = quadratic_agent(0.02, 18.0, low=50, high=300, slope_range=(17, 20))
    >>> plant.dim, float(plant.gap.l2)
    (1, 3.0)
    """
    a, b = np.atleast_1d(np.asarray(curvature, float)), np.atleast_1d(np.asarray(slope, float))
    a, b = np.broadcast_arrays(a, b)
    if not (np.all(a > 0) and np.all(np.isfinite(a))):
        raise InputError(f"curvature must be > 0, got {a.min()}")
    if not records >= 1:
        raise InputError(f"records must be >= 1, got {records}")
    bends, slopes = _range("curvature", a, curvature_range), _range("slope", b, slope_range)
    if not np.all(bends[0] > 0):
        raise InputError(f"curvature_range must lie above 0, got {bends[0].min()}")
    lower, upper, reach = _box(low, high, a.size)
    bent = bends[1] - bends[0]
    if np.any((bent > 0) & np.isinf(reach)):
        raise InputError("a hidden curvature needs finite bounds low and high: gradients drift apart without limit")
    if slope_range is None:
        gap = Gap(np.inf, np.inf, np.inf)
    else:
        apart = (bent * np.where(bent > 0, reach, 0.0) + slopes[1] - slopes[0]) / records
        gap = Gap(np.sum(apart), float(np.linalg.norm(apart)), np.max(apart))
    cost = Quadratic(a.copy(), b.copy())
    return _agent(cost, matrix, lower, upper, start, np.min(bends[0]), np.max(bends[1]), gap)


def smooth_agent(
    function: Callable[[PyTree, Array], Array],
    data: PyTree,
    dim: int,
    *,
    strong: float,
    smooth: float,
    gap: float | Gap | None = None,
    clip: float | None = None,
    matrix: Values | None = None,
    low: Values = -np.inf,
    high: Values = np.inf,
    start: Values | None = None,
) -> CoupledAgent:
    """An agent with any smooth convex cost function(data, x) written in JAX.

    Args:
        function: f(data, x) -> number. Agents that share one function object are batched.
        data: private, any pytree of arrays.
        dim: dimension of x.
        strong: public lower bound of the curvature, ≥ 0. Like `smooth` it is believed: the exact method's privacy
            rests on both.
        smooth: public upper bound of the curvature.
        gap: public bound on ‖∇f − ∇f̂‖₂ within the class (or a `Gap`). It is believed: privacy rests on it.
        clip: cuts gradients to this norm instead, so that gap = 2 clip needs no belief. Neither: not private.
        matrix: A_i, (rows, d); None: the identity.
        low: lower bounds.
        high: upper bounds.
        start: public starting point; None: the middle of the box, or the point of it nearest to 0.
    """
    if not (0 <= strong <= smooth < np.inf and smooth > 0):
        raise InputError(f"expected 0 <= strong <= smooth, both finite, got {strong} and {smooth}")
    if gap is not None and clip is not None:
        raise InputError("give gap or clip, not both")
    if clip is not None and not clip > 0:
        raise InputError(f"clip must be > 0, got {clip}")
    bound = 2 * clip if clip is not None else np.inf if gap is None else gap
    if not isinstance(bound, Gap):
        bound = Gap(np.sqrt(dim) * bound, bound, bound)
    if not all(norm >= 0 for norm in bound):
        raise InputError(f"gap must be >= 0, got {tuple(bound)}")
    lower, upper, _ = _box(low, high, dim)
    double = jax.tree.map(lambda leaf: np.asarray(leaf, float) if np.ndim(leaf) else float(leaf), data)
    cost = Smooth(double, function, clip)
    return _agent(cost, matrix, lower, upper, start, strong, smooth, bound)


class Coupled:
    """min Σ f_i(x_i) s.t. Σ A_i x_i = total, low_i ≤ x_i ≤ high_i.

    >>> shares = [quadratic_agent(1.0, -t, slope_range=(-4, 0)) for t in (1.0, 2.0, 3.0)]
    >>> Coupled(shares, total=3.0).size
    3
    """

    def __init__(self, agents: Sequence[CoupledAgent], total: Values):
        self.agents = tuple(agents)
        self.total = np.atleast_1d(np.asarray(total, float))
        if not self.agents:
            raise InputError("a coupled problem needs at least one agent")
        if self.total.ndim != 1 or not np.all(np.isfinite(self.total)):
            raise InputError(f"total must be finite numbers, one per constraint, got {total!r}")
        for i, agent in enumerate(self.agents):
            if agent.matrix.shape[0] != self.rows:
                raise InputError(f"agent {i}: matrix has {agent.matrix.shape[0]} rows, total has {self.rows} entries")
        reach = np.sum([_reach(agent) for agent in self.agents], axis=0)
        for row, (least, wanted, most) in enumerate(zip(reach[0], self.total, reach[1], strict=True)):
            if not least <= wanted <= most:
                raise InputError(f"constraint {row}: the agents can make {least:g} to {most:g}, total asks {wanted:g}")

    @property
    def size(self) -> int:
        """Number of agents."""
        return len(self.agents)

    @property
    def rows(self) -> int:
        """Number of coupling constraints."""
        return self.total.size

    @cached_property
    def matrix(self) -> np.ndarray:
        """[A_1 … A_N]."""
        return np.concatenate([agent.matrix for agent in self.agents], axis=1)

    @cached_property
    def norms(self) -> np.ndarray:
        """σ_i: spectral norm of each A_i."""
        return np.array([np.linalg.norm(agent.matrix, 2) for agent in self.agents])

    @cached_property
    def message_bound(self) -> float:
        """Largest |A_i x_i| entry that any agent can send; ∞ without bounds. Fixes the range of a fixed-point code."""
        return max(float(np.max(np.abs(_reach(agent)))) for agent in self.agents)

    @cached_property
    def sums_hide(self) -> bool:
        """Whether Σ A_i x_i, opened among at least two honest agents, fixes no linear function of a single x_i.

        So it is if and only if all A_i have the same column space. An incidence matrix (consensus over a graph)
        does not: there the opened sum and one's own x give everybody's.
        """
        whole = np.linalg.matrix_rank(self.matrix)
        return all(np.linalg.matrix_rank(agent.matrix) == whole for agent in self.agents)

    def objective(self, points: Sequence[np.ndarray]) -> float:
        """Σ f_i(x_i): reads the private costs."""
        with jax.enable_x64(True):
            pairs = zip(self.agents, points, strict=True)
            return float(sum(float(agent.cost.value(jnp.asarray(x, jnp.float64))) for agent, x in pairs))

    def residual(self, points: Sequence[np.ndarray]) -> np.ndarray:
        """Σ A_i x_i − c."""
        return np.sum([agent.matrix @ x for agent, x in zip(self.agents, points, strict=True)], axis=0) - self.total

    def kkt(self, points: Sequence[np.ndarray], price: np.ndarray) -> Kkt:
        """How far (x, λ) is from optimal; both zero exactly at the optimum. Reads the private costs."""
        worst = 0.0
        with jax.enable_x64(True):
            for agent, x in zip(self.agents, points, strict=True):
                slope = np.asarray(agent.cost.gradient(jnp.asarray(x, jnp.float64))) - agent.matrix.T @ price
                worst = max(worst, float(np.max(np.abs(x - np.clip(x - slope, agent.low, agent.high)))))
        return Kkt(worst, float(np.max(np.abs(self.residual(points)))))


def _range(name: str, value: np.ndarray, limits: tuple[Values, Values] | None) -> tuple[np.ndarray, np.ndarray]:
    if limits is None:
        return value, value
    low, high = (np.broadcast_to(np.asarray(x, float), value.shape) for x in limits)
    if not (np.all(low <= high) and np.all(np.isfinite(low)) and np.all(np.isfinite(high))):
        raise InputError(f"{name}_range must be finite (low, high), got {limits}")
    if np.any(value < low) or np.any(value > high):
        raise InputError(f"{name} {value.tolist()} lies outside its public range {limits}: privacy would not hold")
    return low, high


def _box(low: Values, high: Values, dim: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bounds as vectors, and the largest |x| of each coordinate."""
    lower, upper = (np.broadcast_to(np.asarray(x, float), (dim,)).copy() for x in (low, high))
    if not np.all(lower <= upper):
        raise InputError(f"low must be <= high, got {low!r} and {high!r}")
    return lower, upper, np.maximum(np.abs(lower), np.abs(upper))


def _agent(
    cost: Cost,
    matrix: Values | None,
    low: np.ndarray,
    high: np.ndarray,
    start: Values | None,
    strong: float,
    smooth: float,
    gap: Gap,
) -> CoupledAgent:
    dim = low.size
    a = np.eye(dim) if matrix is None else np.atleast_2d(np.asarray(matrix, float))
    if a.ndim != 2 or a.shape[1] != dim or not np.all(np.isfinite(a)):
        raise InputError(f"matrix must be finite with {dim} columns, got shape {a.shape}")
    if start is None:
        boxed = np.isfinite(low) & np.isfinite(high)
        first = np.where(boxed, (np.where(boxed, low, 0) + np.where(boxed, high, 0)) / 2, np.clip(0.0, low, high))
    else:
        first = np.broadcast_to(np.asarray(start, float), (dim,)).copy()
        if np.any(first < low) or np.any(first > high):
            raise InputError(f"start {first.tolist()} lies outside the bounds")
    known = Gap(*(np.asarray(x, float) for x in gap))
    return CoupledAgent(cost, a, low, high, first, np.asarray(strong, float), np.asarray(smooth, float), known)


def _reach(agent: CoupledAgent) -> np.ndarray:
    """(least, most) of A_i x_i over the box, row by row."""
    with np.errstate(invalid="ignore"):
        ends = np.stack([agent.matrix * agent.low, agent.matrix * agent.high])
    ends = np.where(agent.matrix == 0, 0.0, ends)
    return np.stack([ends.min(axis=0).sum(axis=1), ends.max(axis=0).sum(axis=1)])
