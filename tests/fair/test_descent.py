"""Fair descent from a plan: the direction is released once, and a gradient algorithm learns with its penalty."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie.contracts import check_contract
from coterie.errors import InputError
from coterie.experiment import prepare
from coterie.fair import directions_of
from coterie.plan import Plan
from coterie.pricing import price
from coterie.problems.facts import try_facts
from coterie.report.certificate import certificate
from tests.deploy.test_fair import COLUMNS, fair_plan, written

DESCENT = {"name": "dp-dsgd", "mixing": 1}


def descent(path: Path, directions: Any, penalty: float = 3.0, **tables: Any) -> Plan:
    problem = {"loss": "fair-logistic", "directions": directions, "penalty": penalty, "corner": 0.02}
    return fair_plan(path, problem=problem, algorithm=DESCENT, privacy={"epsilon": 4.0}, run={"rounds": 60}, **tables)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("fair"), 3000)


def answer(plan: Plan) -> tuple[np.ndarray, Any, Any]:
    made = prepare(plan)
    priced = price(plan, made.network)
    return np.asarray(made.run(priced, [0]).points[0, 0]), made, priced


@pytest.mark.slow
def test_a_plan_descends_on_the_fair_loss(table: Path) -> None:
    released, _, _ = answer(fair_plan(table, privacy={"epsilon": 4.0}))
    rows = directions_of(released)
    assert rows.shape == (1, COLUMNS)
    plain, made, priced = answer(descent(table, rows.tolist(), penalty=0.0))
    fair, _, _ = answer(descent(table, rows.tolist()))
    features, targets = made.features, made.targets
    label, group = targets % 2, targets // 2
    exact = ((group - group.mean())[:, None] * features).mean(axis=0)  # what the release is about
    assert rows[0] @ exact / np.linalg.norm(rows[0]) / np.linalg.norm(exact) > 0.95
    gap = {}
    for name, w in (("plain", plain), ("fair", fair)):
        yes = features @ w > 0
        gap[name] = abs(yes[group == 1].mean() - yes[group == 0].mean())
        assert np.mean(yes == label) > 0.6
    assert gap["plain"] > 0.2
    assert gap["fair"] < gap["plain"] / 2
    assert any("problem.directions were released before" in w for w in priced.warnings)
    assert priced.spending.worst.epsilon == pytest.approx(4.0, rel=1e-6)  # of the descent alone
    said = [one["statement"] for one in certificate(made.plan, made.network, priced)["statements"]]
    assert any("problem.directions were released before" in text and "NOT cover" in text for text in said)


def test_its_facts_hold_with_groups(table: Path) -> None:
    try_facts(prepare(descent(table, [[0.2] * COLUMNS])).network.problem, COLUMNS)


@pytest.mark.parametrize(
    ("directions", "words"),
    [
        ([[0.1, 0.2]], "has 6 features"),
        ([[0.1] * COLUMNS, [0.1]], "problem.directions must list 6 numbers each"),
        ([], "directions"),
        ([[float("nan")] * COLUMNS], "finite"),
    ],
)
def test_directions_that_do_not_fit_are_refused(table: Path, directions: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        prepare(descent(table, directions))


def test_a_proof_for_single_scores_refuses_the_penalty(table: Path) -> None:
    problem = {"loss": "fair-logistic", "directions": [[0.1] * COLUMNS], "classes": 4}
    with pytest.raises(InputError, match="dvp needs"):
        check_contract(fair_plan(table, problem=problem, algorithm={"name": "dvp"}))


def test_a_release_without_directions_has_none() -> None:
    with pytest.raises(InputError, match="no covariance"):
        directions_of(np.zeros(2 + 3 + 6 + 6))
