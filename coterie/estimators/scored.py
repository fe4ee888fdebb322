"""What the estimators share that go by a score: labels and chances, targets in a public range, and what counts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets

from coterie.api.bounds import PublicBox, box
from coterie.data.labels import public_labels
from coterie.errors import InputError
from coterie.losses.logistic import Logistic
from coterie.losses.softmax import Softmax
from coterie.problems.clipped import unclipped

__all__ = ["ByScore", "Classifies", "LearnsClasses", "LearnsTargets"]


class ByScore(BaseEstimator, ABC):
    """What has scores: one for each record, or for more than two classes one for each class."""

    @abstractmethod
    def _scores(self, X: ArrayLike) -> NDArray[np.float64]:
        """(records, outputs), once fitted."""

    @abstractmethod
    def _trained_with(self, X: ArrayLike) -> tuple[NDArray[np.float64] | float, float | None]:
        """Norms of the rows of these records, and the norm to which gradients were clipped."""


class Classifies(ClassifierMixin, ByScore):
    """Labels and chances by scores."""

    classes_: NDArray

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Scores: for two classes (n,), positive meaning the second; else (n, classes)."""
        scores = self._scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: ArrayLike) -> NDArray:
        """Labels."""
        scores = self._scores(X)
        return self.classes_[(scores[:, 0] > 0).astype(int) if scores.shape[1] == 1 else scores.argmax(axis=1)]

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Probabilities of the classes: the logistic model's, corrected for the clip it was trained with."""
        scores = self._scores(X)
        two = scores.shape[1] == 1
        p = np.column_stack([expit(-scores[:, 0]), expit(scores[:, 0])]) if two else softmax(scores, axis=1)
        return unclipped(p, *self._trained_with(X), two=two)


class LearnsClasses(Classifies):
    """A classifier that is trained here, with public labels."""

    classes: Sequence | None

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # noise on a hundred records costs accuracy, as asked
        return tags

    def _know_classes(self, y: NDArray) -> tuple[str, ...]:
        """Store `classes_`; returns what was read from the records for it. The caller of `fit` is three frames up."""
        check_classification_targets(y)
        self.classes_, leaks = public_labels(self.classes, y, stacklevel=4)
        if len(self.classes_) < 2:
            raise InputError(f"a classifier needs at least 2 classes, got {len(self.classes_)} class: {self.classes_}")
        return leaks

    def _loss(self, width: int) -> Logistic | Softmax:
        """The loss of rows that are so wide."""
        return Logistic(width) if len(self.classes_) == 2 else Softmax(width, len(self.classes_))

    def _coded(self, y: NDArray) -> NDArray:
        """Labels as the loss takes them."""
        same = np.asarray(y)[:, None] == self.classes_[None]
        if not same.any(axis=1).all():
            stray = np.asarray(y)[~same.any(axis=1)][:1].tolist()[0]
            raise InputError(f"label {stray!r} is not one of the classes {self.classes_.tolist()}")
        codes = same.argmax(axis=1)
        return np.where(codes == 1, 1.0, -1.0) if len(self.classes_) == 2 else codes.astype(np.int32)

    def _credit(self, X: ArrayLike, y: ArrayLike) -> NDArray[np.float64]:
        """What each record says of the model, in [0, 1]: whether its label is predicted."""
        return (self.predict(X) == np.asarray(y)).astype(float)


class LearnsTargets(RegressorMixin, ByScore):
    """A regressor that is trained here, on targets in a public range."""

    target_bounds: tuple[float, float] | None
    _target: PublicBox

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # as for classifiers
        return tags

    def _know_range(self) -> PublicBox:
        """The public range of the target, which is stored."""
        if self.target_bounds is not None and np.shape(self.target_bounds) != (2,):
            raise InputError(f"target_bounds must be (low, high), got {self.target_bounds!r}")
        self._target = box(self.target_bounds, ["target"], "target", "target_bounds")
        return self._target

    @abstractmethod
    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """Predicted targets."""

    def _credit(self, X: ArrayLike, y: ArrayLike) -> NDArray[np.float64]:
        """What each record says of the model, in [0, 1]: 1 − (error in units of the public range)²."""
        low, high = self._target.low[0], self._target.high[0]
        error = np.clip(self.predict(X), low, high) - np.clip(np.asarray(y, float), low, high)
        return 1 - (error / (high - low)) ** 2
