r"""Privacy filters: budgets for events whose parameters depend on what was released before.

A composition theorem speaks of parameters fixed in advance. When a round's noise, width or batch is chosen from the
transcript, the running sum of its announced, public cost may still be used to stop, provided that the *measure* of
cost was fixed before the first release:

- "renyi": Σ D_α at one order α (Feldman, Zrnic 2021, Thm 3.1; Lécuyer 2021);
- "gaussian": Σ μ², exact (Smith, Thakurta 2022; Koskela, Tobaben, Honkela 2023); a pure release enters by the μ that
  dominates it (`gdp.mu_of_pure`);
- "pure": Σ ε (Rogers, Roth, Ullman, Vadhan 2016).

Stopping before the sum passes the limit gives the whole interaction the guarantee of the limit. Picking the best
order, or the best measure, afterwards would not be covered: that is for plans (see `coterie.privacy.ledger`).
"""

from typing import Literal, NamedTuple

import numpy as np

from coterie.errors import InputError
from coterie.privacy import gdp, rdp
from coterie.privacy.events import Event, Free, Gaussian, NonPrivate, check, flat

__all__ = ["BudgetExceeded", "Filter", "Meter", "Rule", "best_order"]

Rule = Literal["renyi", "gaussian", "pure"]


class BudgetExceeded(InputError):
    """A charge was refused; nothing was recorded."""


def _allowed(orders: np.ndarray, epsilon: float, delta: float) -> np.ndarray:
    """The D_α that converts to (ε, δ) at each order."""
    return epsilon - np.log1p(-1 / orders) + (np.log(delta) + np.log(orders)) / (orders - 1)


def best_order(epsilon: float, delta: float) -> float:
    """The whole order α ≤ 256 at which a Gaussian-like curve ρα may be largest within (ε, δ).

    Whole, so that events whose curves hold at integer orders only can be charged.
    """
    orders = np.arange(2.0, 257.0)
    share = _allowed(orders, epsilon, delta) / orders
    if np.max(share) <= 0:
        raise InputError(f"budget too small for a Rényi filter: epsilon {epsilon:g} at delta {delta:g}")
    return float(orders[np.argmax(share)])


class Meter(NamedTuple):
    """A measure of cost that adds over rounds: Σ D_α at one order, Σ μ², or Σ ε."""

    rule: Rule
    order: float = np.nan

    def cost(self, event: Event) -> float:
        """The event's cost in this measure; ∞ where the measure does not cover it."""
        if self.rule == "gaussian" and isinstance(event, Gaussian):  # the everyday charge: no need to sort it into rows
            check(event)
            times = np.asarray(event.times)
            return float(np.sum(times * np.where(times > 0, Gaussian.mu(event), 0.0) ** 2))
        one = flat(event)
        if isinstance(one, Free) or not one.times.size:
            return 0.0
        if isinstance(one, NonPrivate):
            return np.inf
        if self.rule == "pure":
            return float(one.times @ one.pure())
        if self.rule == "gaussian":
            mu = one.mu()
            return float(one.times @ (gdp.mu_of_pure(one.pure()) if mu is None else mu) ** 2)
        if one.integer_orders and self.order != int(self.order):
            return np.inf
        return float(one.times @ one.rdp(np.array([self.order]))[:, 0])

    def epsilon(self, total: float, delta: float) -> float:
        """ε at δ of a total in this measure."""
        if self.rule == "pure" or total == 0:
            return total
        if not delta > 0 or not np.isfinite(total):
            return np.inf
        if self.rule == "gaussian":
            return float(gdp.epsilon_of(np.sqrt(total), delta))
        return float(rdp.epsilon_from([self.order], [total], delta)[0])


class Filter:
    """A running total in one measure, with a limit that stands for (ε, δ).

    `order`: the Rényi order (`best_order` if not given). `reserve`: the part of δ kept for events that add to δ
    themselves (`slack`, and (1 + e^ε)·`tv` for samplers); such an event is refused once the reserve is used up.

    >>> from coterie.privacy.events import Gaussian
    >>> budget, event = Filter(1.0, 1e-5, "gaussian"), Gaussian(1.0, 10.0)
    >>> while not budget.would_exceed(event):
    ...     budget.spend(event)
    >>> budget.epsilon() <= 1.0
    True
    """

    def __init__(
        self, epsilon: float, delta: float, rule: Rule = "renyi", *, order: float | None = None, reserve: float = 0.0
    ):
        if not (epsilon > 0 and np.isfinite(epsilon)):
            raise InputError(f"epsilon must be > 0 and finite, got {epsilon}")
        if not 0 <= reserve <= delta < 1 or (rule != "pure" and reserve == delta):
            raise InputError(f"delta must be in (0, 1) and above the reserve {reserve:g}, got {delta}")
        self.delta, self.reserve = delta - reserve, reserve
        self.spent, self.slack = 0.0, 0.0
        self.adjacency: str | None = None
        self._tv_price = 1 + float(np.exp(min(epsilon, 700.0)))
        if rule == "pure":
            self.meter, self.limit = Meter(rule), epsilon
        elif rule == "gaussian":
            self.meter, self.limit = Meter(rule), float(gdp.mu_for(epsilon, self.delta)) ** 2
        elif rule == "renyi":
            self.meter = Meter(rule, best_order(epsilon, self.delta) if order is None else float(order))
            if not 1 < self.meter.order < np.inf:
                raise InputError(f"order must be > 1 and finite, got {order}")
            self.limit = float(_allowed(np.array([self.meter.order]), epsilon, self.delta)[0])
            if self.limit <= 0:
                raise InputError(f"order {order} leaves nothing of epsilon {epsilon:g} at delta {self.delta:g}")
        else:
            raise InputError(f"rule must be renyi, gaussian or pure, got {rule!r}")

    def would_exceed(self, event: Event) -> bool:
        """Whether charging the event would pass the limit."""
        return not self._fits(self.meter.cost(event), self.added(event))

    def spend(self, event: Event) -> None:
        """Charge the event, or raise `BudgetExceeded` and change nothing."""
        cost, added = self.meter.cost(event), self.added(event)
        if not isinstance(event, Free | NonPrivate) and self.adjacency not in (None, event.adjacency):
            raise InputError(f"cannot add events of different adjacency: {self.adjacency}, {event.adjacency}")
        if not self._fits(cost, added):
            raise BudgetExceeded(self.refusal(event, cost, added))
        if not isinstance(event, Free):
            self.adjacency = event.adjacency
        self.spent += cost
        self.slack += added

    def epsilon(self, delta: float | None = None) -> float:
        """What has been spent, as ε at δ (default: the δ of the budget)."""
        return self.meter.epsilon(self.spent, (self.delta + self.reserve if delta is None else delta) - self.slack)

    def refusal(self, event: Event, cost: float, added: float) -> str:
        """Why the event does not fit, and what is left."""
        name = type(event).__name__
        if not np.isfinite(cost):
            return f"{name} has no finite cost under the {self.meter.rule} rule"
        if self.slack + added > self.reserve:
            return f"{name} adds {added:.3g} to delta, {self.reserve - self.slack:.3g} left in reserve"
        now, then = (self.meter.epsilon(total, self.delta) for total in (self.spent, self.spent + cost))
        limit = self.meter.epsilon(self.limit, self.delta)
        return f"{name} would raise epsilon from {now:.4g} to {then:.4g}, budget {limit:.4g} at delta {self.delta:.3g}"

    def added(self, event: Event) -> float:
        """δ added by the event itself."""
        times, slack, tv = (np.asarray(x, float) for x in (event.times, event.slack, event.tv))
        return float(np.sum(times * (slack + self._tv_price * tv)))

    def _fits(self, cost: float, added: float) -> bool:
        return self.spent + cost <= self.limit and self.slack + added <= self.reserve
