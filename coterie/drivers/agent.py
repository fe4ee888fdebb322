"""One agent, one step at a time: what every surrounding does with an algorithm, and nothing else.

    begin   -> state, memory of each edge        data-free
    greet   -> the message that stands before the agent first speaks
    speak   -> state, message, whether it was sent
    hear    -> state, memory                      the neighbours' last messages, one row each

The audit and the deployed party run an agent by these four; the simulation batches the same calls over all agents.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from coterie.algorithms.base import Algorithm, Config, Inbox, Maybe, Place
from coterie.problems import Shard

__all__ = ["begin", "greet", "hear", "speak"]


def begin(algorithm: Algorithm, cfg: Config, place: Place, degree: int) -> tuple[Any, Any]:
    """State, and memory of each of `degree` edges if the algorithm keeps any, before the first round."""
    memory = None
    if algorithm.has("edge"):
        memory = jax.tree.map(lambda x: jnp.broadcast_to(x, (degree, *jnp.shape(x))), algorithm.edge(cfg, place))
    return algorithm.init(cfg, place), memory


def greet(algorithm: Algorithm, cfg: Config, place: Place, shard: Shard) -> Any:
    """The public message that stands before the first one: the algorithm's greeting, or zeros of a message's shape."""
    if algorithm.has("greeting"):
        return algorithm.greeting(cfg, place)
    zero = {n: jnp.zeros(law.shape, place.start.dtype) for n, law in algorithm.draws(cfg, place).items()}
    state = algorithm.init(cfg, place)
    shape = jax.eval_shape(lambda: speak(algorithm, cfg, place, jnp.array(0), state, shard, zero)[1])
    return jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shape)


def speak(
    algorithm: Algorithm, cfg: Config, place: Place, t: Array, state: Any, shard: Shard, draw: dict[str, Any]
) -> tuple[Any, Any, Bool[Array, ""]]:
    """The next state, the message, and whether it is sent."""
    state, out = algorithm.emit(cfg, place, t, state, shard, draw)
    return (state, out.message, out.sent) if isinstance(out, Maybe) else (state, out, jnp.array(True))


def hear(
    algorithm: Algorithm, cfg: Config, place: Place, t: Array, state: Any, memory: Any, said: Any,
    weight: Float[Array, " neighbours"],
) -> tuple[Any, Any]:  # fmt: skip
    """The state after the neighbours' messages of round t (one row for each), and the edges' memory."""
    everybody = jnp.arange(weight.shape[0])
    out = algorithm.absorb(cfg, place, t, state, Inbox(said, everybody, weight, everybody >= 0, memory))
    return out if algorithm.has("edge") else (out, None)
