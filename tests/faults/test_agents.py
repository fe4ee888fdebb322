"""P1, P3, P4, P7, T3, T5, F3 on whole agents: processes that are killed, starved, copied, cut off. `make test-faults`.

Longer or shorter: COTERIE_SWEEP_STEP (every how many calls a kill in the slow sweep; default 3),
COTERIE_PARTITION_SECONDS (60), COTERIE_NEMESIS_SECONDS (600).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.faults


def works(*command: str) -> bool:
    return shutil.which(command[0]) is not None and subprocess.run(command, capture_output=True).returncode == 0


needs_strace = pytest.mark.skipif(not works("strace", "-qq", "-o", "/dev/null", "true"), reason="strace does not work")
needs_root = pytest.mark.skipif(not works("unshare", "-n", "-m", "true"), reason="namespaces need root (CAP_SYS_ADMIN)")
needs_links = pytest.mark.skipif(
    not works("unshare", "-n", "ip", "link", "add", "name", "left", "type", "veth", "peer", "name", "right"),
    reason="no iproute2, or no veth links",
)
needs_buckets = pytest.mark.skipif(
    not works("unshare", "-n", "tc", "qdisc", "add", "dev", "lo", "root", "tbf", "rate", "1mbit", "burst", "8kb",
              "latency", "400ms"),
    reason="no tc, or no tbf",
)  # fmt: skip
needs_time = pytest.mark.skipif(
    not works("unshare", "--time", "--fork", "--monotonic", "100800", "true"), reason="no time namespaces"
)


def experiment(
    name: str, folder: Path, *arguments: int, apart: str = "", module: str = "agent_faults"
) -> dict[str, Any]:
    """Run one; what it mounts and links ends with it."""
    prefix = ["unshare", *apart.split(), "--propagation", "private"] if apart else []
    command = [*prefix, sys.executable, "-W", "ignore", "-m", f"tests.faults.{module}", name, str(folder)]
    done = subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    print(name, done.stdout)
    return json.loads(done.stdout.splitlines()[-1])


def test_calls_of_one_kind_are_one_point_and_others_are_not(tmp_path: Path) -> None:
    from tests.faults.points import each_kind, hit, points

    wal, trace = f"5<{tmp_path}/p1/state/ledger.db-wal>", []
    for page in range(3):
        trace += [f'7 pwrite64({wal}, "x", 24, {page}) = 24', f'7 pwrite64({wal}, "x", 4096, {page}) = 4096']
    trace += [
        f"7 fdatasync({wal} <unfinished ...>",
        "8 sendmsg(9<socket:[1]>, {}) = 1",
        "7 <... fdatasync resumed>) = 0",
    ]
    trace += [f"7 fdatasync(6<{tmp_path}/p1/keys/agreements/{'ab' * 32}.ledger>) = 0", f"7 fdatasync({wal}) = ?"]
    found = points("\n".join(trace), tmp_path, "pwrite64,fdatasync,sendmsg")
    assert [len(places) for places in each_kind(found).values()] == [1, 3, 2, 1, 1, 1, 1]
    assert [p.kind.stage for p in found[-3:]] == ["silent", "silent", "first message"]
    assert hit(found, "pwrite64", 3) == found[2].kind != found[0].kind
    assert hit(found, "fdatasync", 4) is None


@needs_strace
def test_p1_a_new_party_is_killed_at_every_store_before_its_first_word(tmp_path: Path) -> None:
    report = experiment("births", tmp_path, module="sweeps")
    assert report["violations"] == [], report
    assert sum(report["points"].values()) >= 50


@needs_strace
def test_p1_a_party_is_killed_at_every_store_write_and_send_of_its_rounds(tmp_path: Path) -> None:
    """Each call on ledger and key folder at each stage, and a send of its rounds; of the rest what four tries hit.

    The number of a call changes from life to life, as the ledger grows, the clock runs and threads take turns: the
    report names the kinds that were missed.
    """
    report = experiment("lives", tmp_path, module="sweeps")
    assert report["violations"] == [], report
    hit, missed = ([point.split(" | ") for point in report[key]] for key in ("points", "missed"))
    calls = {(stage, call) for stage, call, *_ in hit}
    assert {(stage, call) for stage in ("first message", "later") for call in ("pwrite64", "fdatasync")} <= calls
    assert {"sendmsg", "sendto"} & {call for stage, call in calls if stage != "silent"}, report
    durable = {(stage, call) for stage, call, file, _ in missed if file.startswith(("state/ledger", "keys/"))}
    assert durable <= calls, report


@needs_strace
def test_p1_a_new_party_is_killed_at_every_kind_of_store_from_its_first_word_to_its_end(tmp_path: Path) -> None:
    report = experiment("ends", tmp_path, module="sweeps")
    assert report["violations"] == [], report
    assert len(report["points"]) >= 20
    assert report["missed"] == [], report


@pytest.mark.slow
@needs_strace
def test_p1_killed_at_writes_syncs_and_sends(tmp_path: Path) -> None:
    """Every run from the beginning, and all that any thread writes: hundreds of runs."""
    step = int(os.environ.get("COTERIE_SWEEP_STEP", "3"))
    report = experiment("kills", tmp_path, 1, step, module="sweeps")
    assert report["violations"] == []
    assert report["points"] >= 5


@needs_strace
def test_p3_io_errors(tmp_path: Path) -> None:
    report = experiment("errors", tmp_path)
    assert report["codes"] == [4, 4, 4]
    assert max(report["ahead"]) <= 0  # no neighbour has a message of the round that could not be stored
    assert max(report["bytes after"]) <= 1000  # what was stored and queued before, to two neighbours, and receipts
    assert report["violations"] == []


@needs_root
def test_p3_a_full_disk(tmp_path: Path) -> None:
    report = experiment("full", tmp_path, apart="-m")
    assert report["codes"] == [4, 4], report
    assert report["ends"] == [0, 0, 0], report
    assert report["rounds before"] > 5
    assert report["violations"] == []


def test_p4_copies_and_second_processes(tmp_path: Path) -> None:
    report = experiment("copies", tmp_path)
    assert [report[k] for k in ("clone", "restored", "known", "in use")] == [5, 5, 5, 2], report
    assert report["new rounds of the old copy"] == 0
    assert min(report["new rounds of the two"]) == 0, report
    assert report["ended"] in ([5, 130], [130, 130]), report  # found out, or still waiting when it was stopped
    assert report["ends"] == [0, 0, 0], report
    assert report["violations"] == []


@needs_time
def test_p7_clocks(tmp_path: Path) -> None:
    report = experiment("clock", tmp_path)
    assert report["ends"] == [0, 0, 0], report
    assert report["violations"] == []


@needs_root
@needs_links
def test_t3_t5_a_partition_heals_to_identical_integers(tmp_path: Path) -> None:
    report = experiment("partition", tmp_path, int(os.environ.get("COTERIE_PARTITION_SECONDS", "60")), apart="-n -m")
    assert report["apart"] == []
    assert report["frames"] == 72
    assert max(report["at the end of it"]) <= max(report["at the cut"]) + 2  # it was a real cut
    assert report["listening"] == [1, 0]  # T5, and its twin: a party with an address does listen
    assert report["violations"] == []


def test_ten_thousand_connections_that_say_nothing_slow_no_round(tmp_path: Path) -> None:
    report = experiment("crowd", tmp_path)
    assert report["running"] == [True, True], report
    assert report["ended"] == [130, 130], report
    assert min(report["alone"]) > 0, report  # rounds went on all the time
    assert min(report["medians"].values()) >= 0.8, report


@needs_root
@needs_links
@needs_buckets
def test_f3_nemesis(tmp_path: Path) -> None:
    seconds = int(os.environ.get("COTERIE_NEMESIS_SECONDS", "600"))
    report = experiment("nemesis", tmp_path, seconds, apart="-n -m")
    assert report["codes"] == [0] * 5, report
    assert len(report["faults"]) >= 8 or seconds < 30
    assert report["violations"] == []


def test_f3_twin_the_history_check_finds_a_second_version(tmp_path: Path) -> None:
    """One ledger exchanged for that of another run with the same keys: the others used messages it does not hold."""
    from tests.faults.agent_faults import fresh, three

    fleet = three(tmp_path / "fleet")
    for node in range(3):
        fleet.start(node)
    assert fleet.wait(120) == [0, 0, 0], fleet.errors()
    assert fleet.violations(3) == []
    shutil.copytree(fleet.sites[1].state, tmp_path / "other")
    fresh(fleet)
    for node in range(3):
        fleet.start(node)
    assert fleet.wait(120) == [0, 0, 0], fleet.errors()
    shutil.rmtree(fleet.sites[1].state)
    shutil.copytree(tmp_path / "other", fleet.sites[1].state)
    assert any("used another round" in what for what in fleet.violations(3))
