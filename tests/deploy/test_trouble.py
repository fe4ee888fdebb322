"""Agents in trouble, over the wire of the tests: late and hostile neighbours, failing disks, wrong clocks; and N1."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import itertools
import os
import sqlite3
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nacl.signing import VerifyKey
from scipy.stats import mannwhitneyu

from coterie.algorithms.laws import Grid
from coterie.deploy import agent as agent_module
from coterie.deploy import hello, keys
from coterie.deploy.agent import Agent, GaveUp
from coterie.deploy.agreement import Ended
from coterie.deploy.frames import HEADER_BYTES, Receipt, Wire, open_frame, seal
from coterie.deploy.ledger import LedgerFailure
from coterie.deploy.noise import SystemSource
from coterie.deploy.party import Party, Records, Terms, read_records
from coterie.errors import InputError
from coterie.plan import validate
from coterie.privacy.secure import GRID_VARIANCE, DiscreteGaussianTable
from tests.deploy.house import Crash, House, Setting, impatient, rows, together
from tests.deploy.memory import MemoryLink, MemoryTransport


@pytest.fixture(autouse=True)
def _no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_module, "GRACE", 0.05)


@pytest.fixture(scope="module")
def tolerant(tmp_path_factory: pytest.TempPathFactory) -> Setting:
    """Three parties whose algorithm can use an old message."""
    folder = tmp_path_factory.mktemp("tolerant") / "t"
    return Setting.small(folder, 12, "gauss-avg-gd", graph="complete", deadline=0.4, patience=20.0)


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Setting:
    """Three parties that need every message."""
    return Setting.small(tmp_path_factory.mktemp("strict") / "t", 6, "pr-admm", deadline=1.0, patience=20.0)


def held(house: House, name: str, sender: str) -> list[int]:
    """Which round of a neighbour was in the state when each round was released."""
    return [h[sender].round if sender in h else -1 for h in rows(house.state[name] / "ledger.db")[1]]


# ---- late neighbours -------------------------------------------------------------------------------------------------


class Stops:
    """Ends a party before it listens in some round."""

    def __init__(self, round: int):
        self.round = round

    def __call__(self, agent: Agent) -> None:
        real = agent._collect

        async def collect(t: int, carry: Any) -> Any:
            if t == self.round:
                self.round = -1
                raise Crash
            return await real(t, carry)

        agent._collect = collect  # type: ignore[method-assign]


def test_a_late_party_is_done_without_and_picked_up_again(tolerant: Setting, tmp_path: Path) -> None:
    house = House(tolerant, tmp_path)

    async def cleo() -> None:
        with contextlib.suppress(Crash):
            await house.live("cleo", prepare=Stops(2))
        while ("ada", 5) not in house.seen:
            await asyncio.sleep(0.01)
        house.reborn("cleo")
        await house.live("cleo")

    together(house.live("ada"), house.live("ben"), cleo())
    assert house.violations(12) == []
    assert ("ada", "late", {"round": 3, "parties": ["cleo"]}) in house.notes
    used = held(house, "ada", "cleo")
    assert used[4] <= 3  # the old message was used again …
    assert used[-1] == 10  # … and at the end the latest


class Deaf(Agent):
    """The twin that listens only for the round it is in."""

    async def _collect(self, t: int, carry: Any) -> Any:
        real = self.transport.pull
        self.transport.pull = lambda since, now=None, **more: real(t, now, **more)  # type: ignore[method-assign, assignment]
        try:
            return await super()._collect(t, carry)
        finally:
            self.transport.pull = real  # type: ignore[method-assign]


def test_a_party_that_is_always_late_is_heard_all_the_same(tolerant: Setting, tmp_path: Path) -> None:
    """cleo's messages come after the others' deadline, every round. The twin's parties wait at the same time."""
    houses = {kind: House(tolerant, tmp_path / kind.__name__) for kind in (Agent, Deaf)}

    async def cleo(house: House) -> None:
        def slow(agent: Agent) -> None:
            real = agent._speak

            async def speak(t: int, carry: Any) -> Any:
                while t < 11 and ("ada", t + 1) not in house.seen:  # the others have gone on without
                    await asyncio.sleep(0.01)
                return await real(t, carry)

            agent._speak = speak  # type: ignore[method-assign]

        with contextlib.suppress(GaveUp):
            await house.live("cleo", prepare=slow)

    together(*(house.live(name, kind=kind) for kind, house in houses.items() for name in ("ada", "ben")),
             *(cleo(house) for house in houses.values()))  # fmt: skip
    heard = {kind: len({r for r in held(h, "ada", "cleo")[3:] if r >= 0}) for kind, h in houses.items()}
    assert heard[Agent] >= 5
    assert heard[Deaf] <= 3
    assert [house.violations() for house in houses.values()] == [[], []]


def test_a_party_that_needs_every_message_gives_up_and_goes_on_later(strict: Setting, tmp_path: Path) -> None:
    house = House(strict, tmp_path)

    async def scenario() -> None:
        with contextlib.suppress(Crash):
            ben = asyncio.create_task(house.live("ben", prepare=Stops(2)))
            others = [asyncio.create_task(house.live(n, prepare=impatient(1.5))) for n in ("ada", "cleo")]
            with pytest.raises(GaveUp, match=r"round [23]: nothing from ben for 1.5 s \(deploy.patience\)"):
                await others[0]
            with pytest.raises(GaveUp):
                await others[1]
            await ben
        for name in house.names:
            house.reborn(name)
        await asyncio.gather(*(house.live(n) for n in house.names))

    together(scenario())
    assert house.violations(6) == []


# ---- F2: a hostile party among whole agents --------------------------------------------------------------------------


class Eve:
    """ben's keys in hostile hands: every connection, called or calling, greets and then misbehaves in the next way."""

    def __init__(self, house: House, ways: list[str]):
        self.house, self.ways, self.tried = house, itertools.cycle(ways), set()  # type: ignore[var-annotated]
        setting = house.setting
        self.wire: Wire = setting.parties["ben"].wire
        self.key, self.plan = setting.keys["ben"].frame_key, setting.agreement.plan_hash
        self.calls: list[asyncio.Task] = []

    def frame(self, round: int = 0, value: int = 1, **changes: Any) -> bytes:
        payload = np.full(self.wire.count, value, self.wire.dtype).tobytes()
        facts = {"plan_hash": self.plan, "sender": 1, "round": round, "payload": payload} | changes
        return seal(self.key, **facts)

    def messages(self, way: str) -> list[bytes]:
        n, limit = self.wire.count, self.wire.limit(1, 0)
        match way:
            case "NaN bits":
                return [self.frame(payload=np.full(n * self.wire.width // 4, np.nan, "<f4").tobytes())]
            case "extremes":
                return [self.frame(value=np.iinfo(self.wire.dtype).min)]
            case "beyond the bound":
                return [self.frame(value=limit + 1)]
            case "wrong shape":
                return [self.frame(payload=bytes(self.wire.width * (n - 1)))]
            case "wrong type":
                return [self.frame(payload=np.zeros(n, "<i2").tobytes())]
            case "wrong round":
                return [self.frame(self.wire.rounds)]
            case "wrong plan":
                return [self.frame(plan_hash=os.urandom(32))]
            case "replay":
                return list(rows(self.house.state["ada"] / "ledger.db")[0].values())[:1] or [b"nothing yet"]
            case "gap":
                return [self.frame(5)]
            case "truncated":
                return [self.frame()[:HEADER_BYTES]]
            case "garbage":
                return [os.urandom(200)]
            case "invented receipt":
                return [hello.pack_receipt(Receipt(3, os.urandom(32), os.urandom(64), 3))]
            case "duplicates":
                return [self.frame()] * 30
            case "second version":
                return [self.frame(), self.frame(value=2)]
            case "flood":
                return [self.frame(r) for r in range(self.wire.rounds)]
            case _:
                return []  # silence

    async def talk(self, link: MemoryLink) -> None:
        with contextlib.closing(link), contextlib.suppress(EOFError, TypeError):
            mine = hello.make_opening(self.plan, 1)
            await link.write(mine)
            theirs = await link.read()
            await link.write(hello.make_hello(self.key, mine, theirs, Receipt()))  # type: ignore[arg-type]
            await link.read()
            way = next(self.ways)  # not before: a greeting that is refused would use it up
            self.tried.add(way)
            for message in self.messages(way):
                await link.write(message)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.1):
                    while await link.read() is not None:
                        pass

    async def accept(self, caller: str, link: MemoryLink) -> None:
        await self.talk(link)

    async def call(self) -> None:
        while True:
            with contextlib.suppress(ConnectionError):
                await self.talk(self.house.network.connect("ben", "cleo"))
            await asyncio.sleep(0.01)

    async def __aenter__(self) -> Eve:
        self.house.network.listening["ben"] = self  # type: ignore[assignment]
        self.calls = [asyncio.create_task(self.call())]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.house.network.listening.pop("ben", None)
        for task in self.calls:
            task.cancel()
        await asyncio.gather(*self.calls, return_exceptions=True)


REFUSED = ["NaN bits", "extremes", "beyond the bound", "wrong shape", "wrong type", "wrong round", "wrong plan",
           "replay", "gap", "truncated", "garbage", "invented receipt", "silence"]  # fmt: skip
SIGNED = ["duplicates", "second version", "flood"]  # its own word, so it may be used: once, and in one version


def test_f2_the_others_finish_without_a_hostile_party(tolerant: Setting, tmp_path: Path) -> None:
    house = House(tolerant, tmp_path)
    eve = Eve(house, REFUSED + SIGNED)

    async def scenario() -> None:
        async with eve:
            await asyncio.gather(house.live("ada"), house.live("cleo"))

    together(scenario())
    assert eve.tried == {*REFUSED, *SIGNED}
    for name in ("ada", "cleo"):
        assert len(rows(house.state[name] / "ledger.db")[0]) == 12
        assert np.isfinite(house.models[name]).all()
        assert held(house, name, "ben") == sorted(held(house, name, "ben"))
    assert all(len(seen) == 1 for seen in house.seen.values())
    assert np.abs(house.models["ada"]).max() <= tolerant.plan.deploy.bound  # type: ignore[union-attr]


def test_f2_those_who_need_every_message_wait_until_the_hostile_one_behaves(strict: Setting, tmp_path: Path) -> None:
    house = House(strict, tmp_path)
    eve = Eve(house, REFUSED)

    async def scenario() -> None:
        others = [asyncio.create_task(house.live(n)) for n in ("ada", "cleo")]
        async with eve:
            while eve.tried != set(REFUSED):
                await asyncio.sleep(0.01)
            assert not any(o.done() for o in others)
            assert max(r for _, r in house.seen) == 0  # nobody went on without it
        await asyncio.gather(house.live("ben"), *others)

    together(scenario())
    assert house.violations(6) == []


@pytest.mark.slow
def test_f2_twin_without_the_range_check_takes_what_it_should_not(
    tolerant: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = House(tolerant, tmp_path)
    monkeypatch.setattr(Wire, "check", lambda *_: None)

    async def scenario() -> None:
        async with Eve(house, ["beyond the bound"]):
            others = [asyncio.create_task(house.live(n)) for n in ("ada", "cleo")]
            while ("ada", 3) not in house.seen:  # it has seen enough
                await asyncio.sleep(0.01)
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

    together(scenario())
    assert held(house, "ada", "ben")[-1] == 0


# ---- P3: a disk that fails -------------------------------------------------------------------------------------------


class BrokenDisk:
    """A database whose commits fail from some time on."""

    def __init__(self, db: sqlite3.Connection, commits: int):
        self._db, self._left = db, commits

    def execute(self, sql: str, *rest: Any) -> Any:
        if sql == "COMMIT":
            self._left -= 1
            if self._left < 0:
                raise sqlite3.OperationalError("disk I/O error")
        return self._db.execute(sql, *rest)


def test_p3_nothing_is_sent_after_a_failed_commit(strict: Setting, tmp_path: Path) -> None:
    house, at = House(strict, tmp_path), []  # type: ignore[var-annotated]

    def prepare(agent: Agent) -> None:
        agent.ledger._db = BrokenDisk(agent.ledger._db, 3)  # type: ignore[assignment]
        real = agent.transport.close
        agent.transport.close = lambda: at.append("closed") or real()  # type: ignore[method-assign, func-returns-value]
        at.append(agent)

    async def ben() -> None:
        with pytest.raises(LedgerFailure, match="disk I/O error"):
            await house.live("ben", prepare=prepare)
        assert len(at) == 1  # connections are left to the end of the process: not even a farewell
        await asyncio.sleep(0.1)
        assert max(r for s, r in house.seen if s == "ben") == 2
        await MemoryTransport.close(at[0].transport)  # the process ends here
        house.reborn("ben")
        await house.live("ben")

    together(house.live("ada"), house.live("cleo"), ben())
    assert house.violations(6) == []


# ---- P7: clocks ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["strict", "tolerant"])
def test_p7_a_jump_of_28_hours_releases_nothing_more_and_blocks_nobody(
    which: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The monotonic clock jumps in the middle of a round: all deadlines pass at once, for everybody."""
    setting = request.getfixturevalue(which)
    house, real, offset = House(setting, tmp_path), time.monotonic, 0.0
    monkeypatch.setattr(time, "monotonic", lambda: real() + offset)

    async def jump() -> None:
        nonlocal offset
        while ("ben", 2) not in house.seen:
            await asyncio.sleep(0.002)
        offset = 28 * 3600.0

    async def stubborn(name: str) -> None:
        while True:
            try:
                return await house.live(name)
            except GaveUp:
                house.reborn(name)

    async def scenario() -> None:
        await asyncio.gather(jump(), *(stubborn(n) for n in house.names))

    asyncio.run(scenario())
    assert house.violations(setting.terms.rounds) == []


def wild_clock(monkeypatch: pytest.MonkeyPatch, days: Any) -> Any:
    """The wall clock is off by the next of these days at every look; the real clock."""
    real = dt.datetime

    class Wild(dt.datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return real.now(tz) + dt.timedelta(days=next(days))

    monkeypatch.setattr(time, "time", lambda: 1e9 + 1e5 * next(days))
    monkeypatch.setattr(dt, "datetime", Wild)
    return real


def test_p7_the_wall_clock_decides_nothing_but_certificates_and_the_end(
    strict: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weeks forth and years back at every look: a run does not notice. New connections do, by certificates' dates."""
    house = House(strict, tmp_path)
    real = wild_clock(monkeypatch, itertools.cycle([29, -3650]))
    together(*(house.live(n) for n in house.names))
    assert house.violations(6) == []
    folder = strict.site("ada").keys
    for days, reason in ((3650, "expired on"), (-3650, "valid only from")):
        with pytest.raises(InputError, match=reason):
            keys.load_party(folder, real.now(dt.UTC) + dt.timedelta(days=days))


def test_nothing_is_released_after_the_end_of_the_agreement(
    strict: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is looked at before every release, not only when a party starts: 121 rounds were released after it once."""
    house, ends = House(strict, tmp_path), []
    wild_clock(monkeypatch, iter(lambda: 31 if ("ben", 2) in house.seen else 0, None))

    async def party(name: str) -> None:
        try:
            await house.live(name)
        except Ended as error:  # who comes to its next round, and who waits for such a one
            ends.append(str(error))

    monkeypatch.setattr(agent_module, "LOOK", 0.05)
    together(*(party(n) for n in house.names))
    assert len(ends) == 3
    assert all("the agreement ended on" in end for end in ends)
    assert max(r for n in house.names for r in rows(house.state[n] / "ledger.db")[0]) == 2  # of 6
    assert house.violations() == []


def test_who_waits_for_others_does_not_wait_beyond_the_end_of_the_agreement(
    strict: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else comes: it ends with the agreement, and not when its patience does."""
    house, looked = House(strict, tmp_path), iter((0, 0, 0))
    wild_clock(monkeypatch, iter(lambda: next(looked, 31), None))
    monkeypatch.setattr(agent_module, "LOOK", 0.02)

    async def alone() -> None:
        with pytest.raises(Ended, match="the agreement ended on"):
            await asyncio.wait_for(house.live("ada"), 10)

    together(alone())
    assert rows(house.state["ada"] / "ledger.db")[0] == {}


# ---- N1 --------------------------------------------------------------------------------------------------------------


def test_n1_no_deployed_integer_rules_a_data_set_out() -> None:
    """A million coordinates of real frames: each is possible under the neighbouring data set too.

    The control, float32 noise of jax, is in tests/privacy/test_secure.py: over 80 % of its values are impossible.
    """
    d, frames = 20_000, 50
    plan = validate(
        {
            "data": {"source": "csv"}, "partition": {"kind": "iid", "sizes": [2, 2]}, "graph": {"kind": "path"},
            "problem": {"loss": "mean", "dim": d, "ridge": 0.0},
            "algorithm": {"name": "dp-dsgd", "mixing": 1, "step": 0.5, "momentum": 0.0, "clip": 1.0},
            "privacy": {"epsilon": 1.0, "delta": 1e-5}, "run": {"rounds": 2},
            "deploy": {"parties": [{"name": n, "address": f"{n}.example:443"} for n in "ab"], "bound": 1e4},
        }
    )  # fmt: skip
    terms, rng = Terms.of(plan), np.random.default_rng(1)
    x = rng.uniform(-1, 1, (2, d))
    worlds = [Party.of(terms, 0, Records(f, np.zeros(2), None, ())) for f in (x, np.stack([-x[0], x[1]]))]
    key = keys.Ed25519PrivateKey.generate()
    wire, source, still = worlds[0].wire, SystemSource(), {}
    for name, noise in source.draw(0, terms.draws(0)).items():
        still[name] = Grid(np.zeros_like(noise.steps), noise.unit) if isinstance(noise, Grid) else noise
    here, there = (w.turn(0, w.begin(), still)[1] for w in worlds)
    assert (here != there).mean() > 0.5  # the data sets do differ in what would be sent without noise
    first, numerators = DiscreteGaussianTable.from_variance(GRID_VARIANCE).base.law()
    solid = next(k for k, p in enumerate(numerators[-first:]) if p == 0 or k == -first) - 1
    impossible = even = 0
    for _ in range(frames):
        _, numbers, _ = worlds[0].turn(0, worlds[0].begin(), source.draw(0, terms.draws(0)))
        data = seal(key, bytes(32), 0, 0, wire.encode(numbers, 0, 0))
        got = open_frame(data, {0: VerifyKey(key.public_key().public_bytes_raw())}, bytes(32), wire, 0).numbers
        noise = got - there  # what it would have had to be
        impossible += int((np.abs(noise) > 65 * solid).sum())
        even += int(((2 * (got - here) + here - there) % 2 != 0).sum())  # the twin: noise on even integers only
    assert impossible == 0
    assert even > 0.2 * d * frames


# ---- N6 --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "margin"), [(1000, 0.06), pytest.param(10_000, 0.02, marks=pytest.mark.slow)], ids=["some", "many"]
)
def test_n6_the_time_to_a_message_says_nothing_about_the_data(strict: Setting, count: int, margin: float) -> None:
    """How long it takes from the last message in to the next one out, for neighbouring data sets, in random order.

    AUC of the duration as a classifier. Its standard error is √(1/6n): .013 for 1,000 of each, .004 for 10,000.
    """
    records = read_records(strict.plan, strict.site("ada").data)
    near = np.concatenate([-records.features[:1], records.features[1:]])
    worlds, turns = [records, records._replace(features=near)], strict.parties["ada"].turns
    key, source = strict.keys["ada"].frame_key, SystemSource()
    order = np.random.default_rng(3).permuted(np.tile([0, 1], (count, 1)), axis=1).ravel()  # one of each, side by side
    carry = turns.first
    Party(turns, records).speak(1, carry, source)  # compiled
    took = np.zeros(2 * count)
    for i, which in enumerate(order):
        party = Party(turns, worlds[which])  # anew: where its records lie in memory tells nothing of what they are
        party._turn  # noqa: B018  # a stored program is loaded
        begun = time.perf_counter_ns()
        state, numbers, _ = party.speak(1, carry, source)
        frame = seal(key, bytes(32), 0, 1, party.wire.encode(numbers, 0, 1))
        stored = party.pack(state)
        took[i] = time.perf_counter_ns() - begun
        assert len(frame) == party.wire.frame_bytes
    assert len(stored) > 0  # what the ledger writes depends on who was heard: its time is not measured here

    def auc(times: np.ndarray) -> float:
        return float(mannwhitneyu(times[order == 1], times[order == 0]).statistic / count**2)

    assert abs(auc(took) - 0.5) <= margin
    slower = np.where(order == 1, 1.5, 1.0)  # the twin: one world takes half as long again
    assert abs(auc(took * slower) - 0.5) > margin
