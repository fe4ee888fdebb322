"""Noise that follows what was released, within a filter: before every round a public rule says how much, and pays.

The limit is what the plan's own noise would cost in all rounds. A round whose price does not fit any more is not
played: from then on everybody is silent. Rule, prices and stop are functions of messages that were sent, so nothing of
this tells more than those do (docs/theory/adaptive.md).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from coterie.algorithms._charges import alike, run_events
from coterie.algorithms.base import Algorithm, Config, Place
from coterie.errors import InputError
from coterie.privacy.adaptive import History, Rule
from coterie.privacy.events import Gaussian
from coterie.privacy.filter import Filter

__all__ = ["Steering", "planned"]


class Steering:
    """One run's filters, one for each kind of party, and what the rule chose.

    Args:
        plans: what every round of a party would cost as planned, with a row for each; one of each kind of party.
        delta: δ of the budget.
        rule: how much noise a round gets, from what was released.
        nothing: what is released before the first round, (0, parties, numbers).
    """

    def __init__(self, plans: Sequence[Gaussian], delta: float, rule: Rule, nothing: NDArray[np.floating]):
        self._plans, self._rule, self._nothing = plans, rule, nothing
        self._filters = [_filter(plan, delta) for plan in plans]
        self._said: list[NDArray[np.floating]] = []
        self.noise: list[float] = []  # of every round so far, as a multiple of the planned; 0 where none was due
        self.stopped: int | None = None  # the first round that was not played

    @classmethod
    def of(cls, algorithm: Algorithm, cfg: Config, places: Place, delta: float, rule: Rule) -> Steering:
        """Of the parties at these places, with the noise that their budgets give."""
        kinds = alike(places, np.asarray(places.noise))
        plans = [planned(algorithm, cfg, place) for _, place in kinds]
        return cls(plans, delta, rule, np.zeros((0, places.agents, places.dim)))

    def before(self, t: int) -> float | None:
        """Round t's noise as a multiple of the planned, paid for; None: it is not played, nor is any after it."""
        if self.stopped is not None:
            return None
        if not any(plan.times[t] for plan in self._plans):
            self.noise.append(0.0)
            return 1.0  # nothing of the records is sent, and no noise
        answer: object = self._rule(t, self.released())
        try:
            chosen = float(answer)  # type: ignore[arg-type]
        except (TypeError, ValueError, OverflowError):  # None, several numbers, one that no float holds
            chosen = np.nan
        if not (chosen > 0 and np.isfinite(chosen)):
            raise InputError(f"the adaptive rule must give a number > 0 for round {t + 1}, got {str(answer)[:40]}")
        prices = [_round(plan, t, chosen) for plan in self._plans]
        if any(keeper.would_exceed(price) for keeper, price in zip(self._filters, prices, strict=True)):
            self.stopped = t
            return None
        for keeper, price in zip(self._filters, prices, strict=True):
            keeper.spend(price)
        self.noise.append(chosen)
        return chosen

    def heard(self, messages: NDArray[np.floating]) -> None:
        """A round was played: what every party said."""
        seen = np.array(messages)
        seen.flags.writeable = False
        self._said.append(seen)

    def released(self) -> History:
        """What the rule may look at: messages that were sent, and public numbers."""
        said = np.stack(self._said) if self._said else self._nothing.copy()
        said.flags.writeable = False
        left = min(1 - keeper.spent / keeper.limit for keeper in self._filters)
        return History(said, tuple(self.noise), max(0.0, float(left)))

    @property
    def epsilon(self) -> float:
        """ε of what was used, at the budget's δ; the guarantee is that of the limit."""
        return max(keeper.epsilon() for keeper in self._filters)


def planned(algorithm: Algorithm, cfg: Config, place: Place) -> Gaussian:
    """What every round of a party would cost as planned, with a row for each; refused where that is not Gaussian."""
    events = run_events(algorithm, cfg, place)
    event = events[0]
    if len(events) != 1 or type(event) is not Gaussian:
        kinds = ", ".join(sorted({type(e).__name__ for e in events}))
        raise InputError(
            f"privacy.adaptive: a filter is proved for Gaussian rounds on all records, and {algorithm.slug} as set has "
            f"{kinds}"
        )
    rows = (place.rounds,)
    return Gaussian(
        np.broadcast_to(event.sensitivity, rows), np.broadcast_to(event.sigma, rows),
        times=np.broadcast_to(event.times, rows), adjacency=event.adjacency,
    )  # fmt: skip


def _round(plan: Gaussian, t: int, noise: float) -> Gaussian:
    """Round t with that multiple of its noise."""
    return Gaussian(
        plan.sensitivity[t], noise * plan.sigma[t], times=int(plan.times[t]), adjacency=plan.adjacency
    )  # fmt: skip


def _filter(plan: Gaussian, delta: float) -> Filter:
    """A filter whose limit is the plan's own total, added up as the rounds will be: the plan itself just fits."""
    keeper = Filter(1.0, delta, "gaussian")
    keeper.limit = np.inf
    for t in range(len(plan.sigma)):
        keeper.spend(_round(plan, t, 1.0))
    keeper.limit, keeper.spent = keeper.spent, 0.0
    return keeper
