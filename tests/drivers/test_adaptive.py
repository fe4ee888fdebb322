"""Noise that follows what was released: no rule can pass the limit, and none sees more than messages that were sent."""

from __future__ import annotations

import copy
import os
import signal
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie.cli import main
from coterie.drivers.adaptive import Steering
from coterie.errors import InputError
from coterie.experiment import Experiment, prepare
from coterie.explain import explain
from coterie.plan import Plan, validate
from coterie.pricing import Priced, price
from coterie.privacy import gdp
from coterie.privacy.adaptive import History, Rule
from coterie.privacy.adaptive.settling import make as settling
from coterie.privacy.events import Gaussian
from coterie.report.certificate import certificate
from coterie.report.result import build_result
from coterie.worth.judge import Judged
from tests.report.certificates import STATED, make, rejection, resealed

ROUNDS = 12
PLAN: dict[str, Any] = {
    "data": {"source": "clinics"},
    "problem": {"loss": "logistic"},
    "graph": {"kind": "complete"},
    "algorithm": {"name": "gauss-avg-gd"},
    "privacy": {"epsilon": 1.0, "delta": 1e-5, "adaptive": "own"},
    "run": {"rounds": ROUNDS},
}


def changed(**tables: dict[str, Any]) -> Plan:
    return validate({name: PLAN.get(name, {}) | tables.get(name, {}) for name in {*PLAN, *tables}})


@pytest.fixture(scope="module")
def ready() -> tuple[Experiment, Priced]:
    experiment = prepare(changed())
    return experiment, price(experiment.plan, experiment.network)


def constant(level: float) -> Rule:
    return lambda round, released: level


@pytest.mark.slow
def test_the_plan_itself_just_fits(ready: tuple[Experiment, Priced]) -> None:
    """A rule that asks for the planned noise gives the planned run, to the bit, and uses the whole limit."""
    experiment, priced = ready
    steered = experiment.run(priced, [3], record=True, rule=constant(1.0))
    plain = prepare(changed(privacy={"adaptive": None}))
    fixed = plain.run(price(plain.plan, plain.network), [3], record=True)
    assert np.array_equal(steered.points, fixed.points)
    assert np.array_equal(steered.messages.x, fixed.messages.x)  # type: ignore[attr-defined]
    (told,) = steered.steered
    assert told["stopped"] is None
    assert priced.spending is not None
    assert told["spent"] == pytest.approx(priced.spending.worst.epsilon, rel=1e-9)


def test_what_does_not_fit_is_never_sent(ready: tuple[Experiment, Priced]) -> None:
    experiment, priced = ready
    trace = experiment.run(priced, [0, 1], rule=constant(0.5))  # four times the price: three of twelve rounds
    assert trace.sent.tolist() == [[3] * priced.places.agents] * 2
    for told in trace.steered:
        assert (told["noise"], told["stopped"]) == ([0.5] * 3, 4)
    one = experiment.run(priced, [0], record=True, rule=constant(0.5))
    assert np.array_equal(one.extras["sent"][0].all(axis=1), np.arange(ROUNDS) < 3)  # type: ignore[index,call-overload]
    last = one.messages.x[0, 2].mean(axis=0)  # type: ignore[attr-defined]
    assert one.points[0] == pytest.approx(np.tile(last, (priced.places.agents, 1)))  # heard, and then nothing more
    none = experiment.run(priced, [0], rule=constant(0.1))
    assert none.sent.sum() == 0
    assert not none.points.any()


def test_noise_is_what_was_charged(ready: tuple[Experiment, Priced]) -> None:
    """x_i = x̄ − η ∇f_i(x̄) + σ_t ξ, with σ_t the chosen multiple of the planned: noise 5 % short is seen at once."""
    experiment, priced = ready
    levels = np.linspace(1.0, 2.1, ROUNDS)
    trace = experiment.run(priced, [5], record=True, rule=lambda t, released: float(levels[t]))
    sent, drawn = trace.messages.x[0], trace.draws["noise"][0]  # type: ignore[attr-defined,index]
    step, ridge = float(priced.cfg.step), experiment.plan.ridge  # type: ignore[attr-defined]
    means = np.concatenate([np.zeros((1, sent.shape[2])), sent.mean(axis=1)])
    for agent, part in enumerate(experiment.parts):
        rows = experiment.targets[part, None] * experiment.features[part]
        unit = 1 / len(part)
        sigma = priced.noise[agent] * step * 2 * float(priced.places.lipschitz) * unit
        for t in range(ROUNDS):
            slope = -unit * rows.T @ (1 / (1 + np.exp(rows @ means[t]))) + ridge * means[t]
            noise = sent[t, agent] - (means[t] - step * slope)
            assert noise == pytest.approx(levels[t] * sigma * drawn[t, agent], rel=1e-6, abs=1e-9)


def test_a_rule_sees_what_was_sent_and_nothing_else(ready: tuple[Experiment, Priced]) -> None:
    experiment, priced = ready
    seen: list[History] = []

    def rule(round: int, released: History) -> float:
        assert round == len(seen)
        seen.append(released)
        with pytest.raises(ValueError, match="read-only"):
            released.messages[...] = 0.0
        return 1.0 + round / 10

    trace = experiment.run(priced, [2], record=True, rule=rule)
    assert {f.name for f in fields(History)} == {"messages", "noise", "left"}
    for t, released in enumerate(seen):
        assert np.array_equal(released.messages, trace.messages.x[0, :t])  # type: ignore[attr-defined]
        assert released.messages.shape[1:] == (priced.places.agents, priced.places.dim)
        assert released.noise == tuple(1 + k / 10 for k in range(t))
        assert released.left == pytest.approx(1 - sum((1 + k / 10) ** -2 for k in range(t)) / ROUNDS)


# ---- the filter against a rule that does its worst -------------------------------------------------------------------

MU, EPSILON, TRIALS = 1.0, 0.5, 3000


def hostile(t: int, released: History) -> float:
    """Looks at the privacy loss so far, spends all that is left once it is high, little by little while it is low.

    With nothing left it asks for more.
    """
    if released.left < 0.01:
        return 0.5
    said = released.messages[:, 0, 0] / np.maximum(released.noise, 1e-9)
    loss = float(np.sum(said - 0.0)) / len(said) ** 0.5 if len(said) else 0.0
    rest = 1 / np.sqrt(max(released.left, 1e-9) * 6)
    return 1.0001 * (rest if t == 5 or (t and loss > 0.5) else max(rest, 1.5))


def delta_of(short: float = 1.0, unpaid: bool = False) -> tuple[float, float]:
    """δ(ε) of the whole interaction, by its privacy loss in the world with the record, and a standard error.

    Six rounds planned, each a sensitivity of 1 against the noise that makes all six μ = MU. `short`: noise is that much
    of what was charged; `unpaid`: the round at which the filter stops is sent all the same.
    """
    rng, sigma = np.random.default_rng(7), 6**0.5 / MU
    plan = Gaussian(np.ones(6), np.full(6, sigma), times=np.ones(6, int))
    fresh, found = Steering([plan], 1e-5, hostile, np.zeros((0, 1, 1))), np.zeros(TRIALS)
    for k in range(TRIALS):
        steer, loss = copy.deepcopy(fresh), 0.0
        for t in range(6):
            level = steer.before(t)
            if level is None and not unpaid:
                break
            true = short * sigma * (hostile(t, steer.released()) if level is None else level)
            said = 1.0 + true * rng.standard_normal()  # without the record: 0
            loss += (said - 0.5) / true**2
            if level is None:
                break
            steer.heard(np.array([[said / sigma]]))
        found[k] = max(0.0, -np.expm1(EPSILON - loss))
    return float(found.mean()), float(found.std() / TRIALS**0.5)


def test_no_rule_can_pass_the_limit() -> None:
    limit = float(gdp.delta_of(MU, EPSILON))
    found, error = delta_of()
    assert found <= limit + 3 * error
    assert found >= 0.8 * limit  # the attack spends what it may: the test could see more


@pytest.mark.parametrize(
    "broken",
    [{"short": 0.95}, pytest.param({"unpaid": True}, marks=pytest.mark.slow)],
    ids=["noise 5 % short", "sent unpaid"],
)
def test_a_broken_filter_is_seen(broken: dict[str, Any]) -> None:
    limit = float(gdp.delta_of(MU, EPSILON))
    found, error = delta_of(**broken)
    assert found > limit + 3 * error


# ---- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({"algorithm": {"name": "hmv-dgd"}}, "no filter is proved for hmv-dgd; use dp-dsgd or gauss-avg-gd"),
        ({"algorithm": {"name": "pr-admm"}}, "no filter is proved for pr-admm"),
        ({"algorithm": {"name": "dp-dsgd", "batch": 20}}, "no filter is proved for rounds on a batch"),
        ({"privacy": {"delta": 0.0}}, "delta"),
        ({"exchange": {"kind": "secret-sum"}}, "messages as they were sent"),
        ({"run": {"away": {"0": [[1, 2]]}}}, "leave it out"),
        ({"privacy": {"observers": ["0"]}, "algorithm": {"name": "dp-dsgd"}}, "fixed beforehand"),
        ({"privacy": {"adaptive": "setling"}}, "'setling': do you mean settling. There are own, settling"),
        ({"privacy": {"adaptive": "settling", "adaptive_options": {"speed": 1.0}}}, "does not take speed"),
        ({"privacy": {"adaptive": "settling", "adaptive_options": {"factor": 1.5}}}, "between 0 and 1"),
        ({"privacy": {"adaptive": None, "adaptive_options": {"first": 1.0}}}, "are of a rule"),
    ],
)
def test_what_is_not_proved_is_refused_before_data_is_read(tables: dict[str, dict[str, Any]], words: str) -> None:
    from coterie.contracts import check_contract

    with pytest.raises(InputError, match=words):
        check_contract(changed(**tables))


def test_own_needs_the_function(ready: tuple[Experiment, Priced]) -> None:
    experiment, priced = ready
    with pytest.raises(InputError, match="a function given to"):
        experiment.run(priced, [0])
    wrong: list[Any] = [0.0, -1.0, float("nan"), float("inf"), None, np.ones(2), 1j, 10**400]
    for answer in wrong:
        with pytest.raises(InputError, match=r"round 1, got"):
            experiment.run(priced, [0], rule=constant(answer))


def test_a_rule_that_nothing_would_ask_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a budget, in a plan that does not say so, and a plan's "own" before its data is read."""
    import coterie as ct

    sites = [(np.ones((9, 2)), np.ones(9)) for _ in range(3)]
    with pytest.raises(InputError, match="give one, such as"):
        ct.train(ct.logistic(classes=[-1, 1]), ct.complete(sites), ct.dgd(), rounds=2, adaptive=constant(1.0))
    plain = prepare(changed(privacy={"adaptive": None}))
    with pytest.raises(InputError, match=r"privacy\.adaptive is not set"):
        plain.run(price(plain.plan, plain.network), [0], rule=constant(1.0))
    path = tmp_path / "plan.toml"
    path.write_text(
        '[data]\nsource = "csv"\npath = "none.csv"\noptions = { label = "y" }\n[privacy]\nadaptive = "own"\n'
    )
    assert main(["run", str(path), "--out", str(tmp_path / "o")]) == 2
    assert "a function given to ct.train" in capsys.readouterr().err


# ---- what is said of it ----------------------------------------------------------------------------------------------


def test_an_interrupted_run_is_certified_at_its_limit() -> None:
    """Eight of 400 rounds at half the noise cost what 32 cost: the planned events of eight would be a false claim."""
    plan = changed(run={"rounds": 400})
    experiment = prepare(plan)
    priced = price(plan, experiment.network)

    def halved(round: int, released: History) -> float:
        if round == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return 0.5

    trace = experiment.run(priced, [0], rule=halved)
    assert trace.completed < 100
    made = certificate(plan, experiment.network, priced, completed=trace.completed + 1)
    claim = made["claim"]
    assert claim["epsilon"] == pytest.approx(priced.spending.worst.epsilon)  # type: ignore[index,union-attr]
    words = " ".join(one["statement"] for one in made["statements"])  # type: ignore[attr-defined]
    assert "so many rounds were run" not in words
    assert "a function that no file here shows" in words


def test_a_certificate_of_fewer_rounds_is_refuted() -> None:
    tree = {**STATED, "graph": {"kind": "complete"}, "algorithm": {"name": "gauss-avg-gd"}}
    fixed = make(tree, completed=2)
    assert rejection(fixed) is None
    steered = {**tree, "privacy": {"epsilon": 1.0, "adaptive": "settling"}}
    assert rejection(make(steered, completed=2)) is None  # charged for all four
    short = make(steered) | {"agents": fixed["agents"], "claim": fixed["claim"], "protects": fixed["protects"]}
    assert "charged the limit, all 4 rounds, got 2" in str(rejection(resealed(short)))


def test_seeds_that_were_not_run_are_not_listed(ready: tuple[Experiment, Priced]) -> None:
    experiment, priced = ready
    trace = experiment.run(priced, [4], rule=constant(1.0))
    assert build_result(experiment, priced, trace, [4, 5], Judged())["seeds"] == [4]


def test_a_plan_says_that_the_noise_may_change() -> None:
    text = "\n".join(explain(changed(privacy={"adaptive": "settling"}))[0])
    assert "at most 12 messages" in text
    assert "the rule 'settling' changes it" in text


def test_agents_audits_and_comparisons_refuse_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from coterie.audit.planned import read_for_audit
    from coterie.deploy.noise import check_deployable

    with pytest.raises(InputError, match="neighbours' messages only"):
        check_deployable(changed())
    path = tmp_path / "plan.toml"
    path.write_text('[data]\nsource = "clinics"\n[algorithm]\nname = "dp-dsgd"\n[privacy]\nadaptive = "settling"\n')
    with pytest.raises(InputError, match="an audit plays rounds whose noise is fixed"):
        read_for_audit(path)
    assert main(["compare", str(path), "--algorithms", "dp-dsgd", "--epsilons", "1", "--out", str(tmp_path / "o")]) == 2
    assert "privacy.adaptive = 'settling' is not obeyed by a comparison" in capsys.readouterr().err


# ---- the rule that a plan can name -----------------------------------------------------------------------------------


def level(path: Callable[[int], float], rounds: int, **options: float) -> list[float]:
    """What the rule chose while the mean of two parties' messages went along a path."""
    rule, said, chosen = settling(**options), np.zeros((0, 2, 1)), list[float]()
    for t in range(rounds):
        chosen.append(rule(t, History(said, tuple(chosen), 1.0)))
        said = np.concatenate([said, [[[path(t) - 1], [path(t) + 1]]]])
    return chosen


def test_settling_lowers_the_noise_where_nothing_moves_any_more() -> None:
    assert level(float, 20, first=1.5) == [1.5] * 20  # straight on
    still = level(lambda t: (-1.0) ** t, 20, first=1.6, factor=0.5, window=5)  # to and fro
    assert still == [1.6] * 5 + [0.8] * 5 + [0.4] * 5 + [0.2] * 5
    both = level(lambda t: float(min(t, 10) + 0.01 * (-1) ** t), 24, factor=0.5)
    assert both[:12] == [1.0] * 12
    assert both[-1] < 1.0


def test_a_named_rule_runs_from_a_plan() -> None:
    plan = changed(privacy={"adaptive": "settling", "adaptive_options": {"first": 1.5}}, run={"seeds": 2, "rounds": 20})
    experiment = prepare(plan)
    priced = price(plan, experiment.network)
    trace = experiment.run(priced, [0, 1])
    for told in trace.steered:
        assert told["noise"][0] == 1.5
        assert 0 < told["spent"] <= priced.spending.worst.epsilon  # type: ignore[operator,union-attr]
