"""No record in any file or socket, by any way to train: `make test-faults`. The everyday version: tests/test_leaks.py.

Every byte that a process hands to the kernel (files, also those removed again; sockets; pipes) is traced and searched,
and so is every file that it leaves.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from coterie.deploy.party import read_records
from coterie.deploy.trial import free_ports, sign_trial
from tests.faults.planted_drivers import FEATURES, SLOPES
from tests.leaks import Search
from tests.test_leaks import RECORDS, plan_of, surroundings, toml, write_table

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed"),
]
WRITES = "write,pwrite64,pwritev,pwritev2,writev,sendto,sendmsg,sendmmsg"
MANY = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}


def traced(folder: Path, name: str, module: str, *arguments: str, cached: bool = True) -> subprocess.Popen[bytes]:
    """A process whose writes are all in NAME.trace."""
    trace = [
        "strace",
        "-f",
        "-qq",
        "-xx",
        "-s",
        str(1 << 26),
        "-e",
        f"trace={WRITES}",
        "-o",
        str(folder / f"{name}.trace"),
    ]
    env = surroundings(folder) | ({"JAX_COMPILATION_CACHE_DIR": str(folder / "programs"), **MANY} if cached else {})
    with (folder / f"{name}.printed").open("wb") as printed:
        return subprocess.Popen(
            [*trace, sys.executable, "-m", module, *arguments], cwd=folder, env=env, stdout=printed, stderr=printed
        )


def ended(folder: Path, processes: dict[str, subprocess.Popen[bytes]], seconds: float = 600) -> None:
    """All of them, well."""
    try:
        codes = {name: process.wait(seconds) for name, process in processes.items()}
    finally:
        for process in processes.values():
            process.kill()
    said = {name: (folder / f"{name}.printed").read_text()[-1500:] for name, code in codes.items() if code}
    assert not said, said


@pytest.mark.parametrize("how", ["train", "estimators", "coupled", "algorithms", "stores"])
def test_ways_to_train_in_python(how: str, tmp_path: Path) -> None:
    ended(tmp_path, {how: traced(tmp_path, how, "tests.faults.planted_drivers", how)})
    found = Search(FEATURES, SLOPES).files(tmp_path)
    if how == "stores":  # a store is records: as it is written, and as it lies there
        assert found.pop("stores.trace").endswith("hexadecimal")
        found = {name: how for name, how in found.items() if not name.startswith("store/")}
    assert found == {}
    assert how == "stores" or len(list((tmp_path / "programs").glob("*-cache"))) > 10


COMMANDS = {
    "plain": ("run", "--seeds", "2"),
    "admm": ("run", "--set", "algorithm.name=pr-admm"),
    "spread": ("run", "--devices", "2", "--checkpoint", "state", "--every-rounds", "2"),
    "compare": ("compare", "--algorithms", "dp-dsgd,pr-admm", "--epsilons", "1", "--seeds", "1"),
    "launch": ("launch",),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_commands(name: str, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    rows = write_table(table, seed=1, records=90)
    plan = plan_of([24, 24, 24], table, graph={"kind": "ring"})
    (tmp_path / "plan.toml").write_text(toml(plan))
    command, *options = COMMANDS[name]
    ended(tmp_path, {name: traced(tmp_path, name, "coterie.cli", command, "plan.toml", *options, "--out", "runs")})
    search = Search(rows, read_records(plan, table).features)
    found = search.files(tmp_path)
    assert found.pop("table.csv") == "decimal"
    if name == "launch":  # a rehearsal writes every party's file
        assert found.pop("launch.trace").endswith("hexadecimal")
        assert [found.pop(f"runs/agent-{k}/data.npz", None) for k in range(3)] == ["float64"] * 3
    assert found == {}
    if name == "launch":  # the audit of what it left reads the records again
        ended(tmp_path, {"audit": traced(tmp_path, "audit", "coterie.cli", "audit", "runs")})
        assert {p for p in search.files(tmp_path) if not p.startswith(("runs/agent-", "launch", "table"))} == set()


SHARED = {"kind": "secret-sum", "noise": "central", "honest": 2}
DEPLOYED = {
    "dp-dsgd": ("dp-dsgd", {"kind": "broadcast"}, ""),
    "pr-admm": ("pr-admm", {"kind": "broadcast"}, ""),
    "local noise": ("dp-dsgd", {"kind": "secret-sum"}, ""),
    "shared noise": ("dp-dsgd", SHARED, ""),
    "shared noise, into the ledger": ("dp-dsgd", SHARED, "state"),
    "shared noise, into a frame": ("dp-dsgd", SHARED, "frame"),
}


@pytest.mark.parametrize("case", DEPLOYED)
def test_deployed_parties(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that leak on purpose are found, in the file or socket where they do."""
    algorithm, exchange, leak = DEPLOYED[case]
    monkeypatch.setenv("COTERIE_LEAK", leak)
    tables = [tmp_path / f"{name}.csv" for name in ("ada", "ben", "cleo")]
    rows = [write_table(table, seed=k) for k, table in enumerate(tables, 2)]
    ports = zip(tables, free_ports(3), strict=True)
    plan = plan_of(
        [RECORDS] * 3, graph={"kind": "complete"}, exchange=exchange, algorithm={"name": algorithm},
        deploy={"parties": [{"name": t.stem, "address": f"127.0.0.1:{p}"} for t, p in ports]}, run={"rounds": 8},
    )  # fmt: skip
    records = [read_records(plan, table) for table in tables]
    agreement, sites = sign_trial(plan, records, tmp_path / "trial")
    for site in sites:
        site.data.unlink()  # they read their tables

    def start(k: int, name: str, **options: bool) -> subprocess.Popen[bytes]:
        site = sites[k]
        given = ["--me", site.name, "--data", str(tables[k]), "--keys", str(site.keys), "--state", str(site.state)]
        return traced(tmp_path, name, "tests.deploy.tapped_agent", "agent", str(agreement), *given, **options)

    first = start(0, "crashed", cached=True)  # it waits for the others, and is made to leave a core if it can
    try:
        while not (sites[0].state / "status.json").exists():
            assert first.poll() is None, (tmp_path / "crashed.printed").read_text()
            signal.sigtimedwait([], 0.1)
        children = Path(f"/proc/{first.pid}/task/{first.pid}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGABRT)
    finally:
        assert first.wait(60) != 0
    ended(tmp_path, {site.name: start(k, site.name, cached=k == 1) for k, site in enumerate(sites)})
    found = Search(*rows, *(r.features for r in records)).files(tmp_path)
    assert [found.pop(t.name) for t in tables] == ["decimal"] * 3
    if leak:
        where = "ledger.db" if leak == "state" else "sent/"
        assert any(where in name for name in found), found
        return
    assert found == {}
    assert not list(tmp_path.rglob("core*")), "a core dump"
    assert not (tmp_path / "programs").exists() or not list((tmp_path / "programs").iterdir())
    assert len(list((tmp_path / "sent").iterdir())) >= 3


def test_a_file_that_is_removed_again_is_seen(tmp_path: Path) -> None:
    code = "import os, sys; from tests.faults.planted_drivers import FEATURES as x\nx.tofile('f'); os.remove('f')\n"
    (tmp_path / "writer.py").write_text(code)
    ended(tmp_path, {"writer": traced(tmp_path, "writer", "writer")})
    assert Search(FEATURES).files(tmp_path) == {"writer.trace": "float64 in hexadecimal"}
