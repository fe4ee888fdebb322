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

import dataclasses
from collections.abc import Sequence
from fractions import Fraction
from numbers import Real
from typing import NamedTuple, Protocol

import numpy as np

from coterie.arguments import MOST
from coterie.errors import InputError
from coterie.privacy.accountants import Account, account
from coterie.privacy.base import key_of
from coterie.privacy.events import Event, Free, Gaussian, flat, merge
from coterie.privacy.filter import BudgetExceeded, Filter, Meter, Rule

__all__ = ["Allowance", "Budget", "BudgetExceeded", "Entry", "Ledger", "MemoryLedger", "Taken", "prove"]

_SAME = 1e-9  # a planned number may be recomputed in another order of operations


class Budget(NamedTuple):
    """(ε, δ) of one agent."""

    epsilon: float
    delta: float

    def check(self) -> None:
        """Raise an `InputError` unless 0 < ε ≤ 10⁶ and 0 ≤ δ < 1."""
        if stray := [x for x in self if isinstance(x, bool | np.bool_) or not isinstance(x, Real)]:
            raise InputError(f"a budget is two numbers, (ε, δ), got {stray[0]!r}")
        if not 0 < self.epsilon <= MOST:
            raise InputError(f"epsilon must be > 0 and at most {MOST:g}, got {self.epsilon}")
        if not 0 <= self.delta < 1:
            raise InputError(f"delta must be in [0, 1), got {self.delta}")


class Entry(NamedTuple):
    """One charge: its round, the event, and the running total in the rule's measure after it."""

    round: int
    event: Event
    total: float


class Ledger(Protocol):
    """What a simulated agent needs of a ledger; a deployed one pays and releases in one step (`coterie.deploy`)."""

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
        budget.check()
        self.budget = budget
        self.closed = False
        self._entries: list[Entry] = []
        self._reserve = reserve
        self._filter = None if rule is None else Filter(*budget, rule, reserve=reserve)
        self._plan = None
        if plan is not None:
            if rule is not None:
                raise InputError("a ledger has a plan or a rule, not both")
            prove(plan, budget)
            self._plan = Allowance(plan, budget.delta)

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
        self._entries.append(Entry(round, event, float(keeper.spent)))

    def spent(self, delta: float | None = None) -> float:
        """ε spent so far at δ: by the filter's own measure, or by the tightest accountant for what a plan has used."""
        if self._filter is not None:
            return self._filter.epsilon(delta)
        if self._plan is None:
            return 0.0
        return account(self._plan.used(), self.budget.delta if delta is None else delta, fast=True).epsilon

    def _first(self, event: Event) -> Filter:
        one = flat(event)
        if self.budget.delta == 0:
            rule: Rule = "pure"
        else:
            rule = "gaussian" if one.mu() is not None else "renyi"
        return Filter(*self.budget, rule, reserve=self._reserve)


def prove(events: Sequence[Event], budget: Budget) -> Account:
    """The total of declared events by the tightest accountant, or `BudgetExceeded` where it does not fit."""
    total = account(events, budget.delta, fast=True)
    if not total.epsilon <= budget.epsilon:
        raise BudgetExceeded(
            f"the plan costs epsilon {total.epsilon:.4g} at delta {budget.delta:g}, budget {budget.epsilon:g}"
        )
    return total


class Taken(NamedTuple):
    """What a charge takes from an `Allowance`: the counts left after it, and the exact total spent after it."""

    left: list[np.ndarray]
    spent: Fraction | float


class _Charge(NamedTuple):
    """One row of a charge: how often, where in the plan it may be taken from, and its numbers for a message."""

    times: int
    places: list[tuple[int, int]]
    values: str


class Allowance:
    """Declared events, counted down as they are charged.

    Every declared row has a price in one additive measure (`meter`), a float and so an exact rational. A charge pays
    the price of the row it takes, hence `spent` ≤ `limit` = Σ times·price holds exactly, whatever the order.
    """

    def __init__(self, events: Sequence[Event], delta: float):
        self.parts = merge(events)
        self.left = [part.times.copy() for part in self.parts]
        gaussian = all(isinstance(part, Gaussian | Free) for part in self.parts)
        self.meter = Meter("pure") if delta == 0 else Meter("gaussian") if gaussian else Meter("renyi", 8.0)
        self._prices = [[_exact(self.meter.cost(_row(part, i))) for i in range(part.times.size)] for part in self.parts]
        self.limit: Fraction | float = sum(
            (int(times) * price
             for part, prices in zip(self.parts, self._prices, strict=True)
             for times, price in zip(part.times, prices, strict=True)),
            Fraction(0),
        )  # fmt: skip
        self.spent: Fraction | float = Fraction(0)
        self._seen: dict[tuple[object, ...] | None, list[_Charge]] = {}

    def price(self, events: Sequence[Event]) -> Taken:
        """What charging all these events would take; raises `BudgetExceeded` if they are not all left in the plan."""
        taken, spent = [counts.copy() for counts in self.left], self.spent
        for event in events:
            for times, places, values in self._rows(event):
                for part, at in places:
                    if taken[part][at] >= times:
                        taken[part][at] -= times
                        price = self._prices[part][at]
                        spent += price if times == 1 else times * price  # exact products are slow, and most are by 1
                        break
                else:
                    raise BudgetExceeded(f"{type(event).__name__} ({values}) is not in the plan, or is used up")
        return Taken(taken, spent)

    def _rows(self, event: Event) -> list[_Charge]:
        """Every distinct row of a charge; looked up where the same event has been charged before."""
        key = key_of(event)
        if key in self._seen:
            return self._seen[key]
        one = flat(event)
        names = [name for name in vars(one) if isinstance(getattr(one, name), np.ndarray) and name != "times"]
        rows = []
        for row in range(one.times.size):
            places = [(i, at) for i, part in enumerate(self.parts) for at in _equal_rows(part, one, row, names)]
            values = ", ".join(f"{name} {getattr(one, name)[row]:.6g}" for name in names)
            rows.append(_Charge(int(one.times[row]), places, values))
        if key is not None and len(self._seen) < 10_000:
            self._seen[key] = rows
        return rows

    def take(self, taken: Taken) -> None:
        """Make what `price` answered the new state."""
        self.left, self.spent = taken

    def spend(self, event: Event) -> None:
        """Take the event from the plan, or raise and change nothing."""
        self.take(self.price([event]))

    @property
    def denominator(self) -> int:
        """The smallest power of two of which every price is a whole fraction; an `InputError` if one is infinite."""
        prices = [price for prices in self._prices for price in prices]
        if not all(isinstance(price, Fraction) for price in prices):
            raise InputError(f"the plan has events without a finite cost in the {self.meter.rule} measure")
        return max((price.denominator for price in prices if isinstance(price, Fraction)), default=1)

    def used(self) -> list[Event]:
        """What has been taken so far, as flat events."""
        pairs = zip(self.parts, self.left, strict=True)
        return [dataclasses.replace(part, times=part.times - left) for part, left in pairs]


def _row(part: Event, row: int) -> Event:
    arrays = {name: value[row] for name, value in vars(part).items() if isinstance(value, np.ndarray)}
    return dataclasses.replace(part, **(arrays | {"times": 1}))


def _exact(price: float) -> Fraction | float:
    return Fraction(price) if np.isfinite(price) else price


def _equal_rows(part: Event, one: Event, row: int, names: Sequence[str]) -> list[int]:
    """The declared rows that equal a charged one."""
    settings = [name for name in vars(one) if name not in names and name != "times"]
    if type(part) is not type(one) or any(getattr(part, name) != getattr(one, name) for name in settings):
        return []
    same = np.ones(part.times.size, bool)
    for name in names:
        same &= np.isclose(getattr(part, name), getattr(one, name)[row], rtol=_SAME, atol=0.0)
    return np.flatnonzero(same).tolist()
