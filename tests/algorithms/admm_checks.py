"""What the tests of the ADMM family share: messages from many draws at one state, and states that stand at a point."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from coterie.algorithms.base import Config, Maybe, Place
from coterie.algorithms.batches import rows
from coterie.drivers.layout import make_places
from coterie.graphs import make_graph, mixing
from coterie.losses.logistic import Logistic
from coterie.problems import Shard

__all__ = ["at", "double", "fits", "many_messages", "one", "papers", "put"]


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    """Float64 throughout a test, as in a driver; import it to have it."""
    with jax.enable_x64(True):
        yield


def papers(count: int = 8000, rounds: int = 50, ridge: float = 0.0, shape: np.ndarray | None = None) -> Place:
    """The papers' setting: a ring of 5, logistic loss."""
    ring = make_graph("ring", 5)
    return make_places(
        Logistic(41), np.full(5, count), ring, mixing(ring, "metropolis"), rounds=rounds, ridge=ridge, shape=shape
    )


def one(place: Place, **fields: float) -> Place:
    """The first agent's place, with some numbers changed."""
    return at(rows(place, 0), **fields)


def put(state: Any, point: jax.Array) -> Any:
    """The agent and all its neighbours stand at the point (two neighbours)."""
    return eqx.tree_at(lambda s: (s.x, s.near), state, (point, 2 * point))


def at(place: Place, **fields: Any) -> Place:
    """The place with some numbers changed."""
    for name, value in fields.items():
        place = eqx.tree_at(lambda p: getattr(p, name), place, jnp.asarray(value, float))  # noqa: B023
    return place


def many_messages(
    algorithm: ModuleType, cfg: Config, place: Place, shard: Shard, state: Any, samples: int, t: int = 0
) -> np.ndarray:
    """(samples, d): messages of round t from one state under fresh draws."""
    laws = algorithm.draws(cfg, place)

    def message(key: jax.Array) -> jax.Array:
        keys = jax.random.split(key, len(laws))
        draw = {n: law.sample(k, jnp.dtype(float)) for k, (n, law) in zip(keys, laws.items(), strict=True)}
        out = algorithm.emit(cfg, place, jnp.asarray(t), state, shard, draw)[1]
        return (out.message if isinstance(out, Maybe) else out).x

    return np.asarray(jax.jit(jax.vmap(message))(jax.random.split(jax.random.key(3), samples)))


def fits(residuals: np.ndarray, scale: float) -> bool:
    """χ² test at level 1e-3 that the residuals are N(0, scale²), and KS that their shape is normal."""
    flat = residuals.ravel() / scale
    tail = stats.chi2(flat.size).sf(np.sum(flat**2))
    return bool(2 * min(tail, 1 - tail) > 1e-3 and stats.kstest(flat, "norm").pvalue > 1e-3)
