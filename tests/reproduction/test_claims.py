"""The papers' printed conversions, against the numbers they print."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.algorithms._quantized import printed_epsilon
from coterie.algorithms.dp_consensus_gd import showkatbakhsh_alpha
from coterie.algorithms.pp_admm import classic_gaussian
from coterie.errors import InputError
from coterie.privacy import gdp
from coterie.privacy.rdp import zcdp_epsilon, zcdp_rho
from reproduction.claims import ding_rho
from tests.printed import printed_sigma


@given(epsilon=st.floats(1e-6, 100), delta=st.floats(1e-12, 0.5))
def test_zcdp_conversion_inverts(epsilon: float, delta: float) -> None:
    assert zcdp_epsilon(zcdp_rho(epsilon, delta), delta) == pytest.approx(epsilon, rel=1e-9)


@pytest.mark.parametrize(
    ("epsilon", "delta", "inflation"),
    [(0.1, 1e-3, 2.25), (1, 1e-3, 1.56), (1, 1e-5, 1.35), (4, 1e-3, 1.33), (4, 1e-5, 1.23), (10, 1e-9, 1.12)],
)
def test_showkatbakhsh_is_valid_and_loose(epsilon: float, delta: float, inflation: float) -> None:
    printed = np.sqrt(showkatbakhsh_alpha(epsilon, delta))
    assert gdp.mu_for(epsilon, delta) / printed == pytest.approx(inflation, abs=6e-3)


def test_ding_rho_fails_for_large_epsilon() -> None:
    for epsilon, holds in ((7.5, True), (7.6, False), (10.0, False)):
        mu = np.sqrt(2 * ding_rho(epsilon, 1e-4))
        assert (gdp.delta_of(mu, epsilon) <= 1e-4) == holds
    assert gdp.epsilon_of(np.sqrt(2 * ding_rho(10.0, 1e-4)), 1e-4) == pytest.approx(10.79, abs=5e-3)
    assert gdp.delta_of(np.sqrt(2 * ding_rho(10.0, 1e-3)), 10.0) == pytest.approx(4.3e-3, abs=5e-5)


def test_classic_gaussian_fails_for_large_epsilon() -> None:
    assert gdp.delta_of(1 / classic_gaussian(0.9, 1e-5), 0.9) < 1e-5
    assert gdp.delta_of(1 / classic_gaussian(10.0, 1e-5), 10.0) > 1e-5


def test_qdpsgd_printed_noise() -> None:
    """m = 1000, b = 20, T = 1000, ε = 1: ν = σb/2 = 6.20."""
    sigma = printed_sigma(1.0, 1000, 1000, 1e-5)
    assert sigma * 20 / 2 == pytest.approx(6.20, abs=5e-3)
    assert printed_epsilon(sigma, 1000, 1000, 1e-5) == pytest.approx(1.0)


def test_refusals() -> None:
    with pytest.raises(InputError, match="delta must be in"):
        zcdp_epsilon(0.1, 0.0)
