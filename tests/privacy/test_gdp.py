"""The exact Gaussian trade-off, against high-precision arithmetic and the papers' printed values."""

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import InputError
from coterie.privacy import gdp

mus = st.floats(1e-6, 50)
epsilons = st.floats(0, 100)
deltas = st.floats(1e-14, 0.5)


def reference(mu: float, epsilon: float) -> mp.mpf:
    """δ from its definition with 80 digits."""
    with mp.workdps(80):
        m, e = mp.mpf(mu), mp.mpf(epsilon)
        return mp.ncdf(m / 2 - e / m) - mp.e**e * mp.ncdf(-m / 2 - e / m)


@pytest.mark.parametrize("mu", [1e-8, 1e-4, 0.01, 0.3, 0.4999, 0.5001, 1, 3, 10, 40])
@pytest.mark.parametrize("epsilon", [0, 1e-6, 1e-3, 0.1, 1, 5, 20, 100])
def test_delta_keeps_its_relative_accuracy(mu: float, epsilon: float) -> None:
    exact = reference(mu, epsilon)
    if exact > 0:
        assert float(gdp.log_delta_of(mu, epsilon)) == pytest.approx(float(mp.log(exact)), rel=1e-12, abs=1e-12)
    assert float(gdp.delta_of(mu, epsilon)) == pytest.approx(float(exact), rel=1e-11)


@pytest.mark.parametrize(("mu", "epsilon", "delta"), [(1, 1, 0.1269367), (0.5, 0.3, 0.0963528)])
def test_printed_values(mu: float, epsilon: float, delta: float) -> None:
    assert round(float(gdp.delta_of(mu, epsilon)), 7) == delta


@pytest.mark.parametrize(
    ("epsilon", "mu"), [(0.1, 0.040803), (0.5, 0.169670), (1, 0.313902), (5, 1.256376), (10, 2.196522)]
)
def test_printed_mu_at_delta_1e_4(epsilon: float, mu: float) -> None:
    assert round(float(gdp.mu_for(epsilon, 1e-4)), 6) == mu


@pytest.mark.parametrize(
    ("epsilon", "delta", "sigma"),
    [(0.01, 1e-3, 93.9), (0.1, 1e-3, 17.4), (1, 1e-3, 2.57), (10, 1e-3, 0.406), (0.01, 1e-5, 244), (1, 1e-5, 3.73)],
)
def test_printed_analytic_gaussian(epsilon: float, delta: float, sigma: float) -> None:
    assert float(f"{1 / gdp.mu_for(epsilon, delta):.3g}") == sigma


def test_negative_epsilon_is_the_reversed_pair() -> None:
    # P(S) − e^{−ε} Q(S) maximised directly: Φ(−a) − e^{−ε}Φ(−b) holds for any sign of ε
    for mu, eps in [(0.3, -0.1), (1.0, -2.0), (2.0, -0.5)]:
        assert float(gdp.delta_of(mu, eps)) == pytest.approx(float(reference(mu, eps)), rel=1e-12)


@given(mu=mus, delta=deltas)
def test_epsilon_inverts_delta_from_above(mu: float, delta: float) -> None:
    eps = float(gdp.epsilon_of(mu, delta))
    assert gdp.delta_of(mu, eps) <= delta * (1 + 1e-9)
    if eps > 1e-9:
        assert gdp.delta_of(mu, eps * (1 - 1e-6)) > delta * (1 - 1e-9)


@given(epsilon=st.floats(1e-4, 100), delta=deltas)
def test_mu_spends_the_budget_and_no_more(epsilon: float, delta: float) -> None:
    mu = float(gdp.mu_for(epsilon, delta))
    assert gdp.delta_of(mu, epsilon) <= delta * (1 + 1e-9)
    assert gdp.delta_of(mu * (1 + 1e-6), epsilon) > delta


@given(mu=mus, epsilon=epsilons, factor=st.floats(1.01, 3))
def test_monotone(mu: float, epsilon: float, factor: float) -> None:
    assert gdp.log_delta_of(mu, epsilon) <= gdp.log_delta_of(mu * factor, epsilon) + 1e-12
    assert gdp.log_delta_of(mu, epsilon * factor) <= gdp.log_delta_of(mu, epsilon) + 1e-12


def test_edges() -> None:
    assert gdp.delta_of(0.0, 0.0) == 0
    assert gdp.epsilon_of(0.0, 1e-5) == 0
    assert gdp.epsilon_of(np.inf, 1e-5) == np.inf
    assert gdp.delta_of(np.inf, 3.0) == 1
    assert gdp.mu_for(np.inf, 1e-5) == np.inf
    assert gdp.epsilon_of(1e-4, 0.1) == 0
    assert gdp.mu_for(np.array([1.0, 2.0]), np.array([[1e-5], [1e-6]])).shape == (2, 2)


@pytest.mark.parametrize("delta", [0, 1, -0.1, 1.5, np.nan])
def test_bad_delta(delta: float) -> None:
    with pytest.raises(InputError, match="delta must be in"):
        gdp.epsilon_of(1.0, delta)
    with pytest.raises(InputError, match="delta must be in"):
        gdp.mu_for(1.0, delta)


def test_bad_arguments() -> None:
    with pytest.raises(InputError, match="epsilon must be >= 0"):
        gdp.mu_for(-1.0, 1e-5)
    with pytest.raises(InputError, match="mu must be >= 0"):
        gdp.epsilon_of(-1.0, 1e-5)
