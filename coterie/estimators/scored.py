"""What the estimators share that go by a score: labels and chances, targets in a public range, and what counts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple

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
from coterie.losses.squared import Squared
from coterie.problems.clipped import unclipped

__all__ = ["ByScore", "Classifies", "KnownTargets", "Learns", "LearnsClasses", "LearnsTargets"]


class ByScore(BaseEstimator, ABC):
    """What has scores: one for each record, or for more than two classes one for each class."""

    @abstractmethod
    def _scores(self, X: ArrayLike) -> NDArray[np.float64]:
        """(records, outputs), once fitted."""

    @abstractmethod
    def _trained_with(self, X: ArrayLike) -> tuple[NDArray[np.float64] | float, float | None]:
        """Norms of the rows of these records, and the norm to which gradients were clipped."""


class KnownTargets(NamedTuple):
    """What is public of the targets of a fit."""

    coded: Callable[[NDArray], NDArray]  # as the loss takes them
    loss: Callable[[int], Logistic | Softmax | Squared]  # of rows that are so wide
    leaks: tuple[str, ...] = ()  # what was read from the records to know it
    classes: tuple[object, ...] | None = None
    ends: tuple[float, float] | None = None  # of a number


class Learns(ByScore):
    """What is trained here."""

    _losses: ClassVar[tuple[Logistic | Softmax | Squared, ...]]  # any of which it may be trained with
    _numeric: ClassVar[bool]  # whether targets are numbers

    @abstractmethod
    def _known(self, y: NDArray) -> KnownTargets:
        """What is public of the targets; the caller of `fit` is two frames up."""


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


class LearnsClasses(Classifies, Learns):
    """A classifier that is trained here, with public labels."""

    classes: Sequence | None
    _losses = (Logistic(1), Softmax(1, 2))
    _numeric = False

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # noise on a hundred records costs accuracy, as asked
        return tags

    def _known(self, y: NDArray) -> KnownTargets:
        """Stores `classes_`."""
        check_classification_targets(y)
        self.classes_, leaks = public_labels(self.classes, y, stacklevel=4)
        if len(self.classes_) < 2:
            raise InputError(f"a classifier needs at least 2 classes, got {len(self.classes_)} class: {self.classes_}")
        return KnownTargets(self._coded, self._loss, leaks, tuple(self.classes_.tolist()))

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


class LearnsTargets(RegressorMixin, Learns):
    """A regressor that is trained here, on targets in a public range."""

    target_bounds: tuple[float, float] | None
    _target: PublicBox
    _losses = (Squared(1),)
    _numeric = True

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # as for classifiers
        return tags

    def _known(self, y: NDArray) -> KnownTargets:
        """Stores the public range of the target."""
        if self.target_bounds is not None and np.shape(self.target_bounds) != (2,):
            raise InputError(f"target_bounds must be (low, high), got {self.target_bounds!r}")
        self._target = where = box(self.target_bounds, ["target"], "target", "target_bounds")
        ends = float(where.low[0]), float(where.high[0])
        return KnownTargets(lambda y: where.scale(np.asarray(y, float)), Squared, ends=ends)

    @abstractmethod
    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """Predicted targets."""

    def _credit(self, X: ArrayLike, y: ArrayLike) -> NDArray[np.float64]:
        """What each record says of the model, in [0, 1]: 1 − (error in units of the public range)²."""
        low, high = self._target.low[0], self._target.high[0]
        error = np.clip(self.predict(X), low, high) - np.clip(np.asarray(y, float), low, high)
        return 1 - (error / (high - low)) ** 2
