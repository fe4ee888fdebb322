"""Somebody who draws on an account and then "releases": writes the draw's key to a pipe. Killed, starved, raced.

Run as a program it is one of several processes that want the same budget:

    python -m tests.deploy.account_worker race PATH KEEPER NAME COUNT     draws until it is refused; prints the keys
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

from coterie.deploy.accounts import DataAccount, RolledBack
from coterie.deploy.sealing import Damaged
from coterie.errors import InputError
from coterie.privacy.events import Gaussian
from coterie.privacy.ledger import Budget, BudgetExceeded
from coterie.privacy.lifetime import Lifetime

BUDGET = Budget(3.0, 1e-6)
EVENT = Gaussian(1.0, 16.0)
COST = Fraction(1, 256)  # of one event, Σ μ²
RECORDS = [[1.0, 2.0], [3.0, 4.0]]
MOST = int(Lifetime(BUDGET).limit.units // (COST * 2**96))  # draws that fit


def opened(folder: Path) -> DataAccount:
    """The account in a folder, made if it is not there."""
    account = DataAccount(folder / "c.account", folder / "keeper")
    if not account.path.exists():
        with contextlib.suppress(InputError):  # another process was faster
            return DataAccount.open(account.path, BUDGET, data=RECORDS, keeper=account.keeper)
    return account


def line(number: int, key: str) -> bytes:
    return f"{number} {hashlib.sha256(key.encode()).hexdigest()}\n".encode()


def draw(folder: Path, wire: int, stop: int, twin: str = "") -> None:
    """Draw up to number `stop`, each released after its draw; one that was drawn before is released again.

    Twins: "early" releases before it draws; "normal" does not sync what it writes; "ahead" notes a row in the binding
    before it is written.
    """
    account = opened(folder)
    if twin == "normal":
        _without_sync()
    if twin == "ahead":
        _note_first()
    for number in range(stop):
        key = f"draw {number}"
        if twin == "early":
            os.write(wire, line(number, key))
        try:
            account.charge([EVENT], what="a mean", key=key, data=RECORDS)
        except BudgetExceeded:
            return
        if twin != "early":
            os.write(wire, line(number, key))


def _note_first() -> None:
    from coterie.deploy.account_file import OpenAccount

    def append(self: Any, *rows: Any) -> None:
        self._binding.advance(rows[-1].number, rows[-1].hash)
        self._write(*(row.statement for row in rows))

    OpenAccount.append = append  # type: ignore[method-assign]


def _without_sync() -> None:
    from coterie.deploy import durable

    real = durable.connect

    def connect(*given: Any) -> Any:
        db = real(*given)
        db.execute("PRAGMA synchronous = OFF")
        return db

    durable.connect = connect  # type: ignore[assignment]
    os.fsync = os.fdatasync = lambda fd: None  # type: ignore[assignment]


def account_violations(folder: Path, heard: dict[int, set[str]], before: Fraction) -> tuple[list[str], Fraction]:
    """What is wrong after a fault: a release without its draw, a budget overspent, something forgotten."""
    account = DataAccount(folder / "c.account", folder / "keeper")
    if not account.path.exists():
        return (["released without an account"] if heard else []), Fraction(0)
    try:
        found = account.contents()
    except RolledBack as error:
        return [f"rolled back: {error}"], before
    except Damaged as error:
        return [f"refused: {error}"], before
    drawn = {hashlib.sha256(key.encode()).hexdigest() for key in found.draws}
    wrong = [f"release {n} is not in the account" for n, keys in heard.items() if not keys <= drawn]
    spent = Fraction(found.spent.units, 2**96)
    if spent != COST * len(found.draws) or found.spent.units > found.meta.limit.units:
        wrong.append(f"{spent} spent for {len(found.draws)} draws")
    if spent < before:
        wrong.append(f"{spent} spent after {before}")
    return wrong, spent


if __name__ == "__main__":
    path, keeper, name, count = Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4], int(sys.argv[5])
    account = DataAccount(path, keeper)
    sys.stdin.readline()  # all begin together
    for number in range(count):
        try:
            print(account.charge([EVENT], what=name, key=f"{name} {number}", data=RECORDS).key, flush=True)
        except BudgetExceeded:
            sys.exit(3)
