"""A round without records: what an algorithm would send, and what it asks of the records to make it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from coterie.algorithms.base import Algorithm, Config, Place
from coterie.data.store import Store
from coterie.errors import InputError
from coterie.problems import HeldShard, Problem, Settings, Shard, StoredShard
from coterie.problems.stored import Streamed

__all__ = ["emitted", "empty_shard", "need_sums"]


def emitted(algorithm: Algorithm, cfg: Config, place: Place, shard: Any) -> Any:
    """The shapes of a round's message, or of `Maybe` one; `shard` may hold shapes in place of records."""
    laws = algorithm.draws(cfg, place)
    draw = {n: jax.ShapeDtypeStruct(law.shape, place.start.dtype) for n, law in laws.items()}
    state = jax.eval_shape(lambda: algorithm.init(cfg, place))
    return jax.eval_shape(
        lambda s, d, records: algorithm.emit(cfg, place, jnp.array(0), s, records, d)[1], state, draw, shard
    )


def empty_shard(problem: Problem, place: Place, features: int) -> Shard:
    """The shard of an agent at this place with shapes in place of records: they take no memory."""
    zeros = lambda *shape: jnp.zeros(shape, place.start.dtype)  # noqa: E731
    return jax.eval_shape(
        lambda: HeldShard(problem, zeros(place.rows, features), zeros(place.rows), jnp.array(1), place.unit,
                          place.ridge, Settings())
    )  # fmt: skip


class _Sums(StoredShard):
    """A stored shard without a store: it answers what a store could, and refuses the rest as it would."""

    def gradient(self, x: Float[Array, " d"], *_: Any, **__: Any) -> Float[Array, " d"]:
        return jnp.zeros_like(x)


def need_sums(algorithm: Algorithm, cfg: Config, place: Place, problem: Problem, store: Store) -> None:
    """Refuse an algorithm that asks for more than sums over its agent's records: they are streamed."""
    with jax.enable_x64(True):
        shard = _Sums(problem, jnp.array(0), jnp.array(1), place.unit, place.ridge, store, 1)
        try:
            emitted(algorithm, cfg, place, shard)
        except (Streamed, AttributeError) as error:
            raise InputError(
                f"{algorithm.slug} cannot run on data.source = 'store': {error}; use a gradient method, e.g. dp-dsgd"
            ) from None
