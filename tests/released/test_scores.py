"""Covered scores: what one record moves, errors as stated, and a refusal where noise may be all there is."""

from __future__ import annotations

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from coterie.algorithms.base import find
from coterie.audit.checks import examine, gather
from coterie.audit.setting import make_setting
from coterie.privacy.gdp import mu_for
from coterie.released.covered import CoveredScores, auc_of
from coterie.released.scores import Scores, edges_of
from coterie.testing.losses import PROBLEM_CHECKS


def held_out(n: int = 5000, positive: float = 0.24, groups: int = 1, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Records of a model that is a little too sure of itself: (p, right), and what happened with the group."""
    rng = np.random.default_rng(seed)
    score = rng.standard_normal(n) * 1.8 + np.log(positive / (1 - positive)) * 1.35
    happened = rng.random(n) < 1 / (1 + np.exp(-score))
    chance = 1 / (1 + np.exp(-1.15 * score - 0.05))
    features = np.stack([chance, (chance > 0.5) == happened], axis=1).astype(float)
    return features, happened + 2 * rng.integers(0, groups, n)


def means(problem: Scores, features: np.ndarray, targets: np.ndarray) -> np.ndarray:
    with jax.enable_x64(True):
        return np.asarray(problem.each(jnp.asarray(features), jnp.asarray(targets))).mean(0)


@pytest.mark.parametrize("check", PROBLEM_CHECKS)
def test_the_problem_is_what_it_says(check: str) -> None:
    PROBLEM_CHECKS[check](Scores(4, 2))


@pytest.mark.parametrize("groups", [1, 3])
def test_the_worst_pair_reaches_what_is_declared(groups: int) -> None:
    problem, rng = Scores(6, groups), np.random.default_rng(0)
    features = np.stack([rng.choice([0.0, 0.3, 0.6, 1.0], 600), rng.integers(0, 2, 600)], axis=1).astype(float)
    targets = rng.integers(0, 2 * groups, 600)
    with jax.enable_x64(True):
        own = np.asarray(problem.each(jnp.asarray(features), jnp.asarray(targets)))
    largest = max(float(np.max(np.linalg.norm(own - row, axis=1))) for row in own)
    assert largest == pytest.approx(2 * problem.half_gap, rel=1e-9)


@pytest.mark.slow
def test_the_audit_finds_nothing() -> None:
    for finding in examine(gather(make_setting(find("release"), epsilon=1.0, problem=Scores(4, 2)))):
        assert finding.passed, finding


@cache
def coverage(epsilon: float, positive: float, runs: int = 1000, short: float = 1.0) -> dict[str, float]:
    """In how many runs the exact value lies within two stated errors; `short`: of the noise that is stated."""
    problem = Scores(20, 1)
    features, targets = held_out(positive=positive)
    exact = {
        "accuracy": features[:, 1].mean(),
        "calibration": (features[:, 0] - targets).mean(),
        "auc": roc_auc_score(targets, features[:, 0]),
    }
    sigma = (5 / 4) ** 0.5 * 2 * problem.half_gap / float(mu_for(epsilon, 1e-5)) / len(targets)  # five, four honest
    whole, rng = means(problem, features, targets), np.random.default_rng(7)
    inside = dict.fromkeys(exact, 0)
    for _ in range(runs):
        noisy = whole + sigma * rng.standard_normal(problem.size)
        told = CoveredScores.of(problem, np.append(noisy, short * sigma)).whole
        for name, value in exact.items():
            number = told[name]
            assert number.value is not None
            assert number.error is not None
            inside[name] += abs(number.value - value) <= 2 * number.error
    return {name: count / runs for name, count in inside.items()}


@pytest.mark.parametrize(("epsilon", "positive"), [(1.0, 0.24), (1.0, 0.11), (0.3, 0.24), (3.0, 0.24)])
def test_exact_values_lie_within_two_stated_errors(epsilon: float, positive: float) -> None:
    for name, share in coverage(epsilon, positive).items():
        assert 0.935 <= share <= 0.975, (name, share)


def test_an_error_that_is_stated_too_small_is_seen() -> None:
    for name, share in coverage(1.0, 0.24, short=0.85).items():
        assert share < 0.935, (name, share)


GROUPS = (0.5, 0.3, 0.2)
LOCAL, SHARED = 5**0.5, (5 / 4) ** 0.5  # five parties: noise on every message, or on the sum with four honest


def drawn_coverage(
    epsilon: float, wide: float, runs: int = 1000, n: int = 5000, known: bool = True
) -> dict[str, float]:
    """The same over held-out records that are drawn anew, for all of them and for every group."""
    problem, rng = Scores(20, len(GROUPS)), np.random.default_rng(7)
    sigma = wide * 2 * problem.half_gap / float(mu_for(epsilon, 1e-5)) / n
    a, c, b = problem.weights
    inside: dict[str, list[bool]] = {}
    for run in range(runs):
        features, happened = held_out(n, seed=run)
        chance, right, group = features[:, 0], features[:, 1], rng.choice(len(GROUPS), n, p=GROUPS)
        sums = np.zeros((len(GROUPS), 2 + 2 * problem.bins))  # what `each` adds up to, which the first run compares
        np.add.at(sums, (group, 0), a * right)
        np.add.at(sums, (group, 1), c * (chance - happened))
        at = np.searchsorted(edges_of(problem.bins)[1:-1], chance, side="right")
        np.add.at(sums, (group, 2 + 2 * at + happened), b)
        if not run:
            assert sums.ravel() / n == pytest.approx(means(problem, features, happened + 2 * group), abs=1e-12)
        point = np.append(sums.ravel() / n + sigma * rng.standard_normal(problem.size), sigma)
        told = CoveredScores.of(problem, point, records=n) if known else CoveredScores.of(problem, point)
        for k, scores in enumerate((told.whole, *told.groups), start=-1):
            mine = group == k if k >= 0 else np.ones(n, bool)
            exact = {
                "share": mine.mean(), "accuracy": right[mine].mean(), "calibration": (chance - happened)[mine].mean(),
                "auc": roc_auc_score(happened[mine], chance[mine]),
            }  # fmt: skip
            for name, number in scores.items():
                if number.value is not None and number.error is not None:
                    inside.setdefault(f"{name} {k}", []).append(abs(number.value - exact[name]) <= 2 * number.error)
    return {name: float(np.mean(those)) for name, those in inside.items() if len(those) > runs / 2}


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "wide"), [(1.0, LOCAL), (1.0, SHARED), (10.0, SHARED), (1000.0, LOCAL)])
def test_scores_of_groups_lie_within_two_stated_errors(epsilon: float, wide: float) -> None:
    """Also where noise is so small that bins are all there is to the error of an AUC."""
    found = drawn_coverage(epsilon, wide)
    assert len(found) >= 3 + 3 * 4 - (epsilon == 1.0 and wide == LOCAL)  # the AUC of the smallest is mostly refused
    for name, share in found.items():
        assert 0.935 <= share <= 0.975, (name, share)


@pytest.mark.slow
def test_without_chance_within_bins_the_error_of_an_auc_is_too_small() -> None:
    found = drawn_coverage(1000.0, SHARED, runs=60, known=False)
    assert min(found[f"auc {k}"] for k in (-1, 0, 1, 2)) < 0.9


def test_without_noise_the_numbers_are_the_records_own() -> None:
    features, targets = held_out(groups=2)
    told = CoveredScores.of(Scores(40, 2), np.append(means(Scores(40, 2), features, targets), 0.0), ["a", "b"])
    happened = targets % 2
    assert told.whole["accuracy"].value == pytest.approx(features[:, 1].mean())
    assert told.whole["calibration"].value == pytest.approx((features[:, 0] - happened).mean())
    assert told.whole["auc"].value == pytest.approx(roc_auc_score(happened, features[:, 0]), abs=2e-4)
    for k, group in enumerate(told.groups):
        mine = targets // 2 == k
        assert group["accuracy"].value == pytest.approx(features[mine, 1].mean())
        assert group["auc"].value == pytest.approx(roc_auc_score(happened[mine], features[mine, 0]), abs=5e-4)
    for row in told.curve:
        inside = (features[:, 0] >= row["from"]) & (features[:, 0] < row["to"])
        assert row["share"] == pytest.approx(happened[inside].mean())


def test_classes_that_may_be_empty_are_refused() -> None:
    cells = np.zeros((20, 2))
    cells[:, 0] = 1 / 20
    told = auc_of(cells + 0.01 * np.random.default_rng(0).standard_normal((20, 2)), 0.01, whole=True)
    assert told.value is None
    assert "happened: too close to none" in told.why
    few, _ = held_out(200), None
    point = means(Scores(20, 1), *few)
    assert CoveredScores.of(Scores(20, 1), np.append(point, 0.05)).whole["auc"].value is None


def test_one_half_is_an_edge() -> None:
    assert edges_of(20)[10] == pytest.approx(0.5)
    assert np.all(np.diff(edges_of(20)) > 0)
