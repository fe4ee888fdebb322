"""One noisy sum over records that are at hand: priced, charged, and simulated, as a plan's own run would be.

`release_once` is the only way in which scores and statistics get numbers from records, so what they cost is charged in
one place: `charge` hears of the events after they are priced and before a record is used, and may refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from coterie.data import Origins
from coterie.data.planned import sizes_of
from coterie.deploy.accounts import DataAccount, unit_of
from coterie.drivers.budget import run_events
from coterie.errors import InputError
from coterie.exchange.central import shared_events
from coterie.experiment import assemble
from coterie.network import Network
from coterie.plan import Plan
from coterie.pricing import Priced, price
from coterie.privacy.events import Event
from coterie.privacy.lifetime import Unit
from coterie.problems import of_people
from coterie.problems.people import numbered_people
from coterie.problems.released import Released
from coterie.tables.algorithm import AlgorithmPlan
from coterie.tables.privacy import PrivacyPlan
from coterie.tables.problem import ProblemPlan
from coterie.tables.run import RunPlan

__all__ = ["Charge", "Once", "charged_to", "events_of", "release_once", "release_plan"]

Charge = Callable[[Sequence[Event], float], None]
"""Hears the events of one release and its δ, before a record is used; raises where they cannot be paid."""


@dataclass(frozen=True, eq=False)
class Once:
    """What was released, and what it cost."""

    point: NDArray[np.float64]
    priced: Priced
    unit: Unit = "record"  # that it is paid for

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


def charged_to(account: DataAccount, plan: Plan, what: str, data: object, people: object = None) -> Charge:
    """What draws a release from an account of the records `data`, before one of them is used."""
    if plan.exchange.central and account.contents().rules.against == "everybody":
        raise InputError(
            f"account {account.path} holds against everybody, and noise that parties share does not: leave out "
            "exchange.noise = 'central' (honest)"
        )
    return account.pays(what, data, unit=unit_of(plan), people=people)


def events_of(priced: Priced, *, everywhere: bool = False) -> list[Event]:
    """What one record pays, against the adversary that the budget is for: at the party where it is most.

    `everywhere`: what a person pays whom all parties may know: at each of them; in an opened sum it moves one number by
    what it moves at all of them.
    """
    if priced.for_sums:
        assert priced.terms is not None
        event = shared_events(priced.algorithm, priced.cfg, priced.places, priced.terms)[0]
        many = priced.places.agents if everywhere else 1
        return [replace(event, sensitivity=many * np.asarray(event.sensitivity))]
    from coterie.algorithms.batches import rows

    assert priced.spending is not None
    worst = int(np.argmax(priced.spending.per_agent))
    paying = range(priced.places.agents) if everywhere else [worst]
    return [event for i in paying for event in run_events(priced.algorithm, priced.cfg, rows(priced.places, i))]


def release_once(
    plan: Plan, problem: Released, features: NDArray, targets: NDArray, parts: Sequence[NDArray], *,
    names: Sequence[str], origins: Origins, seed: int, charge: Charge | None = None, people: NDArray | None = None,
    apart: bool = False,
) -> Once:  # fmt: skip
    """Release a problem's means over the records `parts[i]` of every party i, by a plan of `release_plan`.

    Where the plan's unit is a person, `people` says whose each record is, and means are over people, each of whom
    counts once with the mean of its own records: a person is a record then. It may be known to all parties, and pays at
    each; `apart`: all of its records were dealt to one.
    """
    if empty := [name for name, part in zip(names, parts, strict=True) if not len(part)]:
        raise InputError(f"{empty[0]} has no records to release: every party needs at least one")
    if plan.by_person:
        problem = of_people(problem)
        if people is None:
            raise InputError("data.unit = 'person', but it is not known whose these records are")
    sizes = np.array(sizes_of(parts, people))
    network = Network.of(plan, problem, sizes, names, leaks=origins.leaks)
    priced = price(plan, network)
    assert plan.privacy is not None
    if charge is not None:
        charge(events_of(priced, everywhere=plan.by_person and not apart), plan.privacy.delta)
    whose = None
    if people is not None:  # a person at two parties is two people: each party has its own part of it
        whose = numbered_people(people)
        for k, part in enumerate(parts):
            whose[part] += k * len(people)
    rows, labels = problem.admit(np.asarray(features, float), np.asarray(targets))
    experiment = assemble(plan, problem, rows, labels, list(parts), names=names, origins=origins, people=whose)
    trace = experiment.run(priced, [seed])
    return Once(np.asarray(trace.points[0, 0], float), priced, "person" if plan.by_person else "record")
