"""Backups put back, in every combination of state folder and key folder: nothing is ever released a second time.

The table in docs/deploy.md under *Backups* says what `EXPECTED` says.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
from pathlib import Path
from typing import Any

import pytest

from coterie.deploy import agent as agent_module
from coterie.deploy.agent import Agent
from coterie.deploy.anchor import FOLDER, Anchor
from coterie.deploy.ledger import DurableLedger
from coterie.deploy.process import EXIT, _kind
from coterie.privacy.ledger import Budget
from tests.deploy.house import Crash, House, Setting, together
from tests.deploy.test_agent import Crashes

ROUNDS, BACKUP, END = 8, 2, 5  # a backup is made in the third round, and the disk is lost in the sixth

# (state folder, key folder) → who notices, and the exit code. "before": as it was before the agreement began
EXPECTED = {
    ("latest", "latest"): "goes on",
    ("latest", "old"): "goes on",
    ("latest", "before"): "goes on",
    ("old", "latest"): ("party", EXIT["rolled back"]),
    ("old", "old"): ("neighbours", EXIT["rolled back"]),
    ("old", "before"): ("neighbours", EXIT["rolled back"]),
    ("none", "latest"): ("party", EXIT["input"]),
    ("none", "old"): ("party", EXIT["input"]),
    ("none", "before"): ("neighbours", EXIT["rolled back"]),
}


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Setting:
    return Setting.small(tmp_path_factory.mktemp("restore") / "t", ROUNDS, "pr-admm", deadline=1.0, patience=60.0)


@pytest.fixture(autouse=True)
def _no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_module, "GRACE", 0.05)


class Anchored(House):
    """Parties whose key folders remember their ledgers. A crash leaves locks: the next life works on copies of both."""

    def __init__(self, setting: Setting, folder: Path):
        super().__init__(setting, folder)
        self.keys = {n: folder / n / "keys 0" for n in self.names}
        for place in self.keys.values():
            (place / FOLDER).mkdir(parents=True)

    def ledger(self, name: str, state: Path) -> DurableLedger:
        state.mkdir(parents=True, exist_ok=True)
        privacy = self.setting.plan.privacy
        assert privacy is not None
        assert isinstance(privacy.epsilon, float)
        anchor = Anchor(self.keys[name], self.setting.agreement.plan_hash)
        try:
            return DurableLedger(
                state / "ledger.db", budget=Budget(privacy.epsilon, privacy.delta), agent=name, create=True,
                plan_hash=self.setting.agreement.plan_hash, plan=self.setting.charges[name], anchor=anchor,
            )  # fmt: skip
        except BaseException:
            anchor.close()
            raise

    def backup(self, name: str, into: Path) -> None:
        """Both folders as they are now."""
        shutil.copytree(self.state[name], into / name / "state")
        shutil.copytree(self.keys[name], into / name / "keys")

    def restore(self, name: str, state: Path | None, keys: Path | None) -> None:
        """Go on from such copies; None: from an empty folder."""
        self.lives[name] += 1
        for place, source, word in ((self.state, state, ""), (self.keys, keys, "keys ")):
            place[name] = self.folder / name / f"{word}{self.lives[name]}"
            if source is not None:
                shutil.copytree(source, place[name])
            else:
                (place[name] / FOLDER if word else place[name]).mkdir(parents=True)


class Backups:
    """Makes a backup of everybody when a party has released round `BACKUP`."""

    def __init__(self, house: Anchored, folder: Path):
        self.house, self.folder = house, folder

    def __call__(self, agent: Agent) -> None:
        real = agent.ledger.release

        def release(t: int, *rest: Any) -> None:
            real(t, *rest)
            if t == BACKUP:
                for name in self.house.names:
                    self.house.backup(name, self.folder)

        agent.ledger.release = release  # type: ignore[method-assign]


def ended(error: BaseException) -> int:
    """The exit code of a process that ends like this."""
    return EXIT[_kind(error)]


def test_every_combination_of_restored_folders(setting: Setting, tmp_path: Path) -> None:
    assert set(EXPECTED) == set(itertools.product(("latest", "old", "none"), ("latest", "old", "before")))
    house, old, latest = Anchored(setting, tmp_path / "h"), tmp_path / "old", tmp_path / "latest"
    backups, crashes = Backups(house, old), Crashes((END, "after listen"))

    def prepare(agent: Agent) -> None:
        backups(agent)
        crashes(agent)

    def put_back(state: str, keys: str) -> None:
        copies = {"latest": latest / "ben", "old": old / "ben"}
        house.restore(
            "ben",
            copies[state] / "state" if state in copies else None,
            copies[keys] / "keys" if keys in copies else None,
        )

    async def ben() -> None:
        with contextlib.suppress(Crash):
            await house.live("ben", prepare=prepare)
        house.backup("ben", latest)
        said = {key: set(seen) for key, seen in house.seen.items() if key[0] == "ben"}
        assert max(round for _, round in said) == END
        for (state, keys), expected in EXPECTED.items():
            put_back(state, keys)
            if expected == "goes on":
                with contextlib.closing(house.ledger("ben", house.state["ben"])) as opened:
                    assert opened.last == END
                    opened._anchor.close()  # type: ignore[union-attr]
                continue
            who, code = expected
            if who == "party":  # alone: it does not come so far as to call anybody
                with pytest.raises(Exception) as refused:
                    house.ledger("ben", house.state["ben"])
            else:
                with pytest.raises(Exception) as refused:
                    await house.live("ben")
            assert (state, keys, ended(refused.value)) == (state, keys, code)
            assert {key: seen for key, seen in house.seen.items() if key[0] == "ben"} == said  # not a byte
        put_back("latest", "before")  # the harshest of those that go on, to the end
        await house.live("ben")

    together(house.live("ada"), house.live("cleo"), ben(), seconds=120)
    assert house.violations(ROUNDS) == []


def test_what_nobody_can_notice_is_said(setting: Setting, tmp_path: Path) -> None:
    """State and keys of every party put back: docs/deploy-approval.md says that this is not covered, and it is not."""
    house, old = Anchored(setting, tmp_path / "h"), tmp_path / "old"
    together(house.live("ada"), house.live("cleo"), house.live("ben", prepare=Backups(house, old)), seconds=60)
    assert house.violations(ROUNDS) == []
    for name in house.names:
        house.restore(name, old / name / "state", old / name / "keys")
    together(*(house.live(name) for name in house.names), seconds=60)
    assert any(what.startswith("I1: 2 payloads") for what in house.violations(ROUNDS))
