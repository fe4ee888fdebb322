"""Agents over the wire of the tests: the deployed run is the simulated one, and no crash costs or shows anything twice."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from coterie.algorithms.base import Law
from coterie.deploy.agent import Agent, GaveUp, wire_of
from coterie.deploy.agreement import read_agreement
from coterie.deploy.frames import HEADER_BYTES, digest, open_frame
from coterie.deploy.keys import load_party
from coterie.deploy.ledger import DurableLedger, RolledBack
from coterie.deploy.memory import MemoryNetwork, MemoryTransport
from coterie.deploy.noise import SystemSource
from coterie.deploy.party import Party, Terms, read_records
from coterie.deploy.transport import RolledBack as NeighbourKnowsMore
from coterie.deploy.transport import Timing
from coterie.deploy.trial import Trial, make_trial
from coterie.drivers.simulate import Run, simulate
from coterie.plan import read_plan
from coterie.privacy.laws import Grid
from coterie.privacy.ledger import Budget

ROUNDS = 6
FAST = Timing(retry=(0.01, 0.05), receipt=0.01)
SGD = ("algorithm.name=dp-dsgd", "graph.kind=complete")
ADMM = ("algorithm.name=pr-admm", "graph.kind=ring")


class Recorded:
    """Fresh draws, remembered, so that a simulation can be given the very same ones."""

    def __init__(self) -> None:
        self.rounds: dict[int, dict[str, Any]] = {}
        self.calls: list[int] = []

    def draw(self, round: int, laws: Mapping[str, Law]) -> dict[str, Any]:
        self.calls.append(round)
        self.rounds[round] = SystemSource().draw(round, laws)
        return self.rounds[round]


class Wiretap(MemoryTransport):
    """Notes every payload that a party hands to the wire."""

    seen: dict[tuple[str, int], set[bytes]]

    async def push(self, round: int, frame: bytes) -> None:
        self.seen[self.me, round].add(digest(frame))
        await super().push(round, frame)


class House:
    """All parties of a trial in one event loop; any of them can be stopped and started."""

    def __init__(self, trial: Trial):
        self.trial, self.network = trial, MemoryNetwork()
        self.terms = Terms.of(trial.plan)
        self.seen: dict[tuple[str, int], set[bytes]] = defaultdict(set)
        self.sources = {site.name: Recorded() for site in trial.sites}
        self.models: dict[str, np.ndarray] = {}

    @contextlib.contextmanager
    def agent(self, name: str, **changes: Any) -> Iterator[Agent]:
        site = next(s for s in self.trial.sites if s.name == name)
        keys = load_party(site.keys)
        agreement = read_agreement(self.trial.agreement, keys.authority)
        party = Party(self.terms, agreement.index(name), read_records(agreement.plan, site.data))
        privacy = agreement.plan.privacy
        assert privacy is not None
        site.state.mkdir(exist_ok=True)
        plan = [e for round in self.terms.charges(party.node) for e in round]
        with DurableLedger(
            site.state / "ledger.db", budget=Budget(privacy.epsilon, privacy.delta), plan_hash=agreement.plan_hash,
            agent=name, plan=plan, create=True,
        ) as ledger:  # fmt: skip
            wire = wire_of(self.terms, party.count)
            transport = Wiretap(
                agreement, name, keys, wire=wire, outbox=ledger.frame, held=ledger.held(), timing=FAST,
                network=self.network,
            )  # fmt: skip
            transport.seen = self.seen
            agent = Agent(agreement, keys, party, ledger, transport, self.sources[name])
            for key, value in changes.items():
                setattr(agent, key, value)
            yield agent

    async def run(self, name: str, **changes: Any) -> None:
        with self.agent(name, **changes) as agent:
            self.models[name] = await agent.run()

    @property
    def names(self) -> list[str]:
        return [site.name for site in self.trial.sites]


def trial(folder: Path, *changes: str, rounds: int = ROUNDS) -> Trial:
    return make_trial(read_plan(None, [f"run.rounds={rounds}", *changes]), folder)


def simulated(house: House) -> np.ndarray:
    """The simulation's answer with the draws that the agents made."""
    terms, names = house.terms, house.names
    draws = [[house.sources[n].rounds[t] for n in names] for t in range(terms.rounds)]

    def column(key: str) -> Any:
        first = draws[0][0][key]
        if isinstance(first, Grid):
            return Grid(np.array([[d[key].steps for d in row] for row in draws]), first.unit)
        return np.array([[d[key] for d in row] for row in draws])

    layout = house.trial.experiment.layout(terms.rounds, terms.priced.shape)
    run = Run(0, terms.priced.cfg, terms.priced.noise)
    replay = {key: column(key) for key in draws[0][0]}
    return simulate(terms.priced.algorithm, layout, [run], rounds=terms.rounds, replay=replay).points[0]


@pytest.mark.parametrize("changes", [SGD, ADMM], ids=["sgd", "admm"])
def test_a_deployed_run_is_the_simulated_run(tmp_path: Path, changes: tuple[str, ...]) -> None:
    house = House(trial(tmp_path / "t", *changes))

    async def everybody() -> None:
        await asyncio.gather(*(house.run(name) for name in house.names))

    asyncio.run(asyncio.wait_for(everybody(), 120))
    expected = simulated(house)
    found = np.stack([house.models[name] for name in house.names])
    assert np.abs(found - expected).max() <= 1e-6 * np.abs(expected).max()
    other = House.__new__(House)
    other.__dict__.update(house.__dict__)
    other.sources = {n: Recorded() for n in house.names}  # broken twin: other noise is another run
    for name, source in other.sources.items():
        for t in range(house.terms.rounds):
            source.draw(t, house.terms.draws(house.names.index(name)))
    assert np.abs(found - simulated(other)).max() > 1e-3 * np.abs(expected).max()
    assert all(len(v) == 1 for v in house.seen.values())
    assert len(house.seen) == len(house.names) * ROUNDS
