"""Plans: defaults, overrides, and one line that names every mistake."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from coterie.data.planned import public_sizes
from coterie.errors import InputError
from coterie.experiment import prepare, public_network
from coterie.plan import Plan, read_plan, validate
from coterie.pricing import price
from tests.support import CLINICS

SMALL = {"data": {"source": "clinics", "options": {"records": 120, "features": 3, "sites": 4}}}


def plan(**tables: object) -> Plan:
    return validate({**SMALL, "algorithm": {"name": "dgd"}, **tables})


def test_the_default_plan_reads_and_is_private() -> None:
    got = read_plan(None)
    assert got.data.source == "clinics"
    assert got.privacy is not None


def test_an_empty_plan_has_every_documented_default(tmp_path: Path) -> None:
    path = tmp_path / "empty.toml"
    path.write_text("")
    got = read_plan(path)
    assert (got.graph.kind, got.problem.ridge, got.run.seeds, got.run.dtype) == ("ring", 1e-5, 1, "float64")
    assert got.as_json()["data"]["test_fraction"] == 0.2


def test_overrides_of_every_type() -> None:
    changes = ["graph.kind=star", "run.rounds=7", "problem.ridge=0.5", "partition.sizes=[3, 4]", 'name="a b"']
    got = read_plan(CLINICS, [*changes, "privacy.tuned_on_private_data=true", "data.options.records=90"])
    assert (got.graph.kind, got.run.rounds, got.problem.ridge) == ("star", 7, 0.5)
    assert (got.partition.sizes, got.name, got.data.options["records"]) == ([3, 4], "a b", 90)
    assert got.privacy is not None
    assert got.privacy.tuned_on_private_data
    assert read_plan(None, ["run.rounds=3", "run.rounds=4"]).run.rounds == 4


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        ({"dta": {}}, "unknown key dta; expected one of name, data, .*graph"),
        ({"graph": {"knd": "ring"}}, r"unknown key graph.knd; expected one of kind, mixing; kind = 'ring' takes none"),
        ({"privacy": {"sigma": 1.0}}, "unknown key privacy.sigma; expected one of epsilon, delta"),
        ({"run": {"rounds": "many"}}, "run.rounds: .*whole number.*'many'"),
        ({"run": {"rounds": 0}}, "run.rounds: .*greater than or equal to 1.*0"),
        ({"run": {"seed": -1}}, "run.seed: .*greater than or equal to 0"),
        ({"graph": {"kind": "torus"}}, "unknown graph kind 'torus'; there are complete, .*ring"),
        ({"graph": {"kind": "erdos-renyi", "p": 1.5}}, "graph.p: .*less than or equal to 1.*1.5"),
        ({"problem": {"ridge": -0.1}}, "problem.ridge: .*greater than or equal to 0.*-0.1"),
        ({"problem": {"ridge": float("inf")}}, "problem.ridge: .*finite.*inf"),
        ({"problem": {"tolerance": 1e-6}}, "unknown key problem.tolerance; expected one of loss"),
        ({"problem": {"loss": "hinge", "width": float("nan")}}, "problem.width: .*nan"),
        ({"problem": {"width": 0.1}}, "problem.width belongs to problem.loss = 'hinge', none was chosen"),
        (
            {"problem": {"loss": "logistic", "hidden": [3]}},
            "problem.hidden belongs to problem.loss = 'mlp', not 'logis",
        ),
        ({"partition": {"concentration": 0.1}}, "partition.concentration belongs to partition.kind = 'dirichlet'"),
        ({"algorithm": {"name": "dp-dsgd", "scheme": "poisson"}}, "scheme 'poisson' is about batches: give batch a"),
        ({"algorithm": {"name": "pr-admm", "tolerance": 0.01}}, "unknown key algorithm.tolerance"),
        (
            {"algorithm": {"name": "pr-admm", "threshold": 1.0, "paper_threshold": True}},
            "threshold = 1 and paper_threshold exclude each other",
        ),
        ({"problem": {"loss": "mlp", "hidden": [8, 0]}}, r"problem.hidden.1: .*greater than or equal to 1.*0"),
        ({"partition": {"sizes": [5, 0]}}, r"partition.sizes.1: .*greater than or equal to 1.*0"),
        ({"partition": {"agents": 1}}, "partition.agents: .*greater than or equal to 2.*1"),
        ({"partition": {"agents": 3, "sizes": [5, 5]}}, "partition.agents is 3 but partition.sizes lists 2"),
        ({"privacy": {"epsilon": 0}}, "privacy.epsilon.*greater than 0.*0"),
        ({"privacy": {"epsilon": [1.0, -2.0]}}, "privacy.epsilon"),
        ({"privacy": {"epsilon": []}}, "privacy.epsilon"),
        ({"privacy": {"delta": 1.0}}, "privacy.delta: .*less than 1.*1.0"),
        ({"privacy": {"delta": -1e-9}}, "privacy.delta: .*greater than or equal to 0"),
        ({"data": {"test_fraction": 1.0}}, "data.test_fraction: .*less than 1"),
        ({"data": {"source": "csv"}}, "data.path is needed for data.source = 'csv'"),
        ({"algorithm": {"name": "magic"}}, "unknown algorithm 'magic'; there are admm"),
        ({"algorithm": {"name": "dgd", "stpe": 1}}, "unknown key algorithm.stpe; expected one of step, decay"),
        ({"algorithm": {"name": "dgd", "step": -1.0}}, "algorithm.step: .*greater than 0.*-1.0"),
        ({"algorithm": {"name": "dgd", "step": "big"}}, "algorithm.step: .*number.*'big'"),
        ({"algorithm": {"name": "pooled", "x": 1}}, "algorithm.x is unknown: pooled takes no settings"),
    ],
)
def test_a_mistake_is_one_line_that_names_it(tree: dict, words: str) -> None:
    with pytest.raises(InputError, match=words) as error:
        validate(tree)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("run.rounds", "key=value"),
        ("=3", "key=value"),
        ("name.x=1", "'name' is not a table"),
        ("a.b=1", "unknown key a"),
    ],
)
def test_bad_overrides(change: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        read_plan(None, ["name=x", change])


def test_unreadable_and_broken_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read plan .*none.toml: No such file"):
        read_plan(tmp_path / "none.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("[data\n")
    with pytest.raises(InputError, match=r"broken.toml is not valid TOML: .*line 1"):
        read_plan(broken)
    broken.write_bytes(b"name = '\xff\xfe'")
    with pytest.raises(InputError, match="cannot read plan"):
        read_plan(broken)


def test_prepare_gives_each_site_its_records_and_keeps_test_records_apart() -> None:
    experiment = prepare(plan(data={**SMALL["data"], "test_fraction": 0.25}))
    assert experiment.network.graph.size == 4
    assert int(experiment.network.sizes.sum()) + len(experiment.test.targets) == 120
    assert len(experiment.test.targets) == 30
    assert sorted(np.concatenate(experiment.parts).tolist()) == list(range(90))
    assert set(np.unique(experiment.targets)) == {-1.0, 1.0}
    assert np.linalg.norm(experiment.features, axis=1).max() <= 1 + 1e-9
    again = prepare(plan(data={**SMALL["data"], "test_fraction": 0.25}))
    np.testing.assert_array_equal(again.features, experiment.features)
    other = prepare(plan(data={**SMALL["data"], "seed": 1}))
    assert not np.array_equal(other.features[:30], experiment.features[:30])


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({"partition": {"kind": "iid"}}, "partition.kind = 'iid' needs partition.agents"),
        (
            {"partition": {"kind": "site", "records": 3}},
            "partition.records belongs to partition.kind = 'iid'",
        ),
        ({"partition": {"kind": "iid", "agents": 60, "records": 9}}, "60 parties"),
        ({"partition": {"kind": "site", "sizes": [1, 2, 3, 4]}}, r"partition.sizes says \[1, 2, 3, 4\]"),
        ({"graph": {"kind": "regular"}}, "graph.degree is needed"),
        (
            {"graph": {"kind": "ring", "p": 0.4}},
            "graph.p belongs to .* 'erdos-renyi' or 'small-world', not 'ring'",
        ),
        ({"graph": {"kappa": 2.0}}, "graph.kappa belongs to graph.mixing = 'laplacian'"),
        ({"problem": {"loss": "squared"}}, "squared loss needs a numeric label"),
        ({"problem": {"loss": "mean", "radius": 1e-3}}, "expected at most problem.radius = 0.001"),
        ({"data": {"source": "clinics", "options": {"colour": 1}}}, "colour"),
        ({"privacy": {"epsilon": 1.0}}, "dgd is not private: remove the .privacy. table"),
        ({"algorithm": {"name": "dp-dsgd"}}, "dp-dsgd is private, so the plan needs a .privacy. table"),
    ],
)
def test_what_no_run_could_repair_is_refused_before_it_runs(tables: dict, words: str) -> None:
    with pytest.raises(InputError, match=words):
        prepare(plan(**tables))


def test_budgets_per_agent_must_count_the_agents() -> None:
    asked = plan(algorithm={"name": "dp-dsgd"}, privacy={"epsilon": [1.0, 2.0]}, run={"rounds": 5})
    with pytest.raises(InputError, match="lists 2 budgets for 4 parties"):
        price(asked, public_network(asked))


def test_accounting_reads_no_data() -> None:
    """The file does not exist: sizes come from the plan, or the plan is refused."""
    tables = {
        "data": {"source": "csv", "path": "/nowhere/at/all.csv", "label": "y"},
        "partition": {"kind": "iid", "agents": 5, "records": 100},
        "problem": {"loss": "logistic"},
        "algorithm": {"name": "dp-dsgd"},
        "privacy": {"epsilon": 1.0},
        "run": {"rounds": 10},
    }
    stated = validate(tables)
    assert public_sizes(stated).tolist() == [100] * 5
    priced = price(stated, public_network(stated))
    assert priced.spending is not None
    assert priced.spending.worst.epsilon == pytest.approx(1.0, rel=0.01)
    assert priced.spending.worst.epsilon <= 1.0
    with pytest.raises(InputError, match=r"must state partition.sizes"):
        public_network(validate({**tables, "partition": {"kind": "iid", "agents": 5}}))
    with pytest.raises(InputError, match=r"must state problem.loss"):
        public_network(validate({**tables, "problem": {}}))
    listed = validate({**tables, "partition": {"kind": "site", "sizes": [10, 20]}})
    assert public_sizes(listed).tolist() == [10, 20]


def test_a_richer_agent_gets_less_noise() -> None:
    asked = plan(algorithm={"name": "dp-dsgd"}, privacy={"epsilon": [0.5, 1.0, 1.0, 4.0]}, run={"rounds": 5})
    network = public_network(asked)
    priced = price(asked, network)
    assert priced.noise[0] > priced.noise[1] > priced.noise[3]
    assert (priced.spending.per_agent <= np.array([0.5, 1.0, 1.0, 4.0])).all()


def test_paths_are_relative_to_the_plan_and_those_of_the_command_line_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "study"
    folder.mkdir()
    (folder / "book.toml").write_text('classes = ["no", "yes"]\n[bounds]\nage = [0, 100]\nsize = [0, 9]\n')
    (folder / "plan.toml").write_text(
        '[data]\nsource = "csv"\npath = "t.csv"\nlabel = "ill"\ncodebook = "book.toml"\n'
        '[data.options]\nbounds = { age = [0, 120] }\n[algorithm]\nname = "dgd"\n'
    )
    monkeypatch.chdir(tmp_path)
    plan = read_plan(Path("study/plan.toml"))
    assert plan.data.path == Path("study/t.csv")
    assert plan.data.options == {"classes": ["no", "yes"], "bounds": {"age": [0, 120], "size": [0, 9]}}
    assert validate(plan.as_json()) == plan, "a saved run needs neither file"
    changed = read_plan(Path("study/plan.toml"), ["data.path=mine.csv", "data.options.bounds.size=[1, 2]"])
    assert changed.data.path == Path("mine.csv")
    assert changed.data.options["bounds"] == {"age": [0, 120], "size": [1, 2]}
    (folder / "book.toml").unlink()
    with pytest.raises(InputError, match=r"cannot read code book study/book.toml: No such file"):
        read_plan(Path("study/plan.toml"))
    (folder / "plan.toml").write_text('[data]\nsource = "csv"\npath = "/data/t.csv"\nlabel = "y"\n')
    assert read_plan(folder / "plan.toml").data.path == Path("/data/t.csv")
