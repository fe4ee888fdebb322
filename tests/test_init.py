"""`coterie init`: what the flags say stands in a plan that runs; what cannot be meant is refused, and no file left."""

from __future__ import annotations

import io
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from coterie import cli
from coterie.algorithms.base import all_algorithms
from coterie.commands import console
from coterie.commands import init as command
from coterie.errors import InputError
from coterie.experiment import Network, prepare, settle
from coterie.explain import explain
from coterie.plan import read_plan, validate
from tests.support import CLINICS


class Terminal(io.StringIO):
    """Typed answers."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, and nobody at the keyboard."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    return tmp_path


def patients(path: Path) -> None:
    """Sixty patients of three wards."""
    rng = np.random.default_rng(0)
    age, sugar = rng.uniform(20, 90, 60), rng.normal(100, 20, 60)
    frame = pd.DataFrame({"age": age, "blood sugar": sugar, "ward": np.repeat(["a", "b", "c"], 20), "ill": age > 55})
    frame.astype({"ill": int}).to_csv(path, index=False)


def written(*flags: str) -> dict[str, Any]:
    """The plan that the flags give."""
    assert cli.main(["init", "plan.toml", *flags]) == 0
    return tomllib.loads(Path("plan.toml").read_text("utf-8"))


def test_without_flags_and_terminal_the_defaults_are_written() -> None:
    plan = written()
    assert plan["data"]["source"] == "clinics"
    assert plan["partition"] == {"kind": "site", "agents": 5}
    assert plan["privacy"] == {"epsilon": 1.0, "delta": 1e-5}
    assert plan["algorithm"] == {"name": "dp-dsgd"}


def test_every_flag_reaches_the_plan_and_it_checks(capsys: pytest.CaptureFixture[str]) -> None:
    patients(Path("patients.csv"))
    plan = written(
        "--data", "patients.csv", "--label", "ill", "--site", "ward", "--bounds", "age=0:120", "--bounds",
        "blood sugar=0:1234567.5", "--graph", "complete", "--epsilon", "0.7", "--delta", "1e-6",
        "--algorithm", "dp-admm",
    )  # fmt: skip
    assert plan["data"] | {"test_fraction": 0} == {
        "source": "csv", "path": "patients.csv", "label": "ill", "site": "ward", "test_fraction": 0,
        "options": {"bounds": {"age": [0, 120], "blood sugar": [0, 1234567.5]}},
    }  # fmt: skip
    assert plan["partition"] == {"kind": "site"}
    assert plan["graph"] == {"kind": "complete"}
    assert plan["privacy"] == {"epsilon": 0.7, "delta": 1e-6}
    assert cli.main(["plan", "check", "plan.toml", "--no-rehearsal"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "3 parties with 16 records each" in shown
    assert "ε = 0.70 of 0.70" in shown
    assert cli.main(["run", "plan.toml", "--quiet", "--seeds", "1", "--set", "run.rounds=3"]) == 0


@pytest.mark.parametrize("name", ["adult", "heart", "diabetes", "mnist", "cifar10"])
def test_plans_for_known_data_sets_are_valid(name: str) -> None:
    plan = validate(written("--data", name))
    assert plan.data.source == name
    assert (plan.partition.kind == "site") == (name == "heart")


@cache
def clinics() -> Network:
    """The network of the embedded plan."""
    return prepare(read_plan(CLINICS)).network


@pytest.mark.parametrize("slug", sorted(all_algorithms()))
def test_the_plan_fits_every_algorithm(slug: str) -> None:
    """Its graph and its privacy table are such that the algorithm starts."""
    plan = validate(written("--algorithm", slug))
    assert (plan.privacy is not None) == all_algorithms()[slug].private
    network = clinics()
    if plan.graph.kind == network.graph.kind:
        assert settle(plan, network).rounds > 0
    else:
        assert plan.graph.kind in all_algorithms()[slug].graphs


@pytest.mark.parametrize("graph", command.graphs())
def test_every_graph_that_is_offered_needs_no_more_keys(graph: str) -> None:
    written("--graph", graph, "--agents", "6")
    lines, network, _ = explain(read_plan(Path("plan.toml"), ["run.rounds=2"]))
    assert network.graph.kind == graph
    assert "6 parties" in lines[0]


def test_questions_are_asked_and_flags_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    typed = Terminal("patients.csv\nill\nward\n\n\n0.5\n")  # data, label, site, algorithm, graph, ε; δ is a flag
    monkeypatch.setattr("sys.stdin", typed)
    plan = written("--delta", "1e-7")
    assert plan["data"]["site"] == "ward"
    assert plan["algorithm"]["name"] == "dp-dsgd"
    assert plan["privacy"] == {"epsilon": 0.5, "delta": 1e-7}
    assert typed.read() == ""


def test_an_existing_file_is_kept_unless_forced(capsys: pytest.CaptureFixture[str]) -> None:
    Path("plan.toml").write_text("mine")
    assert cli.main(["init", "plan.toml"]) == 2
    assert "plan.toml exists" in capsys.readouterr().err
    assert Path("plan.toml").read_text() == "mine"
    assert written("--force")["name"] == "dp-dsgd on clinics"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--data", "x.csv", "--label", "y", "--bounds", "age"], "age=0:120, got 'age'"),
        (["--data", "x.csv", "--label", "y", "--bounds", "age=9:3"], "the lower one first"),
        (["--data", "x.csv", "--label", "y", "--bounds", "age=0:inf"], "finite"),
        (["--data", "x.csv", "--label", "y", "--bounds", "=0:1"], "a column"),
        (["--data", "x.csv"], "--label is needed"),
        (["--data", "adult", "--site", "ward"], "for a CSV or Parquet file"),
        (["--bounds", "age=0:1"], "for a CSV or Parquet file"),
        (["--data", "patients.xls"], "got patients.xls"),
        (["--data", "csv"], "got csv"),
        (["--epsilon", "-1"], "privacy.epsilon"),
        (["--delta", "1"], "privacy.delta"),
        (["--graph", "moebius"], "got moebius"),
        (["--graph", "ring", "--algorithm", "priv-rcd"], "runs on complete graphs, not on ring"),
        (["--algorithm", "dp-magic"], "dp-magic"),
        (["--agents", "1"], "agents"),
    ],
)
def test_mistakes_are_one_line_and_leave_no_file(
    flags: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["init", "plan.toml", *flags]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert len(said.strip().splitlines()) == 1
    assert not Path("plan.toml").exists()


def test_a_missing_folder_is_refused() -> None:
    with pytest.raises(InputError, match="no folder nowhere"):
        command.init(Path("nowhere/plan.toml"), {}, [], False, console)
