"""What the estimators share: records to parties, a budget to a run, and the attributes that a fit leaves."""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, check_random_state

from coterie.api.accounts import as_account, draw_fit, need_unseeded
from coterie.api.asked import auto, check_settings
from coterie.api.bounds import Bounds, PublicBox, box
from coterie.api.given import BOUNDS, NOTHING_GIVEN, NUMBER, TEXT, WHOLE, Expected, listed, of, shown
from coterie.api.methods import algorithm
from coterie.api.parties import on
from coterie.api.sites import person_numbers
from coterie.api.tasks import Task
from coterie.api.training import Trained, train_paid
from coterie.deploy.accounts import DataAccount
from coterie.drivers.seeds import fresh_seed
from coterie.errors import InputError
from coterie.estimators.fits import remember
from coterie.plan import Plan
from coterie.privacy.events import Event
from coterie.privacy.ledger import Budget
from coterie.problems import Problem, of_people
from coterie.tables.algorithm import AlgorithmPlan

__all__ = ["Consensus", "Seeds", "check_parameters", "keep"]

WEIGHTS = (
    "sample_weight is refused: a weight multiplies what one record can change, so the noise would have to grow with "
    "the largest weight, and weights computed from records leak them. Weight whole parties with weighting='agents'"
)


DICTIONARY = of("a dictionary", Mapping)
COLUMN_PAIR = Expected("a pair of columns", lambda pair: isinstance(pair, list | tuple) and len(pair) == 2)
PARAMETERS: dict[str, Expected] = {
    "epsilon": NUMBER | listed(NUMBER), "delta": NUMBER, "algorithm": TEXT, "settings": DICTIONARY | NOTHING_GIVEN,
    "graph": TEXT | DICTIONARY, "bounds": BOUNDS | NOTHING_GIVEN, "ridge": NUMBER | NOTHING_GIVEN,
    "radius": NUMBER | NOTHING_GIVEN, "rounds": WHOLE | NOTHING_GIVEN, "weighting": TEXT, "n_agents": WHOLE,
    "classes": listed(Expected("a label", lambda label: label is not None)) | NOTHING_GIVEN,
    "random_state": Expected("None, a whole number from 0 to 2³² − 1 or a RandomState", lambda state: _seeds_by(state)),
    "bins": DICTIONARY | TEXT | NOTHING_GIVEN, "quantile_share": NUMBER, "pairs": listed(COLUMN_PAIR),
    "alike": NUMBER | NOTHING_GIVEN, "smooth": NUMBER, "monotone": DICTIONARY | NOTHING_GIVEN, "holdout": NUMBER,
    "repeats": NUMBER | NOTHING_GIVEN, "shape": NUMBER, "scoring": TEXT, "adversary": TEXT,
}  # fmt: skip


def keep(estimator: BaseEstimator, given: Mapping[str, object]) -> None:
    """Store what `__init__` was given, untouched and under the same names, as scikit-learn asks."""
    for name, value in given.items():
        if name != "self":
            setattr(estimator, name, value)


def check_parameters(estimator: BaseEstimator) -> None:
    """Refuse what is of a wrong type, before a record is looked at."""
    for key, value in estimator.get_params(deep=False).items():
        if key in PARAMETERS and not PARAMETERS[key].fits(value):
            raise InputError(f"{key} must be {PARAMETERS[key].words}, got {shown(value)}")


def _seeds_by(state: object) -> bool:
    try:
        check_random_state(state)
    except ValueError:
        return False
    return True


class Seeds(NamedTuple):
    """Two seeds: who holds which record, and the noise."""

    split: int
    noise: int


class Consensus(BaseEstimator):
    """Base of the estimators. Subclasses name their parameters; see `PrivateConsensusClassifier`."""

    epsilon: float | Sequence[float]
    delta: float
    algorithm: str
    settings: dict[str, object] | None
    graph: str | dict[str, object]
    bounds: Bounds
    rounds: int | None
    n_agents: int
    random_state: int | np.random.RandomState | None
    account: DataAccount | str | Path | None

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.random_state is None
        return tags

    # -- records --------------------------------------------------------------------------------------------------

    def _opened(
        self,
        X: ArrayLike,
        y: ArrayLike | None,
        agents: ArrayLike | None,
        people: object,
        weights: object,
        *problems: Problem,
    ) -> tuple[ArrayLike, ArrayLike | None, ArrayLike | None]:
        """(X, y, agents) of all sites, once nothing is asked for that cannot be."""
        if weights is not None:
            raise InputError(WEIGHTS)
        self._check(*problems, people=people)
        return self._pooled(X, y, agents)

    def _pooled(
        self, X: ArrayLike, y: ArrayLike | None, agents: ArrayLike | None, targets: bool = True
    ) -> tuple[ArrayLike, ArrayLike | None, ArrayLike | None]:
        """(X, y, agents) of all sites: as given, or joined from a list with one (X, y), or one X, for each site."""
        if not _is_sites(X, y, targets):
            _check_columns(X)
            return X, y, agents
        if agents is not None:
            raise InputError("agents belongs to one table of records; a list of sites says who holds what by itself")
        assert isinstance(X, list | tuple)
        tables = [site[0] for site in X] if targets else list(X)
        labels = np.concatenate([np.asarray(site[1]) for site in X]) if targets else None
        for table in tables:
            _check_columns(table)
        lengths = [len(t) for t in tables]
        frames = all(isinstance(t, pd.DataFrame) for t in tables)
        joined = pd.concat(tables, ignore_index=True) if frames else np.concatenate([np.asarray(t) for t in tables])
        return joined, labels, np.repeat(np.arange(len(tables)), lengths)

    def _seeds(self) -> Seeds:
        if self.random_state is None:
            return Seeds(secrets.randbits(128), fresh_seed())
        known = isinstance(self.random_state, int | np.integer)  # a number of 32 bits, and the caller's own
        state = check_random_state(self.random_state)
        split, low, high = map(int, state.randint(0, 1 << 32, size=3, dtype=np.uint32))
        return Seeds(split, low if known else high << 32 | low)

    def _people(self, people: ArrayLike | None, given: object, records: int) -> NDArray | None:
        """Whose each record is, by number; of a list of sites, `given`, a list with the names of each."""
        if people is None:
            return None
        if isinstance(people, Sequence | np.ndarray) and isinstance(given, list | tuple) and len(people) == len(given):
            lists = [np.asarray(p) for p in people]
            if all(one.ndim == 1 for one in lists):
                people = np.concatenate(lists)
        return person_numbers(people, records, "fit")

    def _parts(
        self, agents: ArrayLike | None, records: int, seed: int, people: NDArray | None = None
    ) -> tuple[list[NDArray], tuple[str, ...]]:
        """Which records each party holds, and the parties' names, sorted; without `agents` an even random split.

        All records of a person go to one party then.
        """
        if agents is None and people is not None:
            parts, names = self._parts(None, int(people.max()) + 1, seed)
            return [np.flatnonzero(np.isin(people, part)) for part in parts], names
        if agents is None:
            if self.n_agents < 2:
                raise InputError(f"n_agents must be at least 2, got {self.n_agents}")
            if records < 2:
                raise InputError(
                    f"n_samples = {records} record: a network needs at least 2, one for each of two parties"
                )
            order = np.random.default_rng(seed).permutation(records)
            parts = [np.sort(p) for p in np.array_split(order, min(self.n_agents, records))]
            return parts, tuple(f"agent {i}" for i in range(len(parts)))
        ids = np.asarray(agents)
        if ids.shape != (records,):
            raise InputError(f"agents must name the party of each of the {records} records, got shape {ids.shape}")
        if pd.isna(ids).any():
            raise InputError("agents must name a party for every record, but some are missing")
        found, which = np.unique(ids, return_inverse=True)
        return [np.flatnonzero(which == i) for i in range(len(found))], tuple(map(str, found))

    def _check(self, *problems: Problem, people: object = None) -> None:
        """Refuse settings under which none of these problems could be trained, before a record is looked at."""
        check_parameters(self)
        check_settings(
            problems if people is None else [of_people(p) for p in problems],
            epsilon=self.epsilon, delta=self.delta, algorithm=self.algorithm, settings=self.settings,
            graph=self.graph, rounds=self.rounds,
        )  # fmt: skip

    def _algorithm(self, mean: bool) -> tuple[AlgorithmPlan, int | None]:
        """The algorithm, and rounds where the rule behind "auto" says them."""
        if self.algorithm == "auto":
            return auto(mean, self.settings or {}, self.rounds)
        return algorithm(self.algorithm, **(self.settings or {})), self.rounds

    def _budget(self) -> Budget | list[Budget]:
        if isinstance(self.epsilon, Sequence | np.ndarray):
            return [Budget(float(epsilon), self.delta) for epsilon in self.epsilon]
        return Budget(self.epsilon, self.delta)

    def _columns(self, width: int) -> list[object]:
        return list(getattr(self, "feature_names_in_", range(width)))

    def _box(self, width: int) -> PublicBox:
        return box(self.bounds, self._columns(width), "features", "bounds")

    # -- the run --------------------------------------------------------------------------------------------------

    def _run(
        self, problem: Problem, features: NDArray, targets: NDArray, agents: ArrayLike | None,
        test: tuple[NDArray, NDArray] | None, leaks: tuple[str, ...] = (), people: NDArray | None = None, *,
        given: object, **settings: object,
    ) -> Trained:  # fmt: skip
        """Train, and store what every estimator stores. The warning about `leaks` has been given.

        `given`: the records as the caller has them, for the account.
        """
        account = as_account(self.account)
        need_unseeded(account, self.random_state, "random_state")
        what = f"fit {type(self).__name__}"
        apart = agents is None  # people were dealt out here, each with all of its records to one party
        pay = None
        if account is not None:
            pay = lambda several, unit: draw_fit(  # noqa: E731
                account, several, given, what, unit, apart=apart, people=people
            )
        seeds = self._seeds()
        parts, names = self._parts(agents, len(features), seeds.split, people)
        network: dict[str, object] = dict(self.graph) if isinstance(self.graph, dict) else {"kind": self.graph}
        whose = None if people is None else [people[p] for p in parts]
        sites = [(features[p], targets[p]) for p in parts]
        parties = on(network, sites, names=names, leaks=leaks, people=whose)
        chosen, rounds = self._algorithm(problem.isotropic)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="no privacy can be claimed")
            found = train_paid(
                Task(problem.name, settings, own=problem), parties, chosen, self._budget(), rounds=rounds,
                seed=seeds.noise, test=test, pay=pay,
            )  # fmt: skip
        self.agents_ = names
        self.unit_ = "record" if people is None else "person"
        told = found.result["privacy"]
        self.protects_ = None if told is None else told["protects"]
        self.private_ = found.private
        self.leaks_ = found.leaks
        self.epsilon_spent_ = found.epsilon
        self.ledger_ = dict(zip(names, found.ledgers, strict=True))
        self.history_ = found.history
        self.n_iter_ = found.rounds
        self.algorithm_, self.settings_ = found.algorithm, found.settings
        self._clip = None if found.made is None else found.made.priced.algorithm.clips(found.made.priced.cfg)
        self.ridge_ = Plan.model_validate(found.result["plan"]).ridge
        self.points_ = found.points
        return found

    def _remember(self, x: NDArray) -> None:
        """Tell the memory of fits; the caller of `fit` is three frames up."""
        remember(x, self._events(), self.epsilon_spent_, self.delta, stacklevel=4)

    def _events(self) -> tuple[Event, ...]:
        """Events of the party that paid most."""
        worst = max(self.ledger_.values(), key=lambda ledger: ledger.spent())
        return tuple(entry.event for entry in worst.entries)


def _check_columns(X: ArrayLike) -> None:
    """Refuse a frame in which a column comes twice, as rules are by name, and dates, which NumPy takes for numbers."""
    kinds = X.dtypes if isinstance(X, pd.DataFrame) else pd.Series([getattr(X, "dtype", None)], index=["X"])
    for name, kind in kinds.items():
        if getattr(kind, "kind", None) in ("m", "M"):
            raise InputError(f"{name} holds dates or times: give numbers, such as days since a public day")
    if isinstance(X, pd.DataFrame):
        names = pd.Index(list(map(str, X.columns)))
        if len(twice := names[names.duplicated()]):
            raise InputError(f"column {twice[0]!r} comes twice: every column needs a name of its own")


def _is_sites(X: ArrayLike, y: ArrayLike | None, targets: bool) -> bool:
    if y is not None or not isinstance(X, list | tuple) or not len(X):
        return False
    if targets:
        return all(isinstance(site, tuple) and len(site) == 2 for site in X)
    return all(np.ndim(site) == 2 for site in X)
