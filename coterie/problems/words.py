"""Words that records are made of: a few numbers side by side, which many records have in common but for their length.

A record of coded categories has few numbers that are not zero, and those of a category that goes with another one are
nearly always the same. `groups_of` parts the columns into groups of which records have few kinds, and `spell` names
every record's kinds: its words. Records are brought to the same scale before they are compared, their largest number.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Spelt", "groups_of", "spell"]

SEEN = 1 << 13  # records that groups are chosen by
PRIME = (1 << 31) - 1  # of whole numbers what is left by it, as the highest bits of a product are lost
Columns = list[NDArray[np.intp]]


class Spelt(NamedTuple):
    """Every record's words and the scale of each, and of every word its columns and the numbers in them.

    Lists are as long as the longest: what is not there counts 0 times.
    """

    word: NDArray[np.int32]
    value: NDArray
    column: NDArray[np.int32]
    times: NDArray


def groups_of(features: NDArray, waste: float) -> Columns | None:
    """Groups of columns by whose words records are made with the least work; None where columns themselves are.

    `waste`: what a word costs beside its look-ups, in look-ups.
    """
    seen = features[:SEEN]
    share = len(features) / len(seen)
    codes = _levels(seen)[0] * _factors(features.shape[1])
    there = seen != 0
    groups = [np.array(group) for group in _apart(there)]
    kinds = [codes[:, group].sum(axis=1) for group in groups]  # a sum of columns' codes: one of groups' codes too

    def look_ups(kind: NDArray, group: NDArray) -> float:
        """Of scores and sums: of all records, and of the words."""
        first = np.unique(kind, return_index=True)[1]
        inside = np.count_nonzero(there[np.ix_(first, group)])
        return 2 * share * np.count_nonzero(kind) + waste * len(first) + 2 * inside

    cost = [look_ups(kind, group) for kind, group in zip(kinds, groups, strict=True)]
    plain = 2 * share * np.count_nonzero(there) + waste * features.shape[1]
    gains: dict[tuple[int, int], float] = {}
    alive = set(range(len(groups)))
    while True:
        for i, j in combinations(sorted(alive), 2):
            if (i, j) not in gains:
                both = look_ups(kinds[i] + kinds[j], np.concatenate([groups[i], groups[j]]))
                gains[i, j] = cost[i] + cost[j] - both
        left = {pair: gain for pair, gain in gains.items() if alive.issuperset(pair)}
        i, j = max(left, key=left.__getitem__, default=(0, 0))
        gain = left.get((i, j), 0.0)
        if gain <= 0:
            break
        alive -= {i, j}
        alive.add(len(groups))
        groups.append(np.concatenate([groups[i], groups[j]]))
        kinds.append(kinds[i] + kinds[j])
        cost.append(cost[i] + cost[j] - gain)
    return [groups[k] for k in sorted(alive)] if sum(cost[k] for k in alive) < plain else None


def spell(features: NDArray, groups: Columns | None) -> Spelt:
    """The words of records: of these groups of columns, or the columns themselves."""
    rows, d = features.shape
    if groups is None:
        word, value = _listed(features)
        return Spelt(word, value, np.arange(d, dtype=np.int32)[:, None], np.ones((d, 1), features.dtype))
    levels, scale = _levels(features)
    codes = levels * _factors(d)
    words, spelling, count = np.zeros((rows, len(groups)), np.int64), list[NDArray](), 0
    for k, group in enumerate(groups):
        own, code = features[:, group] / scale[:, None], codes[:, group].sum(axis=1)
        while True:
            _, first, which = np.unique(code, return_index=True, return_inverse=True)
            unlike = np.any(np.abs(own[first][which] - own) > 8 * _eps(features), axis=1)
            if not unlike.any():
                break
            code = code + unlike * _factors(rows)  # of one code by chance: words of their own
        whole = np.zeros((len(first), d), features.dtype)
        whole[:, group] = own[first]
        words[:, k] = which.ravel() + count
        spelling.append(whole)
        count += len(first)
    column, times = _listed(np.concatenate(spelling))
    return Spelt(words.astype(np.int32), np.repeat(scale[:, None], len(groups), axis=1), column, times)


def _levels(features: NDArray) -> tuple[NDArray[np.int64], NDArray]:
    """Numbers of records brought to one scale, the same for what differs by rounding; and the scale."""
    scale = np.abs(features).max(axis=1)
    scale[scale == 0] = 1
    return np.rint(features / scale[:, None] / (64 * _eps(features))).astype(np.int64) % PRIME, scale


def _eps(features: NDArray) -> float:
    return float(np.finfo(features.dtype).eps)


def _factors(d: int) -> NDArray[np.int64]:
    """Odd numbers of 64 bits: sums of levels times these are equal, of unlike records, next to never."""
    return np.random.default_rng(0).integers(1 << 62, size=d, dtype=np.int64) * 2 + 1


def _apart(there: NDArray[np.bool_]) -> Sequence[list[int]]:
    """Columns in their order, cut where a record has a number in two of them."""
    out, taken = list[list[int]](), np.zeros(len(there), bool)
    for column in range(there.shape[1]):
        if not out or np.any(taken & there[:, column]):
            out.append([])
            taken = np.zeros(len(there), bool)
        out[-1].append(column)
        taken = taken | there[:, column]
    return out


def _listed(features: NDArray) -> tuple[NDArray[np.int32], NDArray]:
    """Columns that are not zero in each row, and the numbers in them."""
    row, column = np.nonzero(features)
    count = np.bincount(row, minlength=len(features))
    place = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    shape = len(features), int(count.max())
    at, value = np.zeros(shape, np.int32), np.zeros(shape, features.dtype)
    at[row, place], value[row, place] = column, features[row, column]
    return at, value
