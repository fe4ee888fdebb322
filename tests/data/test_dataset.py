"""A data set refuses what cannot be learned from, naming it; `take` keeps rows together."""

import numpy as np
import pytest

from coterie.data import ALL_PUBLIC, Dataset
from coterie.errors import InputError


def small(**changes) -> Dataset:
    fields = {
        "name": "small",
        "features": np.arange(8.0).reshape(4, 2),
        "targets": np.array([0, 1, 1, 0]),
        "classes": ("no", "yes"),
        "feature_names": ("a", "b"),
        "sites": np.array([0, 0, 1, 1]),
        "site_names": ("x", "y"),
        "people": np.array([7, 7, 8, 9]),
        "test": np.array([False, False, False, True]),
        "columns": {"targets": np.array(list("pqrs"))},  # a raw column may have any name
        "origins": ALL_PUBLIC,
    }
    return Dataset(**(fields | changes))


def test_take_keeps_rows_together() -> None:
    part = small().take(np.array([2, 0]))
    assert part.features.tolist() == [[4, 5], [0, 1]]
    assert part.targets.tolist() == [1, 0]
    assert part.sites.tolist() == [1, 0]
    assert part.people.tolist() == [8, 7]
    assert part.test.tolist() == [False, False]
    assert part.columns["targets"].tolist() == ["r", "p"]
    assert part.site_names == ("x", "y")
    assert len(part) == 2


@pytest.mark.parametrize("nothing", [np.array([], int), np.zeros(4, bool)])
def test_no_rows_are_no_data_set(nothing: np.ndarray) -> None:
    with pytest.raises(InputError, match="'small' is empty"):
        small().take(nothing)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": np.array([[0, 1], [np.nan, 2], [np.nan, 3], [1, np.inf]])}, "column 'a' is not finite in 2 rows"),
        ({"features": np.array([[0, 1], [1, 2], [2, 3], [1, -np.inf]])}, "column 'b' is not finite in 1 rows"),
        ({"features": np.zeros((0, 2))}, "'small' is empty"),
        ({"features": np.zeros((4, 0))}, "'small' is empty"),
        ({"targets": np.array([0, 1, 2, 0])}, "class indices must lie in 0 … 1"),
        ({"targets": np.array([0, 1, -1, 0])}, "class indices must lie in 0 … 1"),
        ({"targets": np.array([0.0, np.nan, 1, np.inf]), "classes": None}, "the target is not finite in 2 rows"),
        ({"targets": np.array([0, 1])}, "4 records but 2 targets"),
        ({"sites": np.array([0])}, "4 records but 1 sites"),
        ({"columns": {"sex": np.zeros(3)}}, "4 records but 3 sex"),
        ({"feature_names": ("a",)}, "2 features but 1 feature names"),
    ],
)
def test_bad_data_is_refused(changes: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        small(**changes)
