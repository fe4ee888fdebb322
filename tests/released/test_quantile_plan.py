"""A plan with bins at quantiles: two steps, each with its price, that together cost what the plan says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import coterie as ct
from coterie.cli import main
from coterie.errors import InputError
from coterie.experiment import prepare, price
from coterie.plan import read_plan, validate
from coterie.privacy import gdp
from coterie.privacy.accountants import account, total_mu
from coterie.privacy.ledger import BudgetExceeded
from coterie.released.once import events_of
from coterie.released.quantile_plan import staged
from coterie.written import toml_of

RECORDS = 6000


def tree_of(folder: Path, **tables: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    wage = rng.gamma(2.0, 10.0, RECORDS)
    table = pd.DataFrame({"wage": wage, "age": rng.uniform(20, 60, RECORDS)})
    table["y"] = np.where(np.abs(wage - 18) < 9, "yes", "no")
    table.to_csv(folder / "a.csv", index=False)
    options = {"classes": ["no", "yes"], "bounds": {"wage": [0, 200], "age": [0, 100]}}
    return {
        "data": {"source": "csv", "path": str(folder / "a.csv"), "label": "y", "options": options},
        "partition": {"kind": "iid", "agents": 3},
        "problem": {"model": "additive", "bins": {"wage": "quantiles", "age": 20}},
        "privacy": {"epsilon": 1.0, "delta": 1e-5},
        "run": {"references": "none"},
    } | tables


def test_both_steps_together_cost_what_the_plan_says(tmp_path: Path) -> None:
    tree = tree_of(tmp_path)
    done = staged(tree)
    assert done.told.once is not None
    assert done.told.names == ("wage",)  # nothing else is counted
    counts = events_of(done.told.once.priced)
    following = validate(done.tree)
    training = events_of(price(following, prepare(following).network))
    whole = float(gdp.mu_for(1.0, 1e-5))
    assert total_mu(counts) == pytest.approx(0.1**0.5 * whole, rel=1e-3)
    assert total_mu([*counts, *training]) == pytest.approx(whole, rel=1e-3)
    assert account([*counts, *training], 1e-5).epsilon <= 1.0
    edges = done.tree["problem"]["bins"]["wage"]
    values = np.sort(pd.read_csv(tmp_path / "a.csv")["wage"].to_numpy())
    assert np.searchsorted(values, edges) / RECORDS == pytest.approx(np.arange(1, 10) / 10, abs=0.06)
    assert tree["problem"]["bins"]["wage"] == "quantiles"  # what was given is left as it was
    assert done.tree["problem"]["bins"]["age"] == 20


def test_the_command_writes_the_plan_that_follows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plan.toml").write_text(toml_of(tree_of(tmp_path)), "utf-8")
    (tmp_path / "deep").mkdir()
    call = ["stats", str(tmp_path / "plan.toml"), "--next", str(tmp_path / "deep" / "next.toml"), "--edges", "4"]
    assert main(call) == 0
    assert "together (1, 1e-05)" in capsys.readouterr().out.replace("\n", " ")
    following = read_plan(tmp_path / "deep" / "next.toml")  # finds the table from where it lies
    assert len(following.problem.bins["wage"]) == 3
    assert len(prepare(following).features) < RECORDS  # some are held out
    assert main(call) == 2  # a plan that is there stays
    assert main(["account", str(tmp_path / "plan.toml")]) == 2
    assert "--next" in capsys.readouterr().err.replace("\n", " ")


@pytest.mark.parametrize(
    ("tables", "more", "words"),
    [
        ({"problem": {"model": "additive"}}, {}, "no column of problem.bins is 'quantiles'"),
        ({"privacy": {"epsilon": [1.0, 1.0, 1.0]}}, {}, "one privacy.epsilon for all parties"),
        ({"algorithm": {"name": "dp-dsgd", "batch": 50, "scheme": "poisson"}}, {}, "events of different adjacency"),
        ({}, {"share": 1.0}, "quantile_share must be between 0 and 1"),
        ({}, {"bins": 1}, "2 to 64 bins"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tables: dict[str, Any], more: dict[str, Any], words: str
) -> None:
    monkeypatch.setattr("coterie.released.quantile_plan.planned_statistics", lambda *_, **__: pytest.fail("counted"))
    with pytest.raises(InputError, match=words):
        staged(tree_of(tmp_path, **tables), **more)


def test_the_counts_draw_on_an_account_first(tmp_path: Path) -> None:
    tree = tree_of(tmp_path)
    path = tmp_path / "a.csv"
    small = ct.DataAccount.open(tmp_path / "a.account", ct.Budget(0.1, 1e-5), data=path, keeper=tmp_path / "k")
    with pytest.raises(BudgetExceeded):
        staged(tree, account=small)
    assert small.contents().spent.units == 0
