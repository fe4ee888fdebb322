"""Shards whose records stay on disk: gradients and values by one pass over them, a piece at a time.

A compiled round asks the host for a piece (`jax.pure_callback`, which reads the file and nothing else), adds up its
gradients, and asks for the next. What a read depends on (agent, place in the file) does not depend on the point, so
runs of one batch share each read of all records.

What privacy rests on is enforced on every read, whatever the file says (`Problem.admit`): one record, however wrong,
moves a gradient by no more than the sensitivity allows for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from coterie.data.store import Store
from coterie.errors import InputError
from coterie.problems.base import Problem
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

    def gradient(
        self,
        x: Float[Array, " d"],
        clip: Array | float | None = None,
        rows: Int[Array, " b"] | None = None,
        mask: Bool[Array, " b"] | None = None,
    ) -> Float[Array, " d"]:
        """As `Shard.gradient`: all records in pieces, or just the `rows`, of which masked ones are not read."""

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

        return self.unit * self._sum(total, jnp.zeros((), x.dtype), x.dtype) + self.ridge / 2 * jnp.dot(x, x)

    def losses(self, x: Float[Array, " d"]) -> NoReturn:
        """Refused: one number for every record is what need not fit in memory."""
        raise Streamed("it needs the loss of every record at once")

    def descend(self, *what: Any) -> NoReturn:
        """Refused: it would pass over all records many times in every round."""
        raise Streamed("it solves subproblems over all records in every round")

    def argmin(self, *what: Any) -> NoReturn:
        """Refused, as `descend` is."""
        self.descend()

    def _sum(self, f: Callable, start: Array, dtype: Any, mask: Array | None = None) -> Array:
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

    def _read(self, ask: Callable[..., np.ndarray], rows: int, *where: Array) -> Array:
        encode, classes = self.problem.encode, self.store.classes

        def fetch(*where: Any) -> np.ndarray:
            block = ask(*where)
            targets = np.nan_to_num(block[:, 0], posinf=0.0, neginf=0.0)
            block[:, 0] = encode(targets if classes is None else np.clip(targets, 0, len(classes) - 1), classes)
            return block

        shape = jax.ShapeDtypeStruct((rows, 1 + self.store.width), jnp.float32)
        return jax.pure_callback(fetch, shape, *where, vmap_method="sequential")

    def _decode(self, block: Array, dtype: Any) -> tuple[Array, Array]:
        """Features within their public bounds, and targets, in the problem's coding."""
        whole = self.problem.encode(np.zeros(1), self.store.classes).dtype.kind != "f"
        features = block[:, 1:].astype(dtype)
        return self.problem.admit(features, block[:, 0].astype(jnp.int32 if whole else dtype))
