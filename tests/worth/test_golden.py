"""Five cases of which it was worked out without coterie who gains: the sentence must say so. Needs the real data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from coterie.data import Dataset, load, make_clinics
from coterie.data.dataset import ALL_PUBLIC
from coterie.drivers.simulate import Test
from coterie.experiment import assemble
from coterie.losses.logistic import Logistic
from coterie.plan import validate
from coterie.pricing import price
from coterie.worth.judge import JUDGED, judge
from coterie.worth.splits import combine
from coterie.worth.verdict import sentence
from tests.worth.independent import Descent, Part, mean_gain

pytestmark = pytest.mark.slow
SPLITS, DRAWS = 6, 5  # of the records, and of the noise on each: one draw decides nothing
SPECIALTIES = ("InternalMedicine", "Emergency/Trauma", "Family/GeneralPractice", "Cardiology", "Surgery-General")


@dataclass(frozen=True)
class Case:
    """Who holds what, and what must be said."""

    make: Callable[[], Dataset]
    measure: str
    test: float
    delta: float
    words: tuple[str, ...]  # none: the verdict must be that of the independent computation, whatever it is
    parties: int | None = None  # dealt; None: by site
    records: int | None = None
    splits: int = SPLITS


def diabetes(**options: Any) -> Dataset:
    """Early readmission, five specialties."""
    whole = load("diabetes", target="early", encounters="all", site="medical_specialty", **options)
    assert whole.sites is not None
    codes = [whole.site_names.index(name) for name in SPECIALTIES]
    rows = np.flatnonzero(np.isin(whole.sites, codes))
    few = whole.take(rows)
    number = {code: k for k, code in enumerate(codes)}
    return Dataset(
        "diabetes", few.features, few.targets, few.classes, few.feature_names, people=few.people,
        sites=np.array([number[s] for s in whole.sites[rows]]), site_names=SPECIALTIES, origins=ALL_PUBLIC,
    )  # fmt: skip


CASES = {
    "clinics": Case(make_clinics, "accuracy", 0.2, 1e-5, ("Cannot tell", "Nobody is seen to gain")),
    "heart": Case(lambda: load("heart"), "accuracy", 0.25, 1e-5, ("Joining does not pay", "Nobody is seen to gain")),
    "diabetes": Case(diabetes, "auc", 0.2, 1e-5, ("Joining does not pay", "Nobody is seen to gain")),
    "adult, 5 × 8,000": Case(lambda: load("adult", money="log"), "auc", 0.1, 1e-4, (), 5, 8000),
    "adult, 100 × 400": Case(lambda: load("adult", money="log"), "auc", 0.1, 1e-4, (), 100, 400, 15),
}


def dealt(case: Case, data: Dataset, number: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Training and test rows of every party, by person where there are people."""
    rng = np.random.default_rng([3, number])
    people = np.arange(len(data)) if data.people is None else np.unique(data.people, return_inverse=True)[1]
    held = (rng.permutation(people.max() + 1) < case.test * (people.max() + 1))[people]
    if case.parties is None:
        assert data.sites is not None
        owner, count = data.sites, len(data.site_names)
    else:
        owner, count = rng.permutation(len(data)) % case.parties, case.parties
    train = [np.flatnonzero((owner == k) & ~held)[: case.records] for k in range(count)]
    return train, [np.flatnonzero((owner == k) & held) for k in range(count)]


@pytest.mark.parametrize("name", CASES)
def test_the_sentence_is_what_an_independent_computation_says(name: str, request: pytest.FixtureRequest) -> None:
    if name != "clinics":
        request.getfixturevalue("real_data")
    case = CASES[name]
    data = case.make()
    labels = np.where(data.targets == 1, 1.0, -1.0)
    problem = Logistic(data.features.shape[1])
    features, labels = problem.admit(data.features, labels)
    plan = validate({
        "graph": {"kind": "complete"}, "problem": {"loss": "logistic", "ridge": 1e-5},
        "privacy": {"epsilon": 1.0, "delta": case.delta}, "run": {"seeds": DRAWS},
    })  # fmt: skip
    told: list[dict[str, Any]] = []
    parts: list[tuple[list[Part], list[Part]]] = []
    for number in range(case.splits):
        train, test = dealt(case, data, number)
        held = np.concatenate(test)
        owned = np.split(np.arange(len(held)), np.cumsum([len(rows) for rows in test])[:-1])
        experiment = assemble(
            plan, problem, features, labels, train, names=[f"party {k}" for k in range(len(train))],
            origins=ALL_PUBLIC, test=Test(features[held], labels[held]), own_test=owned,
        )  # fmt: skip
        priced = price(plan, experiment.network)
        trace = experiment.run(priced, [DRAWS * number + k for k in range(DRAWS)], every=priced.rounds)
        found = judge(experiment, trace.points, "alone", measure=case.measure).worth
        assert found is not None
        told.append(found)
        parts.append(tuple([(features[r], labels[r]) for r in rows] for rows in (train, test)))  # type: ignore[arg-type]
    cfg: Any = priced.cfg
    how = Descent(1.0, case.delta, int(np.ceil(priced.rounds / cfg.mixing)), cfg.step, cfg.momentum, cfg.clip, cfg.tail,
                  1e-5)  # fmt: skip
    worth = combine(told)
    said, mean = sentence(worth, "ε = 1"), worth["mean"]
    chosen = np.unique(np.linspace(0, len(train) - 1, min(len(train), JUDGED)).astype(int)).tolist()
    gain, low, high = mean_gain(parts, how, case.measure, chosen, DRAWS)
    print(f"\n{name}: {said}\nindependently {gain:+.4f} ({low:+.4f} to {high:+.4f})")
    for row in worth["parties"][:5]:
        print({k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()})
    verdict = "gains" if low > 0 else "loses" if high < 0 else "cannot tell"
    assert mean["verdict"] == verdict
    assert abs(mean["gain"] - gain) <= 0.25 * (high - low) + 0.002
    assert all(words in said for words in case.words), said
