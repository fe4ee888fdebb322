"""Words spell the records that they were taken from, and there are few where records have much in common."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from coterie.problems.words import Spelt, groups_of, spell

ROWS = 3000


def coded(levels: list[int], seed: int = 0) -> NDArray[np.float64]:
    """Categories of so many levels, the second of which says what the first is, and a number of seventy kinds."""
    rng = np.random.default_rng(seed)
    kinds = [rng.integers(0, n, ROWS) for n in levels]
    kinds[1] = kinds[0] % levels[1]
    blocks = [np.eye(n)[kind] for n, kind in zip(levels, kinds, strict=True)]
    features = np.concatenate([rng.integers(1, 71, (ROWS, 1)) / 70, *blocks], axis=1)
    return features / np.linalg.norm(features, axis=1, keepdims=True)


def read(spelt: Spelt, d: int) -> NDArray[np.float64]:
    """The records that words spell."""
    whole = np.zeros((len(spelt.column), d))
    np.add.at(whole, (np.arange(len(whole))[:, None], spelt.column), spelt.times)
    return (spelt.value[..., None] * whole[spelt.word]).sum(axis=1)


@pytest.mark.parametrize("levels", [[9, 4, 12, 3], [40, 20, 5]])
def test_words_spell_the_records(levels: list[int]) -> None:
    features = coded(levels)
    features[7] = 0
    groups = groups_of(features, 8.0)
    assert groups is not None
    assert sorted(np.concatenate(groups).tolist()) == list(range(features.shape[1]))
    other = coded(levels, 1)  # of an agent whose records no group was chosen by
    for held in (features, other):
        spelt = spell(held, groups)
        assert spelt.word.shape[1] < len(levels)
        assert len(spelt.column) < ROWS / 4
        np.testing.assert_allclose(read(spelt, features.shape[1]), held, rtol=0, atol=4e-16)


def test_columns_are_the_words_of_records_without_anything_in_common() -> None:
    features = np.random.default_rng(2).standard_normal((ROWS, 8)) * np.eye(8)[np.arange(ROWS) % 8].cumsum(axis=1)
    assert groups_of(features, 8.0) is None
    spelt = spell(features, None)
    np.testing.assert_array_equal(read(spelt, 8), features)
    np.testing.assert_array_equal(spelt.column[:, 0], np.arange(8))


def test_numbers_that_differ_by_more_than_rounding_are_other_words() -> None:
    """A thousandth of a millionth of a millionth is more than rounding; the last digit of a quotient is not."""
    features = coded([9, 4, 12, 3])
    groups = groups_of(features, 8.0)
    assert groups is not None
    count = len(spell(features, groups).column)
    nudged, rounded = features.copy(), features.copy()
    nudged[11, 1:] *= 1 + 1e-12
    rounded[11] = np.nextafter(features[11], 1) * (features[11] > 0)
    for held in (nudged, rounded):
        spelt = spell(held, groups)
        np.testing.assert_allclose(read(spelt, held.shape[1]), held, rtol=0, atol=4e-16)
    assert len(spell(rounded, groups).column) <= count + len(groups)
