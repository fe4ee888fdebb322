"""Measures against scikit-learn, and errors of differences against what they claim."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import t as student
from sklearn import metrics

from coterie.errors import InputError
from coterie.losses.logistic import Logistic
from coterie.losses.softmax import Softmax
from coterie.losses.squared import Squared
from coterie.problems import Custom
from coterie.worth.measures import Answers, auc_parts, default_measure, need_measure, parts, say, summary
from coterie.worth.verdict import Gain, gain, mean_gain, sentence, value
from tests.support import mostly_slow


def binary(n: int, seed: int, rate: float = 0.3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    x /= np.maximum(1, np.linalg.norm(x, axis=1, keepdims=True))
    return x, np.where(rng.random(n) < rate * (1 + x[:, 0]), 1.0, -1.0)


def test_measures_are_those_of_scikit_learn() -> None:
    x, y = binary(400, 0)
    point = np.array([1.5, -0.5, 0.25])
    said, truth, score = say(Logistic(3), point, x, y), y > 0, x @ point
    chance = 1 / (1 + np.exp(-score))
    assert value("auc", said) == pytest.approx(metrics.roc_auc_score(truth, score), abs=1e-12)
    assert value("log-loss", said) == pytest.approx(metrics.log_loss(truth, chance), abs=1e-12)
    assert value("accuracy", said) == pytest.approx(metrics.accuracy_score(truth, score > 0), abs=1e-12)
    found = summary(said, 0.8)
    assert found["test_calibration"] == pytest.approx(chance.mean() - truth.mean(), abs=1e-12)
    false, true, _ = metrics.roc_curve(truth, score, drop_intermediate=False)
    assert found["test_recall"] == pytest.approx(true[false <= 0.2].max(), abs=1e-12)


def test_several_classes_and_numbers() -> None:
    rng = np.random.default_rng(1)
    x, point = rng.normal(size=(300, 2)) / 4, rng.normal(size=6)
    y = rng.integers(0, 3, 300)
    said = say(Softmax(2, 3), point, x, y)
    scores = x @ point.reshape(2, 3)
    chances = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    assert value("log-loss", said) == pytest.approx(metrics.log_loss(y, chances), abs=1e-12)
    assert value("auc", said) is None  # of two classes only
    assert "test_log_loss" in summary(said, 0.9)
    assert "test_auc" not in summary(said, 0.9)
    target = x @ [1.0, 2.0] + rng.normal(size=300)
    linear = say(Squared(2), np.array([0.5, 1.0]), x, target)
    assert value("r2", linear) == pytest.approx(metrics.r2_score(target, x @ [0.5, 1.0]), abs=1e-12)
    assert summary(linear, 0.9) == {}


def test_ties_count_half_and_one_class_cannot_tell() -> None:
    rng = np.random.default_rng(2)
    truth, score = rng.random(200) < 0.4, rng.integers(0, 4, 200).astype(float)
    shares = auc_parts(truth, score)
    for group in (truth, ~truth):  # each group's mean is the area
        assert shares[group].mean() == pytest.approx(metrics.roc_auc_score(truth, score), abs=1e-12)
    x, _ = binary(20, 0)
    assert parts("auc", say(Logistic(3), np.ones(3), x, np.ones(20))) is None
    assert (
        gain("auc", [say(Logistic(3), np.ones(3), x, np.ones(20))], say(Logistic(3), np.zeros(3), x, np.ones(20)))
        is None
    )


def test_probabilities_are_corrected_for_the_clip_and_ranks_are_not() -> None:
    x, y = binary(300, 5)
    point = np.array([1.0, 0.5, -0.5])
    plain, clipped = (say(Logistic(3), point, x, y, clip) for clip in (None, 0.4))
    norms, score = np.linalg.norm(x, axis=1), x @ point
    p = 1 / (1 + np.exp(-score))
    heavy = p * np.maximum(1, (1 - p) * norms / 0.4), (1 - p) * np.maximum(1, p * norms / 0.4)
    assert clipped.chances is not None
    np.testing.assert_allclose(clipped.chances[:, 1], heavy[0] / (heavy[0] + heavy[1]), atol=1e-12)
    assert value("auc", clipped) == value("auc", plain)
    assert value("log-loss", clipped) != value("log-loss", plain)


def test_a_measure_that_does_not_apply_is_refused() -> None:
    for problem, measure in (
        (Squared(2), "auc"),
        (Softmax(2, 3), "auc"),
        (Logistic(2), "r2"),
        (Squared(2), "log-loss"),
    ):
        with pytest.raises(InputError, match=f"{measure}.*does not apply to .*expected one of"):
            need_measure(problem, measure)
    need_measure(Logistic(2), "auc")
    need_measure(Squared(2), None)


def test_rare_classes_are_judged_by_auc() -> None:
    assert default_measure(Logistic(2), np.array([0] * 9 + [1])) == "auc"
    assert default_measure(Logistic(2), np.array([0, 1] * 5)) == "accuracy"
    assert default_measure(Squared(2), np.array([0.0, 1.0])) == "r2"


@pytest.mark.parametrize("measure", mostly_slow(["accuracy", "auc", "log-loss"], "auc"))
def test_the_error_of_a_difference_is_its_spread_over_test_sets(measure: str) -> None:
    """Over many test sets the differences scatter as one test set says: a scale 15 % off fails."""
    a, b = np.array([1.5, -0.5, 0.25]), np.array([1.0, 0.5, 0.0])
    found = []
    for seed in range(600):
        x, y = binary(300, seed)
        one = gain(measure, [say(Logistic(3), a, x, y)], say(Logistic(3), b, x, y))
        assert one is not None
        found.append((one.mean, one.error))
    mean, error = np.array(found).T
    assert 0.9 < mean.std() / np.sqrt(np.mean(error**2)) < 1.1


def answers(truth: np.ndarray, score: np.ndarray) -> Answers:
    evidence = np.column_stack([-score / 2, score / 2])
    return Answers(truth, (score > 0).astype(int), np.zeros(len(truth)), evidence, None, 2)


@pytest.mark.parametrize("measure", ["accuracy", "auc"])
def test_few_test_records_make_no_winner_among_equals(measure: str) -> None:
    """Forty parties with eight test records each and two models of the same worth: a normal interval fails this."""
    rng = np.random.default_rng(0)
    wrong = 0
    for _ in range(40):
        gains = []
        for _ in range(40):
            truth = (rng.random(8) < 0.4).astype(int)
            one, other = (0.7 * (2 * truth - 1) + rng.normal(size=8) for _ in range(2))
            gains.append(gain(measure, [answers(truth, one)], answers(truth, other)))
        known = [g for g in gains if g is not None]
        wrong += any(g.verdict(len(known)) != "cannot tell" for g in known)
    assert wrong <= 4  # 5 % of 40, and a standard deviation and a half


def test_records_that_all_differ_alike_tell_nothing() -> None:
    truth = np.array([0, 0, 1, 1])
    right, wrong = answers(truth, 2.0 * truth - 1), answers(truth, 1.0 - 2 * truth)
    assert gain("auc", [right], wrong) is None  # nobody knows how the next record would differ
    found = gain("accuracy", [right], wrong)
    assert found is not None
    assert found.mean == 1.0
    assert found.verdict(5) == "cannot tell"  # four records
    assert Gain.of_splits(np.array([0.1, 0.1]), 0.25) is None
    assert Gain.of_splits(np.array([0.1]), 0.25) is None


def test_few_seeds_and_few_records_widen_the_interval() -> None:
    """Student's t with Welch and Satterthwaite's degrees of freedom, by hand."""
    one = Gain(np.array([0.1, 0.3]), 0.01, 9)
    freedom = 0.02**2 / (0.01**2 / 9 + 0.01**2 / 1)
    assert one.interval()[1] - one.mean == pytest.approx(student.isf(0.025, freedom) * one.error)
    two = mean_gain([Gain(np.array([0.0]), 0.01, 4), Gain(np.array([0.0]), 0.01, 4)])
    assert two.freedom == pytest.approx(8)


def test_seeds_add_their_scatter_and_parties_average() -> None:
    one = Gain(np.array([0.1, 0.3]), 0.01)
    assert one.mean == pytest.approx(0.2)
    assert one.error == pytest.approx(np.sqrt(0.01 + 0.02 / 2))
    both = mean_gain([one, Gain(np.array([-0.1, 0.1]), 0.03)])
    assert both.mean == pytest.approx(0.1)
    assert both.records == pytest.approx(0.04 / 4)
    each = np.array([0.1, 0.2, 0.3, 0.2])
    split = Gain.of_splits(each, 0.25)  # Nadeau and Bengio: (1/K + test/train) s²
    assert split is not None
    assert split.error == pytest.approx(np.sqrt((0.25 + 0.25) * each.var(ddof=1)))
    low, high = split.interval()
    assert high - split.mean == pytest.approx(3.182446 * split.error, rel=1e-6)  # t with 3 degrees of freedom
    assert low == pytest.approx(2 * split.mean - high)


def test_of_a_hundred_parties_that_gain_nothing_none_is_called_a_winner() -> None:
    rng = np.random.default_rng(3)
    wrong = 0
    for _ in range(200):
        gains = [Gain(np.array([d]), 0.01) for d in rng.normal(0, 0.1, 100)]
        wrong += any(one.verdict(100) != "cannot tell" for one in gains)
    assert wrong <= 20  # 5 % of 200, and three standard deviations


def row(name: str, verdict: str | None) -> dict:
    return {"name": name, "verdict": verdict}


@pytest.mark.parametrize(
    ("verdicts", "mean", "words"),
    [
        (["gains", "gains"], "gains", ["Joining pays at ε = 1", "+0.020", "All of them gain"]),
        (["gains", "loses"], "cannot tell", ["Cannot tell", "A gains", "B should not join at this ε"]),
        (["loses", "cannot tell"], "loses", ["does not pay", "Nobody is seen to gain", "A should not join", "of B"]),
        (["cannot tell"] * 2, "cannot tell", ["Nobody is seen to gain", "of no single party"]),
        ([None, None], None, ["too few test records of each class at every party"]),
        (
            ["gains", "gains", None],
            "gains",
            [
                "mean of 2 of 3 parties",
                "All 2 that were judged gain",
                "C has too few test records of each class to be judged",
            ],
        ),
        (["gains", None, None], "gains", ["A gains", "B, C have too few test records"]),
        (["loses", None], None, ["Cannot tell whether joining pays"]),
    ],
)
def test_the_sentence_says_who_gains_and_who_should_not_join(
    verdicts: list[str | None], mean: str | None, words: list[str]
) -> None:
    told = {"verdict": mean, "gain": 0.02, "low": 0.01, "high": 0.03}
    worth = {
        "metric": "auc",
        "better": "more",
        "mean": told,
        "of": len(verdicts),
        "parties": [row(n, v) for n, v in zip("ABC", verdicts, strict=False)],
    }
    said = sentence(worth, "ε = 1")
    assert all(word in said for word in words), said


def test_a_sample_of_the_parties_is_called_one_and_nobody_is_left_unsaid() -> None:
    told = {"verdict": "gains", "gain": 0.02, "low": 0.01, "high": 0.03}
    outsider = {"name": "valley", "verdict": None, "gain": None}
    worth = {"metric": "accuracy", "better": "more", "mean": told, "of": 100,
             "parties": [row(f"p{k}", "gains") for k in range(64)], "outsiders": [outsider]}  # fmt: skip
    said = sentence(worth, "ε = 1")
    assert "mean of 64 of 100 parties" in said
    assert "All 64 that were judged gain" in said
    assert "valley, which took no part, has too few test records to be judged" in said


def test_less_of_a_loss_is_said_as_less() -> None:
    told = {"verdict": "gains", "gain": 0.02, "low": 0.01, "high": 0.03}
    worth = {"metric": "log-loss", "better": "less", "mean": told, "of": 1, "parties": [row("A", "gains")]}
    said = sentence(worth, "ε = 1")
    assert "-0.020 log-loss (less is better) on own test records over staying alone" in said
    assert "95 % interval -0.030 to -0.010" in said


def test_what_was_said_of_some_records() -> None:
    x, y = binary(50, 4)
    said = say(Logistic(3), np.ones(3), x, y)
    some = np.arange(5, 25)
    assert isinstance(said, Answers)
    assert value("log-loss", said.take(some)) == value("log-loss", say(Logistic(3), np.ones(3), x[some], y[some]))


def test_a_loss_of_ones_own_that_predicts_nothing_is_judged_by_its_loss() -> None:
    loss, targets = (lambda w, x, y: jnp.sqrt(1 + (w @ x - y) ** 2)), np.array([0.0, 1.0])
    own = Custom.make(loss, jnp.zeros(2))
    np.testing.assert_allclose(say(own, np.array([0.0, 1.0]), np.eye(2), targets).losses, 1.0)
    assert default_measure(own, targets) == "loss"
    with pytest.raises(InputError, match=r"'r2' does not apply .* expected one of loss"):
        need_measure(own, "r2")
    predicting = Custom.make(loss, jnp.zeros(2), forecast=lambda w, x: w @ x)
    assert default_measure(predicting, targets) == "r2"
