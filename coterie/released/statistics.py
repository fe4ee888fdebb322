"""Private statistics of a table that several parties hold: one noisy sum, and all that is read off it for nothing.

Columns have public ranges or levels, never ones that were read from the records. Every number has the standard error
that its noise gives it; a quantile has an interval, which also allows for the width of a bin. What is released here is
charged like anything else: a record that a model is trained on later pays for both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coterie.api.accounts import ACCOUNT, as_account, need_unseeded
from coterie.api.given import FLAG, FUNCTION, NOTHING_GIVEN, NUMBER, TEXT, WHOLE, Expected, listed, of, shown, takes
from coterie.api.sites import people_of_sites
from coterie.data import ALL_PUBLIC, Dataset, Origins
from coterie.data.encode import Category, Number
from coterie.data.partition import by_site
from coterie.data.planned import load_planned, options_of, parts_of, people_of, sizes_of
from coterie.deploy.accounts import DataAccount
from coterie.errors import InputError
from coterie.plan import Plan, validate
from coterie.privacy.ledger import Budget
from coterie.released.once import Charge, charged_to, release_once, release_plan
from coterie.released.table_statistics import Floats, Rule, TableStatistics
from coterie.released.table_sums import TableSums
from coterie.tables.problem import ProblemPlan

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["planned_statistics", "statistics", "table_of"]


def _range(name: str, pair: Sequence[float], log: bool = False) -> Number:
    if not listed(NUMBER).fits(pair) or len(pair) != 2:
        raise InputError(f"the public range of {name!r} must be (low, high), got {shown(pair)}")
    return Number(float(pair[0]), float(pair[1]), log=log)


def _levels(name: str, levels: Sequence[object]) -> Category:
    if not listed(LEVEL).fits(levels):
        raise InputError(f"the public levels of {name!r} must be a list of texts or numbers, got {shown(levels)}")
    return Category(tuple(map(str, levels)))


LEVEL = TEXT | NUMBER | FLAG
MOST_BINS = 10_000
NAMES = Expected("a list of names", lambda names: np.asarray(names).ndim == 1)
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
    sites: Sequence[Mapping[str, object] | pd.DataFrame], *, budget: Budget,
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
    sites: Sequence[Mapping[str, object] | pd.DataFrame], people: str | Sequence[ArrayLike] | None
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
