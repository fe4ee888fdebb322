"""What the owner sees through the loopback port: numbers that a strict reader of Prometheus' format takes, a page that
needs nothing else and takes no orders, and nothing for a stranger's browser."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import re
import socket
import threading
import time
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from coterie.deploy import tally, watch, window
from coterie.deploy.agent import Status
from coterie.deploy.exposition import exposition
from coterie.deploy.party import read_records, write_records
from coterie.deploy.tally import BUCKETS, Refusals, RoundTimes
from coterie.deploy.trial import free_ports
from coterie.deploy.watch import Watch
from coterie.deploy.window import Window, WindowPlace
from coterie.errors import InputError
from tests.deploy.consortium import until
from tests.deploy.house import Setting
from tests.deploy.shared_house import SharedSetting, records_of, shared_plan
from tests.deploy.test_exits import _signals, agent, end_agent, meanwhile, one_line  # noqa: F401

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\\\|\\"|\\n)*"'
SAMPLE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)?\}})? (\S+)")
NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*(?:e[+-]?\d+)?|Inf)|NaN")


def parse(text: str) -> dict[str, tuple[str, list[tuple[str, dict[str, str], float]]]]:
    """Prometheus' text format 0.0.4, strictly: HELP and TYPE once and first, samples together, no double."""
    assert text.endswith("\n")
    families: dict[str, tuple[str, list[tuple[str, dict[str, str], float]]]] = {}
    helped, seen, current = set(), set(), ""
    for line in text[:-1].split("\n"):
        if found := re.fullmatch(rf"# HELP ({NAME}) (.*)", line):
            assert found[1] not in helped
            helped.add(found[1])
        elif found := re.fullmatch(rf"# TYPE ({NAME}) (counter|gauge|histogram|summary|untyped)", line):
            current = found[1]
            assert current in helped
            assert current not in families
            families[current] = found[2], []
        else:
            found = SAMPLE.fullmatch(line)
            assert found is not None, line
            name, labels, value = found.groups()
            kind, samples = families[current]
            endings = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
            assert name in {current + end for end in endings}
            assert NUMBER.fullmatch(value), line
            pairs = dict(re.findall(r'([a-zA-Z0-9_]+)="((?:[^"\\]|\\.)*)"', labels or ""))
            key = name, tuple(sorted(pairs.items()))
            assert key not in seen, f"twice: {key}"
            seen.add(key)
            samples.append((name, pairs, float(value)))
    for name, (kind, samples) in families.items():
        if kind == "counter":
            assert name.endswith("_total")
        if kind == "histogram":
            buckets = [(float(labels["le"]), v) for n, labels, v in samples if n.endswith("_bucket")]
            assert buckets == sorted(buckets)
            assert [v for _, v in buckets] == sorted(v for _, v in buckets)
            assert buckets[-1][0] == float("inf")
            assert buckets[-1][1] == next(v for n, _, v in samples if n.endswith("_count"))
    return families


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Setting:
    """Three parties on this machine; only one of them is ever started."""
    places = tuple(f"127.0.0.1:{p}" for p in free_ports(3))
    return Setting.small(tmp_path_factory.mktemp("window") / "t", 4, addresses=places, deadline=0.5, patience=30.0)


def ask(
    port: int, path: str = "/", method: str = "GET", host: str | None = None, extra: str = ""
) -> tuple[int, str, str]:
    """One request by hand: status, head and body of the answer."""
    host = f"Host: {host or f'127.0.0.1:{port}'}\r\n" if host != "" else ""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as one:
        one.sendall(f"{method} {path} HTTP/1.1\r\n{host}{extra}\r\n".encode())
        got = b""
        while data := one.recv(65536):
            got += data
    head, _, body = got.decode().partition("\r\n\r\n")
    return int(head.split()[1]), head, body


@contextlib.contextmanager
def watched(setting: Setting, state: Path, look: Any, **options: Any) -> Iterator[None]:
    """Run ada, call look(port) once the window is there, then stop her."""
    port = free_ports(1)[0]

    def job() -> None:
        try:
            deadline = time.monotonic() + 30
            while time.monotonic() < deadline:
                time.sleep(0.05)
                with contextlib.suppress(OSError):
                    ask(port)
                    break
            look(port)
        finally:
            end_agent()

    with meanwhile(job) as wrong:
        assert agent(setting, state, metrics=port, **options) == 130
    if wrong:
        raise wrong[0]
    yield


# ---- numbers ---------------------------------------------------------------------------------------------------------


def test_every_number_of_a_party_that_waits(alone: Setting, tmp_path: Path) -> None:
    seen: dict[str, Any] = {}

    def look(port: int) -> None:
        seen["body"] = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5).read().decode()
        seen["bytes"] = sum(p.stat().st_size for p in (tmp_path / "state").glob("ledger.db*"))

    with watched(alone, tmp_path / "state", look):
        families = parse(seen["body"])
    value = {n: samples[0][2] for n, (_, samples) in families.items() if len(samples) == 1}
    assert (value["coterie_round"], value["coterie_rounds"]) == (0, 4)
    assert (value["coterie_epsilon_spent"], value["coterie_epsilon_left"], value["coterie_delta"]) == (0, 2, 1e-5)
    assert value["coterie_ledger_bytes"] == seen["bytes"] > 0
    assert value["coterie_seconds_since_progress"] >= 0
    assert 29 < value["coterie_agreement_days_left"] <= 30
    assert [(s[1]["party"], s[2]) for s in families["coterie_waiting"][1]] == [("ben", 1), ("cleo", 1)]
    assert [s[2] for s in families["coterie_neighbour_connected"][1]] == [0, 0]
    ((_, labels, days),) = families["coterie_certificate_days_left"][1]
    assert labels == {"party": "ada"}
    assert 29 < days <= 30
    assert families["coterie_round_seconds"][0] == "histogram"
    assert families["coterie_refusals_total"] == ("counter", [])


@pytest.fixture(scope="module")
def of_sums(tmp_path_factory: pytest.TempPathFactory) -> Setting:
    """Five parties of secret sums with shared noise, on a ring on this machine; only one of them is ever started."""
    names, ports = ("ada", "ben", "cleo", "dora", "emil"), free_ports(5)
    plan = shared_plan(5, deadline=2.0, parties_at=[(n, f"127.0.0.1:{p}") for n, p in zip(names, ports, strict=True)])
    return cast(Setting, SharedSetting(plan, tmp_path_factory.mktemp("sums") / "t", records_of(5)))


def test_a_party_of_secret_sums_has_the_same_numbers_and_page(of_sums: Setting, tmp_path: Path) -> None:
    """It waits for everybody, also for those that are no neighbours of it."""
    seen: dict[str, Any] = {}

    def look(port: int) -> None:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and "dora" not in seen.get("numbers", ""):
            seen["numbers"] = ask(port, "/metrics")[2]
            time.sleep(0.1)
        seen["page"], seen["facts"] = ask(port)[2], json.loads(ask(port, "/status.json")[2])

    with watched(of_sums, tmp_path / "state", look):
        families = parse(seen["numbers"])
    value = {n: samples[0][2] for n, (_, samples) in families.items() if len(samples) == 1}
    assert (value["coterie_round"], value["coterie_rounds"], value["coterie_epsilon_spent"]) == (0, 3, 0)
    assert value["coterie_epsilon_budget"] == 2
    assert value["coterie_ledger_bytes"] > 0
    waiting = {s[1]["party"]: s[2] for s in families["coterie_waiting"][1]}
    assert waiting == {"ben": 1, "cleo": 1, "dora": 1, "emil": 1}
    assert {s[1]["neighbour"] for s in families["coterie_neighbour_connected"][1]} == {"ben", "emil"}
    assert len(seen["facts"]["parties"]) == 5
    assert sorted(seen["facts"]["waiting"]) == ["ben", "cleo", "dora", "emil"]
    assert "<svg" in seen["page"]


def test_rounds_refusals_and_odd_names_are_written_as_the_format_wants(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(tally.time, "monotonic", lambda: now)
    pace, refusals = RoundTimes(), Refusals()
    for seconds in (0.005, 0.02, 2.0, 5000.0):
        now += seconds
        assert pace.lap() == pytest.approx(seconds)
    now += 7
    assert pace.idle == pytest.approx(7)
    refusals.add("ben", 'says "no" to \\ everything\nand more')
    facts = {
        "round": 4, "rounds": 9, "idle": pace.idle, "waiting": (), "neighbours": {"ben": True}, "epsilon": 1.5,
        "priced": 3, "budget": 1.25, "delta": 1e-5, "certificate_days": {"ada": -1.5}, "agreement_days": 3.0,
        "ledger_bytes": 10,
        "refusals": [{"about": a, "reason": r, "count": n} for (a, r), n in refusals.counts.items()],
    }  # fmt: skip
    families = parse(exposition(facts, pace))
    counts = {labels.get("le"): v for _, labels, v in families["coterie_round_seconds"][1]}
    assert (counts["0.01"], counts["0.03"], counts["1.0"], counts["3.0"], counts["+Inf"]) == (1, 2, 2, 3, 4)
    assert families["coterie_refusals_total"][1][0][1]["reason"] == 'says \\"no\\" to \\\\ everything\\nand more'
    assert families["coterie_epsilon_left"][1][0][2] == 0  # never negative
    assert families["coterie_epsilon_rounds"][1][0][2] == 3
    assert len(pace.counts) == len(BUCKETS) + 1


class _Dear:
    """A ledger whose ε takes long to work out: on the wall, or of the processor."""

    last, path, budget = -1, Path("ledger.db"), SimpleNamespace(delta=1e-5)

    def __init__(self, clock: dict[str, float], wall: float, work: float):
        self.clock, self.wall, self.work = clock, wall, work

    def spent(self) -> float:
        self.clock["monotonic"] += self.wall
        self.clock["thread_time"] += self.work
        return 0.1 * (self.last + 1)


@pytest.mark.parametrize(("wall", "work", "lags"), [(5.0, 0.002, False), (5.0, 1.0, True)])
def test_epsilon_that_lags_behind_says_for_which_rounds_it_is(
    wall: float, work: float, lags: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy machine makes it lag no more; an account that is dear does, and then says so everywhere."""
    clock = {"monotonic": 100.0, "thread_time": 1.0}
    for name in clock:
        monkeypatch.setattr(watch.time, name, lambda name=name: clock[name])
    ledger, status = _Dear(clock, wall, work), Status(rounds=9, budget=1.0, phase="computing")
    transport = SimpleNamespace(alive={"ben": True}, trouble={})
    one = Watch(cast(Any, SimpleNamespace(status=status, ledger=ledger, name="ada")), cast(Any, transport), Path(),
                cast(Any, None))  # fmt: skip
    for t in range(4):
        ledger.last, status.round = t, t + 1
        facts = one.facts()
        clock["monotonic"] += 1.0
    assert (facts["epsilon"], facts["priced"]) == pytest.approx((0.1, 1) if lags else (0.4, 4))
    said = "ε 0.100 of 1 (by round 1)," if lags else "ε 0.400 of 1,"
    assert said in watch.line(facts)
    assert one.facts(ended=True)["priced"] == 4
    del facts["priced"]  # as an agent before this one wrote it
    assert "by round" not in watch.line(facts)


def test_the_parser_is_strict() -> None:
    for bad in (
        "coterie_x 1\n", "# HELP a b\n# TYPE a gauge\na{b=c} 1\n", "# HELP a b\n# TYPE a gauge\na 1\na 1\n",
        "# HELP a b\n# TYPE a counter\na 1\n", "# HELP a b\n# TYPE a gauge\na 1", "# HELP a b\n# TYPE a gauge\na one\n",
    ):  # fmt: skip
        with pytest.raises((AssertionError, KeyError)):
            parse(bad)


def test_reasons_are_few_whatever_callers_invent() -> None:
    refusals = Refusals()
    for i in range(1000):
        refusals.add("ben", f"round {i} after round 3")
        refusals.add("stranger", f"the certificate of 'x{i}' is strange")
        refusals.add(f"party{i}", "no")
    assert refusals.counts["ben", "round N after round N"] == 1000
    assert refusals.counts["stranger", "the certificate of … is strange"] == 1000
    assert len(refusals.counts) <= tally.REASONS + 1
    assert sum(refusals.counts.values()) == 3000


# ---- who is answered -------------------------------------------------------------------------------------------------


def test_only_this_machine_is_answered_and_only_asked_to_read(alone: Setting, tmp_path: Path) -> None:
    seen: dict[Any, Any] = {}

    def look(port: int) -> None:
        good = f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}"
        bad = f"evil.example:{port}", f"127.0.0.1.evil.example:{port}", f"127.0.0.1:{port + 1}", f"10.0.0.1:{port}"
        for host in (*good, *bad, "127.0.0.1", "", "x:y"):
            seen[host.replace(str(port), "P").replace(str(port + 1), "Q")] = ask(port, "/status.json", host=host)[0]
        for method in ("POST", "PUT", "DELETE", "OPTIONS", "HEAD", "get"):
            seen[method] = ask(port, "/status.json", method)[0]
        seen["two hosts"] = ask(port, extra="Host: evil.example\r\n")[0]
        seen["elsewhere"] = ask(port, "/../../etc/passwd")[0]
        seen["query"] = ask(port, "/?x=1")[0]
        seen["head"] = ask(port)[1]
        with pytest.raises((OSError, IndexError)):
            ask(port, "/" + "x" * 20_000)

    with watched(alone, tmp_path / "state", look):
        pass
    good = {"127.0.0.1:P", "localhost:P", "[::1]:P"}
    hosts = {k: v for k, v in seen.items() if "." in str(k) or ":" in str(k) or k == ""}
    assert {k for k, v in hosts.items() if v == 200} == good
    assert set(hosts.values()) == {200, 400, 403}
    assert {seen[m] for m in ("POST", "PUT", "DELETE", "OPTIONS", "HEAD", "get")} == {405}
    assert (seen["two hosts"], seen["elsewhere"], seen["query"]) == (400, 404, 200)
    assert "Access-Control" not in seen["head"]


def test_another_address_is_refused_unless_insisted_on(
    alone: Setting, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert agent(alone, tmp_path / "state", metrics="0.0.0.0:9101") == 2
    one_line(capsys, "0.0.0.0 is no loopback address", "--metrics-anywhere")
    with pytest.raises(InputError, match="PORT"):
        WindowPlace.read("example.org:9101", anywhere=True)
    inside, outside = WindowPlace.read("[::1]:9101"), WindowPlace.read("0.0.0.0:9101", anywhere=True)
    assert (inside.is_open, outside.is_open) == (False, True)
    assert outside.answers("10.1.2.3:9101")
    assert not outside.answers("evil.example:9101")
    for own in (socket.gethostname(), socket.getfqdn(), socket.getfqdn().upper()):
        assert outside.answers(f"{own}:9101")
        assert own == "localhost" or not inside.answers(f"{own}:9101")
    assert not inside.answers("10.1.2.3:9101")


def test_opening_it_to_others_is_warned_about(
    alone: Setting, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port = free_ports(1)[0]

    def stop() -> None:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                ask(port)
                break
            time.sleep(0.05)
        end_agent()

    with meanwhile(stop) as wrong:
        assert agent(alone, tmp_path / "state", "--metrics-anywhere", metrics=f"0.0.0.0:{port}") == 130
    assert wrong == []
    assert "warning: --metrics at 0.0.0.0: anybody who reaches this address can read it" in capsys.readouterr().err


# ---- the page --------------------------------------------------------------------------------------------------------


def test_the_page_allows_its_own_script_and_nothing_else(alone: Setting, tmp_path: Path) -> None:
    seen: dict[str, Any] = {}

    def look(port: int) -> None:
        _, seen["head"], seen["page"] = ask(port)
        seen["facts"] = json.loads(ask(port, "/status.json")[2])

    with watched(alone, tmp_path / "state", look):
        page, head = seen["page"], seen["head"]
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = re.search(r"Content-Security-Policy: (.*)", head)[1]  # type: ignore[index]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == f"'sha256-{digest}'"
    assert "unsafe" not in policy
    assert "*" not in policy
    assert rules["connect-src"] == "'self'"
    assert not re.search(r"(src|href)=[\"'](?!data:,|/metrics|/status\.json)", page)
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")
    assert " style=" not in page
    assert " on" + "click" not in page
    assert "innerHTML" not in page
    facts = seen["facts"]
    assert (facts["party"], facts["waiting"], facts["rounds"]) == ("ada", ["ben", "cleo"], 4)
    assert facts["edges"] == [[0, 1], [0, 2], [1, 2]]
    assert any("shows itself at" in line["text"] for line in facts["log"])


def test_nothing_on_records_is_shown_to_who_may_be_somebody_else(
    alone: Setting, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The owner hears how many records were pulled back, on standard error and in the file; the port does not say."""
    records = read_records(alone.plan, alone.site("ada").data)
    write_records(tmp_path / "large.npz", records._replace(features=records.features * ([[5.0]] * 3 + [[1.0]] * 9)))
    seen: list[str] = []

    def look(port: int) -> None:
        seen.extend(ask(port, path)[2] for path in ("/", "/status.json", "/metrics"))

    with watched(alone, tmp_path / "state", look, data=tmp_path / "large.npz"):
        pass
    assert not any("pulled back" in text or "3 of 12" in text for text in seen)
    assert "3 of 12 records lie outside" in capsys.readouterr().err
    assert "3 of 12 records lie outside" in (tmp_path / "state" / "log.jsonl").read_text()


def test_many_who_hold_the_port_do_not_stop_the_party(alone: Setting, tmp_path: Path) -> None:
    """A reader that is never done is let go after a while; threads of a browser share eight places."""
    done: list[int] = []

    def look(port: int) -> None:
        held = [socket.create_connection(("127.0.0.1", port)) for _ in range(4)]
        threads = [threading.Thread(target=lambda: done.append(ask(port, "/metrics")[0])) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        for one in held:
            one.close()

    with watched(alone, tmp_path / "state", look):
        pass
    assert done == [200] * 3


class Large(Window):
    """More than the system's buffers take: a page of many parties, and a reader that is slow on purpose."""

    def answer(self, _: bytes) -> bytes:
        return bytes(1 << 24)


def test_who_asks_and_does_not_read_the_answer_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "SLOWEST", 0.2)
    place = WindowPlace(("127.0.0.1",), free_ports(1)[0])

    async def scenario() -> None:
        async with Large(place, cast(Watch, None)):
            before = len(os.listdir("/proc/self/fd"))
            held = lambda: len(os.listdir("/proc/self/fd")) - before  # noqa: E731
            callers = [socket.create_connection((place.hosts[0], place.port)) for _ in range(4)]
            for one in callers:
                one.sendall(b"GET / HTTP/1.1\r\n\r\n")
            await until(lambda: held() == 2 * len(callers))  # both ends of each
            await until(lambda: held() == len(callers))
            for one in callers:
                one.close()

    asyncio.run(scenario())


def test_a_port_that_somebody_has_at_the_other_loopback_address_is_refused() -> None:
    """A browser that is told "localhost" would ask there first, and show somebody else's page."""
    port = free_ports(1)[0]

    async def scenario() -> None:
        with socket.create_server(("::1", port), family=socket.AF_INET6):
            async with Window(WindowPlace.read(str(port)), cast(Watch, None)):
                pass

    with pytest.raises(InputError, match=str(port)):
        asyncio.run(scenario())
