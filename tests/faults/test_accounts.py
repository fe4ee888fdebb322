"""A data set's account under kills, I/O errors, full disks and power cuts: nothing overspent, nothing lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.faults.test_ledger import experiment, needs_loops, needs_mounts, needs_strace

pytestmark = pytest.mark.faults


def trial(name: str, folder: Path, *arguments: str) -> dict[str, Any]:
    return experiment(name, folder, *arguments, module="account_faults")


@needs_strace
def test_killed_at_every_write_sync_and_release(tmp_path: Path) -> None:
    """From an empty folder on: the key, the binding, the file, and three draws."""
    report = trial("kills", tmp_path)
    assert report["points"] > 60
    assert report["violations"] == []


@needs_strace
def test_releasing_before_the_draw_is_caught(tmp_path: Path) -> None:
    assert any("is not in the account" in what for what in trial("kills", tmp_path, "early")["violations"])


@needs_strace
def test_a_binding_that_is_written_first_is_caught(tmp_path: Path) -> None:
    """It would know of a row that nobody wrote: the account would be taken for an old copy."""
    assert any("rolled back" in what for what in trial("kills", tmp_path, "ahead")["violations"])


@needs_strace
def test_killed_again_while_recovering(tmp_path: Path) -> None:
    report = trial("recovery", tmp_path)
    assert report["points"] > 80
    assert report["violations"] == []


@needs_strace
def test_io_errors_end_the_process_and_harm_nothing(tmp_path: Path) -> None:
    report = trial("errors", tmp_path)
    assert report["points"] > 100
    assert report["violations"] == []


@needs_mounts
def test_a_full_disk(tmp_path: Path) -> None:
    report = trial("full", tmp_path)
    assert report["codes"] == [3, 3, 0]  # failed, failed again, resumed on a larger disk
    assert report["rounds"] > 10
    assert report["violations"] == []


@needs_mounts
@needs_loops
def test_power_cuts(tmp_path: Path) -> None:
    report = trial("cuts", tmp_path, "", "40")
    assert report["sent"] > 500
    assert (report["lost"], report["refused"], report["violations"]) == (0, 0, [])


@needs_mounts
@needs_loops
def test_power_cuts_find_draws_that_are_not_synced(tmp_path: Path) -> None:
    report = trial("cuts", tmp_path, "normal", "20")
    assert report["lost"] + report["refused"] + len(report["violations"]) >= 3
