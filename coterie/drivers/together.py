"""Agents that hear sums only, in one process, one round at a time: the caller supplies draws and carries messages.

The simulation (`coterie.drivers.simulate`) compiles all rounds into one program, draws in it and adds the words that
parties would open. Here every round comes back to the host, for noise of the operating system and sums that are opened.
"""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from coterie.algorithms.base import Algorithm, Config, Place
from coterie.algorithms.batches import axes
from coterie.algorithms.inbox import Inbox
from coterie.algorithms.laws import Draw
from coterie.drivers import agent
from coterie.errors import InputError
from coterie.problems import Shard

__all__ = ["Deliver", "play_together"]

Sums = tuple[object, object]  # of messages: of their kind
Deliver = Callable[[int, PyTree, PyTree], Sums]
"""(round, everybody's state, everybody's message) -> Σ_j m_j and Σ_j w_ij m_j over the neighbours of every agent i."""


def play_together(
    algorithm: Algorithm,
    cfg: Config,
    places: Place,
    shards: Shard,
    *,
    draw: Callable[[int], Draw],
    deliver: Deliver,
) -> np.ndarray:
    """Every agent's answer after `places.rounds` rounds; places, shards and draws have an agent axis in front."""
    if algorithm.reads == "individuals" or algorithm.edge is not None:
        raise InputError(f"{algorithm.slug} needs individual messages: here are sums only")
    with jax.enable_x64(True):
        cfg = jax.tree.map(lambda x: jnp.asarray(x, float), cfg)  # numbers are arguments of what is compiled
        state = _begin(algorithm, cfg, places)
        for t in map(jnp.asarray, range(places.rounds)):
            state, message = _speak(algorithm, cfg, places, t, state, shards, draw(int(t)))
            state = _hear(algorithm, cfg, places, t, state, deliver(int(t), state, message))
        return np.asarray(_answer(algorithm, cfg, places, state))


@eqx.filter_jit
def _begin(algorithm: Algorithm, cfg: Config, places: Place) -> object:
    return jax.vmap(lambda place: agent.begin(algorithm, cfg, place, 0)[0], (axes(places),))(places)


@eqx.filter_jit
def _speak(
    algorithm: Algorithm, cfg: Config, places: Place, t: Array, state: object, shards: Shard, draw: Draw
) -> tuple[object, object]:
    def one(place: Place, state: object, shard: Shard, draw: Draw) -> tuple[object, object]:
        return agent.speak(algorithm, cfg, place, t, state, shard, draw)[:2]

    return jax.vmap(one, (axes(places), 0, axes(shards), 0))(places, state, shards, draw)


@eqx.filter_jit
def _hear(algorithm: Algorithm, cfg: Config, places: Place, t: Array, state: object, sums: Sums) -> object:
    def one(place: Place, state: object, sums: Sums) -> object:
        nobody = jnp.zeros(0)
        inbox = Inbox(None, nobody.astype(int), nobody, nobody > 0, sums=sums)
        return agent.hear(algorithm, cfg, place, t, state, inbox)[0]

    return jax.vmap(one, (axes(places), 0, 0))(places, state, sums)


@eqx.filter_jit
def _answer(algorithm: Algorithm, cfg: Config, places: Place, state: object) -> Array:
    return jax.vmap(lambda place, s: agent.answer(algorithm, cfg, place, s), (axes(places), 0))(places, state)
