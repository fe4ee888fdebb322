"""Fair classifiers between real parties: the integers of the simulation, every stage paid for once, a fair model."""

from __future__ import annotations

import io
import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from coterie.algorithms.laws import Grid
from coterie.commands.run import execute
from coterie.data import load
from coterie.deploy.frames import HEADER_BYTES, SIGNATURE_BYTES
from coterie.deploy.noise import GAUSSIAN_UNIT, LAPLACE_UNIT
from coterie.deploy.party import Party, Records, Terms
from coterie.deploy.trial import deployed_plan, shards_of, sign_trial
from coterie.drivers.simulate import Run, simulate
from coterie.errors import InputError
from coterie.experiment import Experiment, prepare
from coterie.fair.holders import Config
from coterie.fair.metrics import evaluate
from coterie.fair.moments import FairMoments
from coterie.plan import Plan, validate
from coterie.privacy.accountants import account
from tests.deploy.house import House, Setting, rows, together
from tests.deploy.shared_house import SharedHouse, SharedSetting
from tests.deploy.test_everything import run_parties
from tests.support import mostly_slow

SITES = ("north", "south", "east", "west", "port")
COLUMNS = 6  # a constant, age, hours and three jobs


def written(folder: Path, records: int = 600, groups: tuple[str, ...] = ("f", "m")) -> Path:
    """A table in which hours, and so who pays, depend on the protected group."""
    rng, path = np.random.default_rng(3), folder / "all.csv"
    sex, job, site = (rng.integers(0, k, records) for k in (len(groups), 3, len(SITES)))
    age, hours = rng.uniform(18, 90, records), np.clip(rng.normal(32 + 10 * sex, 8), 1, 80)
    pays = rng.random(records) < 1 / (1 + np.exp(-0.12 * (hours - 38) - 0.03 * (age - 50)))
    lines = [
        f"{a:.1f},{h:.1f},{('clerk', 'nurse', 'driver')[j]},{groups[s]},{'yes' if y else 'no'},{SITES[k]}"
        for a, h, j, s, y, k in zip(age, hours, job, sex, pays, site, strict=True)
    ]
    path.write_text("\n".join(["age,hours,job,sex,pays,site", *lines]) + "\n")
    return path


def fair_plan(path: Path, groups: tuple[str, ...] = ("f", "m"), **tables: Any) -> Plan:
    options = {
        "protected": "sex", "classes": ["no", "yes"], "sites": list(SITES), "constant": True, "missing": "error",
        "bounds": {"age": [18, 90], "hours": [1, 80]},
        "categories": {"job": ["clerk", "nurse", "driver"], "sex": list(groups)},
    }  # fmt: skip
    tree = {
        "name": "fair",
        "data": {"source": "csv", "path": str(path), "label": "pays", "site": "site", "options": options},
        "graph": {"kind": "complete"},
        "problem": {"loss": "fair"},
        "algorithm": {"name": "fair-release"},
        "privacy": {"epsilon": 2.0, "delta": 1e-5},
    }
    for name, table in tables.items():
        tree[name] = {**tree.get(name, {}), **table}  # type: ignore[dict-item]
    return validate(tree)


def simulated(terms: Terms, experiment: Experiment, drawn: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Messages, in whole steps, and answers of a simulation with these draws."""
    layout = experiment.layout(terms.rounds, terms.priced.shape)
    run = Run(0, terms.priced.cfg, terms.priced.noise)
    told = simulate(
        terms.priced.algorithm, layout, [run], rounds=terms.rounds, replay=drawn, record=True, every=terms.rounds
    )
    values = np.asarray(told.messages.values)[0]
    return np.rint(values / terms.steps.size.T[:, :, None]), np.asarray(told.points[0])


GROUPS = {2: ("f", "m"), 3: ("f", "m", "x")}
VARIANTS: dict[str, tuple[int, dict[str, dict[str, Any]]]] = {
    "gaussian": (2, {}),
    "ring": (2, {"graph": {"kind": "ring"}, "run": {"rounds": 8}}),
    "laplace, three groups": (
        3,
        {"algorithm": {"name": "fair-release", "law": "laplace"}, "privacy": {"epsilon": 9.0}},
    ),
    "not fair": (2, {"algorithm": {"stages": [1]}}),
}


@pytest.mark.parametrize("variant", mostly_slow(VARIANTS, "laplace, three groups"))
def test_deployed_integers_are_those_of_the_simulation(variant: str, tmp_path: Path) -> None:
    groups, tables = VARIANTS[variant]
    plan = fair_plan(written(tmp_path, 150, GROUPS[groups]), GROUPS[groups], **tables)
    experiment = prepare(plan)
    terms = Terms.of(deployed_plan(plan, experiment))
    said, sent, drawn, answers = run_parties(terms, shards_of(experiment))
    expected, points = simulated(terms, experiment, drawn)
    assert sent.all()
    assert np.array_equal(said, expected)
    assert np.allclose(answers, points, rtol=1e-9, atol=1e-12)
    assert len(np.unique(said[0])) > 0.9 * said[0].size  # noise on every number
    if variant == "gaussian":  # everybody hears everybody: one round a stage, and one model
        assert terms.rounds == 3
        assert np.ptp(answers, axis=0).max() < 1e-9 * np.abs(answers).max()


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_every_stage_is_charged_once_at_the_price_of_its_grid(law: str, tmp_path: Path) -> None:
    plan = fair_plan(
        written(tmp_path, 150), graph={"kind": "ring"}, run={"rounds": 8}, privacy={"epsilon": 9.0},
        algorithm={"law": law},
    )  # fmt: skip
    experiment = prepare(plan)
    terms = Terms.of(deployed_plan(plan, experiment))
    charges: list[Any] = [event for round in terms.charges(0) for event in round]
    dim, cfg = terms.network.problem.dim, terms.priced.cfg
    assert isinstance(cfg, Config)
    assert [float(np.max(e.times)) for e in charges] == [1, 0, 1, 0, 1, 0, 0, 0]  # two rounds each; two are left over
    records, shares = float(np.sum(terms.network.sizes)), cfg.shares
    z = float(terms.priced.noise[0])
    for event, share in zip((charges[0], charges[2], charges[4]), shares, strict=True):
        if law == "gaussian":
            level = z / share**0.5
            assert float(event.sigma) * records == pytest.approx(level, rel=1e-6)
            assert float(event.sigma) * records < level  # what the discrete law is a processed form of
            rounding = 2 * dim**0.5 * level / GAUSSIAN_UNIT
            assert float(event.sensitivity) * records == pytest.approx(1 + rounding, rel=1e-6)
        else:
            assert float(event.epsilon) == pytest.approx(share / z + 2 * dim / LAPLACE_UNIT, rel=1e-9)
    spent = account(charges, 1e-5).epsilon
    assert 8.9 < spent <= 9.0


def test_replacing_a_record_moves_no_message_by_more_than_is_charged(tmp_path: Path) -> None:
    """The worst record of every stage reaches its bound: a label flips, and a group changes."""
    plan = fair_plan(written(tmp_path, 150))
    experiment = prepare(plan)
    terms, shards = Terms.of(deployed_plan(plan, experiment)), shards_of(experiment)
    said, _, drawn, _ = run_parties(terms, shards)
    records, moved = int(np.sum(terms.network.sizes)), np.zeros(3)
    one = np.zeros(COLUMNS)
    one[1] = 1.0
    pairs = ((one, 0), (one, 1)), ((one, 0), (-one, 2)), ((one, 0), (-one, 0)), ((one, 2), (-one, 2))
    for before, after in pairs:
        worlds = []
        for row, target in (before, after):
            features, targets = shards[0].features.copy(), shards[0].targets.copy()
            features[0], targets[0] = row, target
            worlds.append(_said(terms, shards[0]._replace(features=features, targets=targets), drawn, said))
        apart = np.linalg.norm((worlds[0] - worlds[1]) * terms.steps.size[0][:, None], axis=1)
        moved = np.maximum(moved, records * apart)
    dim = terms.network.problem.dim
    assert np.all(moved <= 1 + 2 * dim**0.5 * records * terms.steps.size[0])
    assert np.all(moved >= 0.9)  # how near the third stage comes follows from noise that the system drew


def _said(terms: Terms, records: Records, drawn: dict[str, Any], heard: np.ndarray) -> np.ndarray:
    """What the first party says with these draws when everybody has said what was said before."""
    party, noise = Party.of(terms, 0, records), drawn["noise"]
    carry, out = party.begin(), []
    for t in range(terms.rounds):
        carry, numbers, _ = party.turn(t, carry, {"noise": Grid(noise.steps[t, 0], noise.unit)})
        out.append(numbers)
        for slot, j in enumerate(party.neighbours):
            carry = party.heard(carry, slot, t, heard[t, int(j)])
    return np.array(out)


@pytest.mark.slow
def test_agents_run_it_and_their_ledgers_say_what_it_cost(tmp_path: Path) -> None:
    plan = fair_plan(written(tmp_path, 1200))
    experiment = prepare(plan)
    deployed = deployed_plan(plan, experiment)
    setting = Setting(deployed, *sign_trial(deployed, shards_of(experiment), tmp_path / "trial"))
    house = House(setting, tmp_path / "house")
    together(*(house.live(name) for name in house.names), seconds=120)
    assert not house.violations(rounds=3)
    for name in house.names:
        with house.ledger(name, house.state[name]) as ledger:
            assert 1.99 < ledger.spent() <= 2.0
    drawn = {t: [dict(house.sources[n].calls)[t] for n in house.names] for t in range(3)}
    steps = np.array([[d["noise"].steps for d in drawn[t]] for t in range(3)])
    replay = {"noise": Grid(steps, GAUSSIAN_UNIT)}
    expected, points = simulated(setting.terms, experiment, replay)
    for node, name in enumerate(house.names):
        frames, _ = rows(house.state[name] / "ledger.db")
        wire = setting.parties[name].wire
        sent = [wire.decode(frames[t][HEADER_BYTES:-SIGNATURE_BYTES]) for t in range(3)]
        assert np.array_equal(sent, expected[:, node])
        assert np.allclose(house.models[name], points[node], rtol=1e-9)


def test_sums_alone_are_opened_and_the_model_is_fair(tmp_path: Path) -> None:
    """Noise for the sum of five parties: better than noise for each, and a gap between groups that is small."""
    exchange = {"kind": "secret-sum", "noise": "central", "honest": 4}
    plan = fair_plan(written(tmp_path, 3000), exchange=exchange, run={"rounds": 3})
    experiment = prepare(plan)
    deployed = deployed_plan(plan, experiment)
    assert deployed.deploy is not None
    soon = deployed.deploy.model_copy(update={"deadline": 8.0, "patience": 60.0})
    deployed = deployed.model_copy(update={"deploy": soon})
    setting = SharedSetting(deployed, tmp_path / "trial", shards_of(experiment))
    house = SharedHouse(setting, tmp_path / "house")
    house.run()
    models = np.stack([house.models[n] for n in setting.names])
    assert np.ptp(models, axis=0).max() <= 1e-9 * np.abs(models).max()
    for name in setting.names:
        with house.ledger(name) as ledger:
            assert 1.9 < ledger.spent() <= 2.0
    problem, test = setting.terms.network.problem, experiment.test
    assert isinstance(problem, FairMoments)
    assert test is not None
    features, label, group = np.asarray(test.features), np.asarray(test.targets) % 2, np.asarray(test.targets) // 2
    says = lambda point, penalty: features @ FairMoments(COLUMNS, 2, penalty).weights(point) > 0  # noqa: E731
    fair, plain = (evaluate(label, says(models[0], penalty), group) for penalty in (1e6, 0.0))
    assert fair.risk_difference < 0.5 * plain.risk_difference
    assert np.mean(says(models[0], 0.0) == label) > 0.62


def test_a_simulation_is_scored_by_its_decisions_and_has_no_references(tmp_path: Path) -> None:
    plan = fair_plan(written(tmp_path, 1500), privacy={"epsilon": 50.0}, problem={"penalty": 0.0})
    result, _ = execute(plan, None, Console(file=io.StringIO()))
    assert result["metrics"]["test_accuracy"]["mean"] > 0.62
    assert not result["references"]


# ---- what is read, and what is refused -------------------------------------------------------------------------------


def test_a_class_is_a_label_in_a_group(tmp_path: Path) -> None:
    plan = fair_plan(written(tmp_path, 40))
    data = load("csv", path=tmp_path / "all.csv", label="pays", site="site", task="classification", **plan.data.options)
    assert data.classes == ("no (sex f)", "yes (sex f)", "no (sex m)", "yes (sex m)")
    lines = [line.split(",") for line in (tmp_path / "all.csv").read_text().splitlines()[1:]]
    assert data.targets.tolist() == [(y == "yes") + 2 * (sex == "m") for _, _, _, sex, y, _ in lines]
    assert not any("sex" in name for name in data.feature_names)
    assert data.features.shape[1] == COLUMNS


def test_refusals(tmp_path: Path) -> None:
    path = written(tmp_path, 40)
    options = fair_plan(path).data.options

    def refused(match: str, **tables: Any) -> None:
        with pytest.raises(InputError, match=match):
            prepare(fair_plan(path, **tables))

    refused("goes with a label of two classes", data={"options": {**options, "classes": ["no", "yes", "late"]}})
    jobs_only = {"job": options["categories"]["job"]}
    refused("needs its groups", data={"options": {**options, "categories": jobs_only}})
    refused("'protected group'|which is the protected group", data={"options": {**options, "features": ["age", "sex"]}})
    refused("data.options.protected", data={"options": {**options, "protected": None, "categories": jobs_only,
                                                        "features": ["age", "hours", "job"]}})  # fmt: skip
    refused("dp-dsgd minimises.*use fair-release", algorithm={"name": "dp-dsgd"})
    refused("needs sums to release", problem={"loss": "logistic"})
    refused("run.rounds = 2 is too few", run={"rounds": 2})
    refused("algorithm.walk = 4 needs 12 rounds", run={"rounds": 9}, algorithm={"walk": 4})
    refused(r"stages must be \[1\]", algorithm={"stages": [1, 2]})
    refused("shares must be > 0", algorithm={"shares": [0.0, 0.7, 0.3]})
    refused("a promise that nothing enforces", algorithm={"signed": False})
    refused("schedule must be 'uniform'", privacy={"schedule": "periodic", "schedule_options": {"rate": 0.5}})
    path.write_text(path.read_text().replace(",f,", ",?,", 1))
    refused("'sex' has '\\?'")


def test_the_plan_on_the_page_can_be_signed() -> None:
    page = Path(__file__).parents[2] / "docs" / "fair.md"
    found = re.findall(r"^```toml\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    (text,) = [one for one in found if "[data]" in one]  # the others are parts of plans
    terms = Terms.of(validate(tomllib.loads(text)))
    assert terms.rounds == 3
    assert terms.priced.claims[0].account.epsilon == pytest.approx(1.0, rel=0.01)
    assert terms.network.problem == FairMoments(3, 2)
