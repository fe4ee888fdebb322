"""The rows of a secret sum in a durable ledger: written with the charge or not at all, once where once is promised."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.deploy.kept import LedgerStore, read_key, read_value, sent_again, write_key, write_value
from coterie.deploy.ledger import DurableLedger, LedgerFailure, read
from coterie.deploy.records import Rows
from coterie.deploy.sealing import Damaged
from coterie.privacy.events import Event, Free, Gaussian
from coterie.privacy.ledger import Budget, BudgetExceeded
from coterie.sums.messages import Step, SumFrame
from coterie.sums.secrets import SlotSecrets
from coterie.sums.store import Charge
from tests.sums.world import Killed, World, terms_of

ROUNDS = 3
PAID = Gaussian(1.0, 20.0)


def open_ledger(path: Path, most: int = 5, rounds: int = ROUNDS) -> DurableLedger:
    return DurableLedger(
        path, budget=Budget(9.0, 1e-5), plan_hash=bytes(32), agent="ada", plan=[PAID] * rounds, create=True, most=most
    )


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[DurableLedger]:
    with open_ledger(tmp_path / "ledger.db") as made:
        yield made


def price(charge: Charge) -> list[Event]:
    return [PAID] if charge.main else [Free()]


def store_of(ledger: DurableLedger, again: int = 10) -> LedgerStore:
    return LedgerStore(ledger, price, lambda: [memoryview(b"state")], again)


frames = st.builds(
    SumFrame, st.binary(min_size=32, max_size=32), st.sampled_from(Step), st.integers(0, 99), st.integers(0, 2**32 - 1),
    st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.binary(max_size=40), st.binary(min_size=64, max_size=64),
)  # fmt: skip
secret = st.binary(min_size=16, max_size=16)
plain = st.one_of(
    st.booleans(), st.integers(-(2**62), 2**62), st.binary(max_size=40), frames, st.builds(SlotSecrets, secret, secret)
)
values = st.one_of(plain, st.lists(st.one_of(plain, st.lists(plain, max_size=3).map(tuple)), max_size=4).map(tuple))
words = st.text(st.sampled_from("abcdef0123456789"), max_size=8)
keys = st.lists(st.one_of(st.integers(0, 2**32), words), max_size=4)


@given(values)
def test_a_value_is_read_as_it_was_written(value: object) -> None:
    again = read_value(write_value(value))
    assert again == value
    assert type(again) is type(value)


@given(st.sampled_from(["own", "held count"]), keys)
def test_a_key_is_read_as_it_was_written(kind: str, rest: list[str | int]) -> None:
    name, text = write_key((kind, *rest))
    assert read_key(name, text) == (kind, *rest)


@pytest.mark.parametrize("data", [b"", b"X", b"I123", b"Fshort", b"S" + bytes(31)])
def test_bytes_that_are_no_value_are_damage(data: bytes) -> None:
    with pytest.raises(Damaged):
        read_value(data)


def commit_frame(round_: int, slot: int) -> dict[tuple[str | int, ...], object]:
    frame = SumFrame(bytes(32), Step.COMMIT, 0, round_, 0, slot, b"body", bytes(64))
    return {("own", int(Step.COMMIT), round_, 0, slot): frame}


def test_a_charge_and_its_rows_are_one_transaction(ledger: DurableLedger) -> None:
    store = store_of(ledger)
    store.commit({("words", 7): b"y", **commit_frame(0, 7)}, charge=Charge(0, 7, main=True))
    assert ledger.last == 0
    assert ledger.entries[0].event == PAID
    ledger._write = broken(ledger._write)  # type: ignore[method-assign]
    with pytest.raises(LedgerFailure):
        store.commit({("words", 8): b"z", **commit_frame(1, 8)}, charge=Charge(1, 8, main=True))
    again = read(ledger.path)
    assert len(again.rows) == 1
    with pytest.raises(LedgerFailure):
        ledger.kept("words", "8")


def broken(write: Callable[..., None]) -> Callable[..., None]:
    """The last statement of a transaction fails."""
    return lambda *statements: write(*statements[:-1], ("INSERT INTO nowhere VALUES (1)", ()))


def test_what_is_written_once_cannot_change_even_by_hand(tmp_path: Path) -> None:
    with open_ledger(tmp_path / "a.db") as ledger:
        store = store_of(ledger)
        store.commit({("words", 7): b"y", ("at",): 1})
        store.commit({("words", 7): b"y", ("at",): 2})  # the same again, and a key that may change
        with pytest.raises(LedgerFailure, match="written once"):
            store.commit({("words", 7): b"other", ("at",): 3})
    with open_ledger(tmp_path / "b.db") as ledger:
        ledger.keep(Rows([("words", "7", True, b"By")]))
        with pytest.raises(LedgerFailure, match="written whole"):
            ledger._write(("UPDATE kept SET value = ?", (b"Bz",)))


def test_more_masked_vectors_than_the_plan_allows_stop_the_ledger_for_good(tmp_path: Path) -> None:
    with open_ledger(tmp_path / "ledger.db", most=4) as ledger:
        store = store_of(ledger)
        for slot in range(4):
            store.commit(commit_frame(slot // 2, slot), charge=Charge(slot // 2, slot, main=slot % 2 == 0))
        assert [type(e.event) for e in ledger.entries] == [Gaussian, Free, Gaussian, Free]
        with pytest.raises(BudgetExceeded, match="all 4 masked vectors"):
            store.commit(commit_frame(2, 9), charge=Charge(2, 9, main=True))
        assert store.get(("own", int(Step.COMMIT), 2, 0, 9)) is None
        assert ledger.closed is not None


def test_vectors_beyond_one_per_round_are_counted_whatever_rounds_were_missed(tmp_path: Path) -> None:
    """A round that was missed leaves room in the ledger, and none for a vector that is sent again."""
    with open_ledger(tmp_path / "ledger.db", most=ROUNDS + 1) as ledger:
        store = store_of(ledger, again=1)
        for slot, main in ((0, True), (1, False)):
            store.commit(commit_frame(0, slot), charge=Charge(0, slot, main=main))
        assert sent_again(ledger) == 1
    with open_ledger(tmp_path / "ledger.db", most=ROUNDS + 1) as ledger:
        store = store_of(ledger, again=1)  # started again: it knows what left
        store.commit(commit_frame(2, 2), charge=Charge(2, 2, main=True))
        with pytest.raises(BudgetExceeded, match="round 2: all vectors beyond one per round"):
            store.commit(commit_frame(2, 3), charge=Charge(2, 3, main=False))
        assert ledger.closed is not None
        assert ledger.last == 2
        assert sent_again(ledger) == 1


def test_an_erased_secret_is_nowhere_in_the_file(tmp_path: Path) -> None:
    """Erased rows leave neither the database nor, once it is folded in, the log. Twin: one that was not erased."""
    path = tmp_path / "ledger.db"
    one, two = SlotSecrets(b"A" * 16, b"B" * 16), SlotSecrets(b"C" * 16, b"D" * 16)
    with open_ledger(path) as ledger:
        store = store_of(ledger)
        store.commit({("secret", 1): one, ("secret", 2): two})
        ledger.seal()
        store.commit({("at",): 1}, erase=[("secret", 1)])
    found = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"A" * 16 not in found
    assert b"C" * 16 in found


class Killing:
    """A store on a ledger that kills its party before or after its k-th transaction."""

    def __init__(self, inner: LedgerStore) -> None:
        self.inner, self.commits, self.charges = inner, 0, list[Charge]()
        self.fuse: tuple[int, str] | None = None
        self.get, self.keys = inner.get, inner.keys

    def commit(self, puts, erase=(), charge=None) -> None:  # type: ignore[no-untyped-def]
        due = self.fuse is not None and self.commits + 1 == self.fuse[0]
        if due and self.fuse == (self.commits + 1, "before"):
            self.fuse = None
            raise Killed
        self.inner.commit(puts, erase, charge)
        self.commits += 1
        self.charges += [charge] if charge else []
        if due:
            self.fuse = None
            raise Killed


def test_parties_on_ledgers_sum_as_those_in_memory_do_and_come_back_from_their_files(tmp_path: Path) -> None:
    """Five parties on files, one of which dies at a transaction and comes back on what its file holds."""
    terms = terms_of(5, 1, rounds=2)
    for death, moment in ((3, "after"), (14, "before"), (20, "after")):
        folder = tmp_path / f"{death}{moment}"
        folder.mkdir()
        ledgers = [open_ledger(folder / f"{i}.db", 12) for i in range(5)]
        stores = [Killing(store_of(ledger)) for ledger in ledgers]
        world = World(terms, stores, offers=2)  # type: ignore[arg-type]
        stores[2].fuse = (death, moment)
        assert world.run(lambda w: w.parties[2] is None)
        ledgers[2].close()
        ledgers[2] = open_ledger(folder / "2.db", 12)
        back = Killing(store_of(ledgers[2]))
        back.charges = stores[2].charges
        world.stores[2] = back  # type: ignore[call-overload]
        world.start(2)
        assert world.run(lambda w: w.at(2)), (death, moment)
        world.check()
        totals = {world.live[0].total(r).tobytes() for r in range(2)}  # type: ignore[union-attr]
        for party in world.live:
            assert {party.total(r).tobytes() for r in range(2)} == totals  # type: ignore[union-attr]
        for ledger in ledgers:
            ledger.close()


LASTING = {"frame", "final", "cert", "opened", "total", "checked", "roster"}
"""Kinds of rows that tell a late party how a round ended."""


def rows_after(folder: Path, rounds: tuple[int, int]) -> list[int]:
    """How many rows, but for lasting ones, three parties' ledger has after some rounds."""
    ledgers = [open_ledger(folder / f"{i}.db", 99, rounds[1]) for i in range(3)]
    world = World(terms_of(3, 1, rounds=2), [Killing(store_of(ledger)) for ledger in ledgers], offers=rounds[1])  # type: ignore[misc]
    counts = []
    for r in rounds:
        assert world.run(lambda w: w.at(r))  # noqa: B023
        kinds = dict(ledgers[0]._db.execute("SELECT kind, count(*) FROM kept GROUP BY kind"))
        counts.append(sum(n for kind, n in kinds.items() if kind not in LASTING))
    for ledger in ledgers:
        ledger.close()
    return counts


def test_a_ledger_does_not_grow_but_for_how_rounds_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three times the rounds, and no more rows. Twin: rows of what is over stay."""
    first, later = rows_after(tmp_path, (4, 14))
    assert later <= 1.5 * first
    monkeypatch.setattr("coterie.sums.opening.Opening.outdated", lambda self: [])
    (tmp_path / "twin").mkdir()
    first, later = rows_after(tmp_path / "twin", (4, 14))
    assert later > 2 * first
