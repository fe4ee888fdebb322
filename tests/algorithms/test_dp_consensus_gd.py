"""`dp-consensus-gd` against the closed forms of its error on quadratics, its sensitivity and its printed faults."""

from __future__ import annotations

import runpy
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from coterie.algorithms import dp_consensus_gd as alg
from coterie.algorithms.base import Algorithm, Place, Public
from coterie.algorithms.dp_consensus_gd import showkatbakhsh_alpha
from coterie.drivers.budget import calibrate_agents, run_events
from coterie.drivers.layout import Layout
from coterie.drivers.references import pooled
from coterie.drivers.simulate import Run, Trace, simulate
from coterie.errors import InputError
from coterie.losses.mean import Mean
from coterie.privacy import gdp, schedules
from coterie.privacy.accountants import account, total_mu
from tests.algorithms.moves import logistic_moves, move, public
from tests.support import agent, network, run, swap_record

ALGORITHM = Algorithm.of("dp-consensus-gd", alg)
AGENTS, DIM, RADIUS, T, ROUNDS = 4, 2, 1.5, 10, 14
CFG = alg.Config(step=1.0, stage_one=T)  # the records' losses have curvature 1, so c = 1


def means(
    shape: np.ndarray | None = None, count: int = 5, graph: str = "ring", boxed: bool = False, rounds: int = ROUNDS
) -> Layout:
    """Mean estimation of AGENTS × count records in [−RADIUS, RADIUS]^DIM."""
    rng = np.random.default_rng(7)
    data = rng.uniform(-RADIUS, RADIUS, (AGENTS * count, DIM)), np.zeros(AGENTS * count)
    problem = Mean(DIM, RADIUS, boxed=boxed)
    return network(AGENTS, count, DIM, graph=graph, problem=problem, data=data, rounds=rounds, ridge=0.0, shape=shape)


def many(layout: Layout, noises: list[float], seeds: int, cfg: alg.Config = CFG) -> Trace:
    """All seeds at all noise levels in one batch, runs ordered by noise level."""
    runs = [Run(s, cfg, z) for z in noises for s in range(seeds)]
    rounds = layout.arrays.place.rounds
    return simulate(ALGORITHM, layout, runs, rounds=rounds, every=rounds, record=True)


def released_error(trace: Trace, layout: Layout, last: int = T) -> np.ndarray:
    """‖x̄ − x*‖² of the mean of the last noisy messages, for every run."""
    return np.sum((trace.messages.y[:, last - 1].mean(axis=1) - pooled(layout)) ** 2, axis=-1)


def noised(place: Place, noise: float) -> Place:
    """The place of one agent with this noise multiplier."""
    with jax.enable_x64(True):
        return eqx.tree_at(lambda p: p.noise, place, jnp.asarray(noise))


@pytest.fixture(scope="module")
def uniform() -> tuple[Layout, Trace]:
    layout = means()
    return layout, many(layout, [1.0, 3.0], 3000)


def floor(noise: float, count: int = 5, last: int = T) -> float:
    """p c²/(N κ), κ = μ²/(2V unit)², for the uniform schedule (μ² = T/noise²)."""
    kappa = last / noise**2 / (2 * RADIUS * DIM**0.5 / count) ** 2
    return DIM / (AGENTS * kappa)


@pytest.mark.slow
def test_noiseless_limit_is_the_pooled_optimum() -> None:
    layout = network(rounds=400)
    trace = run(ALGORITHM, alg.EXAMPLE, layout, every=400)
    np.testing.assert_allclose(trace.points[0], np.tile(pooled(layout), (5, 1)), atol=1e-3)


@pytest.mark.slow
def test_uniform_schedule_has_the_one_shot_floor(uniform: tuple[Layout, Trace]) -> None:
    layout, trace = uniform
    errors = released_error(trace, layout).reshape(2, -1).mean(axis=1)
    for noise, error in zip((1.0, 3.0), errors, strict=True):
        assert error == pytest.approx(floor(noise), rel=0.05)
    assert errors[1] / errors[0] == pytest.approx(9, rel=0.08)  # ∝ 1/κ
    assert errors[0] != pytest.approx(floor(1.05), rel=0.05)  # the check sees noise 5 % off


@pytest.mark.slow
def test_error_falls_with_the_square_of_the_records(uniform: tuple[Layout, Trace]) -> None:
    layout = means(count=20)
    error = released_error(many(layout, [1.0], 3000), layout).mean()
    assert error == pytest.approx(floor(1.0, count=20), rel=0.05)
    assert floor(1.0, count=20) == pytest.approx(floor(1.0) / 16)


@pytest.mark.slow
def test_printed_schedule_has_its_own_floor() -> None:
    layout = means(shape=schedules.make("power", ROUNDS))
    place = agent(layout)[0]
    printed = alg.printed_noise(CFG, place, 4.0, 1e-3)
    alpha = showkatbakhsh_alpha(4.0, 1e-3)
    spent = total_mu(run_events(ALGORITHM, CFG, noised(place, printed))) ** 2
    assert spent == pytest.approx(0.794 * alpha, rel=1e-3)  # Σ Δ²/M² = α S_T/(2√T) at T = 10
    error = released_error(many(layout, [printed], 3000), layout).mean()
    one_shot = DIM * (2 * RADIUS * DIM**0.5 / 5) ** 2 / (AGENTS * alpha)
    assert error / one_shot == pytest.approx(1.421, rel=0.05)


@pytest.mark.parametrize(("rounds", "printed", "exact"), [(1, 2.0, 1.0), (10, 1.421, None), (100, 1.343, None)])
def test_error_constants_by_the_variance_formula(rounds: int, printed: float, exact: float | None) -> None:
    """E‖x̄(T+1) − x*‖² = (p/N) Σ_{t≤T} (t/T)² M_t², M from the module, against the paper's constants."""
    cfg = alg.Config(step=1.0, stage_one=rounds)
    place = agent(means(shape=schedules.make("power", rounds + 1), rounds=rounds + 1))[0]
    z = alg.printed_noise(cfg, place, 4.0, 1e-3)
    with jax.enable_x64(True):
        spread = np.asarray(jax.vmap(lambda t: alg.sigma(cfg, noised(place, z), t))(jnp.arange(rounds)))
    t = np.arange(1, rounds + 1)
    unit = (2 * RADIUS * DIM**0.5 / 5) ** 2 / showkatbakhsh_alpha(4.0, 1e-3)
    assert np.sum((t / rounds) ** 2 * spread**2) / unit == pytest.approx(printed, rel=1e-3)
    if exact is not None:  # at T = 1 the printed noise has twice the variance of one release that spends α
        assert (z * float(place.shape[0])) ** 2 * showkatbakhsh_alpha(4.0, 1e-3) == pytest.approx(2 * exact)


@pytest.mark.slow
def test_every_release_of_stage_one_has_the_declared_noise(uniform: tuple[Layout, Trace]) -> None:
    layout, trace = uniform
    place = agent(layout, 0, noise=1.0)[0]
    y = trace.messages.y[:3000]
    weights = np.array([float(place.self_weight)] + [(1 - float(place.self_weight)) / 2] * 2)
    own = np.asarray(layout.arrays.groups[0].shards.features)[0].mean(axis=0)
    for t in (0, T - 1):  # the last message before the averaging is as noisy as the schedule says
        z = np.zeros(DIM) if t == 0 else np.einsum("k,skd->sd", weights, y[:, t - 1][:, [0, 1, 3]])
        exact = z - (z - own) / (t + 1)
        residual = (y[:, t, 0] - exact).ravel()
        with jax.enable_x64(True):
            declared = float(alg.sigma(CFG, place, jnp.asarray(t)))
        assert declared == pytest.approx(2 * RADIUS * DIM**0.5 / 5 / (t + 1))
        dof = residual.size
        for factor, fits in ((1.0, True), (1.05, False), (0.95, False)):
            tail = stats.chi2.cdf(np.sum((residual / declared / factor) ** 2), dof)
            assert (0.001 < tail < 0.999) == fits


def test_stage_two_only_averages(uniform: tuple[Layout, Trace]) -> None:
    layout, trace = uniform
    y = trace.messages.y
    np.testing.assert_allclose(y[:, T:].mean(axis=2), y[:, [T - 1]].mean(axis=2).repeat(ROUNDS - T, 1), atol=1e-12)
    apart = np.linalg.norm(y - y.mean(axis=2, keepdims=True), axis=(2, 3)).mean(axis=0)
    assert apart[-1] < 0.2 * apart[T - 1]
    place, shard = agent(layout, 0, noise=1.0)
    other = swap_record(shard, 0, np.full(DIM, RADIUS), 0.0)
    assert not move(alg, CFG, place, alg.init(CFG, place), (shard, other), t=T).any()


def test_mean_does_not_depend_on_the_mixing_matrix(uniform: tuple[Layout, Trace]) -> None:
    ring = uniform[1]
    draws = {k: v[0] for k, v in ring.draws.items()}
    complete = run(ALGORITHM, CFG, means(graph="complete"), noise=1.0, replay=draws)
    np.testing.assert_allclose(complete.messages.y[0].mean(axis=1), ring.messages.y[0].mean(axis=1), atol=1e-12)
    assert np.abs(complete.messages.y[0] - ring.messages.y[0]).max() > 1e-3


def test_one_round_is_one_release_of_the_local_optimum() -> None:
    cfg = alg.Config(step=1.0, stage_one=1)
    layout = means(rounds=2)
    trace = run(ALGORITHM, cfg, layout, noise=2.0)
    local = np.asarray(layout.arrays.groups[0].shards.features).mean(axis=1)
    delta = 2 * RADIUS * DIM**0.5 / 5
    np.testing.assert_allclose(trace.messages.y[0, 0], local + 2 * delta * trace.draws["noise"][0, 0], atol=1e-12)
    np.testing.assert_allclose(trace.points[0].mean(axis=0), trace.messages.y[0, 0].mean(axis=0), atol=1e-12)


def test_answers_stay_in_the_box() -> None:
    trace = run(ALGORITHM, CFG, means(boxed=True), noise=30.0, seeds=20)
    assert np.abs(trace.messages.y).max() > RADIUS  # what is sent may leave it
    assert np.abs(trace.points).max() <= RADIUS
    assert (np.abs(trace.points) == RADIUS).any()


def test_sensitivity_of_a_logistic_step() -> None:
    place, shard = agent(network(d=3, records=10))
    cfg = alg.Config(step=0.7, stage_one=5)
    with jax.enable_x64(True):
        declared = [float(alg.sensitivity(cfg, place, jnp.asarray(t))) for t in range(6)]
    assert declared == pytest.approx([0.7 / t * 2 / 10 for t in range(1, 6)] + [0.0])
    moved = logistic_moves(alg, cfg, place, shard, 2, lambda s, x: eqx.tree_at(lambda s: s.mixed, s, x))
    size = np.linalg.norm(moved, axis=1)
    assert size.max() <= declared[2]
    assert size[-1] >= 0.9 * declared[2]


def test_sensitivity_of_a_mean_is_attained() -> None:
    place, shard = agent(means(boxed=False))
    with jax.enable_x64(True):
        state, declared = alg.init(CFG, place), float(alg.sensitivity(CFG, place, jnp.asarray(3)))
    worlds = swap_record(shard, 0, np.full(DIM, RADIUS), 0.0), swap_record(shard, 0, np.full(DIM, -RADIUS), 0.0)
    assert np.linalg.norm(move(alg, CFG, place, state, worlds, t=3)) == pytest.approx(declared, rel=1e-12)


def test_calibration_spends_the_budget_and_stage_two_is_free() -> None:
    layout = means(shape=schedules.make("power", ROUNDS))
    noise = calibrate_agents(ALGORITHM, CFG, layout.arrays.place, 1.0, 1e-5)[0]
    events = run_events(ALGORITHM, CFG, noised(agent(layout)[0], noise))
    assert total_mu(events) == pytest.approx(float(gdp.mu_for(1.0, 1e-5)), rel=1e-9)
    assert total_mu(events) == pytest.approx(0.2681, abs=5e-5)
    assert events[0].times.tolist() == [1] * T + [0] * (ROUNDS - T)


def test_as_printed_discloses_a_gradient_and_is_charged_for_it() -> None:
    layout = means()
    cfg = CFG.replace(as_printed=True)
    trace = run(ALGORITHM, cfg, layout, noise=5.0)
    y = trace.messages.y[0]
    features = np.asarray(layout.arrays.groups[0].shards.features)
    weight = float(layout.arrays.place.self_weight[0])
    z = weight * y[T - 2, 0] + (1 - weight) / 2 * (y[T - 2, 1] + y[T - 2, 3])
    recovered = z - T * (z - y[T - 1, 0])  # z − (z − x)/η: the agent's own mean, from public numbers alone
    np.testing.assert_allclose(recovered, features[0].mean(axis=0), atol=1e-10)
    place = agent(layout, 0, noise=5.0)[0]
    assert account(run_events(ALGORITHM, cfg, place), 1e-5).epsilon == np.inf
    with pytest.raises(InputError, match="not private"):
        calibrate_agents(ALGORITHM, cfg, layout.arrays.place, 1.0, 1e-5)
    assert alg.claim(cfg, place, 1e-5) == alg.claim(CFG, place, 1e-5) < np.inf


def test_claim_inverts_the_printed_condition() -> None:
    place = agent(means(), 0, noise=12.0)[0]
    epsilon = alg.claim(CFG, place, 1e-3)
    assert showkatbakhsh_alpha(epsilon, 1e-3) == pytest.approx(T / 144)
    assert account(run_events(ALGORITHM, CFG, place), 1e-3, fast=True).epsilon < epsilon  # valid, loose


def test_defaults() -> None:
    tuned = alg.tune(alg.Config(), Public(**public(ridge=0.05, smoothness=0.25)))
    assert tuned.step == pytest.approx((0.05 + 0.3) / (2 * 0.05 * 0.3))
    assert alg.tune(alg.Config(), Public(**public(ridge=0.0, smoothness=1.0))).step == 1.0
    assert alg.tune(CFG, Public(**public())) == CFG
    place = agent(network(rounds=100))[0]
    assert alg.stage_one(alg.Config(), place) == 91  # log₂(5 · 100) rounds left to mix in
    with pytest.raises(InputError, match="stage_one must be < rounds"):
        alg.stage_one(alg.Config(stage_one=100), place)
    with pytest.raises(InputError, match="schedule 'power'"):
        alg.printed_noise(CFG, agent(means())[0], 1.0, 1e-5)


@pytest.mark.slow
def test_quickstart_prints_errors_that_follow_the_theory(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(Path(__file__).parents[2] / "examples" / "mean_estimation.py"), run_name="__main__")
    rows = np.array([line.split() for line in capsys.readouterr().out.splitlines()[2:]], float)
    assert (np.diff(rows[:, 1]) < 0).all()  # more ε, less error
    np.testing.assert_allclose(rows[:, 1], rows[:, 2], rtol=0.08)
