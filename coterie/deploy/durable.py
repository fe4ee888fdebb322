r"""A file that loses nothing it has promised: SQLite with a log, sealed, locked, every failure to write final.

What ledgers (`DurableLedger`) and accounts (`DataAccount`) have in common. A subclass says in `_load` what it reads and
checks, and writes by `_write`: one transaction, on the disk when it returns.

**Storage.** SQLite with a write-ahead log, synchronous=FULL, exclusive locking, one connection, no memory map, on a
local file system. Any failure to write is final for the process (`LedgerFailure`): after a failed fsync nobody knows
what the disk holds until the file is read again. The log is folded into the database only by `seal` and `close`; an
object that is not closed leaves the files as a crash would.

**Damage.** The file carries a seal over all of its bytes (`coterie.deploy.sealing`). On opening, any single flipped bit
is refused, and so is any damage to the log that would drop a commit.
"""

from __future__ import annotations

import abc
import os
import sqlite3
import threading
from pathlib import Path
from typing import ClassVar, Self

from coterie.deploy.sealing import PAGE, Damaged, intact, is_sealed, overlaid, page_sum, scan_log, seal_of
from coterie.deploy.storage import TRIES, LedgerFailure, bytes_of, connect, cut, disconnect, locked, refuse_network
from coterie.errors import InputError

__all__ = ["DurableFile"]

_LOG_LIMIT = 1 << 26  # bytes; folding in takes a tenth of a second then, once in 160 rounds of 400 kB


class DurableFile(abc.ABC):
    """An open, locked, checked file; a context manager. One thread at a time may call it, from any thread.

    Args:
        path: the database file, which exists. Its log lies beside it, under the same name with "-wal".
        tries: how often to try for the lock, if another process has it.

    Raises:
        InputError: no such file, in use by another process, on a network file system, or what `_load` refuses.
        Damaged: the file is not what was written.
        LedgerFailure: the disk refused.
    """

    kind: ClassVar[str] = "ledger"
    """What messages call such a file."""

    def __init__(self, path: Path, tries: int = TRIES):
        self.path, self._real = path, path.resolve()  # SQLite names the log after the file, not after a link to it
        refuse_network(path, self.kind)
        self._lock, self._failed, self._open, self._pid = threading.RLock(), "", True, os.getpid()
        self._fd = locked(self._real, self.kind, tries)
        try:
            log = scan_log(self._read_log())
            self._sums = intact(self._fd, log)
            self._db = connect(self._real, self.kind)
            try:
                self._load(self._db)
            except InputError:
                if not log.data:  # else SQLite would fold it in, unsealed: leave it to the end of the process
                    disconnect(self._db)
                raise
        except InputError as error:
            os.close(self._fd)
            raise (Damaged(f"{self.kind} {path}: {error}") if isinstance(error, Damaged) else error) from None
        except OSError as error:
            self._failed = f"opening: {error}"
            raise LedgerFailure(f"{self.kind} {path} cannot be opened ({error}): the process must end") from error
        if log.data:
            with self._final("recovery"):
                cut(self._log_path, log.end)  # or a torn tail would lie behind what is written next
            self.seal()

    @abc.abstractmethod
    def _load(self, db: sqlite3.Connection) -> None:
        """Read all that is in the file, and refuse what is wrong; nothing is written."""

    def seal(self) -> None:
        """Fold the log into the database and seal it. Happens by itself when the log is large, and on `close`."""
        with self._lock:
            self._usable()
            with self._final("seal"):
                log = self._read_log()
                if not log:
                    return
                pages = scan_log(log)
                first = pages.page(1) if 1 in pages.newest else os.pread(self._fd, PAGE, 0)
                sums = overlaid(self._sums, pages)
                self._db.execute(f"PRAGMA user_version = {seal_of(sums, first)}")
                busy, *_ = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                first = os.pread(self._fd, PAGE, 0)
                sums[0] = page_sum(first, True)
                if busy or self._read_log() or not is_sealed(first, sums, os.fstat(self._fd).st_size):
                    raise sqlite3.OperationalError("the log could not be folded in")
                self._sums = sums

    def close(self) -> None:
        """Seal and let go of the file. After a failure: leave everything as it is."""
        with self._lock:
            if not self._open or self._failed or self._pid != os.getpid():
                return
            self.seal()
            self._open = False
            disconnect(self._db)
            self._let_go()
            os.close(self._fd)

    def _let_go(self) -> None:  # noqa: B027
        """Let go of what belongs to the file."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def _log_path(self) -> str:
        return f"{self._real}-wal"

    def _read_log(self) -> bytes:
        return bytes_of(self._log_path)

    def _usable(self) -> None:
        if self._failed:
            raise LedgerFailure(f"{self.kind} {self.path} failed before ({self._failed}): the process must end")
        if self._pid != os.getpid():
            raise LedgerFailure(
                f"{self.kind} {self.path} belongs to process {self._pid}, not to its fork {os.getpid()}"
            )
        if not self._open:
            raise InputError(f"{self.kind} {self.path} is closed")

    def _fold(self) -> None:
        """Fold the log in when it is large."""
        if os.stat(self._log_path).st_size > _LOG_LIMIT:
            self.seal()

    def _write(self, *statements: tuple[str, tuple[object, ...]]) -> None:
        """All statements in one transaction, on the disk when this returns."""
        with self._final("commit"):
            self._db.execute("BEGIN IMMEDIATE")
            for sql, values in statements:
                self._db.execute(sql, values)
            self._db.execute("COMMIT")

    def _final(self, what: str) -> _Final:
        """Whatever goes wrong inside, an interrupt too, leaves an object that refuses everything."""
        return _Final(self, what)


class _Final:
    """See `DurableFile._final`; a generator would take twice as long, several times in a round."""

    def __init__(self, file: DurableFile, what: str):
        self._file, self._what = file, what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None:
            return
        file = self._file
        if not isinstance(error, sqlite3.Error | OSError | Damaged):
            file._failed = f"{self._what}: interrupted by {type(error).__name__}"
            return
        file._failed = f"{self._what}: {error}"
        raise LedgerFailure(
            f"{file.kind} {file.path} cannot be written ({file._failed}): the process must end"
        ) from error
