"""One release: what one record moves, the law of its noise, the noise that it states, and one charge."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chi2

from coterie.algorithms.base import find
from coterie.audit import examine, gather, make_setting
from coterie.drivers.layout import make_layout
from coterie.drivers.simulate import Run, simulate
from coterie.errors import InputError
from coterie.experiment import prepare, public_network
from coterie.graphs import make_graph, mixing
from coterie.plan import Plan, validate
from coterie.pricing import price
from coterie.privacy.gdp import mu_for
from coterie.released.moments import Moments
from tests.support import mostly_slow

RELEASE = find("release")


def vectors(problem: Moments, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    with jax.enable_x64(True):
        return np.asarray(problem.each(jnp.asarray(rows), jnp.asarray(labels)))


@pytest.mark.parametrize(
    ("weight", "square"), [(0.5, 2 + 0.5 + 1 / 32), (1.0, 4.5), (1.4, 2 + 3.92 + 1.9208), (2.0, 16.0)]
)
def test_the_worst_pair_reaches_what_is_declared_and_no_pair_exceeds_it(weight: float, square: float) -> None:
    problem = Moments(4, weight=weight)
    assert (2 * problem.half_gap) ** 2 == pytest.approx(square, rel=1e-12)
    c = min(1.0, weight**2 / 2)
    x, z = np.eye(4)[0], np.array([c, (1 - c**2) ** 0.5, 0, 0])
    one, two = vectors(problem, np.stack([x, z]), np.array([1.0, -1.0]))
    assert np.sum((one - two) ** 2) == pytest.approx(square, rel=1e-12)
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((2, 200_000, 4))
    rows /= np.linalg.norm(rows, axis=2, keepdims=True)
    rows[1] += rng.normal(scale=2, size=(200_000, 1)) * rows[0]  # near, far and across
    rows /= np.linalg.norm(rows, axis=2, keepdims=True)
    rows[:, ::4] *= rng.uniform(0.5, 1, (2, 50_000, 1))
    labels = rng.choice([-1.0, 1.0], (2, 200_000))
    apart = vectors(problem, rows[0], labels[0]) - vectors(problem, rows[1], labels[1])
    largest = float(np.max(np.sum(apart**2, axis=1)))
    assert 0.99 * square < largest <= square * (1 + 1e-12)


def test_the_vector_is_the_matrix_and_the_products() -> None:
    rng = np.random.default_rng(1)
    rows, labels = rng.uniform(-0.5, 0.5, (50, 3)), rng.choice([-1.0, 1.0], 50)
    problem = Moments(3, weight=0.7)
    with jax.enable_x64(True):
        ones = jnp.ones(50)
        total = np.asarray(
            problem.weighted_gradient(jnp.zeros(problem.dim), jnp.asarray(rows), jnp.asarray(labels), ones)
        )
    assert np.allclose(total[:-1], vectors(problem, rows, labels).sum(0), rtol=1e-12)
    seen = problem.shaped(total / 50)
    assert np.allclose(seen.matrix, rows.T @ rows / 50, rtol=1e-12)
    assert np.allclose(seen.cross, labels @ rows / 50, rtol=1e-12)


@pytest.mark.slow
def test_the_audit_finds_nothing_and_sees_nearly_all_of_the_price() -> None:
    found = {f.check: f for f in examine(gather(make_setting(RELEASE, epsilon=1.0)))}
    for finding in found.values():
        assert finding.passed, finding
    assert found["replay"].share >= 0.9


# ---- the law of the noise --------------------------------------------------------------------------------------------

FEATURES, PARTIES, RUNS = 6, 5, 240


@cache
def noises(kind: str, scale: float = 1.0) -> tuple[np.ndarray, float]:
    """Released matrices and products of records that are all zero, of many runs, and σ as each point states it."""
    problem = Moments(FEATURES)
    graph = make_graph(kind, PARTIES)
    parts = np.split(np.arange(5 * PARTIES), PARTIES)
    with jax.enable_x64(True):
        layout = make_layout(
            problem,
            np.zeros((25, FEATURES)),
            np.ones(25),
            parts,
            graph,
            mixing(graph),
            rounds=1 if kind == "complete" else 60,
        )
    cfg = RELEASE.example.replace(records=25.0)
    runs = [Run(seed, cfg, np.full(PARTIES, 3.0 * scale)) for seed in range(RUNS)]
    trace = simulate(RELEASE, layout, runs, rounds=layout.arrays.place.rounds)
    return np.asarray(trace.points)[:, 0], float(trace.points[0, 0, -1])


def accepted(values: np.ndarray, sigma: float) -> bool:
    """χ² of all numbers at σ, two-sided, at one in a thousand."""
    statistic, count = float(np.sum((values / sigma) ** 2)), values.size
    return bool(chi2.ppf(5e-4, count) < statistic < chi2.ppf(1 - 5e-4, count))


@pytest.mark.parametrize("kind", mostly_slow(["complete", "ring"], "ring"))
def test_the_noise_has_the_declared_law_and_is_stated(kind: str) -> None:
    points, stated = noises(kind)
    declared = PARTIES**0.5 * 3.0 * 4.5**0.5 / 25  # √N σ, σ = multiplier · Δ/n
    assert stated == pytest.approx(declared, rel=1e-12)
    seen = [Moments(FEATURES).shaped(p) for p in points]
    diagonal = np.array([np.diag(s.matrix) for s in seen])
    above = np.array([s.matrix[np.triu_indices(FEATURES, 1)] for s in seen])
    cross = np.array([s.cross for s in seen])
    every = np.concatenate([diagonal.ravel(), 2**0.5 * above.ravel(), cross.ravel()])
    assert accepted(every, stated)
    for part, sigma in ((diagonal, stated), (above, stated / 2**0.5), (cross, stated)):
        assert accepted(part, sigma)
    assert all(np.array_equal(s.matrix, s.matrix.T) for s in seen)


def test_noise_five_percent_off_is_rejected() -> None:
    points, stated = noises("complete")
    assert accepted(points[:, :-1], stated)
    for scale in (0.95, 1.05):
        off, _ = noises("complete", scale)
        assert not accepted(off[:, :-1], stated)


# ---- as a plan -------------------------------------------------------------------------------------------------------

SHARED = {"kind": "secret-sum", "noise": "central", "honest": 4}


def planned(**tables: Any) -> Plan:
    tree: dict[str, Any] = {
        "data": {"source": "clinics"}, "problem": {"loss": "moments"}, "algorithm": {"name": "release"},
        "privacy": {"epsilon": 1.0, "delta": 1e-5}, "graph": {"kind": "complete"},
    }  # fmt: skip
    for name, table in tables.items():
        tree[name] = {**tree.get(name, {}), **table}
    return validate(tree)


@pytest.mark.slow
@pytest.mark.parametrize("exchange", mostly_slow([{}, SHARED], {}), ids=["local", "shared"])
def test_a_plan_takes_one_round_and_one_event_and_its_error_is_as_stated(exchange: dict[str, Any]) -> None:
    plan = planned(exchange=exchange)
    experiment = prepare(plan)
    priced = price(plan, experiment.network)
    assert priced.rounds == 1
    assert 0.99 < priced.claims[0].account.epsilon <= 1.0
    points = np.asarray(experiment.run(priced, range(64)).points)[:, 0]
    rows, labels = experiment.features, experiment.targets
    seen = experiment.network.problem.shaped(points[0])
    records = len(rows)
    sigma = 4.5**0.5 / float(mu_for(1.0, 1e-5)) / records  # of one holder with all records
    times = (5 / 4) ** 0.5 if exchange else 5**0.5
    assert seen.noise == pytest.approx(times * sigma, rel=2e-3)
    problem = experiment.network.problem
    exact = vectors(problem, rows, labels).mean(0)  # type: ignore[arg-type]
    assert accepted(points[:, :-1] - exact, seen.noise)
    assert not accepted(points[:, :-1] - exact, seen.noise / 1.05)


def test_accounting_reads_no_data_and_agrees() -> None:
    plan = planned(
        data={"source": "adult"}, partition={"kind": "iid", "sizes": [400] * 5}, problem={"loss": "moments", "dim": 7}
    )
    assert price(plan, public_network(plan)).claims[0].account.epsilon == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({"problem": {"dim": 301}}, "second moments of 301 features"),
        ({"privacy": {"epsilon": [1.0, 1.0, 1.0, 2.0, 2.0]}}, "privacy.epsilon must be one number"),
        ({"exchange": SHARED | {"threshold": 4}}, "leave out exchange.threshold = 4"),
        ({"exchange": {"kind": "quantized"}}, "exchange.kind = 'quantized' would add to it"),
        ({"algorithm": {"name": "dp-dsgd"}}, "dp-dsgd minimises.*use release"),
        ({"algorithm": {"name": "fair-release"}}, "fair-release does not release second moments: use release"),
        ({"problem": {"loss": "logistic"}}, "release needs sums to release"),
        ({"algorithm": {"records": 7}}, "algorithm.records = 7 is counted by the plan"),
        ({"privacy": {"schedule": "power"}}, "must be 'uniform'"),
    ],
)
def test_what_cannot_be_stated_is_refused(tables: dict[str, Any], words: str) -> None:
    def priced() -> object:
        plan = planned(**tables)
        return price(plan, prepare(plan).network)

    with pytest.raises(InputError, match=words):
        priced()
