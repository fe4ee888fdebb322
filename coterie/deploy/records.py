r"""What a durable ledger holds: tables, the hash chain over them, and reading them back with every check.

Each row's hash is SHA-256 over its fields and the hash before it, the first over the genesis: format, plan, agent,
budget. Large fields enter by their own SHA-256, so that the state of old rounds need not be kept, and the last one can
lie in a file of its own. Fields are encoded with type and length, so that no two rows have the same encoding.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from coterie.deploy.chain import canonical, link, sha256
from coterie.deploy.frames import BadFrame, Receipt
from coterie.deploy.kept_state import taken_apart
from coterie.deploy.sealing import Damaged, or_damaged
from coterie.errors import InputError
from coterie.privacy.accountants import account
from coterie.privacy.codec import Json, from_json, to_json
from coterie.privacy.events import Event, Free
from coterie.privacy.ledger import Allowance, Budget, BudgetExceeded, Entry

__all__ = ["EARLIER", "FORMAT", "KEPT", "SCHEMA", "Book", "EarlierRun", "Meta", "Row", "Rows", "canonical", "charges",
           "first_rows", "held_json", "link", "load", "payable", "sha256"]  # fmt: skip

FORMAT = 3
# `total` and `allowed` are whole numbers of 1/denominator in hexadecimal, all of one length: text order is their order
SCHEMA = (
    """CREATE TABLE meta (id INTEGER PRIMARY KEY CHECK (id = 0), format INTEGER NOT NULL, plan_hash BLOB NOT NULL,
 agent TEXT NOT NULL, epsilon TEXT NOT NULL, delta TEXT NOT NULL, proved TEXT NOT NULL, plan TEXT NOT NULL,
 denominator TEXT NOT NULL, allowed TEXT NOT NULL, created TEXT NOT NULL, identity TEXT NOT NULL,
 hash BLOB NOT NULL)""",
    """CREATE TABLE records (id INTEGER PRIMARY KEY CHECK (id = 0), fingerprint BLOB NOT NULL, hash BLOB NOT NULL)""",
    """CREATE TABLE release (round INTEGER PRIMARY KEY, charge TEXT NOT NULL, total TEXT NOT NULL, held TEXT NOT NULL,
 state_hash BLOB NOT NULL, prev_hash BLOB NOT NULL, hash BLOB NOT NULL, frame BLOB NOT NULL)""",
    """CREATE TABLE state (id INTEGER PRIMARY KEY CHECK (id = 0), round INTEGER NOT NULL, bytes BLOB NOT NULL)""",
    """CREATE TABLE stop (id INTEGER PRIMARY KEY CHECK (id = 0), after INTEGER NOT NULL, reason TEXT NOT NULL,
 prev_hash BLOB NOT NULL, hash BLOB NOT NULL)""",
    """CREATE TRIGGER guard BEFORE INSERT ON release BEGIN
 SELECT RAISE(ABORT, 'not the next round') WHERE NEW.round IS NOT (SELECT coalesce(max(round), -1) + 1 FROM release);
 SELECT RAISE(ABORT, 'the ledger is stopped') WHERE EXISTS (SELECT 1 FROM stop);
 SELECT RAISE(ABORT, 'over the budget') WHERE length(NEW.total) <> (SELECT length(allowed) FROM meta)
  OR NEW.total > (SELECT allowed FROM meta)
  OR NEW.total < (SELECT total FROM release ORDER BY round DESC LIMIT 1); END""",
    "CREATE TRIGGER keep_rows BEFORE DELETE ON release BEGIN SELECT RAISE(ABORT, 'rows are for ever'); END",
    "CREATE TRIGGER keep_fields BEFORE UPDATE ON release BEGIN SELECT RAISE(ABORT, 'rows are for ever'); END",
)
KEPT = (
    """CREATE TABLE kept (kind TEXT NOT NULL, key TEXT NOT NULL, once INTEGER NOT NULL, value BLOB NOT NULL,
 PRIMARY KEY (kind, key))""",
    """CREATE TRIGGER once BEFORE INSERT ON kept BEGIN
 SELECT RAISE(ABORT, 'written once') WHERE EXISTS (SELECT 1 FROM kept WHERE kind = NEW.kind AND key = NEW.key
  AND once AND value IS NOT NEW.value); END""",
    "CREATE TRIGGER no_change BEFORE UPDATE ON kept BEGIN SELECT RAISE(ABORT, 'rows are written whole'); END",
)
"""Further tables of a party that takes part in secret sums: what its protocol keeps (`coterie.deploy.kept`)."""
EARLIER = (
    "CREATE TABLE earlier (id INTEGER PRIMARY KEY CHECK (id = 0), runs TEXT NOT NULL, hash BLOB NOT NULL)",
    "CREATE TRIGGER keep_earlier BEFORE UPDATE ON earlier BEGIN SELECT RAISE(ABORT, 'rows are for ever'); END",
    "CREATE TRIGGER no_forgetting BEFORE DELETE ON earlier BEGIN SELECT RAISE(ABORT, 'rows are for ever'); END",
)
"""A further table of a ledger whose agreement amends others: what was spent under them (`deploy.succession`)."""
FORMS = [[*SCHEMA, *kept, *earlier] for kept in ((), KEPT) for earlier in ((), EARLIER)]


def payable(events: Iterable[Event]) -> list[Event]:
    """The events that cost something."""
    return [event for event in events if not isinstance(event, Free)]


_name = cache(canonical)


def held_json(held: Mapping[str, Receipt]) -> str:
    """Receipts by neighbour as canonical JSON."""
    return "{" + ",".join(f'{_name(name)}:"{held[name].pack().hex()}"' for name in sorted(held)) + "}"


class Rows(NamedTuple):
    """What a transaction writes to `kept`, (kind, key, whether it is written once, value), and erases, (kind, key)."""

    puts: Sequence[tuple[str, str, bool, bytes]] = ()
    erase: Sequence[tuple[str, str]] = ()

    @property
    def statements(self) -> list[tuple[str, tuple[object, ...]]]:
        """The same for the database; what is erased goes first."""
        gone = [("DELETE FROM kept WHERE kind = ? AND key = ?", where) for where in self.erase]
        return [*gone, *(("INSERT OR REPLACE INTO kept VALUES (?, ?, ?, ?)", put) for put in self.puts)]


class Meta(NamedTuple):
    """What a ledger is for; hashed into its chain."""

    format: int
    plan_hash: bytes
    agent: str
    epsilon: str  # exact rationals
    delta: str
    proved: str  # what the whole plan costs, ε at δ, as a hexadecimal float
    plan: str  # the declared events
    denominator: str  # of the prices, a power of two, in hexadecimal
    allowed: str
    created: str
    identity: str  # random: which ledger this is

    @classmethod
    def new(
        cls, plan_hash: bytes, agent: str, budget: Budget, proved: float, plan: Iterable[Event], created: str
    ) -> Meta:
        """For a new ledger; `proved` is the ε of the whole plan."""
        events = list(plan)
        allowance = Allowance(events, budget.delta)
        unit = allowance.denominator
        epsilon, delta = (str(Fraction(number)) for number in budget)
        text = canonical([to_json(event) for event in events])
        allowed = f"{int(allowance.limit * unit):x}"
        priced = (float(proved).hex(), text, f"{unit:x}", allowed)
        return cls(FORMAT, plan_hash, agent, epsilon, delta, *priced, created, secrets.token_hex(16))

    @property
    def budget(self) -> Budget:
        """(ε, δ)."""
        return Budget(float(Fraction(self.epsilon)), float(Fraction(self.delta)))

    def events(self) -> list[Event]:
        """The declared events."""
        return [from_json(fields) for fields in json.loads(self.plan)]

    def refuse_other(self, path: Path, plan_hash: bytes, agent: str, budget: Budget, plan: Sequence[Event]) -> None:
        """Refuse to serve anything else than what the ledger was made for."""
        for name, ours, theirs in (
            ("plan hash", plan_hash.hex(), self.plan_hash.hex()),
            ("agent", agent, self.agent),
            ("epsilon", str(Fraction(budget.epsilon)), self.epsilon),
            ("delta", str(Fraction(budget.delta)), self.delta),
        ):
            if ours != theirs:
                raise InputError(f"ledger {path} was made for {name} {theirs}, not {ours}")
        if canonical([to_json(event) for event in plan]) == self.plan:
            return
        try:  # the numbers may have been computed anew, with another rounding
            left = Allowance(self.events(), budget.delta).price(plan).left
        except BudgetExceeded as error:
            raise InputError(f"ledger {path} was made for other events: {error}") from None
        if any(counts.any() for counts in left):
            raise InputError(f"ledger {path} was made for more events than these")

    def units(self, spent: Fraction | float) -> str:
        """An exact total as stored."""
        top, bottom = spent.as_integer_ratio()
        whole, rest = divmod(int(self.denominator, 16), bottom)
        if rest:
            raise InputError(f"{spent} is not a whole number of 1/0x{self.denominator}")
        return f"{top * whole:0{len(self.allowed)}x}"


class Row(NamedTuple):
    """One release, without its bytes."""

    round: int
    events: list[Event]
    total: Fraction  # exact, in the plan's measure
    frame_bytes: int
    frame_hash: bytes
    hash: bytes


class EarlierRun(NamedTuple):
    """What a party spent under one agreement, when another one took its place."""

    plan_hash: str
    created: str
    epsilon: str  # the budget, exact rationals as in `Meta`
    delta: str
    spent: str  # ε of `events` at δ, as a hexadecimal float
    rounds: int
    head: str  # of its chain of hashes
    events: list[dict[str, Json]]

    @property
    def budget(self) -> Budget:
        """(ε, δ) that it was allowed."""
        return Budget(float(Fraction(self.epsilon)), float(Fraction(self.delta)))

    @property
    def used(self) -> float:
        """ε that was spent, at δ."""
        return float.fromhex(self.spent)


class Book:
    """The contents of a ledger, every check passed: `meta`, `rows`, what is left (`allowance`), `held`, `stopped`,
    `fingerprint`, and the runs under agreements that its own one amends (`earlier`)."""

    def __init__(self, meta: Meta):
        self.meta = meta
        self.allowance = Allowance(meta.events(), meta.budget.delta)
        self.rows: list[Row] = []
        self.held: dict[str, Receipt] = {}
        self.head = link(*meta)
        self.stopped: str | None = None
        self.fingerprint: bytes | None = None  # of the records that are released
        self.earlier: list[EarlierRun] = []

    @property
    def entries(self) -> list[Entry]:
        """All charges so far, oldest first."""
        return [Entry(row.round, event, float(row.total)) for row in self.rows for event in row.events]

    @property
    def run(self) -> EarlierRun:
        """This run as a later one remembers it."""
        meta, used = self.meta, self.allowance.used()
        spent = account(used, meta.budget.delta, fast=True).epsilon
        rows = [to_json(event) for event in used if np.any(event.times)]
        return EarlierRun(meta.plan_hash.hex(), meta.created, meta.epsilon, meta.delta, float(spent).hex(),
                          len(self.rows), self.head.hex(), rows)  # fmt: skip

    def add(self, row: Row, held: Mapping[str, Receipt]) -> None:
        """Note a committed release; its charge has been taken from the allowance."""
        self.rows.append(row)
        self.held, self.head = dict(held), row.hash


def first_rows(
    meta: Meta, kept: bool = False, earlier: Sequence[EarlierRun] = ()
) -> list[tuple[str, tuple[object, ...]]]:
    """What makes an empty ledger: `kept` with rows of sums, `earlier` with what was spent under earlier agreements."""
    more = (*(KEPT if kept else ()), *(EARLIER if earlier else ()))
    marks, genesis = ", ".join("?" * (len(meta) + 2)), link(*meta)
    made: list[tuple[str, tuple[object, ...]]] = [(sql, ()) for sql in (*SCHEMA, *more)]
    made.append((f"INSERT INTO meta VALUES ({marks})", (0, *meta, genesis)))
    if earlier:
        runs = canonical([run._asdict() for run in earlier])
        made.append(("INSERT INTO earlier VALUES (0, ?, ?)", (runs, link(genesis, runs))))
    return made


def charges(db: sqlite3.Connection, meta: Meta) -> list[Entry]:
    """All charges in a ledger that was checked, oldest first."""
    unit = int(meta.denominator, 16)
    return [
        Entry(round, from_json(fields), float(Fraction(int(total, 16), unit)))
        for round, charge, total in db.execute("SELECT round, charge, total FROM release ORDER BY round")
        for fields in json.loads(charge)
    ]


@or_damaged
def load(
    db: sqlite3.Connection,
    state_of: Callable[[sqlite3.Connection, int], bytes],
    frame_of: Callable[[bytes | str], bytes],
) -> Book:
    """Read a whole ledger and check everything in it, the state of its last round too.

    `Damaged` names the first row that is wrong.
    """
    found = [sql for (sql,) in db.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid")]
    if found not in FORMS:
        raise Damaged(f"its tables are not those of a ledger of format {FORMAT}: damaged, or made by another version")
    *fields, genesis = db.execute("SELECT * FROM meta").fetchone()[1:]
    meta = Meta(*fields)
    if meta.format != FORMAT:
        raise Damaged(f"format {meta.format!r}, expected {FORMAT}")
    if link(*meta) != genesis:
        raise Damaged("its first record (plan, agent, budget) does not match its hash")
    book, state_hash = Book(meta), b""
    if len(found) - len(EARLIER) >= len(SCHEMA) and found[-1] == EARLIER[-1]:
        runs, own = db.execute("SELECT runs, hash FROM earlier").fetchone()
        if link(genesis, runs) != own:
            raise Damaged("what was spent under earlier agreements does not match its hash")
        book.earlier, book.head = [EarlierRun(**run) for run in json.loads(runs)], own
    for _, fingerprint, own in db.execute("SELECT * FROM records"):
        if link(book.head, fingerprint) != own:
            raise Damaged("the fingerprint of its records does not match its hash")
        book.fingerprint = fingerprint
    rows = db.execute(
        "SELECT round, charge, total, held, state_hash, prev_hash, hash, frame FROM release ORDER BY round"
    )
    for round, charge, total, held, state_hash, before, own, stored in rows:
        where = f"round {round}"
        if round != len(book.rows) or before != book.head:
            raise Damaged(f"{where}: does not follow round {len(book.rows) - 1}")
        frame = frame_of(stored)
        frame_hash = sha256(frame)
        if link(before, round, charge, total, held, state_hash, frame_hash) != own:
            raise Damaged(f"{where}: does not match its hash")
        try:
            events = [from_json(fields) for fields in json.loads(charge)]
            taken = book.allowance.price(payable(events))
            receipts = {name: Receipt.unpack(bytes.fromhex(packed)) for name, packed in json.loads(held).items()}
        except (BudgetExceeded, InputError, BadFrame) as error:
            raise Damaged(f"{where}: {error}") from None
        if meta.units(taken.spent) != total or total > meta.allowed:
            raise Damaged(f"{where}: its total is not the sum of its charges")
        book.allowance.take(taken)
        book.add(Row(round, events, Fraction(taken.spent), len(frame), frame_hash, own), receipts)
    if book.rows:
        try:
            taken_apart(state_of(db, len(book.rows) - 1), state_hash)
        except Damaged:
            raise Damaged(f"the state is not the one of round {len(book.rows) - 1}") from None
    for _, after, reason, before, own in db.execute("SELECT * FROM stop"):
        if after != len(book.rows) - 1 or before != book.head or link(before, after, reason) != own:
            raise Damaged("the record of its stop does not match its hash")
        book.head, book.stopped = own, reason
    problems = db.execute("PRAGMA integrity_check").fetchall()
    if problems != [("ok",)]:
        raise Damaged(f"SQLite finds {problems[0][0]}")
    return book
