"""Whom an ε is for: a record, a person with all of its records at a party, a person whom two parties know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from coterie.algorithms.batches import rows
from coterie.exchange.central import own_events, shared_events
from coterie.experiment import Experiment, Priced
from coterie.plan import Plan
from coterie.privacy.events import Event
from coterie.privacy.people import at_parties, of_group

__all__ = ["at_home", "home_words", "unit_block", "unit_words", "units_of"]

RECORDS = (2, 5, 10, 40)  # of one person at one party, where the unit is a record


def unit_block(plan: Plan, priced: Priced) -> dict[str, Any]:
    """ε of the plan's budget for a record, for a person, and for a person at the two parties that pay most.

    Where the unit is a record, a person may have any number of them, and nothing is said of it but `of_records`: ε of a
    person with so many at one party, by the law of the noise. None: no bound.
    """
    assert plan.privacy is not None
    first = priced.claims[0]
    each, epsilon = _events(priced), float(first.account.epsilon)
    return units_of(each, epsilon, plan.privacy.delta, by_person=plan.by_person, summed=not first.local)


def units_of(
    each: Sequence[Sequence[Event]], epsilon: float, delta: float, *, by_person: bool, summed: bool
) -> dict[str, Any]:
    """The same from what the claim charges the party that pays most, and the one after it; `summed`: opened sums."""
    two = of_group(each[0], 2, delta) if summed or len(each) == 1 else at_parties(each, delta)
    finite = lambda x: float(x) if np.isfinite(x) else None  # noqa: E731
    found: dict[str, Any] = {"unit": "person" if by_person else "record", "record": finite(epsilon)}
    if by_person:
        return found | {"person": finite(epsilon), "person_at_two_parties": finite(two), "of_records": {}}
    many = {str(k): finite(of_group(each[0], k, delta, lawful=True)) for k in RECORDS}
    return found | {"person": None, "person_at_two_parties": None, "of_records": many}


def _events(priced: Priced) -> list[list[Event]]:
    """What the budget's claim charges the party that pays most, and the one after it; of opened sums, all alike."""
    if priced.for_sums:
        assert priced.terms is not None
        return [[shared_events(priced.algorithm, priced.cfg, priced.places, priced.terms)[0]]]
    assert priced.spending is not None
    most = np.argsort(-priced.spending.per_agent, kind="stable")[:2]
    return [own_events(priced.algorithm, priced.cfg, rows(priced.places, int(i)), terms=priced.terms) for i in most]


def unit_words(block: dict[str, Any], delta: float) -> str:
    """The block in one line.

    >>> unit_words({"unit": "person", "person_at_two_parties": 1.43}, 1e-5)
    'a person whom two parties know: ε = 1.43 at δ = 1e-05'
    """
    if block["unit"] == "person":
        two = block["person_at_two_parties"]
        return f"a person whom two parties know: ε = {'∞' if two is None else f'{two:.4g}'} at δ = {delta:g}"
    many = ", ".join(f"{k}: {'∞' if e is None else f'{e:.3g}'}" for k, e in block["of_records"].items())
    return f"a person with several records at one party: ε = {many}, by their number, at δ = {delta:g}"


def at_home(experiment: Experiment, priced: Priced) -> dict[str, Any] | None:
    """ε of the person with the most records at a party, where records are the unit and it is known whose they are.

    That number was read from the records: it is for whoever holds them, and no release.
    """
    plan, people, store = experiment.plan, experiment.whose, experiment.network.store
    if plan.privacy is None or priced.spending is None or plan.by_person:
        return None
    if store is not None and store.people is not None:
        most = store.most
    elif people is not None:
        most = max(int(np.unique(people[part], return_counts=True)[1].max()) for part in experiment.parts)
    else:
        return None
    epsilon = of_group(_events(priced)[0], most, plan.privacy.delta, lawful=True)
    return {"most_records": most, "epsilon": float(epsilon) if np.isfinite(epsilon) else None}


def home_words(home: dict[str, Any]) -> str:
    """The same in one line."""
    epsilon = "∞" if home["epsilon"] is None else f"{home['epsilon']:.4g}"
    return (
        f"at home only, since it was counted in the records: the person with the most of them, {home['most_records']} "
        f"at one party, has ε = {epsilon}; data.unit = 'person' protects people instead"
    )
