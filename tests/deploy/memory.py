"""The wire of the tests: the same conversations between parties of one process, with links that can be cut."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from coterie.deploy.calls import Calls, P
from coterie.deploy.courier import Courier
from coterie.deploy.frames import BadFrame
from coterie.deploy.parcels import Relay
from coterie.deploy.peers import Correspondent
from coterie.deploy.post import PostOffice
from coterie.deploy.transport import Link

__all__ = ["MemoryNetwork", "MemoryPost", "MemoryTransport"]

ROOM = 8  # messages on their way in one direction


class MemoryLink:
    """One end of a connection: what is written here is read at the other end."""

    def __init__(self) -> None:
        self.other: MemoryLink = self
        self._arrived: deque[bytes] = deque()
        self._changed = asyncio.Event()
        self._open = True

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def read(self) -> bytes | None:
        """The next message; None once the connection is cut, messages on their way included."""
        while self._open and not self._arrived:
            await self._changed.wait()
        if not self._open:
            return None
        data = self._arrived.popleft()
        self._notify()
        return data

    async def write(self, data: bytes) -> None:
        """Send a message; waits while the other end does not read."""
        other = self.other
        while other._open and len(other._arrived) >= ROOM:
            await other._changed.wait()
        if not other._open:
            raise EOFError("the connection is cut")
        other._arrived.append(data)
        other._notify()

    def close(self) -> None:
        """Cut the connection at both ends."""
        for end in (self, self.other):
            end._open = False
            end._notify()


def _pair() -> tuple[MemoryLink, MemoryLink]:
    one, two = MemoryLink(), MemoryLink()
    one.other, two.other = two, one
    return one, two


class MemoryNetwork:
    """Who can be reached, and which links are down."""

    def __init__(self) -> None:
        self.listening: dict[str, MemoryWire[Any]] = {}
        self.down: set[frozenset[str]] = set()
        self._links: dict[frozenset[str], list[MemoryLink]] = {}
        self._tasks: set[asyncio.Task] = set()

    def cut(self, one: str, two: str) -> None:
        """Take the link between two parties down, with everything on it."""
        edge = frozenset((one, two))
        self.down.add(edge)
        for link in self._links.pop(edge, []):
            link.close()

    def heal(self, one: str, two: str) -> None:
        """Let them connect again."""
        self.down.discard(frozenset((one, two)))

    def connect(self, caller: str, callee: str) -> MemoryLink:
        """The caller's end of a new connection; a scripted peer of a test may use it as it likes."""
        edge = frozenset((caller, callee))
        if callee not in self.listening or edge in self.down:
            raise ConnectionError(f"{callee} cannot be reached")
        mine, theirs = _pair()
        self._links.setdefault(edge, []).append(mine)
        task = asyncio.create_task(self.listening[callee].accept(caller, theirs))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return mine


class MemoryWire(Calls[P]):
    """A party on a `MemoryNetwork`. Takes the conversation's arguments and the network."""

    def __init__(self, *arguments: Any, network: MemoryNetwork, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.network = network

    async def start(self) -> None:
        """Begin to listen, if this party has an address, and to dial."""
        if self.agreement.party(self.me).address is not None:
            self.network.listening[self.me] = self
        await super().start()

    async def close(self) -> None:
        """Stop listening and end all connections."""
        self.network.listening.pop(self.me, None)
        await super().close()

    def connect(self, peer: P) -> AbstractAsyncContextManager[Link]:
        """A new connection to a neighbour."""

        @asynccontextmanager
        async def connection() -> AsyncIterator[Link]:
            link = self.network.connect(self.me, peer.name)
            try:
                yield link
            finally:
                link.close()

        return connection()

    async def accept(self, caller: str, link: MemoryLink) -> None:
        """Serve a call."""
        peer = self.peers.get(caller)
        loop = asyncio.get_running_loop()
        try:
            if peer is not None and loop.time() >= peer.blocked_until:
                await self.converse(link, peer)
        except (BadFrame, OSError, EOFError, TimeoutError):
            pass  # logged where it happened; the caller may try again
        finally:
            link.close()


class MemoryTransport(MemoryWire[Correspondent], Courier):
    """Rounds of frames on a `MemoryNetwork`."""


class MemoryPost(MemoryWire[Relay], PostOffice):
    """Packets on a `MemoryNetwork`."""
