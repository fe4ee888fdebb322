r"""The durable ledger: one transaction = charge + exact bytes + resume state, before the socket is touched.

`DurableLedger.release` checks the charge against the plan, writes it with the message and the state to resume from,
and returns once all of it is on the disk. Only then may the message be sent. Large states and large messages lie in
files beside the database (`storage.States`, `storage.Frames`), synced before the transaction that holds their SHA-256.

After a restart there are two cases: the round has a row, then the very same bytes are sent again (`frame`); or it has
none, then nothing of it has left the process and a fresh draw is safe. Invariants of spec I1-I4: one payload per round,
each payload on the wire has a row, Σ cost ≤ budget, and what is spent never decreases.

**Budget.** The events of the whole run are declared when the ledger is made. Their total is proved once to fit; every
later charge must be one of them (`coterie.privacy.ledger.Allowance`). The sum of exact prices is stored as a whole
number of 2^-k units and compared with that of the plan inside the transaction too, by the database. A refused charge
stops the ledger for good, durably.

**Storage** is that of `coterie.deploy.durable`: any failure to write is final for the process (`LedgerFailure`).

**Damage.** Rows form a SHA-256 chain from a genesis over plan, agent and budget; the file carries a seal over all of
its bytes. On opening, any single flipped bit of the database file, of a message or of the current state is refused,
and so is any damage to the log that would drop a commit. Not covered: somebody who rewrites all files, and all files
put back from a backup: both are consistent. A neighbour that holds a later or different message reveals them
(`reconcile`), before anything is sent.

Nothing here reads a clock to decide anything; `created` is a note.
"""

from __future__ import annotations

import datetime
import os
import sqlite3
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import NoReturn

from coterie.deploy import records
from coterie.deploy.anchor import Anchor, RolledBack
from coterie.deploy.durable import DurableFile
from coterie.deploy.frames import Receipt, digest
from coterie.deploy.kept_state import Hashed, laid_out, taken_apart
from coterie.deploy.reading import read
from coterie.deploy.sealing import Damaged
from coterie.deploy.storage import Frames, LedgerFailure, States, create_file, refuse_network
from coterie.errors import InputError
from coterie.privacy.accountants import account
from coterie.privacy.base import key_of
from coterie.privacy.events import Event
from coterie.privacy.ledger import Budget, BudgetExceeded, Entry, prove

__all__ = ["Damaged", "DurableLedger", "LedgerFailure", "RolledBack", "read"]

CACHE = 2000  # KiB of the database in memory, besides the plan


class DurableLedger(DurableFile):
    """One agent's ledger on disk; a context manager. One thread at a time may call it, from any thread.

    Args:
        path: the database file. Its log lies beside it, under the same name with "-wal", and large states to
            resume from with "-state0" and "-state1", large messages with "-frames".
        budget: (ε, δ) of the agent.
        plan_hash: what the parties agreed on; a ledger serves one agreement.
        agent: whose ledger it is.
        plan: the events of all rounds.
        create: make the file if there is none. An existing file is opened and checked in any case.
        anchor: the key folder's memory of which ledger serves the agreement, and how far it came.
        most: how many releases there may be, free ones too; None: as many as cost something.
            A ledger made with it keeps rows besides (`keep`, `kept`), for a party of secret sums.
        earlier: what was spent under the agreements that its own one amends, if the file is made now.

    Raises:
        InputError: no such file, in use by another process, on a network file system, or for another plan, agent or
            budget (`BudgetExceeded`: the plan costs more than the budget).
        Damaged: the file is not what was written.

    Attributes:
        budget, agent, plan_hash: as given.
        limit: what the whole plan costs in its additive measure, exactly. `total` is the part spent so far.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, budget: Budget, plan_hash: bytes, agent: str, plan: Sequence[Event],
        create: bool = False, anchor: Anchor | None = None, most: int | None = None,
        earlier: Sequence[records.EarlierRun] = (),
    ):  # fmt: skip
        self.path, self.most = Path(path), most
        self.budget, self.plan_hash, self.agent = budget, bytes(plan_hash), agent
        budget.check()
        if not self.path.exists():
            if not create:
                raise InputError(f"no ledger at {self.path}")
            if anchor is not None:
                anchor.check(self.path, "", ())
            refuse_network(self.path.parent)
            proved = prove(plan, budget).epsilon
            now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
            meta = records.Meta.new(self.plan_hash, agent, budget, proved, plan, now)
            create_file(self.path, records.first_rows(meta, most is not None, earlier))
        self._anchor, self._fingerprint, self._plan = anchor, b"", plan
        self._charged: tuple[tuple[object, ...] | None, str] = (None, "")  # the last charge, and how it is stored
        self._states, self._frames = States(self.path), Frames(self.path)
        super().__init__(self.path)

    def _load(self, db: sqlite3.Connection) -> None:
        self._book = records.load(db, self._states.read, self._frames.read)
        # the guard of every release reads past the plan's text: kept at hand, it costs no reading of megabytes
        db.execute(f"PRAGMA cache_size = -{CACHE + 2 * len(self._book.meta.plan) // 1024}")
        self._book.meta.refuse_other(self.path, self.plan_hash, self.agent, self.budget, self._plan)
        if self._anchor is not None:
            self._anchor.check(self.path, self._book.meta.identity, [row.hash for row in self._book.rows])
        self._count = len(self._book.rows)
        self._book.rows.clear()  # they are in the file: a run of many rounds keeps none in memory

    @property
    def limit(self) -> Fraction:
        """What the whole plan costs in its additive measure."""
        return Fraction(self._book.allowance.limit)

    @property
    def total(self) -> Fraction:
        """The part of `limit` that is spent."""
        return Fraction(self._book.allowance.spent)

    @property
    def last(self) -> int:
        """The last round released; −1 if none."""
        return self._count - 1

    @property
    def closed(self) -> str | None:
        """Why the ledger was stopped for good, or None."""
        return self._book.stopped

    @property
    def earlier(self) -> tuple[records.EarlierRun, ...]:
        """What was spent under the agreements that this one's amends, oldest first."""
        return tuple(self._book.earlier)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All charges so far, oldest first, from the file."""
        with self._lock:
            self._usable()
            return tuple(records.charges(self._db, self._book.meta))

    def spent(self, delta: float | None = None) -> float:
        """ε spent so far at δ (the budget's own by default), by the tightest accountant."""
        return account(self._book.allowance.used(), self.budget.delta if delta is None else delta, fast=True).epsilon

    def release(
        self, round: int, events: Sequence[Event], frame: bytes, state: bytes | Sequence[memoryview],
        held: Mapping[str, Receipt], rows: records.Rows | None = None, hashed: bytes | None = None,
        known: Sequence[Hashed] = (),
    ) -> None:  # fmt: skip
        """Pay for a round and keep its exact bytes; when this returns, and not before, the frame may be sent.

        Args:
            round: the one after `last`.
            events: what the frame costs: part of the plan, or `Free`.
            frame: the bytes to send.
            state: all that is needed to go on from here after a crash; in parts, if large, so that none is copied.
            held: the last message received and used from each neighbour.
            rows: what is kept besides, in the same transaction.
            hashed: SHA-256 of the frame, where whoever made it knows it.
            known: further parts of the state, whose SHA-256 is known.

        Raises:
            BudgetExceeded: the charge is not (or no longer) in the plan; the ledger is stopped, durably and for good.
            InputError: not the next round; nothing was written.
            LedgerFailure: the disk refused. Nothing may be sent and the process must end.
        """
        with self._lock:
            self._usable()
            if self.closed is not None:
                raise BudgetExceeded(f"round {round}: refused, the budget was closed by an earlier stop: {self.closed}")
            if round != self.last + 1:
                raise InputError(f"the next round of ledger {self.path} is {self.last + 1}, got {round}")
            book = self._book
            charge = self._charge_text(events)
            try:
                taken = book.allowance.price(records.payable(events))
                if self.most is not None and round >= self.most:
                    raise BudgetExceeded(f"all {self.most} masked vectors that the plan allows have left")
            except BudgetExceeded as stop:
                self._stop(f"round {round}: {stop}")
                raise BudgetExceeded(f"round {round}: {stop}") from None
            total, holds = book.meta.units(taken.spent), records.held_json(held)
            parts, state_hash = laid_out([memoryview(state)] if isinstance(state, bytes) else state, known)
            frame_hash = hashed or records.sha256(frame)
            own = records.link(book.head, round, charge, total, holds, state_hash, frame_hash)
            self._bind()
            with self._final("state"):
                left, stored = self._states.write(round, parts), self._frames.write(frame)
            if round == 0 and self._fingerprint:
                mark = records.link(book.head, self._fingerprint)
                left.append(("INSERT INTO records VALUES (0, ?, ?)", (self._fingerprint, mark)))
            self._write(
                *left, *(rows.statements if rows else ()),
                ("INSERT INTO release VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                 (round, charge, total, holds, state_hash, book.head, own, stored)),
            )  # fmt: skip
            with self._final("anchor"):
                if self._anchor is not None:
                    self._anchor.advance(round, own)
            book.allowance.take(taken)
            self._count += 1
            book.held, book.head = dict(held), own
            self._fold()

    def finish(self, reason: str) -> None:
        """Close the budget for good, durably, unless it is closed: another agreement takes this one's place."""
        with self._lock:
            self._usable()
            if self.closed is None:
                self._stop(reason)

    def stop(self, reason: str) -> NoReturn:
        """Close the budget, durably and for good, and say why by a `BudgetExceeded`."""
        self.finish(reason)
        raise BudgetExceeded(reason)

    def keep(self, rows: records.Rows) -> None:
        """Keep rows that cost nothing: when this returns, and not before, what they say may be sent.

        Raises:
            LedgerFailure: the disk refused, or a row that is written once would change. The process must end.
        """
        with self._lock:
            self._usable()
            self._bind()
            self._write(*rows.statements)
            self._fold()

    def kept(self, kind: str, key: str) -> bytes | None:
        """A row that was kept, or None."""
        with self._lock:
            self._usable()
            found = self._db.execute("SELECT value FROM kept WHERE kind = ? AND key = ?", (kind, key)).fetchone()
        return found and found[0]

    def kept_keys(self, kind: str) -> list[str]:
        """The keys of one kind of rows."""
        with self._lock:
            self._usable()
            return [key for (key,) in self._db.execute("SELECT key FROM kept WHERE kind = ?", (kind,))]

    def releases(self, fingerprint: bytes) -> None:
        """Say which records are released from now on (a keyed hash); refuse others than before."""
        with self._lock:
            if self._book.fingerprint not in (None, fingerprint):
                raise InputError(
                    f"the records are not those of the {self.last + 1} rounds in ledger {self.path}: give the same "
                    "data again, or sign a new agreement for the new ones"
                )
            self._fingerprint = fingerprint

    def frame(self, round: int) -> bytes | None:
        """The exact bytes released in a round, or None."""
        with self._lock:
            self._usable()
            found = self._db.execute("SELECT frame FROM release WHERE round = ?", (round,)).fetchone()
        return found and self._frames.read(found[0])

    def state(self) -> bytes | None:
        """The state stored with the last release, or None before the first."""
        return self.whole_state()[0]

    def whole_state(self) -> tuple[bytes | None, list[Hashed]]:
        """The same, and the parts of it whose SHA-256 was known."""
        with self._lock:
            self._usable()
            found = self._db.execute("SELECT state_hash FROM release WHERE round = ?", (self.last,)).fetchone()
            return taken_apart(self._states.read(self._db, self.last), found[0]) if found else (None, [])

    def held(self) -> dict[str, Receipt]:
        """What had been received from each neighbour, as of the last release."""
        return dict(self._book.held)

    def reconcile(self, neighbour: str, receipt: Receipt) -> None:
        """Raise `RolledBack` if a neighbour holds a message of ours that is not in this ledger.

        The receipt must be proven (`Receipt.proven`): otherwise a hostile neighbour could stop us with an invention.
        """
        if receipt.round < 0:
            return
        if receipt.round > self.last:
            raise RolledBack(
                f"{neighbour} holds our message of round {receipt.round}, ledger {self.path} ends at {self.last}: it "
                "was restored from an old copy, or another copy is in use"
            )
        ours = self.frame(receipt.round)
        if ours is None or digest(ours) != receipt.digest:
            raise RolledBack(
                f"{neighbour} holds another message of round {receipt.round} than ledger {self.path}: another copy of "
                "it is in use"
            )

    def _let_go(self) -> None:
        self._states.close()
        self._frames.close()

    def _charge_text(self, events: Sequence[Event]) -> str:
        """The events as stored; rounds that cost the same follow each other, and checking them takes a while."""
        key = tuple(key_of(event) for event in events)
        if None in key or key != self._charged[0]:
            self._charged = key, records.canonical([records.to_json(event) for event in events])
        return self._charged[1]

    def _bind(self) -> None:
        """Tell the key folder, before anything can leave, that this ledger serves the agreement."""
        if self._anchor is not None and self.last < 0:
            with self._final("anchor"):
                self._anchor.bind(self.path, self._book.meta.identity)

    def _stop(self, reason: str) -> None:
        """Close the budget, durably."""
        after, before = self.last, self._book.head
        own = records.link(before, after, reason)
        self._write(("INSERT INTO stop VALUES (0, ?, ?, ?, ?)", (after, reason, before, own)))
        self._book.head, self._book.stopped = own, reason
