"""A round without records: what an algorithm would send, and what it asks of the records to make it."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from coterie.algorithms.base import Algorithm, Config, Place
from coterie.data.store import Store
from coterie.errors import InputError
from coterie.problems import HeldShard, Problem, Shard, Solver, StoredShard
from coterie.problems.shards import HELD
from coterie.problems.stored import Streamed

__all__ = ["emitted", "empty_shard", "need_sums", "undeclared"]


def emitted(algorithm: Algorithm, cfg: Config, place: Place, shard: object) -> object:
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
        lambda: HeldShard(
            problem, zeros(place.rows, features), zeros(place.rows), jnp.array(1), place.unit, place.ridge
        )
    )


class _Watched(HeldShard):
    """A shard that notes what is asked of it."""

    asked: list[str] = eqx.field(static=True, kw_only=True)

    def gradient(self, x: Float[Array, " d"], clip: object = None, *rest: object, **more: object) -> Float[Array, " d"]:
        self.asked.append("bare gradient" if clip is None else "clipped gradient")
        return jnp.zeros_like(x)

    def descend(self, x: Float[Array, " d"], *_: object) -> Float[Array, " d"]:
        self.asked.append("steps")
        return x

    def argmin(self, linear: Array, curvature: object, solver: Solver, tolerance: object) -> tuple[Array, Solver]:
        self.asked.append("solver")
        return linear, solver


def undeclared(algorithm: Algorithm, cfg: Config, place: Place, shard: HeldShard) -> list[str]:
    """What the algorithm asks of its records that its `needs` do not cover, in words: a proof must rest on more.

    Bare gradients rest on a bound, steps and solutions on convexity and a curvature bound. An algorithm that makes no
    promise has to say only whether it goes over its records many times.
    """
    fields = tuple(getattr(shard, name) for name in HELD)
    watched = _Watched(*fields, asked=[])
    emitted(algorithm, cfg, place, watched)
    asked, needs = set(watched.asked), algorithm.needs(cfg)
    wrong = [f"it uses `{way}`" for way in ("steps", "solver") if way in asked and not getattr(needs, way)]
    if not algorithm.private:
        return wrong
    if "bare gradient" in asked and not needs.bounded:
        wrong.append("it uses gradients that are not clipped")
    if asked & {"steps", "solver"} and not (needs.convex and needs.smooth and needs.bounded):
        wrong.append("it minimises a loss that need not be convex, smooth and of bounded slope")
    return wrong


class _Sums(StoredShard):
    """A stored shard without a store: it answers what a store could, and refuses the rest as it would."""

    def gradient(self, x: Float[Array, " d"], *_: object, **__: object) -> Float[Array, " d"]:
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
