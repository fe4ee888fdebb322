"""Rényi curves against quadrature, brute force and printed values."""

import itertools
from collections.abc import Callable

import dp_accounting.rdp
import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate
from scipy.stats import norm

from coterie.privacy import profiles, rdp

ORDERS = np.array([1.001, 1.5, 2.0, 4.0, 8.0, 32.0, 100.0])
Density = Callable[[np.ndarray], np.ndarray]


def one(*values: float) -> list[np.ndarray]:
    return [np.array([value]) for value in values]


def divergence(p: Density, q: Density, order: float, low: float, high: float) -> float:
    """D_α of two log-densities on a line by Simpson's rule."""
    x = np.linspace(low, high, 20_001)
    return float(np.log(integrate.simpson(np.exp(order * p(x) + (1 - order) * q(x)), x=x)) / (order - 1))


@pytest.mark.parametrize("shift", [0.05, 0.7, 3.0])
@pytest.mark.parametrize("order", [1.5, 2.0, 7.0])
def test_laplace_is_the_integral(shift: float, order: float) -> None:
    def density(x: float, at: float) -> float:
        return 0.5 * np.exp(-abs(x - at))

    parts = [(-40.0, 0.0), (0.0, shift), (shift, 40.0)]  # smooth pieces
    total = sum(
        integrate.quad(lambda x: density(x, 0) ** order * density(x, shift) ** (1 - order), *part)[0] for part in parts
    )
    assert rdp.laplace(*one(shift, order))[0, 0] == pytest.approx(np.log(total) / (order - 1), rel=1e-7)


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 0.1, 2.0, 40.0])
def test_randomized_response_is_its_two_points(epsilon: float) -> None:
    if 1e-3 <= epsilon <= 10:  # outside, the direct formula has no digits
        p = 1 / (1 + np.exp(-epsilon))
        for order in (2.0, 4.0):
            moment = p**order * (1 - p) ** (1 - order) + (1 - p) ** order * p ** (1 - order)
            expected = np.log(moment) / (order - 1)
            assert rdp.randomized_response(*one(epsilon, order))[0, 0] == pytest.approx(expected, rel=1e-6)
    curve = rdp.randomized_response(np.array([epsilon]), ORDERS)[0]
    assert np.all(curve <= np.minimum(epsilon, ORDERS * epsilon * np.tanh(epsilon / 2)) * (1 + 1e-12))
    assert np.all(np.diff(curve) >= -1e-18)


def test_printed_values() -> None:
    assert rdp.randomized_response(*one(0.1, 2.0))[0, 0] == pytest.approx(9.958584e-3, abs=5e-10)
    assert rdp.randomized_response(*one(0.1, 4.0))[0, 0] == pytest.approx(0.0195965, abs=5e-8)
    assert rdp.folded(*one(0.05, 1e-4, 8.0))[0, 0] == pytest.approx(0.0446565, abs=5e-8)
    kappa = 0.25 / (7000 * 2)
    found = rdp.objective(np.array([0.04]), np.array([kappa]), 2, np.array([10.0]))[0, 0]
    assert found == pytest.approx(8.05589e-3, abs=5e-9)
    assert rdp.masked(*one(0.1, 0.3, 32.0))[0, 0] == pytest.approx(0.121686, abs=5e-7)
    # the flat factor that one paper is remembered by is too small
    assert rdp.masked(*one(0.1, 0.3, 32.0))[0, 0] > 2 * 0.3 * 32 * 0.01 / 2
    assert rdp.best_epsilon(lambda orders: 0.0257628 * orders, 1e-4) == pytest.approx(0.7758, abs=5e-5)


def test_folded_is_the_expectation() -> None:
    gap, order = 0.7, 5.0
    moment, _ = integrate.quad(lambda z: np.exp((order - 1) * gap * abs(z)) * norm.pdf(z), -30, 30, points=[0])
    expected = np.log(1.2) + gap**2 / 2 + np.log(moment) / (order - 1)
    assert rdp.folded(*one(gap, 0.2, order))[0, 0] == pytest.approx(expected, rel=1e-8)


def test_objective_without_curvature_is_the_gaussian() -> None:
    gap = np.array([0.3])
    assert rdp.objective(gap, np.zeros(1), 2, ORDERS) == pytest.approx(rdp.gaussian(gap, ORDERS), rel=1e-12)
    assert np.isinf(rdp.objective(gap, np.array([0.5]), 2, np.array([2.0, 3.0]))).all()


@pytest.mark.parametrize("order", [2, 3, 5])
def test_mask_against_all_masks(order: int) -> None:
    """d = 4: over all 16 public masks, no random direction beats a single coordinate, which attains the bound."""
    rng = np.random.default_rng(0)
    mu, keep = 1.3, 0.3
    bound = rdp.masked(*one(mu, keep, float(order)))[0, 0]

    def exact(direction: np.ndarray) -> float:
        total = 0.0
        for mask in itertools.product([0, 1], repeat=4):
            weight = np.prod([keep if on else 1 - keep for on in mask])
            square = mu**2 * np.sum(np.array(mask) * direction**2)
            total += weight * np.exp(order * (order - 1) * square / 2)
        return float(np.log(total) / (order - 1))

    for _ in range(50):
        direction = rng.normal(size=4)
        assert exact(direction / np.linalg.norm(direction)) <= bound + 1e-12
    assert exact(np.eye(4)[0]) == pytest.approx(bound, rel=1e-12)


@pytest.mark.parametrize(("nu", "q"), [(0.8, 0.1), (2.0, 0.02), (6.2, 0.5)])
def test_poisson_is_the_integral(nu: float, q: float) -> None:
    def base(x: np.ndarray) -> np.ndarray:
        return norm.logpdf(x, 0, nu)

    def mixed(x: np.ndarray) -> np.ndarray:
        return np.logaddexp(np.log1p(-q) + base(x), np.log(q) + norm.logpdf(x, 1, nu))

    for order in (2.0, 6.0):
        exact = divergence(mixed, base, order, -12 * nu, order + 12 * nu)
        assert rdp.poisson_gaussian(*one(nu, q, 1.0, order))[0, 0] == pytest.approx(exact, rel=1e-6)


def test_poisson_with_tiny_rate_and_noise_is_not_underestimated() -> None:
    # the l = α term alone, q^α e^{α(α−1)/(2ν²)}: a vanishing weight times a huge gain
    nu, q, order = 0.05, 1e-30, 4.0
    least = (order * np.log(q) + order * (order - 1) / (2 * nu**2)) / (order - 1)
    assert rdp.poisson_gaussian(*one(nu, q, 1.0, order))[0, 0] >= least
    # the same where the sum stays below e^30
    nu, q, order = 0.1, 1e-260, 2.0
    expected = np.log1p(np.exp(2 * np.log(q) + 1 / nu**2)) / (order - 1)
    assert rdp.poisson_gaussian(*one(nu, q, 1.0, order))[0, 0] == pytest.approx(expected, rel=1e-6)


def test_without_sampling_the_sampled_curves_are_the_gaussian() -> None:
    orders = np.array([2.0, 3.0, 17.0])
    assert rdp.poisson_gaussian(*one(2.0, 1.0, 1.0), orders)[0] == pytest.approx(orders / 8, rel=1e-9)
    assert rdp.symmetric_sampled_gaussian(2.0, 1.0, orders) == pytest.approx(orders / 8, rel=1e-9)


@given(q=st.floats(1e-3, 0.999), nu=st.floats(0.3, 20))
def test_symmetric_sampling_between_poisson_and_gaussian(q: float, nu: float) -> None:
    orders = np.array([2.0, 5.0, 20.0])
    curve = rdp.symmetric_sampled_gaussian(nu, q, orders)
    poisson = rdp.poisson_gaussian(*one(nu, q, 1.0), orders)[0]
    assert np.all(curve >= poisson * (1 - 1e-9))  # it dominates the remove direction
    assert np.all(curve <= orders / (2 * nu**2) * (1 + 1e-9))


def test_sampled_golden_by_the_rules() -> None:
    def eps(curve: Density) -> float:
        return rdp.best_epsilon(lambda orders: 1000 * curve(orders), 1e-5, integer=True)

    poisson = eps(lambda orders: rdp.poisson_gaussian(*one(6.2, 0.02, 1.0), orders)[0])
    symmetric = eps(lambda orders: rdp.symmetric_sampled_gaussian(6.2, 0.02, orders))
    wbk = eps(lambda orders: rdp.wbk_sampled_gaussian(6.2, 0.02, orders))
    assert (round(poisson, 3), round(symmetric, 3), round(wbk, 3)) == (0.390, 0.412, 0.832)
    for keep, printed in ((1.0, 0.98), (0.3, 0.52)):
        value = eps(lambda orders, keep=keep: rdp.poisson_gaussian(*one(2.77, 0.02, keep), orders)[0])
        assert round(value, 2) == printed


@pytest.mark.parametrize("nu", [0.1, 0.3, 1.0, 2.0, 6.2])
@pytest.mark.parametrize("q", [0.02, 0.5])
def test_sampling_without_replacement_is_what_dp_accounting_computes(nu: float, q: float) -> None:
    """At orders where its differences do not cancel. It reads ν as noise std over sensitivity, whatever it says
    (google/differential-privacy#378)."""
    orders = np.array([2.0, 3.0, 4.0, 7.0, 16.0])
    accountant = dp_accounting.rdp.RdpAccountant(list(orders), dp_accounting.NeighboringRelation.REPLACE_ONE)
    noise = dp_accounting.GaussianDpEvent(nu)
    theirs = accountant.compose(dp_accounting.SampledWithoutReplacementDpEvent(1000, int(1000 * q), noise)).rdp
    assert rdp.wbk_sampled_gaussian(nu, q, orders) == pytest.approx(np.array(theirs), rel=1e-9)


@pytest.mark.parametrize("nu", [0.25, 1.0, 20.0, 500.0])
def test_even_moments_of_the_density_ratio(nu: float) -> None:
    """Against the sum Σ (−1)^i C(m, i) e^{i(i−1)/2ν²} with 700 digits, of which it cancels hundreds."""
    found = rdp._log_even_moments(nu, 257)
    with mpmath.workdps(700):
        for m in (2, 4, 30, 128, 256):
            power = lambda i: mpmath.exp(mpmath.mpf(i * (i - 1)) / (2 * mpmath.mpf(nu) ** 2))  # noqa: E731
            exact = mpmath.log(sum((-1) ** i * mpmath.binomial(m, i) * power(i) for i in range(m + 1)))
            assert found[m // 2] == pytest.approx(float(exact), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("shift", [1e-6, 1e-3, 0.3, 2.0])
def test_curve_from_profile(shift: float) -> None:
    """Two closed forms recovered from δ(ε) alone."""
    usable = ORDERS[(ORDERS - 1) * shift < 400]
    laplace = rdp.from_profile(profiles.laplace(shift), usable)
    assert laplace == pytest.approx(rdp.laplace(np.array([shift]), usable)[0], rel=1e-6)
    response = rdp.from_profile(profiles.randomized_response(shift), usable)
    assert response == pytest.approx(rdp.randomized_response(np.array([shift]), usable)[0], rel=1e-9)


def test_best_order_is_no_worse_than_a_fine_grid() -> None:
    def curve(orders: np.ndarray) -> np.ndarray:
        return 30 * rdp.laplace(np.array([0.4]), orders)[0]

    fine = 1 + np.geomspace(1e-2, 1e3, 100_000)
    for delta in (1e-3, 1e-9):
        best = rdp.best_epsilon(curve, delta)
        assert best == pytest.approx(rdp.epsilon_from(fine, curve(fine), delta).min(), rel=1e-6)
        assert rdp.best_delta(curve, best) == pytest.approx(delta, rel=1e-4)


def test_negligible_divergence_is_hidden_by_delta() -> None:
    """TV ≤ √(1 − e^{−D}): at D just below −ln(1 − δ²) nothing is left for ε, just above something is."""
    edge = -np.log1p(-(1e-3**2))
    assert rdp.epsilon_from([2.0], [edge * 0.999], 1e-3)[0] == 0
    assert rdp.epsilon_from([2.0], [edge * 1.001], 1e-3)[0] > 0
