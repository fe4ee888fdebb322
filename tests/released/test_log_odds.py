"""Logistic models of released tables: those of the records themselves, as far as tables can say."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from scipy.special import expit

from coterie.data.bins import Bins, LevelBins
from coterie.released.latent_classes import LatentClasses, latent_classes, members
from coterie.released.log_odds import _means, log_odds

ATTRIBUTES, LEVELS, RECORDS = 8, 3, 60_000
BINS = Bins(tuple(LevelBins(f"a{k}", tuple("xyz"[:LEVELS])) for k in range(ATTRIBUTES)))
MEMBER = members(BINS)


@cache
def made() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(features of 0 and 1, labels ±1, θ): four classes of independent attributes, and a logistic law of the label."""
    rng = np.random.default_rng(5)
    shapes = rng.dirichlet(np.full(LEVELS + 1, 0.7), (4, ATTRIBUTES))
    theta = rng.normal(0, 1.0, (ATTRIBUTES, LEVELS + 1))
    group, draws = rng.integers(4, size=RECORDS), rng.random((RECORDS, ATTRIBUTES, 1))
    codes = (draws > shapes[group].cumsum(axis=2)).sum(axis=2).clip(max=LEVELS)
    rows = np.eye(LEVELS + 1)[codes].reshape(RECORDS, -1)
    score = rows @ theta.ravel() - 1.0
    return rows, np.where(rng.random(RECORDS) < expit(score), 1.0, -1.0), theta.ravel()


def exact() -> tuple[np.ndarray, np.ndarray]:
    rows, y, _ = made()
    return rows.T @ rows / RECORDS, y @ rows / RECORDS


def with_noise(size: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Tables and labelled means with noise of this size, symmetric, on what is not known."""
    tables, labelled = exact()
    rng = np.random.default_rng(seed)
    wide = np.triu(rng.normal(0, size, tables.shape), 1) * (1 - MEMBER.T @ MEMBER)
    return tables + wide + wide.T, labelled + rng.normal(0, size, len(labelled))


def apart(found: np.ndarray, truth: np.ndarray) -> float:
    """Root mean square distance of the scores of all records, as a share of their deviation."""
    rows = made()[0]
    return float((rows @ (found - truth)).std() / (rows @ truth).std())


def test_the_logistic_model_of_the_records_comes_back_from_their_tables() -> None:
    """Beside it least squares on the records, scaled as is best for it: it does not come as near."""
    rows, y, theta = made()
    tables, labelled = exact()
    found = log_odds(tables, labelled, (1e-6, 1e-6), BINS, None)
    assert apart(found, theta) < 0.12
    line = np.linalg.lstsq(rows, y, rcond=None)[0]
    best = min(apart(scale * line, theta) for scale in np.linspace(1, 8, 141))
    assert apart(found, theta) < best / 1.5
    assert abs(np.mean(expit(rows @ found)) - np.mean(y > 0)) < 0.005  # the right share is ill
    assert np.mean(np.sign(rows @ found) == y) > np.mean(np.sign(rows @ theta - 1.0) == y) - 0.003


def test_noise_does_not_ruin_the_model_and_is_taken_off_the_tables() -> None:
    tables, labelled = with_noise(0.01, 1)
    classes = latent_classes(tables, 0.01, BINS)
    off = 1 - MEMBER.T @ MEMBER
    left = np.linalg.norm(off * (classes.tables() - exact()[0])) / np.linalg.norm(off * (tables - exact()[0]))
    assert left < 0.6
    assert classes.tables().min() >= 0
    assert MEMBER @ classes.shares() == pytest.approx(np.ones(ATTRIBUTES))
    assert apart(log_odds(tables, labelled, (0.01, 0.01), BINS, None), made()[2]) < 0.5


def test_noise_that_drowns_everything_leaves_a_flat_model() -> None:
    """Labels that say nothing: what is found is far below what the noise alone would be taken for."""
    tables, _ = exact()
    share = 0.3
    rng = np.random.default_rng(2)
    nothing = (2 * share - 1) * tables.diagonal() + rng.normal(0, 0.02, BINS.width)
    told = [log_odds(tables, nothing, (1e-6, stated), BINS, None) for stated in (0.02, 1e-4)]
    scores = [(made()[0] @ found).std() for found in told]
    assert scores[0] < 0.3 < scores[1]


def test_the_mean_and_its_slope_are_those_of_normal_scores() -> None:
    """g by drawing normal scores in every class, H by differences of g."""
    rng = np.random.default_rng(3)
    classes = LatentClasses(np.array([0.3, 0.7]), np.hstack([rng.dirichlet(np.ones(4), 2) for _ in range(ATTRIBUTES)]))
    theta = rng.normal(0, 0.7, BINS.width)
    mean, slope = _means(classes, theta, MEMBER)
    width = 1e-5
    for k in range(0, BINS.width, 5):
        move = width * np.eye(BINS.width)[k]
        up, down = _means(classes, theta + move, MEMBER)[0], _means(classes, theta - move, MEMBER)[0]
        assert slope[k] == pytest.approx((up - down) / (2 * width), abs=1e-6)

    def whole(at: np.ndarray) -> float:
        off = at - ((classes.bins * at) @ MEMBER.T) @ MEMBER
        deviation = np.sqrt((classes.bins * off**2).sum(axis=1))
        z = np.linspace(-9, 9, 4001)
        law = np.exp(-(z**2) / 2) / np.exp(-(z**2) / 2).sum()
        soft = np.logaddexp(0, (classes.bins @ at)[:, None] + deviation[:, None] * z) @ law
        return float(classes.weights @ soft)

    for k in range(0, BINS.width, 7):
        move = 1e-4 * np.eye(BINS.width)[k]
        assert mean[k] == pytest.approx((whole(theta + move) - whole(theta - move)) / 2e-4, abs=2e-4)  # nine nodes


@pytest.mark.parametrize("penalty", [0.3, 0.003])
def test_with_a_stated_penalty_it_is_the_minimiser(penalty: float) -> None:
    tables, labelled = exact()
    found = log_odds(tables, labelled, (1e-6, 1e-6), BINS, penalty)
    classes = latent_classes(tables, 1e-6, BINS)
    target = (classes.shares() + labelled) / 2
    flat = found - found  # where the penalty is centred: the same log-odds of everybody
    share = target.sum() / ATTRIBUTES
    flat = flat + np.log(share / (1 - share)) / ATTRIBUTES
    slope = _means(classes, found, MEMBER)[0] - target + penalty * (found - flat)
    assert np.abs(slope).max() < 1e-6


def test_every_answer_is_the_same_function_of_the_release() -> None:
    tables, labelled = with_noise(0.01, 4)
    one, two = (log_odds(tables.copy(), labelled.copy(), (0.01, 0.01), BINS, None) for _ in range(2))
    assert np.array_equal(one, two)
