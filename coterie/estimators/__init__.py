"""scikit-learn estimators: private models over the records of several parties, with `fit` and `predict`."""

from coterie.api.bounds import BoundsWarning
from coterie.data.labels import LabelsWarning
from coterie.estimators.additive import (
    AdditiveClassifier,
    AdditiveRegressor,
    PrivateAdditiveClassifier,
    PrivateAdditiveRegressor,
)
from coterie.estimators.fits import RepeatedFitWarning, forget_fits
from coterie.estimators.linear import PrivateConsensusClassifier, PrivateConsensusRegressor
from coterie.estimators.mean import PrivateMean
from coterie.estimators.search import PrivateSearch

__all__ = [
    "AdditiveClassifier",
    "AdditiveRegressor",
    "BoundsWarning",
    "LabelsWarning",
    "PrivateAdditiveClassifier",
    "PrivateAdditiveRegressor",
    "PrivateConsensusClassifier",
    "PrivateConsensusRegressor",
    "PrivateMean",
    "PrivateSearch",
    "RepeatedFitWarning",
    "forget_fits",
]
