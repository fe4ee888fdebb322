"""Coupled problems: gaps of classes, exact steps, optimality residuals, what an opened sum gives away, wrong input."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from coterie.errors import InputError
from coterie.problems.coupled import Coupled, CoupledAgent, Curved, Quadratic, quadratic_agent, smooth_agent


def log_cosh(data: tuple, x: jax.Array) -> jax.Array:
    """Σ_k log cosh(z_k·x − t_k) + ½‖x‖²: curvature between 1 and 1 + ‖Z‖²."""
    z, t = data
    return jnp.sum(jnp.logaddexp(z @ x - t, t - z @ x)) + 0.5 * jnp.sum(x**2)


def curved(seed: int, dim: int, **more: object) -> CoupledAgent:
    rng = np.random.default_rng(seed)
    z, t = 0.5 * rng.standard_normal((4, dim)), rng.standard_normal(4)
    return smooth_agent(log_cosh, (z, t), dim, strong=1.0, smooth=1 + np.linalg.norm(z, 2) ** 2, **more)


# ---- what a class promises -------------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 4), st.sampled_from([1, 7]))
def test_gap_bounds_every_pair_of_costs_and_is_attained(seed: int, dim: int, records: int) -> None:
    rng = np.random.default_rng(seed)
    low, high = -rng.uniform(0, 3, dim), rng.uniform(0, 3, dim)
    a, b = np.sort(rng.uniform(0.5, 2, (2, dim)), axis=0), np.sort(rng.normal(size=(2, dim)), axis=0)
    agent = quadratic_agent(
        a.mean(axis=0), b.mean(axis=0), low=low, high=high, curvature_range=(a[0], a[1]), slope_range=(b[0], b[1]),
        records=records,
    )  # fmt: skip

    def apart(a1: np.ndarray, b1: np.ndarray, a2: np.ndarray, b2: np.ndarray, x: np.ndarray) -> tuple[float, ...]:
        """Norms of the gradients' difference when one of `records` equally weighted records changes."""
        change = ((a1 - a2) * x + b1 - b2) / records
        return tuple(float(np.linalg.norm(change, q)) for q in (1, 2, np.inf))

    for _ in range(50):
        u = rng.uniform(size=(4, dim))
        x = low + rng.uniform(size=dim) * (high - low)
        found = apart(*(r[0] + u[k] * (r[1] - r[0]) for k, r in enumerate((a, b, a, b))), x)
        assert all(f <= g * (1 + 1e-12) for f, g in zip(found, agent.gap, strict=True))
    far = np.where(high >= -low, high, low)  # the corner of the largest |x|: the steep world is above or below there
    sign = far >= 0
    worst = apart(a[1], np.where(sign, b[1], b[0]), a[0], np.where(sign, b[0], b[1]), far)
    np.testing.assert_allclose(worst, agent.gap, rtol=1e-12)
    assert agent.strong == a[0].min()
    assert agent.smooth == a[1].max()


def test_a_clipped_gradient_keeps_its_gap_whatever_the_function() -> None:
    agents = [curved(s, 3, clip=0.5) for s in range(20)]
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        slopes = [np.asarray(a.cost.gradient(jnp.asarray(rng.normal(size=3) * 5))) for a in agents]
    gaps = [np.linalg.norm(u - v) for u in slopes for v in slopes]
    assert max(gaps) <= agents[0].gap.l2 == 1.0
    assert max(gaps) > 0.8
    with pytest.raises(InputError, match="first-order"):
        agents[0].cost.prox(*(jnp.zeros(3),) * 2, jnp.ones(()), *(jnp.zeros(3),) * 2, Curved(0.1, 1.0))


# ---- the exact step --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_prox_is_the_constrained_minimiser(seed: int) -> None:
    rng = np.random.default_rng(seed)
    low, high = np.array([-0.3, -5.0, 0.1]), np.array([0.2, 5.0, 0.9])
    agents = (
        quadratic_agent(rng.uniform(0.5, 2, 3), rng.normal(size=3), low=low, high=high),
        curved(seed, 3, low=low, high=high),
    )
    linear, centre, weight = rng.normal(size=3), rng.uniform(low, high), 0.7
    for agent in agents:
        with jax.enable_x64(True):
            args = (jnp.asarray(v) for v in (linear, centre, weight, low, high))
            got = np.asarray(agent.cost.prox(*args, Curved(agent.strong, agent.smooth)))

            def value(x: np.ndarray, agent: CoupledAgent = agent) -> float:
                with jax.enable_x64(True):
                    return float(agent.cost.value(jnp.asarray(x))) + linear @ x + weight / 2 * np.sum((x - centre) ** 2)

        best = minimize(value, centre, bounds=list(zip(low, high, strict=True)), tol=1e-13).x
        assert value(got) <= value(best) + 1e-12
        np.testing.assert_allclose(got, best, atol=2e-5)


# ---- optimality ------------------------------------------------------------------------------------------------------


def test_kkt_is_zero_at_the_optimum_and_nowhere_near_it() -> None:
    """Three shares of 3 with wishes 1, 2, 9, each at most 2: λ = −1 and x = (0, 1, 2) by hand."""
    agents = [quadratic_agent(1.0, -t, high=2.0) for t in (1.0, 2.0, 9.0)]
    problem = Coupled(agents, 3.0)
    best, price = [np.array([v]) for v in (0.0, 1.0, 2.0)], np.array([-1.0])
    assert max(problem.kkt(best, price)) == 0
    assert problem.objective(best) == pytest.approx(0 + (0.5 - 2) + (2 - 18))
    assert problem.kkt(best, price + 0.1).stationarity == pytest.approx(0.1)
    moved = [best[0] + 0.1, best[1] - 0.1, best[2]]
    assert problem.kkt(moved, price).feasibility < 1e-15
    assert problem.kkt(moved, price).stationarity == pytest.approx(0.1)
    assert problem.kkt([best[0] + 0.1, *best[1:]], price).feasibility == pytest.approx(0.1)


# ---- what an opened sum gives away -----------------------------------------------------------------------------------


def test_sums_hide_exactly_when_no_pair_of_honest_agents_can_be_told_apart() -> None:
    rng = np.random.default_rng(0)
    path = np.array([[1.0, -1, 0, 0], [0, 1, -1, 0], [0, 0, 1, -1]])
    square = rng.normal(size=(2, 2))
    cases = {
        "one demand": [np.ones((1, 1))] * 4,
        "weighted": [np.array([[w]]) for w in (1.0, -2.0, 0.5)],
        "wide": [rng.normal(size=(2, 3)) for _ in range(4)],
        "mixed": [square, np.eye(2), rng.normal(size=(2, 2))],
        "incidence": [path[:, [i]] for i in range(4)],
        "own row": [np.array([[1.0], [0.0]]), np.array([[1.0], [0.0]]), np.array([[1.0], [1.0]])],
    }
    for name, blocks in cases.items():
        agents = [quadratic_agent(np.ones(a.shape[1]), np.zeros(a.shape[1]), matrix=a) for a in blocks]
        hides = Coupled(agents, np.zeros(blocks[0].shape[0])).sums_hide

        def isolates(own: np.ndarray, other: np.ndarray) -> bool:
            """Some y with y·other = 0 and y·own ≠ 0: all others collude, and one honest agent is left beside."""
            left = np.linalg.svd(other)[0][:, np.linalg.matrix_rank(other) :]
            return bool(np.abs(left.T @ own).max(initial=0) > 1e-9)

        pairs = [(a, b) for i, a in enumerate(blocks) for j, b in enumerate(blocks) if i != j]
        assert hides == (not any(isolates(a, b) for a, b in pairs)), name
        assert hides == (name not in ("incidence", "own row"))


def test_message_bound_is_the_largest_entry_that_can_be_sent() -> None:
    agents = [
        quadratic_agent([1.0, 1.0], [0.0, 0.0], matrix=[[1.0, -2.0]], low=[0, -1], high=[3, 4]),
        quadratic_agent(1.0, 0.0, matrix=[[0.5]], low=-4, high=4),
    ]
    assert Coupled(agents, 0.0).message_bound == 8.0  # 0 − 2·4
    assert Coupled([quadratic_agent(1.0, 0.0)], 0.0).message_bound == np.inf


# ---- mistakes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: quadratic_agent(0.0, 1.0), "curvature must be > 0"),
        (lambda: quadratic_agent(1.0, 5.0, slope_range=(0, 4)), "outside its public range"),
        (lambda: quadratic_agent(1.0, 1.0, curvature_range=(0.5, 2), slope_range=(0, 4)), "needs finite bounds"),
        (lambda: quadratic_agent(1.0, 1.0, low=2, high=1), "low must be <= high"),
        (lambda: quadratic_agent(1.0, 1.0, low=0, high=1, start=3.0), "outside the bounds"),
        (lambda: quadratic_agent(1.0, 1.0, records=0), "records must be >= 1"),
        (lambda: quadratic_agent(1.0, 1.0, matrix=[[1.0, 2.0]]), "1 columns"),
        (lambda: smooth_agent(log_cosh, (), 2, strong=2.0, smooth=1.0), "strong <= smooth"),
        (lambda: smooth_agent(log_cosh, (), 2, strong=1.0, smooth=2.0, gap=1.0, clip=1.0), "not both"),
        (lambda: Coupled([], 1.0), "at least one agent"),
        (lambda: Coupled([quadratic_agent(1.0, 0.0)], [1.0, 2.0]), "matrix has 1 rows, total has 2"),
        (lambda: Coupled([quadratic_agent(1.0, 0.0, low=0, high=9)] * 2, 20.0), "can make 0 to 18, total asks 20"),
    ],
)
def test_mistakes_are_named(make: object, says: str) -> None:
    with pytest.raises(InputError, match=says):
        make()  # type: ignore[operator]


def test_costs_are_private_and_the_rest_is_public() -> None:
    """Two costs of one class make agents that differ in nothing else."""
    one, two = (quadratic_agent(1.0, b, low=0, high=2, slope_range=(0, 3)) for b in (1.0, 2.5))
    assert isinstance(one.cost, Quadratic)
    for name in ("matrix", "low", "high", "start", "strong", "smooth", "gap"):
        assert np.array_equal(getattr(one, name), getattr(two, name)), name
