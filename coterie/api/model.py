"""A trained model, whoever trained it: it predicts records in the units and labels of those that it was trained on."""

from __future__ import annotations

import abc

import jax
import numpy as np
from numpy.typing import ArrayLike, NDArray

from coterie.api.coding import Coding
from coterie.errors import InputError
from coterie.problems.labels import NOTHING
from coterie.worth.measures import chances

__all__ = ["Model"]


class Model(abc.ABC):
    """One flat vector, and how records are written for it."""

    coding: Coding

    @property
    @abc.abstractmethod
    def point(self) -> NDArray[np.float64]:
        """The model as one flat vector, as the loss takes it."""

    @property
    def clip(self) -> float | None:
        """The norm to which gradients were clipped as it was trained, for which probabilities are corrected."""
        return None

    @property
    def model(self) -> object:
        """The model: weights (features, or features × classes), layers, a mean in the units of X, or your own tree.

        Where parties have `bounds`, weights are for scaled rows with a constant at the end; `predict` knows it.
        """
        problem, point = self.coding.problem, self.point
        return self.coding.centre(point) if problem.labels == NOTHING else problem.shaped(point)

    def predict(self, X: ArrayLike) -> NDArray:
        """Labels, or numbers, of records in the units of those that it was trained on; of a mean, the mean."""
        x = self.coding.rows(X)
        if self.coding.problem.labels == NOTHING:
            return np.tile(np.asarray(self.model), (len(x), 1))
        with jax.enable_x64(True):
            found = self.coding.problem.predict(*jax.device_put((self.point, x)))
        return self.coding.words(np.asarray(found))

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """The chance of every class, one column each in the order of the labels; corrected for clipped gradients."""
        problem, x = self.coding.problem, self.coding.rows(X)
        with jax.enable_x64(True):
            evidence = problem.evidence(*jax.device_put((self.point, x)))
        found = chances(problem, None if evidence is None else np.asarray(evidence, float), x, self.clip)
        if found is None:
            raise InputError(f"{problem.name} states no probabilities: use predict")
        return found

    def score(self, X: ArrayLike, y: ArrayLike | None = None) -> float:
        """How well it does on records that are not private: accuracy, R², or `result["metric"]`; of scaled records."""
        x, targets = self.coding.records(X if y is None else (X, y), "records")
        with jax.enable_x64(True):
            return float(self.coding.problem.score(*jax.device_put((self.point, x, targets))))
