"""The transport of rounds without the wire: resuming, order, duplicates, limits. Connections are in `calls`.

**Delivery.** Every round of a party is one frame, and its outbox (its ledger) keeps all of them. At each new connection
both ends say what they have received, and the sender goes on with the next round, oldest first. So a frame may cross
the wire twice, but is handed to the agent at most once, and always in order of rounds; nothing is lost by a cut.

**Nothing is sent before the first `push`.** After a restart an agent first asks its neighbours for their receipts; one
that names a frame which the outbox does not hold proves that the ledger was restored or copied (`RolledBack`), and
no frame leaves. Receipts carry the frame's own signature, so a neighbour cannot invent one. Of two processes of one
party, running on copies of its ledger, a neighbour talks to one (`hello`).

**Limits.** A neighbour may be `AHEAD` rounds ahead of this party, and as many of its frames may wait for the agent;
then it is read no further, and the wire's flow control stops it. A bad frame, a gap, a repetition without end or a
second version of a frame ends the connection, and the neighbour has to wait before the next (twice as long each time).

**Rumours.** Parties that hear the same neighbour tell each other which frame came from it, by digest and signature,
with the next message. So a neighbour that signs different frames for different ears is named, with both signatures as
evidence, wherever two of its ears are neighbours too.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping

from coterie.deploy import hello
from coterie.deploy.agreement import Agreement
from coterie.deploy.arrivals import Arrivals
from coterie.deploy.calls import Calls, log
from coterie.deploy.frames import MAGIC, SIGNATURE_BYTES, BadFrame, Misdeed, Receipt, Wire, open_frame
from coterie.deploy.keys import PartyKeys
from coterie.deploy.peers import Correspondent, Rumours
from coterie.deploy.transport import AHEAD, Incoming, Link, NeighbourKnowsMore, Outbox, Timing

__all__ = ["Courier"]

RECENT = 4  # own frames kept at hand; older ones come from the outbox
REPEATS = 16  # frames already seen that one connection may bring: an honest one brings a few after a reconnect
HISTORY = 1024  # rounds for which a second version of a frame is recognised as such (older ones are dropped unread)


class Courier(Calls[Correspondent]):
    """The transport without the wire.

    Args:
        agreement: who talks to whom, under which rules.
        me: this party's name.
        keys: its folder, opened.
        wire: length and limits of a frame.
        outbox: outbox(round) is the own frame of a round, or None if there is none (yet).
        held: what the ledger holds of each neighbour: the last frame that is *in the stored state*. Copied here; frames
            that were taken in but not yet used are no business of the ledger, since a crash loses them (and the
            neighbours, asked again, resend them).
        timing: see `Timing`.
        evidence: called with a neighbour's name, a reason, a frame that it signed and should not have (empty: not at
            hand), and the receipts of other versions that it signed.
    """

    def __init__(
        self,
        agreement: Agreement,
        me: str,
        keys: PartyKeys,
        *,
        wire: Wire,
        outbox: Outbox,
        held: Mapping[str, Receipt] | None = None,
        timing: Timing | None = None,
        evidence: Callable[..., None] = lambda *_: None,
    ) -> None:
        super().__init__(agreement, me, keys, Correspondent, timing)
        self.wire = wire
        self.held = {name: (held or {}).get(name, Receipt()) for name in self.peers}
        self._rumours = Rumours(agreement, self.peers, self._accuse)
        for name, peer in self.peers.items():
            peer.digests[self.held[name].round] = self.held[name]
        self._outbox, self._evidence = outbox, evidence
        self._recent: OrderedDict[int, bytes] = OrderedDict()
        self._pushed = -1
        self._since, self._now, self._moved = 0, 0, asyncio.Event()
        self._inbox = Arrivals()

    # ---- the agent's side ----

    async def push(self, round: int, frame: bytes) -> None:
        """Hand the own frame of a round, durable already, to every neighbour; returns once queued."""
        self._check()
        self._recent[round] = frame
        while len(self._recent) > RECENT:
            self._recent.popitem(last=False)
        self._pushed = max(self._pushed, round)
        for peer in self.peers.values():
            peer.wake.set()
        await asyncio.sleep(0)  # they write now: neighbours wait for this, and what the agent does next may take long

    async def pull(self, since: int, now: int | None = None, until: float = math.inf, enough: int = 1) -> Incoming:
        """The next frame of a round ≥ since from any neighbour, in order of rounds for each; safe to cancel."""
        now = since if now is None else now
        self._since = since
        if now > self._now:
            self._now = now
            self._move()
        while True:
            self._check()
            if (incoming := self._inbox.take()) is None:
                await self._inbox.wait(until, enough)
                continue
            peer = self.peers[incoming.sender]
            peer.waiting -= 1
            if peer.waiting == AHEAD:  # it may have been held back
                self._move()
            if incoming.round >= since:
                return incoming

    def _move(self) -> None:
        """Let those go on that were held back."""
        self._moved.set()
        self._moved = asyncio.Event()

    async def receipt(self, neighbour: str, kept: int = -1) -> Receipt:
        """What a neighbour has of my frames (round −1: nothing); waits for its hello, or until it kept that round."""
        peer = self.peers[neighbour]
        while peer.theirs is None or peer.theirs.kept < kept:
            self._check()
            await peer.news.wait()
        self._check()
        return peer.theirs

    def kept(self, neighbour: str, round: int) -> None:
        """Say that a neighbour's frames up to this round are stored durably here; it hears so within moments."""
        known, peer = self.held[neighbour], self.peers[neighbour]
        if known.kept < round <= known.round:
            self.held[neighbour] = Receipt(known.round, known.digest, known.signature, round)
            if round == self.wire.rounds - 1:  # it waits for this before it leaves
                peer.due = True
                peer.wake.set()
            elif not peer.due and not peer.rests:
                peer.rests = True
                asyncio.get_running_loop().call_later(self.timing.receipt, self._tell, peer)

    def _tell(self, peer: Correspondent) -> None:
        peer.rests, peer.due = False, True
        peer.wake.set()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    # ---- connections ----

    @property
    def longest(self) -> int:
        """Bytes of the longest message: a frame, or news."""
        return max(self.wire.frame_bytes, hello.LONGEST)

    def _talk(self, link: Link, peer: Correspondent, receipt: Receipt) -> tuple[Coroutine[object, object, None], ...]:
        return self._read(link, peer), self._write(link, peer, receipt.round + 1)

    def _receipt_for(self, peer: Correspondent) -> Receipt:
        return self.held[peer.name]

    def _greeted(self, peer: Correspondent, receipt: Receipt) -> None:
        self._take_receipt(peer, receipt)

    def _met(self, peer: Correspondent, receipt: Receipt) -> None:
        has = f"my messages up to round {receipt.round}" if receipt.round >= 0 else "no message of mine yet"
        log.info("%s: %s is here and has %s", self.me, peer.name, has, extra={"about": peer.name})

    def _take_receipt(self, peer: Correspondent, receipt: Receipt) -> None:
        self._check_receipt(peer, receipt)
        peer.theirs = receipt
        peer.news.set()
        peer.news = asyncio.Event()

    def _check_receipt(self, peer: Correspondent, receipt: Receipt) -> None:
        """Believe a receipt that proves itself; stop for good if it proves that my ledger is not the latest."""
        if not receipt.proven(self.agreement.frame_keys[self.node], self.agreement.plan_hash, self.node):
            raise BadFrame(f"its receipt for round {receipt.round} is invented")
        if receipt.round >= 0:
            own = self._recent.get(receipt.round) or self._outbox(receipt.round)
            if own is None or own[-SIGNATURE_BYTES:] != receipt.signature:
                state = "does not hold it" if own is None else "holds another"
                self._fail(f"{peer.name} holds my frame of round {receipt.round}, my ledger {state}")
                raise EOFError("stopped")

    def _fail(self, reason: str) -> None:
        log.error("%s: %s: it was restored, copied or runs twice; nothing is sent any more", self.me, reason)
        self._failure = self._failure or NeighbourKnowsMore(reason)
        self._inbox.stir()
        for peer in self.peers.values():
            peer.cut()
            peer.news.set()

    async def _write(self, link: Link, peer: Correspondent, round: int) -> None:
        """Send every pushed frame from `round` on, and news of what is kept here."""
        while self._failure is None:
            while round <= self._pushed:
                data = self._recent.get(round) or self._outbox(round)
                if data is None:
                    raise EOFError(f"the outbox has no frame of round {round}")
                await link.write(data)
                round += 1
            while peer.rumours:
                some = [peer.rumours.popleft() for _ in range(min(len(peer.rumours), hello.MOST_RUMOURS))]
                await link.write(hello.pack_rumours(some))
            if peer.due:
                peer.due = False
                await link.write(hello.pack_receipt(self.held[peer.name]))
            await peer.wake.wait()
            peer.wake.clear()

    async def _read(self, link: Link, peer: Correspondent) -> None:
        repeats = 0
        with self._blaming(peer):
            while (data := await link.read()) is not None:
                if data.startswith(MAGIC):
                    repeats += not await self._admit(peer, data)
                elif data.startswith(hello.RECEIPT):
                    repeats += not self._take_news(peer, hello.unpack_receipt(data))
                elif data.startswith(hello.RUMOURS):
                    repeats += sum([not self._rumours.hear(peer, rumour) for rumour in hello.unpack_rumours(data)])
                else:
                    raise BadFrame("neither frame nor receipt")
                if repeats > REPEATS:
                    raise BadFrame("repeats itself without end")

    def _take_news(self, peer: Correspondent, receipt: Receipt) -> bool:
        """A receipt after the greeting; False, and nothing more is done, if it says nothing new."""
        if peer.theirs is not None and receipt.kept <= peer.theirs.kept and receipt.round <= peer.theirs.round:
            return False
        self._take_receipt(peer, receipt)
        return True

    def _accuse(self, liar: Correspondent, reason: str, *signed: Receipt) -> None:
        """Name a neighbour that has signed two frames for one round; both signatures prove it."""
        self.refused[liar.name] += 1
        self.refusals.add(liar.name, reason)
        log.error("%s: %s %s", self.me, liar.name, reason, extra={"about": liar.name})
        self._evidence(liar.name, reason, b"", *signed)

    async def _admit(self, peer: Correspondent, data: bytes) -> bool:
        """Take in a frame; False if it was here already."""
        try:
            frame = open_frame(data, self.agreement.frame_keys, self.agreement.plan_hash, self.wire, peer.node)
        except Misdeed as error:
            self._evidence(peer.name, str(error), data)
            raise
        if frame.round > self.held[peer.name].round + 1:  # at once: to wait for it would be to wait for nothing
            raise BadFrame(f"round {frame.round} after round {self.held[peer.name].round}")
        while frame.round > self._now + AHEAD or peer.waiting > AHEAD:
            await self._moved.wait()
        known = self.held[peer.name]  # no wait from here on: a connection that replaces this one sees all or nothing
        if frame.round <= known.round:
            first = peer.digests.get(frame.round)
            if first is not None and first.digest != frame.digest:
                reason = f"a second version of round {frame.round}"
                self._evidence(peer.name, reason, data, first)
                raise Misdeed(reason)
            return False
        self.held[peer.name] = Receipt(frame.round, frame.digest, frame.signature, known.kept)
        peer.digests[frame.round] = receipt = frame.receipt
        peer.digests.pop(frame.round - HISTORY, None)
        self._rumours.arrived(peer, receipt)
        if frame.round >= self._since:
            peer.waiting += 1
            self._inbox.put(Incoming(peer.name, frame.round, frame, data))
        return True
