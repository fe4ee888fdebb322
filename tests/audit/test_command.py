"""`coterie audit` as a user meets it, and the parts it shows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from coterie import cli
from coterie.algorithms.base import find
from coterie.audit import audit, make_setting
from coterie.audit.checks import repeats
from coterie.audit.one_run import one_run
from coterie.audit.picture import allowed
from coterie.commands.audit import _of_plan
from coterie.errors import InputError
from coterie.privacy.events import Event, Gaussian
from coterie.problems import Linear


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


def test_a_refuted_claim_is_exit_code_1(capsys: pytest.CaptureFixture) -> None:
    assert cli.main(["audit", "dp-consensus-gd", "--as-printed", "--trials", "250", "--json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)
    assert found["refuted"]
    assert found["lower_bound"] > found["epsilon"] == pytest.approx(1)


def test_a_plan_is_audited_at_its_own_budget(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(
        '[partition]\nkind = "iid"\nagents = 5\nrecords = 30\n[run]\nrounds = 8\n'
        '[problem]\nloss = "hinge"\nwidth = 0.3\n'
        '[algorithm]\nname = "gauss-avg-gd"\n[graph]\nkind = "complete"\n[privacy]\nepsilon = 3.0\n',
        "utf-8",
    )
    assert cli.main(["audit", str(plan), "--trials", "250", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["epsilon"] == pytest.approx(3, rel=1e-6)
    assert found["losses"] == ["hinge loss"]
    setting = _of_plan(plan)
    assert isinstance(setting.problem, Linear)
    assert (setting.problem.loss, setting.problem.width, setting.place.rounds) == ("hinge", 0.3, 8)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nosuch"], "unknown algorithm 'nosuch'"),
        (["dgd"], "nothing to audit"),
        (["dvp", "--epsilons", "0"], "--epsilons needs positive numbers"),
        (["dvp", "--delta", "1"], "--delta must be in"),
        (["dsgd", "--as-printed"], "no erratum of 'dsgd' is measured"),
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
