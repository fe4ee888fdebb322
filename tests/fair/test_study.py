"""Plans of fairness studies and the command that runs them."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError

from coterie.cli import main
from coterie.errors import InputError
from coterie.fair.study import prepare, run
from coterie.fair.study_plan import FairPlan, read_fair_plan

PLAN = """
name = "made up"
epsilons = [1.0, 100.0]
delta = 1e-5
seeds = 3
holders = 3

[data]
source = "csv"
path = "{path}"
label = "hired"
classes = ["no", "yes"]
protected = "sex"

[data.bounds]
sex = ["f", "m"]
skill = [-4, 4]
merit = [-4, 4]
age = [20, 60]

[codings.ours]

[[runs]]
method = "lr"
[[runs]]
method = "adfc"
[[runs]]
method = "adfc"
attribute = "age"
ratio = 10
[[runs]]
panel = "printed"
method = "pdfc"
as_printed = true
printed = {{ "1" = [0.1, 0.2] }}
[[runs]]
panel = "holders"
method = "adfc"
over = "secret-sum"
[[runs]]
panel = "holders"
method = "adfc"
over = "consensus"
[[runs]]
panel = "δ"
method = "relaxed-fm"
epsilons = [1.0]
deltas = [1e-3, 1e-5]
[[runs]]
panel = "δ"
method = "fm"
epsilons = [inf]
label = "no privacy"
"""


@pytest.fixture
def plan(tmp_path):
    rng = np.random.default_rng(0)
    n = 3000
    sex = rng.choice(["f", "m"], size=n)
    skill, merit = rng.normal(size=n) + 1.5 * (sex == "m"), rng.normal(size=n)
    table = pd.DataFrame({
        "sex": sex, "skill": skill, "merit": merit, "age": rng.uniform(20, 60, n),
        "hired": np.where(0.5 * skill + merit > 0.5, "yes", "no"),
    })  # fmt: skip
    table.to_csv(tmp_path / "people.csv", index=False)
    path = tmp_path / "plan.toml"
    path.write_text(PLAN.format(path=tmp_path / "people.csv"), "utf-8")
    return path


def test_a_study_runs_and_every_cell_says_what_it_cost(plan):
    cells = run(prepare(read_fair_plan(plan, [])))
    by = {(c["panel"], c["label"], c["epsilon"]): c for c in cells}
    assert by["methods", "lr", None]["spent_epsilon"] is None
    assert by["methods", "lr", None]["risk_difference"]["mean"] > 0.15
    fair = by["methods", "adfc", 100.0]
    assert fair["risk_difference"]["mean"] < 0.5 * by["methods", "lr", None]["risk_difference"]["mean"]
    assert fair["evaluation_only"]
    assert set(fair["group_accuracy"]) == {"f", "m"}
    for (_, _, epsilon), c in by.items():
        if epsilon is not None and not c["as_printed"]:
            assert 0.99 * epsilon < c["spent_epsilon"] <= epsilon * (1 + 1e-9)
    assert by["methods", "adfc, x_s = age", 1.0]["attribute_epsilon"] < 0.3
    printed = by["printed", "pdfc, as printed", 1.0]
    assert printed["claimed_epsilon"] == 1.0
    assert 0 < printed["spent_epsilon"] < 1.0
    assert printed["printed"] == [0.1, 0.2]
    assert by["holders", "adfc", 100.0]["claim"] in ("secret-sum (one process)", "local noise")


@pytest.mark.slow
def test_the_command_writes_tables_and_pictures(plan, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["fair", str(plan), "--seeds", "2", "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "evaluation only" in shown
    assert "warning:" in shown  # as printed
    content = json.loads((out / "fair.json").read_text())
    assert content["plan"]["seeds"] == 2
    lines = (out / "fair.csv").read_text().splitlines()
    assert len(lines) == 1 + len(content["cells"])
    for name in ("methods.png", "printed.png", "holders.png", "δ.png"):
        assert (out / name).read_bytes()[:4] == b"\x89PNG"


def test_mistakes_are_one_line(plan, capsys):
    assert main(["fair", str(plan), "--set", "data.protected=height"]) == 2
    assert "data.protected = 'height'" in capsys.readouterr().err
    assert main(["fair", str(plan.parent / "none.toml")]) == 2
    for change in ("seeds=0", "colour=1", "runs=[]"):
        with pytest.raises(InputError):
            read_fair_plan(plan, [change])
    with pytest.raises(InputError, match="no bound"):
        prepare(read_fair_plan(plan, ["data.bounds={sex=['f','m'], skill=[-4,4], merit=[-4,4]}"]))


def test_the_embedded_plan_is_valid_and_carries_the_printed_table():
    embedded = read_fair_plan(None, [])
    printed = {r.method: r.printed for r in embedded.runs if r.printed}
    assert printed["adfc"]["1"] == [0.045, 0.027]
    assert printed["pdfc"]["0.1"] == [0.005, 0.022]
    assert {r.panel for r in embedded.runs} >= {"Table 1", "Figure 17a", "Figure 17b", "Figure 18a", "Five holders"}


@pytest.mark.parametrize(
    ("tree", "why"),
    [
        ({"data": {"label": "sex"}}, "data.label belongs to data.source = 'csv' or 'parquet'"),
        ({"data": {"classes": ["a", "b"]}}, "data.classes belongs to"),
        ({"data": {"bounds": {"age": [0, 1]}}}, "data.bounds belongs to"),
        ({"runs": [{"method": "adfc", "ratio": 3.0}]}, "ratio = 3 is the noise of an attribute, and none is named"),
        ({"runs": [{"method": "lr", "epsilons": [1.0]}]}, "lr is not private: remove epsilons"),
        ({"runs": [{"method": "lr", "over": "secret-sum"}]}, "lr is not private: remove over"),
        ({"runs": [{"method": "fm", "penalty": 2.0}]}, "fm has no covariance penalty"),
    ],
)
def test_keys_that_nothing_would_obey_are_refused(tree, why):
    with pytest.raises(ValidationError, match=re.escape(why)):
        FairPlan.model_validate({"runs": [{"method": "adfc"}], **tree})


def test_every_cell_says_whether_it_is_private(plan):
    cells = run(prepare(read_fair_plan(plan, ["seeds=1"])))
    assert {c["private"] for c in cells} == {True, False}
    for c in cells:
        assert c["leaks"] == []
        assert c["private"] == (c["epsilon"] is not None and not c["as_printed"])
