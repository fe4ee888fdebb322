r"""A fairness study: methods × budgets × seeds on one table, by a TOML plan (`study_plan`); `coterie fair` runs it.

Records become `Statistics` once for each coding and split; every release, whatever its method and budget, is made from
those. Metrics are of held-out records and for evaluation only: publishing them would be a release of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce
from operator import add
from typing import Literal, Required, TypedDict
from zlib import crc32

import numpy as np
import pandas as pd

from coterie.data import load
from coterie.data.encode import Book, Category, Number, class_indices
from coterie.data.sources.adult import BOOK
from coterie.data.tables import read_table
from coterie.errors import InputError
from coterie.fair.decentralised import fit_by_consensus, fit_by_secret_sum
from coterie.fair.estimator import logistic_regression
from coterie.fair.features import Features, book_of, features
from coterie.fair.mechanisms import release
from coterie.fair.methods import METHODS
from coterie.fair.metrics import evaluate
from coterie.fair.noise import Seeded
from coterie.fair.polynomial import Statistics
from coterie.fair.printed import release_as_printed
from coterie.fair.study_plan import CodingPlan, FairData, FairPlan, FairRunPlan
from coterie.graphs import make_graph, mixing
from coterie.privacy.accountants import Account

__all__ = ["METRICS", "FairCell", "Metric", "SeedSpread", "Study", "prepare", "run"]

Metric = Literal["accuracy", "risk_difference", "disparate_impact", "equalized_odds_gap", "positive_rate"]
METRICS: tuple[Metric, ...] = (
    "accuracy", "risk_difference", "disparate_impact", "equalized_odds_gap", "positive_rate"
)  # fmt: skip


class SeedSpread(TypedDict):
    """A metric over seeds; None where it is undefined."""

    mean: float | None
    std: float | None


class FairCell(TypedDict):
    """One run at one ε and δ, as in fair.json."""

    panel: str
    label: str
    method: str
    coding: str
    as_printed: bool
    repair: str | None
    attribute: str | None
    ratio: float | None
    penalty: float | None
    over: str
    epsilon: float | None
    delta: float
    wanted_delta: float
    spent_epsilon: float | None
    claimed_epsilon: float | None
    private: bool
    leaks: list[str]
    attribute_epsilon: float | None
    claim: str | None
    adversary: str | None
    evaluation_only: bool
    printed: list[float] | None  # mean and deviation, as a paper has them
    accuracy: SeedSpread
    risk_difference: SeedSpread
    disparate_impact: SeedSpread
    equalized_odds_gap: SeedSpread
    positive_rate: SeedSpread
    group_accuracy: dict[str, SeedSpread]


@dataclass(frozen=True, eq=False)
class Study:
    """The records of a plan, encoded by each of its codings."""

    plan: FairPlan
    codings: dict[str, Features]
    targets: np.ndarray
    groups: np.ndarray
    levels: tuple[str, ...]  # names of the protected groups
    leaks: tuple[str, ...]  # what was read from the records to encode them: nothing is private unless it is empty


def prepare(plan: FairPlan) -> Study:
    """Load and encode the table."""
    data = plan.data
    if data.source == "adult":
        adult = load("adult", path=data.path, missing="keep")
        frame, targets, book, leaks = pd.DataFrame(dict(adult.columns)), adult.targets, dict(BOOK), adult.leaks
    else:
        frame, targets, book = _table(data)
        leaks = ()  # classes and every column's range or categories are stated, or the plan is refused
    if data.protected not in book:
        raise InputError(f"data.protected = {data.protected!r} is not a column with public levels: {', '.join(book)}")
    groups, levels = _groups(frame[data.protected], data.protected, book.pop(data.protected))
    made = {name: _encode(frame, book, coding) for name, coding in plan.codings.items()}
    return Study(plan, made, targets, groups, levels, leaks)


def _table(data: FairData) -> tuple[pd.DataFrame, np.ndarray, dict[str, Number | Category]]:
    if data.path is None or data.label is None or data.classes is None or len(data.classes) != 2:
        raise InputError(f"data.source = {data.source!r} needs data.path, data.label and data.classes = [bad, good]")
    frame = read_table(data.path)
    columns = [str(c) for c in frame.columns if c != data.label]
    if data.label not in frame:
        raise InputError(f"{data.path} has no column {data.label!r}: it has {', '.join(columns)}")
    book = book_of(data.bounds, columns)
    return frame, class_indices(frame[data.label].astype("string"), data.label, data.classes), book


def _groups(values: pd.Series, name: str, rule: Number | Category) -> tuple[np.ndarray, tuple[str, ...]]:
    if isinstance(rule, Category):
        return class_indices(values, name, rule.levels), rule.levels
    middle = (rule.low + rule.high) / 2
    return (values.to_numpy(float) > middle).astype(int), (f"≤ {middle:g}", f"> {middle:g}")


def _encode(frame: pd.DataFrame, book: Book, coding: CodingPlan) -> Features:
    for name in (*coding.leave_out, *coding.log):
        if name not in book:
            raise InputError(f"coding names the column {name!r}, but there are {', '.join(book)}")
    kept = {c: rule for c, rule in book.items() if c not in coding.leave_out}
    for name in coding.log:
        rule = kept.get(name)
        if not isinstance(rule, Number):
            raise InputError(f"only numbers have a logarithm: {name!r} is a category or left out")
        kept[name] = Number(rule.low, rule.high, log=True)
    return features(
        frame, kept, coding=coding.coding, centre=coding.centre, norm=coding.norm, constant=coding.constant
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Split:
    """One seed's training statistics (by party) and held-out rows."""

    holders: list[Statistics]
    train: np.ndarray
    test: np.ndarray

    @property
    def whole(self) -> Statistics:
        return reduce(add, self.holders)


class _Spent(TypedDict, total=False):
    """What a fit cost, and against whom."""

    account: Required[Account]
    attribute: Account | None
    printed: float | None
    claim: str
    adversary: str


def run(study: Study, tell: Callable[[str], None] = lambda line: None) -> list[FairCell]:
    """Every cell of the study: one for each run, ε and δ, with metrics over the seeds."""
    plan = study.plan
    cells: list[FairCell] = []
    splits: dict[tuple[str, int], _Split] = {}
    reference: dict[tuple[str, int], np.ndarray] = {}
    for r in plan.runs:
        made = study.codings[r.coding]
        if r.attribute is not None and r.attribute not in made.attributes:
            raise InputError(f"run {r.name!r}: attribute {r.attribute!r} is not a feature of coding {r.coding!r}")
        for epsilon, delta in _budgets(plan, r):
            scores, last = [], None
            stream = crc32(f"{r.panel}|{r.name}|{r.coding}|{epsilon}|{delta}".encode())  # whatever else the plan holds
            for k in range(plan.seeds):
                seed = plan.seed + k
                key = (r.coding, seed)
                if key not in splits:
                    splits[key] = _split(study, made, seed)
                here = splits[key]
                if METHODS[r.method].law is None:
                    if key not in reference:
                        reference[key] = logistic_regression(made.x[here.train], study.targets[here.train])
                    weights = reference[key]
                else:
                    weights, last = _train(plan, r, made, here, epsilon, delta, [seed, stream])
                decisions = made.x[here.test] @ weights > 0
                scores.append(evaluate(study.targets[here.test], decisions, study.groups[here.test], len(study.levels)))
            cells.append(_cell(r, epsilon, delta, scores, last, study))
        tell(f"{r.panel}: {r.name}")
    return cells


def _budgets(plan: FairPlan, r: FairRunPlan) -> list[tuple[float | None, float]]:
    if METHODS[r.method].law is None:
        return [(None, plan.delta)]
    return [(e, d) for e in r.epsilons or plan.epsilons for d in r.deltas or [plan.delta]]


def _split(study: Study, made: Features, seed: int) -> _Split:
    """A random split, the same for every coding; the training records are dealt to the parties."""
    plan, n = study.plan, len(study.targets)
    order = np.random.default_rng(seed).permutation(n)
    cut = round(plan.data.test_fraction * n)
    test, train = order[:cut], order[cut:]
    levels = len(study.levels)
    holders = [
        Statistics.of(made.x[rows], study.targets[rows], study.groups[rows], levels)
        for rows in np.array_split(train, plan.holders)
    ]
    return _Split(holders, train, test)


def _train(
    plan: FairPlan, r: FairRunPlan, made: Features, here: _Split, epsilon: float | None, delta: float, key: list[int]
) -> tuple[np.ndarray, _Spent]:
    assert epsilon is not None
    rng = np.random.default_rng(key)
    if r.over == "secret-sum":
        net = fit_by_secret_sum(
            here.holders, r.method, random_state=int(rng.integers(2**31)), penalty=r.penalty, epsilon=epsilon,
            delta=delta, signed=made.signed,
        )  # fmt: skip
        return net.weights[0], {"account": net.claim.account, "claim": net.claim.name, "adversary": net.claim.adversary}
    if r.over == "consensus":
        ring = mixing(make_graph("ring" if plan.holders > 2 else "path", plan.holders))
        net = fit_by_consensus(
            here.holders, ring, r.method, noise=Seeded(rng), penalty=r.penalty, epsilon=epsilon, delta=delta,
            signed=made.signed,
        )  # fmt: skip
        return net.weights[0], {"account": net.claim.account, "claim": net.claim.name, "adversary": net.claim.adversary}
    make = partial(release_as_printed, repair=r.repair) if r.as_printed else release
    attribute, ratio = (None, 1.0) if r.attribute is None else (made.attributes[r.attribute], r.ratio)
    out = make(
        here.whole, r.method, noise=Seeded(rng), epsilon=epsilon, delta=delta, signed=made.signed,
        attribute=attribute, ratio=ratio,
    )  # fmt: skip
    return out.weights(r.penalty), {"account": out.account, "printed": out.claim, "attribute": out.attribute}


def _number(x: float | None) -> float | None:
    return float(x) if x is not None and np.isfinite(x) else None


def _spread(values: list[float]) -> SeedSpread:
    return {"mean": _number(float(np.mean(values))), "std": _number(float(np.std(values)))}


def _cell(
    r: FairRunPlan, epsilon: float | None, delta: float, scores: list, last: _Spent | None, study: Study
) -> FairCell:
    spent = None if last is None else last["account"]
    inner = None if last is None else last.get("attribute")
    over_seeds = lambda name: _spread([getattr(s, name) for s in scores])  # noqa: E731
    return {
        "panel": r.panel,
        "label": r.name,
        "method": r.method,
        "coding": r.coding,
        "as_printed": r.as_printed,
        "repair": r.repair if r.as_printed else None,
        "attribute": r.attribute,
        "ratio": r.ratio,
        "penalty": _number(r.penalty),
        "over": r.over,
        "epsilon": _number(epsilon),
        "delta": delta if spent is None else spent.delta,
        "wanted_delta": delta,
        "spent_epsilon": None if spent is None else _number(spent.epsilon),
        "claimed_epsilon": None if last is None else last.get("printed"),
        "private": spent is not None and bool(np.isfinite(spent.epsilon)) and not r.as_printed and not study.leaks,
        "leaks": list(study.leaks),
        "attribute_epsilon": None if inner is None else _number(inner.epsilon),
        "claim": None if last is None else last.get("claim", "one party"),
        "adversary": None if last is None else last.get("adversary"),
        "evaluation_only": True,
        "printed": r.printed.get(f"{epsilon:g}") if epsilon is not None else r.printed.get("any"),
        "accuracy": over_seeds("accuracy"),
        "risk_difference": over_seeds("risk_difference"),
        "disparate_impact": over_seeds("disparate_impact"),
        "equalized_odds_gap": over_seeds("equalized_odds_gap"),
        "positive_rate": over_seeds("positive_rate"),
        "group_accuracy": {g: _spread([s.group_accuracy[i] for s in scores]) for i, g in enumerate(study.levels)},
    }
