"""Connections to neighbours, whatever is said over them: dialling, greeting, seats, offences. A wire carries the bytes.

One conversation with each neighbour at a time, with one process of it (`hello`). Two kinds stand on this: `courier`
exchanges rounds of frames between neighbours, `post` relays packets between any two parties. Which of them an agreement
is for follows from its plan, so parties that hold the same one speak the same; and their hellos are signed under
different names, so neither can be taken for the other.

A neighbour that breaks a rule is cut off and has to wait before the next connection, twice as long each time.
"""

from __future__ import annotations

import abc
import asyncio
import logging
import os
import time
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager
from typing import ClassVar, Generic, TypeVar

from coterie.deploy import hello
from coterie.deploy.agreement import Agreement
from coterie.deploy.frames import BadFrame, Receipt
from coterie.deploy.keys import PartyKeys
from coterie.deploy.peers import Peer
from coterie.deploy.tally import Refusals
from coterie.deploy.transport import Link, Timing

__all__ = ["Calls"]

log = logging.getLogger("coterie.deploy")
P = TypeVar("P", bound=Peer)


class Calls(abc.ABC, Generic[P]):
    """A party's connections, without the wire and without what is said.

    Args:
        agreement: who talks to whom, under which rules.
        me: this party's name.
        keys: its folder, opened.
        kind: what a neighbour is here.
        timing: see `Timing`.
    """

    domain: ClassVar[bytes] = hello.ROUNDS  # under which name hellos are signed

    def __init__(self, agreement: Agreement, me: str, keys: PartyKeys, kind: type[P], timing: Timing | None) -> None:
        if keys.name != me:
            raise ValueError(f"the keys belong to {keys.name}, not to {me}")
        agreement.check_keys(keys.identity)
        self.agreement, self.me, self.node, self.keys = agreement, me, agreement.index(me), keys
        self.timing = timing or Timing()
        self.refused: Counter[str] = Counter()  # offences of each neighbour
        self.refusals = Refusals()  # … and of others, with reasons
        self.peers: dict[str, P] = {name: kind(name, agreement.index(name)) for name in agreement.neighbours(me)}
        self._failure: Exception | None = None  # why nothing is said any more
        self._dialling: list[asyncio.Task] = []
        self._process = os.urandom(16)  # which process of this party this is

    @property
    def alive(self) -> dict[str, bool]:
        """Whether each neighbour is connected and greeted just now."""
        return {name: bool(peer.tasks) for name, peer in self.peers.items()}

    @property
    def trouble(self) -> dict[str, str]:
        """Why each neighbour that is not connected is not, as far as known."""
        return {name: peer.trouble for name, peer in self.peers.items() if peer.trouble and not peer.tasks}

    async def start(self) -> None:
        """Begin to dial those neighbours that wait for this party's call."""
        called = (p for p in self.peers.values() if self.agreement.dials(self.me, p.name))
        self._dialling = [asyncio.create_task(self._dial(peer)) for peer in called]

    async def close(self) -> None:
        """End all connections."""
        tasks = [*self._dialling, *(t for p in self.peers.values() for t in p.tasks)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ---- what a conversation says ----

    @property
    @abc.abstractmethod
    def longest(self) -> int:
        """Bytes of the longest message after the greeting."""

    @abc.abstractmethod
    def _talk(self, link: Link, peer: P, receipt: Receipt) -> tuple[Coroutine[object, object, None], ...]:
        """The tasks of a connection after its greeting; when one ends, all do."""

    def _receipt_for(self, peer: P) -> Receipt:
        """What a hello says has been received."""
        return Receipt()

    def _check_receipt(self, peer: P, receipt: Receipt) -> None:
        """Refuse a hello for what it says was received."""
        if receipt != Receipt():
            raise BadFrame(f"its hello has a receipt for round {receipt.round}, expected none")

    def _greeted(self, peer: P, receipt: Receipt) -> None:
        """The greeting is over, and the neighbour let in."""

    def _met(self, peer: P, receipt: Receipt) -> None:
        """A connection is in use."""
        log.info("%s: %s is here", self.me, peer.name, extra={"about": peer.name})

    def _parted(self, peer: P) -> None:
        """A connection has ended; another may have taken over."""

    # ---- connections ----

    @abc.abstractmethod
    def connect(self, peer: P) -> AbstractAsyncContextManager[Link]:
        """A new connection to a neighbour that waits for calls. The wire's part."""

    async def _dial(self, peer: P) -> None:
        """Keep one neighbour connected."""
        shortest, longest = self.timing.retry
        while self._failure is None:
            try:
                async with self.connect(peer) as link:
                    await self.converse(link, peer)
            except BadFrame:
                pass  # logged, and blocked for a while
            except (OSError, EOFError, TimeoutError) as error:
                self._lost(peer, error)
            except Exception as error:  # one neighbour's trouble, whatever it is, is not the others'
                peer.trouble = repr(error)
                log.exception("%s: the connection to %s failed", self.me, peer.name, extra={"about": peer.name})
            peer.delay = min(max(peer.delay * 2, shortest), longest)
            await asyncio.sleep(max(peer.delay, peer.blocked_until - time.monotonic()))

    def _lost(self, peer: P, error: Exception) -> None:
        """Say why there is no connection, or no more."""
        up = not isinstance(error, ConnectionRefusedError)
        peer.trouble = str(error) or type(error).__name__ if up else "not up yet: nothing listens at its address"
        log.info("%s: no connection with %s: %s", self.me, peer.name, peer.trouble, extra={"about": peer.name})

    async def converse(self, link: Link, peer: P) -> None:
        """One connection, from greeting to end; both ends run this.

        Returns when the connection has ended or reached its age.

        Raises:
            BadFrame: the neighbour misbehaved; it is blocked for a while.
            OSError, EOFError, TimeoutError: the connection broke.
        """
        if self._failure is not None:
            raise EOFError("stopped")
        with ExitStack() as seat:
            async with asyncio.timeout(self.timing.hello):
                with self._blaming(peer):
                    receipt = await self._greet(link, peer, seat)
            await self._exchange(link, peer, receipt)

    async def _exchange(self, link: Link, peer: P, receipt: Receipt) -> None:
        """A connection after its greeting."""
        peer.cut()  # the latest connection is the one that works
        peer.tasks = tasks = tuple(asyncio.create_task(work) for work in self._talk(link, peer, receipt))
        peer.delay, peer.trouble = 0.0, ""
        self._met(peer, receipt)
        try:
            await asyncio.wait(tasks, timeout=self.timing.age, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if peer.tasks is tasks:
                peer.cut()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            self._parted(peer)
        for end in ends:
            if isinstance(end, Exception):
                raise end
        peer.offences = 0

    @contextmanager
    def _blaming(self, peer: P) -> Iterator[None]:
        """Note an offence where it is found: the offender may hang up before anybody else hears of it."""
        try:
            yield
        except BadFrame as error:
            self.refused[peer.name] += 1
            self.refusals.add(peer.name, str(error))
            shortest, longest = self.timing.retry
            peer.blocked_until = time.monotonic() + min(shortest * 2**peer.offences, longest)
            peer.offences = min(peer.offences + 1, 30)
            peer.trouble = f"refused: {error}"
            log.warning("%s: refused %s: %s", self.me, peer.name, error, extra={"about": peer.name})
            raise

    async def _greet(self, link: Link, peer: P, seat: ExitStack) -> Receipt:
        """Both openings and both hellos; takes the neighbour's seat until `seat` is closed."""
        plan, key = self.agreement.plan_hash, self.agreement.frame_keys
        mine = hello.make_opening(plan, self.node, self._process)
        await link.write(mine)
        theirs = await _next(link)
        hello.check_opening(theirs, plan, peer.node)
        other = not peer.sit(hello.process_of(theirs), seat)
        await link.write(
            hello.make_hello(self.keys.frame_key, mine, theirs, self._receipt_for(peer), other, self.domain)
        )
        receipt, busy = hello.check_hello(await _next(link), key[peer.node], mine, theirs, self.domain)
        self._check_receipt(peer, receipt)
        if other or busy:
            log.warning("%s: %s: another process of %s is connected", self.me, peer.name,
                        peer.name if other else "mine", extra={"about": peer.name})  # fmt: skip
            raise EOFError("another process is connected")
        self._greeted(peer, receipt)
        return receipt


async def _next(link: Link) -> bytes:
    if (data := await link.read()) is None:
        raise EOFError("ended during the greeting")
    return data
