"""Where a process can die: the calls that strace saw, sorted into kinds, one point of each.

Two calls are of one kind where call, file, stage of the run and the store before them in the same thread are the same:
a party that is killed at either leaves the same files, up to how many rows there are. Of a page of the ledger that is
written before another, or of a status that is written each second, one point is enough.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

__all__ = ["Kind", "Point", "each_kind", "hit", "points"]

LINE = re.compile(r"^(\d+) +(\w+)\((.*)$")


class Kind(NamedTuple):
    """What is the same for all the points of which one is taken."""

    stage: str
    call: str
    file: str
    before: str


class Point(NamedTuple):
    """The `number`-th such call of its thread, as strace counts."""

    kind: Kind
    number: int
    apart: bool
    """Not in the main thread."""


def points(trace: str, folder: Path, calls: str) -> list[Point]:
    """Every one of these calls in what `strace -f -y` wrote, in order."""
    counts: dict[tuple[str, str], int] = {}
    last: dict[str, str] = {}
    found, stage, rounds, main = [], "silent", 0, ""
    for line in trace.splitlines():
        if not (match := LINE.match(line)) or match[2] not in calls.split(","):
            continue
        thread, call, rest = match.groups()
        main = main or thread
        counts[thread, call] = number = counts.get((thread, call), 0) + 1
        file = _file(rest, folder)
        if file in ("socket", "eventfd", "pipe"):  # whichever thread is free does it
            found.append(Point(Kind(stage, call, file, ""), number, thread != main))
            continue
        size = re.search(r", (\d+), \d+\)?(?: =| <|$)", rest) if call == "pwrite64" else None
        done = f"{call} {file}" + (f" {size[1]}" if size else "")
        kind = Kind(stage, call, done.removeprefix(f"{call} "), last.get(thread, ""))
        found.append(Point(kind, number, thread != main))
        last[thread] = done
        if call == "fdatasync" and file.startswith("keys/"):  # the key folder knows of one more message
            rounds += 1
            stage = "first message" if rounds == 1 else "later"
        elif call == "rename" and file == "state/model.npz":
            stage = "model"
    return found


def _file(rest: str, folder: Path) -> str:
    """Which file a call is about, without what differs from run to run; of two names the later."""
    names = re.findall(r"^\d+<(.*?)>", rest) or re.findall(r'"([^"]*)"', rest) or ["none"]
    name = names[-1]
    if (place := re.match(r"(socket|pipe|anon_inode)\b", name)) is not None:
        return place[1].replace("anon_inode", "eventfd")
    if not name.startswith(f"{folder}/"):
        return "elsewhere"
    inside = name.removeprefix(f"{folder}/").removeprefix("p1/")
    return re.sub(r"\d+", "#", re.sub(r"[-.][a-z0-9_]{8}(?=$|-)", "", re.sub(r"[0-9a-f]{64}", "#", inside)))


def each_kind(found: Iterable[Point]) -> dict[Kind, list[Point]]:
    """The points of each kind, in order; those of the harness's own files and of no file of the party left out."""
    kinds: dict[Kind, list[Point]] = {}
    for point in found:
        if not point.kind.file.startswith(("draws", "elsewhere", "none", "p#.errors")):
            kinds.setdefault(point.kind, []).append(point)
    return kinds


def hit(found: Iterable[Point], call: str, number: int) -> Kind | None:
    """At what a process died that was to die at its n-th such call."""
    return next((p.kind for p in found if p.kind.call == call and p.number == number), None)
