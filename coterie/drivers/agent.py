"""One agent, one step at a time: the only place that calls an algorithm's parts.

    begin   -> state, memory of each edge        data-free
    greet   -> the message that stands before the agent first speaks
    draw    -> a round's randomness, from the agent's key of that round
    speak   -> state, message, whether it was sent
    hear    -> state, memory                     what the neighbours said last
    answer  -> the point that the agent hands out

Around them the simulation puts a `vmap` and a loop, the deployed party a ledger and a network, the audit a recorder.
Here an algorithm that may stay silent (`Maybe`) and one that remembers its edges look like any other.
"""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int, Key

from coterie.algorithms._threefry import fold_in
from coterie.algorithms.base import Algorithm, Config, Law, Place
from coterie.algorithms.inbox import Inbox, Maybe
from coterie.algorithms.laws import Draw
from coterie.problems import Shard

__all__ = ["answer", "begin", "draw", "facing", "greet", "hear", "speak"]


Kept = tuple[object, object]  # state and memory of each edge: only the algorithm looks into them


def begin(algorithm: Algorithm, cfg: Config, place: Place, slots: int) -> Kept:
    """State, and memory of each of `slots` edges if the algorithm keeps any, before the first round."""
    memory = None
    if algorithm.edge is not None:
        memory = jax.tree.map(lambda x: jnp.broadcast_to(x, (slots, *jnp.shape(x))), algorithm.edge(cfg, place))
    return algorithm.init(cfg, place), memory


def greet(algorithm: Algorithm, cfg: Config, place: Place, shard: Shard) -> object:
    """The public message that stands before the first one: the algorithm's greeting, or zeros of a message's shape.

    Only the shape of the records is read.
    """
    if algorithm.greeting is not None:
        return algorithm.greeting(cfg, place)
    zero = {n: jnp.zeros(law.shape, place.start.dtype) for n, law in algorithm.draws(cfg, place).items()}
    state = algorithm.init(cfg, place)
    shape = jax.eval_shape(lambda: speak(algorithm, cfg, place, jnp.array(0), state, shard, zero)[1])
    return jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shape)


def draw(laws: Mapping[str, Law], key: Key[Array, ""], dtype: DTypeLike) -> dict[str, Array]:
    """A round's simulated randomness, keyed by the place of each law in `draws`."""
    return {name: law.sample(fold_in(key, k), dtype) for k, (name, law) in enumerate(laws.items())}


def speak(
    algorithm: Algorithm, cfg: Config, place: Place, t: Array, state: object, shard: Shard, draw: Draw
) -> tuple[object, object, Bool[Array, ""]]:
    """The next state, the message, and whether it is sent. An absent agent says nothing and keeps its state."""
    then, out = algorithm.emit(cfg, place, t, state, shard, draw)
    message, sent = (out.message, out.sent) if isinstance(out, Maybe) else (out, jnp.array(True))
    if place.present is None:
        return then, message, sent
    here = place.present[t] > 0
    return _if(here, then, state), message, sent & here


def facing(
    said: object, weight: Float[Array, " neighbours"], memory: object, senders: Int[Array, " neighbours"] | None = None
) -> Inbox:
    """The inbox of an agent whose neighbours' last messages lie side by side, one row for each."""
    everybody = jnp.arange(weight.shape[0])
    return Inbox(said, everybody, weight, everybody >= 0, memory, known=senders)


def hear(algorithm: Algorithm, cfg: Config, place: Place, t: Array, state: object, inbox: Inbox) -> Kept:
    """The state after the neighbours' messages of round t, and the edges' memory. An absent agent hears nothing."""
    out = algorithm.absorb(cfg, place, t, state, inbox)
    then, memory = out if algorithm.edge is not None else (out, None)
    if place.present is None:
        return then, memory
    here = place.present[t] > 0
    return _if(here, then, state), None if memory is None else _if(here, memory, inbox.memory)


def _if(here: Bool[Array, ""], new: object, old: object) -> object:
    """The new value where the agent is present, else the old one."""
    return jax.tree.map(lambda a, b: jnp.where(here, a, b), new, old)


def answer(algorithm: Algorithm, cfg: Config, place: Place, state: object) -> Float[Array, " dim"]:
    """The point that the agent hands out."""
    return algorithm.estimate(cfg, place, state)
