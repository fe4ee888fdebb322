"""Agents over the wire of the tests: a deployed run is the simulated one, and no crash costs or shows a thing twice."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie.algorithms.laws import Grid
from coterie.deploy import agent as agent_module
from coterie.deploy.agent import Agent, GaveUp
from coterie.deploy.frames import seal
from coterie.deploy.ledger import read
from coterie.deploy.peers import Peer
from coterie.deploy.transport import NeighbourKnowsMore
from coterie.deploy.trial import Trial, make_trial
from coterie.drivers.simulate import Run, simulate
from coterie.plan import read_plan
from tests.deploy.house import Crash, House, Memory, Setting, impatient, rows, together
from tests.support import CLINICS

ROUNDS = 6
SGD = ("algorithm.name=dp-dsgd", "graph.kind=complete")
ADMM = ("algorithm.name=pr-admm", "graph.kind=ring")


@pytest.fixture(autouse=True)
def _no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_module, "GRACE", 0.05)


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Setting:
    """Three parties that need every message."""
    return Setting.small(tmp_path_factory.mktemp("three") / "t", 14, "pr-admm", deadline=2.0, patience=60.0)


# ---- T4: parity ------------------------------------------------------------------------------------------------------


def simulated(trial: Trial, house: House, sources: dict[str, Memory]) -> np.ndarray:
    """The simulation's answer with the draws that the agents made."""
    terms = house.setting.terms
    drawn = {n: dict(s.calls) for n, s in sources.items()}
    draws = [[drawn[n][t] for n in house.names] for t in range(terms.rounds)]

    def column(key: str) -> Any:
        first = draws[0][0][key]
        if isinstance(first, Grid):
            return Grid(np.array([[d[key].steps for d in row] for row in draws]), first.unit)
        return np.array([[d[key] for d in row] for row in draws])

    layout = trial.experiment.layout(terms.rounds, terms.priced.shape)
    run = Run(0, terms.priced.cfg, terms.priced.noise)
    replay = {key: column(key) for key in draws[0][0]}
    return simulate(terms.priced.algorithm, layout, [run], rounds=terms.rounds, replay=replay).points[0]


@pytest.mark.parametrize("changes", [pytest.param(SGD, marks=pytest.mark.slow), ADMM], ids=["sgd", "admm"])
def test_a_deployed_run_is_the_simulated_run(tmp_path: Path, changes: tuple[str, ...]) -> None:
    trial = make_trial(read_plan(CLINICS, [f"run.rounds={ROUNDS}", *changes]), tmp_path / "t")
    house = House(Setting(trial.plan, trial.agreement, trial.sites), tmp_path / "h")
    together(*(house.live(name) for name in house.names), seconds=60)
    expected = simulated(trial, house, house.sources)
    found = np.stack([house.models[name] for name in house.names])
    assert np.abs(found - expected).max() <= 1e-6 * np.abs(expected).max()
    others = {n: Memory() for n in house.names}  # broken twin: other noise is another run
    for node, source in enumerate(others.values()):
        for t in range(ROUNDS):
            source.draw(t, house.setting.terms.draws(node))
    assert np.abs(found - simulated(trial, house, others)).max() > 1e-3 * np.abs(expected).max()
    assert len(house.seen) == len(house.names) * ROUNDS
    assert house.violations(ROUNDS) == []


# ---- P1: crashes -----------------------------------------------------------------------------------------------------

PLACES = [f"{when} {what}" for what in ("draw", "turn", "release", "push", "listen") for when in ("before", "after")]


class Crashes:
    """Ends a party at chosen calls: (round, "before draw") and so on, each once."""

    def __init__(self, *points: tuple[int, str]):
        self.points = set(points)
        self.met: list[tuple[int, str]] = []

    def meet(self, t: int, where: str) -> None:
        if (t, where) in self.points:
            self.points.discard((t, where))
            self.met.append((t, where))
            raise Crash

    def __call__(self, agent: Agent) -> None:
        def hooked(owner: Any, call: str, what: str, round_of: Callable[..., int]) -> None:
            real = getattr(owner, call)

            def plain(*a: Any, **k: Any) -> Any:
                self.meet(round_of(*a), f"before {what}")
                out = real(*a, **k)
                self.meet(round_of(*a), f"after {what}")
                return out

            async def awaited(*a: Any, **k: Any) -> Any:
                self.meet(round_of(*a), f"before {what}")
                await asyncio.sleep(0.02)  # what was queued is on the wire by now
                out = await real(*a, **k)
                self.meet(round_of(*a), f"after {what}")
                return out

            setattr(owner, call, awaited if asyncio.iscoroutinefunction(real) else plain)

        agent.party = Proxy(agent.party)  # type: ignore[assignment]
        agent.source = Proxy(agent.source)  # type: ignore[assignment]
        hooked(agent.source, "draw", "draw", lambda t, *_: t)
        hooked(agent.party, "speak", "turn", lambda t, *_: t)
        hooked(agent.ledger, "release", "release", lambda t, *_: t)
        hooked(agent.transport, "push", "push", lambda t, *_: t)
        hooked(agent, "_collect", "listen", lambda t, *_: t)


@pytest.mark.slow
def test_one_that_ends_behind_the_last_round_needs_nobody(tmp_path: Path) -> None:
    """Killed after its model was stored: the neighbours have its word and are gone. It is done, and sends no more."""
    house = House(Setting.small(tmp_path / "t", 2, "pr-admm", deadline=0.3, patience=5.0), tmp_path / "h")
    together(*(house.live(name) for name in house.names), seconds=60)
    name, model = house.names[1], house.models[house.names[1]]
    draws, seen = len(house.sources[name].calls), {k: set(v) for k, v in house.seen.items()}
    together(house.live(name, saved=model), seconds=20)
    assert house.models[name] is model
    assert (len(house.sources[name].calls), house.seen) == (draws, seen)
    assert house.violations(2) == []
    with pytest.raises(GaveUp):  # twin: without its model it would need the last messages again
        together(house.live(name, prepare=impatient(0.5)), seconds=20)


def test_one_that_comes_back_behind_the_last_round_serves_those_that_wait(tmp_path: Path) -> None:
    """It stored its model and died before its last message arrived everywhere."""
    house = House(Setting.small(tmp_path / "t", 2, "pr-admm", deadline=20.0, patience=60.0), tmp_path / "h")
    name = house.names[1]
    together(*(house.live(n) for n in house.names), seconds=60)
    other, model = house.names[0], house.models[house.names[0]]
    del house.models[other]
    began = time.monotonic()
    together(house.live(name, saved=house.models[name]), house.live(house.names[2], saved=house.models[house.names[2]]),
             house.live(other), seconds=60)  # fmt: skip
    assert time.monotonic() - began < 15  # nobody waits for a deadline: each has the others' word
    np.testing.assert_array_equal(house.models[other], model)
    assert house.violations(2) == []


class Proxy:
    """Something shared, with calls that can be replaced for one life."""

    def __init__(self, real: Any):
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def test_p1_a_crash_at_every_step_shows_and_costs_nothing_twice(three: Setting, tmp_path: Path) -> None:
    """One party is ended before and after each of its steps, in the first rounds and again later."""
    crashes = Crashes(*[(t, where) for t, where in enumerate(PLACES)], (0, "after release"), (13, "after push"),
                      (13, "before release"), (0, "before listen"))  # fmt: skip
    house = House(three, tmp_path)
    together(house.live("ada"), house.live("cleo"), house.lives_on("ben", crashes))
    assert crashes.points == set()
    assert house.lives["ben"] == len(crashes.met) == len(PLACES) + 4
    assert house.violations(14) == []
    drawn = [np.concatenate([g.steps.ravel() for g in d.values() if isinstance(g, Grid)])
             for _, d in house.sources["ben"].calls]  # fmt: skip
    assert len({d.tobytes() for d in drawn}) == len(drawn) > 14  # N4: noise after a restart is never noise of before


class Early(Agent):
    """The twin that sends first and pays later."""

    async def _speak(self, t: int, carry: Any) -> Any:
        carry, numbers, _ = self.party.speak(t, carry, self.source)
        payload = self.wire.encode(numbers, self.party.node, t)
        frame = seal(self.keys.frame_key, self.agreement.plan_hash, self.party.node, t, payload)
        await self.transport.push(t, frame)
        await asyncio.sleep(0.05)
        heard = [part for part in self.signed if part is not None]
        self.ledger.release(t, self.charges[t], frame, self.party.pack(carry), self.held, known=heard)
        return carry


class Redraws(Agent):
    """The twin that computes its last message anew after a restart instead of sending what it stored."""

    async def _resume(self) -> Any:
        last, stored = self.ledger.last, self.ledger.frame
        if last >= 0:
            state, heard = self.ledger.whole_state()
            carry = self.party.unpack(state, stored(last), [part.content for part in heard])  # type: ignore[arg-type]
            _, numbers, _ = self.party.speak(last, carry, self.source)
            payload = self.wire.encode(numbers, self.party.node, last)
            other = seal(self.keys.frame_key, self.agreement.plan_hash, self.party.node, last, payload)
            self.ledger.frame = lambda r: other if r == last else stored(r)  # type: ignore[method-assign]
            self.transport._outbox = self.ledger.frame  # type: ignore[attr-defined]
        return await super()._resume()


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "where"), [(Early, "before release"), (Redraws, "before push")])
def test_p1_twins_are_caught(three: Setting, tmp_path: Path, kind: type[Agent], where: str) -> None:
    house = House(three, tmp_path)
    with contextlib.suppress(NeighbourKnowsMore):  # the neighbours notice too, when it is too late
        together(house.live("ada"), house.live("cleo"), house.lives_on("ben", Crashes((3, where)), kind))
    assert any(v.startswith(("I1", "I2")) for v in house.violations())


# ---- P4: old copies, and two processes on one ledger -----------------------------------------------------------------


class Snapshots:
    """Keeps the ledger's files as they are after every release."""

    def __init__(self, house: House, name: str, folder: Path):
        self.house, self.name, self.folder = house, name, folder
        self.kept: list[Path] = []

    def __call__(self, agent: Agent) -> None:
        real = agent.ledger.release

        def release(t: int, *rest: Any) -> None:
            real(t, *rest)
            self.kept.append(self.house.image(self.name, self.folder / str(t)))

        agent.ledger.release = release  # type: ignore[method-assign]


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Setting:
    """ben only dials, so that two of him can run at once."""
    places = ("ada.example:443", None, "cleo.example:443")
    return Setting.small(
        tmp_path_factory.mktemp("long") / "t", 54, "pr-admm", addresses=places, deadline=1.0, patience=600.0
    )


@pytest.mark.parametrize("count", [10, pytest.param(50, marks=pytest.mark.slow)])
def test_p4_old_copies_of_a_ledger_are_refused_before_anything_is_sent(
    long: Setting, tmp_path: Path, count: int
) -> None:
    house = House(long, tmp_path / "h")
    snapshots = Snapshots(house, "ben", tmp_path / "s")
    crashes = Crashes((count + 1, "after listen"))

    def prepare(agent: Agent) -> None:
        snapshots(agent)
        crashes(agent)

    async def ben() -> int:
        with contextlib.suppress(Crash):
            await house.live("ben", prepare=prepare)
        before, refused = {k: set(v) for k, v in house.seen.items()}, 0
        for copy in snapshots.kept[:count]:
            with pytest.raises(NeighbourKnowsMore, match="my ledger does not hold it"):
                await house.live("ben", state=copy)
            refused += 1
            assert {k: v for k, v in house.seen.items() if k[0] == "ben"} == {
                k: v for k, v in before.items() if k[0] == "ben"
            }
        house.reborn("ben")
        await house.live("ben")
        assert refused == count
        return refused

    together(house.live("ada"), house.live("cleo"), ben(), seconds=60 + 5 * count)
    assert house.violations(54) == []


class Thoughtful(Agent):
    """Computes for a while before it speaks, as a large model does."""

    async def _speak(self, t: int, carry: Any) -> Any:
        await asyncio.sleep(0.2 if t == 6 else 0)
        return await super()._speak(t, carry)


def clones(setting: Setting, folder: Path, where: str) -> tuple[House, int]:
    """Two processes started at once from the same files, which no receipt can tell apart; how many made a message."""
    house = House(setting, folder / "h")

    async def clone(state: Path) -> None:
        with contextlib.suppress(NeighbourKnowsMore, GaveUp):
            await house.live("ben", state=state, prepare=impatient(2.0), kind=Thoughtful)

    async def ben() -> None:
        with contextlib.suppress(Crash):
            await house.live("ben", prepare=Crashes((5, where)))
        copies.extend(house.image("ben", folder / f"copy {i}") for i in range(2))
        await asyncio.gather(*(clone(c) for c in copies))

    async def neighbour(name: str) -> None:
        with contextlib.suppress(GaveUp):  # if the two stood in each other's way
            await house.live(name, prepare=impatient(6.0))

    copies: list[Path] = []
    together(neighbour("ada"), neighbour("cleo"), ben())
    return house, sum(len(read(c / "ledger.db").rows) > 6 for c in copies)


@pytest.mark.parametrize("where", ["after listen", "before push"])
def test_p4_of_two_processes_on_copies_of_one_ledger_one_speaks(long: Setting, tmp_path: Path, where: str) -> None:
    house, speakers = clones(long, tmp_path, where)
    assert speakers <= 1
    assert all(len(seen) == 1 for seen in house.seen.values())


@pytest.mark.slow
def test_p4_twin_that_lets_every_process_in_has_two_speakers(
    long: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Peer, "sit", lambda *_: True)
    assert clones(long, tmp_path, "after listen")[1] == 2


# ---- T3: partitions --------------------------------------------------------------------------------------------------


def integers(house: House) -> dict[tuple[str, int], bytes]:
    """Every frame of every ledger: equal bytes, since the signature is deterministic too."""
    return {(n, t): f for n in house.names for t, f in rows(house.state[n] / "ledger.db")[0].items()}


def test_t3_a_partition_heals_to_identical_integers(three: Setting, tmp_path: Path) -> None:
    noise: dict[str, dict[int, dict[str, Any]]] = {n: {} for n in ("ada", "ben", "cleo")}
    runs = []
    for cut in (False, True):
        house = House(three, tmp_path / str(cut))
        house.sources = {n: Memory(noise[n]) for n in house.names}

        async def partition(house: House = house) -> None:
            for round, pairs in ((2, [("ada", "ben")]), (5, [("ada", "ben"), ("ben", "cleo"), ("cleo", "ada")])):
                while ("ben", round) not in house.seen:
                    await asyncio.sleep(0.002)
                for pair in pairs:
                    house.network.cut(*pair)
                await asyncio.sleep(0.3)
                for pair in pairs:
                    house.network.heal(*pair)

        together(*(house.live(n) for n in house.names), *([partition()] if cut else []))
        assert house.violations(14) == []
        runs.append(house)
    assert integers(runs[0]) == integers(runs[1])
    assert all((runs[0].models[n] == runs[1].models[n]).all() for n in runs[0].names)
    other = House(three, tmp_path / "twin")  # other noise: other integers
    together(*(other.live(n) for n in other.names))
    assert not set(integers(other).values()) & set(integers(runs[0]).values())
