"""δ = 0: a pure guarantee in plan, Python, estimator, certificate and commands; who has none refuses it by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coterie as ct
from coterie.algorithms.base import all_algorithms
from coterie.cli import main
from coterie.contracts import check_contract
from coterie.deploy.noise import check_deployable
from coterie.errors import InputError
from coterie.estimators.linear import PrivateConsensusClassifier
from coterie.experiment import public_network
from coterie.plan import Plan, validate
from coterie.pricing import price
from coterie.privacy.calibration import noise_for, pure_noise_for
from coterie.privacy.events import Free, Gaussian, Laplace, Pure
from coterie.privacy.people import of_group

PURE = {
    "dvp", "pvp", "m-admm", "r-admm", "mr-admm", "hmv-dgd", "ldp-admm", "ldp-dgd", "ldp-dgd-range",
}  # fmt: skip
PRIVATE = [slug for slug, a in all_algorithms().items() if a.private]


def plan_of(slug: str, **more: Any) -> Plan:
    settings = {"rounds": 5} | more.pop("run", {})
    tree: dict[str, Any] = {
        "data": {"source": "adult", "test_fraction": 0.1},
        "partition": {"kind": "iid", "agents": 4, "records": 500},
        "graph": {"kind": "complete"},
        "problem": {"loss": "logistic", "dim": 5},
        "algorithm": {"name": slug} | more.pop("algorithm", {}),
        "privacy": {"epsilon": 5.0, "delta": 0.0},
        "run": settings,
    }
    return validate(tree | more)


@pytest.mark.parametrize("slug", [s for s in PRIVATE if s != "release"])
def test_every_algorithm_is_pure_or_refuses(slug: str) -> None:
    plan = plan_of(slug)
    if slug not in PURE:
        with pytest.raises(InputError, match=rf"privacy\.delta = 0 asks for a pure guarantee, and {slug} has none \("):
            check_contract(plan)  # reads no data
        return
    check_contract(plan)
    worst = price(plan, public_network(plan)).spending.worst  # type: ignore[union-attr]
    assert (worst.delta, worst.accountant) == (0.0, "basic")
    assert 4.99 < worst.epsilon <= 5.0


def test_noise_that_a_plan_asks_for_is_not_replaced() -> None:
    with pytest.raises(InputError, match=r"dvp has none \(ObjectivePerturbation\).* or set algorithm\.noise = 'gamma'"):
        check_contract(plan_of("dvp", algorithm={"noise": "gaussian"}))
    assert price(plan_of("dvp"), public_network(plan_of("dvp"))).cfg.noise == "gamma"


def test_budgets_of_their_own() -> None:
    plan = plan_of("ldp-dgd", privacy={"epsilon": [1.0, 2.0, 4.0, 4.0], "delta": 0.0})
    found = price(plan, public_network(plan))
    assert found.spending is not None
    assert found.spending.per_agent == pytest.approx([1.0, 2.0, 4.0, 4.0], rel=1e-3)
    assert np.all(found.spending.per_agent <= [1.0, 2.0, 4.0, 4.0])


@pytest.mark.parametrize("slug", ["ldp-dgd", "dvp"])
def test_deployed_it_is_refused_by_name(slug: str) -> None:
    with pytest.raises(InputError, match=rf"{slug} cannot be deployed with privacy\.delta = 0: .*gamma noise"):
        check_deployable(plan_of(slug))


def test_shared_noise_is_gaussian() -> None:
    sums = {"kind": "secret-sum", "noise": "central", "honest": 3}
    with pytest.raises(InputError, match=r"privacy\.delta = 0 does not go with .*secret-sum"):
        check_contract(plan_of("dp-dsgd", exchange=sums))


def test_scales_add_up_to_the_budget() -> None:
    scale = pure_noise_for(4, 2.0, [1.0, 2.0, 3.0, 0.5], "periodic", rate=0.5, period=1)
    assert np.sum(np.array([1.0, 2.0, 3.0, 0.5]) / scale) == pytest.approx(2.0, rel=1e-14)
    with pytest.raises(InputError, match="no pure guarantee, got 0"):
        noise_for(4, 2.0, 0.0)
    with pytest.raises(InputError, match="epsilon"):
        pure_noise_for(4, 0.0)


def test_which_events_are_pure() -> None:
    assert [kind.purely() for kind in (Pure, Laplace, Free, Gaussian)] == [True, True, True, False]


def test_several_records_cost_as_many_times() -> None:
    assert of_group([Pure(0.3), Pure(0.2)], 4, 0.0) == pytest.approx(2.0)


def test_run_certificate_and_verification(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plan.toml").write_text(
        '[data]\nsource = "clinics"\n[graph]\nkind = "complete"\n[problem]\nloss = "logistic"\n[algorithm]\n'
        'name = "ldp-dgd"\n[privacy]\nepsilon = 5.0\ndelta = 0\n[run]\nrounds = 2\nreferences = "none"\n'
    )
    assert main(["run", str(tmp_path / "plan.toml"), "--out", str(tmp_path / "out")]) == 0
    assert "(5, 0)" in capsys.readouterr().out
    claim = json.loads((tmp_path / "out" / "certificate.json").read_text())["claim"]
    assert (claim["delta"], claim["accountant"]) == (0.0, "basic")
    assert 4.99 < claim["epsilon"] <= 5.0
    assert main(["verify", str(tmp_path / "out" / "certificate.json")]) == 0
    lie = json.loads((tmp_path / "out" / "certificate.json").read_text())
    lie["claim"]["epsilon"] = 4.0
    (tmp_path / "lie.json").write_text(json.dumps(lie))
    assert main(["verify", str(tmp_path / "lie.json")]) != 0


@pytest.mark.slow
def test_python_and_estimator(records: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = records
    net = ct.complete([(x[i::3], y[i::3]) for i in range(3)])
    run = ct.train(ct.logistic(), net, ct.ldp_dgd(), ct.Budget(5.0, 0), rounds=2, seed=0)
    assert (run.delta, run.private) == (0.0, True)
    assert 4.99 < run.epsilon <= 5.0
    with pytest.raises(InputError, match=r"dp-dsgd has none \(Gaussian\)"):
        ct.train(ct.logistic(), net, ct.dp_dsgd(), ct.Budget(5.0, 0), rounds=2)
    model = PrivateConsensusClassifier(
        5.0, 0.0, algorithm="ldp-dgd", graph="complete", rounds=2, n_agents=3, classes=[-1, 1], bounds=(-1, 1)
    )
    assert 4.99 < model.fit(x, y).epsilon_spent_ <= 5.0


@pytest.fixture
def records() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 3))
    x /= np.maximum(1, np.linalg.norm(x, axis=1, keepdims=True))
    return x, np.where(x[:, 0] > 0, 1, -1)


def test_calibrate(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", "--rounds", "4", "--epsilon", "1", "--delta", "0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["scale"] == [4.0] * 4
    assert main(["calibrate", "--rounds", "4", "--epsilon", "1", "--delta", "-0.1"]) == 2
