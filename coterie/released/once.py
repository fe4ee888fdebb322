"""One noisy sum over records that are at hand: priced, charged, and simulated, as a plan's own run would be.

`release_once` is the only way in which scores and statistics get numbers from records, so what they cost is charged in
one place: `charge` hears of the events after they are priced and before a record is used, and may refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coterie.data import Origins
from coterie.drivers.budget import run_events
from coterie.errors import InputError
from coterie.exchange.central import shared_events
from coterie.experiment import Priced, assemble, price
from coterie.network import Network
from coterie.plan import AlgorithmPlan, Plan, PrivacyPlan, ProblemPlan, RunPlan
from coterie.privacy.events import Event
from coterie.problems.released import Released

__all__ = ["Charge", "Once", "events_of", "release_once", "release_plan"]

Charge = Callable[[Sequence[Event], float], None]
"""Hears the events of one release and its δ, before a record is used; raises where they cannot be paid."""


@dataclass(frozen=True, eq=False)
class Once:
    """What was released, and what it cost."""

    point: NDArray[np.float64]
    priced: Priced

    @property
    def noise(self) -> float:
        """Standard deviation of the noise on every number."""
        return float(self.point[-1])


def release_plan(plan: Plan, loss: str, *, epsilon: float | None = None, delta: float | None = None) -> Plan:
    """The plan of a release between the same parties with the same exchange, by default at the same budget.

    Everybody is in it: a plan that lets parties be missing from sums does not do so here.
    """
    if plan.privacy is None:
        raise InputError("a release needs a budget: the plan has no [privacy] table")
    if getattr(plan.data, "unit", None) == "person":  # counts of records: a person with several would move several
        raise InputError(f"{loss} are counted by record: data.unit = 'person' is not covered by them")
    known = plan.privacy.epsilon
    budget = PrivacyPlan(
        epsilon=(min(known) if isinstance(known, list) else known) if epsilon is None else epsilon,
        delta=plan.privacy.delta if delta is None else delta,
    )
    exchange = plan.exchange
    if exchange.sums is not None:
        given = {key: value for key, value in (exchange.model_extra or {}).items() if key not in ("threshold", "away")}
        exchange = type(exchange)(kind=exchange.kind, **given)
    return plan.model_copy(
        update={
            "problem": ProblemPlan(loss=loss, ridge=0.0, weighting="records"),
            "algorithm": AlgorithmPlan(name="release"),
            "privacy": budget,
            "exchange": exchange,
            "run": RunPlan(seed=plan.run.seed),
            "deploy": None,
        }
    )


def events_of(priced: Priced) -> list[Event]:
    """What one record pays, against the adversary that the budget is for: at the party where it is most."""
    if priced.for_sums:
        assert priced.terms is not None
        return [shared_events(priced.algorithm, priced.cfg, priced.places, priced.terms)[0]]
    from coterie.algorithms.batches import rows

    assert priced.spending is not None
    worst = int(np.argmax(priced.spending.per_agent))
    return run_events(priced.algorithm, priced.cfg, rows(priced.places, worst))


def release_once(
    plan: Plan, problem: Released, features: NDArray, targets: NDArray, parts: Sequence[NDArray], *,
    names: Sequence[str], origins: Origins, seed: int, charge: Charge | None = None,
) -> Once:  # fmt: skip
    """Release a problem's means over the records `parts[i]` of every party i, by a plan of `release_plan`."""
    if empty := [name for name, part in zip(names, parts, strict=True) if not len(part)]:
        raise InputError(f"{empty[0]} has no records to release: every party needs at least one")
    sizes = np.array([len(part) for part in parts])
    network = Network.of(plan, problem, sizes, names, leaks=origins.leaks)
    priced = price(plan, network)
    assert plan.privacy is not None
    if charge is not None:
        charge(events_of(priced), plan.privacy.delta)
    rows, labels = problem.admit(np.asarray(features, float), np.asarray(targets))
    experiment = assemble(plan, problem, rows, labels, list(parts), names=names, origins=origins)
    trace = experiment.run(priced, [seed])
    return Once(np.asarray(trace.points[0, 0], float), priced)
