"""Where runs must end: the pooled optimum for admm, the step-size floor for dgd, scikit-learn for the references."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from coterie.algorithms import admm, dgd
from coterie.algorithms.base import find
from coterie.drivers.layout import Layout
from coterie.drivers.references import pooled
from coterie.drivers.simulate import Run, Trace, simulate
from coterie.graphs import make_graph, mixing
from coterie.losses.logistic import Logistic
from coterie.problems import Ball
from tests.support import logistic_data, mostly_slow, network

SIZES = [10, 25, 40, 15, 30, 20]
DIM, RIDGE = 4, 0.05
GRAPHS = {"ring": {}, "star": {}, "erdos-renyi": {"p": 0.5}}


def layout_on(kind: str, weighting: str = "agents") -> Layout:
    return network(6, SIZES, DIM, graph=kind, ridge=RIDGE, weighting=weighting, rounds=1, **GRAPHS[kind])


@cache
def optimum(weighting: str = "agents") -> np.ndarray:
    """The pooled optimum, which no graph has a part in."""
    return pooled(layout_on("ring", weighting))


def descent(kind: str) -> Trace:
    """dgd with a constant step, half of it, and a decaying one, in one batch."""
    configs = [dgd.Config(step=0.4), dgd.Config(step=0.2), dgd.Config(step=2.0, decay=0.7)]
    runs = [Run(0, cfg) for cfg in configs]
    return simulate(find("dgd"), layout_on(kind), runs, rounds=6000, every=6000)


@pytest.mark.slow
@pytest.mark.parametrize("kind", mostly_slow(GRAPHS, "star"))
def test_admm_brings_every_agent_to_the_pooled_optimum(kind: str) -> None:
    trace = simulate(find("admm"), layout_on(kind), [Run(0, admm.Config(penalty=0.05))], rounds=400, every=400)
    np.testing.assert_allclose(trace.points[0], np.tile(optimum(), (6, 1)), atol=1e-6)


@pytest.mark.parametrize("kind", mostly_slow(GRAPHS, "ring"))
def test_dgd_stops_at_the_floor_of_its_step_size(kind: str) -> None:
    """A constant step ends at x = Wx − γ∇f(x), O(γ) away; a decaying one goes on towards the optimum."""
    trace = descent(kind)
    x, y = logistic_data(sum(SIZES), DIM)
    parts = np.split(np.arange(sum(SIZES)), np.cumsum(SIZES)[:-1])
    weights = mixing(make_graph(kind, 6, seed=0, **GRAPHS[kind])).dense()
    far = np.linalg.norm(trace.points - optimum(), axis=2).max(1)
    for step, points in ((0.4, trace.points[0]), (0.2, trace.points[1])):
        slopes = np.array([
            -((y[p] / (1 + np.exp(y[p] * (x[p] @ v)))) @ x[p]) / len(p) + RIDGE * v
            for p, v in zip(parts, points, strict=True)
        ])  # fmt: skip
        np.testing.assert_allclose(weights @ points - step * slopes, points, atol=1e-9)
    assert 1.5 < far[0] / far[1] < 2.5
    assert far[2] < far[1] / 10


def test_references_equal_scikit_learn() -> None:
    """Agents weighted by their records: pooled is ordinary logistic regression."""
    x, y = logistic_data(sum(SIZES), DIM)
    strength = 1 / (RIDGE * sum(SIZES))
    everyone = LogisticRegression(C=strength, fit_intercept=False, tol=1e-10, max_iter=1000).fit(x, y)
    np.testing.assert_allclose(optimum("records"), everyone.coef_[0], atol=1e-6)


def test_pooled_with_equal_agents_weighs_their_records_unequally() -> None:
    x, y = logistic_data(sum(SIZES), DIM)
    weights = np.repeat(1 / np.array(SIZES), SIZES) / 6
    model = LogisticRegression(C=1 / RIDGE, fit_intercept=False, tol=1e-10, max_iter=1000).fit(x, y, weights)
    np.testing.assert_allclose(optimum(), model.coef_[0], atol=1e-6)
    assert np.abs(optimum() - optimum("records")).max() > 1e-3


def test_pooled_respects_a_constraint() -> None:
    free = optimum()
    layout = network(6, SIZES, DIM, ridge=RIDGE, rounds=1, problem=Logistic(DIM, constraint=Ball(0.5)))
    got = pooled(layout)
    assert np.linalg.norm(free) > 0.5
    assert np.linalg.norm(got) == pytest.approx(0.5, abs=1e-9)
    loose = network(6, SIZES, DIM, ridge=RIDGE, rounds=1, problem=Logistic(DIM, constraint=Ball(50.0)))
    np.testing.assert_allclose(pooled(loose), free, atol=1e-7)
