"""Which one of several copies of a durable file is in force, and how far it came: noted apart from the file itself.

A durable file cannot know that it is the second one, or an old copy. So its random identity is written to a small file
elsewhere, for good, and after each row, before anything that rests on it may happen, so are the row's number and the
head of the hash chain. A file of another identity is refused, and so is one that ends before that row or holds another
one there.

A binding has a header of 512 bytes and two slots of 512 for the mark, written in turn, each with its own SHA-256: a
write that is cut short spoils one of them, and the other is one row behind, which makes the check that much milder.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import struct
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from coterie.deploy.sealing import Damaged
from coterie.deploy.storage import TRIES, refuse_network, sync_folder, take_lock
from coterie.errors import InputError

__all__ = ["Binding", "Mark", "RolledBack", "Words", "bound_place", "read_mark", "refuse_old"]

_SECTOR = 512
_MARK = struct.Struct("<i32s")


class RolledBack(InputError):
    """This file is not the latest: it was restored, or copied and used elsewhere."""


class Words(NamedTuple):
    """How a binding speaks of what it binds."""

    file: str  # such as "ledger"
    row: str  # such as "round"
    written: str  # what happened to a row, such as "released"
    says: str  # what the binding says
    busy: str  # that another process has it
    advice: str  # beside "put the latest one back"


class Mark(NamedTuple):
    """The last row: its number, and its hash."""

    number: int = -1
    head: bytes = bytes(32)

    def pack(self) -> bytes:
        """As stored."""
        body = _MARK.pack(self.number, self.head)
        return (body + hashlib.sha256(body).digest()).ljust(_SECTOR, b"\0")

    @classmethod
    def unpack(cls, data: bytes) -> Mark | None:
        """A mark that is whole, or None."""
        body, check = data[: _MARK.size], data[_MARK.size : _MARK.size + 32]
        return cls(*_MARK.unpack(body)) if hashlib.sha256(body).digest() == check else None


class Binding:
    """The word on one durable file; held by one process at a time.

    Args:
        path: of the binding; it need not exist.
        words: for messages.
        tries: how often to try for the lock, if another process has it.

    Attributes:
        identity, place: of the file that it binds; empty: none yet.
    """

    def __init__(self, path: Path, words: Words, tries: int = TRIES):
        self.path, self._words, self._fd = path, words, -1
        self.identity, self.place = "", ""
        if path.exists():
            self._open(tries)

    def check(self, file: Path, identity: str, heads: Sequence[bytes]) -> None:
        """Refuse a file that is not the one, or not the latest, and note how far it came.

        Args:
            file: where it lies.
            identity: which one it is; empty: there is none.
            heads: the hash of every row in it.
        """
        self.refuse(file, identity, heads)
        if not self.identity:
            if heads:  # written before the binding was: from now on it is known
                self.bind(file, identity)
                self.advance(len(heads) - 1, heads[-1])
        elif self.mark.number < len(heads) - 1:  # a crash came between the file and its mark
            self.advance(len(heads) - 1, heads[-1])

    def refuse(self, file: Path, identity: str, heads: Sequence[bytes]) -> None:
        """The refusals of `check`; nothing is noted."""
        if not self.identity:
            return
        if identity != self.identity:
            raise InputError(self._another(file, bool(identity)))
        refuse_old(self.mark, self._words, file, heads)

    def _another(self, file: Path, there: bool) -> str:
        what = "is another one" if there else "does not exist"
        return f"{self._words.file} {self.identity[:8]} at {self.place} is in force, and {file} {what}"

    def bind(self, file: Path, identity: str) -> None:
        """Make this the one file, durably; refused if another one is."""
        if not self.identity:
            self._create(file, identity)
            self._open()
        if self.identity != identity:
            raise InputError(f"{self._words.file} {self.identity[:8]} at {self.place} has been bound meanwhile")

    def advance(self, number: int, head: bytes) -> None:
        """Note a row, durably; what rests on it may happen when this returns."""
        data = Mark(number, head).pack()
        if os.pwrite(self._fd, data, _SECTOR * (1 + number % 2)) != len(data):
            raise OSError(f"{self.path}: not all of it was written")
        os.fdatasync(self._fd)

    def close(self) -> None:
        """Let go of the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    @property
    def mark(self) -> Mark:
        """The last row that was noted."""
        return _latest(self.path, [os.pread(self._fd, _SECTOR, _SECTOR * (1 + i)) for i in range(2)])

    def _create(self, file: Path, identity: str) -> None:
        folder = self.path.parent
        folder.mkdir(mode=0o700, exist_ok=True)
        refuse_network(folder, "binding")
        place = str(file.absolute())
        while len(header := json.dumps({"format": "coterie binding 1", "ledger": identity, "place": place})) > _SECTOR:
            place = place[1:]  # a hint for people: its end says most
        handle, name = tempfile.mkstemp(dir=folder, prefix=".new-")  # 0600
        try:
            with os.fdopen(handle, "wb") as made:
                made.write(header.encode().ljust(_SECTOR) + Mark().pack() * 2)
                made.flush()
                os.fsync(made.fileno())
            with contextlib.suppress(FileExistsError):  # another process was faster: its word counts
                os.link(name, self.path)
            sync_folder(folder)
            sync_folder(folder.parent)
        finally:
            os.unlink(name)

    def _open(self, tries: int = TRIES) -> None:
        try:
            self._fd = os.open(self.path, os.O_RDWR)
            header = json.loads(os.pread(self._fd, _SECTOR, 0))
            self.identity, self.place = str(header["ledger"]), str(header["place"])
            _ = self.mark
        except OSError as error:
            raise InputError(f"cannot open {self.path}: {error.strerror}") from None
        except (ValueError, KeyError, TypeError):
            self.close()
            raise Damaged(f"{self.path} is damaged: {self._words.says}") from None
        if not take_lock(self._fd, tries):
            self.close()
            raise InputError(self._words.busy)


def refuse_old(mark: Mark, words: Words, file: Path, heads: Sequence[bytes]) -> None:
    """Refuse a file that ends before a mark, or holds another row there."""
    if mark.number >= len(heads):
        raise RolledBack(
            f"{words.file} {file} ends at {words.row} {len(heads) - 1}, but {words.row} {mark.number} was "
            f"{words.written}: it was restored from an old copy; put the latest one back{words.advice}"
        )
    if mark.number >= 0 and heads[mark.number] != mark.head:
        raise RolledBack(
            f"{words.file} {file} holds another {words.row} {mark.number} than was {words.written}: another copy was "
            "used"
        )


def read_mark(path: Path) -> Mark:
    """The mark of a binding as it is now, without its lock."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    return _latest(path, [data[_SECTOR * (1 + i) : _SECTOR * (2 + i)] for i in range(2)])


def bound_place(path: Path, words: Words) -> str | None:
    """Where the file lies that a binding is for; None: there is none."""
    if not path.exists():
        return None
    try:
        return str(json.loads(path.read_bytes()[:_SECTOR])["place"])
    except (OSError, ValueError, KeyError, TypeError):
        raise Damaged(f"{path} is damaged: {words.says}") from None


def _latest(path: Path, slots: Sequence[bytes]) -> Mark:
    if not (whole := [mark for slot in slots if (mark := Mark.unpack(slot)) is not None]):
        raise Damaged(f"{path} is damaged: both of its marks are")
    return max(whole)
