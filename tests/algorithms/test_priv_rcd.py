"""`priv-rcd`: public permutation epochs, one Gaussian release per epoch, and descent itself."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from coterie.algorithms import gauss_avg_gd
from coterie.algorithms import priv_rcd as alg
from coterie.algorithms.base import Algorithm, Public, find
from coterie.drivers.budget import calibrate_agents, run_events
from coterie.drivers.layout import Layout
from coterie.drivers.references import pooled
from coterie.drivers.simulate import Trace
from coterie.errors import InputError
from coterie.losses.mean import Mean
from coterie.losses.softmax import Softmax
from coterie.privacy import gdp
from coterie.privacy.accountants import total_mu
from tests.algorithms.moves import logistic_moves, move, public
from tests.support import agent, network, run, swap_record, worst_logistic_pair

ALGORITHM = Algorithm.of("priv-rcd", alg)
AGENTS, DIM, ROUNDS = 4, 3, 9
CFG = alg.Config(step=1.5, public_seed=5)


@pytest.fixture(scope="module")
def noisy() -> tuple[Layout, Trace]:
    layout = network(AGENTS, 10, DIM, graph="complete", rounds=ROUNDS)
    return layout, run(ALGORITHM, CFG, layout, noise=0.8, seeds=2500, every=ROUNDS)


def test_every_epoch_takes_every_coordinate_once() -> None:
    place = agent(network(d=7, rounds=70))[0]
    order = alg.coordinates(CFG, place)
    assert np.bincount(order).tolist() == [10] * 7  # K/d
    epochs = order.reshape(10, 7)
    assert (np.sort(epochs, axis=1) == np.arange(7)).all()
    assert len({tuple(e) for e in epochs.tolist()}) > 5
    assert (order == alg.coordinates(CFG, place)).all()
    assert (order != alg.coordinates(CFG.replace(public_seed=6), place)).any()
    assert alg.coordinates(CFG, agent(network(d=7, rounds=9))[0]).tolist() == order[:9].tolist()


@pytest.mark.slow
def test_noiseless_limit_is_the_pooled_optimum() -> None:
    layout = network(graph="complete", rounds=1000)
    trace = run(ALGORITHM, alg.EXAMPLE, layout, every=1000)
    np.testing.assert_allclose(trace.points[0], np.tile(pooled(layout), (5, 1)), atol=1e-8)
    assert (trace.sent == 1000).all()
    assert jax.tree.leaves(trace.messages)[0].shape == (1, 1000, 5)  # one number a round


def test_round_moves_one_coordinate(noisy: tuple[Layout, Trace]) -> None:
    layout, trace = noisy
    shards = layout.arrays.groups[0].shards
    u = np.asarray(shards.features) * np.asarray(shards.targets)[..., None]
    x = np.zeros(DIM)
    for t, l in enumerate(alg.coordinates(CFG, agent(layout)[0])):
        slopes = -(u / (1 + np.exp(u @ x))[..., None]).mean(axis=1) + 0.05 * x
        sent = x[l] - 1.5 * slopes[:, l] + 0.8 * 1.5 * 2 / 10 * trace.draws["noise"][0, t]
        np.testing.assert_allclose(trace.messages.v[0, t], sent, atol=1e-12)
        x[l] = sent.mean()
    np.testing.assert_allclose(trace.points[0], np.tile(x, (AGENTS, 1)), atol=1e-12)


@pytest.mark.slow
def test_one_coordinate_is_noisy_gradient_descent() -> None:
    layout = network(AGENTS, 10, 1, graph="complete", rounds=ROUNDS)
    step = run(Algorithm.of("gauss-avg-gd", gauss_avg_gd), gauss_avg_gd.Config(step=1.5), layout, noise=0.8)
    draws = {"noise": step.draws["noise"][0, ..., 0]}
    coordinate = run(ALGORITHM, CFG, layout, noise=0.8, replay=draws)
    np.testing.assert_allclose(coordinate.messages.v, step.messages.x[..., 0], atol=1e-12)
    np.testing.assert_allclose(coordinate.points, step.points, atol=1e-12)
    place = agent(layout, noise=0.8)[0]
    one = total_mu(run_events(ALGORITHM, CFG, place))
    other = total_mu(run_events(Algorithm.of("", gauss_avg_gd), gauss_avg_gd.Config(step=1.5), place))
    assert one == pytest.approx(other)


def test_messages_carry_the_declared_noise(noisy: tuple[Layout, Trace]) -> None:
    layout, trace = noisy
    first = int(alg.coordinates(CFG, agent(layout)[0])[0])
    shards = layout.arrays.groups[0].shards
    u = np.asarray(shards.features) * np.asarray(shards.targets)[..., None]
    residual = (trace.messages.v[:, 0] - 1.5 * u.mean(axis=1)[:, first] / 2).ravel()
    with jax.enable_x64(True):
        declared = float(alg.sigma(CFG, agent(layout, noise=0.8)[0], jnp.asarray(0)))
    for factor, fits in ((1.0, True), (1.05, False), (0.95, False)):
        tail = stats.chi2.cdf(np.sum((residual / declared / factor) ** 2), residual.size)
        assert (0.001 < tail < 0.999) == fits


def test_mu_counts_epochs() -> None:
    """μ = √(K/d) Δ/σ: one release per epoch, a begun epoch counts in full, and noise is constant within one."""
    for rounds, epochs in ((12, 3), (13, 4)):
        layout = network(4, 10, 4, graph="complete", rounds=rounds, shape=1.1 ** np.arange(rounds))
        place = agent(layout, noise=2.0)[0]
        events = run_events(ALGORITHM, CFG, place)
        assert events[0].times.tolist() == [int(t % 4 == 0) for t in range(rounds)]
        assert np.unique(events[0].sigma.round(12)).size == epochs
        want = np.sqrt(np.sum(1 / (2 * 1.1 ** (4 * np.arange(epochs))) ** 2))
        assert total_mu(events) == pytest.approx(want)
    layout = network(4, 10, 4, graph="complete", rounds=40)
    noise = calibrate_agents(ALGORITHM, CFG, layout.arrays.place, 1.0, 1e-4)[0]
    assert noise == pytest.approx(10**0.5 / float(gdp.mu_for(1.0, 1e-4)))


def epoch_moves(place, shards, points: np.ndarray) -> np.ndarray:
    """How far the replaced record moves each message of the first epoch, with x̄ = points[t] in round t."""
    with jax.enable_x64(True):
        start = alg.init(CFG, place)
        states = [eqx.tree_at(lambda s: s.x, start, jnp.asarray(x)) for x in points]
    return np.array([move(alg, CFG, place, s, shards, t)[0] for t, s in enumerate(states)])


def test_an_epoch_moves_by_no_more_than_one_release() -> None:
    rng = np.random.default_rng(2)
    place, shard = agent(network(d=3, records=10, graph="complete"))
    with jax.enable_x64(True):
        declared = float(alg.sensitivity(CFG, place, jnp.asarray(0)))
    assert declared == pytest.approx(1.5 * 2 / 10)
    for _ in range(10):  # the adversary moves x̄ anywhere between the messages
        records = rng.standard_normal((2, 3))
        records /= np.linalg.norm(records, axis=1, keepdims=True)
        worlds = tuple(swap_record(shard, 0, u, y) for u, y in zip(records, rng.choice([-1.0, 1.0], 2), strict=True))
        assert np.linalg.norm(epoch_moves(place, worlds, 30 * rng.standard_normal((3, 3)))) <= declared
    pair = worst_logistic_pair(3, 10, margin=200.0)
    worlds = swap_record(shard, 0, pair.u, 1.0), swap_record(shard, 0, pair.v, 1.0)
    moved = epoch_moves(place, worlds, np.tile(pair.point, (3, 1)))
    assert 0.9 * declared <= np.linalg.norm(moved) <= declared
    assert np.abs(moved).max() >= 0.9 * declared  # all of it in one message: charging 1/√d of Δ a round would be wrong
    alone = logistic_moves(alg, CFG, place, shard, 1, lambda s, x: eqx.tree_at(lambda s: s.x, s, x))
    assert np.abs(alone).max() <= declared


def test_an_epoch_of_a_mean_attains_the_bound() -> None:
    data = np.zeros((20, 3)), np.zeros(20)
    layout = network(4, 5, 3, graph="complete", problem=Mean(3, 2.0), data=data, ridge=0.0)
    place, shard = agent(layout)
    worlds = swap_record(shard, 0, np.full(3, 2.0), 0.0), swap_record(shard, 0, np.full(3, -2.0), 0.0)
    moved = epoch_moves(place, worlds, np.zeros((3, 3)))
    with jax.enable_x64(True):
        assert np.linalg.norm(moved) == pytest.approx(float(alg.sensitivity(CFG, place, jnp.asarray(0))))


def test_gradients_that_turn_are_refused() -> None:
    """A softmax record's coordinates can each be large at another point: over an epoch they exceed V."""
    problem = Softmax(1, 3)
    with jax.enable_x64(True):
        pushes = jnp.asarray([[-40.0, 0, 0], [0, 40.0, 0], [0, 0, 40.0]])
        ones, label = jnp.ones((1, 1)), jnp.zeros(1, int)
        worst = [problem.weighted_gradient(x, ones, label, jnp.ones(1))[l] for l, x in enumerate(pushes)]
    assert np.linalg.norm(np.array(worst)) > 1.2 * problem.lipschitz  # one record alone: √3 against √2
    with pytest.raises(InputError, match="priv-rcd needs gradients that keep their direction: softmax loss has none"):
        find("priv-rcd").check(CFG, problem)


def test_what_the_paper_prints() -> None:
    """σ² = (B/M̂)² K/(ε² d) makes μ = ε: at ε = 1 that is δ = .127, not 1e-5."""
    place = agent(network(4, 10, 4, graph="complete", rounds=40), noise=10**0.5)[0]
    assert alg.claim(CFG, place, 1e-5) == pytest.approx(1.0)
    mu = total_mu(run_events(ALGORITHM, CFG, place))
    assert mu == pytest.approx(1.0)
    assert float(gdp.delta_of(mu, 1.0)) == pytest.approx(0.127, abs=5e-4)


def test_defaults() -> None:
    assert alg.tune(alg.Config(), Public(**public())).step == pytest.approx(1 / 0.3)
    assert alg.tune(CFG, Public(**public())) == CFG
    assert alg.suggest_rounds(Public(**public(dim=7))) % 7 == 0
