"""Fault injection on durable files, from a process that forks: a party's ledger, or a data set's account.

    python -m tests.faults.ledger_faults NAME FOLDER [TWIN [COUNT]]
    python -m tests.faults.account_faults NAME FOLDER [TWIN [COUNT]]

Every experiment prints one JSON object; the twins are those of the workers, `tests.deploy.ledger_worker.work` and
`tests.deploy.account_worker.draw`. A killed, starved or unplugged worker must leave a file that satisfies I1-I4, and a
fresh worker must finish the job.

    kills     SIGKILL on entering every write, sync, truncate, link and unlink of three rounds, from an empty folder on
    recovery  the same again while a fresh worker recovers from such a kill
    errors    the same calls fail with EIO or ENOSPC, one at a time
    full      a tmpfs of 256 KiB fills up
    cuts      power cuts: the image of an ext4 file system is copied without sync, mounted, and looked at
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from coterie.deploy.ledger import read
from tests.deploy.ledger_worker import FAILED, Worker, violations, work

SIZE = (
    5000  # bytes of a frame and of a state: in a file a whole block goes past the system's cache, the rest through it
)


class Subject(NamedTuple):
    """What is tried: a worker that promises by writing to a pipe, and what must hold of its files after any fault."""

    work: Callable[[Path, int, int, int, str], None]  # folder, pipe, promises, bytes of each, twin
    violations: Callable[[Path, dict[int, set[str]], Fraction], tuple[list[str], Fraction]]
    count: Callable[[Path], int]  # promises in the file
    small: str  # a disk that fills up
    codes: tuple[int, ...] = ()  # how a worker may end too, if a disk refuses what is made before the file


LEDGER = Subject(
    lambda folder, wire, stop, size, twin: work(folder / "ledger", wire, stop, size, twin),
    lambda folder, heard, before: violations(folder / "ledger", heard, before),
    lambda folder: len(read(folder / "ledger").rows),
    "256k",
)
CALLS = "write,pwrite64,fsync,fdatasync,ftruncate,link,linkat,unlink,unlinkat"
ROUNDS = 3


def injected(subject: Subject, folder: Path, fault: str, twin: str = "") -> tuple[int, dict[int, set[str]]]:
    """A worker under strace with one fault; how it ended and what it sent."""
    worker = Worker(lambda wire: subject.work(folder, wire, ROUNDS, SIZE, twin))
    trace = subprocess.Popen(
        ["strace", "-qq", "-o", "/dev/null", "-e", f"trace={CALLS}", "-e", f"inject={fault}", "-p", str(worker.pid)],
        stderr=subprocess.PIPE,
    )  # fmt: skip
    status = Path(f"/proc/{worker.pid}/status")
    deadline = time.monotonic() + 20
    while f"TracerPid:\t{trace.pid}\n" not in status.read_text():
        if trace.poll() is not None or time.monotonic() > deadline:
            os.kill(worker.pid, signal.SIGKILL)
            worker.end()
            _, errors = trace.communicate()
            sys.exit(f"strace cannot attach: {errors.decode().strip()}")
        time.sleep(0.001)
    worker.go()
    result = worker.end()
    trace.communicate()
    return result


def finish(subject: Subject, folder: Path, heard: dict[int, set[str]]) -> list[str]:
    """What is wrong after the fault, and after a fresh worker has done the rest."""
    found, spent = subject.violations(folder, heard, Fraction(0))
    worker = Worker(lambda wire: subject.work(folder, wire, ROUNDS, SIZE, ""))
    worker.go()
    code, more = worker.end()
    if code != 0:
        return [*found, f"no clean resume: exit code {code}"]
    for round, hashes in more.items():
        heard.setdefault(round, set()).update(hashes)
    again, _ = subject.violations(folder, heard, spent)
    if subject.count(folder) != ROUNDS:
        again.append("rounds are missing")
    return found + again


def sweep(
    subject: Subject, folder: Path, fault: str, expected: int, twin: str = "", patience: int = 1
) -> dict[str, Any]:
    """One fault at the 1st, 2nd, 3rd… call, until so many workers in a row get through as if there were none."""
    found, number, met, through = [], 0, 0, 0
    while through < patience:
        number += 1
        place = folder / "trial"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        code, heard = injected(subject, place, f"{fault}:when={number}", twin)
        if code not in (0, expected, *subject.codes):
            found.append(f"{fault} at call {number}: exit code {code}")
        found += [f"{fault} at call {number}: {what}" for what in finish(subject, place, heard)]
        met, through = met + (code != 0), through + 1 if code == 0 else 0
    return {"points": met, "violations": found}


def kills(subject: Subject, folder: Path, twin: str) -> dict[str, Any]:
    return sweep(subject, folder, f"{CALLS}:signal=KILL", -signal.SIGKILL, twin)


def recovery(subject: Subject, folder: Path, twin: str) -> dict[str, Any]:
    """SIGKILL in the middle of a release, then at every call of the recovery: a torn log, and what is written on it."""
    torn = folder / "torn"
    found, points, first = [], 0, 40  # the first calls make the file
    while True:
        shutil.rmtree(torn, ignore_errors=True)
        torn.mkdir()
        code, heard = injected(subject, torn, f"{CALLS}:signal=KILL:when={first}", twin)
        if code == 0:
            return {"points": points, "violations": found}
        number = 0
        while code != 0 and number < 20:
            number += 1
            place = folder / "trial"
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(torn, place)
            code, more = injected(subject, place, f"{CALLS}:signal=KILL:when={number}", twin)
            both = {t: heard.get(t, set()) | more.get(t, set()) for t in {*heard, *more}}
            found += [f"kill at call {first}, then {number}: {what}" for what in finish(subject, place, both)]
        points += number
        first += 3


def errors(subject: Subject, folder: Path, twin: str) -> dict[str, Any]:
    """A failing unlink is left out: a leftover temporary name harms nobody.

    SQLite ignores a failed sync of a folder, or at the end of a connection, while the file is being made and nothing
    depends on it yet: such a worker gets through.
    """
    faults = ("fdatasync:error=EIO", "fsync:error=EIO", "pwrite64:error=ENOSPC", "pwrite64:error=EIO")
    results = [sweep(subject, folder, fault, FAILED, twin, patience=10) for fault in faults]
    return {
        "points": sum(result["points"] for result in results),
        "violations": [what for result in results for what in result["violations"]],
    }


def full(subject: Subject, folder: Path, twin: str) -> dict[str, Any]:
    """Rounds until the disk is full; then a larger disk."""
    disk = folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={subject.small}", "tmpfs", disk], check=True)
    worker = Worker(lambda wire: subject.work(disk, wire, 400, SIZE, twin))
    worker.go()
    code, heard = worker.end()
    found, spent = subject.violations(disk, heard, Fraction(0))
    stuck = Worker(lambda wire: subject.work(disk, wire, 400, SIZE, twin))  # no room: fails again, and harms nothing
    stuck.go()
    again, more = stuck.end()
    subprocess.run(["mount", "-o", "remount,size=8m", disk], check=True)
    worker = Worker(lambda wire: subject.work(disk, wire, len(heard) + 5, SIZE, ""))
    worker.go()
    resumed, rest = worker.end()
    for round, hashes in [*more.items(), *rest.items()]:
        heard.setdefault(round, set()).update(hashes)
    found += subject.violations(disk, heard, spent)[0]
    return {"codes": [code, again, resumed], "rounds": len(heard), "violations": found}


def cuts(subject: Subject, folder: Path, twin: str, count: int = 200, seed: int = 1) -> dict[str, Any]:
    """Power cuts of a disk with a running worker; each cut is looked at on its own copy."""
    image, copy, disk, look = (folder / name for name in ("image", "copy", "disk", "look"))
    disk.mkdir()
    look.mkdir()
    rng, found, lost, refused, sent = random.Random(seed), [], 0, 0, 0
    with image.open("wb") as file:
        file.truncate(24 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, disk], check=True)
    worker, heard = None, {}
    for _ in range(count):
        if worker is None:
            for old in disk.iterdir():
                shutil.rmtree(old) if old.is_dir() else old.unlink()
            os.sync()
            heard, size = {}, rng.choice((300, 3000, 30_000))
            worker = Worker(lambda wire, size=size: subject.work(disk, wire, 60, size, twin))  # type: ignore[misc]
            worker.go()
            while not worker.hear():
                time.sleep(0.001)
        time.sleep(rng.uniform(0.0, 0.03))
        os.kill(worker.pid, signal.SIGSTOP)
        heard = worker.hear()
        before = b""
        while before != (before := image.read_bytes()):  # until the kernel is not in the middle of writing it
            pass
        copy.write_bytes(before)
        os.kill(worker.pid, signal.SIGCONT)
        subprocess.run(["mount", "-o", "loop", copy, look], check=True)
        try:
            wrong, _ = subject.violations(look, heard, Fraction(0))
            lost += any("not in the" in what for what in wrong)
            refused += any("refused" in what for what in wrong)
            found += wrong
            if not wrong:
                resume = Worker(lambda wire: subject.work(look, wire, 61, SIZE, ""))
                resume.go()
                code, more = resume.end()
                clash = [t for t in more if t in heard and heard[t] != more[t]]
                found += [f"no clean resume: exit code {code}"] * (code != 0) + [f"I1: round {t}" for t in clash]
        finally:
            subprocess.run(["umount", look], check=True)
        sent += len(heard)
        if max(heard) >= 55:
            worker.end()
            worker = None
    if worker is not None:
        os.kill(worker.pid, signal.SIGKILL)
        worker.end()
    return {"cuts": count, "sent": sent, "lost": lost, "refused": refused, "violations": found[:20]}


def run(subject: Subject, arguments: list[str]) -> None:
    """One experiment, from the command line."""
    experiment = {"kills": kills, "recovery": recovery, "errors": errors, "full": full, "cuts": cuts}[arguments[0]]
    twin, *rest = [*arguments[2:], ""]
    print(json.dumps(experiment(subject, Path(arguments[1]), twin, *(int(number) for number in rest if number))))


if __name__ == "__main__":
    run(LEDGER, sys.argv[1:])
