"""Primal-variable perturbation: the sensitivity recursion, the noise, and a last step that is safe."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from coterie.algorithms import dvp, pvp
from coterie.algorithms.base import find
from coterie.drivers.budget import run_events
from coterie.privacy.accountants import account
from coterie.privacy.events import Gaussian, L2Laplace, NonPrivate, ObjectivePerturbation, Pure
from tests.algorithms.objective import EXACT, optimum, place_with, scale_p_value
from tests.support import agent, mostly_slow, network, run, swap_record

FAR = {"tolerance": 1e-9}  # of neighbours so far away as here, a smaller one would heed less
CENTRES = ("released", "own", "literal")
LITERAL = (0.952, 1.859, 2.723)  # ρ = .1, η = N = C/B = 1


def lone(rounds: int, noise: float = 0.0):
    """Place of an agent with one record and one neighbour, ρ = .1."""
    return place_with(2, 1, 1, 0.1, rounds, noise)


def recursion(centre: str, ridge: float, wide: float, gap: float, rounds: int) -> list[float]:
    """Δ⁺ = (gap + k·wide·Δ)/(ridge + 2 wide), step by step."""
    out, delta = [], 0.0
    for _ in range(rounds):
        delta = (gap + {"released": 0, "own": 1, "literal": 2}[centre] * wide * delta) / (ridge + 2 * wide)
        out.append(delta)
    return out


@pytest.mark.parametrize("centre", CENTRES)
@pytest.mark.parametrize("ridge", [0.1, 0.0])
def test_sensitivity_is_the_recursion(centre, ridge):
    cfg = pvp.Config(penalty=1.0, centre=centre, **EXACT)
    with jax.enable_x64(True):
        place = place_with(2, 1, 1, ridge, 40)
        got = [float(pvp.sensitivity(cfg, place, jnp.asarray(t))) for t in (0, 1, 2, 30)]
    want = recursion(centre, ridge, 1.0, 2.0, 31)
    assert got == pytest.approx([want[t] for t in (0, 1, 2, 30)], rel=1e-9)
    if ridge:
        limit = {"released": 2 / 2.1, "own": 2 / 1.1, "literal": 2 / 0.1}[centre]
        assert got[-1] <= limit
    if centre == "literal" and ridge:
        assert got[:3] == pytest.approx(LITERAL, abs=6e-4)


def coupled(centre: str, pairs: jax.Array, starts: jax.Array, path: jax.Array, rounds: int) -> np.ndarray:
    """‖f_D − f_D'‖ of every round when two worlds see one transcript. pairs (k, 2, d), path (k, rounds, 2, d)."""
    layout = network(2, 1, 2, graph="path", ridge=0.1, rounds=rounds + 1)
    cfg = pvp.Config(penalty=1.0, centre=centre, noise="gamma", **FAR)
    with jax.enable_x64(True):
        place, shard = agent(layout, 0)
        draw = {k: jnp.zeros(2) for k in ("tilt", "output")}

        def world(record: jax.Array, start: jax.Array, seen: jax.Array) -> jax.Array:
            own = eqx.tree_at(lambda s: (s.features, s.targets), shard, (record[None], jnp.ones(1)))
            state = pvp.init(cfg, eqx.tree_at(lambda p: p.start, place, start))

            def step(carry: tuple, released: jax.Array) -> tuple:
                state, t = carry
                state, _ = pvp.emit(cfg, place, t, state, own, draw)
                mine, theirs = released
                dual = state.dual + cfg.penalty * (mine - theirs)
                new = eqx.tree_at(lambda s: (s.x, s.dual, s.near), state, (mine, dual, theirs))
                return (new, t + 1), state.own

            return jax.lax.scan(step, (state, jnp.asarray(0)), seen)[1]

        both = jax.jit(jax.vmap(jax.vmap(world, (0, None, None))))(pairs, starts, path)
        return np.linalg.norm(np.asarray(both[:, 0] - both[:, 1]), axis=-1)


@pytest.mark.parametrize("centre", mostly_slow(CENTRES, "own"))
def test_coupled_worlds_never_exceed_it_and_an_adversary_reaches_it(centre):
    rng, rounds, k = np.random.default_rng(0), 5, 24
    records = rng.normal(size=(k, 2, 2))
    records /= np.maximum(1, np.linalg.norm(records, axis=-1, keepdims=True))
    path = rng.normal(size=(k, rounds, 2, 2)) * rng.choice([0.3, 5.0], size=(k, 1, 1, 1))
    # the adversary keeps everybody far out where both records' slopes are saturated and nearly opposite
    angle = 0.05
    records[0] = [[np.cos(angle), np.sin(angle)], [-np.cos(angle), np.sin(angle)]]
    starts = np.zeros((k, 2))
    starts[0] = path[0] = [0.0, -2000.0]
    with jax.enable_x64(True):
        gaps = coupled(centre, *map(jnp.asarray, (records, starts, path)), rounds)
    assert np.all(gaps <= np.array(recursion(centre, 0.1, 1.0, 2.0, rounds)) * (1 + 1e-9))
    np.testing.assert_allclose(gaps[0], recursion(centre, 0.1, 1.0, 2 * np.cos(angle), rounds), rtol=1e-6)
    if centre == "literal":
        assert gaps[0, :3] == pytest.approx([0.951, 1.857, 2.720], abs=6e-4)
        assert gaps[0, -1] > 4 * gaps[0, 0]  # noise scaled for `released` centres would be far too small


@pytest.mark.slow
def test_noise_on_the_point_has_the_declared_scale():
    layout = network(rounds=10)
    with jax.enable_x64(True):
        place, shard = agent(layout, 0, noise=2.0)
        cfg = pvp.EXAMPLE
        rng = np.random.default_rng(0)
        state = eqx.tree_at(lambda s: s.dual, pvp.init(cfg, place), jnp.asarray(rng.normal(size=4)))
        law = pvp.draws(cfg, place)["output"]
        noise = jax.vmap(lambda k: law.sample(k, jnp.float64))(jax.random.split(jax.random.key(0), 3000))
        emit = eqx.filter_jit(lambda e, b, t: pvp.emit(cfg, place, t, state, shard, {"output": e, "tilt": b})[1].x)
        exact = emit(jnp.zeros(4), jnp.zeros(4), jnp.asarray(3))
        many = eqx.filter_vmap(lambda e: emit(e, jnp.ones(4), jnp.asarray(3)))(noise)  # b is not for this round
        scale = 2.0 * float(pvp.sensitivity(cfg, place, jnp.asarray(3)))
        assert scale == pytest.approx(2 * (2 / 40 + 2e-8) / (0.05 + 0.4))
        norms = np.linalg.norm(np.asarray(many - exact), axis=1)
        # the last round: b tilts the objective, and the point's noise only hides the solver's error
        last = [np.asarray(emit(e, b, jnp.asarray(9))) for e, b in ((noise[0], noise[1]), (0 * noise[0], noise[1]))]
        assert 0 < np.abs(last[0] - last[1]).max() < 1e-3
        assert np.abs(last[1] - np.asarray(emit(noise[0], 0 * noise[1], jnp.asarray(9)))).max() > 1e-2
    assert stats.kstest(norms, stats.gamma(4, scale=scale).cdf).pvalue > 0.01
    assert scale_p_value(norms, 4, scale) > 0.01
    assert max(scale_p_value(norms, 4, scale * off) for off in (0.95, 1.05)) < 1e-4


@pytest.mark.slow
def test_the_last_step_reads_released_values_only():
    """In the last round the private own point must not matter; as printed it does, and that is not called private."""
    layout = network(rounds=4)
    with jax.enable_x64(True):
        place, shard = agent(layout, 0, noise=2.0)
        rng = np.random.default_rng(0)
        draw = {k: jnp.asarray(rng.normal(size=4)) for k in ("tilt", "output")}
        moved, safe = {}, None
        for printed in (False, True):
            cfg = pvp.EXAMPLE.replace(as_printed=printed, centre="literal")
            emit = eqx.filter_jit(
                lambda own, t, cfg=cfg: pvp.emit(cfg, place, t, _at(cfg, place, own), shard, draw)[1].x
            )
            ends = [np.asarray(emit(jnp.asarray(own), jnp.asarray(3))) for own in (np.zeros(4), np.ones(4))]
            moved[printed] = np.abs(ends[0] - ends[1]).max()
            safe = safe if printed else ends[1]
        assert moved[False] < 1e-8
        assert moved[True] > 0.1
        # dvp from the same released values sends the same
        state = _at(pvp.EXAMPLE, place, jnp.ones(4))
        same = dvp.State(state.x, state.dual, state.near, state.mean, state.solver)
        cfg = dvp.Config(penalty=0.1, noise="gamma")
        want = eqx.filter_jit(lambda s: dvp.emit(cfg, place, jnp.asarray(3), s, shard, draw)[1].x)(same)
        np.testing.assert_allclose(safe, want, atol=1e-9)
    events = run_events(find("pvp"), pvp.EXAMPLE.replace(as_printed=True), place)
    assert any(isinstance(e, NonPrivate) for e in events)


def _at(cfg, place, own):
    state = pvp.init(cfg, place)
    x, dual, near = (jnp.asarray(v) for v in np.random.default_rng(3).normal(size=(3, 4)))
    return eqx.tree_at(lambda s: (s.x, s.own, s.dual, s.near), state, (x, own, dual, near))


def test_events():
    """T − 1 additive rounds and one pure round: L2-Laplace adds like a Gaussian, far below the pure sum."""
    with jax.enable_x64(True):
        place = place_with(14, 100, 2, 0.1, 101, noise=1 / 0.3)
    gamma = run_events(find("pvp"), pvp.EXAMPLE.replace(final=0.5), place)
    assert [type(e) for e in gamma] == [L2Laplace, Pure]
    assert np.asarray(gamma[0].times).tolist() == [1] * 100 + [0]
    assert np.asarray(gamma[1].times).tolist() == [0] * 100 + [1]
    assert np.allclose(gamma[0].sensitivity * gamma[0].rate, 0.3)
    assert float(gamma[1].epsilon[-1]) == pytest.approx(0.15)
    assert account(gamma, 0.0).epsilon == pytest.approx(30.15)
    assert account(gamma[:1], 1e-5).epsilon == pytest.approx(3.39, abs=0.01)  # d = 14, a = .3, T = 100
    gauss = run_events(find("pvp"), pvp.EXAMPLE.replace(noise="gaussian", penalty=5.0), place)
    assert [type(e) for e in gauss] == [Gaussian, ObjectivePerturbation]
    total = account(gauss, 1e-5)
    assert total.accountant == "objective-perturbation-A"
    assert np.isfinite(total.epsilon)
    assert pvp.claim(pvp.EXAMPLE, place, 1e-5) == pytest.approx(0.3)


def test_one_record_moves_the_point_by_no_more_than_declared():
    """A search over records at one state, and a crafted pair that reaches 0.9 of the declared value."""
    layout = network(2, 3, 2, graph="path", ridge=0.1, rounds=5)
    cfg = pvp.Config(penalty=1.0, noise="gamma", **FAR)
    with jax.enable_x64(True):
        place, shard = agent(layout, 0)
        state = eqx.tree_at(lambda s: (s.x, s.near), pvp.init(cfg, place), (jnp.array([0.0, -2000.0]),) * 2)
        declared = float(pvp.sensitivity(cfg, place, jnp.asarray(1)))
        draw = {k: jnp.zeros(2) for k in ("tilt", "output")}
        emit = eqx.filter_jit(lambda s: pvp.emit(cfg, place, jnp.asarray(1), state, s, draw)[1].x)
        rng, found = np.random.default_rng(0), []
        angles = [(0.05, np.pi - 0.05), *rng.uniform(0, 2 * np.pi, size=(30, 2))]
        for one, two in angles:
            ends = [emit(swap_record(shard, 0, np.array([np.cos(a), np.sin(a)]), 1.0)) for a in (one, two)]
            found.append(float(jnp.linalg.norm(ends[0] - ends[1])))
    assert max(found) <= declared * (1 + 1e-9)
    assert found[0] >= 0.9 * declared


@pytest.mark.slow
def test_without_noise_it_reaches_the_pooled_optimum():
    layout = network(rounds=160)
    trace = run("pvp", pvp.EXAMPLE.replace(tail=0.0), layout, record=False, every=160)
    np.testing.assert_allclose(trace.points[0], optimum(), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("centre", ["own", "literal"])
def test_the_other_centres_reach_it_too(centre):
    layout = network(rounds=160)
    trace = run("pvp", pvp.EXAMPLE.replace(tail=0.0, centre=centre), layout, record=False, every=160)
    np.testing.assert_allclose(trace.points[0], optimum(), atol=1e-6)
