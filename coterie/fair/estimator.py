"""`PrivateFairClassifier`: private, fair, two-class linear classification with the scikit-learn interface."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from coterie.data.encode import Category
from coterie.data.labels import public_labels
from coterie.drivers.seeds import wide_generator
from coterie.errors import InputError
from coterie.fair.features import Bounds, Features, book_of, features
from coterie.fair.mechanisms import release
from coterie.fair.methods import METHODS
from coterie.fair.noise import Charge, GridNoise, Noise, Seeded
from coterie.fair.polynomial import Statistics
from coterie.fair.printed import release_as_printed
from coterie.privacy.accountants import account
from coterie.privacy.events import NonPrivate

if TYPE_CHECKING:
    from coterie.deploy.accounts import DataAccount

__all__ = ["PrivateFairClassifier", "logistic_regression"]


class PrivateFairClassifier(ClassifierMixin, BaseEstimator):
    """A linear classifier that is differentially private and whose scores do not covary with a protected attribute.

    The guarantee is for one record replaced by another, the number of records being public. It holds for the weights
    and everything else that `fit` stores, and rests on bounds that do not come from the records.

    Parameters
    ----------
    epsilon, delta : float
        Budget. Laplace methods (fm, pflr-star, pdfc) are pure ε and ignore delta. `epsilon=inf`: no privacy.
    method : {"adfc", "pdfc", "pflr-star", "relaxed-fm", "fm", "lr"}
        See `coterie.fair.METHODS`.
    sensitive_feature : column index or name, or None
        The protected attribute in X. It is taken out of the features. A numeric column makes two groups, split at the
        middle of its public bounds; a categorical one a group for each level (more than two: one-against-rest
        penalties). None: pass `sensitive_features` (group numbers) to `fit`.
    groups : int
        How many groups there are, where `sensitive_features` is given to `fit`.
    bounds : (low, high), list of pairs, or dictionary
        Public range of the columns, (low, high), or public list of categories (data frames). Required.
    penalty : float
        Weight α of the covariance penalty: 0 ignores fairness, inf makes the released covariance exactly 0. With inf a
        covariance that is mostly noise costs a whole direction of the features; 1 bounds that loss.
    attribute, ratio : column, float
        Group-wise noise: `ratio` ≥ 1 times as much on everything that involves this column (pdfc, adfc).
    shares : three floats, optional
        How the budget is divided over group shares, objective and covariance.
    classes : pair of labels, optional
        The two labels, publicly known. Without it those that occur in y, which no budget pays for: a `LabelsWarning`
        says so, and `private_` is False.
    norm : {"max", "unit"}
        Divide records by the largest possible norm, or each by its own (then `attribute_account_` stays None).
    as_printed : bool
        Run what the dissertation printed, for study: warns; `epsilon_` is the proved cost.
    secure : bool
        Integer noise on a grid from the operating system (`coterie.privacy.secure`). False: floating-point noise, for
        study; even unseeded (`random_state=None`: from the operating system's entropy) it protects nobody whose
        weights are published in full precision.
    random_state : int, RandomState or None
        Seed of floating-point noise; must be None with `secure=True`. Whoever knows the seed can subtract the noise.
    account : DataAccount or path, optional
        The data set's account: what the fit costs is drawn from it first, or the fit is refused (docs/account.md).

    Attributes
    ----------
    coef_ : (1, features) weights, the first belonging to a constant feature.
    epsilon_, delta_ : what was spent; account_ : by which accountant; events_ : the releases.
    private_, leaks_ : whether that is a guarantee; if not, what was read from the records without being paid for.
    claimed_epsilon_ : what the dissertation would print (as_printed only).
    attribute_account_ : cost for neighbours that differ in `attribute` only.
    group_share_ : released shares of the protected groups; classes_, feature_names_, n_features_in_.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (20000, 3)); X[:, 0] = X[:, 0] > 0
    >>> y = (X[:, 1] + 0.5 * X[:, 0] > 0.2).astype(int)
    >>> model = PrivateFairClassifier(epsilon=1.0, delta=1e-5, sensitive_feature=0,
    ...     bounds=[(0, 1), (-1, 1), (-1, 1)], classes=[0, 1], random_state=0).fit(X, y)
    >>> model.score(X, y) > 0.8, round(model.epsilon_, 6), model.private_
    (True, 1.0, True)
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        method: str = "adfc",
        sensitive_feature: ArrayLike | None = None,
        *,
        groups: int = 2,
        bounds: Bounds | None = None,
        penalty: float = 1.0,
        attribute: object = None,
        ratio: float = 1.0,
        shares: Sequence[float] | None = None,
        classes: Sequence | None = None,
        norm: str = "max",
        as_printed: bool = False,
        secure: bool = False,
        random_state: int | np.random.RandomState | None = None,
        account: DataAccount | str | Path | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.method = method
        self.sensitive_feature = sensitive_feature
        self.groups = groups
        self.bounds = bounds
        self.penalty = penalty
        self.attribute = attribute
        self.ratio = ratio
        self.shares = shares
        self.classes = classes
        self.norm = norm
        self.as_printed = as_printed
        self.secure = secure
        self.random_state = random_state
        self.account = account

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.poor_score = True  # noise and fairness both cost accuracy, as asked
        tags.non_deterministic = self.random_state is None and self.method != "lr"
        return tags

    def fit(self, X: ArrayLike, y: ArrayLike, *, sensitive_features: ArrayLike | None = None) -> PrivateFairClassifier:
        """Release the objective of the records once, with noise, and minimise it."""
        how = METHODS.get(self.method)
        if how is None:
            raise InputError(f"unknown method {self.method!r}: expected one of {', '.join(METHODS)}")
        given = X, y
        frame, y = self._frame(X, y)
        book = book_of(self.bounds, list(frame.columns))
        z, groups = self._protected(frame, book, sensitive_features, how.fair)
        self._book = {c: rule for c, rule in book.items() if c != self._column(frame, self.sensitive_feature)}
        made = self._features(frame)
        self.feature_names_ = made.names
        claims = how.law is not None and not self.as_printed and self.epsilon < np.inf
        self.classes_, self.leaks_ = self._labels(y, claims)
        self.private_ = claims and not self.leaks_
        charge = self._charge(given)
        target = (np.asarray(y) == self.classes_[1]).astype(int)
        if how.law is None:
            self._store(logistic_regression(made.x, target), (NonPrivate(),))
            self.account_ = account(self.events_, 0.0)
            return self
        attribute, ratio = None, 1.0
        column = self._column(frame, self.attribute)
        if column is not None:
            if column not in made.attributes:
                raise InputError(
                    f"attribute {self.attribute!r} must be a feature (and norm 'max') for noise of its own"
                )
            attribute, ratio = made.attributes[column], self.ratio
        statistics = Statistics.of(made.x, target, z, groups)
        if self.as_printed:
            warnings.warn(
                f"{self.method} runs as printed: its guarantee is not proved there; epsilon_ is the proved cost",
                UserWarning, stacklevel=2,
            )  # fmt: skip
        make = release_as_printed if self.as_printed else partial(release, shares=self.shares, charge=charge)
        out = make(
            statistics, self.method, noise=self._noise(), signed=made.signed, epsilon=self.epsilon,
            delta=self.delta if how.law == "gaussian" else 0.0, attribute=attribute, ratio=ratio,
        )  # fmt: skip
        self._store(out.weights(self.penalty), out.events)
        self.account_, self.epsilon_, self.delta_ = out.account, out.account.epsilon, out.account.delta
        self.claimed_epsilon_, self.attribute_account_, self.group_share_ = out.claim, out.attribute, out.share
        self.release_ = out
        return self

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Scores xᵀw: positive means the second class."""
        check_is_fitted(self)
        frame, _ = self._frame(X)
        return self._features(frame).x @ self.coef_[0]

    def predict(self, X: ArrayLike) -> NDArray:
        """Decisions, as labels."""
        positive = self.decision_function(X) > 0
        return self.classes_[positive.astype(int)]

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """The logistic model's probabilities of both classes (of a quadratic fit: a rough calibration)."""
        p = 1 / (1 + np.exp(-np.clip(self.decision_function(X), -700, 700)))
        return np.column_stack([1 - p, p])

    def _frame(self, X: object, y: Any = "no_validation") -> tuple[pd.DataFrame, NDArray]:
        """X as a data frame. Tables of text keep their columns, everything else passes scikit-learn's checks."""
        fitting = not isinstance(y, str)
        text = isinstance(X, pd.DataFrame) and not all(pd.api.types.is_numeric_dtype(t) for t in X.dtypes)
        if text or isinstance(self.bounds, dict):
            frame = pd.DataFrame(validate_data(self, X, skip_check_array=True, reset=fitting))
        else:
            array = validate_data(self, X, y, dtype=np.float64, reset=fitting)
            array, y = array if fitting else (array, y)
            frame = pd.DataFrame(array, columns=getattr(self, "feature_names_in_", None))
        if fitting:
            y = np.asarray(y)
            check_classification_targets(y)
        return frame, y

    def _labels(self, y: NDArray, claims: bool) -> tuple[NDArray, tuple[str, ...]]:
        labels, leaks = public_labels(self.classes, y, stacklevel=4, warn=claims)
        if len(labels) != 2:
            raise InputError(
                f"Only binary classification is supported: expected 2 classes, got {len(labels)} class(es) {labels[:5]}"
            )
        return labels, leaks

    def _column(self, frame: pd.DataFrame, which: object) -> Any:
        """The column that a user names or numbers, or None."""
        if which is None or which in frame.columns:
            return which
        if isinstance(which, int | np.integer) and 0 <= which < frame.shape[1]:
            return frame.columns[int(which)]
        raise InputError(f"column {which!r} is not in X, which has {list(frame.columns)[:20]}")

    def _protected(
        self, frame: pd.DataFrame, book: dict, given: ArrayLike | None, needed: bool
    ) -> tuple[NDArray | None, int]:
        if given is not None:
            return np.asarray(given), self.groups
        column = self._column(frame, self.sensitive_feature)
        if column is None:
            if needed:
                raise InputError(
                    f"{self.method} needs a protected attribute: give sensitive_feature=column, or "
                    "fit(…, sensitive_features=groups)"
                )
            return None, 2
        rule = book[column]
        if isinstance(rule, Category):
            codes = pd.Index(rule.levels).get_indexer(pd.Index(frame[column].astype(str).str.strip()))
            if (codes < 0).any():
                bad = frame[column][codes < 0].iloc[0]
                raise InputError(f"protected attribute {column!r} has the unknown value {bad!r}")
            return codes, max(2, len(rule.levels))
        return (frame[column].to_numpy(float) > (rule.low + rule.high) / 2).astype(int), 2

    def _features(self, frame: pd.DataFrame) -> Features:
        return features(frame, self._book, norm=self.norm)

    def _noise(self) -> Noise:
        if self.secure:
            if self.random_state is not None:
                raise InputError(f"secure noise takes no seed: random_state must be None, got {self.random_state!r}")
            return GridNoise()
        return Seeded(wide_generator(self.random_state))

    def _charge(self, given: object) -> Charge | None:
        """What draws the fit from the account; refused where no budget can pay."""
        if self.account is None:
            return None
        from coterie.api.accounts import as_account, need_unseeded

        drawn = as_account(self.account)
        assert drawn is not None
        need_unseeded(drawn, self.random_state, "random_state")
        if not self.private_:
            raise InputError(
                f"{self.leaks_[0] if self.leaks_ else 'the fit is not private'}: no account can pay for it"
            )
        return drawn.pays(f"fit {type(self).__name__}", given, kind="fit")

    def _store(self, weights: NDArray, events: tuple) -> None:
        self.coef_ = weights[None]
        self.events_ = events
        self.epsilon_, self.delta_ = np.inf, 0.0
        self.claimed_epsilon_ = self.attribute_account_ = self.group_share_ = None


def logistic_regression(x: NDArray, y: NDArray) -> NDArray[np.float64]:
    """Weights of logistic regression without privacy (ridge 1e-4 on the whole sum, so that it exists), by Newton."""
    if len(np.unique(y)) < 2:
        raise InputError("logistic regression needs records of both classes")
    model = LogisticRegression(C=1e4, fit_intercept=False, solver="newton-cholesky", tol=1e-8, max_iter=200)
    return model.fit(x, y).coef_[0]
