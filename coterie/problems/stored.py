"""Shards whose records stay on disk: gradients and values by one pass over them, a piece at a time.

A compiled round asks the host for a piece (`jax.pure_callback`, which reads the file and nothing else), adds up its
gradients, and asks for the next. What a read depends on (agent, place in the file) does not depend on the point, so
runs of one batch share each read of all records.

Where people are the unit, a piece holds whole people, and a batch is of people: all records of each are read, so that
their mean is clipped as it is in memory.

What privacy rests on is enforced on every read, whatever the file says (`Problem.admit`): one record, however wrong,
moves a gradient by no more than the sensitivity allows for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int

from coterie.data.store import Store
from coterie.errors import InputError
from coterie.problems.base import Problem
from coterie.problems.people import Grouped, clipped_sum
from coterie.problems.shards import Shard

__all__ = ["PIECE", "StoredShard", "Streamed"]

PIECE = 1 << 22  # bytes read at once: large enough for a disk, small enough for a cache


class Streamed(InputError):
    """Something was asked of streamed records that needs all of them at once."""


class StoredShard(Shard):
    """One agent's records in a store, to be used like a `Shard` by methods that need sums over records only."""

    problem: Problem
    agent: Int[Array, "*agents"]
    count: Int[Array, "*agents"]
    unit: Float[Array, "*agents"]
    ridge: Float[Array, ""]
    store: Store = eqx.field(static=True)
    piece: int = eqx.field(static=True)  # records read at once
    pieces: Int[Array, "*agents"] | None = None  # where people are the unit: how many there are
    most: int = eqx.field(static=True, default=1)  # records of a person that are used

    def gradient(
        self, x: Float[Array, " d"], clip: Array | float | None = None, rows: Int[Array, " b"] | None = None,
        mask: Bool[Array, " b"] | None = None,
    ) -> Float[Array, " d"]:  # fmt: skip
        """As `Shard.gradient`: all records in pieces, or just the `rows`, of which masked ones are not read."""
        if self.problem.per_person:
            whole = lambda of: clipped_sum(self.problem, x, of, clip)  # noqa: E731
            start = jnp.zeros_like(x)
            return self._crowds(whole, start, mask) if rows is None else self._picked(whole, start, rows, mask)

        def total(features: Array, targets: Array, here: Array) -> Array:
            return self.problem.weighted_gradient(x, features, targets, here.astype(x.dtype), clip)

        if rows is None:
            return self._sum(total, jnp.zeros_like(x), x.dtype, mask)
        here = rows < self.count if mask is None else (rows < self.count) & mask
        ask = lambda agent, rows: self.store.rows(int(agent), np.asarray(rows))  # noqa: E731
        block = self._read(ask, rows.shape[0], self.agent, jnp.where(here, rows, -1))
        return total(*self._decode(block, x.dtype), here)

    def value(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        """f_i(x)."""

        def total(features: Array, targets: Array, here: Array) -> Array:
            return jnp.sum(jnp.where(here, self.problem.losses(x, features, targets), 0.0))

        if self.problem.per_person:

            def means(of: Grouped) -> Array:
                each = self.problem.losses(x, of.features, of.targets)
                return jnp.sum(jnp.where(of.share > 0, of.share * each, 0.0))

            whole = self._crowds(means, jnp.zeros((), x.dtype), None)
            return self.unit * whole + self.ridge / 2 * jnp.dot(x, x)
        return self.unit * self._sum(total, jnp.zeros((), x.dtype), x.dtype) + self.ridge / 2 * jnp.dot(x, x)

    def losses(self, x: Float[Array, " d"]) -> NoReturn:
        """Refused: one number for every record is what need not fit in memory."""
        raise Streamed("it needs the loss of every record at once")

    def descend(self, *what: object) -> NoReturn:
        """Refused: it would pass over all records many times in every round."""
        raise Streamed("it solves subproblems over all records in every round")

    def argmin(self, *what: object) -> NoReturn:
        """Refused, as `descend` is."""
        self.descend()

    def _sum(self, f: Callable, start: Array, dtype: DTypeLike, mask: Array | None = None) -> Array:
        """Σ over pieces of f(features, targets, which are real)."""
        size = self.piece

        def step(k: Array, total: Array) -> Array:
            index = k * size + jnp.arange(size, dtype=jnp.int32)
            here = index < self.count
            if mask is not None:
                here &= mask.at[index].get(mode="fill", fill_value=False)
            ask = lambda agent, k: self.store.piece(int(agent), int(k) * size, size)  # noqa: E731
            return total + f(*self._decode(self._read(ask, size, self.agent, k), dtype), here)

        return jax.lax.fori_loop(0, (self.count + size - 1) // size, step, start)

    def _crowds(self, f: Callable[[Grouped], Array], start: Array, mask: Array | None) -> Array:
        """Σ over pieces of f(some people, with all of their records)."""
        assert self.pieces is not None
        size, dtype = self.piece, start.dtype

        def fetch(agent: np.ndarray | Array, k: np.ndarray | Array) -> tuple[np.ndarray | np.int32, ...]:
            cuts = self.store.cuts(int(agent), size)
            low, high = cuts[int(k)], cuts[int(k) + 1]
            starts = self.store.starts(int(agent), low, high - low + 1)
            there, lengths = int(starts[-1] - starts[0]), np.diff(starts)
            block = np.zeros((size, 1 + self.store.width), np.float32)
            block[:there] = self.store.piece(int(agent), int(starts[0]), there)
            owner, many = np.full(size, size, np.int32), np.zeros(size, np.int32)
            owner[:there] = np.repeat(np.arange(len(lengths)), lengths)
            place = np.arange(there) - np.repeat(starts[:-1] - starts[0], lengths)
            used = np.minimum(lengths, self.most)[owner[:there]]
            many[:there] = np.where(place < self.most, used, 0)  # of whoever has more, the first ones
            return self._encoded(block), owner, many, np.int32(low), np.int32(high - low)

        whole, number = jax.ShapeDtypeStruct((size,), jnp.int32), jax.ShapeDtypeStruct((), jnp.int32)
        shapes = (jax.ShapeDtypeStruct((size, 1 + self.store.width), jnp.float32), whole, whole, number, number)

        def step(k: Array, total: Array) -> Array:
            block, owner, many, low, count = jax.pure_callback(
                fetch, shapes, self.agent, k, vmap_method="sequential"
            )  # fmt: skip
            place = jnp.arange(size, dtype=jnp.int32)
            chosen = place < count
            if mask is not None:
                chosen &= mask.at[low + place].get(mode="fill", fill_value=False)
            return total + f(self._group(block, owner, many, chosen, dtype))

        return jax.lax.fori_loop(0, self.pieces, step, start)

    def _picked(self, f: Callable[[Grouped], Array], start: Array, rows: Array, mask: Array | None) -> Array:
        """The same over these people, as many at a time as a piece has room for."""
        at_once = max(1, min(self.piece // self.most, rows.shape[0]))
        size, dtype = at_once * self.most, start.dtype
        here = rows < self.count if mask is None else (rows < self.count) & mask
        short = -rows.shape[0] % at_once
        wanted = jnp.pad(jnp.where(here, rows, -1), (0, short), constant_values=-1).reshape(-1, at_once)
        owner = jnp.repeat(jnp.arange(at_once, dtype=jnp.int32), self.most, total_repeat_length=size)

        def fetch(agent: np.ndarray | Array, people: np.ndarray | Array) -> tuple[np.ndarray, np.ndarray]:
            block, many = np.zeros((size, 1 + self.store.width), np.float32), np.zeros(size, np.int32)
            for j, person in enumerate(np.asarray(people)):
                if person >= 0:
                    low, high = self.store.starts(int(agent), int(person), 2)
                    used = slice(j * self.most, j * self.most + min(int(high - low), self.most))
                    block[used] = self.store.piece(int(agent), int(low), used.stop - used.start)
                    many[used] = used.stop - used.start
            return self._encoded(block), many

        shapes = (
            jax.ShapeDtypeStruct((size, 1 + self.store.width), jnp.float32), jax.ShapeDtypeStruct((size,), jnp.int32),
        )  # fmt: skip

        def step(k: Array, total: Array) -> Array:
            block, many = jax.pure_callback(fetch, shapes, self.agent, wanted[k], vmap_method="sequential")
            return total + f(self._group(block, owner, many, wanted[k] >= 0, dtype))

        return jax.lax.fori_loop(0, wanted.shape[0], step, start)

    def _group(self, block: Array, owner: Array, many: Array, chosen: Array, dtype: DTypeLike) -> Grouped:
        share = jnp.where(many > 0, 1 / jnp.maximum(many, 1).astype(dtype), 0.0)
        return Grouped(*self._decode(block, dtype), owner, share, chosen.astype(dtype))

    def _read(self, ask: Callable[..., np.ndarray], rows: int, *where: Array) -> Array:
        shape = jax.ShapeDtypeStruct((rows, 1 + self.store.width), jnp.float32)
        return jax.pure_callback(lambda *at: self._encoded(ask(*at)), shape, *where, vmap_method="sequential")

    def _encoded(self, block: np.ndarray) -> np.ndarray:
        """With targets in the problem's coding, whatever the file says."""
        classes = self.store.classes
        targets = np.nan_to_num(block[:, 0], posinf=0.0, neginf=0.0)
        known = targets if classes is None else np.clip(targets, 0, len(classes) - 1)
        block[:, 0] = self.problem.encode(known, classes)
        return block

    def _decode(self, block: Array, dtype: DTypeLike) -> tuple[Array, Array]:
        """Features within their public bounds, and targets, in the problem's coding."""
        whole = self.problem.encode(np.zeros(1), self.store.classes).dtype.kind != "f"
        features = block[:, 1:].astype(dtype)
        return self.problem.admit(features, block[:, 0].astype(jnp.int32 if whole else dtype))
