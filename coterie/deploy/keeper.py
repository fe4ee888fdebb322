"""The keeper's folder: what must not lie beside an account.

The key of the fingerprints, so that no file of an account tells anything of records; which account is for which
records, so that there is no second one; and for each account a binding (`coterie.deploy.binding`): which one it is, and
its last row.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from coterie.data.fingerprint import KEY
from coterie.deploy.account_file import TRIES, read_account
from coterie.deploy.account_rows import Contents
from coterie.deploy.binding import read_mark
from coterie.deploy.files import write_bytes
from coterie.deploy.sealing import Damaged
from coterie.deploy.storage import sync_folder, take_lock
from coterie.errors import InputError

__all__ = ["Keeper", "keeper_folder", "login"]

KEY_FILE = "fingerprint.key"


def keeper_folder() -> Path:
    """Where the key of fingerprints and the bindings of accounts lie, for this user of this machine.

    COTERIE_ACCOUNTS in the environment names another folder.
    """
    if named := os.environ.get("COTERIE_ACCOUNTS"):
        return Path(named).absolute()
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "coterie" / "accounts"


def login() -> str:
    """The name of this process's user."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


class Keeper(NamedTuple):
    """The folder, by its path."""

    folder: Path

    def key(self) -> bytes:
        """The key of fingerprints; made when it is first needed, and never changed."""
        path = self.folder / KEY_FILE
        try:
            if not path.exists():
                self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                fresh = self.folder / f".{KEY_FILE}-{secrets.token_hex(8)}"
                with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                    file.write(secrets.token_bytes(KEY))
                    file.flush()
                    os.fsync(file.fileno())
                with contextlib.suppress(FileExistsError):  # another process was faster: its key counts
                    os.link(fresh, path)
                fresh.unlink()
                sync_folder(self.folder)
            if path.stat().st_mode & 0o077:
                raise InputError(f"{path} can be read by others: chmod 600 it")
            key = path.read_bytes()
        except OSError as error:
            raise InputError(f"cannot use {path}: {error.strerror}") from None
        if len(key) != KEY:
            raise Damaged(f"{path} is damaged: expected {KEY} bytes, it has {len(key)}")
        return key

    @contextlib.contextmanager
    def noting(
        self, path: Path, marks: Mapping[str, str], identity: str, own: Collection[str] = ()
    ) -> Iterator[tuple[list[Contents], Callable[[], None]]]:
        """Whose these records are; refused if another account for them may be drawn on.

        Yields the accounts that are closed and were for them, since what they have paid goes on in this one; and what
        notes that they are this one's now, to be called before that is written. `own`: records that are so already.
        One process at a time.
        """
        lock = os.open(self.folder, os.O_RDONLY)
        try:
            if not take_lock(lock, TRIES):
                raise InputError(f"{self.folder} is in use by another process")
            known = {mark: self._owners(mark) for mark in marks.values()}
            ended = [
                found
                for name, mark in marks.items()
                if mark not in own and (found := self._ended(path, name, identity, known[mark])) is not None
            ]
            yield (
                list({found.meta.identity: found for found in ended}.values()),
                lambda: self._write_notes(path, identity, known),
            )
        finally:
            os.close(lock)

    def _write_notes(self, path: Path, identity: str, known: Mapping[str, Sequence[tuple[str, Path]]]) -> None:
        for mark, owners in known.items():
            before = [[one, str(place)] for one, place in owners if one != identity]
            content = {"format": "coterie records 1", "account": identity, "place": str(path), "before": before}
            write_bytes(self._note(mark), json.dumps(content).encode(), private=True)
        try:
            sync_folder(self.folder)
        except OSError as error:
            raise InputError(f"cannot write {self.folder}: {error.strerror}") from None

    def _note(self, mark: str) -> Path:
        return self.folder / f"{mark}.records"

    def _owners(self, mark: str) -> list[tuple[str, Path]]:
        """The accounts of records, the latest first, and where each was then."""
        path = self._note(mark)
        try:
            noted = json.loads(path.read_bytes())
            listed = [(noted["account"], noted["place"]), *noted.get("before", ())]
            return [(str(one), Path(place)) for one, place in listed]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, KeyError, TypeError):
            raise Damaged(f"{path} is damaged: it says which account is for some records") from None

    def _ended(self, path: Path, name: str, identity: str, owners: Sequence[tuple[str, Path]]) -> Contents | None:
        """The last account that was for these records, closed; None: there was none. Refused if it is in force.

        It has itself taken in what those before it have paid. One that a crash kept from being made does not count.
        """
        for one, place in owners:
            if one == identity:  # noted before a crash, and not written
                continue
            with contextlib.suppress(InputError):
                if place != path:  # or it would be read while it is written here
                    found = read_account(place, self.folder)
                    if found.meta.identity == one and found.closed is not None:
                        return found
            binding = self.folder / f"{one}.account"
            if binding.exists() and read_mark(binding).number >= 0:  # else a crash came before it was made
                raise InputError(
                    f"{name}: the account at {place} is for these very records; a second one would spend their budget "
                    "twice"
                )
        return None
