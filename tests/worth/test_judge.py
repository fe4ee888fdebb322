"""What a party reaches at home against scikit-learn; who owns which test record; what a run then says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from coterie.data import make_clinics, partition, split
from coterie.data.partition import own_test
from coterie.errors import InputError
from coterie.experiment import prepare
from coterie.losses.logistic import Logistic
from coterie.losses.softmax import Softmax
from coterie.plan import validate
from coterie.pricing import price
from coterie.problems import Ball
from coterie.worth import judge as judging
from coterie.worth.home import RIDGES, at_home, room
from coterie.worth.judge import judge
from coterie.worth.splits import combine, over_splits
from coterie.worth.verdict import sentence


def records(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 4))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    truth = np.array([3.0, -2.0, 1.0, 0.0])
    return x, np.where(rng.random(n) < 1 / (1 + np.exp(-x @ truth)), 1.0, -1.0), truth


def test_alone_is_scikit_learns_model_at_the_ridge_that_cross_validation_chooses() -> None:
    x, y, _ = records(200, 0)
    found = at_home(Logistic(4), x, y, np.empty((0, 4)), rows=333)  # padding changes nothing
    peer = LogisticRegression(C=1 / (len(x) * found.ridge), fit_intercept=False, tol=1e-10, max_iter=1000).fit(x, y)
    np.testing.assert_allclose(found.alone, peer.coef_[0], atol=1.1e-5 / found.ridge)  # gradient norm over ridge
    rng = np.random.default_rng([0, 200])
    fold = np.empty(200, int)
    fold[rng.permutation(200)] = np.arange(200) % 5

    def loss(ridge: float) -> float:
        total = 0.0
        for k in range(5):
            rest = fold != k
            fit = LogisticRegression(C=1 / (rest.sum() * ridge), fit_intercept=False, tol=1e-10, max_iter=5000)
            score = x[~rest] @ fit.fit(x[rest], y[rest]).coef_[0]
            total += np.logaddexp(0, -y[~rest] * score).sum()
        return total

    assert found.ridge == RIDGES[int(np.argmin([loss(ridge) for ridge in RIDGES]))]


def test_a_blend_keeps_to_a_good_model_where_records_are_few_and_leaves_a_bad_one() -> None:
    far: dict[str, list[float]] = {"alone": [], "good": [], "bad": []}
    for seed in range(20):
        x, y, truth = records(40, seed)
        found = at_home(Logistic(4), x, y, np.array([truth, -5 * truth]))
        for name, point in zip(far, (found.alone, *found.blends), strict=True):
            far[name].append(float(np.linalg.norm(point - truth)))
    alone, good, bad = (float(np.median(v)) for v in far.values())
    assert good < 0.5 * alone
    assert bad < 1.5 * alone
    many, labels, _ = records(20_000, 2)
    found = at_home(Logistic(4), many, labels, np.array([-5 * truth]))
    np.testing.assert_allclose(found.blends[0], truth, atol=0.3)


def test_alone_respects_a_constraint() -> None:
    x, y, _ = records(300, 0)
    found = at_home(Logistic(4, constraint=Ball(0.5)), x, y, np.empty((0, 4)))
    assert np.linalg.norm(found.alone) == pytest.approx(0.5, abs=1e-4)


def test_one_record_and_one_class_have_a_model_too() -> None:
    x, _, _ = records(3, 3)
    for n in (1, 3):
        found = at_home(Logistic(4), x[:n], np.ones(n), np.zeros((1, 4)))
        assert np.isfinite(found.alone).all()
        assert np.isfinite(found.blends).all()
    large = at_home(Softmax(4, 200), x, np.arange(3), np.zeros((1, 800)))  # above LARGE: one part is held back
    assert np.isfinite(large.alone).all()


def test_rooms_hold_their_parties_and_are_few() -> None:
    sizes = [5, 800, 799, 300, 1, 260]
    rooms = room(sizes)
    assert all(a >= b for a, b in zip(rooms, sizes, strict=True))
    assert rooms == [5, 800, 800, 800, 1, 260]


@pytest.mark.parametrize("kind", ["iid", "site", "dirichlet"])
def test_every_test_record_has_one_owner_whose_training_records_are_like_it(kind: str) -> None:
    everybody = make_clinics(seed=0)
    train, held = split(everybody, 0.2)
    training, test = everybody.take(train), everybody.take(held)
    unlike = {"concentration": 0.3} if kind == "dirichlet" else {}
    parts = partition(training, None if kind == "site" else 5, kind, seed=0, **unlike)
    owned = own_test(training, parts, test, kind, seed=0)
    assert sorted(np.concatenate(owned)) == list(range(len(test)))
    for mine, rows in zip(parts, owned, strict=True):
        if kind == "site":
            assert training.sites is not None
            assert test.sites is not None
            assert set(test.sites[rows]) <= set(training.sites[mine])
        for label in (0, 1):
            got, share = np.sum(test.targets[rows] == label), np.mean(training.targets[mine] == label)
            if kind != "site":
                assert abs(got - share * len(rows)) <= 1 + 0.02 * len(rows)


PLAN = {
    "data": {"source": "clinics", "options": {"records": 1500}},
    "problem": {"loss": "logistic", "ridge": 1e-3},
    "privacy": {"epsilon": 1.0, "delta": 1e-5},
    "run": {"rounds": 20, "seeds": 2},
}


@pytest.fixture(scope="module")
def told() -> tuple:
    experiment = prepare(validate(PLAN))
    priced = price(experiment.plan, experiment.network)
    trace = experiment.run(priced, [0, 1])
    return experiment, trace, judge(experiment, trace.points)


def test_every_partys_row_is_what_scikit_learn_says_of_it(told: tuple) -> None:
    experiment, trace, judged = told
    for i, found in enumerate(judged.worth["parties"]):
        x, y = experiment.features[experiment.parts[i]], experiment.targets[experiment.parts[i]]
        mine = experiment.own_test[i]
        tx, ty = experiment.test.features[mine], experiment.test.targets[mine]
        assert (found["records"], found["test_records"]) == (len(x), len(tx))
        right = [float(np.mean(np.where(tx @ trace.points[s, i] > 0, 1, -1) == ty)) for s in (0, 1)]
        assert found["private"] == pytest.approx(np.mean(right))
        fits = [LogisticRegression(C=1 / (len(x) * r), fit_intercept=False, max_iter=2000).fit(x, y) for r in RIDGES]
        assert min(abs(found["alone"] - fit.score(tx, ty)) for fit in fits) < 1e-9
        assert found["gain"] == pytest.approx(found["private"] - found["alone"])
    mean = judged.worth["mean"]
    assert mean["alone"] == pytest.approx(np.mean([r["alone"] for r in judged.worth["parties"]]))
    assert judged.references["majority"]["test_auc"] == 0.5
    assert set(judged.references) == {"pooled", "alone", "majority"}


def test_only_what_is_asked_for_is_made(told: tuple) -> None:
    experiment, trace, _ = told
    assert judge(experiment, trace.points, "none").references == {}
    one = judge(experiment, trace.points, "pooled")
    assert set(one.references) == {"pooled", "majority"}
    assert one.worth is None
    assert set(judge(experiment, trace.points, "alone").worth["parties"][0]) >= {"alone", "private", "blend"}


def test_a_constant_is_called_one(told: tuple) -> None:
    experiment, trace, _ = told
    constant = np.zeros_like(trace.points)
    constant[:, :, 0] = -100.0  # the column that is the same for everybody
    judged = judge(experiment, constant)
    assert any("one class of every test record" in warning for warning in judged.warnings)
    assert any("better alone" in warning for warning in judged.warnings)


def test_a_party_with_one_class_is_named(told: tuple) -> None:
    experiment, trace, _ = told
    first, targets = experiment.parts[0], experiment.targets.copy()
    targets[first] = targets[first[0]]
    sided = replace(experiment, targets=targets)
    words = f"all records of {experiment.network.names[0]} are of one class"
    assert any(words in warning for warning in judge(sided, trace.points, "none").warnings)
    assert not any("are of one class" in warning for warning in judge(experiment, trace.points, "none").warnings)


def test_a_run_that_diverged_is_not_judged(told: tuple) -> None:
    experiment, trace, _ = told
    judged = judge(experiment, np.full_like(trace.points, np.nan))
    assert judged.worth is None
    assert judged.metrics == {}


def test_splits_are_combined_party_by_party(told: tuple) -> None:
    worth = told[2].worth
    other = {**worth, "parties": [{**r, "gain": r["gain"] + 0.1, "alone": r["alone"] - 0.1} for r in worth["parties"]],
             "mean": {**worth["mean"], "gain": worth["mean"]["gain"] + 0.1}}  # fmt: skip
    both = combine([worth, other])
    assert both["splits"] == 2
    for one, before in zip(both["parties"], worth["parties"], strict=True):
        assert one["gain"] == pytest.approx(before["gain"] + 0.05)
        assert one["alone"] == pytest.approx(before["alone"] - 0.05)
        assert one["low"] < one["gain"] < one["high"]


def test_a_party_without_test_records_has_a_row_that_says_so(told: tuple) -> None:
    experiment, trace, judged = told
    mine = experiment.own_test
    without = replace(experiment, own_test=[mine[0][:0], mine[1][:1], *mine[2:]])
    worth = judge(without, trace.points).worth
    none, one, *others = worth["parties"]
    assert set(none) == set(others[0]) == set(judged.worth["parties"][0])  # a report shows the same columns of all
    assert (none["alone"], none["private"], none["verdict"], one["verdict"]) == (None, None, None, None)
    assert worth["mean"]["alone"] == pytest.approx(np.mean([row["alone"] for row in others]))
    both = combine([worth, judged.worth])["parties"]
    assert both[0]["alone"] == judged.worth["parties"][0]["alone"]  # known of one split
    said = sentence(worth, "ε = 1")
    assert "mean of 3 of 5 parties" in said
    assert f"{none['name']}, {one['name']} have too few test records" in said


def test_a_split_that_diverged_is_left_out_and_told(told: tuple, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment, _, judged = told
    plan = validate({**PLAN, "run": {**PLAN["run"], "splits": 3}})
    fates = iter([np.nan, 1.0])
    run = type(experiment).run
    monkeypatch.setattr(
        type(experiment), "run", lambda self, *a: (t := run(self, *a), replace(t, points=t.points * next(fates)))[1]
    )
    worth, warnings = over_splits(plan, judged.worth)
    assert worth["splits"] == 2
    assert warnings == ["split 2 of 3 diverged and is left out of what joining is worth"]


@pytest.mark.slow
def test_a_blend_that_is_the_private_model_has_its_probabilities(told: tuple) -> None:
    """Corrected for the clip, as the private model's are: the same model cannot have two log-losses."""
    experiment, _, _ = told
    problem, models = experiment.network.problem, []
    for rows in experiment.parts:  # a model that has seen the party's records: no other does better on them
        mine = experiment.features[rows], experiment.targets[rows]
        models.append(at_home(problem, *mine, np.empty((0, problem.dim)), ridges=(1e-5,)).alone)
    found = judge(experiment, np.array([models]), "alone", measure="log-loss", clip=0.3).worth
    same = [party["blend"] == party["private"] for party in found["parties"]]
    assert any(same)


@pytest.mark.slow
def test_a_site_that_took_no_part_is_judged_and_has_no_say() -> None:
    plan = validate({**PLAN, "partition": {"outsiders": ["valley"]}})
    experiment = prepare(plan)
    assert "valley" not in experiment.network.names
    assert len(experiment.parts) == 4
    trace = experiment.run(price(plan, experiment.network), [0])
    (told,) = judge(experiment, trace.points, measure="accuracy").worth["outsiders"]
    (other,) = experiment.outsiders
    right = np.where(other.test.features @ trace.points[0].mean(axis=0) > 0, 1, -1) == other.test.targets
    assert told["private"] == pytest.approx(right.mean())
    assert told["records"] + told["test_records"] == int((make_clinics(records=1500).sites == 2).sum())
    for wrong, said in ((["moon"], "no site 'moon'"), (["valley"] * 2, "twice")):
        with pytest.raises(InputError, match=said):
            prepare(validate({**PLAN, "partition": {"outsiders": wrong}}))
    with pytest.raises(InputError, match=r"partition\.outsiders belongs to partition\.kind = 'site'"):
        validate({**PLAN, "partition": {"kind": "iid", "agents": 3, "outsiders": ["valley"]}})


def test_own_test_records_are_asked_alone_where_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same answers, whichever way they are asked for."""
    x, y, truth = records(500, 0)
    mine, asked = np.array([400, 3, 17, 77, 250]), []
    heard = judging.say

    def noted(problem: Logistic, point: np.ndarray, features: np.ndarray, *rest: object) -> object:
        asked.append(len(features))
        return heard(problem, point, features, *rest)

    monkeypatch.setattr(judging, "say", noted)
    together = judging._own(Logistic(4), truth, (x, y), mine, 0.5)
    monkeypatch.setattr(judging, "MANY", 0)
    apart = judging._own(Logistic(4), truth, (x, y), mine, 0.5)
    assert asked == [500, 8]
    for name in ("truth", "predicted", "losses", "evidence", "chances"):
        assert np.allclose(getattr(apart, name), getattr(together, name), rtol=1e-12)


def test_parties_of_one_class_are_named_and_every_model_is_scored_as_alone() -> None:
    plan = validate(
        {
            "data": {"source": "clinics", "options": {"records": 400}},
            "partition": {"kind": "iid", "agents": 30},
            "graph": {"kind": "ring"},
            "problem": {"loss": "logistic"},
            "algorithm": {"name": "dgd"},
        }
    )
    experiment = prepare(plan)
    targets = experiment.targets.copy()
    for lonely in (3, 29):
        targets[experiment.parts[lonely]] = 1.0
    experiment = replace(experiment, targets=targets)
    names = experiment.network.names
    mixed = [n for n, part in zip(names, experiment.parts, strict=True) if len(set(targets[part])) == 1]
    (said,) = judging._one_sided(experiment)
    assert said.startswith(f"all records of {', '.join(mixed)} are of one class" if len(mixed) <= 3 else "all records")
    assert {names[3], names[29]} <= set(mixed)
    models, test = np.random.default_rng(0).normal(size=(5, experiment.network.problem.dim)), experiment.test
    assert test is not None
    problem, pair = experiment.network.problem, (test.features, test.targets)
    each = [judging.say(problem, x, *pair).whole for x in models]
    np.testing.assert_array_equal(judging.scores(problem, models, judging.place(*pair)), each)
