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
from coterie.experiment import prepare
from coterie.explain import explain
from coterie.plan import read_plan, validate
from coterie.pricing import price
from coterie.privacy import gdp
from coterie.privacy.accountants import account, total_mu
from coterie.privacy.ledger import BudgetExceeded
from coterie.released.once import events_of
from coterie.released.quantile_plan import staged
from coterie.report.certificate import certificate
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


def test_both_steps_together_cost_what_the_plan_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coterie.released.quantile_plan.fresh_seed", lambda: 7)  # for the test of the edges
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


def test_a_category_and_an_unknown_column_are_refused_before_anything_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = tree_of(tmp_path)
    table = pd.read_csv(tmp_path / "a.csv")
    table["sex"] = np.where(table["age"] > 40, "f", "m")
    table.to_csv(tmp_path / "a.csv", index=False)
    tree["data"]["options"]["categories"] = {"sex": ["f", "m"]}
    monkeypatch.setattr("coterie.released.quantile_plan.planned_statistics", lambda *_, **__: pytest.fail("counted"))
    for name, words in (("sex", "has no quantiles"), ("height", "unknown column")):
        tree["problem"]["bins"] = {name: "quantiles"}
        with pytest.raises(InputError, match=words):
            staged(tree)


def test_no_place_for_the_next_plan_is_refused_before_anything_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coterie.released.quantile_plan.planned_statistics", lambda *_, **__: pytest.fail("counted"))
    (tmp_path / "plan.toml").write_text(toml_of(tree_of(tmp_path)), "utf-8")
    assert main(["stats", str(tmp_path / "plan.toml"), "--next", str(tmp_path / "a.csv" / "next.toml")]) == 2


def test_edges_stay_apart_in_a_range_far_from_zero_and_on_a_logarithm(tmp_path: Path) -> None:
    """Rounding to six digits put all edges of this range on its end, after the counts were paid for."""
    tree = tree_of(tmp_path)
    table = pd.read_csv(tmp_path / "a.csv")
    part = table["wage"].rank() / RECORDS
    table["wage"] = 1e7 + part
    table["age"] = 1e6 ** part.to_numpy() - 1
    table.to_csv(tmp_path / "a.csv", index=False)
    tree["data"]["options"] |= {"bounds": {"wage": [1e7, 1e7 + 1], "age": [0, 1e6]}, "log": ["age"]}
    tree["problem"]["bins"] = {"wage": "quantiles", "age": "quantiles"}
    tree["privacy"]["epsilon"] = 20.0  # noise that cannot be seen
    edges = staged(tree).tree["problem"]["bins"]
    assert np.subtract(edges["wage"], 1e7) == pytest.approx(np.arange(1, 10) / 10, abs=0.08)
    assert np.log1p(edges["age"]) / np.log(1e6) == pytest.approx(np.arange(1, 10) / 10, abs=0.08)


def test_two_runs_do_not_share_their_noise(tmp_path: Path) -> None:
    """With one seed, sums with noise σ₁z and σ₂z of two shares would give the sums away."""
    tree = tree_of(tmp_path)
    one, two = (staged(tree, share=share).told for share in (0.1, 0.4))
    assert one.once is not None
    assert two.once is not None
    noisy = [told.once.point[:-1] for told in (one, two)]
    scale = one.once.noise / two.once.noise
    guess = (noisy[0] - scale * noisy[1]) / (1 - scale)  # exact, were the draws the same
    table = pd.read_csv(tmp_path / "a.csv")
    share = np.histogram(table["wage"], bins=64, range=(0, 200))[0] / RECORDS
    assert min(np.abs(guess[k : k + 64] / 1.0 - share).max() for k in range(len(guess) - 63)) > 1e-4


def test_whoever_reads_the_second_plans_epsilon_is_told_that_it_is_a_part(tmp_path: Path) -> None:
    following = validate(staged(tree_of(tmp_path)).tree)
    assert following.privacy is not None
    assert following.privacy.before is not None
    network = prepare(following).network
    priced = price(following, network)
    said = [one["statement"] for one in certificate(following, network, priced)["statements"]]
    (told,) = [one for one in said if "bins at quantiles of wage" in one]
    assert "does NOT cover" in told
    assert "(1, 1e-05) where all their events are Gaussian" in told
    assert not any("none was read from the records" in one for one in said)
    lines, _, _ = explain(following)
    assert any("bins at quantiles of wage" in line for line in lines)
    with pytest.raises(InputError, match="counted already"):  # the plan that follows is not counted once more
        staged(following.as_json() | {"problem": {"model": "additive", "bins": {"wage": "quantiles"}}})


def test_the_counts_draw_on_an_account_first(tmp_path: Path) -> None:
    tree = tree_of(tmp_path)
    path = tmp_path / "a.csv"
    small = ct.DataAccount.open(tmp_path / "a.account", ct.Budget(0.1, 1e-5), data=path, keeper=tmp_path / "k")
    with pytest.raises(BudgetExceeded):
        staged(tree, account=small)
    assert small.contents().spent.units == 0
