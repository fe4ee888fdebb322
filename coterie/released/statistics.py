"""Private statistics of a table that several parties hold: one noisy sum, and all that is read off it for nothing.

Columns have public ranges or levels, never ones that were read from the records. Every number has the standard error
that its noise gives it; a quantile has an interval, which also allows for the width of a bin. What is released here is
charged like anything else: a record that a model is trained on later pays for both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coterie.api.accounts import ACCOUNT, as_account, need_unseeded
from coterie.api.given import FLAG, FUNCTION, NOTHING_GIVEN, NUMBER, TEXT, WHOLE, Expected, listed, of, shown, takes
from coterie.api.parties import people_of_sites
from coterie.data import ALL_PUBLIC, Dataset, Origins
from coterie.data.encode import Category, Number
from coterie.data.partition import by_site
from coterie.data.planned import load_planned, options_of, parts_of, people_of, sizes_of
from coterie.deploy.accounts import DataAccount
from coterie.errors import InputError
from coterie.plan import Plan, ProblemPlan, validate
from coterie.privacy.ledger import Budget
from coterie.released.covered import CoveredNumber, share_in_words
from coterie.released.once import Charge, Once, charged_to, release_once, release_plan
from coterie.released.table_sums import TableSums

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Quantile", "TableStatistics", "planned_statistics", "statistics", "table_of"]

Floats = NDArray[np.float64]
Rule = Number | Category
SURE = 5.0  # a noisy total below so many of its standard deviations may be none at all


@dataclass(frozen=True)
class Quantile:
    """A quantile, and where it is with probability 95 %."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class TableStatistics:
    """Counts, histograms, means, quantiles and correlations of columns, with their errors.

    Shares are of all records, whose number is public; where people are the unit, of people (`records` of them), each of
    whom has the mean of its records.
    """

    problem: TableSums
    point: Floats
    names: tuple[str, ...]
    rules: tuple[Rule, ...]
    records: int | None = None
    once: Once | None = field(default=None)

    @classmethod
    def of(cls, problem: TableSums, point: Floats) -> TableStatistics:
        """Of columns that have numbers for names, and ranges from 0 to 1."""
        rules = tuple(Category(tuple(map(str, range(many)))) if many else Number(0.0, 1.0) for many in problem.levels)
        return cls(problem, point, tuple(f"column {k}" for k in range(problem.columns)), rules)

    @property
    def noise(self) -> float:
        """Standard deviation of the noise, before weights."""
        return float(self.point[-1])

    # -- counts ----------------------------------------------------------------------------------------------------

    def shares(self, column: str) -> tuple[Floats, float]:
        """The share of records in every bin or level (missing ones last, where there may be any), and their error.

        They sum to one, as the records do: noise on the total is taken off.
        """
        k = self._column(column)
        start = sum(self.problem.cells[:k])
        h, _, _ = self.problem.weights
        cells = self.point[start : start + self.problem.cells[k]] / h
        many = len(cells)
        return cells - (cells.sum() - 1) / many, self.noise / h * (1 - 1 / many) ** 0.5

    def histogram(self, column: str) -> dict[str, CoveredNumber]:
        """By level, or by bin of the public range."""
        values, error = self.shares(column)
        labels = self._labels(self._column(column))
        return {name: CoveredNumber(float(v), error) for name, v in zip(labels, values, strict=True)}

    def counts(self, column: str) -> dict[str, CoveredNumber]:
        """The same in records."""
        if self.records is None:
            raise InputError("the number of records is not known here: use histogram")
        n = self.records
        return {
            name: CoveredNumber(n * s.value, n * s.error)
            for name, s in self.histogram(column).items()
            if s.value is not None and s.error is not None
        }

    # -- moments ---------------------------------------------------------------------------------------------------

    def mean(self, column: str) -> CoveredNumber:
        """The mean of what is there, in the column's units (of a `log` column: of log(1 + x − low))."""
        k, rule = self._number(column)
        value, error, why = self._centred(k)
        if value is None or error is None:
            return CoveredNumber(None, None, why)
        low, width = _scale(rule)
        return CoveredNumber(low + width * (1 + value) / 2, width * error / 2)

    def std(self, column: str) -> CoveredNumber:
        """The standard deviation of what is there."""
        k, rule = self._number(column)
        value, error, why = self._centred(k)
        if value is None or error is None:
            return CoveredNumber(None, None, why)
        share, wide = self._present(k)
        square, noise = self._product(k, k)
        variance = square / share - value**2
        spread = float(np.hypot(np.hypot(noise, square / share * wide) / share, 2 * value * error))
        if variance <= SURE * spread:
            return CoveredNumber(None, None, f"the variance is {variance:.2g} ± {spread:.2g}: it may be none")
        half = _scale(rule)[1] / 2
        return CoveredNumber(half * variance**0.5, half * spread / (2 * variance**0.5))

    def correlation(self, one: str, other: str) -> CoveredNumber:
        """Pearson's correlation of two numeric columns without gaps."""
        (i, _), (j, _) = self._number(one), self._number(other)
        if any(self.problem.gaps[k] for k in (i, j)):
            return CoveredNumber(None, None, "a column may have gaps: how often both are there was not released")
        (a, da, _), (b, db, _) = self._centred(i), self._centred(j)
        assert a is not None
        assert b is not None
        assert da is not None
        assert db is not None
        (aa, naa), (bb, nbb), (ab, nab) = self._product(i, i), self._product(j, j), self._product(i, j)
        va, vb, cov = aa - a * a, bb - b * b, ab - a * b
        for name, v, noise in ((one, va, np.hypot(naa, 2 * a * da)), (other, vb, np.hypot(nbb, 2 * b * db))):
            if v <= SURE * noise:
                return CoveredNumber(None, None, f"the variance of {name!r} is {v:.2g} ± {noise:.2g}: it may be none")
        value, root = cov / (va * vb) ** 0.5, (va * vb) ** 0.5
        slopes = (
            nab / root, naa * value / (2 * va), nbb * value / (2 * vb),
            da * (b / root - value * a / va), db * (a / root - value * b / vb),
        )  # fmt: skip
        return CoveredNumber(float(np.clip(value, -1, 1)), float(np.linalg.norm(slopes)))

    # -- quantiles -------------------------------------------------------------------------------------------------

    def quantile(self, column: str, q: float) -> Quantile:
        """Below which the share q of what is there lies; the interval allows for noise and for the width of a bin."""
        if not NUMBER.fits(q) or not 0 < q < 1:
            raise InputError(f"a quantile is between 0 and 1, got {shown(q)}")
        _, rule = self._ranged(column)
        values, _ = self.shares(column)
        bins, (h, _, _) = self.problem.bins, self.problem.weights
        cells, noise = values[:bins], self.noise / h
        total = float(cells.sum())
        wide = noise * bins**0.5
        if total <= SURE * wide:
            raise InputError(f"{share_in_words(total, wide)} has {column!r}: too close to none for the noise")
        reached = np.concatenate([[0.0], np.cumsum(cells) / total])
        count = np.arange(bins + 1)
        error = noise * np.sqrt(count * (1 - reached) ** 2 + (bins - count) * reached**2) / total
        rising = np.clip(np.maximum.accumulate(reached), 0, 1)
        edges = np.linspace(0, 1, bins + 1)
        middle = float(np.interp(q, rising, edges))
        low = float(edges[max(int(np.searchsorted(np.maximum.accumulate(reached + 2 * error), q, "left")) - 1, 0)])
        falling = np.minimum.accumulate((reached - 2 * error)[::-1])[::-1]
        high = float(edges[min(int(np.searchsorted(falling, q, "right")), bins)])
        back = lambda u: _unscaled(rule, u)  # noqa: E731
        return Quantile(back(middle), back(min(low, middle)), back(max(high, middle)))

    def bounds(self, column: str, low: float = 0.01, high: float = 0.99) -> tuple[float, float]:
        """A range for a later plan: from the low to the high quantile, to the outer ends of their intervals.

        It has been paid for, so that plan reads nothing more from the records.
        """
        if low >= high:
            raise InputError(f"bounds go from a low to a high quantile, got {low} and {high}")
        return self.quantile(column, low).low, self.quantile(column, high).high

    # -- all of it -------------------------------------------------------------------------------------------------

    def as_json(self) -> dict[str, Any]:
        """Everything, for a file: all of it may leave."""
        out: dict[str, Any] = {"marked": "covered by ε", "records": self.records}
        if self.once is not None:
            claim = self.once.priced.claims[0]
            out |= {
                "epsilon": float(claim.account.epsilon), "delta": claim.account.delta, "claim": claim.name,
                "adversary": claim.adversary, "unit": self.once.unit,
            }  # fmt: skip
        columns: dict[str, Any] = {}
        for name, many in zip(self.names, self.problem.levels, strict=True):
            told: dict[str, Any] = {"histogram": {k: v.as_json() for k, v in self.histogram(name).items()}}
            if not many:
                try:
                    told["quantiles"] = {str(q): vars(self.quantile(name, q)) for q in (0.05, 0.25, 0.5, 0.75, 0.95)}
                except InputError as error:  # it is paid for: what can be said is said
                    told["quantiles"] = {"refused": str(error)}
                if self.problem.moments:
                    told |= {"mean": self.mean(name).as_json(), "std": self.std(name).as_json()}
            columns[name] = told
        out["columns"] = columns
        numbers = [self.names[k] for k in self.problem.numbers]
        out["correlation"] = [
            {"columns": [a, b], **self.correlation(a, b).as_json()} for i, a in enumerate(numbers) for b in numbers[:i]
        ]
        return out

    # -- parts -----------------------------------------------------------------------------------------------------

    def _column(self, name: str) -> int:
        if name not in self.names:
            raise InputError(f"unknown column {name!r}; there are {', '.join(self.names)}")
        return self.names.index(name)

    def _ranged(self, name: str) -> tuple[int, Number]:
        k = self._column(name)
        rule = self.rules[k]
        if not isinstance(rule, Number):
            raise InputError(f"column {name!r} has levels, not numbers: use histogram")
        return k, rule

    def _number(self, name: str) -> tuple[int, Number]:
        k, rule = self._ranged(name)
        if not self.problem.moments:
            raise InputError("moments were not released: ask for them with moments = true")
        return k, rule

    def _labels(self, k: int) -> list[str]:
        rule = self.rules[k]
        if isinstance(rule, Category):
            labels = list(rule.levels)
        else:
            edges = [_unscaled(rule, u) for u in np.linspace(0, 1, self.problem.bins + 1)]
            labels = [f"{low:.6g} to {high:.6g}" for low, high in pairwise(edges)]
        return labels + ["missing"] * self.problem.gaps[k]

    def _present(self, k: int) -> tuple[float, float]:
        """The share of records in which a column is not missing, and its error."""
        if not self.problem.gaps[k]:
            return 1.0, 0.0
        values, error = self.shares(self.names[k])
        return 1 - float(values[-1]), error

    def _moments(self) -> tuple[Floats, Floats]:
        _, m, q = self.problem.weights
        d, start = len(self.problem.numbers), sum(self.problem.cells)
        flat = self.point[start + d : -1] / q
        square = np.diag(flat[:d])
        square[np.triu_indices(d, 1)] = flat[d:] / 2**0.5
        return self.point[start : start + d] / m, square + np.triu(square, 1).T

    def _centred(self, k: int) -> tuple[float | None, float | None, str]:
        """Mean of v over records that have it, and its error; or why there is none."""
        share, wide = self._present(k)
        if share <= SURE * wide:
            return None, None, f"{share_in_words(share, wide)} has it: too close to none for the noise"
        total = float(self._moments()[0][self.problem.numbers.index(k)])
        value = total / share
        return value, float(np.hypot(self.noise / self.problem.weights[1], value * wide) / share), ""

    def _product(self, i: int, j: int) -> tuple[float, float]:
        """Mean of v_i v_j over all records, and its error."""
        a, b = (self.problem.numbers.index(k) for k in (i, j))
        noise = self.noise / self.problem.weights[2]
        return float(self._moments()[1][a, b]), noise if a == b else noise / 2**0.5


def _range(name: str, pair: Sequence[float], log: bool = False) -> Number:
    if not listed(NUMBER).fits(pair) or len(pair) != 2:
        raise InputError(f"the public range of {name!r} must be (low, high), got {shown(pair)}")
    return Number(float(pair[0]), float(pair[1]), log=log)


def _levels(name: str, levels: Sequence[object]) -> Category:
    if not listed(LEVEL).fits(levels):
        raise InputError(f"the public levels of {name!r} must be a list of texts or numbers, got {shown(levels)}")
    return Category(tuple(map(str, levels)))


def _scale(rule: Number) -> tuple[float, float]:
    """Where the range begins and how wide it is, in the units in which means are stated."""
    return (0.0, float(np.log1p(rule.high - rule.low))) if rule.log else (rule.low, rule.high - rule.low)


def _unscaled(rule: Number, u: float) -> float:
    low, width = _scale(rule)
    return float(rule.low + np.expm1(width * u)) if rule.log else float(low + width * u)


LEVEL = TEXT | NUMBER | FLAG
MOST_BINS = 10_000
NAMES = Expected("a list of names", lambda names: np.ndim(names) == 1)
TABLE = Expected("a frame or a dictionary of columns", lambda t: isinstance(t, Mapping) or hasattr(t, "columns"))


# ---- from records --------------------------------------------------------------------------------------------------


@takes(
    sites=listed(TABLE),
    budget=of("ct.Budget(epsilon, delta)", Budget), bounds=of("a dictionary by column", Mapping) | NOTHING_GIVEN,
    categories=of("a dictionary by column", Mapping) | NOTHING_GIVEN, gaps=listed(TEXT), bins=WHOLE, moments=FLAG,
    honest=WHOLE | NOTHING_GIVEN, seed=WHOLE | NOTHING_GIVEN, names=listed(TEXT) | NOTHING_GIVEN,
    charge=FUNCTION | NOTHING_GIVEN, account=ACCOUNT | NOTHING_GIVEN, people=TEXT | listed(NAMES) | NOTHING_GIVEN,
)  # fmt: skip
def statistics(
    sites: Sequence[Mapping[str, Any] | pd.DataFrame], *, budget: Budget,
    bounds: Mapping[str, Sequence[float]] | None = None, categories: Mapping[str, Sequence[object]] | None = None,
    gaps: Sequence[str] = (), bins: int = 20, moments: bool = True, honest: int | None = None, seed: int | None = None,
    names: Sequence[str] | None = None, charge: Charge | None = None,
    account: DataAccount | str | Path | None = None, people: str | Sequence[ArrayLike] | None = None,
) -> TableStatistics:  # fmt: skip
    """Statistics of the tables of several parties, all columns in one noisy sum.

    All parties run in this process, with seeded floating-point noise: a simulation, for study. Between real parties
    the same sum is a plan (`problem.loss = "statistics"`).

    Args:
        sites: a table for each party, as a frame or as a dictionary of columns.
        budget: (ε, δ) of every record, or of every person with all of its records at a party, if there are `people`.
        bounds: public (low, high) ranges of numeric columns; values beyond are cut to them.
        categories: public levels of other columns; another value counts as the first level, or as missing.
        gaps: columns in which values may be missing.
        bins: of each range.
        moments: also means, variances and correlations.
        honest: that so many parties are honest at least, for noise on the opened sum alone; None: on every message.
        seed: of the noise; None: from the operating system. None goes with an account.
        names: of the parties.
        charge: hears the events before a record is used.
        account: of the data set that all tables are: what the statistics cost is drawn from it before a record is used,
            or they are refused. Left out, nothing is drawn: publish nothing of it then.
        people: whose each record is: a column, or for each party a list of names. Then statistics are over people, each
            of whom counts once with the mean of its records. Drawn is what a person pays whom all parties may know.

    >>> import numpy as np, coterie as ct
    >>> rng = np.random.default_rng(0)
    >>> sites = [{"age": rng.uniform(20, 80, 4000), "sex": rng.choice(["f", "m"], 4000)} for _ in range(4)]
    >>> told = ct.statistics(sites, budget=ct.Budget(1.0, 1e-5), bounds={"age": (0, 100)},
    ...                      categories={"sex": ["f", "m"]}, honest=3, seed=1)
    >>> bool(abs(told.mean("age").value - 50) < 1), round(told.once.priced.claims[0].account.epsilon, 3)
    (True, 1.0)
    """
    rules: dict[str, Rule] = {name: _range(name, pair) for name, pair in (bounds or {}).items()}
    if both := [name for name in categories or {} if name in rules]:
        raise InputError(f"column {both[0]!r} has bounds and categories: it is a number or has levels, not both")
    rules |= {name: _levels(name, levels) for name, levels in (categories or {}).items()}
    if names is not None and (len(names) != len(sites) or len(set(names)) < len(names)):
        raise InputError(f"names must be {len(sites)} different names, one for each site, got {list(names)}")
    if not len(sites):
        raise InputError("statistics need a table of each party, and sites is empty")
    if not rules:
        raise InputError("statistics need public ranges (bounds) or levels (categories) of the columns")
    if unknown := [name for name in gaps if name not in rules]:
        raise InputError(f"gaps names {unknown[0]!r}, which has neither bounds nor categories")
    if charge is not None and account is not None:
        raise InputError("charge and account both pay: give one of them")
    drawn = as_account(account)
    need_unseeded(drawn, seed)
    whose = _whose(sites, people)
    coded = [_stacked({name: _coded(site, name, rule) for name, rule in rules.items()}) for site in sites]
    parts = np.split(np.arange(sum(map(len, coded))), np.cumsum([len(c) for c in coded])[:-1])
    exchange = {} if honest is None else {"kind": "secret-sum", "noise": "central", "honest": honest}
    data = {"source": "memory"} if whose is None else {"source": "memory", "unit": "person"}
    plan = validate(
        {
            "name": "statistics", "data": data, "graph": {"kind": "complete"}, "exchange": exchange,
            "privacy": {"epsilon": budget.epsilon, "delta": budget.delta},
            "problem": {"loss": "statistics"}, "algorithm": {"name": "release"},
        }
    )  # fmt: skip
    given = None if whose is None else np.concatenate(whose)
    if drawn is not None:
        charge = charged_to(drawn, plan, "statistics", list(sites), given)
    problem = _problem(rules, gaps, bins, moments)
    return _released(
        plan, problem, rules, np.concatenate(coded), parts, names or [f"party {k}" for k in range(len(sites))],
        ALL_PUBLIC, seed, charge, given,
    )  # fmt: skip


def _whose(
    sites: Sequence[Mapping[str, Any] | pd.DataFrame], people: str | Sequence[ArrayLike] | None
) -> tuple[NDArray, ...] | None:  # fmt: skip
    """Whose each record of each table is, by number over all of them; None: records are the unit."""
    if people is None:
        return None
    if isinstance(people, str):
        if lacking := [k for k, site in enumerate(sites) if people not in site]:
            raise InputError(f"people = {people!r} is no column of site {lacking[0]}")
        people = [np.asarray(site[people]) for site in sites]
    counts = [len(np.asarray(site[str(next(iter(site)))])) for site in sites]
    return people_of_sites(people, counts)


def planned_statistics(
    plan: Plan, *, bins: int = 20, moments: bool = True, seed: int | None = None, charge: Charge | None = None,
    account: DataAccount | None = None, columns: Sequence[str] | None = None,
) -> TableStatistics:  # fmt: skip
    """Statistics of all records of a plan's table, by its parties, exchange and budget: `coterie stats`.

    `columns`: of these alone, with less noise on each. With an `account`, what they cost is drawn from it before a
    record is used, and noise has no seed that is known.
    """
    need_unseeded(account, seed)
    rows, rules, gaps, dataset = table_of(plan)
    if dataset.leaks:
        raise InputError(f"{dataset.leaks[0]}: state it in data.options, or nothing that is released is covered")
    if columns is not None:
        if stray := [name for name in columns if name not in rules]:
            raise InputError(f"unknown column {stray[0]!r}; there are {', '.join(rules)}")
        rows = rows[:, [list(rules).index(name) for name in columns]]
        rules, gaps = {name: rules[name] for name in columns}, [name for name in gaps if name in columns]
    problem = _problem(rules, gaps, bins, moments)
    parts = parts_of(plan, dataset)
    names = dataset.site_names if len(dataset.site_names) == len(parts) else [f"agent {k}" for k in range(len(parts))]
    people = people_of(plan, dataset)
    if account is not None:
        column = options_of(plan).get("person") if plan.by_person else None
        charge = charged_to(account, plan, "statistics", plan.data.path, column)
    elif seed is None:
        seed = plan.run.seed
    return _released(
        release_plan(plan, "statistics"), problem, rules, rows, parts, names, dataset.origins, seed, charge, people,
        not by_site(plan.partition.kind),
    )  # fmt: skip


def _problem(rules: Mapping[str, Rule], gaps: Sequence[str], bins: int, moments: bool) -> TableSums:
    if not 1 <= bins <= MOST_BINS:
        raise InputError(f"bins must be between 1 and {MOST_BINS}, got {bins}")
    levels = tuple(0 if isinstance(rule, Number) else len(rule.levels) for rule in rules.values())
    return TableSums(levels, tuple(name in gaps for name in rules), bins, moments)


def _released(
    plan: Plan, problem: TableSums, rules: Mapping[str, Rule], rows: Floats, parts: Sequence[NDArray],
    names: Sequence[str], origins: Origins, seed: int | None, charge: Charge | None, people: NDArray | None = None,
    apart: bool = False,
) -> TableStatistics:  # fmt: skip
    from coterie.drivers.seeds import fresh_seed

    once = release_once(
        plan, problem, rows, np.zeros(len(rows)), parts, names=names, origins=origins,
        seed=fresh_seed() if seed is None else seed, charge=charge, people=people, apart=apart,
    )  # fmt: skip
    counted = sum(sizes_of(parts, people))
    return TableStatistics(problem, once.point, tuple(rules), tuple(rules.values()), counted, once)


def _stacked(columns: Mapping[str, Floats]) -> Floats:
    """Columns of one table side by side."""
    first, *rest = columns
    for name in rest:
        if len(columns[name]) != len(columns[first]):
            raise InputError(f"{first!r} has {len(columns[first])} values and {name!r} has {len(columns[name])}")
    return np.stack(list(columns.values()), axis=1)


def _coded(site: Mapping[str, Any] | pd.DataFrame, name: str, rule: Rule) -> Floats:
    """A column as the problem takes it: a place in its range, the number of a level, −1 for what is missing."""
    if name not in site:
        raise InputError(f"column {name!r} is missing: the table has {', '.join(map(str, site))}")
    if np.ndim(site[name]) != 1:
        raise InputError(f"column {name!r} must be one list of values, got shape {np.shape(site[name])}")
    if isinstance(rule, Number):
        try:
            values = np.asarray(site[name], float)
        except (TypeError, ValueError):
            raise InputError(f"column {name!r} must be numeric") from None
        return np.where(np.isnan(values), -1.0, rule.scale(values))
    place = {level: float(k) for k, level in enumerate(rule.levels)}
    return np.array([place.get(str(value).strip(), -1.0) for value in np.asarray(site[name], object)])


def table_of(plan: Plan) -> tuple[Floats, dict[str, Rule], list[str], Dataset]:
    """All records of the plan's table, column by column, by the ranges and levels that the plan states."""
    if plan.data.source not in ("csv", "parquet"):
        raise InputError(
            f"coterie stats reads a table by the ranges and levels that its plan states: data.source must be 'csv' or "
            f"'parquet', got {plan.data.source!r}; ct.statistics takes records of any kind"
        )
    options = plan.data.options
    stated = options_of(plan)
    told = {"row_norm": "none", "centre": False, "constant": False}
    data = plan.data.model_copy(update={"options": {**options, **told}})
    dataset = load_planned(plan.model_copy(update={"data": data, "problem": ProblemPlan()}))  # of values, not of bins
    bounds, log, levels = stated.get("bounds") or {}, stated.get("log") or (), stated.get("categories") or {}
    where = {name: k for k, name in enumerate(dataset.feature_names)}
    rules: dict[str, Rule] = {}
    columns, gaps = [], []
    for name in dict.fromkeys(f.partition("=")[0] for f in dataset.feature_names):
        absent = dataset.features[:, where[f"{name}=missing"]] > 0 if f"{name}=missing" in where else None
        if name in where and name in bounds:
            rules[name] = _range(name, bounds[name], log=name in log)
            column = dataset.features[:, where[name]]
        elif not isinstance(levels, str) and name in levels:
            own = [f for f in dataset.feature_names if f.startswith(f"{name}=") and f != f"{name}=missing"]
            rules[name] = Category(tuple(f.partition("=")[2] for f in own))
            block = dataset.features[:, [where[f] for f in own]]
            column = np.where(block.any(axis=1), block.argmax(axis=1), -1.0)
        else:
            raise InputError(f"column {name!r} has no public range or levels: state data.options.bounds or categories")
        if absent is not None:
            gaps.append(name)
            column = np.where(absent, -1.0, column)
        columns.append(np.asarray(column, float))
    if dataset.classes is not None and plan.data.label is not None:
        rules[plan.data.label] = Category(dataset.classes)
        columns.append(dataset.targets.astype(float))
    elif plan.data.label in bounds:
        rules[str(plan.data.label)] = _range(str(plan.data.label), bounds[str(plan.data.label)])
        columns.append(np.asarray(dataset.targets, float))
    return np.stack(columns, axis=1), rules, gaps, dataset
