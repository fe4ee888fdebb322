"""ε of the person with the most records at a party: counted in the records, and for whoever holds them alone."""

from __future__ import annotations

from typing import TypedDict

import numpy as np

from coterie.experiment import Experiment
from coterie.explain import paying
from coterie.pricing import Priced
from coterie.privacy.people import of_group

__all__ = ["Home", "at_home", "home_words"]


class Home(TypedDict):
    """The part `at_home` of result.json."""

    most_records: int
    epsilon: float | None


def at_home(experiment: Experiment, priced: Priced) -> Home | None:
    """ε of the person with the most records at a party, where records are the unit and it is known whose they are.

    That number was read from the records: it is for whoever holds them, and no release.
    """
    plan, people, store = experiment.plan, experiment.whose, experiment.network.store
    if plan.privacy is None or priced.spending is None or plan.by_person:
        return None
    if store is not None and store.people is not None:
        most = store.most
    elif people is not None:
        most = max(int(np.unique(people[np.asarray(part)], return_counts=True)[1].max()) for part in experiment.parts)
    else:
        return None
    epsilon = max(of_group(events, most, plan.privacy.delta, lawful=True) for events in paying(priced))
    return {"most_records": most, "epsilon": float(epsilon) if np.isfinite(epsilon) else None}


def home_words(home: Home) -> str:
    """The same in one line."""
    epsilon = "∞" if home["epsilon"] is None else f"{home['epsilon']:.4g}"
    return (
        f"at home only, since it was counted in the records: the person with the most of them, {home['most_records']} "
        f"at one party, has ε = {epsilon}; data.unit = 'person' protects people instead"
    )
