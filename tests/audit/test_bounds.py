"""Bounds: coverage by exhaustive sums and simulation, the sample sizes of the specification, one run."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import beta, binom, norm

from coterie.audit import bounds
from coterie.errors import InputError
from coterie.privacy import gdp
from tests.support import mostly_slow

MU = {1: 0.268, 2: 0.502, 4: 0.925, 8: 1.666}  # μ of ε at δ = 1e-5, from the specification's table


def counts(hits: int, misses: int, n: int, confidence: float = 0.99) -> bounds.Rates:
    """Rates of an attack with these counts in n transcripts per world."""
    return bounds.rates((np.arange(n) < misses) * 1.0, (np.arange(n) < hits) * 1.0, 0.5, confidence)


def audits(mu: float, n: int, trials: int, seed: int = 0) -> np.ndarray:
    """μ_LB of simulated audits of N(0, 1) against N(μ, 1), threshold in the middle."""
    rng = np.random.default_rng(seed)
    hits, misses = rng.binomial(n, norm.cdf(mu / 2), trials), rng.binomial(n, norm.cdf(-mu / 2), trials)
    return np.array([bounds.mu_bound(counts(h, m, n)) for h, m in zip(hits, misses, strict=True)])


@pytest.mark.parametrize("p", [0.02, 0.3, 0.5, 0.9])
def test_each_limit_covers_in_an_exhaustive_sum(p: float) -> None:
    n = 40
    k = np.arange(n + 1)
    chance = binom.pmf(k, n, p)
    hit = np.array([counts(int(i), 0, n).hit for i in k])
    miss = np.array([counts(0, int(i), n).miss for i in k])
    assert chance[hit > p].sum() <= 0.005
    assert chance[miss < p].sum() <= 0.005
    assert hit[0] == 0
    assert miss[-1] == 1


def test_limits_of_all_and_none() -> None:
    assert counts(10, 0, 10).hit == pytest.approx(0.005 ** (1 / 10))
    assert counts(10, 0, 10).miss == pytest.approx(1 - 0.005 ** (1 / 10))


def test_false_alarms_of_200_audits_of_correct_code_are_rare() -> None:
    for epsilon, mu in MU.items():
        scores = np.random.default_rng(epsilon)
        alarms = 0
        for _ in range(200):
            r = bounds.rates(scores.standard_normal(1000), mu + scores.standard_normal(1000), mu / 2)
            alarms += bounds.mu_bound(r) > mu
        assert alarms <= 2


@pytest.mark.parametrize(
    ("epsilon", "ratio", "n"),
    mostly_slow(
        [(8, 2.0, 80), (4, 2.0, 164), (1, 2.0, 1568), (8, 1.5, 260), (8, 1.25, 928), (2, 1.25, 7296)],
        (8, 2.0, 80),
        (2, 1.25, 7296),
    ),
)
def test_sample_sizes_of_the_specification(epsilon: int, ratio: float, n: int) -> None:
    # ratio: how many times too small the noise is
    caught = np.mean(audits(ratio * MU[epsilon], n, 1000) > MU[epsilon])
    assert caught >= 0.975
    assert np.mean(audits(ratio * MU[epsilon], n // 4, 1000) > MU[epsilon]) < 0.8  # a quarter of it is not enough


def test_mus_of_the_table() -> None:
    for epsilon, mu in MU.items():
        assert gdp.mu_for(float(epsilon), 1e-5) == pytest.approx(mu, abs=6e-4)
        assert bounds.epsilon_of_mu(float(gdp.mu_for(float(epsilon), 1e-5)), 1e-5) == pytest.approx(epsilon, rel=1e-6)
    assert bounds.epsilon_of_mu(0.0, 1e-5) == 0


def test_epsilon_bound_of_randomised_response_covers_and_is_sharp() -> None:
    epsilon, n = 1.2, 3000
    right = 1 / (1 + np.exp(-epsilon))
    rng = np.random.default_rng(1)
    got = np.array(
        [
            bounds.epsilon_bound(counts(h, m, n), 0.0)
            for h, m in zip(rng.binomial(n, right, 500), rng.binomial(n, 1 - right, 500), strict=True)
        ]
    )
    assert np.mean(got > epsilon) <= 0.01
    assert np.median(got) > 0.85 * epsilon


def test_violates_knows_the_claimed_curve() -> None:
    mu = 1.0
    profile = lambda e: float(gdp.delta_of(mu, e))  # noqa: E731
    for x in (-1.0, 0.0, 0.5):
        on = bounds.Rates(float(norm.cdf(mu - x)) - 1e-9, float(norm.cdf(-x)), 0, 0, 1, 0.99)
        above = bounds.Rates(float(norm.cdf(1.1 * mu - x)), float(norm.cdf(-x)), 0, 0, 1, 0.99)
        assert not bounds.violates(on, profile)
        assert bounds.violates(above, profile)


@pytest.mark.parametrize(("guesses", "right"), [(100, 80), (60, 60), (200, 130)])
def test_one_run_without_delta_is_clopper_pearson(guesses: int, right: int) -> None:
    low = beta.ppf(0.01, right, guesses - right + 1)
    expected = max(0.0, np.log(low / (1 - low)))
    assert bounds.one_run_epsilon(300, guesses, right, 0.0) == pytest.approx(expected, abs=1e-5)
    assert bounds.one_run_epsilon(300, guesses, right, 1e-5) <= expected + 1e-9


def test_one_run_bounds_cover_independent_gaussian_canaries() -> None:
    # m canaries, each seen through N(±μ/2, 1): μ-GDP for each replacement
    mu, m, guesses = 1.0, 300, 60
    rng = np.random.default_rng(2)
    mus, epsilons = [], []
    for _ in range(200):
        coins = rng.choice([-1.0, 1.0], m)
        scores = coins * mu / 2 + rng.standard_normal(m)
        surest = np.argsort(-np.abs(scores))[:guesses]
        right = int(np.sum(np.sign(scores[surest]) == coins[surest]))
        mus.append(bounds.one_run_mu(m, guesses, right))
        epsilons.append(bounds.one_run_epsilon(m, guesses, right, 1e-5))
    assert np.mean(np.array(mus) > mu) <= 0.01
    assert np.mean(np.array(epsilons) > gdp.epsilon_of(mu, 1e-5)) <= 0.01
    assert np.median(mus) > 0.3 * mu


def test_one_run_mu_grows_with_what_was_right() -> None:
    values = [bounds.one_run_mu(300, 100, v) for v in (50, 70, 85, 100)]
    assert values == sorted(values)
    assert values[0] == 0
    for right, mu in zip((70, 85, 100), values[1:], strict=True):  # tighter than the (ε, δ) bound at equal canaries
        assert gdp.epsilon_of(mu, 1e-5) > bounds.one_run_epsilon(300, 100, right, 1e-5)


@pytest.mark.parametrize("numbers", [(10, 0, 0), (10, 11, 5), (10, 5, 6)])
def test_impossible_guesses_are_refused(numbers: tuple[int, int, int]) -> None:
    with pytest.raises(InputError, match="guesses"):
        bounds.one_run_epsilon(*numbers, delta=0.0)
    with pytest.raises(InputError, match="guesses"):
        bounds.one_run_mu(*numbers)


def test_confidence_out_of_range_is_refused() -> None:
    with pytest.raises(InputError, match="confidence"):
        counts(1, 1, 10, 1.0)
