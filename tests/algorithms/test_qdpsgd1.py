"""qdpsgd1: the run by hand, empty batches, sensitivity, noise, golden accounting, bytes and clock."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from coterie.algorithms import _sampling, qdpsgd1
from coterie.algorithms.base import find
from coterie.algorithms.qdpsgd1 import Config, Message
from coterie.drivers.budget import run_events
from coterie.privacy.accountants import account, delta_of
from coterie.privacy.events import SampledGaussian
from tests.algorithms.quantized_by_hand import clipped, deadline_batch, records, rounded, weights
from tests.packing import pack_message, unpack_message
from tests.printed import printed_sigma
from tests.support import agent, mostly_slow, network, run, swap_record, worst_logistic_pair


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def traced():
    """A run in which empty batches occur and the range is too small now and then."""
    with jax.enable_x64(True):
        layout = network(rounds=12, ridge=0.0)
        cfg = Config(step=3.0, averaging=0.5, batch=4, bits=3, range=1.0, clip=0.6)
        return layout, cfg, run("qdpsgd1", cfg, layout, noise=0.4)


def test_run_equals_the_formulas(traced):
    layout, _, trace = traced
    (z, y), w, draws = records(layout), weights("ring"), trace.draws
    x, empty, cut = np.zeros((5, 4)), 0, 0
    for t in range(12):
        sent = np.stack([rounded(x[i], draws["dither"][0, t, i], 0.25) for i in range(5)])
        cut += np.sum((sent < -1) | (sent > 0.75))
        sent = np.clip(sent, -1, 0.75)
        np.testing.assert_allclose(trace.messages.z[0, t], sent, atol=1e-12)
        after = np.empty_like(x)
        for i in range(5):
            rows = deadline_batch(draws, i, t, 4, 40)
            assert trace.messages.size[0, t, i] == len(rows)
            step = np.zeros(4)
            if len(rows):
                noise = 0.4 * 2 * 0.6 / len(rows) * draws["noise"][0, t, i]
                step = clipped(x[i], z[i][rows], y[i][rows], 0.6).mean(0) + noise
            empty += len(rows) == 0
            near = sum(w[i, j] * sent[j] for j in range(5) if j != i)
            after[i] = (1 - 0.5 + 0.5 * w[i, i]) * x[i] + 0.5 * near - 3.0 * 0.5 * step
        x = after
    np.testing.assert_allclose(trace.points[0], x, atol=1e-12)
    assert empty > 0
    assert trace.states.saturated[0].sum() == cut > 0


def test_bytes_and_virtual_time(traced):
    _, cfg, trace = traced
    message = jax.tree.map(lambda m: m[0, 3, 2], trace.messages)
    step = 2 * cfg.range / 2**cfg.bits
    data = pack_message(message.z, message.size, step, cfg.bits)
    point, size = unpack_message(data, step)
    np.testing.assert_array_equal(point, message.z)
    assert size == message.size
    assert 8 * len(data) - 8 < qdpsgd1.bits(cfg, agent(traced[0])[0], message) <= 8 * len(data)
    assert trace.bytes[0, 2] == pytest.approx(12 * (4 + 5 + 4 * 3 / 8))
    assert trace.curves["time"][0, -1] == pytest.approx(12 * (4 / 50 + 3 * 3 / 16))
    place = agent(traced[0])[0]
    for batch, seconds in ((20, 0.96), (50, 1.56)):  # the dissertation's clock, T_c = 3 and 3 bits
        assert qdpsgd1.duration(Config(batch=batch, bits=3), place, 0, {}) == pytest.approx(seconds, abs=0.005)


def test_sensitivity_is_kept_and_attained():
    pair = worst_logistic_pair(3, 8)
    cfg = Config(step=0.7, averaging=0.5, batch=4, bits=8, range=8.0, clip=0.6, scheme="fixed")
    place, shard = agent(network(records=8, d=3, ridge=0.0))
    declared = float(qdpsgd1.sensitivity(cfg, place, 0))
    assert declared == pytest.approx(0.7 * 0.5 * 2 * 0.6 / 4)
    point = jnp.asarray(pair.point)
    state = qdpsgd1.State(point, point, jnp.zeros(()))
    draw = {k: jnp.zeros(law.shape) for k, law in qdpsgd1.draws(cfg, place).items()}
    draw["coins"] = jnp.linspace(0, 0.9, 8)  # record 0 is in the batch
    moves = [
        qdpsgd1.emit(cfg, place, 0, state, swap_record(shard, 0, record, 1.0), draw)[0].move
        for record in (pair.u, pair.v)
    ]
    assert 0.95 * declared <= float(jnp.linalg.norm(moves[0] - moves[1])) <= declared * (1 + 1e-12)
    outside = draw | {"coins": draw["coins"].at[0].set(0.99)}
    same = [
        qdpsgd1.emit(cfg, place, 0, state, swap_record(shard, 0, record, 1.0), outside)[0].move
        for record in (pair.u, pair.v)
    ]
    np.testing.assert_array_equal(*same)


def test_noise_scale_follows_the_batch():
    place, shard = agent(network(records=40, d=4, ridge=0.0), noise=2.0)
    cfg = Config(step=1.0, averaging=1.0, batch=20, bits=8, range=8.0, clip=0.5)
    state = qdpsgd1.init(cfg, place)
    fixed = {k: jnp.zeros(law.shape) for k, law in qdpsgd1.draws(cfg, place).items()}
    noise = jax.random.normal(jax.random.key(0), (4000, 4), jnp.float64)

    @eqx.filter_jit
    def moved(how: Config, coin: jax.Array, noise: jax.Array) -> jax.Array:
        draw = fixed | {"speed": coin}
        return jax.vmap(lambda n: qdpsgd1.emit(how, place, 0, state, shard, draw | {"noise": n})[0].move)(noise)

    for coin, size, printed in ((0.0, 4, False), (0.9999, 35, False), (0.0, 4, True)):
        how = cfg.replace(as_printed=printed)
        noisy, quiet = (moved(how, jnp.asarray(coin), scale * noise) for scale in (1.0, 0.0))
        sigma = 2.0 * 2 * 0.5 / (20 if printed else size)
        residual = np.asarray(noisy - quiet).ravel() / sigma
        assert stats.kstest(residual, "norm").pvalue > 1e-3
        for wrong in (0.95, 1.05):
            spread = np.sum((residual / wrong) ** 2)
            assert min(stats.chi2.cdf(spread, residual.size), stats.chi2.sf(spread, residual.size)) < 1e-3


# ---- accounting ------------------------------------------------------------------------------------------------------


def place_of(count: int, rounds: int, noise: float):
    place, _ = agent(network(records=8, rounds=rounds), noise=noise)
    return eqx.tree_at(lambda p: (p.count, p.unit), place, (jnp.asarray(float(count)), jnp.asarray(1 / count)))


def test_full_batches_are_exactly_gaussian():
    place = place_of(20, 50, 3.0)
    cfg = Config(step=1.0, averaging=0.5, batch=20, scheme="fixed", range=1.0)
    sigma = 2 * 3.0 / 20  # the noise as a multiple of K
    total = account(run_events(find("qdpsgd1"), cfg, place), 1e-5)
    assert total.all["gdp"] == total.epsilon
    from coterie.privacy import gdp

    assert total.epsilon == pytest.approx(float(gdp.epsilon_of(2 * np.sqrt(50) / (20 * sigma), 1e-5)))


def test_golden_multipliers():
    cfg = Config(step=1.0, averaging=0.5, batch=20, scheme="fixed", range=1.0)
    for noise, fits in ((2.76, True), (2.73, False)):  # m = 1000, b = 20, T = 1000, ε = 1, δ = 1e-5
        events = run_events(find("qdpsgd1"), cfg, place_of(1000, 1000, noise))
        assert (account(events, 1e-5, fast=True).epsilon <= 1.0) is fits


@pytest.mark.slow
def test_theorem_11_under_reports_short_runs_with_stragglers():
    sigma = printed_sigma(1.0, 1000, 99, 1e-5)
    place = place_of(1000, 99, sigma * 20 / 2)
    cfg = Config(step=1.0, averaging=0.5, batch=20, range=1.0, as_printed=True)
    assert qdpsgd1.claim(cfg, place, 1e-5) == pytest.approx(1.0)
    sizes = jnp.tile(jnp.arange(4.0, 37.0), 3)  # every b in 4 … 36 three times
    events = jax.vmap(lambda b: qdpsgd1.cost(cfg, place, 0, Message(jnp.zeros(4), b)))(sizes)
    np.testing.assert_allclose(events.noise_multiplier, sigma * sizes / 2)
    assert 5.22 <= account([events], 1e-5).epsilon <= 5.24
    usual = SampledGaussian(sigma * 20 / 2, 0.02, times=99)
    assert 0.42 <= account([usual], 1e-5).epsilon <= 0.46


def test_costs_given_the_sizes_compose_and_empty_batches_are_free():
    place = place_of(50, 4, 1.5)
    cfg = Config(step=1.0, averaging=0.5, batch=5, range=1.0)
    sizes = [0.0, 3.0, 3.0, 7.0]
    together = jax.vmap(lambda b: qdpsgd1.cost(cfg, place, 0, Message(jnp.zeros(4), b)))(jnp.asarray(sizes))
    single = [qdpsgd1.cost(cfg, place, 0, Message(jnp.zeros(4), jnp.asarray(b))) for b in sizes]
    assert single[0].times == 0
    assert account([together], 1e-5).epsilon == pytest.approx(account(single[1:], 1e-5).epsilon, rel=1e-9)
    assert account(single[:1], 1e-5).epsilon == 0


def test_law_of_the_batch_size():
    coins = jax.random.uniform(jax.random.key(0), (100_000,), jnp.float64)
    for batch, count in ((20, 1000), (2, 1000), (20, 30)):
        sizes, chance = _sampling.deadline_sizes(batch, count)
        assert chance.sum() == pytest.approx(1)
        drawn = np.asarray(_sampling.batch_by_deadline(batch, coins, count))
        seen = np.array([np.sum(drawn == b) for b in sizes])
        assert seen.sum() == len(coins)
        assert stats.chisquare(seen, chance * len(coins)).pvalue > 1e-3
        assert sizes[-1] == min(count, _sampling.most_by_deadline(batch))


@pytest.mark.parametrize("constant", mostly_slow([False, True], True))
def test_cost_before_the_run_is_the_average_over_all_sequences_of_sizes(constant):
    """δ(ε) of T rounds = Σ over (b_1, …, b_T) of their probability times δ(ε) given them; here T = 2, b in 0 … 3."""
    nu, count, batch, rounds = 1.3, 6, 2, 2
    event = _sampling.DeadlineGaussian(nu, float(count), batch, constant=constant, times=rounds)
    sizes, chance = _sampling.deadline_sizes(batch, count)
    assert sizes.tolist() == [0, 1, 2, 3]
    scale = sizes / batch if constant else np.ones(4)
    for epsilon in (0.0, 0.5, 1.5):
        mean = 0.0
        for i, p in enumerate(chance):
            for j, r in enumerate(chance):
                parts = [SampledGaussian(nu * scale[k], sizes[k] / count) for k in (i, j) if sizes[k] > 0]
                mean += p * r * (delta_of(parts, epsilon) if parts else 0.0)
        assert delta_of([event], epsilon) == pytest.approx(mean, rel=2e-3)


def test_renyi_curve_of_a_random_batch_dominates_its_loss_distribution():
    event = _sampling.DeadlineGaussian(2.9435, 1000.0, 20, times=1000)
    found = account([event], 1e-5).all
    assert found["pld"] <= 1.0 + 1e-4 < found["rdp"] < 1.25  # spread of b included: 2.76 for a fixed b = 20
    worst = account([SampledGaussian(2.9435, 0.035, times=1000)], 1e-5, fast=True).epsilon
    assert found["pld"] < 0.65 * worst


def test_poisson_batches_use_their_own_event():
    place = place_of(1000, 1000, 2.72)
    place = dataclasses.replace(place, rows=1000)
    cfg = Config(step=1.0, averaging=0.5, batch=20, scheme="poisson", range=1.0)
    assert float(qdpsgd1.sensitivity(cfg, place, 0)) == pytest.approx(0.5 * 0.5 / 20)
    total = account(run_events(find("qdpsgd1"), cfg, place), 1e-5)
    assert total.adjacency == "add-remove"
    assert total.all["rdp"] == pytest.approx(1.0, abs=0.01)  # golden: 2.72 for ε = 1 by integer Rényi
    overflow = _sampling.poisson_overflow(1000.0, 0.02, _sampling.poisson_cap(20, 1000))
    exact = stats.binom.sf(_sampling.poisson_cap(20, 1000), 1000, 0.02)
    assert exact <= float(overflow) < 1e-13


def test_poisson_selection():
    coins = jax.random.uniform(jax.random.key(0), (20_000, 12), jnp.float64)
    rows, mask = jax.vmap(lambda c: _sampling.poisson(c, 10, 0.3, 8))(coins)
    taken = np.zeros(12)
    np.add.at(taken, np.asarray(rows)[np.asarray(mask)], 1)
    assert np.all(taken[10:] == 0)  # padding is never chosen
    assert np.all(np.abs(taken[:10] / 20_000 - 0.3) < 5 * np.sqrt(0.21 / 20_000))
    sizes = np.asarray(mask).sum(1)
    assert np.var(sizes) == pytest.approx(2.1, rel=0.05)  # binomial: a fixed size would have none
