"""`hmv-dgd`: the geometric budget, Laplace noise at its declared scale, and what short steps cannot reach."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy import stats

from coterie.algorithms import hmv_dgd as alg
from coterie.algorithms.base import Algorithm, Public
from coterie.drivers.budget import calibrate_agents, run_events
from coterie.drivers.references import pooled
from coterie.drivers.simulate import Run, simulate
from coterie.errors import InputError
from coterie.losses.logistic import Logistic
from coterie.privacy.accountants import account
from coterie.problems import Ball
from tests.algorithms.moves import logistic_moves, public
from tests.support import agent, network, run

ALGORITHM = Algorithm.of("hmv-dgd", alg)
CFG = alg.Config(step=0.8, step_ratio=0.9, noise_ratio=0.95)


def partial_sums(cfg: alg.Config, noise: float, rounds: int) -> np.ndarray:
    """Σ_{s≤t} Δ_s/M_s for t = 1 … rounds, from the events."""
    events = run_events(ALGORITHM, cfg, agent(network(rounds=rounds), noise=noise)[0])
    return np.cumsum(np.broadcast_to(events[0].l1 * events[0].rate, rounds))


def test_partial_sums_rise_to_epsilon() -> None:
    sums = partial_sums(CFG, 1 / 0.7, 300)
    assert (np.diff(sums[:200]) > 0).all()
    assert (sums <= 0.7 * (1 + 1e-12)).all()
    np.testing.assert_allclose(sums, 0.7 * (1 - (0.9 / 0.95) ** np.arange(1, 301)), rtol=1e-10)
    assert sums[-1] == pytest.approx(0.7, rel=1e-6)


@settings(max_examples=30, deadline=None)
@given(st.floats(0.3, 0.98), st.floats(0.01, 0.99), st.floats(0.05, 5), st.integers(0, 40))
def test_noise_has_the_papers_formula(q: float, between: float, epsilon: float, t: int) -> None:
    """M_t = 2 C₂ √d c p^t/(ε (p − q)), t from 1, at record level C₂ → V/n; doubling ε halves it."""
    p = q + between * (1 - q)
    cfg = alg.Config(step=0.8, step_ratio=q, noise_ratio=p)
    place = agent(network(d=4, records=40), noise=1 / epsilon)[0]
    half = agent(network(d=4, records=40), noise=1 / (2 * epsilon))[0]
    with jax.enable_x64(True):
        at = jnp.asarray(t % 30)
        got, less = float(alg.scale(cfg, place, at)), float(alg.scale(cfg, half, at))
    want = 2 / 40 * 4**0.5 * 0.8 * p ** (t % 30 + 1) / (epsilon * (p - q))
    assert got == pytest.approx(want, rel=1e-9)
    assert less == pytest.approx(want / 2, rel=1e-9)


def test_calibration_to_a_pure_budget() -> None:
    layout = network(rounds=20)
    noise = calibrate_agents(ALGORITHM, CFG, layout.arrays.place, 0.7, 0.0)[0]
    assert noise == pytest.approx((1 - (0.9 / 0.95) ** 20) / 0.7, rel=2e-4)
    place = agent(layout, noise=noise)[0]
    assert account(run_events(ALGORITHM, CFG, place), 0.0).epsilon <= 0.7
    assert alg.claim(CFG, place, 0.0) == pytest.approx(1 / noise)  # the endless run
    assert account(run_events(ALGORITHM, CFG, place), 1e-5, fast=True).epsilon < 0.7  # the L2 norm helps at δ > 0


def test_sensitivity_by_search() -> None:
    place, shard = agent(network(d=3, records=10))
    with jax.enable_x64(True):
        declared = float(alg.sensitivity(CFG, place, jnp.asarray(2)))
        reach = float(alg.reach(CFG, place, jnp.asarray(2)))
    assert declared == pytest.approx(3**0.5 * reach) == pytest.approx(3**0.5 * 0.8 * 0.81 * 2 / 10)
    moved = logistic_moves(alg, CFG, place, shard, 2, lambda s, x: eqx.tree_at(lambda s: s.z, s, x))
    assert np.abs(moved).sum(axis=1).max() <= declared
    assert np.linalg.norm(moved, axis=1).max() <= reach
    assert np.linalg.norm(moved[-1]) >= 0.9 * reach


def test_messages_carry_laplace_noise_of_the_declared_scale() -> None:
    layout = network(agents=3, records=10, d=4, graph="complete", rounds=2)
    runs = [Run(s, CFG, 1.5 if s else 0.0) for s in range(1501)]  # the first has no noise
    sent = simulate(ALGORITHM, layout, runs, rounds=2, record=True).messages.y[:, 0]
    place = agent(layout, noise=1.5)[0]
    residual = (sent[1:] - sent[0]).ravel()
    with jax.enable_x64(True):
        declared = float(alg.scale(CFG, place, jnp.asarray(0)))
    for factor, fits in ((1.0, True), (1.05, False), (0.95, False)):
        tail = stats.gamma.cdf(np.abs(residual / declared / factor).sum(), residual.size)
        assert (0.001 < tail < 0.999) == fits
    assert stats.kstest(residual / declared, stats.laplace.cdf).pvalue > 0.001
    assert stats.kstest(residual / residual.std(), stats.norm.cdf).pvalue < 1e-6  # and not Gaussian


@pytest.mark.slow
def test_noiseless_run_is_gradient_descent_with_the_same_steps() -> None:
    layout = network(graph="complete", rule="uniform", rounds=800)
    optimum = pooled(layout)
    shards = layout.arrays.groups[0].shards
    u = (np.asarray(shards.features) * np.asarray(shards.targets)[..., None]).reshape(-1, 4)
    far = {}
    configs = {q: alg.Config(step=1.0, step_ratio=q, noise_ratio=(1 + q) / 2) for q in (0.9, 0.995)}
    points = simulate(ALGORITHM, layout, [Run(0, c) for c in configs.values()], rounds=800, every=800).points
    for q, got in zip(configs, points, strict=True):
        x = np.zeros(4)
        for t in range(800):
            slope = -(u / (1 + np.exp(u @ x))[:, None]).mean(axis=0) + 0.05 * x
            x = x - q**t * slope
        np.testing.assert_allclose(got, np.tile(x, (5, 1)), atol=1e-12)
        far[q] = np.abs(x - optimum).max()
    assert far[0.9] > 0.1  # steps that fall too fast stop short of the optimum, at any budget
    assert far[0.995] < 1e-4


def test_steps_stay_in_the_set() -> None:
    layout = network(problem=Logistic(4, constraint=Ball(0.3)), rounds=10)
    noisy = run(ALGORITHM, alg.EXAMPLE, layout, noise=0.05)
    places = [agent(layout, i, noise=0.05)[0] for i in range(5)]
    with jax.enable_x64(True):
        spread = np.array([[float(alg.scale(alg.EXAMPLE, p, jnp.asarray(t))) for p in places] for t in range(10)])
    x = noisy.messages.y[0] - spread[..., None] * noisy.draws["noise"][0]
    assert np.linalg.norm(x, axis=-1).max() <= 0.3 + 1e-9
    assert np.linalg.norm(noisy.messages.y[0], axis=-1).max() > 0.3


def test_settings() -> None:
    with pytest.raises(ValidationError, match="noise_ratio must be > step_ratio"):
        alg.Config(step_ratio=0.9, noise_ratio=0.9)
    tuned = alg.tune(alg.Config(), Public(**public(rounds=50)))
    assert tuned.step == pytest.approx(1 / 0.3)
    assert tuned.step_ratio**50 == pytest.approx(0.01)
    assert tuned.noise_ratio**50 == pytest.approx(0.1)
    with pytest.raises(InputError, match="noise_ratio must be > step_ratio"):
        alg.tune(alg.Config(noise_ratio=0.5), Public(**public()))
