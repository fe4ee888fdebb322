r"""How fair decisions are: risk difference, disparate impact, equalized-odds gap, accuracy of each group.

All are functions of the counts N[g, y, ŷ] of protected group, label and decision, so a private release of the metrics
is one noisy table: replacing a record moves it by √2 (L2) or 2 (L1), and everything computed from it is free. Metrics
of exact counts say too much to leave the party that holds the data: they come marked `evaluation_only`.

A metric that needs a rate of an empty group is NaN, not 0: nothing was measured. A classifier that never says yes has
risk difference 0, so `positive_rate` and `accuracy` belong beside it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coterie.errors import InputError
from coterie.fair.noise import Charge, Law, Noise, laplace_multiplier, total
from coterie.privacy.accountants import Account
from coterie.privacy.calibration import calibrate
from coterie.privacy.events import Event, NonPrivate

__all__ = ["FairnessReport", "counts", "disparate_impact", "equalized_odds_gap", "evaluate", "private_metrics",
           "report_of", "risk_difference"]  # fmt: skip


@dataclass(frozen=True)
class FairnessReport:
    """Metrics with their price. `evaluation_only`: computed from exact counts; keep it where the records are."""

    accuracy: float
    positive_rate: float
    risk_difference: float
    disparate_impact: float
    equalized_odds_gap: float
    group_accuracy: tuple[float, ...]
    evaluation_only: bool
    events: tuple[Event, ...]
    account: Account | None = None


def counts(
    labels: ArrayLike, decisions: ArrayLike, groups: ArrayLike, number: int | None = None
) -> NDArray[np.float64]:
    """N[g, y, ŷ] for labels and decisions in {0, 1} and groups 0 … number − 1 (default: as many as occur)."""
    y, hat, g = (np.asarray(a).astype(int) for a in (labels, decisions, groups))
    if not y.shape == hat.shape == g.shape or y.ndim != 1:
        raise InputError(f"labels, decisions and groups must be as long: got {y.shape}, {hat.shape} and {g.shape}")
    if not (np.isin(y, (0, 1)).all() and np.isin(hat, (0, 1)).all()):
        raise InputError("labels and decisions must be 0 or 1")
    size = number if number is not None else int(g.max(initial=1)) + 1
    if g.size and (g.min() < 0 or g.max() >= size):
        raise InputError(f"groups must be numbers 0 … {size - 1}")
    return np.bincount(4 * g + 2 * y + hat, minlength=4 * size).reshape(size, 2, 2).astype(float)


def _rate(top: NDArray, bottom: NDArray) -> NDArray[np.float64]:
    """top/bottom, NaN where nothing was counted; noisy counts may be negative, a rate may not."""
    safe = np.where(bottom > 0, bottom, 1.0)
    return np.where(bottom > 0, np.clip(top / safe, 0.0, 1.0), np.nan)


def _spread(rates: NDArray) -> float:
    return float(np.max(rates) - np.min(rates)) if not np.isnan(rates).any() else float("nan")


def report_of(table: NDArray, *, evaluation_only: bool = True, events: tuple[Event, ...] = (NonPrivate(),),
              spent: Account | None = None) -> FairnessReport:  # fmt: skip
    """Every metric of a table of counts N[g, y, ŷ]."""
    selected = _rate(table[:, :, 1].sum(1), table.sum((1, 2)))
    given = _rate(table[:, :, 1], table.sum(2))  # P(ŷ = 1 | g, y)
    whole = np.array(table.sum())
    low, high = np.min(selected), np.max(selected)  # NaN passes through
    return FairnessReport(
        accuracy=float(_rate(table[:, 0, 0].sum() + table[:, 1, 1].sum(), whole)),
        positive_rate=float(_rate(table[:, :, 1].sum(), whole)),
        risk_difference=_spread(selected),
        disparate_impact=float(low / high) if high > 0 else float("nan"),
        equalized_odds_gap=float(np.max([_spread(given[:, 0]), _spread(given[:, 1])])),
        group_accuracy=tuple(_rate(table[:, 0, 0] + table[:, 1, 1], table.sum((1, 2))).tolist()),
        evaluation_only=evaluation_only,
        events=events,
        account=spent,
    )


def evaluate(labels: ArrayLike, decisions: ArrayLike, groups: ArrayLike, number: int | None = None) -> FairnessReport:
    """Exact metrics, for evaluation only: handing them out is a release that nobody paid for.

    >>> evaluate([0, 1, 0, 1], [0, 1, 1, 1], [0, 0, 1, 1]).risk_difference
    0.5
    """
    return report_of(counts(labels, decisions, groups, number))


def private_metrics(
    labels: ArrayLike, decisions: ArrayLike, groups: ArrayLike, number: int, *, epsilon: float, delta: float = 0.0,
    noise: Noise, charge: Charge | None = None,
) -> FairnessReport:  # fmt: skip
    """Metrics of a noisy table of counts; δ = 0 asks for Laplace noise and pure ε. `number` of groups is public.

    `charge` hears the events before anything is released, and may refuse.
    """
    if not (epsilon > 0 and np.isfinite(epsilon)):
        raise InputError(f"epsilon must be > 0 and finite, got {epsilon}")
    law: Law = "gaussian" if delta > 0 else "laplace"
    table = counts(labels, decisions, groups, number)
    cost = lambda z: [noise.event(z, table.size, law)]  # noqa: E731
    z = laplace_multiplier(epsilon, [table.size], noise) if law == "laplace" else calibrate(cost, epsilon, delta)
    if charge is not None:
        charge(cost(z))
    sensitivity = np.sqrt(2.0) if law == "gaussian" else 2.0
    noisy = noise.add(table, np.array(z * sensitivity), law)
    spent = total(cost(z), law, delta)
    return report_of(noisy, evaluation_only=False, events=tuple(cost(z)), spent=spent)


def risk_difference(decisions: ArrayLike, groups: ArrayLike, number: int | None = None) -> float:
    """max − min over groups of P(ŷ = 1 | group) (demographic parity difference)."""
    return evaluate(np.zeros(np.shape(decisions), int), decisions, groups, number).risk_difference


def disparate_impact(decisions: ArrayLike, groups: ArrayLike, number: int | None = None) -> float:
    """min/max over groups of P(ŷ = 1 | group) (demographic parity ratio); NaN if nobody is selected."""
    return evaluate(np.zeros(np.shape(decisions), int), decisions, groups, number).disparate_impact


def equalized_odds_gap(labels: ArrayLike, decisions: ArrayLike, groups: ArrayLike, number: int | None = None) -> float:
    """The larger of the gaps in P(ŷ = 1 | y = 1, group) and P(ŷ = 1 | y = 0, group)."""
    return evaluate(labels, decisions, groups, number).equalized_odds_gap
