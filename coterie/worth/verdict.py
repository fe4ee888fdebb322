"""Who gains by joining: differences between two models on the same records, with their errors, and one sentence.

A party's gain is what the private model adds, on the party's own test records, to what the party reaches alone. Its
interval comes from the paired differences of records and, where there are several, of seeds. Intervals of parties hold
all together (Bonferroni), so among a hundred parties that gain nothing none is called a winner by chance; that of the
mean is for itself. Variances that are estimated from few records or few seeds widen it: Student's t, with Welch and
Satterthwaite's degrees of freedom where several variances add up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from coterie.worth.measures import LESS, Answers, parts

__all__ = [
    "UNKNOWN",
    "Gain",
    "ModelScores",
    "SaidWorth",
    "ToldGain",
    "Verdict",
    "Worth",
    "WorthMean",
    "WorthRow",
    "gain",
    "mean_gain",
    "mean_scores",
    "sentence",
    "value",
]  # fmt: skip

Verdict = Literal["gains", "loses", "cannot tell"]
Model = Literal["alone", "private", "pooled", "blend"]
MODELS: tuple[Model, ...] = ("alone", "private", "pooled", "blend")
LEVEL = 0.95
WOULD = {
    "gains": "would gain by the model", "loses": "does better alone", "cannot tell": "may or may not gain by the model"
}  # fmt: skip
NAMED = 5  # parties that a sentence names


class ToldGain(TypedDict):
    """A gain with its interval; None throughout where the records cannot tell."""

    gain: float | None
    low: float | None
    high: float | None
    verdict: Verdict | None


class ModelScores(TypedDict, total=False):
    """What each model reaches, by the measure; `pooled` only where it was asked for."""

    alone: float | None
    private: float | None
    blend: float | None
    pooled: float | None


class WorthMean(ToldGain, ModelScores):
    """The mean over parties."""


class WorthRow(WorthMean):
    """One party."""

    name: str
    records: int
    test_records: int


class Worth(TypedDict):
    """The part `worth` of result.json, but for the sentence that it comes to."""

    metric: str
    meaning: str
    better: Literal["less", "more"]
    of: int
    seeds: int
    parties: list[WorthRow]
    outsiders: list[WorthRow]
    splits: int
    mean: WorthMean


class SaidWorth(Worth):
    """All of it."""

    sentence: str


UNKNOWN: ToldGain = {"gain": None, "low": None, "high": None, "verdict": None}


@dataclass(frozen=True)
class Gain:
    """How much better (positive) one model is than another, and how well that is known."""

    by_seed: NDArray[np.float64]
    records: float  # variance that comes from having so few test records; of splits: from having so few of those
    freedom: float = math.inf  # degrees of freedom of that variance

    @classmethod
    def of_splits(cls, each: NDArray, share: float) -> Gain | None:
        """Of one difference for each of several random splits that hold out `share` test records per training record.

        Splits overlap, so their differences are not independent: the variance of the mean is (1/K + share) times
        theirs (Nadeau and Bengio 2003), with K − 1 degrees of freedom. None where they cannot tell: of fewer than two
        splits, or of splits that differ by the same and say nothing of others.
        """
        if len(each) < 2 or (each.any() and not each.var()):
            return None
        return cls(np.array([each.mean()]), (1 / len(each) + share) * float(each.var(ddof=1)), len(each) - 1)

    @property
    def mean(self) -> float:
        """Over seeds."""
        return float(self.by_seed.mean())

    @property
    def seeds(self) -> float:
        """Variance of the mean over seeds; 0 of a single one, which says nothing of others."""
        return float(self.by_seed.var(ddof=1)) / len(self.by_seed) if len(self.by_seed) > 1 else 0.0

    @property
    def error(self) -> float:
        """Standard error: of records, and of seeds where there are several."""
        return math.sqrt(self.records + self.seeds)

    def interval(self, of: int = 1) -> tuple[float, float]:
        """Its 95 % interval, as one of so many that hold together."""
        freedom = _freedom([(self.records, self.freedom), (self.seeds, len(self.by_seed) - 1)])
        reach = float(-stdtrit(freedom, (1 - LEVEL) / 2 / of)) * self.error
        return self.mean - reach, self.mean + reach

    def verdict(self, of: int = 1) -> Verdict:
        """What can be said at 95 %."""
        low, high = self.interval(of)
        return "gains" if low > 0 else "loses" if high < 0 else "cannot tell"

    def told(self, of: int = 1) -> ToldGain:
        """As in result.json."""
        low, high = self.interval(of)
        return {"gain": self.mean, "low": low, "high": high, "verdict": self.verdict(of)}


def _freedom(variances: Iterable[tuple[float, float]]) -> float:
    """Degrees of freedom of a sum of estimated variances, each given with its own (Welch and Satterthwaite).

    >>> _freedom([(1.0, 4), (1.0, 4), (0.0, 0)])
    8.0
    """
    known = [(variance, freedom) for variance, freedom in variances if variance > 0]
    each = sum(variance**2 / freedom for variance, freedom in known)
    return sum(variance for variance, _ in known) ** 2 / each if each else math.inf


def value(measure: str, said: Answers) -> float | None:
    """The measure itself; None where these records cannot tell."""
    found = parts(measure, said)
    if found is None:
        return None
    return float(found[0][found[1][0]].mean()) * (-1 if measure in LESS else 1)


def gain(measure: str, mine: Sequence[Answers], other: Answers) -> Gain | None:
    """What `mine` (one answer for each seed) adds to `other` on the same records; None where they cannot tell."""
    base, found = parts(measure, other), [parts(measure, said) for said in mine]
    if base is None or any(f is None for f in found):
        return None
    each = np.array([f[0] - base[0] for f in found if f is not None])
    groups = base[1]
    if any(len(group) < 2 for group in groups):
        return None
    mean = each.mean(axis=0)
    spread = [(_variance(mean[group], measure), len(group) - 1) for group in groups]
    total = sum(variance for variance, _ in spread)
    if not total and mean.any():  # a few records that differ by the same: nothing says how others would
        return None
    return Gain(each[:, groups[0]].mean(axis=1), total, _freedom(spread))


def _variance(differences: NDArray, measure: str) -> float:
    """Of the mean of these differences.

    Whether a class is right is yes or no, and few of those often agree by chance: half a record is added for each of
    the four ways in which two models can be right or wrong (Agresti and Min 2005).
    """
    n = len(differences)
    if measure != "accuracy":
        return float(differences.var(ddof=1)) / n
    square, plain = float(np.sum(differences**2)) + 1, float(differences.sum())
    return (square - plain**2 / (n + 2)) / (n + 2) ** 2


def mean_gain(gains: Sequence[Gain]) -> Gain:
    """The mean over parties: their records are apart, their seeds are the same."""
    by_seed = np.mean([g.by_seed for g in gains], axis=0)
    freedom = _freedom((g.records, g.freedom) for g in gains)
    return Gain(by_seed, sum(g.records for g in gains) / len(gains) ** 2, freedom)


def mean_scores(rows: Sequence[ModelScores]) -> ModelScores:
    """What each model reaches over all rows that know it."""
    out: ModelScores = {}
    for name in MODELS if rows else ():
        if name in rows[0]:
            values = [reached for row in rows if (reached := row.get(name)) is not None]
            out[name] = float(np.mean(values)) if values else None
    return out


def sentence(worth: Worth, epsilon: str) -> str:
    """Who gains, how much, and who should not join.

    `worth` is as in result.json, `epsilon` says at which budget.
    """
    mean, measure, rows = worth["mean"], worth["metric"], worth["parties"]
    judged = [row for row in rows if row["verdict"] is not None]
    few = "too few test records" + (" of each class" if measure == "auc" else "")
    if not judged or mean["verdict"] is None:
        at = "hand" if judged or len(rows) == 1 else "every party"
        return f"Cannot tell whether joining pays at {epsilon}: {few} at {at}."
    count, parties = len(judged), worth["of"]
    over = "mean of the parties" if count == parties else f"mean of {count} of {parties} parties"
    if parties == 1:  # one that judges for itself
        over = rows[0]["name"]
    everyone = "all of them" if count == parties else f"all {count} that were judged"
    who = lambda names: everyone if len(names) == count > 1 else _names(names, parties)  # noqa: E731
    of = {v: [row["name"] for row in judged if row["verdict"] == v] for v in ("gains", "loses", "cannot tell")}
    less = worth["better"] == "less"
    say = lambda x: f"{-x if less else x:+.3f}"  # noqa: E731  # of the measure itself
    on = f"{measure.upper() if measure == 'auc' else measure}{' (less is better)' if less else ''} on own test records"
    low, high = (mean["high"], mean["low"]) if less else (mean["low"], mean["high"])
    interval = f"95 % interval {say(low)} to {say(high)}"
    head = {
        "gains": f"Joining pays at {epsilon}: {say(mean['gain'])} {on} over staying alone, {over} ",
        "loses": f"Joining does not pay at {epsilon}: {say(mean['gain'])} {on} against staying alone, {over} ",
        "cannot tell": f"Cannot tell whether joining pays at {epsilon}: {say(mean['gain'])} {on} against staying "
        f"alone, {over} ",
    }[mean["verdict"]] + f"({interval})."
    tail = []
    if of["gains"]:
        tail.append(f"{who(of['gains'])} {'gains' if len(of['gains']) == 1 else 'gain'}")
    elif mean["verdict"] != "gains":
        tail.append("nobody is seen to gain")
    if of["loses"]:
        tail.append(f"{who(of['loses'])} should not join at this ε")
    if of["cannot tell"]:
        nobody = len(of["cannot tell"]) == count
        some = "of no single party can these records tell"
        tail.append(some if nobody else f"of {who(of['cannot tell'])} these records cannot tell")
    if unknown := [row["name"] for row in rows if row["verdict"] is None]:
        tail.append(f"{_names(unknown, parties)} {'has' if len(unknown) == 1 else 'have'} {few} to be judged")
    if parties == 1:
        return head
    said = "; ".join(tail)
    outside = [
        f" {row['name']}, which took no part, has {few} to be judged."
        if row["verdict"] is None
        else f" {row['name']}, which took no part, {WOULD[row['verdict']]} ({say(row['gain'])})."
        for row in worth.get("outsiders", [])
    ]
    return f"{head} {said[:1].upper()}{said[1:]}.{''.join(outside)}"


def _names(names: list[str], of: int) -> str:
    return ", ".join(names) if len(names) <= NAMED else f"{len(names)} of {of} parties"
