"""Calibration spends the budget, all of it, and never more."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.errors import InputError
from coterie.privacy import gdp, schedules
from coterie.privacy.accountants import account
from coterie.privacy.calibration import calibrate, noise_for
from coterie.privacy.events import Event, Gaussian, L2Laplace, Laplace, ObjectivePerturbation, Pure, SampledGaussian


@settings(deadline=None)
@given(
    epsilon=st.floats(0.01, 50),
    delta=st.floats(1e-12, 0.1),
    rounds=st.integers(1, 10_000),
    sensitivity=st.floats(1e-6, 1e6),
)
def test_gaussian_is_exact(epsilon: float, delta: float, rounds: int, sensitivity: float) -> None:
    z = calibrate(lambda z: [Gaussian(sensitivity, z * sensitivity, times=rounds)], epsilon, delta)
    assert z == pytest.approx(np.sqrt(rounds) / gdp.mu_for(epsilon, delta), rel=1e-9)
    spent = account([Gaussian(sensitivity, z * sensitivity, times=rounds)], delta, fast=True).epsilon
    assert epsilon * 0.999 <= spent <= epsilon


@pytest.mark.parametrize(
    ("records", "batch", "epsilon", "printed"),
    [(1000, 20, 1.0, 2.76), (1000, 50, 1.0, 6.29), (200, 20, 1.0, 12.16), (1000, 20, 1.5, 2.04), (500, 20, 1.5, 3.66)],
)
def test_sampled_printed(records: int, batch: int, epsilon: float, printed: float) -> None:
    """T = 1000, δ = 1e-5, symmetrised loss distribution; printed values are rounded up."""
    found = calibrate(lambda z: [SampledGaussian(z, batch / records, times=1000)], epsilon, 1e-5)
    assert printed - 0.0101 <= found <= printed


@pytest.mark.parametrize(
    ("scheme", "printed"), [pytest.param("without-replacement", 5.26, marks=pytest.mark.slow), ("poisson", 2.72)]
)
def test_discrete_sampled_printed(scheme: str, printed: float) -> None:
    found = calibrate(lambda z: [SampledGaussian(z, 0.02, scheme=scheme, discrete=True, times=1000)], 1.0, 1e-5)
    assert printed - 0.0101 <= found <= printed


def test_objective_perturbation_printed() -> None:
    """n = 7000, Λ = 2.001, T = 30, ε = 1, δ = 1e-4, share s = .01 for the output noise, β = 1e-6."""
    n, strong, share, solver = 7000, 2.001, 0.01, 2e-6 / 2.001

    def make(z: float) -> list[Event]:
        sigma, output_sigma = z * 2 / n / np.sqrt(1 - share), z * solver / np.sqrt(share)
        kappa = 0.25 / (n * strong)
        return [ObjectivePerturbation(2 / n, sigma, kappa, solver, output_sigma, monotone=True, times=30)]

    z = calibrate(make, 1.0, 1e-4)
    assert np.sqrt(30) / z == pytest.approx(0.313592, rel=2e-4)
    event = make(z)[0]
    assert event.sigma == pytest.approx(5.01545e-3, rel=2e-4)
    assert event.output_sigma == pytest.approx(1.74574e-4, rel=2e-4)


@pytest.mark.parametrize("epsilon", [0.3, 3.0])
@pytest.mark.parametrize(
    "make",
    [
        lambda z: [L2Laplace(1.0, 1 / z, 5, times=10)],
        lambda z: [Gaussian(1.0, z, times=3), Gaussian(1.0, 200.0)],
        lambda z: [Gaussian(1.0, z, times=5), Pure(0.05)],
        lambda z: [Laplace(1.0, 1 / z, times=10)],
        lambda z: [SampledGaussian(z, 0.1, times=20)],
    ],
    ids=["l2-laplace", "partly-fixed", "mixed", "laplace", "sampled"],
)
def test_calibrate_then_account_is_the_identity(make: Callable[[float], list[Event]], epsilon: float) -> None:
    z = calibrate(make, epsilon, 1e-5)
    assert epsilon * (1 - 1e-3) <= account(make(z), 1e-5, fast=True).epsilon <= epsilon


def test_pure_budget() -> None:
    assert calibrate(lambda z: [Laplace(3.0, 1 / z, times=4)], 2.0, 0.0) == pytest.approx(6.0, rel=2e-4)


def test_events_that_do_not_scale_are_not_trusted_to_the_closed_form() -> None:
    z = calibrate(lambda z: [Gaussian(1.0, z**2, times=10)], 1.0, 1e-5)
    assert z**2 == pytest.approx(np.sqrt(10) / gdp.mu_for(1.0, 1e-5), rel=3e-4)


def test_float32_events_do_not_overspend() -> None:
    def make(z: float) -> list[Event]:
        return [Gaussian(np.float32(0.1), np.float32(z * 0.1), times=50)]

    assert account(make(calibrate(make, 1.0, 1e-5)), 1e-5, fast=True).epsilon <= 1.0


@pytest.mark.parametrize("name", schedules.SCHEDULES.names)
def test_noise_for_spends_the_budget(name: str) -> None:
    gaps = 1 / np.arange(1, 31)
    options: Any = {"levels": [1.0, 2.0, 3.0] * 10} if name == "listed" else {}
    sigma = noise_for(30, 1.0, 1e-5, gaps, name, **options)
    spent = account([Gaussian(gaps, sigma)], 1e-5, fast=True).epsilon
    assert 1.0 - 1e-9 <= spent <= 1.0
    assert sigma / gaps == pytest.approx(np.sqrt(30) / gdp.mu_for(1.0, 1e-5) * schedules.make(name, 30, **options))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: calibrate(lambda z: [Gaussian(1.0, z)], 0.0, 1e-5), "epsilon must be > 0"),
        (lambda: calibrate(lambda z: [Gaussian(1.0, z)], 1.0, 1.0), r"delta must be in \(0, 1\)"),
        (lambda: calibrate(lambda z: [Gaussian(1.0, z)], 1.0, 1e-5, lower=2.0, upper=1.0), "lower"),
        (lambda: calibrate(lambda z: [Gaussian(1.0, z), Pure(2.0)], 1.0, 1e-5), "budget too small"),
        (lambda: noise_for(0, 1.0, 1e-5), "rounds must be"),
        (lambda: noise_for(5, 1.0, 0.0), r"delta must be in \(0, 1\)"),
        (lambda: noise_for(5, 1.0, 1e-5, -1.0), "sensitivity must be >= 0"),
        (lambda: noise_for(5, 1.0, 1e-5, [1.0, 2.0]), "one number or 5"),
        (lambda: noise_for(5, 1.0, 1e-5, 1.0, []), "5 positive numbers"),
        (lambda: noise_for(5, 1e-12, 1e-300, 1e300), "too small to represent"),
    ],
)
def test_refusals(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()
