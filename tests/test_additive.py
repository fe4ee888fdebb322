"""Additive models end to end: against an independent computation, in plans, in Python, as scikit-learn, on the page."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.linalg import sqrtm
from scipy.optimize import minimize
from scipy.special import expit

import coterie as ct
from coterie.algorithms import dp_dsgd
from coterie.algorithms.base import Public
from coterie.api.curves import Curves
from coterie.data.bins import bins_of
from coterie.data.encode import Number
from coterie.deploy.data import read_records
from coterie.deploy.process import open_party
from coterie.deploy.terms import Terms
from coterie.deploy.trial import sign_trial
from coterie.drivers.references import pooled
from coterie.estimators import (
    AdditiveClassifier,
    AdditiveRegressor,
    PrivateAdditiveClassifier,
    PrivateAdditiveRegressor,
)
from coterie.experiment import prepare, public_network
from coterie.losses.logistic import Logistic
from coterie.plan import Plan, validate
from coterie.pricing import price
from coterie.problems.additive import AdditiveModel
from coterie.report.html import run_page
from coterie.report.party import party_page
from coterie.report.released import party_model
from coterie.report.sealing import plan_hash
from coterie.report.shapes import shapes
from coterie.worth.bands import noise_alone
from tests.support import mostly_slow

AGES, JOBS = (20.0, 40.0, 60.0, 80.0), ("nurse", "cook", "pilot")
ATTRIBUTES = {"age": (0, 100), "job": list(JOBS)}


def records(count: int, seed: int = 0, gaps: float = 0.1) -> pd.DataFrame:
    """A risk that is not linear in age; some fields are empty."""
    rng = np.random.default_rng(seed)
    age, job = rng.uniform(-5, 105, count), rng.choice(JOBS, count)
    odds = 3 * np.cos(age / 16) + (job == "pilot")
    table = pd.DataFrame({"age": age, "job": job, "y": np.where(rng.random(count) < expit(odds), "ill", "well")})
    table.loc[rng.random(count) < gaps, "age"] = np.nan
    table.loc[rng.random(count) < gaps, "job"] = np.nan
    return table


def plan_of(path: Path, *, privacy: bool = True, exchange: dict[str, Any] | None = None, **problem: Any) -> Plan:
    tree: dict[str, Any] = {
        "data": {
            "source": "csv", "path": path, "label": "y",
            "options": {"classes": ["well", "ill"], "bounds": {"age": [0, 100]}, "categories": {"job": list(JOBS)}},
        },
        "partition": {"kind": "iid", "agents": 4},
        "graph": {"kind": "complete"},
        "problem": {"loss": "logistic", "model": "additive", "bins": {"age": 20}, **problem},
        "run": {"references": "none"},
    }  # fmt: skip
    if privacy:
        tree["privacy"] = {"epsilon": 2.0, "delta": 1e-5}
    else:
        tree["algorithm"] = {"name": "dgd"}
    return validate(tree if exchange is None else tree | {"exchange": exchange})


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("additive") / "records.csv"
    records(1600).to_csv(path, index=False)
    return path


# ---- an independent computation: numbers of bins and bincount, no features, no JAX -----------------------------------


def numbered(frame: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """(records, 2) numbers of bins, 6 of age and 4 of job, each `missing` last; labels ±1."""
    age = frame["age"].to_numpy(float)
    ages = [5 if np.isnan(a) else sum(a >= edge for edge in AGES) for a in age]
    jobs = [6 + (JOBS.index(j) if isinstance(j, str) else 3) for j in frame["job"]]
    return np.column_stack([ages, jobs]), np.where(frame["y"] == "ill", 1.0, -1.0)


def root(alike: float) -> np.ndarray:
    """Vectors of the ten bins as rows: five of age, alike by their distance; all others stand apart."""
    out, place = np.eye(10), np.arange(5)
    out[:5, :5] = np.real(sqrtm(np.power(alike, np.abs(place[:, None] - place), dtype=float)))
    return out


def bins_in(features: np.ndarray, alike: float) -> np.ndarray:
    """(records, 2) numbers of bins, from features."""
    ones = np.rint(np.sqrt(2) * features @ np.linalg.inv(root(alike))).astype(int)
    assert (ones.sum(1) == 2).all()
    assert ((ones == 0) | (ones == 1)).all()
    return np.argwhere(ones)[:, 1].reshape(-1, 2)


def sum_of_slopes(theta: np.ndarray, bins: np.ndarray, y: np.ndarray, clip: float, alike: float) -> np.ndarray:
    curve = root(alike) @ theta
    slope = np.clip(-y * expit(-y * curve[bins].sum(1) / np.sqrt(2)), -clip, clip)
    return root(alike).T @ np.bincount(bins.ravel(), np.repeat(slope, 2), minlength=10) / np.sqrt(2)


@pytest.mark.parametrize("alike", [0.0, 0.5])
def test_a_run_is_what_an_independent_program_makes_of_its_draws(table: Path, alike: float) -> None:
    """dp-dsgd on the complete graph with the recorded draws, written again from its formulas: the same models."""
    plan = plan_of(table, alike=alike)
    made = prepare(plan)
    priced = price(plan, made.network)
    trace = made.run(priced, [7], record=True, every=priced.rounds)
    cfg, sizes = priced.cfg, np.asarray(made.network.sizes)
    assert cfg.mixing == 1
    assert trace.draws is not None
    held = [bins_in(made.features[part], alike) for part in made.parts]
    labels = [np.asarray(made.targets)[part] for part in made.parts]
    x = before = mean = np.zeros((4, 10))
    noise = np.asarray(trace.draws["noise"])[0]
    multiplier = np.asarray(priced.noise)
    for t in range(priced.rounds):
        slopes = np.array([sum_of_slopes(x[i], held[i], labels[i], cfg.clip, alike) / sizes[i] for i in range(4)])
        sigma = multiplier * 2 * cfg.step * cfg.clip / sizes
        y = x + cfg.momentum * (x - before) - cfg.step * (slopes + plan.ridge * x) + sigma[:, None] * noise[t]
        before, x = x, np.tile(y.mean(0), (4, 1))
        mean = mean + (x - mean) / max(1.0, t + 1 - np.floor((1 - cfg.tail) * priced.rounds))
    assert np.asarray(trace.points[0]) == pytest.approx(mean, abs=1e-8)


def test_the_optimum_is_that_of_bins_and_bincount(table: Path) -> None:
    plan = plan_of(table, privacy=False, ridge=1e-3, alike=0.0)
    made = prepare(plan)
    found = np.asarray(pooled(made.layout(1)))
    bins = np.array([np.flatnonzero(row) for row in made.features])
    y = np.asarray(made.targets)
    weight = np.concatenate([np.full(len(p), 1 / (4 * len(p))) for p in made.parts])[
        np.argsort(np.concatenate(made.parts))
    ]

    def objective(theta: np.ndarray) -> float:
        margin = y * theta[bins].sum(1) / np.sqrt(2)
        return float(weight @ np.logaddexp(0, -margin) + 1e-3 / 2 * theta @ theta)

    best = minimize(objective, np.zeros(10), method="BFGS", options={"gtol": 1e-8})
    assert objective(found) == pytest.approx(best.fun, abs=1e-9)
    assert found == pytest.approx(best.x, abs=1e-3)


def test_features_are_the_numbers_of_bins(table: Path) -> None:
    """Every record of the table, in whatever order: the same bins as found by hand, gaps and out of range included."""
    made = prepare(plan_of(table, privacy=False))
    ours = bins_in(np.concatenate([made.features, made.test.features]), 0.5)
    mine, _ = numbered(pd.read_csv(table))
    assert sorted(map(tuple, ours.tolist())) == sorted(map(tuple, mine.tolist()))


# ---- plans -----------------------------------------------------------------------------------------------------------

SHARED = {"kind": "secret-sum", "noise": "central", "honest": 3}


@pytest.mark.parametrize("exchange", [None, SHARED, {"kind": "secret-sum"}])
def test_the_price_needs_no_record_and_is_that_of_a_linear_model(table: Path, exchange: dict | None) -> None:
    """Rows of norm 1 are rows of norm at most 1: bins change nothing of what is paid."""
    tree = plan_of(table, exchange=exchange).as_json()
    tree["partition"] = {"kind": "iid", "agents": 4, "records": 300}
    tree["data"]["path"] = "nobody has this.csv"
    tree["run"]["rounds"] = 24  # the rule for their number is another one
    additive = validate(tree)
    tree["problem"] = {"loss": "logistic", "dim": 10, "ridge": tree["problem"]["ridge"]}
    linear = validate(tree)
    one, two = (price(plan, public_network(plan)) for plan in (additive, linear))
    assert one.noise == pytest.approx(two.noise)
    assert one.claims[0].account.epsilon == pytest.approx(2.0, rel=1e-3)
    assert public_network(additive).problem.dim == 10


def test_dp_dsgd_goes_farther_on_additive_models_where_there_is_much_to_learn_from() -> None:
    """.6 s μ for .4 s μ from 1,000 on; less and less below."""
    model = AdditiveModel(Logistic(3), bins_of({"age": Number(0, 90)}, {"age": [30.0]}))
    base = Public(
        agents=2, rounds=9, dim=3, count_min=9, count_max=9, degree_min=1, degree_max=1, laplacian_max=2.0,
        mixing_gap=1.0, ridge=0.0, lipschitz=1.0, smoothness=0.25, epsilon=1.0, delta=1e-5,
    )  # fmt: skip
    one = dp_dsgd.signal_to_noise(replace(base, strength=1.0))
    for wanted, share in ((5000.0, 0.6), (1000.0, 0.6), (1000 / 16, 0.3)):
        public = replace(base, strength=wanted / one)
        assert dp_dsgd._travel(public) == pytest.approx(0.4 * wanted)
        assert dp_dsgd._travel(replace(public, problem=model)) == pytest.approx(share * wanted)


def test_smoothing_changes_what_is_said_and_nothing_that_is_sent(table: Path) -> None:
    traces = {}
    for smooth in (None, 5.0):
        plan = plan_of(table, smooth=smooth, monotone={"age": "down"} if smooth else None)
        made = prepare(plan)
        priced = price(plan, made.network)
        traces[smooth] = made.run(priced, [0], record=True, every=priced.rounds)
    messages = [np.asarray(traces[key].messages.y) for key in (None, 5.0)]
    assert np.array_equal(*messages)
    assert np.array_equal(*(trace.points for trace in traces.values()))
    assert (
        traces[None].curves["test_score"][0, -1] > traces[5.0].curves["test_score"][0, -1]
    )  # a risk that goes up again


@pytest.mark.slow
@pytest.mark.parametrize("slug", mostly_slow(["gauss-avg-gd", "qdpsgd1", "dp-consensus-gd"], "gauss-avg-gd"))
def test_other_methods_run_unchanged(table: Path, slug: str) -> None:
    tree = plan_of(table).as_json()
    tree["algorithm"], tree["run"]["rounds"] = {"name": slug}, 6
    made = prepare(validate(tree))
    trace = made.run(price(made.plan, made.network), [0], every=6)
    assert trace.points.shape == (1, 4, 10)
    assert np.isfinite(trace.points).all()


@pytest.mark.slow
def test_the_band_is_the_deviation_of_a_bin_that_nobody_is_in(table: Path) -> None:
    """Nothing is missing in this table: the two bins for it hold noise alone, as a hundred seeds show."""
    frame = records(1600, gaps=0.0)
    path = table.parent / "no gaps.csv"
    frame.to_csv(path, index=False)
    plan = plan_of(path)
    made = prepare(plan)
    priced = price(plan, made.network)
    told = noise_alone(plan, made.network, priced)
    trace = made.run(priced, list(range(100)), every=priced.rounds)
    points = np.asarray(trace.points).mean(axis=1)
    empty = [5, 9]  # `missing` of both
    assert not made.features[:, empty].any()
    assert points[:, empty].std() == pytest.approx(told, rel=0.2)
    full = [k for k in range(10) if k not in empty]
    assert points[:, full].std(axis=0).max() < told  # bins with records have less


# ---- Python, files, pages --------------------------------------------------------------------------------------------


def sites(count: int = 3, each: int = 500) -> list[tuple[pd.DataFrame, np.ndarray]]:
    frames = [records(each, seed=k + 1) for k in range(count)]
    return [(frame[["age", "job"]], frame["y"].to_numpy()) for frame in frames]


@pytest.fixture(scope="module")
def run() -> ct.Trained:
    task = ct.additive(ATTRIBUTES, classes=["well", "ill"], bins={"age": 20}, smooth=0.2)
    return ct.train(task, ct.complete(sites()), ct.dp_dsgd(), ct.Budget(4.0, 1e-5), seed=0, test=sites(1)[0])


@pytest.mark.slow
def test_a_run_in_python_predicts_raw_records(run: ct.Trained, tmp_path: Path) -> None:
    X, y = sites(1, 400)[0]
    assert run.private
    assert run.score(X, y) > 0.75
    again = X[["job", "age"]]
    assert np.array_equal(run.predict(again), run.predict(X))
    run.save(tmp_path / "a")
    loaded = ct.load(tmp_path / "a")
    assert np.array_equal(loaded.predict_proba(X), run.predict_proba(X))
    assert loaded.curves.as_json() == run.curves.as_json()
    with pytest.raises(ct.InputError, match="X: the attribute 'job' is missing: its columns are"):
        run.predict(X[["age"]])
    with pytest.raises(ct.InputError, match="has no curves"):
        _ = ct.train(ct.mean(), ct.ring([np.zeros((9, 1))] * 3), budget=ct.Budget(1.0, 1e-5)).curves


def test_curves_say_what_the_model_says(run: ct.Trained, tmp_path: Path) -> None:
    """The file alone, read by hand: intercept, one value for the bin of each attribute; and as scikit-learn."""
    X, _ = sites(1, 300)[0]
    run.curves.save(tmp_path / "curves.json")
    told = json.loads((tmp_path / "curves.json").read_text("utf-8"))
    age, job = told["attributes"]
    score = []
    for a, j in zip(X["age"], X["job"], strict=True):
        first = age["missing"] if np.isnan(a) else age["values"][int(np.searchsorted(age["edges"], a, side="right"))]
        second = job["values"][job["levels"].index(j)] if isinstance(j, str) else job["missing"]
        score.append(told["intercept"] + first + second)
    assert np.array_equal(np.where(np.array(score) > 0, "ill", "well"), run.predict(X))
    model = AdditiveClassifier(tmp_path / "curves.json").fit()
    assert model.decision_function(X) == pytest.approx(np.array(score))
    assert np.array_equal(model.predict(X), run.predict(X))
    assert model.predict_proba(X) == pytest.approx(run.predict_proba(X))
    assert np.mean(age["values"]) == pytest.approx(0, abs=1e-12)
    assert Curves.read(told).as_json() == told
    assert told["noise"] > 0
    with pytest.raises(ct.InputError, match="AdditiveRegressor does not fit these curves"):
        AdditiveRegressor(told).fit()
    with pytest.raises(ct.InputError, match="these are no curves"):
        Curves.read({"model": "additive", "schema": 1})


@pytest.mark.slow
def test_pairs_and_many_classes() -> None:
    rng = np.random.default_rng(0)
    made = []
    for _ in range(3):
        x = rng.uniform(0, 1, (1500, 2))
        one, two = x[:, 0] > 0.5, x[:, 1] > 0.5
        made.append((x, np.where(x[:, 1] > 0.8, 2, one == two)))  # no sum of two curves tells 0 from 1
    labels = [0, 1, 2]
    both = {"0": (0, 1), "1": (0, 1)}
    bins = {"0": [0.5], "1": [0.5, 0.8]}
    X, y = made[0]
    alone, paired = (
        ct.train(ct.additive(both, classes=labels, bins=bins, pairs=pairs), ct.complete(made), ct.dp_dsgd(),
                 ct.Budget(4.0, 1e-5), seed=0)
        for pairs in ((), [("0", "1")])
    )  # fmt: skip
    assert paired.score(X, y) > 0.99 > alone.score(X, y)
    assert paired.model["0 × 1"].shape == (3, 4, 3)
    told = paired.curves
    assert np.array_equal(AdditiveClassifier(told.as_json()).fit().predict(pd.DataFrame(X, columns=["0", "1"])), y)
    assert shapes(told.as_json()) is None  # a curve for each of three classes is no picture


def test_what_cannot_be_in_python() -> None:
    parties = ct.ring(sizes=[100] * 3)
    for broken, words in (
        (lambda: ct.additive({"age": (0,)}), r"attributes\['age'\] must be \(low, high\) or a list of texts"),
        (lambda: ct.additive([(0, 1)]), "attributes must be a dictionary"),
        (lambda: ct.additive({"age": (1, 0)}), "must be"),
        (lambda: ct.additive(ATTRIBUTES, bins=5), "bins"),
        (lambda: ct.price(ct.additive(ATTRIBUTES, bins={"sex": 1}), parties, ct.dp_dsgd(), ct.Budget(1, 1e-5)), "sex"),
        (
            lambda: ct.price(
                ct.additive(ATTRIBUTES), ct.ring(sizes=[9] * 3, bounds=(0, 1)), ct.dp_dsgd(), ct.Budget(1, 1e-5)
            ),
            "from its attributes",
        ),
    ):
        with pytest.raises(ct.InputError, match=words) as told:
            broken()
        assert "\n" not in str(told.value)


def test_the_page_draws_every_curve(run: ct.Trained, tmp_path: Path) -> None:
    """Both attributes, the band by its number, densities marked as of home; and what leaves has none of them."""
    run.save(tmp_path)
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "a curve for each attribute" in page
    assert page.count('class="band run"') >= 10
    assert page.count('class="share"') >= 8
    assert "at home only" in page
    assert "at_home" not in (tmp_path / "curves.json").read_text("utf-8")
    assert "at_home" not in (tmp_path / "certificate.json").read_text("utf-8")
    result = json.loads((tmp_path / "result.json").read_text("utf-8"))
    held = np.array(result["additive"]["at_home"]["shares"])
    assert held[:6].sum() == pytest.approx(1)
    assert held[6:].sum() == pytest.approx(1)
    hostile = json.loads(json.dumps(result))
    hostile["additive"]["attributes"][1]["levels"][0] = "<script>alert(1)</script>"
    assert "<script>alert" not in run_page(hostile, None)
    without = {**result, "additive": None}
    assert "a curve for each attribute" not in run_page(without, None)


# ---- between real parties --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def clinic(tmp_path_factory: pytest.TempPathFactory) -> tuple[Plan, Path, Path]:
    """A deployed plan over tables of the parties' own, one of those tables, and a party's folder with a model in it."""
    place = tmp_path_factory.mktemp("clinic")
    tree = plan_of(place / "nobody has this.csv", smooth=0.5).as_json()
    del tree["data"]["path"]
    tree |= {"partition": {"kind": "iid", "sizes": [40] * 3}, "graph": {"kind": "ring"}, "run": {"rounds": 6}}
    tree["deploy"] = {"parties": [{"name": name, "address": f"{name}.example:443"} for name in ("ada", "ben", "cleo")]}
    plan, tables = validate(tree), [place / f"{k}.csv" for k in range(3)]
    for k, path in enumerate(tables):
        records(40, seed=k, gaps=0.2).to_csv(path, index=False)
    agreement, held = sign_trial(plan, [read_records(plan, path) for path in tables], place / "trial")
    with open_party(agreement, held[0].keys, held[0].data, held[0].state):
        pass
    point = np.linspace(-1, 1, 10)
    model = party_model(point, plan=plan_hash(plan), rounds=6, epsilon=2.0, delta=1e-5)
    (held[0].state / "model.npz").write_bytes(model)
    return plan, tables[0], held[0].state


def test_a_party_puts_its_own_table_into_the_bins_of_the_plan(clinic: tuple[Plan, Path, Path]) -> None:
    """The number of features is the plan's, known before any table is read; gaps and strangers have a place."""
    plan, path, _ = clinic
    assert plan.problem.dim == 10
    terms, held = Terms.of(plan), read_records(plan, path)
    by_hand, y = numbered(pd.read_csv(path))
    assert np.array_equal(bins_in(held.features, 0.5), by_hand)
    shard = terms.outline(0).shard(held)
    assert np.array_equal(np.asarray(shard.features)[:40], held.features)  # nothing was pulled back
    assert np.array_equal(np.asarray(shard.targets)[:40], y)


@pytest.mark.slow
def test_a_party_s_page_shows_densities_to_its_owner_alone(clinic: tuple[Plan, Path, Path]) -> None:
    plan, path, state = clinic
    public, own = party_page(state), party_page(state, read_records(plan, path), read_records(plan, path))
    for page in (public, own):
        assert "a curve for each attribute" in page
        assert page.count('class="band run"') == 10
    assert 'class="share"' not in public
    assert "at home only" not in public
    assert own.count('class="share"') >= 8
    assert "For you alone" in own


def pieces(page: str) -> list[str]:
    """Sections, tiles and paragraphs of a page that have a number in what is shown; without the time it was made."""
    body = re.sub(r"<(script|style).*?</\1>", "", page[page.index("<body") :], flags=re.DOTALL)
    body = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", "", body)
    whole = re.findall(r"<section.*?</section>", body, re.DOTALL)
    rest = re.split(r"(?<=</p>)|(?<=</li>)", re.sub(r"<section.*?</section>", "", body, flags=re.DOTALL))
    texts = [" ".join(re.sub(r"<[^>]*>", " ", part).split()) for part in [*whole, *rest]]
    return [text for text in texts if re.search(r"\d", text)]


def test_every_number_of_a_party_s_page_is_covered_or_marked_as_at_home(clinic: tuple[Plan, Path, Path]) -> None:
    """Made without records the page is the same whatever they are; with them, all that is new says that it stays."""
    plan, path, state = clinic
    mine = read_records(plan, path)
    other = mine._replace(features=mine.features[::-1].copy())
    public = pieces(party_page(state))
    assert len(public) > 8
    seen = []
    for held in (mine, other):
        new = [piece for piece in pieces(party_page(state, held, held)) if not any(piece in p for p in public)]
        assert len(new) >= 3
        for piece in new:
            assert re.search("at home|For you alone", piece, re.IGNORECASE), piece[:400]
        seen.append(new)
    assert seen[0] != seen[1]  # these do depend on the records: what the marks are for


# ---- scikit-learn ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_estimators_take_texts_and_gaps() -> None:
    frame = records(3000, seed=5)
    X, y = frame[["age", "job"]], frame["y"].to_numpy()
    model = PrivateAdditiveClassifier(
        epsilon=4.0, bounds={"age": (0, 100), "job": list(JOBS)}, bins={"age": 10}, classes=["ill", "well"],
        monotone={"age": "up"}, random_state=0, graph="complete",
    ).fit(X, y)  # fmt: skip
    assert model.private_
    assert model.score(X, y) > 0.55
    assert (np.diff(model.curves_.values[0][:-1, 0]) >= -1e-12).all()
    unknown = pd.DataFrame({"age": [np.nan, 1e9], "job": ["plumber", None]})
    assert model.predict_proba(unknown).sum(axis=1) == pytest.approx(1)
    kept = AdditiveClassifier(model.curves_.as_json()).fit()
    assert np.array_equal(kept.predict_proba(X), model.predict_proba(X))
    with pytest.raises(ct.InputError, match="columns of texts need a DataFrame"):
        model.predict(X.to_numpy())
    with pytest.raises(ct.InputError, match="bins names 'height'"):
        PrivateAdditiveClassifier(
            bounds={"age": (0, 9), "job": list(JOBS)}, bins={"height": 1}, classes=["ill", "well"]
        ).fit(X, y)


def test_a_regressor_predicts_in_the_units_of_the_target() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 10, (4000, 2))
    y = 100 + 4 * (X[:, 0] - 5) ** 2
    model = PrivateAdditiveRegressor(epsilon=4.0, bounds=(0, 10), target_bounds=(100, 200), random_state=0).fit(X, y)
    assert model.score(X, y) > 0.85
    kept = AdditiveRegressor(model.curves_).fit()
    assert kept.predict(pd.DataFrame(X, columns=["0", "1"])) == pytest.approx(model.predict(X))
    assert isinstance(model.bins_.attributes[0].edges, tuple)
    assert not hasattr(model, "coef_")
    with pytest.raises(ct.InputError, match=r"target_bounds must be \(low, high\)"):
        PrivateAdditiveRegressor(bounds=(0, 10), target_bounds=(1, 2, 3)).fit(X, y)


def test_a_problem_with_bins_is_what_its_plan_states(table: Path) -> None:
    """A certificate is of a problem that its plan can make again: equal, field by field."""
    plan = plan_of(table, smooth=1.0, monotone={"age": "up"}, pairs=[["age", "job"]])
    one, two = prepare(plan).network.problem, public_network_of(plan)
    assert isinstance(one, AdditiveModel)
    assert one == two
    assert one != prepare(plan_of(table)).network.problem


def public_network_of(plan: Plan) -> Any:
    tree = plan.as_json()
    tree["partition"] = {"kind": "iid", "agents": 4, "records": 300}
    return public_network(validate(tree)).problem
