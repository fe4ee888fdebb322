"""Waiting for frames: woken once for all of them, at the time asked for, and nothing is lost by a cancelled wait."""

from __future__ import annotations

import asyncio
import time

import numpy as np
import pytest

from coterie.deploy.arrivals import Arrivals
from coterie.deploy.frames import MESSAGE, Frame
from coterie.deploy.transport import Incoming


def frame(round: int) -> Incoming:
    """A frame of that round."""
    return Incoming("ada", round, Frame(0, round, MESSAGE, np.zeros(1, np.int32), b"", b""), b"")


def soon(seconds: float = 30.0) -> float:
    """A time that is so many seconds away."""
    return time.monotonic() + seconds


async def wait_on(inbox: Arrivals, until: float) -> None:
    """Wait again and again."""
    while True:
        await inbox.wait(until)


def test_wakes_when_enough_are_here() -> None:
    async def run() -> None:
        inbox = Arrivals()
        waiting = asyncio.ensure_future(inbox.wait(soon(), enough=2))
        await asyncio.sleep(0)
        inbox.put(frame(0))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        inbox.put(frame(1))
        await waiting
        assert [inbox.take(), inbox.take(), inbox.take()] == [frame(0), frame(1), None]

    asyncio.run(run())


def test_time_is_kept_though_an_earlier_timer_is_set() -> None:
    async def run() -> None:
        inbox = Arrivals()
        for seconds in (0.2, 0.05, 0.1):  # sets one, brings it forward, finds none
            began = time.monotonic()
            with pytest.raises(TimeoutError):
                await wait_on(inbox, began + seconds)
            assert seconds <= time.monotonic() - began < seconds + 5
        quick = asyncio.ensure_future(inbox.wait(soon(0.1)))
        await asyncio.sleep(0)
        inbox.put(frame(0))
        await quick  # leaves its timer set
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            await wait_on(inbox, began + 0.3)  # it rings before
        assert time.monotonic() - began >= 0.3

    asyncio.run(run())


def test_a_wait_that_ends_keeps_what_came() -> None:
    async def run() -> None:
        inbox = Arrivals()
        waiting = asyncio.ensure_future(inbox.wait(soon(), enough=3))
        await asyncio.sleep(0)
        inbox.put(frame(0))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        inbox.put(frame(1))
        assert len(inbox) == 2
        assert inbox.take() == frame(0)

    asyncio.run(run())


def test_whoever_waits_without_end_can_be_stirred() -> None:
    async def run() -> None:
        inbox = Arrivals()
        waiting = asyncio.ensure_future(inbox.wait(float("inf"), enough=9))
        await asyncio.sleep(0)
        inbox.stir()
        await waiting
        assert inbox.take() is None

    asyncio.run(run())
