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
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from coterie.data.fingerprint import fingerprint, grouping
from coterie.deploy.account_checks import Settled, checked_name, need_keeper, need_open, same_draw, steps_of, taken_over
from coterie.deploy.account_file import OpenAccount, read_account, words_of
from coterie.deploy.account_rows import (
    AccountMeta,
    Contents,
    Draw,
    DurableRow,
    Epoch,
    allow_row,
    clock,
    epoch_row,
    first_statements,
    next_row,
)
from coterie.deploy.account_statement import AccountStatement
from coterie.deploy.binding import Binding, RolledBack
from coterie.deploy.keeper import Keeper, keeper_folder, login
from coterie.deploy.sealing import Damaged
from coterie.deploy.storage import LedgerFailure, create_file, refuse_network
from coterie.errors import InputError
from coterie.privacy.codec import to_json
from coterie.privacy.events import Event, merge
from coterie.privacy.filter import Rule
from coterie.privacy.ledger import Budget, BudgetExceeded
from coterie.privacy.lifetime import Against, Lifetime, Unit

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


def unit_of(plan: Plan) -> Unit:
    """Whom a plan's events are priced for."""
    return "person" if plan.by_person else "record"


def agreement_key(plan_hash: str, party: str) -> str:
    """The key of what one party of an agreement draws: another one's records pay for themselves, on one account too."""
    return f"agreement {plan_hash} {party}"


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
        cls, path: str | os.PathLike[str], budget: Budget, *, data: object, name: str = "", unit: Unit = "record",
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
            InputError: the file exists, another account that is not closed is for the very same records, one that is
                closed has paid more for them than this one may, or a rule makes no sense.
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
        marks, identity, now = made.marks(data), secrets.token_hex(16), clock()
        found = Contents(AccountMeta.new(identity, name or made.path.stem, rules, now))
        rows = [epoch_row(found, marks, True, login(), now)]
        for who in dict.fromkeys([login(), *may]):
            rows.append(allow_row(found, checked_name(who), True, login(), now))
        with (
            Keeper(made.keeper).noting(made.path, marks, identity) as (ended, note),
            contextlib.closing(Binding(made.keeper / f"{identity}.account", words_of(made.path))) as binding,
        ):
            for old in ended:
                rows += _taken_over(found, old, made.path, now)
            note()
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
        return read_account(self.path, self.keeper)

    def marks(self, data: object) -> dict[str, str]:
        """Fingerprints of records, by what they are called."""
        if not isinstance(data, Mapping):
            data = {str(data) if isinstance(data, str | os.PathLike) else "records": data}
        if not data:
            raise InputError("data names no records")
        return {str(name): fingerprint(self.key(), one).hex() for name, one in data.items()}

    def check(
        self, events: Sequence[Event], *, key: str, by: Sequence[str], data: object = None, mark: bytes | None = None,
        unit: Unit = "record", settle: Sequence[Settled] = (), whose: bytes = b"",
    ) -> Draw | None:  # fmt: skip
        """Whether `charge` would be refused now, by its error; the draw, if it was made before. Nothing is written."""
        wanted = self._mark(data, mark)
        found = self.contents()
        if (draw := same_draw(found, key, events, self.path, by, wanted, unit, whose.hex())) is not None:
            return draw
        need_open(found, self.path, by, wanted, whose.hex())
        steps_of(found, key, events, unit, settle)
        return None

    # -- drawing ---------------------------------------------------------------------------------------------------

    def charge(
        self, events: Sequence[Event], *, what: str, kind: str = "other", key: str | None = None, data: object = None,
        mark: bytes | None = None, by: Sequence[str] = (), unit: Unit = "record", settle: Sequence[Settled] = (),
        people: object = None, whose: bytes = b"",
    ) -> Draw:  # fmt: skip
        """Draw what these events cost; when this returns, and not before, they may be released.

        Args:
            events: all that will be released.
            what, kind: words for people; "agreement", "fit", "statistic" or "other".
            key: what it is for; the same key is drawn once. Default: a new one.
            data: the records, as in `open`; or `mark`, their fingerprint, if it is known.
            by: names of who draws; one of them must be allowed to. Default: this user.
            unit: that the events are priced for.
            people: whose each record of `data` is: a column, or a list of names; or `whose`, its fingerprint
                (`coterie.data.fingerprint.grouping`). The first draw fixes it, one that says otherwise is refused.
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
        if people is not None:
            whose = grouping(self.key(), data, people)
        key = f"{kind} {secrets.token_hex(16)}" if key is None else key
        with self._open() as file:
            found = file.contents
            if (draw := same_draw(found, key, events, self.path, names, wanted, unit, whose.hex())) is not None:
                return draw
            need_open(found, self.path, names, wanted, whose.hex())
            planned, now, rows = steps_of(found, key, events, unit, settle), clock(), []
            for step in planned:
                body = {"cost": f"{step.cost.units:x}", "slack": f"{step.cost.slack:x}", "created": now,
                        "events": [to_json(event) for event in merge(step.events)]}  # fmt: skip
                if step.settles:
                    body["why"] = step.why
                    rows.append(next_row(found, "settle", step.key, body))
                    continue
                own = step.key == key
                body |= {"kind": kind if own else "agreement", "what": what if own else step.what, "by": names[0],
                         "unit": unit, "mark": wanted} | ({"whose": whose.hex()} if whose else {})  # fmt: skip
                rows.append(next_row(found, "draw", step.key, body))
                if not own:
                    ended = {name: body[name] for name in ("cost", "slack", "created", "events")}
                    rows.append(next_row(found, "settle", step.key, ended | {"why": step.why}))
            file.append(*rows)
            return found.draws[key]

    def pays(
        self, what: str, data: object, *, kind: str = "statistic", unit: Unit = "record", people: object = None
    ) -> Callable[..., None]:
        """A function that draws the events it is called with: a `charge` for what releases numbers of these records."""

        def draw(events: Sequence[Event], *_: float) -> None:
            self.charge(events, what=what, kind=kind, data=data, unit=unit, people=people)

        return draw

    def epoch(self, data: object, *, all_new: bool = False, by: str = "") -> Epoch:
        """Say that the records change. What was drawn stays drawn.

        Args:
            data: the records from now on, as in `open`.
            all_new: you state that nobody in them was in the data of any epoch before. Then they begin with nothing
                spent, and the earlier records are not drawn for any more: each has the budget for itself. Without it
                the account goes on: whoever was there before has paid, and newcomers are treated as if they had too.
                Nobody from before an epoch that was all new may come back later: what they paid is not counted there.
                The very same records are refused; whether some of them are in other tables is yours to know.
            by: who says so; default: this user.
        """
        marks = self.marks(data)
        with self._open() as file:
            found = file.contents
            need_keeper(found, self.path, by or login())
            before = {mark for epoch in found.epochs for mark in epoch.data.values()}
            if all_new and (both := [name for name, mark in marks.items() if mark in before]):
                raise InputError(f"{both[0]} is not new: the account knows these very records")
            gone = before - set(found.known)
            if back := [name for name, mark in marks.items() if mark in gone]:
                raise InputError(
                    f"{back[0]} was in the data before epoch {found.start}, whose records were stated to be all new: "
                    "it has spent a budget of its own, and does not come back"
                )
            with Keeper(self.keeper).noting(self.path, marks, found.meta.identity, before) as (ended, note):
                if all_new and ended:
                    raise InputError(
                        f"these records are not new: the closed account {ended[0].meta.name} is for some of them"
                    )
                rows = [epoch_row(found, marks, all_new, by or login(), clock())]
                for old in ended:
                    rows += _taken_over(found, old, self.path, clock())
                note()
                file.append(*rows)
            return found.epochs[-1]

    def allow(self, name: str, may: bool = True) -> None:
        """Let somebody draw from now on, or not any more."""
        checked_name(name)
        with self._open() as file:
            need_keeper(file.contents, self.path, login())
            file.append(allow_row(file.contents, name, may, login(), clock()))

    def close(self, why: str) -> None:
        """End the account for good: nothing is drawn any more. What was drawn may still be released."""
        with self._open() as file:
            need_keeper(file.contents, self.path, login())
            file.append(next_row(file.contents, "close", "", {"why": why, "by": login(), "created": clock()}))

    @contextlib.contextmanager
    def _open(self) -> Iterator[OpenAccount]:
        if not self.path.exists():
            raise InputError(f"no account at {self.path}: `coterie account open` makes one")
        with OpenAccount(self.path, self.keeper) as file:
            yield file

    def _mark(self, data: object, mark: bytes | None) -> str:
        if (data is None) == (mark is None):
            raise InputError("say which records are released: data, or mark, their fingerprint")
        return fingerprint(self.key(), data).hex() if mark is None else mark.hex()

    def key(self) -> bytes:
        """The key of fingerprints."""
        return Keeper(self.keeper).key()


def _taken_over(found: Contents, old: Contents, path: Path, now: str) -> list[DurableRow]:
    """Rows that draw here what a closed account has paid for the same records."""
    rows = []
    for draw, cost in taken_over(found, old, path):
        body = {"cost": f"{cost.units:x}", "slack": f"{cost.slack:x}", "created": now, "events": draw.written,
                "kind": draw.kind, "what": f"{draw.what}, by account {old.meta.name}, closed", "by": draw.by,
                "unit": draw.unit, "mark": draw.mark} | ({"whose": draw.whose} if draw.whose else {})  # fmt: skip
        rows.append(next_row(found, "draw", f"{old.meta.identity} {draw.key}", body))
    return rows
