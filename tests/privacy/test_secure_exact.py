"""Exact samplers: against their series toss by toss, against the laws, and against the tables."""

import math
from collections.abc import Callable
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from scipy import stats

from coterie.privacy import secure_exact
from coterie.privacy.secure_exact import _bernoulli_exp, exact_discrete_gaussian, exact_discrete_laplace
from coterie.privacy.secure_table import DiscreteGaussianTable
from tests.privacy.secure_checks import accepted, gaussian, laplace, p_value
from tests.support import mostly_slow


def many(draw: Callable[[], int], size: int) -> np.ndarray:
    return np.fromiter((draw() for _ in range(size)), np.int64, size)


@pytest.mark.parametrize("variance", mostly_slow([Fraction(9, 4), Fraction(1024**2)], Fraction(9, 4)))
def test_exact_gaussian_draws(variance):
    def draw() -> np.ndarray:
        return many(lambda: exact_discrete_gaussian(variance), 40_000)

    sigma, draws = math.sqrt(variance), draw()
    assert p_value(draws, gaussian, 1.07 * sigma, bins=12) < 1e-6  # χ² non-central by 250: missed with P < 1e-20
    assert p_value(draws, gaussian, sigma) > 1e-3 or accepted(lambda: p_value(draw(), gaussian, sigma), tries=2)


@pytest.mark.parametrize("scale", mostly_slow([Fraction(3, 7), Fraction(5, 2), Fraction(1000)], Fraction(5, 2)))
def test_exact_laplace_draws(scale):
    def draw() -> np.ndarray:
        return many(lambda: exact_discrete_laplace(scale), 30_000)

    spread, draws = float(scale), draw()
    assert p_value(draws, laplace, 1.12 * spread, bins=12) < 1e-6  # χ² non-central by 300
    assert p_value(draws, laplace, spread) > 1e-3 or accepted(lambda: p_value(draw(), laplace, spread), tries=2)


def test_exact_and_table_agree():
    """Two-sample χ², in intervals of equal probability; a table 10 % off is told apart."""
    edges = np.rint(200 * stats.norm.ppf(np.arange(1, 16) / 16))

    def compare(exact: np.ndarray, sigma: float) -> float:
        samples = (exact, DiscreteGaussianTable(sigma).sample(10**6))
        counts = [np.bincount(np.searchsorted(edges, x), minlength=edges.size + 1) for x in samples]
        return float(stats.chi2_contingency(counts).pvalue)

    def draw() -> np.ndarray:
        return many(lambda: exact_discrete_gaussian(200**2), 25_000)

    draws = draw()
    assert compare(draws, 220) < 1e-6  # χ² non-central by 330
    assert compare(draws, 200) > 1e-3 or accepted(lambda: compare(draw(), 200), tries=2)


@pytest.mark.parametrize("gamma", [Fraction(1, 3), 1, 2.5])
def test_exact_bernoulli_exp(gamma):
    def share(claim: float) -> float:
        n, d = Fraction(gamma).as_integer_ratio()
        return float(stats.binomtest(sum(_bernoulli_exp(n, d) for _ in range(20_000)), 20_000, claim).pvalue)

    assert accepted(lambda: share(math.exp(-gamma)))
    assert share(math.exp(-gamma) * 0.7) < 1e-6
    assert _bernoulli_exp(0, 1)


def test_exact_bernoulli_exp_is_the_series(monkeypatch):
    """It ends after k tosses with the right odds and says k is odd; summed over k ≤ 40 that is e^(-γ) to 1e-45."""
    n, d = 3, 5
    total, reached = Fraction(0), Fraction(1)
    for k in range(1, 41):
        sides: list[int] = []

        def toss(side: int, k: int = k, sides: list[int] = sides) -> int:
            sides.append(side)
            return n - 1 if len(sides) < k else n  # the largest success, the smallest failure

        monkeypatch.setattr(secure_exact.secrets, "randbelow", toss)
        said = _bernoulli_exp(n, d)
        assert len(sides) == k
        odds = [Fraction(n, side) for side in sides]
        total += said * reached * (1 - odds[-1])
        reached *= odds[-1]
    with mp.workprec(200):
        assert abs(mp.mpf(total.numerator) / total.denominator - mp.exp(-mp.mpf(n) / d)) < 1e-45
