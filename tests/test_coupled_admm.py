"""Coupled ADMM: optimum, the proved range of random penalties and the printed one, consensus as the special case."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from coterie.algorithms import ldp_admm
from coterie.algorithms.admm import Config as PlainConfig
from coterie.coupled import Config, Coupled, Gap, quadratic_agent, smooth_agent, solve
from coterie.coupled import admm as method
from coterie.errors import InputError
from coterie.problems.coupled import CoupledAgent
from examples import economic_dispatch, resource_allocation
from tests.problems.test_coupled import curved
from tests.support import agent as place_and_shard
from tests.support import mostly_slow, network, run

METHODS = ("first-order", "exact")


def mixed(seed: int = 0) -> Coupled:
    """Agents of dimensions 1, 2, 2 and 3, quadratic and not, boxed, two coupling constraints."""
    rng = np.random.default_rng(seed)
    agents = [
        quadratic_agent(1.5, 0.3, matrix=rng.normal(size=(2, 1)), low=-1, high=1),
        quadratic_agent([0.8, 2.0], rng.normal(size=2), matrix=rng.normal(size=(2, 2)), low=-2, high=0.1),
        curved(seed, 2, matrix=rng.normal(size=(2, 2)), low=-1.0, high=1.0),
        curved(seed + 1, 3, matrix=rng.normal(size=(2, 3))),
    ]
    return Coupled(agents, rng.normal(size=2) * 0.5)


def central(problem: Coupled) -> tuple[np.ndarray, ...]:
    """The optimum by SciPy, which sees everything."""
    cuts = np.cumsum([a.dim for a in problem.agents])[:-1]
    bounds = [pair for a in problem.agents for pair in zip(a.low, a.high, strict=True)]

    @jax.jit
    def value_and_slope(x: jax.Array) -> Any:
        def value(x: jax.Array) -> jax.Array:
            return sum(a.cost.value(v) for a, v in zip(problem.agents, jnp.split(x, cuts), strict=True))  # type: ignore

        return jax.value_and_grad(value)(x)

    def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
        with jax.enable_x64(True):
            value, slope = value_and_slope(jnp.asarray(x))
            return float(value), np.asarray(slope)

    couples = {"type": "eq", "fun": lambda x: problem.matrix @ x - problem.total, "jac": lambda x: problem.matrix}
    start = np.concatenate([a.start for a in problem.agents])
    options = {"ftol": 1e-15, "maxiter": 500}
    found = minimize(objective, start, jac=True, bounds=bounds, constraints=[couples], method="SLSQP", options=options)
    assert found.status in (0, 8)  # 8: no further descent within rounding
    return tuple(np.split(found.x, cuts))


# ---- optimum ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("how", METHODS)
def test_mixed_problem_reaches_the_central_optimum(how: Any) -> None:
    problem = mixed()
    answer, best = solve(problem, Config(method=how), rounds=1500), central(problem)
    assert problem.objective(answer.points) == pytest.approx(problem.objective(best), abs=1e-6)
    np.testing.assert_allclose(np.concatenate(answer.points), np.concatenate(best), atol=1e-6)
    assert max(problem.kkt(answer.points, answer.price)) < 1e-7
    assert any(np.any((x == a.low) | (x == a.high)) for a, x in zip(problem.agents, answer.points, strict=True))


@pytest.mark.parametrize("how", METHODS)
def test_economic_dispatch_is_within_1e6_of_scipy(how: Any) -> None:
    problem = economic_dispatch.make()
    best, price = economic_dispatch.optimum(problem)
    by_scipy = np.concatenate(central(problem))
    cost = problem.objective(best[:, None])
    assert problem.size == 20
    assert problem.objective(by_scipy[:, None]) == pytest.approx(cost, rel=1e-9)
    answer = solve(problem, Config(method=how), rounds=400)
    assert np.max(np.abs(np.concatenate(answer.points) - best)) < 1e-6
    assert abs(problem.objective(answer.points) - cost) < 1e-6
    assert answer.price[0] == pytest.approx(price, abs=1e-8)


def test_resource_allocation_has_its_closed_form() -> None:
    problem, best = resource_allocation.make()
    np.testing.assert_allclose(np.concatenate(solve(problem, rounds=300).points), best, atol=1e-9)
    assert sum(best) == pytest.approx(problem.total[0])


def test_balance_meets_the_demand_within_the_limits() -> None:
    problem, rng = economic_dispatch.make(), np.random.default_rng(0)
    low, high = (np.array([getattr(a, side)[0] for a in problem.agents]) for side in ("low", "high"))
    for _ in range(50):
        x = economic_dispatch.balance(problem, list(rng.uniform(low, high)[:, None]))
        assert x.sum() == pytest.approx(problem.total[0])
        assert np.all((x >= low - 1e-9) & (x <= high + 1e-9))


def far_off(answer: Any) -> float:
    """Largest residual of a run, ∞ once numbers have overflowed."""
    return float(np.max(np.nan_to_num(np.abs(answer.residuals), nan=np.inf)))


# ---- the range -------------------------------------------------------------------------------------------------------


def distance(problem: Coupled, answer: Any, best: Any, price: np.ndarray) -> np.ndarray:
    """‖u − u*‖²_G after every round."""
    rows = zip(answer.steps.inverse, answer.history, best, strict=True)
    total = sum(d * np.sum((x - b) ** 2, axis=1) for d, x, b in rows)
    return total + np.sum((answer.prices - price) ** 2, axis=1) / answer.steps.dual[0]


BOTH = [(how, make) for make in (mixed, economic_dispatch.make) for how in METHODS]


@pytest.mark.parametrize(("how", "make"), mostly_slow(BOTH, BOTH[3]))
def test_within_the_range_the_distance_to_the_optimum_never_grows(how: Any, make: Any) -> None:
    """Penalties as random as the proof allows, in the metric of the proof; and it ends at the optimum."""
    problem = make()
    auto = Config(method=how)
    reach = method._reach(auto, problem, float(method.resolve(auto, problem).dual[0]))
    cfg = Config(method=how, spread=0.999 * reach / float(method.resolve(auto, problem).penalty[0]))
    assert method.convergent(cfg, problem) is None
    assert 0.05 < cfg.spread < 1
    end = solve(problem, auto, rounds=1500)
    for seed in range(3):
        answer = solve(problem, cfg, rounds=300, record=True, seed=seed)
        far = distance(problem, answer, end.points, end.price)
        assert np.all(np.diff(far) <= 1e-9 * far[0])
        assert far[-1] < 1e-3 * far[0]


def test_the_range_is_checked_and_leaving_it_far_diverges() -> None:
    problem = resource_allocation.make()[0]
    limit = 1.0 / problem.size  # D − L = 1 and ‖A‖² = N
    smooth = max(float(a.smooth) for a in problem.agents)
    inside = Config(inverse_step=smooth + 1, dual_step=0.999 * limit, spread=0.0)
    outside = inside.replace(dual_step=4.5 * (2 * smooth + 2) / problem.size)
    assert method.convergent(inside, problem) is None
    assert "dual_step" in str(method.convergent(outside, problem))
    assert far_off(solve(problem, outside, rounds=300)) > 1e6
    assert "inverse_step" in str(method.convergent(Config(inverse_step=0.9 * smooth, dual_step=0.01), problem))
    wild = Config(dual_step=0.01, penalty=5.0, spread=0.5)
    assert "penalties" in str(method.convergent(wild, problem))
    assert far_off(solve(problem, wild, rounds=300)) > 1e6
    assert solve(problem, wild, rounds=300).warning == method.convergent(wild, problem)
    assert solve(problem, rounds=300, noise=1.0, seed=0).warning is None


@pytest.mark.slow
def test_the_corrected_theorem_31_lies_inside_our_range_or_converges_anyway() -> None:
    """With ρ⁰ = m/(N²σ²), ρ ∈ ρ⁰[.75, 1.25], ζ = ρ⁰/5, D = L + 2m/N². It converges, slowly."""
    agents = [quadratic_agent(1.0 + 0.5 * (i % 2), -float(i)) for i in range(3)]
    problem, n = Coupled(agents, 1.0), 3
    cfg = Config(penalty=1 / n**2, spread=0.25, dual_step=0.2 / n**2, inverse_step=1.5 + 2 / n**2)
    quick = solve(problem, rounds=200)
    slow = solve(problem, cfg, rounds=1500, record=True)
    np.testing.assert_allclose(np.concatenate(slow.points), np.concatenate(quick.points), atol=1e-9)
    far = distance(problem, slow, quick.points, quick.price)
    early = np.argmax(far < 1e-6 * far[0])
    assert early > 5 * np.argmax(
        distance(problem, solve(problem, rounds=200, record=True), quick.points, quick.price) < 1e-6
    )


@pytest.mark.parametrize("how", METHODS)
def test_the_printed_sign_diverges_and_the_corrected_one_does_not(how: Any) -> None:
    problem = resource_allocation.make()[0]
    for as_printed in (False, True):
        cfg = Config(method=how, as_printed=as_printed)
        assert (method.convergent(cfg, problem) is None) == (not as_printed)
        answer = solve(problem, cfg, rounds=200)
        assert far_off(answer) > 1e6 if as_printed else np.abs(answer.residuals[-1]).max() < 1e-8


def test_theorem_31_as_printed_admits_what_diverges() -> None:
    """Its α ≤ 2m_i/((N + 1) ρ_max² σ_i²), ρ_max the deviation of penalties from ρ⁰: without bound where that is 0.

    Left are D > 0 and ζ < 2ρ⁰, which hold here.
    """
    problem = resource_allocation.make()[0]
    cfg = Config(method="exact", penalty=1.0, spread=0.0, dual_step=1.9, inverse_step=1.01)
    assert cfg.dual_step < 2 * cfg.penalty
    assert method.convergent(cfg, problem) is not None
    assert far_off(solve(problem, cfg, rounds=200)) > 1e6


# ---- consensus -------------------------------------------------------------------------------------------------------


def logistic(data: tuple, x: jax.Array) -> jax.Array:
    """An agent's mean logistic loss plus ridge: data are features, targets ±1 and the ridge."""
    features, targets, ridge = data
    return jnp.mean(jnp.logaddexp(0.0, -targets * (features @ x))) + ridge / 2 * jnp.sum(x**2)


def ring(agents: int = 5, d: int = 3) -> tuple[Any, Coupled, list[CoupledAgent]]:
    """A ring of logistic agents as a consensus layout, and the same as a coupled problem with incidence matrices."""
    layout = network(agents, 20, d, rounds=40, ridge=0.2)
    incidence = np.zeros((agents, agents))  # edge e joins e and e + 1
    for e in range(agents):
        incidence[e, e], incidence[e, (e + 1) % agents] = 1.0, -1.0
    out = []
    for i in range(agents):
        _, shard = place_and_shard(layout, i)
        data = (np.asarray(shard.features), np.asarray(shard.targets), float(shard.ridge))
        matrix = np.kron(incidence[:, [i]], np.eye(d))
        out.append(smooth_agent(logistic, data, d, strong=0.2, smooth=0.45, matrix=matrix))
    return layout, Coupled(out, np.zeros(agents * d)), out


@pytest.mark.slow
def test_consensus_admm_is_the_exact_method_with_incidence_matrices() -> None:
    """(12) with ρ = ζ = η and D = 2η·degree is decentralized ADMM, iterate by iterate."""
    layout, problem, _ = ring()
    eta = 0.3
    trace = run("admm", PlainConfig(penalty=eta), layout, 40)
    cfg = Config(method="exact", penalty=eta, spread=0.0, dual_step=eta, inverse_step=4 * eta)
    assert method.convergent(cfg, problem) is None
    answer = solve(problem, cfg, rounds=40, record=True)
    expected = np.asarray(trace.messages.x[0])  # (rounds, agents, d)
    assert answer.history is not None
    np.testing.assert_allclose(np.stack(answer.history, axis=1), expected, atol=1e-8)
    assert np.ptp(expected[0], axis=0).max() > 1e-3  # the agents differ, so the comparison says something


@pytest.mark.slow
def test_ldp_admm_is_the_first_order_method_with_incidence_matrices() -> None:
    """(13) with n ρ_i = (1 − w) D is Algorithm 1 of the paper, corrected sign, for any weights w."""
    layout, problem, agents = ring()
    big, dual, spread, d, n = 4.0, 0.5, 0.9, 3, len(agents)
    cfg = Config(inverse_step=big, dual_step=dual, penalty=big / 4, spread=spread)
    other = ldp_admm.Config(inverse_step=big, dual_step=dual)
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        places = [place_and_shard(layout, i) for i in range(n)]
        states = [ldp_admm.init(other, place) for place, _ in places]
        steps = method.resolve(cfg, problem)
        rows = [jax.tree.map(lambda v, i=i: v[i], steps) for i in range(n)]
        points: list[Any] = [jnp.zeros(d)] * n
        price = residual = jnp.zeros(n * d)
        for t in range(25):
            u = rng.uniform(size=(n, d))
            weight = 1 - (1 + spread * (2 * u - 1)) / 2  # w = 1 − 2ρ/D
            sent = []
            for i, (place, shard) in enumerate(places):
                draw = {"weight": jnp.asarray(weight[i]), "noise": jnp.zeros(d)}
                states[i], message = ldp_admm.emit(other, place, jnp.asarray(t), states[i], shard, draw)
                sent.append(message.x)
                mine = {"weight": jnp.asarray(np.tile(u[i], n)), "noise": jnp.zeros(d)}
                points[i], _ = method.emit(cfg, rows[i], agents[i], points[i], price, residual, jnp.zeros(()), mine)
            for i, (place, _) in enumerate(places):
                near = sent[i - 1] + sent[(i + 1) % n]
                inbox: Any = type("Inbox", (), {"total": type("Total", (), {"x": near})})
                states[i] = ldp_admm.absorb(other, place, jnp.asarray(t), states[i], inbox)
            residual = jnp.asarray(problem.residual([np.asarray(x) for x in points]))
            price = method.price_step(cfg, steps.dual[0], price, residual)
            np.testing.assert_allclose(np.stack(points), np.stack(sent), atol=1e-12)
    assert np.ptp(np.stack(points), axis=0).max() > 1e-4


# ---- the driver ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_one_compiled_program_and_round_by_round_agree() -> None:
    problem = economic_dispatch.make(50)
    runs = [
        solve(problem, rounds=30, epsilon=2.0, delta=1e-5, seed=4, record=True, aggregate=how)
        for how in (None, lambda messages: messages.sum(axis=0))
    ]
    for a, b in zip(runs[0].history, runs[1].history, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10)
    np.testing.assert_allclose(*(np.concatenate(r.points) for r in runs), rtol=1e-10)
    np.testing.assert_allclose(runs[0].points[3], runs[0].history[3][15:].mean(axis=0))  # the tail is half the rounds


def test_the_page_runs_as_printed(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[1] / "docs" / "coupled.md").read_text("utf-8")
    text = page.partition("\n## Between real parties")[0]  # which has a test of its own
    space: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        exec(compile(block, "coupled.md", "exec"), space)
    printed = capsys.readouterr().out.split()
    assert printed == re.search(r"^```text\n(.*?)^```", text, re.DOTALL | re.MULTILINE)[1].split()  # type: ignore[index]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"rounds": 0}, "rounds must be >= 1"),
        ({"epsilon": 1.0}, "together with delta"),
        ({"epsilon": 1.0, "delta": 1e-5, "noise": 1.0}, "no noise"),
        ({"noise": -1.0}, "noise must be >= 0"),
        ({"schedule": [1.0, 2.0]}, "schedule must be 5 positive numbers"),
        ({"ledgers": []}, "expected 12 ledgers"),
        ({"aggregate": lambda m: np.zeros(3)}, "must return 1 numbers"),
    ],
)
def test_mistakes_are_named(more: dict, says: str) -> None:
    with pytest.raises(InputError, match=says):
        solve(resource_allocation.make()[0], **{"rounds": 5, **more})


def test_an_agent_without_a_promise_gets_no_noise() -> None:
    agents = [quadratic_agent(1.0, -1.0), quadratic_agent(1.0, -2.0, slope_range=(-3, 0))]
    assert agents[0].gap == Gap(np.inf, np.inf, np.inf)
    for more in ({"noise": 1.0}, {"epsilon": 1.0, "delta": 1e-5}):
        with pytest.raises(InputError, match="agent 0 promises no gap"):
            solve(Coupled(agents, 1.0), rounds=5, **more)
