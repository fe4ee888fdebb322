"""What has come for this party and waits for its agent: nobody's frames wait behind another's flood.

Frames wait by the author that they name and by the neighbour that brought them, and each of these queues has its turn.
That name is not checked here: a neighbour that invents authors fills queues of its own. A queue is as long as its
limit, beyond which what comes is given up (whoever needs an answer asks again), and an author is heard at a pace: its
agent's time is the others' too.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress

from coterie.deploy.door import RateLimit
from coterie.deploy.parcels import Relay

__all__ = ["Mail"]

PACE, AT_ONCE = 500.0, 2000.0  # frames of an author that are handed over in a second, and after a pause


class Mail:
    """Queues of payloads.

    Args:
        author: whom a payload names as its author.
        size: what a payload of so many bytes counts for.
        most: how much may wait in one queue; one payload always may.
        parties: authors from 0 on; whoever else is named counts as one.
    """

    def __init__(self, author: Callable[[bytes], int], size: Callable[[int], int], most: int, parties: int) -> None:
        self._author, self._size, self._most, self._parties = author, size, most, parties
        self._queues: OrderedDict[tuple[str, int], deque[tuple[bytes, Relay]]] = OrderedDict()
        self._filled: dict[tuple[str, int], int] = {}
        self._pace = RateLimit(PACE, AT_ONCE)
        self._came = asyncio.Event()

    def put(self, payload: bytes, peer: Relay) -> bool:
        """Let a payload wait; False if its queue is full."""
        key, size = self._queue(payload, peer), self._size(len(payload))
        filled = self._filled.get(key, 0)
        if filled and filled + size > self._most:
            return False
        self._queues.setdefault(key, deque()).append((payload, peer))
        self._filled[key] = filled + size
        peer.room.mail += size
        self._came.set()
        return True

    def _queue(self, payload: bytes, peer: Relay) -> tuple[str, int]:
        return peer.name, min(self._author(payload), self._parties)

    async def get(self) -> tuple[bytes, Relay]:
        """The payload whose turn it is, and who brought it."""
        while True:
            now = time.monotonic()
            for key, queue in self._queues.items():
                if self._pace.take(f"{key[0]} {key[1]}", now):
                    return self._taken(key, queue)
            self._came.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(1 / PACE if self._queues else None):
                    await self._came.wait()

    def _taken(self, key: tuple[str, int], queue: deque[tuple[bytes, Relay]]) -> tuple[bytes, Relay]:
        payload, peer = queue.popleft()
        size = self._size(len(payload))
        self._filled[key] -= size
        peer.room.mail -= size
        self._queues.move_to_end(key)
        if not queue:
            del self._queues[key], self._filled[key]
        return payload, peer

    def qsize(self) -> int:
        """How many wait."""
        return sum(map(len, self._queues.values()))

    def empty(self) -> bool:
        """Whether none waits."""
        return not self._queues
