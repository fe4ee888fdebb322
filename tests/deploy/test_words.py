"""What an agent says while it runs: what it does, whom it waits for, whom it refused; words on standard error, JSON in
the file, as much as was asked for."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from coterie.cli import main
from coterie.deploy import watch as module
from coterie.deploy.journal import Log, listening, log, shown
from coterie.deploy.trial import free_ports, sign_trial
from coterie.deploy.watch import Watch
from coterie.names import host_and_port
from tests.deploy.house import House, Setting, small_plan, small_records, together
from tests.deploy.test_exits import _signals, agent, end_agent, meanwhile, one_line  # noqa: F401
from tests.support import mostly_slow


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Setting:
    places = tuple(f"127.0.0.1:{p}" for p in free_ports(3))
    return Setting.small(tmp_path_factory.mktemp("words") / "t", 4, addresses=places, deadline=0.5, patience=1.5)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting is said after moments, not seconds."""
    monkeypatch.setattr(module, "PATIENCE", (0.2, 300.0))
    monkeypatch.setattr(module, "EVERY", 0.05)


def test_a_start_is_not_silent_and_says_whom_it_waits_for(
    alone: Setting, tmp_path: Path, capsys: pytest.CaptureFixture[str], soon: None
) -> None:
    assert agent(alone, tmp_path / "state") == 6
    said = capsys.readouterr().err
    steps = (
        "info: ada: loads coterie", "info: agreement ", "works out its noise and price",
        "ledger.db: 0 of 4 rounds are done; reads ", "info: calls ben at 127.0.0.1:", "again and again",
        "info: waits for ben (not up yet: nothing listens at its address), cleo", "gives up after 1.5 s",
        "info: ends: gave up, exit code 6", "error: round 0: nothing from ben for 1.5 s (deploy.patience)",
    )  # fmt: skip
    places = [said.find(step) for step in steps]
    assert -1 not in places, said
    assert places == sorted(places)
    waits = [line for line in said.splitlines() if "waits for" in line]
    assert 2 <= len(waits) <= 5  # less and less often: at 0.2, 0.4, 0.8 … s
    assert "\x1b" not in said  # no terminal here: no colours


@pytest.mark.parametrize(("level", "lines"), mostly_slow([("error", 1), ("warning", 1)], ("warning", 1)))
def test_less_is_said_if_less_is_asked_for(
    alone: Setting, tmp_path: Path, capsys: pytest.CaptureFixture[str], level: str, lines: int
) -> None:
    assert agent(alone, tmp_path / "state", **{"log-level": level}) == 6
    said = capsys.readouterr().err
    assert said.count("\n") == lines, said
    events = [json.loads(line) for line in (tmp_path / "state" / "log.jsonl").read_text().splitlines()]
    assert {"news", "end"} <= {e["event"] for e in events}  # the file has it all the same


def test_a_level_that_does_not_exist_is_refused(
    alone: Setting, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert agent(alone, tmp_path / "state", **{"log-level": "loud"}) == 2
    one_line(capsys, "--log-level is one of debug, info, warning, error, got 'loud'")
    assert not (tmp_path / "state").exists()


def test_every_round_is_said_to_who_asks_for_it_and_no_orders_reach_a_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    note = Log(tmp_path / "log.jsonl")
    with shown("debug"), listening(note):
        for t in range(3):
            note("sent", round=t, seconds=0.25)
        note("late", round=2, parties=["ben", "cleo"])
        log.warning("refused ben: %s", "\x1b[31mred\r\nerror: forged", extra={"about": "ben"})
    note.close()
    said = capsys.readouterr().err.splitlines()
    assert [line.split(" ", 1)[1] for line in said] == [
        *(f"debug: round {t} is sent, 0.250 s after the one before" for t in range(3)),
        "warning: round 2 goes on without ben, cleo",
        "warning: refused ben: ?[31mred??error: forged",
    ]
    stored = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [e["event"] for e in stored] == ["sent", "sent", "sent", "late", "trouble"]  # each once
    assert stored[0]["seconds"] == 0.25


def test_refusals_are_counted_by_reason_in_the_log_and_the_metrics(
    alone: Setting, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three calls that are no TLS: one line about them, and a count of three."""
    site, port, seen = alone.site("cleo"), free_ports(1)[0], {}
    place = host_and_port(alone.agreement.party("cleo").address or "")

    def knock() -> None:
        deadline, done = time.monotonic() + 20, 0
        while done < 3 and time.monotonic() < deadline:
            with contextlib.suppress(ConnectionRefusedError), socket.create_connection(place) as one:
                one.sendall(b"GET / HTTP/1.1\r\n\r\n")
                one.settimeout(5)
                with contextlib.suppress(OSError):
                    one.recv(100)
                done += 1
            time.sleep(0.02)
        with socket.create_connection(("127.0.0.1", port)) as one:
            one.sendall(f"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
            seen["body"] = one.makefile("rb").read().decode()
        end_agent()

    state = tmp_path / "state"
    with meanwhile(knock) as wrong:
        assert agent(alone, state, me="cleo", data=site.data, keys=site.keys, metrics=port) == 130
    assert wrong == []
    assert 'coterie_refusals_total{about="stranger",reason="it does not speak TLS"} 3.0' in seen["body"]
    events = [json.loads(line) for line in (state / "log.jsonl").read_text().splitlines()]
    assert [e["counts"] for e in events if e["event"] == "refusals"] == [["stranger: it does not speak TLS (3)"]]
    assert sum("refused a caller from 127.0.0.1: it does not speak TLS" in e.get("text", "") for e in events) == 1
    assert "warning: refused so far: stranger: it does not speak TLS (3)" in capsys.readouterr().err


def test_the_order_of_starting_does_not_matter(tmp_path: Path, soon: None) -> None:
    """Each of the three in turn is early, by many times what it takes to say so; all finish, nothing is paid twice."""
    setting, timed = Setting.small(tmp_path / "t", 4, deadline=0.3), {}  # type: ignore[var-annotated]
    for first in ("ada", "ben", "cleo"):
        house = House(setting, tmp_path / first)
        others = [name for name in house.names if name != first]

        async def scenario(house: Any = house, first: str = first, others: list[str] = others) -> None:
            started: list[Any] = []
            early = asyncio.create_task(house.live(first, prepare=started.append))
            while not started:
                await asyncio.sleep(0.01)
            watching = asyncio.create_task(
                Watch(started[0], started[0].transport, house.state[first], recent).forever()
            )
            await asyncio.sleep(0.3)
            assert not early.done()
            await asyncio.gather(early, *(house.live(name) for name in others))
            watching.cancel()
            timed[first] = started[0]

        with shown() as recent:
            asyncio.run(scenario())
        assert sum(timed[first].pace.counts) == 4  # a time for each round, and none for the waiting
        waits = [line["text"] for line in recent.lines if "waits for" in line["text"]]
        assert waits
        assert all(name in waits[0] for name in others)
        assert house.violations(rounds=4) == []
    again: list[Any] = []
    house.reborn("cleo")

    async def back() -> None:
        alone = asyncio.create_task(house.live("cleo", saved=house.models["cleo"], prepare=again.append))
        while not again:
            await asyncio.sleep(0.01)
        watching = asyncio.create_task(Watch(again[0], again[0].transport, house.state["cleo"], recent).forever())
        await alone
        watching.cancel()

    with shown() as recent:
        together(back())
    waits = [line["text"] for line in recent.lines if "waits for" in line["text"]]
    assert waits
    assert all(line.endswith("leaves when it has waited for 0.3 s (deploy.deadline)") for line in waits)
    assert (again[0].status.round, sum(again[0].pace.counts)) == (4, 0)  # a message that is offered again is no round


def test_what_a_reboot_would_lose_and_what_is_clipped_is_said_at_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A state folder on tmpfs, and an age of 8271635: counted, not quoted, where the file is kept."""
    plan = small_plan(2, patience=0.5, deadline=0.5)
    bounds = {"age": [0, 100], "pressure": [80, 200]}
    options = {"classes": ["no", "yes"], "bounds": bounds, "constant": True, "optional": []}
    plan = plan.model_copy(update={"data": plan.data.model_copy(update={"label": "outcome", "options": options})})
    agreement, sites = sign_trial(plan, small_records(), tmp_path / "t")
    rows = [f"{8271635 if i < 2 else 40 + i},{100 + i},{'yes' if i % 2 else 'no'}" for i in range(12)]
    (tmp_path / "ages.csv").write_text("\n".join(["age,pressure,outcome", *rows]) + "\n")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as state:
        files = ["--data", str(tmp_path / "ages.csv"), "--keys", str(sites[0].keys), "--state", state]
        assert main(["agent", str(agreement), "--me", "ada", *files]) == 6
        kept = (Path(state) / "log.jsonl").read_text()
    said = capsys.readouterr().err
    assert "warning: the state folder is on tmpfs: a reboot loses the ledger" in said
    clipped = "column 'age': 2 of 12 values lie outside [0, 100] and are moved to its ends"
    assert f"warning: {clipped}" in said
    assert clipped in kept
    assert "8271635" not in said + kept  # long enough that no hash or time has it by chance
