"""`pp-admm`: noiseless limit, both noises, golden calibration, and what the printed calibration really costs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coterie.algorithms import pp_admm as alg
from coterie.algorithms._penalty import jacobian_penalty
from coterie.algorithms.base import Public, find
from coterie.algorithms.pp_admm import classic_gaussian
from coterie.drivers.budget import calibrate_agents, run_events
from coterie.drivers.references import pooled
from coterie.errors import InputError
from coterie.privacy.accountants import account
from coterie.privacy.gdp import mu_for
from coterie.privacy.rdp import zcdp_epsilon
from reproduction.claims import ding_rho
from tests.algorithms.admm_checks import double, fits, many_messages, one, papers, put
from tests.algorithms.moves import logistic_moves, public
from tests.support import agent, network, run

__all__ = ["double"]

CFG = alg.EXAMPLE


@pytest.mark.slow
def test_noiseless_limit_is_the_pooled_optimum() -> None:
    layout = network(rounds=200)
    trace = run("pp-admm", CFG, layout, every=200)
    np.testing.assert_allclose(trace.points[0], np.tile(pooled(layout), (5, 1)), atol=1e-6)
    assert np.abs(trace.states.dual[0].sum(axis=0)).max() < 1e-11


def test_gradient_gap_is_never_exceeded_and_nearly_attained() -> None:
    """b₁ is recovered from an answer by the subproblem's gradient, so its gap is Λ times the answers' gap there."""
    place, shard = agent(network(records=6, d=3, ridge=0.01))
    moves = np.linalg.norm(logistic_moves(alg, CFG, place, shard, 0, put), axis=1) * (0.01 + 0.4)
    declared = float(alg.sensitivity(CFG, place, 0))
    assert declared == pytest.approx(2 / 6)
    assert 0.9 * declared <= moves[-1] <= moves.max() <= declared + 2e-9


@pytest.mark.slow
def test_both_noises_have_their_scales() -> None:
    """With β huge in the declaration b₂ dominates; with next to none the answer gives b₁ back."""
    place, shard = agent(network(records=20, d=4, ridge=0.05), noise=1.5)
    state = put(alg.init(CFG, place), jnp.ones(4))
    no_output = CFG.replace(tolerance=1e-9)
    answers = many_messages(alg, no_output, place, shard, state, 3000)
    slopes = np.asarray(jax.jit(jax.vmap(shard.slope))(jnp.asarray(answers)))
    tilt = -(slopes + 0.4 * answers - 0.1 * 4 * np.ones(4))  # −(∇f + 2η|V|x − η(|V|x_i + Σx_j))
    scale = 1.5 * (2 / 20) / 0.99**0.5
    assert fits(tilt, scale)
    assert not fits(tilt, 1.05 * scale)
    assert not fits(tilt, 0.95 * scale)

    drawn = {"objective": jnp.zeros(4), "output": jnp.ones(4)}
    emit = jax.jit(lambda d: alg.emit(CFG.replace(tolerance=0.3), place, 0, state, shard, d)[1].x)
    loud, quiet = emit(drawn), emit({**drawn, "output": jnp.zeros(4)})
    np.testing.assert_allclose(loud - quiet, 1.5 * (2 * 0.3 / 0.45) / 0.01**0.5, rtol=1e-6)


def test_golden_calibration() -> None:
    """n = 7000, Λ = 2.001, T = 30, ε = 1, δ = 1e-4, s = .01, β = 1e-6."""
    cfg, place = alg.Config(penalty=0.5), papers(7000, 30, ridge=0.001)
    z = calibrate_agents(find("pp-admm"), cfg, place, 1.0, 1e-4)[0]
    assert 30**0.5 / z == pytest.approx(0.313592, rel=1.5e-4)  # μ_tot; calibration is within 1e-4 above the least
    event = alg.cost(cfg, one(place, noise=30**0.5 / 0.313592), 0)
    assert float(event.jacobian()) == pytest.approx(1.784806e-5, rel=1e-6)
    assert float(event.sigma) == pytest.approx(5.01545e-3, rel=3e-6)
    assert float(event.output_sigma) == pytest.approx(1.74574e-4, rel=3e-6)
    assert account(run_events(find("pp-admm"), cfg, one(place, noise=z)), 1e-4).epsilon <= 1.0


def printed(epsilon: float, splits: float, delta: float = 1e-4, n: int = 7000, rounds: int = 30) -> tuple[Any, Any]:
    """Config and place whose noise is what Alg. 2 computes for (ε, δ): two numbers fix both scales."""
    rho = ding_rho(epsilon, delta) / rounds
    one_round = zcdp_epsilon((1 - splits) * rho, delta)
    inner = 0.99 * one_round
    ridge = 2.8 * 5 * 0.25 / ((one_round - inner) * n) / 5  # the printed λ̂, over N
    first = classic_gaussian(inner, delta)  # σ₁ n/2
    second = 1 / (2 * splits * rho) ** 0.5  # σ₂ Λ/β
    total = first**-2 + second**-2
    cfg = alg.Config(penalty=0.5, tolerance=10**-3.5, split=float(second**-2 / total), as_printed=True)
    return cfg, one(papers(n, rounds, ridge=ridge), noise=total**-0.5)


@pytest.mark.parametrize(
    ("splits", "truth"),
    [(0.001, "0.322 0.703 1.114 1.549 11.18"), (0.5, "0.547 1.195 1.899 2.649 19.9")],
)
def test_what_the_printed_calibration_costs(splits: float, truth: str) -> None:
    for claimed, real in zip((0.5, 1.0, 1.5, 2.0, 10.0), truth.split(), strict=True):
        cfg, place = printed(claimed, splits)
        assert alg.claim(cfg, place, 1e-4) == pytest.approx(claimed, rel=1e-9)
        found = account(run_events(find("pp-admm"), cfg, place), 1e-4, fast=True)
        assert found.all["objective-perturbation-A"] == pytest.approx(float(real), abs=10.0 ** -len(real.split(".")[1]))
        assert (found.epsilon > claimed) == (claimed == 10.0 or splits == 0.5)


def test_the_jacobian_is_not_bought_back_by_noise() -> None:
    with pytest.raises(InputError, match="budget too small"):
        calibrate_agents(find("pp-admm"), CFG, papers(40, 200), 1.0, 1e-4)
    facts = Public(**public(rounds=200, count_min=40))
    tuned = alg.tune(alg.Config(), facts)
    assert tuned.penalty >= jacobian_penalty(facts)
    lost = 2 * 200 * np.log1p(0.25 / (40 * (facts.ridge + 4 * jacobian_penalty(facts))))
    assert lost == pytest.approx(facts.epsilon / 4, rel=1e-9)


def test_losses_without_one_sign_take_the_renyi_curve() -> None:
    place = one(papers(7000, 30, ridge=0.001), noise=30**0.5 / float(mu_for(1.0, 1e-4)))
    one_sign, any_sign = (
        account(run_events(find("pp-admm"), alg.Config(penalty=0.5), replace(place, monotone=m)), 1e-4, fast=True)
        for m in (True, False)
    )
    assert one_sign.accountant == "objective-perturbation-A"
    assert any_sign.accountant == "rdp"
    assert one_sign.epsilon < any_sign.epsilon
