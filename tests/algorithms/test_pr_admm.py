"""`pr-admm`: noiseless limit, residual identity, sensitivity, noise, golden scales, threshold, the printed version."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coterie.algorithms import pr_admm as alg
from coterie.algorithms.base import Inbox, Public, find
from coterie.drivers.budget import calibrate_agents, run_events
from coterie.drivers.references import pooled
from coterie.drivers.simulate import Run, Trace, simulate
from coterie.privacy import schedules
from coterie.privacy.accountants import account
from coterie.privacy.rdp import zcdp_epsilon
from tests.algorithms.admm_checks import at, double, fits, many_messages, one, papers, put
from tests.algorithms.moves import logistic_moves, public
from tests.support import agent, network

__all__ = ["double"]

CFG, ROUNDS, NOISE = alg.EXAMPLE, 200, 0.7
LAYOUT = network(rounds=ROUNDS, shape=schedules.make("periodic", ROUNDS, rate=0.99))


@pytest.fixture(scope="module")
def trace() -> Trace:
    """A noiseless and a noisy run in one batch."""
    runs = [Run(0, CFG, 0.0), Run(1, CFG, NOISE)]
    return simulate(find("pr-admm"), LAYOUT, runs, rounds=ROUNDS, every=ROUNDS, record=True)


@pytest.mark.slow
def test_noiseless_limit_is_the_pooled_optimum(trace: Trace) -> None:
    np.testing.assert_allclose(trace.points[0], np.tile(pooled(LAYOUT), (5, 1)), atol=1e-6)


def test_one_program_takes_any_number_of_steps() -> None:
    """Runs of unlike K in one batch are the runs alone: each stops after its own steps."""
    runs = [Run(3, CFG.replace(steps=k), NOISE) for k in (1, 7, 40)]
    batch = simulate(find("pr-admm"), LAYOUT, runs, rounds=5)
    for k, run in enumerate(runs):
        alone = simulate(find("pr-admm"), LAYOUT, [run], rounds=5)
        np.testing.assert_allclose(batch.points[k], alone.points[0], atol=1e-12)
    assert np.abs(batch.points[0] - batch.points[1]).max() > 1e-3
    assert len({jax.tree.structure(run.cfg) for run in runs}) == 1


def test_residual_identity_with_noise(trace: Trace) -> None:
    """∇f(x^{k+1})/η + 2Q r^{k+1} + L₊(x̃^{k+1} − x̃^k) = 2M ξ^{k+1}; the papers print 2M⁻¹."""
    eta, released = CFG.penalty, trace.messages.x[1]
    place = LAYOUT.arrays.place
    sigma = np.asarray(jax.vmap(lambda t: alg.sigma(CFG, at(one(place), noise=NOISE), t))(jnp.arange(ROUNDS)))
    noise = sigma[:, None, None] * trace.draws["noise"][1]
    exact = released - noise
    slopes = np.stack([jax.vmap(agent(LAYOUT, i)[1].slope)(jnp.asarray(exact[:, i])) for i in range(5)], axis=1)
    minus = 2 * np.eye(5) - np.roll(np.eye(5), 1, 0) - np.roll(np.eye(5), -1, 0)
    plus = 4 * np.eye(5) - minus
    integral = np.einsum("ij,kjd->kid", minus, np.cumsum(released, axis=0))  # 2Q r = L₋ Σ x̃
    before = np.concatenate([np.zeros_like(released[:1]), released[:-1]])
    left = slopes / eta + integral + np.einsum("ij,kjd->kid", plus, released - before)
    assert np.abs(left - 2 * 2 * noise).max() < 1e-8
    assert np.abs(left - 2 / 2 * noise).max() > 0.1
    assert np.abs(trace.states.dual[1].sum(axis=0)).max() < 1e-11


def test_answer_is_the_mean_of_the_last_half_of_what_an_agent_saw(trace: Trace) -> None:
    seen = trace.messages.x[1]
    around = (seen + np.roll(seen, 1, 1) + np.roll(seen, -1, 1)) / 3
    np.testing.assert_allclose(trace.points[1], around[ROUNDS // 2 :].mean(axis=0), atol=1e-10)


def test_sensitivity_is_never_exceeded_and_nearly_attained() -> None:
    place, shard = agent(network(records=6, d=3, ridge=0.01))
    moves = np.linalg.norm(logistic_moves(alg, CFG, place, shard, 0, put), axis=1)
    declared = float(alg.sensitivity(CFG, place, 0))
    assert moves.max() <= declared
    assert moves[-1] >= 0.9 * declared
    assert moves[-1] > declared * 6 / 7  # with one more record in the divisor the declaration would be false
    rate = 0.25 / (2 * 0.41 + 0.25)  # (M − Λ)/(M + Λ) with Λ = .01 + 2 · .1 · 2 and M = Λ + ¼
    assert declared == pytest.approx(2 / 6 / 0.41 * (1 - rate**40), rel=1e-12)
    one_step = float(alg.sensitivity(CFG.replace(steps=1), place, 0))
    assert one_step == pytest.approx(2 / (2 * 0.41 + 0.25) * 2 / 6, rel=1e-12)  # a gradient step of length 2/(M + Λ)


def test_noise_has_the_declared_scale_and_no_other() -> None:
    layout = network(rounds=5, shape=np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    place, shard = agent(layout, noise=1.3)
    state = put(alg.init(CFG, place), jnp.ones(4))
    quiet = np.asarray(alg.emit(CFG, place, 2, state, shard, {"noise": jnp.zeros(4)})[1].x)
    residuals = many_messages(alg, CFG, place, shard, state, 3000, t=2) - quiet
    scale = float(1.3 * 3 * (2 / 40) / (0.05 + 0.4))
    assert fits(residuals, scale)
    assert not fits(residuals, 1.05 * scale)
    assert not fits(residuals, 0.95 * scale)


def test_golden_scales() -> None:
    exact = alg.Config(penalty=0.5, steps=60)
    place = papers()
    assert float(alg.sensitivity(exact, one(place), 0)) == pytest.approx(1.25e-4, rel=1e-12)
    assert float(alg.printed_sensitivity(exact, one(place))) == 1.0
    for shape, first, last in (
        (schedules.make("periodic", 50, rate=0.925), 9.71993e-3, 1.43925e-3),
        (schedules.make("iteration", 50, rate=0.015), 9.96129e-3, None),
    ):
        place = papers(shape=shape)
        z = calibrate_agents(find("pr-admm"), exact, place, 1.0, 1e-4)[0]
        mine = one(place, noise=z)
        assert float(alg.sigma(exact, mine, 0)) == pytest.approx(first, rel=2e-6)
        if last is not None:
            assert float(alg.sigma(exact, mine, 49)) == pytest.approx(last, rel=2e-6)


def test_claim_forgets_a_release_of_periodic_schedules_only() -> None:
    exact = alg.Config(penalty=0.5, steps=60, as_printed=True)
    for shape, factor in (
        (schedules.make("periodic", 50, rate=0.925), 594.7930316),
        (schedules.make("periodic", 50, rate=0.925, period=5), 71.80573032),
        (schedules.make("iteration", 50, rate=0.015), 625.75),
    ):
        place = papers(shape=shape)
        mine = one(place, noise=1e3 / shape[0])  # ρ₁ = 5e-7
        assert alg.claim(exact, mine, 1e-4) == pytest.approx(zcdp_epsilon(factor * 5e-7, 1e-4), rel=1e-8)
        single = one(papers(rounds=1), noise=1.0)
        assert alg.claim(exact, single, 1e-4) == 0  # a release that the paper says is free …
        assert account(run_events(find("pr-admm"), exact.replace(as_printed=False), single), 1e-4).epsilon > 3


def test_printed_noise_is_n_times_too_large() -> None:
    printed = alg.Config(penalty=0.5, steps=60, as_printed=True)
    place = one(papers(), noise=50**0.5 / 0.3139)
    ratio = alg.sigma(printed, place, 0) / alg.sigma(printed.replace(as_printed=False), place, 0)
    assert float(ratio) == pytest.approx(8000)
    events = run_events(find("pr-admm"), printed, place)
    assert account(events, 1e-4).epsilon == 0.0  # (0, 1e-4): the noise is pure loss


def test_threshold_leaves_a_strayed_neighbour_out_for_good() -> None:
    place, _ = agent(network())
    cfg = CFG.replace(threshold=1.0)
    state = put(alg.init(cfg, place), jnp.zeros(4))
    index, weight, here = jnp.array([0, 1]), jnp.full(2, 1 / 3), jnp.array([True, True])

    def hear(state: alg.State, near: float, far: float, memory: jax.Array) -> tuple[alg.State, jax.Array]:
        x = jnp.zeros((2, 4)).at[0, 0].set(near).at[1, 0].set(far)
        return alg.absorb(cfg, place, jnp.array(3), state, Inbox(alg.Message(x), index, weight, here, memory))

    state, memory = hear(state, 0.4, 2.0, jnp.zeros(2))
    np.testing.assert_allclose(memory, [0.4, 2.0])
    assert float(state.near[0]) == pytest.approx(0.4)  # the second neighbour is replaced by the agent itself
    assert float(state.dual[0]) == pytest.approx(-0.1 * 2.4)  # but not in the dual
    state, memory = hear(state, 0.4, 0.0, memory)
    np.testing.assert_allclose(memory, [0.8, 2.0])
    state, memory = hear(state, 0.4, 0.3, memory)  # near again, and yet both are out now
    assert float(state.near[0]) == 0.0
    assert float(memory[0]) == pytest.approx(1.2)


def test_defaults_come_from_public_numbers() -> None:
    facts = Public(**public(rounds=50, count_min=8000, ridge=1e-4, dim=105, delta=1e-4))
    penalty = alg.tune(alg.Config(), facts).penalty
    # 2·50/(8000·.313902·√5·1.5), minus ridge, over 2·2
    assert penalty == pytest.approx((100 / (8000 * 0.313902 * 5**0.5 * 1.5) - 1e-4) / 4, rel=1e-5)
    assert alg.tune(alg.Config(penalty=0.3), facts).penalty == 0.3
    assert alg.tune(alg.Config(), facts).threshold is None
    chosen = alg.tune(alg.Config(paper_threshold=True, penalty=0.5), facts).threshold
    assert chosen == alg.paper_threshold_from(facts, 0.5)
