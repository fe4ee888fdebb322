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
from coterie.experiment import prepare
from coterie.explain import explain
from coterie.network import Network
from coterie.plan import read_plan, validate
from coterie.pricing import settle
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
    quickly = "--quiet", "--seeds", "1", "--references", "none", "--set", "run.rounds=3"
    assert cli.main(["run", "plan.toml", *quickly]) == 0


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


# -- a table of one's own ----------------------------------------------------------------------------------------------


def visits(path: Path, **columns: Any) -> None:
    """Visits of forty patients to three clinics, with gaps, a date and an identifier."""
    rng = np.random.default_rng(1)
    age = rng.uniform(21, 88, 120).round()
    made = {
        "visit_id": np.arange(120), "patient": rng.integers(0, 40, 120), "age": age,
        "lab": np.where(rng.random(120) < 0.2, "?", rng.normal(5, 1, 120).round(2).astype(str)),
        "ward": rng.choice(["None", "heart", ""], 120), "day": "2024-03-01", "clinic": rng.choice(["a", "b", "c"], 120),
        "ill": np.where(age > 55, "yes", "no"),
    }  # fmt: skip
    pd.DataFrame(made | columns).to_csv(path, index=False)


@pytest.mark.slow
def test_a_table_becomes_a_plan_and_a_code_book_that_claims_nothing_until_it_is_checked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("study").mkdir()
    visits(Path("study/visits.csv"), day=[f"2024-03-{k % 30 + 1:02}" for k in range(120)])
    assert cli.main(["init", "study/visits.csv", "study/plan.toml", "--bounds", "age=0:120"]) == 0
    shown = capsys.readouterr().out
    for words in ("visit_id identifier 120 0 left out", "day date 30 0 left out", "patient number", "clinic category"):
        assert words in " ".join(shown.split()), words
    assert "the label is taken to be 'ill', the last column, with two values" in shown
    book = tomllib.loads(Path("study/plan.codebook.toml").read_text("utf-8"))
    assert book == {
        "read_from_records": True, "person": "patient", "features": ["age", "lab", "ward"], "classes": ["no", "yes"],
        "sites": ["a", "b", "c"], "optional": ["lab", "ward"], "missing_values": ["?"],
        "bounds": {"age": [0, 120], "lab": book["bounds"]["lab"]}, "categories": {"ward": ["None", "heart"]},
    }  # fmt: skip
    low, high = book["bounds"]["lab"]
    assert low <= 3
    assert high >= 7
    assert [low, high] == [int(low), int(high)], "round numbers around the values"
    command_line = ["run", "study/plan.toml", "--quiet", "--seeds", "1", "--set", "run.rounds=2"]
    assert cli.main(command_line) == 0
    assert "no privacy can be claimed: the code book was proposed" in " ".join(capsys.readouterr().out.split())
    path = Path("study/plan.codebook.toml")
    path.write_text(path.read_text("utf-8").replace("read_from_records = true\n", ""), "utf-8")
    plan = read_plan(Path("study/plan.toml"))
    assert settle(plan, prepare(plan).network).leaks == ()
    monkeypatch.chdir("study")
    experiment = prepare(read_plan(Path("plan.toml")))
    assert sum(map(len, experiment.parts)) > 80
    assert experiment.network.sizes.sum() < 80  # patients, whose visits these are


def test_what_looks_wrong_in_a_table_is_told_before_it_is_used(capsys: pytest.CaptureFixture[str]) -> None:
    """A column left out because of a comma, codes for gaps and names in two spellings would go unseen otherwise."""
    numbers = np.arange(120)
    visits(
        Path("t.csv"), pressure=[f"{100 + k % 40},{k % 10}" for k in numbers],
        weight=[f"{50 + k % 30} kg" if k % 9 == 0 else f"{50 + k % 30}" for k in numbers],
        smoker=np.array(["never", "Never", "NEVER", "former"])[numbers % 4], note=[f"text {k % 77}" for k in numbers],
        visits=np.where(numbers % 10 == 0, 999, numbers % 7), lag=np.where(numbers % 10 == 1, -1, numbers % 5),
        grade=np.array(["<30", ">30", "A+", "A-"])[numbers % 4],
    )  # fmt: skip
    assert cli.main(["init", "t.csv", "--label", "ill"]) == 0
    said = capsys.readouterr().out
    for words in (
        "to mend: column 'pressure' must be numeric, but has '100,0' (in 120 rows); decimal numbers have a point",
        "to mend: column 'weight' must be numeric, but has '50 kg' (in 14 rows)",
        "to check: column 'smoker': 'NEVER', 'Never', 'never' look like one name",
        "to check: column 'visits' has 999 in 12 rows, far from all others",
        "to check: column 'lag' has -1 in 12 rows, far from all others",
        "left out:",
    ):
        assert words in said, words
    (left,) = (line for line in said.splitlines() if line.startswith("left out:"))
    assert "note (text)" in left
    assert "ill" not in left
    assert "clinic" not in left
    assert "patient" not in left
    assert "'grade'" not in said  # different names are left alone


def test_a_label_of_zeros_and_ones_is_a_class_however_it_is_written() -> None:
    visits(Path("t.csv"), last=np.arange(120) % 2 * 1.0)
    assert cli.main(["init", "t.csv", "--label", "last"]) == 0
    book = tomllib.loads(Path("plan.codebook.toml").read_text("utf-8"))
    assert book["classes"] == ["0.0", "1.0"]
    assert "task" not in book
    assert prepare(read_plan(Path("plan.toml"))).network.problem.name == "logistic loss"


def test_files_are_kept_and_columns_are_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    visits(Path("t.csv"))
    Path("plan.codebook.toml").write_text("mine")
    assert cli.main(["init", "t.csv"]) == 2
    assert "plan.codebook.toml exists" in capsys.readouterr().err
    assert not Path("plan.toml").exists()
    assert cli.main(["init", "t.csv", "--force", "--site", "", "--label", "ward", "--agents", "4"]) == 0
    plan = tomllib.loads(Path("plan.toml").read_text("utf-8"))
    assert plan["partition"] == {"kind": "iid", "agents": 4}
    assert "to mend: column 'ward' is missing in" in capsys.readouterr().out
    assert cli.main(["init", "t.csv", "q.toml", "--label", "lab"]) == 0
    book = tomllib.loads(Path("q.codebook.toml").read_text("utf-8"))
    assert book["task"] == "regression"
    assert "lab" in book["bounds"]
    assert "lab" not in book["features"]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["none.csv"], "none.csv"),
        (["t.csv", "--label", "sick"], "there is no column 'sick'"),
        (["t.csv", "u.csv"], "expected a table and a plan"),
        (["t.csv", "--data", "u.csv"], "expected one of the two"),
        (["plan.toml", "--person", "patient"], "--person is for a table"),
        (["many.csv"], "--label is needed, the column to predict; these have few values: ward, clinic, ill"),
    ],
)
def test_mistakes_about_a_table_leave_no_file(flags: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    visits(Path("t.csv"))
    visits(Path("many.csv"), last=np.arange(120) % 50)
    assert cli.main(["init", *flags]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert len(said.strip().splitlines()) == 1
    assert not list(Path().glob("*.toml"))


def test_a_plan_for_pictures_is_one_that_a_linear_model_takes() -> None:
    assert written("--data", "mnist")["data"]["options"] == {"row_norm": "unit"}


def test_a_missing_folder_is_refused() -> None:
    with pytest.raises(InputError, match="no folder nowhere"):
        command.init(Path("nowhere/plan.toml"), {}, [], False, console)
