"""Settings that nobody stated: one number for the ridge wherever it is named, and the noise that is really there."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from coterie.algorithms import dp_dsgd
from coterie.algorithms.base import all_algorithms, find
from coterie.comparison import methods_of
from coterie.experiment import public_network
from coterie.plan import Plan, read_plan, validate
from coterie.pricing import price
from coterie.privacy import gdp
from tests.support import CLINICS

SIZES = [150, 400, 900, 2000]


def plan_of(**tables: Any) -> Plan:
    tree = {
        "partition": {"sizes": SIZES}, "problem": {"loss": "logistic", "dim": 9}, "graph": {"kind": "complete"},
        "privacy": {"epsilon": 2.0}, "data": {"source": "csv", "path": "t.csv", "label": "y"},
    }  # fmt: skip
    for name, table in tables.items():
        tree[name] = {**tree.get(name, {}), **table}
    return validate(tree)


def test_the_ridge_is_the_algorithms_own_and_is_stated_wherever_the_plan_is_written():
    defaults = {slug: found.ridge for slug, found in all_algorithms().items()}
    assert {slug for slug, ridge in defaults.items() if ridge != 1e-3} == {"decor", "dp-dsgd"}
    for slug, ridge in (("dp-dsgd", 1e-5), ("pr-admm", 1e-3), ("dgd", 1e-3)):
        got = read_plan(CLINICS, [f"algorithm.name={slug}"])
        assert got.ridge == got.as_json()["problem"]["ridge"] == got.model_dump()["problem"]["ridge"] == ridge
        assert validate(got.as_json()).as_json() == got.as_json()  # written out and read again it is the same plan
    assert read_plan(None, ["problem.ridge=0.5"]).ridge == 0.5
    assert read_plan(None, ["problem.ridge=0.0"]).ridge == 0.0
    assert read_plan(None, ["algorithm.name=pooled"]).ridge == 1e-3


def test_the_priced_places_have_the_ridge_that_the_plan_states():
    plan = plan_of()
    assert float(price(plan, public_network(plan)).places.ridge) == plan.ridge == 1e-5


def test_a_comparison_of_algorithms_has_one_objective():
    """All are given the ridge that the plan would run with by itself."""
    methods = methods_of([("p", plan_of())], ["dp-dsgd", "pp-admm"])
    assert [m.plan.ridge for m in methods] == [1e-5, 1e-5]


CENTRAL = {"kind": "secret-sum", "noise": "central", "honest": 3}


@pytest.mark.parametrize("weighting", ["agents", "records"])
@pytest.mark.parametrize(
    "tables",
    [
        {},
        {"exchange": CENTRAL, "graph": {"mixing": "uniform"}},
        {"privacy": {"epsilon": [1.0, 2.0, 4.0, 8.0]}},
    ],
    ids=["local", "central", "own budgets"],
)
def test_the_rule_sees_the_noise_that_is_on_the_agents_mean(tables, weighting):
    """s from the noise that calibration really gives: std of the mean = 2 γ C √T/(μ s)."""
    plan = plan_of(problem={"weighting": weighting}, **tables)
    priced = price(plan, public_network(plan))
    cfg, places = priced.cfg, priced.places
    sigma = np.asarray(places.noise) * 2 * cfg.step * cfg.clip * np.asarray(places.unit)
    on_mean = math.sqrt(np.sum(sigma**2)) / len(SIZES)
    gradient_rounds = math.ceil(priced.rounds / cfg.mixing)
    mu = float(gdp.mu_for(np.min(plan.privacy.epsilon), plan.privacy.delta))
    expected = 2 * cfg.step * cfg.clip * math.sqrt(gradient_rounds) / (mu * on_mean)
    rounding = 0.02 if "exchange" in tables else 1e-6  # the grid of the sums costs a little
    assert priced.public.noise_strength() == pytest.approx(expected, rel=rounding)
    assert dp_dsgd.signal_to_noise(priced.public) == pytest.approx(expected * mu, rel=rounding)


def test_records_count_alike_where_noise_is_shared_unless_the_plan_says_otherwise():
    """Shared noise must hide the heaviest record, so weighing parties alike gives all of them the smallest one's."""
    shared = {"exchange": CENTRAL, "graph": {"mixing": "uniform"}}
    assert [plan_of().weighting, plan_of(**shared).weighting] == ["agents", "records"]
    stated = plan_of(problem={"weighting": "agents"}, **shared)
    assert stated.weighting == stated.as_json()["problem"]["weighting"] == "agents"
    assert validate(plan_of(**shared).as_json()).weighting == "records"
    strengths = [price(plan, public_network(plan)).public.noise_strength() for plan in (plan_of(**shared), stated)]
    assert strengths[0] / strengths[1] == pytest.approx(np.mean(SIZES) / min(SIZES))


def test_shared_noise_makes_longer_runs():
    equal = {"sizes": [800] * 4}  # else the smallest agent's noise decides in both
    alone, shared = plan_of(partition=equal), plan_of(partition=equal, exchange=CENTRAL, graph={"mixing": "uniform"})
    rounds = [price(plan, public_network(plan)).rounds for plan in (alone, shared)]
    assert rounds[1] == pytest.approx(3**0.25 * rounds[0], rel=0.02)  # T ∝ √s, and s grows by √3


def test_which_algorithms_clip_gradients():
    clips = {slug: found.clips(found.example) for slug, found in all_algorithms().items()}
    assert clips["dp-dsgd"] == 1.0
    assert clips["sdm"] == 1.0
    assert clips["ipp-admm"] is None  # its `clip` bounds a record's part in a test
    assert clips["dgd"] is None
    assert find("dp-admm").clips(find("dp-admm").config(clip=0.25)) == 0.25
