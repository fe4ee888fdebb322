"""What is counted while a party runs: how long rounds take, when something last moved, and who was refused and why.

Every number here is for the party's owner. None comes from a record: the work in a round is the same for all records.
"""

from __future__ import annotations

import re
import time
from bisect import bisect_left
from collections import Counter, deque

__all__ = ["BUCKETS", "Refusals", "RoundTimes"]

BUCKETS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3600.0)  # seconds
RECENT = 120  # round times that are kept one by one
REASONS = 64  # different reasons that are counted apart; whoever invents more of them is counted under "other"


class RoundTimes:
    """How long rounds take, from one message sent to the next, and when something last moved."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.total = 0.0
        self.recent: deque[float] = deque(maxlen=RECENT)
        self._moved = self._lap = time.monotonic()

    @property
    def idle(self) -> float:
        """Seconds since something moved."""
        return time.monotonic() - self._moved

    def moved(self) -> None:
        """Something has come or gone."""
        self._moved = time.monotonic()

    def begin(self) -> None:
        """The next round begins now: what went before is no part of its time."""
        self._lap = self._moved = time.monotonic()

    def lap(self) -> float:
        """A round's message is sent; the seconds since the one before it, or since `begin`."""
        now = time.monotonic()
        took, self._lap, self._moved = now - self._lap, now, now
        self.counts[bisect_left(BUCKETS, took)] += 1
        self.total += took
        self.recent.append(took)
        return took


class Refusals:
    """Who was refused, how often and why. Numbers and quoted words are left out of reasons, to keep these few."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()

    def add(self, about: str, reason: str, count: int = 1) -> None:
        """Count a refusal of a neighbour, or of "stranger"."""
        key = about, re.sub(r"\d+", "N", re.sub(r"'[^']*'", "…", reason))
        self.counts[key if key in self.counts or len(self.counts) < REASONS else ("anybody", "other")] += count
