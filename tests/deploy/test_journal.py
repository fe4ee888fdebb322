"""What the owner finds afterwards: reasons, exit codes, evidence; without end, no trouble fills the disk."""

from __future__ import annotations

import asyncio
import json
import logging
import stat
from pathlib import Path
from typing import Any

import pytest

from coterie.cli import main
from coterie.deploy import hello, journal
from coterie.deploy.files import private_folder
from coterie.deploy.frames import Misdeed, Receipt, Wire, digest, open_frame, seal
from coterie.deploy.grpc_transport import GrpcTransport
from coterie.deploy.journal import PER_PARTY, EvidenceFolder, Log, listening, log
from coterie.deploy.keys import load_party
from coterie.deploy.party import read_records, write_records
from coterie.deploy.trial import free_ports
from coterie.errors import InputError
from tests.deploy.consortium import WIRE, Consortium, Node, make_consortium, running, until
from tests.deploy.house import Setting
from tests.deploy.test_exits import _signals, agent, expired, few  # noqa: F401
from tests.deploy.test_hostile import Credentials, greet, stream


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Setting:
    """ada dials one neighbour whose name does not exist, and one where nobody listens."""
    places = (f"127.0.0.1:{free_ports(1)[0]}", "nobody.invalid:7101", f"127.0.0.1:{free_ports(1)[0]}")
    return Setting.small(tmp_path_factory.mktemp("journal") / "t", 4, addresses=places, deadline=0.5, patience=1.5)


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Setting:
    """ada gives up soon."""
    places = tuple(f"127.0.0.1:{p}" for p in free_ports(3))
    return Setting.small(tmp_path_factory.mktemp("hasty") / "t", 4, addresses=places, deadline=0.3, patience=0.3)


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Consortium:
    return make_consortium(tmp_path_factory.mktemp("consortium"))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_why_nobody_is_reached_is_in_log_status_and_last_word(
    alone: Setting, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "state"
    assert agent(alone, state) == 6
    last = capsys.readouterr().err
    assert "nothing from ben for 1.5 s" in last
    assert "ben: [Errno -" in last  # what the name service said
    about = {e["about"]: e["text"] for e in lines(state / "log.jsonl") if e["event"] == "news"}
    assert "[Errno -" in about["ben"]
    assert "not up yet: nothing listens" in about["cleo"]
    end = lines(state / "log.jsonl")[-1]
    assert (end["event"], end["how"], end["code"]) == ("end", "gave up", 6)
    assert "nothing from ben" in end["reason"]
    assert main(["agent", "x", "--me", "ada", "--state", str(state), "--status"]) == 1
    assert "waiting for ben ([Errno -" in capsys.readouterr().out.replace("\n", "")


def test_a_refusal_to_start_is_in_the_log(alone: Setting, tmp_path: Path) -> None:
    assert agent(alone, tmp_path / "state", data=few(alone, tmp_path)) == 2
    end = lines(tmp_path / "state" / "log.jsonl")[-1]
    assert (end["how"], end["code"]) == ("input", 2)
    assert "its file has 11" in end["reason"]
    assert agent(alone, tmp_path / "none", agreement=expired(alone, tmp_path)) == 2
    assert not (tmp_path / "none").exists()  # it did not come so far


def test_records_that_were_pulled_back_are_counted_for_the_owner(hasty: Setting, tmp_path: Path) -> None:
    """In the log, which stays; the party takes part as any other."""
    records = read_records(hasty.plan, hasty.site("ada").data)
    write_records(tmp_path / "large.npz", records._replace(features=records.features * ([[5.0]] * 3 + [[1.0]] * 9)))
    assert agent(hasty, tmp_path / "state", data=tmp_path / "large.npz") == 6
    told = [e["text"] for e in lines(tmp_path / "state" / "log.jsonl") if e["event"] == "trouble"]
    assert "3 of 12 records lie outside the bounds that the noise is priced for: pulled back" in told


def test_a_folder_that_all_users_share_is_refused_and_stays_as_it_is(alone: Setting, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    with pytest.raises(InputError, match="shared by all users"):
        private_folder(shared)
    assert agent(alone, shared) == 2
    assert shared.stat().st_mode & 0o7777 == 0o1777
    assert list(shared.iterdir()) == []  # no log either


def test_all_files_are_the_owners_alone(hasty: Setting, tmp_path: Path) -> None:
    """Whatever the umask, and in a folder that was there before."""
    (tmp_path / "state").mkdir(mode=0o755)
    assert agent(hasty, tmp_path / "state") == 6
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700
    files = [p for p in (tmp_path / "state").rglob("*") if p.is_file()]
    assert len(files) >= 3
    assert {stat.S_IMODE(p.stat().st_mode) for p in files} == {0o600}


def test_an_expired_certificate_of_ones_own_is_named(alone: Setting, group: Consortium) -> None:
    async def scenario() -> None:
        ada = Node(group, "ada", GrpcTransport)
        identity = ada.transport.keys.identity
        late = identity.certificate.not_valid_after_utc.replace(year=2999)
        object.__setattr__(ada.transport.keys, "identity", _At(identity, late))
        async with running(ada):
            await until(lambda: "ben" in ada.transport.trouble)
            assert "the certificate of ada expired on" in ada.transport.trouble["ben"]

    asyncio.run(scenario())


class _At:
    """An identity, asked at another time."""

    def __init__(self, identity: Any, now: Any):
        self._identity, self._now = identity, now

    def __getattr__(self, name: str) -> Any:
        return getattr(self._identity, name)

    def check_dates(self) -> None:
        self._identity.check_dates(self._now)


def test_the_same_trouble_is_written_once_in_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(journal.time, "monotonic", lambda: now)
    note = Log(tmp_path / "log.jsonl")
    with listening(note):
        for _ in range(100):
            for name in ("ben", "cleo"):
                log.warning("refused %s", name, extra={"about": name})
        now += 61
        log.warning("refused %s", "ben", extra={"about": "ben"})
    note.close()
    found = lines(tmp_path / "log.jsonl")
    assert [(e["about"], e["held_back"]) for e in found] == [("ben", 0), ("cleo", 0), ("ben", 99)]
    assert not any(isinstance(h, journal._Journal) for h in logging.getLogger("coterie.deploy").handlers)


# ---- evidence --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["second version", "beyond the bound", "unsigned"])
def test_a_signed_misdeed_is_kept_and_proves_itself(group: Consortium, tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "evidence"

    async def scenario() -> None:
        ben, eve = (Node(group, n, GrpcTransport, **({"evidence": EvidenceFolder(folder)})) for n in ("ben", "ada"))
        bad = {
            "second version": eve.frame(0, value=9),
            "beyond the bound": eve.frame(1, value=2_000_000),
            "unsigned": eve.frame(0)[:-64] + bytes(64),
        }[kind]
        async with running(ben), stream(group, "ben", Credentials(group.folder / "ada")) as call:
            await greet(call, eve)
            await call.write(eve.frame(0))
            await call.write(bad)
            await until(lambda: ben.transport.refused["ada"])
        if kind == "unsigned":  # anybody could have made it
            assert not folder.exists()
            return
        (kept,) = folder.glob("*.frame")
        assert kept.read_bytes() == bad
        facts = json.loads(kept.with_suffix(".json").read_text())
        assert facts["party"] == "ada"
        keys, plan = group.agreement.frame_keys, group.agreement.plan_hash
        wide = Wire(WIRE.count, WIRE.width, WIRE.rounds, lambda *_: 2**31 - 1)
        frame = open_frame(kept.read_bytes(), keys, plan, wide, 0)  # its signature fits
        if kind == "second version":
            (first,) = facts["signed"]
            receipt = Receipt(first["round"], *(bytes.fromhex(first[k]) for k in ("digest", "signature")))
            assert receipt.proven(keys[0], plan, 0)
            assert receipt.round == frame.round
            assert receipt.digest != frame.digest
        else:
            with pytest.raises(Misdeed):
                open_frame(kept.read_bytes(), keys, plan, WIRE, 0)

    asyncio.run(scenario())


def test_evidence_has_limits(tmp_path: Path, group: Consortium, monkeypatch: pytest.MonkeyPatch) -> None:
    keep, key = EvidenceFolder(tmp_path / "e"), load_party(group.folder / "ada").frame_key
    made = [seal(key, bytes(32), 0, r, bytes(100)) for r in range(50)]
    for frame in (*made, *made):
        keep("ada", "reason", frame)
        keep("ben", "reason", frame)
    assert len(list((tmp_path / "e").glob("ada_*.frame"))) == PER_PARTY
    assert len(list((tmp_path / "e").glob("*.json"))) == 2 * PER_PARTY
    monkeypatch.setattr(journal, "TOTAL", sum(p.stat().st_size for p in (tmp_path / "e").iterdir()) + len(made[0]))
    for frame in made:
        keep("cleo", "reason", frame)
    assert len(list((tmp_path / "e").glob("cleo_*.frame"))) == 1
    assert digest(made[0]).hex()[:16] in next((tmp_path / "e").glob("cleo_*.frame")).name
    (tmp_path / "file").write_text("")
    EvidenceFolder(tmp_path / "file")("ada", "reason", made[0])  # cannot be kept: logged, and nothing worse


# ---- compression -----------------------------------------------------------------------------------------------------


def test_a_compressed_message_is_refused_unopened(group: Consortium) -> None:
    """A neighbour's kilobytes could stand for gigabytes. A greeting that is right but compressed is refused too."""
    import grpc

    from coterie.deploy.grpc_transport import METHOD

    async def scenario(compression: Any) -> str:
        ben, ada = Node(group, "ben", GrpcTransport), Node(group, "ada", GrpcTransport)
        shown = Credentials(group.folder / "ada")
        trusted = grpc.ssl_channel_credentials(group.authority.pem, shown.key, shown.certificate)
        options = [("grpc.ssl_target_name_override", "ben"), ("grpc.use_local_subchannel_pool", 1)]
        address = group.agreement.party("ben").address
        channel = grpc.aio.secure_channel(address, trusted, options=options, compression=compression)
        async with running(ben), channel:
            call = channel.stream_stream(METHOD)()
            try:
                await greet(call, ada)
                await until(lambda: ben.transport.alive["ada"], 2)
            except (grpc.RpcError, TypeError, TimeoutError, asyncio.InvalidStateError):
                return str(await call.details())
        return "greeted"

    assert asyncio.run(scenario(None)) == "greeted"
    # mostly "… is disabled on the server"; where the stream is reset before that arrives, the reset's words
    assert asyncio.run(scenario(grpc.Compression.Gzip)) != "greeted"


def test_a_compressed_answer_is_refused_unopened(group: Consortium) -> None:
    """The same where the neighbour is the one that listens."""
    import grpc

    from coterie.deploy.grpc_transport import NAME, SERVICE

    async def scenario(compression: Any) -> bool:
        ada, eve = Node(group, "ada", GrpcTransport), Node(group, "ben", GrpcTransport)
        shown, heard = Credentials(group.folder / "ben"), []

        async def answer(_: object, context: Any) -> None:
            if compression is not None:
                context.set_compression(compression)
            theirs, mine = await context.read(), hello.make_opening(group.agreement.plan_hash, eve.node)
            heard.append(theirs)
            await context.write(mine)
            await context.write(hello.make_hello(eve.transport.keys.frame_key, mine, theirs, Receipt()))
            await context.read()
            await asyncio.sleep(1)

        handler = grpc.stream_stream_rpc_method_handler(answer)
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {NAME: handler}),))
        pair = [(shown.key, shown.certificate)]
        trusted = grpc.ssl_server_credentials(pair, group.authority.pem, True)
        server.add_secure_port(str(group.agreement.party("ben").address), trusted)
        await server.start()
        try:
            async with running(ada):
                await until(lambda: ada.transport.alive["ben"] or "gzip" in ada.transport.trouble.get("ben", ""))
                return ada.transport.alive["ben"]
        finally:
            await server.stop(0)
            assert heard

    assert asyncio.run(scenario(None))
    assert not asyncio.run(scenario(grpc.Compression.Gzip))
