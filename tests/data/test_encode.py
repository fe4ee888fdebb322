"""Encoding is by public rules, record by record."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.data.encode import Category, Number, class_indices, encode, normalise_rows
from coterie.errors import InputError
from coterie.losses.softmax import Softmax

FRAME = pd.DataFrame({"age": [10.0, 60.0, 200.0, None], "town": ["Oslo", " Rome", None, "Rome"]})
BOOK = {"age": Number(10, 110), "town": Category(("Rome", "Oslo"))}


def test_onehot_by_hand() -> None:
    z, names, largest = encode(FRAME, BOOK, flags=("town",))
    assert names == ("age", "town=Rome", "town=Oslo", "town=missing")
    assert z.tolist() == [[0, 0, 1, 0], [0.5, 1, 0, 0], [1, 0, 0, 1], [0, 1, 0, 0]]
    assert largest == pytest.approx(np.sqrt(2))


def test_centred_numbers_by_hand() -> None:
    """The middle of a range is 0, and stands for a gap; categories stay as they are."""
    z, _, largest = encode(FRAME, BOOK, flags=("age",), centre=True)
    assert z.tolist() == [[-1, 0, 0, 1], [0, 0, 1, 0], [1, 0, 0, 0], [0, 1, 1, 0]]
    assert largest == pytest.approx(np.sqrt(2))
    filled = {"age": Number(10, 110, fill=10.0)}
    z, _, largest = encode(FRAME[["age"]], filled, flags=("age",), centre=True)
    assert z.tolist() == [[-1, 0], [0, 0], [1, 0], [-1, 1]]
    assert largest == pytest.approx(np.sqrt(2))


def test_ordinal_by_hand() -> None:
    z, names, _ = encode(FRAME, BOOK, coding="ordinal")
    assert names == ("age", "town")
    assert z.tolist() == [[0, 1], [0.5, 0.5], [1, 0], [0, 0.5]]


def test_log_scale() -> None:
    assert Number(0, np.e**3 - 1, log=True).scale(np.array([0, np.e - 1, 1e9])) == pytest.approx([0, 1 / 3, 1])


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        ({"age": [1], "town": ["Bern"]}, "column 'town' has the unknown category 'Bern' in 1 rows: .*Rome, Oslo"),
        ({"age": ["old"], "town": ["Rome"]}, "column 'age' must be numeric, but has 'old'"),
        ({"age": [1]}, "column 'town' is missing: the table has age"),
    ],
)
def test_refusals(frame: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        encode(pd.DataFrame(frame), BOOK)


@pytest.mark.parametrize("ends", [(1, 1), (2, 1), (0, np.inf), (np.nan, 1)])
def test_ranges_must_be_ranges(ends: tuple[float, float]) -> None:
    with pytest.raises(InputError, match="low < high"):
        Number(*ends)


@pytest.mark.parametrize("levels", [(), ("a", "b", "a")])
def test_categories_must_be_different_names(levels: tuple[str, ...]) -> None:
    with pytest.raises(InputError, match="one or more different names"):
        Category(levels)


def test_class_indices() -> None:
    assert class_indices(pd.Series(["b", "a", " b"]), "y", ("a", "b")).tolist() == [1, 0, 1]
    with pytest.raises(InputError, match="label 'y' is missing in 1 rows"):
        class_indices(pd.Series(["b", None]), "y", ("a", "b"))


@settings(max_examples=60, deadline=None)
@given(scale=st.floats(1e-6, 1e6), seed=st.integers(0, 99), dtype=st.sampled_from([np.float32, np.float64]))
def test_row_norms(scale: float, seed: int, dtype: type) -> None:
    z = (scale * np.random.default_rng(seed).standard_normal((5, 3))).astype(dtype)
    z[0] = 0
    norms, slack = np.linalg.norm(z, axis=1), 4e-6 if dtype == np.float32 else 1e-12
    clipped, unit = normalise_rows(z, "clip"), normalise_rows(z, "unit")
    assert clipped.dtype == unit.dtype == dtype
    assert np.linalg.norm(clipped, axis=1) == pytest.approx(np.minimum(norms, 1), rel=slack)
    assert np.linalg.norm(unit[1:], axis=1) == pytest.approx(1, rel=slack)
    assert not unit[0].any()
    assert np.array_equal(clipped[norms < 1 - slack], z[norms < 1 - slack])
    assert np.array_equal(normalise_rows(z, "none"), z)
    np.testing.assert_allclose(normalise_rows(z, "max", 4.0), z / 4)
    for how in ("clip", "unit", "max"):  # a row's result does not depend on the others
        assert np.array_equal(normalise_rows(z[2:3], how, 4.0)[0], normalise_rows(z, how, 4.0)[2])


def test_row_norm_refusals() -> None:
    with pytest.raises(InputError, match="unknown row_norm 'l1': expected one of clip, unit, max, none"):
        normalise_rows(np.ones((1, 1)), "l1")
    with pytest.raises(InputError, match="needs public bounds"):
        normalise_rows(np.ones((1, 1)), "max")


@pytest.mark.parametrize("how", ["unit", "clip", "max"])
def test_rows_in_single_precision_lie_in_the_ball_that_prices_rest_on(how: str) -> None:
    """A softmax refused MNIST with `unit` and `clip`: rows of norm 1 measured 1.0000001."""
    pixels = np.random.default_rng(0).integers(0, 256, (3000, 784), np.uint8).astype(np.float32) / np.float32(255)
    rows = normalise_rows(pixels, how, 28.0)
    assert rows.dtype == np.float32
    assert Softmax(784, 10).outside(rows) is None
    assert np.linalg.norm(rows, axis=1).max() > 0.5, "they were shrunk for nothing"
