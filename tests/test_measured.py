"""The benchmarks' page is made of stored measurements, each with machine, command, load, commit, ratio and spread."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks import measured

FILES = sorted(measured.FOLDER.glob("*.json"))


def test_the_page_is_what_the_files_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert measured.PAGE.read_text("utf-8") == measured.page(), "python -m benchmarks.measured"
    told = json.loads(FILES[0].read_text("utf-8"))
    told["rows"] = [{"what": "a", "ours": "another number", "peer": "b", "ratio": 2.0, "least": 1.5, "most": 1234.5}]
    told["rows"].append(told["rows"][0] | {"what": "once", "least": 2.0, "most": 2.0})
    (tmp_path / "one.json").write_text(json.dumps(told), "utf-8")
    monkeypatch.setattr(measured, "FOLDER", tmp_path)
    assert "| a | another number | b | 2 (1.5 to 1,234) |" in measured.page()
    assert "| once | another number | b | 2 |" in measured.page()


def test_every_benchmark_is_listed_with_what_it_measures_and_was_stored() -> None:
    listed = dict(measured.commands())
    assert {"engine", "gpu", "deploy", "samplers", "processes"} <= set(listed)
    assert all(what and "python -m" not in what for what in listed.values())
    ran = {json.loads(path.read_text("utf-8"))["command"].split()[2].removeprefix("benchmarks.") for path in FILES}
    assert ran == set(listed), "python -m benchmarks.NAME --keep"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_measurement_says_all_that_is_needed_to_judge_it(path: Path) -> None:
    told = json.loads(path.read_text("utf-8"))
    assert {"title", "command", "date", "commit", "machine", "load", "note", "rows"} == set(told)
    assert told["command"].startswith("python -m benchmarks.")
    assert (measured.HERE / f"{told['command'].split()[2].removeprefix('benchmarks.')}.py").exists()
    assert told["rows"]
    for row in told["rows"]:
        assert row["peer"]
        assert 0 < row["least"] <= row["ratio"] <= row["most"]


def test_paired_takes_turns() -> None:
    turns, clock = [], iter(range(100))
    ours, peer, ratio = measured.paired(
        lambda: turns.append("a"), lambda: turns.append("b"), 3, clock=lambda: float(next(clock))
    )
    assert turns == ["a", "b"] * 3
    assert (ours, peer, ratio) == (1.0, 1.0, (1.0, 1.0, 1.0))


def test_a_cost_is_theirs_over_ours_and_a_score_ours_over_theirs() -> None:
    cost = measured.beside("time", [2.0, 4.0, 1.0], "loop", [4.0, 4.0, 4.0], "{:.1f} s")
    assert cost == measured.Row("time", "2.0 s", "loop 4.0 s", 2.0, 1.0, 4.0)
    assert measured.beside("score", [0.5, 1.0], "limit", 2.0, cost=False).ratio == 0.375


def test_what_is_stored_names_the_command_that_ran_and_no_place_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measured, "FOLDER", tmp_path)
    monkeypatch.setattr(sys, "argv", ["ledger.py", "--folder", "/some/place", "--rounds", "7", "--keep"])
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    parser = measured.arguments("said")
    parser.add_argument("--folder")
    parser.add_argument("--rounds", type=int)
    rows = [measured.beside("one", [1.0], "other", 2.0)]
    measured.finish(parser.parse_args(), "Title", rows, of="two")
    assert json.loads((tmp_path / "ledger_two.json").read_text("utf-8"))["command"] == (
        "python -m benchmarks.ledger --folder PATH --rounds 7 --keep"
    )
    measured.finish(parser.parse_args([]), "Title", rows)
    assert len(list(tmp_path.iterdir())) == 1
