"""What is made of a release: ridge models on any columns, without another look at a record."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from coterie.errors import InputError
from coterie.losses.base import find_loss
from coterie.released import SecondMoments
from coterie.released.moments import Moments
from coterie.testing.losses import PROBLEM_CHECKS


@pytest.mark.parametrize("check", PROBLEM_CHECKS)
@pytest.mark.parametrize(
    "problem", [Moments(3), Moments(2, numbers=True, reach=2.0, weight=1.8)], ids=["two classes", "numbers"]
)
def test_second_moments_are_what_they_say(problem: Moments, check: str) -> None:
    PROBLEM_CHECKS[check](problem)


def exact(records: int = 400, d: int = 5) -> tuple[np.ndarray, np.ndarray, SecondMoments]:
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((records, d))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    labels = np.where(rows @ rng.standard_normal(d) + 0.3 * rng.standard_normal(records) > 0, 1.0, -1.0)
    seen = SecondMoments(rows.T @ rows / records, labels @ rows / records, 0.0, 0.0)
    return rows, labels, seen.named([f"c{k}" for k in range(d)])


@pytest.mark.parametrize("columns", [None, [0, 3], ["c4", "c1", "c2"]])
@pytest.mark.parametrize("penalty", [1e-3, 0.2])
def test_every_ridge_is_that_of_the_records(columns: list[int] | list[str] | None, penalty: float) -> None:
    rows, labels, seen = exact()
    at = list(range(5)) if columns is None else [int(str(c).strip("c")) for c in columns]
    other = Ridge(alpha=penalty * len(rows), fit_intercept=False).fit(rows[:, at], labels)
    model = seen.ridge(penalty, columns)
    assert np.allclose(model.weights[at], other.coef_, rtol=1e-9)
    assert np.count_nonzero(model.weights) == len(at)
    assert np.mean(model.predict(rows) == labels) == np.mean((other.predict(rows[:, at]) > 0) == (labels > 0))


def test_noise_leaves_a_matrix_that_is_no_worse_than_positive() -> None:
    rng = np.random.default_rng(2)
    noise = rng.standard_normal((6, 6))
    seen = SecondMoments((noise + noise.T) / 8, rng.standard_normal(6), 0.25, 0.25)
    assert np.linalg.eigvalsh(seen.matrix).min() < -0.1
    assert np.linalg.eigvalsh(seen.positive()).min() > -1e-12
    assert seen.default == pytest.approx(0.3 * 0.25 * 12**0.5, rel=1e-6)
    values, vectors = np.linalg.eigh(seen.matrix)
    by_hand = vectors @ np.diag(1 / (np.maximum(values, 0) + 0.5)) @ vectors.T @ seen.cross
    assert np.allclose(seen.ridge(0.5).weights, by_hand)


def test_what_is_known_is_set() -> None:
    _, _, seen = exact()
    known = seen.exclusive([["c0", "c1"], [3, 4]])
    assert known.matrix[0, 1] == known.matrix[1, 0] == known.matrix[3, 4] == 0
    assert known.matrix[0, 3] == seen.matrix[0, 3]
    assert np.array_equal(np.diag(known.matrix), np.diag(seen.matrix))


def test_a_preconditioner_makes_directions_alike_and_a_start_points_the_right_way() -> None:
    rows, labels, seen = exact()
    p = seen.preconditioner(1e-9)
    assert np.allclose(p @ seen.matrix @ p, np.eye(5), atol=1e-6)
    assert np.mean(np.sign(rows @ seen.start(1e-3)) == labels) > 0.75


@pytest.mark.parametrize(
    ("columns", "words"),
    [(["age"], "unknown column 'age'"), ([5], "column 5 is not in 0 … 4"), ([], "one or more"), ([1, 1], "different")],
)
def test_columns_that_are_not_there(columns: list[int | str], words: str) -> None:
    with pytest.raises(InputError, match=words):
        exact()[2].ridge(0.1, columns)


def test_too_many_features_and_classes_are_refused_by_name() -> None:
    with pytest.raises(InputError, match=r"second moments of 301 features.*at most 300"):
        Moments(301)
    assert Moments(300).dim == 300 * 301 // 2 + 300 + 1
    loss = find_loss("moments")
    with pytest.raises(InputError, match="got 3 classes"):
        loss.make(loss.settings(), 4, 3)
