"""Two folders of verdicts are compared claim by claim."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reproduction.__main__ import main

ROOT = Path(__file__).parents[2]


def store(folder: Path, slug: str, **words: str) -> Path:
    folder.mkdir(exist_ok=True)
    claims = [{"claim": c, "version": None, "verdict": w, "measured": "1"} for c, w in words.items()]
    (folder / f"{slug}.json").write_text(json.dumps({"figure": slug, "claims": claims}))
    return folder


def test_equal_verdicts_with_other_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = store(tmp_path / "a", "p-fig1", grows="holds", falls="fails")
    b = store(tmp_path / "b", "p-fig1", falls="fails", grows="holds")
    path = b / "p-fig1.json"
    path.write_text(path.read_text().replace('"1"', '"2"'))
    (b / "audit.json").write_text("[]")  # something else
    assert main(["compare", str(a), str(b)]) == 0
    assert capsys.readouterr().out == "1 figures with 2 claims are in both; 0 differ\n"


def test_what_differs_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = store(tmp_path / "a", "p-fig1", grows="holds", only="fails")
    b = store(tmp_path / "b", "p-fig1", grows="cannot be decided")
    store(b, "p-fig2", grows="holds")
    assert main(["compare", str(a), str(b)]) == 1
    told = capsys.readouterr().out.splitlines()
    assert told[0] == "p-fig2: not made / made"
    assert told[1:] == [
        "p-fig1: grows: holds / cannot be decided",
        "p-fig1: only: fails / no such claim",
        "1 figures with 1 claims are in both; 3 differ",
    ]


def test_committed_verdicts_equal_themselves_and_an_empty_folder_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = str(ROOT / "docs" / "papers" / "verdicts")
    assert main(["compare", here, here]) == 0
    assert "33 figures" in capsys.readouterr().out
    assert main(["compare", here, str(tmp_path)]) == 2
    assert "holds no verdicts" in capsys.readouterr().err
