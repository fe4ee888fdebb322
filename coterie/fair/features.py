r"""Records in the unit ball by public rules only: a code book in, features with known bounds out.

Numbers are clipped to their public range and mapped to [0, 1] (centred: [−1, 1]); categories become one feature for
each public level (centred: minus 1/levels). With a constant feature and division by the largest norm that any record
can have, x = (1, features)/L, everything is linear and public, so a change of one attribute moves that attribute's
features only: what the attribute-level guarantee needs. `norm="unit"` divides each record by its own norm instead,
which keeps a little more signal and gives that guarantee up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coterie.arguments import choose
from coterie.data.encode import Book, Category, Number, encode
from coterie.errors import InputError
from coterie.fair.mechanisms import Attribute
from coterie.lazily import lazily

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = lazily("pandas")

__all__ = ["Bounds", "Features", "book_of", "features"]

Bounds = tuple[float, float] | Sequence[tuple[float, float]] | Mapping
PUBLIC = "they must be public knowledge, never the minimum and maximum of these records"
PAIRS = "give bounds=(low, high) for all columns, a list of such pairs, or a dictionary from column to (low, high)"
HOW = f"{PAIRS} or to the list of its categories; {PUBLIC}"


@dataclass(frozen=True, eq=False)
class Features:
    """Rows in the unit ball. `attributes` says which features carry a column (empty under `norm="unit"`)."""

    x: np.ndarray
    names: tuple[str, ...]
    attributes: dict[str, Attribute]
    signed: bool


def features(
    frame: pd.DataFrame,
    book: Book,
    *,
    coding: str = "onehot",
    centre: bool = True,
    norm: str = "max",
    constant: bool = True,
) -> Features:
    """Encode the columns of a code book. `coding` of categories: onehot or ordinal; `norm`: max or unit.

    >>> made = features(pd.DataFrame({"age": [20.0, 60.0]}), {"age": Number(20, 60)})
    >>> made.x.round(3).tolist(), made.attributes["age"].indices
    ([[0.707, -0.707], [0.707, 0.707]], (1,))
    """
    choose("coding", coding, ("onehot", "ordinal"))
    choose("norm", norm, ("max", "unit"))
    blocks = [np.ones((len(frame), 1))] if constant else []
    names = ["constant"] if constant else []
    where: dict[str, tuple[tuple[int, ...], float]] = {}
    for column, rule in book.items():
        block, labels, _ = encode(frame, {column: rule}, coding=coding)
        radius = 1.0
        if centre and isinstance(rule, Category) and coding == "onehot":
            k = len(rule.levels)
            block, radius = block - 1 / k, float(np.sqrt(max(1 - 1 / k, 1 / k)))  # a missing value is all −1/k
        elif centre:
            block = 2 * block - 1
        where[column] = (tuple(range(len(names), len(names) + len(labels))), radius)
        blocks.append(block)
        names += labels
    if not names:
        raise InputError("no features: the code book is empty")
    x = np.concatenate(blocks, axis=1)
    if norm == "unit":
        norms = np.linalg.norm(x, axis=1, keepdims=True)
        return Features(x / np.where(norms > 0, norms, 1.0), tuple(names), {}, centre)
    largest = float(np.sqrt(constant + sum(radius**2 for _, radius in where.values())))
    attributes = {c: Attribute(i, radius / largest) for c, (i, radius) in where.items()}
    return Features(x / largest, tuple(names), attributes, centre)


def book_of(bounds: Bounds | None, columns: Sequence, how: str = HOW) -> dict[str, Number | Category]:
    """A code book from what a user says about the columns; a column without a bound is an error that says `how`."""
    if bounds is None:
        raise InputError(f"bounds are missing: {how}")
    given: dict = {}
    if isinstance(bounds, Mapping):
        given = dict(bounds)
    else:
        try:
            pairs = np.asarray(bounds, float)
        except (TypeError, ValueError):
            raise InputError(f"bounds must be numbers, got {bounds!r}: {how}") from None
        if pairs.shape == (2,):
            pairs = np.tile(pairs, (len(columns), 1))
        if pairs.shape != (len(columns), 2):
            raise InputError(f"bounds have shape {pairs.shape} for {len(columns)} columns: {how}")
        given = dict(zip(columns, map(tuple, pairs), strict=True))
    book: dict[str, Number | Category] = {}
    for column in columns:
        if column not in given:
            raise InputError(f"column {column!r} has no bound: {how}")
        book[column] = _rule(column, given[column])
    return book


def _rule(column: object, rule: object) -> Number | Category:
    if isinstance(rule, Number | Category):
        return rule
    if (
        isinstance(rule, Sequence)
        and rule
        and all(isinstance(level, str) for level in rule)
        and not isinstance(rule, str)
    ):
        return Category(tuple(rule))
    if isinstance(rule, Sequence) and len(rule) == 2:
        try:
            return Number(float(rule[0]), float(rule[1]))
        except (TypeError, ValueError) as error:
            if any(isinstance(level, str) for level in rule):
                raise InputError(
                    f"bound of column {column!r} is {list(rule)}: levels are texts, all of them: write numbers as such"
                ) from None
            raise InputError(f"bound of column {column!r}: {error}") from None
    raise InputError(f"bound of column {column!r} is {rule!r}: expected (low, high) or a list of category names")
