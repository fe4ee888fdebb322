"""Where a party keeps what it must never forget: one transaction before anything leaves.

A transaction holds the charge, the frames that will leave and the state that follows; after a crash the same bytes go
out again. Keys in `ONCE` are written once: another content is refused here too, whatever the code above does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

__all__ = ["ONCE", "Charge", "Key", "MemoryStore", "Rewritten", "SumStore"]

Key = tuple[str | int, ...]

ONCE = frozenset(
    {"answered", "deal", "final", "given", "given in", "own", "proposal", "roster", "total", "voted", "voted in"}
) | {"words"}
"""Kinds of keys that may not change: a frame of one's own, the one START answered, proposal made and value voted for in
a ballot, the round that a slot was voted for in, the words of a slot, the set that a slot's or a round's shares were
given for, what became final, deals, rosters, totals."""


class Rewritten(Exception):
    """Something that is written once was about to be written again with another content."""


@dataclass(frozen=True)
class Charge:
    """What a transaction pays: `main` once per round, `local` for every masked vector."""

    round: int
    slot: int
    main: bool
    local: bool = True


class SumStore(Protocol):
    """A ledger with transactions."""

    def get(self, key: Key) -> object | None:
        """A row, or None."""
        ...

    def keys(self, kind: str) -> list[Key]:
        """Keys of one kind."""
        ...

    def commit(self, puts: Mapping[Key, object], erase: Iterable[Key] = (), charge: Charge | None = None) -> None:
        """One transaction: all of it or nothing."""
        ...


class MemoryStore:
    """A store in memory that outlives the party that writes to it."""

    def __init__(self) -> None:
        self.rows: dict[Key, object] = {}
        self.charges: list[Charge] = []
        self.commits = 0

    def get(self, key: Key) -> object | None:
        """A row, or None."""
        return self.rows.get(key)

    def keys(self, kind: str) -> list[Key]:
        """Keys of one kind."""
        return [key for key in self.rows if key[0] == kind]

    def commit(self, puts: Mapping[Key, object], erase: Iterable[Key] = (), charge: Charge | None = None) -> None:
        """One transaction: all of it or nothing."""
        gone = set(erase)
        for key, value in puts.items():
            if key[0] in ONCE and key not in gone and self.rows.get(key, value) != value:
                raise Rewritten(f"{key} is written once")
        self.rows = {key: value for key, value in self.rows.items() if key not in gone} if gone else self.rows
        self.rows.update(puts)
        if charge is not None:
            self.charges.append(charge)
        self.commits += 1

    def copy(self) -> MemoryStore:
        """An old copy, as a backup would keep it."""
        other = MemoryStore()
        other.rows, other.charges, other.commits = dict(self.rows), list(self.charges), self.commits
        return other
