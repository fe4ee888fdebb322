"""What a party's key folder remembers of an agreement: which ledger serves it, and how far that one came.

A ledger alone cannot know that it is the second one: without this, an agreement whose state folders were deleted, or
put back from a backup, at every party would run again, with fresh noise on the same rounds, and ε would be paid twice.
So before its first release a ledger is written into `agreements/` of the key folder, by its random identity, for good;
and after each release, before its bytes may be sent, so are the round and the head of the hash chain. A ledger of
another identity is refused, and so is one that ends before that round or holds another row there.

A file has a header of 512 bytes and two slots of 512 for the mark, written in turn, each with its own SHA-256: a write
that is cut short spoils one of them, and the other is one round behind, which only makes the check that much milder.

An agreement may amend others (`deploy.follows`). From the moment that a party begins it, the folder says so in a file
`.follows`: the others do not run again, nor does one that amends them in another way (`refuse_amended`).

Restoring the key folder together with the ledger is noticed by neighbours alone (`DurableLedger.reconcile`).
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

from coterie.deploy.files import write_bytes
from coterie.deploy.sealing import Damaged
from coterie.deploy.storage import refuse_network, sync_folder, take_lock
from coterie.errors import InputError

__all__ = ["Anchor", "RolledBack", "note_amended", "refuse_amended", "started"]

FOLDER = "agreements"
AMENDS = ".follows"
_SECTOR = 512
_MARK = struct.Struct("<i32s")


class RolledBack(InputError):
    """This ledger is not the latest: it was restored, or copied and used elsewhere."""


class _Mark(NamedTuple):
    """The last release: its round, and the hash of its row."""

    round: int = -1
    head: bytes = bytes(32)

    def pack(self) -> bytes:
        body = _MARK.pack(self.round, self.head)
        return (body + hashlib.sha256(body).digest()).ljust(_SECTOR, b"\0")

    @classmethod
    def unpack(cls, data: bytes) -> _Mark | None:
        body, check = data[: _MARK.size], data[_MARK.size : _MARK.size + 32]
        return cls(*_MARK.unpack(body)) if hashlib.sha256(body).digest() == check else None


class Anchor:
    """The key folder's word on one agreement. Held by one ledger, in one process, at a time.

    Args:
        keys: the party's key folder.
        plan_hash: the agreement's.
    """

    def __init__(self, keys: Path, plan_hash: bytes):
        self.path = keys / FOLDER / f"{plan_hash.hex()}.ledger"
        self._plan, self._fd = plan_hash.hex()[:16], -1
        self.identity, self._place = "", ""  # of the ledger that serves the agreement
        if self.path.exists():
            self._open()
        elif keys.is_dir() and not _is_writable(self.path.parent if self.path.parent.is_dir() else keys):
            raise InputError(f"{keys} cannot be written: which ledger serves an agreement is noted there")

    def check(self, ledger: Path, identity: str, heads: Sequence[bytes]) -> None:
        """Refuse a ledger that is not the one, or not the latest, and note how far it came.

        Args:
            ledger: where it lies.
            identity: which one it is; empty: there is none.
            heads: the hash of every row in it.
        """
        self.refuse(ledger, identity, heads)
        if not self.identity:
            if heads:  # released before the key folder knew: from now on it does
                self.bind(ledger, identity)
                self.advance(len(heads) - 1, heads[-1])
        elif self._mark().round < len(heads) - 1:  # a crash came between the ledger and its mark
            self.advance(len(heads) - 1, heads[-1])

    def refuse(self, ledger: Path, identity: str, heads: Sequence[bytes]) -> None:
        """The refusals of `check`; nothing is noted."""
        if not self.identity:
            return
        if identity != self.identity:
            what = "is another one" if identity else "does not exist"
            raise InputError(
                f"agreement {self._plan} has been started with ledger {self.identity[:8]} at {self._place}, and "
                f"{ledger} {what}: a second ledger would pay its ε again; give that one, or sign a new agreement"
            )
        mark = self._mark()
        if mark.round >= len(heads):
            raise RolledBack(
                f"ledger {ledger} ends at round {len(heads) - 1}, but round {mark.round} was released: it was restored "
                "from an old copy; put the latest one back, or sign a new agreement"
            )
        if mark.round >= 0 and heads[mark.round] != mark.head:
            raise RolledBack(
                f"ledger {ledger} holds another round {mark.round} than was released: another copy was used"
            )

    def bind(self, ledger: Path, identity: str) -> None:
        """Make this the one ledger of the agreement, durably; refused if another one is."""
        if not self.identity:
            self._create(ledger, identity)
            self._open()
        if self.identity != identity:
            raise InputError(f"agreement {self._plan} has been started with another ledger at {self._place} meanwhile")

    def advance(self, round: int, head: bytes) -> None:
        """Note a release, durably; its bytes may be sent when this returns."""
        data = _Mark(round, head).pack()
        if os.pwrite(self._fd, data, _SECTOR * (1 + round % 2)) != len(data):
            raise OSError(f"{self.path}: not all of it was written")
        os.fdatasync(self._fd)

    def close(self) -> None:
        """Let go of the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _create(self, ledger: Path, identity: str) -> None:
        folder = self.path.parent
        folder.mkdir(mode=0o700, exist_ok=True)
        refuse_network(folder)
        place = str(ledger.absolute())
        while len(header := json.dumps({"format": "coterie binding 1", "ledger": identity, "place": place})) > _SECTOR:
            place = place[1:]  # a hint for people: its end says most
        handle, name = tempfile.mkstemp(dir=folder, prefix=".new-")  # 0600
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(header.encode().ljust(_SECTOR) + _Mark().pack() * 2)
                file.flush()
                os.fsync(file.fileno())
            with contextlib.suppress(FileExistsError):  # another process was faster: its word counts
                os.link(name, self.path)
            sync_folder(folder)
            sync_folder(folder.parent)
        finally:
            os.unlink(name)

    def _open(self) -> None:
        try:
            self._fd = os.open(self.path, os.O_RDWR)
            header = json.loads(os.pread(self._fd, _SECTOR, 0))
            self.identity, self._place = str(header["ledger"]), str(header["place"])
            self._mark()
        except OSError as error:
            raise InputError(f"cannot open {self.path}: {error.strerror}") from None
        except (ValueError, KeyError, TypeError):
            self.close()
            raise Damaged(f"{self.path} is damaged: it says which ledger serves the agreement") from None
        if not take_lock(self._fd):
            self.close()
            raise InputError(f"agreement {self._plan} is in use by another process of this party")

    def _mark(self) -> _Mark:
        slots = (_Mark.unpack(os.pread(self._fd, _SECTOR, _SECTOR * (1 + i))) for i in range(2))
        if not (whole := [mark for mark in slots if mark is not None]):
            raise Damaged(f"{self.path} is damaged: both of its marks are")
        return max(whole)


# ---- agreements that amend others ------------------------------------------------------------------------------------


def started(keys: Path, plan_hash: str) -> str | None:
    """Where the ledger of an agreement lies that has released something with these keys; None: nothing has."""
    path = keys / FOLDER / f"{plan_hash}.ledger"
    if not path.exists():
        return None
    try:
        return str(json.loads(path.read_bytes()[:_SECTOR])["place"])
    except (OSError, ValueError, KeyError, TypeError):
        raise Damaged(f"{path} is damaged: it says which ledger serves the agreement") from None


def refuse_amended(keys: Path, plan_hash: str, follows: Sequence[str]) -> None:
    """Refuse an agreement that another one, which this party has begun, has replaced; and a second one of its kind."""
    for path in sorted((keys / FOLDER).glob(f"*{AMENDS}")):
        try:
            other, chain = path.stem, [str(known) for known in json.loads(path.read_bytes())]
        except (OSError, ValueError, TypeError):
            raise Damaged(f"{path} is damaged: it says which agreements were amended") from None
        if plan_hash in chain:
            raise InputError(
                f"agreement {plan_hash[:16]} was amended, and this party has begun {other[:16]}, which follows it: "
                "give that agreement"
            )
        if other != plan_hash and other not in follows and (both := set(chain) & set(follows)):
            raise InputError(
                f"agreement {plan_hash[:16]} amends {both.pop()[:16]}, and so does {other[:16]}, which this party has "
                f"begun: two ways on from one agreement; amend {other[:16]} instead"
            )


def note_amended(keys: Path, plan_hash: str, follows: Sequence[str]) -> None:
    """Note, durably, that this agreement takes the place of those that it follows."""
    folder = keys / FOLDER
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        refuse_network(folder)
        write_bytes(folder / f"{plan_hash}{AMENDS}", json.dumps(list(follows)).encode(), private=True)
        sync_folder(folder)
        sync_folder(keys)
    except OSError as error:
        raise InputError(f"cannot write {folder}: {error.strerror}") from None


def _is_writable(folder: Path) -> bool:
    return os.access(folder, os.W_OK | os.X_OK, effective_ids=True)
