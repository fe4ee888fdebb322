"""docs/deploy-approval.md says nothing that no test holds; and the tests for what was held by none before."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from coterie.deploy import agent as agent_module
from coterie.deploy import hello
from coterie.deploy.frames import MAGIC
from coterie.deploy.noise import SystemSource
from coterie.deploy.party import Party, Terms
from coterie.deploy.transport import Link, Timing
from tests.deploy.house import House, Setting, Tap, TappedLink, small_plan, small_records, together
from tests.deploy.test_hostile import AFTER_HELLO

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "deploy-approval.md").read_text(encoding="utf-8")
PROMISES = ("What leaves your network", "What is stored with you", "What happens when")


# ---- the page --------------------------------------------------------------------------------------------------------


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def sentences(text: str) -> list[str]:
    """Rows of tables as they are; everything else cut at full stops."""
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith(("| ---", "| event"))]
    prose = "\n".join(line for line in text.splitlines() if not line.startswith("|"))
    blocks = [" ".join(block.split()) for block in re.split(r"\n\n|\n- ", prose)]
    cut = [
        part for block in blocks for part in re.split(r"(?<=[.])(?:\*\*)?\s+(?=[A-Z*`])", block) if part.strip(" -*")
    ]
    return rows + [
        part for part in cut if not re.fullmatch(r"\*\*[^*]+\.(\*\*)?", part)
    ]  # a bold heading is no sentence


def evidence() -> dict[str, list[str]]:
    rows = re.findall(r"^\| (.+) \| (.+) \|$", section("Which test holds which sentence"), re.MULTILINE)[2:]
    return {words: tests.split(", ") for words, tests in rows}


def defined() -> set[str]:
    """Every test there is, as file::name."""
    return {
        f"{path.name}::{name}"
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^(?:async )?def (test_\w+)\(", path.read_text(encoding="utf-8"), re.MULTILINE)
    }


def test_every_sentence_has_its_test_and_every_test_is_there() -> None:
    held, known, text = evidence(), defined(), " ".join(PAGE.split("\n## Which test")[0].split())
    assert len(held) > 40
    assert [words for words in held if words not in text] == []
    assert {test for tests in held.values() for test in tests} <= known
    said = [sentence for title in PROMISES for sentence in sentences(section(title))]
    assert len(said) > 40
    assert [sentence for sentence in said if not any(words in sentence for words in held)] == []
    more = sentences(section(PROMISES[0]) + " It never fails. See above.")  # the twin: a sentence that nobody holds
    assert [sentence for sentence in more if not any(words in sentence for words in held)] == [
        "It never fails.",
        "See above.",
    ]


def test_the_numbers_on_the_page_are_those_of_the_tests() -> None:
    assert "thirteen behaviours" in PAGE
    assert len(AFTER_HELLO) == 13
    for path, words in (
        ("tests/deploy/test_door.py", "flooding(address(group), 1500, kind, source)"),
        ("tests/faults/test_ledger.py", "def test_two_hundred_power_cuts"),
        ("tests/deploy/test_agent.py", 'pytest.mark.parametrize("count", [10, pytest.param(50'),
    ):
        assert words in (ROOT / path).read_text(encoding="utf-8")


# ---- what no test held before ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Setting:
    folder = tmp_path_factory.mktemp("approval") / "t"
    return Setting.small(folder, 5, "pr-admm", deadline=1.0, patience=60.0, tick=0.02)


def test_what_leaves_is_frames_greetings_and_receipts(
    setting: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every byte that three parties hand to their links in a whole run: one frame a round to each neighbour."""
    left: list[tuple[str, str, bytes]] = []
    plain = Tap.converse

    async def converse(self: Tap, link: Link, peer: Any) -> None:
        await plain(self, TappedLink(link, lambda data: left.append((self.me, peer.name, data))), peer)

    monkeypatch.setattr(Tap, "converse", converse)
    monkeypatch.setattr(agent_module, "GRACE", 0.05)
    house = House(setting, tmp_path)
    together(*(house.live(name) for name in house.names))
    assert house.violations(5) == []
    frames = [(who, to, data) for who, to, data in left if data.startswith(MAGIC)]
    assert sorted((who, to, int.from_bytes(data[44:48], "little")) for who, to, data in frames) == sorted(
        (who, to, t) for who in house.names for to in house.names if who != to for t in range(5)
    )
    (length,) = {len(data) for _, _, data in frames}
    assert length == setting.parties["ada"].wire.frame_bytes
    lengths = {hello.OPENING: {92}, hello.HELLO: {176}, hello.BUSY: {176}, hello.RECEIPT: {112},
               hello.RUMOURS: {8 + 108 * n for n in range(1, hello.MOST_RUMOURS + 1)}}  # fmt: skip
    rest = [data for _, _, data in left if not data.startswith(MAGIC)]
    assert {data[:8] for data in rest} <= set(lengths)
    assert all(len(data) in lengths[data[:8]] for data in rest)


def test_a_state_depends_on_the_records() -> None:
    """Two data sets that differ in one record, with the same draws: a solver's point is exact."""
    terms, records = Terms.of(small_plan(2, "pp-admm")), small_records()[0]
    features = np.array(records.features)
    features[0] *= -1
    draw = SystemSource().draw(0, terms.draws(0))
    parties = [Party.of(terms, 0, one) for one in (records, records._replace(features=features))]
    stored = [b"".join(party.pack(party.turn(0, party.begin(), draw)[0])) for party in parties]
    assert stored[0] != stored[1]
    assert len(stored[0]) == len(stored[1])


def test_a_connection_is_renewed_after_ten_minutes() -> None:
    assert Timing().age == 600


def test_messages_leave_at_fixed_times(setting: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds that take 1, 9 and 4 ms of a clock that only they and sleeping move leave 20 ms apart."""
    clock, sent = [100.0], []

    async def sleep(seconds: float) -> None:
        clock[0] += seconds

    async def push(t: int, frame: bytes) -> None:
        sent.append(clock[0])

    def speak(t: int, carry: Any, source: Any) -> Any:
        clock[0] += (0.001, 0.009, 0.004)[t]
        return real(t, carry, source)

    house = House(setting, tmp_path)
    with house.ledger("ada", tmp_path / "state") as ledger:
        agent = house.agent("ada", ledger)
        real = agent.party.speak
        monkeypatch.setattr(agent_module, "time", SimpleNamespace(monotonic=lambda: clock[0]))
        monkeypatch.setattr(agent_module, "asyncio", SimpleNamespace(sleep=sleep))
        monkeypatch.setattr(agent.party, "speak", speak)
        monkeypatch.setattr(agent.transport, "push", push)
        agent._tick = clock[0]

        async def rounds() -> None:
            carry = agent.party.begin()
            for t in range(3):
                carry = await agent._speak(t, carry)

        asyncio.run(rounds())
    np.testing.assert_allclose(np.diff(sent), 0.02, rtol=1e-9)
