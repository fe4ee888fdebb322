"""Table samplers: the stored integers against laws computed independently (mpmath, closed forms), and their draws."""

import math
from fractions import Fraction
from itertools import accumulate

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.privacy import secure_table
from coterie.privacy.secure import GRID_LAPLACE_SCALE, GRID_VARIANCE
from coterie.privacy.secure_table import DiscreteGaussianTable, DiscreteLaplaceTable, IntegerTable
from tests.privacy.secure_checks import accepted, gaussian, laplace, p_value

ONE = 2**128
TOLERANCE = mp.mpf(2) ** -120  # goal N2


@pytest.fixture(autouse=True)
def _two_hundred_bits():
    with mp.workprec(200):
        yield


def grid_table() -> DiscreteGaussianTable:
    return DiscreteGaussianTable.from_variance(GRID_VARIANCE)


# --- the tables are the laws


def gaussian_reference(variance: Fraction, reach: int) -> list[mp.mpf]:
    """P(X = k) for k = -reach … reach by direct summation."""
    rate = mp.mpf(variance.denominator) / (2 * variance.numerator)
    half = [mp.exp(-k * k * rate) for k in range(reach + 1)]
    total = 2 * mp.fsum(half) - 1  # for the reaches used here the rest is below 2^-150
    return [half[abs(k)] / total for k in range(-reach, reach + 1)]


def cdf_error(table: IntegerTable, reference: list[mp.mpf], reach: int) -> mp.mpf:
    first, numerators = table.law()
    ours = [0] * (first + reach) + list(accumulate(numerators))
    ours += [ONE] * (len(reference) - len(ours))
    return max(abs(mp.mpf(a) / ONE - b) for a, b in zip(ours, accumulate(reference), strict=True))


@pytest.mark.parametrize("sigma", [0.3, 1.0, Fraction(17, 3), 64.5, 1024.0])
def test_gaussian_table_is_the_law(sigma):
    table = DiscreteGaussianTable(sigma)
    reach = math.ceil(15 * sigma) + 5
    reference = gaussian_reference(table.variance, reach)
    assert table.fold == 0
    assert cdf_error(table.base, reference, reach) <= mp.mpf(2) ** -128

    first, numerators = table.base.law()
    assert first == -table.reach
    assert numerators == numerators[::-1]
    padded = [0] * (reach - table.reach) + numerators + [0] * (reach - table.reach)
    distance = sum(abs(mp.mpf(a) / ONE - b) for a, b in zip(padded, reference, strict=True)) / 2
    assert distance <= table.total_variation <= 1e-34
    assert distance >= table.total_variation / 20  # the bound says something


def test_cdf_check_rejects_wrong_tables():
    reach, right = 155, DiscreteGaussianTable(10.0)
    reference = gaussian_reference(right.variance, reach)
    assert cdf_error(right.base, reference, reach) < TOLERANCE
    assert cdf_error(DiscreteGaussianTable(10.0 * (1 + 1e-15)).base, reference, reach) > TOLERANCE
    weights = np.exp(-(np.arange(-90, 91) ** 2) / 200)  # float64 probabilities
    floats = [int(Fraction(float(p)) * ONE) for p in weights / weights.sum()]
    floats[90] += ONE - sum(floats)
    assert cdf_error(IntegerTable(floats, -90), reference, reach) > TOLERANCE


def gaussian_cdf(variance: Fraction, z: int) -> mp.mpf:
    """P(X ≤ z) by Euler-Maclaurin: for σ ≥ 2^12, twelve correction terms leave less than 2^-200."""
    sigma = mp.sqrt(mp.mpf(variance.numerator) / variance.denominator)
    u = mp.mpf(z) / sigma
    w = mp.exp(-u * u / 2)
    hermite = [mp.mpf(1), u]  # the n-th derivative of w is (-1)^n He_n(u) w / σ^n
    for n in range(1, 25):
        hermite.append(u * hermite[n] - n * hermite[n - 1])
    corrections = (
        mp.bernoulli(2 * j) / mp.factorial(2 * j) * -hermite[2 * j - 1] * w / sigma ** (2 * j - 1) for j in range(1, 13)
    )
    total = sigma * mp.sqrt(2 * mp.pi)
    return mp.ncdf(u) + (w / 2 + sum(corrections)) / total


@pytest.mark.parametrize("variance", [Fraction(GRID_VARIANCE), Fraction(4096) ** 2, Fraction(262144) ** 2])
def test_folded_gaussian_is_the_law(variance):
    """X₁ + m X₂, summed exactly over the integer numerators, at points from the centre to the far tail."""
    table = DiscreteGaussianTable.from_variance(variance)
    first, numerators = table.base.law()
    cumulative = [0, *accumulate(numerators)]

    def cdf(z: int) -> mp.mpf:
        inner = (min(max(z - table.fold * (first + j) - first + 1, 0), len(numerators)) for j in range(len(numerators)))
        return mp.mpf(sum(p * cumulative[c] for p, c in zip(numerators, inner, strict=True))) / ONE**2

    sigma = table.sigma
    for u in (-11.0, -7.3, -3.1, -1.0, -0.01, 0.0, 0.4, 2.0, 5.0):
        z = round(u * sigma)
        assert abs(cdf(z) - gaussian_cdf(variance, z)) < TOLERANCE
    z = round(sigma)
    assert abs(cdf(z) - gaussian_cdf(variance * Fraction(10**15 + 1, 10**15), z)) > TOLERANCE


def test_the_grid_table_is_the_one_the_design_names():
    table = grid_table()
    assert table.fold == 64
    assert table.base is DiscreteGaussianTable(1024).base  # cached
    assert table.sigma == pytest.approx(65544, abs=0.01)
    assert table.total_variation < 1e-32


@pytest.mark.parametrize("scale", [0.2, 1.0, Fraction(10, 3), 300.0, GRID_LAPLACE_SCALE])
def test_laplace_table_is_the_law(scale):
    table = DiscreteLaplaceTable(scale)
    rate = mp.mpf(table.scale.denominator) / table.scale.numerator
    first, blocks = table.blocks.law()
    _, units = table.units.law()
    below, within = [0, *accumulate(blocks)], [0, *accumulate(units)]

    def cdf(x: int) -> mp.mpf:
        """P(X ≤ x): whole blocks below, and within its own block U runs upwards (x ≥ 0) or downwards (x < 0)."""
        number, offset = divmod(x, table.block)
        if not 0 <= number - first < len(blocks):
            return mp.mpf(number >= first)
        part = within[offset + 1] if x >= 0 else ONE - within[table.block - 1 - offset]
        return mp.mpf(below[number - first] * ONE + blocks[number - first] * part) / ONE**2

    spots = {round(u * float(scale)) + k for u in (-95, -80, -20, -3, -1, 0, 0.5, 2, 30, 85, 95) for k in (-1, 0, 1)}
    for x in spots:
        tail = mp.exp(-(abs(x) if x < 0 else x + 1) * rate) / (1 + mp.exp(-rate))
        assert abs(cdf(x) - (tail if x < 0 else 1 - tail)) <= mp.mpf(2) ** -126
    assert table.total_variation < 1e-34
    if scale <= 10:  # the whole law
        reach = table.block * len(blocks)
        pmf = {x: cdf(x) - cdf(x - 1) for x in range(-reach, reach + 1)}
        ideal = mp.tanh(rate / 2)
        distance = sum(abs(p - ideal * mp.exp(-abs(x) * rate)) for x, p in pmf.items()) / 2
        assert table.total_variation / 100 < distance <= table.total_variation


@pytest.mark.parametrize("sigma", [0.3, 0.5, 1.0, 1.5])
def test_variance_is_between_its_bounds(sigma):
    first, numerators = DiscreteGaussianTable(sigma).base.law()
    variance = mp.mpf(sum((first + i) ** 2 * p for i, p in enumerate(numerators))) / ONE
    s2 = mp.mpf(sigma) ** 2
    assert 1 / (mp.exp(1 / s2) - 1) <= variance <= s2


@given(st.lists(st.integers(0, 2**100), min_size=1, max_size=70), st.integers(-5, 5))
@settings(max_examples=60, deadline=None)
def test_integer_table_holds_any_law(weights, first):
    numerators = [*weights, ONE - sum(weights)]
    assert IntegerTable(numerators, first).law() == (first, numerators)


def test_sample_follows_the_rows(monkeypatch):
    """Chosen words on both sides of every threshold and row end give the outcome that integer arithmetic gives."""
    table = DiscreteGaussianTable(3.0).base
    rows = table._high.size
    limits = [int(h) << 64 | int(l) for h, l in zip(table._high, table._low, strict=True)]
    words = [
        w % ONE for r in range(rows) for w in (r * ONE // rows, limits[r] - 1, limits[r], (r + 1) * ONE // rows - 1)
    ]
    expected = [int(table._outcome[2 * r + (w < limits[r])]) for w in words for r in [w * rows // ONE]]
    halves = [np.array(half, np.uint64).tobytes() for half in ([w >> 64 for w in words], [w % 2**64 for w in words])]
    asked = []
    monkeypatch.setattr(secure_table.os, "urandom", lambda n: asked.append(n) or halves[len(asked) - 1])
    assert table.sample(len(words)).tolist() == expected
    assert asked == [8 * len(words)] * 2  # some upper halves leave it open: then all get a lower half
    apart = [w for w in range(0, ONE, ONE // 1000) if w >> 64 not in {x >> 64 for x in limits}]
    asked, halves = [], [np.array([w >> 64 for w in apart], np.uint64).tobytes()]
    monkeypatch.setattr(secure_table.os, "urandom", lambda n: asked.append(n) or halves[len(asked) - 1])
    assert table.sample(len(apart)).tolist() == [
        int(table._outcome[2 * r + (w < limits[r])]) for w in apart for r in [w * rows // ONE]
    ]
    assert asked == [8 * len(apart)]  # one word per draw, whatever it is


# --- the draws follow the laws

GAUSSIANS = [DiscreteGaussianTable(1.5), DiscreteGaussianTable(1024), DiscreteGaussianTable(5000.25), grid_table()]


@pytest.mark.parametrize("table", GAUSSIANS, ids=lambda t: f"{t.sigma:.6g}")
@pytest.mark.parametrize("size", [10**6, pytest.param(10**7, marks=pytest.mark.slow)])
def test_gaussian_draws(table, size):
    assert accepted(lambda: p_value(table.sample(size), gaussian, table.sigma))
    for off in (0.95, 1.05):
        assert p_value(table.sample(10**6), gaussian, off * table.sigma) < 1e-6


@pytest.mark.parametrize("scale", [0.8, 300.0, GRID_LAPLACE_SCALE])
@pytest.mark.parametrize("size", [10**6, pytest.param(10**7, marks=pytest.mark.slow)])
def test_laplace_draws(scale, size):
    table = DiscreteLaplaceTable(scale)
    assert accepted(lambda: p_value(table.sample(size), laplace, scale))
    for off in (0.95, 1.05):
        assert p_value(table.sample(10**6), laplace, off * scale) < 1e-6
