"""Covered scores of a run: everybody's held-out records, each paying once, simulated and between parties."""

from __future__ import annotations

import dataclasses
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from coterie.deploy.data import read_records
from coterie.deploy.party import Terms
from coterie.deploy.trial import deployed_plan
from coterie.errors import InputError
from coterie.experiment import Experiment, assemble, prepare
from coterie.plan import Plan, validate
from coterie.pricing import Priced, price
from coterie.privacy.accountants import account
from coterie.privacy.events import Event
from coterie.released.covered import CoveredScores
from coterie.released.judging import covered_scores, overlapping, scored_records, write_scored
from coterie.released.once import events_of, release_plan
from coterie.released.scores import Scores
from coterie.worth.measures import say
from tests.deploy.test_everything import run_parties
from tests.support import mostly_slow

SHARED = {"kind": "secret-sum", "noise": "central", "honest": 4}


def planned(**tables: Any) -> Plan:
    tree: dict[str, Any] = {"data": {"source": "clinics"}, "privacy": {"epsilon": 1.0}, "run": {"rounds": 6}}
    return validate(tree | tables)


@cache
def trained(shared: bool = True) -> tuple[Experiment, Priced, np.ndarray]:
    plan = planned(exchange=SHARED) if shared else planned(graph={"kind": "complete"})
    experiment = prepare(plan)
    priced = price(plan, experiment.network)
    return experiment, priced, np.asarray(experiment.run(priced, [0]).points[0]).mean(0)


def exact(experiment: Experiment, point: np.ndarray, clip: float | None) -> dict[str, float]:
    assert experiment.test is not None
    said = say(experiment.network.problem, point, experiment.test.features, experiment.test.targets, clip)
    assert said.chances is not None
    assert said.score is not None
    chance = said.chances[:, 1]
    return {
        "accuracy": float(np.mean(said.predicted == said.truth)),
        "auc": float(roc_auc_score(said.truth, said.score)),
        "calibration": float(np.mean(chance - said.truth)),
    }


def test_what_records_paid_before_is_said_beside_their_scores() -> None:
    """Quantiles of all records came first: then no record pays once."""
    experiment, _, point = trained()
    before = {"epsilon": 0.25, "what": "quantiles of 3 columns"}
    plan = planned(exchange=SHARED, privacy={"epsilon": 1.0, "before": before})
    told = covered_scores(dataclasses.replace(experiment, plan=plan), point, seed=3).as_json()["composition"]
    assert told.endswith(
        "each pays once for these two; quantiles of 3 columns came from the same records, and cost (ε, δ) = "
        "(0.25, 1e-05) before this run, which this ε does NOT cover"
    )
    plain = covered_scores(experiment, point, seed=3).as_json()["composition"]
    assert plain == "parallel: held-out records are not training records, so each pays once"


def test_a_runs_scores_are_covered_and_each_record_pays_once() -> None:
    experiment, priced, point = trained()
    clip = priced.algorithm.clips(priced.cfg)
    heard: list[tuple[list[Event], float]] = []
    told = covered_scores(experiment, point, clip=clip, seed=3, charge=lambda e, d: heard.append((list(e), d)))
    assert 0.99 < account(heard[0][0], heard[0][1]).epsilon <= 1.0
    assert len(heard) == len(heard[0][0]) == 1  # one release, one event
    truth = exact(experiment, point, clip)
    for name, number in told.scores.whole.items():
        assert number.value is not None
        assert number.error is not None
        assert abs(number.value - truth[name]) < 4 * number.error
    said = told.as_json()
    assert said["marked"] == "covered by ε"
    assert said["records"] == 600
    assert said["epsilon"] <= 1.0
    assert overlapping(priced, told.once.priced, 1e-5).epsilon > 1.3  # of a record that were in both


def test_a_charge_that_is_refused_stops_the_release() -> None:
    experiment, _, point = trained()

    def refuse(events: Any, delta: float) -> None:
        raise InputError("the account has nothing left")

    with pytest.raises(InputError, match="nothing left"):
        covered_scores(experiment, point, charge=refuse)


def simulated(experiment: Experiment, point: np.ndarray, clip: float | None) -> tuple[Experiment, Scores]:
    assert experiment.test is not None
    assert experiment.own_test is not None
    test = experiment.test
    rows, targets = scored_records(experiment.network.problem, point, test.features, test.targets, clip=clip)
    problem = Scores(20, 1)
    made = assemble(
        release_plan(experiment.plan, "scores", epsilon=3.0), problem, *problem.admit(rows, targets),
        list(experiment.own_test), names=experiment.network.names, origins=experiment.dataset.origins,
    )  # fmt: skip
    return made, problem


@pytest.mark.parametrize("shared", mostly_slow([True, False], True), ids=["shared", "local"])
def test_in_a_thousand_simulated_runs_errors_are_as_stated(shared: bool) -> None:
    """600 held-out records of five parties: the least for which an AUC is not refused."""
    experiment, priced, point = trained(shared)
    clip = priced.algorithm.clips(priced.cfg)
    made, problem = simulated(experiment, point, clip)
    points = np.asarray(made.run(price(made.plan, made.network), range(1000)).points)[:, 0]
    truth = exact(experiment, point, clip)
    inside = dict.fromkeys(truth, 0)
    for one in points:
        told = CoveredScores.of(problem, one).whole
        for name, value in truth.items():
            found = told[name]
            assert found.value is not None, found.why
            assert found.error is not None
            inside[name] += abs(found.value - value) <= 2 * found.error
    for name, count in inside.items():
        assert 935 <= count <= 975, (name, count)


def test_parties_release_them_between_machines(tmp_path: Path) -> None:
    experiment, priced, point = trained(False)
    made, problem = simulated(experiment, point, priced.algorithm.clips(priced.cfg))
    plan = deployed_plan(made.plan, made)
    terms = Terms.of(plan)
    assert terms.rounds == 1
    kept = []
    for k, rows in enumerate(made.parts):
        path = tmp_path / f"{k}.npz"
        write_scored(path, made.features[rows], made.targets[rows])
        kept.append(read_records(plan, path))
    _, sent, _, answers = run_parties(terms, kept)
    assert sent.all()
    told, truth = (
        CoveredScores.of(problem, answers[0]).whole,
        exact(experiment, point, priced.algorithm.clips(priced.cfg)),
    )
    for name, value in truth.items():
        found = told[name]
        assert found.value is not None
        assert found.error is not None
        assert abs(found.value - value) < 4 * found.error


def test_groups_are_scored_apart() -> None:
    experiment, priced, point = trained()
    assert experiment.test is not None
    big = dataclasses.replace(experiment, plan=planned(exchange=SHARED, privacy={"epsilon": 50.0}))
    groups = (np.arange(len(experiment.test.targets)) % 3 == 0).astype(int)
    clip = priced.algorithm.clips(priced.cfg)
    told = covered_scores(big, point, clip=clip, groups=groups, names=("most", "a third")).as_json()
    said = say(experiment.network.problem, point, experiment.test.features, experiment.test.targets, clip)
    for k, name in enumerate(("most", "a third")):
        right = float(np.mean((said.predicted == said.truth)[groups == k]))
        found = told["groups"][name]["accuracy"]
        assert abs(found["value"] - right) < 4 * found["standard_error"] < 0.05


@pytest.mark.parametrize("change", [{"algorithm": {"name": "dgd"}, "privacy": None}])
def test_without_a_budget_nothing_is_covered(change: dict[str, Any]) -> None:
    plan = planned(**{k: v for k, v in change.items() if v is not None})
    plan = plan.model_copy(update={"privacy": None})
    with pytest.raises(InputError, match="no \\[privacy\\] table"):
        release_plan(plan, "scores")


def test_the_events_are_those_of_the_claim() -> None:
    _, priced, _ = trained()
    assert account(events_of(priced), 1e-5).epsilon == pytest.approx(priced.claims[0].account.epsilon, rel=1e-6)


@pytest.mark.slow
def test_the_auc_of_a_release_of_bins_is_that_of_its_log_odds(tmp_path: Path) -> None:
    """Cut to −1 and 1, as the scores of least squares are, log-odds have another AUC: .926 for .956 on these."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.uniform(size=(12000, 6)), columns=[f"c{k}" for k in range(6)])
    chance = 1 / (1 + np.exp(-6 * (table - 0.5).sum(axis=1)))
    table["y"] = np.where(rng.uniform(size=len(table)) < chance, "b", "a")
    table.to_csv(tmp_path / "a.csv", index=False)
    options = {"classes": ["a", "b"], "bounds": {f"c{k}": [0, 1] for k in range(6)}}
    plan = validate(
        {
            "data": {"source": "csv", "path": str(tmp_path / "a.csv"), "label": "y", "options": options},
            "partition": {"kind": "iid", "agents": 2},
            "problem": {"model": "additive", "loss": "moments"},
            "algorithm": {"name": "release"},
            "privacy": {"epsilon": 5.0, "delta": 1e-5},
            "graph": {"kind": "complete"},
            "run": {"references": "none"},
        }
    )
    experiment = prepare(plan)
    point = np.asarray(experiment.run(price(plan, experiment.network), [0]).points[0, 0], float)
    test = experiment.test
    assert test is not None
    seen = experiment.network.problem.shaped(point)
    score = np.asarray(test.features) @ seen.weights()
    true = roc_auc_score(np.asarray(test.targets) > 0, score)
    told = covered_scores(experiment, point).scores.whole["auc"]
    assert told.value is not None
    assert told.error is not None
    assert abs(told.value - true) < 4 * told.error < 0.02
