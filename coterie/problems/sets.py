"""Closed convex sets that a point is kept in, and a search for what would break the proofs that rest on them.

With P the projection on such a set, for all x and y: ⟨x − P(x), P(y) − P(x)⟩ ≤ 0, hence ‖P(x) − P(y)‖ ≤ ‖x − y‖. What
privacy rests on where a set is kept, and which algorithms keep one: docs/theory/sets.md.
"""

from __future__ import annotations

import abc
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from coterie.errors import InputError

__all__ = ["Ball", "Box", "Constraint", "Simplex", "try_set"]


class Constraint(eqx.Module):
    """A closed convex set with its projection. All that it holds is public: numbers in static fields."""

    separable: ClassVar[bool] = False  # whether the projection takes every coordinate by itself

    @abc.abstractmethod
    def project(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        """The nearest point of the set."""

    def reach(self, dim: int) -> float:
        """At least the largest Euclidean norm in the set; inf where none is known."""
        return float("inf")

    def rounding(self, dim: int) -> float:
        """At most how far floating point moves a projection of x, in units of ‖x‖ and its dtype's eps; inf: not stated.

        Methods that charge a solver's error (`dvp` and its kin) need it, and a set that does not state it is refused.
        """
        return float("inf")


class Ball(Constraint):
    """{x : ‖x‖₂ ≤ r}."""

    r: float = eqx.field(static=True)

    def __check_init__(self) -> None:
        if not self.r > 0:  # a negative one would turn points round, and move near ones apart
            raise InputError(f"a ball's radius must be > 0, got {self.r}")

    def project(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        return x * jnp.minimum(1.0, self.r / jnp.maximum(jnp.linalg.norm(x), 1e-30))

    def reach(self, dim: int) -> float:
        return self.r

    def rounding(self, dim: int) -> float:
        return dim / 2 + 4  # a sum of squares, its root, a division and a product


Bounds = float | tuple[float, ...]


class Box(Constraint):
    """{x : low ≤ x_l ≤ high}; one number for all coordinates, or one for each."""

    low: Bounds = eqx.field(static=True)
    high: Bounds = eqx.field(static=True)
    separable: ClassVar[bool] = True

    def __check_init__(self) -> None:
        if not np.all(np.less_equal(self.low, self.high)):
            raise InputError(f"a box's low must be <= high, got {self.low} and {self.high}")

    def project(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        return jnp.clip(x, jnp.asarray(self.low, x.dtype), jnp.asarray(self.high, x.dtype))

    def reach(self, dim: int) -> float:
        sides = np.maximum(np.abs(self.low), np.abs(self.high))
        return float(np.linalg.norm(np.broadcast_to(sides, (dim,))))

    def rounding(self, dim: int) -> float:
        return 0.0


class Simplex(Constraint):
    """{x : x_l ≥ 0, Σ_l x_l = total}."""

    total: float = eqx.field(static=True, default=1.0)

    def __check_init__(self) -> None:
        if not 0 < self.total < np.inf:
            raise InputError(f"a simplex's total must be > 0 and finite, got {self.total}")

    def project(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        # Σ max(x_l − level, 0) = total has one root; with the k largest in play it is (their sum − total)/k
        falling = jnp.flip(jnp.sort(x))
        levels = (jnp.cumsum(falling) - self.total) / jnp.arange(1, x.shape[0] + 1)
        level = levels[jnp.maximum(jnp.sum(falling > levels) - 1, 0)]
        return jnp.maximum(x - level, 0.0)

    def reach(self, dim: int) -> float:
        return self.total

    def rounding(self, dim: int) -> float:
        return dim**0.5 * (dim + 4)  # of the level, which moves every number (docs/theory/sets.md)


TRIES, TURNS, SLACK = 300, 12, 1e-7


def try_set(constraint: Constraint, dim: int) -> None:
    """Refuse a set whose projection a search finds not to be one: what is proved of projections would not hold.

    Pairs of points from tiny to huge, near to each other and far apart; and, at every point, the direction in which the
    projection stretches most, by power iteration on its derivative.
    """
    name = type(constraint).__name__
    if jax.tree.leaves(constraint):
        raise InputError(f"set {name}: its numbers must be static fields (numbers or tuples), and an array is not")
    rng = np.random.default_rng(0)
    sizes = 10 ** rng.uniform(-4, 8, (TRIES, 1))
    here = rng.standard_normal((TRIES, dim)) * sizes
    here[0] = 0.0
    there = here + rng.standard_normal((TRIES, dim)) * sizes * 10 ** rng.uniform(-4, 1, (TRIES, 1))
    with jax.enable_x64(True):
        project = jax.jit(jax.vmap(constraint.project))
        try:
            first, second = (np.asarray(project(jnp.asarray(v))) for v in (here, there))
            again = np.asarray(project(jnp.asarray(first)))
            ahead = here + 1e-6 * sizes * _most_stretched(constraint, here, rng)
            third = np.asarray(project(jnp.asarray(ahead)))
            reach = float(constraint.reach(dim))
        except Exception as error:  # somebody's code: it may fail in any way
            told = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            raise InputError(f"set {name}: its projection cannot be compiled, or it states no reach: {told}") from None
    for image in (first, second, third, again):
        if image.shape != here.shape or image.dtype.kind != "f" or not np.all(np.isfinite(image)):
            raise InputError(f"set {name}: its projection gives no point of {dim} finite numbers")
    rounding = SLACK * (1e-3 + np.linalg.norm(here, axis=1) + np.linalg.norm(first, axis=1))
    if np.any(np.linalg.norm(again - first, axis=1) > rounding):
        raise InputError(f"set {name}: a projected point moves when it is projected again")
    for other, image in ((there, second), (ahead, third)):
        apart, moved = np.linalg.norm(other - here, axis=1), np.linalg.norm(image - first, axis=1)
        if np.any(moved > apart * (1 + SLACK) + 1e-9 * rounding):
            worst = float(np.max(moved / np.maximum(apart, 1e-300)))
            raise InputError(f"set {name}: its projection expands, two points end up {worst:.4g} times as far apart")
    beyond = np.sum((here - first) * (second - first), axis=1)
    if np.any(beyond > rounding * (1 + np.linalg.norm(second - first, axis=1) + np.linalg.norm(here - first, axis=1))):
        raise InputError(f"set {name}: a projected point is not the nearest one of a convex set")
    if not np.all(np.linalg.norm(first, axis=1) <= reach * (1 + SLACK) + 1e-13 * np.linalg.norm(here, axis=1)):
        raise InputError(f"set {name}: reach = {reach:g} is stated, and a projected point is longer")
    if constraint.separable and dim > 1 and _mixes(constraint, here, there):
        raise InputError(f"set {name}: separable is stated, and one coordinate moves another")


def _most_stretched(constraint: Constraint, points: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """For every point a direction of length 1 that the projection's derivative there shortens least."""

    def turn(x: Array, v: Array) -> Array:
        moved, back = jax.jvp(constraint.project, (x,), (v,))[1], jax.vjp(constraint.project, x)[1]
        (v,) = back(moved)
        return v / jnp.maximum(jnp.linalg.norm(v), 1e-30)

    every = jax.jit(jax.vmap(turn))
    way = rng.standard_normal(points.shape)
    way /= np.linalg.norm(way, axis=1, keepdims=True)
    for _ in range(TURNS):
        way = np.nan_to_num(np.asarray(every(jnp.asarray(points), jnp.asarray(way))))
    return way


def _mixes(constraint: Constraint, here: np.ndarray, there: np.ndarray) -> bool:
    """Whether changing one coordinate of a point changes another of its projection."""
    one = np.arange(len(here)) % here.shape[1]
    changed = here.copy()
    changed[np.arange(len(here)), one] = there[np.arange(len(here)), one]
    with jax.enable_x64(True):
        before, after = (np.array(jax.vmap(constraint.project)(jnp.asarray(v))) for v in (here, changed))
    before[np.arange(len(here)), one] = after[np.arange(len(here)), one] = 0.0
    return not np.allclose(before, after, rtol=SLACK, atol=SLACK)
