"""Frames that have come and wait for their agent, which waits for them until a time of its choice.

A round has one wait for each neighbour, so waiting must be cheap: what is here is taken without a wait, and the timer
that ends a wait stays set from one wait to the next. It is early then: it looks what it is for, and is set again. Who
needs several frames is woken once, when as many are here or the time is over.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque

from coterie.deploy.transport import Incoming

__all__ = ["Arrivals"]


class Arrivals:
    """A queue for one agent."""

    def __init__(self) -> None:
        self._frames: deque[Incoming] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._until, self._enough = math.inf, 1  # when the wait under way ends, by time or by frames
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._frames)

    def put(self, incoming: Incoming) -> None:
        """Let a frame wait."""
        self._frames.append(incoming)
        if len(self._frames) >= self._enough:
            self.stir()

    def stir(self) -> None:
        """Whoever waits looks again."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def take(self) -> Incoming | None:
        """The next frame, if one is here."""
        return self._frames.popleft() if self._frames else None

    async def wait(self, until: float, enough: int = 1) -> None:
        """Wait for so many frames, or for whatever stirs; TimeoutError from `until` on, by the monotonic clock."""
        if until <= time.monotonic():
            raise TimeoutError
        loop = asyncio.get_running_loop()
        self._waiter, self._until, self._enough = loop.create_future(), until, enough
        self._set_timer(loop)
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        """See that a timer rings by the end of the wait; one that rings before does as well."""
        if self._until == math.inf:
            return
        when = loop.time() + self._until - time.monotonic()
        if self._timer is not None:
            if self._timer.when() <= when:
                return
            self._timer.cancel()
        self._timer = loop.call_at(when, self._ring, loop)

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if self._waiter is None:
            return
        if time.monotonic() < self._until:
            self._set_timer(loop)
        else:
            self.stir()
