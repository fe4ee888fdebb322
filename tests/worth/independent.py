"""Whether joining pays, worked out without coterie: NumPy, SciPy and scikit-learn only.

Alone is scikit-learn's logistic regression with its own cross-validation. The private model is noisy descent along the
mean of the parties' gradients, as dp-dsgd is where the graph mixes perfectly: the settings are handed in, the noise
is worked out here from (ε, δ). The interval is Nadeau and Bengio's over splits.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm
from scipy.stats import t as student
from sklearn.linear_model import LogisticRegressionCV
from sklearn.metrics import roc_auc_score

Part = tuple[np.ndarray, np.ndarray]  # features, and labels −1 and 1
RIDGES = np.array([1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0])


@dataclass(frozen=True)
class Descent:
    """How the private model is trained."""

    epsilon: float
    delta: float
    steps: int
    step: float
    momentum: float
    clip: float
    tail: float
    ridge: float


def gaussian_mu(epsilon: float, delta: float) -> float:
    """μ for which μ-Gaussian DP is (ε, δ)-DP."""
    spent = lambda mu: norm.cdf(-epsilon / mu + mu / 2) - np.exp(epsilon) * norm.cdf(-epsilon / mu - mu / 2)  # noqa: E731
    return float(brentq(lambda mu: spent(mu) - delta, 1e-4, 50.0))


def private(parts: Sequence[Part], how: Descent, draws: int, rng: np.random.Generator) -> np.ndarray:
    """Heavy-ball descent on the mean of clipped gradients, each party's noised for itself; the tail averages.

    One row for each of so many draws of all noise.
    """
    multiplier = np.sqrt(how.steps) / gaussian_mu(how.epsilon, how.delta)
    x = before = np.zeros((draws, parts[0][0].shape[1]))
    total, first = np.zeros_like(x), int((1 - how.tail) * how.steps)
    norms = [np.linalg.norm(features, axis=1)[:, None] for features, _ in parts]
    for k in range(how.steps):
        slope = how.ridge * x
        for (features, labels), norm_of in zip(parts, norms, strict=True):
            weight = -labels[:, None] / (1 + np.exp(labels[:, None] * (features @ x.T)))
            weight = weight * np.minimum(1, how.clip / np.maximum(np.abs(weight) * norm_of, 1e-300))
            noise = multiplier * 2 * how.clip / len(labels) * rng.normal(size=x.shape)
            slope = slope + (weight.T @ features / len(labels) + noise) / len(parts)
        x, before = x + how.momentum * (x - before) - how.step * slope, x
        total += x if k >= first else 0.0
    return total / (how.steps - first)


def alone(part: Part, seed: int) -> np.ndarray:
    """scikit-learn's model of one party, its ridge chosen by five-fold cross-validation."""
    features, labels = part
    if len(np.unique(labels)) < 2:
        return np.zeros(features.shape[1])
    folds = min(5, int(min((labels > 0).sum(), (labels < 0).sum())))
    if folds < 2:
        return np.zeros(features.shape[1])
    strengths = 1 / (RIDGES * len(labels))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of scikit-learn: of options to come, and of loose ends at tiny ridges
        made = LogisticRegressionCV(
            Cs=strengths, cv=folds, fit_intercept=False, scoring="neg_log_loss", max_iter=200, tol=1e-5
        ).fit(features, labels)
    return made.coef_[0]


def score(x: np.ndarray, part: Part, measure: str) -> float | None:
    """AUC or accuracy."""
    features, labels = part
    if measure == "accuracy":
        return float(np.mean(np.where(features @ x > 0, 1, -1) == labels))
    return None if len(np.unique(labels)) < 2 else float(roc_auc_score(labels > 0, features @ x))


def mean_gain(
    splits: Sequence[tuple[Sequence[Part], Sequence[Part]]], how: Descent, measure: str, chosen: Sequence[int],
    draws: int,
) -> tuple[float, float, float]:  # fmt: skip
    """The mean over the chosen parties of private − alone, and its 95 % interval over splits (training, test parts).

    The private model's score is its mean over so many draws of the noise.
    """
    each, shares = [], []
    for seed, (training, test) in enumerate(splits):
        models, gains = private(training, how, draws, np.random.default_rng([7, seed])), []
        for i in chosen:
            own = score(alone(training[i], seed), test[i], measure)
            mine = [score(model, test[i], measure) for model in models]
            if own is not None:
                gains.append(np.mean([one for one in mine if one is not None]) - own)
        each.append(np.mean(gains))
        shares.append(sum(len(y) for _, y in test) / sum(len(y) for _, y in training))
    error = np.sqrt((1 / len(each) + shares[0]) * np.var(each, ddof=1))
    reach = student.isf(0.025, len(each) - 1) * error
    mean = float(np.mean(each))
    return mean, mean - reach, mean + reach
