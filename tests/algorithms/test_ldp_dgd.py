"""`ldp-dgd`: the average, the furthest pair and its interval, Laplace noise, pure cost, and what the paper left out."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from coterie.algorithms import ldp_dgd as alg
from coterie.algorithms.base import Algorithm, Public
from coterie.drivers.budget import calibrate_agents, run_events
from coterie.drivers.references import pooled
from coterie.privacy.accountants import account, delta_of
from tests.algorithms.moves import logistic_moves, public
from tests.support import agent, network, run

ALGORITHM = Algorithm.of("ldp-dgd", alg)
AGENTS, DIM, ROUNDS = 4, 3, 6
CFG = alg.Config(step=1.5, ratio=0.97, decay=0.25, average=False)


def brute_pair(x: np.ndarray) -> tuple[int, int]:
    """The furthest pair by plain loops, the first one found among equals."""
    best, pair = -1.0, (0, 1)
    for a in range(len(x)):
        for b in range(a + 1, len(x)):
            far = np.abs(x[a] - x[b]).sum()
            if far > best:
                best, pair = far, (a, b)
    return pair


@pytest.fixture(scope="module")
def noisy():
    layout = network(AGENTS, 10, DIM, graph="complete", rounds=ROUNDS)
    return layout, run(ALGORITHM, CFG, layout, noise=0.7, seeds=1200)


def slope(layout, i: int, x: np.ndarray) -> np.ndarray:
    """∇f_i by hand."""
    shards = layout.arrays.groups[0].shards
    u = np.asarray(shards.features)[i] * np.asarray(shards.targets)[i][:, None]
    return -(u / (1 + np.exp(u @ x))[:, None]).mean(axis=0) + 0.05 * x


def step(t: int) -> float:
    return 1.5 * 0.97**t / (t + 1) ** 0.25


def test_round_is_the_papers_update(noisy) -> None:
    """x̄ + (2w − 1)(x_a − x_b)/N − η∇f_i(x̄) + Δ, equal to the printed mixture of weights that sum to one."""
    layout, trace = noisy
    x, noise, w = (v[0] for v in (trace.messages.x, trace.draws["noise"], trace.draws["weight"]))
    for t in range(1, ROUNDS):
        before, mean = x[t - 1], x[t - 1].mean(axis=0)
        a, b = brute_pair(before)
        scale = 0.7 * DIM**0.5 * step(t) * 2 / 10
        for i in range(AGENTS):
            weights = np.full((AGENTS, DIM), 1 / AGENTS)
            weights[a], weights[b] = 2 * w[t, i] / AGENTS, 2 * (1 - w[t, i]) / AGENTS
            np.testing.assert_allclose(weights.sum(axis=0), 1, atol=1e-12)
            want = (weights * before).sum(axis=0) - step(t) * slope(layout, i, mean) + scale * noise[t, i]
            np.testing.assert_allclose(x[t, i], want, atol=1e-10)


def test_middle_weights_give_descent_of_the_average() -> None:
    layout = network(AGENTS, 10, DIM, graph="complete", rounds=120)
    draws = {"noise": np.zeros((120, AGENTS, DIM)), "weight": np.full((120, AGENTS, DIM), 0.5)}
    cfg = alg.Config(step=4.0, decay=0.0, average=False)
    got = run(ALGORITHM, cfg, layout, replay=draws).points[0]
    x = np.zeros(DIM)
    for _ in range(120):
        x = x - 4 * np.mean([slope(layout, i, x) for i in range(AGENTS)], axis=0)
    np.testing.assert_allclose(got, np.tile(x, (AGENTS, 1)), atol=1e-12)
    np.testing.assert_allclose(got[0], pooled(layout), atol=1e-7)


@pytest.mark.slow
def test_random_weights_alone_leave_a_small_error_that_falls_with_the_steps() -> None:
    layout = network(graph="complete", rounds=400)
    last = run(ALGORITHM, alg.EXAMPLE, layout, every=400).points[0]
    assert np.abs(last - pooled(layout)).max() < 0.03


def test_answer_is_the_mean_over_the_rounds(noisy) -> None:
    layout, trace = noisy
    draws = {k: v[0] for k, v in trace.draws.items()}
    again = run(ALGORITHM, CFG.replace(average=True), layout, noise=0.7, replay=draws)
    want = trace.messages.x[0].mean(axis=(0, 1))
    np.testing.assert_allclose(again.points[0], np.tile(want, (AGENTS, 1)), atol=1e-12)
    np.testing.assert_allclose(trace.points[0], np.tile(trace.messages.x[0, -1].mean(axis=0), (AGENTS, 1)), atol=1e-12)


def test_furthest_pair_and_ties() -> None:
    rng = np.random.default_rng(0)
    points = rng.integers(-2, 3, (200, 5, 2)).astype(float)  # many ties
    points[0] = 0
    with jax.enable_x64(True):
        first, second = jax.jit(jax.vmap(alg.furthest))(points)
    assert list(zip(first.tolist(), second.tolist(), strict=True)) == [brute_pair(x) for x in points]
    assert brute_pair(points[0]) == (0, 1)


def test_width_of_the_interval(noisy) -> None:
    layout, trace = noisy
    last = trace.messages.x[:, -1]
    place = agent(layout)[0]
    with jax.enable_x64(True):
        states = jax.tree.map(jnp.asarray, trace.states)
        got = np.asarray(jax.vmap(jax.vmap(lambda s: alg.width(CFG, place, s)))(states))
    for seed in range(20):
        a, b = brute_pair(last[seed])
        want = 2 / AGENTS * np.abs(last[seed, a] - last[seed, b])
        np.testing.assert_allclose(got[seed], np.tile(want, (AGENTS, 1)), atol=1e-12)


def test_messages_carry_laplace_and_uniform_of_the_declared_widths(noisy) -> None:
    layout, trace = noisy
    x = trace.messages.x
    first = (x[:, 0] - [-step(0) * slope(layout, i, np.zeros(DIM)) for i in range(AGENTS)]).ravel()
    place = agent(layout, noise=0.7)[0]
    with jax.enable_x64(True):
        declared = float(alg.scale(CFG, place, jnp.asarray(0)))
    assert declared == pytest.approx(0.7 * DIM**0.5 * 1.5 * 2 / 10)
    for factor, fits in ((1.0, True), (1.05, False), (0.95, False)):
        tail = stats.gamma.cdf(np.abs(first / declared / factor).sum(), first.size)
        assert (0.001 < tail < 0.999) == fits
    # second round, agent 2: variance 2b² + ω²/12 in every coordinate, given the public width
    mean, scale = x[:, 0].mean(axis=1), declared * step(1) / step(0)
    pairs = [brute_pair(y) for y in x[:, 0]]
    wide = np.array([2 / AGENTS * np.abs(y[a] - y[b]) for y, (a, b) in zip(x[:, 0], pairs, strict=True)])
    centre = mean - step(1) * np.array([slope(layout, 2, m) for m in mean])
    standard = (x[:, 1, 2] - centre) / np.sqrt(2 * scale**2 + wide**2 / 12)
    assert np.mean(standard**2) == pytest.approx(1, abs=4 * standard.std() * np.sqrt(5 / standard.size))
    assert np.mean((x[:, 1, 2] - centre) ** 2) > 1.03 * 2 * scale**2  # the uniform part is really there


def test_sensitivity_by_search() -> None:
    place, shard = agent(network(d=3, records=10, graph="complete"))
    with jax.enable_x64(True):
        declared = float(alg.sensitivity(CFG, place, jnp.asarray(2)))
    reach = step(2) * 2 / 10
    assert declared == pytest.approx(3**0.5 * reach)
    moved = logistic_moves(alg, CFG, place, shard, 2, lambda s, x: eqx.tree_at(lambda s: s.mean, s, x))
    assert np.abs(moved).sum(axis=1).max() <= declared
    assert np.linalg.norm(moved, axis=1).max() <= reach
    assert np.linalg.norm(moved[-1]) >= 0.9 * reach
    assert np.abs(moved[-1]).max() >= 0.9 * reach  # one coordinate can take all of it


def test_pure_cost_and_what_the_paper_prints() -> None:
    layout = network(d=4, graph="complete", rounds=ROUNDS)
    noise = calibrate_agents(ALGORITHM, CFG, layout.arrays.place, 0.5, 0.0)[0]
    assert noise == pytest.approx(ROUNDS / 0.5, rel=2e-4)  # every round costs 1/noise
    place = agent(layout, noise=noise)[0]
    total = account(run_events(ALGORITHM, CFG, place), 0.0).epsilon
    assert 0.5 * (1 - 2e-4) <= total <= 0.5
    assert alg.claim(CFG, place, 0.0) == pytest.approx(total / 2)  # √d = 2 too little


def test_mixture_saves_something_but_nothing_of_the_pure_bound() -> None:
    """The exact loss of one coordinate: δ by quadrature of the two densities, below plain Laplace, same pure ε."""
    place = agent(network(d=4, graph="complete"), noise=0.5)[0]
    with jax.enable_x64(True):
        event = alg.mixture(CFG, place, jnp.asarray(0), jnp.asarray([0.3]))
    rate, width, shift = (float(np.asarray(v)[0]) for v in (event.rate, event.width, event.shift))
    assert rate * shift == pytest.approx(1 / (0.5 * 2))

    def density(x: float) -> float:
        return integrate.quad(lambda y: rate / 2 * np.exp(-rate * abs(x - y)), 0, width, points=[np.clip(x, 0, width)])[
            0
        ]

    eps = 0.4
    loss = lambda x: max(density(x) - np.exp(eps) * density(x - shift), 0.0) / width  # noqa: E731
    want = integrate.quad(loss, -20 / rate, width + shift, limit=400)[0]
    assert delta_of([event], eps) == pytest.approx(want, rel=1e-3)
    assert want < 1 - np.exp((eps - rate * shift) / 2)  # plain Laplace
    assert account([event], 0.0).epsilon == pytest.approx(rate * shift)


def test_default_step() -> None:
    assert alg.tune(alg.Config(), Public(**public())).step == pytest.approx(1 / 0.3)
    assert alg.tune(CFG, Public(**public())) == CFG
