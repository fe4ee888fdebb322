"""`coterie agent` as its owner meets it: exit codes, one-line errors, status, metrics, stopping; in this process."""

from __future__ import annotations

import contextlib
import datetime as dt
import fcntl
import json
import os
import re
import signal
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from coterie.cli import main
from coterie.deploy import party as party_module
from coterie.deploy.agreement import Agreement, sign_agreement
from coterie.deploy.keys import init_party, load_authority, load_party
from coterie.deploy.party import read_records, write_records
from coterie.deploy.trial import free_ports
from coterie.privacy.events import Gaussian
from coterie.privacy.ledger import BudgetExceeded
from tests.deploy.house import House, Setting

WORDS = re.compile(r"\d\d:\d\d:\d\dZ (info|warning): ")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Setting:
    """Three parties on this machine; only one of them is ever started."""
    places = tuple(f"127.0.0.1:{p}" for p in free_ports(3))
    return Setting.small(tmp_path_factory.mktemp("alone") / "t", 4, addresses=places, deadline=0.5, patience=2.0)


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Setting:
    """The same three, where a test waits until one of them gives up."""
    places = tuple(f"127.0.0.1:{p}" for p in free_ports(3))
    return Setting.small(tmp_path_factory.mktemp("hasty") / "t", 4, addresses=places, deadline=0.3, patience=0.3)


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def agent(setting: Setting, folder: Path, *more: str, **changes: Any) -> int:
    """Run ada."""
    site = setting.site("ada")
    options = {"me": "ada", "data": site.data, "keys": site.keys, "state": folder} | changes
    agreement = options.pop("agreement", setting.agreement_file)
    return main(["agent", str(agreement), *(x for k, v in options.items() for x in (f"--{k}", str(v))), *more])


def one_line(capsys: pytest.CaptureFixture[str], *parts: str) -> None:
    """The error is one line, the last one; what is before it are words on how far it came."""
    *before, last = capsys.readouterr().err.splitlines()
    assert last.startswith("error: ")
    assert [line for line in before if not WORDS.match(line)] == []
    for part in parts:
        assert part in last


@pytest.fixture
def nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Notes whether records were used or a socket was opened."""
    touched: list[str] = []
    real = party_module.Party.__init__

    def used(self: Any, *a: Any) -> None:
        real(self, *a)
        touched.append("records")

    monkeypatch.setattr(party_module.Party, "__init__", used)
    monkeypatch.setattr("socket.socket.bind", lambda *_: touched.append("socket"))
    return touched


def expired(setting: Setting, folder: Path) -> Path:
    """The same agreement, valid until a moment ago."""
    authority, key = load_authority(setting.agreement_file.parent / "authority")
    identities = [load_party(s.keys).identity for s in setting.sites]
    good = sign_agreement(setting.plan, identities, authority, key, dt.datetime.now(dt.UTC) + dt.timedelta(days=1))
    past = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    Agreement(plan=good.plan, edges=good.edges, parties=good.parties, valid_until=past).signed(key).write(
        folder / "old.json"
    )
    return folder / "old.json"


def few(setting: Setting, folder: Path) -> Path:
    records = read_records(setting.plan, setting.site("ada").data)
    write_records(folder / "few.npz", records._replace(features=records.features[:11], targets=records.targets[:11]))
    return folder / "few.npz"


def strange(folder: Path) -> Path:
    init_party("ada", folder / "keys")
    return folder / "keys"


MISTAKES: dict[str, tuple[Callable[[Setting, Path], dict[str, Any]], str]] = {
    "too few records": (lambda s, f: {"data": few(s, f)}, "12 records for this party, its file has 11"),
    "no data": (lambda s, f: {"data": f / "none.csv"}, "is no file"),
    "another's keys": (lambda s, f: {"keys": s.site("ben").keys}, "belong to ben, not to ada"),
    "keys without certificate": (lambda s, f: {"keys": strange(f)}, "certificate.pem"),
    "old agreement": (lambda s, f: {"agreement": expired(s, f)}, "ended on 2020-01-01"),
    "no agreement": (lambda s, f: {"agreement": s.site("ada").data}, "not an agreement"),
    "another name": (lambda s, f: {"me": "zoe"}, "belong to ada, not to zoe"),
    "no such port": (lambda s, f: {"metrics": 70000}, "1 to 65535"),
    "no such place": (lambda s, f: {"listen": "0.0.0.0:99999"}, "1 to 65535, got '0.0.0.0:99999'"),
    "a file for a folder": (lambda s, f: {"state": s.agreement_file / "x"}, "cannot make"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_before_anything_is_used(
    alone: Setting, tmp_path: Path, capsys: pytest.CaptureFixture[str], nothing_is_read: list[str], mistake: str
) -> None:
    change, expected = MISTAKES[mistake]
    assert agent(alone, tmp_path / "state", **change(alone, tmp_path)) == 2
    one_line(capsys, expected)
    assert nothing_is_read == []


def test_the_twin_without_a_mistake_does_use_its_records(
    hasty: Setting, tmp_path: Path, capsys: pytest.CaptureFixture[str], nothing_is_read: list[str]
) -> None:
    """And then gives up, as nobody else is there: exit code 6."""
    assert agent(hasty, tmp_path / "state") == 6
    one_line(capsys, "nothing from ben for 0.3 s (deploy.patience)")
    assert "records" in nothing_is_read
    assert main(["agent", "x", "--me", "ada", "--state", str(tmp_path / "state"), "--status"]) == 1
    assert "round 0/4" in (shown := capsys.readouterr().out)
    assert "(not running)" in shown


def test_a_closed_budget_stays_closed(
    alone: Setting, tmp_path: Path, capsys: pytest.CaptureFixture[str], nothing_is_read: list[str]
) -> None:
    with House(alone, tmp_path).ledger("ada", tmp_path / "state") as ledger, pytest.raises(BudgetExceeded):
        ledger.release(0, [Gaussian(1.0, 0.001)], b"f" * 100, b"", {})
    for _ in range(2):
        assert agent(alone, tmp_path / "state") == 3
        one_line(capsys, "closed for good")
    assert nothing_is_read == []


def test_one_process_per_folder(alone: Setting, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    House(alone, tmp_path).ledger("ada", tmp_path / "state").close()
    with (tmp_path / "state" / "ledger.db").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert agent(alone, tmp_path / "state") == 2
    one_line(capsys, "in use by another process")


@contextlib.contextmanager
def meanwhile(job: Callable[[], None]) -> Iterator[list[BaseException]]:
    """Do something in another thread; what went wrong there."""
    wrong: list[BaseException] = []

    def guarded() -> None:
        try:
            job()
        except BaseException as error:
            wrong.append(error)

    thread = threading.Thread(target=guarded)
    thread.start()
    yield wrong
    thread.join(20)


def end_agent() -> None:
    """Ask the agent in this process to end, unless it has: a signal that nobody waits for would end the tests."""
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        raise AssertionError("the agent ended before it was asked to")
    os.kill(os.getpid(), signal.SIGTERM)


def test_status_metrics_and_a_clean_stop(alone: Setting, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    port, state, seen = free_ports(1)[0], tmp_path / "state", {}

    def look() -> None:
        deadline = time.monotonic() + 15
        while "body" not in seen and time.monotonic() < deadline:
            time.sleep(0.05)
            with contextlib.suppress(OSError):
                seen["body"] = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=2).read().decode()
        seen["status"] = json.loads((state / "status.json").read_text())
        lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
        places = [line.split()[1] for line in lines if line.split()[3] == "0A"]
        seen["bound"] = {place for place in places if int(place.split(":")[1], 16) == port}
        end_agent()

    with meanwhile(look) as wrong:
        assert agent(alone, state, metrics=port) == 130
    assert wrong == []
    assert seen["bound"] == {f"0100007F:{port:04X}"}  # 127.0.0.1 and nothing else
    assert "coterie_rounds 4.0\n" in seen["body"]  # all of it: tests/deploy/test_window.py
    assert seen["status"]["phase"] == "meeting neighbours"
    assert seen["status"]["pid"] == os.getpid()
    events = [json.loads(line)["event"] for line in (state / "log.jsonl").read_text().splitlines()]
    assert events[-2:] == ["stopped", "end"]
    assert main(["ledger", "verify", str(state / "ledger.db")]) == 0
    assert agent(alone, state) == 6  # it starts again where it was: with nobody there
    capsys.readouterr()
    assert main(["agent", "x", "--me", "ada", "--state", str(tmp_path / "none"), "--status"]) == 2
    one_line(capsys, "no agent has run in")


def test_the_status_of_another_users_agent_is_not_called_stopped(
    hasty: Setting, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert agent(hasty, tmp_path / "state") == 6
    path = tmp_path / "state" / "status.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"ended": False}))  # as if it had not come so far

    def not_yours(*_: Any, **__: Any) -> None:
        raise PermissionError

    command = ["agent", "x", "--me", "ada", "--state", str(tmp_path / "state"), "--status"]
    with monkeypatch.context() as patch:
        patch.setattr(os, "kill", not_yours)
        capsys.readouterr()
        assert main(command) == 2
        shown = capsys.readouterr().out
        assert "not running" not in shown
        assert "cannot be known" in shown
    monkeypatch.setattr(Path, "read_text", not_yours)
    assert main(command) == 2
    one_line(capsys, "for its owner to ask")


def test_those_who_read_the_metrics_slowly_are_few(alone: Setting, tmp_path: Path) -> None:
    """Idle connections to the loopback port do not use up descriptors either."""
    port, state, seen = free_ports(1)[0], tmp_path / "state", {}

    def look() -> None:
        deadline = time.monotonic() + 15
        while time.monotonic() < deadline:
            time.sleep(0.05)
            with contextlib.suppress(OSError):
                held = [socket.create_connection(("127.0.0.1", port)) for _ in range(60)]
                break
        time.sleep(0.2)
        for one in held:
            one.settimeout(0.05)  # all of this within the patience of an agent whose neighbours are not there
        seen["open"] = sum(_is_open(one) for one in held)
        for one in held:
            one.close()
        end_agent()

    with meanwhile(look) as wrong:
        assert agent(alone, state, metrics=port) == 130
    assert wrong == []
    assert 1 <= seen["open"] <= 8


def _is_open(one: socket.socket) -> bool:
    try:
        return one.recv(1) != b""
    except TimeoutError:
        return True
    except ConnectionError:
        return False
