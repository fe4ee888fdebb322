r"""What a data set may cost for as long as it is kept: the rules of its account, and the price of one draw on it.

An agreement, a fit or a statistic draws its whole cost before its first release. What is drawn next depends on what
earlier draws have shown, so the draws compose *fully adaptively*: their number, their kinds and their noise may be
chosen by somebody who has read everything so far. A composition theorem for parameters fixed in advance does not cover
that, and neither does a privacy-loss distribution of such a sum. A **filter** does, in one measure that is fixed before
the first draw (`coterie.privacy.filter`, with the papers):

- "gaussian" (the default): Σ μ². Exact, and loses nothing, where every draw has Gaussian noise;
- "renyi": Σ D_α at the one order α that the budget fixes. Takes every event that has a Rényi curve, sampled batches and
  objective perturbation among them, and costs Gaussian draws about a tenth of ε;
- "pure": Σ ε, for δ = 0.

Within a draw the events are fixed in advance, and the measure of a fixed sum is the sum of the measures. That draws may
run at the same time changes nothing: every release is a mechanism whose numbers are fixed when it happens, and the sum
over all that were ever promised stays below the limit. An agreement that ended for good has promised no more than it
has sent, so what it left over may be drawn again.

**Units.** An account is for records or for people, under one adjacency. A draw priced for another adjacency is refused.
A draw priced per record enters an account of people only where the account states that nobody has more than k records
in the data: μ-GDP for one record is kμ-GDP for k of them (Dong, Roth, Su 2022, Thm 2.14), pure ε is kε; under a Rényi
curve the factor grows with the order, and such a draw is refused. The numbers of records are public in such a draw, so
the claim is then for a person whose records are changed, not for one who gains or loses some. A draw priced per person
is refused by an account of records: a record that passes from one person to another changes two people.

Totals are whole numbers of 2^-96 (of δ, 2^-256): prices are rounded up to them, limits down, sums are exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import cache
from typing import Literal, NamedTuple, get_args

import numpy as np

from coterie.errors import InputError
from coterie.privacy.events import Event, Free, NonPrivate
from coterie.privacy.filter import BudgetExceeded, Filter, Rule
from coterie.privacy.ledger import Budget

__all__ = ["AGAINST", "Against", "DrawCost", "Lifetime", "Unit"]

Unit = Literal["record", "person"]
Against = Literal["agreed", "everybody"]
AGAINST: dict[Against, str] = {
    "agreed": "whoever a draw's own claim names: a reader of all messages; with shared noise, who may collude in it",
    "everybody": "a reader of all messages, and all other parties together",
}
ADJACENCIES = ("replace-one", "add-remove", "zero-out")
_BITS, _SLACK_BITS = 96, 256
_RESERVE = 0.01  # of δ


@cache
def _filter_of(budget: Budget, measure: Rule, reserve: float | None) -> Filter:
    """Its limit and its prices; nothing is spent from it here."""
    return Filter(*budget, measure, reserve=_RESERVE * budget.delta if reserve is None else reserve)


class DrawCost(NamedTuple):
    """What a draw costs: whole numbers of 2^-96 in the account's measure, and of 2^-256 of δ."""

    units: int = 0
    slack: int = 0

    def __add__(self, other: DrawCost) -> DrawCost:  # type: ignore[override]
        return DrawCost(self.units + other.units, self.slack + other.slack)


class Lifetime(NamedTuple):
    """The rules of an account; fixed before its first draw, for good.

    Attributes:
        budget: (ε, δ) for the life of the data.
        measure: in which draws are added up.
        unit: whose budget it is.
        most: records that one person has at most, if draws per record may enter an account of people.
        adjacency: what neighbouring data sets are.
        against: whom the total holds against.
        reserve: the part of δ for events that add to δ themselves; None: a hundredth.

    >>> from coterie.privacy.events import Gaussian
    >>> rules = Lifetime(Budget(1.0, 1e-5))
    >>> once = rules.price([Gaussian(1.0, 8.0)])
    >>> round(rules.epsilon(once), 4), round(rules.epsilon(once + once), 4), round(rules.left(once), 4)
    (0.4344, 0.634, 0.8734)
    """

    budget: Budget
    measure: Rule = "gaussian"
    unit: Unit = "record"
    most: int | None = None
    adjacency: str = "replace-one"
    against: Against = "agreed"
    reserve: float | None = None

    def check(self) -> Lifetime:
        """These rules, if they make sense."""
        self.budget.check()
        for name, value, known in (
            ("unit", self.unit, get_args(Unit)), ("measure", self.measure, get_args(Rule)),
            ("against", self.against, tuple(AGAINST)), ("adjacency", self.adjacency, ADJACENCIES),
        ):  # fmt: skip
            if value not in known:
                raise InputError(f"{name} must be one of {', '.join(known)}, got {value!r}")
        if (self.measure == "pure") != (self.budget.delta == 0):
            raise InputError(
                f"delta = 0 goes with the pure measure and no other, got {self.measure}, {self.budget.delta:g}"
            )
        if self.most is not None and (self.unit != "person" or self.most < 1):
            raise InputError(f"most is the largest number of records of a person, from 1 up, got {self.most}")
        if self.most is not None and self.measure == "renyi":
            raise InputError(
                "most: under a Rényi curve a person with k records has no price of k; measure gaussian has"
            )
        _ = self._filter
        return self

    @property
    def _filter(self) -> Filter:
        return _filter_of(self.budget, self.measure, self.reserve)

    @property
    def limit(self) -> DrawCost:
        """What all draws together may cost."""
        found = self._filter
        return DrawCost(
            math.floor(Fraction(found.limit) * 2**_BITS), math.floor(Fraction(found.reserve) * 2**_SLACK_BITS)
        )

    def price(self, events: Iterable[Event], unit: Unit = "record") -> DrawCost:
        """What these events cost, priced for one such unit; an InputError where this account cannot take them."""
        rule, group, exact, added = self._filter, self._group(unit), Fraction(0), Fraction(0)
        for event in events:
            if isinstance(event, Free):
                continue
            name = type(event).__name__
            if isinstance(event, NonPrivate):
                raise InputError("the draw holds a release without noise: no account can pay for it")
            if event.adjacency != self.adjacency:
                raise InputError(
                    f"{name} is priced for {event.adjacency}, and the account is for {self.adjacency}: they do not add"
                )
            cost, more = rule.meter.cost(event), rule.added(event)
            if not math.isfinite(cost):
                other = "renyi takes more kinds" if self.measure == "gaussian" else "no smaller sum is known"
                raise InputError(f"{name} has no finite cost in the {self.measure} measure of the account: {other}")
            if group > 1 and np.any(np.asarray(event.slack) * np.asarray(event.times) > 0):
                raise InputError(f"{name} adds to δ by record: for a person with {group} records no price is known")
            exact += Fraction(cost) * (group**2 if self.measure == "gaussian" else group)
            added += Fraction(more)
        return DrawCost(math.ceil(exact * 2**_BITS), math.ceil(added * 2**_SLACK_BITS))

    def _group(self, unit: Unit) -> int:
        """How many records of a draw's unit one unit of the account is."""
        if unit == self.unit:
            return 1
        if unit == "record" and self.most is not None:
            return self.most
        if unit == "record":
            raise InputError(
                "the draw is priced per record, and the account is for people: give it the largest number of records "
                "of a person when it is opened, or price the draw per person"
            )
        raise InputError("the draw is priced per person, and the account is for records: they do not add")

    def need(self, spent: DrawCost, draw: DrawCost, limit: DrawCost) -> None:
        """Refuse a draw that does not fit: `BudgetExceeded`, in one line. `limit` is that of the day it was opened."""
        after = spent + draw
        if after.units > limit.units:
            raise BudgetExceeded(
                f"out of budget: the draw costs ε {self.epsilon(draw):.4g} here and would raise what is spent from "
                f"{self.epsilon(spent):.4g} to {self.epsilon(after):.4g} of {self.budget.epsilon:g} at δ "
                f"{self.budget.delta:g}; a draw of at most {self.left(spent):.4g} fits"
            )
        if after.slack > limit.slack:
            raise BudgetExceeded(
                f"out of budget: the draw adds {draw.slack / 2**_SLACK_BITS:.3g} to δ by itself, and "
                f"{(limit.slack - spent.slack) / 2**_SLACK_BITS:.3g} is left of what the account keeps for that"
            )

    def epsilon(self, spent: DrawCost) -> float:
        """ε at the account's δ."""
        return self._filter.meter.epsilon(spent.units / 2**_BITS, self.budget.delta - spent.slack / 2**_SLACK_BITS)

    def left(self, spent: DrawCost) -> float:
        """ε of the largest single draw that still fits, at the account's δ; with "gaussian" not the difference."""
        rest = self.limit.units - spent.units
        return self._filter.meter.epsilon(rest / 2**_BITS, self.budget.delta) if rest > 0 else 0.0

    def dearest(self, several: Sequence[Sequence[Event]], unit: Unit = "record") -> Sequence[Event]:
        """Of several parties' events, those that cost most: a record is at one party, so its price is everybody's."""
        return max(several, key=lambda events: self.price(events, unit))
