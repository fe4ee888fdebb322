"""The file of a data set's account, locked for one transaction, with what the keeper's folder knows of it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from coterie.deploy.account_rows import Contents, DurableRow, load_account
from coterie.deploy.binding import Binding, Words, read_mark, refuse_old
from coterie.deploy.durable import DurableFile
from coterie.deploy.reading import read_durable
from coterie.errors import InputError

__all__ = ["TRIES", "OpenAccount", "read_account", "words_of"]

TRIES = 1500  # of taking the lock, a fiftieth of a second apart: half a minute


def words_of(path: Path) -> Words:
    """What is said of a file whose binding does not fit."""
    return Words("account", "row", "written", "it says which account is in force", f"account {path} is in use", "")


class OpenAccount(DurableFile):
    """The file, locked, with its binding; for one transaction."""

    kind = "account"

    def __init__(self, path: Path, keeper: Path):
        self._keeper, self._binding = keeper, None
        try:
            super().__init__(path, TRIES)
        except BaseException:
            self._let_go()
            raise

    _binding: Binding | None
    contents: Contents

    def _load(self, db: sqlite3.Connection) -> None:
        self.contents = load_account(db)
        identity, place = self.contents.meta.identity, self._keeper / f"{self.contents.meta.identity}.account"
        _need_known(self.path, place)
        self._binding = Binding(place, words_of(self.path), TRIES)
        self._binding.check(self.path, identity, self.contents.heads)

    def _let_go(self) -> None:
        if self._binding is not None:
            self._binding.close()

    def append(self, *rows: DurableRow) -> None:
        """Write rows that follow each other, and note the last one, durably; `contents` holds them already."""
        assert self._binding is not None
        with self._lock:
            self._usable()
            self._write(*(row.statement for row in rows))
            with self._final("binding"):
                self._binding.advance(rows[-1].number, rows[-1].hash)


def read_account(path: Path, keeper: Path) -> Contents:
    """All that an account says, checked; refused if it is an old copy. Waits for nobody."""
    found, _ = read_durable(path, "account", load_account)
    place = keeper / f"{found.meta.identity}.account"
    _need_known(path, place)
    mark = read_mark(place)
    if mark.number >= len(found.heads):  # or a row came between the two looks
        found, _ = read_durable(path, "account", load_account)
    refuse_old(mark, words_of(path), path, found.heads)
    return found


def _need_known(path: Path, place: Path) -> None:
    """Refuse an account that this machine's keeper's folder does not know."""
    if not place.exists():
        raise InputError(
            f"account {path} was opened on another machine or by another user: {place.parent} does not know it; a copy "
            "could spend the same budget twice. Move that folder together with the account"
        )
