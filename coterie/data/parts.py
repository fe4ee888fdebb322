"""The rows of each of many parties as two arrays: to go through a list of a million takes a second each time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np

from coterie.passes import over

__all__ = ["Parts", "lengths_of"]


class Parts(Sequence[np.ndarray]):
    """Row numbers party after party; reads as a list of arrays, one of each party.

    >>> parts = Parts(np.arange(5), np.array([2, 3]))
    >>> len(parts), parts[1].tolist(), parts.sizes.tolist()
    (2, [2, 3, 4], [2, 3])
    """

    def __init__(self, rows: np.ndarray, sizes: np.ndarray):
        self.rows = rows
        self.ends = np.concatenate([[0], np.cumsum(sizes)]).astype(np.intp, copy=False)
        if self.ends[-1] != len(rows):
            raise ValueError(f"{len(rows)} rows cannot be cut into sizes that add up to {self.ends[-1]}")

    @classmethod
    def of(cls, parts: Sequence[np.ndarray | range]) -> Parts:
        """The same rows, whatever they are kept in."""
        if isinstance(parts, Parts):
            return parts
        if isinstance(parts, np.ndarray):  # as many rows for each
            return cls(parts.reshape(-1), lengths_of(parts))
        return cls(np.concatenate([np.asarray(part) for part in parts]), np.array([len(part) for part in parts]))

    @property
    def sizes(self) -> np.ndarray:
        """How many rows each has."""
        return np.diff(self.ends)

    def within(self, count: int) -> bool:
        """Whether all rows are of the first `count`: a gather that need not ask makes no second copy."""
        rows = self.rows
        return all(over(len(rows), 1, lambda own: bool(np.all((rows[own] >= 0) & (rows[own] < count)))))

    def __len__(self) -> int:
        return len(self.ends) - 1

    @overload
    def __getitem__(self, which: int) -> np.ndarray: ...
    @overload
    def __getitem__(self, which: slice) -> list[np.ndarray]: ...
    def __getitem__(self, which: int | slice) -> np.ndarray | list[np.ndarray]:
        if isinstance(which, slice):
            return [self[i] for i in range(*which.indices(len(self)))]
        at = range(len(self))[which]  # IndexError beyond the end
        return self.rows[self.ends[at] : self.ends[at + 1]]

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self.rows[low:high] for low, high in itertools.pairwise(self.ends.tolist()))


def lengths_of(parts: Sequence[np.ndarray | range]) -> np.ndarray:
    """How many rows each party has."""
    if isinstance(parts, np.ndarray):
        return np.full(len(parts), parts.shape[1])
    return parts.sizes if isinstance(parts, Parts) else np.array([len(part) for part in parts])
