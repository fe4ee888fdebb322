"""Delivery over both wires: in order, once, across cuts, restarts and rotations; T1, T2 and T5 of the network."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from coterie.deploy.courier import REPEATS
from coterie.deploy.frames import Receipt, Wire
from coterie.deploy.grpc_transport import GrpcTransport
from coterie.deploy.transport import AHEAD, NeighbourKnowsMore, Timing
from coterie.errors import InputError
from coterie.names import host_and_port
from tests.deploy.consortium import NAMES, QUICK, Consortium, Node, free_ports, make_consortium, running, until
from tests.deploy.memory import MemoryNetwork, MemoryTransport

Maker = Callable[..., Node]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("consortium")


@pytest.fixture
def group(folder: Path) -> Consortium:
    return make_consortium(folder)


@pytest.fixture(params=["memory", "grpc"])
def make(request: pytest.FixtureRequest, group: Consortium) -> Maker:
    """Parties on one wire, for a test that holds on every wire."""
    network = MemoryNetwork()

    def node(name: str, **options: Any) -> Node:
        if request.param == "grpc":
            return Node(group, name, GrpcTransport, **options)
        return Node(group, name, MemoryTransport, network=network, **options)

    return node


# ---- delivery --------------------------------------------------------------------------------------------------------


def test_ring_delivers_each_frame_once_and_in_order(make: Maker) -> None:
    async def scenario() -> None:
        nodes = [make(n) for n in NAMES]
        rounds = 12
        async with running(*nodes):

            async def party(node: Node) -> None:
                expected = node.group.agreement.neighbours(node.name)
                heard: set[tuple[str, int]] = set()
                for r in range(rounds):
                    await node.say(r)
                    while not {(n, r) for n in expected} <= heard:
                        heard |= set(await node.hear(1, since=r))
                for n in expected:
                    node.transport.kept(n, rounds - 1)
                    assert (await node.transport.receipt(n, kept=rounds - 1)).round == rounds - 1
                for n in expected:
                    assert [r for s, r in node.got if s == n] == list(range(rounds))

            await asyncio.gather(*map(party, nodes))
            assert all(all(n.transport.alive.values()) for n in nodes)
            assert not any(n.transport.refused for n in nodes)

    asyncio.run(scenario())


def test_resumes_after_either_end_was_stopped_and_started(make: Maker) -> None:
    """New processes with what their ledgers held; nothing is lost, nothing comes twice."""

    async def scenario() -> None:
        ada, ben = make("ada"), make("ben")
        async with running(ada, ben):
            await ada.say(0, 1)
            await ben.say(0)
            assert await ben.hear(2) == [("ada", 0), ("ada", 1)]
            assert await ada.hear(1) == [("ben", 0)]
            held = {"ada": ben.transport.held["ada"]}
        await ada.say(2)  # while nobody is there
        for who in ("ben", "ada"):  # the listener, then the caller
            new = make(who, outbox=(ben if who == "ben" else ada).outbox, held=held if who == "ben" else None)
            other = make("ada" if who == "ben" else "ben", outbox=(ada if who == "ben" else ben).outbox,
                         held=None if who == "ben" else held)  # fmt: skip
            async with running(new, other):
                a, b = (other, new) if who == "ben" else (new, other)
                assert (await b.transport.receipt("ada")).round in (-1, 0)
                await a.say(max(a.outbox))
                assert await b.hear(1) == [("ada", max(a.outbox))]  # older ones are held: not sent again
                held = {"ada": b.transport.held["ada"]}
                await b.hears_nothing(0.1)
            a.outbox[max(a.outbox) + 1] = a.frame(max(a.outbox) + 1)
            ada, ben = a, b

    asyncio.run(scenario())


def test_reconnects_while_running(make: Maker) -> None:
    async def scenario() -> None:
        ada, ben = make("ada"), make("ben")
        async with running(ada, ben):
            await ada.say(0)
            await ben.hear(1)
            for r in range(1, 6):
                ben.transport.peers["ada"].cut()
                await ada.say(r)
                assert await ben.hear(1, since=r) == [("ada", r)]
            assert ben.got == [("ada", r) for r in range(6)]

    asyncio.run(scenario())


def test_partition_in_memory_heals(group: Consortium) -> None:
    async def scenario() -> None:
        network = MemoryNetwork()
        ada, ben = (Node(group, n, MemoryTransport, network=network) for n in ("ada", "ben"))
        async with running(ada, ben):
            await ada.say(0)
            await ben.hear(1)
            network.cut("ada", "ben")
            await until(lambda: not ben.transport.alive["ada"])
            await ada.say(1, 2, 3)
            await ben.hears_nothing(0.2)
            network.heal("ada", "ben")
            assert await ben.hear(3) == [("ada", 1), ("ada", 2), ("ada", 3)]

    asyncio.run(scenario())


def test_start_order_does_not_matter(make: Maker) -> None:
    async def scenario() -> None:
        ada, ben = make("ada"), make("ben")
        async with running(ada):
            await ada.say(0)  # returns though nobody is there
            assert ada.transport.alive == {"ben": False, "emil": False}
            await asyncio.sleep(0.1)
            async with running(ben):
                assert await ben.hear(1) == [("ada", 0)]

    asyncio.run(scenario())


def test_nothing_is_sent_before_the_first_push(make: Maker) -> None:
    async def scenario() -> None:
        ada, ben = make("ada"), make("ben")
        ada.outbox.update({0: ada.frame(0), 1: ada.frame(1)})  # a ledger from before a restart
        async with running(ada, ben):
            assert (await ada.transport.receipt("ben")).round == -1
            await ben.hears_nothing(0.2)
            await ada.say(1)
            assert await ben.hear(2) == [("ada", 0), ("ada", 1)]

    asyncio.run(scenario())


def test_a_neighbour_far_ahead_is_held_back_and_loses_nothing(make: Maker) -> None:
    async def scenario() -> None:
        ada, ben = make("ada"), make("ben")
        async with running(ada, ben):
            await ada.say(*range(60))
            assert await ben.hear(AHEAD + 1) == [("ada", r) for r in range(AHEAD + 1)]
            await ben.hears_nothing(0.1)
            assert ben.transport.held["ada"].round == AHEAD  # what waits in line is bounded
            assert await ben.hear(1, since=40) == [("ada", 40)]  # older rounds are taken in, but not handed over
            assert ben.transport.held["ada"].round >= 40

    asyncio.run(scenario())


def test_late_frames_are_not_passed_over_and_do_not_pile_up(make: Maker) -> None:
    """A party far ahead of a slow neighbour can still have all its messages, a few at a time."""

    async def scenario() -> None:
        ada, ben = make("ada"), make("ben")
        async with running(ada, ben):
            await ada.say(*range(40))
            heard = []
            async with asyncio.timeout(10):
                while len(heard) < 40:
                    incoming = await ben.transport.pull(0, now=30)
                    heard.append(incoming.round)
                    await asyncio.sleep(0.002)
                    assert len(ben.transport._inbox) <= AHEAD + 1
                    if incoming.round == 30 + AHEAD:
                        break
            assert heard == list(range(30 + AHEAD + 1))

    asyncio.run(scenario())


def test_large_frames_pass(group: Consortium) -> None:
    wire = Wire(1_000_000, 4, 10, lambda sender, round: 1000)

    async def scenario() -> None:
        ada, ben = (Node(group, n, GrpcTransport, wire=wire) for n in ("ada", "ben"))
        async with running(ada, ben):
            await ada.say(0, 1, 2)
            await ben.hear(3)

    asyncio.run(scenario())


# ---- receipts and rollback -------------------------------------------------------------------------------------------


def test_a_restored_ledger_is_noticed_before_anything_is_sent(make: Maker) -> None:
    async def scenario(lost: bool, other: bool) -> None:
        ada, ben = make("ada"), make("ben")
        async with running(ada, ben):
            await ada.say(0, 1, 2)
            await ben.hear(3)
            held = {"ada": ben.transport.held["ada"]}
        backup = {r: f for r, f in ada.outbox.items() if r < 2 or not lost}
        if other:
            backup[2] = ada.frame(2, value=77)  # drawn anew after the restore, or by a clone
        ada, ben = make("ada", outbox=backup), make("ben", held=held)
        async with running(ada, ben):
            if not (lost or other):  # the twin: the same ledger goes on
                assert (await ada.transport.receipt("ben")).round == 2
                await ada.say(3)
                assert await ben.hear(1) == [("ada", 3)]
                return
            with pytest.raises(NeighbourKnowsMore, match=r"ben holds my frame of round 2"):
                await ada.transport.receipt("ben")
            for call in (ada.transport.push(2, backup.get(2, b"")), ada.transport.pull(0)):
                with pytest.raises(NeighbourKnowsMore):
                    await call
            await ben.hears_nothing(0.1)

    for lost, other in ((True, False), (True, True), (False, False)):
        asyncio.run(scenario(lost, other))


def test_an_invented_receipt_stops_nobody(make: Maker) -> None:
    async def scenario() -> None:
        ada, ben = make("ada"), make("ben", held={"ada": Receipt(5, os.urandom(32), os.urandom(64), 5)})
        async with running(ada, ben):
            await until(lambda: ada.transport.refused["ben"] >= 2)
            await ada.say(0)  # ada goes on with the others
            assert not ada.transport.alive["ben"]

    asyncio.run(scenario())


def test_a_second_process_with_the_same_identity_is_noticed(make: Maker) -> None:
    """A clone's frame for the same round is refused as a second version, or its ledger is found behind."""

    async def scenario() -> None:
        ada, ben = make("ada"), make("ben")
        clone = make("ada")
        clone.outbox[0] = clone.frame(0, value=5)
        async with running(ben), running(ada):
            await ada.say(0)
            await ben.hear(1)
            async with running(clone):
                with pytest.raises(NeighbourKnowsMore):
                    await clone.transport.receipt("ben")
            await ben.hears_nothing(0.1)

    asyncio.run(scenario())


# ---- T5, files -------------------------------------------------------------------------------------------------------


def listening() -> set[str]:
    """Listening sockets of this process, from /proc (state 0A)."""
    own = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            own.add(os.readlink(f"/proc/self/fd/{fd}"))
        except OSError:
            continue
    lines = [line for f in ("tcp", "tcp6") for line in Path(f"/proc/self/net/{f}").read_text().splitlines()[1:]]
    return {p[1] for p in map(str.split, lines) if p[3] == "0A" and f"socket:[{p[9]}]" in own}


def test_t5_a_party_without_an_address_opens_no_listening_socket(folder: Path) -> None:
    port = free_ports(1)[0]
    group = make_consortium(folder, names=("ada", "ben"), addresses=[f"127.0.0.1:{port}", None])

    async def scenario() -> None:
        before = listening()
        ben = Node(group, "ben", GrpcTransport)
        async with running(ben):
            await asyncio.sleep(0.1)
            assert listening() == before
            ada = Node(group, "ada", GrpcTransport)
            async with running(ada):
                assert len(listening() - before) == 1  # the twin: the check sees a socket when there is one
                await ben.say(0, 1)
                await ada.say(0)
                assert await ada.hear(2) == [("ben", 0), ("ben", 1)]
                assert await ben.hear(1) == [("ada", 0)]

    asyncio.run(scenario())


def test_a_port_in_use_is_an_error(group: Consortium) -> None:
    async def scenario() -> None:
        async with running(Node(group, "ben", GrpcTransport)):
            with pytest.raises(InputError, match="cannot listen at"):
                await Node(group, "ben", GrpcTransport).transport.start()

    asyncio.run(scenario())


def test_keys_of_another_party_are_refused(group: Consortium) -> None:
    with pytest.raises(ValueError, match="belong to ada, not to ben"):
        GrpcTransport(group.agreement, "ben", group.keys("ada"), wire=None, outbox=None)


# ---- T2 --------------------------------------------------------------------------------------------------------------

SHORT = Timing(hello=2.0, age=0.4, retry=(0.02, 0.1), receipt=0.01)


def test_t2_expired_parties_are_cut_off(tmp_path: Path, monkeypatch: Any) -> None:
    """ada calls ben, ben calls cleo; the certificates of ada and cleo end, and ben must drop both.

    The twin, whose connections last, waits at the same time.
    """
    monkeypatch.setattr("coterie.deploy.grpc_transport.GRACE", 0.2)

    async def scenario(age: float) -> None:
        group = make_consortium(tmp_path / str(age), names=("ada", "ben", "cleo"), graph={"kind": "path"})
        timing = Timing(hello=2.0, age=age, retry=(0.02, 0.1), receipt=0.01)
        now, day = dt.datetime.now(dt.UTC), dt.timedelta(days=1)
        lasting = dt.timedelta(days=1, seconds=3)  # certificates count whole seconds: 2 to 3 s are left
        ends = [group.certify(n, start=now - day, lifetime=lasting).certificate for n in ("ada", "cleo")]
        nodes = [Node(group, n, GrpcTransport, timing=timing) for n in ("ada", "ben", "cleo")]
        ada, ben, cleo = nodes
        async with running(*nodes):
            await asyncio.gather(ada.say(0), cleo.say(0))
            await ben.hear(2)
            left = (ends[1].not_valid_after_utc - dt.datetime.now(dt.UTC)).total_seconds()
            assert left > 0.1
            await asyncio.sleep(left + 1.0 + 0.5)  # the last second counts to its end; then age and grace
            await asyncio.gather(ada.say(1), cleo.say(1))
            if age > 100:  # gRPC alone never looks again (finding 4): they go on after their time
                await ben.hear(2, since=1)
                return
            await ben.hears_nothing(0.3)
            assert ben.transport.alive == {"ada": False, "cleo": False}
            for name in ("ada", "cleo"):  # new certificates for the same keys, and all goes on where it stopped
                group.certify(name)
            assert set(await ben.hear(2, since=1)) == {("ada", 1), ("cleo", 1)}

    async def both() -> None:
        await asyncio.gather(scenario(0.4), scenario(600.0))

    asyncio.run(both())


def serial(node: Node) -> int:
    return node.transport.keys.identity.certificate.serial_number


def rotate(folder: Path, rotations: int, pause: float) -> None:
    group = make_consortium(folder, names=("ada", "ben"))

    async def scenario() -> None:
        wire = Wire(10, 4, 10**6, lambda sender, round: 10**6)
        ada, ben = (Node(group, n, GrpcTransport, timing=SHORT, wire=wire) for n in ("ada", "ben"))
        async with running(ada, ben):
            stop = asyncio.Event()

            async def talk() -> int:
                r = 0
                while not stop.is_set():
                    await asyncio.gather(ada.say(r), ben.say(r))
                    await asyncio.gather(ada.hear(1, since=r), ben.hear(1, since=r))
                    r += 1
                    await asyncio.sleep(0.005)
                return r

            talking = asyncio.create_task(talk())
            for _ in range(rotations):
                new = {group.certify(name).certificate.serial_number for name in ("ada", "ben")}
                await asyncio.sleep(pause)
                await until(lambda new=new: {serial(ada), serial(ben)} == new)  # it really is in use
            stop.set()
            rounds = await talking
        assert rounds > rotations
        assert ben.got == [("ada", r) for r in range(rounds)]  # none lost, none twice, in order
        assert ada.got == [("ben", r) for r in range(rounds)]

    asyncio.run(scenario())


@pytest.mark.slow
def test_t2_rotations_lose_nothing_and_repeat_nothing(folder: Path) -> None:
    rotate(folder, rotations=3, pause=0.7)


@pytest.mark.slow
def test_t2_ten_rotations(folder: Path) -> None:
    rotate(folder, rotations=10, pause=2.0)


def test_t2_a_party_that_calls_and_is_called_shows_its_new_certificate_on_both_sides(folder: Path) -> None:
    """ada calls ben, ben calls cleo: that ben has read the new file for his own call must not hide it from ada's."""
    group = make_consortium(folder, names=("ada", "ben", "cleo"), graph={"kind": "path"})

    async def shown() -> int:
        """The serial number of the certificate with which ben answers."""
        authority, keys = group.authority.pem.decode(), folder / "ada"
        context = ssl.create_default_context(cadata=authority)
        context.load_cert_chain(keys / "certificate.pem", keys / "tls.key")
        host, port = host_and_port(str(group.agreement.party("ben").address))
        _, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname="ben")
        der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.transport.abort()
        return x509.load_der_x509_certificate(der).serial_number

    async def scenario() -> None:
        ada, ben, cleo = (Node(group, n, GrpcTransport) for n in ("ada", "ben", "cleo"))
        async with running(ben, cleo):
            for _ in range(2):
                await until(lambda: ben.transport.alive["cleo"])
                new = group.certify("ben").certificate.serial_number
                ben.transport.peers["cleo"].cut()  # so he calls her again, and reads the file for that
                await until(lambda new=new: serial(ben) == new)
                assert await shown() == new
            async with running(ada):
                await ada.say(0)
                assert await ben.hear(1) == [("ada", 0)]

    asyncio.run(scenario())


def test_t2_twin_a_receiver_without_memory_hands_frames_over_twice(folder: Path, monkeypatch: Any) -> None:
    """Shows that connections in this test do end: without deduplication and resuming, frames come again."""
    group = make_consortium(folder, names=("ada", "ben"))

    async def scenario() -> None:
        ada, ben = (Node(group, n, GrpcTransport, timing=SHORT) for n in ("ada", "ben"))
        greet = ben.transport._greet

        async def forgetful(*arguments: Any) -> Receipt:
            ben.transport.held["ada"] = Receipt()
            ben.transport.peers["ada"].digests.clear()
            return await greet(*arguments)

        monkeypatch.setattr(ben.transport, "_greet", forgetful)
        async with running(ada, ben):
            await ada.say(0, 1)
            assert (await ben.hear(4))[2:] == [("ada", 0), ("ada", 1)]

    asyncio.run(scenario())


def test_a_wrong_new_certificate_is_not_used(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    group = make_consortium(folder, names=("ada", "ben"))

    async def scenario() -> None:
        ada, ben = (Node(group, n, GrpcTransport, timing=SHORT) for n in ("ada", "ben"))
        async with running(ada, ben):
            await ada.say(0)
            await ben.hear(1)
            certificate = group.folder / "ada" / "certificate.pem"
            certificate.write_bytes((group.folder / "ben" / "certificate.pem").read_bytes())
            await asyncio.sleep(0.6)
            await ada.say(1)
            with pytest.raises(TimeoutError):  # the probe reads the file itself, and it does not fit the key
                await ben.hear(1, since=1, seconds=0.5)
            group.certify("ada")
            assert await ben.hear(1, since=1) == [("ada", 1)]

    asyncio.run(scenario())
    assert "the new certificate is not used" in caplog.text


def test_module_constants_leave_room() -> None:
    """A reconnect repeats at most what one connection may have been handed before the other noticed."""
    assert REPEATS > AHEAD
    assert QUICK.retry[0] < QUICK.retry[1]
