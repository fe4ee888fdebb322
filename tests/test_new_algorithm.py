"""An algorithm written as CONTRIBUTING says is found, conforms, runs and is drawn: no other file is touched."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import coterie.algorithms as package
from coterie.algorithms.base import all_algorithms, find
from coterie.cli import main
from tests.conformance import test_algorithms as conformance

SLUG = "noisy-diffusion"
PAGE = Path(__file__).parent.parent / "CONTRIBUTING.md"
CHECKS = [
    conformance.test_protocol,
    conformance.test_run_is_finite_and_double,
    conformance.test_same_draws_same_messages_whatever_the_batch_and_the_padding,
    conformance.test_single_precision_stays_single,
    conformance.test_cost,
    conformance.test_every_charged_round_carries_noise,
    conformance.test_other_agents_first_messages_ignore_my_data,
]


def block(name: str) -> str:
    """The file that the page shows under this name."""
    return re.search(rf"<!-- file: {re.escape(name)} -->\n```python\n(.*?)```", PAGE.read_text("utf-8"), re.S)[1]


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """The example of the page as a module of the package, for as long as these tests run."""
    folder = tmp_path_factory.mktemp("algorithms")
    (folder / "noisy_diffusion.py").write_text(block("coterie/algorithms/noisy_diffusion.py"), "utf-8")
    package.__path__.append(str(folder))
    all_algorithms.cache_clear()
    try:
        yield importlib.import_module("coterie.algorithms.noisy_diffusion")
    finally:
        package.__path__.remove(str(folder))
        sys.modules.pop("coterie.algorithms.noisy_diffusion")
        del package.noisy_diffusion  # type: ignore[attr-defined]
        conformance.recorded.cache_clear()
        all_algorithms.cache_clear()


def test_it_is_unknown_before_it_is_written() -> None:
    assert SLUG not in all_algorithms()


def test_it_is_short_and_found(newcomer: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    code = [line for line in block("coterie/algorithms/noisy_diffusion.py").splitlines() if line.strip()]
    assert len(code) < 70  # 40 of them are statements
    assert find(SLUG).module is newcomer
    assert main(["algorithms", "--json"]) == 0
    listed = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert listed[SLUG]["private"] is True
    assert listed[SLUG]["summary"].startswith("Noisy diffusion")
    assert set(listed[SLUG]["settings"]) == {"step", "clip"}


@pytest.mark.parametrize("check", CHECKS)
def test_it_conforms(newcomer: ModuleType, check: object) -> None:
    check(SLUG)  # type: ignore[operator]


def test_no_conformance_check_is_left_out() -> None:
    assert {f.__name__ for f in CHECKS} == {name for name in vars(conformance) if name.startswith("test_")}


def test_its_own_test_passes_and_can_fail(newcomer: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    scope: dict[str, object] = {}
    exec(compile(block("tests/algorithms/test_noisy_diffusion.py"), "page", "exec"), scope)
    scope["test_sensitivity"]()  # type: ignore[operator]
    honest = newcomer.sensitivity
    monkeypatch.setattr(newcomer, "sensitivity", lambda cfg, place, t: honest(cfg, place, t) / 2)
    with pytest.raises(AssertionError):
        scope["test_sensitivity"]()  # type: ignore[operator]


def test_it_runs_and_is_drawn(newcomer: ModuleType, tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(f"""
[data]
options = {{ records = 160, features = 3, sites = 4 }}
[algorithm]
name = "{SLUG}"
[privacy]
epsilon = 1.0
[run]
rounds = 7
seeds = 2
every = 3
""")
    assert main(["run", str(plan), "--out", str(tmp_path / "out"), "--quiet"]) == 0
    result = json.loads((tmp_path / "out" / "result.json").read_text("utf-8"))
    assert result["algorithm"]["name"] == SLUG
    assert 0.99 < result["privacy"]["epsilon"] <= 1.0
    assert (tmp_path / "out" / "curves.png").stat().st_size > 5000


def test_a_module_that_is_no_algorithm_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "half_done.py").write_text("Config = EXAMPLE = init = draws = emit = absorb = None\n")
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    all_algorithms.cache_clear()
    try:
        with pytest.raises(TypeError, match="half_done is not an algorithm: it lacks estimate, cost"):
            all_algorithms()
    finally:
        sys.modules.pop("coterie.algorithms.half_done", None)
        all_algorithms.cache_clear()
