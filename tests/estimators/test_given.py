"""A wrong type in any parameter is one line that names it, before a record is looked at or anything is drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import coterie as ct
from coterie.errors import InputError
from coterie.estimators import (
    PrivateAdditiveClassifier,
    PrivateAdditiveRegressor,
    PrivateConsensusClassifier,
    PrivateConsensusRegressor,
    PrivateMean,
    PrivateSearch,
)

CLASSIFIER = PrivateConsensusClassifier(bounds=(0, 1), classes=[0, 1], rounds=2)
MODELS: list[Any] = [
    CLASSIFIER, PrivateConsensusRegressor(), PrivateAdditiveClassifier(), PrivateAdditiveRegressor(), PrivateMean(),
    PrivateSearch(CLASSIFIER, {"ridge": [0.1]}),
]  # fmt: skip
FREE = {"estimator", "param_grid", "account", "target_bounds"}  # checked on their own


class Unread:
    """Records that must not be looked at."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"the records were looked at: {name}")


@pytest.mark.parametrize("model", MODELS, ids=lambda m: type(m).__name__)
def test_every_parameter_of_a_wrong_type_is_named_in_one_line(model: Any) -> None:
    for name in model.get_params(deep=False).keys() - FREE:
        given = type(model)(**{**model.get_params(deep=False), name: object()})
        with pytest.raises(InputError, match=f"^{name} must be .* got a object$") as caught:
            given.fit(Unread(), None if isinstance(model, PrivateMean) else Unread())
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("grid", [3, None, [], {"nope": [1]}, {"ridge": 3}, {"ridge": []}])
def test_a_grid_that_cannot_be_is_refused_before_anything_is_drawn(grid: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PrivateSearch, "_draw", lambda *_: pytest.fail("drawn"))
    with pytest.raises(InputError, match=r"^param_grid[^\n]*$"):
        PrivateSearch(CLASSIFIER, grid).fit(np.zeros((20, 1)), np.arange(20) % 2)


def test_targets_are_checked_before_quantiles_are_paid_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PrivateAdditiveRegressor, "_pay_for_quantiles", lambda *_: pytest.fail("paid"))
    model = PrivateAdditiveRegressor(bounds=(0, 1), bins="quantiles", target_bounds=(1, 2, 3))  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"target_bounds must be \(low, high\), got \(1, 2, 3\)"):
        model.fit(np.zeros((20, 1)), np.zeros(20))


def test_columns_have_names_of_their_own_and_levels_are_texts() -> None:
    two = pd.DataFrame(np.zeros((20, 2)), columns=["a", "a"])
    for model in (CLASSIFIER, PrivateAdditiveClassifier(bounds=(0, 1), classes=[0, 1])):
        with pytest.raises(InputError, match=r"^column 'a' comes twice"):
            model.fit(two, np.arange(20) % 2)
    mixed = PrivateAdditiveClassifier(bounds={"a": ["x", 3]}, classes=[0, 1])
    with pytest.raises(InputError, match=r"bound of column 'a' is \['x', 3\]: levels are texts, all of them"):
        mixed.fit(pd.DataFrame({"a": ["x", 3] * 10}), np.arange(20) % 2)


def test_a_budget_too_small_to_split_is_refused() -> None:
    model = PrivateAdditiveClassifier(1e-6, bounds=(0, 1), classes=[0, 1], bins="quantiles")
    with pytest.raises(InputError, match="epsilon = 1e-06 at delta = 1e-05 is too small to be split"):
        model.fit(np.zeros((20, 1)), np.arange(20) % 2)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"bounds": {"age": 3}}, r"the public range of 'age' must be \(low, high\), got 3"),
        ({"bounds": {"age": ("a", 2)}}, r"the public range of 'age' must be \(low, high\), got \('a', 2\)"),
        ({"categories": {"sex": "fm"}}, "the public levels of 'sex' must be a list of texts or numbers, got 'fm'"),
        ({"categories": {"sex": None}}, "the public levels of 'sex' must be a list"),
        ({"bounds": {"sex": (0, 1)}}, "'sex' has bounds and categories"),
        ({"bins": 0}, "bins must be between 1 and 10000, got 0"),
        ({"bins": -1}, "bins must be between 1 and 10000, got -1"),
        ({"names": ["one"]}, "names must be 2 different names"),
        ({"names": ["one", "one"]}, "names must be 2 different names"),
        ({"people": 3}, "people must be text or a list"),
        ({"sites": []}, "sites is empty"),
        ({"sites": [{"age": [1.0], "sex": ["f", "m"]}] * 2}, "'age' has 1 values and 'sex' has 2"),
        (
            {"sites": [{"age": [[1.0]], "sex": ["f"]}] * 2},
            r"column 'age' must be one list of values, got shape \(1, 1\)",
        ),
    ],
)
def test_statistics_refuse_in_one_line(given: dict[str, Any], reason: str) -> None:
    asked: dict[str, Any] = {"bounds": {"age": (0, 100)}, "categories": {"sex": ["f", "m"]}, "names": None} | given
    sites = asked.pop("sites", [{"age": [30.0, 40.0], "sex": ["f", "m"]}] * 2)
    with pytest.raises(InputError, match=reason):
        ct.statistics(sites, budget=ct.Budget(1.0, 1e-5), charge=lambda *_: pytest.fail("charged"), **asked)


def test_attributes_have_names_of_their_own_and_edges_are_numbers() -> None:
    with pytest.raises(InputError, match="names of attributes are texts, and two are the same"):
        ct.additive({1: (0, 1), "1": (0, 1)})
    task = ct.additive({"0": (0, 1)}, bins={"0": ["q"]})
    sites = [(np.zeros((6, 1)), np.array([-1, 1] * 3))] * 3
    with pytest.raises(InputError, match=r"^problem\.bins[^\n]*$"):
        ct.train(task, ct.ring(sites), ct.dp_dsgd(), ct.Budget(1.0, 1e-5), rounds=2, seed=0)
