"""Discovery: a file put into the package is an algorithm for every command (`tests/test_docs.py` has the full example).

What is found here is the smallest thing that can be: a module that says nothing and learns nothing.
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import coterie.algorithms as package
from coterie.algorithms.base import all_algorithms, find
from coterie.cli import main
from coterie.errors import InputError
from tests.support import forget_algorithms

IDLE = '''"""Idle: every agent sends its public starting point and keeps it. Not private."""

from pydantic import Field

from coterie.algorithms._idle_helper import same
from coterie.algorithms.base import Config as BaseConfig
from coterie.algorithms.base import Needs
from coterie.privacy.events import NonPrivate

REFERENCE = "nobody"


class Config(BaseConfig):
    """Settings."""

    patience: float = Field(1.0, gt=0, description="how long to wait")


EXAMPLE = Config()
needs = lambda cfg: Needs()
init = lambda cfg, place: place.start
draws = lambda cfg, place: {}
emit = lambda cfg, place, t, state, shard, draw: (state, same(state))
absorb = lambda cfg, place, t, state, inbox: state
estimate = lambda cfg, place, state: state
cost = lambda cfg, place, t, message: NonPrivate()
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the package's path; what is put there is forgotten afterwards."""
    (tmp_path / "_idle_helper.py").write_text("same = lambda x: x\n")
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    forget_algorithms()
    yield tmp_path
    for path in tmp_path.glob("*.py"):
        sys.modules.pop(f"{package.__name__}.{path.stem}", None)
        vars(package).pop(path.stem, None)
    forget_algorithms()


@pytest.mark.slow
def test_a_new_file_is_listed_checked_and_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "very_idle.py").write_text(IDLE)
    algorithm = find("very-idle")
    assert not algorithm.private
    assert algorithm.example == copy.copy(algorithm).example
    assert main(["algorithms", "--json"]) == 0
    listed = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert listed["very-idle"]["summary"].startswith("Idle: every agent")
    assert listed["very-idle"]["settings"]["patience"]["default"] == 1.0
    assert not any("helper" in name for name in listed)  # a name with an underscore is a family's helper
    plan = folder / "plan.toml"
    plan.write_text("[data]\noptions = { records = 80, features = 2, sites = 3 }\n[algorithm]\nname = 'very-idle'\n")
    assert main(["run", str(plan), "--set", "algorithm.patience=-1"]) == 2
    assert "algorithm.patience" in capsys.readouterr().err
    assert main(["run", str(plan), "--set", "run.rounds=2", "--out", str(folder / "out"), "--references", "none"]) == 0
    result = json.loads((folder / "out" / "result.json").read_text("utf-8"))
    assert result["metrics"]["consensus_gap"]["mean"] == 0.0
    assert len(set(result["curves"]["train_loss"])) == 1


def test_it_is_unknown_without_its_file() -> None:
    with pytest.raises(InputError, match="unknown algorithm 'very-idle'"):
        find("very-idle")


def test_a_module_that_is_no_algorithm_is_named(folder: Path) -> None:
    (folder / "half_done.py").write_text("Config = EXAMPLE = init = draws = emit = absorb = None\n")
    with pytest.raises(TypeError, match="half_done is not an algorithm: it lacks estimate, cost"):
        all_algorithms()
