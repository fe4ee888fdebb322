"""Additive models over several parties with the scikit-learn interface: a curve for each column, over public bins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, check_X_y, validate_data

from coterie.api.bounds import DEFAULT_RANGE, Bounds, box
from coterie.api.curves import Curves
from coterie.data.bins import Bins, Direction, Finish, bins_of
from coterie.data.encode import Category, Number
from coterie.deploy.accounts import DataAccount
from coterie.errors import InputError
from coterie.estimators.base import keep
from coterie.estimators.quantiles import Quantiles
from coterie.estimators.scored import ByScore, Classifies, Learns, LearnsClasses, LearnsTargets
from coterie.fair.features import book_of
from coterie.problems.additive import AdditiveModel

__all__ = ["AdditiveClassifier", "AdditiveRegressor", "PrivateAdditiveClassifier", "PrivateAdditiveRegressor"]


class _Curved(ByScore):
    """What predicts by `curves_`."""

    curves_: Curves

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True  # a missing value has a bin of its own
        return tags

    def _table(self, X: ArrayLike) -> pd.DataFrame:
        """Columns by their names as text; numbers, unless texts are expected."""
        if self._texts():
            return self._framed(X, reset=False)
        x = validate_data(self, X, dtype=np.float64, ensure_all_finite="allow-nan", reset=False)
        return pd.DataFrame(x, columns=self._names(x.shape[1]))

    def _framed(self, X: ArrayLike, reset: bool) -> pd.DataFrame:
        """A frame with columns of texts."""
        if not isinstance(X, pd.DataFrame):
            raise InputError(f"columns of texts need a DataFrame, got {type(X).__name__}")
        validate_data(self, X, skip_check_array=True, reset=reset)
        return X.set_axis(list(map(str, X.columns)), axis=1)

    def _texts(self) -> bool:
        return not all(attribute.ordered for attribute in self.curves_.bins.attributes)

    def _names(self, width: int) -> list[str]:
        return list(map(str, getattr(self, "feature_names_in_", range(width))))

    def _scores(self, X: ArrayLike) -> NDArray[np.float64]:
        check_is_fitted(self)
        return self.curves_.scores(self._table(X))

    def _trained_with(self, X: ArrayLike) -> tuple[float, float | None]:
        return 1.0, self.curves_.clip


class _Regresses(RegressorMixin, _Curved):
    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """Predicted targets."""
        scores = self._scores(X)[:, 0]
        low, high = self.curves_.target or (-1.0, 1.0)
        return (low + high) / 2 + (high - low) / 2 * scores


class _Kept(_Curved):
    """Curves that were trained elsewhere: `fit` changes nothing."""

    def __init__(self, curves: Curves | Mapping[str, object] | str | Path) -> None:
        self.curves = curves

    def fit(self, X: ArrayLike | None = None, y: ArrayLike | None = None) -> Self:
        """Read the curves; records are not looked at."""
        self.curves_ = self.curves if isinstance(self.curves, Curves) else Curves.read(self.curves)
        if (self.curves_.classes is not None) != isinstance(self, ClassifierMixin):
            raise InputError(f"{type(self).__name__} does not fit these curves, of classes {self.curves_.classes}")
        if self.curves_.classes is not None:
            self.classes_ = np.array(self.curves_.classes)
        self.feature_names_in_ = np.array(self.curves_.bins.names, object)
        self.n_features_in_ = len(self.feature_names_in_)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "curves_")

    def _table(self, X: ArrayLike) -> pd.DataFrame:
        if isinstance(X, pd.DataFrame):
            return X.set_axis(list(map(str, X.columns)), axis=1)
        return pd.DataFrame(np.asarray(X), columns=list(self.curves_.bins.names))


class AdditiveClassifier(Classifies, _Kept):
    """The curves of a run as a scikit-learn classifier that needs no training.

    Parameters
    ----------
    curves : Curves, dictionary or path
        `run.curves`, `estimator.curves_`, what its `as_json()` gives, or the file that its `save` wrote.
    """


class AdditiveRegressor(_Regresses, _Kept):
    """The curves of a run as a scikit-learn regressor that needs no training; see `AdditiveClassifier`."""


class _Private(_Curved, Quantiles, Learns):
    """What both private estimators do."""

    pairs: Sequence[tuple[object, object]]
    alike: float | None
    smooth: float
    monotone: Mapping[object, Direction] | None
    ridge: float | None
    weighting: str

    def _texts(self) -> bool:
        rules = self.bounds.values() if isinstance(self.bounds, Mapping) else ()
        return any(isinstance(rule, Category) or _of_texts(rule) for rule in rules)

    def _records(self, X: ArrayLike, y: ArrayLike | None, **checks: bool) -> tuple[pd.DataFrame, NDArray]:
        """Records and targets, checked as scikit-learn does."""
        if not self._texts():
            x, y = validate_data(self, X, y, dtype=np.float64, ensure_all_finite="allow-nan", **checks)
            return pd.DataFrame(x, columns=self._names(x.shape[1])), np.asarray(y)
        table = self._framed(X, reset=True)
        _, y = check_X_y(np.zeros((len(table), 1)), y, **checks)
        return table, np.asarray(y)

    def _book(self, columns: list[object]) -> dict[str, Number | Category]:
        """What is known of the columns; default ranges where nothing was said."""
        if self.bounds is None:
            box(None, columns, "features", "bounds")  # warns
        book = book_of(DEFAULT_RANGE if self.bounds is None else self.bounds, columns)
        return {str(name): rule for name, rule in book.items()}

    def _bins(self, named: dict[str, Number | Category]) -> tuple[Bins, Finish]:
        """Public bins, by what was said of the columns, and by quantiles that were paid for."""
        pairs = [tuple(map(str, pair)) for pair in self.pairs]
        bins = bins_of(named, self._edges(self._rules(named)), pairs, alike=self.alike)
        ways = tuple(sorted((str(name), way) for name, way in (self.monotone or {}).items()))
        finish = Finish(self.smooth, ways)
        finish.check(bins)
        return bins, finish

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

        `people` as in `PrivateConsensusClassifier`. `test`: records that are not private, for a curve of the accuracy,
        or of R² (of targets in scaled units).
        """
        given = X
        X, y, agents = self._opened(X, y, agents, people, sample_weight, *self._losses)
        table, targets = self._records(X, y, y_numeric=self._numeric)
        whose = self._people(people, given, len(table))
        known = self._known(targets)
        book = self._book(self._columns(table.shape[1]))
        agents = self._pay_for_quantiles(table, book, agents, people, (X, targets))
        bins, finish = self._bins(book)
        shown = None if test is None else (bins.rows(self._table(test[0])), known.coded(np.asarray(test[1])))
        problem = AdditiveModel(known.loss(bins.width), bins, finish)
        found = self._run(
            problem, bins.rows(table), known.coded(targets), agents, shown, known.leaks, given=(X, targets),
            ridge=self.ridge, weighting=self.weighting, people=whose,
        )  # fmt: skip
        self._add_quantiles()
        self.bins_ = bins
        self.curves_ = Curves.of(problem, found.point, classes=known.classes, target=known.ends, clip=self._clip)
        self._remember(hashed(table))
        return self


class PrivateAdditiveClassifier(LearnsClasses, _Private):
    """An additive classifier that several parties train together, differentially private, without a server.

    Every column falls into public bins and has a curve over them; a record's score is the sum. So each record has
    features of norm 1 by construction, whatever its values are, and no row is cut. Guarantee, network and all
    parameters that are not listed are those of `PrivateConsensusClassifier`.

    Parameters
    ----------
    bounds : (low, high), list of pairs, or dictionary from column name to pair or to the list of its levels
        What is publicly known of each column. Never the range of these records. Without it [−3, 3] is assumed, with a
        `BoundsWarning`. Values beyond lie in the first or last bin, missing ones in a bin of their own, and so do
        levels that are not listed.
    bins : dictionary or "quantiles", optional
        By column: a step, a list of edges, "log" for quarter decades, False to leave it out, or "quantiles": ten bins
        with about equally many records, which are released first and paid from the same budget. Default: round numbers
        from the range, sixteen bins at most.
    quantile_share : float
        The share of μ² that quantiles have, where there are any; training has the rest.
    pairs : list of pairs of columns
        Columns that have a bin for each two of theirs: a public list.
    alike : float, optional
        How alike neighbouring bins of a number are taken to be beforehand, from 0 (not at all) to .99; default .5.
    smooth : float
        How much neighbouring bins are pulled together once the model is there: (I + smooth·L)⁻¹. Costs nothing.
    monotone : dictionary, optional
        By column, "up" or "down": its curve never falls, or never rises. Costs nothing.

    Attributes
    ----------
    curves_ : `Curves`, with `as_json()` and `save(path)`; `AdditiveClassifier` predicts by them alone.
    bins_ : the public bins.
    classes_, agents_, epsilon_spent_, private_, leaks_, ledger_, history_, n_iter_, algorithm_, settings_, ridge_,
    points_ : as in `PrivateConsensusClassifier`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 100, (6000, 2)); y = np.abs(X[:, 0] - 50) < 25
    >>> model = PrivateAdditiveClassifier(bounds=(0, 100), classes=[False, True], random_state=0)
    >>> model = model.fit(X, y, agents=np.arange(6000) % 4)
    >>> model.score(X, y) > 0.9, round(model.epsilon_spent_, 6), model.private_
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
        bins: Mapping[object, object] | str | None = None,
        quantile_share: float = 0.1,
        pairs: Sequence[tuple[object, object]] = (),
        alike: float | None = None,
        smooth: float = 0.0,
        monotone: Mapping[object, Direction] | None = None,
        ridge: float | None = None,
        rounds: int | None = None,
        weighting: str = "agents",
        classes: Sequence | None = None,
        n_agents: int = 5,
        random_state: int | np.random.RandomState | None = None,
        account: DataAccount | str | Path | None = None,
    ) -> None:
        keep(self, locals())


class PrivateAdditiveRegressor(_Regresses, LearnsTargets, _Private):
    """Additive regression that several parties train together, differentially private, without a server.

    Squared loss on a target mapped to [−1, 1], every record's gradient clipped. Parameters and attributes as in
    `PrivateAdditiveClassifier`, and

    Parameters
    ----------
    target_bounds : (low, high)
        Public range of y; values beyond are clipped for training. Without it [−3, 3] is assumed, with a
        `BoundsWarning`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 10, (6000, 2)); y = (X[:, 0] - 5) ** 2 + rng.normal(size=6000)
    >>> model = PrivateAdditiveRegressor(bounds=(0, 10), target_bounds=(0, 25), random_state=0)
    >>> model.fit(X, y, agents=np.arange(6000) % 4).score(X, y) > 0.7
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
        bins: Mapping[object, object] | str | None = None,
        quantile_share: float = 0.1,
        pairs: Sequence[tuple[object, object]] = (),
        alike: float | None = None,
        smooth: float = 0.0,
        monotone: Mapping[object, Direction] | None = None,
        ridge: float | None = None,
        rounds: int | None = None,
        weighting: str = "agents",
        n_agents: int = 5,
        random_state: int | np.random.RandomState | None = None,
        account: DataAccount | str | Path | None = None,
    ) -> None:
        keep(self, locals())


def _of_texts(rule: object) -> bool:
    return isinstance(rule, Sequence) and not isinstance(rule, str) and any(isinstance(one, str) for one in rule)


def hashed(table: pd.DataFrame) -> NDArray[np.float64]:
    """Rows as numbers, for the memory of fits."""
    hashes = pd.util.hash_pandas_object(table, index=False).to_numpy(np.uint64)
    return np.column_stack([hashes >> np.uint64(32), hashes & np.uint64(0xFFFFFFFF)]).astype(np.float64)
