"""One port for several agreements; and addresses of IPv6."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path

import pytest

from coterie.deploy import door as door_module
from coterie.deploy import hall
from coterie.deploy.door import Door, RateLimit, listening_sockets
from coterie.deploy.grpc_transport import GrpcTransport
from coterie.deploy.hall import origin_of, server_name
from coterie.deploy.host import Host, handed_over, has_host
from coterie.deploy.reach import reach
from coterie.deploy.trial import Site, sign_trial
from coterie.errors import InputError
from coterie.names import route_name
from tests.deploy.consortium import Consortium, Node, free_ports, make_consortium, running, until
from tests.deploy.flood import client_hello
from tests.deploy.house import small_plan, small_records
from tests.deploy.test_door import Echo

PAIR = ("ada", "ben")


def first_words(name: str) -> bytes:
    """What a TLS client says first that wants this name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["grpc-exp", "h2"])
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname=name or None).do_handshake()
    return outgoing.read()


@pytest.mark.parametrize("name", ["harbour", route_name(bytes(range(32)), "north.clinic"), ""])
def test_the_name_that_a_caller_asks_for(name: str) -> None:
    words = first_words(name)
    assert server_name(words) == name
    for end in range(1, len(words)):  # whatever is cut off: the name, or nothing
        assert server_name(words[:end]) in ("", name)
    for at in range(len(words)):  # and no byte can make it fail
        server_name(words[:at] + bytes([words[at] ^ 255]) + words[at + 1 :])


# ---- several agreements at one port ----------------------------------------------------------------------------------


@contextmanager
def hosting(address: str, folder: Path) -> Iterator[Host]:
    host = Host(address, folder)
    host.start()
    try:
        yield host
    finally:
        host.close()


def agreements(folder: Path, count: int) -> tuple[str, list[Consortium]]:
    """Ben takes part in all of them, with one set of keys, at one address."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    made = [make_consortium(folder, PAIR, [None, address], run={"rounds": 20 + k}) for k in range(count)]
    return address, made


async def talk(ada: Node, ben: Node, rounds: range) -> None:
    for r in rounds:
        await asyncio.gather(ada.say(r), ben.say(r))
        await asyncio.gather(ada.hear(1, since=r), ben.hear(1, since=r))


def test_a_host_tells_agreements_apart_and_one_that_ends_does_not_end_another(tmp_path: Path) -> None:
    address, (one, two) = agreements(tmp_path / "keys", 2)
    door = tmp_path / "d"

    async def scenario() -> None:
        pairs = [(Node(g, "ada", GrpcTransport), Node(g, "ben", GrpcTransport, behind=door)) for g in (one, two)]
        with hosting(address, door) as host:
            async with running(*pairs[0]):
                async with running(*pairs[1]):
                    await asyncio.gather(*(talk(*pair, range(3)) for pair in pairs))
                await talk(*pairs[0], range(3, 5))
                lonely = Node(two, "ada", GrpcTransport)  # the other agreement: nobody is there any more
                async with running(lonely):
                    await until(lambda: host.turned_away["nobody"] > 0)
                    assert not lonely.transport.alive["ben"]
                    ben = Node(two, "ben", GrpcTransport, behind=door, outbox=pairs[1][1].outbox)
                    async with running(ben):  # and there is again
                        await talk(lonely, ben, range(1))
                await talk(*pairs[0], range(5, 6))

    asyncio.run(scenario())


def test_a_preflight_reaches_a_neighbour_behind_a_host(tmp_path: Path) -> None:
    address, (one,) = agreements(tmp_path / "keys", 1)

    async def scenario() -> None:
        with hosting(address, tmp_path / "d") as host:
            async with running(Node(one, "ben", GrpcTransport, behind=tmp_path / "d")):
                found = await reach(one.keys("ada"), one.agreement, "ben")
                assert [f.level for f in found] == ["ok", "ok"], found
                assert "holds the same agreement and lets us in" in found[-1].text
            (absent,) = await reach(one.keys("ada"), one.agreement, "ben")  # a host without its agent
            assert (absent.level, absent.text.partition(":")[0]) == ("warning", "not up yet")
            assert host.turned_away["nobody"] == 1

    asyncio.run(scenario())


def test_whether_a_host_is_at_work_can_be_seen(tmp_path: Path) -> None:
    (first, second), door = (f"127.0.0.1:{port}" for port in free_ports(2)), tmp_path / "d"
    assert not has_host(door)
    with hosting(first, door):
        assert has_host(door)
        with hosting(second, door):  # one for each address
            assert has_host(door)
        assert has_host(door)
    assert not has_host(door)


def test_a_host_that_stops_ends_no_connection(tmp_path: Path) -> None:
    address, (one,) = agreements(tmp_path / "keys", 1)

    async def scenario() -> None:
        ada, ben = Node(one, "ada", GrpcTransport), Node(one, "ben", GrpcTransport, behind=tmp_path / "d")
        host = Host(address, tmp_path / "d")
        host.start()
        async with running(ada, ben):
            await talk(ada, ben, range(1))
            host.close()
            await talk(ada, ben, range(1, 3))
            assert ben.transport._door is not None
            (visit,) = ben.transport._door._known["ada"]
            assert visit.origin == "127.0.0.1"  # its limits count callers as if it had accepted them

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "words", [client_hello(), first_words("ben"), first_words(route_name(bytes(32), "ben")), b"GET / HTTP/1.1\r\n\r\n",
              first_words("aa.bb.etc.passwd").replace(b"aa.bb.etc.p", b"../../etc/p"), b"\x16\x03\x01\x00\x01\x01"]
)  # fmt: skip
def test_who_wants_nobody_here_is_shown_out(tmp_path: Path, words: bytes) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    place = ("127.0.0.1", int(address.rpartition(":")[2]))
    with hosting(address, tmp_path / "d") as host, socket.create_connection(place) as caller:
        caller.sendall(words)
        with suppress(ConnectionResetError):
            assert caller.recv(1) == b""
        assert host.turned_away["nobody"] == 1


def test_a_folder_whose_sockets_would_have_too_long_a_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="too long a path for sockets, which may have 107 bytes"):
        handed_over(tmp_path / ("x" * 100), "route")


def sent(site: Site) -> int:
    """How many rounds a party has sent."""
    with suppress(OSError):
        lines = (site.state / "log.jsonl").read_text().splitlines()
        return sum(json.loads(line)["event"] == "sent" for line in lines)
    return 0


@pytest.mark.slow
def test_two_agreements_as_processes_one_of_them_killed_half_way(tmp_path: Path) -> None:
    address, door = f"127.0.0.1:{free_ports(1)[0]}", tmp_path / "d"
    plans = [small_plan(rounds, "pr-admm", (address, None, None), "star", tick=0.2, patience=120.0)
             for rounds in (30, 31)]  # fmt: skip
    trials = [sign_trial(plan, small_records(), tmp_path / str(k)) for k, plan in enumerate(plans)]
    command = [sys.executable, "-m", "coterie.cli", "host", str(door), "--listen", address]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as host:
        agents: dict[tuple[int, str], subprocess.Popen] = {}
        try:
            for k, (agreement, sites) in enumerate(trials):
                for site in sites:
                    agents[k, site.name] = start(agreement, site, *(["--behind", str(door)] * (site.name == "ada")))
            while sent(trials[0][1][0]) < 5:
                assert all(one.poll() is None for one in agents.values()), errors(tmp_path)
                time.sleep(0.1)
            agents[0, "ada"].kill()
            agents[0, "ada"].wait()
            codes = [agents[1, name].wait(300) for name in ("ada", "ben", "cleo")]
            assert codes == [0, 0, 0], errors(tmp_path)
            assert agents[0, "ben"].poll() is agents[0, "cleo"].poll() is None  # they wait
            agents[0, "ada"] = start(trials[0][0], trials[0][1][0], "--behind", str(door))
            codes = [agents[0, name].wait(300) for name in ("ada", "ben", "cleo")]
            assert codes == [0, 0, 0], errors(tmp_path)
        finally:
            for one in agents.values():
                one.kill()
                one.wait()
            host.terminate()
        assert host.wait(20) == 0


def start(agreement: Path, site: Site, *more: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "coterie.cli", "agent", str(agreement), "--me", site.name, "--data",
               str(site.data), "--keys", str(site.keys), "--state", str(site.state), *more]  # fmt: skip
    with (site.data.parent / "errors.txt").open("a") as said:
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said)


def errors(folder: Path) -> str:
    return "".join(path.read_text() for path in sorted(folder.glob("*/*/errors.txt")))


# ---- how often an address may begin a handshake ----------------------------------------------------------------------


def test_a_pace_is_kept_by_each_address() -> None:
    pace = RateLimit(rate=2.0, burst=3.0)
    assert [pace.take("a", 0.0) for _ in range(5)] == [True] * 3 + [False] * 2
    assert pace.take("b", 0.0)
    assert [pace.take("a", 0.5) for _ in range(2)] == [True, False]
    assert [pace.take("a", 100.0) for _ in range(4)] == [True] * 3 + [False]
    for k in range(3 * door_module.REMEMBERED):
        pace.take(str(k), 100.0)
    assert len(pace._left) == door_module.REMEMBERED


def test_handshakes_beyond_the_pace_wait_and_other_addresses_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door_module, "PACE", 4.0)
    monkeypatch.setattr(door_module, "AT_ONCE", 2.0)
    echo, place = Echo(str(tmp_path / "e")), ("127.0.0.1", free_ports(1)[0])
    door = Door(listening_sockets(f"127.0.0.1:{place[1]}"), str(tmp_path / "e"), 2, 30.0)
    door.start()
    words = client_hello()
    try:
        hasty = [socket.create_connection(place, source_address=("127.0.0.2", 0)) for _ in range(6)]
        begun = time.monotonic()
        for one in hasty:
            one.sendall(words)
        with socket.create_connection(place, source_address=("127.0.0.3", 0)) as calm:
            calm.sendall(words)
            calm.settimeout(30)
            assert calm.recv(5) == words[:5]
        for one in hasty:  # all are served in the end, four in a second
            one.settimeout(30)
            assert one.recv(5) == words[:5]
            one.close()
        assert time.monotonic() - begun >= 0.9
    finally:
        door.close()
        echo.socket.close()


# ---- IPv6 ------------------------------------------------------------------------------------------------------------


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no ::1")


@ipv6
@pytest.mark.parametrize("hosted", [False, True], ids=["alone", "behind a host"])
def test_parties_meet_at_an_address_of_ipv6(tmp_path: Path, hosted: bool) -> None:
    address = f"[::1]:{free_ports(1)[0]}"
    group = make_consortium(tmp_path / "keys", PAIR, [None, address])
    more = {"behind": tmp_path / "d"} if hosted else {}

    async def scenario() -> None:
        ada, ben = Node(group, "ada", GrpcTransport), Node(group, "ben", GrpcTransport, **more)
        with hosting(address, tmp_path / "d") if hosted else nullcontext():
            async with running(ada, ben):
                await talk(ada, ben, range(2))
                assert ben.transport._door is not None
                (visit,) = ben.transport._door._known["ada"]
                assert visit.origin == "::/64"  # of IPv6, everybody in one network counts together

    asyncio.run(scenario())


def test_of_ipv6_a_network_counts_as_one() -> None:
    assert origin_of(("2001:db8:1:2:3::4", 1, 0, 0)) == origin_of(("2001:db8:1:2::9", 2, 0, 0)) == "2001:db8:1:2::/64"
    assert origin_of(("2001:db8:1:3::4", 1, 0, 0)) == "2001:db8:1:3::/64"
    assert origin_of(("fe80::1%eth0", 1, 0, 2)) == "fe80::/64"
    assert origin_of(("::ffff:10.0.0.1", 1, 0, 0)) == origin_of(("10.0.0.1", 1)) == "10.0.0.1"


@ipv6
def test_a_name_of_both_families_is_listened_at_and_dialled_by_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And where nothing answers by IPv6, IPv4 is tried."""
    port = free_ports(1)[0]
    both = [(socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", port, 0, 0)),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]  # fmt: skip
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: both)
    group = make_consortium(tmp_path / "keys", PAIR, [None, f"both.example:{port}"])

    def meet(family: socket.AddressFamily | None) -> str:
        async def scenario() -> str:
            ada, ben = Node(group, "ada", GrpcTransport), Node(group, "ben", GrpcTransport)
            with monkeypatch.context() as patch:
                if family is not None:
                    listening = [found for found in both if found[0] == family]
                    patch.setattr(hall.socket, "getaddrinfo", lambda *_, **__: listening)
                await ben.transport.start()
            async with running(ada):
                await talk(ada, ben, range(1))
                assert ben.transport._door is not None
                (visit,) = ben.transport._door._known["ada"]
                await ben.transport.close()
                return visit.origin

        return asyncio.run(scenario())

    assert meet(None) == "::/64"
    assert meet(socket.AF_INET6) == "::/64"
    assert meet(socket.AF_INET) == "127.0.0.1"


def test_a_family_that_the_machine_does_not_have_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_ports(1)[0]
    absent = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", port))  # stands for an IPv6 that is switched off
    here = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [absent, here])
    (one,) = listening_sockets(f"both.example:{port}")
    assert one.getsockname() == ("127.0.0.1", port)
    one.close()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [absent])
    with pytest.raises(InputError, match=r"cannot listen at both\.example"):
        listening_sockets(f"both.example:{port}")


def test_rehearsals_listen_where_no_outgoing_connection_comes_from() -> None:
    """A connection that goes out keeps a listener out of its port; a party that was killed must get its port back."""
    ports = free_ports(40)
    assert len(set(ports)) == 40
    assert set(ports).isdisjoint(free_ports(40))
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert max(ports) < max(lowest, 32768)
    with ExitStack() as held:
        for port in ports:
            held.enter_context(socket.create_server(("127.0.0.1", port)))
