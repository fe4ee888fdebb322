"""Passes over many records on the host: a cache's worth at a time, on every core that there is.

NumPy works in one thread and stores what lies between (all squares, before a norm adds them up). Both cost seconds if
a million parties hold records, so work on many rows is cut into blocks of them; NumPy lets other threads run meanwhile.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import numpy as np

__all__ = [
    "aligned", "each", "gather", "in_turns", "joined", "larger", "over", "shuffled", "some_not_finite", "where",
]  # fmt: skip

T = TypeVar("T")
BLOCK = 1 << 19  # numbers of one block: a core's cache holds them
MANY = 1 << 22  # numbers below which one pass takes less than starting threads
TURN = 0.0005  # seconds: a tenth of what Python lets a thread keep the interpreter while others wait


@contextmanager
def in_turns() -> Iterator[None]:
    """Threads wait less for the interpreter, for as long as this lasts.

    Every call of NumPy gives the interpreter back and asks for it again. Beside a thread that imports or traces, each
    would wait for 5 ms, and a pass over many blocks take five times as long.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, TURN))
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def larger(block: int) -> int:
    """The size of a block where many cores share one interpreter: fewer and longer calls, so that none waits for it."""
    return block * max(1, (os.cpu_count() or 1) // 4)


def over(rows: int, width: int, work: Callable[[slice], T]) -> list[T]:
    """work(rows of one block) for every block of `rows` rows of `width` numbers, in order.

    Few are one block. Blocks are worked on side by side: each may write to rows of its own only.

    >>> over(10, 3, lambda own: own.stop - own.start)
    [10]
    """
    if rows * width < MANY:
        return [work(slice(0, rows))]
    step = max(1, larger(BLOCK) // max(1, width))
    with ThreadPoolExecutor() as pool:
        return list(pool.map(work, (slice(low, min(low + step, rows)) for low in range(0, rows, step))))


def aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array for a device to take over: one that does not begin at a multiple of 64 bytes it copies first."""
    size = int(np.prod(shape, dtype=int)) * dtype.itemsize
    room = np.empty(size + 64, np.uint8)
    begin = -room.ctypes.data % 64
    return room[begin : begin + size].view(dtype).reshape(shape)


def gather(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """values[rows], of rows that exist."""
    if rows.dtype == bool or not rows.size:
        return values[rows]
    flat = rows.reshape(-1)

    def look(own: slice) -> np.ndarray:
        if flat[own].min() < 0 or flat[own].max() >= len(values):
            raise IndexError(f"rows must lie in 0 … {len(values) - 1}, got {flat.min()} to {flat.max()}")
        return flat[own]

    if values.dtype.hasobject or flat.dtype.kind not in "iu" or rows.size * _width(values) < MANY:
        look(slice(None))
        return values[rows]
    out = aligned((len(flat), *values.shape[1:]), values.dtype)

    def copy(own: slice) -> None:
        np.take(values, look(own), axis=0, out=out[own], mode="clip")  # any other mode takes a second copy

    over(len(flat), _width(values), copy)
    return out.reshape(*rows.shape, *values.shape[1:])


def shuffled(size: int, rng: np.random.Generator) -> np.ndarray:
    """The numbers below `size` in random order: `rng.permutation`, and beyond MANY one that all cores work on.

    Every number goes to one of 256 heaps at random, and every heap is shuffled on its own (Rao 1961, Sandelius 1962).
    """
    if size <= MANY:
        return rng.permutation(size)
    heap = rng.integers(0, 256, size, np.uint8)
    streams = rng.spawn(256)

    def sort(own: slice) -> tuple[np.ndarray, np.ndarray]:
        ends = np.cumsum(np.bincount(heap[own], minlength=256))
        return own.start + np.argsort(heap[own], kind="stable"), np.concatenate([[0], ends])

    sorted_in_parts = over(size, 1, sort)
    ends = np.concatenate([[0], np.cumsum(sum(np.diff(ends) for _, ends in sorted_in_parts))])
    order = np.empty(size, np.intp)

    def shuffle(own: slice) -> None:
        for k in range(own.start, own.stop):
            mine = order[ends[k] : ends[k + 1]]
            np.concatenate([part[at[k] : at[k + 1]] for part, at in sorted_in_parts], out=mine)
            streams[k].shuffle(mine)

    over(256, BLOCK, shuffle)
    return order


def each(work: Callable[[np.ndarray], np.ndarray], values: np.ndarray) -> np.ndarray:
    """work(values), of what works on every number by itself, in blocks.

    >>> each(np.negative, np.arange(3))
    array([ 0, -1, -2])
    """
    if values.size < MANY:
        return work(values)
    return joined(over(len(values), _width(values), lambda own: work(values[own])))


def where(true: Callable[[slice], np.ndarray], size: int) -> np.ndarray:
    """np.flatnonzero of `size` truths, which are made and looked at in blocks.

    >>> where(lambda own: np.arange(own.start, own.stop) % 2 == 1, 6)
    array([1, 3, 5])
    """
    return joined(over(size, 1, lambda own: np.flatnonzero(true(own)) + own.start))


def joined(blocks: list[np.ndarray]) -> np.ndarray:
    """What `over` gave of all blocks as one array."""
    if len(blocks) == 1:
        return blocks[0]
    ends = np.cumsum([len(block) for block in blocks])
    out = np.empty((ends[-1], *blocks[0].shape[1:]), np.result_type(*blocks))

    def copy(which: slice) -> None:
        for k in range(which.start, which.stop):
            out[ends[k] - len(blocks[k]) : ends[k]] = blocks[k]

    over(len(blocks), BLOCK, copy)
    return out


def some_not_finite(values: np.ndarray) -> bool:
    """Whether a number is infinite or none at all."""
    return not all(over(len(values), _width(values), lambda own: bool(np.isfinite(values[own]).all())))


def _width(values: np.ndarray) -> int:
    return int(np.prod(values.shape[1:], dtype=int))
