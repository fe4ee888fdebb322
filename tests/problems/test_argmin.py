"""`shard.argmin` against SciPy and the optimality conditions; its residual, its warm start, and that it cannot fail."""

from __future__ import annotations

from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from coterie.errors import InputError
from coterie.losses.hinge import Hinge
from coterie.losses.logistic import Logistic
from coterie.losses.mlp import Perceptron
from coterie.losses.softmax import Softmax
from coterie.problems import Ball, Box, Custom, HeldShard, Problem, Shard, Solver, SolverSettings
from coterie.problems.solve import newton_like, sure_steps, surely
from tests.problems.cases import FEATURES, PROBLEMS, Case, case, robust, shard
from tests.support import mostly_slow

EXACT = ["logistic", "hinge", "squared", "softmax"]
ITERATED = ["custom", "sigmoid-net"]
CURVATURE = 0.2


def linear_term(dim: int) -> np.ndarray:
    return 0.3 * np.random.default_rng(5).standard_normal(dim)


@eqx.filter_jit
def _argmin(s: Shard, linear: jax.Array, curvature: jax.Array, solver: Solver, tolerance: jax.Array) -> Solver:
    return s.argmin(linear, curvature, solver, tolerance)[1]


def solve(
    s: Shard,
    linear: np.ndarray,
    curvature: float = CURVATURE,
    solver: Solver | None = None,
    tolerance: float = 1e-11,
) -> Solver:
    """argmin, compiled once per kind of shard."""
    with jax.enable_x64(True):
        solver = s.solver(jnp.zeros(s.problem.dim)) if solver is None else solver
        numbers = jnp.asarray(curvature, jnp.float64), solver, jnp.asarray(tolerance, jnp.float64)
        return _argmin(s, jnp.asarray(linear), *numbers)


@eqx.filter_jit
def _slope(s: Shard, x: jax.Array, linear: jax.Array, curvature: jax.Array) -> tuple[jax.Array, jax.Array]:
    def total(v: jax.Array) -> jax.Array:
        return s.value(v) + jnp.dot(linear, v) + curvature / 2 * jnp.dot(v, v)

    return jax.value_and_grad(total)(x)


def slope(s: Shard, x: np.ndarray, linear: np.ndarray, curvature: float = CURVATURE) -> tuple[float, np.ndarray]:
    """Value and gradient of the subproblem, by automatic differentiation of its value."""
    with jax.enable_x64(True):
        value, grad = _slope(s, jnp.asarray(x), jnp.asarray(linear), jnp.asarray(curvature, jnp.float64))
    return float(value), np.asarray(grad)


@cache
def problem_shard(name: str, seed: int = 1, **how: float) -> Shard:
    return shard(case(name, rows=60, seed=seed), ridge=0.05, how=SolverSettings(**how), padding=4)


# -- without constraints -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", mostly_slow([*EXACT, "custom"], "softmax", "custom"))
def test_reaches_the_minimiser_to_1e_10(name: str) -> None:
    s, linear = problem_shard(name), linear_term(PROBLEMS[name].dim)
    got = solve(s, linear)
    value, gradient = slope(s, got.x, linear)
    assert np.linalg.norm(gradient) <= 1e-10
    assert float(got.residual) == pytest.approx(np.linalg.norm(gradient), abs=1e-13)
    peer = minimize(
        lambda v: slope(s, v, linear), np.zeros(len(linear)), jac=True, method="BFGS", options={"gtol": 1e-9}
    )
    np.testing.assert_allclose(got.x, peer.x, atol=1e-7)
    assert value <= peer.fun + 1e-14


def test_squared_loss_has_the_normal_equations() -> None:
    c = case("squared", rows=60)
    linear = linear_term(FEATURES)
    matrix = c.features.T @ c.features / 60 + (0.05 + CURVATURE) * np.eye(FEATURES)
    want = np.linalg.solve(matrix, c.features.T @ c.targets / 60 - linear)
    np.testing.assert_allclose(solve(problem_shard("squared"), linear).x, want, atol=1e-10)


@pytest.mark.parametrize("name", ITERATED)
def test_large_and_non_convex_problems_reach_a_local_minimum(name: str) -> None:
    s, problem = problem_shard(name, max_steps=2000), PROBLEMS[name]
    start = problem.start(0)
    with jax.enable_x64(True):
        fresh = s.solver(jnp.asarray(start))
    assert fresh.inverse.shape == (0, 0)
    got = solve(s, np.zeros(problem.dim), solver=fresh, tolerance=1e-9)
    value, gradient = slope(s, got.x, np.zeros(problem.dim))
    assert np.linalg.norm(gradient) <= 1e-9
    assert float(got.residual) == pytest.approx(np.linalg.norm(gradient), abs=1e-13)
    assert value < slope(s, start, np.zeros(problem.dim))[0]


def test_beyond_the_dense_limit_softmax_is_solved_without_a_factor() -> None:
    rng, d, classes = np.random.default_rng(0), 70, 10
    problem = Softmax(d, classes)
    assert not problem.keeps_factor
    features = rng.standard_normal((80, d))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    c = Case(problem, features, rng.integers(0, classes, 80).astype(np.int32), np.zeros(problem.dim))
    with jax.enable_x64(True):
        s = HeldShard(
            problem, jnp.asarray(c.features), jnp.asarray(c.targets), jnp.asarray(80, jnp.int32), jnp.asarray(1 / 80),
            jnp.asarray(1e-3), SolverSettings(max_steps=1000),
        )  # fmt: skip
    got = solve(s, np.zeros(problem.dim), 0.0, tolerance=1e-10)
    assert np.linalg.norm(slope(s, got.x, np.zeros(problem.dim), 0.0)[1]) <= 1e-10


@pytest.mark.parametrize("name", ["logistic", "softmax", "custom"])
def test_a_warm_start_takes_fewer_steps(name: str) -> None:
    """The next round's subproblem differs a little: the kept point and factor save work and reach the same answer."""
    s, linear = problem_shard(name), linear_term(PROBLEMS[name].dim)
    first = solve(s, linear)
    following = linear + 1e-3
    warm, cold = solve(s, following, solver=first), solve(s, following)
    np.testing.assert_allclose(warm.x, cold.x, atol=1e-9)
    assert int(warm.steps) - int(first.steps) < int(cold.steps)
    again = solve(s, linear, solver=first)
    assert int(again.steps) - int(first.steps) == 1  # one look is enough to see that it is solved


def test_a_stale_factor_costs_steps_but_never_accuracy() -> None:
    """A warm start from quite another problem (its labels flipped, its curvature a thousandth)."""
    c = case("logistic", rows=60)
    other = shard(c._replace(targets=-c.targets, features=0.01 * c.features), ridge=0.05, padding=4)
    stale = solve(other, 40 * linear_term(FEATURES), 1e-3)
    s, linear = problem_shard("logistic"), linear_term(FEATURES)
    got = solve(s, linear, solver=stale)
    assert np.linalg.norm(slope(s, got.x, linear)[1]) <= 1e-10


def test_what_is_learnt_of_one_subproblem_helps_with_those_that_follow() -> None:
    """Subproblems like an agent's: the same records, tilted by new noise about a point that is far from the start."""
    rng, dim = np.random.default_rng(0), 30
    features = rng.standard_normal((200, dim))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    labels = np.where(features[:, 0] > 0, 1.0, -1.0)
    s = shard(Case(Logistic(dim), features, labels, np.zeros(dim)), ridge=1e-3)
    tilts = 0.02 * rng.standard_normal((30, dim))
    kept = put_back = first = solve(s, tilts[0], 1e-3)
    for tilt in tilts[1:]:
        kept = solve(s, tilt, 1e-3, solver=kept)
        put_back = solve(s, tilt, 1e-3, solver=eqx.tree_at(lambda s: s.inverse, put_back, first.inverse))
        assert max(float(kept.residual), float(put_back.residual)) <= 1e-11
    assert int(kept.steps) < 0.85 * int(put_back.steps)


@pytest.mark.parametrize("late", [False, True])
def test_in_a_batch_of_answers_that_are_good_enough_nobody_looks_at_the_records_again(late: bool) -> None:
    looked = []

    def one(x: jax.Array, residual: jax.Array) -> Solver:
        def gradient(v: jax.Array) -> jax.Array:
            jax.debug.callback(lambda: looked.append(1))
            return v - 1.0

        solver = Solver.fresh(x, keep=False).at(x, residual, jnp.array(0))
        return surely(gradient, jnp.zeros(2), 2.0, 1.0, 2.0, solver, 1e-6, fixed=False)

    with jax.enable_x64(True):
        found = jnp.asarray([[1.0, 1.0], [0.5, 0.5], [1.0, 1.0]]), jnp.asarray([0.0, 0.7 if late else 0.0, 0.0])
        got = jax.jit(jax.vmap(one))(*found)
        jax.effects_barrier()
    assert (len(looked) > 0) == late
    points = np.asarray(got.x)
    np.testing.assert_allclose(points[1], [1.0, 1.0] if late else [0.5, 0.5], atol=1e-6)
    np.testing.assert_array_equal(points[[0, 2]], 1.0)


@pytest.mark.parametrize("strength", [0.0, 20.0, 1e4])
def test_hard_logistic_subproblems(strength: float) -> None:
    """Separable records, next to no regularizer, and a linear term that drives the answer far out."""
    features = np.eye(FEATURES)
    c = Case(Logistic(FEATURES), features, np.ones(FEATURES), np.zeros(FEATURES))
    s = shard(c, ridge=1e-6)
    linear = -strength * 1e-6 * np.ones(FEATURES)
    got = solve(s, linear, 0.0, tolerance=1e-10)
    assert np.linalg.norm(slope(s, got.x, linear, 0.0)[1]) <= 1e-10


# -- what cannot fail --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["logistic", "softmax", "hinge"])
def test_fixed_work_is_the_same_whatever_the_data_and_solves_all_the_same(name: str) -> None:
    linear = linear_term(PROBLEMS[name].dim)
    counts = set()
    for seed in (1, 2):
        for factor in (1.0, 30.0):
            got = solve(problem_shard(name, seed=seed, fixed=True), factor * linear)
            counts.add(int(got.steps))
            assert np.linalg.norm(slope(problem_shard(name, seed=seed), got.x, factor * linear)[1]) <= 1e-11
    assert len(counts) == 1
    free = {int(solve(problem_shard(name, seed=s), f * linear).steps) for s in (1, 2) for f in (1.0, 30.0)}
    assert len(free) > 1, "the free mode must depend on the data, or this test could not fail"


@pytest.mark.parametrize("low", [0.01, 0.2, 3.0])
@pytest.mark.parametrize("bend", [0.01, 0.25, 40.0])
def test_the_number_of_sure_steps_is_enough_in_the_worst_case(low: float, bend: float) -> None:
    """Quadratics with both extreme curvatures, started as far away as is promised, in the slowest direction or both."""
    tolerance, far = 1e-7, 5.0
    with jax.enable_x64(True):
        steps, _, _ = sure_steps(far, low, low + bend, tolerance)
        for towards in ([1.0, 0.0], [0.0, 1.0], [0.7**0.5, 0.3**0.5]):
            got = _surely(far * np.array(towards), far, low, bend, tolerance)
            assert int(got.steps) == int(steps)
            assert float(got.residual) <= tolerance
            few = _surely(far * np.array(towards), far, low, bend, 1e3 * tolerance)
            assert int(few.steps) < int(steps)


@jax.jit
def _surely(best: jax.Array, far: jax.Array, low: jax.Array, bend: jax.Array, tolerance: jax.Array) -> Solver:
    slope = lambda x: jnp.stack([low, low + bend]) * (x - best)  # noqa: E731
    return surely(slope, jnp.zeros(2), far, low, low + bend, Solver.fresh(jnp.zeros(2), False), tolerance, True)


SHARP, FLAT = 1e-3, 2e-3  # width of the corner, and a penalty that hardly bends


def cornered(width: float, count: int = 100, seed: int = 0) -> Shard:
    """Hinge losses with so sharp a corner that Newton's steps jump over it, and many records with margins at it."""
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((count, FEATURES))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    problem = Hinge(FEATURES, width=width)
    c = Case(problem, features, rng.choice([-1.0, 1.0], count), np.zeros(FEATURES))
    return shard(c, ridge=1e-3)


@pytest.mark.parametrize("width", [0.05, SHARP])
def test_no_loss_and_no_neighbour_leaves_a_residual_above_the_tolerance(width: float) -> None:
    tried = []
    for seed in range(3):
        s = cornered(width, seed=seed)
        for far in (0.0, 1.0, 300.0):  # how far away the neighbours stand
            linear = -FLAT * far * np.ones(FEATURES)
            got = solve(s, linear, FLAT, tolerance=1e-7)
            tried.append(float(got.residual))
            assert np.linalg.norm(slope(s, got.x, linear, FLAT)[1]) <= 1e-7
    assert max(tried) <= 1e-7


@eqx.filter_jit
def _alone(s: Shard) -> Solver:
    bent = lambda x: s.hessian(x) + FLAT * jnp.eye(FEATURES)  # noqa: E731
    return newton_like(
        lambda x: s.slope(x) + FLAT * x, bent, s.solver(jnp.zeros(FEATURES)), SolverSettings(), 1e-7
    )  # fmt: skip


def test_the_fast_solver_alone_would_have_failed_on_corners() -> None:
    """What the steps that cannot fail are for: without them the residual stays far above the tolerance."""
    with jax.enable_x64(True):
        left = []
        for seed in range(6):
            left.append(float(_alone(cornered(SHARP, seed=seed)).residual))
    assert max(left) > 1e-3


# -- steps that contract -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["logistic", "hinge", "squared", "softmax", "mean", "custom", "logistic-ball"])
def test_steps_bring_any_two_points_closer_by_the_stated_rate(name: str) -> None:
    c = case(name, rows=30)
    if name == "custom":
        c = c._replace(problem=Custom.make(robust, {"w": np.zeros(FEATURES), "b": 0.0}, smoothness=2.0, convex=True))
    s, rng = shard(c, ridge=0.05), np.random.default_rng(3)
    dim = c.problem.dim
    rate = c.problem.smoothness / (2 * (0.05 + CURVATURE) + c.problem.smoothness)
    with jax.enable_x64(True):
        linear = jnp.asarray(linear_term(dim))
        for steps in (1, 3, 10):
            go = jax.jit(lambda x, steps=steps: s.descend(x, linear, CURVATURE, steps))
            for scale in (0.1, 3.0):
                x, y = scale * rng.standard_normal((2, dim))
                before, after = np.linalg.norm(x - y), np.linalg.norm(go(jnp.asarray(x)) - go(jnp.asarray(y)))
                assert after <= before * rate**steps * (1 + 1e-9) + 1e-15


@pytest.mark.parametrize("name", ["logistic", "hinge", "softmax"])
def test_many_steps_reach_the_minimiser(name: str) -> None:
    s, linear = problem_shard(name), linear_term(PROBLEMS[name].dim)
    with jax.enable_x64(True):
        x = s.descend(jnp.zeros(PROBLEMS[name].dim), jnp.asarray(linear), CURVATURE, 300)
    np.testing.assert_allclose(x, solve(s, linear).x, atol=1e-10)


@pytest.mark.parametrize("name", ["custom", "tanh-net"])
def test_steps_on_a_loss_that_need_not_contract_are_refused(name: str) -> None:
    s = problem_shard(name)
    with jax.enable_x64(True), pytest.raises(InputError, match="need not contract"):
        s.descend(jnp.zeros(s.problem.dim), jnp.zeros(s.problem.dim), 1.0, 3)


# -- with constraints: KKT and SciPy -----------------------------------------------------------------------------------


def test_ball() -> None:
    """At the sphere the negative gradient points outward along x: x = −r g/‖g‖; inside, it vanishes."""
    s, linear = problem_shard("logistic-ball"), linear_term(FEATURES)
    got = solve(s, linear)
    gradient = slope(s, got.x, linear)[1]
    assert np.linalg.norm(got.x) == pytest.approx(0.4, abs=1e-12)
    np.testing.assert_allclose(got.x, -0.4 * gradient / np.linalg.norm(gradient), atol=1e-9)
    strong = solve(s, 0.01 * linear, 50.0)  # a minimiser inside
    assert np.linalg.norm(strong.x) < 0.1
    assert np.linalg.norm(slope(s, strong.x, 0.01 * linear, 50.0)[1]) <= 1e-9


def test_box() -> None:
    """Zero slope inside, inward slope at a bound; the same point as SciPy's bounded solver."""
    s, linear = problem_shard("logistic-box"), np.array([0.3, -0.02, 0.01, -0.2])
    got = solve(s, linear)
    x, gradient = np.asarray(got.x), slope(s, got.x, linear)[1]
    low, high = x <= -0.3 + 1e-12, x >= 0.25 - 1e-12
    assert (low | high).any()
    assert not (low | high).all()
    assert (gradient[low] > -1e-9).all()
    assert (gradient[high] < 1e-9).all()
    assert np.abs(gradient[~low & ~high]).max() < 1e-9
    peer = minimize(
        lambda v: slope(s, v, linear), np.zeros(FEATURES), jac=True, method="L-BFGS-B", bounds=[(-0.3, 0.25)] * 4,
        options={"ftol": 1e-16, "gtol": 1e-12},
    )  # fmt: skip
    np.testing.assert_allclose(x, peer.x, atol=1e-7)


@pytest.mark.parametrize("name", ["logistic-ball", "logistic-box"])
def test_the_constrained_residual_bounds_the_error(name: str) -> None:
    """‖x − x*‖ ≤ residual / m after any number of steps, which is what solver error is charged by."""
    s, linear = problem_shard(name), linear_term(FEATURES)
    exact = np.asarray(solve(s, linear).x)
    for tolerance in (1.0, 1e-2, 1e-4):
        got = solve(s, linear, tolerance=tolerance)
        assert np.linalg.norm(np.asarray(got.x) - exact) <= float(got.residual) / (0.05 + CURVATURE) + 1e-12


@pytest.mark.parametrize("name", ["logistic", "custom"])
def test_the_residual_bounds_the_error(name: str) -> None:
    s, linear = problem_shard(name), linear_term(PROBLEMS[name].dim)
    exact = np.asarray(solve(s, linear).x)
    for tolerance in (0.3, 1e-2, 1e-4):
        got = solve(s, linear, tolerance=tolerance)
        true = np.linalg.norm(slope(s, got.x, linear)[1])
        assert float(got.residual) == pytest.approx(true, rel=1e-9, abs=1e-13)
        assert np.linalg.norm(np.asarray(got.x) - exact) <= true / (0.05 + CURVATURE) + 1e-12


def test_mean_over_the_box() -> None:
    s = problem_shard("mean")
    data = case("mean", rows=60).features.mean(0)
    linear = np.array([0.0, 5.0, -5.0, 0.01])
    want = np.clip((data - linear) / (1 + 0.05 + CURVATURE), -1, 1)
    np.testing.assert_allclose(solve(s, linear).x, want, atol=1e-10)


@pytest.mark.parametrize("shape", [Ball(0.5), Box(-0.2, 0.2)])
@pytest.mark.parametrize("kind", mostly_slow(["net", "custom"], "net"))
def test_constrained_problems_without_a_curvature_bound(kind: str, shape: Ball | Box) -> None:
    """No public smoothness: the step must be found. A stationary point of the constrained problem, not the start."""
    c = case("custom" if kind == "custom" else "tanh-net", rows=30)
    problem: Problem = Perceptron((FEATURES, 5, 3), "tanh", constraint=shape)
    if kind == "custom":
        problem = Custom.make(PROBLEMS["custom"].loss, {"w": np.zeros(FEATURES), "b": 0.0}, constraint=shape)
    s = shard(c._replace(problem=problem), ridge=0.05, how=SolverSettings(max_steps=400))
    linear = linear_term(problem.dim)
    with jax.enable_x64(True):
        start = s.solver(problem.project(jnp.asarray(problem.start(0))))
        got = solve(s, linear, solver=start, tolerance=1e-7)
        x = np.asarray(got.x)
        value, gradient = slope(s, x, linear)
        step = np.asarray(problem.project(jnp.asarray(x - 0.1 * gradient)))
    assert np.linalg.norm(step - x) <= 1e-6
    assert float(got.residual) <= 1e-7
    assert value < slope(s, np.asarray(start.x), linear)[0] - 1e-3


def test_single_precision_stays_single() -> None:
    c = case("logistic", rows=30)
    s = jax.tree.map(lambda v: v.astype(jnp.float32) if v.dtype == np.float64 else v, shard(c))
    zero = jnp.zeros(FEATURES)
    x, solver = eqx.filter_jit(s.argmin)(zero, jnp.float32(0.2), s.solver(zero), jnp.float32(1e-5))
    assert x.dtype == jnp.float32
    assert float(solver.residual) <= 1e-5


def test_what_is_learnt_of_tiny_curvatures_stays_finite() -> None:
    """In single precision the square of 1/⟨step, change⟩ overflows where the objective is 1e-12 of the usual."""
    rng = np.random.default_rng(0)
    with jax.enable_x64(False):
        half = jnp.asarray(rng.normal(size=(8, 8)) / 8, jnp.float32)
        bend = 1e-12 * (half @ half.T + 0.1 * jnp.eye(8))

        @jax.jit
        def solved(solver: Solver, tilt: jax.Array) -> Solver:
            slope = lambda x: bend @ x + 1e-12 * jnp.sin(x) / 4 + tilt  # noqa: E731
            hessian = lambda x: bend + jnp.diag(1e-12 * jnp.cos(x) / 4)  # noqa: E731
            return newton_like(slope, hessian, solver, SolverSettings(), 1e-17)

        solver = Solver.fresh(jnp.zeros(8), True)
        for _ in range(6):
            solver = solved(solver, jnp.asarray(1e-13 * rng.normal(size=8), jnp.float32))
            assert np.isfinite(solver.inverse).all()
            assert solver.residual <= 1e-17


def test_fewer_records_than_features_and_no_regularizer() -> None:
    """The minimiser is not unique and the Hessian singular; still a minimiser is found, and the residual is honest."""
    c = case("squared", rows=2, seed=4)
    c = c._replace(features=case("squared", rows=9).features[:2])
    got = solve(shard(c, ridge=0.0), np.zeros(FEATURES), 0.0, tolerance=1e-9)
    np.testing.assert_allclose(c.features @ np.asarray(got.x), c.targets, atol=1e-7)
    assert float(got.residual) <= 1e-9


@pytest.mark.parametrize("name", ["squared", "custom", "tanh-net", "mean"])
def test_fixed_work_needs_facts_that_prove_it_enough(name: str) -> None:
    s = problem_shard(name, fixed=True)
    with pytest.raises(InputError, match="no number of steps is known"):
        solve(s, np.zeros(s.problem.dim))
