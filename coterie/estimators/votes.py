r"""How a setting is scored by records that did not train: sums of every party, each with noise of its own.

Credits (accuracy, or one minus a squared error) are one number in [0, 1] a record: Δ = 1. For an AUC a record is one of
the vectors of `coterie.released.scores`, of Δ = 1 too, and the score has the error that its counts give it. Either way
a vote is μ-GDP for its record with noise Δ/μ on every party's sum.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags

from coterie.algorithms.laws import add
from coterie.errors import InputError
from coterie.estimators.additive import PrivateAdditiveClassifier, PrivateAdditiveRegressor
from coterie.estimators.linear import PrivateConsensusClassifier, PrivateConsensusRegressor
from coterie.released.covered import CoveredScores
from coterie.released.scores import Scores

__all__ = ["SCORINGS", "Vote", "last_step", "of_last", "vote"]

Ours = PrivateConsensusClassifier | PrivateAdditiveClassifier | PrivateConsensusRegressor | PrivateAdditiveRegressor
CLASSIFIERS = (PrivateConsensusClassifier, PrivateAdditiveClassifier)
OURS = (*CLASSIFIERS, PrivateConsensusRegressor, PrivateAdditiveRegressor)
SCORINGS = ("credit", "auc")
REFUSED = -np.inf  # of a score that would be noise: never the best


@dataclass(frozen=True)
class Vote:
    """A noisy score, its standard error, and why there is none."""

    score: float
    error: float | None
    why: str = ""


def last_step(estimator: object) -> Ours:
    """The private estimator, of a pipeline the last step; what comes before must learn nothing from records."""
    if not isinstance(estimator, Pipeline):
        last = estimator
    else:
        last = estimator.steps[-1][1]
        for name, step in estimator.steps[:-1]:
            if step not in (None, "passthrough") and get_tags(step).requires_fit:
                raise InputError(
                    f"the pipeline's step {name!r} learns from the records, which nobody pays for: use steps that need "
                    "no fit, such as FunctionTransformer or Normalizer"
                )
    if not isinstance(last, OURS):
        raise InputError(f"PrivateSearch searches over coterie's classifiers and regressors, got {last!r}")
    return last


def of_last(estimator: object, settings: dict[str, object]) -> dict[str, object]:
    """Settings of the last step as the whole takes them."""
    if not isinstance(estimator, Pipeline):
        return settings
    return {f"{estimator.steps[-1][0]}__{name}": value for name, value in settings.items()}


def check_scoring(scoring: str, last: object) -> None:
    """Refuse an AUC of what is no classifier."""
    if scoring == "auc" and not isinstance(last, CLASSIFIERS):
        raise InputError(f"scoring = 'auc' is for classifiers, got {last!r}")


def _bounded(credits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Credits in [0, 1], whatever a record says: none for what is no number."""
    return np.clip(np.where(np.isfinite(credits), credits, 0.0), 0.0, 1.0)


def vote(
    model: object, X: list[ArrayLike], y: list[NDArray], scoring: str, mu: float, rng: np.random.Generator
) -> Vote:  # fmt: skip
    """Score a fitted model on each party's voting records."""
    last, seen = last_step(model), X
    if isinstance(model, Pipeline) and len(model.steps) > 1:
        seen = [model[:-1].transform(rows) for rows in X]
    records = sum(map(len, y))
    if scoring == "credit":
        sums = np.array([_bounded(last._credit(rows, own)).sum() for rows, own in zip(seen, y, strict=True)])
        noisy = add(sums, rng.standard_normal(len(sums)), 1 / mu)  # type: ignore[arg-type]
        return Vote(float(np.sum(noisy) / records), len(sums) ** 0.5 / mu / records)
    if len(last.classes_) != 2:
        raise InputError(f"scoring = 'auc' needs two classes, got {len(last.classes_)}")
    problem = Scores()
    scale = 2 * problem.half_gap / mu
    total = np.zeros(problem.size)
    with jax.enable_x64(True):
        for rows, own in zip(seen, y, strict=True):
            chance, happened = last.predict_proba(rows)[:, 1], np.asarray(own) == last.classes_[1]
            right = (last.predict(rows) == np.asarray(own)).astype(float)
            admitted = problem.admit(np.column_stack([chance, right]), happened.astype(np.int64))
            own_sum = problem.total(jnp.asarray(admitted[0]), jnp.asarray(admitted[1]), jnp.ones(len(own)))
            total += np.asarray(add(own_sum, jnp.asarray(rng.standard_normal(problem.size)), scale), float)
    point = np.append(total / records, len(y) ** 0.5 * scale / records)
    found = CoveredScores.of(problem, point, records=records).whole["auc"]
    if found.value is None:
        return Vote(REFUSED, None, found.why)
    return Vote(found.value, found.error)
