"""From raw columns to numbers by public rules only: a code book, then a row norm.

Every record is encoded alone: nothing here looks at another record, so one person's data can change only that
person's row (scaling by a column's maximum, or by its mean, would not be private).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from coterie.arguments import choose
from coterie.errors import InputError
from coterie.lazily import lazily

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = lazily("pandas")

__all__ = ["Book", "Category", "Number", "RowNorm", "class_indices", "encode", "normalise_rows", "words"]

RowNorm = Literal["clip", "unit", "max", "none"]


@dataclass(frozen=True)
class Number:
    """A numeric column with its public range, clipped to it and mapped to [0, 1]; `log` scales log(1 + x − low).

    `fill` is the public number that stands for a missing one; without it that is 0 as a feature.
    """

    low: float
    high: float
    log: bool = False
    fill: float | None = None

    def __post_init__(self) -> None:
        if not (np.isfinite(self.low) and np.isfinite(self.high) and self.low < self.high):
            raise InputError(f"a public range needs low < high, got ({self.low}, {self.high})")

    def scale(self, values: np.ndarray) -> np.ndarray:
        """Values in [0, 1]; NaN stays NaN."""
        shifted, width = np.clip(values, self.low, self.high) - self.low, self.high - self.low
        return np.log1p(shifted) / np.log1p(width) if self.log else shifted / width


@dataclass(frozen=True)
class Category:
    """A text column with its publicly known levels."""

    levels: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.levels or len(set(self.levels)) < len(self.levels):
            raise InputError(f"categories must be one or more different names, got {list(self.levels)}")


Book = Mapping[str, Number | Category]


def encode(
    frame: pd.DataFrame, book: Book, *, coding: str = "onehot", flags: Collection[str] = (), centre: bool = False
) -> tuple[np.ndarray, tuple[str, ...], float]:
    """Features in [0, 1], their names, and the largest norm a row can have; `centre` maps numbers to [−1, 1].

    `coding` of categories: `onehot`, or `ordinal` (place in the list of levels over their number, in (0, 1]). A
    missing value is 0 in every feature of its column, or a number's `fill`; columns in `flags` get a feature that says
    so.
    """
    parts: list[np.ndarray] = []
    names: list[str] = []
    units = 0.0  # the largest square of a row's norm
    for column, rule in book.items():
        if column not in frame:
            raise InputError(f"column {column!r} is missing: the table has {', '.join(map(str, frame.columns))}")
        absent, square = frame[column].isna().to_numpy(), 1.0
        if isinstance(rule, Number):
            numbers = pd.to_numeric(frame[column], errors="coerce").to_numpy(float)
            if (wrong := np.isnan(numbers) & ~absent).any():
                value = frame[column][wrong].iloc[0]
                raise InputError(f"column {column!r} must be numeric, but has {value!r} (in {wrong.sum()} rows)")
            scaled, fill = rule.scale(numbers), None if rule.fill is None else float(rule.scale(np.array(rule.fill)))
            if centre:
                scaled, fill = 2 * scaled - 1, None if fill is None else 2 * fill - 1
            square += (fill or 0.0) ** 2 if column in flags else 0.0
            block, labels = np.where(absent, fill or 0.0, scaled)[:, None], [column]
        else:
            codes = _codes(frame[column], column, rule)
            if coding == "onehot":
                block = (codes[:, None] == np.arange(1, len(rule.levels) + 1)).astype(float)
                labels = [f"{column}={level}" for level in rule.levels]
            else:
                block, labels = codes[:, None] / len(rule.levels), [column]
        if column in flags:
            block, labels = np.column_stack([block, absent]), [*labels, f"{column}=missing"]
        parts.append(block)
        names += labels
        units += square
    return np.concatenate(parts, axis=1), tuple(names), float(np.sqrt(units))


def _codes(values: pd.Series, column: str, rule: Category) -> np.ndarray:
    """1 … k for the levels, 0 for a missing value."""
    text = values.astype("string").str.strip()
    codes = pd.Index(rule.levels, dtype="string").get_indexer(pd.Index(text)) + 1
    if (unknown := (codes == 0) & ~values.isna().to_numpy()).any():
        levels = ", ".join(rule.levels[:8]) + (", …" if len(rule.levels) > 8 else "")
        raise InputError(
            f"column {column!r} has the unknown category {text[unknown].iloc[0]!r} in {unknown.sum()} rows: "
            f"expected one of {levels}"
        )
    return codes.astype(int)


def class_indices(values: pd.Series, column: str, levels: Sequence[str]) -> np.ndarray:
    """0 … k − 1 for a label column whose classes are `levels`; nothing may be missing."""
    codes = _codes(values, column, Category(tuple(levels)))
    if not codes.all():
        raise InputError(f"label {column!r} is missing in {(codes == 0).sum()} rows")
    return codes.astype(np.int64) - 1


def normalise_rows(z: np.ndarray, how: str, largest: float | None = None) -> np.ndarray:
    """Rows of L2 norm at most 1 (unless `none`), each by its own numbers or public ones.

    `clip`: z / max(1, ‖z‖); `unit`: z / ‖z‖ (0 stays 0); `max`: z / `largest`, the largest norm possible.
    """
    choose("row_norm", how, get_args(RowNorm))
    if how == "none":
        return z
    if how == "max":
        if largest is None:
            raise InputError("row_norm 'max' needs public bounds on every column: use 'clip'")
        return z / largest
    norms = np.linalg.norm(z.astype(float, copy=False), axis=1, keepdims=True)
    # in single precision a row of norm 1 may measure 1 + 1e-7, and a price that rests on 1 would refuse it
    slack = 16 * float(np.finfo(z.dtype).eps) if z.dtype == np.float32 else 0.0
    with np.errstate(invalid="ignore"):  # an infinite entry becomes NaN, which `Dataset` refuses
        scale = np.maximum(norms * (1 + slack), 1.0 if how == "clip" else np.finfo(float).tiny)
        return (z / scale).astype(z.dtype, copy=False)


def words(text: str) -> tuple[str, ...]:
    """Levels or column names, written as one line of words."""
    return tuple(text.split())
