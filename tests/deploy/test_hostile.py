"""T1: ten bad peers get nowhere. F2: a neighbour with valid keys who misbehaves in thirteen ways harms nobody else."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import resource
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from coterie.deploy import courier as courier_module
from coterie.deploy import grpc_transport, hello
from coterie.deploy.courier import REPEATS, Courier
from coterie.deploy.frames import HEADER_BYTES, BadFrame, Receipt, digest
from coterie.deploy.grpc_transport import METHOD, GrpcTransport, admit
from coterie.deploy.keys import init_authority, init_party, read_authority
from coterie.deploy.peers import Rumour
from coterie.deploy.transport import AHEAD, Incoming
from tests.deploy.consortium import QUICK, WIRE, Consortium, Node, certify, make_consortium, running, until
from tests.deploy.memory import MemoryNetwork, MemoryTransport


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("consortium")


@pytest.fixture
def group(folder: Path) -> Consortium:
    return make_consortium(folder)


# ---- a peer that does as the test says -------------------------------------------------------------------------------


class Credentials:
    """What a bad peer shows: files from a folder, or nothing."""

    def __init__(self, folder: Path | None) -> None:
        self.key, self.certificate = (
            (None, None)
            if folder is None
            else ((folder / "tls.key").read_bytes(), (folder / "certificate.pem").read_bytes())
        )


@asynccontextmanager
async def stream(group: Consortium, callee: str, shown: Credentials | None) -> AsyncIterator[Any]:
    """A raw stream to a party: TLS with these credentials, or plaintext without any."""
    address = group.agreement.party(callee).address
    assert address is not None
    options = [("grpc.ssl_target_name_override", callee), ("grpc.use_local_subchannel_pool", 1),
               ("grpc.max_send_message_length", -1)]  # fmt: skip
    if shown is None:
        channel = grpc.aio.insecure_channel(address)
    else:
        trusted = grpc.ssl_channel_credentials(group.authority.pem, shown.key, shown.certificate)
        channel = grpc.aio.secure_channel(address, trusted, options=options)
    async with channel:
        yield channel.stream_stream(METHOD)()


async def greet(call: Any, node: Node, *, plan_hash: bytes | None = None, sender: int | None = None,
                receipt: Receipt | None = None) -> None:  # fmt: skip
    """The greeting of a party, right unless told otherwise."""
    mine = hello.make_opening(plan_hash or node.group.agreement.plan_hash, node.node if sender is None else sender)
    await call.write(mine)
    theirs = await call.read()
    await call.write(hello.make_hello(node.transport.keys.frame_key, mine, theirs, receipt or Receipt()))
    await call.read()


# ---- T1 --------------------------------------------------------------------------------------------------------------


async def attempt(group: Consortium, monkeypatch: pytest.MonkeyPatch, shown: Credentials | None, ada: Node,
                  **changes: Any) -> tuple[bool, int]:  # fmt: skip
    """Call ben with these credentials and send a good frame: (was it greeted?, how many payloads were parsed?)."""
    parsed = 0
    original = courier_module.open_frame

    def counted(*arguments: Any) -> Any:
        nonlocal parsed
        parsed += 1
        return original(*arguments)

    monkeypatch.setattr(courier_module, "open_frame", counted)
    ben = Node(group, "ben", GrpcTransport)
    async with running(ben):
        greeted = False
        try:
            async with asyncio.timeout(5), stream(group, "ben", shown) as call:
                await greet(call, ada, **changes)
                await until(lambda: ben.transport.alive["ada"], seconds=2)
                greeted = True
                await call.write(ada.frame(0))
                if greeted:
                    await ben.hear(1)
                else:
                    await call.read()
        except (grpc.RpcError, asyncio.InvalidStateError, TypeError, TimeoutError):
            pass  # TypeError: there was no opening to answer
        await asyncio.sleep(0.02)
        assert ben.got == ([("ada", 0)] if greeted else [])
    return greeted, parsed


def bad_folder(group: Consortium, tmp_path: Path, kind: str) -> Path:
    """ada's folder, with a certificate that is wrong in one way."""
    source, now = group.folder / "ada", dt.datetime.now(dt.UTC)
    (tmp_path / "ca").symlink_to(group.folder / "ca")
    folder = tmp_path / ("zoe" if kind == "wrong name" else "ada")
    if kind == "wrong pin":
        init_party("ada", folder)
        certify(tmp_path, "ada")
        return folder
    folder.mkdir()
    for file in ("tls.key", "frame.key"):
        (folder / file).write_bytes((source / file).read_bytes())
        (folder / file).chmod(0o600)
    day = dt.timedelta(days=1)
    options: dict[str, Any] = {
        "expired": {"start": now - 2 * day, "lifetime": day},
        "future": {"start": now + day, "lifetime": day},
        "foreign CA": {"ca": "foreign"},
    }.get(kind, {})
    if kind == "foreign CA":
        init_authority("trial-ca", tmp_path / "foreign")  # even the same name
    certify(tmp_path, folder.name, checked=False, **options)
    return folder


BAD = ("no certificate", "foreign CA", "expired", "future", "wrong name", "wrong pin", "non-neighbour", "sender≠cert",
       "wrong plan hash", "plaintext")  # fmt: skip


def peer(group: Consortium, tmp_path: Path, kind: str) -> tuple[Credentials | None, Node, dict[str, Any]]:
    ada = Node(group, "ada", GrpcTransport)
    own = group.folder / "ada"
    match kind:
        case "no certificate":
            return Credentials(None), ada, {}
        case "plaintext":
            return None, ada, {}
        case "non-neighbour":
            return Credentials(group.folder / "dora"), Node(group, "dora", GrpcTransport), {}
        case "sender≠cert":
            return Credentials(own), ada, {"sender": group.agreement.index("cleo")}
        case "wrong plan hash":
            return Credentials(own), ada, {"plan_hash": os.urandom(32)}
        case "good":
            return Credentials(own), ada, {}
        case _:
            return Credentials(bad_folder(group, tmp_path, kind)), ada, {}


@pytest.mark.parametrize("kind", BAD)
def test_t1_bad_peer_is_refused_before_the_payload_is_parsed(
    group: Consortium, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown, node, changes = peer(group, tmp_path, kind)
    assert asyncio.run(attempt(group, monkeypatch, shown, node, **changes)) == (False, 0)


def test_t1_the_good_peer_is_let_in(group: Consortium, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin of all ten: the same script with nothing wrong gets its frame through."""
    shown, node, changes = peer(group, tmp_path, "good")
    assert asyncio.run(attempt(group, monkeypatch, shown, node, **changes)) == (True, 1)


# Ten listeners, each with one check broken; each lets its bad peer in.


def trusting_name(courier: Courier, context: dict) -> Any:
    return courier.peers["ada"] if context["x509_common_name"] == [b"ada"] else admit(courier, context)


def trusting_pin(courier: Courier, context: dict) -> Any:
    return courier.peers["ada"]


def no_sender_check(data: bytes, plan_hash: bytes, sender: int) -> None:
    if data[8:40] != plan_hash:
        raise BadFrame("plan")


def any_opening(data: bytes, plan_hash: bytes, sender: int) -> None:
    return None


@pytest.mark.parametrize(
    ("kind", "name", "twin"),
    [
        ("wrong pin", "admit", trusting_name),
        ("wrong name", "admit", trusting_pin),
        ("sender≠cert", "check_opening", no_sender_check),
        ("wrong plan hash", "check_opening", any_opening),
    ],
)
def test_t1_twins_let_their_bad_peer_in(
    group: Consortium, tmp_path: Path, kind: str, name: str, twin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_transport if name == "admit" else hello, name, twin)
    shown, node, changes = peer(group, tmp_path, kind)
    assert asyncio.run(attempt(group, monkeypatch, shown, node, **changes)) == (True, 1)


def test_t1_twin_without_client_certificates(
    group: Consortium, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listener that asks for no certificate and believes the opening lets the nameless peer in."""
    original = grpc.dynamic_ssl_server_credentials
    monkeypatch.setattr(grpc, "dynamic_ssl_server_credentials",
                        lambda a, b, require_client_authentication: original(a, b, False))  # fmt: skip
    monkeypatch.setattr(grpc_transport, "admit", trusting_pin)
    shown, node, changes = peer(group, tmp_path, "no certificate")
    assert asyncio.run(attempt(group, monkeypatch, shown, node, **changes)) == (True, 1)


def test_t1_twin_that_trusts_a_foreign_authority(
    group: Consortium, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Same key, same pin, same name: only the chain is wrong, and only the chain kept it out."""
    shown, node, changes = peer(group, tmp_path, "foreign CA")
    root = group.authority.pem + read_authority(tmp_path / "foreign").pem
    original = grpc.ssl_server_certificate_configuration
    monkeypatch.setattr(grpc, "ssl_server_certificate_configuration",
                        lambda pairs, root_certificates: original(pairs, root))  # fmt: skip
    assert asyncio.run(attempt(group, monkeypatch, shown, node, **changes)) == (True, 1)


def test_t1_twin_with_a_plaintext_mode(group: Consortium, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        grpc.aio._server.Server, "add_secure_port", lambda self, address, _: self.add_insecure_port(address)
    )
    monkeypatch.setattr(grpc_transport, "admit", trusting_pin)
    shown, node, changes = peer(group, tmp_path, "plaintext")
    assert asyncio.run(attempt(group, monkeypatch, shown, node, **changes)) == (True, 1)


def test_admission_looks_at_dates_itself(group: Consortium, tmp_path: Path) -> None:
    """A second stream on an old connection, or a resumed TLS session, is not verified again by TLS."""
    ben = Node(group, "ben", GrpcTransport).transport
    for kind, reason in (("expired", "expired"), ("future", "valid only from"), ("wrong pin", "not in the agreement")):
        (tmp_path / kind).mkdir()
        pem = (bad_folder(group, tmp_path / kind, kind) / "certificate.pem").read_bytes()
        with pytest.raises(BadFrame, match=reason):
            admit(ben, {"transport_security_type": [b"ssl"], "x509_pem_cert": [pem]})
    good = {
        "transport_security_type": [b"ssl"],
        "x509_pem_cert": [(group.folder / "ada" / "certificate.pem").read_bytes()],
    }
    assert admit(ben, good).name == "ada"
    for broken in (
        good | {"x509_pem_cert": []},
        good | {"transport_security_type": [b"insecure"]},
        good | {"x509_pem_cert": [b"-----BEGIN"]},
        good | {"x509_pem_cert": [group.authority.pem]},
        good | {"x509_pem_cert": [(group.folder / "cleo" / "certificate.pem").read_bytes()]},  # ben calls her
    ):
        with pytest.raises(BadFrame):
            admit(ben, broken)


@pytest.mark.parametrize("kind", ["wrong pin", "expired", "foreign CA"])
def test_the_caller_refuses_a_bad_listener_too(group: Consortium, tmp_path: Path, kind: str) -> None:
    """ben calls cleo; here somebody with a bad certificate of the right name sits at her address, and lets all in."""
    folder = tmp_path / "cleo"
    (tmp_path / "ca").symlink_to(group.folder / "ca")
    init_party("cleo", folder)  # other keys than the agreed ones
    now, day = dt.datetime.now(dt.UTC), dt.timedelta(days=1)
    old = {"start": now - 2 * day, "lifetime": day}
    options: dict[str, Any] = {"expired": old, "foreign CA": {"ca": "foreign"}}.get(kind, {})
    if kind != "wrong pin":
        for file in ("tls.key", "frame.key"):
            (folder / file).write_bytes((group.folder / "cleo" / file).read_bytes())
    if kind == "foreign CA":
        init_authority("trial-ca", tmp_path / "foreign")
    certify(tmp_path, "cleo", checked=False, **options)
    heard = []

    async def called(requests: object, context: Any) -> None:
        heard.append(await context.read())

    async def scenario() -> None:
        pair = (folder / "tls.key").read_bytes(), (folder / "certificate.pem").read_bytes()
        server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        handler = grpc.stream_stream_rpc_method_handler(called)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("coterie.Edge", {"Talk": handler}),))
        server.add_secure_port(group.agreement.party("cleo").address, grpc.ssl_server_credentials([pair]))
        await server.start()
        ben = Node(group, "ben", GrpcTransport)
        async with running(ben):
            await ben.say(0)
            await asyncio.sleep(0.3)
            assert not ben.transport.alive["cleo"]
        await server.stop(0)

    asyncio.run(scenario())
    assert heard == []  # not even an opening reached the impostor


# ---- F2 --------------------------------------------------------------------------------------------------------------

Script = Callable[[Any, Node, Node], Awaitable[None]]


async def send(call: Any, *messages: bytes) -> None:
    for message in messages:
        await call.write(message)
    while await call.read() is not grpc.aio.EOF:
        pass  # until the victim ends the stream


async def nan_bits(call: Any, eve: Node, victim: Node) -> None:
    await send(call, eve.frame(0, payload=np.full(WIRE.count, np.nan, "<f4").tobytes()))


async def extremes(call: Any, eve: Node, victim: Node) -> None:
    await send(call, eve.frame(0, payload=np.array([2**31 - 1, -(2**31)] * 5, "<i4").tobytes()))


async def wrong_shape(call: Any, eve: Node, victim: Node) -> None:
    await send(call, eve.frame(0, payload=bytes(4 * (WIRE.count - 1))))


async def wrong_dtype(call: Any, eve: Node, victim: Node) -> None:
    await send(call, eve.frame(0, payload=np.zeros(WIRE.count, "<f8").tobytes()))


async def wrong_round(call: Any, eve: Node, victim: Node) -> None:
    await send(call, eve.frame(WIRE.rounds))


async def wrong_plan(call: Any, eve: Node, victim: Node) -> None:
    await send(call, eve.frame(0, plan_hash=os.urandom(32)))


async def replayed_from_another(call: Any, eve: Node, victim: Node) -> None:
    """A good frame of somebody else, as if it were one's own."""
    await send(call, Node(eve.group, "cleo", GrpcTransport).frame(0))


async def duplicates(call: Any, eve: Node, victim: Node) -> None:
    await send(call, *[eve.frame(0)] * (REPEATS + 3))


async def reordered(call: Any, eve: Node, victim: Node) -> None:
    await send(call, eve.frame(1), eve.frame(0))


async def truncated(call: Any, eve: Node, victim: Node) -> None:
    await send(call, eve.frame(0)[:HEADER_BYTES])


async def flood(call: Any, eve: Node, victim: Node) -> None:
    """As many good frames as the stream takes: the victim must stop reading, not fill its memory."""
    frames = [eve.frame(r) for r in range(WIRE.rounds)]

    async def pour() -> None:
        for frame in frames:
            await call.write(frame)

    pouring = asyncio.create_task(pour())
    await asyncio.sleep(0.3)
    assert victim.transport.held["ada"].round == AHEAD
    assert len(victim.transport._inbox) <= 2 * (AHEAD + 1)
    pouring.cancel()
    await asyncio.gather(pouring, return_exceptions=True)


async def second_version(call: Any, eve: Node, victim: Node) -> None:
    await send(call, eve.frame(0), eve.frame(0, value=9))


async def too_long(call: Any, eve: Node, victim: Node) -> None:
    await send(call, bytes(10_000_000))


AFTER_HELLO: dict[str, tuple[Script, list[int]]] = {  # what of ada's may reach ben's agent
    "NaN bits": (nan_bits, []),
    "±2³¹": (extremes, []),
    "wrong shape": (wrong_shape, []),
    "wrong dtype": (wrong_dtype, []),
    "wrong round": (wrong_round, []),
    "wrong plan": (wrong_plan, []),
    "replay": (replayed_from_another, []),
    "duplicate": (duplicates, [0]),
    "reorder": (reordered, []),
    "truncate": (truncated, []),
    "flood": (flood, list(range(AHEAD + 1))),
    "second version": (second_version, [0]),
    "too long": (too_long, []),
}


async def beside(group: Consortium, attack: Callable[[Node, Node], Awaitable[None]]) -> Node:
    """ben between a hostile ada and an honest cleo, whose frames must come through before, during and after."""
    ben, cleo, eve = (Node(group, n, GrpcTransport) for n in ("ben", "cleo", "ada"))
    async with running(ben, cleo):
        await until(lambda: ben.transport.alive["cleo"])
        await cleo.say(0)
        await ben.say(0)
        attacking = asyncio.create_task(attack(eve, ben))
        await asyncio.sleep(0)
        await cleo.say(1)
        async with asyncio.timeout(15):
            await attacking
        await cleo.say(2)
        async with asyncio.timeout(10):
            while ("cleo", 2) not in ben.got:
                incoming = await ben.transport.pull(0)
                ben.got.append((incoming.sender, incoming.round))
        assert [r for s, r in ben.got if s == "cleo"] == [0, 1, 2]
        assert ben.transport.alive["cleo"]
        assert not ben.transport.refused["cleo"]
        await cleo.hear(1)  # and ben's own frame went out
        while len(ben.transport._inbox):
            incoming = ben.transport._inbox.take()
            assert incoming is not None
            ben.got.append((incoming.sender, incoming.round))
    return ben


@pytest.mark.parametrize("kind", AFTER_HELLO)
def test_f2_hostile_neighbour(group: Consortium, kind: str) -> None:
    script, delivered = AFTER_HELLO[kind]

    async def attack(eve: Node, ben: Node) -> None:
        try:
            async with stream(group, "ben", Credentials(group.folder / "ada")) as call:
                await greet(call, eve)
                await until(lambda: ben.transport.alive["ada"])
                await script(call, eve, ben)
        except (grpc.RpcError, asyncio.InvalidStateError):
            pass
        await until(lambda: not ben.transport.alive["ada"])
        assert bool(ben.transport.refused["ada"]) == (kind not in ("flood", "too long"))

    ben = asyncio.run(beside(group, attack))
    assert [r for s, r in ben.got if s == "ada"] == delivered


def test_f2_slow_loris(group: Consortium) -> None:
    """A neighbour that greets half and then says nothing is dropped after `Timing.hello`, as is one that says less."""

    async def attack(eve: Node, ben: Node) -> None:
        async with stream(group, "ben", Credentials(group.folder / "ada")) as call:
            await call.write(hello.make_opening(group.agreement.plan_hash, eve.node))
            await call.read()
            start = asyncio.get_running_loop().time()
            await call.read()  # ben's hello
            assert await call.read() is grpc.aio.EOF
            waited = asyncio.get_running_loop().time() - start
            assert 1.0 < waited < 10.0

    asyncio.run(beside(group, attack))


def test_f2_stale_hello_is_refused(group: Consortium) -> None:
    """A recorded hello, replayed to a new connection, is not signed for the new nonces."""

    async def attack(eve: Node, ben: Node) -> None:
        shown = Credentials(group.folder / "ada")
        async with stream(group, "ben", shown) as call:
            mine = hello.make_opening(group.agreement.plan_hash, eve.node)
            await call.write(mine)
            recorded = hello.make_hello(eve.transport.keys.frame_key, mine, await call.read(), Receipt())
            await call.write(recorded)
            await until(lambda: ben.transport.alive["ada"])
        await until(lambda: not ben.transport.alive["ada"])
        async with stream(group, "ben", shown) as call:
            await call.write(mine)
            await call.read()
            await call.write(recorded)
            await until(lambda: ben.transport.refused["ada"] == 1)
            assert not ben.transport.alive["ada"]

    asyncio.run(beside(group, attack))


def test_f2_a_flood_of_bad_connections_is_slowed(group: Consortium) -> None:
    """Each offence doubles the wait: fifty attempts are a handful of conversations."""

    async def attack(eve: Node, ben: Node) -> None:
        before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
        for _ in range(50):
            try:
                async with stream(group, "ben", Credentials(group.folder / "ada")) as call:
                    await greet(call, eve)
                    await call.write(b"rubbish")
                    await call.read()
            except (grpc.RpcError, asyncio.InvalidStateError, TypeError):
                pass
        waits = 6 + (time.monotonic() - started) / QUICK.retry[1]  # short ones at first, then the longest
        assert 1 <= ben.transport.refused["ada"] <= min(waits, 25)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000

    asyncio.run(beside(group, attack))


def test_f2_twin_without_the_range_check(group: Consortium, monkeypatch: pytest.MonkeyPatch) -> None:
    """A receiver that does not look at the range takes the bits of NaN for a message."""
    monkeypatch.setattr(type(WIRE), "check", lambda *_: None)

    async def attack(eve: Node, ben: Node) -> None:
        async with stream(group, "ben", Credentials(group.folder / "ada")) as call:
            await greet(call, eve)
            await call.write(eve.frame(0, payload=np.full(WIRE.count, np.nan, "<f4").tobytes()))
            await until(lambda: ben.transport.held["ada"].round == 0)

    ben = asyncio.run(beside(group, attack))
    assert ("ada", 0) in ben.got


def test_f2_twin_without_order(group: Consortium, monkeypatch: pytest.MonkeyPatch) -> None:
    """A receiver that believes every signed frame hands the duplicates over."""

    async def careless(self: Courier, peer: Any, data: bytes) -> bool:
        frame = courier_module.open_frame(
            data, self.agreement.frame_keys, self.agreement.plan_hash, self.wire, peer.node
        )
        self._inbox.put(Incoming(peer.name, frame.round, frame, data))
        return True

    monkeypatch.setattr(Courier, "_admit", careless)

    async def attack(eve: Node, ben: Node) -> None:
        async with stream(group, "ben", Credentials(group.folder / "ada")) as call:
            await greet(call, eve)
            for data in [eve.frame(1), eve.frame(0), eve.frame(0)]:
                await call.write(data)
            await asyncio.sleep(0.2)

    ben = asyncio.run(beside(group, attack))
    assert [r for s, r in ben.got if s == "ada"] == [1, 0, 0]


# ---- rumours and floods ----------------------------------------------------------------------------------------------


def trio(folder: Path) -> Consortium:
    return make_consortium(folder, names=("ada", "ben", "cleo"), graph={"kind": "complete"})


@pytest.mark.parametrize("late", [False, True], ids=["in time", "before the frame"])
def test_a_neighbour_that_says_one_thing_here_and_another_there_is_named(folder: Path, late: bool) -> None:
    """ada signs one frame for ben and another for cleo, who are neighbours; each holds both signatures in the end."""
    group, network, kept = trio(folder), MemoryNetwork(), []

    async def scenario() -> None:
        note = lambda *facts: kept.append(facts)  # noqa: E731
        ben, cleo = (Node(group, n, MemoryTransport, network=network, evidence=note) for n in ("ben", "cleo"))
        eve = Node(group, "ada", MemoryTransport, network=network)
        async with running(ben, cleo):
            links = {}
            for node in (ben, cleo):
                links[node.name] = network.connect("ada", node.name)
                await greet(links[node.name], eve)
            await links["ben"].write(eve.frame(0))
            if not late:
                await links["cleo"].write(eve.frame(0, value=7))
            await until(lambda: ben.transport.held["ada"].round == 0)
            await ben.say(0)
            await until(lambda: cleo.transport.held["ben"].round == 0)
            if late:
                await links["cleo"].write(eve.frame(0, value=7))
            await cleo.transport.push(0, cleo.outbox.setdefault(0, cleo.frame(0)))
            await until(lambda: len(kept) == 2)
            assert ben.transport.refused == cleo.transport.refused == {"ada": 1}

    asyncio.run(scenario())
    for name, reason, frame, *signed in kept:
        assert name == "ada"
        assert "signed two frames for round 0" in reason
        assert frame == b""
        assert len({receipt.digest for receipt in signed}) == 2
        keys, plan = group.agreement.frame_keys, group.agreement.plan_hash
        assert all(receipt.proven(keys[0], plan, 0) for receipt in signed)


def test_an_honest_neighbour_is_not_named(folder: Path) -> None:
    """The twin: three honest parties on a triangle tell each other of every round, and nobody is accused."""
    group, network, kept, told = trio(folder), MemoryNetwork(), [], []

    async def scenario() -> None:
        note = lambda *facts: kept.append(facts)  # noqa: E731
        nodes = [Node(group, n, MemoryTransport, network=network, evidence=note) for n in ("ada", "ben", "cleo")]
        for node in nodes:
            real = node.transport._rumours.hear
            node.transport._rumours.hear = lambda *a, real=real: told.append(a) or real(*a)  # type: ignore[method-assign]
        async with running(*nodes):
            for r in range(20):
                await asyncio.gather(*(node.say(r) for node in nodes))
                await asyncio.gather(*(node.hear(2, since=r) for node in nodes))
            await until(lambda: len(told) >= 100)
            assert all(not node.transport.refused for node in nodes)

    asyncio.run(scenario())
    assert kept == []


async def invented(call: Any, eve: Node, victim: Node) -> None:
    await send(call, eve.frame(0), hello.pack_rumours([Rumour(4, Receipt(0, os.urandom(32), os.urandom(64), 0))]))


async def no_rumours(call: Any, eve: Node, victim: Node) -> None:
    await send(call, hello.RUMOURS + bytes(50))


async def receipts(call: Any, eve: Node, victim: Node) -> None:
    await send(call, *[hello.pack_receipt(victim_receipt(victim))] * 200)


def victim_receipt(victim: Node) -> Receipt:
    frame = victim.outbox[0]
    return Receipt(0, digest(frame), frame[-64:], 0)


@pytest.mark.parametrize("script", [invented, no_rumours, receipts])
def test_f2_floods_of_receipts_and_false_rumours(group: Consortium, script: Script) -> None:
    """Rumours of a party that is no common neighbour, and the same proven receipt again and again."""
    looked = []

    async def attack(eve: Node, ben: Node) -> None:
        real = ben.transport._check_receipt
        ben.transport._check_receipt = lambda *a: looked.append(a) or real(*a)  # type: ignore[method-assign]
        try:
            async with stream(group, "ben", Credentials(group.folder / "ada")) as call:
                await greet(call, eve)
                await until(lambda: ben.transport.alive["ada"])
                await script(call, eve, ben)
        except (grpc.RpcError, asyncio.InvalidStateError):
            pass
        await until(lambda: not ben.transport.alive["ada"])
        assert ben.transport.refused["ada"]

    asyncio.run(beside(group, attack))
    assert len(looked) < 20  # each costs a signature and a look into the ledger


def test_f2_a_flood_of_certified_strangers_is_slowed(group: Consortium, caplog: pytest.LogCaptureFixture) -> None:
    """dora is certified but no neighbour of ben: thirty calls are a handful of refusals."""

    async def attack(eve: Node, ben: Node) -> None:
        started = time.monotonic()
        for _ in range(30):
            try:
                async with stream(group, "ben", Credentials(group.folder / "dora")) as call:
                    await greet(call, Node(group, "dora", GrpcTransport))
            except (grpc.RpcError, asyncio.InvalidStateError, TypeError):
                pass
        waits = 6 + (time.monotonic() - started) / QUICK.retry[1]
        assert 1 <= ben.transport.refused["stranger"] <= min(waits, 15)

    asyncio.run(beside(group, attack))
    assert "dora has no call to make here" in caplog.text
