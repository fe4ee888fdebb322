"""Classifiers that are private and whose decisions do not depend on a protected group, for one party and for many.

See docs/fair.md. `PrivateFairClassifier` is the scikit-learn estimator; `release` and `Statistics` the mechanism under
it; `evaluate` and `private_metrics` say how fair decisions are; `fit_by_secret_sum` and `fit_by_consensus` train over
several parties; `CovariancePenalised` brings the penalty to the iterative algorithms.
"""

from typing import TYPE_CHECKING

from coterie.fair.decentralised import FairNetwork, fit_by_consensus, fit_by_secret_sum
from coterie.fair.features import Features, features
from coterie.fair.mechanisms import Attribute, Release, release
from coterie.fair.methods import METHODS, Method
from coterie.fair.metrics import FairnessReport, evaluate, private_metrics
from coterie.fair.noise import GridNoise, Seeded
from coterie.fair.penalised import CovariancePenalised, directions_of, release_direction
from coterie.fair.polynomial import Statistics
from coterie.fair.printed import release_as_printed

if TYPE_CHECKING:
    from coterie.fair.estimator import PrivateFairClassifier

__all__ = [
    "METHODS",
    "Attribute",
    "CovariancePenalised",
    "FairNetwork",
    "FairnessReport",
    "Features",
    "GridNoise",
    "Method",
    "PrivateFairClassifier",
    "Release",
    "Seeded",
    "Statistics",
    "directions_of",
    "evaluate",
    "features",
    "fit_by_consensus",
    "fit_by_secret_sum",
    "private_metrics",
    "release",
    "release_as_printed",
    "release_direction",
]


def __getattr__(name: str) -> object:
    """The estimator, when it is asked for: scikit-learn and pandas take seconds, and a run needs neither."""
    if name == "PrivateFairClassifier":
        from coterie.fair.estimator import PrivateFairClassifier

        return PrivateFairClassifier
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
