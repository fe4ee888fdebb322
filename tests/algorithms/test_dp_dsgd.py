"""dp-dsgd: heavy-ball by hand, the pooled optimum, sensitivity, noise, accounting, defaults, Adult."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from coterie.algorithms import dp_dsgd
from coterie.algorithms.base import Public, find
from coterie.algorithms.dp_dsgd import Config
from coterie.drivers.budget import calibrate_agents, run_events, spending
from coterie.drivers.layout import make_layout
from coterie.drivers.references import pooled
from coterie.drivers.simulate import Run, Test, simulate
from coterie.graphs import make_graph, mixing
from coterie.losses.logistic import Logistic
from coterie.privacy import gdp
from coterie.privacy.accountants import account
from tests.support import agent, message_gap, network, run, swap_record, worst_logistic_pair, zero_draws

ADULT = Public(5, 1, 104, 8000, 8000, 4, 4, 5.0, 1.0, 0.0, 1.0, 0.25, 1.0, 1e-4)


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def by_hand(layout, cfg, trace, weights, noise, rounds):
    """The whole run again in NumPy, with the recorded draws: (last messages, tail averages)."""
    shards = layout.arrays.groups[0].shards
    z, y, n = np.asarray(shards.features), np.asarray(shards.targets), shards.features.shape[1]
    ridge = float(layout.arrays.place.ridge)
    x = np.zeros((len(z), z.shape[2]))
    before, kept, sent = x.copy(), [], x
    for t in range(rounds):
        sent = x
        if t % cfg.mixing == 0:
            slope = -y / (1 + np.exp(y * np.einsum("ard,ad->ar", z, x)))
            slope *= np.minimum(1, cfg.clip / (np.abs(slope) * np.linalg.norm(z, axis=2)))
            g = np.einsum("ar,ard->ad", slope, z) / n + ridge * x
            scale = noise * 2 * cfg.step * cfg.clip / n
            sent = x + cfg.momentum * (x - before) - cfg.step * g + scale * trace.draws["noise"][0, t]
            before = x
        x = weights @ sent
        kept.append(x)
    return sent, np.mean(kept[int((1 - cfg.tail) * rounds) :], axis=0)


@pytest.mark.parametrize(("graph", "every"), [("complete", 1), ("ring", 2)])
def test_run_equals_heavy_ball_by_hand(graph, every):
    layout = network(graph=graph, rounds=9)
    cfg = Config(step=0.7, momentum=0.6, clip=0.4, mixing=every, tail=0.5)
    trace = run("dp-dsgd", cfg, layout, noise=3.0)
    dense = mixing(make_graph(graph, 5), "metropolis").dense()
    if graph == "complete":
        np.testing.assert_allclose(dense, 0.2)  # so every agent's point is the centralised run's
    sent, mean = by_hand(layout, cfg, trace, dense, 3.0, 9)
    np.testing.assert_allclose(trace.messages.y[0, -1], sent, atol=1e-12)
    np.testing.assert_allclose(trace.points[0], mean, atol=1e-12)


@pytest.mark.slow
def test_noiseless_limit_is_the_pooled_optimum():
    layout = network(graph="complete", rounds=600)
    runs = [Run(0, Config(step=2.0, momentum=0.8, clip=c, mixing=1, tail=0.0)) for c in (9.0, 0.2)]
    exact, clipped = simulate(find("dp-dsgd"), layout, runs, rounds=600, every=600).points
    np.testing.assert_allclose(exact, np.tile(pooled(layout), (5, 1)), atol=1e-9)
    assert np.linalg.norm(clipped - pooled(layout)) > 0.05  # the bias that clipping costs


@pytest.mark.slow
def test_even_mixing_keeps_momentum_stable_on_a_grid():
    assert mixing(make_graph("grid", 36), "metropolis").spectrum().lambda_min < -0.35
    layout = network(36, 6, graph="grid", rounds=400)
    one, two = (Config(step=4.0, momentum=0.95, clip=1.0, mixing=k, tail=0.0) for k in (1, 2))
    assert run("dp-dsgd", one, layout, record=False).curves["consensus_gap"][0, -1] > 1e3
    assert run("dp-dsgd", two, layout, record=False).curves["consensus_gap"][0, -1] < 10


def test_sensitivity_is_kept_and_attained():
    pair = worst_logistic_pair(3, 8)
    cfg = Config(step=0.7, momentum=0.5, clip=0.6, mixing=2)
    place, shard = agent(network(records=8, d=3))
    declared = float(dp_dsgd.sensitivity(cfg, place, 0))
    assert declared == pytest.approx(2 * 0.7 * 0.6 / 8)
    worlds = [swap_record(shard, 0, pair.u, 1.0), swap_record(shard, 0, pair.v, 1.0)]
    with jax.enable_x64(True):
        state = dp_dsgd.State(jnp.asarray(pair.point), jnp.zeros(3), jnp.zeros(3))
    assert 0.95 * declared <= message_gap("dp-dsgd", cfg, place, state, worlds) <= declared * (1 + 1e-12)
    assert message_gap("dp-dsgd", cfg, place, state, worlds, t=1) == 0  # a mixing round reads no record
    rng, cfg = np.random.default_rng(0), cfg.replace(mixing=1)
    for _ in range(10):
        with jax.enable_x64(True):
            state = dp_dsgd.State(*(jnp.asarray(3 * rng.standard_normal(3)) for _ in range(3)))
        other = rng.standard_normal(3)
        worlds = [shard, swap_record(shard, 2, other / np.linalg.norm(other), rng.choice([-1.0, 1.0]))]
        assert message_gap("dp-dsgd", cfg, place, state, worlds) <= declared


@pytest.mark.parametrize("scheme", ["without-replacement", "poisson"])
def test_batch_sensitivity_and_unbiasedness(scheme):
    pair = worst_logistic_pair(3, 8)
    cfg = Config(step=1.0, momentum=0.0, clip=0.6, mixing=1, batch=4, scheme=scheme)
    place, shard = agent(network(records=8, d=3))
    declared = float(dp_dsgd.sensitivity(cfg, place, 0))
    assert declared == pytest.approx((1 if scheme == "poisson" else 2) * 0.6 / 4)
    point = jnp.asarray(pair.point)
    state = dp_dsgd.State(point, point, point)
    draw = zero_draws("dp-dsgd", cfg, place)
    worlds = [swap_record(shard, 0, pair.u, 1.0), swap_record(shard, 0, pair.v, 1.0)]
    with jax.enable_x64(True):
        draw["coins"] = jnp.linspace(0.1, 0.9, 8)  # record 0 is in the batch
        if scheme == "poisson":  # add/remove: the same batch with and without record 0
            left = draw | {"coins": draw["coins"].at[0].set(0.99)}
            messages = [dp_dsgd.emit(cfg, place, 0, state, worlds[0], d)[1].y for d in (draw, left)]
            gap = float(jnp.linalg.norm(messages[0] - messages[1]))
        else:
            gap = message_gap("dp-dsgd", cfg, place, state, tuple(worlds), draw=draw)
        assert 0.95 * declared <= gap <= declared * (1 + 1e-12)
        coins = jax.random.uniform(jax.random.key(0), (20_000, 8), jnp.float64)
        batch_gradient = jax.vmap(lambda c: dp_dsgd._gradient(cfg, place, shard, point, draw | {"coins": c}))(coins)
        full = place.unit * shard.gradient(point, clip=0.6)
    error = np.asarray(batch_gradient) - np.asarray(full)
    assert np.all(np.abs(error.mean(0)) < 4.5 * error.std(0) / np.sqrt(20_000))


def test_noise_has_the_declared_scale():
    layout = network(graph="complete", rounds=2, d=400, records=4)
    cfg = Config(step=0.5, momentum=0.0, clip=1.0, mixing=1)
    runs = [Run(s, cfg, z) for z in (5.0, 0.0) for s in range(4)]
    sent = simulate(find("dp-dsgd"), layout, runs, rounds=1, record=True).messages.y
    residual = (sent[:4] - sent[4:]).ravel()
    sigma = float(dp_dsgd.sigma(cfg, agent(layout, noise=5.0)[0], 0))
    assert sigma == pytest.approx(5.0 * 2 * 0.5 / 4)
    assert residual.size == 8000
    assert stats.kstest(residual / sigma, "norm").pvalue > 1e-3
    for wrong in (0.95, 1.05):
        spread = residual.size * np.var(residual / (wrong * sigma))
        assert min(stats.chi2.cdf(spread, 8000), stats.chi2.sf(spread, 8000)) < 1e-3


def test_only_gradient_rounds_are_charged_and_calibration_is_exact():
    layout = network(rounds=31)
    algorithm, cfg = find("dp-dsgd"), Config(step=1.0, momentum=0.9, clip=0.5, mixing=3)
    noise = calibrate_agents(algorithm, cfg, layout.arrays.place, 1.0, 1e-4)
    np.testing.assert_allclose(noise, np.sqrt(11) / 0.313902, rtol=1e-5)  # 11 gradient rounds in 31
    place, _ = agent(layout, noise=float(noise[0]))
    assert account(run_events(algorithm, cfg, place), 1e-4).epsilon == pytest.approx(1.0, rel=1e-9)


def test_sampled_cost_has_the_golden_value():
    layout = network(agents=2, records=50, graph="complete", rounds=1000)  # b = 1 of 50: q = .02
    cfg = Config(step=1.0, momentum=0.9, clip=0.5, mixing=1, batch=1)
    place, _ = agent(layout, noise=6.2)
    assert account(run_events(find("dp-dsgd"), cfg, place), 1e-5).epsilon == pytest.approx(0.374, abs=6e-4)
    poisson = Config(step=1.0, momentum=0.9, clip=0.5, mixing=1, batch=1, scheme="poisson")
    total = account(run_events(find("dp-dsgd"), poisson, place), 1e-5)
    assert total.epsilon == pytest.approx(0.354, abs=6e-4)
    assert total.adjacency == "add-remove"


def test_defaults_follow_the_documented_rule():
    ratio = 8000 * float(gdp.mu_for(1.0, 1e-4)) * np.sqrt(5)
    assert dp_dsgd.signal_to_noise(ADULT) == pytest.approx(ratio)
    rounds = dp_dsgd.suggest_rounds(ADULT)
    assert rounds == round(np.sqrt(8 * 0.4 * ratio))
    cfg = dp_dsgd.tune(Config(), dataclasses.replace(ADULT, rounds=rounds))
    assert (cfg.clip, cfg.mixing, cfg.step, cfg.tail) == (0.5, 1, 8.0, 0.75)
    assert 1 - cfg.momentum == pytest.approx(16 / rounds, rel=0.02)
    # far too many rounds: no momentum, and a step that still travels as far
    slow = dp_dsgd.tune(Config(), dataclasses.replace(ADULT, rounds=100_000))
    assert slow.momentum == 0
    assert slow.step * 100_000 == pytest.approx(0.4 * ratio / 0.25)
    # what the user sets stays
    stated = Config(step=3.0, momentum=0.2, clip=2.0, mixing=5, tail=0.0)
    assert dp_dsgd.tune(stated, ADULT) == stated
    assert [dp_dsgd.suggest_mixing(dataclasses.replace(ADULT, mixing_gap=g)) for g in (0.8, 0.46, 0.2, 1e-4, None)] == [
        1, 2, 6, 10, 10
    ]  # fmt: skip
    # a short run mixes more, if its rounds were not stated to be fewer; ring of five: |λ₂| = .54
    ring = dataclasses.replace(ADULT, mixing_gap=0.46, epsilon=0.1)
    steps = round(np.sqrt(8 * 0.4 * dp_dsgd.signal_to_noise(ring)))
    assert 40 < steps < 50
    assert dp_dsgd.suggest_rounds(ring) == 4 * steps
    assert dp_dsgd.tune(Config(), dataclasses.replace(ring, rounds=4 * steps)).mixing == 4
    assert dp_dsgd.tune(Config(), dataclasses.replace(ring, rounds=60)).mixing == 2
    longer = dataclasses.replace(ring, epsilon=1.0)
    assert dp_dsgd.suggest_rounds(longer) == 2 * rounds
    free = dp_dsgd.tune(Config(), dataclasses.replace(ADULT, epsilon=None, delta=None, rounds=100))
    assert (free.clip, free.step, free.momentum, free.tail) == (1.0, 8.0, pytest.approx(0.94), 0.5)
    network_like = dataclasses.replace(ADULT, lipschitz=np.inf, smoothness=np.inf, rounds=100)
    unknown = dp_dsgd.tune(Config(), network_like)
    assert (unknown.clip, unknown.step, unknown.momentum, unknown.tail) == (0.5, 0.5, 0.9, 0.5)
    assert dp_dsgd.suggest_rounds(network_like) == 100


@pytest.mark.slow
@pytest.mark.data
def test_adult_with_default_settings():
    from coterie.data import load

    data = load("adult")
    order, problem, scores = np.random.default_rng(0).permutation(len(data)), Logistic(104), {}
    features, labels = data.features.astype(np.float32), np.where(data.targets == 1, 1.0, -1.0).astype(np.float32)
    train, test = order[:40_000], order[40_000:]
    for kind in ("complete", "ring"):
        graph = make_graph(kind, 5)
        weights = mixing(graph, "metropolis")
        for epsilon in (1.0, 0.1):
            public = dataclasses.replace(ADULT, epsilon=epsilon, mixing_gap=weights.spectrum().gap)
            public = dataclasses.replace(public, rounds=dp_dsgd.suggest_rounds(public))
            cfg = dp_dsgd.tune(Config(), public)
            layout = make_layout(
                problem, features[train], labels[train], np.split(np.arange(40_000), 5), graph, weights,
                rounds=public.rounds, dtype=jnp.float32,
            )  # fmt: skip
            noise = calibrate_agents(find("dp-dsgd"), cfg, layout.arrays.place, epsilon, 1e-4)
            trace = simulate(
                find("dp-dsgd"), layout, [Run(s, cfg, noise) for s in range(10)], rounds=public.rounds,
                every=public.rounds, test=Test(features[test], labels[test]),
            )  # fmt: skip
            scores[kind, epsilon] = trace.curves["test_score"][:, -1].mean()
    assert scores["complete", 1.0] >= 0.83
    assert scores["complete", 0.1] >= 0.80
    for epsilon in (1.0, 0.1):
        assert scores["ring", epsilon] >= scores["complete", epsilon] - 0.01


def test_no_noise_is_no_privacy():
    cfg = Config(step=1.0, momentum=0.0, clip=1.0, mixing=1)
    assert np.isinf(spending(find("dp-dsgd"), cfg, network(rounds=10).arrays.place, 1e-4).worst.epsilon)
