"""What `benchmarks.peers` measures: the data, a party's step, and the clock. NumPy only: packages' environments run it.

Ten parties hold 700 records of 105 numbers. A round: every party takes a logistic gradient step, and all are averaged.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

PARTIES, RECORDS, DIM = 10, 700, 105
STEP, RIDGE, CLIP, SIGMA = 0.5, 1e-3, 1.0, 0.05


@functools.cache
def data() -> tuple[np.ndarray, np.ndarray]:
    """(parties, records, dim) on the unit sphere, and ±1 labels."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((PARTIES, RECORDS, DIM))
    x /= np.linalg.norm(x, axis=2, keepdims=True)
    return x, np.where(rng.uniform(size=x.shape[:2]) < 1 / (1 + np.exp(-x @ rng.standard_normal(DIM))), 1.0, -1.0)


def gradient(x: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Gradient of one party's mean loss and ridge."""
    return -((y / (1 + np.exp(y * (x @ w)))) @ x) / len(y) + RIDGE * w


def step(party: int, w: np.ndarray) -> np.ndarray:
    """One party's gradient step from w."""
    x, y = data()
    return w - STEP * gradient(x[party], y[party], w)


class Mark(NamedTuple):
    """A moment: wall clock, and processor time of this process and all that descend from it."""

    wall: float
    processor: float

    @classmethod
    def now(cls) -> Mark:
        """This moment."""
        ended = os.times()
        others = sum(descendants(os.getpid()).values()) / os.sysconf("SC_CLK_TCK")
        return cls(time.perf_counter(), time.process_time() + ended.children_user + ended.children_system + others)


def descendants(pid: int) -> dict[int, int]:
    """Ids of all living descendants, with the clock ticks that they and their ended children used; Linux only."""
    spent: dict[int, int] = {}
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc") if Path("/proc/self/stat").exists() else ():
        if entry.isdigit():
            try:
                fields = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended
                continue
            parents[int(entry)], spent[int(entry)] = int(fields[1]), sum(map(int, fields[11:15]))
    found: dict[int, int] = {}
    reached = {pid}
    while reached:
        reached = {child for child, parent in parents.items() if parent in reached}
        found |= {child: spent[child] for child in reached}
    return found


class Found(NamedTuple):
    """What a loop took, and where it arrived."""

    spans: list[Mark]  # durations, one per repeat
    total: int  # rounds from zero to the point
    point: np.ndarray | None  # None: no point to compare


class Clock:
    """Told of the end of every round, it times stretches of `rounds` rounds; the first round is start-up."""

    def __init__(self, rounds: int, repeats: int) -> None:
        self.rounds, self.total, self.done = rounds, 1 + rounds * repeats, 0
        self.marks: list[Mark] = []

    def tick(self) -> None:
        """A round is over."""
        if self.done % self.rounds == 0 and self.done < self.total:
            self.marks.append(Mark.now())
        self.done += 1

    def spans(self) -> list[Mark]:
        """Durations of the stretches."""
        pairs = zip(self.marks, self.marks[1:], strict=False)
        return [Mark(b.wall - a.wall, b.processor - a.processor) for a, b in pairs]


def timed(run: Callable[[], Any], repeats: int) -> list[Mark]:
    """Durations of several calls."""
    clock = Clock(1, repeats)
    clock.tick()
    for _ in range(repeats):
        run()
        clock.tick()
    return clock.spans()
