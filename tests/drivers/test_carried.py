"""What an agent keeps of what it sends is carried once, and a run is the same as with both."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from coterie.algorithms.base import find
from coterie.drivers import carried, compiled, program, simulate
from coterie.drivers.layout import Layout, make_layout
from coterie.drivers.simulate import Run
from coterie.graphs import make_graph, mixing
from coterie.losses.logistic import Logistic
from tests.support import mostly_slow


def layout() -> Layout:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(12 * 4, 3))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    graph = make_graph("ring", 12)
    return make_layout(
        Logistic(3), x, np.sign(rng.normal(size=48)), list(np.arange(48).reshape(12, 4)), graph,
        mixing(graph, "metropolis"), rounds=9, ridge=1e-3, dtype=jnp.float32,
    )  # fmt: skip


@pytest.mark.parametrize("name", mostly_slow(["dgd", "dp-dsgd", "admm"], "dp-dsgd"))
def test_a_run_is_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm, laid, found = find(name), layout(), []
    monkeypatch.setattr(program, "carried", lambda *args: found.append(carried.carried(*args)) or found[-1])
    runs, traces = [Run(seed, algorithm.example, 0.1) for seed in (0, 1)], []
    for many in (1 << 40, 1):
        monkeypatch.setattr(carried, "MANY", many)
        compiled._KEPT.clear()
        traces.append(simulate.simulate(algorithm, laid, runs, rounds=9, every=3))
    compiled._KEPT.clear()
    assert found[0] is None
    assert found[1] is not None
    assert 0 in found[1].same
    both, once = traces
    np.testing.assert_allclose(once.points, both.points, rtol=1e-5, atol=1e-6)
    assert np.abs(both.points).max() > 0.01
    for key, curve in both.curves.items():
        np.testing.assert_allclose(once.curves[key], curve, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_who_may_be_silent_keeps_both(monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm, found = find("ipp-admm"), []
    monkeypatch.setattr(carried, "MANY", 1)
    monkeypatch.setattr(program, "carried", lambda *args: found.append(carried.carried(*args)) or found[-1])
    compiled._KEPT.clear()
    simulate.simulate(algorithm, layout(), [Run(0, algorithm.example, 0.1)], rounds=2)
    compiled._KEPT.clear()
    assert found == [None]
