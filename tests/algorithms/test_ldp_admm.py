"""LDP-ADMM: the sign, the totals, the random weights and what they do not buy."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from coterie.algorithms import ldp_admm
from coterie.algorithms.base import Public, find
from coterie.drivers.budget import run_events
from coterie.drivers.references import pooled
from coterie.drivers.simulate import Run, simulate
from coterie.graphs import make_graph
from coterie.privacy.accountants import account
from coterie.privacy.events import Laplace
from coterie.privacy.filter import Filter
from tests.algorithms.objective import place_with
from tests.support import agent, message_gap, network, swap_record, worst_logistic_pair

SPEC = ldp_admm.Config(inverse_step=10.0, dual_step=0.5, tail=0.0)  # D = 10, ζ = .5


@cache
def ran(as_printed: bool) -> SimpleNamespace:
    """A noiseless and a noisy run in one batch, logistic loss + ½‖x‖² on a sparse graph."""
    layout = network(10, 20, 3, rounds=300, ridge=1.0)
    cfg = SPEC.replace(as_printed=as_printed)
    runs = [Run(0, cfg, 0.0), Run(1, cfg, 2.0)]
    trace = simulate(find("ldp-admm"), layout, runs, rounds=300, every=100, record=True)
    return SimpleNamespace(layout=layout, cfg=cfg, trace=trace)


@pytest.mark.slow
def test_the_corrected_sign_reaches_the_pooled_optimum_and_the_printed_one_diverges():
    r = ran(False)
    assert np.abs(r.trace.points[0] - pooled(r.layout)).max() < 1e-8
    assert np.abs(ran(True).trace.points[0]).max() > 1e6


def test_duals_sum_to_zero():
    for dual in ran(False).trace.states.dual:
        assert np.abs(dual.sum(axis=0)).max() < 1e-9 * (1 + np.abs(dual).max())
    assert np.abs(ran(False).trace.states.dual[1]).max() > 1e-3


def test_noise_and_weights_have_the_declared_laws():
    """Each message minus its mean given the transcript, whatever the weight: Laplace noise on a uniform mixture."""
    r = ran(False)
    x, draws = r.trace.messages.x[1], r.trace.draws
    near = (np.roll(x, 1, axis=1) + np.roll(x, -1, axis=1)) / 2
    dual = np.cumsum(0.5 * 2 * (near - x), axis=0)
    with jax.enable_x64(True):
        shards = r.layout.arrays.groups[0].shards

        def slope(features, targets, point):
            one = eqx.tree_at(lambda s: (s.features, s.targets, s.count, s.unit), shards, (features, targets, 20, 0.05))
            return one.slope(point)

        many = jax.jit(jax.vmap(jax.vmap(slope), (None, None, 0)))
        slopes = np.asarray(many(shards.features, shards.targets, jnp.asarray(x)))
        place, _ = agent(r.layout, 0, noise=2.0)
        scale = float(ldp_admm.scale(r.cfg, place, 0))
    assert scale == pytest.approx(2.0 * np.sqrt(3) * 2 * 0.05 / 10)
    w = draws["weight"][1, 1:]
    noise = x[1:] - (w * x[:-1] + (1 - w) * near[:-1] - (slopes[:-1] - dual[:-1]) / 10)
    assert stats.kstest(noise.ravel(), stats.laplace(scale=scale).cdf).pvalue > 0.01
    size = np.abs(noise).sum()  # a sum of exponentials
    p = lambda s: 2 * min(stats.gamma(noise.size, scale=s).cdf(size), stats.gamma(noise.size, scale=s).sf(size))  # noqa: E731
    assert p(scale) > 0.01
    assert max(p(0.95 * scale), p(1.05 * scale)) < 1e-4
    assert stats.kstest(w.ravel(), stats.uniform.cdf).pvalue > 0.01


def test_one_record_moves_the_point_by_no_more_than_declared():
    layout = network(2, 5, 2, graph="path", rounds=3)
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        place, shard = agent(layout, 0)
        declared = float(ldp_admm.sensitivity(SPEC, place, 0))
        assert declared == pytest.approx(2 / 5 / 10)
        far = worst_logistic_pair(2, 5, margin=600.0)
        state = eqx.tree_at(lambda s: s.x, ldp_admm.init(SPEC, place), jnp.asarray(far.point))
    pairs = [(far.u, far.v)]
    for _ in range(10):
        pair = rng.normal(size=(2, 2))
        pairs.append(tuple(pair / np.linalg.norm(pair, axis=1, keepdims=True)))
    gaps = [
        message_gap("ldp-admm", SPEC, place, state, tuple(swap_record(shard, 0, record, 1.0) for record in pair))
        for pair in pairs
    ]
    assert max(gaps) <= declared * (1 + 1e-9)
    assert gaps[0] >= 0.9 * declared


def test_clipping_bounds_the_sensitivity():
    with jax.enable_x64(True):
        place = place_with(3, 50, 2, 0.1, 2)
        assert float(ldp_admm.sensitivity(SPEC.replace(clip=0.25), place, 0)) == pytest.approx(2 * 0.25 / 50 / 10)
        assert float(ldp_admm.sensitivity(SPEC.replace(clip=4.0), place, 0)) == pytest.approx(2 / 50 / 10)


def published() -> tuple[object, float]:
    """Place whose noise rates are the paper's β_k = 1.02^k: d = 14, b_i = 100, D = 10, K = 100."""
    with jax.enable_x64(True):
        place = place_with(14, 100, 4, 1.0, 100, noise=1.0)
        spread = float(ldp_admm.scale(SPEC, place, 0))
        shape = 1.02 ** -np.arange(1.0, 101.0) / spread
        return eqx.tree_at(lambda p: p.shape, place, jnp.asarray(shape)), spread


def test_totals():
    """The paper's .3185 forgets the dimension (× 14 = 4.459) and that a record is replaced (× 2)."""
    place, _ = published()
    events = run_events(find("ldp-admm"), SPEC, place)
    assert isinstance(events[0], Laplace)
    np.testing.assert_allclose(events[0].rate, 1.02 ** np.arange(1, 101), rtol=1e-9)
    printed = ldp_admm.claim(SPEC, place, 0.0)
    assert printed == pytest.approx(0.3185, abs=1e-4)
    assert 14 * printed == pytest.approx(4.459, abs=1e-3)
    pure = account(events, 0.0).epsilon
    assert pure == pytest.approx(np.sum(1.02 ** np.arange(1, 101)) * np.sqrt(14) * 2 / 100 / 10)  # B₁ ≤ √d B₂
    assert pure > printed
    tight = account(events, 1e-5).epsilon
    assert tight < pure / 2


def test_per_round_level_is_one_over_the_noise():
    with jax.enable_x64(True):
        place = place_with(5, 30, 2, 0.1, 7, noise=4.0)
        silent = place_with(5, 30, 2, 0.1, 7)
        assert float(ldp_admm.scale(SPEC, silent, 0)) == 0
    assert account(run_events(find("ldp-admm"), SPEC, place), 0.0).epsilon == pytest.approx(7 / 4)


def test_a_filter_may_charge_the_mixture():
    """Rényi cost at announced widths: below plain Laplace noise for wide intervals, equal to it for none."""
    with jax.enable_x64(True):
        place = place_with(1, 50, 2, 0.1, 5, noise=2.0)
        wide, flat = (ldp_admm.mixture(SPEC, place, 0, jnp.full(1, width)) for width in (10 / 250.0, 0.0))
        plain = ldp_admm.cost(SPEC, place, 0)
    meter = Filter(1.0, 1e-5).meter
    assert meter.cost(flat) == pytest.approx(meter.cost(plain), rel=1e-3)
    assert meter.cost(wide) < 0.9 * meter.cost(plain)


# ---- where it converges --------------------------------------------------------------------------------------------


def public(graph: str, agents: int, **params) -> Public:
    g = make_graph(graph, agents, seed=0, **params)
    lap = np.diag(g.degrees.astype(float))
    for i, j in np.asarray(g.edges):
        lap[i, j] = lap[j, i] = -1.0
    top = float(np.linalg.eigvalsh(lap)[-1])
    degrees = np.asarray(g.degrees)
    return Public(agents, 300, 3, 20, 20, int(degrees.min()), int(degrees.max()), top, None, 1.0, 1.0, 0.25, 1.0, 1e-5)


@pytest.mark.parametrize(("graph", "agents"), [("ring", 10), ("star", 8), ("complete", 20), ("path", 6)])
def test_defaults_lie_in_the_convergent_region(graph, agents):
    assert ldp_admm.convergent(ldp_admm.Config(), public(graph, agents)) is None


@pytest.mark.slow
def test_the_published_steps_are_flagged_on_a_large_complete_graph_and_do_diverge():
    facts = public("complete", 100)
    assert "dual_step 0.5 may diverge" in ldp_admm.convergent(SPEC, facts)
    assert ldp_admm.convergent(SPEC.replace(dual_step=0.25), facts) is None
    assert ldp_admm.convergent(SPEC, public("ring", 10)) is None
    assert "inverse_step 0.3 may diverge" in ldp_admm.convergent(SPEC.replace(inverse_step=0.3), facts)
    layout = network(100, 2, 2, graph="complete", rounds=200, ridge=1.0)
    runs = [Run(0, SPEC.replace(dual_step=dual), 0.0) for dual in (0.5, 0.25)]
    trace = simulate(find("ldp-admm"), layout, runs, rounds=200, every=200)
    off = np.abs(trace.points - pooled(layout)).max(axis=(1, 2))
    assert off[0] > 10
    assert off[1] < 1e-3


@pytest.mark.slow
def test_the_default_steps_converge():
    layout = network(8, 20, 3, graph="star", rounds=400, ridge=1.0)
    cfg = ldp_admm.tune(ldp_admm.Config(tail=0.0), public("star", 8))
    assert cfg.inverse_step == pytest.approx(2.5)
    trace = simulate(find("ldp-admm"), layout, [Run(0, cfg, 0.0)], rounds=400, every=400)
    assert np.abs(trace.points[0] - pooled(layout)).max() < 1e-6


def test_a_larger_budget_pays_for_more_rounds():
    facts = public("ring", 10).__dict__ | {"count_min": 300}
    rounds = [ldp_admm.suggest_rounds(Public(**facts | {"epsilon": eps})) for eps in (0.01, 0.3, 1.0, 50.0)]
    assert rounds[0] == 100 < rounds[1] < rounds[2] <= rounds[3] == 1000
    assert ldp_admm.suggest_rounds(Public(**facts | {"epsilon": None})) == 100
