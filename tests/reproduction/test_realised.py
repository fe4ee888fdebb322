"""How much a random weight hides: golden values, limits, bounds, a simulation, and a run."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.algorithms import ldp_admm
from reproduction import realised
from tests.algorithms.test_ldp_admm import agent, ran


@pytest.mark.parametrize(
    ("rate", "width", "shift", "gamma", "printed"),
    [(1.208, 1.0, 0.332, 0.8683, 0.8215), (2.0, 0.1, 0.001, 0.952556, 0.951677)],
)
def test_reduction_golden_values(rate, width, shift, gamma, printed):
    assert realised.reduction(rate, width, shift) == pytest.approx(gamma, abs=5e-5)
    assert realised.printed(rate, width, shift) == pytest.approx(printed, abs=5e-5)
    assert realised.printed(rate, width, shift) < realised.reduction(rate, width, shift)  # so no upper bound


def test_reduction_limits():
    got = realised.reduction(1.0, np.array([1.0, 2.0, 5.0, 10.0]), 1e-6)
    np.testing.assert_allclose(got, [0.787, 0.632, 0.367, 0.199], atol=5e-4)  # (1 − e^{−u})/u, u = βω/2
    assert realised.reduction(3.0, 0.0, 0.5) == 1.0  # no width: plain Laplace noise
    assert realised.reduction(3.0, 1e-5, 0.5) == pytest.approx(1.0, abs=1e-4)


@given(st.floats(0.1, 20), st.floats(0.01, 3), st.floats(0.001, 2))
@settings(max_examples=200, deadline=None)
def test_reduction_lies_between_its_bounds(rate, width, shift):
    low, high = realised.bounds(rate, width, shift)
    gamma = realised.reduction(rate, width, shift)
    assert low - 1e-9 <= gamma <= high + 1e-9


@pytest.mark.parametrize(("rate", "width", "shift"), [(5.0, 0.5, 0.2), (1.0, 2.0, 0.5), (4.0, 1.0, 1.5)])
def test_reduction_is_the_mean_of_the_worst_loss(rate, width, shift):
    """Simulated: outputs U(0, ω) + Laplace, the loss maximised over shifts from densities computed by convolution."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0, width, 2000) + rng.laplace(0, 1 / rate, 2000)
    nodes, weights = np.polynomial.legendre.leggauss(120)
    y = width * (1 + nodes) / 2

    def log_density(at):
        return np.log(np.exp(-rate * np.abs(at[:, None] - y)) @ weights)

    losses = np.max([np.abs(log_density(x) - log_density(x - s)) for s in np.linspace(-shift, shift, 9)], axis=0)
    assert np.all(losses <= rate * shift * (1 + 1e-2))
    ratios = losses / (rate * shift)
    assert ratios.mean() == pytest.approx(
        float(realised.reduction(rate, width, shift)), abs=4 * ratios.std() / 2000**0.5 + 1e-3
    )


def test_realised_reads_public_widths():
    r = ran(False)
    x = r.trace.messages.x[1]
    before = np.concatenate([np.zeros_like(x[:1]), x[:-1]])
    mean = (np.roll(before, 1, axis=1) + np.roll(before, -1, axis=1)) / 2
    with jax.enable_x64(True):
        place, _ = agent(r.layout, 0, noise=2.0)
        scale = float(ldp_admm.scale(r.cfg, place, 0))
    got = realised.of_run(r.cfg, place, before[:, 0], mean[:, 0])
    assert got.shape == (300, 3)
    assert np.all(got[0] == 1.0)  # everybody starts at one point: no width
    width = abs(before[200, 0, 1] - mean[200, 0, 1])
    assert got[200, 1] == pytest.approx(float(realised.reduction(1 / scale, width, 2 * 0.05 / 10)))
    assert 0.2 < got.mean() < 1.0
