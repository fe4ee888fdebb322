"""`coterie spawn`: two processes give the one-process result, and a killed one costs nothing but the time since."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.slow
PLAN = ["--set", "run.seeds=1", "--set", "run.rounds=3000", "--set", "run.every=1000", "--quiet"]


def start(*arguments: str) -> subprocess.Popen:
    """Of the packaged plan whose messages go to neighbours: sums of all parties run on one device."""
    command = [sys.executable, "-m", "coterie.cli", *arguments, *PLAN]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(*arguments: str) -> str:
    done = start(*arguments)
    text, _ = done.communicate(timeout=600)
    assert done.returncode == 0, text
    return text


def points(out: Path) -> np.ndarray:
    with np.load(out / "model.npz") as model:
        return model["points"]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are found through /proc")
def test_a_killed_process_is_made_up_for(tmp_path: Path) -> None:
    """SIGKILL to one of two after the first checkpoint; the same command goes on, to the one-process result."""
    state, out = tmp_path / "state", tmp_path / "two"
    shared = ["spawn", "2", "clinics", "--out", str(out), "--checkpoint", str(state), "--every-rounds", "20"]
    broken = start(*shared)
    while not (stored := len(list(state.glob("*.npz")))) and broken.poll() is None:
        time.sleep(0.05)
    assert stored, broken.stdout and broken.stdout.read()
    children = Path(f"/proc/{broken.pid}/task/{broken.pid}/children").read_text().split()
    assert len(children) == 2
    os.kill(int(children[1]), signal.SIGKILL)
    text, _ = broken.communicate(timeout=120)
    assert broken.returncode not in (0, None)
    assert "was ended by signal 9" in text
    assert not out.exists()  # nothing half-finished is left behind
    assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]

    assert "went on from round" in finish(*shared)
    finish("run", "clinics", "--out", str(tmp_path / "one"))
    one, two = points(tmp_path / "one"), points(out)
    assert np.abs(one).max() > 0.1
    np.testing.assert_allclose(two, one, atol=1e-5)


def test_ctrl_c_ends_all_processes_after_the_same_round(tmp_path: Path) -> None:
    state = tmp_path / "state"
    running = start("spawn", "2", "clinics", "--checkpoint", str(state), "--every-rounds", "20")
    while not list(state.glob("*.npz")) and running.poll() is None:
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    text, _ = running.communicate(timeout=120)
    assert running.returncode == 0, text
    assert "interrupted after" in text
    last = [max(state.glob(f"*process-{k}-of-2.npz")).name[:14] for k in (0, 1)]
    assert last[0] == last[1]
