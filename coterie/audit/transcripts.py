"""Transcripts of one agent among enemies, in two worlds, and how likely each world makes them.

The strongest adversary of the threat model knows every record but one and controls all neighbours. So one agent runs
alone against an *environment* that answers as it likes, holding a shard whose one private record differs between the
worlds. A transcript's likelihood is exact: the agent's own `emit` is run again with the draw that explains the
message. That draw is found without knowing the algorithm:

- additive noise: the message with zero noise and the scale at which the noise enters give it by subtraction;
- noise inside an objective: a probe stands in for the shard, hands the recorded message to `argmin` as the answer and
  sees the linear term that was asked for; the optimality condition gives the noise, and the Hessian its Jacobian.

Secret coins that the transcript does not determine (batches, dither, masks) are set to zero in the explanation: the
score is then not the likelihood, but still a valid score.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from coterie.algorithms.base import Algorithm, Config, Inbox, Law, Maybe, Place
from coterie.problems import Shard, Solver

__all__ = ["Environment", "Explanation", "Transcripts", "explain", "play"]

NOISES = ("normal", "laplace", "l2-laplace")
NEIGHBOURS = 2  # of the agent under attack


class Environment(eqx.Module):
    """How the neighbours answer: with a fixed point, or with an echo of the agent's own last message."""

    point: Float[Array, " d"]
    echo: Bool[Array, ""]

    def answer(self, own: Any, degree: int) -> Any:
        """The neighbours' messages, stacked."""

        def one(x: Array) -> Array:
            if x.shape == self.point.shape and jnp.issubdtype(x.dtype, jnp.floating):
                x = jnp.where(self.echo, x, self.point.astype(x.dtype))
            return jnp.broadcast_to(x, (degree, *x.shape))

        return jax.tree.map(one, own)


class Transcripts(eqx.Module):
    """What the adversary saw: messages with axes (transcript, round, …) and who spoke."""

    messages: Any
    sent: Array
    draws: dict[str, Array]  # what really happened; for checks, never for the attack


class Explanation(eqx.Module):
    """Log-likelihood of each transcript in one world, and the noise that explains it (transcript, round, …)."""

    log_likelihood: Float[Array, " transcripts"]
    noise: Array


class _Probe(Shard):
    """A shard whose `argmin` answers with a given point and notes what was asked."""

    answer: Array = eqx.field(kw_only=True)
    box: Any = eqx.field(static=True, kw_only=True)

    def argmin(self, linear: Array, curvature: Any, solver: Solver) -> tuple[Array, Solver]:
        self.box.append((linear, curvature))
        return self.answer, Solver(
            self.answer, solver.inverse, solver.ready, jnp.zeros_like(solver.residual), solver.steps
        )


def _probe(shard: Shard, answer: Array, box: list) -> _Probe:
    parts = {n: getattr(shard, n) for n in ("problem", "features", "targets", "count", "unit", "ridge", "how")}
    return _Probe(**parts, answer=answer, box=box)


def _emit(algorithm: Algorithm, *args: Any) -> tuple[Any, Any, Array]:
    state, out = algorithm.emit(*args)
    return (state, out.message, out.sent) if isinstance(out, Maybe) else (state, out, jnp.array(True))


def _hear(
    algorithm: Algorithm, cfg: Config, place: Place, t: Array, state: Any, memory: Any, said: Any
) -> tuple[Any, Any]:
    degree = jax.tree.leaves(said)[0].shape[0]
    weight = jnp.full(degree, (1 - place.self_weight) / degree)
    inbox = Inbox(said, jnp.arange(degree), weight, jnp.ones(degree, bool), memory)
    out = algorithm.absorb(cfg, place, t, state, inbox)
    return out if algorithm.has("edge") else (out, None)


def _begin(algorithm: Algorithm, cfg: Config, place: Place, degree: int) -> tuple[Any, Any]:
    memory = None
    if algorithm.has("edge"):
        memory = jax.tree.map(lambda x: jnp.broadcast_to(x, (degree, *jnp.shape(x))), algorithm.edge(cfg, place))
    return algorithm.init(cfg, place), memory


@eqx.filter_jit
def play(
    algorithm: Algorithm, cfg: Config, place: Place, shard: Shard, environment: Environment, keys: Key[Array, " n"]
) -> Transcripts:
    """One transcript per key of an agent with this shard among these neighbours (call inside x64)."""
    degree = NEIGHBOURS
    laws = algorithm.draws(cfg, place)

    def one(key: Array) -> Transcripts:
        def step(carry: tuple, t: Array) -> tuple[tuple, tuple]:
            state, memory, last = carry
            own = jax.random.fold_in(key, t)
            draw = {n: law.sample(jax.random.fold_in(own, k), jnp.float64) for k, (n, law) in enumerate(laws.items())}
            state, message, sent = _emit(algorithm, cfg, place, t, state, shard, draw)
            message = jax.tree.map(lambda new, old: jnp.where(sent, new, old), message, last)
            state, memory = _hear(algorithm, cfg, place, t, state, memory, environment.answer(message, degree))
            return (state, memory, message), (message, sent, draw)

        state, memory = _begin(algorithm, cfg, place, degree)
        start = (state, memory, _first(algorithm, cfg, place, shard, laws))
        _, (messages, sent, draws) = jax.lax.scan(step, start, jnp.arange(place.rounds))
        return Transcripts(messages, sent, draws)

    return jax.vmap(one)(keys)


def _first(algorithm: Algorithm, cfg: Config, place: Place, shard: Shard, laws: dict[str, Law]) -> Any:
    """The message that stands before the first one."""
    if algorithm.has("greeting"):
        return algorithm.greeting(cfg, place)
    zero = {n: jnp.zeros(law.shape) for n, law in laws.items()}
    state = algorithm.init(cfg, place)
    shape = jax.eval_shape(lambda: _emit(algorithm, cfg, place, jnp.array(0), state, shard, zero)[1])
    return jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shape)


def noise_names(laws: dict[str, Law], size: int) -> list[str]:
    """The draws that may noise a message of this size."""
    return [n for n, law in laws.items() if law.name in NOISES and int(np.prod(law.shape)) == size]


@eqx.filter_jit
def explain(
    algorithm: Algorithm, cfg: Config, place: Place, shard: Shard, environment: Environment, seen: Transcripts
) -> Explanation | None:
    """How likely this shard makes the transcripts; None where no draw can be told from a message (call inside x64).

    Where noise enters both the objective and the point (the latter to hide the solver's error), the second is taken
    to be zero: the score is then off by that error.
    """
    degree = NEIGHBOURS
    laws = algorithm.draws(cfg, place)
    leaves, structure = jax.tree.flatten(seen.messages)
    if len(leaves) != 1 or not jnp.issubdtype(leaves[0].dtype, jnp.floating) or leaves[0].ndim != 3:
        return None
    names = noise_names(laws, leaves[0].shape[2])
    if not names:
        return None
    zero = {n: jnp.zeros(law.shape) for n, law in laws.items()}

    def safe(scale: Array) -> Array:
        return jnp.where(scale == 0, 1.0, scale)

    def draw_of(t: Array, state: Any, y: Array) -> tuple[dict[str, Array], Array, Array]:
        """The draws that explain message y, log |d noise / d y|, and what `argmin` must have answered."""

        def asked(draw: dict[str, Array]) -> tuple[Array, Array, Array]:
            box: list[tuple] = []
            message = jax.tree.leaves(_emit(algorithm, cfg, place, t, state, _probe(shard, y, box), draw)[1])[0]
            return (message, *box[0]) if box else (message, jnp.zeros_like(y), jnp.zeros(()))

        message, linear, curvature = asked(zero)
        bare = jax.tree.leaves(_emit(algorithm, cfg, place, t, state, shard, zero)[1])[0]
        hessian = shard.hessian(y) + curvature * jnp.eye(y.shape[0])
        gradient = shard.slope(y) + curvature * y + linear
        draws, total, answer, found = dict(zero), jnp.zeros(()), y, jnp.array(False)
        for inside in (True, False):  # noise in an objective first: it drowns the little that goes on the point
            for name in names:
                high = asked({**zero, name: jnp.ones(laws[name].shape)})
                scale = high[1] - linear if inside else high[0] - message
                noise = (-gradient if inside else y - bare) / safe(scale)
                weight = laws[name].log_density(noise) - jnp.sum(jnp.log(jnp.abs(safe(scale))))
                weight = weight + jnp.linalg.slogdet(hessian)[1] if inside else weight
                here = ~found & jnp.any(scale != 0)
                draws[name] = jnp.where(here, noise, draws[name])
                total = jnp.where(here, weight, total)
                answer = jnp.where(here & (not inside), bare, answer)
                found = found | here
        return draws, total, answer

    def one(messages: Any, sent: Array) -> tuple[Array, Array]:
        def step(carry: tuple, now: tuple) -> tuple[tuple, Array]:
            state, memory, total = carry
            t, message, spoke = now
            y = jax.tree.leaves(message)[0]
            draw, weight, answer = draw_of(t, state, y)
            state = _emit(algorithm, cfg, place, t, state, _probe(shard, answer, []), draw)[0]
            heard = environment.answer(jax.tree.unflatten(structure, [y]), degree)
            state, memory = _hear(algorithm, cfg, place, t, state, memory, heard)
            noise = jnp.concatenate([draw[n].reshape(-1) for n in names])
            return (state, memory, total + jnp.where(spoke, weight, 0.0)), noise

        state, memory = _begin(algorithm, cfg, place, degree)
        times = jnp.arange(place.rounds)
        (_, _, total), noise = jax.lax.scan(step, (state, memory, jnp.zeros(())), (times, messages, sent))
        return total, noise

    total, noise = jax.vmap(one)(seen.messages, seen.sent)
    return Explanation(total, noise)


Score = Callable[[Transcripts], np.ndarray]


def projection(direction: np.ndarray) -> Score:
    """A score for algorithms whose transcripts have no exact explanation: how far the messages lean in a direction."""

    def score(seen: Transcripts) -> np.ndarray:
        total = 0.0
        for leaf in jax.tree.leaves(seen.messages):
            if leaf.ndim >= 3 and leaf.shape[-1] == len(direction):
                total = total + np.asarray(leaf @ jnp.asarray(direction)).reshape(len(leaf), -1).sum(1)
        return np.asarray(total)

    return score
