"""`coterie audit` as a user meets it, and the parts it shows."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from coterie import cli
from coterie.algorithms.base import find
from coterie.audit import audit, make_setting
from coterie.audit.checks import examine, gather, repeats
from coterie.audit.one_run import one_run
from coterie.audit.picture import allowed
from coterie.audit.planned import of_plan, sums
from coterie.audit.setting import ATTACKS
from coterie.errors import InputError
from coterie.losses.hinge import Hinge
from coterie.privacy.events import Event, Gaussian
from tests.audit.seeded.hunting import FAULTS, plant


@pytest.mark.slow
def test_claims_that_hold(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    code = cli.main(["audit", "gauss-avg-gd", "--epsilons", "8", "--trials", "250", "--out", str(tmp_path)])
    shown = capsys.readouterr().out
    assert code == 0
    assert "gauss-avg-gd" in shown
    assert "holds" in shown
    (found,) = json.loads((tmp_path / "audit.json").read_text("utf-8"))
    assert found["epsilon"] == pytest.approx(8, rel=1e-6)
    assert 4 < found["lower_bound"] < 8
    assert found["failed_checks"] == []
    assert not found["refuted"]
    assert (tmp_path / "tradeoff.png").stat().st_size > 5000


PLAN = (
    '[partition]\nkind = "iid"\nsizes = [30, 90, 30, 40, 30]\n[run]\nrounds = 16\n'
    '[problem]\nloss = "hinge"\ndim = 3\nwidth = 0.3\n[graph]\nkind = "complete"\n'
    '[algorithm]\nname = "gauss-avg-gd"\n[privacy]\nepsilon = [3.0, 3.0, 3.0, 1.0, 3.0]\n'
)


@pytest.mark.slow
def test_a_plan_is_audited_at_its_own_agents(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(PLAN, "utf-8")
    assert cli.main(["audit", str(plan), "--trials", "250", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["epsilon"] == pytest.approx(3, rel=1e-6)
    who = "hinge loss, agent {}: 4 neighbours, {} records, 16 rounds, ε = {}"
    assert found["losses"] == [who.format(0, 30, 3), who.format(1, 90, 3), who.format(3, 40, 1)]
    first = of_plan(plan)[1][0].setting
    assert isinstance(first.problem, Hinge)
    assert (first.problem.width, first.place.rounds) == (0.3, 16)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("half the noise where there are more than two neighbours", {"complete": "star", "gauss-avg-gd": "dp-admm"}),
        pytest.param("half the noise for many records", {}, marks=pytest.mark.audit),
        pytest.param("no noise after the twelfth round", {}, marks=pytest.mark.audit),
    ],
)
def test_a_fault_that_depends_on_the_plan_is_found_in_it(
    name: str, changes: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the agents, records and rounds of the plan, and not at those that an audit without a plan has."""
    (fault,) = [f for f in FAULTS if f.name == name]
    text = PLAN
    for old, new in changes.items():
        text = text.replace(old, new)
    own = f"planted_{tmp_path.name}.{fault.module.replace('-', '_')}"  # as an algorithm of one's own
    monkeypatch.setitem(sys.modules, own, plant(fault))
    (tmp_path / "plan.toml").write_text(text.replace(f'"{fault.module}"', f'"{own}"'), "utf-8")
    broken = find(own)
    assert examine(gather(make_setting(broken, epsilon=8.0), ATTACKS[:1]), ["noise"])[0].passed
    looked = of_plan(tmp_path / "plan.toml")[1]
    found = (examine(gather(one.setting, ATTACKS[:1]), ["noise"])[0] for one in looked)
    assert any(f.verdict == "refuted" for f in found)


def test_a_plan_with_a_claim_for_sums_is_audited_for_them(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(
        PLAN + '[exchange]\nkind = "secret-sum"\nhonest = 4\nnoise = "central"\nfraction_bits = 16\n', "utf-8"
    )
    plan, looked = of_plan(tmp_path / "plan.toml")
    ((words, found),) = sums(plan)
    assert found.passed, found
    assert words == "opened sums of 5 parties, 4 of them honest"
    assert looked[0].setting.epsilon > 1  # a message by itself carries less noise than its own budget would ask for


def test_a_plan_that_is_refused_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "plan.toml").write_text(PLAN.replace("complete", "ring"), "utf-8")
    assert cli.main(["audit", str(tmp_path / "plan.toml")]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert "runs on complete graphs" in said.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nosuch"], "unknown algorithm 'nosuch'"),
        (["dgd"], "nothing to audit"),
        (["dvp", "--epsilons", "0"], "--epsilons needs positive numbers"),
        (["dvp", "--delta", "1"], "--delta must be in"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture) -> None:
    assert cli.main(["audit", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_allowed_misses() -> None:
    alpha = np.array([0.01, 0.3, 0.7])
    gaussian = make_setting(find("gauss-avg-gd"), epsilon=2.0)
    assert gaussian.mu is not None
    np.testing.assert_allclose(allowed(gaussian, alpha), norm.cdf(norm.ppf(1 - alpha) - gaussian.mu))
    laplace = make_setting(find("hmv-dgd"), epsilon=2.0)
    curve = allowed(laplace, alpha)
    assert np.all(curve <= 1 - alpha)
    assert np.all(curve >= np.maximum(1 - 1e-5 - np.exp(2) * alpha, np.exp(-2) * (1 - 1e-5 - alpha)) - 1e-9)


def test_trials_must_be_positive() -> None:
    with pytest.raises(InputError, match="trials"):
        audit(make_setting(find("gauss-avg-gd")), 0)


def test_one_run_holds_on_correct_code_and_catches_missing_noise() -> None:
    setting = make_setting(find("gauss-avg-gd"), epsilon=8.0, records=300, dim=300)
    found = one_run(setting)
    assert not found.violated
    assert 0 < found.epsilon_bound < 8
    assert found.mu_bound is not None
    assert setting.mu is not None
    assert 0 < found.mu_bound < setting.mu
    # the same noise under a claim of an eighth of its μ
    events: list[Event] = [Gaussian(e.sensitivity, 8 * e.sigma) for e in setting.events if isinstance(e, Gaussian)]
    assert one_run(replace(setting, events=events)).violated
    with pytest.raises(InputError, match="dim = records"):
        one_run(make_setting(find("gauss-avg-gd")))


def test_a_draw_that_is_used_twice() -> None:
    algorithm = find("gauss-avg-gd")
    draws = np.random.default_rng(0).standard_normal((2, 3, 4, 5))
    assert repeats({"noise": draws}, algorithm).passed
    draws[1, 2, 3] = draws[0, 0, 1]
    assert not repeats({"noise": draws}, algorithm).passed
