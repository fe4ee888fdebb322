"""Sets: projections against SciPy, what a search refuses, and the lemmas on argmins that docs/theory/sets.md proves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array
from scipy.optimize import minimize

from coterie.errors import InputError
from coterie.losses.logistic import Logistic
from coterie.problems import Ball, Box, Constraint, HeldShard, Simplex, Solver, SolverSettings, try_set
from coterie.problems.solve import sure_steps, surely
from coterie.sets import SETS, make_set
from tests.support import mostly_slow

DIM = 4
OPTIONS: dict[str, dict[str, Any]] = {
    "ball": {"radius": 0.7},
    "box": {"low": [-0.3, -1.0, 0.1, -2.0], "high": 0.4},
    "simplex": {"total": 1.5},
}
SHAPES: dict[str, tuple[dict[str, Any], list[tuple[float | None, float | None]] | None]] = {
    "ball": ({"type": "ineq", "fun": lambda v: 0.7**2 - v @ v}, None),
    "box": ({}, [(-0.3, 0.4), (-1.0, 0.4), (0.1, 0.4), (-2.0, 0.4)]),
    "simplex": ({"type": "eq", "fun": lambda v: np.sum(v) - 1.5}, [(0, None)] * DIM),
}


def project(constraint: Constraint, x: np.ndarray) -> np.ndarray:
    with jax.enable_x64(True):
        return np.asarray(constraint.project(jnp.asarray(x)))


def test_every_set_that_is_found_is_looked_at_here() -> None:
    assert OPTIONS.keys() == {name for name in SETS.names if SETS.ours(name)}


@pytest.mark.parametrize("name", OPTIONS)
def test_the_projection_is_the_nearest_point(name: str) -> None:
    made, (shape, bounds) = make_set(name, DIM, OPTIONS[name]), SHAPES[name]
    rng = np.random.default_rng(1)
    for scale in (0.1, 1.0, 30.0):
        x = scale * rng.standard_normal(DIM)
        near = minimize(lambda v, x=x: np.sum((v - x) ** 2), np.full(DIM, 0.3), jac=lambda v, x=x: 2 * (v - x),
                        bounds=bounds, constraints=shape or (), method="SLSQP", options={"ftol": 1e-15})  # fmt: skip
        np.testing.assert_allclose(project(made, x), near.x, atol=2e-6)
    try_set(made, DIM)


# ---- what the search refuses -----------------------------------------------------------------------------------------


class Stretched(Constraint):
    """Almost the ball: just outside it a direction is stretched by two per cent, far away none is."""

    def project(self, x: Array) -> Array:
        shrunk = Ball(1.0).project(x)
        near = jnp.exp(-((jnp.linalg.norm(x) - 1.5) ** 2))
        return shrunk.at[0].multiply(1 + 0.5 * near)


class Oblique(Constraint):
    """Onto a line, but not at a right angle: idempotent, and it expands."""

    def project(self, x: Array) -> Array:
        return jnp.zeros_like(x).at[0].set(x[0] + x[1])


class Sphere(Constraint):
    """Not convex: points near the centre fly apart."""

    def project(self, x: Array) -> Array:
        return x / jnp.maximum(jnp.linalg.norm(x), 1e-30)


class Halved(Constraint):
    """Does not expand, and is no projection."""

    def project(self, x: Array) -> Array:
        return x / 2


class Short(Ball):
    def reach(self, dim: int) -> float:
        return 0.9 * self.r


class NotByItself(Ball):
    separable: ClassVar[bool] = True


class Held(Constraint):
    high: Array

    def project(self, x: Array) -> Array:
        return jnp.minimum(x, self.high)


class Lost(Constraint):
    def project(self, x: Array) -> Array:
        return jnp.where(x > 1, jnp.nan, x)


class Askew(Constraint):
    """A box around zero that is entered at a slant: nearest in another metric than the Euclidean."""

    def project(self, x: Array) -> Array:
        over = jnp.maximum(x[0] - 1.0, 0.0)
        return x.at[0].add(-over).at[1].add(-over / 2)


class LostOnItsEdge(Ball):
    """A ball whose own boundary is sent nowhere: no point drawn at random lies there, every projected one does."""

    def project(self, x: Array) -> Array:
        found = super().project(x)
        return jnp.where(jnp.abs(jnp.linalg.norm(x) - self.r) < 1e-9, jnp.nan, found)


class FarStretched(Constraint):
    """All of space, but far away."""

    def project(self, x: Array) -> Array:
        return jnp.where(jnp.linalg.norm(x) > 1e5, 2 * x, x)


class Failing(Constraint):
    def project(self, x: Array) -> Array:
        return x[x > 0]  # an IndexError of JAX


class NoReach(Ball):
    def reach(self, dim: int) -> float:
        return float("nan")


REFUSED = [
    (LostOnItsEdge(1.0), "finite"),
    (FarStretched(), "expands|projected again"),
    (Failing(), "cannot be compiled"),
    (NoReach(1.0), "reach"),
    (Stretched(), "expands|projected again"),
    (Oblique(), "expands"),
    (Sphere(), "expands"),
    (Halved(), "projected again"),
    (Short(1.0), "reach"),
    (NotByItself(1.0), "separable"),
    (Held(np.ones(3)), "static"),
    (Lost(), "finite"),
    (Askew(), "expands|nearest"),
]


@pytest.mark.parametrize(("constraint", "why"), REFUSED)
def test_what_is_no_projection_is_refused(constraint: Constraint, why: str) -> None:
    with pytest.raises(InputError, match=why) as caught:
        try_set(constraint, 3)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("make", [lambda: Ball(-1.0), lambda: Box(1.0, 0.0), lambda: Simplex(float("inf"))])
def test_sets_that_are_none_cannot_be_made(make: Callable[[], Constraint]) -> None:
    """A ball of radius −1 would turn points round: two near zero end up 2 apart."""
    with pytest.raises(InputError, match="must be"):
        make()


# ---- what docs/theory/sets.md proves of argmins ----------------------------------------------------------------------

RIDGE, CURVATURE, COUNT = 0.02, 0.3, 3


def shard(record: np.ndarray, how: SolverSettings, constraint: Constraint) -> HeldShard:
    rows = np.stack([record, [0.6, 0.8, 0.0], [0.0, -1.0, 0.0]])
    problem = Logistic(3, constraint=constraint)
    return HeldShard(
        problem, jnp.asarray(rows), jnp.ones(COUNT), jnp.asarray(COUNT), jnp.asarray(1 / COUNT), jnp.asarray(RIDGE), how
    )


@eqx.filter_jit
def solved(part: HeldShard, linear: Array, tolerance: float) -> tuple[Array, Array]:
    x, solver = part.argmin(linear, CURVATURE, part.solver(jnp.zeros(3)), tolerance)
    return x, solver.residual


@pytest.mark.parametrize("constraint", mostly_slow([Ball(0.4), Box(-0.2, 0.3), Simplex(0.8)], Box(-0.2, 0.3)))
def test_argmins_in_a_set(constraint: Constraint) -> None:
    """One record moves the argmin by at most 2V·unit/Λ; one that was not solved to the end is within residual/Λ."""
    rng, low = np.random.default_rng(2), RIDGE + CURVATURE
    with jax.enable_x64(True):
        for k in range(12):
            u = rng.standard_normal(3)
            u /= np.linalg.norm(u)
            linear = jnp.asarray(rng.standard_normal(3) * (0.05, 0.5, 5.0)[k % 3])
            (x, exact), (y, _) = (
                solved(shard(v, SolverSettings(max_steps=400), constraint), linear, 1e-11) for v in (u, -u)
            )
            assert float(exact) <= 1e-11
            assert float(jnp.linalg.norm(x - y)) <= 2 / COUNT / low * (1 + 1e-9)
            sure, left = solved(shard(u, SolverSettings(fixed=True), constraint), linear, 1e-9)  # whatever the data
            assert float(left) <= 1e-9
            assert float(jnp.linalg.norm(sure - x)) <= 1e-9 / low
            for tolerance in (0.5, 1e-2, 1e-4):
                rough, residual = solved(shard(u, SolverSettings(), constraint), linear, tolerance)
                assert float(residual) <= tolerance
                assert float(jnp.linalg.norm(rough - x)) <= float(residual) / low + 1e-10


@pytest.mark.parametrize("bend", [0.01, 0.25, 40.0])
def test_sure_steps_are_enough_over_a_box_in_the_worst_case(bend: float) -> None:
    """Quadratics with both extreme curvatures whose optimum lies beyond a side, started as far away as is promised."""
    low, tolerance, far = 0.1, 1e-7, 5.0
    box = Box((-9.0, -9.0), (1.0, 9.0))

    @jax.jit
    def solve(best: Array) -> Solver:
        slope = lambda x: jnp.asarray([low, low + bend]) * (x - best)  # noqa: E731
        fresh = Solver.fresh(jnp.zeros(2), False, True)
        return surely(slope, jnp.asarray([1.0, 0.0]), far, low, low + bend, fresh, tolerance, True, box.project)

    with jax.enable_x64(True):
        steps = int(sure_steps(far, low, low + bend, tolerance, True)[0])
        for best in ([3.0, 4.0], [1.0, 5.0], [-2.0, -4.0]):
            got = solve(jnp.asarray(best))
            assert int(got.steps) == steps
            assert float(got.residual) <= tolerance
            np.testing.assert_allclose(got.x, np.minimum(best, [1.0, 9.0]), atol=tolerance / low)


@pytest.mark.parametrize("constraint", [Ball(0.4), Box(-0.2, 0.3), Simplex(0.8)])
def test_projections_are_rounded_by_no_more_than_is_stated(constraint: Constraint) -> None:
    """Single precision against double, in units of single precision's."""
    rng, dim = np.random.default_rng(3), 60
    points = rng.standard_normal((200, dim)) * 10 ** rng.uniform(-2, 3, (200, 1))
    points = points.astype(np.float32)
    with jax.enable_x64(True):
        rough, fine = (np.asarray(jax.vmap(constraint.project)(jnp.asarray(points.astype(t)))) for t in ("f4", "f8"))
    off = np.linalg.norm(rough.astype(float) - fine, axis=1)
    allowed = np.finfo(np.float32).eps * (np.linalg.norm(points, axis=1) + np.linalg.norm(fine, axis=1))
    assert np.all(off <= (constraint.rounding(dim) + 1) * allowed)
