"""Work on the agents of a group: in one batch, in parts of it, or one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp

from coterie.algorithms.batches import axes, rows, stretch
from coterie.drivers.layout import Group
from coterie.problems import Shard, StoredShard

__all__ = ["fitting", "join", "over_agents"]

BLOCK = 1 << 26  # numbers of the records that an accelerator measures at once
T = TypeVar("T")


def over_agents(f: Callable[..., T], args: tuple, group: Group, often: bool = False, at_once: int | None = None) -> T:
    """f over the agents of a group: batched, or one after the other where records are streamed, or many and read often.

    `often`: where f goes over them many times, or for many points, whose scores should stay in a core's cache.
    `at_once`: of a batch, so many agents at a time.
    """
    size = group.high - group.low
    if group.one_by_one and (often or isinstance(group.shards, StoredShard)):
        return jax.lax.map(lambda i: f(*(rows(a, i) for a in args)), jnp.arange(size))
    batch = jax.vmap(f, tuple(axes(a) for a in args))
    if at_once is None or at_once >= size:
        return batch(*args)
    whole = size - size % at_once
    some = lambda low: batch(*(stretch(a, low, at_once) for a in args))  # noqa: E731
    parts = jax.lax.map(some, jnp.arange(0, whole, at_once))
    parts = jax.tree.map(lambda x: x.reshape(whole, *x.shape[2:]), parts)
    return parts if whole == size else join([parts, batch(*(rows(a, slice(whole, size)) for a in args))])


def fitting(shards: Shard) -> int:
    """Agents that are measured at once: their records keep an accelerator busy, and their scores need little room."""
    numbers = sum(x.size for x in jax.tree.leaves(shards)) // shards.count.shape[0]
    return max(1, BLOCK // max(1, numbers))


def join(parts: list[T]) -> T:
    """Trees of arrays, one behind the other."""
    return parts[0] if len(parts) == 1 else jax.tree.map(lambda *x: jnp.concatenate(x), *parts)
