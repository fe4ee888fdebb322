"""Runs whose noise follows what was released: one after the other, as each has a history of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from coterie.algorithms.base import Algorithm
from coterie.drivers.adaptive import Steering
from coterie.drivers.layout import Layout
from coterie.drivers.simulate import Run, Trace, simulate
from coterie.errors import InputError

__all__ = ["Steered", "simulate_steered"]


@dataclass(frozen=True)
class Steered:
    """What became of one run's noise: a function of its messages, so that it tells no more than they do."""

    noise: tuple[float, ...]  # of every round that was played, as a multiple of the planned; 0 where none was due
    stopped: int | None  # the first round, from 1, that did not fit any more; None: all were played
    spent: float  # ε of what was used, at the budget's δ; no guarantee: that is the limit's

    def as_json(self) -> dict[str, object]:
        """As plain data."""
        return asdict(self) | {"noise": list(self.noise)}


def simulate_steered(
    algorithm: Algorithm, layout: Layout, runs: Sequence[Run], *, steering: Callable[[], Steering], **options: Any
) -> Trace:
    """`simulate` run by run, each with filters of its own; what they chose is in `steered`."""
    if options.get("checkpoint") is not None:
        raise InputError("a run whose noise follows its messages is not stored half-way: leave out checkpoint")
    traces, found = [], []
    for k, run in enumerate(runs):
        steer = steering()
        told = {} if k == 0 else {"watch": None}
        traces.append(simulate(algorithm, layout, [run], steer=steer, **(options | told)))
        stopped = None if steer.stopped is None else steer.stopped + 1
        found.append(Steered(tuple(steer.noise), stopped, steer.epsilon))
        if traces[-1].completed < options["rounds"]:  # Ctrl-C
            break
    first = traces[0]
    if len(traces) > 1:
        whole = [t for t in traces if t.completed == first.completed]
        join = lambda name: np.concatenate([getattr(t, name) for t in whole])  # noqa: E731
        curves = {k: np.concatenate([t.curves[k] for t in whole]) for k in first.curves}
        timing = {k: float(sum(t.timing[k] for t in whole)) for k in first.timing}
        first = Trace(join("points"), first.rounds, curves, join("sent"), join("bytes"), first.completed, timing)
        first.extras["cut"] = np.concatenate([np.atleast_1d(t.extras["cut"]) for t in whole])
    first.steered = [one.as_json() for one in found[: len(first.points)]]
    return first
