"""One release between real parties: the integers of the simulation, one charge, and a total that states its noise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from coterie.deploy.noise import GAUSSIAN_UNIT
from coterie.deploy.party import Terms
from coterie.deploy.trial import deployed_plan, shards_of
from coterie.experiment import Experiment, prepare
from coterie.plan import Plan, validate
from coterie.privacy.accountants import account
from coterie.privacy.events import Gaussian
from coterie.released import SecondMoments
from tests.deploy.shared_house import SharedHouse, SharedSetting
from tests.deploy.test_everything import run_parties


def planned(**tables: Any) -> Plan:
    return validate({
        "name": "release", "data": {"source": "clinics"}, "problem": {"loss": "moments"},
        "algorithm": {"name": "release"}, "privacy": {"epsilon": 1.0, "delta": 1e-5}, **tables,
    })  # fmt: skip


def exact(experiment: Experiment) -> np.ndarray:
    rows = experiment.features
    return np.asarray(rows.T @ rows / len(rows), float)


def test_deployed_integers_are_those_of_a_simulation_and_are_charged_once() -> None:
    plan = planned(graph={"kind": "complete"})
    experiment = prepare(plan)
    terms = Terms.of(deployed_plan(plan, experiment))
    assert terms.rounds == 1
    (charges,) = terms.charges(0)
    (event,) = charges
    assert isinstance(event, Gaussian)
    dim, z = terms.network.problem.dim, float(terms.priced.noise[0])
    records, gap = float(np.sum(terms.network.sizes)), 4.5**0.5
    assert float(np.max(event.times)) == 1
    rounding = 2 * dim**0.5 * z * gap / GAUSSIAN_UNIT
    assert np.isclose(float(event.sensitivity) * records, gap + rounding, rtol=1e-6)
    assert 0.99 < account([event], 1e-5).epsilon <= 1.0
    said, sent, drawn, answers = run_parties(terms, shards_of(experiment))
    assert sent.all()
    steps = terms.steps.size.T[:, :, None]
    noise = np.asarray(drawn["noise"].steps)
    own = [experiment.features[part] for part in experiment.parts]
    diagonal = np.array([np.sum(rows**2, axis=0) for rows in own]) / records
    assert np.array_equal(said[0][:, : own[0].shape[1]], np.rint(diagonal / steps[0]) + noise[0][:, : own[0].shape[1]])
    assert np.ptp(answers, axis=0).max() < 1e-12
    seen = terms.network.problem.shaped(answers[0])
    assert isinstance(seen, SecondMoments)
    assert np.isclose(seen.noise, 5**0.5 * z * gap / records, rtol=1e-6)
    off = (seen.matrix - exact(experiment))[np.triu_indices(len(seen.cross))]
    assert 0.5 < off.std() / seen.noise < 1.1


def test_only_the_sum_is_opened_where_noise_is_shared(tmp_path: Path) -> None:
    plan = planned(exchange={"kind": "secret-sum", "noise": "central", "honest": 4})
    experiment = prepare(plan)
    deployed = deployed_plan(plan, experiment)
    assert deployed.deploy is not None
    soon = deployed.deploy.model_copy(update={"deadline": 8.0, "patience": 60.0})
    setting = SharedSetting(deployed.model_copy(update={"deploy": soon}), tmp_path / "trial", shards_of(experiment))
    house = SharedHouse(setting, tmp_path / "house")
    house.run()
    models = np.stack([house.models[n] for n in setting.names])
    assert np.ptp(models, axis=0).max() <= 1e-9
    for name in setting.names:
        with house.ledger(name) as ledger:
            assert 0.9 < ledger.spent() <= 1.0
    seen = setting.terms.network.problem.shaped(models[0])
    off = (seen.matrix - exact(experiment))[np.triu_indices(len(seen.cross), 1)]
    assert 0.75 < off.std() * 2**0.5 / seen.noise < 1.25  # √(N/h) times the noise of one holder, as stated
    local = planned(graph={"kind": "complete"})
    alone = Terms.of(deployed_plan(local, experiment))
    assert seen.noise < 0.55 * 5**0.5 * float(alone.priced.noise[0]) * 4.5**0.5 / len(experiment.features)
