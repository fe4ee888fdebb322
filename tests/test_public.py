"""`import coterie as ct`: the names, what each of them does, every mistake in one line, the folder that it leaves."""

from __future__ import annotations

import doctest
import importlib
import inspect
import json
import shutil
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import networkx as nx
import numpy as np
import pandas as pd
import pytest

import coterie as ct
from coterie import cli
from coterie.algorithms.base import all_algorithms
from coterie.api.coding import columns_taken
from coterie.data import load as load_data
from coterie.errors import InputError
from coterie.graphs import KINDS
from coterie.report.stub import PLACE, stub

ROOT = Path(__file__).parents[1]
BUDGET = ct.Budget(1.0, 1e-5)
WRITTEN = {
    "Budget", "DataAccount", "InputError", "Parties", "Price", "Task", "Trained", "__version__", "additive",
    "algorithm", "audit", "graph", "hinge", "join", "load", "logistic", "loss", "mean", "mlp", "neural", "price",
    "softmax",
    "squared", "statistics", "train",
}  # fmt: skip


def sites(count: int = 3, records: int = 60, scale: float = 0.5, seed: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    x = np.random.default_rng(seed).uniform(-scale, scale, (count, records, 2))
    return [(part, np.where(part[:, 0] > 0, 1, -1)) for part in x]


def quick(task: Any = None, parties: Any = None, *rest: Any, **options: Any) -> ct.Trained:
    given = rest or (ct.dp_dsgd(mixing=1, momentum=0.5), BUDGET)
    return ct.train(task or ct.logistic(), parties or ct.ring(sites()), *given, **{"rounds": 4, "seed": 0, **options})


def test_probabilities_are_those_of_the_predictions(tmp_path: Path) -> None:
    """Of a run, and of the same one loaded again; a loss that states none says so."""
    run, x = quick(rounds=20), sites()[0][0]
    chances = run.predict_proba(x)
    assert chances.shape == (len(x), 2)
    assert np.allclose(chances.sum(axis=1), 1)
    assert (np.where(chances[:, 1] > 0.5, 1, -1) == run.predict(x)).all()
    run.save(tmp_path / "a")
    assert np.array_equal(ct.load(tmp_path / "a").predict_proba(x), chances)
    with pytest.raises(InputError, match="states no probabilities"):
        quick(ct.hinge()).predict_proba(x)


# ---- names -----------------------------------------------------------------------------------------------------------


def test_dir_shows_exactly_the_public_names() -> None:
    found = {name.replace("-", "_") for name in (*all_algorithms(), *KINDS.names)} - {"listed", "file"}
    assert set(dir(ct)) == WRITTEN | found
    assert all(getattr(ct, name) is not None for name in dir(ct))
    with pytest.raises(AttributeError, match="no_such_name"):
        ct.no_such_name  # noqa: B018


def test_importing_and_listing_load_nothing_heavy() -> None:
    script = (
        "import sys, coterie; dir(coterie); coterie.Budget(1.0, 1e-5); coterie.logistic(); "
        "print(sorted({'jax', 'equinox', 'pandas', 'sklearn', 'matplotlib', 'networkx'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", sorted({*dir(ct)} - {"__version__", "InputError", "Budget"}))
def test_every_name_has_a_type_and_an_example(name: str) -> None:
    thing = getattr(ct, name)
    text = inspect.getdoc(thing) or ""
    assert ">>> " in text, f"{name} has no example"
    if inspect.isfunction(thing):
        signature = inspect.signature(thing)
        assert signature.return_annotation is not signature.empty
        assert all(p.annotation is not p.empty for p in signature.parameters.values())
    if inspect.isfunction(thing) and thing.__module__ == "coterie":  # made when asked for: no doctest finds it
        example = doctest.DocTestParser().get_doctest(text, {}, name, None, None)
        assert doctest.DocTestRunner(verbose=False).run(example).failed == 0


def test_the_stub_is_fresh() -> None:
    assert (ROOT / PLACE).read_text("utf-8") == stub(), "make docs"


def test_type_checkers_see_settings(tmp_path: Path) -> None:
    (tmp_path / "use.py").write_text(
        "import coterie as ct\nct.dp_dsgd(clip=1.0)\nct.dp_dsgd(clipp=1.0)\nct.ring(sizes=['a'])\nct.rign()\n"
    )
    alone = ["--follow-imports=skip", "--ignore-missing-imports", "--config-file="]  # the stub and nothing behind it
    command = [sys.executable, "-m", "mypy", *alone, str(tmp_path / "use.py"), str(ROOT / PLACE)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    said = [line for line in done.stdout.splitlines() if "use.py" in line and "error" in line]
    assert [line.split("use.py:")[1][0] for line in said] == ["3", "4", "5"]


# ---- what it does ----------------------------------------------------------------------------------------------------


def test_ten_lines(tmp_path: Path) -> None:
    """The interface as it is shown: train, cost, score, save, price."""
    net, task = ct.ring(sites(records=300)), ct.logistic(ridge=1e-4)
    x, y = sites(1, 200, seed=1)[0]
    run = ct.train(task, net, ct.dp_dsgd(), BUDGET, seeds=2, seed=0)
    assert run.epsilon == pytest.approx(1.0, rel=1e-6)
    assert run.private
    assert run.score(x, y) > 0.85
    assert run.score(x, y) == np.mean(run.predict(x) == y)
    cost = ct.price(task, net, ct.dp_dsgd(), BUDGET)
    assert (cost.rounds, cost.epsilon) == (run.rounds, run.epsilon)
    assert "2 seeds for study" in repr(run)
    files = run.save(tmp_path / "a")
    assert {f.name for f in files} >= {"result.json", "model.npz", "certificate.json", "curves.png"}
    again = ct.load(tmp_path / "a")
    assert repr(again) == repr(run)
    np.testing.assert_array_equal(again.predict(x), run.predict(x))
    np.testing.assert_array_equal(again.history["consensus_gap"], run.history["consensus_gap"])


def test_sites_in_every_form_give_one_model() -> None:
    listed = sites()
    frame = pd.concat(
        pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": y, "who": f"clinic {i}"}) for i, (x, y) in enumerate(listed)
    )
    names = [f"clinic {i}" for i in range(3)]
    framed = ct.ring(
        frame.sample(frac=1.0, random_state=0).sort_index(kind="stable"), site="who", label="y", names=names
    )
    assert (framed.names, framed.columns, framed.sizes) == (tuple(names), ("a", "b"), (60, 60, 60))
    named = ct.ring(dict(zip(names, listed, strict=True)))
    assert named.names == framed.names
    points = [quick(parties=p).point for p in (ct.ring(listed), named, framed)]
    np.testing.assert_array_equal(points[0], points[1])
    np.testing.assert_allclose(points[0], points[2], rtol=1e-9)


def test_a_site_column_whose_values_nobody_stated_is_read_from_the_records() -> None:
    frame = pd.DataFrame({"a": [0.1] * 6, "y": [1, -1] * 3, "who": list("xyzxyz")})
    with pytest.warns(UserWarning, match="no privacy can be claimed: who: the names of the sites are read"):
        run = quick(parties=ct.ring(frame, site="who", label="y"))
    assert not run.private
    assert "NOT private" in repr(run)


def test_a_data_set_with_sites() -> None:
    clinics = load_data("clinics", records=300)
    run = quick(parties=ct.star(clinics))
    assert run.names == clinics.site_names
    assert run.score(clinics) == np.mean(run.predict(clinics) == np.where(clinics.targets == 1, 1, -1))


def test_labels_are_those_that_the_task_states() -> None:
    words = [(x, np.where(y > 0, "ill", "healthy")) for x, y in sites()]
    run = quick(ct.logistic(classes=["healthy", "ill"]), ct.ring(words))
    np.testing.assert_array_equal(run.point, quick().point)
    assert set(run.predict(words[0][0])) <= {"healthy", "ill"}
    assert run.score(*words[0]) == quick().score(*sites()[0])


def test_bounds_scale_by_public_numbers_only() -> None:
    """Far records are cut to the public range: nothing about the others changes, and the scale is the plan's."""
    wide = [(100 * x, y) for x, y in sites()]
    run = quick(parties=ct.ring(wide, bounds=(-50, 50)))
    far = [(np.vstack([x, [[1e6, 1e6]]]), np.append(y, 1)) for x, y in wide]
    cut = [(np.vstack([x, [[50.0, 50.0]]]), np.append(y, 1)) for x, y in wide]
    both = [quick(parties=ct.ring(s, bounds=(-50, 50))) for s in (far, cut)]
    np.testing.assert_array_equal(both[0].point, both[1].point)
    assert run.result["plan"]["data"]["options"]["bounds"] == [[-50.0, 50.0]] * 2
    assert run.point.size == 3  # two features and a constant
    assert run.predict([[40.0, 0.0]]).shape == (1,)


def test_a_mean_is_in_the_units_of_the_records() -> None:
    ages = [np.random.default_rng(i).uniform(20, 60, (2000, 1)) for i in range(3)]
    run = ct.train(ct.mean(), ct.complete(ages, bounds=(0, 120)), budget=BUDGET, seed=0)
    assert run.model[0] == pytest.approx(40, abs=2)
    np.testing.assert_array_equal(run.predict(ages[0][:2]), [run.model] * 2)


@pytest.mark.parametrize(
    "task",
    [ct.softmax(["a", "b", "c"]), pytest.param(ct.mlp(["a", "b", "c"], hidden=[4]), marks=pytest.mark.slow)],
    ids=["softmax", "mlp"],
)
def test_several_classes(task: ct.Task, tmp_path: Path) -> None:
    data = [(x, np.array(["a", "b", "c"])[(y > 0) + (x[:, 1] > 0).astype(int)]) for x, y in sites()]
    run = quick(task, ct.ring(data), ct.dp_dsgd(clip=0.5, step=0.5), BUDGET)
    assert set(run.predict(data[0][0])) <= {"a", "b", "c"}
    run.save(tmp_path)
    np.testing.assert_array_equal(ct.load(tmp_path).predict(data[0][0]), run.predict(data[0][0]))


@pytest.mark.parametrize("given", ["networkx", "named", "pairs"])
def test_a_graph_of_ones_own(given: str, tmp_path: Path) -> None:
    if given == "named":
        graph, data = (
            nx.path_graph(["north", "south", "west"]),
            dict(zip(("north", "south", "west"), sites(), strict=True)),
        )
    else:
        graph, data = (nx.path_graph(3), sites()) if given == "networkx" else ([(0, 1), (1, 2)], sites())
    run = quick(parties=ct.graph(graph, data))
    np.testing.assert_allclose(run.point, quick(parties=ct.path(sites())).point, rtol=1e-9)
    run.save(tmp_path)
    assert cli.main(["verify", str(tmp_path / "certificate.json")]) == 0


def test_budgets_may_differ() -> None:
    run = quick(None, None, ct.dp_dsgd(mixing=1), [ct.Budget(e, 1e-5) for e in (0.5, 1.0, 2.0)])
    assert run.result["privacy"]["per_agent"] == pytest.approx([0.5, 1.0, 2.0], rel=1e-5)
    assert run.epsilon == pytest.approx(2.0, rel=1e-5)


def test_without_privacy_there_is_no_budget() -> None:
    run = quick(None, None, ct.dgd(), None)
    assert (run.epsilon, run.delta, run.private) == (float("inf"), None, False)
    assert "no privacy" in repr(run)


def copied(monkeypatch: pytest.MonkeyPatch, name: str, *change: str) -> None:
    """A module of that name, with the text of dp-dsgd, changed or not."""
    text = inspect.getsource(importlib.import_module("coterie.algorithms.dp_dsgd"))
    assert not change or text.count(change[0]) == 1
    package, module = types.ModuleType(name.partition(".")[0]), types.ModuleType(name)
    package.__path__ = []
    for made in (package, module):
        monkeypatch.setitem(sys.modules, made.__name__, made)
    exec(text.replace(*change) if change else text, vars(module))


def test_an_algorithm_of_ones_own_module(monkeypatch: pytest.MonkeyPatch) -> None:
    copied(monkeypatch, "mine.diffusion")
    run = quick(None, None, ct.algorithm("mine.diffusion", mixing=1, momentum=0.5), BUDGET)
    np.testing.assert_array_equal(run.point, quick().point)
    assert run.algorithm == "mine.diffusion"


# ---- the price -------------------------------------------------------------------------------------------------------


class Unread:
    """A table that nobody may look at; its shape is public."""

    shape = (60, 2)

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise AssertionError("a record was read")


def test_a_price_reads_no_record_and_is_that_of_the_run() -> None:
    method = ct.dp_dsgd(mixing=1, momentum=0.5)
    cost = ct.price(ct.logistic(), ct.ring([(Unread(), Unread())] * 3), method, BUDGET, rounds=4)
    sized = ct.price(ct.logistic(), ct.ring(sizes=[60] * 3), method, BUDGET, rounds=4)
    run = quick()
    np.testing.assert_array_equal(cost.noise, sized.noise)
    assert cost.noise.tolist() == run.result["privacy"]["noise_multiplier"]
    assert cost.accounts[0].all == run.result["privacy"]["all_accountants"]
    assert (cost.delta, cost.private, cost.algorithm) == (1e-5, True, "dp-dsgd")
    assert "ε = 1 at δ = 1e-05 (gdp 1" in repr(cost)


def test_a_price_that_depends_on_the_features_asks_for_them() -> None:
    with pytest.raises(InputError, match="depends on the number of features: give features="):
        ct.price(ct.logistic(), ct.ring(sizes=[60] * 3), ct.ldp_dgd_range(), BUDGET, rounds=3)
    cost = ct.price(ct.logistic(), ct.ring(sizes=[60] * 3, features=2), ct.ldp_dgd_range(), BUDGET, rounds=3)
    same = ct.price(ct.logistic(), ct.ring(sites()), ct.ldp_dgd_range(), BUDGET, rounds=3)
    np.testing.assert_allclose(cost.noise, same.noise)


# ---- the audit -------------------------------------------------------------------------------------------------------


@pytest.mark.audit
def test_an_audit_of_a_task_holds_and_knows_what_it_looked_at() -> None:
    found = ct.audit(ct.dp_dsgd(clip=1.0, step=1.0, momentum=0.5, mixing=2), ct.squared(), trials=250)
    assert found.holds
    assert {where for where, _ in found.checks or ()} == {"squared loss"}
    assert repr(found).startswith("<dp-dsgd claims ε = 1 at δ = 1e-05: holds")


@pytest.mark.slow
def test_an_audit_refutes_an_algorithm_that_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same module, but its sensitivity, and so its noise, is a tenth of what is true."""
    copied(monkeypatch, "liar.algorithm", "else 2 * reach", "else 0.2 * reach")
    found = ct.audit(ct.algorithm("liar.algorithm"), ct.logistic(), trials=250)
    assert found.violated
    assert "REFUTED" in repr(found)


@pytest.mark.slow
def test_an_audit_finds_how_many_features_a_loss_of_ones_own_takes() -> None:
    weights = {"w": jnp.zeros(2), "b": jnp.zeros(())}
    tilted = ct.loss(lambda p, x, y: jnp.logaddexp(0.0, -y * (p["w"] @ x + p["b"])), weights)
    free = ct.loss(lambda p, x, y: jnp.sum((p - y) ** 2), jnp.zeros(3))
    never = ct.loss(lambda p, x, y: (p @ x) + jnp.zeros(5) @ p, jnp.zeros(3))
    assert [columns_taken(task.own) for task in (tilted, free)] == [2, 3]
    with pytest.raises(InputError, match="takes no record"):
        columns_taken(never.own)


# ---- mistakes --------------------------------------------------------------------------------------------------------

X, Y = sites()[0]
MISTAKES: list[tuple[str, Any, str]] = [
    ("wrong shape", lambda: ct.ring([(X[:, 0], Y)] * 3), r"site 0: expected a table of features .* \(60,\)"),
    ("pictures", lambda: ct.ring([(X.reshape(-1, 1, 2), Y)] * 3), r"got shape \(60, 1, 2\); .*reshape\(len\(x\), -1\)"),
    ("too few targets", lambda: quick(parties=ct.ring([(X, Y[:-1])] * 3)), "site 0: expected one target for each"),
    ("three classes", lambda: quick(parties=ct.ring([(X, np.arange(60) % 3)] * 3)), "label 0 is not one of the"),
    ("three labels", lambda: ct.logistic(classes=[0, 1, 2]), "two classes apart, got 3.*ct.softmax"),
    ("one class", lambda: ct.softmax(1), "from 2 up"),
    ("other features", lambda: ct.ring([*sites(), (X[:, :1], Y)]), r"same features, got \[1, 2\]"),
    ("a gap", lambda: quick(parties=ct.ring([(np.where(X > 0.4, np.nan, X), Y)] * 3)), "site 0: features are not fin"),
    ("a gap in y", lambda: quick(ct.squared(), ct.ring([(X, np.where(Y > 0, np.nan, 0.0))] * 3)), "finite numbers"),
    ("words", lambda: quick(parties=ct.ring([(X.astype(str).astype(object) + "x", Y)] * 3)), "must be numbers"),
    ("far records", lambda: quick(parties=ct.ring([(9 * X, Y)] * 3)), r"rests on at most 1: scale by public bounds"),
    ("budget for nothing", lambda: quick(None, None, ct.dgd(), BUDGET), "dgd is not private: .* takes no budget"),
    ("no budget", lambda: quick(None, None, ct.dp_dsgd(), None), "give it a budget"),
    ("epsilon 0", lambda: quick(None, None, ct.dp_dsgd(), ct.Budget(0.0, 1e-5)), "epsilon must be > 0"),
    ("epsilon < 0", lambda: ct.price(ct.logistic(), ct.ring(sites()), ct.dp_dsgd(), ct.Budget(-1, 1e-5)), "> 0"),
    ("delta 1", lambda: quick(None, None, ct.dp_dsgd(), ct.Budget(1.0, 1.0)), "delta must be in"),
    ("two budgets", lambda: quick(None, None, ct.dp_dsgd(), [BUDGET] * 2), "2 budgets for 3 parties"),
    ("a list in one", lambda: quick(None, None, ct.dp_dsgd(), ct.Budget([1, 2, 3], 1e-5)), "budgets that differ"),
    ("two deltas", lambda: quick(None, None, ct.dp_dsgd(), [BUDGET, BUDGET, ct.Budget(1.0, 1e-6)]), "epsilon only"),
    ("a number for it", lambda: quick(None, None, ct.dp_dsgd(), 1.0), "a budget is ct.Budget"),
    ("graph size", lambda: ct.graph(nx.path_graph(4), sites()), "4 nodes but there are 3 sites"),
    ("graph nodes", lambda: ct.graph(nx.path_graph(["a", "b", "c"]), sites()), "node 'a' of the graph is neither"),
    ("graph in two", lambda: quick(parties=ct.graph([(0, 1), (2, 3)], sites(4))), "do not connect all 4"),
    ("directed", lambda: ct.graph(nx.DiGraph([(0, 1), (1, 2)]), sites()), "undirected"),
    ("no graph", lambda: ct.graph(7, sites()), "a NetworkX graph, a list of pairs or a path"),
    ("grid", lambda: quick(parties=ct.grid(sites(4), rows=3)), "3 equal rows"),
    ("no degree", lambda: ct.regular(sites()), "missing a required argument: 'degree'"),
    ("one site", lambda: ct.ring(sites(1)), "at least 2 sites"),
    ("no sites", lambda: ct.ring(), "either sites"),
    ("names", lambda: ct.ring(sites(), names=["a"]), "1 names for 3 sites"),
    ("sizes only", lambda: quick(parties=ct.ring(sizes=[5, 5, 5], features=2)), "sizes only: give sites"),
    ("size 0", lambda: ct.ring(sizes=[5, 0]), "whole numbers from 1 up, got 0"),
    ("a setting", lambda: ct.dp_dsgd(clip=-1.0), "algorithm.clip"),
    ("no setting", lambda: ct.dp_dsgd(steps=3), "unknown key algorithm.steps"),
    ("no algorithm", lambda: ct.algorithm("dp-dsdg"), "unknown algorithm 'dp-dsdg'"),
    ("a name for it", lambda: quick(None, None, "dp-dsgd", BUDGET), "made by ct.dp_dsgd()"),
    ("as printed", lambda: quick(None, None, ct.algorithm("pr-admm", as_printed=True), BUDGET), "as_printed"),
    ("no task", lambda: quick("logistic"), "a task is made by ct.logistic"),
    ("no parties", lambda: quick(parties=sites()), "parties are made by ct.ring"),
    ("contract", lambda: quick(ct.squared(), None, ct.pr_admm(), BUDGET), "pr-admm needs"),
    ("graph contract", lambda: quick(None, None, ct.gauss_avg_gd(), BUDGET), "runs on complete graphs"),
    ("rounds", lambda: quick(rounds=0), "run.rounds"),
    ("seeds", lambda: quick(seeds=0), "run.seeds"),
    ("ridge", lambda: quick(ct.logistic(ridge=-1.0)), "problem.ridge"),
    ("own loss", lambda: quick(ct.loss(lambda w, x, y: w @ x, jnp.zeros(5))), "does not fit records of 2 features"),
    ("own vector", lambda: quick(ct.loss(lambda w, x, y: w * x, jnp.zeros(2))), "numbers for a record, not one"),
    ("references", lambda: quick(references=True), "give test="),
    ("frame", lambda: ct.ring(pd.DataFrame({"a": [1.0], "s": ["x"]})), "a frame needs site="),
    ("column", lambda: ct.ring(pd.DataFrame({"a": [1.0]}), site="s"), "has no column 's'"),
    ("words in it", lambda: ct.ring(pd.DataFrame({"a": ["u", "v"], "s": ["x", "y"]}), site="s"), "'a' does not hold"),
    ("bounds", lambda: quick(parties=ct.ring(sites(), bounds=[(0, 1)] * 3)), "for 2 columns"),
    ("text bounds", lambda: quick(parties=ct.ring(sites(), bounds={"0": ["a"], "1": (0, 1)})), "'0' they are text"),
    ("no bounds", lambda: quick(parties=ct.ring(sites(), bounds={"0": (0, 1)})), r"column to \(low, high\); they must"),
    ("radius", lambda: ct.ring(sites(), radius=2.0), "goes with bounds"),
    ("to predict", lambda: quick().predict([[1.0, 2.0, 3.0]]), "expected 2 features, got 3"),
    ("audit", lambda: ct.audit(ct.dgd(), ct.logistic()), "makes no privacy claim"),
    ("audited contract", lambda: ct.audit(ct.pr_admm(), ct.squared()), "pr-admm needs"),
]  # fmt: skip


@pytest.mark.parametrize(("mistake", "words"), [m[1:] for m in MISTAKES], ids=[m[0] for m in MISTAKES])
def test_a_mistake_is_one_line(mistake: Any, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if words != "expected 2 features, got 3":  # which is about a finished run
        monkeypatch.setattr("coterie.experiment.Experiment.run", lambda *_, **__: pytest.fail("it was run"))
    with pytest.raises(InputError, match=words) as caught:
        mistake()
    assert "\n" not in str(caught.value)


# ---- folders ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    quick(seed=None, test=sites(1, seed=5)[0], name="three clinics").save(folder)
    return folder


@pytest.mark.slow
def test_the_folder_is_that_of_coterie_run(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`coterie verify` derives its certificate anew, `coterie report` makes its page, and the result has all keys."""
    assert cli.main(["verify", "--strict", str(saved / "certificate.json")]) == 0
    assert "derived anew yes" in " ".join(capsys.readouterr().out.split())
    shutil.copytree(saved, tmp_path / "copy")
    assert cli.main(["report", str(tmp_path / "copy")]) == 0
    out = tmp_path / "run"
    assert cli.main(["run", "--quiet", "--set", "run.rounds=2", "--seeds", "1", "--out", str(out)]) == 0
    read = lambda folder: json.loads((folder / "result.json").read_text("utf-8"))  # noqa: E731
    assert set(read(saved)) == set(read(out))
    assert {f.name for f in saved.iterdir()} == {f.name for f in out.iterdir()}
    assert read(saved)["evaluation"] == read(out)["evaluation"]
    assert "for study" in read(saved)["noise_source"]


@pytest.mark.slow
def test_a_folder_of_coterie_run_is_loaded(tmp_path: Path) -> None:
    assert cli.main(["run", "clinics", "--quiet", "--set", "run.rounds=2", "--seeds", "1", "--out", str(tmp_path)]) == 0
    run, clinics = ct.load(tmp_path), load_data("clinics")
    assert run.names == clinics.site_names
    assert set(run.predict(clinics)) <= {-1.0, 1.0}
    with pytest.raises(InputError, match=r"certificate\.json"):
        _ = run.ledgers


def test_what_the_training_records_say_is_not_in_the_history(saved: Path) -> None:
    run = ct.load(saved)
    assert set(run.history) == {"round", "consensus_gap", "test_score"}
    assert "train_loss" in run.result["curves"]
    assert "not a release" in run.result["evaluation"]


def test_without_test_records_there_is_no_score(tmp_path: Path) -> None:
    run = quick()
    run.save(tmp_path)
    assert set(run.history) == {"round", "consensus_gap"}
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "Was it worth it? Not judged." in page
    assert cli.main(["verify", str(tmp_path / "certificate.json")]) == 0


def test_a_loss_of_ones_own_has_no_certificate_and_says_so(tmp_path: Path) -> None:
    def absolute(w: jnp.ndarray, x: jnp.ndarray, y: jnp.ndarray) -> jnp.ndarray:
        return jnp.sqrt(1 + (w @ x - y) ** 2)

    task = ct.loss(absolute, jnp.zeros(2), predict=lambda w, x: w @ x)
    run = quick(task)
    quick().save(tmp_path)  # whose certificate must not stay
    run.save(tmp_path)
    assert not (tmp_path / "certificate.json").exists()
    assert "no certificate" in json.loads((tmp_path / "result.json").read_text("utf-8"))["warnings"][-1]
    with pytest.raises(InputError, match=r"ct.load\(folder, its task\)"):
        ct.load(tmp_path)
    np.testing.assert_allclose(ct.load(tmp_path, task).predict(X), run.predict(X), rtol=1e-6)


@pytest.mark.parametrize("name", ["result.json", "model.npz", "certificate.json"])
@pytest.mark.parametrize("how", ["cut", "empty", "gone", "another"])
def test_a_damaged_folder_is_one_line(saved: Path, tmp_path: Path, name: str, how: str) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(saved, folder)
    content = (folder / name).read_bytes()
    if how == "gone":
        (folder / name).unlink()
    else:
        (folder / name).write_bytes({"cut": content[: len(content) // 2], "empty": b"", "another": b"[1]"}[how])
    with pytest.raises(InputError) as caught:
        ct.load(folder)
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="expected a folder"):
        quick().save(tmp_path / "file")
    with pytest.raises(InputError, match=r"holds no result\.json"):
        ct.load(tmp_path)


def test_a_save_that_fails_leaves_no_result(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(saved, folder)
    run = quick()
    monkeypatch.setattr("coterie.report.plots.network", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        run.save(folder)
    with pytest.raises(InputError, match=r"holds no result\.json"):
        ct.load(folder)
