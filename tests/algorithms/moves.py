"""How far one record moves an agent's message: a compiled search over points and replaced records."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from coterie.algorithms.base import Config, Place, Uniform
from coterie.problems import Shard
from tests.support import worst_logistic_pair

__all__ = ["logistic_moves", "move", "public"]


def logistic_moves(
    algorithm: ModuleType,
    cfg: Config,
    place: Place,
    shard: Shard,
    t: int,
    put: Callable[[Any, jax.Array], Any],
    trials: int = 300,
) -> np.ndarray:
    """(trials + 1, message size): message moves when record 0 is replaced, noise off and weights at ½.

    `put(state, point)` makes a state whose gradient is taken at the point. The last row is the crafted worst case, in
    which both records' slopes saturate and their directions are nearly opposite.
    """
    rng, d = np.random.default_rng(11), place.dim
    worst = worst_logistic_pair(d, int(place.count), margin=200.0)
    points = np.vstack([10 * rng.standard_normal((trials, d)), worst.point])
    records = rng.standard_normal((2, trials, d))
    records /= np.linalg.norm(records, axis=-1, keepdims=True)
    records = np.concatenate([records, np.stack([worst.u, worst.v])[:, None]], axis=1)
    labels = np.concatenate([rng.choice([-1.0, 1.0], (2, trials)), np.ones((2, 1))], axis=1)
    with jax.enable_x64(True):

        def message(point: jax.Array, record: jax.Array, label: jax.Array) -> jax.Array:
            state = put(algorithm.init(cfg, place), point)
            world = (shard.features.at[0].set(record), shard.targets.at[0].set(label))
            other = eqx.tree_at(lambda s: (s.features, s.targets), shard, world)
            return _quiet(algorithm, cfg, place, t, state, other)

        both = jax.jit(jax.vmap(lambda p, r, y: message(p, r[0], y[0]) - message(p, r[1], y[1]), (0, 1, 1)))
        return np.asarray(both(points, records, labels))


def move(
    algorithm: ModuleType, cfg: Config, place: Place, state: Any, shards: tuple[Shard, Shard], t: int = 0
) -> np.ndarray:
    """Difference of the messages that two shards make from one state, noise off and weights at ½."""
    with jax.enable_x64(True):
        one, other = (_quiet(algorithm, cfg, place, t, state, s) for s in shards)
        return np.asarray(one - other)


def _quiet(algorithm: ModuleType, cfg: Config, place: Place, t: int, state: Any, shard: Shard) -> jax.Array:
    """The message as one vector, noise off and weights at ½."""
    draw = {k: jnp.full(l.shape, 0.5 * isinstance(l, Uniform)) for k, l in algorithm.draws(cfg, place).items()}
    out = algorithm.emit(cfg, place, jnp.asarray(t), state, shard, draw)[1]
    return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(out)])


def public(**changes: Any) -> dict[str, Any]:
    """Facts of a small network, for `Public(**public(...))`."""
    facts: dict[str, Any] = {"agents": 5, "rounds": 100, "dim": 3, "count_min": 9, "count_max": 9, "degree_min": 2}
    facts |= {"degree_max": 2, "laplacian_max": 4.0, "mixing_gap": 0.3, "ridge": 0.05, "lipschitz": 1.0}
    return facts | {"smoothness": 0.25, "epsilon": 1.0, "delta": 1e-5} | changes
