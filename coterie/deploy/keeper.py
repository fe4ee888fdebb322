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
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from coterie.data.fingerprint import KEY
from coterie.deploy.account_file import TRIES
from coterie.deploy.account_rows import load_account
from coterie.deploy.binding import read_mark
from coterie.deploy.files import write_bytes
from coterie.deploy.reading import read_durable
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
    def noting(self, path: Path, marks: Mapping[str, str], identity: str) -> Iterator[None]:
        """Note in the keeper's folder whose these records are; refused if another account for them may be drawn on.

        One process at a time, until what the note says is written.
        """
        lock = os.open(self.folder, os.O_RDONLY)
        try:
            if not take_lock(lock, TRIES):
                raise InputError(f"{self.folder} is in use by another process")
            for name, mark in marks.items():
                if (known := self._owner(mark)) is not None and known[0] != identity and self._in_force(path, *known):
                    raise InputError(
                        f"{name}: the account at {known[1]} is for these very records; a second one would spend their "
                        "budget twice"
                    )
            for mark in marks.values():
                content = {"format": "coterie records 1", "account": identity, "place": str(path)}
                write_bytes(self._note(mark), json.dumps(content).encode(), private=True)
            try:
                sync_folder(self.folder)
            except OSError as error:
                raise InputError(f"cannot write {self.folder}: {error.strerror}") from None
            yield
        finally:
            os.close(lock)

    def _note(self, mark: str) -> Path:
        return self.folder / f"{mark}.records"

    def _owner(self, mark: str) -> tuple[str, Path] | None:
        """The account of records, and where it was then; None: they have none."""
        path = self._note(mark)
        try:
            noted = json.loads(path.read_bytes())
            return str(noted["account"]), Path(noted["place"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError):
            raise Damaged(f"{path} is damaged: it says which account is for some records") from None

    def _in_force(self, path: Path, identity: str, place: Path) -> bool:
        """Whether another account may still be drawn on. One that is not where it was is somewhere else."""
        with contextlib.suppress(InputError):
            if place != path:  # or it would be read while it is written here
                found, _ = read_durable(place, "account", load_account)
                if found.meta.identity == identity:
                    return found.closed is None
        binding = self.folder / f"{identity}.account"
        return binding.exists() and read_mark(binding).number >= 0  # else a crash came before it was made
