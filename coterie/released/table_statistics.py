"""Statistics read off one noisy sum over a table: counts, moments, correlations, quantiles, each with its error."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from coterie.api.given import NUMBER, shown
from coterie.data.encode import Category, Number
from coterie.errors import InputError
from coterie.released.covered import CoveredNumber, share_in_words
from coterie.released.once import Once
from coterie.released.table_sums import TableSums

__all__ = ["Floats", "Quantile", "Rule", "TableStatistics"]

Floats = NDArray[np.float64]
Rule = Number | Category
SURE = 5.0  # a noisy total below this many of its standard deviations may be zero


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

    def as_json(self) -> dict[str, object]:
        """Everything, for a file: all of it may leave."""
        out: dict[str, object] = {"marked": "covered by ε", "records": self.records}
        if self.once is not None:
            claim = self.once.priced.claims[0]
            out |= {
                "epsilon": float(claim.account.epsilon), "delta": claim.account.delta, "claim": claim.name,
                "adversary": claim.adversary, "unit": self.once.unit,
            }  # fmt: skip
        columns: dict[str, object] = {}
        for name, many in zip(self.names, self.problem.levels, strict=True):
            told: dict[str, object] = {"histogram": {k: v.as_json() for k, v in self.histogram(name).items()}}
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


def _scale(rule: Number) -> tuple[float, float]:
    """Where the range begins and how wide it is, in the units in which means are stated."""
    return (0.0, float(np.log1p(rule.high - rule.low))) if rule.log else (rule.low, rule.high - rule.low)


def _unscaled(rule: Number, u: float) -> float:
    low, width = _scale(rule)
    return float(rule.low + np.expm1(width * u)) if rule.log else float(low + width * u)
