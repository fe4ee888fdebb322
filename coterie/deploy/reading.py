"""Reading a durable file without being in anybody's way: an agent may be writing its ledger meanwhile.

No lock is held and nothing beside the file is written, so neither an agent that runs nor one that starts notices.
What was read is believed only if it is whole: the log's header and the database file are the same before and after, and
every hash, the seal and the state agree (`records.load`, `sealing.intact`). While an agent writes, a reading that is
not whole is tried again. The copy lies in memory, never in a temporary file: a state is not noisy.

Not for the agent's own process: closing a file there drops the locks that SQLite holds on it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from coterie.deploy.sealing import PAGE, Damaged, LogPages, intact, scan_log
from coterie.deploy.storage import Frames, States, bytes_of
from coterie.errors import InputError

if TYPE_CHECKING:
    from coterie.deploy.records import Book

__all__ = ["Reading", "look", "read", "read_durable"]

T = TypeVar("T")

TRIES = 40
PAUSE = 0.05  # seconds
_LOG_HEADER = 32
_MODE = 18  # where the header of a database says twice whether it has a log


class Reading(NamedTuple):
    """A ledger, every check passed, and whether an agent holds it."""

    book: Book
    running: bool


def read(path: str | os.PathLike[str]) -> Book:
    """What a ledger holds, checked, without changing anything; `Damaged` names what is wrong."""
    return look(path).book


def look(path: str | os.PathLike[str]) -> Reading:
    """The same, and whether an agent is at work on it."""
    from coterie.deploy import records

    beside = States(Path(path)).read, Frames(Path(path)).read
    return Reading(*read_durable(Path(path), "ledger", lambda db: records.load(db, *beside)))


def read_durable(path: Path, what: str, load: Callable[[sqlite3.Connection], T]) -> tuple[T, bool]:
    """What `load` makes of a durable file as it is now, and whether somebody has it open; `what` it is called."""
    for attempt in range(TRIES):
        running = _is_held(path, what)
        try:
            return _read(path.resolve(), running, what, load), running  # a log lies beside the file, not a link
        except Damaged as error:  # or in the middle of being written
            if attempt == TRIES - 1 or not (running or _is_held(path, what)):
                raise Damaged(f"{what} {path}: {error}") from None
        time.sleep(PAUSE)
    raise AssertionError


def _is_held(path: Path, what: str = "ledger") -> bool:
    """Whether a process has locked the file. One that starts at this moment tries again."""
    fd = _open(path, what)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def _open(path: Path, what: str) -> int:
    if path.is_dir():
        there = f": {path / 'ledger.db'}?" if what == "ledger" else ""
        raise InputError(f"{path} is a folder, expected the {what}{there}")
    try:
        return os.open(path, os.O_RDONLY)
    except OSError as error:
        raise InputError(f"no {what} at {path}: {error.strerror}") from None


def _stamp(fd: int, log: str) -> tuple[int, int, bytes]:
    """Changes when the log is folded in."""
    found = os.fstat(fd)
    return found.st_mtime_ns, found.st_size, bytes_of(log)[:_LOG_HEADER]


def _read(path: Path, running: bool, what: str, load: Callable[[sqlite3.Connection], T]) -> T:
    log_path = f"{path}-wal"
    with contextlib.ExitStack() as stack:
        fd = _open(path, what)
        stack.callback(os.close, fd)
        before = _stamp(fd, log_path)
        if running or before[2]:
            copy = os.memfd_create(what, os.MFD_CLOEXEC)
            stack.callback(os.close, copy)
            _copy(fd, copy)
        else:
            copy = fd
        data = bytes_of(log_path)
        if _stamp(fd, log_path) != before:
            raise Damaged("it was folded together meanwhile")
        log = scan_log(data)
        wrong = ""
        try:
            intact(copy, log)
        except Damaged as error:
            wrong = str(error)
        db = _in_memory(copy, log) if copy != fd else _in_place(path)
        with contextlib.closing(db):
            found = load(db)  # first: it can name the row
        if wrong:
            raise Damaged(wrong)
        return found


def _in_place(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?immutable=1", uri=True, isolation_level=None)


def _in_memory(copy: int, log: LogPages) -> sqlite3.Connection:
    """The database with its log folded in, and marked as one without a log."""
    for number in log.newest:
        os.pwrite(copy, log.page(number), (number - 1) * PAGE)
    os.pwrite(copy, b"\1\1", _MODE)
    db = sqlite3.connect(":memory:", isolation_level=None)
    try:
        db.deserialize(os.pread(copy, os.fstat(copy).st_size, 0))
    except (sqlite3.Error, ValueError) as error:
        db.close()
        raise Damaged(f"cannot be read: {error}") from None
    return db


def _copy(source: int, target: int) -> None:
    at = 0
    while chunk := os.pread(source, 1 << 20, at):
        os.pwrite(target, chunk, at)
        at += len(chunk)
