"""Recycled ADMM: odd rounds from the transcript alone, no data touched, nothing charged."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coterie.algorithms import mr_admm, r_admm
from coterie.algorithms.base import find
from coterie.drivers.budget import run_events
from coterie.drivers.simulate import Run, simulate
from coterie.privacy.accountants import account
from tests.algorithms.objective import EXACT, optimum, place_with
from tests.support import agent, network

MODULES = {"r-admm": r_admm, "mr-admm": mr_admm}
SIMULATED = ["mr-admm", pytest.param("r-admm", marks=pytest.mark.slow)]  # the second is the first without growth
ROUNDS = 161


@cache
def ran(slug: str) -> SimpleNamespace:
    """A noiseless and a noisy run in one batch."""
    layout = network(rounds=ROUNDS)
    cfg = MODULES[slug].EXAMPLE.replace(tail=0.0, damping=0.03)
    runs = [Run(0, cfg, 0.0), Run(1, cfg, 3.0)]
    trace = simulate(find(slug), layout, runs, rounds=ROUNDS, every=ROUNDS, record=True)
    return SimpleNamespace(layout=layout, cfg=cfg, trace=trace)


def penalty(slug: str, t: int) -> float:
    return 0.1 * (min(1.04 ** (t // 2), 2.0) if slug == "mr-admm" else 1.0)


@pytest.mark.parametrize("slug", SIMULATED)
@pytest.mark.slow
def test_without_noise_it_reaches_the_pooled_optimum(slug):
    r = ran(slug)
    np.testing.assert_allclose(r.trace.points[0], optimum(), atol=1e-6)


def replay(slug: str, messages: np.ndarray, stretch: float = 1.0) -> np.ndarray:
    """Odd rounds of all agents from the recorded broadcasts: linearise with the gradient that the round before showed.

    Written out from the optimality conditions, not from the module's closed form.
    """
    theta, gamma, n = 0.1, 0.03, 2.0
    total = lambda x: np.roll(x, 1, axis=0) + np.roll(x, -1, axis=0)  # noqa: E731
    start = np.zeros_like(messages[0])
    dual, out = np.zeros_like(start), []
    for t in range(1, len(messages), 2):
        eta = penalty(slug, t) * stretch
        before, now = (messages[t - 2] if t > 1 else start), messages[t - 1]
        noisy_gradient = -dual - 2 * eta * n * now + eta * (n * before + total(before))
        dual = dual + theta * (n * now - total(now))
        pull = eta * (n * now + total(now))
        out.append((gamma * now + pull - dual - noisy_gradient) / (2 * eta * n + gamma))
    return np.stack(out)


@pytest.mark.parametrize("slug", SIMULATED)
def test_recycled_rounds_follow_from_the_transcript_alone(slug):
    messages = ran(slug).trace.messages.x[1]
    np.testing.assert_allclose(replay(slug, messages), messages[1::2], atol=1e-10)
    assert np.abs(replay(slug, messages, 1.05) - messages[1::2]).max() > 1e-3  # broken twin: another penalty


def test_recycled_rounds_do_not_touch_the_data():
    """Other records and other draws change what a data round sends, and nothing in a recycled one."""
    cfg = mr_admm.EXAMPLE
    with jax.enable_x64(True):
        place, shard = agent(network(rounds=10), 0, noise=2.0)
        flipped = eqx.tree_at(lambda s: s.targets, shard, -shard.targets)
        rng = np.random.default_rng(0)
        state = mr_admm.init(cfg, place)
        values = [jnp.asarray(rng.normal(size=4)) for _ in range(5)]
        state = eqx.tree_at(lambda s: (s.x, s.dual, s.near, s.old_x, s.old_near), state, values)
        emit = eqx.filter_jit(lambda t, shard, draw: mr_admm.emit(cfg, place, t, state, shard, draw))
        draw, other = ({k: jnp.asarray(rng.normal(size=4)) for k in ("tilt", "output")} for _ in range(2))
        for t, touched in ((3, False), (4, True)):
            (after, one), (_, two) = emit(jnp.asarray(t), shard, draw), emit(jnp.asarray(t), flipped, draw)
            _, three = emit(jnp.asarray(t), shard, other)
            assert (int(after.solver.steps) > int(state.solver.steps)) == touched
            assert (np.abs(one.x - two.x).max() > 0.1) == touched
            assert (np.abs(one.x - three.x).max() > 0.01) == touched
            if not touched:
                np.testing.assert_array_equal(one.x, two.x)
                np.testing.assert_array_equal(one.x, three.x)


@pytest.mark.parametrize("slug", MODULES)
@pytest.mark.parametrize("rounds", [1, 2, 7])
def test_half_the_rounds_are_charged(slug, rounds):
    with jax.enable_x64(True):
        place = place_with(2, 50, 2, 0.1, rounds, noise=4.0)
    events = run_events(find(slug), MODULES[slug].EXAMPLE, place)
    assert [int(n) for n in np.atleast_1d(events[0].times)] == [1 - t % 2 for t in range(rounds)]
    assert account(events, 0.0).epsilon == pytest.approx(-(-rounds // 2) / 4)


def test_hand_totals():
    """25 data rounds with rate 3 of b cost .0191406, where the paper prints .0198438."""
    cfg = r_admm.Config(penalty=0.5, noise="gamma", **EXACT)
    tight = np.log1p(0.25 / 8000 / 2) + 2 * 3 / 8000
    with jax.enable_x64(True):
        place = place_with(2, 8000, 2, 0.0, 50, noise=1 / tight)
    assert account(run_events(find("r-admm"), cfg, place), 0.0).epsilon == pytest.approx(0.0191406, rel=3e-6)
    assert r_admm.claim(cfg, place, 0.0) == pytest.approx(0.0198438, rel=3e-6)
    flat = mr_admm.Config(penalty=0.5, noise="gamma", growth=1.0, **EXACT)
    assert mr_admm.claim(flat, place, 0.0) == pytest.approx(0.0198438, rel=3e-6)


def test_mr_admm_with_a_constant_penalty_is_r_admm():
    x, near, old_x, old_near = np.random.default_rng(1).normal(size=(4, 3))
    got = r_admm._recycled.recycle(0.3, 0.3, 0.2, 2.0, (x, near), (old_x, old_near))
    np.testing.assert_allclose(got, x + 0.3 * (2 * near - 2 * old_x - old_near) / (4 * 0.3 + 0.2), atol=1e-14)
    cfg = mr_admm.Config(penalty=0.2, growth=1.05, limit=1.5)
    grown = [float(mr_admm.penalty_at(cfg, jnp.asarray(t))) for t in (0, 1, 2, 3, 40)]
    assert grown == pytest.approx([0.2, 0.2, 0.21, 0.21, 0.3])
