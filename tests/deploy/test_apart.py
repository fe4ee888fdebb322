"""What is done apart comes back as it is, or as the mistake that it was; and pricing and compiling are done apart."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie.algorithms.laws import Grid
from coterie.deploy.apart import apart
from coterie.deploy.certify import unsigned_certificate
from coterie.deploy.noise import UNITS
from coterie.deploy.party import Party, Terms, read_records
from coterie.deploy.trial import sign_trial
from coterie.errors import InputError
from coterie.privacy.ledger import Entry
from tests.deploy.house import small_plan, small_records
from tests.test_leaks import RECORDS, plan_of, write_table

FORKED = """
import os, signal, sys
from coterie.deploy.apart import apart
from coterie.errors import InputError

assert apart(os.getpid) != os.getpid()
try:
    apart(lambda: (_ for _ in ()).throw(InputError("epsilon must be > 0, got -1")))
except InputError as error:
    print(error)
try:
    apart(lambda: 1 / 0)
except RuntimeError as error:
    print(error)
try:
    apart(lambda: os.kill(os.getpid(), signal.SIGKILL))  # as the kernel does where memory runs out
except InputError as error:
    print(error)
for number in (signal.SIGTERM, signal.SIGINT):  # systemd and a terminal ask both; the parent ends the other one
    print(apart(lambda: os.kill(os.getpid(), number) or "not disturbed"))
"""


FAULTS = """
import resource, sys
from concurrent.futures import ThreadPoolExecutor
import numpy as np
from coterie.deploy.apart import keep_buffers

if sys.argv[1:]:
    keep_buffers()


def use():
    big = [np.ones(10**6), np.ones((2, 10**6)), np.ones(3 * 10**6)]


with ThreadPoolExecutor(2) as pool:
    for turn in range(12):
        if turn == 2:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        use()
        for done in [pool.submit(use) for _ in range(2)]:
            done.result()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="another C library than glibc")
def test_buffers_of_a_round_are_kept_for_the_next() -> None:
    """Pages that the system has to clear, in ten rounds of arrays of 8 to 24 MB in three threads: hardly any, and else
    a hundred thousand."""
    call = lambda *given: subprocess.run(  # noqa: E731
        [sys.executable, "-c", FAULTS, *given], capture_output=True, text=True, timeout=120, check=True,
        env=os.environ | {"NUMPY_MADVISE_HUGEPAGE": "0"},
    )  # fmt: skip
    kept, fresh = int(call("kept").stdout), int(call().stdout)
    assert kept < 40_000 < 80_000 < fresh


def test_a_process_of_one_thread_forks() -> None:
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.splitlines() == [
        "epsilon must be > 0, got -1",
        "the preparation ended with status 1, without a result",
        "the process that prepares a run was ended by SIGKILL: where nobody did it, memory ran out; "
        "nothing was sent or spent",
        "not disturbed",
        "not disturbed",
    ]
    assert "ZeroDivisionError" in done.stderr


def test_where_jax_has_begun_nothing_is_forked() -> None:
    import jax.numpy as jnp

    jnp.zeros(1).block_until_ready()
    assert apart(os.getpid) == os.getpid()

    def fails() -> None:
        raise InputError("no")

    with pytest.raises(InputError, match="no"):
        apart(fails)


LEAN = """
import json, sys
from pathlib import Path
import coterie.deploy.process as process
from tests.deploy.test_apart import spoken

*where, = map(Path, sys.argv[1:])
with process.open_party(*where) as opened:
    numbers, point = spoken(opened.party)
    opened.ledger.spent()  # as its status does after every round
    peak = int(dict(line.split(":", 1) for line in open("/proc/self/status"))["VmHWM"].split()[0])
    print(json.dumps([numbers, point, sorted(sys.modules), peak]))
"""
JAX = """
import jax
jax.jit(lambda x: x + 1)(1.0)
print(int(dict(line.split(":", 1) for line in open("/proc/self/status"))["VmHWM"].split()[0]))
"""
HEAVY = {
    "pandas", "networkx", "sklearn", "matplotlib", "dp_accounting", "pyarrow", "mpmath", "scipy.linalg",
    "scipy.optimize", "scipy.sparse", "scipy.stats", "rich.live", "coterie.audit",
    "coterie.estimators", "coterie.report", "coterie.worth",
}  # fmt: skip
NEEDED = {
    "grpc",
    "jax",
    "pydantic",
    "scipy.special",
}  # a list that lacked one of these would be no list of what is loaded


def spoken(party: Party) -> tuple[list[int], list[float]]:
    """What a party says in its first round, and its answer after it, without noise."""
    draw = {name: Grid(np.zeros(law.shape, np.int64), UNITS[type(law)]) for name, law in party.turns.laws.items()}
    carry, numbers, sent = party.turn(0, party.begin(), draw)
    assert sent
    return numbers.tolist(), party.answer(party.heard(carry, 0, 0, 2 * numbers)).tolist()


def said(*command: str) -> Any:
    alike = {key: value for key, value in os.environ.items() if not key.startswith("JAX_")}  # whatever tests left there
    done = subprocess.run(
        [sys.executable, "-c", *command], capture_output=True, text=True, timeout=300, check=False, env=alike
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.slow  # every day with a table, which takes more to read
def test_a_party_says_the_same_and_is_little_more_than_jax(tmp_path: Path) -> None:
    plan, records = small_plan(3), small_records()
    agreement, (site, *_) = sign_trial(plan, records, tmp_path / "trial")
    numbers, point, modules, peak = said(LEAN, *map(str, (agreement, site.keys, site.data, site.state)))
    assert (numbers, point) == spoken(Party.of(Terms.of(plan), 0, records[0]))
    assert np.count_nonzero(numbers) == 3
    assert (HEAVY | NEEDED) & set(modules) == NEEDED
    assert peak < 1.3 * said(JAX)  # it was 2.5 times as much


@pytest.mark.slow
def test_a_table_is_read_apart_too(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    write_table(table, seed=1)
    parties = [{"name": name, "address": f"{name}.example:443"} for name in ("ada", "ben")]
    plan = plan_of([RECORDS] * 2, deploy={"parties": parties})
    records = read_records(plan, table)
    agreement, (site, _) = sign_trial(plan, [records] * 2, tmp_path / "trial")
    numbers, point, modules, peak = said(LEAN, *map(str, (agreement, site.keys, table, site.state)))
    assert (numbers, point) == spoken(Party.of(Terms.of(plan), 0, records))
    assert (HEAVY | NEEDED) & set(modules) == NEEDED
    assert peak < 1.3 * said(JAX)


@pytest.mark.slow  # that what is done apart is not disturbed: every day in test_a_process_of_one_thread_forks
def test_a_certificate_is_worked_out_though_all_processes_are_asked_to_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `systemctl stop` and Ctrl-C do, in the seconds between the model and the certificate."""
    asked = tmp_path / "python"
    asked.write_text(f'#!/bin/sh\nkill -INT $$\nkill -TERM $$\nexec {sys.executable} "$@"\n')
    asked.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(asked))
    plan = small_plan(2)
    entries = [Entry(t, event, 0.0) for t, round in enumerate(Terms.of(plan).charges(0)) for event in round]
    assert unsigned_certificate(plan, 0, entries, 0, {"model.npz": "00"})["files"] == {"model.npz": "00"}
