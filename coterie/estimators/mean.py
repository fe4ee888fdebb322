"""`PrivateMean`: the mean of everybody's records, with the scikit-learn interface."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted, validate_data

from coterie.api.bounds import Bounds
from coterie.deploy.accounts import DataAccount
from coterie.estimators.base import Consensus, keep
from coterie.losses.mean import Mean

__all__ = ["PrivateMean"]


class PrivateMean(Consensus):
    """The mean of each column over the records of all parties, differentially private.

    Records are clipped to public `bounds`. With `algorithm="auto"` every party sends its share of the sum once, with
    Gaussian noise, and then averages with its neighbours, which costs nothing: the error is √N times that of a trusted
    server with the same budget, N parties, and no protocol whose every message is read can do without that factor.

    Parameters
    ----------
    epsilon, delta : float
        Budget of every party; a list of ε gives each its own.
    bounds : (low, high), list of pairs, or dictionary from column name to pair
        Public range of each column. Without it [−3, 3] is assumed, with a `BoundsWarning`.
    algorithm, settings, graph, rounds, n_agents, random_state, account
        As in `PrivateConsensusClassifier`.

    Attributes
    ----------
    mean_ : (features,)
    epsilon_spent_, private_, ledger_, history_, n_iter_, agents_, n_features_in_, feature_names_in_

    Examples
    --------
    >>> ages = np.random.default_rng(0).uniform(20, 60, (4000, 1))
    >>> site = np.arange(4000) % 5
    >>> model = PrivateMean(epsilon=1.0, bounds=(0, 120), random_state=0).fit(ages, agents=site)
    >>> bool(abs(model.mean_[0] - ages.mean()) < 1.0), round(model.epsilon_spent_, 6)
    (True, 1.0)
    """

    def __init__(
        self,
        epsilon: float | Sequence[float] = 1.0,
        delta: float = 1e-5,
        *,
        bounds: Bounds = None,
        algorithm: str = "auto",
        settings: dict[str, object] | None = None,
        graph: str | dict[str, object] = "ring",
        rounds: int | None = None,
        n_agents: int = 5,
        random_state: int | np.random.RandomState | None = None,
        account: DataAccount | str | Path | None = None,
    ) -> None:
        keep(self, locals())

    def fit(
        self, X: ArrayLike, y: ArrayLike | None = None, *, agents: ArrayLike | None = None,
        people: ArrayLike | None = None,
    ) -> PrivateMean:  # fmt: skip
        """Estimate the mean of X, or of a list with one table for each site; `agents` names each record's party.

        `people[i]` says whose record i is (of a list of sites, a list with one such for each): the mean is then over
        people, each counting with the mean of its own records, and so is the guarantee.
        """
        self._check(Mean(1, boxed=False), people=people)
        given = X
        X, _, agents = self._pooled(X, None, agents, targets=False)
        x = validate_data(self, X, dtype=np.float64)
        whose = self._people(people, given, len(x))
        where = self._box(x.shape[1])
        found = self._run(
            Mean(x.shape[1], boxed=False), where.scale(x), np.zeros(len(x)), agents, None, given=X,
            weighting="records", people=whose,
        )  # fmt: skip
        self.mean_ = where.middle + where.half * np.clip(found.point, -1.0, 1.0)
        self._remember(x)
        return self

    def score(self, X: ArrayLike, y: ArrayLike | None = None) -> float:
        """Minus the mean squared distance of records to the mean: of these records, without privacy."""
        check_is_fitted(self)
        x = validate_data(self, X, dtype=np.float64, reset=False)
        return -float(np.mean(np.sum((x - self.mean_) ** 2, axis=1)))
