"""quantimed: dgd in the limit, pure gossip without records, no privacy."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coterie.algorithms import quantimed
from coterie.algorithms.base import find
from coterie.algorithms.quantimed import Config
from coterie.privacy.events import NonPrivate
from tests.algorithms.quantized_by_hand import clipped, deadline_batch, records, rounded, weights
from tests.packing import pack_message, unpack_message
from tests.support import agent, network, run


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


@pytest.mark.slow
def test_fine_grid_and_all_records_are_dgd():
    layout = network(rounds=15)
    cfg = Config(step=0.8, averaging=1.0, batch=40, scheme="fixed", bits=32, range=4.0)
    fine = run("quantimed", cfg, layout)
    plain = run("dgd", find("dgd").config(step=0.8), layout)
    np.testing.assert_allclose(fine.points, plain.points, atol=15 * 8.0 / 2**32)
    assert fine.states.saturated.sum() == 0


def test_run_equals_the_formulas():
    layout = network(rounds=8, ridge=0.0)
    cfg = Config(step=1.0, averaging=0.6, batch=5, bits=6, range=4.0)
    trace = run("quantimed", cfg, layout)
    (z, y), w, x = records(layout), weights("ring"), np.zeros((5, 4))
    for t in range(8):
        sent = np.stack([rounded(x[i], trace.draws["dither"][0, t, i], 0.125) for i in range(5)])
        batches = [deadline_batch(trace.draws, i, t, 5, 40) for i in range(5)]
        slope = [clipped(x[i], z[i][b], y[i][b], np.inf).mean(0) if len(b) else 0 for i, b in enumerate(batches)]
        own = (1 - 0.6 + 0.6 * np.diag(w))[:, None] * x
        x = own + 0.6 * (w - np.diag(np.diag(w))) @ sent - 0.6 * np.stack(slope)
    np.testing.assert_allclose(trace.points[0], x, atol=1e-12)


@pytest.mark.slow
def test_empty_batch_is_pure_gossip_and_nothing_is_private():
    place, shard = agent(network(ridge=0.0))
    cfg = Config(step=1.0, averaging=0.6, batch=2, bits=6, range=4.0)
    state = eqx.tree_at(lambda s: s.x, quantimed.init(cfg, place), jnp.ones(4))
    draw = {k: jnp.zeros(law.shape) for k, law in quantimed.draws(cfg, place).items()}  # the slowest speed: b = 0
    state, message = quantimed.emit(cfg, place, 0, state, shard, draw)
    assert float(message.size) == 0
    assert not jnp.any(state.move)
    assert isinstance(quantimed.cost(cfg, place, 0), NonPrivate)
    step = 2 * cfg.range / 2**cfg.bits
    data = pack_message(message.z, message.size, step, cfg.bits)
    np.testing.assert_array_equal(unpack_message(data, step)[0], message.z)
