"""P1-P3 on the ledger: kills, I/O errors, a full disk, power cuts. `make test-faults`; needs root and strace."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.faults

needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
needs_mounts = pytest.mark.skipif(
    os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode != 0,
    reason="mounting needs root",
)
needs_loops = pytest.mark.skipif(
    not Path("/dev/loop-control").exists() or shutil.which("mkfs.ext4") is None,
    reason="no loop devices, or no mkfs.ext4",
)


def experiment(name: str, folder: Path, *arguments: str, module: str = "ledger_faults") -> dict[str, Any]:
    """Run one, in a mount namespace of its own where that is possible: what it mounts ends with it."""
    alone = ["unshare", "-m", "--propagation", "private"] if os.geteuid() == 0 else []
    command = [
        *alone,
        sys.executable,
        "-W",
        "ignore",
        "-m",
        f"tests.faults.{module}",
        name,
        str(folder),
        *arguments,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "strace cannot attach" in done.stderr:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


homes = pytest.mark.parametrize("home", ["", "files"])  # of states: in the transaction, or beside the database


@needs_strace
@homes
def test_killed_at_every_write_sync_and_send(tmp_path: Path, home: str) -> None:
    report = experiment("kills", tmp_path, home)
    assert report["points"] > 50
    assert report["violations"] == []


@needs_strace
def test_sending_before_the_commit_is_caught(tmp_path: Path) -> None:
    assert experiment("kills", tmp_path, "early")["violations"]


@needs_strace
def test_a_state_written_after_the_commit_is_caught(tmp_path: Path) -> None:
    assert any("the state is not the one" in what for what in experiment("kills", tmp_path, "late")["violations"])


@needs_strace
@homes
def test_killed_again_while_recovering(tmp_path: Path, home: str) -> None:
    report = experiment("recovery", tmp_path, home)
    assert report["points"] > 80
    assert report["violations"] == []


@needs_strace
@homes
def test_io_errors_end_the_process_and_harm_nothing(tmp_path: Path, home: str) -> None:
    report = experiment("errors", tmp_path, home)
    assert report["points"] > 80
    assert report["violations"] == []


@needs_mounts
@homes
def test_a_full_disk(tmp_path: Path, home: str) -> None:
    report = experiment("full", tmp_path, home)
    assert report["codes"] == [3, 3, 0]  # failed, failed again, resumed on a larger disk
    assert report["rounds"] > 10
    assert report["violations"] == []


@needs_mounts
@needs_loops
@homes
def test_two_hundred_power_cuts(tmp_path: Path, home: str) -> None:
    report = experiment("cuts", tmp_path, home, "200")
    assert report["sent"] > 2_000
    assert (report["lost"], report["refused"], report["violations"]) == (0, 0, [])


@needs_mounts
@needs_loops
def test_power_cuts_find_commits_that_are_not_synced(tmp_path: Path) -> None:
    """The twin with synchronous=NORMAL: the experiment must see it lose what it has sent."""
    report = experiment("cuts", tmp_path, "normal", "20")
    assert report["lost"] + report["refused"] >= 3


@needs_mounts
@needs_loops
def test_power_cuts_find_states_that_are_not_synced(tmp_path: Path) -> None:
    report = experiment("cuts", tmp_path, "unsynced", "20")
    assert report["refused"] >= 3
    found = ("the state is not the one", "-frames ends before byte")  # the twin syncs neither of the files
    assert all(any(reason in what for reason in found) for what in report["violations"])
