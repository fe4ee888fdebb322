"""Work on many rows in blocks gives what it gives in one piece, whatever the number of blocks."""

from __future__ import annotations

import numpy as np
import pytest

from coterie import passes
from coterie.passes import each, gather, joined, over, shuffled, some_not_finite, where
from coterie.problems.records import bounded_rows, lengths


@pytest.fixture
def in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of seven numbers, on threads, however few there are."""
    monkeypatch.setattr(passes, "MANY", 1)
    monkeypatch.setattr(passes, "BLOCK", 7)


def test_blocks_cover_all_rows_in_order_and_once(in_blocks: None) -> None:
    blocks = over(10, 3, lambda own: list(range(10))[own])
    assert len(blocks) == 5
    assert [row for block in blocks for row in block] == list(range(10))
    assert len(over(3, 100, lambda own: own)) == 3, "a row that is wider than a block is a block"


def test_a_failure_in_a_block_is_the_callers(in_blocks: None) -> None:
    with pytest.raises(ZeroDivisionError):
        over(10, 3, lambda own: 1 // (own.start - 6))


def test_rows_are_gathered_as_numpy_gathers_them(in_blocks: None) -> None:
    rng = np.random.default_rng(0)
    values = rng.standard_normal((20, 3))
    for rows in (rng.integers(0, 20, 50), rng.integers(0, 20, (6, 4)), rng.random(20) < 0.5, np.arange(0)):
        np.testing.assert_array_equal(gather(values, rows), values[rows])
    np.testing.assert_array_equal(gather(values[:, 0], np.arange(20)[::-1]), values[::-1, 0])
    with pytest.raises(IndexError, match="0 … 19, got 0 to 20"):
        gather(values, np.arange(21))
    words = np.array([["a"], [None]] * 10, dtype=object)
    np.testing.assert_array_equal(gather(words, np.arange(3)), words[:3])


def test_few_rows_are_looked_at_as_many_are() -> None:
    """A row number below zero would be another record's."""
    with pytest.raises(IndexError, match="0 … 3, got -1 to 2"):
        gather(np.zeros((4, 2)), np.array([2, -1]))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_one_bad_number_in_any_block_is_found(in_blocks: None, bad: float) -> None:
    values = np.zeros((20, 3))
    assert not some_not_finite(values)
    for row in range(20):
        values[row, row % 3] = bad
        assert some_not_finite(values)
        values[row, row % 3] = 0.0


def test_norms_and_bounds_in_blocks_are_those_of_single_rows(in_blocks: None) -> None:
    rows = np.random.default_rng(1).standard_normal((30, 4)) * np.geomspace(0.1, 10, 30)[:, None]
    np.testing.assert_allclose(lengths(rows)[:, 0], [np.sqrt(sum(v * v for v in row)) for row in rows], rtol=1e-15)
    np.testing.assert_array_equal(lengths(rows.reshape(6, 5, 4)), lengths(rows).reshape(6, 5, 1))
    assert np.max(lengths(bounded_rows(rows, 1.0))) <= 1 + 1e-15


@pytest.mark.slow
def test_norms_of_wide_rows_in_half_precision_are_not_short() -> None:
    """Squares are added in float64: 2²⁵ ones have norm √2²⁵, where a sum in float32 stops at 2²⁴."""
    wide = np.ones((1, 1 << 25), np.float32)
    assert lengths(wide)[0, 0] == pytest.approx(2**12.5, rel=1e-12)
    bounded = bounded_rows(wide, 1.0)
    assert bounded.dtype == np.float32
    assert lengths(bounded)[0, 0] == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize(("scale", "bound"), [(1.0, 1.0), (100.0, 1e-3), (6e4, 1.0)])
def test_rows_of_halves_are_not_longer_than_their_bound(scale: float, bound: float) -> None:
    """As halves they were up to 1.3 % longer: a factor of 1e-5 has three digits there."""
    rows = np.clip(np.random.default_rng(2).standard_normal((2000, 7)) * scale, -6e4, 6e4).astype(np.float16)
    assert np.max(lengths(bounded_rows(rows, bound))) <= bound * (1 + 2e-9)


def test_rows_without_columns_have_no_length() -> None:
    assert np.array_equal(lengths(np.zeros((3, 0))), np.zeros((3, 1)))
    assert lengths(np.zeros((0, 0))).shape == (0, 1)


def test_many_numbers_are_shuffled_by_all_cores_and_no_place_is_favoured(in_blocks: None) -> None:
    one, same, other = (shuffled(3000, np.random.default_rng(seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(np.sort(one), np.arange(3000))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)
    counts = np.zeros((4, 4))
    for seed in range(8):
        np.add.at(counts, (np.arange(4000) // 1000, shuffled(4000, np.random.default_rng(seed)) // 1000), 1)
    assert np.abs(counts - 2000).max() < 5 * np.sqrt(2000)


def test_few_numbers_are_shuffled_as_numpy_shuffles_them() -> None:
    expected = np.random.default_rng(3).permutation(100)
    np.testing.assert_array_equal(shuffled(100, np.random.default_rng(3)), expected)


def test_blocks_make_what_one_pass_makes(in_blocks: None) -> None:
    values = np.random.default_rng(0).standard_normal((50, 3))
    np.testing.assert_array_equal(each(lambda some: some > 0, values), values > 0)
    np.testing.assert_array_equal(where(lambda own: values[own, 0] > 0, 50), np.flatnonzero(values[:, 0] > 0))
    assert where(lambda own: values[own, 0] > 9, 50).tolist() == []
    assert joined([np.arange(2), np.arange(0), np.arange(3)]).tolist() == [0, 1, 0, 1, 2]
