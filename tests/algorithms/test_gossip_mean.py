"""Means by gossip: one record tells what is declared, and without noise everybody has the mean."""

import jax
import numpy as np
import pytest

from coterie.algorithms.base import find
from coterie.audit import examine, gather, make_setting
from coterie.drivers.layout import make_layout
from coterie.drivers.simulate import Run, simulate
from coterie.graphs import make_graph, mixing
from coterie.losses.mean import Mean

GOSSIP = find("gossip-mean")


@pytest.mark.slow
def test_sensitivity() -> None:
    found = {f.check: f for f in examine(gather(make_setting(GOSSIP, epsilon=1.0)))}
    for finding in found.values():
        assert finding.passed, finding
    assert found["replay"].share >= 0.9  # of what is declared


def test_the_mean_and_its_noise() -> None:
    """Unequal parties, weighted by their records; noise on the average: σ² (1 + (T − 1) again²)/N."""
    sizes, rounds, rng = (3, 5, 4, 8), 40, np.random.default_rng(0)
    records = rng.uniform(-1, 1, (sum(sizes), 1))
    graph = make_graph("ring", 4)
    with jax.enable_x64(True):
        layout = make_layout(
            Mean(1), records, np.zeros(len(records)), np.split(np.arange(20), np.cumsum(sizes)[:-1]), graph,
            mixing(graph, "metropolis"), rounds=rounds, weighting="records",
        )  # fmt: skip
    still = simulate(GOSSIP, layout, [Run(0, GOSSIP.config(), 0.0)], rounds=rounds)
    assert still.points[0, :, 0] == pytest.approx(np.full(4, records.mean()), abs=1e-6)
    runs = [Run(s, GOSSIP.config(again=0.5), 1.0) for s in range(4000)]
    noisy = simulate(GOSSIP, layout, runs, rounds=rounds, every=rounds)
    sigma = 2 * 1.0 * 4 / 20  # 2 V unit
    assert np.var(noisy.points[:, :, 0].mean(1)) == pytest.approx(sigma**2 * (1 + 39 * 0.25) / 4, rel=0.1)
