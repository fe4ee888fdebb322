r"""A data set's account: one file with a budget for life, on which all draw that release something of the records.

    account = DataAccount.open("clinic.account", Budget(3.0, 1e-6), data="patients.csv", may=["harbour"])
    account.charge([Gaussian(1.0, 20.0)], what="mean age", data="patients.csv")     # before the release
    print(account.statement())

`charge` returns when the draw is on the disk: what it pays for may be released then, and not before. It is one
transaction of `coterie.deploy.durable`, as a ledger's are, under a lock that other processes wait for: of two that want
the last of a budget, one gets it. A draw has a key, and the same key is drawn once: after a crash the same call finds
that it is paid.

**The keeper's folder** (`~/.config/coterie/accounts`) holds what must not lie beside the account: the key of the
fingerprints, so that the file tells nothing of records; which account is for which records, so that there is no second
one; and for each account a binding (`coterie.deploy.binding`): which one it is and its last row, written after each row
and before `charge` returns. An account that was put back from
a backup, or a copy of which was used here, is refused (`RolledBack`); so is one on a machine whose keeper's folder does
not know it. Not noticed: the account and the keeper's folder both put back, or both copied to another machine, unless
an agreement that has drawn since then starts again: the party's key folder remembers its draw
(`coterie.deploy.drawing`).
"""

from __future__ import annotations

import contextlib
import datetime as dt
import getpass
import json
import os
import secrets
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from coterie.data.fingerprint import KEY, fingerprint
from coterie.deploy.account_rows import (
    AccountMeta,
    Contents,
    Draw,
    DurableRow,
    Epoch,
    first_statements,
    load_account,
)
from coterie.deploy.binding import Binding, RolledBack, Words, read_mark, refuse_old
from coterie.deploy.durable import DurableFile
from coterie.deploy.files import write_bytes
from coterie.deploy.reading import read_durable
from coterie.deploy.sealing import Damaged
from coterie.deploy.storage import LedgerFailure, create_file, refuse_network, sync_folder, take_lock
from coterie.errors import InputError
from coterie.privacy.codec import to_json
from coterie.privacy.events import Event, Free, merge
from coterie.privacy.filter import Rule
from coterie.privacy.ledger import Allowance, Budget, BudgetExceeded
from coterie.privacy.lifetime import Against, DrawCost, Lifetime, Unit

if TYPE_CHECKING:
    from coterie.plan import Plan

__all__ = [
    "AccountStatement",
    "BudgetExceeded",
    "Damaged",
    "DataAccount",
    "Draw",
    "LedgerFailure",
    "RolledBack",
    "Settled",
    "agreement_key",
    "keeper_folder",
    "login",
    "unit_of",
]  # fmt: skip

KINDS = ("agreement", "fit", "statistic", "other")
TRIES = 1500  # of taking the lock, a fiftieth of a second apart: half a minute
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


def unit_of(plan: Plan) -> Unit:
    """Whom a plan's events are priced for."""
    return "person" if plan.by_person else "record"


def agreement_key(plan_hash: str, party: str) -> str:
    """The key of what one party of an agreement draws: another one's records pay for themselves, on one account too."""
    return f"agreement {plan_hash} {party}"


def _words(path: Path) -> Words:
    return Words("account", "row", "written", "it says which account is in force", f"account {path} is in use", "")


class Settled(NamedTuple):
    """What was released for a draw that has ended for good."""

    key: str
    events: Sequence[Event]
    what: str  # words for people
    why: str


@dataclass(frozen=True)
class AccountStatement:
    """An account as it stands. `print` it for people; `as_json` for programs.

    Attributes:
        path, name, identity, created: which one, and since when.
        rules: budget, unit, measure, adjacency, whom it holds against.
        draws: all, oldest first.
        epochs: of the records, oldest first.
        holders: who may draw.
        closed: why nothing is drawn any more; None: it is open.
        spent: ε that a record (or a person) has paid who was in the data all the time, at the account's δ.
        left: ε of the largest single draw that still fits, at the same δ. Not the difference: μ² adds, not ε.
        known: names of the files or tables that may be drawn for.
    """

    path: Path
    name: str
    identity: str
    created: str
    rules: Lifetime
    draws: tuple[Draw, ...]
    epochs: tuple[Epoch, ...]
    holders: tuple[str, ...]
    closed: str | None
    spent: float
    left: float
    known: tuple[str, ...]

    @classmethod
    def of(cls, path: Path, found: Contents) -> AccountStatement:
        """Of what was read."""
        meta, rules = found.meta, found.rules
        return cls(
            path, meta.name, meta.identity, meta.created, rules, tuple(found.draws.values()), tuple(found.epochs),
            tuple(found.holders), found.closed, rules.epsilon(found.spent), rules.left(found.spent),
            tuple(found.known.values()),
        )  # fmt: skip

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        rules = self.rules
        return {
            "path": str(self.path), "name": self.name, "identity": self.identity, "created": self.created,
            "epsilon": rules.budget.epsilon, "delta": rules.budget.delta, "unit": rules.unit,
            "records_per_person": rules.most, "measure": rules.measure, "adjacency": rules.adjacency,
            "against": rules.against, "spent": self.spent, "left": self.left, "closed": self.closed,
            "may_draw": list(self.holders),
            "epochs": [{"number": e.number, "data": list(e.data), "all_new": e.all_new, "by": e.by,
                        "created": e.created} for e in self.epochs],
            "draws": [{"number": d.number, "key": d.key, "kind": d.kind, "what": d.what, "by": d.by, "unit": d.unit,
                       "epsilon": d.epsilon, "epoch": d.epoch, "created": d.created, "settled": d.settled,
                       "events": d.written} for d in self.draws],
        }  # fmt: skip

    def __str__(self) -> str:
        rules = self.rules
        who = {"record": "a record", "person": "a person"}[rules.unit]
        if rules.most is not None:
            who += f" with at most {rules.most} records, changed and not more or fewer of them"
        lines = [
            f"account of {self.name}, opened {self.created}" + (f", closed: {self.closed}" if self.closed else ""),
            f"spent ε {self.spent:.4g} of {rules.budget.epsilon:g} at δ {rules.budget.delta:g}, for {who} in the data "
            f"all the time, in {len(self.draws)} draw{'' if len(self.draws) == 1 else 's'}",
            "nothing is left" if self.left == 0 or self.closed else f"one more draw of at most ε {self.left:.4g} fits",
        ]
        return "\n".join(lines)


class _OpenAccount(DurableFile):
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
        need_known(self.path, place)
        self._binding = Binding(place, _words(self.path), TRIES)
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


def need_known(path: Path, place: Path) -> None:
    """Refuse an account that this machine's keeper's folder does not know."""
    if not place.exists():
        raise InputError(
            f"account {path} was opened on another machine or by another user: {place.parent} does not know it; a copy "
            "could spend the same budget twice. Move that folder together with the account"
        )


class DataAccount:
    """The account of a data set, by its file. Every method opens it, checks all of it, and lets go of it again.

    Args:
        path: the file; `DataAccount.open` makes one.
        keeper: the folder with the key of fingerprints and the bindings; default: `keeper_folder()`.

    >>> import tempfile
    >>> from coterie.privacy.events import Gaussian
    >>> folder, table = tempfile.TemporaryDirectory(), [[31.0, 1.0], [40.0, 0.0]]
    >>> places = f"{folder.name}/a", f"{folder.name}/keeper"
    >>> account = DataAccount.open(places[0], Budget(1.0, 1e-5), data=table, keeper=places[1])
    >>> round(account.charge([Gaussian(1.0, 8.0)], what="mean age", data=table).epsilon, 4)
    0.4344
    >>> account.charge([Gaussian(1.0, 4.0)], what="again", data=table)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    coterie.privacy.filter.BudgetExceeded: out of budget: the draw costs ε 0.926... here and would ...
    >>> folder.cleanup()
    """

    def __init__(self, path: str | os.PathLike[str], keeper: str | os.PathLike[str] | None = None):
        self.path = Path(path).absolute()
        self.keeper = keeper_folder() if keeper is None else Path(keeper).absolute()

    def __repr__(self) -> str:
        return f"DataAccount({str(self.path)!r})"

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], budget: Budget, *, data: Any, name: str = "", unit: Unit = "record",
        most: int | None = None, measure: Rule | None = None, adjacency: str = "replace-one",
        against: Against = "agreed", reserve: float | None = None, may: Sequence[str] = (),
        keeper: str | os.PathLike[str] | None = None,
    ) -> DataAccount:  # fmt: skip
        """Open an account for records that have paid nothing yet. Its rules are for good.

        Args:
            path: of the file that is made; it must not exist.
            budget: (ε, δ) for the life of the data.
            data: the records: a file, a table, (X, y), or a dictionary from a name to one, where several tables are
                about the same people. What is drawn later is drawn for one of these.
            name: what people call the data set; default: the file's name.
            unit: whose budget it is: "record" or "person".
            most: largest number of records of a person, if draws priced per record may enter an account of people.
            measure: in which draws add up (`coterie.privacy.lifetime`); default: "gaussian", or "pure" where δ = 0.
            adjacency, against, reserve: as in `coterie.privacy.lifetime.Lifetime`.
            may: who may draw, beside this user: names of parties, fingerprints of their keys, or users.
            keeper: as of the class.

        Raises:
            InputError: the file exists, another account that is not closed is for the very same records, or a rule
                makes no sense.
        """
        made = cls(path, keeper)
        if not isinstance(budget, Budget):
            raise InputError(f"a budget is Budget(epsilon, delta), got {budget!r}")
        budget.check()
        chosen: Rule = measure if measure is not None else "gaussian" if budget.delta else "pure"
        rules = Lifetime(budget, chosen, unit, most, adjacency, against, reserve).check()
        if made.path.exists():
            raise InputError(f"{made.path} exists: an account is opened once; give another path for another data set")
        if isinstance(may, str):
            raise InputError(f"may is a list of names, got {may!r}")
        refuse_network(made.path.parent, "account")
        marks, identity, now = made.marks(data), secrets.token_hex(16), _now()
        found = Contents(AccountMeta.new(identity, name or made.path.stem, rules, now))
        rows = [_epoch_row(found, marks, True, login(), now)]
        for who in dict.fromkeys([login(), *may]):
            rows.append(_allow_row(found, _checked_name(who), True, login(), now))
        with (
            made._noting(marks, identity),
            contextlib.closing(Binding(made.keeper / f"{identity}.account", _words(made.path))) as binding,
        ):
            try:
                binding.bind(made.path, identity)  # first: an account without one would be taken for a copy
                create_file(made.path, first_statements(found.meta, rows), "account")
                if made.statement().identity != identity:
                    raise InputError(f"{made.path} was made by another process meanwhile")
                binding.advance(rows[-1].number, rows[-1].hash)  # from now on it is somewhere, if not where it was
            except OSError as error:
                raise InputError(f"cannot write {made.keeper}: {error.strerror}") from None
        return made

    # -- looking ---------------------------------------------------------------------------------------------------

    def statement(self) -> AccountStatement:
        """The account as it stands, checked; refused if it is an old copy. Waits for nobody."""
        return AccountStatement.of(self.path, self.contents())

    def contents(self) -> Contents:
        """The same with every row's hash."""
        found, _ = read_durable(self.path, "account", load_account)
        place = self.keeper / f"{found.meta.identity}.account"
        need_known(self.path, place)
        mark = read_mark(place)
        if mark.number >= len(found.heads):  # or a row came between the two looks
            found, _ = read_durable(self.path, "account", load_account)
        refuse_old(mark, _words(self.path), self.path, found.heads)
        return found

    def marks(self, data: Any) -> dict[str, str]:
        """Fingerprints of records, by what they are called."""
        if not isinstance(data, Mapping):
            data = {str(data) if isinstance(data, str | os.PathLike) else "records": data}
        if not data:
            raise InputError("data names no records")
        return {str(name): fingerprint(self.key(), one).hex() for name, one in data.items()}

    def check(
        self, events: Sequence[Event], *, key: str, by: Sequence[str], data: Any = None, mark: bytes | None = None,
        unit: Unit = "record", settle: Sequence[Settled] = (),
    ) -> Draw | None:  # fmt: skip
        """Whether `charge` would be refused now, by its error; the draw, if it was made before. Nothing is written."""
        wanted = self._mark(data, mark)
        found = self.contents()
        if (draw := _same(found, key, events, self.path, by, wanted, unit)) is not None:
            return draw
        _need_open(found, self.path, by, wanted)
        _plan(found, key, events, unit, settle)
        return None

    # -- drawing ---------------------------------------------------------------------------------------------------

    def charge(
        self, events: Sequence[Event], *, what: str, kind: str = "other", key: str | None = None, data: Any = None,
        mark: bytes | None = None, by: Sequence[str] = (), unit: Unit = "record", settle: Sequence[Settled] = (),
    ) -> Draw:  # fmt: skip
        """Draw what these events cost; when this returns, and not before, they may be released.

        Args:
            events: all that will be released.
            what, kind: words for people; "agreement", "fit", "statistic" or "other".
            key: what it is for; the same key is drawn once. Default: a new one.
            data: the records, as in `open`; or `mark`, their fingerprint, if it is known.
            by: names of who draws; one of them must be allowed to. Default: this user.
            unit: that the events are priced for.
            settle: draws that have ended for good, with what was released for them: what they left over is free again
                in the same transaction. One that was never drawn is drawn now.

        Raises:
            BudgetExceeded: it does not fit; nothing was written.
            InputError: not allowed, other records, another unit or adjacency, closed; nothing was written.
            LedgerFailure: the disk refused. Nothing may be released, and the process must end.
        """
        if kind not in KINDS:
            raise InputError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
        wanted, names = self._mark(data, mark), list(by) or [login()]
        key = f"{kind} {secrets.token_hex(16)}" if key is None else key
        with self._open() as file:
            found = file.contents
            if (draw := _same(found, key, events, self.path, names, wanted, unit)) is not None:
                return draw
            _need_open(found, self.path, names, wanted)
            planned, now, rows = _plan(found, key, events, unit, settle), _now(), []
            for step in planned:
                body = {"cost": f"{step.cost.units:x}", "slack": f"{step.cost.slack:x}", "created": now,
                        "events": [to_json(event) for event in merge(step.events)]}  # fmt: skip
                if step.settles:
                    body["why"] = step.why
                    rows.append(_row(found, "settle", step.key, body))
                    continue
                own = step.key == key
                body |= {"kind": kind if own else "agreement", "what": what if own else step.what, "by": names[0],
                         "unit": unit, "mark": wanted}  # fmt: skip
                rows.append(_row(found, "draw", step.key, body))
                if not own:
                    ended = {name: body[name] for name in ("cost", "slack", "created", "events")}
                    rows.append(_row(found, "settle", step.key, ended | {"why": step.why}))
            file.append(*rows)
            return found.draws[key]

    def epoch(self, data: Any, *, all_new: bool = False, by: str = "") -> Epoch:
        """Say that the records change. What was drawn stays drawn.

        Args:
            data: the records from now on, as in `open`.
            all_new: you state that nobody in them was in the data of any epoch before. Then they begin with nothing
                spent, and the earlier records are not drawn for any more: each has the budget for itself. Without it
                the account goes on: whoever was there before has paid, and newcomers are treated as if they had too.
                Nobody of before an epoch that was all new may come back later: what they paid is not counted there.
                The very same records are refused; whether some of them are in other tables is yours to know.
            by: who says so; default: this user.
        """
        marks = self.marks(data)
        with self._open() as file:
            found = file.contents
            _need_keeper(found, self.path, by or login())
            before = {mark for epoch in found.epochs for mark in epoch.data.values()}
            if all_new and (both := [name for name, mark in marks.items() if mark in before]):
                raise InputError(f"{both[0]} is not new: the account knows these very records")
            ended = before - set(found.known)
            if back := [name for name, mark in marks.items() if mark in ended]:
                raise InputError(
                    f"{back[0]} was in the data before epoch {found.start}, whose records were stated to be all new: "
                    "it has spent a budget of its own, and does not come back"
                )
            with self._noting(marks, found.meta.identity):
                file.append(_epoch_row(found, marks, all_new, by or login(), _now()))
            return found.epochs[-1]

    def allow(self, name: str, may: bool = True) -> None:
        """Let somebody draw from now on, or not any more."""
        _checked_name(name)
        with self._open() as file:
            _need_keeper(file.contents, self.path, login())
            file.append(_allow_row(file.contents, name, may, login(), _now()))

    def close(self, why: str) -> None:
        """End the account for good: nothing is drawn any more. What was drawn may still be released."""
        with self._open() as file:
            _need_keeper(file.contents, self.path, login())
            file.append(_row(file.contents, "close", "", {"why": why, "by": login(), "created": _now()}))

    @contextlib.contextmanager
    def _open(self) -> Iterator[_OpenAccount]:
        if not self.path.exists():
            raise InputError(f"no account at {self.path}: `coterie account open` makes one")
        with _OpenAccount(self.path, self.keeper) as file:
            yield file

    @contextlib.contextmanager
    def _noting(self, marks: Mapping[str, str], identity: str) -> Iterator[None]:
        """Note in the keeper's folder whose these records are; refused if another account for them may be drawn on.

        One process at a time, until what the note says is written.
        """
        lock = os.open(self.keeper, os.O_RDONLY)
        try:
            if not take_lock(lock, TRIES):
                raise InputError(f"{self.keeper} is in use by another process")
            for name, mark in marks.items():
                if (known := self._owner(mark)) is not None and known[0] != identity and self._in_force(*known):
                    raise InputError(
                        f"{name}: the account at {known[1]} is for these very records; a second one would spend their "
                        "budget twice"
                    )
            for mark in marks.values():
                content = {"format": "coterie records 1", "account": identity, "place": str(self.path)}
                write_bytes(self._note(mark), json.dumps(content).encode(), private=True)
            try:
                sync_folder(self.keeper)
            except OSError as error:
                raise InputError(f"cannot write {self.keeper}: {error.strerror}") from None
            yield
        finally:
            os.close(lock)

    def _note(self, mark: str) -> Path:
        return self.keeper / f"{mark}.records"

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

    def _in_force(self, identity: str, place: Path) -> bool:
        """Whether another account may still be drawn on. One that is not where it was is somewhere else."""
        with contextlib.suppress(InputError):
            if place != self.path:  # or it would be read while it is written here
                found, _ = read_durable(place, "account", load_account)
                if found.meta.identity == identity:
                    return found.closed is None
        binding = self.keeper / f"{identity}.account"
        return binding.exists() and read_mark(binding).number >= 0  # else a crash came before it was made

    def _mark(self, data: Any, mark: bytes | None) -> str:
        if (data is None) == (mark is None):
            raise InputError("say which records are released: data, or mark, their fingerprint")
        return fingerprint(self.key(), data).hex() if mark is None else mark.hex()

    def key(self) -> bytes:
        """The key of fingerprints; made when it is first needed, and never changed."""
        path = self.keeper / KEY_FILE
        try:
            if not path.exists():
                self.keeper.mkdir(parents=True, exist_ok=True, mode=0o700)
                fresh = self.keeper / f".{KEY_FILE}-{secrets.token_hex(8)}"
                with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                    file.write(secrets.token_bytes(KEY))
                    file.flush()
                    os.fsync(file.fileno())
                with contextlib.suppress(FileExistsError):  # another process was faster: its key counts
                    os.link(fresh, path)
                fresh.unlink()
                sync_folder(self.keeper)
            if path.stat().st_mode & 0o077:
                raise InputError(f"{path} can be read by others: chmod 600 it")
            key = path.read_bytes()
        except OSError as error:
            raise InputError(f"cannot use {path}: {error.strerror}") from None
        if len(key) != KEY:
            raise Damaged(f"{path} is damaged: expected {KEY} bytes, it has {len(key)}")
        return key


# ---- rows ------------------------------------------------------------------------------------------------------------


def _now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")


def _row(found: Contents, kind: Any, key: str, body: Mapping[str, Any]) -> DurableRow:
    """The next row, taken in; its total is what the account has paid with it."""
    draws, start = dict(found.draws), found.start if found.epochs else 0
    if kind in ("draw", "settle"):
        cost = DrawCost(int(body["cost"], 16), int(body["slack"], 16))
        known = draws.get(key)
        epoch = len(found.epochs) - 1 if known is None else known.epoch
        draws[key] = Draw(0, key, "", "", "", "record", [], cost, epoch, "", "", found.rules)
    if kind == "epoch" and body["all_new"]:
        start = len(found.epochs)
    row = DurableRow.after(found, kind, key, body, found.paid(draws, start))
    found.add(row)
    return row


def _epoch_row(found: Contents, marks: Mapping[str, str], all_new: bool, by: str, now: str) -> DurableRow:
    return _row(found, "epoch", "", {"data": dict(marks), "all_new": all_new, "by": by, "created": now})


def _allow_row(found: Contents, name: str, may: bool, by: str, now: str) -> DurableRow:
    return _row(found, "allow", name, {"may": may, "by": by, "created": now})


def _checked_name(name: object) -> str:
    if not isinstance(name, str) or not name.strip() or not name.isprintable() or len(name) > 200:
        raise InputError(f"who may draw is named by text of one line, got {name!r}")
    return name


# ---- checks ----------------------------------------------------------------------------------------------------------


def _same(
    found: Contents, key: str, events: Sequence[Event], path: Path, by: Sequence[str], mark: str, unit: Unit
) -> Draw | None:  # fmt: skip
    """The draw of this key, if there is one; refused where it was for anything else, so that it pays for nothing more.

    Who drew may be allowed to no more, and the account may be closed: what was drawn stays drawn.
    """
    draw = found.draws.get(key)
    if draw is None:
        return None
    if draw.settled is not None:
        raise InputError(f"account {path}: {draw.what} has ended for good ({draw.settled}), and draws nothing any more")
    if draw.by not in by:
        raise InputError(f"account {path}: {draw.what} was drawn by {draw.by}, not by {' or '.join(by)}")
    if draw.unit != unit:
        raise InputError(f"account {path}: {draw.what} was drawn for each {draw.unit}, not for each {unit}")
    if draw.mark != mark:
        raise InputError(f"account {path}: {draw.what} was drawn for other records, and pays for none but those")
    if draw.epoch < found.start:
        raise InputError(
            f"account {path}: {draw.what} was drawn in epoch {draw.epoch}, whose records are not drawn for any more "
            f"since epoch {found.start}"
        )
    paid = [event for event in events if not isinstance(event, Free)]
    try:  # the numbers may have been computed anew, with another rounding
        Allowance(draw.events, found.rules.budget.delta).price(paid)
    except BudgetExceeded as error:
        raise InputError(f"account {path}: {draw.what} was drawn for other events: {error}") from None
    return draw


def _need_keeper(found: Contents, path: Path, by: str) -> None:
    """Who opened an account, or may draw on it, may say that it changes."""
    if found.closed is not None:
        raise InputError(f"account {path} is closed for good: {found.closed}")
    if by != (keeper := found.epochs[0].by) and by not in found.holders:
        raise InputError(f"account {path} is kept by {keeper}, not by {by}")


def _need_open(found: Contents, path: Path, by: Sequence[str], mark: str) -> None:
    if found.closed is not None:
        raise InputError(f"account {path} is closed for good: {found.closed}")
    if not set(by) & set(found.holders):
        raise InputError(f"account {path}: {' or '.join(by)} may not draw; {', '.join(found.holders) or 'nobody'} may")
    if mark not in found.known:
        known = ", ".join(found.known.values())
        raise InputError(
            f"account {path} is for other records ({known}): if they have changed, say so by `coterie account epoch`, "
            "in Python by `epoch`"
        )


class _Step(NamedTuple):
    """One part of a charge: a draw, or a draw that is settled."""

    key: str
    events: list[Event]
    cost: DrawCost
    settles: bool = False
    what: str = ""
    why: str = ""


def _plan(
    found: Contents, key: str, events: Sequence[Event], unit: Unit, settle: Sequence[Settled]
) -> list[_Step]:  # fmt: skip
    """What a charge writes; `BudgetExceeded` if it does not fit."""
    rules, steps, spent = found.rules, [], found.spent
    for ended in settle:
        used = [event for event in ended.events if not isinstance(event, Free)]
        known = found.draws.get(ended.key)
        if known is None:  # released before it was told of the account
            cost = rules.price(used, unit)
            spent = spent + cost
            steps.append(_Step(ended.key, used, cost, False, ended.what, ended.why))
        elif known.settled is None:
            price = rules.price(used, known.unit)
            cost = DrawCost(min(price.units, known.cost.units), min(price.slack, known.cost.slack))
            if known.epoch >= found.start:
                spent = DrawCost(
                    spent.units - known.cost.units + cost.units, spent.slack - known.cost.slack + cost.slack
                )
            steps.append(_Step(ended.key, used, cost, True, ended.what, ended.why))
    paid = [event for event in events if not isinstance(event, Free)]
    own = rules.price(paid, unit)
    rules.need(spent, own, found.meta.limit)
    return [*steps, _Step(key, paid, own)]
