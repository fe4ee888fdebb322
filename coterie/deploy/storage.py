"""Durable files: locked, opened with settings that are read back, made all at once; what is large lies beside.

Exclusion between processes is a `flock` on the database file, held as long as it is open, beside SQLite's own exclusive
lock.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from coterie.deploy.sealing import PAGE, Damaged, intact, network_filesystem, page_sums, scan_log, seal_of
from coterie.errors import InputError

__all__ = ["FRAMES", "Frames", "LedgerFailure", "States", "bytes_of", "connect", "create_file", "cut", "disconnect",
           "locked", "refuse_network", "take_lock"]  # fmt: skip


TRIES, PAUSE = 10, 0.02  # of taking the lock; seconds between them
SMALL = 1 << 16  # bytes of a state or a frame: below, writing it twice costs less than a sync of its own
BLOCK = PAGE  # bytes of a file that go past the system's cache, or a multiple of it
ROOM = 256 * BLOCK
FRAMES = "-frames"  # after the name of a ledger: the file of its large frames


class LedgerFailure(RuntimeError):
    """The ledger could not be written. The process must end; the next one reads what the disk really holds."""


def bytes_of(path: str | os.PathLike[str]) -> bytes:
    """The content of a file; empty if there is none."""
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        return b""


def cut(path: str | os.PathLike[str], size: int) -> None:
    """Shorten a file, durably."""
    fd = os.open(path, os.O_WRONLY)
    try:
        os.ftruncate(fd, size)
        os.fsync(fd)
    finally:
        os.close(fd)


class States:
    """The state to resume from: a small one in a row of the database, a large one in two files beside it.

    A small state (less than `SMALL` bytes) is part of the transaction that releases its round. A large one would be
    written twice there, page by page: in the log, and when the log is folded in. So it is written and synced to a file
    before the row that names its SHA-256 is committed: that of round t to file t mod 2, never the one of the row
    before. Whatever cuts the writing short, the state of the last committed row is whole.
    """

    def __init__(self, path: Path):
        self.path = path.resolve()
        self._files: dict[str, int] = {}

    def name(self, round: int) -> str:
        """The file of a round's large state."""
        return f"{self.path}-state{round % 2}"

    def write(self, round: int, state: Sequence[memoryview]) -> list[tuple[str, tuple[object, ...]]]:
        """Store a state: what is left to do in the transaction of its round, the file being durable already."""
        if sum(part.nbytes for part in state) < SMALL:
            return [("INSERT OR REPLACE INTO state VALUES (0, ?, ?)", (round, b"".join(state)))]
        name = self.name(round)
        if name not in self._files:
            self._files[name] = os.open(name, os.O_WRONLY | os.O_CREAT, 0o600)
            sync_folder(self.path.parent)  # once: the file may be new, or left unsynced by a crash
        _put(self._files[name], state, 0)
        return []

    def read(self, db: sqlite3.Connection, round: int) -> bytes:
        """The state of a round; empty if there is none."""
        found = db.execute("SELECT bytes FROM state WHERE round = ?", (round,)).fetchone()
        return bytes_of(self.name(round)) if found is None else found[0]

    def close(self) -> None:
        """Let go of the files."""
        while self._files:
            os.close(self._files.popitem()[1])


class Frames:
    """The frames of a ledger: a small one in its row, large ones one after the other in a file that only grows.

    A large frame would be written twice in the database, as a large state would. It is written and synced to the file
    before its row is committed, which says where it lies; the row's hash is over its bytes. What a crash leaves behind
    the last row's frame was never sent, and the next one is written over it.

    Nobody reads the file while all goes well, and fresh pages for it in the system's cache cost several times as much
    as the rest of its writing. So a frame begins at a whole block, and its whole blocks go past that cache (O_DIRECT)
    where the file system lets them. They pass through a room that lies as the disk wants it.
    """

    def __init__(self, path: Path):
        self.path = Path(f"{path.resolve()}{FRAMES}")
        self._file, self._end, self._room = -1, 0, memoryview(b"")
        self._past = getattr(os, "O_DIRECT", 0)  # 0: this system, or this file system, has no way past its cache

    def write(self, frame: bytes) -> bytes | str:
        """What the row of a frame holds; a large one is durable already."""
        if len(frame) < SMALL:
            return frame
        if self._file < 0:
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o600)
            sync_folder(self.path.parent)
            self._room = memoryview(mmap.mmap(-1, ROOM))
        start = at = -(-self._end // BLOCK) * BLOCK
        rest = memoryview(frame)
        with self._past_the_cache():
            while whole := min(len(rest), ROOM) // BLOCK * BLOCK:
                self._room[:whole] = rest[:whole]
                if not (written := self._try(self._room[:whole], at)):
                    break
                at, rest = at + written, rest[written:]
        self._end = _put(self._file, [rest], at)
        return f"{start}+{len(frame)}"

    def _try(self, blocks: memoryview, at: int) -> int:
        """How many bytes of whole blocks went past the cache; 0: the rest must go through it."""
        try:
            return os.pwrite(self._file, blocks, at) // BLOCK * BLOCK
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            self._past = 0  # this file system wants other blocks
            return 0

    @contextlib.contextmanager
    def _past_the_cache(self) -> Iterator[None]:
        """The file's way of writing while this lasts."""
        flags = fcntl.fcntl(self._file, fcntl.F_GETFL)
        try:
            fcntl.fcntl(self._file, fcntl.F_SETFL, flags | self._past)
        except OSError:
            self._past = 0
        try:
            yield
        finally:
            fcntl.fcntl(self._file, fcntl.F_SETFL, flags)

    def read(self, stored: bytes | str) -> bytes:
        """The frame that a row stands for; what is written next goes behind it."""
        if isinstance(stored, bytes):
            return stored
        at, size = map(int, stored.split("+"))
        self._end = max(self._end, at + size)
        with self.path.open("rb") as file:
            file.seek(at)
            frame = file.read(size)
        if len(frame) != size:
            raise Damaged(f"{self.path} ends before byte {at + size}")
        return frame

    def close(self) -> None:
        """Let go of the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _put(file: int, parts: Sequence[memoryview], at: int) -> int:
    """Write parts one after the other at a place, durably, as the last that there is in a file; where they end."""
    for part in parts:
        while part.nbytes:
            written = os.pwrite(file, part, at)
            at, part = at + written, part[written:]
    if os.fstat(file).st_size != at:
        os.ftruncate(file, at)
    os.fdatasync(file)
    return at


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def refuse_network(path: Path, what: str = "ledger") -> None:
    """Raise an `InputError` for a path on a network file system: locks and fsync there promise too little."""
    kind = network_filesystem(path) if path.exists() else None
    if kind:
        raise InputError(f"the {what} must lie on a local file system, {path} is on {kind}")


def locked(path: Path, what: str = "ledger", tries: int = TRIES) -> int:
    """An open, locked file. It stays open as long as SQLite's connection: closing it would drop SQLite's own locks."""
    try:
        fd = os.open(path, os.O_RDWR)
    except OSError as error:
        raise InputError(f"no {what} at {path}: {error.strerror}") from None
    if take_lock(fd, tries):
        return fd
    os.close(fd)
    raise InputError(f"{what} {path} is in use by another process")


def take_lock(fd: int, tries: int = TRIES) -> bool:
    """Lock an open file for as long as it is open; False if another process keeps its lock."""
    for _ in range(tries):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(PAUSE)  # a preflight, or somebody who reads it, has it for a moment
        else:
            return True
    return False


def connect(path: Path, what: str = "ledger") -> sqlite3.Connection:
    """The one connection, with every setting asked for and read back; ended by `disconnect` alone.

    SQLite folds the log in when a connection is closed or collected. Here that may happen only after a seal, so the
    object is kept alive on purpose: any other end of the process, by an exception too, is like a crash.
    """
    db = sqlite3.connect(path, isolation_level=None, timeout=0, check_same_thread=False)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(db))
    try:
        for name, value, expected in (
            ("locking_mode", "EXCLUSIVE", "exclusive"), ("journal_mode", "WAL", "wal"), ("synchronous", "FULL", 2),
            ("mmap_size", 0, 0), ("wal_autocheckpoint", 0, 0), ("cache_spill", 0, 0), ("cell_size_check", 1, 1),
            ("trusted_schema", 0, 0), ("secure_delete", 1, 1),
        ):  # fmt: skip
            db.execute(f"PRAGMA {name} = {value}").fetchall()
            found = db.execute(f"PRAGMA {name}").fetchone()
            if found is not None and found[0] != expected:
                raise LedgerFailure(f"{what} {path}: SQLite does not take {name} = {value}, it says {found[0]!r}")
        db.execute("BEGIN IMMEDIATE")  # takes the lock
        db.execute("ROLLBACK")
    except sqlite3.Error as error:
        if "locked" in str(error):
            raise InputError(f"{what} {path} is in use by another process") from None
        raise Damaged(str(error)) from None
    return db


def disconnect(db: sqlite3.Connection) -> None:
    """Close a connection whose log is empty."""
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(db))
    db.close()


def create_file(path: Path, statements: Sequence[tuple[str, tuple[object, ...]]], what: str = "ledger") -> None:
    """Make a sealed database of these statements that appears under its name all at once, or not at all."""
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise InputError(f"cannot make the {what} at {path}: {error.strerror}") from None
    try:
        with contextlib.closing(sqlite3.connect(name, isolation_level=None)) as db:
            db.execute(f"PRAGMA page_size = {PAGE}")
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("BEGIN")
            for sql, values in statements:
                db.execute(sql, values)
            db.execute("COMMIT")
        seal = seal_of(page_sums(handle), os.pread(handle, PAGE, 0))
        with contextlib.closing(sqlite3.connect(name, isolation_level=None)) as db:
            db.execute(f"PRAGMA user_version = {seal}")
        intact(handle, scan_log(b""))
        os.fsync(handle)
        with contextlib.suppress(FileExistsError):  # another process was faster: its file is checked like any other
            os.link(name, path)
        sync_folder(path.parent)
    except (sqlite3.Error, OSError, Damaged) as error:  # damaged: closing does not report every failed write
        raise LedgerFailure(f"cannot make the {what} at {path}: {error}") from error
    finally:
        os.close(handle)
        for leftover in (name, f"{name}-wal", f"{name}-shm"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(leftover)
