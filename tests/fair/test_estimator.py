"""The scikit-learn estimator: its checks, its refusals, and what it stores."""

import numpy as np
import pandas as pd
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from coterie.data.encode import Category, Number
from coterie.errors import InputError
from coterie.fair import PrivateFairClassifier, evaluate
from coterie.fair.features import book_of, features

EXPECTED_FAILURES: dict[str, str] = {}  # none; a check that must fail goes here with its reason

CHECKED = [
    PrivateFairClassifier(100.0, 1e-5, "adfc", 0, bounds=(-10, 10), random_state=0),
    PrivateFairClassifier(100.0, 1e-5, "relaxed-fm", bounds=(-10, 10), random_state=0),
    PrivateFairClassifier(method="lr", bounds=(-10, 10)),
]


@pytest.mark.filterwarnings("ignore::coterie.estimators.LabelsWarning")
@parametrize_with_checks(CHECKED, expected_failed_checks=lambda e: EXPECTED_FAILURES)
def test_scikit_learn(estimator, check):
    check(estimator)


def _people(n=20_000, seed=0):
    rng = np.random.default_rng(seed)
    race = rng.choice(["a", "b", "c"], size=n, p=[0.5, 0.3, 0.2])
    sex = rng.choice(["f", "m"], size=n)
    skill = rng.normal(size=n) + 0.8 * (race == "a") - 0.6 * (race == "c")
    age = rng.uniform(20, 60, size=n)
    merit = rng.normal(size=n)
    good = 0.5 * skill + merit + 0.02 * (age - 40) + 0.3 * rng.normal(size=n) > 0.2
    frame = pd.DataFrame({"race": race, "sex": sex, "skill": skill, "merit": merit, "age": age})
    return frame, np.where(good, "yes", "no")


LABELS = ("no", "yes")
BOUNDS = {"race": ["a", "b", "c"], "sex": ["f", "m"], "skill": (-4, 4), "merit": (-4, 4), "age": (20, 60)}


def test_more_than_two_groups_get_a_penalty_each():
    frame, y = _people()
    groups = pd.factorize(frame["race"], sort=True)[0]
    gaps, scores = [], []
    for penalty in (0.0, 1.0):
        model = PrivateFairClassifier(
            5.0, 1e-5, sensitive_feature="race", bounds=BOUNDS, classes=LABELS, penalty=penalty, random_state=1
        ).fit(frame, y)
        assert model.release_.penalties.shape == (3, len(model.feature_names_))
        gaps.append(evaluate((y == "yes").astype(int), model.predict(frame) == "yes", groups).risk_difference)
        scores.append(model.score(frame, y))
    assert gaps[0] > 0.15
    assert gaps[1] < 0.4 * gaps[0]
    assert scores[1] > 0.75
    assert not any(name.startswith("race") for name in model.feature_names_)
    assert model.group_share_ == pytest.approx([0.5, 0.3, 0.2], abs=0.02)


def test_what_it_spends_it_says():
    frame, y = _people(3000)
    model = PrivateFairClassifier(
        0.7, 1e-6, sensitive_feature="sex", attribute="age", ratio=10, bounds=BOUNDS, classes=LABELS, random_state=0
    ).fit(frame, y)
    assert model.epsilon_ == pytest.approx(0.7)
    assert model.delta_ == 1e-6
    assert model.attribute_account_.epsilon < 0.3
    assert model.claimed_epsilon_ is None
    pure = PrivateFairClassifier(
        0.7, method="pdfc", sensitive_feature="sex", bounds=BOUNDS, classes=LABELS, random_state=0
    )
    assert pure.fit(frame, y).delta_ == 0.0
    assert PrivateFairClassifier(method="lr", bounds=BOUNDS, classes=LABELS).fit(frame, y).epsilon_ == np.inf


def test_printed_versions_warn_and_report_both_numbers():
    frame, y = _people(2000)
    model = PrivateFairClassifier(
        1.0, 1e-3, sensitive_feature="sex", bounds=BOUNDS, classes=LABELS, as_printed=True, random_state=0
    )  # fmt: skip
    with pytest.warns(UserWarning, match="as printed"):
        model.fit(frame, y)
    assert model.claimed_epsilon_ == 1.0
    assert 0 < model.epsilon_ < 1.0


def test_seeds_repeat_noise_and_no_seed_does_not():
    frame, y = _people(2000)
    fit = lambda seed: PrivateFairClassifier(  # noqa: E731
        sensitive_feature="sex", bounds=BOUNDS, classes=LABELS, random_state=seed
    ).fit(frame, y).coef_  # fmt: skip
    assert np.array_equal(fit(3), fit(3))
    assert not np.array_equal(fit(3), fit(4))
    assert not np.array_equal(fit(None), fit(None))


def test_secure_noise():
    frame, y = _people(5000)
    model = PrivateFairClassifier(2.0, 1e-5, sensitive_feature="sex", bounds=BOUNDS, classes=LABELS, secure=True).fit(
        frame, y
    )
    assert 1.99 < model.epsilon_ <= 2.0
    assert model.score(frame, y) > 0.6
    with pytest.raises(InputError, match="takes no seed"):
        PrivateFairClassifier(sensitive_feature="sex", bounds=BOUNDS, classes=LABELS, secure=True, random_state=0).fit(
            frame, y
        )
    with pytest.raises(InputError, match="rounding"):
        PrivateFairClassifier(
            1e-4, method="fm", bounds=BOUNDS, classes=LABELS, secure=True
        ).fit(frame, y)  # fmt: skip


def test_a_missing_bound_says_how_to_give_one():
    frame, y = _people(100)
    with pytest.raises(InputError, match="give bounds="):
        PrivateFairClassifier(sensitive_feature="sex").fit(frame, y)
    short = {k: v for k, v in BOUNDS.items() if k != "age"}
    with pytest.raises(InputError, match="column 'age' has no bound: give bounds="):
        PrivateFairClassifier(sensitive_feature="sex", bounds=short).fit(frame, y)
    with pytest.raises(InputError, match="unknown category 'c'"):
        PrivateFairClassifier(sensitive_feature="sex", bounds=BOUNDS | {"race": ["a", "b"]}, classes=LABELS).fit(
            frame, y
        )


def test_other_refusals():
    frame, y = _people(100)
    with pytest.raises(InputError, match="needs a protected attribute"):
        PrivateFairClassifier(bounds=BOUNDS, classes=LABELS).fit(frame, y)
    with pytest.raises(InputError, match="unknown method"):
        PrivateFairClassifier(method="magic", bounds=BOUNDS, classes=LABELS).fit(frame, y)
    with pytest.raises(InputError, match="'height' is not in X"):
        PrivateFairClassifier(sensitive_feature="height", bounds=BOUNDS, classes=LABELS).fit(frame, y)
    with pytest.raises(InputError, match="is not one of the classes"):
        PrivateFairClassifier(sensitive_feature="sex", bounds=BOUNDS, classes=["good", "no"]).fit(frame, y)
    with pytest.raises(InputError, match="norm 'max'"):
        PrivateFairClassifier(sensitive_feature="sex", bounds=BOUNDS, classes=LABELS, attribute="age", norm="unit").fit(
            frame, y
        )


def test_groups_may_come_from_outside_the_features():
    frame, y = _people(4000)
    z = (frame["sex"] == "m").to_numpy().astype(int)
    inside = PrivateFairClassifier(sensitive_feature="sex", bounds=BOUNDS, classes=LABELS, random_state=0).fit(frame, y)
    bounds = {k: v for k, v in BOUNDS.items() if k != "sex"}
    outside = PrivateFairClassifier(bounds=bounds, classes=LABELS, random_state=0).fit(
        frame.drop(columns="sex"), y, sensitive_features=z
    )
    assert np.array_equal(inside.coef_, outside.coef_)


@pytest.mark.parametrize("norm", ["max", "unit"])
@pytest.mark.parametrize("coding", ["onehot", "ordinal"])
@pytest.mark.parametrize("centre", [True, False])
def test_features_stay_in_the_ball_whatever_the_values(norm, coding, centre):
    book = {"n": Number(0, 10), "m": Number(-1, 1, log=True), "c": Category(("x", "y", "z")), "one": Category(("u",))}
    numbers = {"n": [-5, 0, 5, 10, 1e9], "m": [-1, 1, 0, 2, np.nan]}
    frame = pd.DataFrame(numbers | {"c": ["x", "y", "z", None, "x"], "one": ["u", None, "u", None, "u"]})
    made = features(frame, book, norm=norm, coding=coding, centre=centre)
    assert np.linalg.norm(made.x, axis=1).max() <= 1 + 1e-12
    assert made.signed == centre
    assert (made.x.min() >= 0) or centre
    for column, attribute in made.attributes.items():
        block = made.x[:, list(attribute.indices)]
        assert np.linalg.norm(block, axis=1).max() <= attribute.radius + 1e-12, column
    if norm == "max":
        changed = frame.assign(n=[0, 0, 0, 0, 0])
        other = features(changed, book, norm=norm, coding=coding, centre=centre)
        moved = np.flatnonzero((other.x != made.x).any(0))
        assert set(moved) <= set(made.attributes["n"].indices)  # one attribute moves its own features only


def test_books():
    assert book_of((0, 2), ["a", "b"]) == {"a": Number(0, 2), "b": Number(0, 2)}
    assert book_of([(0, 1), (2, 3)], ["a", "b"])["b"] == Number(2, 3)
    assert book_of({"a": ["x", "y"]}, ["a"])["a"] == Category(("x", "y"))
    for wrong in ((0, 1, 2), "many", {"a": "xy"}, {"a": (1, 0)}):
        with pytest.raises(InputError):
            book_of(wrong, ["a"])
