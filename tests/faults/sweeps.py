"""SIGKILL at a new party's, a resumed party's and a finishing party's calls, one process each.

    python -m tests.faults.sweeps NAME FOLDER [NUMBER...]

Every sweep prints one JSON object.

    births             on entering every store up to a new party's first word; it comes back as far as that
    lives              one party, killed again and again, each time at another kind of store, write or send of a resumed
                       life (tests/faults/points.py); the others wait
    ends               on entering every kind of store from a new party's first word on, of a plan of one round
    kills START STEP   on entering the START-th, START+STEP-th, … write, sync or send of three rounds, each time anew:
                       all of the above and more, in hours
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.deploy.house import rows
from tests.faults.lab import SENDS, Fleet, fresh, three
from tests.faults.points import Kind, Point, each_kind, hit, points

DURABLE = "pwrite64,fsync,fdatasync,ftruncate,link,linkat,unlink,unlinkat,rename"
STORES = f"write,{DURABLE}"
ALL = f"{STORES},{SENDS}"
SILENT = ["-e", f"inject={SENDS}:signal=TERM:when=1"]
"""A stop before the first word leaves."""
DEAD = (137, -9)
TRIES = 4
"""At one kind of point: how often a thread writes its status, or wakes another, is up to the clock."""


def traced(*options: str) -> list[str]:
    """Start a process under strace with a fault in it."""
    return ["strace", "-f", "-qq", "-o", "/dev/null", *options]


def dies_at(call: str, number: int) -> list[str]:
    """Faults for strace: SIGKILL on entering the n-th of these calls. It counts each kind of call, and each thread."""
    return ["-e", f"trace={ALL}", "-e", f"inject={call}:signal=KILL:when={number}"]


def stored(fleet: Fleet) -> dict[int, bytes]:
    """The frames in the middle one's ledger."""
    path = fleet.sites[1].state / "ledger.db"
    return rows(path)[0] if path.exists() else {}


def undrawn(fleet: Fleet) -> None:
    """What the middle one drew died with it."""
    shutil.rmtree(fleet.sites[1].data.parent / "draws", ignore_errors=True)


def died(fleet: Fleet, code: int) -> int:
    """The code of a death where it was the process beside, which prices and reads, that was killed."""
    last = (fleet.folder / "p1.errors").read_text()[-400:]
    return DEAD[0] if code == 2 and "the process that prepares a run was ended by SIGKILL" in last else code


def say(what: object, code: int, wrong: list[str]) -> list[str]:
    """One line of progress; what was wrong, with the place."""
    print(f"{what}: {code}, {'; '.join(wrong) or 'as it must be'}", file=sys.stderr, flush=True)
    return [f"{what}: {one}" for one in wrong]


def watched(fleet: Fleet, *options: str) -> list[str]:
    """Start a process under strace, with what it calls written down."""
    return ["strace", "-f", "-qq", "-y", "-o", str(fleet.folder / "trace"), "-e", f"trace={ALL}", *options]


def seen(fleet: Fleet) -> list[Point]:
    """What the last one that was watched has called."""
    return points((fleet.folder / "trace").read_text(), fleet.folder, ALL)


def sweep(fleet: Fleet, targets: list[Point], once: Callable[[list[str]], tuple[int, list[str]]]) -> dict[str, Any]:
    """Kill the middle one at each kind of these points; `once` lets it die under a command, and says what was wrong.

    What counts is what it was really killed at: where it came by fewer or more calls than the time before, the number
    is taken anew from what it did. After a few tries a kind is `missed`, and the report says so.
    """
    hits, missed, found = set[Kind](), list[Kind](), list[str]()
    for kind, places in each_kind(targets).items():
        number, apart = places[0].number, places[0].apart
        for _ in range(TRIES):
            if kind in hits:
                break
            if apart and kind.call in ("fsync", "rename"):  # another thread has done as many long ago
                code, wrong = once(["env", f"COTERIE_DIES_AT={kind.call} {kind.file.rpartition('/')[2]}"])
                at = kind if code in DEAD else None
            else:
                code, wrong = once(watched(fleet, "-e", f"inject={kind.call}:signal=KILL:when={number}"))
                calls = seen(fleet)
                at = hit(calls, kind.call, number) if code in DEAD else None
                number = next((p.number for p in calls if p.kind == kind), number + 1)
            hits |= {at} if at else set()
            found += say(" | ".join(at or ("past", *kind)), code, wrong)
        missed += [kind] if kind not in hits else []
    return {"points": [" | ".join(k) for k in sorted(hits)], "missed": [" | ".join(k) for k in missed],
            "violations": found}  # fmt: skip


def births(folder: Path) -> dict[str, Any]:
    """A new party dies at its n-th store, and comes back to where it speaks; the others are not even there."""
    fleet, found, counts = three(folder), [], {}
    for call in DURABLE.split(","):
        code, number = DEAD[0], 0
        while code in DEAD:
            number += 1
            fresh(fleet)
            code = died(fleet, fleet.start(1, prefix=traced(*dies_at(call, number), *SILENT)).wait(600))
            again = fleet.start(1, prefix=traced("-e", f"trace={SENDS}", *SILENT)).wait(600)
            wrong = [f"exit code {again} after it"] if again != 130 else []
            wrong += ["it has spoken"] if stored(fleet) else []
            wrong += [f"exit code {code}"] if code not in (*DEAD, 130) else []
            found += say(f"{call} {number}", code, wrong)
        counts[call] = number - 1
    return {"points": counts, "violations": found, "errors": fleet.errors() if found else ""}


def lives(folder: Path, rounds: int = 300) -> dict[str, Any]:
    """The middle one of three dies at each kind of call of a life that resumes and sees three rounds."""
    fleet = three(folder, rounds, deadline=600.0, patience=3600.0, tick=0.1)
    for node in range(3):
        fleet.start(node)
    fleet.until(lambda: fleet.round(1) >= 3)
    fleet.kill(1)

    def once(prefix: list[str]) -> tuple[int, list[str]]:
        before, at = stored(fleet), fleet.round(1)
        undrawn(fleet)
        process = fleet.start(1, prefix=prefix)
        fleet.until(lambda: process.poll() is not None or fleet.round(1) >= at + 3)
        if (ended := process.poll()) is None:  # it passed
            children = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=False)
            for child in children.stdout.split():  # none, if it has died since
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(child), signal.SIGKILL)
            process.wait()
        code, after = -1 if ended is None else died(fleet, ended), stored(fleet)
        wrong = [f"I4: round {t} was taken back" for t in before if after.get(t) != before[t]]
        return code, wrong + ([f"exit code {code}"] if code not in (*DEAD, -1) else [])

    once(watched(fleet))
    report = sweep(fleet, sorted(seen(fleet), key=lambda point: point.kind.stage), once)  # the rounds, then the start
    undrawn(fleet)
    fleet.start(1)
    codes = fleet.wait(600)
    wrong = ([f"exit codes {codes}"] if any(codes) else []) + fleet.violations(rounds)
    return {**report, "violations": report["violations"] + wrong, "errors": fleet.errors() if wrong else ""}


def ends(folder: Path) -> dict[str, Any]:
    """A new party of one round dies at each kind of store from its first word on, comes back and ends.

    While it has no model the others wait a minute for it; once it has one, neither need wait long for the other.
    """
    parts = [
        finish(three(folder / "message", 1, deadline=60.0), lambda stage: stage != "model"),
        finish(three(folder / "model", 1, deadline=10.0), lambda stage: stage == "model"),
    ]
    return {key: [one for part in parts for one in part[key]] for key in ("points", "missed", "violations", "errors")}


def finish(fleet: Fleet, wanted: Callable[[str], bool]) -> dict[str, Any]:
    """`ends` at the stages that are wanted. The others are ended once they have their models: `kills` waits for their
    certificates too."""

    def once(prefix: list[str]) -> tuple[int, list[str]]:
        fresh(fleet)
        fleet.start(0)
        fleet.start(2)
        code = fleet.start(1, prefix=prefix).wait(600)
        before = stored(fleet)
        if code:
            undrawn(fleet)
            fleet.start(1)
        last = fleet.processes[1].wait(600)
        wrong = [f"exit code {last} after it"] if last else []
        for node in (0, 2):
            model = fleet.sites[node].state / "model.npz"
            fleet.until(lambda: fleet.processes[node].poll() is not None or model.exists())  # noqa: B023
            ended = fleet.processes[node].poll()
            wrong += [f"p{node} ends with {ended}"] if ended or not model.exists() else []
            fleet.kill(node)
        wrong += [] if (fleet.sites[1].state / "certificate.json").exists() else ["it has no certificate"]
        after = stored(fleet)
        wrong += [f"I4: round {t} was taken back" for t in before if after.get(t) != before[t]]
        return code, wrong + fleet.violations(1)

    code, wrong = once(watched(fleet))
    whole = seen(fleet)
    spoken = next(i for i, p in enumerate(whole) if p.kind.call in SENDS.split(","))
    stores = [p for p in whole[spoken:] if p.kind.call in DURABLE.split(",") and wanted(p.kind.stage)]
    report = sweep(fleet, stores, once)
    report["violations"] += say("unharmed", code, wrong + ([f"exit code {code}"] if code else []))
    return {**report, "errors": [fleet.errors()] if report["violations"] else []}


def kills(folder: Path, start: int = 1, step: int = 1, rounds: int = 3) -> dict[str, Any]:
    """The middle one of three dies at its n-th call of a kind, then comes back, until it did not die twice.

    Noise is fresh: a second draw would be seen. The others wait a minute at the end, or they would be gone before one
    that died at its last message is back.
    """
    fleet, found, count, skipped = three(folder, rounds, deadline=60.0), [], 0, 0
    for call in f"{SENDS},{STORES}".split(","):
        number, through = start, 0
        while through < 2:
            fresh(fleet)
            fleet.start(0)
            fleet.start(2)
            code = fleet.start(1, prefix=traced(*dies_at(call, number))).wait(600)
            before = stored(fleet)
            if code:
                undrawn(fleet)
                fleet.start(1)
                count, through = count + 1, 0
            else:
                through, skipped = through + 1, skipped + 1
            codes = fleet.wait(600)
            wrong = [f"exit codes {codes}"] if any(codes) else []
            wrong += fleet.violations(rounds)
            after = stored(fleet)
            wrong += [f"I4: round {t} was taken back" for t in before if after.get(t) != before[t]]
            found += say(f"{call} {number}", code, wrong)
            number += step
    return {"points": count, "unharmed": skipped, "violations": found}


if __name__ == "__main__":
    known = {f.__name__: f for f in (births, lives, ends, kills)}
    print(json.dumps(known[sys.argv[1]](Path(sys.argv[2]) / "fleet", *map(int, sys.argv[3:]))))
