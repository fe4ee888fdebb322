"""Sums between deployed parties: what is opened, what is charged, and what crashes change of it: nothing."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from coterie.deploy import hello, mail, sum_agent
from coterie.deploy.agreement import Agreement, Ended
from coterie.deploy.certify import unsigned_certificate
from coterie.deploy.kept import sent_again
from coterie.deploy.ledger import DurableLedger, RolledBack, read
from coterie.deploy.noise import noise_scales
from coterie.deploy.packets import PACKET, TAKEN, Packets
from coterie.deploy.routes import NOTICE
from coterie.deploy.sharing import steady
from coterie.deploy.sum_agent import Disputed, SumAgent
from coterie.deploy.transport import Link
from coterie.drivers.layout import make_layout
from coterie.drivers.simulate import Run, Trace, simulate
from coterie.exchange.planned import exchange_of
from coterie.privacy.accountants import account
from coterie.privacy.events import Free
from coterie.report.sealing import seal
from coterie.report.verification import verify
from coterie.sums import core
from coterie.sums.messages import Partial, Step, SumFrame, read_frames
from coterie.sums.store import Charge, Key
from coterie.sums.words import add, from_signed
from tests.deploy.house import Crash, TappedLink
from tests.deploy.memory import MemoryPost
from tests.deploy.shared_house import ROUNDS, NotedSums, SharedHouse, SharedSetting, shared_plan
from tests.support import mostly_slow

PARTIES = 5
SHARED = {"noise": "central", "honest": 4, "threshold": 4}


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> SharedSetting:
    return SharedSetting(shared_plan(PARTIES, exchange=SHARED), tmp_path_factory.mktemp("shared") / "trial")


@pytest.fixture(scope="module")
def undisturbed(setting: SharedSetting, tmp_path_factory: pytest.TempPathFactory) -> SharedHouse:
    house = SharedHouse(setting, tmp_path_factory.mktemp("undisturbed"))
    house.run()
    return house


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> SharedSetting:
    """Everybody must answer."""
    plan = shared_plan(3, exchange={"noise": "central", "honest": 2})
    return SharedSetting(plan, tmp_path_factory.mktemp("three") / "trial")


def noise_in(house: SharedHouse, t: int) -> np.ndarray:
    """What the parties of a round's sum put on it, in grid steps: the layers that were not taken off again."""
    members, _ = house.opened[house.setting.names[0], t]
    kept = 1 + house.setting.shared.layers.keep(PARTIES - len(members)) + 1
    slots = {slot for _, r, slot in house.drawn if r == t}
    whole = [slot for slot in slots if all((i, t, slot) in house.drawn for i in members)]
    sums = [np.sum([house.drawn[i, t, s][1:kept] for i in members], axis=(0, 1)) for s in whole]
    bare = [np.sum([house.drawn[i, t, s][0] for i in members], axis=0) for s in whole]
    total = house.opened[house.setting.names[0], t][1]
    (right,) = (noise for noise, message in zip(sums, bare, strict=True) if np.array_equal(total, noise + message))
    return np.asarray(right)


def test_a_ring_opens_the_sum_of_all_messages_and_layers(undisturbed: SharedHouse) -> None:
    for t in range(ROUNDS):
        members, total = undisturbed.opened[undisturbed.setting.names[0], t]
        assert members == tuple(range(PARTIES))
        assert noise_in(undisturbed, t).any()
        for name in undisturbed.setting.names:
            assert np.array_equal(undisturbed.opened[name, t][1], total)
    models = np.stack([undisturbed.models[n] for n in undisturbed.setting.names])
    assert np.ptp(models, axis=0).max() < 1e-15


def simulated(house: SharedHouse) -> Trace:
    """A simulation of the plan whose parties add the noise that was drawn in the house."""
    setting = house.setting
    terms, plan, parties = setting.terms, setting.plan, len(setting.names)
    priced, grid = terms.priced, 2.0**-setting.sharing.fraction_bits
    sigma = noise_scales(priced.algorithm, priced.cfg, priced.places).T[..., None]
    drawn = np.zeros((ROUNDS, parties, house.setting.shared.size))
    for (party, t, _), (_, *layers) in house.drawn.items():
        drawn[t, party] = np.sum(layers[: 1 + setting.shared.layers.keep(0)], axis=0)
    network, classes = terms.network, setting.records[0].classes
    features = np.concatenate([r.features for r in setting.records])
    labels = network.problem.encode(np.concatenate([r.targets for r in setting.records]), classes)
    parts = np.split(np.arange(len(labels)), parties)
    with jax.enable_x64(True):
        layout = make_layout(
            network.problem, features, labels, parts, network.graph, network.mixing,
            rounds=ROUNDS, shape=priced.shape, ridge=plan.ridge,
        )  # fmt: skip
    exchange = exchange_of(plan, priced.algorithm, network.graph, network.mixing, priced.terms)
    run = [Run(0, priced.cfg, priced.noise)]
    return simulate(
        priced.algorithm, layout, run, rounds=ROUNDS, replay={"noise": drawn * grid / sigma}, exchange=exchange,
        record=True,
    )  # fmt: skip


def is_simulated(house: SharedHouse) -> None:
    """Every round opened the integers that a simulation opens, and the models are its points."""
    setting, trace = house.setting, simulated(house)
    grid = 2.0**-setting.sharing.fraction_bits
    said = np.rint(np.asarray(jax.tree.leaves(trace.messages)[0][0]) / grid).sum(axis=1)
    for t in range(ROUNDS):
        assert np.array_equal(said[t].astype(np.int64), house.opened[setting.names[0], t][1])
    models = np.stack([house.models[n] for n in setting.names])
    assert np.abs(models - trace.points[0]).max() < 1e-12


def test_a_simulation_with_the_same_draws_opens_the_same_integers(undisturbed: SharedHouse) -> None:
    is_simulated(undisturbed)


def test_every_round_is_charged_once_and_costs_what_was_agreed(undisturbed: SharedHouse) -> None:
    plan = undisturbed.setting.plan
    assert plan.privacy is not None
    assert isinstance(plan.privacy.epsilon, float)
    for name in undisturbed.setting.names:
        book = read(undisturbed.state[name] / "ledger.db")
        assert len(book.rows) == ROUNDS
        assert not any(isinstance(e.event, Free) for e in book.entries)
        spent = account([e.event for e in book.entries], plan.privacy.delta).epsilon
        assert 0.999 * plan.privacy.epsilon <= spent <= plan.privacy.epsilon


def test_the_noise_of_a_party_is_at_least_what_is_charged(setting: SharedSetting) -> None:
    sharing, priced = setting.sharing, setting.terms.priced
    own = noise_scales(priced.algorithm, priced.cfg, priced.places) * 2.0**sharing.fraction_bits
    for t in range(ROUNDS):
        layers = setting.shared.noise(t)
        assert layers.variance >= 4 * own[:, t].max() ** 2
        assert layers.variance <= 4 * own[:, t].max() ** 2 * (1 + 2**-10)
        event, local = setting.parties["party-0"].charges[t][0], sharing.local[t]
        assert float(event.sigma) ** 2 <= float(layers.variance) - 9  # type: ignore[attr-defined]
        assert float(local.sigma) ** 2 <= float(layers.variances[0]) - 9  # type: ignore[attr-defined]


def test_variances_are_rounded_up_and_alike_where_machines_differ_in_the_last_bits() -> None:
    for value in np.random.default_rng(0).uniform(10, 1e9, 200):
        assert value <= steady(value) <= value * (1 + 2**-10)
        assert steady(value) == steady(value * (1 + 1e-15)) == steady(value * (1 - 1e-15))


# ---- crashes ---------------------------------------------------------------------------------------------------------


def dies_at(deaths: dict[str, list[tuple[int, str]]]) -> Callable[[SumAgent], None]:
    """Each life of these parties ends before or after so many transactions, or so many "paid": after it paid once."""

    def prepare(agent: SumAgent) -> None:
        if not deaths.get(agent.name):
            return
        when, moment = deaths[agent.name].pop(0)
        store, commit, count = agent.sums.store, agent.sums.store.commit, 0

        def commit_or_die(puts: Mapping[Key, object], erase: Iterable[Key] = (), charge: Charge | None = None) -> None:
            nonlocal count
            count += moment != "paid" or count > 0 or charge is not None
            if (count, moment) == (when, "before"):
                raise Crash
            commit(puts, erase, charge)
            if count == when and moment in ("after", "paid"):
                raise Crash

        store.commit = commit_or_die  # type: ignore[method-assign]

    return prepare


def test_crashes_open_nothing_that_was_not_charged_and_change_no_sum(setting: SharedSetting, tmp_path: Path) -> None:
    """Two parties die again and again, at transactions of dealing, of committing, of voting and of opening."""
    house = SharedHouse(setting, tmp_path, deadline=3.0)
    deaths = {
        "party-1": [(4, "after"), (9, "before"), (6, "after"), (5, "before")],
        "party-3": [(17, "before"), (20, "after"), (3, "after")],
    }
    house.run(dies_at(deaths))
    assert not any(deaths.values())
    for t in range(ROUNDS):
        noise_in(house, t)  # the total is that of one slot's messages and layers
        totals = {house.opened[n, t][1].tobytes() for n in setting.names}
        assert len(totals) == 1
    for name in setting.names:
        book = read(house.state[name] / "ledger.db")
        assert sum(not isinstance(e.event, Free) for e in book.entries) <= ROUNDS
        assert len(book.rows) <= setting.sharing.most
    models = np.stack([house.models[n] for n in setting.names])
    assert np.ptp(models, axis=0).max() < 1e-12


def test_a_party_that_is_gone_is_left_out_and_one_that_comes_back_catches_up(
    setting: SharedSetting, tmp_path: Path
) -> None:
    house = SharedHouse(setting, tmp_path, deadline=2.0)

    async def story() -> None:
        async with asyncio.timeout(90):
            others = [asyncio.create_task(house.live(n)) for n in setting.names if n != "party-2"]
            with pytest.raises(Crash):  # after its third transaction of dealing
                await house.live("party-2", dies_at({"party-2": [(16, "after")]}))
            house.bury("party-2")
            while not any(event == "opened" and facts["missing"] == ["party-2"] for _, event, facts in house.notes):
                await asyncio.sleep(0.05)
            await asyncio.gather(house.live("party-2"), *others)

    asyncio.run(story())
    members = [house.opened["party-0", t][0] for t in range(ROUNDS)]
    assert (0, 1, 3, 4) in members
    models = np.stack([house.models[n] for n in setting.names])
    assert np.ptp(models, axis=0).max() < 1e-12
    book = read(house.state["party-2"] / "ledger.db")
    assert len(book.rows) < ROUNDS + 1


@pytest.mark.slow
def test_a_ledger_from_an_old_copy_refuses_to_run(three: SharedSetting, tmp_path: Path) -> None:
    """Where everybody must answer, the others wait for the party, and so hold what it said since."""
    house = SharedHouse(three, tmp_path / "house", deadline=2.0)

    async def story() -> None:
        async with asyncio.timeout(90):
            others = [asyncio.create_task(house.live(n)) for n in three.names if n != "party-2"]
            with pytest.raises(Crash):
                await house.live("party-2", dies_at({"party-2": [(9, "before")]}))
            house.bury("party-2")
            old = house.copy("party-2", tmp_path / "old")
            with pytest.raises(Crash):
                await house.live("party-2", dies_at({"party-2": [(5, "paid")]}))  # others have words and vote
            house.state["party-2"] = old
            with pytest.raises(RolledBack, match="old copy"):
                await house.live("party-2")
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

    asyncio.run(story())


# ---- liars -----------------------------------------------------------------------------------------------------------


class Alters(NotedSums):
    """Adds something to what its children sent, after it has committed to its own words."""

    def frame(self, kind: Step, instance: int, ballot: int = 0, slot: int = 0, body: bytes = b"") -> SumFrame:
        if kind is Step.WORDS and instance == 1:
            said = Partial.read(body, self.terms)
            body = Partial(
                said.start, said.members, said.added, add(said.words, from_signed(np.array([0, 7, 0])))
            ).pack(self.terms)
        return super().frame(kind, instance, ballot, slot, body)


def test_a_party_that_alters_a_sum_is_named_and_no_step_is_taken(setting: SharedSetting, tmp_path: Path) -> None:
    house = SharedHouse(setting, tmp_path, deadline=2.0)
    house.kinds["party-3"] = Alters
    ends: dict[str, BaseException | None] = {}

    async def life(name: str) -> None:
        try:
            await house.live(name)
        except Disputed as error:
            ends[name] = error

    async def story() -> None:
        async with asyncio.timeout(90):
            await asyncio.gather(*(life(n) for n in setting.names))

    asyncio.run(story())
    assert set(ends) == set(setting.names)
    assert not house.models
    for name, error in ends.items():
        assert name == "party-3" or "party-3 its partial sum is not its words" in str(error)
    accused = {(party, hashlib.sha256(frames).digest()) for party, _, frames in house.evidence}
    assert {party for party, _ in accused} == {"party-3"}
    shown = read_frames(house.evidence[0][2], setting.shared)  # signed: anybody can check it again
    assert [frame.kind for frame in shown] == [Step.SET, Step.CERT, Step.SHOW]


# ---- what else is summed ---------------------------------------------------------------------------------------------


def run_one(tmp_path: Path, *arguments: Any, **options: Any) -> SharedHouse:
    setting = SharedSetting(shared_plan(*arguments, **options), tmp_path / "trial")
    house = SharedHouse(setting, tmp_path / "house")
    house.run()
    return house


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "settings"),
    mostly_slow([("gauss-avg-gd", {}), ("dp-consensus-gd", {"stage_one": 2}), ("priv-rcd", {})], ("priv-rcd", {})),
)
def test_whatever_reads_totals_runs_with_shared_noise(algorithm: str, settings: dict[str, Any], tmp_path: Path) -> None:
    house = run_one(tmp_path, 4, algorithm, "path", **settings)
    models = np.stack([house.models[n] for n in house.setting.names])
    assert np.ptp(models, axis=0).max() < 1e-12
    assert np.abs(models).max() > 0
    if algorithm == "dp-consensus-gd":  # rounds that say nothing new carry no noise
        assert not house.setting.shared.noise(2).variance
        assert house.setting.shared.noise(0).variance
        with house.ledger("party-2") as ledger:  # … and cost nothing, but their vectors were sent once
            assert isinstance(ledger.entries[2].event, Free)
            body = unsigned_certificate(house.setting.plan, 2, ledger.entries, sent_again(ledger), {})
        assert [group["sent_again"] for group in body["agents"]] == [0, 0]  # type: ignore[index,attr-defined]
        verify(seal(body))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("problem", "dim"),
    [
        pytest.param({"loss": "softmax", "classes": 3}, 9, marks=pytest.mark.slow),
        ({"loss": "mlp", "hidden": [4], "classes": 3, "ridge": 0.0}, 31),
    ],
)
def test_softmax_and_networks_share_noise(problem: dict[str, Any], dim: int, tmp_path: Path) -> None:
    house = run_one(tmp_path, 4, exchange=SHARED | {"honest": 3}, problem=problem)
    assert house.setting.shared.size == dim
    assert all(house.opened["party-0", t][0] == (0, 1, 2, 3) for t in range(ROUNDS))
    is_simulated(house)
    start = house.setting.terms.network.problem.start(0)
    assert all(np.abs(model - start).max() > 0 for model in house.models.values())


def test_local_noise_is_drawn_once_a_round_and_summed_on_any_graph(tmp_path: Path) -> None:
    house = run_one(tmp_path, 4, "hmv-dgd", "star", exchange={})
    assert not house.setting.sharing.central
    models = np.stack([house.models[n] for n in house.setting.names])
    assert np.ptp(models, axis=0).max() < 1e-9
    for t in range(ROUNDS):
        assert not noise_in_all(house, t).any()


def noise_in_all(house: SharedHouse, t: int) -> np.ndarray:
    return np.sum([np.sum(layers, axis=0) for (_, r, _), (_, *layers) in house.drawn.items() if r == t], axis=0)


def test_a_party_that_died_sends_the_same_message_again(tmp_path: Path) -> None:
    """With local noise a second draw for one round would be a second release."""
    plan = shared_plan(4, "gauss-avg-gd", "ring", exchange={}, deadline=0.6)
    setting = SharedSetting(plan, tmp_path / "trial")
    house = SharedHouse(setting, tmp_path / "house")
    said: dict[int, set[bytes]] = {}

    class Remembers(NotedSums):
        def draw_layers(self, round_: int, slot: int, chain: Sequence[bytes]) -> list:
            assert self.vector is not None
            said.setdefault(round_, set()).add(self.vector.tobytes())
            return super().draw_layers(round_, slot, chain)

    house.kinds["party-1"] = Remembers
    house.run(dies_at({"party-1": [(k, "after") for k in (12, 3, 4, 5)]}))
    assert len(said) == ROUNDS
    assert all(len(vectors) == 1 for vectors in said.values())


def test_the_cap_of_masked_vectors_stops_a_party(setting: SharedSetting, tmp_path: Path) -> None:
    house = SharedHouse(setting, tmp_path)
    path = house.state["party-0"] / "ledger.db"
    with house.ledger("party-0") as ledger:
        assert isinstance(ledger, DurableLedger)
        assert ledger.most == setting.sharing.most == ROUNDS + setting.terms.priced.terms.retries  # type: ignore[union-attr]
    assert path.exists()


# ---- what must end a party, and not be taken for a neighbour's bad frame ---------------------------------------------


async def how_they_end(
    house: SharedHouse, prepare: Callable[[SumAgent], None], names: Collection[str]
) -> dict[str, str]:
    """The exception that ends each of these parties, or ""; the others are ended then."""
    ends: dict[str, str] = {}

    async def life(name: str) -> None:
        try:
            await house.live(name, prepare)
            ends[name] = ""
        except Exception as error:
            ends[name] = f"{type(error).__name__}: {error}"

    lives = {n: asyncio.create_task(life(n)) for n in house.setting.names}
    await asyncio.wait([lives[n] for n in names], timeout=50)  # less than a party's patience
    for task in lives.values():
        task.cancel()
    await asyncio.gather(*lives.values(), return_exceptions=True)
    return ends


@pytest.mark.parametrize("twin", mostly_slow([False, True], False), ids=["gate", "twin"])
def test_a_party_that_asks_without_end_is_heard_at_a_pace_and_the_others_go_on(
    setting: SharedSetting, tmp_path: Path, twin: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of five asks everybody for the roster, 1,000 times, while it takes part. The twin answers them all.

    Without the answers that time brings, or on a slow machine there would be as many.
    """
    monkeypatch.setattr(core, "ANSWERS", 0.0)
    if twin:
        monkeypatch.setattr(mail, "PACE", 1e9)
        monkeypatch.setattr(core, "AT_ONCE", 1e9)
    house, answers = SharedHouse(setting, tmp_path), Counter[str]()

    def prepare(agent: SumAgent) -> None:
        if agent.name == "party-1":
            adopt = agent.sums.adopt_roster

            def adopt_and_ask(value: SumFrame, cert: SumFrame) -> None:
                adopt(value, cert)
                for k in range(1000):
                    bare = SumFrame(value.plan, Step.FETCH, 1, value.round, k, 0, value.digest, b"")
                    agent.transport.send([0, 2, 3, 4], bare.sign(agent.keys.frame_key).pack())

            agent.sums.adopt_roster = adopt_and_ask  # type: ignore[method-assign]
            return
        handle = agent.sums.handle

        def counted(frame: SumFrame, now: float) -> list[tuple[int, SumFrame]]:
            out = handle(frame, now)
            answers[agent.name] += sum((to, f.kind) == (1, Step.ROSTER) for to, f in out)
            return out

        agent.sums.handle = counted  # type: ignore[method-assign]

    house.run(prepare)
    assert (max(answers.values()) <= 256) != twin
    assert min(answers.values()) > 100
    assert len(house.models) == PARTIES
    assert np.allclose(list(house.models.values()), house.models["party-0"])


def test_a_charge_that_the_ledger_refuses_ends_the_party(three: SharedSetting, tmp_path: Path) -> None:
    """It was counted as a bad frame of the round's leader once, and the party waited until its patience was over."""
    house = SharedHouse(three, tmp_path)

    def prepare(agent: SumAgent) -> None:
        if agent.name == "party-1":
            agent.ledger.most = 1

    ends = asyncio.run(how_they_end(house, prepare, ["party-1"]))
    assert ends["party-1"].startswith("BudgetExceeded: round 1: all 1 masked vectors that the plan allows have left")
    assert not house.agents["party-1"].transport.refusals.counts
    assert len(read(house.state["party-1"] / "ledger.db").rows) == 1


@pytest.mark.parametrize("when", [Step.START, Step.COMMIT, Step.SET])
def test_no_sum_is_paid_or_opened_after_the_end_of_the_agreement(
    when: Step, three: SharedSetting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end comes in the middle of round 1, while all parties wait for each other."""
    house = SharedHouse(three, tmp_path)
    over: list[int] = []
    released: list[tuple[Step, int]] = []

    def check_date(self: Agreement, now: object = None) -> None:
        if over:
            raise Ended("the agreement ended")

    monkeypatch.setattr(Agreement, "check_date", check_date)

    def prepare(agent: SumAgent) -> None:
        hear = agent._hear

        def listen(data: bytes) -> None:
            frame = SumFrame.unpack(data)
            if (frame.kind, frame.round) == (when, 1):
                over.append(1)
                return  # and it comes again
            hear(data)

        send = agent.transport.send

        def leave(to: Any, data: bytes) -> None:
            frame = SumFrame.unpack(data)
            if over and frame.kind in (Step.COMMIT, Step.WORDS, Step.SHARES, Step.OPENED):
                released.append((frame.kind, frame.round))
            send(to, data)

        agent._hear, agent.transport.send = listen, leave  # type: ignore[method-assign]

    ends = asyncio.run(how_they_end(house, prepare, house.setting.names))
    assert over
    assert released == []
    assert {end.partition(":")[0] for end in ends.values()} == {"Ended"}
    assert all(agent.sums.outcome(1) is None for agent in house.agents.values() if agent.ledger._open)


def test_vectors_are_offered_at_fixed_times(
    setting: SharedSetting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounds that take 9, 1 and 4 ms of a clock that only they and waiting move: the first is no exception."""
    house, clock, offered = SharedHouse(setting, tmp_path), [100.0], [100.0]

    async def at_once(*_: object) -> None: ...

    async def wait(ready: Callable[[], bool]) -> None:
        while not ready():
            clock[0] += 0.001

    async def rounds(agent: SumAgent) -> None:
        await agent._meet()
        for took in (0.009, 0.001, 0.004):
            clock[0] += took
            await agent._rest()
            offered.append(clock[0])

    with house.ledger("party-0") as ledger:
        agent = house.agent("party-0", ledger)
        agent.deploy = agent.deploy.model_copy(update={"tick": 0.02})
        monkeypatch.setattr(sum_agent, "time", SimpleNamespace(monotonic=lambda: clock[0]))
        monkeypatch.setattr(agent, "_within", at_once)
        monkeypatch.setattr(agent, "_answer_until", wait)
        asyncio.run(rounds(agent))
    np.testing.assert_allclose(np.diff(offered), 0.02, atol=0.0011)


def test_what_leaves_is_packets_of_signed_frames_and_their_upkeep(
    setting: SharedSetting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every byte that five parties hand to their links in a whole run."""
    left: list[tuple[int, bytes]] = []
    plain = MemoryPost.converse

    async def converse(self: MemoryPost, link: Link, peer: Any) -> None:
        await plain(self, TappedLink(link, lambda data: left.append((self.node, data))), peer)

    monkeypatch.setattr(MemoryPost, "converse", converse)
    house = SharedHouse(setting, tmp_path)
    house.run()
    known = (hello.OPENING, hello.HELLO, hello.BUSY, NOTICE, PACKET, TAKEN)
    assert [data for _, data in left if not data.startswith(known)] == []
    packets, payloads = Packets(PARTIES, setting.shared.longest), []
    for writer, data in left:
        at = 0
        while data.startswith(PACKET) and at < len(data):
            (_, _, _, payload), at = packets.read(data, at, writer)
            payloads.append(SumFrame.unpack(payload))
    assert {frame.kind for frame in payloads} >= {Step.DEAL, Step.ENVELOPE, Step.COMMIT, Step.WORDS, Step.OPENED}
    assert all(frame.genuine(setting.shared) for frame in payloads)
    assert len({len(frame.body) for frame in payloads if frame.kind is Step.COMMIT}) == 1
    assert len({len(frame.body) for frame in payloads if frame.kind is Step.WORDS}) == 1
