"""A data set's account on disk: drawn once, never beyond its budget, by several processes; copies are refused."""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.cli import main
from coterie.deploy import account_file, accounts, durable
from coterie.deploy.account_file import OpenAccount
from coterie.deploy.account_rows import DurableRow
from coterie.deploy.accounts import DataAccount, LedgerFailure, RolledBack, Settled, keeper_folder, login
from coterie.deploy.binding import Binding
from coterie.deploy.sealing import Damaged
from coterie.errors import InputError
from coterie.privacy import gdp
from coterie.privacy.events import Event, Free, Gaussian, Pure
from coterie.privacy.ledger import Budget, BudgetExceeded
from coterie.privacy.lifetime import DrawCost
from tests.deploy.account_worker import BUDGET, EVENT, MOST, RECORDS

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
DEAR = Gaussian(float(gdp.mu_for(2.9, 1e-6)), 1.0)  # nearly all of the budget


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        yield Path(name)


def make(folder: Path, **rules: Any) -> DataAccount:
    given = {"budget": BUDGET, "data": RECORDS, "keeper": folder / "keeper"} | rules
    return DataAccount.open(folder / "c.account", **given)


def pay(account: DataAccount, *events: Event, **options: Any) -> accounts.Draw:
    return account.charge(list(events) or [EVENT], what="a mean", **({"data": RECORDS} | options))


def crash(account: DataAccount, to: Path) -> DataAccount:
    """What a killed process would leave: it had locks on both, so the next one works on copies."""
    shutil.copytree(account.keeper, to / "keeper")
    for path in (account.path, Path(f"{account.path}-wal")):
        if path.exists():
            shutil.copy(path, to / path.name)
    return DataAccount(to / account.path.name, to / "keeper")


# ---- drawing ---------------------------------------------------------------------------------------------------------


def test_what_is_drawn_comes_back(folder: Path) -> None:
    account = make(folder, name="clinic", may=["harbour"])
    first = pay(account, Gaussian(1.0, 10.0), Free(), by=["harbour"], kind="statistic")
    pay(account, Pure(0.1), key="mine")
    found = account.statement()
    assert (found.name, found.closed, found.holders) == ("clinic", None, (login(), "harbour"))
    assert [d.by for d in found.draws] == ["harbour", login()]
    assert found.draws[0] == first
    assert [(e.sensitivity, e.sigma, e.times) for e in first.events] == [(1.0, 10.0, 1)]
    assert first.epsilon == pytest.approx(float(gdp.epsilon_of(0.1, 1e-6)), rel=1e-9)
    mu = np.sqrt(0.01 + float(gdp.mu_of_pure(0.1)) ** 2)
    assert found.spent == pytest.approx(float(gdp.epsilon_of(mu, 1e-6)), rel=1e-9)
    assert "spent ε" in str(found)
    again = json.loads(json.dumps(found.as_json()))
    assert again["spent"] == found.spent
    assert [d["what"] for d in again["draws"]] == ["a mean"] * 2
    assert not Path(f"{account.path}-wal").exists() or not os.path.getsize(f"{account.path}-wal")


def test_the_same_key_is_drawn_once(folder: Path) -> None:
    account = make(folder)
    one = pay(account, key="agreement 1")
    assert pay(account, key="agreement 1") == one
    assert pay(account, Gaussian(1.0 * (1 + 1e-12), 16.0), key="agreement 1") == one  # computed anew, another rounding
    assert len(account.statement().draws) == 1
    with pytest.raises(InputError, match="was drawn for other events"):
        pay(account, Gaussian(1.0, 15.0), key="agreement 1")
    with pytest.raises(InputError, match="was drawn for other events"):  # nor for more of them
        pay(account, EVENT, EVENT, key="agreement 1")


def test_a_draw_pays_only_for_what_it_was_made_for(folder: Path) -> None:
    """Its key alone opens nothing: not for other records, known or not, another name, another unit."""
    other = [[5.0, 6.0]]
    account = make(folder, data={"a": RECORDS, "b": other}, unit="person", most=2, may=["harbour", "hill"])
    one = pay(account, key="k", unit="person", by=["harbour", "its key"])
    again: dict[str, Any] = {"key": "k", "unit": "person", "by": ["harbour", "its new key"]}
    assert pay(account, **again) == one
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"data": other}, "was drawn for other records"),
        ({"data": [[7.0, 8.0]]}, "was drawn for other records"),
        ({"by": ["hill"]}, "was drawn by harbour, not by hill"),
        ({"unit": "record"}, "was drawn for each person, not for each record"),
    ]
    for change, reason in wrong:
        with pytest.raises(InputError, match=reason):
            pay(account, **again | change)
        checked = {"data": RECORDS} | again | change
        with pytest.raises(InputError, match=reason):
            account.check([EVENT], **checked)
    account.epoch([[9.0, 9.0]], all_new=True)
    for records in (RECORDS, [[9.0, 9.0]]):
        with pytest.raises(InputError, match=r"was drawn (for other records|in epoch 0)"):
            pay(account, **again | {"data": records})
    assert len(account.statement().draws) == 1


def test_out_of_budget_is_one_line_and_changes_nothing(folder: Path) -> None:
    account = make(folder)
    pay(account, DEAR)
    before = account.path.read_bytes()
    with pytest.raises(BudgetExceeded, match=r"out of budget: the draw costs ε .* a draw of at most .* fits") as error:
        pay(account, DEAR)
    assert "\n" not in str(error.value)
    assert account.path.read_bytes() == before
    left = account.statement().left
    assert pay(account, Gaussian(float(gdp.mu_for(0.999 * left, 1e-6)), 1.0)).epsilon < left  # a smaller one still fits
    assert account.statement().spent <= BUDGET.epsilon


def test_the_database_refuses_too(folder: Path) -> None:
    """A row that no check of ours has looked at: beyond the budget, less than before, or out of its order."""
    account = make(folder)
    pay(account)
    with OpenAccount(account.path, account.keeper) as file:
        found = file.contents
        limit = found.meta.limit
        rows = {
            "over the budget": DurableRow.after(found, "draw", "x", {}, DrawCost(limit.units + 1)),
            "what is spent falls": DurableRow.after(found, "draw", "x", {}, DrawCost()),
            "not the next row": DurableRow.after(found, "draw", "x", {}, limit)._replace(number=9),
            "UNIQUE": DurableRow.after(found, "draw", next(iter(found.draws)), {}, limit),
        }
        fine = DurableRow.after(found, "draw", "x", {}, DrawCost(limit.units))
        for reason, row in rows.items():
            with pytest.raises(sqlite3.IntegrityError, match=reason):
                file._db.execute(*row.statement)
        file._db.execute("BEGIN")
        file._db.execute(*fine.statement)  # the twin: what fits is taken
        file._db.execute("ROLLBACK")
        for sql in ("DELETE FROM entry", "UPDATE entry SET total = '0'", "UPDATE rules SET allowed = 'ff'"):
            with pytest.raises(sqlite3.IntegrityError, match="for ever"):
                file._db.execute(sql)


@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(st.floats(0.01, 0.5), st.integers(0, 6)), max_size=12))
def test_any_sequence_of_draws_on_disk(draws: list[tuple[float, int]]) -> None:
    """Against a model of two lines: a key counts once, and a draw is taken if and only if it fits."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        account, paid = make(Path(name)), dict[int, float]()
        limit = float(gdp.mu_for(3.0, 0.99e-6)) ** 2
        for mu, key in draws:
            fits = key in paid or sum(m**2 for m in paid.values()) + mu**2 <= limit
            if key in paid:
                mu = paid[key]
            try:
                pay(account, Gaussian(mu, 1.0), key=str(key))
            except BudgetExceeded:
                assert not fits
            else:
                assert fits
                paid[key] = mu
        found = account.statement()
        assert len(found.draws) == len(paid)
        total = sum(m**2 for m in paid.values()) ** 0.5
        assert found.spent == pytest.approx(float(gdp.epsilon_of(total, 1e-6)) if paid else 0.0, rel=1e-9)


def test_two_processes_race_for_the_last_of_the_budget(folder: Path) -> None:
    """Four begin with room for three more draws: three are made, and every process but those is refused."""
    account = make(folder)
    pay(account, *[EVENT] * (MOST - 3))
    command = [sys.executable, "-m", "tests.deploy.account_worker", "race", str(account.path), str(account.keeper)]
    racers = [
        subprocess.Popen([*command, f"racer{i}", "5"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for i in range(4)
    ]
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    said = [racer.communicate(timeout=120)[0].split("\n") for racer in racers]
    assert [racer.returncode for racer in racers] == [3] * 4
    drawn = [key for lines in said for key in lines if key]
    assert len(drawn) == 3
    assert {d.key for d in account.statement().draws} >= set(drawn)
    assert len(account.statement().draws) == 4


# ---- who, and which records ------------------------------------------------------------------------------------------


def test_who_may_draw(folder: Path) -> None:
    account = make(folder, may=["harbour"])
    assert account.statement().holders == (login(), "harbour")
    pay(account)
    pay(account, by=["key of hill", "harbour"])
    with pytest.raises(InputError, match=f"hill may not draw; {login()}, harbour may"):
        pay(account, by=["hill"])
    account.allow("hill")
    pay(account, by=["hill"])
    account.allow("hill", False)
    with pytest.raises(InputError, match="hill may not draw"):
        pay(account, by=["hill"])
    account.allow(login(), False)
    with pytest.raises(InputError, match=f"{login()} may not draw; harbour may"):
        pay(account)
    with pytest.raises(InputError, match=f"is kept by {login()}, not by mallory"):
        account.epoch(RECORDS, by="mallory")
    account.allow(login())  # who opened it keeps it


def test_other_records_are_refused_and_the_file_tells_nothing_of_them(folder: Path) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(30, 3))
    account = make(folder, data={"patients": x})
    pay(account, data=x)
    pay(account, data=x[::-1])
    with pytest.raises(InputError, match=r"is for other records \(patients\): if they have changed"):
        pay(account, data=np.where(x == x[4, 1], 0.0, x))
    content = account.path.read_bytes()
    assert not any(row.tobytes()[:8] in content for row in x)
    key = (account.keeper / "fingerprint.key").read_bytes()
    assert key not in content
    assert stat.S_IMODE((account.keeper / "fingerprint.key").stat().st_mode) == 0o600
    (account.keeper / "fingerprint.key").chmod(0o644)
    with pytest.raises(InputError, match="can be read by others"):
        pay(account, data=x)


def test_a_new_epoch_does_not_refill(folder: Path) -> None:
    x = np.arange(12.0).reshape(6, 2)
    account = make(folder, data=x)
    pay(account, DEAR, data=x)
    spent = account.statement().spent
    grown = np.vstack([x, [[9.0, 9.0]]])
    with pytest.raises(InputError, match="is for other records"):
        pay(account, data=grown)
    account.epoch(grown)
    assert account.statement().spent == spent
    with pytest.raises(BudgetExceeded):
        pay(account, DEAR, data=grown)
    pay(account, data=x)  # the records of before are among those that the account pays for
    assert account.statement().spent > spent


def test_records_that_are_all_new_have_a_budget_of_their_own(folder: Path) -> None:
    x, new = np.arange(12.0).reshape(6, 2), np.arange(100.0, 112.0).reshape(6, 2)
    account = make(folder, data=x)
    pay(account, DEAR, data=x, key="old")
    with pytest.raises(InputError, match="is not new: the account knows these very records"):
        account.epoch({"again": x}, all_new=True)
    made = account.epoch(new, all_new=True, by=login())
    assert (made.number, made.all_new, made.by) == (1, True, login())
    assert account.statement().spent == 0.0
    with pytest.raises(InputError, match="is for other records"):  # the old ones have had theirs
        pay(account, data=x)
    assert pay(account, DEAR, data=new).epoch == 1
    with pytest.raises(
        InputError, match="was drawn in epoch 0, whose records are not drawn for any more since epoch 1"
    ):
        pay(account, DEAR, data=x, key="old")
    account.epoch(np.vstack([new, [[7.0, 7.0]]]))
    with pytest.raises(BudgetExceeded):
        pay(account, DEAR, data=new)


def test_records_of_before_an_epoch_of_new_ones_do_not_come_back(folder: Path) -> None:
    """They would have the new ones' budget beside the one that they have spent."""
    x, new = np.arange(12.0).reshape(6, 2), np.arange(100.0, 112.0).reshape(6, 2)
    account = make(folder, data=x)
    account.epoch({"x": x, "more": x + 50})  # the twin: what the account goes on from may be named again
    pay(account, DEAR, data=x)
    account.epoch(new, all_new=True)
    for data in ({"again": x, "new": new}, {"new": new, "again": x + 50}):
        with pytest.raises(InputError, match="again was in the data before epoch 2, whose records were stated to be"):
            account.epoch(data)
    with pytest.raises(InputError, match="is for other records"):
        pay(account, DEAR, data=x)
    account.epoch({"new": new, "more": new + 50})


def test_a_closed_account_pays_nothing_more(folder: Path) -> None:
    account = make(folder)
    pay(account, key="a")
    account.close("the study is over")
    for attempt in (pay, lambda a: a.epoch(RECORDS), lambda a: a.allow("x"), lambda a: a.close("again")):
        with pytest.raises(InputError, match="closed for good: the study is over"):
            attempt(account)
    assert pay(account, key="a").key == "a"  # paid before: it may go on
    assert account.statement().closed == "the study is over"


# ---- an agreement that ended -----------------------------------------------------------------------------------------


def test_what_an_ended_draw_left_over_is_free_again(folder: Path) -> None:
    account = make(folder)
    pay(account, *[EVENT] * MOST, key="agreement a")
    with pytest.raises(BudgetExceeded):
        pay(account, key="agreement b")
    ended = Settled("agreement a", [EVENT] * 10, "agreement a", "agreement b follows")
    pay(account, *[EVENT] * (MOST - 10), key="agreement b", settle=[ended])
    found = account.statement()
    assert [(d.events[0].times, d.settled) for d in found.draws] == [(10, "agreement b follows"), (MOST - 10, None)]
    with pytest.raises(BudgetExceeded):
        pay(account)
    with pytest.raises(InputError, match=r"has ended for good \(agreement b follows\)"):
        pay(account, key="agreement a")
    assert pay(account, *[EVENT] * (MOST - 10), key="agreement b", settle=[ended]).key == "agreement b"  # a restart
    assert account.statement() == found


def test_an_ended_draw_is_never_settled_for_more_or_twice(folder: Path) -> None:
    account = make(folder)
    pay(account, *[EVENT] * 10, key="a")
    pay(account, key="b", settle=[Settled("a", [EVENT] * 50, "a", "b follows")])  # the ledger cannot have sent more
    assert account.contents().draws["a"].cost.units == 10 * 2**96 // 256
    before = account.contents().spent
    pay(account, key="c", settle=[Settled("a", [EVENT], "a", "c follows")])
    assert account.contents().draws["a"].settled == "b follows"
    assert account.contents().spent.units == before.units + 2**96 // 256


def test_what_was_released_before_there_was_an_account_is_drawn(folder: Path) -> None:
    account = make(folder)
    old = Settled("agreement a", [EVENT] * 20, "agreement a", "agreement b follows")
    with pytest.raises(BudgetExceeded):
        pay(account, *[EVENT] * (MOST - 19), key="agreement b", settle=[old])
    assert account.statement().draws == ()
    pay(account, *[EVENT] * (MOST - 20), key="agreement b", settle=[old])
    assert [(d.key, d.events[0].times, d.settled) for d in account.statement().draws] == [
        ("agreement a", 20, "agreement b follows"), ("agreement b", MOST - 20, None)
    ]  # fmt: skip


# ---- copies, backups, damage -----------------------------------------------------------------------------------------


def test_an_account_put_back_from_a_backup_is_refused(folder: Path) -> None:
    account = make(folder)
    pay(account)
    backup = account.path.read_bytes()
    pay(account)
    latest = account.path.read_bytes()
    account.path.write_bytes(backup)
    for attempt in (account.statement, lambda: pay(account)):
        with pytest.raises(RolledBack, match=r"ends at row 2, but row 3 was written: it was restored from an old copy"):
            attempt()
    account.path.write_bytes(latest)
    pay(account)


def test_two_copies_cannot_both_be_drawn_on(folder: Path) -> None:
    account = make(folder)
    pay(account)
    (folder / "copy").mkdir()
    shutil.copy(account.path, folder / "copy")
    copy = DataAccount(folder / "copy" / "c.account", account.keeper)
    pay(copy)
    pay(copy)
    with pytest.raises(RolledBack):
        pay(account)
    pay(account.__class__(copy.path, account.keeper))  # the one that goes on


def test_a_link_to_an_account_is_the_account(folder: Path) -> None:
    """SQLite names the log after the file itself: looked for beside the link, it would be lost, and its draw too."""
    account = make(folder)
    (folder / "links").mkdir()
    (folder / "links" / "l.account").symlink_to(account.path)
    link = DataAccount(folder / "links" / "l.account", account.keeper)
    for count in (1, 3):
        pay(link)
        assert len(account.statement().draws) == len(link.statement().draws) == count
        pay(account)
    assert [path.name for path in (folder / "links").iterdir()] == ["l.account"]


def test_another_machine_does_not_know_it(folder: Path) -> None:
    account = make(folder)
    elsewhere = DataAccount(account.path, folder / "another machine")
    with pytest.raises(InputError, match="was opened on another machine or by another user"):
        elsewhere.statement()
    with pytest.raises(InputError, match="was opened on another machine or by another user"):
        pay(elsewhere)
    moved = shutil.copytree(account.keeper, folder / "moved")
    pay(DataAccount(account.path, moved))  # a move of both is a move; that the old one stays is not noticed here


def test_without_the_binding_a_backup_would_pass(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken twin: the check of the mark is what refuses."""
    account = make(folder)
    backup = account.path.read_bytes()
    pay(account)
    account.path.write_bytes(backup)
    monkeypatch.setattr(Binding, "check", lambda *_: None)
    monkeypatch.setattr(account_file, "refuse_old", lambda *_: None)
    assert len(account.statement().draws) == 0
    pay(account)


def test_any_flipped_bit_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    account = make(folder)
    pay(account)
    whole, rng = account.path.read_bytes(), random.Random(0)
    bits = [*range(0, 800, 3), *(rng.randrange(len(whole) * 8) for _ in range(300))]

    def accepted() -> list[int]:
        out = []
        for bit in bits:
            data = bytearray(whole)
            data[bit // 8] ^= 1 << bit % 8
            account.path.write_bytes(data)
            try:
                with OpenAccount(account.path, account.keeper):
                    out.append(bit)
            except InputError:
                continue
        return out

    assert accepted() == []
    monkeypatch.setattr(durable, "intact", lambda fd, log: durable.scan_log(b"") and None)  # twin: without the seal
    monkeypatch.setattr(durable.DurableFile, "close", lambda self: None)
    bits = [8 * (whole.index(bytes(200)) + 50)]
    assert accepted() == bits


def test_a_total_that_is_not_the_sum_is_refused(folder: Path) -> None:
    """Rows rewritten with matching hashes, by somebody who knows the format: prices must still add up."""
    account = make(folder)
    pay(account)
    db = sqlite3.connect(account.path)
    db.execute("DROP TRIGGER keep_fields")
    db.commit()
    db.close()
    with pytest.raises(Damaged):
        account.statement()


def test_a_draw_that_cannot_be_written_is_refused_by_all_later_calls(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = make(folder)

    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    pay(account)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(LedgerFailure, match=r"account .* cannot be written"):
            pay(account, key="a")
    copy = crash(account, folder / "copy")  # the row is there, its mark is not: the next process goes on
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(LedgerFailure, match="cannot be opened"):
            pay(copy, key="a")
    last = crash(copy, folder / "last")
    assert pay(last, key="a").key == "a"
    assert len(last.statement().draws) == 2


def test_opening_is_once_and_all_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    account = make(folder)
    with pytest.raises(InputError, match="exists: an account is opened once"):
        make(folder)
    assert stat.S_IMODE(account.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(account.keeper.stat().st_mode) == 0o700

    def cut(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(accounts, "create_file", cut)
        with pytest.raises(KeyboardInterrupt):
            DataAccount.open(folder / "d.account", BUDGET, data=[[8.0, 8.0]], keeper=account.keeper)
    DataAccount.open(folder / "d.account", BUDGET, data=[[8.0, 8.0]], keeper=account.keeper)


def test_the_very_same_records_have_one_account(folder: Path) -> None:
    account, other, new = make(folder), [[5.0, 6.0]], [[7.0, 8.0]]

    def second(data: Any, name: str = "d") -> DataAccount:
        return DataAccount.open(folder / f"{name}.account", BUDGET, data=data, keeper=account.keeper)

    reason = "c.account is for these very records; a second one would spend their budget twice"
    with pytest.raises(InputError, match=reason):
        second({"other": other, "again": RECORDS[::-1]})
    assert not (folder / "d.account").exists()
    another = second(other)  # the twin: other records
    with pytest.raises(InputError, match=reason):
        another.epoch({"more": RECORDS})
    assert len(another.statement().epochs) == 1
    account.epoch(new)
    with pytest.raises(InputError, match=reason):
        second(new, "e")
    account.path.rename(folder / "moved")
    with pytest.raises(InputError, match=reason):  # not where it was: it can still be drawn on
        second(RECORDS, "e")
    moved = DataAccount(folder / "moved", account.keeper)
    pay(moved)
    moved.path.rename(account.path)
    account.close("the study is over")
    pay(second(RECORDS, "e"))


def test_closing_refills_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another account for the very same records begins with all that the closed one has paid, and names it."""
    account = make(folder, name="first")
    pay(account, key="a")
    pay(account, Pure(0.1), key="b")
    spent = account.contents().spent
    account.close("a fresh start")

    def again(name: str, budget: Budget = BUDGET, **rules: Any) -> DataAccount:
        data = {"permuted": RECORDS[::-1]}
        return DataAccount.open(folder / name, budget, data=data, keeper=account.keeper, **rules)

    with pytest.raises(InputError, match=r"closed account first has paid .* a mean: out of budget") as error:
        again("small", Budget(0.1, 1e-6))
    assert "\n" not in str(error.value)
    for rules, reason in (
        ({"unit": "person"}, "priced per record, and the account is for people"),
        ({"adjacency": "add-remove"}, "they do not add"),
        ({"against": "everybody"}, "the closed account first, of the same records, did not"),
    ):
        with pytest.raises(InputError, match=reason):
            again("other", **rules)
    with monkeypatch.context() as patch:  # a crash after the note was written, and before there is an account
        patch.setattr(accounts, "create_file", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            again("cut")
    second = again("second")
    assert second.contents().spent == spent
    assert [d.what for d in second.statement().draws] == ["a mean, by account first, closed"] * 2
    pay(second, key="a")  # the same name pays for what is new
    more = second.contents().spent
    second.close("once more")
    assert again("third").contents().spent == more


def test_records_of_a_closed_account_bring_what_they_have_paid(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    account = make(folder, name="first")
    pay(account)
    spent = account.contents().spent
    account.close("a fresh start")
    second = DataAccount.open(folder / "second", BUDGET, data=[[8.0, 8.0]], keeper=account.keeper)
    with pytest.raises(InputError, match="not new: the closed account first is for some of them"):
        second.epoch({"old": RECORDS}, all_new=True)
    with monkeypatch.context() as patch:  # a crash between note and row: it is taken over the next time
        patch.setattr(OpenAccount, "append", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            second.epoch({"old": RECORDS})
    assert second.contents().spent.units == 0
    second.epoch({"old": RECORDS})
    assert second.contents().spent == spent
    second.epoch({"old": RECORDS})  # and not twice
    assert second.contents().spent == spent


def test_whose_records_are_whose_does_not_change(folder: Path) -> None:
    account = make(folder, unit="person")
    pay(account, unit="person", people=["ann", "bob"], key="a")
    pay(account, unit="person", data=RECORDS[::-1], people=[1, 2])  # other names, another order: the same people
    pay(account, unit="person")  # not said
    for options in ({}, {"key": "a"}):
        with pytest.raises(InputError, match="the same records being other people's"):
            pay(account, unit="person", people=["ann", "ann"], **options)
    with pytest.raises(InputError, match="people must name the person of each of 2 records, got 1"):
        pay(account, unit="person", people=["ann"])
    with pytest.raises(InputError, match="no column 'patient'"):
        pay(account, unit="person", people="patient")
    account.close("over")
    other = DataAccount.open(folder / "d", BUDGET, data=RECORDS, keeper=account.keeper, unit="person")
    with pytest.raises(InputError, match="the same records being other people's"):
        pay(other, unit="person", people=["ann", "ann"])


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        ({"budget": (3.0, 1e-6)}, r"a budget is Budget\(epsilon, delta\)"),
        ({"budget": Budget(0.0, 1e-6)}, "epsilon must be > 0"),
        ({"unit": "patient"}, "unit must be one of record, person, got 'patient'"),
        ({"measure": "zcdp"}, "measure must be one of"),
        ({"may": "harbour"}, "may is a list of names, got 'harbour'"),
        ({"may": [" "]}, "text of one line, got ' '"),
        ({"data": {}}, "data names no records"),
        ({"data": np.zeros((0, 2))}, "no records"),
    ],
)
def test_mistakes_in_opening_are_one_line_and_leave_nothing(folder: Path, rules: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason) as error:
        make(folder, **rules)
    assert "\n" not in str(error.value)
    assert not (folder / "c.account").exists()


# ---- the commands ----------------------------------------------------------------------------------------------------


@pytest.fixture
def shell(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.setenv("COTERIE_ACCOUNTS", str(folder / "keeper"))
    monkeypatch.chdir(folder)
    Path("patients.csv").write_text("age,y\n31,1\n40,0\n")
    Path("grown.csv").write_text("age,y\n31,1\n40,0\n50,1\n")
    Path("others.csv").write_text("age,y\n71,1\n80,0\n")

    def run(*words: str, code: int = 0) -> str:
        assert main(["account", *words]) == code, capsys.readouterr()
        said = capsys.readouterr()
        return said.out if code == 0 else said.err

    return run


def test_the_life_of_an_account(shell: Any) -> None:
    assert keeper_folder() == Path.cwd() / "keeper"
    said = shell("open", "c.account", "--data", "patients.csv", "--epsilon", "3", "--delta", "1e-6", "--name", "clinic")
    assert "account of clinic" in said
    assert "back up" in said
    said = shell("charge", "c.account", "--what", "mean age", "--data", "patients.csv", "--mu", "0.2", "--key", "age")
    assert "drawn: ε 0.8341 for mean age" in said
    shell("charge", "c.account", "--what", "mean age", "--data", "patients.csv", "--mu", "0.2", "--key", "age")
    block = json.loads(shell("show", "c.account", "--json"))
    assert (block["spent"], len(block["draws"])) == (pytest.approx(0.8341, abs=1e-4), 1)
    refused = shell("charge", "c.account", "--what", "x", "--data", "patients.csv", "--mu", "2", code=3)
    assert refused.startswith("error: out of budget: ")
    assert refused.count("\n") == 1
    assert "other records" in shell("charge", "c.account", "--what", "x", "--data", "grown.csv", "--mu", "1", code=2)
    assert "goes on" in shell("epoch", "c.account", "--data", "grown.csv")
    shell("charge", "c.account", "--what", "again", "--data", "grown.csv", "--epsilon", "0.1")
    assert "with nothing spent" in shell("epoch", "c.account", "--data", "others.csv", "--all-new")
    assert "harbour" in shell("allow", "c.account", "harbour")
    shown = shell("show", "c.account")
    for words in ("epoch 1", "all new as stated", "mean age", "may draw:", "μ² adds", "spent ε 0 of 3"):
        assert words in shown
    assert "closed: done" in shell("close", "c.account", "--why", "done")
    assert "closed for good: done" in shell(
        "charge", "c.account", "--what", "x", "--data", "others.csv", "--mu", "1", code=2
    )


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["show", "none.account"], "none.account: No such file"),
        (["show", "patients.csv"], "patients.csv: cannot be read"),
        (["charge", "none.account", "--what", "x", "--data", "patients.csv", "--mu", "1"], "`coterie account open`"),
        (["charge", "c", "--what", "x", "--data", "p"], "by one of --mu, --epsilon"),
        (["charge", "c", "--what", "x", "--data", "p", "--mu", "1", "--epsilon", "1"], "by one of"),
        (["charge", "c", "--what", "x", "--data", "p", "--mu", "1", "--delta", "0.1"], "--delta 0.1 goes with"),
        (["charge", "c", "--what", "x", "--data", "p", "--mu", "-1"], "--mu must be > 0, got -1"),
        (["open", "c", "--data", "nowhere.csv", "--epsilon", "1", "--delta", "1e-6"], "nowhere.csv is no file"),
        (["open", "c", "--data", "patients.csv", "--epsilon", "-1", "--delta", "1e-6"], "epsilon must be > 0"),
    ],
)
def test_mistakes_of_the_commands_are_one_line(shell: Any, words: list[str], reason: str) -> None:
    said = shell(*words, code=2)
    assert reason in said
    assert said.startswith("error: ")
    assert said.count("\n") == 1


def test_what_a_plan_costs_is_still_there(shell: Any) -> None:
    """`coterie account PLAN` beside `coterie account open`."""
    assert "noise multiplier" in shell("--set", "run.rounds=3")
    assert shell("plan", "--set", "run.rounds=3") == shell("--set", "run.rounds=3")
    assert "opne" in shell("opne", code=2)
