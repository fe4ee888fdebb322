"""Public bins: every attribute of a record falls into exactly one, so the record is a list of A numbers of bins.

A number beyond its range lies in the first or last bin; what is no number lies in the bin `missing`, and so does a
category that is not one of the levels (unless `other` is one of them). Pairs of attributes have a bin for each two of
theirs.

As features, bin b of an attribute is a vector φ_b of norm 1, and a record is the vectors of its A bins side by side,
divided by √A: **a row of norm 1, whatever the record says**. Bins of a number that are k apart have ⟨φ_b, φ_b'⟩ = ρᵏ
(`alike`): the vectors are the rows of the root of that matrix. All other bins are at right angles, as all are at ρ = 0,
where features are A ones among zeros, divided by √A. A model θ says ⟨θ, φ_b⟩ of a bin, so noise of the same size in all
directions is noise of the same size in every bin, but neighbours share it, as they share what is learned: beforehand,
curves that do not jump at every edge are the likely ones. Where there are records enough, they decide.

Bins come from a code book and from what a plan says about it. There is no way in for records: `bins_of` sees none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from coterie.data.encode import Book, Category, Number
from coterie.errors import InputError
from coterie.lazily import lazily

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = lazily("pandas")

__all__ = [
    "ALIKE",
    "MISSING",
    "Bins",
    "Block",
    "Direction",
    "Finish",
    "LevelBins",
    "NumberBins",
    "Rule",
    "bins_of",
    "neutral",
]

Rule = bool | float | str | Sequence[float]
"""What may be said of a number: a step, the edges, "log", or False (leave it out); True is the neutral rule."""

Direction = Literal["up", "down"]

MISSING, OTHER = "missing", "other"  # as in `coterie.data.stated`
MOST_STEPS = 16  # bins of the neutral rule, about
QUARTER = 4  # bins in a decade of a logarithmic scale
DECADES = 5  # of one whose range is below 1
MOST_BINS = 5000  # of a whole model
ALIKE = 0.5  # ρ, chosen on made problems, on heart and on diabetes: docs/additive.md
MOST_ALIKE = 0.99


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


@dataclass(frozen=True)
class NumberBins:
    """A number in bins: bin k holds edges[k − 1] ≤ x < edges[k], the first and the last reach as far as numbers do."""

    name: str
    edges: tuple[float, ...]
    low: float
    high: float

    ordered = True

    def __post_init__(self) -> None:
        if not self.edges or not all(map(math.isfinite, self.edges)):
            raise InputError(f"bins of {self.name!r} need one or more finite edges, got {list(self.edges)}")
        if any(not a < b for a, b in pairwise(self.edges)):
            raise InputError(f"edges of {self.name!r} must ascend, got {list(self.edges)}")

    @property
    def count(self) -> int:
        """Bins, `missing` not among them."""
        return len(self.edges) + 1

    @property
    def labels(self) -> tuple[str, ...]:
        """What each bin is called."""
        ends = [f"{edge:.6g}" for edge in self.edges]
        return (f"below {ends[0]}", *(f"{a} to {b}" for a, b in pairwise(ends)), f"from {ends[-1]}")

    def codes(self, values: pd.Series) -> NDArray[np.int64]:
        """The bin of every value."""
        x = pd.to_numeric(values, errors="coerce").to_numpy(float, na_value=np.nan)
        return np.where(np.isnan(x), self.count, np.searchsorted(np.array(self.edges), x, side="right"))


@dataclass(frozen=True)
class LevelBins:
    """A category: one bin a level."""

    name: str
    levels: tuple[str, ...]

    ordered = False

    @property
    def count(self) -> int:
        """Bins, `missing` not among them."""
        return len(self.levels)

    @property
    def labels(self) -> tuple[str, ...]:
        """What each bin is called."""
        return self.levels

    def codes(self, values: pd.Series) -> NDArray[np.int64]:
        """The bin of every value."""
        text = pd.Index(values.astype("string").str.strip())
        found = pd.Index(self.levels, dtype="string").get_indexer(text)
        absent = np.asarray(text.isna(), bool)
        unknown = self.levels.index(OTHER) if OTHER in self.levels else self.count
        return np.where(absent, self.count, np.where(found < 0, unknown, found)).astype(np.int64)


@dataclass(frozen=True)
class Block:
    """Where the bins of an attribute, or of a pair, lie among the features; `missing` is the last of an attribute."""

    name: str
    start: int
    shape: tuple[int, ...]  # bins of each attribute, `missing` included
    of: tuple[int, ...]  # which attributes

    @property
    def count(self) -> int:
        """Bins."""
        return math.prod(self.shape)

    @property
    def where(self) -> slice:
        """Its features."""
        return slice(self.start, self.start + self.count)


@dataclass(frozen=True)
class Bins:
    """The bins of all attributes, and of pairs of them: public, and the same whatever the records are."""

    attributes: tuple[NumberBins | LevelBins, ...]
    pairs: tuple[tuple[int, int], ...] = ()
    alike: float = 0.0  # ρ

    def __post_init__(self) -> None:
        if not _is_number(self.alike) or not 0 <= self.alike <= MOST_ALIKE:
            raise InputError(f"alike must be between 0 and {MOST_ALIKE}, got {self.alike!r}")
        if not self.attributes:
            raise InputError("an additive model needs one attribute at least, and all are left out")
        if self.width > MOST_BINS:
            largest = max(self.blocks, key=lambda block: block.count)
            raise InputError(
                f"{self.width} bins are too many, at most {MOST_BINS}: {largest.name!r} alone has {largest.count}"
            )

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """Attributes first, then pairs."""
        found: list[Block] = []
        start = 0
        for of in (*((k,) for k in range(len(self.attributes))), *self.pairs):
            names = [self.attributes[k].name for k in of]
            found.append(Block(" × ".join(names), start, tuple(self.attributes[k].count + 1 for k in of), of))
            start += found[-1].count
        return tuple(found)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the attributes."""
        return tuple(attribute.name for attribute in self.attributes)

    @property
    def ones(self) -> int:
        """A: how many bins a record falls into."""
        return len(self.attributes) + len(self.pairs)

    @cached_property
    def width(self) -> int:
        """Features."""
        return sum(block.count for block in self.blocks)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """`attribute=bin`, in the order of the features."""
        labels = [(*attribute.labels, MISSING) for attribute in self.attributes]
        alone = [f"{a.name}={label}" for a, those in zip(self.attributes, labels, strict=True) for label in those]
        both = [
            f"{self.attributes[a].name}={one}, {self.attributes[b].name}={two}"
            for a, b in self.pairs
            for one in labels[a]
            for two in labels[b]
        ]
        return (*alone, *both)

    def codes(self, table: pd.DataFrame) -> NDArray[np.int64]:
        """Which bins each record falls into: (records, A), as numbers of features."""
        if absent := [a.name for a in self.attributes if a.name not in table]:
            raise InputError(f"column {absent[0]!r} is missing: the table has {', '.join(map(str, table.columns))}")
        own = [attribute.codes(table[attribute.name]) for attribute in self.attributes]
        out = np.empty((len(table), self.ones), np.int64)
        for k, block in enumerate(self.blocks):
            out[:, k] = block.start + np.ravel_multi_index([own[j] for j in block.of], block.shape)
        return out

    def basis(self, block: Block) -> NDArray[np.float64]:
        """The vectors φ of a block's bins, one a row: norm 1 each, and independent."""
        return _basis(tuple((self.attributes[k].count, self.attributes[k].ordered) for k in block.of), self.alike)

    def rows(self, table: pd.DataFrame) -> NDArray[np.float64]:
        """The features of each record: the vectors of its A bins, divided by √A, so every row has norm 1."""
        return self.spread(self.codes(table))

    def spread(self, codes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Features from the numbers of bins."""
        out = np.empty((len(codes), self.width))
        for k, block in enumerate(self.blocks):
            out[:, block.where] = self.basis(block)[codes[:, k] - block.start] / math.sqrt(self.ones)
        return out

    def shares(self, rows: NDArray) -> NDArray[np.float64]:
        """Which share of the records lies in every bin, from their features."""
        mean = math.sqrt(self.ones) * np.mean(np.asarray(rows, float), axis=0)
        parts = [np.linalg.solve(self.basis(block).T, mean[block.where]) for block in self.blocks]
        return np.clip(np.concatenate(parts), 0.0, 1.0)


@dataclass(frozen=True)
class Finish:
    """What is made of a released model: how smooth its curves are, and which of them never fall or never rise."""

    smooth: float = 0.0
    monotone: tuple[tuple[str, Direction], ...] = ()

    def check(self, bins: Bins) -> None:
        """Refuse shapes of what is no curve."""
        if not _is_number(self.smooth) or not 0 <= self.smooth < math.inf:
            raise InputError(f"smooth must be 0 or more, got {self.smooth!r}")
        known = {attribute.name: attribute.ordered for attribute in bins.attributes}
        for name, direction in self.monotone:
            if name not in known:
                raise InputError(f"monotone names {name!r}, which is not an attribute: there are {', '.join(known)}")
            if not known[name]:
                raise InputError(f"monotone names {name!r}, a category: its bins have no order")
            if direction not in ("up", "down"):
                raise InputError(f"monotone.{name} = {direction!r}: expected 'up' or 'down'")


@cache
def _basis(sides: tuple[tuple[int, bool], ...], alike: float) -> NDArray[np.float64]:
    """The root of the matrix of scalar products of a block's bins; of a pair, those of both attributes multiply."""
    out = np.ones((1, 1))
    for count, ordered in sides:
        own = np.eye(count + 1)
        if ordered and alike:
            place = np.arange(count)
            values, vectors = np.linalg.eigh(alike ** np.abs(place[:, None] - place[None, :]))
            own[:count, :count] = (vectors * np.sqrt(values)) @ vectors.T
        out = np.kron(out, own / np.linalg.norm(own, axis=1, keepdims=True))
    out.setflags(write=False)
    return out


# ---- which bins ------------------------------------------------------------------------------------------------------


def bins_of(
    book: Book, rules: Mapping[str, object] | None = None, pairs: Sequence[Sequence[str]] = (), *,
    alike: float | None = None, key: str = "bins",
) -> Bins:  # fmt: skip
    """The bins of a code book: its levels, and for numbers what `rules` say, or a neutral rule from their range.

    `alike`: ρ of neighbouring bins, `ALIKE` if left out; `key`: what messages call the rules.

    >>> bins_of({"age": Number(17, 90), "sex": Category(("f", "m"))}, {"age": 20}).feature_names[:3]
    ('age=below 20', 'age=20 to 40', 'age=40 to 60')
    """
    rules = dict(rules or {})
    if stray := [name for name in rules if name not in book]:
        raise InputError(f"{key} names {stray[0]!r}, which is not an attribute: there are {', '.join(map(str, book))}")
    chosen = tuple(
        _attribute(name, rule, rules.get(name, True), f"{key}.{name}")
        for name, rule in book.items()
        if rules.get(name, True) is not False
    )
    places = {attribute.name: k for k, attribute in enumerate(chosen)}
    try:
        return Bins(
            chosen, _paired(pairs, places, key.removesuffix("bins") + "pairs"), ALIKE if alike is None else alike
        )
    except InputError as error:
        words = str(error)
        raise InputError(key.removesuffix("bins") + words if words.startswith("alike") else words) from None


def _paired(pairs: Sequence[Sequence[str]], places: Mapping[str, int], key: str) -> tuple[tuple[int, int], ...]:
    for k, pair in enumerate(pairs):
        if len(pair) != 2 or pair[0] == pair[1]:
            raise InputError(f"{key} must hold two different attributes each, got {list(pair)}")
        if stray := [name for name in pair if name not in places]:
            raise InputError(f"{key} names {stray[0]!r}, which is not an attribute: there are {', '.join(places)}")
        if any(sorted(pair) == sorted(earlier) for earlier in pairs[:k]):
            raise InputError(f"{key} lists {list(pair)} twice")
    return tuple((places[one], places[two]) for one, two in pairs)


def _attribute(name: str, rule: Number | Category, said: object, key: str) -> NumberBins | LevelBins:
    if isinstance(rule, Category):
        if said is not True:
            raise InputError(f"{key} = {said!r}: {name!r} is a category, whose levels are its bins; expected false")
        return LevelBins(name, rule.levels)
    low, high = rule.low, rule.high
    if said == "quantiles":
        raise InputError(
            f"{key} = 'quantiles': quantiles of the records have to be paid for before bins are known: `coterie stats "
            "PLAN --next NEXT` counts them and writes the plan that follows, both within the plan's budget; an "
            "estimator with bins = 'quantiles' does both"
        )
    if said is True:
        edges = neutral(rule)
    elif said == "log":
        edges = _decades(low, high)
    elif isinstance(said, list | tuple) and all(map(_is_number, said)):
        edges = tuple(map(float, said))
    elif isinstance(said, int | float) and not isinstance(said, bool) and 0 < said < math.inf:
        edges = _multiples(float(said), low, high)
        if not edges:
            raise InputError(f"{key} = {said:g} leaves one bin: {name!r} goes from {low:g} to {high:g}")
    else:
        raise InputError(f"{key} = {said!r}: expected a step > 0, a list of edges, 'log', or false to leave it out")
    return NumberBins(name, edges, low, high)


def neutral(rule: Number) -> tuple[float, ...]:
    """Edges that a public range gives: about sixteen bins at most, at round numbers; quarter decades where it is log.

    >>> neutral(Number(17, 90))[:3], neutral(Number(1, 99))[-1], len(neutral(Number(0, 99_999, log=True)))
    ((20.0, 25.0, 30.0), 90.0, 20)
    """
    if rule.log:
        return _decades(rule.low, rule.high)
    least = (rule.high - rule.low) / MOST_STEPS
    power = 10.0 ** math.floor(math.log10(least))
    step = next(power * m for m in (1.0, 2.0, 5.0, 10.0) if power * m >= least * (1 - 1e-9))
    return _multiples(step, rule.low, rule.high)


def _multiples(step: float, low: float, high: float) -> tuple[float, ...]:
    """Multiples of the step that lie within the range."""
    first, last = math.floor(low / step * (1 + math.copysign(1e-12, low))) + 1, math.ceil(high / step - 1e-9) - 1
    if last - first >= MOST_BINS:
        raise InputError(f"a step of {step:g} makes {last - first + 2} bins between {low:g} and {high:g}: too many")
    return tuple(_round(k * step, step) for k in range(first, last + 1))


def _round(value: float, step: float) -> float:
    """To a millionth of a step, so that 3 · 0.1 is 0.3."""
    return round(value, 6 - math.floor(math.log10(step)))


def _decades(low: float, high: float) -> tuple[float, ...]:
    """Quarter decades above the range's low end, which has a bin of its own: from 1 on, or over five decades."""
    width = high - low
    last = math.ceil(QUARTER * math.log10(width) - 1e-9) - 1
    first = 0 if width > 1 else last - QUARTER * DECADES
    return tuple(_round(low + 10 ** (k / QUARTER), 10 ** (k / QUARTER)) for k in range(first, last + 1))
