"""A plan that its algorithm, loss, graph or settings cannot keep is one line and exit code 2, before a record is read.

The data of every plan here does not exist: whoever touched it would complain about that instead.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from coterie.algorithms.base import all_algorithms, find
from coterie.cli import main
from coterie.comparison import ComparedMethod, compare
from coterie.contracts import check_contract
from coterie.deploy.trial import sign_trial
from coterie.errors import InputError
from coterie.experiment import public_network
from coterie.plan import Plan, validate
from coterie.pricing import price
from coterie.tables.algorithm import AlgorithmPlan
from tests.deploy.house import small_plan, small_records

PLAN = """
[data]
source = "csv"
path = "nowhere.csv"
label = "y"
options = { classes = ["no", "yes"] }
[partition]
kind = "iid"
agents = 3
[problem]
loss = "logistic"
[privacy]
epsilon = 1.0
[run]
rounds = 4
"""

# what is asked for, and the words of the refusal
BROKEN: dict[str, tuple[list[str], str]] = {
    "a loss that is not convex": (["algorithm.name=pr-admm", "problem.loss=mlp"], "pr-admm needs a convex loss"),
    "a loss with unbounded slope": (["algorithm.name=p-admm", "problem.loss=squared"], "p-admm needs"),
    "a radius that nobody keeps to": (["algorithm.name=sdm", "problem.radius=1.0"], "and problem.radius, or use"),
    "a graph that does not fit": (["algorithm.name=gauss-avg-gd"], "runs on complete graphs"),
    "a schedule without effect": (["algorithm.name=ipp-admm", "privacy.schedule=power"], "privacy.schedule must be"),
    "options of another schedule": (["privacy.schedule_options={rate=0.9}"], "schedule 'uniform' does not take rate"),
    "a tolerance that is not solved to": (
        ["algorithm.name=dp-dsgd", "algorithm.tolerance=0.01"],
        "algorithm.tolerance",
    ),
    "no noise but a budget": (["algorithm.name=dgd"], "dgd "),
    "a claim without a formula": (["algorithm.name=dp-dsgd", "privacy.claim=paper"], "has no formula"),
    "a seed of a graph without chance": (["graph.seed=3"], "graph.seed belongs to graph.kind = 'erdos-renyi' or"),
    "a parameter of another graph": (
        ["graph.degree=3"],
        "graph.degree belongs to graph.kind = 'regular'",
    ),
    "kappa of another rule": (["graph.kappa=2.0"], "graph.kappa belongs to graph.mixing = 'laplacian'"),
    "bits of another exchange": (["exchange.bits=8"], "exchange.bits belongs to exchange.kind = 'quantized'"),
    "single precision of a solver": (["algorithm.name=r-admm", "run.dtype=float32"], "run.dtype = 'float32'"),
    "budgets of other agents": (["privacy.epsilon=[1.0,2.0]"], "lists 2 budgets for 3 parties"),
    "a star's rule on a ring": (["algorithm.name=dp-admm", "algorithm.variant=star"], "needs a star graph"),
    "a star's rule, the sites not counted yet": (
        ["algorithm.name=dp-admm", "algorithm.variant=star", "partition={kind='site'}", "data.site=ward"],
        "needs a star graph",
    ),
    "more rounds with data than rounds": (
        ["algorithm.name=dp-consensus-gd", "algorithm.stage_one=4"],
        "stage_one must be < rounds (4)",
    ),
    "steps that fall faster than the noise": (
        ["algorithm.name=hmv-dgd", "algorithm.noise_ratio=0.2"],
        "noise_ratio must be > step_ratio",
    ),
    "a threshold that rests on the ridge": (
        ["algorithm.name=pr-admm", "algorithm.paper_threshold=true", "problem.ridge=0.0"],
        "set ridge > 0",
    ),
    "a rule for losses with bounded slope": (
        ["algorithm.name=dp-admm", "algorithm.clip=1.0", "problem.loss=squared"],
        "default penalty needs a loss with bounded slope",
    ),
    "a tolerance below rounding": (["algorithm.name=pp-admm", "algorithm.tolerance=1e-13"], "is out of reach"),
    "a subproblem that is too flat": (
        ["algorithm.name=pp-admm", "algorithm.penalty=1e-9", "problem.ridge=1e-9"],
        "gradient steps to solve a subproblem",
    ),
    "a claim for sums that are not all that is read": (
        ["algorithm.name=p-admm", "graph.kind=complete", "exchange={kind='secret-sum',honest=2,noise='central'}"],
        "keeps its own messages",
    ),
    "a claim for sums of another noise": (
        ["algorithm.name=hmv-dgd", "graph.kind=complete", "exchange={kind='secret-sum',honest=2}"],
        "needs Gaussian noise on all records, hmv-dgd has Laplace: remove exchange.honest",
    ),
    "a claim for sums with unequal weights": (
        [
            "algorithm.name=gauss-avg-gd",
            "graph={kind='complete',mixing='laplacian',kappa=4.0}",
            "exchange={kind='secret-sum',honest=2,noise='central'}",
        ],
        "graph.mixing = 'laplacian' is not obeyed by exchange.kind = 'secret-sum'",
    ),
    "a schedule that no number holds": (
        ["privacy.schedule=periodic", "privacy.schedule_options={rate=1e-9}", "run.rounds=200"],
        "schedule spans",
    ),
    "sites without a column": (["partition={kind='site'}"], "needs data.site"),
    "agents that nobody counts": (["partition={kind='iid'}"], "needs partition.agents"),
    "a width of another loss": (["problem.width=0.1"], "problem.width belongs to problem.loss = 'hinge'"),
}
COMMANDS = {
    "run": ["run"], "compare": ["compare", "--epsilons", "1", "--seeds", "1"], "account": ["account"],
    "plan check": ["plan", "check"], "launch": ["launch", "--out", "never"],
}  # fmt: skip
BEFORE = {  # what a command refuses first
    "account": ("accounting reads no data",),
    "launch": ("cannot be deployed", "no agent would take such records"),
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("command", COMMANDS)
def test_refused_before_a_record_is_read(
    command: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.toml").write_text(PLAN)
    changes, words = BROKEN[name]
    if command == "compare" and name == "no noise but a budget":
        pytest.skip("a comparison shows methods without privacy beside the others")
    head, *options = COMMANDS[command]
    where = (
        [head, *options[:1], "plan.toml", *options[1:]] if command == "plan check" else [head, "plan.toml", *options]
    )
    code = main([*where, *(word for change in changes for word in ("--set", change))])
    said = capsys.readouterr().err
    assert code == 2
    assert words in said or any(other in said for other in BEFORE.get(command, ()))
    assert said.count("\n") == 1
    assert "nowhere.csv" not in said
    assert not (tmp_path / "never").exists()


def test_the_twin_without_a_mistake_does_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.toml").write_text(PLAN)
    for command in (["run", "plan.toml"], ["plan", "check", "plan.toml"], ["compare", "plan.toml"]):
        assert main(command) == 2
        assert "cannot read nowhere.csv" in capsys.readouterr().err


@pytest.mark.parametrize("slug", sorted(all_algorithms()))
def test_what_is_possible_is_not_refused(slug: str) -> None:
    """Whatever the sizes are: a plan of every algorithm, with its defaults and as in its example, gets to its data."""
    algorithm = find(slug)
    kind = (algorithm.graphs or ("ring",))[0]
    for settings in ({}, algorithm.example.model_dump(exclude_unset=True)):
        for rounds in (None, 1, 2, 30):
            stage = {"stage_one": 1} if settings.get("stage_one") and rounds else {}
            if stage and rounds == 1:
                continue  # one round cannot both use data and mix
            for partition in ({"kind": "iid", "agents": 2}, {"kind": "iid", "agents": 7}, {"kind": "site"}):
                tree = {
                    "data": {"source": "csv", "path": "nowhere.csv", "label": "y", "site": "ward"},
                    "partition": partition, "graph": {"kind": kind}, "problem": {"loss": "logistic"},
                    "algorithm": {"name": slug, **settings, **stage}, "run": {"rounds": rounds} if rounds else {},
                    **({"privacy": {"epsilon": 0.5}} if algorithm.private else {}),
                }  # fmt: skip
                check_contract(validate(tree))


def test_a_star_may_be_a_path_of_three_sites() -> None:
    """How many sites there are is for the data to say, so the plan is not refused for what four would be."""
    tree = {
        "data": {"source": "csv", "path": "nowhere.csv", "label": "y", "site": "ward"}, "problem": {"loss": "logistic"},
        "graph": {"kind": "path"}, "algorithm": {"name": "dp-admm", "variant": "star"}, "privacy": {},
    }  # fmt: skip
    check_contract(validate(tree))
    with pytest.raises(InputError, match="needs a star graph"):
        check_contract(validate({**tree, "partition": {"kind": "site", "sizes": [10] * 4}}))


def test_a_comparison_checks_all_methods_before_it_reads() -> None:
    tree: dict[str, Any] = {
        "data": {"source": "csv", "path": "nowhere.csv", "label": "y", "options": {"classes": ["a", "b"]}},
        "partition": {"kind": "iid", "agents": 3}, "problem": {"loss": "hinge"}, "privacy": {},
    }  # fmt: skip
    good = ComparedMethod("good", validate(tree))
    bad = ComparedMethod("bad", validate({**tree, "problem": {"loss": "mlp"}, "algorithm": {"name": "pr-admm"}}))
    with pytest.raises(InputError, match="pr-admm needs a convex loss"):
        compare([good, bad], [1.0], 1)


def test_a_stated_dimension_is_obeyed() -> None:
    plan = validate({"problem": {"dim": 7}, "privacy": {}})
    with pytest.raises(InputError, match=r"problem\.dim = 7, but 'clinics' has 12 features"):
        public_network(plan)


@pytest.mark.parametrize("asked", [0.01, 1e-6])
def test_a_tolerance_that_is_asked_for_stays(asked: float) -> None:
    tree = {
        "algorithm": {"name": "pp-admm", "tolerance": asked}, "problem": {"loss": "logistic", "dim": 3},
        "partition": {"kind": "iid", "sizes": [50, 50, 50]}, "privacy": {}, "run": {"rounds": 3},
    }  # fmt: skip
    plan = validate(tree)
    assert price(plan, public_network(plan)).cfg.tolerance == asked


def plan_in_a_ball_that_nobody_keeps() -> Plan:
    sound = small_plan(3)
    ball = sound.problem.model_copy(update={"radius": 1.0})
    return sound.model_copy(update={"problem": ball, "algorithm": AlgorithmPlan(name="sdm")})


def test_an_agent_refuses_a_contract_before_it_looks_at_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Signed by an authority that does not check, as another version might not."""
    bad = plan_in_a_ball_that_nobody_keeps()
    for at in ("coterie.deploy.noise.check_deployable", "coterie.contracts.check_contract"):
        monkeypatch.setattr(at, lambda plan, *_: None)
    monkeypatch.setattr("coterie.deploy.trial.Terms", type("Terms", (), {"of": staticmethod(lambda plan: None)}))
    agreement, sites = sign_trial(bad, small_records(), tmp_path / "t")
    monkeypatch.undo()
    site = sites[0]
    site.data.unlink()
    code = main(["agent", str(agreement), "--me", site.name, "--data", str(site.data), "--keys", str(site.keys),
                 "--state", str(site.state)])  # fmt: skip
    said = capsys.readouterr().err
    assert code == 2
    assert "sdm does not keep its answer in a set" in said
    assert sum(line.startswith("error:") for line in said.splitlines()) == 1
    assert not site.state.exists()


def test_nobody_signs_a_contract_that_fails(tmp_path: Path) -> None:
    bad = plan_in_a_ball_that_nobody_keeps()
    with pytest.raises(InputError, match="sdm does not keep its answer in a set"):
        sign_trial(bad, small_records(), tmp_path / "t")
