"""Packets between any two parties, over both wires: ways around the dead, cuts, floods, and neighbours who lie."""

from __future__ import annotations

import asyncio
import os
import struct
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from coterie.deploy import hello
from coterie.deploy import mail as mail_module
from coterie.deploy import parcels as parcels_module
from coterie.deploy import post as post_module
from coterie.deploy import routes as routes_module
from coterie.deploy.frames import Receipt
from coterie.deploy.grpc_transport import GrpcPost
from coterie.deploy.packets import PACKET, TAKEN
from coterie.deploy.parcels import Line, Recalled, Room
from coterie.deploy.post import PostOffice
from coterie.deploy.routes import NOTICE, View, members
from coterie.deploy.transport import Timing
from coterie.sums.messages import sender_of
from tests.deploy.consortium import WIRE, Consortium, make_consortium, until
from tests.deploy.memory import MemoryLink, MemoryNetwork, MemoryPost, MemoryTransport
from tests.support import mostly_slow

NAMES = tuple(f"p{k:02}" for k in range(20))
SWIFT = Timing(hello=5.0, retry=(0.02, 0.2), receipt=0.01, route=4.0)
GRAPHS: dict[str, dict[str, Any]] = {
    "path": {"kind": "path"},
    "ring": {"kind": "ring"},
    "star": {"kind": "star"},
    "regular": {"kind": "regular", "degree": 4},
    "complete": {"kind": "complete"},
    "grid": {"kind": "grid", "rows": 4},
}
WIRES = [("memory", False), ("grpc", False), ("memory", True)]
GATE = mostly_slow([False, True], False)  # a twin shows that a test can fail: not every day


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("post")


class Town:
    """Parties on one wire; any of them can go and come back."""

    def __init__(self, folder: Path, count: int, graph: str, wire: str = "memory",
                 prepare: Callable[[PostOffice], None] = lambda post: None, **options: Any) -> None:  # fmt: skip
        self.group: Consortium = make_consortium(folder, NAMES[:count], graph=GRAPHS[graph])
        self.count, self.wire, self.prepare, self.network = count, wire, prepare, MemoryNetwork()
        self.options: dict[str, Any] = {"largest": 100_000, "timing": SWIFT} | options
        self.posts: dict[int, PostOffice] = {}

    def others(self, node: int) -> list[int]:
        return [k for k in range(self.count) if k != node]

    def make(self, node: int) -> PostOffice:
        agreement, name = self.group.agreement, NAMES[node]
        if self.wire == "grpc":
            return GrpcPost(agreement, name, self.group.keys(name), **self.options)
        return MemoryPost(agreement, name, self.group.keys(name), network=self.network, **self.options)

    async def begin(self, *nodes: int) -> None:
        for node in nodes or range(self.count):
            self.posts[node] = self.make(node)
            self.prepare(self.posts[node])
            await self.posts[node].start()

    async def end(self, *nodes: int) -> None:
        for node in nodes or tuple(self.posts):
            await self.posts.pop(node).close()

    def cut(self, *edges: tuple[int, int]) -> None:
        for i, j in edges:
            self.network.cut(NAMES[i], NAMES[j])

    def heal(self, *edges: tuple[int, int]) -> None:
        for i, j in edges:
            self.network.heal(NAMES[i], NAMES[j])

    def settled(self) -> bool:
        """Whether everybody knows that everything is up."""
        return all([notice.up for notice in post.view.notices] == post.view.neighbours for post in self.posts.values())


@asynccontextmanager
async def town(*arguments: Any, **options: Any) -> AsyncIterator[Town]:
    made = Town(*arguments, **options)
    try:
        await made.begin()
        await until(made.settled, seconds=30)
        yield made
    finally:
        await made.end()


async def take(post: PostOffice, count: int, seconds: float = 10.0) -> list[bytes]:
    async with asyncio.timeout(seconds):
        return [await post.receive() for _ in range(count)]


async def nothing_comes(post: PostOffice, seconds: float = 0.2) -> None:
    with pytest.raises(TimeoutError):
        await take(post, 1, seconds)


# ---- delivery --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wire", "count", "graph"),
    [*(("memory", 20, graph) for graph in ("path", "ring", "star", "regular")),
     *(("grpc", 5, graph) for graph in ("path", "ring", "star")), ("grpc", 20, "regular")],
)  # fmt: skip
def test_every_pair_reaches_each_other(folder: Path, wire: str, count: int, graph: str) -> None:
    async def scenario() -> None:
        async with town(folder, count, graph, wire) as t:
            for i, post in t.posts.items():
                assert post.reachable == set(t.others(i))
                for j in t.others(i):
                    post.send([j], b"%d to %d" % (i, j))
            for j, post in t.posts.items():
                assert set(await take(post, count - 1)) == {b"%d to %d" % (i, j) for i in t.others(j)}
            for post in t.posts.values():
                assert post._inbox.empty()
                assert not post.refused
                assert not post.lost

    asyncio.run(scenario())


@pytest.mark.parametrize("twin", GATE, ids=["gate", "twin"])
def test_a_packet_to_everybody_crosses_one_edge_for_each_receiver(
    folder: Path, twin: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a grid there are many shortest ways. The twin prefers others for every second receiver: some meet again."""

    def mixed(view: View, up: int) -> dict[int, int]:
        one = original_ways(view, up)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(routes_module, "members", lambda parties: members(parties)[::-1])
            two = original_ways(view, up)
        return {first: one[first] & 0x55555 | two[first] & 0xAAAAA for first in one}

    if twin:
        monkeypatch.setattr(View, "ways", mixed)

    async def scenario() -> int:
        async with town(folder, 20, "grid") as t:
            head, most = 20 + 3, 0
            for i, post in t.posts.items():
                for other in t.posts.values():
                    other.sent.update(own=0, relayed=0)
                post.send(t.others(i), bytes(100))
                for j in t.others(i):
                    assert await take(t.posts[j], 1) == [bytes(100)]
                own, relayed = post.sent["own"], sum(p.sent["relayed"] for p in t.posts.values())
                assert own <= 4 * (head + 100)
                assert post.sent["relayed"] == 0
                most = max(most, own + relayed)
            return most // (head + 100)

    assert (asyncio.run(scenario()) > 19) == twin


@pytest.mark.parametrize("wire", ["memory", "grpc"])
def test_ten_thousand_packets_take_about_a_second(folder: Path, wire: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the processor's time, for all three parties, whatever else the machine does; without the pace of an author."""
    monkeypatch.setattr(mail_module, "PACE", 1e9)

    async def scenario() -> None:
        async with town(folder, 3, "path", wire) as t:
            sent = [b"%d" % k * 40 for k in range(10_000)]
            start = time.process_time()
            for data in sent:
                t.posts[0].send([2], data)
            assert set(await take(t.posts[2], len(sent), 60)) == set(sent)
            assert time.process_time() - start < 5
            await asyncio.wait_for(t.posts[0].flush(), 5)
            assert t.posts[0]._own.used == 0
            assert t.posts[1].sent["relayed"] == sum(len(data) + 21 for data in sent)

    asyncio.run(scenario())


@pytest.mark.parametrize(("wire", "twin"), mostly_slow(WIRES, ("grpc", False)), ids=["memory", "grpc", "twin"])
def test_large_packets_from_everybody_at_once_do_not_jam_a_ring(
    folder: Path, wire: str, twin: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four packets fill a room, and no agent receives before all have sent. In the twin own ones take all the room."""
    count, rounds = (8, 6) if wire == "memory" else (4, 3)
    timing = Timing(hello=5.0, retry=(0.02, 0.2), receipt=0.01, route=1.0) if twin else SWIFT

    def small(post: PostOffice) -> None:
        for room in (peer.room for peer in post.peers.values()):
            room.most = 4 * post._packets.size(post.largest)
        post._reserve = 0 if twin else post._reserve

    async def scenario() -> None:
        async with town(folder, count, "ring", wire, prepare=small, largest=50_000, timing=timing) as t:
            for r in range(rounds):
                for i, post in t.posts.items():
                    post.send(t.others(i), b"%d %d" % (i, r) + bytes(49_000))
            if twin:
                await until(lambda: any(post.lost for post in t.posts.values()), 30)
                return
            for j, post in t.posts.items():
                found = {data[:10].rstrip(b"\0") for data in await take(post, rounds * (count - 1))}
                assert found == {b"%d %d" % (i, r) for i in t.others(j) for r in range(rounds)}
            assert not any(post.lost for post in t.posts.values())

    asyncio.run(scenario())


def test_what_cannot_be_sent_is_an_error(folder: Path) -> None:
    async def scenario() -> None:
        async with town(folder, 3, "path", largest=10) as t:
            post = t.posts[0]
            for to, data, why in (([0], b"", "node 0"), ([3], b"", "node 3"), ([-1], b"", "node -1"),
                                  ([1], bytes(11), "of 11 bytes, the largest agreed on is 10")):  # fmt: skip
                with pytest.raises(ValueError, match=why):
                    post.send(to, data)
            post.send([], b"")
            post.send((1, 1, 2), b"once")
            assert await take(t.posts[1], 1) == await take(t.posts[2], 1) == [b"once"]
            await nothing_comes(t.posts[1])

    asyncio.run(scenario())


def test_a_conversation_of_rounds_is_not_taken_for_one_of_packets(folder: Path) -> None:
    async def scenario() -> None:
        t = Town(folder, 2, "path")
        await t.begin(1)
        rounds = MemoryTransport(t.group.agreement, NAMES[0], t.group.keys(NAMES[0]), wire=WIRE, outbox={}.get,
                                 timing=SWIFT, network=t.network)  # fmt: skip
        await rounds.start()
        await until(lambda: t.posts[1].refused[NAMES[0]] or rounds.refused[NAMES[1]])
        reasons = {reason for _, reason in (t.posts[1].refusals.counts | rounds.refusals.counts)}
        assert reasons == {"its hello is not signed by its frame key for this connection"}
        assert not any(t.posts[1].alive.values())
        assert not any(rounds.alive.values())
        await rounds.close()
        await t.end()

    asyncio.run(scenario())


# ---- ways around -----------------------------------------------------------------------------------------------------


def believing(self: View, up: int) -> dict[int, int]:
    """The twin of ways: the plan's graph, whatever is said; only the own edges are as they are."""
    notices, self.notices = self.notices, [routes_module.Notice(0, near) for near in self.neighbours]
    try:
        return original_ways(self, up)
    finally:
        self.notices = notices


original_ways = View.ways


@pytest.mark.parametrize(("wire", "twin"), mostly_slow(WIRES, ("grpc", False)), ids=["memory", "grpc", "twin"])
def test_a_dead_relay_is_passed_by_within_a_second(
    folder: Path, wire: str, twin: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a ring of six, two steps away from the sender: only notices can tell."""
    if twin:
        monkeypatch.setattr(View, "ways", believing)

    async def scenario() -> None:
        async with town(folder, 6, "ring", wire) as t:
            relay = next(k for k in (2, 4) if any(to >> 3 & 1 and p.node in (k - 1, k + 1 - 6 * (k == 5))
                                                  for p, to in t.posts[0]._ways))  # fmt: skip
            t.posts[0].send([3], b"before")
            assert await take(t.posts[3], 1) == [b"before"]
            await t.end(relay)
            start, got = time.monotonic(), b""
            for k in range(100 if twin else 300):
                t.posts[0].send([3], b"%d" % k)
                await asyncio.sleep(0.01)
                if t.posts[3]._inbox.qsize():
                    got = await t.posts[3].receive()
                    break
            if twin:
                assert not got
                return
            assert got
            assert time.monotonic() - start < 3  # with room for a busy machine
            if wire == "memory":
                assert got == b"0"  # not even the first was lost: who noticed sent it back
            await until(lambda: relay not in t.posts[0].reachable)

    asyncio.run(scenario())


def test_five_of_twenty_die_at_once_and_the_rest_go_on(folder: Path) -> None:
    async def scenario() -> None:
        async with town(folder, 20, "regular") as t:
            dead = {3, 7, 11, 15, 19}
            await asyncio.gather(*(t.end(k) for k in dead))
            alive = set(t.posts)
            await until(lambda: all(p.reachable == alive - {k} for k, p in t.posts.items()), 5)
            for k, post in t.posts.items():
                post.send(alive - {k}, b"%d" % k)
            for k, post in t.posts.items():
                assert set(await take(post, 14)) == {b"%d" % j for j in alive - {k}}
            await t.begin(*dead)
            await until(t.settled)

    asyncio.run(scenario())


def test_a_split_network_heals_and_what_waited_arrives(folder: Path) -> None:
    async def scenario() -> None:
        async with town(folder, 6, "ring") as t:
            t.cut((0, 5), (2, 3))
            await until(lambda: t.posts[0].reachable == {1, 2} and t.posts[4].reachable == {3, 5})
            for k in range(20):
                t.posts[0].send([1, 4], b"%d" % k)
            assert len(await take(t.posts[1], 20)) == 20
            await nothing_comes(t.posts[4])
            t.heal((0, 5))
            assert await take(t.posts[4], 20) == [b"%d" % k for k in range(20)]
            t.heal((2, 3))
            await until(t.settled)

    asyncio.run(scenario())


def test_what_finds_no_way_is_given_up_in_time(folder: Path) -> None:
    async def scenario() -> None:
        timing = Timing(hello=5.0, retry=(0.02, 0.2), receipt=0.01, route=0.4)
        async with town(folder, 3, "path", timing=timing) as t:
            t.cut((1, 2))
            await until(lambda: t.posts[0].reachable == {1})
            t.posts[0].send([1, 2], bytes(1000))
            assert len(await take(t.posts[1], 1)) == 1
            await until(lambda: not t.posts[0]._own.held, 2)
            assert t.posts[0].lost == {"no way in time": 1}
            assert t.posts[0]._own.used == 0
            assert not t.posts[0]._stuck
            t.heal((1, 2))
            await until(t.settled)
            await nothing_comes(t.posts[2])

    asyncio.run(scenario())


@pytest.mark.parametrize("twin", GATE, ids=["gate", "twin"])
def test_a_party_that_comes_back_with_an_older_clock_is_found(
    folder: Path, twin: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = {"behind": 0}
    monkeypatch.setattr(routes_module.time, "time_ns", lambda: 1_800_000_000 * 10**9 - clock["behind"])
    if twin:  # it does not listen to what was said in its name
        hear = View.hear
        monkeypatch.setattr(View, "hear", lambda v, data: v.author(data) != v._node and hear(v, data))

    async def scenario() -> None:
        async with town(folder, 4, "ring") as t:
            t.cut((1, 2))  # so that what it has said is not what it will have to say
            await until(lambda: t.posts[0].view.notices[2].up == 0b1000)
            await t.end(2)
            await until(lambda: t.posts[0].reachable == {1, 3})
            t.heal((1, 2))
            clock["behind"] = 86_400 * 10**9
            await t.begin(2)
            try:
                await until(t.settled, 0.7 if twin else 5)
            except TimeoutError:
                assert twin
                return
            assert not twin
            t.posts[0].send([2], b"welcome back")
            assert await take(t.posts[2], 1) == [b"welcome back"]

    asyncio.run(scenario())


# ---- cuts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("wire", "twin"), mostly_slow(WIRES, ("grpc", False)), ids=["memory", "grpc", "twin"])
def test_a_connection_that_breaks_loses_nothing(
    folder: Path, wire: str, twin: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin forgets what went into a broken connection. In memory, packets are some time on their way."""
    read = MemoryLink.read

    async def slow(link: MemoryLink) -> bytes | None:
        await asyncio.sleep(0.001)
        return await read(link)

    monkeypatch.setattr(MemoryLink, "read", slow)
    monkeypatch.setattr(post_module, "BATCH", 1)
    if twin:
        monkeypatch.setattr(Line, "flying", property(lambda line: deque(), lambda line, value: None), raising=False)

    count = 90 if twin else 300

    async def scenario() -> set[bytes]:
        async with town(folder, 3, "path", wire) as t:
            for k in range(count):
                t.posts[0].send([2], b"%d" % k)
                if k % 30 == 10:
                    t.posts[0].peers[NAMES[1]].cut()
                if k % 30 == 20:
                    t.posts[1].peers[NAMES[2]].cut()
                if k % 7 == 0:
                    await asyncio.sleep(0)
                if k % 30 == 0:
                    await asyncio.sleep(0.05)
            found: list[bytes] = []
            try:
                while len(found) < count:
                    found += await take(t.posts[2], 1, 0.4 if twin else 5)
            except TimeoutError:
                assert twin
            assert len(set(found)) == len(found)  # what came twice was handed over once
            return set(found)

    assert (asyncio.run(scenario()) == {b"%d" % k for k in range(count)}) != twin


@pytest.mark.parametrize("forgetful", [True, False])
def test_what_goes_in_circles_ends(folder: Path, forgetful: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody believes that the way to node 4 is the next node, and it is not there: 0, 1, 2, 3, 0, …

    Hops end it; before them, with more parties than here, that everybody remembers what came from whom.
    """
    if forgetful:
        monkeypatch.setattr(Recalled, "recall", lambda *_: 0)

    async def scenario() -> None:
        async with town(folder, 5, "complete") as t:
            await t.end(4)
            monkeypatch.setattr(View, "ways", lambda view, up: {(view._node + 1) % 4: 0b10000})
            for post in t.posts.values():
                post._look()
            t.posts[0].send([4], b"round and round")
            await until(lambda: sum(p.sent["own"] + p.sent["relayed"] for p in t.posts.values()) == 5 * (20 + 1 + 15))
            await asyncio.sleep(0.1)
            assert sum(p.sent["own"] + p.sent["relayed"] for p in t.posts.values()) == 5 * (20 + 1 + 15)
            assert t.posts[1].lost == ({"too many hops": 1} if forgetful else {})
            assert not any(p._own.used or any(peer.room.used for peer in p.peers.values()) for p in t.posts.values())

    asyncio.run(scenario())


def test_a_repeated_packet_does_not_multiply(folder: Path) -> None:
    async def scenario() -> None:
        async with scripted(folder, "ring") as (t, eve):
            data = eve.packet([2, 3], b"again")
            for _ in range(10):
                await eve.link.write(data)
            await eve.link.write(eve.packet([1], b"last"))
            assert await take(t.posts[1], 1) == [b"last"]
            assert await take(t.posts[2], 1) == await take(t.posts[3], 1) == [b"again"]
            assert t.posts[1].sent["relayed"] == len(data)
            await nothing_comes(t.posts[3])

    asyncio.run(scenario())


# ---- a neighbour that does as the test says --------------------------------------------------------------------------


class Eve:
    """Node 0, with its keys, and a link to node 1."""

    def __init__(self, t: Town) -> None:
        self.town, self.key = t, t.group.keys(NAMES[0]).frame_key
        self.link: MemoryLink
        self.heard: list[bytes] = []

    async def connect(self) -> None:
        agreement = self.town.group.agreement
        self.link = self.town.network.connect(NAMES[0], NAMES[1])
        mine = hello.make_opening(agreement.plan_hash, 0)
        await self.link.write(mine)
        theirs = await self.link.read()
        assert theirs is not None
        await self.link.write(hello.make_hello(self.key, mine, theirs, Receipt(), domain=hello.PACKETS))
        await self.link.read()
        await self.listen(lambda data: data.startswith(TAKEN))

    async def listen(self, wanted: Callable[[bytes], bool]) -> bytes | None:
        """The next message that is wanted; None if the link ends."""
        async with asyncio.timeout(5):
            while (data := await self.link.read()) is not None:
                self.heard.append(data)
                if wanted(data):
                    break
            return data

    def packet(self, to: list[int], payload: bytes, *, magic: bytes = PACKET, zero: int = 0, hops: int = 5,
               length: int | None = None, identity: bytes = b"identity") -> bytes:  # fmt: skip
        size = len(payload) if length is None else length
        bits = sum(1 << k for k in to).to_bytes(1, "little")
        return struct.pack("<5sBHI8s", magic, zero, hops, size, identity) + bits + payload

    def notice(self, author: int = 0, number: int | None = None, up: int = 0b10, plan: bytes | None = None) -> bytes:
        body = struct.pack("<8s32sIQ", NOTICE, plan or self.town.group.agreement.plan_hash, author,
                           time.time_ns() if number is None else number) + up.to_bytes(1, "little")  # fmt: skip
        return body + self.key.sign(b"coterie post notice\0" + body)


@asynccontextmanager
async def scripted(folder: Path, graph: str, **options: Any) -> AsyncIterator[tuple[Town, Eve]]:
    """Four honest parties of five, and eve."""
    t = Town(folder, 5, graph, **options)
    eve = Eve(t)
    try:
        await t.begin(1, 2, 3, 4)
        await until(lambda: 2 in t.posts[1].reachable)
        await eve.connect()
        yield t, eve
        eve.link.close()
    finally:
        await t.end()


BAD: dict[str, Callable[[Eve], list[bytes]]] = {
    "rubbish": lambda eve: [b"rubbish"],
    "empty": lambda eve: [b""],
    "cut head": lambda eve: [eve.packet([1], b"")[:-1]],
    "other protocol": lambda eve: [eve.packet([1], b"", magic=b"CTRP\xff")],
    "not zero": lambda eve: [eve.packet([1], b"", zero=1)],
    "for nobody": lambda eve: [eve.packet([], b"hello")],
    "for an unknown party": lambda eve: [eve.packet([1, 5], b"hello")],
    "for its sender": lambda eve: [eve.packet([0], b"hello")],
    "no hops": lambda eve: [eve.packet([1], b"hello", hops=0)],
    "too many hops": lambda eve: [eve.packet([1], b"hello", hops=6)],
    "too short": lambda eve: [eve.packet([1], b"hello", length=6)],
    "too long": lambda eve: [eve.packet([1], b"hello", length=4)],
    "too large": lambda eve: [eve.packet([1], bytes(100_001))],
    "second is bad": lambda eve: [eve.packet([2], b"fine") + eve.packet([1], b"", hops=9)],
    "beyond its allowance": lambda eve: [
        b"".join(eve.packet([1], bytes(100_000), identity=os.urandom(8)) for _ in range(700))
    ],
    "took what was not sent": lambda eve: [struct.pack("<8sQQ", TAKEN, 1, 0)],
    "took again": lambda eve: [struct.pack("<8sQQ", TAKEN, 0, 1000)] * 2,
    "took back": lambda eve: [struct.pack("<8sQQ", TAKEN, 0, 1000), struct.pack("<8sQQ", TAKEN, 0, 999)],
    "taken, cut": lambda eve: [struct.pack("<8sQQ", TAKEN, 0, 1000)[:-1]],
    "notice, cut": lambda eve: [eve.notice()[:-1]],
    "notice of another plan": lambda eve: [eve.notice(plan=bytes(32))],
    "notice of nobody": lambda eve: [eve.notice(author=5)],
    "notice of another, forged": lambda eve: [eve.notice(author=3, up=0b10100)],
    "notice, altered": lambda eve: [eve.notice(up=0b10010)[:-65] + b"\x02" + eve.notice()[-64:]],
    "notice of no edge": lambda eve: [eve.notice(up=0b100)],
    "notice of an unknown party": lambda eve: [eve.notice(up=0b100010)],
    "notice of the far future": lambda eve: [eve.notice(number=2**63)],
    "notices without end": lambda eve: [eve.notice(number=k) for k in range(1000)],
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_neighbour_is_blamed_and_cut_off(folder: Path, kind: str) -> None:
    async def scenario() -> None:
        async with scripted(folder, "ring") as (t, eve):
            before = t.posts[1].view.notices[2:]
            for data in BAD[kind](eve):
                try:
                    await eve.link.write(data)
                except EOFError:
                    break
            await until(lambda: t.posts[1].refused[NAMES[0]] == 1)
            await until(lambda: not t.posts[1].alive[NAMES[0]])
            assert NAMES[0] in t.posts[1].trouble
            assert t.posts[1].view.notices[2:] == before
            good = {"beyond its allowance": 667, "too long": 1}.get(kind, 0)
            assert t.posts[1]._inbox.qsize() <= good
            t.posts[2].send([1], b"undisturbed")
            found = await take(t.posts[1], t.posts[1]._inbox.qsize() + 1)
            assert found[-1] == b"undisturbed"
            assert not any(p.refused for p in t.posts.values() if p is not t.posts[1])

    asyncio.run(scenario())


def test_the_same_script_with_nothing_wrong_is_not_blamed(folder: Path) -> None:
    """The twin of all bad ones. What a payload says is nobody's business on the way: altered, it arrives altered."""

    async def scenario() -> None:
        async with scripted(folder, "ring") as (t, eve):
            await eve.link.write(eve.notice())
            await eve.link.write(struct.pack("<8sQQ", TAKEN, 0, 10_000))
            await until(lambda: 0 in t.posts[3].reachable)
            rubbish = os.urandom(100_000)
            await eve.link.write(eve.packet([1, 3], rubbish) + eve.packet([1], b""))
            assert await take(t.posts[1], 2) == [rubbish, b""]
            assert await take(t.posts[3], 1) == [rubbish]
            t.posts[3].send([0], b"answer")
            data = await eve.listen(lambda data: data.startswith(PACKET))
            assert data is not None
            assert data.endswith(b"answer")
            assert not any(p.refused for p in t.posts.values())

    asyncio.run(scenario())


def test_an_old_notice_said_again_changes_nothing(folder: Path) -> None:
    async def scenario() -> None:
        async with scripted(folder, "ring") as (t, eve):
            old, new = eve.notice(number=5, up=0b10), eve.notice(number=6, up=0)
            await eve.link.write(old)
            await eve.link.write(new)
            await until(lambda: t.posts[3].view.notices[0].data == new)
            await eve.link.write(old)
            await eve.link.write(eve.packet([1], b"after it"))
            await take(t.posts[1], 1)
            assert t.posts[1].view.notices[0].data == new
            assert not t.posts[1].refused

    asyncio.run(scenario())


@pytest.mark.slow
def test_a_neighbour_that_takes_nothing_is_passed_by(folder: Path) -> None:
    """eve says that she is the way, gives an allowance, and never takes a packet."""

    async def scenario() -> None:
        timing = Timing(hello=5.0, retry=(0.02, 0.2), receipt=0.01, route=1.0)
        async with scripted(folder, "ring", timing=timing) as (t, eve):
            await eve.link.write(struct.pack("<8sQQ", TAKEN, 0, 1_000_000))
            await until(lambda: t.posts[1].view.notices[1].up & 1)
            start = time.monotonic()
            t.posts[1].send([0], b"for eve")
            await until(lambda: t.posts[1].refused[NAMES[0]])
            assert 0.5 < time.monotonic() - start < 6
            await until(lambda: "takes no packets" in t.posts[1].trouble.get(NAMES[0], ""))
            await until(lambda: not t.posts[1].view.notices[1].up & 1)

    asyncio.run(scenario())


@pytest.mark.parametrize("twin", GATE, ids=["gate", "twin"])
def test_a_flood_fills_its_own_room_only(folder: Path, twin: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What eve pours in has no way and waits, all that she may; the twin has one room for all."""
    monkeypatch.setattr(post_module, "ROOM", 2_000_000)  # two neighbours share it

    def one_room(post: PostOffice) -> None:
        common = Room(1_000_000, 1_000_000)
        for peer in post.peers.values():
            peer.room = common if twin else peer.room

    async def scenario() -> None:
        async with scripted(folder, "ring", prepare=one_room) as (t, eve):
            victim, size, sent, allowed = t.posts[1], 100_000 + 20 + 1 + 512, 0, 0
            await t.end(4)
            await until(lambda: 4 not in victim.reachable)
            await eve.link.write(eve.notice())
            while sent < 9:
                told = [struct.unpack("<8sQQ", d)[2] for d in eve.heard if d.startswith(TAKEN)]
                allowed = max(told)
                while (sent + 1) * size <= allowed:
                    await eve.link.write(eve.packet([4], bytes(100_000), identity=os.urandom(8)))
                    sent += 1
                if sent < 9:
                    await eve.listen(lambda data: data.startswith(TAKEN))
            await until(lambda: len(victim.peers[NAMES[0]].room.held) == sent)
            await asyncio.sleep(0.1)
            assert allowed <= 1_000_000  # and there it ends
            try:
                for _ in range(9):  # a copy of each is for eve, who takes nothing
                    t.posts[2].send([1, 0], bytes(100_000))
                    await take(victim, 1, 0.5 if twin else 5)
            except TimeoutError:
                assert twin
                return
            assert not twin
            assert sum(p.room.used + p.room.mail for p in victim.peers.values()) <= 2 * 2_100_000

    asyncio.run(scenario())


def signed_by(author: int, number: int) -> bytes:
    """A payload as long as a frame that names an author."""
    return struct.pack("<34sHI", b"", author, number) + bytes(72)


async def pour(eve: Eve, to: int, count: int, start: int = 0) -> None:
    """So many small packets in eve's name, as fast as she may."""
    for k in range(start, start + count, 400):
        each = [eve.packet([to], signed_by(0, n), identity=struct.pack("<Q", n)) for n in range(k, k + 400)]
        while (k + 400) * (20 + 1 + 112 + 512) > max(
            struct.unpack("<8sQQ", said)[2] for said in eve.heard if said.startswith(TAKEN)
        ):
            await eve.listen(lambda data: data.startswith(TAKEN))
        await eve.link.write(b"".join(each))


@pytest.mark.parametrize("twin", GATE, ids=["gate", "twin"])
@pytest.mark.parametrize(("graph", "victim", "others"), [("ring", 1, {2, 3}), ("path", 2, {1, 3})])
def test_nobody_waits_behind_a_flood(
    folder: Path, graph: str, victim: int, others: set[int], twin: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of eve's packets lie there, brought by herself or by an honest neighbour (`path`), when others say one
    word each; the twin has one queue for all."""
    if twin:
        monkeypatch.setattr(mail_module.Mail, "_queue", lambda *_: ("all", 0))

    async def scenario() -> None:
        async with scripted(folder, graph) as (t, eve):
            post = t.posts[victim]
            await pour(eve, victim, 20_000)
            await until(lambda: post._inbox.qsize() > 5000)
            for node in others:
                t.posts[node].send([victim], signed_by(node, 0))
            await asyncio.sleep(0.5)
            first = [sender_of(payload) for payload in await take(post, 8)]
            assert (set(first) >= others) != twin

    asyncio.run(scenario())


@pytest.mark.parametrize("twin", GATE, ids=["gate", "twin"])
def test_a_flood_takes_a_bounded_part_of_memory_and_of_time(
    folder: Path, twin: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one who never stops, the agent hears 500 frames in a second and its post reads 5,000. The twin has no pace."""
    if twin:
        monkeypatch.setattr(mail_module, "PACE", 1e9)
        monkeypatch.setattr(parcels_module, "PACKETS", 1e9)

    async def scenario() -> None:
        async with scripted(folder, "ring") as (t, eve):
            post, line, heard = t.posts[1], t.posts[1].peers[NAMES[0]].line, 0

            async def hear() -> None:
                nonlocal heard
                while True:
                    await post.receive()
                    heard += 1

            tasks = [asyncio.create_task(work) for work in (hear(), pour(eve, 1, 400_000))]
            await until(lambda: line.got >= 22_000 and (twin or line.reads > time.monotonic()), 30)  # bursts are over
            start, before = time.monotonic(), (heard, line.got)
            await asyncio.sleep(1.0)
            seconds = time.monotonic() - start
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert (heard - before[0] < 600 * seconds) != twin
            assert (line.got - before[1] < 6000 * seconds) != twin
            assert post.peers[NAMES[0]].room.mail <= post._inbox._most <= post_module.ROOM // 10
            assert not post.refused

    asyncio.run(scenario())


def test_own_packets_are_bounded_and_the_oldest_go_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(post_module, "ROOM", 100_000)  # as eight of the largest are less

    async def scenario() -> None:
        t = Town(folder, 3, "path", largest=1000)
        await t.begin(0)
        for k in range(1000):
            t.posts[0].send([2], b"%d" % k)
        assert t.posts[0]._own.used <= 100_000
        kept = len(t.posts[0]._own.held)
        assert t.posts[0].lost == {"no room": 1000 - kept}
        monkeypatch.undo()  # the others have room enough
        await t.begin(1, 2)
        assert await take(t.posts[2], kept) == [b"%d" % k for k in range(1000 - kept, 1000)]
        await t.end()

    asyncio.run(scenario())


def test_sets_of_parties() -> None:
    assert members(0) == []
    assert members(1 << 99 | 1) == [0, 99]
