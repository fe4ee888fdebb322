"""`ipp-admm`: the test's sensitivity and noise, the cap on messages, its costs, and the printed version's."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coterie.algorithms import ipp_admm as alg
from coterie.algorithms import pp_admm
from coterie.algorithms._admm import solve
from coterie.algorithms.base import find
from coterie.drivers.budget import run_events
from coterie.drivers.references import pooled
from coterie.drivers.simulate import Run, Trace, simulate
from coterie.privacy.accountants import account
from coterie.privacy.base import flat
from tests.algorithms.admm_checks import at, double, one, papers, put
from tests.support import agent, network, run, worst_logistic_pair

__all__ = ["double"]

ALWAYS, NEVER, ROUNDS = -1e9, 1e9, 120
CFG = alg.Config(penalty=0.1, broadcasts=ROUNDS, threshold=ALWAYS, tolerance=1e-10)
LAYOUT = network(rounds=ROUNDS)


@pytest.fixture(scope="module")
def trace() -> Trace:
    """Always speaking without noise; always with noise; never."""
    runs = [Run(1, CFG, 0.0), Run(1, CFG, 0.8), Run(1, CFG.replace(threshold=NEVER), 0.8)]
    with jax.enable_x64(True):
        return simulate(find("ipp-admm"), LAYOUT, runs, rounds=ROUNDS, every=ROUNDS, record=True)


@pytest.mark.slow
def test_always_speaking_reaches_the_pooled_optimum(trace: Trace) -> None:
    np.testing.assert_allclose(trace.points[0], np.tile(pooled(LAYOUT), (5, 1)), atol=1e-6)
    assert (trace.sent[:2] == ROUNDS).all()


def test_what_is_sent_is_a_pp_admm_release() -> None:
    """With c = T and a test that always passes, the same draws give the same message at the releases' multiplier."""
    place, shard = agent(network(rounds=9), noise=0.8)
    draw = {"test": jnp.zeros(()), "objective": jnp.arange(4.0), "output": jnp.ones(4)}
    state = put(alg.init(CFG, place), jnp.ones(4))
    other = pp_admm.Config(penalty=0.1, tolerance=1e-10)
    mine = jax.jit(lambda: alg.emit(CFG, place, jnp.array(2), state, shard, draw)[1].message.x)()
    louder = at(place, noise=0.8 / (1 - CFG.test_share) ** 0.5)
    theirs = jax.jit(lambda: pp_admm.emit(other, louder, jnp.array(2), state, shard, draw)[1].x)()
    np.testing.assert_allclose(mine, theirs, atol=1e-12)


@pytest.mark.slow
def test_never_speaking_sends_nothing(trace: Trace) -> None:
    assert trace.sent[2].sum() == 0
    np.testing.assert_array_equal(trace.points[2], 0.0)


def test_messages_are_capped_and_silence_keeps_the_last_one() -> None:
    layout = network(rounds=24)
    trace = run("ipp-admm", alg.Config(penalty=0.1, broadcasts=6, test="svt"), layout, noise=3.0, seeds=4)
    sent, x = trace.extras["sent"], trace.messages.x
    assert trace.sent.max() == 6
    assert 0 < sent.mean() < 1
    assert (np.diff(x, axis=1)[~sent[:, 1:]] == 0).all()
    assert (np.diff(x, axis=1)[sent[:, 1:]] != 0).any(axis=-1).all()
    np.testing.assert_array_equal(trace.states.bar, trace.draws["bar"][:, 0])  # one threshold for the whole run


def test_query_sensitivity_is_never_exceeded() -> None:
    """Random and crafted neighbours. Worst case: n − 1 wrong records u and one that is u or nearly −u, all saturated.

    The answer then steps 1/Λ or (1 − 2/n)/Λ along u: with C = 1/Λ = ¼ and n = 5 the query is .25 or .09 and the bound
    .2; both parts of it cannot be attained at once.
    """
    cfg = alg.Config(penalty=1.0, clip=0.25)
    place, shard = agent(network(records=5, d=2, ridge=1e-9))
    rng, trials, pair = np.random.default_rng(5), 300, worst_logistic_pair(2, 5, margin=400.0)
    points = np.vstack([8 * rng.standard_normal((trials, 2)), pair.point])
    records = rng.standard_normal((2, trials, 2))
    records /= np.linalg.norm(records, axis=-1, keepdims=True)
    records = np.concatenate([records, np.stack([pair.u, pair.v])[:, None]], axis=1)
    labels = np.concatenate([rng.choice([-1.0, 1.0], (2, trials)), np.ones((2, 1))], axis=1)
    others = np.concatenate([np.broadcast_to(shard.features, (trials, 5, 2)), np.tile(pair.u, (1, 5, 1))])
    classes = np.concatenate([np.broadcast_to(shard.targets, (trials, 5)), np.ones((1, 5))])

    def query(point: jax.Array, features: jax.Array, targets: jax.Array, record: jax.Array, label: jax.Array) -> Any:
        world = (features.at[0].set(record), targets.at[0].set(label))
        mine = eqx.tree_at(lambda s: (s.features, s.targets), shard, world)
        state = put(alg.init(cfg, place), point)
        return alg.query(cfg, state.x, solve(cfg.penalty, place, state, mine, 1e-10)[0], mine)

    compiled = jax.jit(jax.vmap(query))
    gaps = np.abs(
        compiled(points, others, classes, records[0], labels[0])
        - compiled(points, others, classes, records[1], labels[1])
    )
    declared = float(alg.sensitivity(cfg, place, 0))
    assert declared == pytest.approx(0.2, rel=1e-5)
    assert gaps.max() <= declared
    assert gaps[-1] == pytest.approx(0.16, rel=0.01)


def test_golden_query_sensitivity() -> None:
    """n = 7000, C = 2, Λ = 2, β = 1e-6: 7.152857e-4; printed: 4."""
    cfg = alg.Config(penalty=0.5)
    assert float(alg.sensitivity(cfg, one(papers(7000, 30)), 0)) == pytest.approx(7.152857e-4, rel=1e-6)


def test_gauss_costs_the_multiplier_whatever_the_cap() -> None:
    """μ² = T/z² from T tests and c releases; the Jacobian counts c times."""
    for c in (3, 15, 30):
        cfg = alg.Config(penalty=0.5, broadcasts=c)
        place = one(papers(7000, 30, ridge=0.001), noise=30**0.5 / 0.3)
        test, release = run_events(find("ipp-admm"), cfg, place)
        assert release.times.sum() == c
        square = np.sum((test.sensitivity / test.sigma) ** 2) + np.sum(release.times * release.gaussian_part() ** 2)
        assert square == pytest.approx(0.09, rel=1e-9)
        assert np.sum((test.sensitivity / test.sigma) ** 2) == pytest.approx(0.009, rel=1e-9)
        total = account([test, release], 1e-4, fast=True)
        assert total.accountant == "objective-perturbation-A"
    silent = account([test], 1e-4, fast=True).epsilon
    assert silent < total.epsilon / 2


def test_svt_is_charged_once_with_the_right_scales() -> None:
    cfg = alg.Config(penalty=0.5, test="svt")
    place = one(papers(7000, 30, ridge=0.001), noise=20.0)
    test, release = run_events(find("ipp-admm"), cfg, place)
    assert test.times.sum() == 1
    pure = float(flat(test).pure()[0])
    assert pure**2 / 2 == pytest.approx(0.1 * 30 / 20.0**2 / 2)
    first = pure / (1 + 30 ** (2 / 3))
    over, above = (float(s) for s in alg._test_noise(cfg, place))
    gap = float(alg.sensitivity(cfg, place, 0))
    assert above == pytest.approx(gap / first)
    assert over == pytest.approx(2 * 15 * gap / (pure - first))
    assert np.isfinite(account([test, release], 1e-4, fast=True).epsilon)


def test_as_printed_every_round_must_be_charged() -> None:
    """The paper charges c releases although the bit looks at their noise: the truth is T of them."""
    cfg = alg.Config(penalty=0.5, as_printed=True)
    place = one(papers(7000, 30, ridge=0.001), noise=20.0)
    bits, releases = run_events(find("ipp-admm"), cfg, place)
    assert np.broadcast_to(releases.times, 30).sum() == 30
    pure = (0.1 * 30) ** 0.5 / 20.0
    second = pure * 30 ** (2 / 3) / (1 + 30 ** (2 / 3))
    assert np.asarray(bits.rate).flat[0] == pytest.approx(second / (4 * 15 * 2))
    assert float(alg._test_noise(cfg, place)[1]) == pytest.approx(2 * 15 * 2 / (pure - second))
    honest = account(run_events(find("ipp-admm"), cfg.replace(as_printed=False), place), 1e-4, fast=True)
    printed = account([bits, releases], 1e-4, fast=True)
    assert printed.epsilon > 1.2 * honest.epsilon
    assert printed.epsilon > alg.claim(cfg, place, 1e-4)


def test_the_query_moves_with_the_norm_of_gradients_not_with_their_gap() -> None:
    """Losses that share a slope 3v have gradients close together, and move all the same when the point does."""
    place, _ = agent(network(records=20, d=4, ridge=0.05))
    alike, apart = (dataclasses.replace(place, steepness=s) for s in (4.0, 1.0))
    moved = (2 / 20 + 2 * alg.EXAMPLE.tolerance) / (0.05 + 0.4)
    with jax.enable_x64(True):
        more = float(alg.sensitivity(alg.EXAMPLE, alike, 0) - alg.sensitivity(alg.EXAMPLE, apart, 0))
    assert more == pytest.approx(3 * moved, rel=1e-9)
    assert place.steepness == 1.0
