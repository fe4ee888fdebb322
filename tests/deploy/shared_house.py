"""Whole agents whose messages are opened as sums, in one event loop, over the wire in memory; any can crash."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.deploy.agreement import read_agreement
from coterie.deploy.journal import WORDS
from coterie.deploy.keys import load_party
from coterie.deploy.ledger import DurableLedger
from coterie.deploy.noise import SystemSource
from coterie.deploy.party import Records, Terms
from coterie.deploy.shared import SharedParty, join
from coterie.deploy.sum_agent import SumAgent
from coterie.deploy.trial import Site, sign_trial
from coterie.deploy.work import Turns
from coterie.plan import Plan, validate
from coterie.privacy.ledger import Budget
from coterie.sums.party import SumParty
from coterie.sums.words import to_signed
from tests.deploy.house import FAST, Crash
from tests.deploy.memory import MemoryNetwork, MemoryPost

ROUNDS = 3


def shared_plan(
    parties: int, algorithm: str = "dp-dsgd", graph: str = "ring", rounds: int = ROUNDS, *,
    exchange: dict[str, Any] | None = None, deadline: float = 8.0, problem: dict[str, Any] | None = None,
    parties_at: list[tuple[str, str]] | None = None, **settings: Any,
) -> Plan:  # fmt: skip
    """Some parties with twelve records of three numbers each, on a graph, with shared noise; by default logistic."""
    places = parties_at or [(f"party-{i}", f"party-{i}.example:443") for i in range(parties)]
    shared = {"noise": "central", "honest": parties - 1}
    return validate(
        {
            "name": "shared",
            "data": {"source": "csv"},
            "partition": {"kind": "iid", "sizes": [12] * parties},
            "graph": {"kind": graph},
            "problem": {"loss": "logistic", "ridge": 0.1, **(problem or {}), "dim": 3},
            "algorithm": {"name": algorithm, **settings},
            "exchange": {"kind": "secret-sum", **(shared if exchange is None else exchange)},
            "privacy": {"epsilon": 2.0, "delta": 1e-5},
            "run": {"rounds": rounds},
            "deploy": {
                "parties": [{"name": name, "address": address} for name, address in places],
                "deadline": deadline, "patience": 60.0,
            },
        }
    )  # fmt: skip


def records_of(parties: int, classes: int | None = None, seed: int = 0) -> list[Records]:
    rng, out = np.random.default_rng(seed), []
    names = ("no", "yes") if classes is None else tuple(f"kind {k}" for k in range(classes))
    for _ in range(parties):
        x = rng.normal(size=(12, 3))
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        out.append(Records(x, rng.integers(0, len(names), 12), names, ()))
    return out


class NotedSums(SumParty):
    """Writes down what goes into a masked vector: (party, round, slot) → grid steps of the vector and each layer."""

    drawn: dict[tuple[int, int, int], list[NDArray[np.int64]]]

    def draw_layers(self, round_: int, slot: int, chain: Sequence[bytes]) -> list[NDArray[np.int64]]:
        layers = super().draw_layers(round_, slot, chain)
        assert self.vector is not None
        self.drawn[self.me, round_, slot] = [to_signed(self.terms.code.encode(self.vector)), *layers]
        return layers


class SharedSetting:
    """Keys, agreement, records and compiled parties."""

    def __init__(self, plan: Plan, folder: Path, records: list[Records] | None = None):
        assert plan.deploy is not None
        self.plan = plan
        self.records = records or records_of(len(plan.deploy.parties), plan.problem.classes)
        self.agreement_file, self.sites = sign_trial(plan, self.records, folder)
        self.terms = Terms.of(plan)
        self.keys = {s.name: load_party(s.keys) for s in self.sites}
        self.agreement = read_agreement(self.agreement_file, self.keys[self.sites[0].name].authority)
        self.names = tuple(s.name for s in self.sites)
        self.parties: dict[str, SharedParty] = {}
        for node, name in enumerate(self.names):
            party = join(Turns.of(self.terms, node), self.records[node])
            assert isinstance(party, SharedParty)
            self.parties[name] = party
        first = self.parties[self.names[0]]
        self.sharing = first.sharing
        self.shared = self.sharing.terms(self.agreement, first.count)

    def site(self, name: str) -> Site:
        return next(s for s in self.sites if s.name == name)


class SharedHouse:
    """All parties of a setting in one event loop; where they wait for each other, with a deadline of their own."""

    def __init__(self, setting: SharedSetting, folder: Path, deadline: float | None = None):
        self.setting, self.folder, self.network = setting, folder, MemoryNetwork()
        self.deadline = setting.agreement.deploy.deadline if deadline is None else deadline
        self.state = {n: folder / n / "0" for n in setting.names}
        self.lives = dict.fromkeys(setting.names, 0)
        self.agents: dict[str, SumAgent] = {}
        self.models: dict[str, np.ndarray] = {}
        self.drawn: dict[tuple[int, int, int], list[NDArray[np.int64]]] = {}
        self.notes: list[tuple[str, str, dict[str, Any]]] = []
        self.evidence: list[tuple[str, str, bytes]] = []
        self.kinds: dict[str, type[NotedSums]] = {}  # what some parties do instead
        self.opened: dict[tuple[str, int], tuple[tuple[int, ...], NDArray[np.int64]]] = {}

    def ledger(self, name: str) -> DurableLedger:
        plan, party, state = self.setting.plan, self.setting.parties[name], self.state[name]
        assert plan.privacy is not None
        assert isinstance(plan.privacy.epsilon, float)
        state.mkdir(parents=True, exist_ok=True)
        return DurableLedger(
            state / "ledger.db", budget=Budget(plan.privacy.epsilon, plan.privacy.delta), agent=name, create=True,
            plan_hash=self.setting.agreement.plan_hash, plan=[e for r in party.charges for e in r],
            most=party.sharing.most,
        )  # fmt: skip

    def agent(self, name: str, ledger: DurableLedger) -> SumAgent:
        setting, shared = self.setting, replace(self.setting.shared, patience=self.deadline)
        post = MemoryPost(
            setting.agreement, name, setting.keys[name], largest=shared.longest, timing=FAST, network=self.network
        )

        def note(event: str, **facts: Any) -> None:
            self.notes.append((name, event, facts))
            if event in WORDS:  # all that its words need is there
                assert WORDS[event][1] % facts

        made = SumAgent(
            setting.agreement, setting.keys[name], setting.parties[name], ledger, post, shared, SystemSource(), note,
            lambda *said: self.evidence.append(said),
        )  # fmt: skip
        made.deploy = made.deploy.model_copy(update={"deadline": self.deadline})
        old = made.sums
        made.sums = sums = self.kinds.get(name, NotedSums)(shared, old.me, old.signing, old.sealing, old.store)
        sums.drawn = self.drawn
        return made

    async def live(self, name: str, prepare: Callable[[SumAgent], None] = lambda _: None) -> None:
        """One life of a party. A Crash leaves the files as they are."""
        ledger = self.ledger(name)
        self.agents[name] = agent = self.agent(name, ledger)
        prepare(agent)
        try:
            self.models[name] = await agent.run()
            for t in range(agent.rounds):
                outcome = agent.sums.outcome(t)
                assert outcome is not None
                self.opened[name, t] = outcome.members, to_signed(outcome.total)
        except Crash:
            raise
        except BaseException:
            ledger.close()
            raise
        ledger.close()

    async def lives_on(self, name: str, prepare: Callable[[SumAgent], None] = lambda _: None) -> None:
        """Again and again, until no Crash ends it."""
        while True:
            try:
                return await self.live(name, prepare)
            except Crash:
                self.bury(name)

    def bury(self, name: str) -> None:
        """The next life works on a copy of what a crash left: a lock cannot be taken twice in one process."""
        self.lives[name] += 1
        self.state[name] = self.copy(name, self.folder / name / str(self.lives[name]))

    def copy(self, name: str, into: Path) -> Path:
        """The ledger's files as they are now."""
        shutil.copytree(self.state[name], into)
        return into

    def run(self, prepare: Callable[[SumAgent], None] = lambda _: None, seconds: float = 120) -> None:
        """Everybody to the end."""

        async def everybody() -> None:
            async with asyncio.timeout(seconds):
                await asyncio.gather(*(self.lives_on(n, prepare) for n in self.setting.names))

        asyncio.run(everybody())
