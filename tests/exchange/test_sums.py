"""Secret sums in one process: exact, of uniform shares, and refused where they could wrap around."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from coterie.errors import InputError
from coterie.exchange.additive import SumsHere, deal
from coterie.exchange.fixed_point import FixedPoint
from coterie.exchange.sums import SumTerms

# ---- the sum ---------------------------------------------------------------------------------------------------------


@settings(max_examples=12, deadline=None)
@given(st.integers(3, 64), st.integers(1, 5), st.integers(0, 40), st.integers(0, 2**32 - 1))
def test_the_sum_is_exact_up_to_rounding(parties: int, size: int, bits: int, seed: int) -> None:
    """|opened − Σ v| ≤ N 2^(−f−1) against rational arithmetic."""
    bound = 2.0 ** min(20, 55 - bits)
    values = np.random.default_rng(seed).uniform(-bound, bound, (parties, size))
    got = SumsHere(SumTerms(FixedPoint(parties, bits, bound)), size).open(list(values))
    exact = [2**bits * sum(map(Fraction, column)) for column in values.T.tolist()]
    assert max(abs(w - e) for w, e in zip(got.steps.tolist(), exact, strict=True)) <= Fraction(parties, 2)
    np.testing.assert_array_equal(got.values, np.ldexp(got.steps.astype(float), -bits))


def test_the_rounding_bound_is_attained() -> None:
    """Every party just below half a step: N 2^(−f−1) cannot be lowered."""
    almost = (0.5 - 1e-9) / 16
    got = SumsHere(SumTerms(FixedPoint(8, 4, 10.0)), 1).open(list(np.full((8, 1), almost)))
    assert got.values[0] == 0.0
    assert 8 * almost > 0.999 * FixedPoint(8, 4, 10.0).error


def test_nothing_can_wrap_around() -> None:
    with pytest.raises(InputError, match=r"≥ 2\^63: lower bound or fraction_bits"):
        FixedPoint(1000, 44, 2.0**10)
    FixedPoint(1000, 43, 2.0**10)
    code = FixedPoint(4, 24, 8.0)
    for bad in (8.1, -np.inf, np.nan):
        with pytest.raises(InputError, match="expected at most bound = 8"):
            code.encode([1.0, bad])
    edge = FixedPoint(3, 40, 2.0**21)  # 3 · 2^61 < 2^63
    total = sum((edge.encode([-(2.0**21)]) for _ in range(3)), np.zeros(1, np.uint64))
    assert edge.decode(total)[0] == -3 * 2.0**21


def test_whole_numbers_of_any_size_come_out_exactly() -> None:
    """Sums one after the other, with noise in whole steps."""
    rng, n = np.random.default_rng(3), 5
    sums = SumsHere(SumTerms(FixedPoint(n, 0, 2.0**52, reach=2**58)), 6)
    for _ in range(2):
        values, noise = rng.integers(-(2**52), 2**52, (n, 6)), rng.integers(-(2**58), 2**58, (n, 6))
        got = sums.open(list(values), list(noise))
        assert got.steps.tolist() == (values + noise).sum(0).tolist()
    with pytest.raises(InputError, match="the encoding has room for"):
        sums.open(list(values), list(4 * noise + 2**60))


def test_a_sum_needs_everybody_and_three_of_them() -> None:
    with pytest.raises(InputError, match="at least 3 parties"):
        SumTerms(FixedPoint(2))
    with pytest.raises(InputError, match="need everybody, and threshold 4 lets some be missing"):
        SumsHere(SumTerms(FixedPoint(5), honest=4, threshold=4), 2)
    sums = SumsHere(SumTerms(FixedPoint(3)), 2)
    with pytest.raises(ValueError, match="shorter"):
        sums.open([[1.0, 2.0], [3.0, 4.0]])
    with pytest.raises(InputError, match="expected 2 numbers to sum"):
        sums.open([[1.0, 2.0], [3.0], [4.0, 5.0]])


# ---- what is seen ----------------------------------------------------------------------------------------------------


def looks_uniform(words: np.ndarray) -> bool:
    """χ² on the top and on the bottom byte; a fair source fails once in 10⁶."""
    tests = [stats.chisquare(np.bincount((words >> np.uint64(s)).astype(np.uint8), minlength=256)) for s in (56, 0)]
    return min(t.pvalue for t in tests) > 0.5e-6


def test_any_shares_but_one_are_uniform() -> None:
    """Each of N − 1 shares, and a signed sum of them, whoever is left out; all N of them are not."""
    d, rng = 20_000, np.random.default_rng(1)
    for secret in (0.0, 123.456, -(2.0**20)):
        shares = deal(FixedPoint(4).encode(np.full(d, secret)), 4)
        for left_out in range(4):
            seen = np.delete(shares, left_out, axis=0)
            signs = rng.choice(np.array([1, 2**64 - 1], np.uint64), 3)
            assert all(map(looks_uniform, [*seen, signs @ seen]))
        assert not looks_uniform(shares.sum(axis=0))


def test_the_uniformity_check_finds_weak_shares() -> None:
    """Broken twins: shares of 63 bits, and a share that repeats some of its words."""
    (fair, *_) = deal(np.zeros(20_000, np.uint64), 3)
    assert looks_uniform(fair)
    assert not looks_uniform(fair >> np.uint64(1))
    assert not looks_uniform(np.tile(fair[:200], 100))
