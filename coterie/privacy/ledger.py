r"""The ledger: an append-only record of every charge against one agent's budget, with a hard stop.

A charge that would pass the budget raises *before* anything is recorded, so a caller that charges first and sends
after never releases what it cannot pay for. Two ways to keep within (ε, δ):

- **plan**: the events are declared in advance. Their total is proved once by the tightest accountant and must fit;
  then any charge drawn from the plan is allowed, each as often as planned, in any order, and may be left out: by
  induction on what is left, every interleaving is dominated by the whole plan. A charge outside the plan is refused.
- **filter** (no plan): parameters may depend on the transcript. The stopping rule is a `filter.Filter`: exact Σμ² if
  the first charge is Gaussian, Σε if it is pure and δ = 0, else one Rényi order fixed by the budget. Choosing by the
  first charge is sound because nothing has been released before it; a later event that the rule does not cover is
  refused.

The stop is final: after a refusal only free messages are accepted.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from coterie.errors import InputError
from coterie.privacy.accountants import Account, account
from coterie.privacy.events import Event, Free, Gaussian, flat, merge
from coterie.privacy.filter import BudgetExceeded, Filter, Meter, Rule

__all__ = ["Budget", "BudgetExceeded", "Entry", "Ledger", "MemoryLedger"]

_SAME = 1e-9  # a planned number may be recomputed in another order of operations


class Budget(NamedTuple):
    """(ε, δ) of one agent."""

    epsilon: float
    delta: float


class Entry(NamedTuple):
    """One charge: its round, the event, and the running total in the rule's measure after it."""

    round: int
    event: Event
    total: float


class Ledger(Protocol):
    """What an agent needs of a ledger; the durable one of a deployment has the same face."""

    budget: Budget

    def charge(self, round: int, event: Event) -> None:
        """Record the event, or raise `BudgetExceeded` and record nothing."""

    @property
    def entries(self) -> Sequence[Entry]:
        """All charges so far, oldest first."""

    def spent(self, delta: float | None = None) -> float:
        """ε spent so far, at δ (the budget's own by default)."""


class MemoryLedger:
    """A ledger in memory.

    Args:
        budget: what the agent is willing to spend.
        plan: the events declared in advance, or None to filter charges as they come.
        rule: the filter's measure; None lets the first charge decide.
        reserve: the part of δ a filter keeps for events that add to δ themselves.

    >>> from coterie.privacy.events import Gaussian
    >>> ledger = MemoryLedger(Budget(1.0, 1e-5))
    >>> ledger.charge(0, Gaussian(1.0, 5.0))
    >>> ledger.charge(1, Gaussian(1.0, 5.0))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    coterie.privacy.filter.BudgetExceeded: round 1: Gaussian would raise epsilon from 0.7255 to 1.061, budget 1 ...
    """

    def __init__(
        self, budget: Budget, *, plan: Sequence[Event] | None = None, rule: Rule | None = None, reserve: float = 0.0
    ):
        if not (budget.epsilon > 0 and np.isfinite(budget.epsilon)):
            raise InputError(f"epsilon must be > 0 and finite, got {budget.epsilon}")
        if not 0 <= budget.delta < 1:
            raise InputError(f"delta must be in [0, 1), got {budget.delta}")
        self.budget = budget
        self.closed = False
        self._entries: list[Entry] = []
        self._reserve = reserve
        self._filter = None if rule is None else Filter(*budget, rule, reserve=reserve)
        self._plan = None if plan is None else _Plan(plan, budget)
        if self._plan is not None and rule is not None:
            raise InputError("a ledger has a plan or a rule, not both")

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All charges so far, oldest first."""
        return tuple(self._entries)

    def charge(self, round: int, event: Event) -> None:
        """Record the event, or raise `BudgetExceeded` and record nothing."""
        before = self._entries[-1].total if self._entries else 0.0
        if isinstance(event, Free):
            flat(event)
            self._entries.append(Entry(round, event, before))
            return
        if self.closed:
            raise BudgetExceeded(
                f"round {round}: {type(event).__name__} refused, the budget was closed by an earlier stop"
            )
        keeper = self._plan or self._filter or self._first(event)
        try:
            keeper.spend(event)
        except BudgetExceeded as stop:
            self.closed = True
            raise BudgetExceeded(f"round {round}: {stop}") from None
        self._filter = keeper if isinstance(keeper, Filter) else None
        self._entries.append(Entry(round, event, keeper.spent))

    def spent(self, delta: float | None = None) -> float:
        """ε spent so far at δ: by the filter's own measure, or by the tightest accountant for what a plan has used."""
        if self._filter is not None:
            return self._filter.epsilon(delta)
        if self._plan is None:
            return 0.0
        events = [entry.event for entry in self._entries]
        return account(events, self.budget.delta if delta is None else delta, fast=True).epsilon

    def _first(self, event: Event) -> Filter:
        one = flat(event)
        if self.budget.delta == 0:
            rule: Rule = "pure"
        else:
            rule = "gaussian" if one.mu() is not None else "renyi"
        return Filter(*self.budget, rule, reserve=self._reserve)


class _Plan:
    """Declared events, counted down as they are charged."""

    def __init__(self, events: Sequence[Event], budget: Budget):
        self.total: Account = account(events, budget.delta, fast=True)
        if not self.total.epsilon <= budget.epsilon:
            raise BudgetExceeded(
                f"the plan costs epsilon {self.total.epsilon:.4g} at delta {budget.delta:g}, budget {budget.epsilon:g}"
            )
        self.parts = merge(events)
        self.left = [part.times.copy() for part in self.parts]
        gaussian = all(isinstance(part, Gaussian | Free) for part in self.parts)
        self.meter = Meter("pure") if budget.delta == 0 else Meter("gaussian") if gaussian else Meter("renyi", 8.0)
        self.spent = 0.0

    def spend(self, event: Event) -> None:
        """Take the event from the plan, or raise and change nothing."""
        taken = [counts.copy() for counts in self.left]
        one = flat(event)
        names = [name for name in vars(one) if isinstance(getattr(one, name), np.ndarray) and name != "times"]
        for row in range(one.times.size):
            if not any(
                self._take(part, counts, one, row, names) for part, counts in zip(self.parts, taken, strict=True)
            ):
                values = ", ".join(f"{name} {getattr(one, name)[row]:.6g}" for name in names)
                raise BudgetExceeded(f"{type(event).__name__} ({values}) is not in the plan, or is used up")
        self.left = taken
        self.spent += self.meter.cost(event)

    @staticmethod
    def _take(part: Event, counts: np.ndarray, one: Event, row: int, names: Sequence[str]) -> bool:
        settings = [name for name in vars(one) if name not in names and name != "times"]
        if type(part) is not type(one) or any(getattr(part, name) != getattr(one, name) for name in settings):
            return False
        same = counts >= one.times[row]
        for name in names:
            same &= np.isclose(getattr(part, name), getattr(one, name)[row], rtol=_SAME, atol=0.0)
        if not same.any():
            return False
        counts[np.argmax(same)] -= one.times[row]
        return True
