"""The durable ledger: exact, damaged bytes refused, copies found out, killed processes resume (P4-P7, I1-I4)."""

import ast
import dataclasses
import fcntl
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from coterie.cli import main
from coterie.deploy import durable, records, sealing, storage
from coterie.deploy import ledger as ledger_module
from coterie.deploy.frames import Receipt, digest
from coterie.deploy.ledger import Damaged, DurableLedger, LedgerFailure, RolledBack, read
from coterie.errors import InputError
from coterie.privacy.accountants import account
from coterie.privacy.codec import from_json, to_json
from coterie.privacy.events import DiscreteGaussian, Event, Free, Gaussian, Pure, SampledGaussian
from coterie.privacy.ledger import Budget, BudgetExceeded
from tests.deploy.ledger_worker import EVENT, settings

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # the disk is for the tests that are about the disk


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        yield Path(name)


def frame_of(round: int, size: int = 300) -> bytes:
    return random.Random(round).randbytes(size)


def fill(path: Path, rounds: int, **changes: Any) -> DurableLedger:
    """An open ledger with this many releases."""
    ledger = DurableLedger(path, create=True, **(settings() | changes))
    for t in range(ledger.last + 1, rounds):
        ledger.release(t, [EVENT], frame_of(t), state_of(t), {"b": Receipt(t, bytes(32))})
    return ledger


def state_of(round: int) -> bytes:
    return b"state %d" % round * 20


def crash(path: Path, to: Path) -> Path:
    """What a killed process would leave: a copy of the files of an open ledger."""
    to.mkdir(exist_ok=True)
    for file in (path, *(Path(f"{path}-{end}") for end in ("wal", "state0", "state1", "frames"))):
        if file.exists():
            shutil.copy(file, to / file.name)
    return to / path.name


def test_everything_comes_back(folder: Path) -> None:
    with fill(folder / "a", 5) as ledger:
        assert (ledger.last, ledger.closed) == (4, None)
        before = ledger.entries
    with DurableLedger(folder / "a", **settings()) as ledger:
        assert ledger.last == 4
        assert [ledger.frame(t) for t in range(6)] == [*(frame_of(t) for t in range(5)), None]
        assert ledger.state() == state_of(4)
        assert ledger.held() == {"b": Receipt(4, bytes(32))}
        assert [(e.round, to_json(e.event), e.total) for e in ledger.entries] == [
            (e.round, to_json(e.event), e.total) for e in before
        ]
        assert ledger.total == Fraction(5, 256)
        assert ledger.spent() == pytest.approx(account([EVENT] * 5, 1e-5, fast=True).epsilon)
        ledger.release(5, [EVENT], b"x" * 100, b"", {})
    assert len(read(folder / "a").rows) == 6


def test_an_empty_ledger(folder: Path) -> None:
    with DurableLedger(folder / "a", create=True, **settings()) as ledger:
        assert (ledger.last, ledger.state(), ledger.held(), ledger.spent()) == (-1, None, {}, 0.0)
    assert os.listdir(folder) == ["a"]
    with pytest.raises(InputError, match=r"no ledger at .*/b"):
        DurableLedger(folder / "b", **settings())


def test_rounds_come_once_and_in_order(folder: Path) -> None:
    with fill(folder / "a", 2) as ledger:
        for wrong in (0, 1, 3, -1):
            with pytest.raises(InputError, match=rf"the next round of ledger .* is 2, got {wrong}"):
                ledger.release(wrong, [EVENT], b"x" * 100, b"", {})
        assert ledger.last == 1
        assert ledger.frame(1) == frame_of(1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"agent": "b"}, "was made for agent a, not b"),
        ({"plan_hash": b"q" * 32}, "was made for plan hash 70"),
        ({"budget": Budget(31.0, 1e-5)}, "was made for epsilon 30, not 31"),
        ({"budget": Budget(30.0, 1e-6)}, "was made for delta"),
        ({"plan": [Gaussian(1.0, 16.0, times=401)]}, "was made for other events"),
        ({"plan": [Gaussian(1.0, 16.0, times=399)]}, "was made for more events than these"),
    ],
)
@pytest.mark.parametrize("crashed", [False, True])
def test_a_ledger_serves_one_purpose(folder: Path, change: dict, message: str, crashed: bool) -> None:
    ledger = fill(folder / "a", 2)
    path = crash(folder / "a", folder / "copy") if crashed else folder / "a"
    ledger.close()
    files = {file: file.read_bytes() for file in path.parent.iterdir() if file.is_file()}
    with pytest.raises(InputError, match=message):
        DurableLedger(path, **(settings() | change))
    assert files == {file: file.read_bytes() for file in path.parent.iterdir() if file.is_file()}


def test_a_plan_computed_anew_may_round_differently(folder: Path) -> None:
    fill(folder / "a", 2).close()
    nudged = Gaussian(1.0, float(np.nextafter(16.0, 17.0)), times=400)
    with DurableLedger(folder / "a", **(settings() | {"plan": [nudged]})) as ledger:
        ledger.release(2, [Gaussian(1.0, float(np.nextafter(16.0, 17.0)))], b"x" * 100, b"", {})
        assert ledger.total == Fraction(3, 256)  # the declared price


def test_a_plan_beyond_the_budget_makes_no_file(folder: Path) -> None:
    with pytest.raises(BudgetExceeded, match="the plan costs epsilon"):
        DurableLedger(folder / "a", create=True, **(settings() | {"budget": Budget(1.0, 1e-5)}))
    assert not list(folder.iterdir())


def test_the_stop_is_final_and_durable(folder: Path) -> None:
    with fill(folder / "a", 2) as ledger:
        with pytest.raises(BudgetExceeded, match=r"round 2: Gaussian .* is not in the plan"):
            ledger.release(2, [EVENT, Gaussian(1.0, 1.0)], b"x" * 100, b"new", {})
        assert ledger.last == 1
        assert ledger.state() == state_of(1)
        copy = crash(folder / "a", folder / "copy")
    for path in (folder / "a", copy):
        with DurableLedger(path, **settings()) as ledger:
            assert "not in the plan" in (ledger.closed or "")
            for events in ([EVENT], [Free()]):
                with pytest.raises(BudgetExceeded, match="closed by an earlier stop"):
                    ledger.release(2, events, b"x" * 100, b"", {})
            assert ledger.total == Fraction(2, 256)


def test_the_database_itself_refuses_what_a_bug_would_write(folder: Path) -> None:
    """The limit is checked inside the transaction too: with the first check switched off, nothing gets through."""

    class Blind:
        """An allowance that never says no."""

        def __init__(self, real: Any):
            self._real, self.limit = real, real.limit
            self.left, self.spent = real.left, real.spent

        def price(self, events: list[Event]) -> Any:
            return dataclasses.make_dataclass("T", ["left", "spent"])(self.left, self.spent + len(events) * self.limit)

    ledger = fill(folder / "a", 2)
    ledger._book.allowance = Blind(ledger._book.allowance)  # type: ignore[assignment]
    with pytest.raises(LedgerFailure, match="over the budget"):
        ledger.release(2, [EVENT], b"x" * 100, b"", {})
    with pytest.raises(LedgerFailure, match="failed before"):
        ledger.frame(0)
    ledger.close()  # leaves everything as it is
    with DurableLedger(crash(folder / "a", folder / "copy"), **settings()) as ledger:
        assert ledger.last == 1


def test_an_interrupt_inside_a_release_ends_the_object(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = fill(folder / "a", 1)

    class Interrupted:
        def execute(self, sql: str, *values: Any) -> Any:
            if sql == "COMMIT":
                raise KeyboardInterrupt
            return database.execute(sql, *values)

    database = ledger._db
    monkeypatch.setattr(ledger, "_db", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        ledger.release(1, [EVENT], b"x" * 100, b"", {})
    with pytest.raises(LedgerFailure, match="KeyboardInterrupt"):
        ledger.release(1, [EVENT], b"x" * 100, b"", {})
    assert len(read(crash(folder / "a", folder / "copy")).rows) == 1


# --- P4: copies and second processes


def test_a_restored_or_cloned_ledger_is_found_out(folder: Path) -> None:
    path = folder / "a"
    fill(path, 3).close()
    old = crash(path, folder / "backup")
    with fill(path, 4) as ledger:
        frame = ledger.frame(3)
        assert frame is not None
        newer = Receipt(3, digest(frame))
        ledger.reconcile("b", newer)
        ledger.reconcile("b", Receipt())
    with DurableLedger(old, **settings()) as clone:
        with pytest.raises(RolledBack, match=r"b holds our message of round 3, ledger .* ends at 2: it was restored"):
            clone.reconcile("b", newer)
        clone.reconcile("b", Receipt(2, digest(frame_of(2))))
        clone.release(3, [EVENT], b"another draw of the noise" * 10, b"", {})
        with pytest.raises(RolledBack, match="b holds another message of round 3"):
            clone.reconcile("b", newer)


def test_a_second_process_is_refused_at_once(folder: Path) -> None:
    with fill(folder / "a", 1) as ledger:
        again = [sys.executable, "-W", "ignore", "-m", "tests.deploy.ledger_worker", "open", str(folder / "a")]
        for _ in range(2):  # the refusal must not loosen the lock
            with pytest.raises(InputError, match="in use by another process"):
                DurableLedger(folder / "a", **settings())
        result = subprocess.run(again, capture_output=True, text=True, check=False)
        assert result.returncode == 1
        assert result.stderr == f"refused: ledger {folder / 'a'} is in use by another process\n"
        ledger.release(1, [EVENT], b"x" * 100, b"", {})


def test_killed_processes_resume(tmp_path: Path) -> None:
    """SIGKILL at random times, on the real disk; two twins must be caught: one sends before it commits, one
    stores the state after that."""
    for name, twin, count in (("right", "", 10), ("files", "files", 6), ("wrong", "early", 60), ("late", "late", 30)):
        (tmp_path / name).mkdir()
        command = [sys.executable, "-W", "ignore", "-m", "tests.deploy.ledger_worker", "kills"]
        command += [str(tmp_path / name), str(count), twin]
        report = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        if twin == "late":
            assert "the state is not the one of round" in report["violations"][-1]
            continue
        if twin == "early":
            assert report["violations"]
            continue
        assert report["violations"] == []
        assert report["killed"] == count
        assert report["rounds"] >= 4


# --- P5: exact sums


PRICES = [Gaussian(k / 8, 16.0) for k in range(1, 9)]  # μ² = k²/2¹⁴: the float price is exact


def exact(event: Event) -> Fraction:
    """μ² in rationals, from the event's own numbers."""
    return Fraction(event.times) * (Fraction(event.sensitivity) / Fraction(event.sigma)) ** 2  # type: ignore[attr-defined]


class Charges(RuleBasedStateMachine):
    """Any sequence of releases, refusals, restarts and crashes: the total is the exact sum of what was accepted."""

    @initialize(plan=st.lists(st.tuples(st.sampled_from(PRICES), st.integers(1, 3)), min_size=1, max_size=4))
    def make(self, plan: list[tuple[Gaussian, int]]) -> None:
        self.folder = Path(tempfile.mkdtemp(dir=MEMORY))
        self.plan = [dataclasses.replace(event, times=times) for event, times in plan]
        self.left = [event for event in self.plan for _ in range(event.times)]
        self.paid: list[Event] = []
        self.rounds, self.copies, self.stopped = 0, 0, False
        self.path = self.folder / "ledger"
        self.open(create=True)

    def open(self, create: bool = False) -> None:
        budget = Budget(account(self.plan, 1e-5, fast=True).epsilon, 1e-5)
        self.ledger = DurableLedger(
            self.path, budget=budget, plan_hash=bytes(32), agent="a", plan=self.plan, create=create
        )

    @rule(event=st.sampled_from([*PRICES, Gaussian(2.0, 16.0)]), times=st.integers(1, 3), free=st.booleans())
    def charge(self, event: Gaussian, times: int, free: bool) -> None:
        charge = dataclasses.replace(event, times=times)
        same = [e for e in self.left if exact(dataclasses.replace(e, times=1)) == exact(event)]
        events = [charge, Free()] if free else [charge]
        if self.stopped or len(same) < times:
            with pytest.raises(BudgetExceeded):
                self.ledger.release(self.rounds, events, b"f" * 100, b"s", {})
            self.stopped = True
            return
        self.ledger.release(self.rounds, events, b"f" * 100, b"s%d" % self.rounds, {})
        for taken in same[:times]:
            self.left.remove(taken)
        self.paid.append(charge)
        self.rounds += 1

    @precondition(lambda self: not self.stopped)
    @rule()
    def free(self) -> None:
        self.ledger.release(self.rounds, [Free()], b"f" * 100, b"s%d" % self.rounds, {})
        self.rounds += 1

    @rule()
    def restart(self) -> None:
        self.ledger.close()
        self.open()

    @rule()
    def crash(self) -> None:
        self.copies += 1
        new = crash(self.path, self.folder / str(self.copies))
        self.ledger.close()
        self.path = new
        self.open()

    @invariant()
    def sums_are_exact(self) -> None:
        if not hasattr(self, "ledger"):
            return
        total = sum((exact(event) for event in self.paid), Fraction(0))
        assert self.ledger.total == total <= self.ledger.limit == sum(exact(event) for event in self.plan)
        assert self.ledger.spent() <= self.ledger.budget.epsilon
        assert self.ledger.last == self.rounds - 1
        assert bool(self.ledger.closed) == self.stopped
        assert self.ledger.state() == (b"s%d" % (self.rounds - 1) if self.rounds else None)

    def teardown(self) -> None:
        if hasattr(self, "ledger"):
            self.ledger.close()
            shutil.rmtree(self.folder)


TestCharges = Charges.TestCase
TestCharges.settings = hypothesis_settings(max_examples=25, stateful_step_count=12, deadline=None, derandomize=True)


def random_sequences(folder: Path, count: int, seed: int) -> int:
    """Random charge sequences on copies of an empty ledger: exact sums, and refusals that write no row. Refusals."""
    rng = random.Random(seed)
    plan = [dataclasses.replace(event, times=2) for event in PRICES]
    budget = Budget(account(plan, 1e-5, fast=True).epsilon, 1e-5)
    given: dict[str, Any] = {"budget": budget, "plan_hash": bytes(32), "agent": "a", "plan": plan}
    DurableLedger(folder / "empty", create=True, **given).close()
    limit, refused = sum(exact(event) for event in plan), 0
    for number in range(count):
        shutil.copy(folder / "empty", folder / "a")
        total, left = Fraction(0), [2] * len(PRICES)
        with DurableLedger(folder / "a", **given) as ledger:
            for t in range(rng.randrange(1, 12)):
                kind, times = rng.randrange(len(PRICES)), rng.choice((1, 1, 1, 2, 3))
                fits = left[kind] >= times
                try:
                    ledger.release(t, [dataclasses.replace(PRICES[kind], times=times)], b"f" * 100, b"s", {})
                except BudgetExceeded:
                    assert not fits
                    refused += 1
                    break
                assert fits
                left[kind] -= times
                total += times * exact(PRICES[kind])
                assert ledger.total == total <= limit
        if number % 10 == 0:
            assert read(folder / "a").allowance.spent == total
    return refused


def test_random_sequences_are_exact(folder: Path) -> None:
    assert random_sequences(folder, 60, 1) > 10


@pytest.mark.slow
def test_a_hundred_thousand_random_sequences_are_exact(folder: Path) -> None:
    assert random_sequences(folder, 100_000, 2) > 10_000


# --- P6: flipped bits


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def accepted(path: Path, data: bytes, bits: list[int]) -> list[int]:
    """The bits whose flip goes unnoticed."""
    passed = []
    for bit in bits:
        path.write_bytes(flipped(data, bit))
        try:
            DurableLedger(path, **settings()).close()
        except Damaged:
            continue
        passed.append(bit)
    path.write_bytes(data)
    return passed


def sealed(folder: Path) -> tuple[Path, bytes]:
    fill(folder / "a", 6).close()
    return folder / "a", (folder / "a").read_bytes()


def test_any_flipped_bit_is_refused(folder: Path) -> None:
    path, data = sealed(folder)
    rng = random.Random(3)
    header = list(range(800))
    assert accepted(path, data, header + [rng.randrange(len(data) * 8) for _ in range(1_000)]) == []


@pytest.mark.slow
def test_every_single_bit_is_refused(folder: Path) -> None:
    path, data = sealed(folder)
    assert accepted(path, data, list(range(len(data) * 8))) == []


def test_the_checks_are_what_refuses(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken twins: without the seal unused bytes may change; without the chain too, the bytes of a message may."""
    path, data = sealed(folder)
    unused = [8 * (data.index(bytes(200)) + k) for k in (50, 100)]
    message = [8 * (data.index(frame_of(2)) + 10)]
    assert accepted(path, data, unused + message) == []
    monkeypatch.setattr(durable, "intact", lambda fd, log: sealing.page_sums(fd))
    assert accepted(path, data, unused + message) == unused
    with monkeypatch.context() as patch:
        patch.setattr(
            records, "load", without("if link(before, round, charge, total, held, state_hash, frame_hash) != own:")
        )
        assert accepted(path, data, message) == message


def without(check: str) -> Any:
    """`records.load` with one comparison taken out of its source."""
    import inspect

    source = inspect.getsource(records.load)
    assert check in source
    names = dict(vars(records))
    exec("from __future__ import annotations\n" + source.replace(check, "if False:"), names)
    return names["load"]


def test_any_flipped_bit_of_the_state_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a large one, in its file. A small one is in the database, of which every bit was flipped above."""
    monkeypatch.setattr(storage, "SMALL", 0)
    ledger, _ = sealed(folder)
    current, other = (Path(storage.States(ledger).name(t)) for t in (5, 4))
    state = current.read_bytes()
    assert state == state_of(5)

    def refused(content: bytes) -> bool:
        current.write_bytes(content)
        try:
            DurableLedger(ledger, **settings()).close()
        except Damaged as error:
            return "the state is not the one of round 5" in str(error)
        return False

    assert all(refused(flipped(state, bit)) for bit in range(0, 8 * len(state), 5))  # each place in a byte
    assert all(refused(content) for content in (b"", state[:-1], state + b"\0", state_of(4)))
    other.write_bytes(b"what a crash leaves of the state that comes next")
    assert not refused(state)
    other.unlink()
    with fill(ledger, 7) as again:
        assert again.state() == state_of(6) == other.read_bytes()
        assert other.stat().st_mode & 0o077 == 0
    current.unlink()
    other.unlink()
    for opens in (lambda: DurableLedger(ledger, **settings()), lambda: read(ledger)):
        with pytest.raises(Damaged, match="the state is not the one of round 6"):
            opens()
    monkeypatch.setattr(records, "load", without("if book.rows:"))
    assert not refused(flipped(state, 77))  # the twin that does not compare


def test_any_flipped_bit_of_a_large_frame_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In their file, of every round; small ones are in the database."""
    monkeypatch.setattr(storage, "SMALL", 250)
    path, _ = sealed(folder)
    file = Path(f"{path}{storage.FRAMES}")
    whole = file.read_bytes()
    assert whole == in_blocks(6)
    assert file.stat().st_mode & 0o077 == 0

    def refused(content: bytes) -> str:
        file.write_bytes(content)
        try:
            DurableLedger(path, **settings()).close()
        except Damaged as error:
            return str(error)
        return ""

    for bit in range(0, 8 * 6 * 300, 101):
        t, at = divmod(bit, 8 * 300)
        assert f"round {t}: does not match its hash" in refused(flipped(whole, 8 * storage.BLOCK * t + at))
    assert f"ends before byte {len(whole)}" in refused(whole[:-1])
    assert not refused(whole.ljust(6 * storage.BLOCK, b"\0") + b"what a crash leaves of a frame that was never sent")
    with fill(path, 8) as again:  # is written over
        assert [again.frame(t) for t in range(8)] == [frame_of(t) for t in range(8)]
    assert file.read_bytes() == in_blocks(8)
    monkeypatch.setattr(storage, "SMALL", 301)  # a ledger of both kinds
    with fill(path, 9) as again:
        assert [again.frame(t) for t in range(9)] == [frame_of(t) for t in range(9)]
    assert file.read_bytes() == in_blocks(8)
    file.unlink()
    for opens in (lambda: DurableLedger(path, **settings()), lambda: read(path)):
        with pytest.raises(Damaged, match="No such file"):
            opens()


def in_blocks(frames: int) -> bytes:
    """The file of so many large frames: each begins at a whole block."""
    return b"".join(frame_of(t).ljust(storage.BLOCK, b"\0") for t in range(frames - 1)) + frame_of(frames - 1)


class Disk:
    """The calls of a file of frames: which went past the cache. Some file systems let none, or none of that size."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, file: Path, refuses: str = "", short: int = 0):
        self.file, self.refuses, self.short = file, refuses, short
        self.past: list[tuple[bool, int]] = []
        self._fcntl, self._pwrite = storage.fcntl.fcntl, os.pwrite
        monkeypatch.setattr(storage.fcntl, "fcntl", self.fcntl)
        monkeypatch.setattr(storage.os, "pwrite", self.pwrite)

    def fcntl(self, fd: int, what: int, flags: int = 0) -> int:
        if self.refuses == "flag" and flags & os.O_DIRECT:
            raise OSError(22, "Invalid argument")
        return self._fcntl(fd, what, flags)

    def pwrite(self, fd: int, data: memoryview, at: int) -> int:
        if os.readlink(f"/proc/self/fd/{fd}") != str(self.file):
            return self._pwrite(fd, data, at)
        past = bool(self._fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT)
        self.past.append((past, len(data)))
        if past and self.refuses == "blocks":
            raise OSError(22, "Invalid argument")
        if past and self.short:
            data, self.short = data[: self.short], 0
            with self.file.open("r+b") as file:  # of any length
                return self._pwrite(file.fileno(), data, at)
        return self._pwrite(fd, data, at)


@pytest.mark.parametrize(("refuses", "short"), [("", 0), ("flag", 0), ("blocks", 0), ("", 3 * 4096), ("", 700)])
def test_a_large_frame_goes_past_the_cache_where_it_can(
    folder: Path, monkeypatch: pytest.MonkeyPatch, refuses: str, short: int
) -> None:
    """What is written is the same whether or not a file system takes it so, and whatever part it takes at a time."""
    sizes = storage.SMALL, storage.SMALL + 1, storage.ROOM + 5000, 100, 2 * storage.ROOM
    frames = [os.urandom(size) for size in sizes]
    path = folder / "ledger.db"
    disk = Disk(monkeypatch, Path(f"{path}{storage.FRAMES}"), refuses, short)
    with DurableLedger(path, create=True, **settings()) as ledger:
        for t, frame in enumerate(frames):
            ledger.release(t, [EVENT], frame, b"", {})
    monkeypatch.undo()
    with DurableLedger(path, **settings()) as again:
        assert [again.frame(t) for t in range(5)] == frames
        again.release(5, [EVENT], frames[0], b"", {})
        assert again.frame(5) == frames[0]
    bytes_past = sum(size for past, size in disk.past if past)
    assert all(size % storage.BLOCK == 0 for past, size in disk.past if past)
    if refuses:
        assert bytes_past <= storage.SMALL  # tried once at most
    else:
        assert bytes_past >= 3 * storage.ROOM
        assert sum(size for past, size in disk.past if not past) <= 4 * storage.BLOCK + storage.ROOM * bool(short)


def test_a_file_goes_back_to_the_cache_after_an_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frames, frame = storage.Frames(folder / "ledger.db"), os.urandom(storage.SMALL + 1)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(storage.os, "pwrite", full)
        with pytest.raises(OSError, match="No space"):
            frames.write(frame)
    assert frames.read(frames.write(frame)) == frame
    frames.close()


def test_a_frame_that_was_not_committed_is_written_over(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "SMALL", 0)
    with fill(folder / "a", 3) as ledger:
        ledger._frames.write(b"x" * 900)  # then a crash, before the row
        copy = crash(folder / "a", folder / "copy")
    with DurableLedger(copy, **settings()) as again:
        again.release(3, [EVENT], frame_of(3), b"", {})
    assert Path(f"{copy}{storage.FRAMES}").read_bytes() == in_blocks(4)
    with DurableLedger(copy, **settings()) as again:
        assert again.frame(3) == frame_of(3)


@pytest.mark.parametrize("point", ["open", "pwrite", "ftruncate", "fdatasync", "COMMIT", "COMMIT of a small state"])
def test_a_release_cut_short_leaves_the_state_before_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """Every call that a release makes fails in its turn, half done: final, and the round before is whole."""
    if "small" not in point:
        monkeypatch.setattr(storage, "SMALL", 0)
    ledger = fill(folder / "a", 3)
    for name in ("open", "pwrite", "ftruncate", "fdatasync"):
        real = getattr(os, name)

        def halfway(file: Any, *rest: Any, real: Any = real, name: str = name) -> Any:
            if name == point and (name != "open" or "-state" in str(file)):
                if name == "pwrite":
                    real(file, rest[0][: len(rest[0]) // 2], *rest[1:])
                raise OSError(28, "No space left on device")
            return real(file, *rest)

        monkeypatch.setattr(storage.os, name, halfway)
    if point == "open":
        ledger._states.close()
    if "COMMIT" in point:
        database = ledger._db
        fail = lambda sql, *values: database.execute("-" if sql == "COMMIT" else sql, *values)  # noqa: E731
        monkeypatch.setattr(ledger, "_db", type("Failing", (), {"execute": staticmethod(fail)}))
    with pytest.raises(LedgerFailure, match=r"commit: |state: .*No space left"):
        ledger.release(3, [EVENT], frame_of(3), b"shorter", {})
    for call in (lambda: ledger.release(3, [EVENT], frame_of(3), b"", {}), ledger.state, ledger.seal):
        with pytest.raises(LedgerFailure, match="failed before"):
            call()
    monkeypatch.undo()
    with DurableLedger(crash(folder / "a", folder / "copy"), **settings()) as again:
        assert (again.last, again.state()) == (2, state_of(2))
        again.release(3, [EVENT], frame_of(3), b"", {})
        assert again.state() == b""


def crashed(folder: Path) -> tuple[Path, bytes]:
    """Files of a process killed after three releases: the database holds none of them, the log all."""
    with fill(folder / "a", 3):
        path = crash(folder / "a", folder / "copy")
    return path, Path(f"{path}-wal").read_bytes()


def test_a_flipped_bit_in_the_log_drops_no_commit(folder: Path) -> None:
    path, log = crashed(folder)
    database = path.read_bytes()
    rng = random.Random(4)
    commit = len(log) - sealing._FRAME  # the last frame: without it, the last release is gone
    bits = [*range(256), *range(8 * commit, 8 * commit + 192), *(rng.randrange(len(log) * 8) for _ in range(600))]
    for bit in bits:
        path.write_bytes(database)
        Path(f"{path}-wal").write_bytes(flipped(log, bit))
        with pytest.raises(Damaged, match=r"in its log has changed|the header of its log has changed"):
            DurableLedger(path, **settings())
    Path(f"{path}-wal").write_bytes(log)
    assert accepted(path, database, [rng.randrange(len(database) * 8) for _ in range(300)]) == []


def test_a_torn_log_loses_only_what_was_not_committed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, log = crashed(folder)
    database = path.read_bytes()
    ends = [0]
    for t in range(1, 4):  # where each commit ends
        with fill(folder / f"b{t}", t):
            ends.append(os.path.getsize(f"{folder / f'b{t}'}-wal"))
    assert ends[-1] == len(log)
    cuts = {0, 31, 32, *ends, *(end - 1 for end in ends[1:]), *(end + 1 for end in ends[:-1])}
    cuts |= set(range(32, len(log), sealing._FRAME)) | set(random.Random(5).sample(range(len(log)), 15))
    for cut in sorted(cuts):
        path.write_bytes(database)
        Path(f"{path}-wal").write_bytes(log[:cut])
        rows = sum(cut >= end for end in ends[1:])
        with DurableLedger(path, **settings()) as ledger:
            assert ledger.last == rows - 1
            assert ledger.state() == (state_of(rows - 1) if rows else None)
            ledger.release(ledger.last + 1, [EVENT], b"x" * 100, b"", {})
        assert read(path).rows[-1].frame_bytes == 100
    # twin: left to SQLite alone, damage in the first commit silently drops all three
    monkeypatch.setattr(durable, "scan_log", lambda data: sealing.LogPages(data, {}, 0, len(data)))
    monkeypatch.setattr(DurableLedger, "seal", lambda self: None)
    path.write_bytes(database)
    Path(f"{path}-wal").write_bytes(flipped(log, 8 * 100))
    assert DurableLedger(path, **settings()).last == -1


def test_a_second_crash_while_recovering_from_a_torn_log(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What recovery writes must not lie before the remains of the torn transaction."""
    with fill(folder / "a", 2) as ledger:
        ledger.release(2, [EVENT], bytes(30_000), b"", {})
        path = crash(folder / "a", folder / "copy")
    log = Path(f"{path}-wal").read_bytes()
    Path(f"{path}-wal").write_bytes(log[: -sealing._FRAME - 100])  # the last transaction, almost whole

    class Stopping:
        def __init__(self, path: Path, what: str):
            self._db = storage.connect(path, what)

        def execute(self, sql: str, *values: Any) -> Any:
            if "wal_checkpoint" in sql:
                raise sqlite3.OperationalError("power cut")
            return self._db.execute(sql, *values)

    for cut, readable in ((storage.cut, True), (lambda path, size: None, False)):  # the twin leaves the tail
        twice = crash(path, folder / f"twice {readable}")
        with monkeypatch.context() as patch:
            patch.setattr(durable, "connect", Stopping)
            patch.setattr(durable, "cut", cut)
            with pytest.raises(LedgerFailure, match="power cut"):
                DurableLedger(twice, **settings())
        again = crash(twice, folder / f"again {readable}")
        if readable:
            with DurableLedger(again, **settings()) as ledger:
                assert ledger.last == 1
        else:
            with pytest.raises(Damaged):
                DurableLedger(again, **settings())


def test_a_crash_while_the_log_is_folded_in(folder: Path) -> None:
    """Every mix of old and new pages in the database, beside the whole log, is the same ledger."""
    whole, path = folder / "whole", folder / "mixed"
    with fill(whole, 3) as ledger:
        real = ledger._db

        class Stop:
            def execute(self, sql: str, *values: Any) -> Any:
                if "wal_checkpoint" in sql:
                    files["old"], files["log"] = whole.read_bytes(), Path(f"{whole}-wal").read_bytes()
                return real.execute(sql, *values)

        files: dict[str, bytes] = {}
        ledger._db = Stop()  # type: ignore[assignment]
        ledger.seal()
        ledger._db = real
        files["new"] = whole.read_bytes()
    old, new, log = files["old"], files["new"], files["log"]
    rng, pages = random.Random(6), len(new) // sealing.PAGE
    for _ in range(20):
        mixed = b"".join(
            (new if rng.random() < 0.5 else old)[p * sealing.PAGE : (p + 1) * sealing.PAGE].ljust(sealing.PAGE, b"\0")
            for p in range(pages)
        )
        path.write_bytes(mixed)
        Path(f"{path}-wal").write_bytes(log)
        with DurableLedger(path, **settings()) as ledger:
            assert [ledger.frame(t) for t in range(3)] == [frame_of(t) for t in range(3)]


def test_the_checksums_of_a_log_are_those_of_sqlite(folder: Path) -> None:
    """The vectorised checksum against the definition, word by word."""
    with fill(folder / "a", 2):
        log = Path(f"{folder / 'a'}-wal").read_bytes()

    def checksum(data: bytes, s: tuple[int, int]) -> tuple[int, int]:
        words = np.frombuffer(data, "<u4" if log[3] == 0x82 else ">u4").tolist()
        for x, y in zip(words[::2], words[1::2], strict=True):
            first = (s[0] + x + s[1]) % 2**32
            s = first, (s[1] + y + first) % 2**32
        return s

    s = checksum(log[:24], (0, 0))
    assert s == tuple(np.frombuffer(log, ">u4")[6:8].tolist())
    for at in range(32, len(log), sealing._FRAME):
        s = checksum(log[at : at + 8] + log[at + 24 : at + sealing._FRAME], s)
        assert s == tuple(np.frombuffer(log, ">u4", 2, at + 16).tolist())
    assert sealing.scan_log(log).newest


def test_a_large_log_is_folded_in_by_itself(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable, "_LOG_LIMIT", 40_000)
    with fill(folder / "a", 12):
        assert os.path.getsize(f"{folder / 'a'}-wal") < 60_000
        assert os.path.getsize(folder / "a") > 20_000
        copy = crash(folder / "a", folder / "copy")
    assert len(read(copy).rows) == 12


def test_a_release_of_a_long_plan_reads_nothing(folder: Path) -> None:
    """The guard in the database compares with a number that lies behind the plan's text, here .7 MB."""
    event = Gaussian(1.0, 1600.0)
    plan = [event] * 5000
    with DurableLedger(folder / "a", create=True, **(settings() | {"plan": plan})) as ledger:
        assert len(ledger._book.meta.plan) > 700_000
        read_so_far = lambda: int(Path("/proc/self/io").read_text().split()[1])  # noqa: E731
        ledger.release(0, [event], frame_of(0), state_of(0), {})
        before = read_so_far()
        for t in range(1, 21):
            ledger.release(t, [event], frame_of(t), state_of(t), {})
        assert read_so_far() - before < 100_000


def test_a_ledger_that_was_dropped_is_like_a_crash(folder: Path) -> None:
    """Collecting the object must not let SQLite fold the log in behind our back."""
    ledger = fill(folder / "a", 2)
    before = (folder / "a").read_bytes(), Path(f"{folder / 'a'}-wal").read_bytes()
    del ledger
    assert before == ((folder / "a").read_bytes(), Path(f"{folder / 'a'}-wal").read_bytes())
    assert len(read(crash(folder / "a", folder / "copy")).rows) == 2


def test_settings_that_do_not_take_are_fatal(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(folder / "a", 1).close()
    real = storage.sqlite3.connect

    class Stubborn:
        def __init__(self, *args: Any, **options: Any):
            self._db = real(*args, **options)

        def execute(self, sql: str) -> Any:
            return self._db.execute("PRAGMA synchronous = NORMAL" if sql == "PRAGMA synchronous = FULL" else sql)

    monkeypatch.setattr(storage.sqlite3, "connect", Stubborn)
    with pytest.raises(LedgerFailure, match="does not take synchronous = FULL, it says 1"):
        DurableLedger(folder / "a", **settings())


def test_network_file_systems_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sealing.network_filesystem(folder) is None
    monkeypatch.setattr(sealing, "_NETWORK", {"tmpfs", "ext4", "overlay", "xfs", "btrfs"})
    with pytest.raises(InputError, match="must lie on a local file system"):
        DurableLedger(folder / "a", create=True, **settings())
    assert not list(folder.iterdir())


def test_no_clock_decides_anything(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """P7: the only clock is the note `created`; ten years either way change nothing."""
    for module in (ledger_module, durable, records, sealing, storage):
        tree = ast.parse(Path(module.__file__ or "").read_text())
        names = [node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
        assert not {"time", "monotonic", "perf_counter", "utcnow", "today"} & set(names)
        assert names.count("now") == (module is ledger_module)

    class Wrong:
        UTC = None

        class datetime:
            @staticmethod
            def now(zone: object) -> Any:
                return type("Date", (), {"isoformat": lambda self, timespec: "2036-01-01T00:00:00"})()

    monkeypatch.setattr(ledger_module, "datetime", Wrong)
    fill(folder / "a", 2).close()
    monkeypatch.undo()
    with fill(folder / "a", 3) as ledger:
        assert ledger.last == 2


# --- serialisation and commands


@pytest.mark.parametrize(
    "event",
    [
        Gaussian(0.1, 1 / 3, times=7, slack=1e-9),
        Gaussian(np.array([0.1, 0.2]), 3, times=np.array([1, 2])),
        DiscreteGaussian(1.5, 2.5, dim=3, tv=1e-30),
        SampledGaussian(1.1, 0.01, scheme="poisson", discrete=True, adjacency="zero-out"),
        Pure(np.float32(0.1)),
        Free(),
    ],
)
def test_events_survive_json_bit_for_bit(event: Event) -> None:
    text = json.dumps(to_json(event))
    back = from_json(json.loads(text))
    assert type(back) is type(event)
    assert json.dumps(to_json(back)) == text
    for name, value in vars(event).items():
        if value is not None and not isinstance(value, str | bool):
            assert np.array_equal(np.asarray(getattr(back, name), float), np.asarray(value, float)), name


@pytest.mark.parametrize(
    "text", ['{"kind":"Nothing"}', "{}", '{"kind":"Free"}', '{"kind":"Gaussian","sigma":"x"}', "[]"]
)
def test_other_json_is_not_an_event(text: str) -> None:
    with pytest.raises(InputError, match="expected a privacy event in JSON"):
        from_json(json.loads(text))


def test_show_and_verify(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(folder / "a", 3).close()
    path = str(folder / "a")
    assert main(["ledger", "verify", path]) == 0
    assert "3 rounds" in capsys.readouterr().out
    assert main(["ledger", "show", path, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["agent"] == "a"
    assert [row["round"] for row in shown["releases"]] == [0, 1, 2]
    assert shown["spent"] == pytest.approx(account([EVENT] * 3, 1e-5, fast=True).epsilon)
    assert main(["ledger", "show", path]) == 0
    shown_text = capsys.readouterr().out
    assert "spent ε 0.3714 of 30 at δ 1e-05 in 3 rounds" in shown_text
    assert "0.75%" in shown_text  # 3 of 400 rounds
    data = (folder / "a").read_bytes()
    (folder / "a").write_bytes(flipped(data, 8 * (data.index(frame_of(1)) + 5)))
    assert main(["ledger", "verify", path]) == 1
    assert capsys.readouterr().err.split("\n")[0].endswith("round 1: does not match its hash")
    (folder / "a").write_bytes(flipped(data, 8 * (data.index(bytes(200)) + 100)))
    assert main(["ledger", "verify", path]) == 1
    assert capsys.readouterr().err.strip().endswith("bytes have changed since it was sealed")
    assert main(["ledger", "verify", str(folder / "none")]) == 2


def test_reading_changes_nothing(folder: Path) -> None:
    path, _ = crashed(folder)
    before = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    assert len(read(path).rows) == 3
    assert {file.name: file.read_bytes() for file in path.parent.iterdir()} == before
