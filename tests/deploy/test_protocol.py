"""Parties agree on a protocol, not on a version of the package, which may change in the middle of an agreement."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coterie
from coterie.algorithms.base import all_algorithms
from coterie.algorithms.laws import Grid
from coterie.deploy.agent import Agent
from coterie.deploy.agreement import read_agreement
from coterie.deploy.noise import UNITS
from coterie.deploy.party import Party, Terms
from coterie.deploy.protocol import PROTOCOL
from coterie.errors import InputError
from tests.deploy.consortium import Consortium, make_consortium
from tests.deploy.house import House, Setting, rows, small_plan, small_records, together
from tests.deploy.test_agent import Crashes, Proxy

GOLDEN = Path(__file__).with_name("protocol.json")
DEPLOYABLE = [slug for slug, algorithm in all_algorithms().items() if algorithm.wire is not None]
COMPUTED = ("dp-dsgd", "pr-admm")


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Consortium:
    return make_consortium(tmp_path_factory.mktemp("group"))


def signed(group: Consortium, path: Path, tree: dict[str, Any]) -> bytes:
    """Sign a tree as another version of the package may have written it; its hash."""
    body = json.dumps(tree, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    path.write_text(json.dumps(tree | {"signature": group.agreement_key.sign(b"coterie agreement\0" + body).hex()}))
    return hashlib.sha256(body).digest()


def test_another_version_of_the_package_reads_the_same_agreement(
    group: Consortium, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group.agreement.write(tmp_path / "a.json")
    monkeypatch.setattr(coterie, "__version__", "9.9")
    found = read_agreement(tmp_path / "a.json", group.authority)
    assert found.plan_hash == group.agreement.plan_hash
    assert found.software == group.agreement.software != "coterie 9.9"
    found.write(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "a.json").read_bytes()


def test_a_key_that_the_signing_version_did_not_know_is_not_put_in(group: Consortium, tmp_path: Path) -> None:
    tree = json.loads(group.agreement.body)
    del tree["plan"]["problem"]["weighting"]
    expected = signed(group, tmp_path / "a.json", tree)
    found = read_agreement(tmp_path / "a.json", group.authority)
    assert found.plan_hash == expected != group.agreement.plan_hash
    assert found.plan.problem.weighting == "agents"
    found.write(tmp_path / "b.json")
    assert read_agreement(tmp_path / "b.json", group.authority).plan_hash == expected


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda t: t.update(protocol=PROTOCOL + 1), f"is for protocol {PROTOCOL + 1}"),
        (lambda t: t.pop("protocol"), "is for protocol None"),
        (lambda t: t["plan"]["problem"].update(unheard=1), "unheard|Extra"),
        (lambda t: t["plan"]["privacy"].update(epsilon=1), "means something else"),  # a whole number is not 1.0
    ],
    ids=["later", "none", "unknown key", "other type"],
)
def test_what_cannot_be_taken_at_its_word_is_refused(group: Consortium, tmp_path: Path, change: Any, why: str) -> None:
    tree = json.loads(group.agreement.body)
    change(tree)
    signed(group, tmp_path / "a.json", tree)
    with pytest.raises(InputError, match=why):
        read_agreement(tmp_path / "a.json", group.authority)


def test_a_ledger_of_one_version_is_continued_by_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The party stops after a release that nobody has seen. The version that goes on would compute another message."""
    house = House(Setting.small(tmp_path / "t", 6, "pr-admm", deadline=2.0, patience=60.0), tmp_path / "h")
    crash, stored = Crashes((3, "after release")), []

    def newer(numbers: np.ndarray) -> np.ndarray:
        return numbers + 1

    def life(agent: Agent) -> None:
        if not house.lives["ben"]:
            crash(agent)
            return
        monkeypatch.setattr(coterie, "__version__", "9.9")
        stored.append(rows(house.state["ben"] / "ledger.db")[0])
        old, agent.party = agent.party, Proxy(agent.party)  # type: ignore[assignment]

        def speak(*arguments: Any) -> Any:
            carry, numbers, sent = old.speak(*arguments)
            return carry, newer(numbers), sent

        agent.party.speak = speak  # type: ignore[method-assign]

    together(house.live("ada"), house.live("cleo"), house.lives_on("ben", life))
    assert crash.met == [(3, "after release")]
    assert [sorted(frames) for frames in stored] == [[0, 1, 2, 3]]
    now = rows(house.state["ben"] / "ledger.db")[0]
    assert {t: now[t] for t in stored[0]} == stored[0]
    assert house.violations(6) == []  # one payload a round on every wire, each as its ledger has it


# ---- the numbers that the protocol stands for ------------------------------------------------------------------------


def numbers_of(slug: str) -> dict[str, Any]:
    """What two parties must agree on, for a small plan: grid, width, prices, and of some what is said without noise."""
    plan = small_plan(3, slug, graph="complete")
    terms = Terms.of(plan)
    found: dict[str, Any] = {
        "rounds": terms.rounds,
        "width": terms.steps.width,
        "size": terms.steps.size[0].tolist(),
        "charges": [
            [{k: float(v) for k, v in vars(event).items() if np.ndim(v) == 0 and not isinstance(v, str | bool)}
             for event in round]
            for round in terms.charges(0)
        ],
    }  # fmt: skip
    if slug in COMPUTED:
        party = Party.of(terms, 0, small_records()[0])
        quiet = {n: Grid(np.zeros(law.shape, np.int64), UNITS[type(law)]) for n, law in party.turns.laws.items()}
        carry, said = party.begin(), []
        for t in range(2):
            carry, numbers, _ = party.turn(t, carry, quiet)
            said.append(numbers.tolist())
            carry = party.heard(party.heard(carry, 0, t, 2 * numbers), 1, t, -numbers)
        found |= {"said": said, "answer": party.answer(carry).tolist()}
    return found


@pytest.mark.parametrize("slug", DEPLOYABLE)
def test_the_protocol_means_the_same_as_ever(slug: str) -> None:
    """Fails when another version would compute otherwise. Then PROTOCOL goes up, and this file is written anew:
    python -m tests.deploy.test_protocol"""
    golden = json.loads(GOLDEN.read_text())
    assert golden["protocol"] == PROTOCOL
    close(golden["numbers"][slug], numbers_of(slug), slug)


def close(expected: Any, found: Any, where: str) -> None:
    if isinstance(expected, dict):
        assert expected.keys() == found.keys(), where
        for key, value in expected.items():
            close(value, found[key], f"{where}.{key}")
    elif isinstance(expected, list):
        assert len(expected) == len(found), where
        for k, value in enumerate(expected):
            close(value, found[k], f"{where}[{k}]")
    else:  # another processor may round the last bit otherwise, and so the last step of a grid
        assert found == pytest.approx(expected, rel=1e-9, abs=1 if ".said" in where else 0), where


if __name__ == "__main__":
    content = {"protocol": PROTOCOL, "numbers": {slug: numbers_of(slug) for slug in DEPLOYABLE}}
    GOLDEN.write_text(json.dumps(content, indent=1) + "\n")
    sys.exit()
