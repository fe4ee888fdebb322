"""`dp-admm`: both variants against independent NumPy versions, their limits, sensitivity, noise and totals."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coterie.algorithms import dp_admm as alg
from coterie.algorithms.base import Public, find
from coterie.drivers.budget import run_events
from coterie.drivers.layout import Layout
from coterie.drivers.references import pooled
from coterie.drivers.simulate import Run, Trace, simulate
from coterie.errors import InputError
from coterie.privacy.accountants import total_mu
from coterie.privacy.rdp import zcdp_epsilon
from tests.algorithms.admm_checks import double, fits, many_messages, one, papers, put
from tests.algorithms.moves import logistic_moves, public
from tests.support import agent, network

__all__ = ["double"]

RING = alg.Config(penalty=0.1, step=3.0, decay=0.5)
STAR = alg.Config(variant="star", penalty=0.2, step=3.0, decay=0.5)
ROUNDS, NOISE = 4000, 0.3
LAYOUTS = {"decentralised": network(rounds=ROUNDS), "star": network(rounds=ROUNDS, graph="star")}


def trace_of(cfg: alg.Config) -> Trace:
    runs = [Run(0, cfg, 0.0), Run(1, cfg, NOISE)]
    with jax.enable_x64(True):
        layout = LAYOUTS[cfg.variant]
        return simulate(find("dp-admm"), layout, runs, rounds=ROUNDS, every=ROUNDS, record=True)


@pytest.fixture(scope="module")
def ring() -> Trace:
    return trace_of(RING)


@pytest.fixture(scope="module")
def star() -> Trace:
    return trace_of(STAR)


def gradients(layout: Layout, x: np.ndarray) -> np.ndarray:
    """∇f_i(x_i) of all agents, in the plan's order, from the records themselves."""
    out = np.zeros((5, x.shape[1]))
    for position, i in enumerate(layout.order):
        shard = agent(layout, position)[1]
        z, y = np.asarray(shard.features), np.asarray(shard.targets)
        out[i] = -((y / (1 + np.exp(y * (z @ x[i])))) @ z) / 40 + 0.05 * x[i]
    return out


def test_ring_follows_its_equations_and_reaches_the_pooled_optimum(ring: Trace) -> None:
    layout = LAYOUTS["decentralised"]
    np.testing.assert_allclose(ring.points[0], np.tile(pooled(layout), (5, 1)), atol=1e-6)
    assert np.abs(ring.states.dual[1].sum(axis=0)).max() < 1e-9
    eta, x, lam = 0.1, np.zeros((5, 4)), np.zeros((5, 4))
    near = lambda v: np.roll(v, 1, 0) + np.roll(v, -1, 0)  # noqa: E731
    for k in range(1, 6):  # spec's form, dual λ = α/2
        weight = k**0.5 / 3.0
        total = 4 * eta + weight
        step = (weight * x + eta * (2 * x + near(x)) - gradients(layout, x) - 2 * lam) / total
        x = step + NOISE * (2 / 40 / total) * ring.draws["noise"][1, k - 1]
        lam = lam + eta / 2 * (2 * x - near(x))
        np.testing.assert_allclose(ring.messages.x[1, k - 1], x, atol=1e-12)


def test_star_is_the_paper_with_a_hub_that_holds_data(star: Trace) -> None:
    layout, r = LAYOUTS["star"], STAR.penalty
    np.testing.assert_allclose(star.points[0], np.tile(pooled(layout), (5, 1)), atol=1e-6)
    assert np.abs(star.states.dual[1].sum(axis=0)).max() < 1e-9
    w, x, y = np.zeros(4), np.zeros((5, 4)), np.zeros((5, 4))
    for k in range(1, 6):
        weight = k**0.5 / 3.0
        step = (weight * x + r * w - (gradients(layout, x) - y)) / (r + weight)
        x = step + NOISE * (2 / 40 / (r + weight)) * star.draws["noise"][1, 2 * (k - 1)]
        w = (x - y / r).mean(axis=0)
        y = y - r * (x - w)
        np.testing.assert_allclose(star.messages.x[1, 2 * k - 2, 1:], x[1:], atol=1e-12)  # leaves after even rounds
        np.testing.assert_allclose(star.messages.x[1, 2 * k - 1, 0], w, atol=1e-12)  # the hub after odd ones
    sent = star.extras["sent"][1]
    assert (sent[::2] == [False, True, True, True, True]).all()
    assert (sent[1::2] == [True, False, False, False, False]).all()


def test_sensitivity_is_never_exceeded_and_nearly_attained() -> None:
    place, shard = agent(network(records=6, d=3))
    for t in (0, 8):
        moves = np.linalg.norm(logistic_moves(alg, RING, place, shard, t, put), axis=1)
        declared = float(alg.sensitivity(RING, place, t))
        assert declared == pytest.approx(2 / 6 / (0.4 + (t + 1) ** 0.5 / 3))
        assert 0.9 * declared <= moves[-1] <= moves.max() <= declared * (1 + 1e-12)
    clipped = RING.replace(clip=0.1)
    moves = np.linalg.norm(logistic_moves(alg, clipped, place, shard, 0, put), axis=1)
    assert moves.max() <= float(alg.sensitivity(clipped, place, 0)) * (1 + 1e-12)
    assert moves.max() >= 0.9 * float(alg.sensitivity(clipped, place, 0))


def test_noise_has_the_declared_scale_and_no_other() -> None:
    place, shard = agent(network(), noise=2.0)
    state = put(alg.init(RING, place), jnp.ones(4))
    quiet = np.asarray(alg.emit(RING, place, 3, state, shard, {"noise": jnp.zeros(4)})[1].x)
    residuals = many_messages(alg, RING, place, shard, state, 4000, t=3) - quiet
    scale = 2.0 * (2 / 40) / (0.4 + 2 / 3)
    assert fits(residuals, scale)
    assert not fits(residuals, 1.05 * scale)
    assert not fits(residuals, 0.95 * scale)


def test_totals() -> None:
    """ε₀ = .1, δ₀ = 1e-5, T = 100: μ = .206407, ρ = .0213019; a star pays every other round."""
    noise = (2 * np.log(1.25e5)) ** 0.5 / 0.1
    place = one(papers(rounds=100), noise=noise)
    assert total_mu(run_events(find("dp-admm"), RING, place)) == pytest.approx(0.206407, abs=5e-7)
    assert alg.claim(RING, place, 1e-5) == pytest.approx(zcdp_epsilon(0.0213019, 1e-5), rel=1e-5)
    half = total_mu(run_events(find("dp-admm"), STAR, place))
    assert half == pytest.approx(0.206407 / 2**0.5, abs=5e-7)


def test_star_wants_a_star() -> None:
    with pytest.raises(InputError, match="star graph"):
        alg.tune(alg.Config(variant="star"), Public(**public()))
    tuned = alg.tune(alg.Config(variant="star"), Public(**public(degree_min=1, degree_max=4)))
    assert tuned.step == pytest.approx(2 / 0.3)
    assert tuned.penalty >= 0.15 / 8 / 4


def test_the_default_step_is_the_largest_stable_one() -> None:
    """All records alike and labels nearly balanced: curvature close to its bound, so a larger step must diverge."""
    rng = np.random.default_rng(0)
    x, y = np.tile([1.0, 0.0], (200, 1)), np.where(rng.uniform(size=200) < 0.55, 1.0, -1.0)
    layout = network(d=2, data=(x, y), rounds=300, ridge=0.001)
    step = alg.tune(alg.Config(), Public(**public(ridge=0.001, epsilon=None))).step
    runs = [Run(0, alg.Config(penalty=0.003, step=step * over, tail=0.0)) for over in (1.0, 1.1)]
    found = simulate(find("dp-admm"), layout, runs, rounds=300, every=300).points
    error = np.abs(found - pooled(layout)).max(axis=(1, 2))
    assert error[0] < 2e-3
    assert error[1] > 0.1
