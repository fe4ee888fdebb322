"""Numbers in a public box and rows in a public ball: scaling that looks at one record at a time and at public bounds.

Scaling by a column's own mean or maximum would tell about other people's records, so nothing here learns from data.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coterie.data.encode import Number
from coterie.errors import InputError
from coterie.fair.features import PAIRS, PUBLIC, book_of

__all__ = [
    "DEFAULT_RANGE",
    "ENCODE",
    "Bounds",
    "BoundsWarning",
    "PublicBox",
    "box",
    "default_radius",
    "into_ball",
    "rows_of",
]

Bounds = tuple[float, float] | Sequence[tuple[float, float]] | Mapping[object, tuple[float, float]] | None
ENCODE = "make columns of 0 and 1 of it by a public list first, as pd.get_dummies does of a pd.Categorical"
DEFAULT_RANGE = (-3.0, 3.0)  # of numbers whose public bounds nobody gave: right for standardised ones


class BoundsWarning(UserWarning):
    """No public bounds were given, so a fixed range was assumed."""


@dataclass(frozen=True, eq=False)
class PublicBox:
    """low ≤ x ≤ high for each column."""

    low: NDArray[np.float64]
    high: NDArray[np.float64]

    @property
    def middle(self) -> NDArray[np.float64]:
        """What 0 stands for after scaling."""
        return (self.low + self.high) / 2

    @property
    def half(self) -> NDArray[np.float64]:
        """What 1 stands for after scaling."""
        return (self.high - self.low) / 2

    def scale(self, x: NDArray) -> NDArray[np.float64]:
        """Values clipped to the box and mapped to [−1, 1]."""
        return np.clip((x - self.middle) / self.half, -1.0, 1.0)


def box(bounds: Bounds, columns: Sequence[object], what: str, option: str) -> PublicBox:
    """The public box of these columns; without bounds the default one, with a warning.

    >>> box([(0, 10), (20, 60)], ["a", "b"], "features", "bounds").half.tolist()
    [5.0, 20.0]
    """
    if bounds is None:
        low, high = DEFAULT_RANGE
        warnings.warn(
            f"no public bounds for the {what}: each is taken to lie in [{low:g}, {high:g}] and clipped to it. Scaling "
            f"by these records' own range or deviation would leak them and is not done. Give {option}=(low, high) from "
            "public knowledge, never from these records",
            BoundsWarning,
            stacklevel=4,
        )
        bounds = DEFAULT_RANGE
    book = book_of(bounds, columns, f"{PAIRS}; {PUBLIC}")
    if named := [column for column, rule in book.items() if not isinstance(rule, Number)]:
        raise InputError(f"{option}: of column {named[0]!r} they are texts, expected two numbers (low, high): {ENCODE}")
    rules = list(book.values())
    numbers = [rule for rule in rules if isinstance(rule, Number)]
    return PublicBox(np.array([r.low for r in numbers]), np.array([r.high for r in numbers]))


def default_radius(columns: int) -> float:
    """min(√d, 1 + √d/2): rows of [−1, 1]^d that are spread like most data are seldom longer."""
    return float(min(columns**0.5, 1 + columns**0.5 / 2))


def into_ball(rows: NDArray[np.float64], radius: float) -> NDArray[np.float64]:
    """Rows divided by the radius; one that is longer is pulled back to the unit ball."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.maximum(norms, radius)


def rows_of(x: NDArray, where: PublicBox, radius: float | None) -> NDArray[np.float64]:
    """Records as rows of norm at most 1: the scaled features in a ball of 1/√2, and the constant 1/√2."""
    radius = default_radius(x.shape[1]) if radius is None else radius
    if not (radius > 0 and np.isfinite(radius)):
        raise InputError(f"radius must be > 0, got {radius}")
    return np.column_stack([into_ball(where.scale(x), radius), np.ones(len(x))]) / np.sqrt(2)
