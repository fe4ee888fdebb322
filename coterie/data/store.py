"""Records that need not fit in memory: a folder with one file per agent, written and read piece by piece.

    manifest.json     what is where: names, counts, features, classes, where they came from, a fingerprint
    NAME.npy          an agent's records, float32 (records, 1 + features): the target, then the features
    test.npy          held-out records in the same columns: few, because they are read whole
    NAME.people.npy   where it is known whose records are: the row of each person's first, int32, and the number of rows

A person's records stand together, so that whoever reads a piece has all of them.

The files are plain NumPy files. Reads go through `pread` into fresh buffers, never through a memory map, so resident
memory is what the caller holds. Opening a store reads its manifest, every file's size and a few blocks of it, not the
records.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import BinaryIO

import numpy as np

from coterie.data.dataset import ALL_PUBLIC, Origins
from coterie.errors import InputError

__all__ = [
    "Chunk",
    "Store",
    "Tally",
    "open_store",
]

FORMAT = 2
MOST = 1 << 30  # records of one agent: places in its file are counted in 32 bits
TEST = "test"  # the name that no agent can have
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
PROBES, PROBE = 8, 4096  # blocks of a file that its fingerprint covers, and their length in bytes

Chunk = tuple[np.ndarray, np.ndarray]  # features (records, width) and targets (records,)
PEOPLE = ".people"  # after an agent's name: the file that says where its people begin
BLOCK = 1 << 20  # people who are looked at at once


@dataclass
class Tally:
    """What was read so far."""

    records: int = 0
    bytes: int = 0
    trouble: str | None = None  # why the last read failed

    def __post_init__(self) -> None:
        self._lock = threading.Lock()  # reads come from the threads of a compiled program

    def since(self, before: Tally, seconds: float) -> dict[str, float]:
        """What was read since, and how fast: records, bytes, records_per_s, bytes_per_s of reading and computing."""
        records, size = self.records - before.records, self.bytes - before.bytes
        per = max(seconds, 1e-9)
        return {
            "records_read": records, "bytes_read": size, "records_per_s": records / per, "bytes_per_s": size / per,
        }  # fmt: skip

    def add(self, records: int, size: int) -> None:
        """Count a read."""
        with self._lock:
            self.records += records
            self.bytes += size


@dataclass(frozen=True, eq=False)
class Store:
    """A folder of records, opened and checked. It holds no record; `tally` counts what is read."""

    folder: Path
    names: tuple[str, ...]
    counts: tuple[int, ...]
    feature_names: tuple[str, ...]
    classes: tuple[str, ...] | None
    fingerprint: str
    start: int  # where records begin in a file
    origins: Origins  # what was read from the records when it was written
    people: tuple[int, ...] | None = None  # of each agent, where it is known whose records are
    most: int = 1  # records of one person at one agent
    tally: Tally = field(default_factory=Tally)

    @property
    def width(self) -> int:
        """Features of a record."""
        return len(self.feature_names)

    @property
    def stride(self) -> int:
        """Bytes of a record."""
        return 4 * (1 + self.width)

    @property
    def size(self) -> int:
        """Bytes of all agents' records."""
        return sum(self.counts) * self.stride

    def path(self, agent: int) -> Path:
        """The file of an agent."""
        return self.folder / f"{self.names[agent]}.npy"

    def piece(self, agent: int, low: int, rows: int) -> np.ndarray:
        """Records low … low + rows − 1 of an agent, (rows, 1 + width); zeros past its last record.

        The piece that follows is asked for from the disk while the caller works on this one.
        """
        there = max(0, min(rows, self.counts[agent] - low))
        out = np.zeros((rows, 1 + self.width), np.float32)
        with self._open(agent) as file:
            at = self.start + low * self.stride
            self._fill(file, out[:there], at, agent)
            os.posix_fadvise(file.fileno(), at + there * self.stride, rows * self.stride, os.POSIX_FADV_WILLNEED)
        self.tally.add(there, there * self.stride)
        return out

    def rows(self, agent: int, rows: np.ndarray) -> np.ndarray:
        """These records of an agent, (rows, 1 + width); zeros where a row is negative."""
        out = np.zeros((len(rows), 1 + self.width), np.float32)
        wanted = np.argsort(rows, kind="stable")  # in the order of the disk
        wanted = wanted[np.searchsorted(rows[wanted], 0) :]
        with self._open(agent) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
            for k in wanted:  # all are asked for before the first is waited for
                at = self.start + int(rows[k]) * self.stride
                os.posix_fadvise(file.fileno(), at, self.stride, os.POSIX_FADV_WILLNEED)
            for k in wanted:
                self._fill(file, out[k], self.start + int(rows[k]) * self.stride, agent)
        self.tally.add(len(wanted), len(wanted) * self.stride)
        return out

    def starts(self, agent: int, low: int, many: int) -> np.ndarray:
        """The first rows of people low … low + many − 1 of an agent; of one past the last, the number of rows."""
        path, out = self.folder / f"{self.names[agent]}{PEOPLE}.npy", np.empty(many, np.int32)
        try:
            with path.open("rb", buffering=0) as file:
                self._fill(file, out, len(header(0, 1)) + 4 * low, agent)
        except OSError as error:
            raise self._failed(f"cannot read {path}: {error.strerror}") from None
        return out

    @cache  # noqa: B019  (a store lives as long as its run)
    def cuts(self, agent: int, rows: int) -> tuple[int, ...]:
        """Where to cut an agent's people into pieces of at most this many rows; no person has more."""
        assert self.people is not None
        count, cuts, base = self.people[agent], [0], 0
        for low in range(0, count, BLOCK):
            first = self.starts(agent, low, min(BLOCK, count - low) + 1)
            while (k := int(np.searchsorted(first[1:], base + rows, side="right"))) < len(first) - 1:
                cuts.append(low + k)
                base = int(first[k])
        return (*cuts, count)

    def test(self) -> Chunk:
        """The held-out records, whole."""
        block = np.load(self.folder / f"{TEST}.npy", allow_pickle=False)
        return block[:, 1:], block[:, 0]

    def _open(self, agent: int) -> BinaryIO:
        try:
            return self.path(agent).open("rb", buffering=0)
        except OSError as error:
            raise self._failed(f"cannot read {self.path(agent)}: {error.strerror}") from None

    def _fill(self, file: BinaryIO, out: np.ndarray, at: int, agent: int) -> None:
        view, done = memoryview(out.reshape(-1).view(np.uint8).data), 0
        while done < len(view):
            got = os.preadv(file.fileno(), [view[done:]], at + done)
            if not got:
                raise self._failed(f"{self.path(agent)} ends before its last record")
            done += got

    def _failed(self, why: str) -> InputError:
        self.tally.trouble = why
        return InputError(why)


def open_store(folder: str | Path) -> Store:
    """Open a store; an InputError if a file is missing, cut, or not the one that was written.

    The fingerprint covers sizes and a few blocks of every file: enough against a damaged copy or a mix-up, not against
    somebody who edits records on purpose.
    """
    folder = Path(folder)
    try:
        about = json.loads((folder / "manifest.json").read_text("utf-8"))
        agents = [(str(a["name"]), int(a["records"])) for a in about["agents"]]
        crowds = [a.get("people") for a in about["agents"]]
        people = tuple(map(int, crowds)) if None not in crowds else None
        most = max((int(a.get("most", 1)) for a in about["agents"]), default=1)
        names, counts = tuple(n for n, _ in agents), tuple(c for _, c in agents)
        classes = None if about["classes"] is None else tuple(map(str, about["classes"]))
        features = tuple(map(str, about["features"]))
        version, held_out, known = about["format"], int(about["test"]), str(about["fingerprint"])
        origins = SILENT if version == 1 else _origins(about["origins"])
    except OSError as error:
        raise InputError(f"{folder} is not a store: manifest.json: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{folder} is not a store: manifest.json is damaged ({type(error).__name__} {error})"
        ) from None
    if version not in (1, FORMAT):
        raise InputError(f"{folder} is a store of format {version}; expected {FORMAT}")
    check_names(names)
    start = len(header(0, 1 + len(features)))
    for name, count in (*agents, (TEST, held_out)):
        path = folder / f"{name}.npy"
        size, wanted = path.stat().st_size if path.exists() else 0, start + count * 4 * (1 + len(features))
        if count > MOST:
            raise InputError(f"{name} has {count} records; a store takes {MOST} of one party: split them over parties")
        if count < 1 or size != wanted:
            raise InputError(f"{path} has {size} bytes; expected {wanted} for {count} records: the store is damaged")
    for name, crowd in zip(names, people or (), strict=people is not None):
        path, wanted = folder / f"{name}{PEOPLE}.npy", len(header(0, 1)) + 4 * (crowd + 1)
        if crowd < 1 or (size := path.stat().st_size if path.exists() else 0) != wanted:
            raise InputError(f"{path} has {size} bytes; expected {wanted} for {crowd} people: the store is damaged")
    if fingerprint_of(folder, data_files(names, people is not None)) != known:
        raise InputError(f"{folder}: the records are not those that were written (fingerprint {known[:12]} differs)")
    return Store(folder, names, counts, features, classes, known, start, origins, people, most)


SILENT = replace(
    ALL_PUBLIC,
    scale=("the store is of format 1 and does not say what was read from its records: write it again",),
)


def _origins(stated: Mapping[str, Sequence[str]]) -> Origins:
    """The manifest's own statement; a part that is missing is a damaged manifest."""
    return Origins(**{part.name: tuple(map(str, stated[part.name])) for part in fields(Origins)})


def data_files(names: tuple[str, ...], owned: bool) -> tuple[str, ...]:
    """Names of all files that hold something of records."""
    return (*names, TEST, *(f"{name}{PEOPLE}" for name in names if owned))


def header(count: int, columns: int) -> bytes:
    """The head of a NumPy file; NumPy leaves room for the count to grow, so its length does not depend on it."""
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, {"descr": "<f4", "fortran_order": False, "shape": (count, columns)})
    return out.getvalue()


def check_names(names: tuple[str, ...]) -> None:
    if len(names) < 2:
        raise InputError(f"a store needs at least 2 parties, got {len(names)}")
    for name in names:
        if name == TEST or name.endswith(PEOPLE) or not NAME.fullmatch(name):
            raise InputError(
                f"party name {name!r} cannot be a file name: expected letters, digits, . _ -, not {TEST!r}, and no "
                f"{PEOPLE} at the end"
            )


def fingerprint_of(folder: Path, names: Sequence[str]) -> str:
    """SHA-256 over every file's name, size and a few blocks of it."""
    found = hashlib.sha256()
    for name in names:
        with (folder / f"{name}.npy").open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            found.update(f"{name} {size}\n".encode())
            for at in np.linspace(0, max(0, size - PROBE), PROBES).astype(int):
                found.update(os.pread(file.fileno(), PROBE, int(at)))
    return found.hexdigest()
