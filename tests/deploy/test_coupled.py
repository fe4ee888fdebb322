"""Parties that share a resource, deployed: the integers of the simulation, the optimum, its price, what is refused."""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from coterie.algorithms.laws import Grid
from coterie.api.joining import PartyModel
from coterie.api.tabled import packed
from coterie.audit.wire import audit_wire, explain_bytes, make_worlds, speak
from coterie.cli import main
from coterie.commands.run import execute
from coterie.coupled import between
from coterie.coupled.functions import CoupledFunctions
from coterie.data.sources.coefficients import read_coefficients
from coterie.deploy.data import Records, read_records
from coterie.deploy.frames import HEADER_BYTES, SIGNATURE_BYTES
from coterie.deploy.noise import GAUSSIAN_UNIT
from coterie.deploy.party import Party, Terms
from coterie.deploy.reading import look
from coterie.deploy.succession import _refuse_other_neighbours
from coterie.deploy.trial import deployed_plan, free_ports, shards_of, sign_trial
from coterie.drivers.simulate import Run, simulate
from coterie.errors import InputError
from coterie.experiment import Experiment, prepare
from coterie.plan import Plan, read_plan, validate
from coterie.privacy.accountants import account
from coterie.privacy.events import Gaussian
from tests.audit.test_wire import judge
from tests.deploy.house import House, Setting, rows, together
from tests.deploy.test_everything import is_replayed, run_parties
from tests.support import CLINICS, mostly_slow

NAMES = ("north", "south", "east", "west")
PLANT = {"low": 50, "high": 300, "curvature": [0.01, 0.04], "slope": [15, 27]}
PRICES = (18.0, 21.5, 24.0, 19.5)
BENDS = (0.02, 0.015, 0.03, 0.025)
PAGE = Path(__file__).parents[2] / "docs" / "coupled.md"


def dispatch(folder: Path, records: int = 40, **tables: Any) -> Plan:
    """Four power plants; every one of their contracts is a record."""
    rng, lines = np.random.default_rng(5), ["party,curvature,slope"]
    for name, bend, price in zip(NAMES, BENDS, PRICES, strict=True):
        for away in rng.uniform(-1, 1, records) if records > 1 else [0.0]:
            lines.append(f"{name},{bend * (1 + 0.2 * away):.5f},{price + away:.4f}")
    path = folder / "functions.csv"
    path.write_text("\n".join(lines) + "\n")
    tree: dict[str, Any] = {
        "name": "dispatch",
        "data": {"source": "coefficients", "path": str(path), "site": "party", "options": {"sites": list(NAMES)}},
        "graph": {"kind": "complete"},
        "problem": {"loss": "coupled", "total": 600.0, "variables": [PLANT] * len(NAMES)},
        "algorithm": {"name": "coupled-admm"},
        "privacy": {"epsilon": 1.0, "delta": 1e-5},
        "run": {"rounds": 20},
    }
    for name, table in tables.items():
        tree[name] = {**tree.get(name, {}), **table}
    return validate(tree)


def fields(folder: Path, **tables: Any) -> Plan:
    """Three farms with one, two and one fields, which share water and labour."""
    path = folder / "fields.csv"
    path.write_text(
        "farm,curvature_1,curvature_2,slope_1,slope_2\n"
        "ada,1.5,,-2,\nada,1.2,,-1.5,\nben,1.1,1.9,-1,-3\ncleo,2,,0.5,\ncleo,1.7,,-0.5,\ncleo,1.3,,0,\n"
    )
    one = {"low": 0, "high": 2, "curvature": [1, 2], "slope": [-3, 1], "matrix": [[1.0], [0.5]]}
    two = {"low": [0, -1], "high": [2, 1], "curvature": [[1, 2], [1.5, 2]], "slope": [-3, 1],
           "matrix": [[1.0, 2.0], [0.0, 1.0]]}  # fmt: skip
    tree: dict[str, Any] = {
        "name": "water",
        "data": {"source": "coefficients", "path": str(path), "site": "farm",
                 "options": {"sites": ["ada", "ben", "cleo"]}},
        "graph": {"kind": "complete"},
        "problem": {"loss": "coupled", "total": [3.0, 1.0], "variables": [one, two, one]},
        "algorithm": {"name": "coupled-admm"},
        "privacy": {"epsilon": 4.0, "delta": 1e-5},
        "run": {"rounds": 12},
    }  # fmt: skip
    for name, table in tables.items():
        tree[name] = {**tree.get(name, {}), **table}
    return validate(tree)


def terms_of(plan: Plan) -> tuple[Terms, Experiment]:
    experiment = prepare(plan)
    return Terms.of(deployed_plan(plan, experiment)), experiment


def bisected(bends: np.ndarray, slopes: np.ndarray, low: float, high: float, total: float) -> tuple[np.ndarray, float]:
    """The dispatch at which all plants that are free to move have one marginal cost, found on the price."""
    at = lambda price: np.clip((price - slopes) / bends, low, high)  # noqa: E731
    least, most = 0.0, 100.0
    for _ in range(200):
        middle = (least + most) / 2
        least, most = (middle, most) if at(middle).sum() < total else (least, middle)
    return at(least), least


# ---- what leaves -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plan", [
    pytest.param(dispatch, id="contracts", marks=pytest.mark.slow), pytest.param(fields, id="two totals"),
    pytest.param(lambda folder: dispatch(folder, records=1), id="whole functions", marks=pytest.mark.slow),
])  # fmt: skip
def test_deployed_integers_are_those_of_the_simulation(plan: Any, tmp_path: Path) -> None:
    terms, experiment = terms_of(plan(tmp_path))
    said, sent, drawn = is_replayed(terms, experiment)
    assert sent.all()
    assert len(np.unique(said)) > 0.9 * said.size  # noise on every number
    _, _, _, answers = run_parties(terms, shards_of(experiment))
    assert np.ptp(answers, axis=0).max() < 1e-9  # everybody knows everybody's
    # broken twin: another draw is another message
    moved = Grid(drawn["noise"].steps + (1 << 20), drawn["noise"].unit)
    run = Run(0, terms.priced.cfg, terms.priced.noise)
    layout = experiment.layout(terms.rounds, terms.priced.shape)
    other = simulate(terms.priced.algorithm, layout, [run], rounds=terms.rounds, replay={"noise": moved}, record=True)
    assert isinstance(other.messages, between.Message)
    assert np.any(np.rint(np.asarray(other.messages.x)[0] / terms.steps.size.T[:, :, None]) != said)


def test_without_noise_it_is_the_dispatch_that_bisection_finds(tmp_path: Path) -> None:
    plan = dispatch(tmp_path, run={"rounds": 400}, algorithm={"inverse_step": 0.08})
    terms, experiment = terms_of(plan)
    layout = experiment.layout(terms.rounds, terms.priced.shape)
    run = Run(0, terms.priced.cfg, 0.0)
    trace = simulate(terms.priced.algorithm, layout, [run], rounds=terms.rounds, every=400)
    means = np.array([experiment.features[part].mean(axis=0) for part in experiment.parts])
    best, price = bisected(means[:, 0], means[:, 1], 50, 300, 600)
    np.testing.assert_allclose(trace.points[0][:, :4], np.tile(best, (4, 1)), atol=1e-4)
    np.testing.assert_allclose(trace.points[0][:, 4], price, atol=1e-6)
    assert trace.curves["train_loss"][0, -1] == pytest.approx(np.mean(means[:, 0] * best**2 / 2 + means[:, 1] * best))


def test_deployed_with_little_noise_it_comes_near(tmp_path: Path) -> None:
    terms, experiment = terms_of(dispatch(tmp_path, 400, privacy={"epsilon": 30.0}, run={"rounds": 60}))
    _, _, _, answers = run_parties(terms, shards_of(experiment))
    means = np.array([experiment.features[part].mean(axis=0) for part in experiment.parts])
    best, price = bisected(means[:, 0], means[:, 1], 50, 300, 600)
    found = terms.network.problem.shaped(answers[0])
    assert np.abs(np.ravel(found["shares"]) - best).max() < 12  # megawatts, of 250
    assert found["price"][0] == pytest.approx(price, rel=0.02)
    assert np.sum(found["shares"]) == pytest.approx(600, abs=12)


# ---- what it costs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("records", [1, 40])
def test_a_round_costs_what_a_record_can_move_and_the_grid(records: int, tmp_path: Path) -> None:
    terms, _ = terms_of(dispatch(tmp_path, records))
    cfg, charges = terms.priced.cfg, [event for round in terms.charges(1) for event in round]
    assert isinstance(cfg, between.Config)
    assert cfg.seats is not None
    seat = cfg.seats[1]
    assert seat.gap == pytest.approx(0.03 * 300 + 12)  # of the gradients, at the end of the box
    moved = seat.gap / (records * seat.inverse * seat.reach)
    for event in charges:
        assert isinstance(event, Gaussian)
        assert event.adjacency == "replace-function"
        step = terms.steps.size[1, 0]
        assert float(event.sensitivity) == pytest.approx(moved + 2 * step, rel=1e-12)
        assert float(event.sigma) == pytest.approx(step * GAUSSIAN_UNIT, rel=1e-6)
        assert float(event.sigma) < step * GAUSSIAN_UNIT
    assert len(charges) == 20
    assert 0.999 < account(charges, 1e-5).epsilon <= 1.0
    with pytest.raises(InputError, match="different adjacency"):
        account([*charges, Gaussian(1.0, 5.0)], 1e-5)


def test_replacing_a_record_moves_no_message_by_more_than_is_charged(tmp_path: Path) -> None:
    """And the ends of both ranges move it by all of that, where the party stands at the end of its box."""
    terms, experiment = terms_of(dispatch(tmp_path, problem={"total": 1200.0}))  # everybody has to give all it has
    shards, cfg = shards_of(experiment), terms.priced.cfg
    assert isinstance(cfg, between.Config)
    assert cfg.seats is not None
    said, _, drawn, _ = run_parties(terms, shards)
    full = np.full(said.shape, 1 << 30)  # the others are at the end of theirs
    worlds = []
    for row in ((0.01, 15.0), (0.04, 27.0)):
        features = shards[1].features.copy()
        features[0] = row
        noise = Grid(0 * drawn["noise"].steps + (1 << 18), drawn["noise"].unit)  # so is this one
        worlds.append(messages(terms, 1, shards[1]._replace(features=features), noise, full))
    apart = np.abs(worlds[0] - worlds[1])[:, 0] * terms.steps.size[1]
    most = cfg.seats[1].gap / (40 * cfg.seats[1].inverse * cfg.seats[1].reach)
    assert np.all(apart <= most + 2 * terms.steps.size[1])
    assert apart.max() >= 0.99 * most


def messages(terms: Terms, node: int, records: Records, noise: Grid, heard: np.ndarray) -> np.ndarray:
    """What a party says with these draws when everybody says what is given."""
    party = Party.of(terms, node, records)
    carry, out = party.begin(), []
    for t in range(terms.rounds):
        carry, numbers, _ = party.turn(t, carry, {"noise": Grid(np.asarray(noise.steps)[t, node], noise.unit)})
        out.append(numbers)
        for slot, j in enumerate(party.neighbours):
            carry = party.heard(carry, slot, t, heard[t, int(j)])
    return np.array(out)


def test_what_a_file_says_beyond_its_class_does_not_count(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A coefficient out of range, or of another party's range, is pulled back before anything is computed from it."""
    wide = {**PLANT, "slope": [-1000, 1000]}
    terms, experiment = terms_of(dispatch(tmp_path, problem={"variables": [PLANT, wide, wide, wide]}))
    shard, (_, _, drawn, _) = shards_of(experiment)[0], run_parties(terms, shards_of(experiment))
    quiet = np.zeros((terms.rounds, 4, 1), int)

    def said(row: tuple[float, float], whose: int = 0) -> np.ndarray:
        features = shard.features.copy()
        features[0] = row
        own = shard._replace(features=features, targets=np.full(len(features), whose))
        return messages(terms, 0, own, drawn["noise"], quiet)

    honest = said((0.04, 27.0))
    assert np.array_equal(said((1e9, 1e300)), honest)
    assert "1 of 40 records lie outside" in caplog.text
    assert np.array_equal(said((0.04, 900.0), whose=1), honest)
    assert not np.array_equal(said((0.04, 26.0)), honest)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", mostly_slow([1.0, 8.0], 8.0))
def test_integers_are_attacked_with_their_exact_likelihood(epsilon: float) -> None:
    worlds = make_worlds("coupled-admm", epsilon=epsilon, rounds=12)
    assert worlds.exact
    assert worlds.mu is not None
    sent = speak(worlds, 1, 50)
    own, other = (explain_bytes(worlds, w, sent) for w in (1, 0))
    apart = np.sqrt(np.sum((own - other) ** 2, axis=(1, 2))) / GAUSSIAN_UNIT
    assert np.all(apart <= worlds.mu)
    assert np.all(apart > 0.99 * worlds.mu)
    if epsilon == 8.0:
        judge("coupled-admm", worlds)
    else:
        assert not audit_wire(worlds, 300).violated


# ---- agents ----------------------------------------------------------------------------------------------------------


def test_agents_run_it_and_ledgers_say_whose_neighbours_are_hidden(tmp_path: Path) -> None:
    plan = dispatch(tmp_path)
    experiment = prepare(plan)
    deployed = deployed_plan(plan, experiment)
    setting = Setting(deployed, *sign_trial(deployed, shards_of(experiment), tmp_path / "trial"))
    house = House(setting, tmp_path / "house")
    together(*(house.live(name) for name in house.names), seconds=120)
    assert not house.violations(rounds=20)
    drawn = {t: [dict(house.sources[n].calls)[t] for n in house.names] for t in range(20)}
    noise = Grid(np.array([[d["noise"].steps for d in drawn[t]] for t in range(20)]), GAUSSIAN_UNIT)
    layout = experiment.layout(20, setting.terms.priced.shape)
    run = Run(0, setting.terms.priced.cfg, setting.terms.priced.noise)
    told = simulate(setting.terms.priced.algorithm, layout, [run], rounds=20, replay={"noise": noise}, record=True)
    assert isinstance(told.messages, between.Message)
    expected = np.rint(np.asarray(told.messages.x)[0] / setting.terms.steps.size.T[:, :, None])
    for node, name in enumerate(house.names):
        with house.ledger(name, house.state[name]) as ledger:
            assert 0.999 < ledger.spent() <= 1.0
            assert {entry.event.adjacency for entry in ledger.entries} == {"replace-function"}
        frames, _ = rows(house.state[name] / "ledger.db")
        wire = setting.parties[name].wire
        sent = [wire.decode(frames[t][HEADER_BYTES:-SIGNATURE_BYTES]) for t in range(20)]
        assert np.array_equal(sent, expected[:, node])
        np.testing.assert_allclose(house.models[name], house.models[house.names[0]], rtol=1e-12)
    run_so_far = look(house.state["north"] / "ledger.db").book.run
    with pytest.raises(InputError, match="replace-function, and this agreement for replace-one: the two are never"):
        _refuse_other_neighbours([run_so_far], [Gaussian(1.0, 5.0)])
    _refuse_other_neighbours([run_so_far], [Gaussian(1.0, 5.0, adjacency="replace-function")])


# ---- the page --------------------------------------------------------------------------------------------------------


def section(title: str, language: str) -> list[str]:
    text = PAGE.read_text("utf-8").partition(f"\n## {title}")[2].partition("\n## ")[0]
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_the_plan_on_the_page_can_be_signed() -> None:
    (text,) = section("Between real parties", "toml")
    terms = Terms.of(validate(tomllib.loads(text)))
    assert terms.priced.claims[0].account.epsilon == pytest.approx(1.0, rel=0.001)
    assert terms.priced.claims[0].account.adjacency == "replace-function"
    assert isinstance(terms.network.problem, CoupledFunctions)


@pytest.mark.slow
def test_three_plants_follow_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files as printed, the commands of docs/deploy.md, agents over TLS, and the page's own Python at the end."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (text,), ports = section("Between real parties", "toml"), free_ports(3)
    plants = re.findall(r'^name = "(\w+)"', text.partition("[deploy]")[2], re.MULTILINE)
    for plant, port in zip(plants, ports, strict=True):
        text = re.sub(rf"{plant}\.example:\d+", f"127.0.0.1:{port}", text)
    Path("plan.toml").write_text(text)
    rng = np.random.default_rng(1)
    (head, *_), (sizes,) = section("Between real parties", "csv")[0].splitlines(), re.findall(r"sizes = \[(.*)\]", text)
    prices = dict(zip(plants, (18.0, 21.5, 24.0), strict=True))
    for plant, size in zip(plants, sizes.split(","), strict=True):
        drawn = [f"{0.02:.3f},{prices[plant] + rng.uniform(-1, 1):.2f}" for _ in range(int(size))]
        Path(f"{plant}.csv").write_text("\n".join([head, *drawn]) + "\n")
    steps = ["keys init grid --ca --dir authority"]
    for plant in plants:
        steps += [f"keys init {plant}", f"keys request {plant}"]
        steps += [f"keys sign {plant}.request.json --ca authority --days 9"]
        steps += [f"keys install {plant} {plant}.pem --ca authority/ca.json"]
    steps += ["plan sign plan.toml --ca authority --days 9", "plan verify agreement.json --ca authority/ca.json"]
    for words in steps:
        assert main(shlex.split(words)) == 0, words
    (command,) = section("Between real parties", "sh")
    here, processes = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}, []
    for plant in plants:
        asked = shlex.split(command.strip().replace(plants[0], plant))[1:]
        processes.append(subprocess.Popen([sys.executable, "-m", "coterie.cli", *asked], env=here))
    try:
        assert [p.wait(400) for p in processes] == [0, 0, 0]
    finally:
        for p in processes:
            p.kill()
    models = [PartyModel.load(f"{plant}-state") for plant in plants]
    np.testing.assert_allclose(np.ptp([model.point for model in models], axis=0), 0, atol=1e-9)
    best, price = bisected(np.full(3, 0.02), np.array(list(prices.values())), 50, 300, 500)
    assert np.abs(np.ravel(models[0].model["shares"]) - best).max() < 40
    assert models[0].model["price"][0] == pytest.approx(price, rel=0.05)
    assert main(["verify", f"{plants[0]}-state/certificate.json", "--strict"]) == 0
    assert main(["report", f"{plants[0]}-state"]) == 0
    assert "Who has how much" in Path(f"{plants[0]}-state/report.html").read_text("utf-8")
    (script,) = section("Between real parties", "python")
    exec(compile(script, "coupled.md", "exec"), {})


# ---- reading and refusing --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_simulation_shows_the_cost(tmp_path: Path) -> None:
    result, _ = execute(dispatch(tmp_path, privacy={"epsilon": 20.0}), None, Console(file=io.StringIO()))
    assert result["metric"] == "negative mean cost"
    assert not result["references"]
    assert result["privacy"]["adjacency"] == "replace-function"


def test_own_files(tmp_path: Path) -> None:
    plan = deployed_plan(plan := fields(tmp_path), prepare(plan))
    terms, own = Terms.of(plan), tmp_path / "own.csv"
    own.write_text("slope_2,curvature_1,slope_1,curvature_2\n-1,1.5,-2,1.6\n")
    records = read_records(plan, own)
    np.testing.assert_array_equal(records.features, [[1.5, 1.6, -2, -1]])
    assert terms.outline(1).shard(records).targets.tolist() == [1, 1, 1]  # padded to the largest party
    own.write_text("curvature_1,slope_1\n1.5,-2\n1.2,-1\n")
    shard = terms.outline(0).shard(read_records(plan, own))
    np.testing.assert_array_equal(np.asarray(shard.features)[:2], [[1.5, 0, -2, 0], [1.2, 0, -1, 0]])
    frame = pd.DataFrame({"slope_1": [-2.0, -1.0], "curvature_1": [1.5, 1.2]})
    for given in (frame, np.array([[1.5, 0.0, -2.0, 0.0], [1.2, 0.0, -1.0, 0.0]])):
        own.write_bytes(packed(plan, given, None, None))
        again = terms.outline(0).shard(read_records(plan, own))
        np.testing.assert_array_equal(again.features, shard.features)
    with pytest.raises(InputError, match=r"there is no column 'slope_2', and problem.variables\[1\] leaves it open"):
        terms.outline(1).shard(read_records(plan, own)._replace(features=np.array([[1.5, 1.6, -2, np.nan]])))
    with pytest.raises(InputError, match="have no labels"):
        packed(plan, frame, [0, 1], None)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("curvature,slope\n1,2\n", "has a column 'curvature'; expected curvature_1, curvature_2, slope_1, slope_2"),
        ("curvature_1,slope_1\n1,x\n", "row 1, column 'slope_1': 'x' is not a number"),
        ("curvature_1,slope_1\n1,inf\n", "'inf' is not finite"),
        ("curvature_1,slope_1\n1,2\n1,\n", "row 2, column 'slope_1' is empty"),
        ("curvature_1,slope_1\n1\n", "row 1 has 1 cells, the header 2"),
        ("curvature_1,curvature_1\n1,1\n", "two columns 'curvature_1'"),
        ("curvature_1\n", "needs a header and at least one row"),
    ],
)
def test_bad_files_are_refused_in_one_line(text: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text(text)
    with pytest.raises(InputError) as refused:
        read_coefficients(path, 2)
    assert reason in str(refused.value)
    assert "\n" not in str(refused.value)


def test_refusals(tmp_path: Path) -> None:
    def refused(match: str, **tables: Any) -> None:
        with pytest.raises(InputError, match=match) as error:
            terms_of(dispatch(tmp_path, **tables))
        assert "\n" not in str(error.value)

    def variables(**changes: Any) -> dict[str, Any]:
        return {"variables": [{**PLANT, **changes}, *[PLANT] * 3]}

    refused("dp-dsgd looks for one common point.*use coupled-admm", algorithm={"name": "dp-dsgd"})
    refused("runs on complete graphs", graph={"kind": "ring"})
    refused("know everybody's point as it was sent: use exchange.kind = 'broadcast'",
            exchange={"kind": "secret-sum"})  # fmt: skip
    refused("use exchange.kind = 'broadcast'", exchange={"kind": "quantized", "bits": 8})
    refused("asks 60000", problem={"total": 60000.0})
    refused("lists 3 parties, but there are 4", problem={"variables": [PLANT] * 3})
    refused("problem.ridge = 0.1 would change everybody's function", problem={"ridge": 0.1})
    refused("leaves nothing to hide", problem=variables(curvature=[0.02, 0.02], slope=[20, 20]))
    refused("curvature must lie above 0, got 0", problem=variables(curvature=[0, 1]))
    refused("low must be <= high, got 400", problem=variables(low=400))
    refused("matrix is 2 × 1, expected 1 totals × 1 variables", problem=variables(matrix=[[1.0], [1.0]]))
    refused("high has 2 numbers for 3 variables", problem=variables(low=[1, 2, 3], high=[300, 300]) | {"dim": 6})
    refused("problem.dim = 4, but problem.variables has 2", problem={"dim": 4})
    refused("high", problem=variables(high=float("inf")))
    refused("gap", problem=variables(gap=3.0))  # a believed promise cannot be stated
    refused("seats and algorithm.total follow from the .problem. table", algorithm={"total": [600.0]})
    refused("'north' lie outside of the ranges", problem=variables(slope=[15, 16]))
    with pytest.raises(InputError, match=r"coupled-admm needs problem.loss = 'coupled'"):
        prepare(read_plan(CLINICS, ["algorithm.name=coupled-admm", "graph.kind=complete"]))
    plan = dispatch(tmp_path)
    cut = deployed_plan(plan, prepare(plan)).model_dump(mode="json", exclude_none=True)
    cut["deploy"]["bound"] = 0.5
    with pytest.raises(InputError, match=r"deploy.bound = 0.5 would cut messages of coupled-admm"):
        Terms.of(validate(cut))
