"""`coterie agent --preflight`: every problem at once, told by its cause, and nothing is sent, charged or stored."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie.cli import main
from coterie.deploy import hall, reach
from coterie.deploy.agreement import draft_agreement
from coterie.deploy.grpc_transport import GrpcTransport
from coterie.deploy.host import Host
from coterie.deploy.keys import init_authority, init_party, read_certificate
from coterie.deploy.party import read_records, write_records
from coterie.deploy.preflight import _need, ledger_need
from coterie.deploy.reach import ReachFinding
from coterie.deploy.sum_agent import SumAgent
from coterie.deploy.trial import Site, sign_trial
from coterie.names import host_and_port
from coterie.plan import validate
from tests.deploy.consortium import (
    IN_A_YEAR,
    Consortium,
    Node,
    certify,
    free_ports,
    make_consortium,
    running,
    trial_plan,
)
from tests.deploy.house import NAMES, House, Setting, small_records, together
from tests.deploy.shared_house import SharedHouse, SharedSetting, shared_plan
from tests.deploy.test_exits import agent, expired

# ---- neighbours ------------------------------------------------------------------------------------------------------


@pytest.fixture
def group(tmp_path: Path) -> Consortium:
    return make_consortium(tmp_path, names=("ada", "ben"))


def from_ada(group: Consortium, *others: Any) -> list[ReachFinding]:
    """What ada finds out about ben, while these run."""

    async def scenario() -> list[ReachFinding]:
        async with running(*others):
            return await reach.reach(group.keys("ada"), group.agreement, "ben")

    return asyncio.run(scenario())


def test_a_neighbour_that_is_up_is_reached_and_hears_nothing(group: Consortium) -> None:
    ben = Node(group, "ben", GrpcTransport)
    found = from_ada(group, ben)
    assert [f.level for f in found] == ["ok", "ok"]
    assert "holds the same agreement and lets us in" in found[-1].text
    peer = ben.transport.peers["ada"]
    assert (peer.theirs, peer.tasks, peer.process, dict(ben.transport.refusals.counts)) == (None, (), b"", {})


def test_one_that_is_not_up_yet_is_no_problem(group: Consortium) -> None:
    ((level, about, text),) = from_ada(group)
    assert (level, about) == ("warning", "neighbour ben")
    assert "not up yet" in text


def past(group: Consortium) -> None:
    yesterday = dt.datetime.now(dt.UTC) - dt.timedelta(days=1)
    certify(group.folder, "ben", checked=False, start=yesterday - dt.timedelta(days=9), lifetime=dt.timedelta(days=9))


def soon(group: Consortium) -> None:
    certify(group.folder, "ben", lifetime=dt.timedelta(days=5))


def other_key(group: Consortium) -> None:
    shutil.rmtree(group.folder / "ben")
    init_party("ben", group.folder / "ben")
    certify(group.folder, "ben")


def other_authority(group: Consortium) -> None:
    init_authority("others", group.folder / "others")
    certify(group.folder, "ben", ca="others", checked=False)


def future(group: Consortium) -> None:
    tomorrow = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)
    certify(group.folder, "ben", checked=False, start=tomorrow, lifetime=dt.timedelta(days=9))


CERTIFICATES: dict[str, tuple[Callable[[Consortium], None], str, str]] = {
    "expired": (past, "problem", "the certificate of ben expired on"),
    "about to expire": (soon, "warning", "the certificate of ben is about to expire"),
    "another key": (other_key, "problem", "the TLS key of ben is not the agreed one"),
    "another authority": (other_authority, "problem", "not signed by trial-ca"),
    "from tomorrow": (future, "problem", "is it behind?"),
}


@pytest.mark.parametrize("case", CERTIFICATES)
def test_whose_certificate_is_wrong_is_said(group: Consortium, case: str) -> None:
    change, level, words = CERTIFICATES[case]
    good = Node(group, "ben", GrpcTransport)
    change(group)
    pair = (group.folder / "ben" / "tls.key").read_bytes(), (group.folder / "ben" / "certificate.pem").read_bytes()
    object.__setattr__(good.transport.keys, "tls_key_pem", pair[0])  # it serves what `install` would have refused
    object.__setattr__(good.transport.keys, "identity", read_certificate(group.folder / "ben" / "certificate.pem"))
    good.transport._stamp = good.transport.keys.stamp  # type: ignore[attr-defined]
    found = from_ada(group, good)
    assert (level, "neighbour ben") in {(f.level, f.about) for f in found}
    assert any(words in f.text for f in found), found


def test_one_with_another_agreement_is_told_apart(group: Consortium) -> None:
    identities = [read_certificate(group.folder / n / "certificate.pem") for n in ("ada", "ben")]
    addresses = [p.address for p in group.agreement.parties]
    plan = trial_plan(names=("ada", "ben"), addresses=addresses, run={"rounds": 21})
    other = draft_agreement(plan, identities, group.authority, IN_A_YEAR).signed(group.agreement_key)
    found = from_ada(group, Node(Consortium(group.folder, group.authority, group.agreement_key, other), "ben",
                                 GrpcTransport))  # fmt: skip
    assert found[-1].level == "problem"
    assert "holds another agreement" in found[-1].text


def test_one_that_refuses_our_certificate_is_told_apart(group: Consortium) -> None:
    ben = Node(group, "ben", GrpcTransport)
    year = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    certify(group.folder, "ada", checked=False, start=year, lifetime=dt.timedelta(days=1))

    async def scenario() -> list[ReachFinding]:
        async with running(ben):
            keys = reach_keys(group)
            return await reach.reach(keys, group.agreement, "ben")

    found = asyncio.run(scenario())
    assert found[-1].level == "problem"
    assert "our certificate" in found[-1].text


def reach_keys(group: Consortium) -> Any:
    from coterie.deploy.keys import load_party

    return load_party(group.folder / "ada", dt.datetime(2020, 1, 1, 12, tzinfo=dt.UTC))


@pytest.mark.parametrize(
    ("says", "words"), [(b"", "takes the call and says nothing"), (b"HTTP/1.1 400 Bad\r\n\r\n", "does not speak TLS")]
)
def test_somebody_else_at_its_address_is_told_apart(
    group: Consortium, monkeypatch: pytest.MonkeyPatch, says: bytes, words: str
) -> None:
    monkeypatch.setattr(reach, "WAIT", 0.5)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(says)
            await reader.read(-1)
        finally:
            writer.transport.abort()

    async def scenario() -> list[ReachFinding]:
        host, port = host_and_port(group.agreement.party("ben").address or "")
        async with await asyncio.start_server(answer, host, port) as server:
            found = await reach.reach(group.keys("ada"), group.agreement, "ben")
            server.close()
        return found

    (found,) = asyncio.run(scenario())
    assert found.level == "problem"
    assert words in found.text


def test_a_name_that_does_not_exist_is_said(tmp_path: Path) -> None:
    group = make_consortium(tmp_path, names=("ada", "ben"), addresses=["127.0.0.1:7101", "nobody.invalid:7102"])
    (found,) = from_ada(group)
    assert found.level == "problem"
    assert "the name nobody.invalid cannot be resolved" in found.text


# ---- the whole command -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def clinic(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[Site, ...]]:
    """Three parties with tables; cleo is called by both others."""
    folder = tmp_path_factory.mktemp("clinic") / "t"
    ports = free_ports(3)
    plan = validate(
        {
            "name": "three clinics",
            "data": {"source": "csv", "label": "outcome", "options": {
                "classes": ["no", "yes"], "bounds": {"age": [0, 100], "pressure": [80, 200]}, "constant": True,
                "missing": "error"}},
            "partition": {"kind": "iid", "sizes": [12] * 3},
            "graph": {"kind": "ring"},
            "problem": {"loss": "logistic", "dim": 3, "ridge": 0.1},
            "algorithm": {"name": "dp-dsgd"},
            "privacy": {"epsilon": 2.0, "delta": 1e-5},
            "run": {"rounds": 4},
            "deploy": {"parties": [{"name": n, "address": f"127.0.0.1:{p}"} for n, p in zip(NAMES, ports)]},  # noqa: B905
        }
    )  # fmt: skip
    return sign_trial(plan, small_records(), folder)


def table(path: Path, *changes: tuple[int, str, str], columns: str = "age,pressure,outcome") -> Path:
    rng, names = np.random.default_rng(0), columns.split(",")
    rows = [dict(zip(("age", "pressure", "outcome"), (str(a), str(b), c), strict=True)) for a, b, c in zip(
        rng.integers(20, 90, 12), rng.integers(90, 180, 12), rng.choice(["no", "yes"], 12), strict=True)]  # fmt: skip
    for row, name, value in changes:
        rows[row][name] = value
    path.write_text("\n".join([columns, *(",".join(row.get(n, "1") for n in names) for row in rows)]) + "\n")
    return path


def flight(
    clinic: tuple[Path, tuple[Site, ...]], state: Path, data: Path, *more: str, me: str = "ada", **changes: Any
) -> int:
    agreement, sites = clinic
    keys = changes.get("keys", next(s.keys for s in sites if s.name == me))
    files = ["--data", str(data), "--keys", str(keys), "--state", str(state)]
    return main(["agent", str(changes.get("agreement", agreement)), "--me", me, *files, "--preflight", *more])


def content(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_party_that_is_ready_is_told_so_and_leaves_no_trace(
    clinic: tuple[Path, tuple[Site, ...]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = content(clinic[0].parent)
    assert flight(clinic, tmp_path / "state", table(tmp_path / "good.csv")) == 0
    shown = capsys.readouterr().out
    assert "no problem, 2 warnings; nothing was sent or charged" in shown
    assert shown.count("not up yet: nothing listens at") == 2
    assert "12 records of 3 numbers" in shown
    assert not (tmp_path / "state").exists()
    assert content(clinic[0].parent) == before


def test_a_party_behind_a_folder_needs_a_host_there(
    clinic: tuple[Path, tuple[Site, ...]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, folder = table(tmp_path / "good.csv"), tmp_path / "d"
    behind = ("--behind", str(folder))
    folder.mkdir(mode=0o700)
    assert flight(clinic, tmp_path / "state", good, *behind, me="cleo") == 1
    assert "is at work for" in capsys.readouterr().out
    host = Host(f"127.0.0.1:{free_ports(1)[0]}", folder)
    host.start()
    try:
        assert flight(clinic, tmp_path / "state", good, *behind, me="cleo") == 0
    finally:
        host.close()


def test_all_problems_come_at_once(
    clinic: tuple[Path, tuple[Site, ...]], tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Of the data, the agreement, the disk, the files, the port: one does not hide another."""
    agreement = clinic[0]
    port = host_and_port(_address(agreement, "cleo"))[1]
    bad = table(tmp_path / "bad.csv", (0, "age", "500"), (1, "age", "old"), (2, "outcome", "maybe"),
                columns="age,outcome")  # fmt: skip
    old = expired_agreement(clinic, tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 9, 1))  # type: ignore[attr-defined]
    monkeypatch.setattr(hall.resource, "getrlimit", lambda _: (64, 64))
    with socket.create_server(("127.0.0.1", port)):
        assert flight(clinic, Path("/dev/shm") / f"coterie-{os.getpid()}", bad, me="cleo", agreement=old) == 1
    shown = capsys.readouterr().out
    for words in (
        "the agreement ended on 2020-01-01",
        "there is no column 'pressure': it has age, outcome",
        "column 'age' must be numeric, but has 'old' (in 1 rows)",
        "column 'outcome' has 'maybe' and the like in 1 rows: expected no, yes",
        "column 'age': 1 of 12 values lie outside [0, 100] and are moved to its ends (they go from ",
        "the state folder is on tmpfs: a reboot loses the ledger",
        "are needed for the ledger, 1 bytes are free",
        "64 open files are too few for 2 neighbours",
        "cannot listen at 127.0.0.1",
    ):
        assert words in shown, words
    assert "7 problems" in shown
    assert "500" in shown  # the owner sees what is clipped, before it is


def _address(agreement: Path, name: str) -> str:
    from coterie.deploy.agreement import unverified

    return str(unverified(agreement).party(name).address)


def expired_agreement(clinic: tuple[Path, tuple[Site, ...]], folder: Path) -> Path:
    from types import SimpleNamespace

    from coterie.deploy.agreement import unverified

    as_setting: Any = SimpleNamespace(agreement_file=clinic[0], sites=clinic[1], plan=unverified(clinic[0]).plan)
    return expired(as_setting, folder)


def test_without_keys_the_rest_is_still_looked_at(
    clinic: tuple[Path, tuple[Site, ...]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert flight(clinic, tmp_path / "s", table(tmp_path / "t.csv", (3, "age", "")), keys=tmp_path / "none") == 1
    shown = capsys.readouterr().out
    assert "none/certificate.pem" in shown
    assert "column 'age' is missing in 1 rows" in shown
    assert flight(clinic, tmp_path / "s", tmp_path / "t.csv", "--json", keys=tmp_path / "none") == 1
    told = json.loads(capsys.readouterr().out)
    assert told["counts"]["problem"] == sum(f["level"] == "problem" for f in told["findings"]) == 2


def test_a_ledger_of_before_is_looked_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One that is there, one that is gone after the agreement has begun, and one that is in use."""
    setting = Setting.small(tmp_path / "t", 4, addresses=tuple(f"127.0.0.1:{p}" for p in free_ports(3)))
    from coterie.deploy.anchor import Anchor

    state, site = tmp_path / "state", setting.site("ada")
    house = House(setting, tmp_path / "h")
    with house.ledger("ada", state) as ledger:
        ledger._anchor = Anchor(site.keys, setting.agreement.plan_hash)
        ledger.release(0, setting.parties["ada"].charges[0], b"f" * 100, b"", {})
        ledger._anchor.close()
    assert agent(setting, state, "--preflight") == 0
    assert "1 rounds are done" in capsys.readouterr().out
    assert agent(setting, tmp_path / "empty", "--preflight") == 1
    assert "a second ledger would pay its ε again" in capsys.readouterr().out


def test_a_party_of_secret_sums_is_looked_at_alike(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With shared noise: ready, and everything wrong at once."""
    places = [(n, f"127.0.0.1:{p}") for n, p in zip(NAMES, free_ports(3), strict=True)]
    setting = SharedSetting(shared_plan(3, parties_at=places), tmp_path / "t")
    clinic = setting.agreement_file, setting.sites
    good = setting.site("ada").data
    before = content(tmp_path / "t")
    assert flight(clinic, tmp_path / "state", good) == 0
    shown = capsys.readouterr().out
    assert "no problem, 2 warnings; nothing was sent or charged" in shown
    assert shown.count("not up yet: nothing listens at") == 2
    assert "are needed for the ledger" in shown
    assert "12 records of 3 numbers" in shown
    assert content(tmp_path / "t") == before
    few = read_records(setting.plan, good)
    write_records(tmp_path / "few.npz", few._replace(features=few.features[:11], targets=few.targets[:11]))
    port = int(places[2][1].split(":")[1])  # cleo is called by both others
    with socket.create_server(("127.0.0.1", port)):
        wrong = {"keys": setting.site("ben").keys, "me": "cleo"}
        assert flight(clinic, tmp_path / "state", tmp_path / "few.npz", **wrong) == 1
    shown = capsys.readouterr().out
    assert "its file has 11" in shown
    assert "belong to ben, not to cleo" in shown
    assert "cannot listen at" in shown


@pytest.mark.slow
def test_the_space_for_secret_sums_is_not_underrated(tmp_path: Path) -> None:
    """Against the largest that a real ledger was, over two batches of secrets."""
    setting = SharedSetting(shared_plan(3, rounds=30), tmp_path / "t")
    house, largest = SharedHouse(setting, tmp_path / "house"), 0

    def watch(one: SumAgent) -> None:
        real = one.ledger.keep

        def keep(*arguments: Any) -> None:
            nonlocal largest
            real(*arguments)
            largest = max(largest, sum(p.stat().st_size for p in one.ledger.path.parent.iterdir()))

        one.ledger.keep = keep  # type: ignore[method-assign]

    house.run(watch, seconds=300)
    need = _need(setting.agreement, 0, setting.terms)
    assert largest <= need <= 10 * largest


def test_the_need_for_space_is_not_underrated(tmp_path: Path) -> None:
    """Against a real ledger of a run, before its log is folded in, at its largest."""
    setting = Setting.small(tmp_path / "t", 30)
    house, largest = House(setting, tmp_path / "house"), 0

    def watch(one: Any) -> None:
        real = one.ledger.release

        def release(*arguments: Any) -> None:
            nonlocal largest
            real(*arguments)
            largest = max(largest, sum(p.stat().st_size for p in one.ledger.path.parent.iterdir()))

        one.ledger.release = release

    together(*(house.live(name, prepare=watch) for name in NAMES))
    party = setting.parties["ada"]
    state = sum(part.nbytes for part in party.pack(party.begin()))
    need = ledger_need(party.wire.frame_bytes, state, party.rounds, len(party.neighbours))
    assert largest <= need <= 10 * largest
