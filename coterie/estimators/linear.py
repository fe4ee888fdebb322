"""Private linear classification and regression over several parties, with the scikit-learn interface."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from coterie.api.bounds import PublicBox, box, default_radius, into_ball, rows_of
from coterie.data.labels import public_labels
from coterie.errors import InputError
from coterie.estimators.base import WEIGHTS, Consensus
from coterie.losses.logistic import Logistic
from coterie.losses.softmax import Softmax
from coterie.losses.squared import Squared
from coterie.problems.clipped import unclipped

__all__ = ["PrivateConsensusClassifier", "PrivateConsensusRegressor"]


class _LinearModel(Consensus):
    radius: float | None
    ridge: float | None
    weighting: str

    def _store(self, weights: NDArray, where: PublicBox) -> None:
        """coef_ and intercept_ in the units of X from weights of (scaled row, constant); one row for each output."""
        self._where, self._radius = where, default_radius(where.low.size) if self.radius is None else self.radius
        radius = self._radius
        self.coef_ = weights[:, :-1] / (np.sqrt(2) * radius * where.half)
        self.intercept_ = weights[:, -1] / np.sqrt(2) - self.coef_ @ where.middle

    def _linear(self, X: ArrayLike) -> NDArray[np.float64]:
        """Scores of records as training saw them: within the bounds and the radius."""
        check_is_fitted(self)
        x = validate_data(self, X, dtype=np.float64, reset=False)
        inside = self._radius * into_ball(self._where.scale(x), self._radius)
        return (self._where.middle + self._where.half * inside) @ self.coef_.T + self.intercept_


class PrivateConsensusClassifier(ClassifierMixin, _LinearModel):
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
        bounds: Any = None,
        radius: float | None = None,
        ridge: float | None = None,
        rounds: int | None = None,
        weighting: str = "agents",
        classes: Sequence | None = None,
        n_agents: int = 5,
        random_state: Any = None,
        account: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.algorithm = algorithm
        self.settings = settings
        self.graph = graph
        self.bounds = bounds
        self.radius = radius
        self.ridge = ridge
        self.rounds = rounds
        self.weighting = weighting
        self.classes = classes
        self.n_agents = n_agents
        self.random_state = random_state
        self.account = account

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # noise on a hundred records costs accuracy, as asked
        return tags

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        agents: ArrayLike | None = None,
        people: ArrayLike | Sequence[ArrayLike] | None = None,
        test: tuple[ArrayLike, ArrayLike] | None = None,
        sample_weight: Any = None,
    ) -> PrivateConsensusClassifier:
        """Train on (X, y), record i being held by the party `agents[i]`; or on a list with one (X, y) for each site.

        `people[i]` says whose record i is (of a list of sites, a list with one such for each): the guarantee is then
        for a person with all of its records at a party, and without `agents` they stay at one. `test`: records that are
        not private, for a curve of the accuracy.
        """
        if sample_weight is not None:
            raise InputError(WEIGHTS)
        self._check(Logistic(1), Softmax(1, 2), people=people)
        given = X
        X, y, agents = self._pooled(X, y, agents)
        x, y = validate_data(self, X, y, dtype=np.float64)
        whose = self._people(people, given, len(x))
        check_classification_targets(y)
        self.classes_, leaks = public_labels(self.classes, y, stacklevel=3)
        if len(self.classes_) < 2:
            raise InputError(f"a classifier needs at least 2 classes, got {len(self.classes_)} class: {self.classes_}")
        where = self._box(x.shape[1])
        codes = self._codes(y)
        problem, targets = self._problem(x.shape[1] + 1, codes)
        shown = None
        if test is not None:
            tx, ty = validate_data(self, *test, dtype=np.float64, reset=False)
            shown = rows_of(tx, where, self.radius), self._problem(x.shape[1] + 1, self._codes(ty))[1]
        found = self._run(
            problem, rows_of(x, where, self.radius), targets, agents, shown, leaks, given=(X, y),
            ridge=self.ridge, weighting=self.weighting, people=whose,
        )  # fmt: skip
        outputs = 1 if len(self.classes_) == 2 else len(self.classes_)
        self._store(found.point.reshape(x.shape[1] + 1, outputs).T, where)
        self._remember(x)
        return self

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Scores: for two classes (n,), positive meaning the second; else (n, classes)."""
        scores = self._linear(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: ArrayLike) -> NDArray:
        """Labels."""
        scores = self._linear(X)
        return self.classes_[(scores[:, 0] > 0).astype(int) if scores.shape[1] == 1 else scores.argmax(axis=1)]

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Probabilities of the classes: the logistic model's, corrected for the clip it was trained with."""
        scores = self._linear(X)
        two = scores.shape[1] == 1
        p = np.column_stack([expit(-scores[:, 0]), expit(scores[:, 0])]) if two else softmax(scores, axis=1)
        norms = np.linalg.norm(
            rows_of(validate_data(self, X, dtype=np.float64, reset=False), self._where, self._radius), axis=1
        )
        return unclipped(p, norms, self._clip, two=two)

    def _codes(self, y: NDArray) -> NDArray:
        same = np.asarray(y)[:, None] == self.classes_[None]
        if not same.any(axis=1).all():
            stray = np.asarray(y)[~same.any(axis=1)][:1].tolist()[0]
            raise InputError(f"label {stray!r} is not one of the classes {self.classes_.tolist()}")
        return same.argmax(axis=1)

    def _problem(self, width: int, codes: NDArray) -> tuple[Logistic | Softmax, NDArray]:
        if len(self.classes_) == 2:
            return Logistic(width), np.where(codes == 1, 1.0, -1.0)
        return Softmax(width, len(self.classes_)), codes.astype(np.int32)

    def _credit(self, X: ArrayLike, y: ArrayLike) -> NDArray[np.float64]:
        """What each record says of the model, in [0, 1]: whether its label is predicted."""
        return (self.predict(X) == np.asarray(y)).astype(float)


class PrivateConsensusRegressor(RegressorMixin, _LinearModel):
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
        bounds: Any = None,
        target_bounds: tuple[float, float] | None = None,
        radius: float | None = None,
        ridge: float | None = None,
        rounds: int | None = None,
        weighting: str = "agents",
        n_agents: int = 5,
        random_state: Any = None,
        account: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.algorithm = algorithm
        self.settings = settings
        self.graph = graph
        self.bounds = bounds
        self.target_bounds = target_bounds
        self.radius = radius
        self.ridge = ridge
        self.rounds = rounds
        self.weighting = weighting
        self.n_agents = n_agents
        self.random_state = random_state
        self.account = account

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # as for the classifier
        return tags

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        agents: ArrayLike | None = None,
        people: ArrayLike | Sequence[ArrayLike] | None = None,
        test: tuple[ArrayLike, ArrayLike] | None = None,
        sample_weight: Any = None,
    ) -> PrivateConsensusRegressor:
        """Train on (X, y), record i being held by the party `agents[i]`; or on a list with one (X, y) for each site.

        `people[i]` says whose record i is, as for the classifier. `test`: records that are not private, for a curve of
        R² (of targets in scaled units).
        """
        if sample_weight is not None:
            raise InputError(WEIGHTS)
        self._check(Squared(1), people=people)
        given = X
        X, y, agents = self._pooled(X, y, agents)
        x, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        whose = self._people(people, given, len(x))
        where = self._box(x.shape[1])
        self._target = box(self._target_bounds(), ["target"], "target", "target_bounds")
        shown = None
        if test is not None:
            tx, ty = validate_data(self, *test, dtype=np.float64, y_numeric=True, reset=False)
            shown = rows_of(tx, where, self.radius), self._target.scale(ty)
        problem, rows = Squared(x.shape[1] + 1), rows_of(x, where, self.radius)
        found = self._run(
            problem, rows, self._target.scale(y), agents, shown, given=(X, y), ridge=self.ridge,
            weighting=self.weighting, people=whose,
        )  # fmt: skip
        self._store(found.point[None], where)
        half, middle = self._target.half[0], self._target.middle[0]
        self.coef_, self.intercept_ = half * self.coef_[0], float(half * self.intercept_[0] + middle)
        self._remember(x)
        return self

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """Predicted targets."""
        return self._linear(X)

    def _target_bounds(self) -> Any:
        if self.target_bounds is None or np.shape(self.target_bounds) == (2,):
            return self.target_bounds
        raise InputError(f"target_bounds must be (low, high), got {self.target_bounds!r}")

    def _credit(self, X: ArrayLike, y: ArrayLike) -> NDArray[np.float64]:
        """What each record says of the model, in [0, 1]: 1 − (error in units of the public range)²."""
        span = 2 * self._target.half[0]
        error = np.clip(self.predict(X), self._target.low, self._target.high) - np.clip(
            np.asarray(y, float), self._target.low, self._target.high
        )
        return 1 - (error / span) ** 2
