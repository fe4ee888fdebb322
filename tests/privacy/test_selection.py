"""Private selection against dp-accounting's own implementation, direct sums, and exact small cases."""

from __future__ import annotations

from itertools import pairwise

import dp_accounting
import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant
from scipy.special import gammaln, logsumexp

from coterie.errors import InputError
from coterie.privacy import gdp, rdp
from coterie.privacy.selection import (
    draw_runs,
    gamma_for,
    mean_runs,
    mu_for_selection,
    selected,
    selection_epsilon,
)

DELTA = 1e-5


def gaussian(mu: float):
    return lambda orders: rdp.gaussian(np.array([mu]), orders)[0]


def law(gamma: float, shape: float, upto: int = 400_000) -> np.ndarray:
    """P(k), k = 1, 2, …, from the definition, normalised by its sum."""
    k = np.arange(1, upto + 1)
    log = k * np.log1p(-gamma) + gammaln(k + shape) - gammaln(k + 1)
    weights = np.exp(log - log.max())
    return weights / weights.sum()


@pytest.mark.parametrize("shape", [-0.5, 0.0, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("mean", [1.5, 10.0, 60.0])
def test_mean_of_the_law_is_its_sum(shape: float, mean: float) -> None:
    gamma = gamma_for(mean, shape)
    assert mean_runs(gamma, shape) == pytest.approx(mean, rel=1e-9)
    p = law(gamma, shape)
    assert p @ np.arange(1, p.size + 1) == pytest.approx(mean, rel=1e-6)


@pytest.mark.parametrize("shape", [-0.5, 0.0, 1.0, 2.0])
def test_runs_are_drawn_from_the_law(shape: float) -> None:
    rng = np.random.default_rng(1)
    drawn = np.array([draw_runs(6.0, shape, rng) for _ in range(8000)])
    assert drawn.min() == 1
    p = law(gamma_for(6.0, shape), shape)
    edges = [1, 2, 3, 5, 9, 17, 10**9]
    seen = np.histogram(drawn, edges)[0]
    want = np.array([p[a - 1 : b - 1].sum() for a, b in pairwise(edges)]) * drawn.size
    chi = np.sum((seen - want) ** 2 / want)
    assert chi < 20.5  # 5 degrees of freedom, p = 0.001
    off = law(gamma_for(12.0, shape), shape)  # the broken twin: a mean of 12 instead of 6
    wrong = np.array([off[a - 1 : b - 1].sum() for a, b in pairwise(edges)]) * drawn.size
    assert np.sum((seen - wrong) ** 2 / wrong) > 20.5


@pytest.mark.parametrize("shape", [0.0, 0.5, 1.0, np.inf])
@pytest.mark.parametrize(("mu", "mean"), [(0.05, 10.0), (0.3, 2.0), (0.3, 100.0), (1.0, 10.0)])
def test_epsilon_is_that_of_an_independent_accountant(shape: float, mu: float, mean: float) -> None:
    ours = selection_epsilon(gaussian(mu), mean, shape, DELTA)
    orders = list(1 + np.geomspace(1e-2, 3e3, 250))
    theirs = RdpAccountant(orders, dp_accounting.NeighboringRelation.REPLACE_ONE)
    theirs.compose(dp_event.RepeatAndSelectDpEvent(dp_accounting.GaussianDpEvent(1 / mu), mean, shape))
    assert ours == pytest.approx(theirs.get_epsilon(DELTA), rel=2e-3)


def test_formula_of_the_theorem_term_by_term() -> None:
    mean, shape, mu, hat = 10.0, 1.0, 0.4, 7.0
    gamma = gamma_for(mean, shape)
    orders = np.array([2.0, 5.0, 20.0])
    at_hat = mu**2 / 2 * orders + 2 * (1 - 1 / hat) * mu**2 / 2 * hat + 2 * np.log(1 / gamma) / hat
    bound = at_hat + np.log(mean) / (orders - 1)
    got = selected(gaussian(mu), mean, shape)(orders)
    assert np.all(got <= bound)  # the best α̂ is no worse than this one
    hats = np.linspace(1, 60, 200_001)
    extra = np.min(2 * (1 - 1 / hats) * mu**2 / 2 * hats + 2 * np.log(1 / gamma) / hats)
    np.testing.assert_allclose(got, mu**2 / 2 * orders + extra + np.log(mean) / (orders - 1), rtol=1e-3)


def exact_selection(pair: np.ndarray, runs: np.ndarray) -> np.ndarray:
    """Law of the best of K runs of a mechanism on {0, 1, …}, higher is better, from P(K = k)."""
    below = np.concatenate([[0.0], np.cumsum(pair)])
    k = np.arange(1, runs.size + 1)
    with np.errstate(under="ignore"):
        generating = np.array([runs @ b**k for b in below])
    return np.diff(generating)


@pytest.mark.parametrize("shape", [0.0, 1.0])
def test_bound_holds_for_a_mechanism_whose_selection_is_known(shape: float) -> None:
    """Randomised response with 3 outcomes, selection by the outcome: D'_α computed exactly is within the bound."""
    p, q = np.array([0.95, 0.03, 0.02]), np.array([0.95, 0.02, 0.03])
    renyi = lambda a, b, al: logsumexp(al * np.log(a) + (1 - al) * np.log(b)) / (al - 1)  # noqa: E731
    curve = lambda orders: np.array([max(renyi(p, q, a), renyi(q, p, a)) for a in orders])  # noqa: E731
    runs = law(gamma_for(5.0, shape), shape)
    best_p, best_q = exact_selection(p, runs), exact_selection(q, runs)
    orders = np.array([1.5, 2.0, 4.0, 16.0])
    exact = np.array([max(renyi(best_p, best_q, a), renyi(best_q, best_p, a)) for a in orders])
    bound = selected(curve, 5.0, shape)(orders)
    assert np.all(exact <= bound)
    assert np.any(exact > curve(orders))  # the broken twin: one run's own curve is no bound on the best of many


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
@pytest.mark.parametrize("shape", [0.0, 1.0])
def test_mu_for_selection_spends_the_budget_and_no_more(epsilon: float, shape: float) -> None:
    mu = mu_for_selection(epsilon, DELTA, 9.0, shape)
    spent = selection_epsilon(gaussian(mu), 9.0, shape, DELTA)
    assert spent <= epsilon
    assert spent == pytest.approx(epsilon, rel=1e-6)
    assert selection_epsilon(gaussian(1.01 * mu), 9.0, shape, DELTA) > epsilon
    assert mu < gdp.mu_for(epsilon, DELTA)


@pytest.mark.parametrize(("mean", "shape"), [(1.0, 1.0), (0.5, 0.0), (5.0, -1.0), (np.inf, 1.0)])
def test_impossible_laws_are_refused(mean: float, shape: float) -> None:
    with pytest.raises(InputError):
        selected(gaussian(0.1), mean, shape)
