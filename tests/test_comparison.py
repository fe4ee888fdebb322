"""A comparison runs what its plans say, the exchange and the seeds too; what it would not obey it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coterie.cli import main
from coterie.comparison import ComparedMethod, compare
from coterie.errors import InputError
from coterie.experiment import prepare
from coterie.plan import Plan, refuse_ignored, stated_seeds, validate
from coterie.pricing import price
from tests.support import mostly_slow


def plan(**tables: Any) -> Plan:
    tree: dict[str, Any] = {
        "data": {"options": {"records": 120, "features": 3, "sites": 3}}, "graph": {"kind": "complete"},
        "algorithm": {"name": "gauss-avg-gd"}, "problem": {"loss": "logistic"}, "privacy": {}, "run": {"rounds": 5},
    }  # fmt: skip
    return validate(tree | tables)


EXCHANGES = {
    "coarse": {"kind": "quantized", "bits": 2, "bound": 1.0},
    "fine": {"kind": "quantized", "bits": 20},
    "sum": {"kind": "secret-sum", "fraction_bits": 10},
}


@pytest.mark.parametrize("name", mostly_slow(EXCHANGES, "sum"))
def test_the_exchange_of_a_plan_is_obeyed(name: str) -> None:
    """The cell is the run of the same plan; without the exchange it is another one."""
    asked, usual = plan(exchange=EXCHANGES[name]), plan()
    (cell, other), _ = compare([ComparedMethod("asked", asked), ComparedMethod("usual", usual)], [1.0], 2)
    experiment = prepare(asked)
    trace = experiment.run(price(asked, experiment.network), [0, 1])
    assert cell["loss"]["per_seed"] == pytest.approx(trace.curves["train_loss"][:, -1].tolist(), rel=1e-12)
    assert cell["exchange"] == EXCHANGES[name]["kind"]
    assert cell["loss"]["mean"] != other["loss"]["mean"]
    assert cell["bytes"] != other["bytes"]
    if name == "coarse":
        assert any("were cut to exchange.bound" in words for words in cell["warnings"])


def test_epsilon_of_sums_is_compared_with_its_like_only() -> None:
    sums = {"kind": "secret-sum", "honest": 3, "noise": "central", "fraction_bits": 14}
    central = ComparedMethod("central", plan(exchange=sums, graph={"kind": "complete", "mixing": "uniform"}))
    with pytest.raises(InputError, match="pay for another adversary"):
        compare([central, ComparedMethod("local", plan())], [1.0], 1)
    (cell,), _ = compare([central], [0.5], 1)
    assert cell["true_epsilon"] == pytest.approx(0.5, rel=1e-3)


def test_budgets_of_single_agents_are_refused() -> None:
    with pytest.raises(InputError, match=r"privacy\.epsilon = \[1\.0, 2\.0, 3\.0\] gives each party its own budget"):
        compare([ComparedMethod("listed", plan(privacy={"epsilon": [1.0, 2.0, 3.0]}))], [1.0], 1)


@pytest.mark.slow
def test_seeds_are_those_of_the_plan_unless_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two, three = plan(run={"rounds": 3, "seeds": 2}), plan(run={"rounds": 3, "seeds": 3})
    assert stated_seeds([two, plan()], 10) == 2
    assert stated_seeds([plan()], 10) == 10
    with pytest.raises(InputError, match=r"different run\.seeds, \[2, 3\]"):
        stated_seeds([two, three], 10)
    (tmp_path / "plan.toml").write_text(
        "[data]\noptions = {records = 120, features = 3}\n[privacy]\n[run]\nrounds = 3\nseeds = 2\n"
    )
    command = ["compare", str(tmp_path / "plan.toml"), "--epsilons", "1"]
    for said, count in (([], 2), (["--seeds", "1"], 1)):
        assert main([*command, *said, "--out", str(tmp_path / str(count))]) == 0
        (cell,) = json.loads((tmp_path / str(count) / "comparison.json").read_text())["cells"]
        assert len(cell["score"]["per_seed"]) == count
    capsys.readouterr()
    for forms, there in ((["--pictures", "svg"], True), ([], False)):  # stored cells, drawn anew
        assert main([*command, "--seeds", "1", "--out", str(tmp_path / "1"), *forms]) == 0
        assert (tmp_path / "1" / "score-vs-epsilon.svg").exists() == there  # no picture of an earlier run is left
    capsys.readouterr()


def test_a_key_that_is_not_obeyed_is_refused() -> None:
    refuse_ignored(plan(), "nobody", "privacy.schedule", "deploy.tick", "run.every")
    with pytest.raises(InputError, match=r"run\.every = 4 is not obeyed by nobody: leave it out"):
        refuse_ignored(plan(run={"every": 4}), "nobody", "run.every")
