"""Bins at quantiles: paid from the same budget, exactly, and by what was released alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import coterie as ct
from coterie.data.encode import Number
from coterie.errors import InputError
from coterie.estimators import PrivateAdditiveClassifier
from coterie.privacy import gdp
from coterie.privacy.accountants import total_mu
from coterie.privacy.ledger import Budget, BudgetExceeded
from coterie.privacy.people import of_group
from coterie.released.quantile_bins import edges_of, quantile_edges, split_budget


def sites(count: int = 4, each: int = 3000, seed: int = 0) -> list[pd.DataFrame]:
    rng = np.random.default_rng(seed)
    return [pd.DataFrame({"wage": rng.gamma(2.0, 10.0, each), "age": rng.uniform(20, 60, each)}) for _ in range(count)]


def test_two_parts_of_a_budget_compose_to_the_whole() -> None:
    one, two = split_budget(Budget(1.0, 1e-5), 0.2)
    parts = [float(gdp.mu_for(*part)) for part in (one, two)]
    assert parts[0] ** 2 / np.sum(np.square(parts)) == pytest.approx(0.2, rel=1e-6)
    assert float(gdp.epsilon_of(np.hypot(*parts), 1e-5)) == pytest.approx(1.0, rel=1e-4)
    assert float(gdp.epsilon_of(np.hypot(*parts), 1e-5)) <= 1.0
    for share in (0, 1, True, "half", float("nan")):
        with pytest.raises(InputError, match="quantile_share must be between 0 and 1"):
            split_budget(Budget(1.0, 1e-5), share)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="needs delta > 0"):
        split_budget(Budget(1.0, 0.0), 0.1)


def test_edges_are_near_the_quantiles_and_fewer_where_values_repeat() -> None:
    tables = sites()
    ranges = {"wage": Number(0, 200), "age": Number(0, 100)}
    edges, events = quantile_edges(tables, ranges, Budget(1.0, 1e-5), seed=3)
    whole = pd.concat(tables)
    for name, found in edges.items():
        assert len(found) == 9
        held = np.searchsorted(np.sort(whole[name].to_numpy()), found) / len(whole)
        assert held == pytest.approx(np.arange(1, 10) / 10, abs=0.04)
    assert total_mu(events) == pytest.approx(float(gdp.mu_for(1.0, 1e-5)), rel=1e-4)
    flags = [pd.DataFrame({"wage": np.full(3000, 7.0)}) for _ in range(3)]
    same, _ = quantile_edges(flags, {"wage": Number(0, 100)}, Budget(5.0, 1e-5), seed=0)
    assert 1 <= len(same["wage"]) <= 9
    assert same["wage"] == sorted(set(same["wage"]))
    assert all(5 < edge < 9 for edge in same["wage"])


@pytest.mark.parametrize("values", [np.full(40, np.nan), np.full(40, 1e300), np.full(40, -np.inf), np.zeros(40)])
def test_edges_are_edges_whatever_the_records_are(values: np.ndarray) -> None:
    """Nothing there, or nothing inside: some edges all the same, and never an error that the records decide."""
    edges, _ = quantile_edges([pd.DataFrame({"a": values})] * 2, {"a": Number(0, 1)}, Budget(0.5, 1e-5), seed=1)
    assert edges["a"] == sorted(set(edges["a"]))
    assert all(0 < edge < 1 for edge in edges["a"])


def labelled(records: int = 6000) -> tuple[pd.DataFrame, np.ndarray]:
    table = pd.concat(sites(2, records // 2), ignore_index=True)
    return table, (np.abs(table["wage"] - 18) < 9).to_numpy()


def estimator(**more: Any) -> PrivateAdditiveClassifier:
    known: dict[str, Any] = {"bounds": {"wage": (0, 200), "age": (0, 100)}, "classes": [False, True], "random_state": 0}
    return PrivateAdditiveClassifier(**(known | more))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::coterie.estimators.RepeatedFitWarning")
def test_an_estimator_pays_for_quantiles_and_training_together() -> None:
    X, y = labelled()
    agents = np.arange(len(y)) % 3
    model = estimator(bins="quantiles").fit(X, y, agents=agents)
    assert [len(a.edges) for a in model.bins_.attributes] == [9, 9]
    for book in model.ledger_.values():
        mus = [total_mu([entry.event]) for entry in book.entries]
        assert mus[0] == pytest.approx(float(gdp.mu_for(1.0, 1e-5)) * 0.1**0.5, rel=1e-3)
        assert len(mus) > 1
        assert total_mu([entry.event for entry in book.entries]) <= float(gdp.mu_for(1.0, 1e-5)) * (1 + 1e-9)
        assert book.spent() == pytest.approx(1.0, rel=1e-3)
    assert 0.99 < model.epsilon_spent_ <= 1.0
    both = [entry.event for entry in next(iter(model.ledger_.values())).entries]
    assert model.protects_["of_records"]["10"] == pytest.approx(of_group(both, 10, 1e-5, lawful=True))
    assert model.score(X, y) > 0.85
    again = estimator(bins={"wage": "quantiles", "age": 20}).fit(X, y, agents=agents)
    assert [len(a.edges) for a in again.bins_.attributes] == [9, 4]
    again.set_params(bins={"wage": 20, "age": 20}).fit(X, y, agents=agents)  # and nothing is left of an earlier fit
    assert len(next(iter(again.ledger_.values())).entries) == 1
    assert again.epsilon_spent_ == pytest.approx(1.0, rel=1e-6)
    assert model._paid is not None
    model._paid = replace(model._paid, whole=Budget(0.5, 1e-5))  # as if training had cost more than was planned
    with pytest.raises(InputError, match="not priced by Gaussian events alone"):
        model._add_quantiles()
    assert model.epsilon_spent_ == np.inf  # no figure of the training alone is left over


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"bins": "deciles"}, "bins must be a dictionary by column or 'quantiles', got 'deciles'"),
        ({"bins": 3}, "bins must be a dictionary"),
        ({"bins": "quantiles", "epsilon": [1.0, 2.0]}, "one epsilon for all parties"),
        ({"bins": "quantiles", "quantile_share": 2}, "quantile_share must be between 0 and 1, got 2"),
        ({"bins": {"job": "quantiles"}, "bounds": {"wage": (0, 200), "job": ["a"]}}, "category"),
    ],
)
def test_mistakes_are_named(more: dict[str, Any], words: str) -> None:
    X, y = labelled(400)
    X = X.assign(job="a")[["wage", "job"]] if "job" in str(more) else X
    with pytest.raises(InputError, match=words):
        estimator(**more).fit(X, y, agents=np.arange(len(y)) % 2)


def test_people_are_not_counted_as_records() -> None:
    X, y = labelled(400)
    with pytest.raises(InputError, match="people are the unit"):
        estimator(bins="quantiles").fit(X, y, agents=np.arange(400) % 2, people=np.arange(400) // 2)


def test_an_account_is_drawn_for_both(tmp_path: Path) -> None:
    X, y = labelled(900)
    account = ct.DataAccount.open(tmp_path / "a.account", ct.Budget(1.2, 1e-5), data=(X, y), keeper=tmp_path / "k")
    with pytest.raises(InputError, match="random_state = 0"):
        estimator(bins="quantiles", account=account).fit(X, y, agents=np.arange(900) % 3)
    assert account.contents().spent.units == 0  # refused before the quantiles were drawn
    estimator(bins="quantiles", account=account, random_state=None).fit(X, y, agents=np.arange(900) % 3)
    spent = float(account.contents().spent.units / 2**96) ** 0.5
    assert spent == pytest.approx(float(gdp.mu_for(1.0, 1e-5)), rel=1e-3)
    with pytest.raises(BudgetExceeded):
        estimator(bins="quantiles", account=account, random_state=None).fit(X, y, agents=np.arange(900) % 3)


def test_a_number_of_bins() -> None:
    told = ct.statistics(sites(2, 500), budget=Budget(2.0, 1e-5), bounds={"wage": (0, 200)}, moments=False, seed=0)
    assert len(edges_of(told, "wage", 4)) == 3
    for bins in (1, 65, True, 2.5):
        with pytest.raises(InputError, match="quantiles make 2 to 64 bins"):
            edges_of(told, "wage", bins)  # type: ignore[arg-type]
