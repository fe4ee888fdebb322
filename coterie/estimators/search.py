r"""`PrivateSearch`: settings chosen on private records, within one budget that covers the choice.

Every record is either trained on or votes, by its position and never both. A run releases a model that is μ-GDP for the
records trained on, and for each party the noisy number of its voting records' credits, Σ credit + N(0, 1/μ²) with
credit ∈ [0, 1], which is μ-GDP for those: so one run with its score is μ-GDP for every record. Then, for K settings:

- adversary "network" reads every message of every run: all K runs are paid for, √K μ = μ(ε, δ), and all are reported.
  Theorems on hidden choices do not hold here, since nothing is hidden: neighbours see what every run sent;
- adversary "model" sees the released model and nothing else, as where one trusted holder has all records: runs with
  random settings, their number drawn from a public law and hidden, and the price of `coterie.privacy.selection`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.model_selection import ParameterGrid
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from coterie.api.accounts import as_account, need_unseeded
from coterie.api.given import shown
from coterie.arguments import choose
from coterie.deploy.accounts import DataAccount
from coterie.drivers.seeds import wide_generator
from coterie.errors import InputError
from coterie.estimators.additive import hashed
from coterie.estimators.base import WEIGHTS, check_parameters, keep
from coterie.estimators.fits import quiet, remember
from coterie.estimators.votes import SCORINGS, check_scoring, last_step, of_last, vote
from coterie.privacy import gdp, rdp
from coterie.privacy.accountants import total_mu
from coterie.privacy.events import Gaussian
from coterie.privacy.people import units_of
from coterie.privacy.selection import draw_runs, mu_for_selection, selection_epsilon

__all__ = ["PrivateSearch"]

TAKEN = ("epsilon", "delta", "random_state")


def _best_has(name: str) -> Callable[[Callable[..., NDArray]], Callable[..., NDArray]]:
    return available_if(lambda self: hasattr(self.estimator, name))


class PrivateSearch(MetaEstimatorMixin, BaseEstimator):
    """Grid search whose (ε, δ) covers all its fits, its scores and its choice.

    Parameters
    ----------
    estimator : a private classifier or regressor, consensus or additive, or a Pipeline that ends in one
        Its `epsilon` and `delta` are not used: the search gives every run its share. Steps before it must learn nothing
        from the records (`requires_fit` of their tags), since nobody pays for that.
    param_grid : dictionary or list of dictionaries
        As in scikit-learn's `GridSearchCV`. `epsilon`, `delta` and `random_state` cannot be searched over.
    epsilon, delta : float
        Budget of every party for the whole search.
    adversary : {"network", "model"}
        What an attacker sees. "network": every message of every run, as in a deployed network; each of the K settings
        is run once. "model": only the chosen model; settings are drawn from the grid, `repeats` runs on average, and
        what the other runs gave is thrown away, their number too. The second is the cheaper and the weaker claim.
    holdout : float
        Share of every party's records that vote and are not trained on.
    repeats : float, optional
        Mean number of runs with adversary "model"; default: as many as the grid has points (at least 2).
    shape : float
        η of the law of the number of runs: 1 geometric, 0 logarithmic (cheaper, and often a single run).
    scoring : {"credit", "auc"}
        "credit": accuracy, or of numbers one minus the squared error in units of the public range. "auc": of two
        classes, from noisy counts as in `coterie.released.scores`; where these are too few for the noise, the setting
        has no score and is not chosen. Both cost the same.
    random_state : int, RandomState or None
        Seed of all splits, settings and noise.
    account : DataAccount or path, optional
        The data set's account: what the search costs is drawn from it first. For adversary "network" only: the price of
        a hidden choice is an ε at one δ, which does not add to others.

    Attributes
    ----------
    best_estimator_, best_params_, best_score_ : the chosen model, its settings and its noisy score.
    epsilon_spent_ : of all of it. epsilon_run_ : what each run was given, at delta.
    private_, leaks_ : whether that is a guarantee; if not, what was read from the records without being paid for.
    results_ : settings, noisy scores and their standard errors of all runs (adversary "network"; None for "model").

    Examples
    --------
    >>> from coterie.estimators import PrivateConsensusClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (6000, 2)); y = X[:, 0] > 0.2
    >>> model = PrivateConsensusClassifier(bounds=(-1, 1), classes=[False, True], rounds=40)
    >>> search = PrivateSearch(model, {"ridge": [1e-3, 1e-1]}, epsilon=1.0, random_state=0)
    >>> search = search.fit(X, y, agents=np.arange(6000) % 3)
    >>> round(search.epsilon_spent_, 6), len(search.results_), search.score(X, y) > 0.85
    (1.0, 2, True)
    """

    def __init__(
        self,
        estimator: object,
        param_grid: Mapping[str, Sequence] | Sequence[Mapping[str, Sequence]],
        *,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        adversary: str = "network",
        holdout: float = 0.2,
        repeats: float | None = None,
        shape: float = 1.0,
        scoring: str = "credit",
        random_state: int | np.random.RandomState | None = None,
        account: DataAccount | str | Path | None = None,
    ) -> None:
        keep(self, locals())

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        *,
        agents: ArrayLike | None = None,
        people: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> PrivateSearch:
        """Search, with the records of (X, y) held as in the estimator's own `fit`; the guarantee is for a record."""
        if sample_weight is not None:
            raise InputError(WEIGHTS)
        if people is not None:
            raise InputError("people are not for PrivateSearch, whose votes are priced per record: fit with settings")
        check_parameters(self)
        choose("adversary", self.adversary, ("network", "model"))
        if not 0 < self.delta < 1:
            raise InputError(
                f"PrivateSearch splits a Gaussian budget over its runs: delta must be in (0, 1), got {self.delta}"
            )
        if np.ndim(self.epsilon):
            raise InputError(f"PrivateSearch takes one epsilon for all parties, got {shown(self.epsilon)}")
        choose("scoring", self.scoring, SCORINGS)
        grid, first = self._grid(), last_step(self.estimator)
        check_scoring(self.scoring, first)
        rng = wide_generator(self.random_state)
        X, y, agents = first._pooled(X, y, agents)
        if y is None:
            raise InputError("PrivateSearch requires y to be passed, but the target y is None")
        records = len(np.asarray(y))
        parts, names = first._parts(agents, records, int(rng.integers(1 << 32)))
        holders = np.empty(records, dtype=object)
        for name, part in zip(names, parts, strict=True):
            holders[part] = name
        voters = [np.sort(rng.permutation(part)[: self._votes(len(part))]) for part in parts]
        training = np.setdiff1d(np.arange(records), np.concatenate(voters))

        repeats = float(max(2, len(grid))) if self.repeats is None else float(self.repeats)
        if self.adversary == "network":
            mu = float(gdp.mu_for(self.epsilon, self.delta)) / len(grid) ** 0.5
            settings = list(grid)
        else:
            mu = mu_for_selection(self.epsilon, self.delta, repeats, self.shape)
            runs = draw_runs(repeats, self.shape, rng)
            settings = [grid[int(i)] for i in rng.integers(len(grid), size=runs)]
        self.epsilon_run_ = float(gdp.epsilon_of(mu, self.delta))
        self._draw(mu, len(settings), (X, y))
        results, best = [], None
        for params in settings:
            state = self._state(rng)
            budget: dict[str, object] = {"epsilon": self.epsilon_run_, "delta": self.delta, "random_state": state}
            model = clone(self.estimator).set_params(**params, **of_last(self.estimator, budget))
            held = of_last(self.estimator, {"agents": holders[training]})
            with quiet():
                model.fit(_take(X, training), _take(y, training), **held)
            last = last_step(model)
            spent = max((total_mu([e.event for e in book.entries]) or np.inf) for book in last.ledger_.values())
            if spent > mu * (1 + 1e-9):
                raise InputError(
                    f"{last.algorithm_} with {params} is not priced by Gaussian events alone, as PrivateSearch needs: "
                    "use dp-dsgd without batches"
                )
            seen, truth = [_take(X, v) for v in voters], [np.asarray(_take(y, v)) for v in voters]
            found = vote(model, seen, truth, self.scoring, mu, rng)
            results.append({"params": dict(params), "score": found.score, "error": found.error}
                           | ({"refused": found.why} if found.why else {}))  # fmt: skip
            if best is None or found.score > best[0]:
                best = (found.score, model, dict(params))
        assert best is not None
        self.best_score_, self.best_estimator_, self.best_params_ = best
        self.results_ = results if self.adversary == "network" else None
        chosen = last_step(self.best_estimator_)
        self.n_features_in_ = np.shape(X)[1] if len(np.shape(X)) > 1 else chosen.n_features_in_
        if hasattr(chosen, "classes_"):
            self.classes_ = chosen.classes_
        self.private_, self.leaks_ = chosen.private_, chosen.leaks_
        self._account(X, mu, len(settings), repeats)
        return self

    def predict(self, X: ArrayLike) -> NDArray:
        """The chosen model's predictions."""
        check_is_fitted(self)
        return self.best_estimator_.predict(X)

    @_best_has("predict_proba")
    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """The chosen model's probabilities."""
        check_is_fitted(self)
        return self.best_estimator_.predict_proba(X)

    @_best_has("decision_function")
    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """The chosen model's scores."""
        check_is_fitted(self)
        return self.best_estimator_.decision_function(X)

    def score(self, X: ArrayLike, y: ArrayLike) -> float:
        """The chosen model's score on records whose use you account for yourself."""
        check_is_fitted(self)
        return float(self.best_estimator_.score(X, y))

    def _draw(self, mu: float, runs: int, given: object) -> None:
        """Draw the whole search from the account, before its first fit."""
        if last_step(self.estimator).account is not None:
            raise InputError("give the account to the search: its estimator is fitted many times, and draws nothing")
        account = as_account(self.account)
        if account is None:
            return
        need_unseeded(account, self.random_state, "random_state")
        if self.adversary != "network":
            raise InputError(f"adversary = {self.adversary!r}: no account can add the price of a hidden choice")
        account.charge([Gaussian(mu, 1.0, times=runs)], what="search", kind="fit", data=given)

    def _state(self, rng: np.random.Generator) -> int | np.random.RandomState:
        """A run's own random state: as secret as the search's."""
        if isinstance(self.random_state, int | np.integer):
            return int(rng.integers(1 << 31))
        return np.random.RandomState(np.random.MT19937(np.random.SeedSequence(rng.integers(1 << 63, size=4).tolist())))

    def _grid(self) -> list[dict[str, object]]:
        last_step(self.estimator)
        try:
            grid = list(ParameterGrid(self.param_grid))
            for params in grid:
                last_step(clone(self.estimator).set_params(**params))  # a step that it puts in may learn from records
        except (TypeError, ValueError) as error:  # before anything is drawn
            raise InputError(f"param_grid: {' '.join(str(error).split())}") from None
        if not grid:
            raise InputError(f"param_grid must hold one setting at least, got {self.param_grid!r}")
        for name in (*TAKEN, *of_last(self.estimator, dict.fromkeys(TAKEN))):
            if any(name in params for params in grid):
                raise InputError(f"param_grid cannot contain {name!r}: the search sets it for every run")
        return grid

    def _votes(self, records: int) -> int:
        if not 0 < self.holdout < 1:
            raise InputError(f"holdout must be in (0, 1), got {self.holdout}")
        votes = max(1, round(self.holdout * records))
        if votes >= records:
            raise InputError(f"a party with {records} record cannot both train and vote: it needs at least 2")
        return votes

    def _account(self, X: ArrayLike, mu: float, runs: int, repeats: float) -> None:
        if self.adversary == "network":
            events: tuple[Gaussian, ...] | None = (Gaussian(mu, 1.0, times=runs),)
            self.epsilon_spent_ = float(gdp.epsilon_of(mu * runs**0.5, self.delta))
        else:
            events = None
            one = np.array([mu])
            self.epsilon_spent_ = selection_epsilon(
                lambda orders: rdp.gaussian(one, orders)[0], repeats, self.shape, self.delta
            )
        chosen = last_step(self.best_estimator_)  # to know this model is to know that it was chosen
        chosen.epsilon_spent_, chosen.protects_ = self.epsilon_spent_, None
        if events is not None:
            chosen.protects_ = units_of([events], self.epsilon_spent_, self.delta, by_person=False, summed=False)
        remember(_as_numbers(X), events, self.epsilon_spent_, self.delta, stacklevel=4)


def _as_numbers(X: ArrayLike) -> NDArray[np.float64]:
    """Records for the memory of fits, as the estimators leave them there."""
    try:
        return np.asarray(X, float)
    except (TypeError, ValueError):  # texts
        assert isinstance(X, pd.DataFrame)
        return hashed(X.set_axis(list(map(str, X.columns)), axis=1))


def _take(table: ArrayLike, rows: NDArray) -> ArrayLike:
    return table.iloc[rows] if isinstance(table, pd.DataFrame | pd.Series) else np.asarray(table)[rows]
