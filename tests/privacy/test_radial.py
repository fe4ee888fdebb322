"""The Rényi curve of noise of density ∝ e^{−‖x‖}: against 60 digits, quadrature and draws; never too small."""

import mpmath as mp
import numpy as np
import pytest

from coterie.privacy import profiles, radial
from coterie.privacy.accountants import account
from coterie.privacy.calibration import calibrate
from coterie.privacy.events import Gaussian, L2Laplace, flat
from coterie.privacy.rdp import laplace
from tests.support import mostly_slow

ORDERS = 1 + np.geomspace(1e-3, 1e5, 9)


def exact(shift: float, dim: int, order: float) -> float:
    """The closed form with 60 digits."""
    with mp.workdps(60):
        a, alpha, nu = mp.mpf(shift) / 2, mp.mpf(float(order)), mp.mpf(dim) / 2 - 1
        b = (2 * alpha - 1) * a
        first = mp.besselk(nu + 1, a) * mp.besseli(nu, b)
        return float(
            mp.log(a * (a / b) ** nu * (first + a / b * mp.besselk(nu, a) * mp.besseli(nu + 1, b))) / (alpha - 1)
        )


CURVES = [(dim, shift) for shift in (1e-6, 0.3, 5.0, 300.0) for dim in (2, 3, 14, 33, 40, 1001)]


@pytest.mark.parametrize(("dim", "shift"), mostly_slow(CURVES, *(c for c in CURVES if c != (1001, 300.0))))
def test_never_below_the_exact_curve_and_close_to_it(dim: int, shift: float) -> None:
    true = np.array([exact(shift, dim, order) for order in ORDERS])
    bound = radial.renyi(np.array([shift]), dim, ORDERS)[0]
    assert np.all(bound >= true)
    assert np.all(bound <= shift)
    summed = ORDERS * shift < 1e4  # beyond, the series is continued by its slope
    assert np.all(bound[summed] <= true[summed] * (1 + 1e-6))
    assert np.all(bound <= true * 1.01)
    # and the comparison is sharp: a shift smaller by a millionth would be found too small
    assert np.any(radial.renyi(np.array([shift * (1 - 1e-6)]), dim, ORDERS)[0] < true)


@pytest.mark.slow
@pytest.mark.parametrize(("shift", "dim", "order"), mostly_slow([(1.0, 2, 2.0), (4.0, 7, 3.0)], (1.0, 2, 2.0)))
def test_the_closed_form_is_the_integral_over_radius_and_angle(shift: float, dim: int, order: float) -> None:
    with mp.workdps(15):

        def at(r: mp.mpf) -> mp.mpf:
            def of(angle: mp.mpf) -> mp.mpf:
                loss = mp.sqrt(r * r - 2 * r * shift * mp.cos(angle) + shift**2) - r
                return mp.sin(angle) ** (dim - 2) * mp.exp((order - 1) * loss)

            return mp.quad(of, [0, mp.pi / 2, mp.pi], maxdegree=4) * r ** (dim - 1) * mp.exp(-r)

        whole = mp.quad(at, [0, shift, dim + 5 * shift, 3 * dim + 60], maxdegree=4)
        norm = mp.quad(lambda angle: mp.sin(angle) ** (dim - 2), [0, mp.pi]) * mp.gamma(dim)
        direct = float(mp.log(whole / norm) / (order - 1))
    assert exact(shift, dim, order) == pytest.approx(direct, rel=1e-7)


def test_one_dimension_is_the_laplace_curve() -> None:
    assert exact(0.7, 1, 3.0) == pytest.approx(float(laplace(np.array([0.7]), np.array([3.0]))[0, 0]), rel=1e-12)


def test_draws_in_high_dimension_agree() -> None:
    rng, dim, shift, order = np.random.default_rng(0), 10_000, 100.0, 2.0
    radius, angle = rng.gamma(dim, size=400_000), 2 * rng.beta((dim - 1) / 2, (dim - 1) / 2, size=400_000) - 1
    growth = np.exp((order - 1) * (np.sqrt(radius**2 - 2 * radius * shift * angle + shift**2) - radius))
    mean, error = growth.mean(), growth.std() / np.sqrt(growth.size)
    bound = np.exp((order - 1) * radial.renyi(np.array([shift]), dim, np.array([order]))[0, 0])
    assert abs(mean - bound) < 5 * error
    assert error < 0.01 * mean


def test_a_million_numbers_cost_what_a_gaussian_does() -> None:
    near = account([Gaussian(1.0, 1.0)], 1e-5).epsilon
    total = account([L2Laplace(1000.0, 1.0, 10**6)], 1e-5)
    assert total.epsilon == pytest.approx(near, rel=1e-3)
    assert total.all["rdp"] < 1.09 * near


@pytest.mark.slow  # what calibrates is the same for every event
def test_noise_for_a_million_numbers_is_that_of_a_gaussian() -> None:
    noise = calibrate(lambda z: [L2Laplace(1000.0, 1 / z, 10**6, times=10)], 1.0, 1e-5)
    assert noise == pytest.approx(calibrate(lambda z: [Gaussian(1.0, z, times=10)], 1.0, 1e-5), rel=1e-2)


@pytest.mark.parametrize(("shift", "dim"), [(1e-3, 2), (1.0, 14), (30.0, 1000)])
def test_zcdp_covers_the_curve(shift: float, dim: int) -> None:
    event = flat(L2Laplace(shift, 1.0, dim))
    assert np.all(event.rdp(ORDERS)[0] <= event.zcdp()[0] * ORDERS)
    assert event.rdp(np.array([1.001]))[0, 0] > 0.8 * event.zcdp()[0]


def test_no_shift_costs_nothing_and_no_noise_everything() -> None:
    curve = radial.renyi(np.array([0.0, np.inf, 1e-200, 1e9]), 3, ORDERS)
    assert np.all(curve[0] == 0)
    assert np.all(curve[1] == np.inf)
    assert np.all(curve[2] <= 1e-200)
    assert np.all(curve[3] <= 1e9)
    assert np.all(np.isfinite(curve[3]))


@pytest.mark.parametrize(("shift", "dim", "epsilon"), [(1.0, 2, 0.5), (6.0, 14, 4.0), (12.0, 100, 4.0)])
def test_the_profile_is_never_below_the_integral(shift: float, dim: int, epsilon: float) -> None:
    with mp.workdps(25):

        def tail(loss: mp.mpf, over: bool) -> mp.mpf:
            k, s, start = mp.mpf(dim - 1) / 2, mp.mpf(shift), (shift - loss) / 2

            def of(r: mp.mpf) -> mp.mpf:
                x = (s - loss) * (2 * r + s + loss) if over else (s + loss) * (2 * r - s + loss)
                inner = mp.betainc(k, k, 0, x / (4 * r * s), regularized=True)
                return mp.exp((dim - 1) * mp.log(r) - r - mp.loggamma(dim)) * inner

            stops = {
                mp.mpf(start),
                *(max(start, dim + step * mp.sqrt(dim) + (step > 9) * 60) for step in (-6, 0, 6, 20)),
            }
            sure = mp.gammainc(dim, 0, start, regularized=True) if over else 0
            return sure + mp.quad(of, sorted(stops), maxdegree=5)

        over, under = tail(mp.mpf(epsilon), True), tail(mp.mpf(-epsilon), False)
        true, scale = float(over - mp.exp(epsilon) * under), float(over)
    got = float(profiles.l2_laplace(shift, dim).delta(np.array([epsilon]))[0])
    assert true <= got <= true + 2e-9 * scale
