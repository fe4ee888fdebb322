"""Bounds against direct simulation on quadratics and against their own definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.algorithms._penalty import jacobian_penalty, private_penalty
from coterie.algorithms.base import Public
from coterie.algorithms.pr_admm import paper_threshold, paper_threshold_from
from coterie.errors import InputError
from coterie.privacy import gdp
from reproduction.bounds import objective_gap_bound
from tests.algorithms.moves import public

RING = np.roll(np.eye(5), 1, 0) + np.roll(np.eye(5), -1, 0)


def mean_gap(curvature: float, start: float, sigma: float, eta: float, rounds: int, runs: int = 400) -> float:
    """Mean of Σ f_i(x̄_i) − f* over noisy ADMM runs, f_i = curvature/2 (x − c_i)², ring of 5; x̄ of the exact x's."""
    rng = np.random.default_rng(0)
    c = np.array([0.0, 2.0, -1.0, 4.0, 1.0])
    x = np.full((runs, 5), start)
    dual, total = np.zeros((runs, 5)), np.zeros((runs, 5))
    for _ in range(rounds):
        exact = (curvature * c - dual + eta * (2 * x + x @ RING)) / (curvature + 4 * eta)
        total += exact
        x = exact + sigma * rng.standard_normal((runs, 5))
        dual += eta * (2 * x - x @ RING)
    f = lambda v: curvature / 2 * np.sum((v - c) ** 2, axis=-1)  # noqa: E731
    return float(np.mean(f(total / rounds)) - f(np.full(5, c.mean())))


@pytest.mark.parametrize("sigma", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("curvature", [1e-3, 1.0])
def test_objective_gap_bound_holds_on_quadratics(sigma: float, curvature: float) -> None:
    for rounds in (3, 20):
        bound = objective_gap_bound(0.5, np.full(5, 2), np.full((rounds, 5), sigma), abs(10.0 - 1.2), 1)
        assert mean_gap(curvature, 10.0, sigma, 0.5, rounds) <= bound


def test_printed_initial_term_is_too_small() -> None:
    """With L₋ a common start costs nothing; a noiseless run then already breaks the bound."""
    assert mean_gap(1.0, 10.0, 0.0, 0.5, 5) > objective_gap_bound(0.5, np.full(5, 2), np.zeros((5, 5)), 0.0, 1) + 1.0


@given(st.lists(st.integers(1, 9), min_size=2, max_size=6), st.integers(1, 5), st.floats(0, 3))
def test_objective_gap_bound_is_its_formula(degrees: list[int], rounds: int, distance: float) -> None:
    sigma = np.arange(1, rounds * len(degrees) + 1, dtype=float).reshape(rounds, len(degrees)) / 10
    noise = sum(d * s**2 for row in sigma for d, s in zip(degrees, row, strict=True))
    want = 0.3 / rounds * (sum(degrees) * distance**2 + 7 * noise)
    assert objective_gap_bound(0.3, degrees, sigma, distance, 7) == pytest.approx(want, rel=1e-12)


def test_objective_gap_bound_refuses_misuse() -> None:
    with pytest.raises(InputError, match="shape"):
        objective_gap_bound(0.5, [2, 2], [[0.1, 0.1, 0.1]], 1.0, 1)
    with pytest.raises(InputError, match="penalty"):
        objective_gap_bound(0.0, [2, 2], [[0.1, 0.1]], 1.0, 1)


def test_paper_threshold_from_the_spectrum() -> None:
    minus = 2 * np.eye(5) - RING
    low = np.linalg.eigvalsh(minus)
    plus = np.linalg.eigvalsh(2 * np.eye(5) + RING)[-1]
    q_max = np.linalg.norm(minus / 2, 2) ** 0.5
    total = (plus + 2 * q_max) * 3.0**2 + 2 * 2.0**2 / (0.5**2 * low[1]) + 1
    got = paper_threshold(0.5, 3.0, 2.0, edges=5, signless_max=plus, laplacian_max=low[-1], connectivity=low[1])
    assert got == pytest.approx(total / (2**0.5 * 5), rel=1e-12)
    assert paper_threshold_from(Public(**public(ridge=0.5)), 0.5) > 10  # never acts: tuned values are .1 to 1
    with pytest.raises(InputError, match="ridge"):
        paper_threshold_from(Public(**public(ridge=0.0)), 0.5)


def test_private_penalty_meets_its_noise_target() -> None:
    """After K releases a unit record's score carries MARGIN_NOISE, computed here from σ and the mean's random walk."""
    facts = Public(**public(rounds=30, count_min=8000, count_max=8000, ridge=1e-4, dim=105, delta=1e-4))
    strong = facts.ridge + 4 * private_penalty(facts)
    mu = float(gdp.mu_for(1.0, 1e-4))
    sigma = 2 / 8000 / strong * 30**0.5 / mu
    assert sigma * 30**0.5 / 5**0.5 == pytest.approx(1.5, rel=1e-9)
    free = Public(**public(ridge=1e-4, dim=105, epsilon=None, delta=None))
    assert private_penalty(free) == pytest.approx((1e-4 * 0.25 / 105) ** 0.5 / 2)
    assert private_penalty(free) < private_penalty(facts)
    assert jacobian_penalty(free) == 0
    with pytest.raises(InputError, match="penalty"):
        private_penalty(Public(**public(lipschitz=math.inf)))
