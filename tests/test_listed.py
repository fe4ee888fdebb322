"""A schedule that is listed: a level for each round, or for each party and round, in plan and Python."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import coterie as ct
from coterie.algorithms._charges import run_events
from coterie.algorithms.base import find
from coterie.algorithms.batches import axes, rows
from coterie.contracts import check_contract
from coterie.drivers.budget import accounts
from coterie.drivers.layout import make_layout
from coterie.drivers.simulate import Run, simulate
from coterie.errors import InputError
from coterie.experiment import public_network
from coterie.graphs import make_graph, mixing
from coterie.losses.mean import Mean
from coterie.plan import Plan, validate
from coterie.pricing import price
from coterie.privacy import schedules

LEVELS = [4.0, 2.0, 1.0]
EACH = [[4.0, 2.0, 1.0], [1.0, 1.0, 1.0], [1.0, 2.0, 4.0]]


def plan_of(options: dict[str, Any], rounds: int | None = 3, slug: str = "ldp-dgd", delta: float = 0.0) -> Plan:
    return validate(
        {
            "data": {"source": "adult"},
            "partition": {"kind": "iid", "agents": 3, "records": 200},
            "graph": {"kind": "complete"},
            "problem": {"loss": "logistic", "dim": 4},
            "algorithm": {"name": slug},
            "privacy": {"epsilon": 7.0, "delta": delta, "schedule": "listed", "schedule_options": options},
            "run": {} if rounds is None else {"rounds": rounds},
        }
    )


def each_round(plan: Plan, agent: int) -> np.ndarray:
    priced = price(plan, public_network(plan))
    (event,) = run_events(priced.algorithm, priced.cfg, rows(priced.places, agent))
    return np.array(event.flat().pure() if hasattr(event, "flat") else event.rate * event.l1)


def test_each_round_gets_its_level() -> None:
    plan = plan_of({"levels": LEVELS})
    check_contract(plan)
    assert each_round(plan, 0) == pytest.approx(LEVELS, rel=1e-3)  # Σ = 7 = ε, pure
    assert each_round(plan_of({"noise": [1.0, 2.0, 4.0]}), 0) == pytest.approx(LEVELS, rel=1e-3)
    assert each_round(plan_of({"noise": [1.0, 1.0, 1.0]}), 0) == pytest.approx([7 / 3] * 3, rel=1e-3)


def test_each_party_gets_its_levels() -> None:
    plan = plan_of({"levels": EACH})
    check_contract(plan)
    for agent, levels in enumerate(EACH):
        assert each_round(plan, agent) == pytest.approx(np.array(levels) * 7 / sum(levels), rel=1e-3)
    priced = price(plan, public_network(plan))
    assert [a.epsilon for a in accounts(priced.algorithm, priced.cfg, priced.places, 0.0)] == pytest.approx([7.0] * 3)
    assert axes(priced.places).shape == 0
    assert axes(price(plan_of({"levels": LEVELS}), public_network(plan)).places).shape is None


def test_the_noise_that_is_drawn_follows_the_list() -> None:
    shape = schedules.make("listed", 3, levels=EACH)
    weights = mixing(make_graph("complete", 3))
    parts = np.split(np.arange(30), 3)
    with jax.enable_x64(True):
        layout = make_layout(
            Mean(2, 1.0), np.zeros((30, 2)), np.zeros(30), parts, weights.graph, weights, rounds=3, shape=shape
        )
    algorithm = find("hmv-dgd")  # a message is the agent's point and Laplace noise; records of 0 leave the noise
    cfg = algorithm.example.replace(step=0.1, step_ratio=0.5, noise_ratio=0.9)
    trace = simulate(algorithm, layout, [Run(s, cfg, 1.0) for s in range(400)], rounds=3, every=3, record=True)
    first = np.asarray(jax.tree.leaves(trace.messages)[0])[:, 0]  # (seeds, agents, dim), from a common start
    spread = np.sqrt(np.mean(first**2, axis=(0, 2)))
    assert spread / spread[1] == pytest.approx(shape[:, 0] / shape[1, 0], rel=0.12)
    assert spread[2] / spread[0] > 2.5  # α = 1 and 4 of equal totals


def test_python_takes_levels() -> None:
    net = ct.complete(sizes=[50, 50, 50], features=2)
    found = ct.price(ct.logistic(), net, ct.ldp_dgd(), ct.Budget(7.0, 0), levels=EACH)
    assert (found.rounds, found.epsilon) == (3, pytest.approx(7.0, rel=1e-3))
    with pytest.raises(InputError, match="lists rounds of 2 parties, and there are 3"):
        ct.price(ct.logistic(), net, ct.ldp_dgd(), ct.Budget(7.0, 0), levels=EACH[:2])
    with pytest.raises(InputError, match="levels"):
        ct.price(ct.logistic(), net, ct.ldp_dgd(), ct.Budget(7.0, 0), levels=[1.0, -1.0])


def test_gaussian_rounds_add_up_to_the_budget() -> None:
    plan = plan_of({"levels": EACH}, slug="dp-dsgd", delta=1e-5)
    priced = price(plan, public_network(plan))
    assert priced.spending is not None
    assert priced.spending.per_agent == pytest.approx([7.0] * 3, rel=1e-9)
    (event,) = run_events(priced.algorithm, priced.cfg, rows(priced.places, 2))
    ratio = np.asarray(event.sensitivity) / np.asarray(event.sigma)
    assert ratio / ratio[0] == pytest.approx([1.0, 2.0, 4.0])


@pytest.mark.parametrize(
    ("options", "rounds", "words"),
    [
        ({"levels": LEVELS}, 4, "lists 3 rounds, and run.rounds is 4"),
        ({"levels": LEVELS}, None, "lists 3 rounds, and run.rounds is not stated"),
        ({"levels": EACH[:2]}, 3, "lists rounds of 2 parties, and there are 3"),
        ({"levels": [1.0, 0.0, 1.0]}, 3, "levels must be > 0 and finite in every round, got 0"),
        ({"levels": LEVELS, "noise": LEVELS}, 3, "one of noise and levels"),
        ({}, 3, "one of noise and levels"),
        ({"levels": [[1.0, 2.0], [1.0]]}, 2, "of one length"),
        ({"levels": 1.0}, 2, "got a single one"),
    ],
)
def test_a_bad_list_is_refused_before_data_is_read(options: dict[str, Any], rounds: int | None, words: str) -> None:
    with pytest.raises(InputError, match=words):
        check_contract(plan_of(options, rounds))


def test_shared_noise_has_one_schedule() -> None:
    plan = plan_of({"levels": EACH}, slug="dp-dsgd", delta=1e-5)
    sums = {"kind": "secret-sum", "noise": "central", "honest": 3}
    with pytest.raises(InputError, match="one number for each round"):
        check_contract(validate(plan.model_dump(exclude_unset=True) | {"exchange": sums}))


def test_rows_are_normalised_each() -> None:
    shape = schedules.make("listed", 3, noise=EACH)
    assert np.sum(1 / shape**2, axis=1) == pytest.approx([3.0] * 3)
