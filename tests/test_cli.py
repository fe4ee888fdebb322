"""The command line in process: results and their schema, and every mistake as one line, exit code 2 and no files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie.algorithms.base import all_algorithms
from coterie.cli import main
from coterie.fair import METHODS
from coterie.report.files import write_atomically

ROUNDS = 7
PLAN = f"""
name = "small"
[data]
source = "clinics"
options = {{ records = 160, features = 3, sites = 4 }}
[problem]
ridge = 0.01
[algorithm]
name = "dsgd"
batch = 4
[run]
rounds = {ROUNDS}
every = 3
"""


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("plans") / "plan.toml"
    path.write_text(PLAN)
    return str(path)


@pytest.fixture(scope="module")
def finished(plan: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two seeds, written to a folder that did not exist."""
    out = tmp_path_factory.mktemp("runs") / "new" / "folder"
    assert main(["run", plan, "--out", str(out), "--seeds", "2", "--quiet"]) == 0
    return out


def load(out: Path) -> dict[str, Any]:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads((out / "result.json").read_text("utf-8"), parse_constant=refuse)


# -- results -----------------------------------------------------------------------------------------------------------


def test_result_has_every_promised_key(finished: Path) -> None:
    result = load(finished)
    for key in ("schema", "plan", "algorithm", "seeds", "metrics", "curves", "references", "privacy", "timing"):
        assert key in result
    assert result["schema"] == 1
    assert result["seeds"] == [0, 1]
    assert result["algorithm"]["name"] == "dsgd"
    assert result["algorithm"]["settings"]["batch"] == 4
    assert result["plan"]["data"]["options"]["records"] == 160
    assert result["plan"]["run"]["seeds"] == 2
    assert result["privacy"] is None
    for name in ("test_accuracy", "train_loss", "consensus_gap"):
        metric = result["metrics"][name]
        assert set(metric) == {"mean", "std", "per_seed"}
        assert len(metric["per_seed"]) == 2
        assert metric["mean"] == pytest.approx(np.mean(metric["per_seed"]))
        assert metric["std"] == pytest.approx(np.std(metric["per_seed"]))
        assert len(result["curves"][name]) == len(result["curves"]["std"][name]) == 4
        assert result["curves"][name][-1] == pytest.approx(metric["mean"])
    assert result["curves"]["round"] == [0, 3, 6, 7]
    for name in ("pooled", "alone"):
        assert set(result["references"][name]) >= {"train_loss", "test_accuracy", "test_auc", "test_log_loss"}
    assert result["references"]["pooled"]["train_loss"] < result["references"]["alone"]["train_loss"]
    assert set(result["timing"]) == {"compile_s", "run_s", "alone_s", "pooled_s"}
    assert (result["rounds"], result["completed_rounds"], result["interrupted"]) == (ROUNDS, ROUNDS, False)
    # four agents with two neighbours each send 3 float64 numbers in each round
    assert result["bytes_sent"] == 4 * 2 * 3 * 8 * ROUNDS
    assert [a["neighbours"] for a in result["agents"]] == [2] * 4
    assert sum(a["records"] for a in result["agents"]) == 128


def test_files_of_a_run(finished: Path) -> None:
    assert {p.name for p in finished.iterdir()} == {
        "result.json", "model.npz", "curves.png", "graph.png", "certificate.json", "report.html",
    }  # fmt: skip
    with np.load(finished / "model.npz") as model:
        assert model["points"].shape == (4, 3)  # of the first seed: the second would be another release
        np.testing.assert_allclose(model["average"], model["points"].mean(0))
        assert model["seed"] == 0
        assert model["rounds"] == ROUNDS
        assert len(model["feature_names"]) == 3
    for picture in ("curves.png", "graph.png"):
        assert (finished / picture).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
        assert (finished / picture).stat().st_size > 5000


def test_the_same_seed_gives_the_same_numbers(finished: Path, plan: str, tmp_path: Path) -> None:
    assert main(["run", plan, "--out", str(tmp_path), "--seeds", "2", "--quiet"]) == 0
    one, two = load(finished), load(tmp_path)
    for key in ("metrics", "curves", "references", "bytes_sent"):
        assert one[key] == two[key], key
    assert one["metrics"]["train_loss"]["per_seed"][0] != one["metrics"]["train_loss"]["per_seed"][1]


def test_what_is_printed(plan: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A private run says what it guarantees, against whom, by which accountant."""
    change = ["algorithm.name=dp-dsgd", "privacy.epsilon=2", "privacy.delta=2.5e-5", "run.rounds=3"]
    sets = [part for c in change for part in ("--set", c)]
    text = Path(plan).read_text().replace('name = "dsgd"\nbatch = 4', "")
    private = Path(plan).with_name("private.toml")
    private.write_text(text)
    assert main(["run", str(private), *sets]) == 0
    out = " ".join(capsys.readouterr().out.split())
    for words in ("pooled", "alone", "dp-dsgd, ε = 2", "2.5e-05", "adversary sees every message", "MB sent"):
        assert words in out


def test_a_run_that_diverges_says_so_and_leaves_valid_json(
    plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", plan, "--set", "algorithm.step=1e250", "--out", str(tmp_path)]) == 0
    result = load(tmp_path)
    assert result["metrics"]["train_loss"]["mean"] is None
    assert "diverged" in result["warnings"][0]
    assert "diverged" in capsys.readouterr().out


def test_files_appear_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "file.txt"
    write_atomically(target, lambda p: p.write_text("old"))

    def fail(path: Path) -> None:
        path.write_text("half of the n")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_atomically(target, fail)
    assert target.read_text() == "old"
    assert [p.name for p in target.parent.iterdir()] == ["file.txt"]
    assert target.stat().st_mode & 0o777 == 0o644


# -- tables of one's own -----------------------------------------------------------------------------------------------


def write_csv(path: Path, rows: int = 90, bad: str | None = None, label: str = "sick") -> str:
    rng = np.random.default_rng(0)
    lines = [f"age,pressure,{label},clinic"]
    for k in range(rows):
        age, pressure = rng.uniform(20, 80), rng.uniform(90, 160)
        sick = "yes" if age + 0.3 * pressure + 10 * rng.standard_normal() > 88 else "no"
        lines.append(f"{bad if bad and k == 7 else age:},{pressure},{sick},{'abc'[k % 3]}")
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def csv_plan(folder: Path, table: str, extra: str = "", source: str = "csv") -> str:
    path = folder / "csv.toml"
    path.write_text(f"""
[data]
source = "{source}"
path = "{table}"
label = "sick"
site = "clinic"
options = {{ bounds = {{ age = [0, 100], pressure = [50, 200] }}, missing = "error" }}
[algorithm]
name = "dgd"
step = 1.0
[run]
rounds = 5
{extra}""")
    return str(path)


@pytest.mark.slow
def test_a_table_of_ones_own_from_end_to_end(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["run", csv_plan(tmp_path, write_csv(tmp_path / "t.csv")), "--out", str(out)]) == 0
    result = load(out)
    assert [a["name"] for a in result["agents"]] == ["a", "b", "c"]
    assert result["metrics"]["train_loss"]["mean"] < np.log(2)
    assert 0 <= result["metrics"]["test_accuracy"]["mean"] <= 1


# -- mistakes ----------------------------------------------------------------------------------------------------------


def refused(arguments: list[str], words: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, exactly one line on standard error with these words, and no new file anywhere in the folder."""
    before = sorted(folder.rglob("*"))
    assert main(arguments) == 2
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1, printed
    assert printed.startswith("error: ")
    assert words in printed
    assert "Traceback" not in printed
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["graph.knd=ring"], "unknown key graph.knd"),
        (["run.rounds=many"], "run.rounds"),
        (["problem.ridge=-1"], "problem.ridge"),
        (["algorithm.name=magic"], "unknown algorithm 'magic'"),
        (["algorithm.step=-1"], "algorithm.step"),
        (["algorithm.name=pooled", "algorithm.batch=3"], "algorithm.batch"),
        (["rounds"], "--set needs key=value"),
        (["name.x=1"], "'name' is not a table"),
        (["privacy.epsilon=0"], "privacy.epsilon"),
        (["privacy.epsilon=-1"], "privacy.epsilon"),
        (["privacy.delta=1"], "privacy.delta"),
        (["privacy.epsilon=1"], "dsgd is not private"),
        (["partition.sizes=[0, 5]"], "partition.sizes.0"),
        (["run.seed=18446744073709551616"], "seed must be from 0 to 18446744073709551615"),
        (["problem.loss=softmax", "problem.loss=squared"], "squared loss needs a numeric label"),
        (["data.source=nothing"], "nothing"),
        (["data.options.colour=3"], "colour"),
        (["graph.kind=regular", "graph.degree=9"], "degree"),
    ],
)
def test_wrong_plans(
    changes: list[str], words: str, plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sets = [part for change in changes for part in ("--set", change)]
    refused(["run", plan, "--out", str(tmp_path / "out"), *sets], words, tmp_path, capsys)


def test_a_private_algorithm_needs_a_budget(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "p.toml"
    path.write_text('[algorithm]\nname = "dp-dsgd"\n')
    refused(["run", str(path), "--out", str(tmp_path / "out")], "dp-dsgd is private", tmp_path, capsys)


def test_unreadable_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ["--out", str(tmp_path / "out")]
    refused(["run", str(tmp_path / "none.toml"), *out], "none.toml", tmp_path, capsys)
    refused(["run", str(tmp_path), *out], "cannot read plan", tmp_path, capsys)
    (tmp_path / "broken.toml").write_text("[run\nrounds = 3")
    refused(["run", str(tmp_path / "broken.toml"), *out], "not valid TOML", tmp_path, capsys)
    refused(["run", csv_plan(tmp_path, "/nowhere.csv"), *out], "/nowhere.csv", tmp_path, capsys)


@pytest.mark.parametrize(
    ("bad", "words"), [("", "'age' is missing"), ("inf", "'age' is infinite in 1 rows"), ("nan", "age"), ("old", "age")]
)
def test_non_finite_and_missing_values_in_a_table(
    bad: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "t.csv"
    write_csv(table, bad=bad or " ")
    if not bad:
        table.write_text(table.read_text().replace("\n ,", "\n,"))
    refused(["run", csv_plan(tmp_path, str(table)), "--out", str(tmp_path / "out")], words, tmp_path, capsys)


def test_labels_that_do_not_match(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ["--out", str(tmp_path / "out")]
    elsewhere = csv_plan(tmp_path, write_csv(tmp_path / "t.csv", label="ill"))
    refused(["run", elsewhere, *out], "there is no column 'sick'", tmp_path, capsys)
    three = csv_plan(tmp_path, write_csv(tmp_path / "t.csv"), "[problem]\nloss = 'logistic'")
    text = (tmp_path / "t.csv").read_text().splitlines()
    text[3] = text[3].replace("yes", "maybe").replace("no", "maybe")
    (tmp_path / "t.csv").write_text("\n".join(text))
    refused(["run", three, *out], "two classes", tmp_path, capsys)


def test_graphs_from_files(tmp_path: Path, plan: str, capsys: pytest.CaptureFixture[str]) -> None:
    edges = tmp_path / "edges.txt"
    arguments = ["run", plan, "--out", str(tmp_path / "out"), "--set", "graph.kind=file"]
    arguments += ["--set", f"graph.path={edges}"]
    refused(arguments, "edges.txt", tmp_path, capsys)
    edges.write_text("0 1\n2 3\n")
    refused(arguments, "not connected", tmp_path, capsys)
    edges.write_text("0 1\n1 2\n")
    refused(arguments, "3 nodes, but 4 are wanted", tmp_path, capsys)
    edges.write_text("0 1\n1 2\n2 x y z\n")
    refused(arguments, "edges.txt", tmp_path, capsys)
    edges.write_text("0 1\n1 2\n2 3\n")
    assert main(["graph", *arguments[1:2], *arguments[4:]]) == 0
    assert "diameter" in capsys.readouterr().out


def test_output_that_cannot_be_written(plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    taken = tmp_path / "file"
    taken.write_text("mine")
    refused(["run", plan, "--out", str(taken)], "is a file", tmp_path, capsys)
    refused(["run", plan, "--out", str(taken / "below")], "is a file", tmp_path, capsys)
    refused(["graph", plan, "--out", str(taken)], "is a file", tmp_path, capsys)
    assert taken.read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["frobnicate"], "frobnicate"),
        (["run", "--bogus"], "--bogus"),
        (["run", "--seeds", "0"], "--seeds"),
        (["run", "--seeds", "two"], "--seeds"),
        (["algorithms", "magic"], "unknown algorithm 'magic'"),
        (["calibrate", "--rounds", "5", "--epsilon", "1"], "--delta"),
        (["calibrate", "--rounds", "0", "--epsilon", "1", "--delta", "1e-5"], "rounds"),
        (["calibrate", "--rounds", "5", "--epsilon", "0", "--delta", "1e-5"], "epsilon"),
        (["calibrate", "--rounds", "5", "--epsilon", "1", "--delta", "1"], "delta"),
        (["calibrate", "--rounds", "5", "--epsilon", "1", "--delta", "1e-5", "--sensitivity", "-1"], "sensitivity"),
        (["calibrate", "--rounds", "5", "--epsilon", "1", "--delta", "1e-5", "--schedule", "x"], "schedule"),
        (["calibrate", "--rounds", "5", "--epsilon", "1", "--delta", "1e-5", "--option", "rate"], "--option"),
    ],
)
def test_wrong_commands(arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused(arguments, words, tmp_path, capsys)


def test_accounting_for_what_is_not_private(plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused(["account", plan], "not private", tmp_path, capsys)


# -- listings and prices -----------------------------------------------------------------------------------------------


def test_algorithms(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["algorithms", "--json"]) == 0
    listed = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert set(listed) == {*all_algorithms(), *METHODS, "pooled", "alone"}
    assert listed["dgd"]["private"] is False
    assert listed["dp-dsgd"]["private"] is True
    assert listed["dgd"]["settings"]["decay"]["default"] == 0.0
    assert main(["algorithms"]) == 0
    assert "dsgd" in capsys.readouterr().out
    assert main(["algorithms", "dgd"]) == 0
    assert "Nedić" in capsys.readouterr().out
    assert main(["algorithms", "dgd", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "dgd"


def test_calibrate_golden(capsys: pytest.CaptureFixture[str]) -> None:
    """ε = 1 at δ = 1e-4 is μ = 0.313902 (exact Gaussian), so each of 50 rounds gets σ = √50/μ."""
    arguments = ["calibrate", "--rounds", "50", "--epsilon", "1", "--delta", "1e-4"]
    assert main([*arguments, "--json"]) == 0
    got = json.loads(capsys.readouterr().out)
    assert got["mu"] == pytest.approx(0.313902, abs=5e-7)
    np.testing.assert_allclose(got["sigma"], np.sqrt(50) / got["mu"], rtol=1e-9)
    assert len(got["sigma"]) == 50
    assert 0.9999 < got["epsilon"] <= 1.0
    assert main([*arguments, "--sensitivity", "0.5", "--json"]) == 0
    np.testing.assert_allclose(json.loads(capsys.readouterr().out)["sigma"], np.array(got["sigma"]) / 2, rtol=1e-9)
    assert main(arguments) == 0
    assert "μ = 0.313902" in capsys.readouterr().out


def test_account_gives_the_same_price_as_calibrate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Full batches and one Gaussian release a round: 50 rounds at ε = 1, δ = 1e-4 compose to μ = 0.313902."""
    path = tmp_path / "p.toml"
    path.write_text("""
[data]
source = "csv"
path = "/nowhere.csv"
label = "y"
options = { classes = ["no", "yes"] }
[partition]
kind = "iid"
agents = 4
records = 100
[problem]
loss = "logistic"
[algorithm]
name = "dp-admm"
[privacy]
epsilon = 1.0
delta = 1e-4
[run]
rounds = 50
""")
    assert main(["account", str(path), "--json"]) == 0
    block = json.loads(capsys.readouterr().out)
    assert block["rounds"] == 50
    assert 0.9999 < block["epsilon"] <= 1.0
    assert block["delta"] == 1e-4
    assert len(block["per_agent"]) == 4
    assert block["private"] is True
    np.testing.assert_allclose(block["noise_multiplier"], np.sqrt(50) / 0.313902, rtol=1e-4)
    assert main(["account", str(path)]) == 0
    assert "agent 3" in capsys.readouterr().out


def test_coterie_alone_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    printed = capsys.readouterr()
    assert "Usage" in printed.out
    assert printed.err == ""
    assert main(["--help"]) == 0


@pytest.mark.parametrize("command", ["launch", "report"])
def test_a_name_that_is_too_long_for_a_file_is_one_line(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "n" * 5000]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: File name too long: nnn")
    assert len(line) < 120


def test_a_long_command_says_where_its_time_went() -> None:
    from coterie.commands.run import _where_time_went

    assert _where_time_went([0.0, 5.0, 45.0, 55.0, 61.0]) == (
        "61 s in all: 5.0 s data and price, 40.0 s rounds, 10.0 s comparison, 6.0 s report"
    )
    assert _where_time_went([0.0, 1.0, 2.0, 3.0, 4.0]) == ""
