"""Packets from any party to any others, handed on by those between them, over the connections of the graph.

**A packet** is a set of receivers and a payload that nobody on the way looks into: it carries its author's signature,
which the receiver checks. A relay takes out what is for itself and hands the rest on, one copy for each neighbour on
the way (`routes`); so a packet to everybody crosses each edge of a tree once. Its bytes: `packets`.

**Delivery** is best effort, since any relay may die with what it holds; whoever needs an answer asks again. But what
went into a connection that breaks before the other end has said *taken* goes again by the present way, and what has no
way waits for one, for `Timing.route`. So only what a dying party had taken is lost. What comes twice by this is handed
over once while it is remembered, and hardly multiplies: a relay hands on what one neighbour brings once. `hops` ends
what would go round in circles while views differ.

**Limits.** What waits here for the sake of one neighbour, or of this party, has a room. A neighbour is told how much it
may send (*allowance*, in bytes, `OVERHEAD` for each packet), never more than is left of its room, so one that floods
fills its own room only; and from what waits for a neighbour, each room has its turn. What is for this party waits by
its author and has its turn (`mail`). An agent that is busy does not hold up what only passes here, unless very much
waits for it. A connection is always read, so that news of ways gets through, but only so many packets in a second. Own
packets leave room for one that passes, or a ring full of them would jam. Cut off for a while are a neighbour that takes
nothing for half of `Timing.route` and the time that the largest packet needs over a slow line, and one that brings what
is no packet, more than its allowance, or notices that nobody honest hands on.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter, deque
from collections.abc import Collection, Coroutine
from functools import partial

from coterie.deploy import hello
from coterie.deploy.agreement import Agreement
from coterie.deploy.calls import Calls
from coterie.deploy.door import RateLimit
from coterie.deploy.frames import BadFrame, Receipt
from coterie.deploy.keys import PartyKeys
from coterie.deploy.mail import Mail
from coterie.deploy.packets import OVERHEAD, PACKET, TAKEN, Packets, pack_taken, read_taken
from coterie.deploy.parcels import Copy, Line, Parcel, Recalled, Relay, Room
from coterie.deploy.routes import NOTICE, View
from coterie.deploy.transport import Link, Timing
from coterie.sums.messages import sender_of

__all__ = ["PostOffice"]

ROOM = 1 << 26  # bytes that may wait: the neighbours' to be handed on, theirs to be received here, this party's own
BATCH = 1 << 16  # bytes of small packets that travel as one message
OFTEN = 64  # packets after which the sender is told at once that they are taken
SLOW = 1 << 17  # bytes in a second below which a connection is not waited for
PAUSE = 0.05  # seconds between two notices of one author to one neighbour …
AT_ONCE, BURST = 16.0, 256.0  # … of which as many are told without a pause, and may come at once after a hold-up
AGAIN = 30.0  # seconds after which a party says again what it is connected to


class PostOffice(Calls[Relay]):
    """Packets without the wire.

    Args:
        agreement: the graph, and who is who.
        me: this party's name.
        keys: its folder, opened.
        largest: bytes of the largest payload that anybody may send.
        timing: see `Timing`.
    """

    domain = hello.PACKETS

    def __init__(
        self, agreement: Agreement, me: str, keys: PartyKeys, *, largest: int, timing: Timing | None = None
    ) -> None:
        super().__init__(agreement, me, keys, Relay, timing)
        self.largest = largest
        self.view = View(agreement, self.node, keys.frame_key)
        self.sent = {"own": 0, "relayed": 0, "upkeep": 0}  # bytes on connections
        self.lost: Counter[str] = Counter()  # packets that were given up here, and why
        self._packets = Packets(len(self.view.notices), largest)
        self._by_node = {peer.node: peer for peer in self.peers.values()}
        self._emptied = asyncio.Event()
        least = 4 * self._packets.size(largest)
        self._own = Room(max(ROOM, 2 * least), freed=self._emptied.set)
        for peer in self.peers.values():
            share = max(ROOM // len(self.peers), least)
            peer.room = Room(share, share, partial(self._owe, peer))
        self._reserve = self._packets.size(largest)  # of an allowance, for what passes
        self._slowest = self.timing.route + least / SLOW
        own = max(ROOM // len(self.peers) // len(self.view.notices), least)
        self._inbox = Mail(sender_of, self._packets.size, own, len(self.view.notices))
        self._delivered = Recalled()
        self._stuck: deque[tuple[float, Copy]] = deque()  # without a way, and until when they wait for one
        self._found: list[tuple[Relay, int]] | None = []
        self._calm, self._pace = RateLimit(1 / PAUSE, AT_ONCE), RateLimit(2 / PAUSE, BURST)
        self._keeping: asyncio.Task | None = None

    # ---- the agent's side ----

    @property
    def reachable(self) -> frozenset[int]:
        """Nodes of the other parties to which there is a way just now."""
        return frozenset(node for node in range(len(self.view.notices)) if any(to >> node & 1 for _, to in self._ways))

    async def start(self) -> None:
        """Begin to dial."""
        self._keeping = asyncio.create_task(self._keep())
        await super().start()

    async def close(self) -> None:
        """End all connections, and give up what has not left."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        await super().close()

    def send(self, to: Collection[int], data: bytes) -> None:
        """Queue one packet for these other parties; the oldest own ones are given up for it where there is no room."""
        if wrong := [node for node in to if node == self.node or not 0 <= node < len(self.view.notices)]:
            raise ValueError(f"node {wrong[0]} is this party, or none of {len(self.view.notices)}")
        if len(data) > self.largest:
            raise ValueError(f"a payload of {len(data)} bytes, the largest agreed on is {self.largest}")
        if to:
            bits = sum({1 << node for node in to})
            self._enter(os.urandom(8), bytes(data), self._own, bits, len(self.view.notices))
            while self._own.left < 0:
                self._leave(next(iter(self._own.held)), "no room")

    async def receive(self) -> bytes:
        """The payload of the next packet for this party. Whoever handed it on may have altered it."""
        payload, peer = await self._inbox.get()
        self._owe(peer)
        return payload

    async def flush(self) -> None:
        """Wait until every own packet was taken by a neighbour, or given up."""
        while self._own.held:
            self._emptied.clear()
            await self._emptied.wait()

    # ---- ways ----

    @property
    def _up(self) -> int:
        return sum(1 << peer.node for peer in self.peers.values() if peer.tasks and peer.ready)

    def _changed(self) -> None:
        """This party's connections have changed, or may have: say so, and look for ways again."""
        if self._up != self.view.notices[self.node].up:
            self._declare()
        self._look()

    def _declare(self) -> None:
        self.view.declare(self._up)
        self._spread(self.node)

    def _spread(self, author: int, teller: Relay | None = None) -> None:
        for peer in self.peers.values():
            if peer is not teller:
                peer.news[author] = None
                peer.wake.set()

    @property
    def _ways(self) -> list[tuple[Relay, int]]:
        """Neighbours, and to whom they are the way."""
        if self._found is None:
            self._found = [(self._by_node[node], to) for node, to in self.view.ways(self._up).items()]
        return self._found

    def _look(self) -> None:
        """Find the ways anew, and go on with what waits for one."""
        self._found = None
        stuck, self._stuck = self._stuck, deque()
        for until, copy in stuck:
            self._send_on(copy, until)

    def _hear(self, peer: Relay, data: bytes) -> None:
        """A notice."""
        author = self.view.author(data)
        if not self._pace.take(f"{peer.name} {author}", time.monotonic()):
            raise BadFrame(f"tells of node {author} without end")
        if self.view.hear(data):
            if author == self.node:
                self._declare()
            else:
                self._spread(author, peer)
                self._look()

    # ---- packets ----

    def _enter(self, identity: bytes, payload: bytes, room: Room, to: int, hops: int) -> None:
        """Take a packet into a room, and send it on."""
        parcel = Parcel(identity, payload, room, self._packets.size(len(payload)), time.monotonic())
        room.used += parcel.size
        room.held[parcel] = None
        self._send_on(Copy(parcel, to, hops))

    def _send_on(self, copy: Copy, until: float | None = None) -> None:
        """Put a copy into the queues of the neighbours on its way; what has no way waits."""
        parcel, to, hops = copy
        if parcel not in parcel.room.held:
            return
        for peer, there in self._ways:
            if some := to & there:
                to ^= some
                parcel.copies += 1
                peer.put(Copy(parcel, some, hops))
                if peer.room is parcel.room:  # it goes back, and may come again
                    peer.seen.pop((parcel.identity, hash(parcel.payload)), None)
        if to:
            until = time.monotonic() + self.timing.route if until is None else until
            self._stuck.append((until, Copy(parcel, to, hops)))
        else:
            self._done(parcel)

    def _done(self, parcel: Parcel) -> None:
        """One copy of it needs no more care."""
        parcel.copies -= 1
        if not parcel.copies:
            self._leave(parcel)

    def _leave(self, parcel: Parcel, why: str = "") -> None:
        """Forget a parcel, given up if there is a reason; the queues pass over what is left of it."""
        room = parcel.room
        if parcel in room.held:
            del room.held[parcel]
            room.used -= parcel.size
            parcel.payload = b""
            room.freed()
            self.lost.update([why] if why else [])

    def _take(self, peer: Relay, line: Line, data: bytes, at: int) -> int:
        """Take in the packet at a place of a message; where the next one begins."""
        (hops, to, identity, payload), after = self._packets.read(data, at, peer.node)
        size = self._packets.size(len(payload))
        line.got, line.got_size = line.got + 1, line.got_size + size
        if line.got_size > line.told[1]:
            raise BadFrame("sends more than it is allowed to")
        key = identity, hash(payload)
        fresh = to & ~peer.seen.recall(key, to)
        mine = fresh >> self.node & 1 and not self._delivered.recall(key, 1)
        if mine and not self._inbox.put(payload, peer):
            self.lost["too much of one party"] += 1
        fresh &= ~(1 << self.node)
        if fresh and hops > 1:
            self._enter(identity, payload, peer.room, fresh, hops - 1)
        elif fresh:
            self.lost["too many hops"] += 1
        self._owe(peer)
        return after

    # ---- connections ----

    @property
    def longest(self) -> int:
        """Bytes of the longest message."""
        return max(self._packets.longest, BATCH, hello.LONGEST)

    def _talk(self, link: Link, peer: Relay, receipt: Receipt) -> tuple[Coroutine[object, object, None], ...]:
        peer.line = line = Line()
        return self._read(link, peer, line), self._write(link, peer, line), self._watch(peer, line)

    def _met(self, peer: Relay, receipt: Receipt) -> None:
        super()._met(peer, receipt)
        peer.news = {author: None for author, notice in enumerate(self.view.notices) if notice.data}
        peer.wake.set()

    def _parted(self, peer: Relay) -> None:
        if not peer.tasks:  # no other connection took over: what waits for it goes another way
            peer.ready = False
            self._changed()
            copies = [copy for queue in peer.queues.values() for copy in queue]
            peer.queues.clear()
            for copy in copies:
                self._send_on(copy)

    async def _read(self, link: Link, peer: Relay, line: Line) -> None:
        with self._blaming(peer):
            while (data := await link.read()) is not None:
                if data.startswith(PACKET):
                    at, before = 0, line.got
                    while at < len(data):
                        at = self._take(peer, line, data, at)
                    await asyncio.sleep(line.pause(line.got - before))
                elif data.startswith(NOTICE):
                    self._hear(peer, data)
                elif data.startswith(TAKEN):
                    self._taken(peer, line, *read_taken(data))
                else:
                    raise BadFrame("neither packet nor notice nor news of what was taken")

    def _taken(self, peer: Relay, line: Line, packets: int, allowance: int) -> None:
        """The neighbour has taken packets, or has room for more."""
        if not line.taken <= packets <= line.taken + len(line.flying) or allowance < line.allowed:
            raise BadFrame(f"takes {packets} packets, expected {line.taken} to {line.taken + len(line.flying)}")
        if (packets, allowance) == (line.taken, line.allowed):
            raise BadFrame("says again what it has taken")
        while line.taken < packets:
            self._done(line.flying.popleft().parcel)
            line.taken += 1
        line.allowed = allowance
        peer.wake.set()
        if not peer.ready:
            peer.ready = True
            self._changed()

    def _owe(self, peer: Relay) -> None:
        """See that a neighbour hears what was taken and what it may send: now if it is much, or else in a moment."""
        line = peer.line
        more = peer.allowance(line) - line.told[1]
        if line.got - line.told[0] >= OFTEN or more >= peer.room.most // 4:
            line.due = True
            peer.wake.set()
        elif not line.rests:
            line.rests = True
            asyncio.get_running_loop().call_later(self.timing.receipt, self._tell, peer, line)

    def _tell(self, peer: Relay, line: Line) -> None:
        line.rests, line.due = False, True
        peer.wake.set()

    async def _write(self, link: Link, peer: Relay, line: Line) -> None:
        """News of ways first, so that a packet never arrives before the reason why it comes this way."""
        try:
            while True:
                peer.wake.clear()
                for data in self._news(peer):
                    self.sent["upkeep"] += len(data)
                    await link.write(data)
                now = line.got, peer.allowance(line)
                due, line.due = line.due, False
                if due and now != line.told:
                    line.told = now
                    said = pack_taken(*now)
                    self.sent["upkeep"] += len(said)
                    await link.write(said)
                if data := self._batch(peer, line):
                    await link.write(data)
                else:
                    await peer.wake.wait()
        finally:
            for copy in reversed(line.flying):
                peer.unpop(copy)
            line.flying.clear()

    def _news(self, peer: Relay) -> list[bytes]:
        """Notices to tell a neighbour now; of an author of whom it was told too often, later."""
        now = time.monotonic()
        ripe = [author for author in peer.news if self._calm.take(f"{peer.name} {author}", now)]
        for author in ripe:
            del peer.news[author]
        if peer.news:
            asyncio.get_running_loop().call_later(PAUSE, peer.wake.set)
        return [self.view.notices[author].data for author in ripe]

    def _batch(self, peer: Relay, line: Line) -> bytes:
        """The next packets, as one message: many small ones or one large, within the allowance."""
        packets: list[bytes] = []
        size = 0
        but: Room | None = None
        while (copy := peer.pop(but)) is not None:
            own, cost, length = copy.parcel.room is self._own, copy.parcel.size, copy.parcel.size - OVERHEAD
            full = packets and size + length > BATCH
            if full or line.spent + cost + own * self._reserve > line.allowed:
                peer.unpop(copy)
                if full or not own:
                    break
                but = self._own
                continue
            line.spent += cost
            line.flying.append(copy)
            packets.append(self._packets.pack(copy))
            size += length
            self.sent["own" if own else "relayed"] += length
        return b"".join(packets)

    # ---- as time passes ----

    async def _keep(self) -> None:
        """Give up what has waited too long, and say now and then who is connected."""
        said = time.monotonic()
        while True:
            await asyncio.sleep(self.timing.route / 20)
            now = time.monotonic()
            while self._stuck and self._stuck[0][0] <= now:
                self._leave(self._stuck.popleft()[1].parcel, "no way in time")
            for room in (self._own, *(peer.room for peer in self.peers.values())):
                while room.held and (oldest := next(iter(room.held))).since + self._slowest <= now:
                    self._leave(oldest, "too slow")
            if now >= said + AGAIN:
                said = now
                self._declare()

    async def _watch(self, peer: Relay, line: Line) -> None:
        """End a connection over which nothing is taken."""
        patience = self.timing.route / 2 + self._packets.size(self.largest) / SLOW
        with self._blaming(peer):
            idle = 0  # looks, not seconds: if this process stood still, that is not the neighbour's fault
            while idle < 10:
                before = line.taken, line.allowed
                await asyncio.sleep(patience / 10)
                idle = idle + 1 if (line.flying or peer.queues) and before == (line.taken, line.allowed) else 0
            raise BadFrame(f"takes no packets for {patience:g} s")
