"""qdpsgd2: released state by hand; the printed version's drift, its true cost, the leak that Theorem 15 overlooks."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coterie.algorithms import qdpsgd2
from coterie.algorithms.base import Public, find
from coterie.algorithms.batches import rows
from coterie.algorithms.qdpsgd2 import Config
from coterie.algorithms.quantize import common_dither, width_of
from coterie.drivers.budget import run_events
from coterie.drivers.layout import make_places
from coterie.graphs import make_graph, mixing
from coterie.losses.mlp import Perceptron
from coterie.privacy.accountants import account
from coterie.privacy.events import DiscreteGaussian
from coterie.privacy.rdp import zcdp_epsilon
from tests.algorithms.quantized_by_hand import clipped, deadline_batch, records, weights
from tests.packing import pack_message, unpack_message
from tests.printed import printed_sigma
from tests.support import agent, network, run, swap_record, worst_logistic_pair


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def printed_place(own: float, smoothness: float, count: float, rounds: int = 1000, noise: float = 1.0):
    """One agent with the given w_ii and loss curvature."""
    place, _ = agent(network(records=8, rounds=rounds, ridge=0.0), noise=noise)
    values = (jnp.asarray(own), jnp.asarray(smoothness), jnp.asarray(count), jnp.asarray(1 / count))
    return eqx.tree_at(lambda p: (p.self_weight, p.smoothness, p.count, p.unit), place, values)


def test_released_state_by_hand():
    """With a fine grid: z ← a z + h Σ w z_j − α h g(z) + noise of std ν 2αhK/b, the law of qdpsgd1 on its own z."""
    layout = network(rounds=8, ridge=0.0)
    cfg = Config(step=1.0, averaging=0.6, batch=5, clip=0.6, grid=1e-7, range=64.0, failure=1e-9)
    trace = run("qdpsgd2", cfg, layout, noise=0.3)
    (f, y), w, z = records(layout), weights("ring"), np.zeros((5, 4))
    for t in range(8):
        sent = np.empty_like(z)
        for i in range(5):
            chosen = deadline_batch(trace.draws, i, t, 5, 40)
            step = np.zeros(4)
            if len(chosen):
                noise = 0.3 * 2 * 0.6 / len(chosen) * trace.draws["noise"][0, t, i]
                step = clipped(z[i], f[i][chosen], y[i][chosen], 0.6).mean(0) - noise
            near = sum(w[i, j] * z[j] for j in range(5) if j != i)
            sent[i] = (0.4 + 0.6 * w[i, i]) * z[i] + 0.6 * near - 0.6 * step
        z = sent
        np.testing.assert_allclose(trace.messages.z[0, t], z, atol=1e-4)
    np.testing.assert_array_equal(trace.points[0], trace.messages.z[0, -1])  # only what was sent is handed out
    np.testing.assert_array_equal(trace.states.x, trace.states.z)  # nothing un-noised is kept


def test_messages_are_on_the_grid_and_pack_to_the_counted_bits():
    layout = network(rounds=4)
    cfg = Config(step=1.0, averaging=0.6, batch=5, clip=0.6, grid=0.05, range=0.1, failure=1e-9)
    trace = run("qdpsgd2", cfg, layout, noise=4.0)
    whole = trace.messages.z / 0.05
    np.testing.assert_allclose(whole, np.rint(whole), atol=1e-9)
    place, _ = agent(layout)
    packed = 0
    for t in range(4):
        message = qdpsgd2.Message(jnp.asarray(trace.messages.z[0, t, 1]), jnp.asarray(trace.messages.size[0, t, 1]))
        width = int(width_of(jnp.round(message.z / 0.05)))
        data = pack_message(message.z, message.size, 0.05, width)
        np.testing.assert_allclose(unpack_message(data, 0.05)[0], message.z, atol=1e-12)
        assert 0 <= 8 * len(data) - int(qdpsgd2.bits(cfg, place, message)) < 8
        packed += int(qdpsgd2.bits(cfg, place, message))
    assert trace.bytes[0, 1] == pytest.approx(packed / 8)


def test_sensitivity_of_one_step():
    pair = worst_logistic_pair(3, 8)
    place, shard = agent(network(records=8, d=3, ridge=0.0))
    cfg = Config(step=0.7, averaging=0.5, batch=4, scheme="fixed", clip=0.6, grid=1e-3, range=99.0, failure=0.0)
    declared, shift = float(qdpsgd2.sensitivity(cfg, place, 0)), 0.7 * 0.5 * 2 * 0.6 / 4
    assert declared == pytest.approx(shift + 1e-3 * np.sqrt(3))
    point = jnp.asarray(pair.point)
    state = qdpsgd2.State(point, jnp.zeros(3), point, jnp.zeros(()))
    draw = {k: jnp.zeros(law.shape) for k, law in qdpsgd2.draws(cfg, place).items()}
    draw["coins"] = jnp.linspace(0, 0.9, 8)
    gaps, rng = [], np.random.default_rng(0)
    worlds = [swap_record(shard, 0, record, 1.0) for record in (pair.u, pair.v)]
    emit = jax.jit(lambda s, d: qdpsgd2.emit(cfg, place, 0, state, s, d)[1].z)
    for _ in range(50):
        dither = {"dither": jnp.asarray(rng.uniform(size=3))}
        gaps.append(float(jnp.linalg.norm(emit(worlds[0], draw | dither) - emit(worlds[1], draw | dither))))
    assert 0.9 * declared <= max(gaps) <= declared * (1 + 1e-9)
    assert max(gaps) > shift  # rounding does add something


def test_mnist_defaults_and_bits():
    graph = make_graph("erdos-renyi", 10, p=0.4, seed=1)
    weights_ = mixing(graph, "laplacian")
    problem = Perceptron((784, 50, 10), "sigmoid")
    place = rows(make_places(problem, np.full(10, 1000), graph, weights_, rounds=1000), 0)
    place = eqx.tree_at(lambda p: p.noise, place, jnp.asarray(5.26))
    public = Public(10, 1000, problem.dim, 1000, 1000, 2, 6, 8.0, 0.2, 0.0, np.inf, np.inf, 1.0, 1e-5)
    for factor, std, width in ((1, 0.0099, 18), (100, 0.109, 12), (1000, 0.42, 10)):
        cfg = qdpsgd2.tune(Config(), public)
        assert (2 * cfg.step * cfg.averaging * 0.5 / 20, cfg.failure) == pytest.approx((1.65e-3, 5e-9), rel=2e-3)
        cfg = cfg.replace(grid=cfg.grid * factor)
        assert float(qdpsgd2.sigma(cfg, place, 0, jnp.asarray(20.0))) == pytest.approx(std, rel=0.015)
        seconds = float(qdpsgd2.duration(cfg, place, 0, {}))
        assert seconds == pytest.approx(0.4 + 3 * width / 16, abs=3 / 16)


def test_cost_before_and_after():
    place = printed_place(0.5, 0.25, 1000.0, noise=6.2)
    fixed = Config(step=0.1, averaging=0.3, batch=20, scheme="fixed", grid=1e-3, range=1.0, failure=1e-12)
    total = account(run_events(find("qdpsgd2"), fixed, place), 1e-5)
    assert total.epsilon == pytest.approx(0.832, abs=1e-3)  # the discrete bound's golden value; continuous: .374
    wasteful = fixed.replace(failure=1e-7)  # 3 q T β = 6e-6 of δ = 1e-5
    assert account(run_events(find("qdpsgd2"), wasteful, place), 1e-5).epsilon > total.epsilon + 0.01
    free = qdpsgd2.cost(fixed, place, 0, qdpsgd2.Message(jnp.zeros(4), jnp.zeros(())))
    assert account([free], 1e-5).epsilon == 0


# ---- as printed ------------------------------------------------------------------------------------------------------


def test_printed_drift_has_its_closed_form():
    cfg = Config(step=0.4, averaging=0.3, batch=50, scheme="fixed", clip=0.5, as_printed=True, grid=1e-9, failure=0.0)
    alpha_h, once = 0.4 * 0.3, 2 * 0.4 * 0.3 * 0.5 / 50
    for own in (0.2, 0.7):
        place, a = printed_place(own, 0.0, 50.0), 1 - 0.3 + 0.3 * own
        drifts = np.array([float(qdpsgd2.drift(cfg, place, t)) for t in (0, 1, 7, 400)])
        np.testing.assert_allclose(drifts, once * (1 - a ** np.array([0, 1, 7, 400])) / (1 - a), rtol=1e-12)
        assert drifts[-1] == pytest.approx(once / (0.3 * (1 - own)), rel=1e-6)  # 1/(h(1 − w_ii)) printed steps
    lonely = printed_place(1.0, 0.0, 50.0, rounds=200, noise=7.0)
    np.testing.assert_allclose(float(qdpsgd2.drift(cfg, lonely, 9)), 9 * once)
    event = run_events(find("qdpsgd2"), cfg, lonely)[0]
    assert isinstance(event, DiscreteGaussian)
    mu = np.sum((event.sensitivity / event.sigma) ** 2)
    assert mu == pytest.approx(np.sum(np.arange(200) ** 2) / 7.0**2, rel=1e-3)  # ~ T³/3
    curved = printed_place(0.5, 2.0, 50.0)
    grown = (1 - 0.15 + alpha_h * 2.0) * once + once
    assert float(qdpsgd2.drift(cfg, curved, 2)) == pytest.approx(grown)
    assert float(qdpsgd2.drift(cfg.replace(convex=True), curved, 2)) == pytest.approx((1 - 0.15) * once + once)
    unknown = printed_place(0.5, np.inf, 50.0)  # a network: two clipped means are at most 2K apart
    assert float(qdpsgd2.drift(cfg, unknown, 2)) == pytest.approx((1 - 0.15) * once + alpha_h * 2 * 0.5)


def test_printed_cost_is_the_spec_s_upper_bound():
    noise = printed_sigma(1.0, 1000, 1000, 1e-5) * 20 / 2  # Remark 10 for ε = 1
    place = printed_place(0.5, 0.0, 1000.0, noise=noise)
    cfg = Config(
        step=0.3 / 1000 ** (1 / 6), averaging=11 / 1000**0.5, batch=20, scheme="fixed", grid=1e-12, failure=0.0,
        range=1.0, as_printed=True,
    )  # fmt: skip
    assert qdpsgd2.claim(cfg, place, 1e-5) == pytest.approx(1.0)
    event = run_events(find("qdpsgd2"), cfg, place)[0]
    rho = np.sum((event.sensitivity / event.sigma) ** 2) / 2
    assert zcdp_epsilon(rho, 1e-5) == pytest.approx(567, abs=1)


@pytest.mark.slow
def test_the_printed_state_drifts_past_lemma_19_but_not_past_ours():
    """Same transcript, one record replaced, thirty rounds: how far apart are the un-noised states?"""
    pair = worst_logistic_pair(3, 4)
    place, shard = agent(network(records=4, d=3, ridge=0.0))
    cfg = Config(
        step=2.0, averaging=0.5, batch=4, scheme="fixed", clip=0.6, grid=1e-6, range=99.0, failure=0.0,
        as_printed=True, convex=True,
    )  # fmt: skip
    worlds = [swap_record(shard, 0, record, 1.0) for record in (pair.u, pair.v)]
    draw = {k: jnp.zeros(law.shape) for k, law in qdpsgd2.draws(cfg, place).items()}

    @jax.jit
    def one_round(x, s):
        state = qdpsgd2.State(x, jnp.zeros(3), x, jnp.zeros(()))
        state, _ = qdpsgd2.emit(cfg, place, 0, state, s, draw)
        return state.x + 0.5 * (1 - place.self_weight) * jnp.asarray(pair.point)  # the neighbours stay at one point

    x, other = jnp.asarray(pair.point), jnp.asarray(pair.point)
    one_step = 2 * 2.0 * 0.5 * 0.6 / 4
    for t in range(1, 31):
        x, other = one_round(x, worlds[0]), one_round(other, worlds[1])
        gap = float(jnp.linalg.norm(x - other))
        assert gap <= float(qdpsgd2.drift(cfg, place, t)) * (1 + 1e-9)
    assert gap > 2.5 * one_step
    assert gap > 2 * float(common_dither(one_step, 1e-6, 3, 0.0))


@pytest.mark.slow
def test_printed_run_hands_out_noisy_points_only():
    layout = network(rounds=6)
    cfg = Config(step=1.0, averaging=0.6, batch=5, grid=0.01, range=64.0, failure=0.0, as_printed=True)
    trace = run("qdpsgd2", cfg, layout, noise=2.0)
    np.testing.assert_array_equal(trace.points[0], trace.messages.z[0, -1])
    assert np.abs(trace.states.x - trace.states.z).max() > 0.01


def test_printed_version_has_no_poisson_batches():
    with pytest.raises(ValueError, match="without replacement"):
        Config(as_printed=True, scheme="poisson")
