"""Secret sums between deployed parties: the sum comes out, nothing else does, and crashes change neither."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare

from coterie.deploy.agent import Agent
from coterie.deploy.frames import BadFrame
from coterie.deploy.noise import SystemSource
from coterie.deploy.party import Terms
from coterie.deploy.secret import WORD, BadShare, SecretParty, join
from coterie.deploy.trial import sign_trial
from coterie.deploy.work import Turns
from coterie.errors import InputError
from coterie.exchange.wire import Kind
from coterie.plan import Plan, validate
from coterie.privacy.events import Free
from tests.deploy.house import NAMES, Crash, House, Setting, history, small_plan, small_records

ROUNDS = 3


def secret_plan(algorithm: str = "gauss-avg-gd", graph: str = "complete", **exchange: Any) -> Plan:
    tree = small_plan(ROUNDS, algorithm, graph=graph).model_dump(mode="json", exclude_none=True)
    tree["run"] = {"rounds": ROUNDS}
    return validate({**tree, "exchange": {"kind": "secret-sum", **exchange}})


class SecretSetting(Setting):
    """As `Setting`, with the parties that the plan's exchange asks for."""

    def __init__(self, folder: Path):
        plan, records = secret_plan(), small_records()
        super().__init__(secret_plan_without_sum(plan), *sign_trial(plan, records, folder))
        self.plan, self.terms = plan, Terms.of(plan)
        plain = self.parties
        self.charges = {n: [e for r in self.terms.charges(p.node) for e in r] for n, p in plain.items()}
        self.parties = {
            n: join(Turns.of(self.terms, p.node), records[p.node], plan, self.agreement.plan_hash)  # type: ignore[misc]
            for n, p in plain.items()
        }
        self.plain = plain


def secret_plan_without_sum(plan: Plan) -> Plan:
    tree = plan.model_dump(mode="json", exclude_none=True)
    tree["run"] = {"rounds": ROUNDS}
    return validate({k: v for k, v in tree.items() if k != "exchange"})


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> SecretSetting:
    return SecretSetting(tmp_path_factory.mktemp("secret") / "trial")


def run(house: House, *crashing: Any) -> None:
    async def everybody() -> None:
        lives = [house.lives_on(n, crashing[0] if crashing else lambda agent: None) for n in house.names]
        await asyncio.wait_for(asyncio.gather(*lives), 60)

    asyncio.run(everybody())


def in_the_clear(setting: SecretSetting, house: House) -> dict[str, np.ndarray]:
    """The same algorithm with the same draws and every message broadcast."""
    parties = setting.plain
    carries = {n: p.begin() for n, p in parties.items()}
    for t in range(ROUNDS):
        drawn = {n: dict(house.sources[n].calls)[t] for n in NAMES}
        said = {n: p.turn(t, carries[n], drawn[n]) for n, p in parties.items()}
        for n, p in parties.items():
            carries[n] = said[n][0]
            for slot, other in enumerate(p.neighbours):
                carries[n] = p.heard(carries[n], slot, t, said[NAMES[other]][1])
    return {n: p.answer(carries[n]) for n, p in parties.items()}


def test_the_sum_gives_the_same_models_as_broadcast(setting: SecretSetting, tmp_path: Path) -> None:
    house = House(setting, tmp_path)
    run(house)
    expected = in_the_clear(setting, house)
    for name in NAMES:
        # every round is off by at most N 2^(−f−1) in the sum
        assert np.abs(house.models[name] - expected[name]).max() < 3 * 2.0**-24 * ROUNDS
    ledgers = {n: house.state[n] / "ledger.db" for n in NAMES}
    rounds = 2 * ROUNDS + 1
    assert history(ledgers, house.seen, rounds) == []
    charged = setting.charges["ada"]
    assert sum(isinstance(e, Free) for e in charged) == ROUNDS + 1
    assert sum(not isinstance(e, Free) for e in charged) == ROUNDS


def test_crashes_do_not_change_what_is_opened(setting: SecretSetting, tmp_path: Path) -> None:
    """Every party dies once after each stored frame of the first two sums, before or after it is sent."""
    house = House(setting, tmp_path)
    died: set[tuple[str, int, str]] = set()

    def prepare(agent: Agent) -> None:
        push = agent.transport.push

        async def push_or_die(round: int, frame: bytes) -> None:
            for moment in ("before", "after"):
                if moment == "after":
                    await push(round, frame)
                if round < 5 and (agent.name, round, moment) not in died:
                    died.add((agent.name, round, moment))
                    raise Crash

        agent.transport.push = push_or_die  # type: ignore[method-assign]

    run(house, prepare)
    assert len(died) == 3 * 5 * 2
    models = np.stack([house.models[n] for n in NAMES])
    assert np.abs(models - models[0]).max() < 1e-6
    ledgers = {n: house.state[n] / "ledger.db" for n in NAMES}
    rounds = 2 * ROUNDS + 1
    assert history(ledgers, house.seen, rounds) == []
    expected = in_the_clear(setting, house)
    assert np.abs(models[0] - expected["ada"]).max() < 3 * 2.0**-24 * ROUNDS


# ---- one round by hand -----------------------------------------------------------------------------------------------


def greeted(setting: SecretSetting) -> dict[str, Any]:
    """Every party's carry after the keys have been exchanged."""
    parties: dict[str, SecretParty] = setting.parties  # type: ignore[assignment]
    carries, source = {n: p.begin() for n, p in parties.items()}, SystemSource()
    keys = {n: p.speak(0, carries[n], source)[1] for n, p in parties.items()}
    for n, p in parties.items():
        for slot, other in enumerate(p.neighbours):
            carries[n] = p.heard(carries[n], slot, 0, keys[NAMES[other]])
    return carries


def test_what_a_party_says_in_the_second_round_is_uniform(setting: SecretSetting) -> None:
    """Leading bytes of the sums of shares: uniform, though all messages are small numbers. Twin: unmasked words."""
    parties: dict[str, SecretParty] = setting.parties  # type: ignore[assignment]
    carries, source, seen, bare = greeted(setting), SystemSource(), [], []
    for _ in range(150):
        said = {n: p.speak(1, carries[n], source) for n, p in parties.items()}
        after = said["ada"][0]
        bare.append(parties["ada"].code.encode(after.value))
        for slot, other in enumerate(parties["ada"].neighbours):
            after = parties["ada"].heard(after, slot, 1, said[NAMES[other]][1])
        seen.append(parties["ada"].speak(2, after, source)[1][:3].view(np.uint64))
    leading = lambda words: np.bincount((np.concatenate(words) >> np.uint64(60)).astype(int), minlength=16)  # noqa: E731
    assert chisquare(leading(seen)).pvalue > 1e-4
    assert chisquare(leading(bare)).pvalue < 1e-10


def test_a_share_for_somebody_else_or_of_another_round_cannot_be_opened(setting: SecretSetting) -> None:
    parties: dict[str, SecretParty] = setting.parties  # type: ignore[assignment]
    carries, source = greeted(setting), SystemSource()
    _, words, _ = parties["ben"].speak(1, carries["ben"], source)
    good = parties["ada"].heard(carries["ada"], 0, 1, words)
    assert not np.array_equal(good.state[0], carries["ada"].state[0])
    with pytest.raises(BadShare, match="evidence"):
        parties["ada"].heard(carries["ada"], 0, 3, words)  # replayed in a later round
    with pytest.raises(BadShare):
        parties["ada"].heard(carries["ada"], 1, 1, words)  # passed off as cleo's
    each = parties["ben"].sealed[Kind.SHARE] // WORD
    swapped = np.concatenate([words[each : 2 * each], words[:each], words[2 * each :]])
    with pytest.raises(BadShare):
        parties["ada"].heard(carries["ada"], 0, 1, swapped)  # cleo's seed in ada's place
    for bit in (0, 17, 63):
        bent = words.copy()
        bent[0] ^= np.int64(1) << np.int64(bit % 63)
        with pytest.raises(BadShare):
            parties["ada"].heard(carries["ada"], 0, 1, bent)


def test_every_frame_has_one_length_and_any_word_is_allowed(setting: SecretSetting) -> None:
    wire = setting.parties["ada"].wire
    extreme = np.array([-(2**63), 2**63 - 1] + [0] * (wire.count - 2))
    assert len(wire.encode(extreme, 0, 1)) == wire.bytes
    assert wire.rounds == 2 * ROUNDS + 1
    with pytest.raises((ValueError, BadFrame)):
        wire.encode(extreme[:-1], 0, 1)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"algorithm": "dp-admm"}, "individual"),
        ({"graph": "ring", "algorithm": "dp-consensus-gd"}, "complete|at least"),
        ({"threshold": 3}, "threshold"),
        ({"noise": "central", "honest": 2}, "local noise"),
    ],
)
def test_what_cannot_be_summed_is_refused_when_it_is_signed(
    changes: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=reason):
        sign_trial(four(secret_plan(**changes)), [*small_records(), small_records()[0]], tmp_path / "t")


def four(plan: Plan) -> Plan:
    """The same with a fourth party: on a ring of three everybody is everybody's neighbour."""
    tree = plan.model_dump(mode="json", exclude_none=True)
    tree["run"] = {"rounds": ROUNDS}
    tree["partition"] = {"kind": "iid", "sizes": [12] * 4}
    tree["deploy"]["parties"].append({"name": "dora", "address": "dora.example:443"})
    return validate(tree)
