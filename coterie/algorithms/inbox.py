"""What an agent hears: the last message of every neighbour, whatever the graph, and reductions over them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int, PyTree

from coterie.errors import InputError

__all__ = ["Inbox", "Maybe"]


class Maybe(eqx.Module):
    """A message that is sent only if `sent`; otherwise neighbours keep the last one."""

    message: PyTree
    sent: Bool[Array, ""]


class Inbox(eqx.Module):
    """The last message of every neighbour of one agent.

    `index`, `weight` and `here` have one slot per neighbour (padded; `here` is False in empty slots) and point into
    `messages`, whose leaves carry all senders on their first axis; over an exchange that opens sums only it is None,
    and `total` and `mixed` are all there is. Reductions walk over the slots, so their cost is
    edges × dimension; `stack` lays all messages side by side and is for small neighbourhoods.
    """

    messages: PyTree
    index: Int[Array, " width"]
    weight: Float[Array, " width"]
    here: Bool[Array, " width"]
    memory: PyTree = None
    sums: PyTree = None  # (total, mixed) when the driver got them from one matrix product
    chunk: int = eqx.field(static=True, default=1)
    known: Int[Array, " width"] | None = None  # who the neighbours are, where `index` does not say

    @property
    def senders(self) -> Int[Array, " width"]:
        """The number of the neighbour in every slot (mask the empty ones with `here`)."""
        return self.index if self.known is None else self.known

    @property
    def total(self) -> PyTree:
        """Σ_j m_j over the neighbours."""
        return self.reduce(lambda m, w, e: m) if self.sums is None else self.sums[0]

    @property
    def mixed(self) -> PyTree:
        """Σ_j w_ij m_j over the neighbours, without the agent's own term."""
        return self.reduce(lambda m, w, e: jax.tree.map(lambda x: w * x, m)) if self.sums is None else self.sums[1]

    def reduce(self, f: Callable[[PyTree, Array, PyTree], PyTree], op: Literal["sum", "min", "max"] = "sum") -> PyTree:
        """Σ (or min, max) over neighbours of f(message, weight, memory of that edge)."""
        self._need_messages()
        ways: dict[str, tuple[Callable, Callable, Callable]] = {
            "sum": (jnp.zeros_like, jnp.add, jnp.sum),
            "min": (lambda x: jnp.full_like(x, _limits(x.dtype)[1]), jnp.minimum, jnp.min),
            "max": (lambda x: jnp.full_like(x, _limits(x.dtype)[0]), jnp.maximum, jnp.max),
        }
        empty, join, fold = ways[op]

        def step(total: PyTree, slots: PyTree) -> tuple[PyTree, None]:
            index, weight, here, memory = slots
            got = jax.vmap(f)(jax.tree.map(lambda m: m[index], self.messages), weight, memory)
            part = jax.tree.map(lambda g: fold(jnp.where(_like(here, g), g, empty(g)), axis=0).astype(g.dtype), got)
            return jax.tree.map(join, total, part), None

        slots = self._chunks()
        shapes = jax.eval_shape(lambda s: _at(f, self.messages, s), jax.tree.map(lambda x: x[0, 0], slots))
        start = jax.tree.map(empty, shapes)
        length = jax.tree.leaves(slots)[0].shape[0]
        return jax.lax.scan(step, start, slots, unroll=min(8, length))[0]

    def map(self, f: Callable[[PyTree, Array, PyTree], PyTree]) -> PyTree:
        """f(message, weight, memory) for every neighbour, one slot each: the next memory of the edges."""
        self._need_messages()

        def step(_: None, slots: PyTree) -> tuple[None, PyTree]:
            index, weight, _here, memory = slots
            return None, jax.vmap(f)(jax.tree.map(lambda m: m[index], self.messages), weight, memory)

        slots = self._chunks()
        length = jax.tree.leaves(slots)[0].shape[0]
        out = jax.lax.scan(step, None, slots, unroll=min(8, length))[1]
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[: self.index.shape[0]], out)

    def stack(self) -> PyTree:
        """All messages side by side (slot first); mask the empty slots with `here`."""
        self._need_messages()
        return jax.tree.map(lambda m: m[self.index], self.messages)

    def _need_messages(self) -> None:
        if self.messages is None:
            raise InputError("this exchange opens sums only: there are no individual messages to read")

    def _chunks(self) -> PyTree:
        width, chunk = self.index.shape[0], self.chunk
        short = -width % chunk
        slots = (self.index, self.weight, self.here, self.memory)
        padded = jax.tree.map(lambda x: jnp.pad(x, [(0, short)] + [(0, 0)] * (x.ndim - 1)), slots)
        return jax.tree.map(lambda x: x.reshape(-1, chunk, *x.shape[1:]), padded)


def _at(f: Callable, messages: PyTree, slot: PyTree) -> PyTree:
    index, weight, _here, memory = slot
    return f(jax.tree.map(lambda m: m[index], messages), weight, memory)


def _limits(dtype: DTypeLike) -> tuple[float | int, float | int]:
    """The values that no minimum and no maximum can be beyond."""
    if jnp.issubdtype(dtype, jnp.floating):
        return -jnp.inf, jnp.inf
    whole = jnp.iinfo(dtype)
    return int(whole.min), int(whole.max)


def _like(mask: Array, x: Array) -> Array:
    return mask.reshape(mask.shape + (1,) * (x.ndim - mask.ndim))
