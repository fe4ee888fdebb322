r"""What the file of a data set's account holds: tables, the hash chain over them, and reading them with every check.

Rows are for ever, each with SHA-256 over its fields and the hash before it, the first over the rules. `total` and
`slack` after a row are what the present records have paid, in the units of `coterie.privacy.lifetime`, hexadecimal and
all of one length, so that the database itself refuses a row beyond the limit. They fall in two kinds of rows only: an
agreement that ended for good is settled at what it has sent, and an epoch of records that are all new begins at zero.

Prices are not computed anew when a file is read: another version may round otherwise, and what was charged stands.
"""

from __future__ import annotations

import datetime as dt
import json
import sqlite3
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Literal, NamedTuple

from coterie.deploy.chain import canonical, link
from coterie.deploy.sealing import Damaged, or_damaged
from coterie.privacy.codec import Json, from_json
from coterie.privacy.events import Event
from coterie.privacy.ledger import Budget
from coterie.privacy.lifetime import DrawCost, Lifetime, Unit

__all__ = [
    "FORMAT",
    "SCHEMA",
    "AccountMeta",
    "Contents",
    "Draw",
    "DurableRow",
    "Epoch",
    "allow_row",
    "clock",
    "epoch_row",
    "first_statements",
    "load_account",
    "next_row",
]

FORMAT = 1
Kind = Literal["draw", "settle", "epoch", "allow", "close"]
SCHEMA = (
    """CREATE TABLE rules (id INTEGER PRIMARY KEY CHECK (id = 0), format INTEGER NOT NULL, identity TEXT NOT NULL,
 name TEXT NOT NULL, epsilon TEXT NOT NULL, delta TEXT NOT NULL, measure TEXT NOT NULL, unit TEXT NOT NULL,
 most INTEGER NOT NULL, adjacency TEXT NOT NULL, against TEXT NOT NULL, reserve TEXT NOT NULL, allowed TEXT NOT NULL,
 allowed_slack TEXT NOT NULL, created TEXT NOT NULL, hash BLOB NOT NULL)""",
    """CREATE TABLE entry (number INTEGER PRIMARY KEY, kind TEXT NOT NULL, key TEXT NOT NULL, body TEXT NOT NULL,
 total TEXT NOT NULL, slack TEXT NOT NULL, prev_hash BLOB NOT NULL, hash BLOB NOT NULL)""",
    "CREATE UNIQUE INDEX drawn_once ON entry (key) WHERE kind = 'draw'",
    "CREATE UNIQUE INDEX settled_once ON entry (key) WHERE kind = 'settle'",
    """CREATE TRIGGER guard BEFORE INSERT ON entry BEGIN
 SELECT RAISE(ABORT, 'not the next row') WHERE NEW.number IS NOT (SELECT coalesce(max(number), -1) + 1 FROM entry);
 SELECT RAISE(ABORT, 'the account is closed') WHERE EXISTS (SELECT 1 FROM entry WHERE kind = 'close');
 SELECT RAISE(ABORT, 'over the budget') WHERE length(NEW.total) <> (SELECT length(allowed) FROM rules)
  OR NEW.total > (SELECT allowed FROM rules) OR length(NEW.slack) <> (SELECT length(allowed_slack) FROM rules)
  OR NEW.slack > (SELECT allowed_slack FROM rules);
 SELECT RAISE(ABORT, 'what is spent falls') WHERE NEW.kind NOT IN ('settle', 'epoch') AND EXISTS
  (SELECT 1 FROM entry WHERE number = NEW.number - 1 AND (total > NEW.total OR slack > NEW.slack)); END""",
    "CREATE TRIGGER keep_rows BEFORE DELETE ON entry BEGIN SELECT RAISE(ABORT, 'rows are for ever'); END",
    "CREATE TRIGGER keep_fields BEFORE UPDATE ON entry BEGIN SELECT RAISE(ABORT, 'rows are for ever'); END",
    "CREATE TRIGGER keep_rules BEFORE UPDATE ON rules BEGIN SELECT RAISE(ABORT, 'rules are for ever'); END",
)


class AccountMeta(NamedTuple):
    """The rules of an account as stored; hashed into its chain."""

    format: int
    identity: str  # random: which account this is
    name: str
    epsilon: str  # exact rationals
    delta: str
    measure: str
    unit: str
    most: int  # 0: not stated
    adjacency: str
    against: str
    reserve: str  # an exact rational, or empty: the usual one
    allowed: str  # hexadecimal
    allowed_slack: str
    created: str

    @classmethod
    def new(cls, identity: str, name: str, rules: Lifetime, created: str) -> AccountMeta:
        """For a new account."""
        epsilon, delta = (str(Fraction(number)) for number in rules.budget)
        limit, reserve = rules.limit, "" if rules.reserve is None else str(Fraction(rules.reserve))
        return cls(
            FORMAT, identity, name, epsilon, delta, rules.measure, rules.unit, rules.most or 0, rules.adjacency,
            rules.against, reserve, f"{limit.units:x}", f"{limit.slack:x}", created,
        )  # fmt: skip

    @property
    def rules(self) -> Lifetime:
        """The rules."""
        budget = Budget(float(Fraction(self.epsilon)), float(Fraction(self.delta)))
        reserve = float(Fraction(self.reserve)) if self.reserve else None
        return Lifetime(
            budget, self.measure, self.unit, self.most or None, self.adjacency, self.against, reserve,  # type: ignore[arg-type]
        )  # fmt: skip

    @property
    def limit(self) -> DrawCost:
        """What may be spent, as it was when the account was opened."""
        return DrawCost(int(self.allowed, 16), int(self.allowed_slack, 16))

    def written(self, cost: DrawCost) -> tuple[str, str]:
        """A total as stored."""
        return f"{cost.units:0{len(self.allowed)}x}", f"{cost.slack:0{len(self.allowed_slack)}x}"


class Draw(NamedTuple):
    """One draw on an account.

    Attributes:
        number: of its row.
        key: what it was for: drawn once, however often it is asked for.
        kind, what: agreement, fit, statistic or other; and words for people.
        by: who drew it.
        unit: that its events are priced for.
        written: its events, as stored.
        cost: of them, or of what was sent if it is settled.
        epoch: in which it was drawn.
        created: when, by this machine's clock.
        mark: fingerprint of the records that it was drawn for: it pays for no others.
        rules: of the account.
        settled: why no more will be released for it than `cost`; None: it may go on.
        whose: fingerprint of which records are one person's, where its unit is a person and that was said.
    """

    number: int
    key: str
    kind: str
    what: str
    by: str
    unit: Unit
    written: list[dict[str, Json]]
    cost: DrawCost
    epoch: int
    created: str
    mark: str
    rules: Lifetime
    settled: str | None = None
    whose: str = ""

    @property
    def events(self) -> list[Event]:
        """All that may be released for it, equal ones counted in `times`; of a draw that is settled, what was."""
        return [from_json(event) for event in self.written]

    @property
    def epsilon(self) -> float:
        """ε of it alone, at the account's δ."""
        return self.rules.epsilon(self.cost)


class Epoch(NamedTuple):
    """The records of an account from some time on.

    `data`: fingerprint of each file or table, by what it was called; `all_new`: its owner states that nobody in it was
    in the records of any epoch before, so that what was drawn before is not charged to it; `by`, `created` as of draws.
    """

    number: int
    data: dict[str, str]
    all_new: bool
    by: str
    created: str


class DurableRow(NamedTuple):
    """A row as stored."""

    number: int
    kind: Kind
    key: str
    body: str
    total: str
    slack: str
    prev_hash: bytes
    hash: bytes

    @classmethod
    def after(cls, before: Contents, kind: Kind, key: str, body: Mapping[str, object], total: DrawCost) -> DurableRow:
        """The row that follows."""
        fields = (len(before.heads), kind, key, canonical(body), *before.meta.written(total))
        return cls(*fields, before.head, link(before.head, *fields))  # type: ignore[arg-type]

    @property
    def statement(self) -> tuple[str, tuple[object, ...]]:
        """For the database."""
        return "INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?, ?, ?)", tuple(self)


class Contents:
    """All that an account's file says, every check passed.

    Attributes:
        meta: the rules as stored.
        heads: the hash of every row.
        draws: by key, in their order.
        epochs: oldest first.
        holders: who may draw.
        closed: why nothing is drawn any more; None: the account is open.
        spent: what the present records have paid.
    """

    def __init__(self, meta: AccountMeta):
        self.meta, self.rules = meta, meta.rules
        self.heads: list[bytes] = []
        self.head = link(*meta)
        self.draws: dict[str, Draw] = {}
        self.epochs: list[Epoch] = []
        self.holders: list[str] = []
        self.closed: str | None = None
        self.spent = DrawCost()

    @property
    def known(self) -> dict[str, str]:
        """The records that may be drawn for: fingerprint to name, of this epoch and of those that it goes on from."""
        found: dict[str, str] = {}
        for epoch in reversed(self.epochs):
            found = {mark: name for name, mark in epoch.data.items()} | found
            if epoch.all_new:
                break
        return found

    @property
    def start(self) -> int:
        """The first epoch of which this one's records may be."""
        return next(epoch.number for epoch in reversed(self.epochs) if epoch.all_new)

    def paid(self, draws: Mapping[str, Draw], start: int) -> DrawCost:
        """What these draws cost records that were there from this epoch on."""
        total = DrawCost()
        for draw in draws.values():
            if draw.epoch >= start:
                total = total + draw.cost
        return total

    def add(self, row: DurableRow) -> None:
        """Take in one row, in its order."""
        body = json.loads(row.body)
        match row.kind:
            case "draw":
                cost = DrawCost(int(str(body["cost"]), 16), int(str(body["slack"]), 16))
                self.draws[row.key] = Draw(
                    row.number, row.key, body["kind"], body["what"], body["by"], body["unit"], body["events"], cost,
                    len(self.epochs) - 1, body["created"], body["mark"], self.rules,
                    None, body.get("whose", ""),
                )  # fmt: skip
            case "settle":
                cost = DrawCost(int(str(body["cost"]), 16), int(str(body["slack"]), 16))
                old = self.draws[row.key]
                if cost.units > old.cost.units or cost.slack > old.cost.slack:
                    raise Damaged(f"row {row.number}: settles a draw for more than was drawn")
                self.draws[row.key] = old._replace(cost=cost, written=body["events"], settled=body["why"])
            case "epoch":
                new = Epoch(len(self.epochs), dict(body["data"]), bool(body["all_new"]), body["by"], body["created"])
                self.epochs.append(new)
            case "allow":
                self.holders = [name for name in self.holders if name != row.key] + ([row.key] if body["may"] else [])
            case "close":
                self.closed = body["why"]
            case _:
                raise Damaged(f"row {row.number}: no such kind, {row.kind!r}")
        self.spent = self.paid(self.draws, self.start)
        if self.meta.written(self.spent) != (row.total, row.slack):
            raise Damaged(f"row {row.number}: its total is not the sum of its draws")
        limit = self.meta.limit
        if self.spent.units > limit.units or self.spent.slack > limit.slack:
            raise Damaged(f"row {row.number}: more is spent than the budget")
        self.heads.append(row.hash)
        self.head = row.hash


def first_statements(meta: AccountMeta, rows: Sequence[DurableRow]) -> list[tuple[str, tuple[object, ...]]]:
    """What makes an account with these rows."""
    marks = ", ".join("?" * (len(meta) + 2))
    made: list[tuple[str, tuple[object, ...]]] = [(sql, ()) for sql in SCHEMA]
    rules = (f"INSERT INTO rules VALUES ({marks})", (0, *meta, link(*meta)))
    return [*made, rules, *(row.statement for row in rows)]


@or_damaged
def load_account(db: sqlite3.Connection) -> Contents:
    """Read a whole account and check everything in it; `Damaged` names the first row that is wrong."""
    found = [sql for (sql,) in db.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid")]
    if found != list(SCHEMA):
        raise Damaged(f"its tables are not those of an account of format {FORMAT}: damaged, or of another version")
    *fields, genesis = db.execute("SELECT * FROM rules").fetchone()[1:]
    meta = AccountMeta(*fields)
    if meta.format != FORMAT:
        raise Damaged(f"format {meta.format!r}, expected {FORMAT}")
    if link(*meta) != genesis:
        raise Damaged("its rules do not match their hash")
    contents = Contents(meta)
    for values in db.execute("SELECT * FROM entry ORDER BY number"):
        row = DurableRow(*values)
        if row.number != len(contents.heads) or row.prev_hash != contents.head:
            raise Damaged(f"row {row.number}: does not follow row {len(contents.heads) - 1}")
        if link(row.prev_hash, *row[:6]) != row.hash:
            raise Damaged(f"row {row.number}: does not match its hash")
        if contents.closed is not None:
            raise Damaged(f"row {row.number}: follows the end of the account")
        contents.add(row)
    if not contents.epochs:
        raise Damaged("it does not say which records it is for")
    problems = db.execute("PRAGMA integrity_check").fetchall()
    if problems != [("ok",)]:
        raise Damaged(f"SQLite finds {problems[0][0]}")
    return contents


def clock() -> str:
    """The time, as rows say it."""
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")


def next_row(found: Contents, kind: Kind, key: str, body: Mapping[str, object]) -> DurableRow:
    """The next row, taken in; its total is what the account has paid with it."""
    draws, start = dict(found.draws), found.start if found.epochs else 0
    if kind in ("draw", "settle"):
        cost = DrawCost(int(str(body["cost"]), 16), int(str(body["slack"]), 16))
        known = draws.get(key)
        epoch = len(found.epochs) - 1 if known is None else known.epoch
        draws[key] = Draw(0, key, "", "", "", "record", [], cost, epoch, "", "", found.rules)
    if kind == "epoch" and body["all_new"]:
        start = len(found.epochs)
    row = DurableRow.after(found, kind, key, body, found.paid(draws, start))
    found.add(row)
    return row


def epoch_row(found: Contents, marks: Mapping[str, str], all_new: bool, by: str, now: str) -> DurableRow:
    """The row that says which records the account is for from now on."""
    return next_row(found, "epoch", "", {"data": dict(marks), "all_new": all_new, "by": by, "created": now})


def allow_row(found: Contents, name: str, may: bool, by: str, now: str) -> DurableRow:
    """The row that lets somebody draw, or not any more."""
    return next_row(found, "allow", name, {"may": may, "by": by, "created": now})
