"""`gauss-avg-gd`: gradient descent on the average with noise σ/√N, its cost, a floor that does not grow with d."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from coterie.algorithms import gauss_avg_gd as alg
from coterie.algorithms.base import Algorithm, Public
from coterie.drivers.budget import calibrate_agents, run_events
from coterie.drivers.layout import Layout
from coterie.drivers.references import pooled
from coterie.drivers.simulate import Trace
from coterie.losses.logistic import Logistic
from coterie.losses.mean import Mean
from coterie.privacy import gdp
from coterie.privacy.accountants import account, total_mu
from tests.algorithms.moves import logistic_moves, public
from tests.support import agent, network, run

ALGORITHM = Algorithm.of("gauss-avg-gd", alg)
AGENTS, DIM, ROUNDS, RADIUS = 4, 2, 12, 1.0
CFG = alg.Config(step=0.25)


@pytest.fixture(scope="module")
def means() -> tuple[Layout, Trace]:
    data = np.random.default_rng(1).uniform(-RADIUS, RADIUS, (AGENTS * 5, DIM)), np.zeros(AGENTS * 5)
    problem = Mean(DIM, RADIUS, boxed=False)
    layout = network(AGENTS, 5, DIM, graph="complete", problem=problem, data=data, rounds=ROUNDS, ridge=0.0)
    return layout, run(ALGORITHM, CFG, layout, noise=1.3, seeds=8000, every=ROUNDS)


SIGMA = 1.3 * 0.25 * 2 * RADIUS * DIM**0.5 / 5


@pytest.mark.slow
def test_noiseless_limit_is_the_pooled_optimum() -> None:
    layout = network(graph="complete", rounds=400)
    got = run(ALGORITHM, alg.EXAMPLE, layout, every=400).points[0]
    np.testing.assert_allclose(got, np.tile(pooled(layout), (5, 1)), atol=1e-8)


@pytest.mark.slow
def test_error_on_a_quadratic(means: tuple[Layout, Trace]) -> None:
    """x̄ − x* shrinks by 1 − η a round and gains N(0, σ²/N): an exact Gaussian after K rounds."""
    layout, trace = means
    optimum, keep = pooled(layout), 0.75
    error = trace.points[:, 0] - optimum + keep**ROUNDS * optimum  # the start is 0
    variance = SIGMA**2 / AGENTS * np.sum(keep ** (2 * np.arange(ROUNDS)))
    for factor, fits in ((1.0, True), (1.05, False), (0.95, False)):
        tail = stats.chi2.cdf(np.sum(error**2) / (factor**2 * variance), error.size)
        assert (0.001 < tail < 0.999) == fits
    np.testing.assert_allclose(trace.points, np.repeat(trace.points[:, :1], AGENTS, 1), atol=1e-12)  # one common answer


def test_messages_carry_the_declared_noise(means: tuple[Layout, Trace]) -> None:
    layout, trace = means
    local = np.asarray(layout.arrays.groups[0].shards.features).mean(axis=1)
    x = trace.messages.x
    before = x[:, 4].mean(axis=1, keepdims=True)
    residual = (x[:, 5] - (0.75 * before + 0.25 * local)).ravel()
    with jax.enable_x64(True):
        declared = float(alg.sigma(CFG, agent(layout, noise=1.3)[0], jnp.asarray(5)))
    assert declared == pytest.approx(SIGMA)
    for factor, fits in ((1.0, True), (1.05, False), (0.95, False)):
        tail = stats.chi2.cdf(np.sum((residual / declared / factor) ** 2), residual.size)
        assert (0.001 < tail < 0.999) == fits


def test_mu_of_a_run(means: tuple[Layout, Trace]) -> None:
    layout = means[0]
    events = run_events(ALGORITHM, CFG, agent(layout, noise=1.3)[0])
    delta = 0.25 * 2 * RADIUS * DIM**0.5 / 5
    assert total_mu(events) == pytest.approx(ROUNDS**0.5 * delta / SIGMA)
    noise = calibrate_agents(ALGORITHM, CFG, layout.arrays.place, 1.0, 1e-4)[0]
    assert noise == pytest.approx(ROUNDS**0.5 / float(gdp.mu_for(1.0, 1e-4)))
    spent = account(run_events(ALGORITHM, CFG, agent(layout, noise=noise)[0]), 1e-4, fast=True)
    assert (spent.accountant, spent.epsilon) == ("gdp", pytest.approx(1.0))


def test_sensitivity_by_search() -> None:
    place, shard = agent(network(d=3, records=10, graph="complete"))
    with jax.enable_x64(True):
        declared = float(alg.sensitivity(CFG, place, jnp.asarray(0)))
    assert declared == pytest.approx(0.25 * 2 / 10)
    moved = logistic_moves(alg, CFG, place, shard, 0, lambda s, x: eqx.tree_at(lambda s: s.mean, s, x))
    size = np.linalg.norm(moved, axis=1)
    assert size.max() <= declared
    assert size[-1] >= 0.9 * declared


def floor(d: int) -> tuple[float, float]:
    """Mean excess loss and mean ‖x‖² after 40 noisy rounds on logistic records e₁ with balanced labels, σ fixed."""
    x = np.zeros((40, d))
    x[:, 0] = 1.0
    data = x, np.tile([1.0, -1.0], 20)
    layout = network(4, 10, d, graph="complete", problem=Logistic(d), data=data, rounds=40, ridge=0.0)
    trace = run(ALGORITHM, alg.Config(step=2.0), layout, noise=4.0, seeds=1000, every=40, record=False)
    excess = float(np.mean(trace.curves["train_loss"][:, -1]) - np.log(2))  # the optimum is 0, its loss ln 2
    return excess, float(np.mean(np.sum(trace.points[:, 0] ** 2, axis=1)))


@pytest.mark.slow
def test_floor_on_a_rank_one_model_does_not_grow_with_dimension() -> None:
    """Noise off the data's line costs nothing, though the point itself is ever further from the optimum."""
    (few, near), (many, far) = floor(2), floor(24)
    assert many == pytest.approx(few, rel=0.2)
    assert far > 5 * near


def test_default_step() -> None:
    assert alg.tune(alg.Config(), Public(**public())).step == pytest.approx(1 / 0.3)
    assert alg.tune(CFG, Public(**public())) == CFG
