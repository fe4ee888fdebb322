"""Ding, chapters 5 and 6: the printed table's audit, printed costs, and quick runs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from coterie.fair.printed import extended_gaussian
from reproduction import _dissertation_ch56_runs as runs
from reproduction.base import all_figures
from reproduction.runner import reproduce
from reproduction.study import Study


def test_five_printed_cells_are_impossible() -> None:
    """Adult PFLR* ε = 1, PDFC .1 and 1; US PDFC .01 and .1."""
    odd = {
        (data, method, epsilon)
        for data, table in runs.PRINTED.items()
        for method, row in table.items()
        for epsilon, (mean, sd) in zip(runs.TABLE_EPSILONS, row, strict=True)
        if runs.impossible(mean, sd)
    }
    assert odd == {
        ("Adult", "PFLR*", 1.0), ("Adult", "PDFC", 0.1), ("Adult", "PDFC", 1.0), ("US", "PDFC", 0.01),
        ("US", "PDFC", 0.1),
    }  # fmt: skip


def test_the_bound_on_a_standard_deviation_is_attained() -> None:
    """One value of ten alone is not 0: sd = √10 · mean; nothing ≥ 0 goes above."""
    one = np.zeros(10)
    one[0] = 5.0
    assert one.std(ddof=1) == pytest.approx(10**0.5 * one.mean())
    assert not runs.impossible(float(one.mean()), float(one.std(ddof=1)))
    assert runs.impossible(float(one.mean()), 1.05 * float(one.std(ddof=1)))
    draws = np.random.default_rng(0).exponential(size=(1000, 10)) ** 3
    assert not any(runs.impossible(float(d.mean()), float(d.std(ddof=1))) for d in draws)


def test_most_cases_rest_on_the_census() -> None:
    """PDFC and ADFC beat PFLR* in 1 and 0 of 4 cells on Adult, in 4 and 4 on US."""
    wins = {
        (data, m): sum(a[0] < b[0] for a, b in zip(table[m], table["PFLR*"], strict=True))
        for data, table in runs.PRINTED.items()
        for m in ("PDFC", "ADFC")
    }
    assert wins == {("Adult", "PDFC"): 1, ("Adult", "ADFC"): 0, ("US", "PDFC"): 4, ("US", "ADFC"): 4}


@pytest.mark.parametrize(("epsilon", "ratio"), [(0.01, 366), (0.1, 36.7), (1.0, 3.79), (10.0, 0.472)])
def test_printed_gaussian(epsilon: float, ratio: float) -> None:
    assert extended_gaussian(epsilon, 1e-3) == pytest.approx(ratio, rel=2e-3)


@pytest.mark.data
def test_printed_methods_spend_less_than_they_claim_and_say_no() -> None:
    """d = 12: ε (4√d + d/4)/(d²/4 + 3d) = .2341 for PFLR* at ε = 1; from there on a constant no."""
    found = json.loads(runs.cells(Study(), panels=["Figure 18a"], variant="base", seeds=1, epsilons=[1.0])["cells"])
    printed = {m: runs.pick(found, "Figure 18a", m, as_printed=True)[0] for m in ("pflr-star", "pdfc", "adfc")}
    assert printed["pflr-star"]["spent_epsilon"] == pytest.approx((4 * 12**0.5 + 3) / (36 + 36), rel=1e-6)
    assert printed["pdfc"]["spent_epsilon"] == pytest.approx(0.2341 * 12 / 11.1, rel=1e-3)
    assert all(c["spent_epsilon"] < 1 and c["positive_rate"]["mean"] < 0.01 for c in printed.values())
    exact = runs.pick(found, "Figure 18a", "adfc", as_printed=False)[0]
    assert exact["spent_epsilon"] == pytest.approx(1.0, rel=1e-3)
    assert exact["positive_rate"]["mean"] > 0.03


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize("slug", ["dissertation-ch56-fig17", "dissertation-ch56-fig18", "dissertation-ch56-table1"])
def test_quick_versions_run(slug: str, tmp_path: Path) -> None:
    found = reproduce(all_figures()[slug], tmp_path, quick=True)
    assert found["quick"]
    assert found["seeds"] == 2
    assert all(np.isfinite(list(c["value"].values())).all() for c in found["claims"])
    assert all(b["true"] <= b["claimed"] for b in found["budgets"])
