"""Private linear classification and regression over several parties, with the scikit-learn interface."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted, validate_data

from coterie.api.bounds import Bounds, PublicBox, default_radius, into_ball, rows_of
from coterie.deploy.accounts import DataAccount
from coterie.estimators.base import Consensus, keep
from coterie.estimators.scored import Learns, LearnsClasses, LearnsTargets

__all__ = ["PrivateConsensusClassifier", "PrivateConsensusRegressor"]


class _LinearModel(Consensus, Learns):
    radius: float | None
    ridge: float | None
    weighting: str

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        *,
        agents: ArrayLike | None = None,
        people: ArrayLike | None = None,
        test: tuple[ArrayLike, ArrayLike] | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Train on (X, y), record i being held by the party `agents[i]`; or on a list with one (X, y) for each site.

        `people[i]` says whose record i is (of a list of sites, a list with one such for each): the guarantee is then
        for a person with all of its records at a party, and without `agents` they stay at one. `test`: records that are
        not private, for a curve of the accuracy, or of R² (of targets in scaled units).
        """
        given = X
        X, y, agents = self._opened(X, y, agents, people, sample_weight, *self._losses)
        x, targets = validate_data(self, X, y, dtype=np.float64, y_numeric=self._numeric)
        whose = self._people(people, given, len(x))
        known, where = self._known(targets), self._box(x.shape[1])
        shown = None
        if test is not None:
            tx, ty = validate_data(self, *test, dtype=np.float64, y_numeric=self._numeric, reset=False)
            shown = rows_of(tx, where, self.radius), known.coded(ty)
        found = self._run(
            known.loss(x.shape[1] + 1), rows_of(x, where, self.radius), known.coded(targets), agents, shown,
            known.leaks, given=(X, targets), ridge=self.ridge, weighting=self.weighting, people=whose,
        )  # fmt: skip
        self._store(found.point.reshape(x.shape[1] + 1, -1).T, where)
        self._remember(x)
        return self

    def _store(self, weights: NDArray, where: PublicBox) -> None:
        """coef_ and intercept_ in the units of X from weights of (scaled row, constant); one row for each output."""
        self._where, self._radius = where, default_radius(where.low.size) if self.radius is None else self.radius
        radius = self._radius
        self.coef_ = weights[:, :-1] / (np.sqrt(2) * radius * where.half)
        self.intercept_ = weights[:, -1] / np.sqrt(2) - self.coef_ @ where.middle

    def _scores(self, X: ArrayLike) -> NDArray[np.float64]:
        """Scores of records as training saw them: within the bounds and the radius."""
        check_is_fitted(self)
        x = validate_data(self, X, dtype=np.float64, reset=False)
        inside = self._radius * into_ball(self._where.scale(x), self._radius)
        return (self._where.middle + self._where.half * inside) @ self.coef_.T + self.intercept_

    def _trained_with(self, X: ArrayLike) -> tuple[NDArray[np.float64], float | None]:
        x = validate_data(self, X, dtype=np.float64, reset=False)
        return np.linalg.norm(rows_of(x, self._where, self._radius), axis=1), self._clip


class PrivateConsensusClassifier(LearnsClasses, _LinearModel):
    """Logistic regression that several parties train together, differentially private, on a graph without a server.

    Each party keeps its records and sends its neighbours noisy vectors only. The guarantee holds for one record of one
    party replaced by another (for a person with all of its records there, where `fit` is given `people`), against
    somebody who reads every message; the parties' sizes, the class labels and all parameters are public. It covers
    every attribute that `fit` stores.

    All parties run in this process with seeded floating-point noise: a simulation of the deployed network, for study
    and for choosing settings on public data. Records that are really apart belong in a deployment.

    Parameters
    ----------
    epsilon, delta : float
        Budget of every party, for the whole fit; a list of ε gives each party (in sorted order) its own.
    algorithm : str
        A name from `coterie algorithms`, or "auto": `dp-dsgd`, the strongest at small budgets in docs/comparison.md.
        The rule looks at the kind of model only.
    settings : dict, optional
        The algorithm's own settings, such as {"clip": 0.5}.
    graph : str or dict
        Who talks to whom: "ring", "star", "complete", …, or {"kind": "small-world", "k": 4, "p": 0.1}.
    bounds : (low, high), list of pairs, or dictionary from column name to pair
        Public range of each feature; values beyond are clipped for training. Never the range of these records. Without
        it [−3, 3] is assumed, with a `BoundsWarning`.
    radius : float, optional
        Records, once each feature is mapped to [−1, 1], are pulled into a ball of this public radius: smaller means
        less noise, too small flattens long records. Default min(√d, 1 + √d/2) for d features.
    ridge : float, optional
        ridge/2 ‖w‖² on the weights of the scaled rows, intercept included. Default: the algorithm's own (`ridge_`).
    rounds : int, optional
        Rounds of messages. Default: the algorithm's rule from sizes and budget.
    weighting : {"agents", "records"}
        What counts equally. "records" gives the optimum of the pooled records; "agents" (default) that of the average
        of the parties' losses.
    classes : sequence of labels, optional
        The labels, publicly known. Without it those that occur in y, which no budget pays for: a `LabelsWarning`
        says so, and `private_` is False.
    n_agents : int
        How many parties to make, evenly and at random, where `fit` is not told who holds what.
    random_state : int, RandomState or None
        Seed of the split and of the noise. Whoever knows it can subtract the noise. None: from the operating system.
    account : DataAccount or path, optional
        The data set's account: what the fit costs is drawn from it first, or the fit is refused (docs/account.md).

    Attributes
    ----------
    coef_, intercept_ : weights in the units of X, (1, features) for two classes, else one row for each class. Records
        beyond `bounds` or `radius` are scored as they are trained on: pulled back.
    classes_, n_features_in_, feature_names_in_, agents_ : labels, columns, parties.
    epsilon_spent_, unit_ : ε of the party that paid most, at delta; "record" or "person", whom it is for.
    protects_ : ε of a record, of a person, and of a person whom two parties know (docs/people.md).
    private_, leaks_ : whether that is a guarantee; if not, what was read from the records without being paid for.
    ledger_ : dictionary from party to its `MemoryLedger`; `.entries` are the events.
    history_ : curves over `history_["round"]`: disagreement of the parties, and the score on `test` if given.
    n_iter_, algorithm_, settings_, ridge_ : rounds, and what was run with which settings.
    points_ : each party's own model, in scaled units.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (5000, 3)); y = np.where(X[:, 0] - X[:, 1] > 0, "yes", "no")
    >>> model = PrivateConsensusClassifier(epsilon=1.0, bounds=(-1, 1), classes=["no", "yes"], random_state=0)
    >>> model = model.fit(X, y, agents=np.arange(5000) % 4)
    >>> model.score(X, y) > 0.95, round(model.epsilon_spent_, 6), model.private_
    (True, 1.0, True)
    """

    def __init__(
        self,
        epsilon: float | Sequence[float] = 1.0,
        delta: float = 1e-5,
        *,
        algorithm: str = "auto",
        settings: dict[str, object] | None = None,
        graph: str | dict[str, object] = "ring",
        bounds: Bounds = None,
        radius: float | None = None,
        ridge: float | None = None,
        rounds: int | None = None,
        weighting: str = "agents",
        classes: Sequence | None = None,
        n_agents: int = 5,
        random_state: int | np.random.RandomState | None = None,
        account: DataAccount | str | Path | None = None,
    ) -> None:
        keep(self, locals())


class PrivateConsensusRegressor(LearnsTargets, _LinearModel):
    """Linear regression that several parties train together, differentially private, on a graph without a server.

    Squared loss on a target mapped to [−1, 1]; the algorithm clips every record's gradient, so far outliers count like
    those at the clip. Guarantee, parameters and attributes as in `PrivateConsensusClassifier`, and

    Parameters
    ----------
    target_bounds : (low, high)
        Public range of y; values beyond are clipped for training. Without it [−3, 3] is assumed, with a
        `BoundsWarning`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 10, (5000, 2)); y = 3 * X[:, 0] - X[:, 1] + rng.normal(size=5000)
    >>> model = PrivateConsensusRegressor(bounds=(0, 10), target_bounds=(-15, 35), random_state=0)
    >>> model = model.fit(X, y, agents=np.arange(5000) % 4)
    >>> model.score(X, y) > 0.8
    True
    """

    def __init__(
        self,
        epsilon: float | Sequence[float] = 1.0,
        delta: float = 1e-5,
        *,
        algorithm: str = "auto",
        settings: dict[str, object] | None = None,
        graph: str | dict[str, object] = "ring",
        bounds: Bounds = None,
        target_bounds: tuple[float, float] | None = None,
        radius: float | None = None,
        ridge: float | None = None,
        rounds: int | None = None,
        weighting: str = "agents",
        n_agents: int = 5,
        random_state: int | np.random.RandomState | None = None,
        account: DataAccount | str | Path | None = None,
    ) -> None:
        keep(self, locals())

    def _store(self, weights: NDArray, where: PublicBox) -> None:
        super()._store(weights, where)
        half, middle = self._target.half[0], self._target.middle[0]
        self.coef_, self.intercept_ = half * self.coef_[0], float(half * self.intercept_[0] + middle)

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """Predicted targets."""
        return self._scores(X)
