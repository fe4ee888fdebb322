"""Noise on opened sums: the two distances, the price, and what is drawn."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from coterie.errors import InputError
from coterie.exchange.additive import SumsHere
from coterie.exchange.fixed_point import FixedPoint
from coterie.exchange.sum_noise import (
    SMOOTHING,
    TABLE_ERROR,
    log_ratio_of_rounding,
    log_ratio_of_sum,
    opened_event,
)
from coterie.exchange.sums import SumTerms
from coterie.privacy import gdp
from coterie.privacy.accountants import account, delta_of
from coterie.privacy.secure import DiscreteGaussianTable


def discrete_gaussian(deviation: float, reach: int) -> np.ndarray:
    k = np.arange(-reach, reach + 1)
    mass = np.exp(-(k**2) / (2 * deviation**2))
    return mass / mass.sum()


def gap(one: np.ndarray, other: np.ndarray) -> float:
    """Largest |log ratio| where float64 can tell."""
    seen = (one > 1e-250) & (other > 1e-250)
    return float(np.abs(np.log(one[seen] / other[seen])).max())


@pytest.mark.parametrize(("deviation", "count"), [(0.5, 2), (0.6, 3), (0.7, 5), (0.8, 4)])
def test_a_sum_of_discrete_gaussians_is_nearly_one(deviation: float, count: int) -> None:
    """Against exact convolution; the twin, a thousandth of the bound, is broken."""
    reach = 12
    one = discrete_gaussian(deviation, reach)
    total = one
    for _ in range(count - 1):
        total = np.convolve(total, one)
    k = np.arange(-reach * count, reach * count + 1)
    near = np.abs(k) <= 6  # far out float64 convolution is cut off by `reach`
    ideal = discrete_gaussian(deviation * math.sqrt(count), reach * count)
    found = gap(total[near], ideal[near])
    assert found <= log_ratio_of_sum(deviation, count)
    assert found > log_ratio_of_sum(deviation, count) / 1000


@pytest.mark.parametrize("smoothing", [0.45, 0.6, 0.8])
def test_a_discrete_gaussian_is_nearly_a_rounded_normal(smoothing: float) -> None:
    """By quadrature (trapezoids, exact for such integrands); the twin, a tenth of the bound, is broken.

    The worst case is a normal so narrow that its place between the integers matters.
    """
    deviation = 1.02 * smoothing
    y, step = np.linspace(-9, 9, 18_001, retstep=True)
    normal = np.exp(-(y**2) / (2 * (deviation**2 - smoothing**2)))
    k = np.arange(-20, 21)
    kernel = np.exp(-((k[:, None] - y) ** 2) / (2 * smoothing**2))
    rounded = (normal / normal.sum() * kernel / kernel.sum(0)).sum(1)
    assert step < 0.01 * deviation
    middle = np.abs(k) <= 4
    found = gap(rounded[middle], discrete_gaussian(deviation, 20)[middle])
    assert found <= log_ratio_of_rounding(smoothing)
    assert found > log_ratio_of_rounding(smoothing) / 10


@pytest.mark.parametrize(("honest", "deviation", "shift"), [(2, 3.0, 2), (5, 3.5, 7), (8, 10.0, 20)])
def test_the_price_covers_the_exact_law(honest: int, deviation: float, shift: int) -> None:
    """δ(ε) of the opened sum by convolution; the twin with 10 % more noise declared is broken."""
    reach = int(14 * deviation)
    law = discrete_gaussian(deviation, reach)
    total = law
    for _ in range(honest - 1):
        total = np.convolve(total, law)
    here, moved = np.pad(total, (0, shift)), np.pad(total, (shift, 0))
    sigma = math.sqrt(honest * deviation**2 - SMOOTHING**2)
    event = opened_event(0.0, deviation, honest, 0, 1)
    assert event.sigma == pytest.approx(sigma)
    mu = shift / sigma
    broken = []
    for epsilon in (0.1, 0.5, 1.0, 2.0):
        exact = float(np.maximum(here - math.exp(epsilon) * moved, 0).sum())
        assert exact <= gdp.delta_of(mu, epsilon) * (1 + 1e-12)
        broken.append(exact > gdp.delta_of(shift / (1.1 * math.sqrt(honest) * deviation), epsilon))
    assert any(broken)


def test_the_event_is_a_gaussian_on_the_grid() -> None:
    """Fine grids cost nothing: μ tends to Δ/σ; coarse ones cost √d steps; too coarse ones have no bound."""
    fine = opened_event(0.05, 0.005, 4, 24, 10)
    assert account([fine], 1e-5).epsilon == pytest.approx(gdp.epsilon_of(5.0, 1e-5), rel=1e-4)
    coarse = opened_event(0.05, 0.005, 4, 12, 10)
    mu = (0.05 * 2**12 + math.sqrt(10)) / math.sqrt((0.01 * 2**12) ** 2 - 9)
    assert account([coarse], 1e-5).epsilon == pytest.approx(gdp.epsilon_of(mu, 1e-5), rel=1e-6)
    assert delta_of([opened_event(0.05, 0.005, 4, 8, 10)], 1.0) == 1.0
    assert 0 < float(fine.tv) < 1e-30


def test_the_tables_are_as_exact_as_stated() -> None:
    for sigma in (3.0, 100.0, 2047.0, 2048.5, 3071.0, 2.0**18):
        assert DiscreteGaussianTable(sigma).total_variation < TABLE_ERROR


def test_an_opened_sum_carries_the_noise() -> None:
    """Six parties, noise for four honest ones: variance 6/4 σ² when all are, and exactly none of it is lost."""
    noise, d, n = DiscreteGaussianTable.from_variance(Fraction(1, 4) * 4**10 / 4), 20_000, 6
    parts = [noise.sample(d) for _ in range(n)]
    sums = SumsHere(SumTerms(FixedPoint(n, 10, 100.0, noise.reach)), d)
    got = sums.open(list(np.ones((n, d))), parts)
    np.testing.assert_array_equal(got.values, 6 + np.sum(parts, axis=0) / 2**10)
    assert got.values.var() == pytest.approx(0.25 * 6 / 4, rel=5 * math.sqrt(2 / d))
    with pytest.raises(InputError, match="the encoding has room for 0"):
        FixedPoint(3).encode([1.0], np.array([5]))
