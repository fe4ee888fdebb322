"""Profiles and loss distributions against direct integration, printed values and the exact Gaussian."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate
from scipy.stats import beta, gamma

from coterie.privacy import gdp, pld, profiles, rdp


def at(profile: profiles.Profile, epsilon: float) -> float:
    return float(profile.delta(np.array([epsilon]))[0])


@pytest.mark.parametrize(
    ("epsilon", "shift", "dim", "printed"),
    [(0.15, 0.3, 14, 7.448e-4), (0.15, 0.3, 3, 2.0071e-2), (0.5, 1.0, 2, 0.12271)],
)
def test_l2_laplace_printed(epsilon: float, shift: float, dim: int, printed: float) -> None:
    assert at(profiles.l2_laplace(shift, dim), epsilon) == pytest.approx(printed, rel=7e-5)


@pytest.mark.parametrize(("shift", "dim", "epsilon"), [(1.0, 3, 0.5), (2.0, 5, 0.9), (0.4, 9, 0.0)])
def test_l2_laplace_is_the_double_integral(shift: float, dim: int, epsilon: float) -> None:
    # the mean of (1 − e^{ε−L})₊ over a grid of quantiles of the radius and of the angle
    u = (np.arange(1500) + 0.5) / 1500
    r, c = gamma.ppf(u, dim)[:, None], 2 * beta.ppf(u, (dim - 1) / 2, (dim - 1) / 2)[None, :] - 1
    loss = np.sqrt(r * r + 2 * r * shift * c + shift * shift) - r
    direct = np.mean(np.maximum(0.0, 1 - np.exp(epsilon - loss)))
    assert at(profiles.l2_laplace(shift, dim), epsilon) == pytest.approx(direct, rel=3e-4)
    assert at(profiles.l2_laplace(1.02 * shift, dim), epsilon) != pytest.approx(direct, rel=3e-4)


def test_l2_laplace_in_one_dimension_is_laplace() -> None:
    eps = np.linspace(0, 1.2, 7)
    assert profiles.l2_laplace(1.0, 1).delta(eps) == pytest.approx(np.maximum(1 - np.exp((eps - 1) / 2), 0))


def test_l2_laplace_becomes_gaussian_in_high_dimension() -> None:
    dim, mu = 20_000, 0.8
    profile = profiles.l2_laplace(mu * np.sqrt(dim), dim)
    for eps in (0.1, 1.0):
        assert at(profile, eps) == pytest.approx(float(gdp.delta_of(mu, eps)), rel=2e-3)


@pytest.mark.parametrize(
    ("rate", "width", "shift", "epsilon", "printed"),
    [(5, 0.5, 0.2, 0.3, 0.18389097), (1, 2, 0.5, 0.1, 0.11802524), (10, 1, 0.001, 0.002, 5.80803e-4)],
)
def test_mixture_printed(rate: float, width: float, shift: float, epsilon: float, printed: float) -> None:
    assert at(profiles.laplace_uniform(rate, width, shift), epsilon) == pytest.approx(printed, rel=1e-6)


@pytest.mark.parametrize(("rate", "width", "shift", "epsilon"), [(5, 0.5, 0.2, 0.3), (2, 0.1, 0.7, 0.5), (1, 3, 1, 0)])
def test_mixture_is_the_integral(rate: float, width: float, shift: float, epsilon: float) -> None:
    y = np.linspace(0, width, 601)

    def density(x: np.ndarray) -> np.ndarray:
        """The Laplace density averaged over the uniform part, by Simpson's rule: independent of the closed form."""
        return integrate.simpson(rate / 2 * np.exp(-rate * np.abs(x[:, None] - y)), x=y, axis=1) / width

    x = np.linspace(-15 / rate, width + shift + 15 / rate, 3001)
    direct = integrate.simpson(np.maximum(density(x) - np.exp(epsilon) * density(x - shift), 0), x=x)
    assert at(profiles.laplace_uniform(rate, width, shift), epsilon) == pytest.approx(direct, rel=2e-3)
    assert at(profiles.laplace_uniform(rate, width, 1.05 * shift), epsilon) != pytest.approx(direct, rel=2e-3)


def test_mixture_limits() -> None:
    eps = np.linspace(0, 1.5, 9)
    plain = profiles.laplace(1.0).delta(eps)
    assert profiles.laplace_uniform(2.0, 0.0, 0.5).delta(eps) == pytest.approx(plain)
    assert profiles.laplace_uniform(2.0, 1e-5, 0.5).delta(eps) == pytest.approx(plain, abs=1e-4)
    wide = profiles.laplace_uniform(2.0, 3.0, 0.5).delta(eps)
    assert np.all(wide <= plain + 1e-12)
    assert np.all(wide[eps >= 1.0] == 0)


def composed(profile: profiles.Profile, times: int, delta: float, square: float) -> float:
    law = pld.from_profile(profile, pld.grid(square, 0.0))
    total = pld.compose([(law, times)])
    assert total is not None
    return float(total.get_epsilon_for_delta(delta))


@pytest.mark.parametrize("times", [1, 10, 100, 10_000])
@pytest.mark.parametrize("total", [0.05, 1.0, 6.0])
def test_gaussian_law_composes_to_the_exact_value_from_above(times: int, total: float) -> None:
    mu = total / np.sqrt(times)
    exact = float(gdp.epsilon_of(total, 1e-6))
    assert exact * (1 - 1e-9) <= composed(profiles.gaussian(mu), times, 1e-6, mu**2) <= exact * 1.001


@pytest.mark.parametrize(("width", "printed"), [(0, 1.440), (1, 1.209), (2, 1.029), (5, 0.707), (10, 0.489)])
def test_mixture_composed_printed(width: float, printed: float) -> None:
    profile = profiles.laplace_uniform(1.0, width, 0.01)
    square = float(rdp.from_profile(profile, np.array([2.0]))[0])
    assert round(composed(profile, 1400, 1e-5, square), 3) == printed


@given(q=st.floats(0.01, 0.99), nu=st.floats(0.5, 8))
@settings(deadline=None)  # the first one imports dp-accounting
def test_grid_law_dominates_and_is_exact_on_the_grid(q: float, nu: float) -> None:
    profile = profiles.sampled_gaussian(nu, q)
    law = pld.from_profile(profile, 0.05)
    for eps in (0.0, 0.3, 1.7):
        assert law.get_delta_for_epsilon(eps) == pytest.approx(at(profile, eps), rel=1e-6, abs=1e-12)
    for eps in (0.013, 0.31, 1.69):  # between grid points: above the truth, below the point to the left
        left = at(profile, np.floor(eps / 0.05) * 0.05)
        assert at(profile, eps) - 1e-13 <= law.get_delta_for_epsilon(eps) <= left + 1e-13


def test_remove_pair_alone_is_not_a_bound() -> None:
    """Lebeda et al.: without replacement the symmetrised law is needed; q = .8, ν = 1, T = 5, ε = .1."""
    symmetric = pld.compose([(pld.from_profile(profiles.sampled_gaussian(1.0, 0.8), 1e-3), 5)])
    remove = pld.compose([(pld.poisson_gaussian(1.0, 0.8, 1e-3), 5)])
    assert symmetric is not None
    assert remove is not None
    attained = 0.603  # others K v, record K u → −K u, u ⊥ v
    assert remove.get_delta_for_epsilon(0.1) < attained < symmetric.get_delta_for_epsilon(0.1)


@pytest.mark.parametrize("profile", [profiles.gaussian(1e-17), profiles.sampled_gaussian(7.0, 1e-211)])
def test_negligible_losses_need_no_grid(profile: profiles.Profile) -> None:
    assert pld.reach(profile) < 1e-12
