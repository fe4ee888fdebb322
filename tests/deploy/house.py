"""Whole agents of three small parties in one event loop, over the wire in memory; any of them can crash and come back.

The parties are compiled once and shared: they keep nothing between calls. A crash leaves the ledger's files as they
are at that moment (an exclusive lock cannot be taken twice in one process, so the next life works on a copy of them),
and everything a transport hands to a link is noted: `House.seen` is what an eavesdropper on all links has seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import sqlite3
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from coterie.algorithms.base import Law
from coterie.deploy.agent import Agent
from coterie.deploy.agreement import Agreement, read_agreement
from coterie.deploy.frames import MAGIC, Receipt, digest
from coterie.deploy.keys import load_party
from coterie.deploy.ledger import DurableLedger, read
from coterie.deploy.noise import SystemSource
from coterie.deploy.pairs import with_secrets
from coterie.deploy.party import Party, Records, Terms, read_records
from coterie.deploy.transport import Link, Timing
from coterie.deploy.trial import Site, sign_trial
from coterie.plan import Plan, validate
from coterie.privacy.ledger import Budget
from tests.deploy.memory import MemoryNetwork, MemoryTransport

NAMES = ("ada", "ben", "cleo")
FAST = Timing(hello=2.0, retry=(0.01, 0.05), receipt=0.01)


class Crash(BaseException):
    """The process is gone; no handler may catch it."""


def small_plan(rounds: int, algorithm: str = "dp-dsgd", addresses: tuple[str | None, ...] | None = None,
               graph: str = "ring", **deploy: Any) -> Plan:  # fmt: skip
    """Three parties with twelve records of three numbers each."""
    places = addresses or tuple(f"{n}.example:443" for n in NAMES)
    parties = [{"name": n} | ({} if a is None else {"address": a}) for n, a in zip(NAMES, places, strict=True)]
    return validate(
        {
            "name": "three",
            "data": {"source": "csv"},
            "partition": {"kind": "iid", "sizes": [12] * 3},
            "graph": {"kind": graph},
            "problem": {"loss": "logistic", "dim": 3, "ridge": 0.1},
            "algorithm": {"name": algorithm, **({"mixing": 1} if algorithm == "dp-dsgd" else {})},
            "privacy": {"epsilon": 2.0, "delta": 1e-5},
            "run": {"rounds": rounds},
            "deploy": {"parties": parties, **deploy},
        }
    )


def small_records(seed: int = 0) -> list[Records]:
    rng, out = np.random.default_rng(seed), []
    for _ in NAMES:
        x = rng.normal(size=(12, 3))
        out.append(Records(x / np.linalg.norm(x, axis=1, keepdims=True), rng.integers(0, 2, 12), ("no", "yes"), ()))
    return out


class Setting:
    """Keys, agreement, records and compiled parties: what many houses share."""

    def __init__(self, plan: Plan, agreement: Path, sites: tuple[Site, ...]):
        self.plan, self.agreement_file, self.sites = plan, agreement, sites
        self.terms = Terms.of(plan)
        self.keys = {s.name: load_party(s.keys) for s in self.sites}
        first = self.keys[self.sites[0].name]
        self.agreement: Agreement = read_agreement(self.agreement_file, first.authority)
        nodes = {s.name: self.agreement.index(s.name) for s in sites}
        self.charges = {name: [e for r in self.terms.charges(node) for e in r] for name, node in nodes.items()}
        self.parties = {s.name: Party.of(self.terms, nodes[s.name], read_records(plan, s.data)) for s in sites}
        for name, party in self.parties.items():  # compile now, so that no test waits for it
            laws = self.terms.draws(party.node)
            draw = with_secrets(SystemSource(), laws, self.agreement, self.keys[name]).draw(0, laws)
            carry, _, _ = party.turn(0, party.begin(), draw)
            party.answer(carry)

    @classmethod
    def small(cls, folder: Path, rounds: int, *arguments: Any, **deploy: Any) -> Setting:
        plan = small_plan(rounds, *arguments, **deploy)
        return cls(plan, *sign_trial(plan, small_records(), folder))

    def site(self, name: str) -> Site:
        return next(s for s in self.sites if s.name == name)


class Memory:
    """Draws from the system, remembered; `fixed` ones are given again for the same party and round."""

    def __init__(self, fixed: dict[int, dict[str, Any]] | None = None):
        self.fixed = fixed
        self.calls: list[tuple[int, dict[str, Any]]] = []

    def draw(self, round: int, laws: Mapping[str, Law]) -> dict[str, Any]:
        if self.fixed is None:
            drawn = SystemSource().draw(round, laws)
        else:
            drawn = self.fixed.setdefault(round, SystemSource().draw(round, laws))
        self.calls.append((round, drawn))
        return drawn


class TappedLink:
    def __init__(self, link: Link, note: Callable[[bytes], None]):
        self._link, self._note = link, note

    async def read(self) -> bytes | None:
        return await self._link.read()

    async def write(self, data: bytes) -> None:
        self._note(data)
        await self._link.write(data)


class Tap(MemoryTransport):
    """Notes every frame that is handed to a link: (sender, round) → digests."""

    seen: dict[tuple[str, int], set[bytes]]

    async def converse(self, link: Link, peer: Any) -> None:
        def note(data: bytes) -> None:
            if data.startswith(MAGIC):
                self.seen[self.me, int.from_bytes(data[44:48], "little")].add(digest(data))

        await super().converse(TappedLink(link, note), peer)


class House:
    """All parties of a setting in one event loop."""

    def __init__(self, setting: Setting, folder: Path, timing: Timing = FAST):
        self.setting, self.folder, self.timing = setting, folder, timing
        self.network = MemoryNetwork()
        self.seen: dict[tuple[str, int], set[bytes]] = defaultdict(set)
        self.sources = {n: Memory() for n in self.names}
        self.lives = dict.fromkeys(self.names, 0)
        self.state = {n: folder / n / "0" for n in self.names}
        self.spent: dict[str, Fraction] = defaultdict(Fraction)
        self.models: dict[str, np.ndarray] = {}
        self.notes: list[tuple[str, str, dict[str, Any]]] = []

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(s.name for s in self.setting.sites)

    def ledger(self, name: str, state: Path) -> DurableLedger:
        plan = self.setting.plan
        assert plan.privacy is not None
        assert isinstance(plan.privacy.epsilon, float)
        state.mkdir(parents=True, exist_ok=True)
        return DurableLedger(
            state / "ledger.db", budget=Budget(plan.privacy.epsilon, plan.privacy.delta), agent=name, create=True,
            plan_hash=self.setting.agreement.plan_hash, plan=self.setting.charges[name],
        )  # fmt: skip

    def agent(self, name: str, ledger: DurableLedger, kind: type[Agent] = Agent, source: Any = None) -> Agent:
        setting = self.setting
        party, keys = setting.parties[name], setting.keys[name]
        transport = Tap(
            setting.agreement, name, keys, wire=party.wire, outbox=ledger.frame,
            held=ledger.held(), timing=self.timing, network=self.network,
        )  # fmt: skip
        transport.seen = self.seen
        note = lambda event, **facts: self.notes.append((name, event, facts))  # noqa: E731
        return kind(setting.agreement, keys, party, ledger, transport, source or self.sources[name], note)

    def image(self, name: str, into: Path) -> Path:
        """The ledger's files as they are now: what a crash at this moment, or a backup, leaves."""
        shutil.copytree(self.state[name], into)
        return into

    def reborn(self, name: str) -> None:
        """The next life works on what the crash has left; what was spent must not have become less (I4)."""
        self.lives[name] += 1
        before, self.state[name] = self.state[name], self.folder / name / str(self.lives[name])
        shutil.copytree(before, self.state[name])
        path = self.state[name] / "ledger.db"
        now = Fraction(read(path).allowance.spent) if path.exists() else Fraction(0)
        assert now >= self.spent[name], f"I4: {name} had spent {self.spent[name]}, its ledger says {now}"
        self.spent[name] = now

    async def live(self, name: str, *, kind: type[Agent] = Agent, prepare: Callable[[Agent], None] | None = None,
                   state: Path | None = None, saved: np.ndarray | None = None) -> None:  # fmt: skip
        """One life of a party: to its end, or to the exception that ends it. A Crash leaves the files as they are."""
        ledger = self.ledger(name, state or self.state[name])
        agent = self.agent(name, ledger, kind)
        if prepare is not None:
            prepare(agent)
        try:
            self.models[name] = await agent.run(saved=saved)
        except Crash:
            raise
        except BaseException:
            ledger.close()
            raise
        ledger.close()

    async def lives_on(self, name: str, prepare: Callable[[Agent], None], kind: type[Agent] = Agent) -> None:
        """Again and again, until no Crash ends it."""
        while True:
            try:
                return await self.live(name, kind=kind, prepare=prepare)
            except Crash:
                self.reborn(name)

    # ---- the history, afterwards ----

    def violations(self, rounds: int | None = None) -> list[str]:
        """I1-I3 and I5 from what was on the wire and what the ledgers say; `rounds` that every ledger must hold."""
        states = {n: self.state[n] / "ledger.db" for n in self.names}
        return history(states, self.seen, rounds)


def history(ledgers: Mapping[str, Path], wire: Mapping[tuple[str, int], set[bytes]], rounds: int | None) -> list[str]:
    """What is wrong with the ledgers of all parties and the frames that were seen on the links between them."""
    found: list[str] = []
    frames: dict[str, dict[int, bytes]] = {}
    holds: dict[str, list[dict[str, Receipt]]] = {}
    for name, path in ledgers.items():
        book = read(path)  # the chain, the seal, the prices
        if Fraction(book.allowance.spent) > Fraction(book.allowance.limit):
            found.append(f"I3: {name} has spent {book.allowance.spent} of {book.allowance.limit}")
        if rounds is not None and len(book.rows) != rounds:
            found.append(f"{name} has {len(book.rows)} rounds, expected {rounds}")
        frames[name], holds[name] = rows(path)
    for (sender, round), digests in wire.items():
        if len(digests) != 1:
            found.append(f"I1: {len(digests)} payloads of {sender} in round {round}")
        own = frames[sender].get(round)
        if own is None or digest(own) not in digests:
            found.append(f"I2: round {round} of {sender} is on the wire and {'not' if own is None else 'otherwise'} in "
                         "its ledger")  # fmt: skip
    for name, stored in holds.items():
        for t, held in enumerate(stored):
            for sender, receipt in held.items():
                before = stored[t - 1].get(sender, Receipt()) if t else Receipt()
                if receipt.round < before.round or receipt.round > t - 1:
                    found.append(f"I5: {name} in round {t} holds round {receipt.round} of {sender}, "
                                 f"before it {before.round}")  # fmt: skip
                own = frames[sender].get(receipt.round)
                if receipt.round >= 0 and (own is None or digest(own) != receipt.digest):
                    found.append(f"{name} used another round {receipt.round} of {sender} than its ledger holds")
    return found


def rows(path: Path) -> tuple[dict[int, bytes], list[dict[str, Receipt]]]:
    """Every round's frame, and what was held when it was released."""
    with _copied(path) as copy, contextlib.closing(sqlite3.connect(copy)) as db:
        found = db.execute("SELECT round, frame, held FROM release ORDER BY round").fetchall()
    return {r: bytes(f) for r, f, _ in found}, [
        {name: Receipt.unpack(bytes.fromhex(packed)) for name, packed in json.loads(h).items()} for _, _, h in found
    ]


@contextlib.contextmanager
def _copied(path: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        for name in (path.name, f"{path.name}-wal"):
            if (path.parent / name).exists():
                shutil.copy(path.parent / name, folder)
        yield Path(folder) / path.name


def impatient(seconds: float) -> Callable[[Agent], None]:
    """Another deploy.patience for one life."""

    def prepare(agent: Agent) -> None:
        agent.deploy = agent.deploy.model_copy(update={"patience": seconds})

    return prepare


def together(*jobs: Any, seconds: float = 60) -> None:
    """Run these in one loop, within a time."""

    async def everybody() -> None:
        async with asyncio.timeout(seconds):
            await asyncio.gather(*(job() if callable(job) else job for job in jobs))

    asyncio.run(everybody())
