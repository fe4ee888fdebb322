"""`p-admm`: its decay, its totals, and that without decay it is `pr-admm`."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from coterie.algorithms import p_admm as alg
from coterie.algorithms import pr_admm
from coterie.algorithms.base import Public, find
from coterie.drivers.budget import calibrate_agents, run_events
from coterie.drivers.references import pooled
from coterie.drivers.simulate import Run, simulate
from coterie.privacy import gdp
from coterie.privacy.accountants import account, total_mu
from coterie.privacy.rdp import zcdp_epsilon
from tests.algorithms.admm_checks import double, fits, many_messages, one, papers, put
from tests.algorithms.moves import logistic_moves, public
from tests.support import agent, network

__all__ = ["double"]

EXACT = alg.Config(penalty=0.5, decay=0.925, steps=60)


@pytest.mark.slow
def test_noiseless_limit_is_the_pooled_optimum_and_noise_falls_by_the_decay() -> None:
    layout = network(rounds=200)
    runs = [Run(0, alg.EXAMPLE, 0.0), Run(1, alg.EXAMPLE, 1e-3), Run(1, alg.EXAMPLE.replace(decay=1.0), 1e-3)]
    trace = simulate(find("p-admm"), layout, runs, rounds=200, every=200, record=True)
    np.testing.assert_allclose(trace.points[0], np.tile(pooled(layout), (5, 1)), atol=1e-6)
    gaps = np.linalg.norm(trace.messages.x - trace.messages.x[0], axis=(2, 3))
    assert gaps[1, :20].mean() > 500 * gaps[1, -20:].mean()  # .925^{−90} is 1100
    assert 0.5 < gaps[2, :20].mean() / gaps[2, -20:].mean() < 2


def test_scale_sensitivity_and_distribution() -> None:
    place, shard = agent(network(records=6, d=3, ridge=0.01, rounds=11), noise=1.7)
    moves = np.linalg.norm(logistic_moves(alg, alg.EXAMPLE, place, shard, 0, put), axis=1)
    declared = float(alg.sensitivity(alg.EXAMPLE, place, 0))
    assert 0.9 * declared <= moves[-1] <= moves.max() <= declared
    state = put(alg.init(alg.EXAMPLE, place), jnp.ones(3))
    quiet = np.asarray(alg.emit(alg.EXAMPLE, place, 4, state, shard, {"noise": jnp.zeros(3)})[1].x)
    residuals = many_messages(alg, alg.EXAMPLE, place, shard, state, 3000, t=4) - quiet
    scale = 1.7 * 0.925**-3 * declared  # rounds 4 … 10: six to go, half of that in the std
    assert fits(residuals, scale)
    assert not fits(residuals, 1.05 * scale)
    assert not fits(residuals, 0.95 * scale)


def test_totals_have_their_closed_form() -> None:
    place = papers()
    assert float(alg.sensitivity(EXACT, one(place), 0)) == pytest.approx(1.25e-4, rel=1e-12)
    z = calibrate_agents(find("p-admm"), EXACT, place, 1.0, 1e-4)[0]
    mine = one(place, noise=z)
    first, last = (float(alg.sigma(EXACT, mine, t)) for t in (0, 49))
    assert (first, last) == pytest.approx((9.71993e-3, 1.43925e-3), rel=2e-6)  # = pr-admm's periodic schedule
    events = run_events(find("p-admm"), EXACT, mine)
    assert total_mu(events) == pytest.approx(1.25e-4 / first * 595.7930316**0.5, rel=1e-8)
    assert account(events, 1e-4, fast=True).epsilon == pytest.approx(1.0, rel=1e-6)
    assert total_mu(events) == pytest.approx(float(gdp.mu_for(1.0, 1e-4)), rel=1e-8)


def test_claim_is_the_printed_sum() -> None:
    """ρ₁ = 1e-3, R = .925, K = 50: total .595793."""
    printed = EXACT.replace(as_printed=True)
    mine = one(papers(), noise=1 / (2e-3) ** 0.5 * 0.925 ** (49 / 2))
    assert float(alg.sigma(printed, mine, 0)) == pytest.approx(1 / (2e-3) ** 0.5, rel=1e-9)
    assert alg.claim(printed, mine, 1e-4) == pytest.approx(zcdp_epsilon(0.5957930316, 1e-4), rel=1e-8)
    assert account(run_events(find("p-admm"), printed, mine), 1e-4).epsilon < 0.01  # 8000 times the noise it needs


def test_without_decay_it_is_pr_admm() -> None:
    """One subproblem, one sensitivity, and then also one noise."""
    place = one(papers(shape=np.linspace(1, 2, 50)), noise=2.0)
    same, other = alg.Config(penalty=0.1, decay=1.0, steps=40), pr_admm.Config(penalty=0.1, steps=40)
    rounds = jnp.arange(50)
    mine, theirs = alg.sigma(same, place, rounds), pr_admm.sigma(other, place, rounds)
    np.testing.assert_allclose(mine, theirs, rtol=1e-14)
    assert not np.allclose(alg.sigma(same.replace(decay=0.9), place, rounds), theirs)


def test_default_decay_is_the_slowest_contraction() -> None:
    tuned = alg.tune(alg.Config(penalty=0.1), Public(**public(ridge=0.05)))
    assert tuned.decay == pytest.approx(0.4 / 0.45)
    assert 0 < alg.tune(alg.Config(), Public(**public())).decay < 1
