"""How good a model is on records: the numbers that people who use it ask for, and what each record adds to them.

A measure is a mean over records of their `parts`, so two models are compared record by record, which is far sharper
than two scores with two errors. The area under the ROC curve is such a mean twice over: of every positive's share of
negatives that it beats, and of every negative's share of positives that beat it (DeLong, DeLong and Clarke-Pearson
1988); its error comes from both.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

from coterie.compiler import brief
from coterie.errors import InputError
from coterie.losses.softmax import Softmax
from coterie.passes import over
from coterie.problems import Linear, Problem
from coterie.problems.additive import bare
from coterie.problems.clipped import unclipped
from coterie.problems.labels import NOTHING, NUMBERS, SIGNS
from coterie.problems.records import lengths

__all__ = [
    "MEASURES",
    "Answers",
    "auc_parts",
    "chances",
    "default_measure",
    "need_measure",
    "numbered",
    "parts",
    "place",
    "say",
    "scores",
    "summary",
]

MEASURES = {
    "accuracy": "share of classes that are right",
    "auc": "area under the ROC curve: how often a positive is placed above a negative",
    "log-loss": "mean of −log of the chance given to what happened; less is better",
    "r2": "share of the variance that is explained",
    "loss": "mean loss of a record; less is better",
}
LESS = ("log-loss", "loss")  # where less is better
RARE = (
    0.35  # two classes of which one has a smaller share than this are judged by AUC: accuracy would praise a constant
)
Placed = tuple[Array, Array]  # features and targets on a device
BINS = 10  # of equal count, for the calibration error
LEAST = 1e-12  # a chance of 0 given to what happened costs −log of this


@dataclass(frozen=True)
class Answers:
    """What a model says of records, beside what is true of them."""

    truth: NDArray  # class numbers, or numbers
    predicted: NDArray  # in the same coding
    losses: NDArray[np.float64]
    evidence: NDArray[np.float64] | None  # (rows, classes)
    chances: NDArray[np.float64] | None  # (rows, classes): the chance of every class, where the model states one
    classes: int | None
    whole: float = float("nan")  # the problem's own score of all these records

    @property
    def score(self) -> NDArray[np.float64] | None:
        """What speaks for the second of two classes."""
        if self.evidence is None or self.evidence.shape[1] != 2:
            return None
        return self.evidence[:, 1] - self.evidence[:, 0]

    def take(self, rows: NDArray) -> Answers:
        """The same of some records only."""
        some = lambda values: None if values is None else values[rows]  # noqa: E731
        kept = self.truth[rows], self.predicted[rows], self.losses[rows], some(self.evidence), some(self.chances)
        return Answers(*kept, self.classes)


@lru_cache(maxsize=1)
def _asked() -> object:
    return brief(
        lambda problem, x, features, targets: (
            problem.predict(x, features) if problem.predicts and not problem.coupled else targets,
            problem.losses(x, features, targets), problem.evidence(x, features), problem.score(x, features, targets),
        )
    )  # fmt: skip


@lru_cache(maxsize=1)
def _scored() -> object:
    return eqx.filter_jit(
        lambda problem, models, features, targets: jax.lax.map(lambda x: problem.score(x, features, targets), models)
    )


def place(features: NDArray, targets: NDArray) -> Placed:
    """Records on the device, for those who ask many models about them: what is large is sent there once."""
    with jax.enable_x64(True):
        return jax.device_put((features, targets))


def scores(problem: Problem, models: NDArray, placed: Placed) -> NDArray[np.float64]:
    """The problem's own score of every model, and nothing else of them."""
    with jax.enable_x64(True):
        return np.asarray(_scored()(problem, jax.device_put(models), *placed), np.float64)  # type: ignore[operator]


def say(
    problem: Problem, x: NDArray, features: NDArray, targets: NDArray, clip: float | None = None,
    placed: Placed | None = None,
) -> Answers:  # fmt: skip
    """What the model at x says of these records; `clip`: the norm to which gradients were clipped as it was made.

    `placed`: the same records where `place` put them.
    """
    with jax.enable_x64(True):
        there = jax.device_put((features, targets)) if placed is None else placed
        found = _asked()(problem, jax.device_put(x), *there)  # type: ignore[operator]
    predicted, losses, evidence, score = found
    shown = None if evidence is None else np.asarray(evidence, float)
    return Answers(
        numbered(problem, targets), numbered(problem, predicted), np.asarray(losses, float), shown,
        chances(problem, shown, features, clip), problem.labels.classes, float(score),
    )  # fmt: skip


def chances(problem: Problem, evidence: NDArray | None, features: NDArray, clip: float | None) -> NDArray | None:
    """Of each class: softmax of the evidence, corrected for a clip where the length of a record's gradient is known."""
    if evidence is None or not problem.likely:
        return None
    from scipy.special import softmax

    plain = np.concatenate(over(len(evidence), evidence.shape[1], lambda own: softmax(evidence[own], axis=1)))
    if clip is None or not isinstance(bare(problem), Linear | Softmax):
        return plain
    return unclipped(plain, lengths(features)[:, 0], clip, two=problem.labels == SIGNS)


def numbered(problem: Problem, targets: NDArray) -> NDArray:
    """Targets in the problem's coding as class numbers, or as they are where they are not classes."""
    return (np.asarray(targets) > 0).astype(int) if problem.labels == SIGNS else np.asarray(targets)


def default_measure(problem: Problem, truth: NDArray) -> str:
    """What a run is judged by unless its plan says: AUC for two classes of which one is rare."""
    if problem.labels == NOTHING or not problem.predicts:
        return "loss"
    if problem.labels.classes is None:
        return "r2" if problem.labels == NUMBERS else "loss"
    if problem.labels.classes == 2 and problem.likely and min(np.mean(truth == 0), np.mean(truth == 1)) < RARE:
        return "auc"
    return "accuracy"


def need_measure(problem: Problem, measure: str | None) -> None:
    """Refuse a measure that this problem's answers have not got, before anything runs."""
    classes = problem.labels.classes
    fits = {
        "accuracy": classes is not None and problem.predicts, "auc": classes == 2, "log-loss": problem.likely,
        "r2": classes is None and problem.labels != NOTHING and problem.predicts, "loss": True,
    }  # fmt: skip
    if measure is not None and not fits[measure]:
        known = ", ".join(name for name, fit in fits.items() if fit)
        raise InputError(f"run.metric = {measure!r} does not apply to {problem.name}: expected one of {known}")


def auc_parts(positive: NDArray, score: NDArray) -> NDArray[np.float64]:
    """Every positive's share of negatives below it, every negative's share of positives above it; ties count half.

    >>> auc_parts(np.array([True, False, True]), np.array([2.0, 1.0, 1.0]))
    array([1.  , 0.75, 0.5 ])
    """

    def below(these: NDArray, others: NDArray) -> NDArray:
        others = np.sort(others)
        return (np.searchsorted(others, these, "left") + np.searchsorted(others, these, "right")) / (2 * len(others))

    out = np.empty(len(score))
    out[positive] = below(score[positive], score[~positive])
    out[~positive] = 1 - below(score[~positive], score[positive])
    return out


def parts(measure: str, said: Answers) -> tuple[NDArray[np.float64], list[NDArray]] | None:
    """What every record adds (more is better), and the groups over each of which its mean is the measure.

    None where these records cannot tell: AUC of one class, R² of one value.
    """
    everybody = [np.arange(len(said.truth))]
    if measure == "accuracy":
        return (said.predicted == said.truth).astype(float), everybody
    if measure == "auc":
        positive = said.truth == 1
        if said.score is None or positive.all() or not positive.any():
            return None
        return auc_parts(positive, said.score), [np.flatnonzero(positive), np.flatnonzero(~positive)]
    if measure == "log-loss":
        chances = said.chances
        if chances is None:
            return None
        given = chances[np.arange(len(said.truth)), said.truth.astype(int)]
        return np.log(np.maximum(given, LEAST)), everybody
    if measure == "r2":
        variance = float(np.var(said.truth))
        if not variance > 0:
            return None
        return 1 - (said.predicted - said.truth) ** 2 / variance, everybody
    return -said.losses, everybody


def summary(said: Answers, specificity: float) -> dict[str, float]:
    """What a model is worth on these records in all the ways that apply, by the names of result.json."""
    out: dict[str, float] = {}
    score, positive = said.score, said.truth == 1
    if said.classes is not None and score is not None and positive.any() and not positive.all():
        out["test_auc"] = _auc(positive, score)
    if said.classes is not None and (found := parts("log-loss", said)) is not None:
        out["test_log_loss"] = -float(found[0].mean())
    if "test_auc" in out and score is not None:
        out["test_recall"] = _recall(positive, score, specificity)
    chances = said.chances
    if chances is not None:
        happened = said.truth == 1 if said.classes == 2 else said.predicted == said.truth
        chance = chances[:, 1] if said.classes == 2 else chances.max(axis=1)
        out["test_calibration"] = float(chance.mean() - happened.mean())
        order = np.argsort(chance, kind="stable")
        bins = [b for b in np.array_split(order, BINS) if len(b)]
        out["test_calibration_error"] = float(
            sum(len(b) * abs(chance[b].mean() - happened[b].mean()) for b in bins) / len(order)
        )
    return out


def _auc(positive: NDArray, score: NDArray) -> float:
    """The mean of the positives' `auc_parts`: both classes sorted, as looking up in order stays in the caches."""
    above, below = np.sort(score[positive]), np.sort(score[~positive])
    places = np.searchsorted(below, above, "left") + np.searchsorted(below, above, "right")
    return float(places.mean() / (2 * len(below)))


def _recall(positive: NDArray, score: NDArray, specificity: float) -> float:
    """The share of positives above the lowest threshold that leaves so many of the negatives at or below it."""
    negatives = np.sort(score[~positive])
    threshold = negatives[min(int(np.ceil(specificity * len(negatives))), len(negatives)) - 1]
    return float(np.mean(score[positive] > threshold))
