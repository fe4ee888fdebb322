"""What coupled ADMM costs: sensitivity by search, the noise that is drawn, totals, ledgers, secret sums."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.optimize import brentq

from coterie.coupled import (
    Config,
    Coupled,
    calibrate_coupled,
    coupled_events,
    quadratic_agent,
    secret_sum,
    smooth_agent,
    solve,
    spending,
)
from coterie.coupled import admm as method
from coterie.errors import InputError
from coterie.privacy.accountants import account
from coterie.privacy.events import Gaussian, NonPrivate
from coterie.privacy.ledger import Budget, BudgetExceeded, MemoryLedger
from coterie.problems.coupled import CoupledAgent, Quadratic
from examples import economic_dispatch, resource_allocation

A, B = (0.8, 1.6), (-1.0, 2.0)  # the public class of the quadratic costs below
BOX = (-1.5, 2.5)
DIM = 3


def boxed(curvature: Any, slope: Any) -> CoupledAgent:
    return quadratic_agent(
        np.broadcast_to(curvature, DIM), np.broadcast_to(slope, DIM), low=BOX[0], high=BOX[1], curvature_range=A,
        slope_range=B, matrix=np.arange(6.0).reshape(2, DIM) / 5,
    )  # fmt: skip


def bend(data: tuple, x: jax.Array) -> jax.Array:
    """½‖x‖² + Σ log cosh(x − t), t in [−1, 1]: gradients of two of them are at most 2 tanh 1 apart, per coordinate."""
    return 0.5 * jnp.sum(x**2) + jnp.sum(jnp.logaddexp(x - data[0], data[0] - x))


def bent(t: Any) -> CoupledAgent:
    data = (np.broadcast_to(np.asarray(t, float), DIM).copy(),)
    gap = 2 * np.tanh(1.0) * np.sqrt(DIM)
    return smooth_agent(bend, data, DIM, strong=1.0, smooth=2.0, gap=gap, low=-9.0, high=9.0)


@eqx.filter_jit
def moved(cfg: Config, steps: Any, pair: Any, x: Any, price: Any, residual: Any, weight: Any) -> jax.Array:
    """How far the two worlds' next points are apart, from the same past and without noise."""
    draw = {"weight": weight, "noise": jnp.zeros_like(x)}
    one, two = (method.emit(cfg, steps, agent, x, price, residual, jnp.zeros(()), draw)[0] for agent in pair)
    return one - two


def row(steps: Any, i: int = 0) -> Any:
    return jax.tree.map(lambda v: jnp.asarray(v[i]), steps)


# ---- sensitivity -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["first-order", "exact"])
def test_no_pair_of_costs_moves_the_release_more_than_declared(how: Any) -> None:
    """Random pasts and pairs of worlds; then the worst pair, built by hand, comes close in every norm."""
    rng = np.random.default_rng(0)
    cfg = Config(method=how, inverse_step=20.0, dual_step=0.1, spread=0.5)
    agent = boxed(1.0, 0.0)
    problem = Coupled([agent, agent], [0.0, 0.0])
    with jax.enable_x64(True):
        steps = row(method.resolve(cfg, problem))
        declared = np.array(method.sensitivity(cfg, steps, agent), float)
        worst = np.zeros(3)
        for k in range(300):
            curvatures, slopes = rng.uniform(*A, (2, DIM)), rng.uniform(*B, (2, DIM))
            if k % 3 == 0:  # corners of the class
                curvatures, slopes = rng.choice(A, (2, DIM)), rng.choice(B, (2, DIM))
            pair = tuple(
                eqx.tree_at(lambda a: a.cost, agent, Quadratic(jnp.asarray(a), jnp.asarray(b)))
                for a, b in zip(curvatures, slopes, strict=True)
            )
            past = (rng.uniform(*BOX, DIM), *(rng.normal(size=(2, 2)) * 3), rng.uniform(size=2))
            found = np.asarray(moved(cfg, steps, pair, *map(jnp.asarray, past)))
            worst = np.maximum(worst, [np.linalg.norm(found, q) for q in (1, 2, np.inf)])
        assert np.all(worst <= declared * (1 + 1e-9))
        # at the far corner x = high the steep world's gradient is above by exactly `gap`; a price keeps both inside
        high = jnp.full(DIM, BOX[1])
        pair = tuple(
            eqx.tree_at(lambda a: a.cost, agent, Quadratic(jnp.full(DIM, a), jnp.full(DIM, b)))
            for a, b in zip((A[1], A[0]), (B[1], B[0]), strict=True)
        )
        price = jnp.asarray(np.linalg.lstsq(np.asarray(agent.matrix).T, np.full(DIM, -2.0), rcond=None)[0])
        far = np.asarray(moved(cfg, steps, pair, high, price, jnp.zeros(2), jnp.zeros(2)))
    norms = np.array([np.linalg.norm(far, q) for q in (1, 2, np.inf)])
    assert np.all(norms <= declared * (1 + 1e-9))
    assert np.all(norms >= 0.9 * declared)


@pytest.mark.parametrize("how", ["first-order", "exact"])
def test_a_function_of_the_users_own_moves_no_more_than_declared(how: Any) -> None:
    rng = np.random.default_rng(1)
    cfg = Config(method=how, inverse_step=6.0, dual_step=0.5, spread=0.0)
    problem = Coupled([bent(0.0)] * 2, np.zeros(DIM))
    with jax.enable_x64(True):
        steps = row(method.resolve(cfg, problem))
        declared = float(method.sensitivity(cfg, steps, bent(0.0)).l2)
        if how == "exact":  # steps from a public point: no error is left to charge
            assert declared * 7 == pytest.approx(problem.agents[0].gap.l2, rel=1e-12)
        worst = 0.0
        for k in range(60):
            targets = np.array([[1.0] * DIM, [-1.0] * DIM]) if k % 2 else rng.uniform(-1, 1, (2, DIM))
            x = rng.uniform(-2, 2, DIM) * (0 if k == 1 else 1)
            pair = tuple(bent(t) for t in targets)
            past = (x, *np.zeros((3, DIM)))
            worst = max(worst, float(jnp.linalg.norm(moved(cfg, steps, pair, *map(jnp.asarray, past)))))
    assert 0.9 * declared <= worst <= declared * (1 + 1e-9)


def test_on_one_transcript_both_worlds_stay_within_the_declared_distance_in_every_round() -> None:
    """No un-noised state is carried from round to round: replaying world 1's releases in world 2 shows it."""
    cfg = Config(spread=0.0)
    worlds = [
        Coupled([boxed(A[k], B[k]), boxed(1.0, 0.5), boxed(1.2, -0.5)], [0.5, 1.0]) for k in (0, 1)
    ]  # the two differ in agent 0
    answer = solve(worlds[0], cfg, rounds=60, noise=3.0, record=True, seed=2)
    assert answer.history is not None
    with jax.enable_x64(True):
        steps = row(answer.steps)
        declared = float(method.sensitivity(cfg, steps, worlds[0].agents[0]).l2)
        x = np.vstack([worlds[0].agents[0].start, answer.history[0]])
        price = np.vstack([np.zeros(2), answer.prices])
        first = worlds[0].residual([a.start for a in worlds[0].agents])
        residual = np.vstack([first, answer.residuals])
        pair = tuple(w.agents[0] for w in worlds)
        gaps = [
            float(
                jnp.linalg.norm(moved(cfg, steps, pair, *map(jnp.asarray, (x[t], price[t], residual[t])), jnp.zeros(2)))
            )
            for t in range(60)
        ]
    assert 0.2 * declared < max(gaps) <= declared


# ---- noise -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_releases_carry_the_declared_noise(law: Any) -> None:
    """Release minus the noiseless step from the same past: KS accepts the law, and χ² the scale but not one 5 % off.

    Σ e² is χ² with n degrees of freedom for standard normals, 2 Σ |e| with 2n for standard Laplace variables.
    """
    slopes = np.random.default_rng(0).uniform(*B, (8, 6))
    agents = [quadratic_agent(np.ones(6), b, slope_range=B) for b in slopes]
    problem, cfg = Coupled(agents, np.zeros(6)), Config(law=law, spread=0.0)
    schedule = np.linspace(0.5, 2.0, 250)
    answer = solve(problem, cfg, rounds=250, noise=2.0, seed=0, schedule=schedule, record=True)
    assert answer.history is not None
    x = np.stack(
        [np.vstack([a.start, h]) for a, h in zip(agents, answer.history, strict=True)]
    )  # (agents, rounds + 1, 6)
    price, residual = np.vstack([np.zeros(6), answer.prices])[:-1], np.vstack([np.zeros(6), answer.residuals])[:-1]
    step, rho = float(answer.steps.inverse[0]), float(answer.steps.penalty[0])
    quiet = x[:, :-1] - (x[:, :-1] + slopes[:, None] + rho * residual - price) / step
    gap = (B[1] - B[0]) / step
    scale = 2.0 * schedule[None, :, None] * gap * (6 if law == "laplace" else 6**0.5)
    standard = ((x[:, 1:] - quiet) / scale).ravel()
    shape = stats.norm if law == "gaussian" else stats.laplace
    assert stats.kstest(standard, shape.cdf).pvalue > 0.01
    for factor in (1.0, 0.95, 1.05):
        power, degrees = (2, standard.size) if law == "gaussian" else (1, 2 * standard.size)
        total = (3 - power) * np.sum(np.abs(factor * standard) ** power)
        assert (0.001 < stats.chi2.cdf(total, degrees) < 0.999) == (factor == 1.0)
    by_agent = (x[:, 1:] - quiet) / scale
    assert np.abs(np.corrcoef(by_agent.reshape(8, -1)) - np.eye(8)).max() < 0.12  # independent between agents


def test_penalties_are_drawn_afresh_within_their_interval() -> None:
    """One constraint: each agent's ρ can be read off each noiseless step, and is uniform on ρ⁰[1 − s, 1 + s]."""
    agents = [quadratic_agent(1.0, b, slope_range=(-9, 9)) for b in (1.0, -2.0, 4.0)]
    problem, cfg = Coupled(agents, 1.0), Config(spread=0.3, dual_step=0.05)
    found = []
    for seed in range(60):
        answer = solve(problem, cfg, rounds=8, record=True, seed=seed)
        x = np.array([np.concatenate([[a.start], h])[:, 0] for a, h in zip(agents, answer.history, strict=True)])
        price = np.concatenate([[0.0], answer.prices[:, 0]])[:-1]
        residual = np.concatenate([x[:, 0].sum(keepdims=True) - 1.0, answer.residuals[:, 0]])[:-1]
        slope = np.array([[1.0], [-2.0], [4.0]]) + x[:, :-1]
        pull = (x[:, :-1] - x[:, 1:]) * answer.steps.inverse[:, None] - slope
        found.append(((pull + price) / residual / 0.05)[:, :5])
    unit = (np.concatenate(found, axis=1).ravel() - 0.7) / 0.6
    assert stats.kstest(unit, "uniform").pvalue > 0.01
    assert -1e-6 < unit.min() < 0.01  # 900 draws: an interval 5 % too narrow ends at .025 and .975
    assert 0.99 < unit.max() < 1 + 1e-6


# ---- totals ----------------------------------------------------------------------------------------------------------


def gaussian_delta(mu: float, epsilon: float) -> float:
    return float(stats.norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu))


def test_gaussian_total_is_the_closed_form_and_a_budget_is_spent_exactly() -> None:
    problem, cfg = economic_dispatch.make(), Config()
    answer = solve(problem, cfg, rounds=40, noise=9.0, delta=1e-5)
    mu = np.sqrt(40) / 9.0
    closed = brentq(lambda e: gaussian_delta(mu, e) - 1e-5, 0.01, 20)
    assert answer.privacy is not None
    np.testing.assert_allclose(answer.privacy.per_agent, closed, rtol=1e-6)
    assert answer.privacy.worst.adjacency == "replace-function"
    spent = solve(problem, cfg, rounds=40, epsilon=1.0, delta=1e-5, schedule=np.linspace(1, 3, 40)).privacy
    assert spent is not None
    assert 0.999999 <= spent.worst.epsilon <= 1.0
    wide = account([Gaussian(1.0, 9.0, times=40)], 1e-5)  # another adjacency: the two may not be added
    assert wide.epsilon == pytest.approx(closed, rel=1e-6)
    event = coupled_events(problem, cfg, answer.steps, 9.0, 40)[0]
    with pytest.raises(InputError, match="different adjacency"):
        account([event, Gaussian(1.0, 9.0)], 1e-5)


def test_laplace_total_is_pure_and_no_larger_than_the_sum() -> None:
    problem, cfg = Coupled([boxed(1.0, 0.0)] * 3, [0.0, 0.0]), Config(law="laplace")
    steps = method.resolve(cfg, problem, 50)
    pure = spending(coupled_events(problem, cfg, steps, 20.0, 50), 0.0).worst
    assert pure.epsilon == pytest.approx(50 / 20.0)
    relaxed = spending(coupled_events(problem, cfg, steps, 20.0, 50), 1e-6).worst
    assert relaxed.epsilon < 0.7 * pure.epsilon
    noise = calibrate_coupled(problem, cfg, steps, 50, 1.0, 0.0)
    assert noise == pytest.approx(50.0, rel=2e-4)


def test_one_record_of_many_needs_as_much_less_noise() -> None:
    whole, one = (economic_dispatch.make(records) for records in (1, 200))
    assert [a.gap.l2 / b.gap.l2 for a, b in zip(whole.agents, one.agents, strict=True)] == pytest.approx([200.0] * 20)


def test_the_printed_method_is_not_private_in_a_box() -> None:
    """Its iterates leave the box, where costs of different curvature have gradients any distance apart."""
    for as_printed in (False, True):
        problem, cfg = Coupled([boxed(1.0, 0.0)] * 2, [0.0, 0.0]), Config(as_printed=as_printed, spread=0.0)
        steps = method.resolve(cfg, problem)
        event = method.cost(cfg, row(steps), problem.agents[0], np.ones(3))
        assert isinstance(event, NonPrivate) == as_printed
        with jax.enable_x64(True):
            declared = float(method.sensitivity(cfg, row(steps), problem.agents[0]).l2)
            pair = (boxed(A[1], B[1]), boxed(A[0], B[0]))
            draw = {"weight": jnp.zeros(2), "noise": jnp.full(DIM, 40.0)}
            past = (jnp.zeros(DIM), jnp.zeros(2), jnp.zeros(2))
            x, _ = method.emit(cfg, row(steps), pair[0], *past, jnp.ones(()), draw)  # a large draw, released
            gap = float(jnp.linalg.norm(moved(cfg, row(steps), pair, x, jnp.zeros(2), jnp.zeros(2), jnp.zeros(2))))
        assert (gap > 3 * declared) == as_printed


def test_more_budget_gives_a_better_dispatch() -> None:
    lost = economic_dispatch.study(200, epsilons=(0.5, 4.0, 32.0), seeds=3).mean(axis=1)
    assert lost[0] > 2 * lost[1] > 4 * lost[2] > 0
    public = economic_dispatch.excess(
        economic_dispatch.make(), economic_dispatch.optimum(economic_dispatch.make(known=False))[0]
    )
    assert lost[1] < public / 5


# ---- ledgers ---------------------------------------------------------------------------------------------------------


def test_ledgers_are_charged_before_messages_leave_and_stop_a_run() -> None:
    problem, cfg = resource_allocation.make(50)[0], Config()
    opened = []

    def seen(messages: np.ndarray) -> np.ndarray:
        opened.append(messages)
        return messages.sum(axis=0)

    steps = method.resolve(cfg, problem, 30)
    noise = calibrate_coupled(problem, cfg, steps, 30, 1.0, 1e-5)
    plans = coupled_events(problem, cfg, steps, noise, 30)
    ledgers = [MemoryLedger(Budget(1.0, 1e-5), plan=[event]) for event in plans]
    solve(problem, cfg, rounds=30, noise=noise, seed=0, ledgers=ledgers, aggregate=seen)
    assert len(opened) == 30
    assert all(len(ledger.entries) == 30 and 0.999 < ledger.spent() <= 1.0 for ledger in ledgers)
    with pytest.raises(BudgetExceeded, match="round 0"):
        solve(problem, cfg, rounds=30, noise=noise, seed=0, ledgers=ledgers, aggregate=seen)
    assert len(opened) == 30  # nothing of the second run left
    half = [MemoryLedger(Budget(0.5, 1e-5)) for _ in problem.agents]
    with pytest.raises(BudgetExceeded):
        solve(problem, cfg, rounds=30, noise=noise, seed=0, ledgers=half, aggregate=seen)
    assert 30 < len(opened) < 60
    assert all(ledger.spent() <= 0.5 for ledger in half)


# ---- secret sums -----------------------------------------------------------------------------------------------------


def test_a_secret_sum_gives_the_same_iterates_up_to_the_fixed_point_error() -> None:
    problem = economic_dispatch.make(200)
    runs = [
        solve(problem, rounds=12, epsilon=4.0, delta=1e-5, seed=1, record=True, aggregate=how)
        for how in (None, secret_sum(problem), secret_sum(problem, fraction_bits=8))
    ]
    exact, fine, coarse = (np.concatenate(r.history, axis=1) for r in runs)  # type: ignore[arg-type]
    # r is off by ≤ N 2^(−f−1); λ by at most rounds · ζ times that, x by (ρ + rounds ζ)/D per round
    steps, error = runs[0].steps, 20 * 2.0**-25
    grows = 12 * (2 * steps.penalty[0] + 12 * steps.dual[0]) / steps.inverse[0]
    assert 0 < np.abs(fine - exact).max() < grows * error
    assert np.abs(coarse - exact).max() > 100 * np.abs(fine - exact).max()
    np.testing.assert_array_equal(runs[0].noise, runs[1].noise)


def test_secret_sums_refuse_what_would_show_single_agents() -> None:
    path = np.array([[1.0, -1, 0], [0, 1, -1]])
    agents = [quadratic_agent(1.0, -1.0, matrix=path[:, [i]], low=-1, high=1) for i in range(3)]
    with pytest.raises(InputError, match="same column space"):
        solve(Coupled(agents, [0.0, 0.0]), rounds=3, aggregate=lambda m: m.sum(axis=0))
    with pytest.raises(InputError, match="finite bounds"):
        secret_sum(resource_allocation.make()[0])


def test_noise_that_nobody_seeds_is_new_every_time() -> None:
    """The default was seed 0, which everybody knows."""
    problem = Coupled(
        [quadratic_agent(1.0, s, low=-1, high=1, slope_range=(-1, 1), records=50) for s in (0.2, -0.4)], 0.0
    )
    runs = [np.concatenate(solve(problem, rounds=5, epsilon=1.0, delta=1e-5).points) for _ in range(2)]
    assert not np.allclose(*runs)
    wide = [np.concatenate(solve(problem, rounds=5, epsilon=1.0, delta=1e-5, seed=s).points) for s in (0, 1 << 32)]
    assert not np.allclose(*wide)
