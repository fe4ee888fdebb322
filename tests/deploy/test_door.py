"""The door: no number of idle, half-open or certified connections uses the process up or keeps a neighbour out."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from coterie.deploy import hall, hello
from coterie.deploy.door import EACH, LINGER, PER_NEIGHBOUR, SPARE, WANTED, Door, crowd_limit, listening_sockets
from coterie.deploy.grpc_transport import GrpcTransport
from coterie.errors import InputError
from tests.deploy.consortium import QUICK, Consortium, Node, free_ports, make_consortium, running, until
from tests.deploy.flood import client_hello, flooding
from tests.deploy.test_hostile import Credentials, greet, stream


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Consortium:
    return make_consortium(tmp_path_factory.mktemp("door"))


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def address(group: Consortium, name: str = "ben") -> str:
    found = group.agreement.party(name).address
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("kind", "source"), [("silent", ""), ("drip", ""), ("hello", ""), ("silent", "127.0.0.2"), ("hello", "127.0.0.2")]
)
def test_idle_and_half_open_connections_neither_fill_the_process_nor_keep_a_neighbour_out(
    group: Consortium, kind: str, source: str
) -> None:
    """Before there was a door, 1,500 of them took 1,500 descriptors, and the ledger had none left."""

    async def scenario() -> None:
        ada, ben = Node(group, "ada", GrpcTransport), Node(group, "ben", GrpcTransport)
        async with running(ben):
            before = descriptors()
            with flooding(address(group), 1500, kind, source):
                assert descriptors() - before <= EACH * crowd_limit(1)
                async with running(ada):  # comes when all are there
                    for r in range(3):
                        await asyncio.gather(ada.say(r), ben.say(r))
                        await ben.hear(1, since=r)
                        await ada.hear(1, since=r)

    asyncio.run(scenario())


@pytest.mark.slow
def test_those_who_say_too_little_are_gone_after_a_while(group: Consortium) -> None:
    async def scenario() -> None:
        kinds = {"ben": "silent", "cleo": "drip", "emil": "hello"}
        nodes = [Node(group, name, GrpcTransport) for name in kinds]
        async with running(*nodes):
            with contextlib.ExitStack() as floods:
                for node in nodes:
                    floods.enter_context(flooding(address(group, node.name), 40, kinds[node.name]))
                    await until(lambda crowd=node.transport._door._crowd: len(crowd) >= 40, 1)
                await until(lambda: not any(node.transport._door._crowd for node in nodes), QUICK.hello + 2)

    asyncio.run(scenario())


def test_a_neighbour_has_few_places(group: Consortium) -> None:
    async def scenario() -> None:
        ben, ada = Node(group, "ben", GrpcTransport), Node(group, "ada", GrpcTransport)
        async with running(ben):
            door, calls = ben.transport._door, []
            for _ in range(12):
                calls.append(stream(group, "ben", Credentials(group.folder / "ada")))
                call = await calls[-1].__aenter__()
                await call.write(hello.make_opening(group.agreement.plan_hash, ada.node))  # and then nothing
            await until(lambda: door.turned_away["replaced"] >= 12 - PER_NEIGHBOUR)
            assert len(door._known["ada"]) <= PER_NEIGHBOUR
            for call in calls:
                await call.__aexit__(None, None, None)
        assert ada.got == []

    asyncio.run(scenario())


def test_a_certified_stranger_is_shown_out(group: Consortium) -> None:
    """dora is a party but no neighbour of ben: her connection ends, though she keeps it open."""

    async def scenario() -> None:
        ben = Node(group, "ben", GrpcTransport)
        async with running(ben):
            door = ben.transport._door
            async with stream(group, "ben", Credentials(group.folder / "dora")) as call:
                with pytest.raises(grpc.RpcError):
                    await greet(call, Node(group, "dora", GrpcTransport))
                begun = time.monotonic()
                await until(lambda: not door._crowd, LINGER + 1)
                assert time.monotonic() - begun < LINGER + 1
            assert ben.transport.refused["stranger"] == 1

    asyncio.run(scenario())


# ---- the door alone, with an echo behind it --------------------------------------------------------------------------


class Echo:
    """Stands for gRPC: says back whatever comes."""

    def __init__(self, path: str):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(path)
        self.socket.listen(100)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                one, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self._echo, args=(one,), daemon=True).start()

    @staticmethod
    def _echo(one: socket.socket) -> None:
        with one:
            while data := one.recv(1 << 16):
                one.sendall(data)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[tuple[Door, tuple[str, int]]]:
    echo = Echo(str(tmp_path / "e"))
    place = ("127.0.0.1", free_ports(1)[0])
    door = Door(listening_sockets(f"{place[0]}:{place[1]}"), str(tmp_path / "e"), 2, 30.0)
    assert not (tmp_path / "e").exists()  # nobody else can come this way
    door.start()
    yield door, place
    door.close()
    echo.socket.close()


def test_bytes_pass_unchanged_and_at_any_speed(house: tuple[Door, tuple[str, int]]) -> None:
    """Eight megabytes in both directions, read only after all were written: both buffers have to be full in between."""
    _, place = house
    words = client_hello() + os.urandom(1 << 23)
    with socket.create_connection(place) as one:
        sender = threading.Thread(target=one.sendall, args=(words,))
        sender.start()
        time.sleep(0.3)
        heard = bytearray()
        while len(heard) < len(words):
            heard += one.recv(1 << 20)
        sender.join()
    assert bytes(heard) == words


def test_an_address_takes_only_its_own_share(house: tuple[Door, tuple[str, int]]) -> None:
    door, place = house
    others = [socket.create_connection(place, source_address=("127.0.0.3", 0)) for _ in range(5)]
    crowd = [socket.create_connection(place, source_address=("127.0.0.2", 0)) for _ in range(door._share + 50)]
    _until(lambda: door.turned_away["crowded"] == 50)
    assert door._counts == {"127.0.0.3": 5, "127.0.0.2": door._share}
    for one in others:  # all of them are still served
        one.sendall(client_hello())
        assert one.recv(5) == client_hello()[:5]
    with pytest.raises(ConnectionError):  # of the others the oldest went
        crowd[0].recv(1)
    for one in (*others, *crowd):
        one.close()


def _until(true: object, seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not true():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_room_is_left_for_the_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: asked.append(limits))
    for soft, hard, after in ((256, 256, 256), (1024, 1024, 1024), (1024, 1 << 20, WANTED), (64, -1, WANTED)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, limits=(soft, hard): limits)
        asked.clear()
        room = crowd_limit(4)
        assert asked == ([] if after == soft else [(after, hard)])
        assert EACH * (room + 4 * PER_NEIGHBOUR) + SPARE <= after
        assert room >= 2 * 4 + 2
    monkeypatch.setattr(resource, "getrlimit", lambda _: (150, 150))
    with pytest.raises(InputError, match=r"150 open files are too few for 4 neighbours: .*ulimit -n"):
        crowd_limit(4)


def test_a_door_that_failed_once_goes_on(house: tuple[Door, tuple[str, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    _, place = house
    real, failures = hall.is_whole, iter([True])
    monkeypatch.setattr(hall, "is_whole", lambda early: 1 / 0 if next(failures, False) else real(early))
    for works in (False, True):
        with socket.create_connection(place) as one:
            one.sendall(client_hello())
            assert one.recv(5) == (client_hello()[:5] if works else b"")
