"""sdm: by hand, public copies, the mask's amplification against enumeration, bytes and clock."""

from __future__ import annotations

import dataclasses
from itertools import product

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coterie.algorithms import sdm
from coterie.algorithms.base import find
from coterie.algorithms.sdm import Config
from coterie.drivers.budget import run_events
from coterie.privacy.accountants import account
from coterie.privacy.events import MaskedGaussian, flat
from tests.algorithms.quantized_by_hand import clipped, records, weights
from tests.packing import pack_sparse, unpack_sparse
from tests.support import agent, message_gap, network, run, swap_record, worst_logistic_pair


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


@pytest.mark.slow
def test_everything_sent_is_dgd():
    layout = network(rounds=15)
    cfg = Config(step=0.8, mixing=1.0, keep=1.0, clip=9.0, batch=None)
    plain = run("dgd", find("dgd").config(step=0.8), layout)
    np.testing.assert_allclose(run("sdm", cfg, layout).points, plain.points, atol=1e-12)


def test_run_equals_the_formulas_and_copies_agree():
    layout = network(rounds=10, ridge=0.0)
    cfg = Config(step=1.0, mixing=0.4, keep=0.5, clip=0.6, batch=8)
    trace = run("sdm", cfg, layout, noise=0.3)
    (z, y), w, x = records(layout), weights("ring"), np.zeros((5, 4))
    for t in range(10):
        draws = {k: v[0, t] for k, v in trace.draws.items()}
        change = np.zeros_like(x)
        for i in range(5):
            rows = np.argsort(draws["coins"][i])[:8]
            g = clipped(x[i], z[i][rows], y[i][rows], 0.6).mean(0) - 0.3 * 2 * 0.6 / 8 * draws["noise"][i]
            target = 0.6 * x[i] + 0.4 * (w[i] @ x - g)
            change[i] = np.where(draws["mask"][i] < 0.5, (target - x[i]) / 0.5, 0)
        np.testing.assert_allclose(trace.messages.change[0, t], change, atol=1e-12)
        x = x + change
    np.testing.assert_allclose(trace.states.x[0], x, atol=1e-12)
    # what every agent has added up of its neighbours is what they are
    np.testing.assert_allclose(trace.states.near[0], (w - np.diag(np.diag(w))) @ x, atol=1e-12)
    message = jax.tree.map(lambda m: m[0, 4, 2], trace.messages)
    data = pack_sparse(message.change)
    np.testing.assert_array_equal(unpack_sparse(data), message.change)
    size = float(sdm.bits(cfg, agent(layout)[0], sdm.Message(jnp.asarray(message.change))))
    assert 0 <= 8 * len(data) - size < 8
    sizes = [len(pack_sparse(c)) for c in trace.messages.change[0, :, 2]]
    assert trace.bytes[0, 2] == pytest.approx(sum(sizes), abs=10)


def test_mask_is_unbiased_and_sensitivity_is_attained():
    pair = worst_logistic_pair(3, 8)
    place, shard = agent(network(records=8, d=3, ridge=0.0))
    cfg = Config(step=0.7, mixing=0.5, keep=1.0, clip=0.6, batch=4)
    declared = float(sdm.sensitivity(cfg, place, 0))
    assert declared == pytest.approx(0.5 * 0.7 * 2 * 0.6 / 4)
    draw = {k: jnp.zeros(law.shape) for k, law in sdm.draws(cfg, place).items()}
    draw["coins"] = jnp.linspace(0, 0.9, 8)
    state = sdm.State(jnp.asarray(pair.point), jnp.zeros(3))
    worlds = tuple(swap_record(shard, 0, record, 1.0) for record in (pair.u, pair.v))
    assert 0.95 * declared <= message_gap("sdm", cfg, place, state, worlds, draw=draw) <= declared * (1 + 1e-12)
    masks = jax.random.uniform(jax.random.key(0), (20_000, 3), jnp.float64)
    sparse = cfg.replace(keep=0.3)
    sent = jax.vmap(lambda m: sdm.emit(sparse, place, 0, state, shard, draw | {"mask": m})[1].change)(masks)
    whole = sdm.emit(cfg, place, 0, state, shard, draw)[1].change
    error = np.asarray(sent) - np.asarray(whole)
    assert np.all(np.abs(error.mean(0)) < 4.5 * error.std(0) / np.sqrt(20_000))
    assert np.mean(np.asarray(sent) != 0) == pytest.approx(0.3, abs=0.01)


def test_masked_bound_covers_every_way_to_spread_the_difference():
    """E over masks of e^{α(α−1)‖M⊙u‖²/2}, by enumeration in four coordinates."""
    alpha, keep, rng = 6, 0.3, np.random.default_rng(0)
    bound = flat(MaskedGaussian(0.5, 1.0, keep)).rdp(np.array([float(alpha)]))[0, 0]
    worst = 0.0
    for k in range(60):
        u = np.abs(rng.standard_normal(4)) ** (1 + k % 5) if k else np.eye(4)[0]
        u *= 0.5 / np.linalg.norm(u)
        moment = 0.0
        for mask in product((0, 1), repeat=4):
            chance = np.prod([keep if m else 1 - keep for m in mask])
            moment += chance * np.exp(alpha * (alpha - 1) / 2 * np.sum((np.array(mask) * u) ** 2))
        worst = max(worst, np.log(moment) / (alpha - 1))
    assert worst == pytest.approx(bound, rel=1e-12)  # attained by one coordinate
    assert worst > keep * alpha * 0.5**2 / 2  # the flat factor c does not hold
    golden = flat(MaskedGaussian(0.1, 1.0, 0.3)).rdp(np.array([32.0]))[0, 0]
    assert golden == pytest.approx(0.121686, abs=5e-7)


def test_golden_cost_and_claim():
    place, _ = agent(network(records=8, rounds=1000), noise=2.77)
    place = eqx.tree_at(lambda p: (p.count, p.unit), place, (jnp.asarray(1000.0), jnp.asarray(1e-3)))
    place = dataclasses.replace(place, rows=1000)
    poisson = {k: Config(step=1.0, mixing=0.6, keep=k, batch=20, scheme="poisson") for k in (0.3, 1.0)}
    found = {k: account(run_events(find("sdm"), cfg, place), 1e-5).all["rdp"] for k, cfg in poisson.items()}
    assert found[1.0] == pytest.approx(0.98, abs=0.01)
    assert found[0.3] == pytest.approx(0.52, abs=0.01)
    fixed = Config(step=1.0, mixing=0.6, batch=20)
    assert account(run_events(find("sdm"), fixed, place), 1e-5, fast=True).epsilon == pytest.approx(0.995, abs=0.01)
    assert isinstance(sdm.cost(Config(step=1.0, mixing=0.6, batch=None), place, 0), MaskedGaussian)
    rho = 1000 * 0.3 / (2 * 2.77**2)
    assert sdm.claim(fixed, place, 1e-5) == pytest.approx(rho + 2 * np.sqrt(rho * np.log(1e5)))


def test_virtual_time():
    place, _ = agent(network())
    speeds = jax.random.uniform(jax.random.key(0), (20_000, 10), jnp.float64)
    for batch, seconds in ((20, 2.20), (50, 4.15)):  # ten agents, the slowest decides
        cfg = Config(batch=batch)
        times = jax.vmap(jax.vmap(lambda v: sdm.duration(cfg, place, 0, {"speed": v})))(speeds)  # noqa: B023
        assert float(times.max(1).mean()) == pytest.approx(seconds, abs=0.02)
