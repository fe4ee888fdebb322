"""Transcripts of one agent among enemies, in two worlds, and how likely each world makes them.

The strongest adversary of the threat model knows every record but one and controls all neighbours. So one agent runs
alone against *neighbours* who answer as it likes, holding a shard whose one private record differs between the
worlds. A transcript's likelihood is exact: the agent's own `emit` is run again with the draw that explains the
message. That draw is found without knowing the algorithm:

- additive noise: the message with zero noise and the scale at which the noise enters give it by subtraction;
- noise inside an objective: a probe stands in for the shard and answers `argmin` with the linear term that it was
  asked for, which so becomes the message; the optimality condition at the recorded message gives the noise, and the
  Hessian its Jacobian;
- Laplace noise on a point blurred by a secret uniform weight: the density of their sum has a closed form;
- no noise at all: a message that one world cannot have produced has no likelihood there.

Two draws are read off the transcript by name: a `mask` says which coordinates were sent, a `test` whether the agent
spoke, which has a likelihood of its own (`coterie.audit.silence`). Other secret coins (batches, dither) have no
explanation here; `audit` then scores transcripts by a direction learned from others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key, PyTree

from coterie.algorithms.base import Algorithm, Config, Law, Place
from coterie.audit.densities import blurred
from coterie.audit.neighbours import Neighbours
from coterie.audit.silence import bit_weights, edge_of, remember
from coterie.drivers.agent import begin, facing, greet, hear, speak
from coterie.problems import HeldShard, Solver
from coterie.problems.records import of_a_batch
from coterie.problems.shards import HELD

__all__ = ["Explanation", "Transcripts", "explain", "explainable", "features", "play"]

NOISES = ("normal", "laplace", "l2-laplace")
IMPOSSIBLE = 1e9  # what a message that a world cannot have produced takes off its log-likelihood
LOUD = 1e9  # a draw that decides a test


class Transcripts(eqx.Module):
    """What the adversary saw: messages with axes (transcript, round, …), who spoke, and the answer handed out."""

    messages: PyTree
    sent: Array
    estimate: Array
    draws: dict[str, Array]  # what really happened; for checks, never for the attack


class Explanation(eqx.Module):
    """What one world says about each transcript; axes (transcript, round, …), messages as flat vectors."""

    weight: Float[Array, "transcripts rounds"]  # log-likelihood of each message given the past
    noise: Float[Array, "transcripts rounds size"]  # the standard draw that explains it, 0 where none entered
    scale: Float[Array, "transcripts rounds size"]  # at which it entered, the message or the objective's gradient
    width: Float[Array, "transcripts rounds size"]  # of the uniform blur beside it
    inside: Bool[Array, "transcripts rounds"]  # whether it entered the objective
    estimate: Array  # the answer that this world's agent would hand out after the same messages
    edge: Float[Array, "transcripts rounds"]  # where the draw that decided to speak had to lie; NaN: not known, or none

    @property
    def log_likelihood(self) -> np.ndarray:
        """Of the whole transcript."""
        return np.asarray(self.weight).sum(1)


class _Probe(HeldShard):
    """A shard whose `argmin` answers with a given point, or with what it was asked."""

    answer: Array = eqx.field(kw_only=True)
    reply: str = eqx.field(static=True, kw_only=True)

    def argmin(
        self, linear: Array, curvature: Array | float, solver: Solver, tolerance: object
    ) -> tuple[Array, Solver]:
        x = {"answer": self.answer, "linear": linear, "curvature": jnp.full_like(linear, curvature)}[self.reply]
        return x, dataclasses.replace(solver, x=x, residual=jnp.zeros_like(solver.residual))


def _probe(shard: HeldShard, answer: Array, reply: str = "answer") -> _Probe:
    parts = {n: getattr(shard, n) for n in HELD}
    return _Probe(**parts, answer=answer, reply=reply)


def _hear(
    algorithm: Algorithm, cfg: Config, place: Place, t: Array, state: PyTree, memory: PyTree, said: PyTree
) -> tuple[object, object]:
    degree = jax.tree.leaves(said)[0].shape[0]
    weight = jnp.full(degree, (1 - place.self_weight) / degree)
    return hear(algorithm, cfg, place, t, state, facing(said, weight, memory))


@partial(jax.jit, static_argnums=(0, 2))
def _drawn(laws: tuple[tuple[str, type, tuple[int, ...]], ...], keys: Array, rounds: int) -> dict[str, Array]:
    """Fresh draws for every key and round, apart from any algorithm so that all of them share the compiled sampler."""

    def one(key: Array, t: Array) -> dict[str, Array]:
        own = jax.random.fold_in(key, t)
        return {n: kind(*s).sample(jax.random.fold_in(own, k), jnp.float64) for k, (n, kind, s) in enumerate(laws)}

    return jax.vmap(jax.vmap(one, (None, 0)), (0, None))(keys, jnp.arange(rounds))


def play(
    algorithm: Algorithm, cfg: Config, place: Place, shard: HeldShard, neighbours: Neighbours, keys: Key[Array, " n"]
) -> Transcripts:
    """One transcript per key of an agent with this shard among these neighbours (call inside x64)."""
    laws = tuple((n, type(law), law.shape) for n, law in algorithm.draws(cfg, place).items())
    return _play(algorithm, cfg, place, shard, neighbours, _drawn(laws, keys, place.rounds))


@eqx.filter_jit
def _play(
    algorithm: Algorithm, cfg: Config, place: Place, shard: HeldShard, neighbours: Neighbours, draws: dict[str, Array]
) -> Transcripts:
    def one(draws: dict[str, Array]) -> Transcripts:
        def step(carry: tuple, now: tuple) -> tuple[tuple, tuple]:
            state, memory, last = carry
            t, draw = now
            state, message, sent = speak(algorithm, cfg, place, t, state, shard, draw)
            message = jax.tree.map(lambda new, old: jnp.where(sent, new, old), message, last)
            state, memory = _hear(algorithm, cfg, place, t, state, memory, neighbours.answer(message, t))
            return (state, memory, message), (message, sent)

        state, memory = begin(algorithm, cfg, place, neighbours.degree)
        start = of_a_batch((state, memory, greet(algorithm, cfg, place, shard)), jax.tree.leaves(draws)[0])
        (state, _, _), (messages, sent) = jax.lax.scan(step, start, (jnp.arange(place.rounds), draws))
        return Transcripts(messages, sent, algorithm.estimate(cfg, place, state), draws)

    return jax.vmap(one)(draws)


def _size(algorithm: Algorithm, cfg: Config, place: Place, shard: HeldShard) -> int:
    """Numbers in a message."""
    return int(jax.eval_shape(lambda: _flat(greet(algorithm, cfg, place, shard))).size)


def _noise_names(laws: dict[str, Law], size: int) -> list[str]:
    """The draws that may noise a message of this size."""
    return [n for n, law in laws.items() if law.name in NOISES and int(np.prod(law.shape)) == size]


def explainable(algorithm: Algorithm, cfg: Config, place: Place, shard: HeldShard) -> bool:
    """Whether `explain` knows how to: one vector of numbers per message, noised by draws of its size, no batches.

    Noise in an objective over a set does not count: on the set's boundary many noises give one message.
    """
    if shard.problem.constraint is not None and algorithm.private and algorithm.needs(cfg).solver:
        return False
    laws = algorithm.draws(cfg, place)
    leaves = jax.tree.leaves(jax.eval_shape(lambda: greet(algorithm, cfg, place, shard)))
    if len(leaves) != 1 or not jnp.issubdtype(leaves[0].dtype, jnp.floating):
        return False
    names = _noise_names(laws, leaves[0].size)
    known = {*names, "weight", "mask", "test", "bar", "speed"}  # `speed` only keeps the virtual clock
    return bool(names) and set(laws) <= known


def solves_whole(algorithm: Algorithm, cfg: Config, place: Place, shard: HeldShard) -> bool:
    """Whether messages are solutions of subproblems in all coordinates."""
    size = _size(algorithm, cfg, place, shard)
    return algorithm.needs(cfg).solver and size == place.dim


def explain(
    algorithm: Algorithm, cfg: Config, place: Place, shard: HeldShard, neighbours: Neighbours, seen: Transcripts
) -> Explanation:
    """How likely this shard makes the transcripts (call inside x64, where `explainable`).

    Where noise enters both the objective and the point (the latter to hide the solver's error), the second is taken
    to be zero: the noise that is found is then off by that error.
    """
    solves = solves_whole(algorithm, cfg, place, shard)
    bare = solves and bool(_needs_solution(algorithm, cfg, place, shard))
    laws = algorithm.draws(cfg, place)
    tests = "test" in laws and bool(_tests_apart(algorithm, cfg, place, shard))
    args = (algorithm, cfg, place, shard, neighbours, seen, solves, bare, tests)
    told = _explain(*args, jnp.zeros(()))
    if not tests:
        return told
    moved = np.asarray(_explain(*args, jnp.ones(())).edge) if "bar" in laws else None
    bits = np.maximum(bit_weights(laws, np.asarray(told.edge), moved, np.asarray(seen.sent)), -IMPOSSIBLE)
    return eqx.tree_at(lambda e: e.weight, told, np.asarray(told.weight) + bits)


class _Entry(eqx.Module):
    """How a round's noise enters: what the probes say."""

    fixed: Array  # the message with no noise, if `argmin` answers y
    solved: Array  # whether the message has `argmin`'s answer in it
    linear: Array  # the linear term asked for
    curvature: Array
    outside: dict[str, Array]  # name -> scale on the message
    inside: dict[str, Array]  # name -> scale in the objective's linear term


def _enter(
    say: Callable[[dict, HeldShard], Array], shard: HeldShard, y: Array, base: dict, laws: dict[str, Law], solves: bool
) -> _Entry:
    names = _noise_names(laws, y.size)
    ones = {n: {**base, n: jnp.ones(laws[n].shape)} for n in names}
    if not solves:
        fixed = say(base, shard)
        outside = {n: say(ones[n], shard) - fixed for n in names}
        return _Entry(fixed, jnp.array(False), y, jnp.zeros(()), outside, dict.fromkeys(names, 0 * y))
    answer, linear = _probe(shard, y), _probe(shard, y, "linear")
    fixed, asked = say(base, answer), say(base, linear)
    solved = jnp.any(say(base, _probe(shard, y + 1)) != fixed)
    outside = {n: say(ones[n], answer) - fixed for n in names}
    inside = {n: jnp.where(solved, say(ones[n], linear) - asked - outside[n], 0.0) for n in names}
    # a difference of two large numbers: what is left of nothing is rounding
    inside = {n: jnp.where(jnp.abs(s) > 1e-12 * (1 + jnp.abs(asked)), s, 0.0) for n, s in inside.items()}
    return _Entry(fixed, solved, asked, say(base, _probe(shard, y, "curvature"))[0], outside, inside)


@eqx.filter_jit
def _needs_solution(algorithm: Algorithm, cfg: Config, place: Place, shard: HeldShard) -> Array:
    """Whether some round sends a solution that was not made random inside: its noise-free value must be computed."""
    laws = algorithm.draws(cfg, place)
    size = _size(algorithm, cfg, place, shard)
    base = _steered(laws, jnp.ones(size), jnp.array(True))
    state = algorithm.init(cfg, place)

    def one(t: Array) -> Array:
        say = lambda draw, holder: _flat(speak(algorithm, cfg, place, t, state, holder, draw)[1])  # noqa: E731
        entry = _enter(say, shard, jnp.ones(size), base, laws, True)
        tilted = jnp.any(jnp.stack([jnp.any(s != 0) for s in entry.inside.values()]))
        return entry.solved & ~tilted

    return jnp.any(jax.vmap(one)(jnp.arange(place.rounds)))


@eqx.filter_jit
def _tests_apart(algorithm: Algorithm, cfg: Config, place: Place, shard: HeldShard) -> Array:
    """Whether the test that decides to speak has nothing to do with the noise on the message."""
    laws = algorithm.draws(cfg, place)
    size = _size(algorithm, cfg, place, shard)
    state, t = algorithm.init(cfg, place), jnp.array(0)
    noisy = _noise_names(laws, size)
    both = {n: jnp.stack([jnp.zeros(law.shape), jnp.full(law.shape, n in noisy, float)]) for n, law in laws.items()}
    none, some = jax.vmap(lambda draw: _edge(algorithm, cfg, place, t, state, shard, draw))(both)
    return none == some


def _edge(
    algorithm: Algorithm, cfg: Config, place: Place, t: Array, state: PyTree, shard: HeldShard, draw: dict[str, Array]
) -> Array:
    """The `test` draw above which the agent speaks, given all other draws."""

    def sends(test: Array, holder: HeldShard) -> Array:
        return speak(algorithm, cfg, place, t, state, holder, {**draw, "test": test})[2]

    quick = remember(shard, lambda holder: sends(jnp.zeros(()), holder))
    return edge_of(lambda test: sends(test, quick()))


def _flat(message: PyTree) -> Array:
    return jax.tree.leaves(message)[0].reshape(-1)


def _steered(laws: dict[str, Law], y: Array, spoke: Array) -> dict[str, Array]:
    """Draws with no noise that let the agent speak, or not, and send the coordinates that were sent."""
    base = {n: jnp.zeros(law.shape) for n, law in laws.items()}
    if "mask" in base:
        base["mask"] = jnp.where(y != 0, 0.0, 1.0)
    if "test" in base:
        base["test"] = jnp.where(spoke, LOUD, -LOUD)
    return base


@eqx.filter_jit
def _explain(
    algorithm: Algorithm, cfg: Config, place: Place, shard: HeldShard, neighbours: Neighbours, seen: Transcripts,
    solves: bool, bare: bool, tests: bool, bar: Array,
) -> Explanation:  # fmt: skip
    laws = algorithm.draws(cfg, place)
    structure = jax.tree.structure(seen.messages)
    shape = jax.tree.leaves(seen.messages)[0].shape[2:]
    size = int(np.prod(shape))
    names = _noise_names(laws, size)

    def draw_of(t: Array, state: PyTree, y: Array, spoke: Array) -> tuple[dict[str, Array], Array, tuple]:
        """The draws that explain message y, what `argmin` must have answered, and the round of an Explanation."""
        say = lambda draw, holder: _flat(speak(algorithm, cfg, place, t, state, holder, draw)[1])  # noqa: E731
        base = _steered(laws, y, spoke)
        if "bar" in laws:
            base["bar"] = bar
        edge = _edge(algorithm, cfg, place, t, state, shard, base) if tests else jnp.asarray(jnp.nan)
        entry = _enter(say, shard, y, base, laws, solves)
        quiet = jnp.where(entry.solved, say(base, shard), entry.fixed) if bare else entry.fixed
        width = jnp.zeros(size)
        if "weight" in laws:
            width = say({**base, "weight": jnp.ones(laws["weight"].shape)}, shard) - quiet
        draws, answer = dict(base), quiet
        found, tilted = jnp.array(False), jnp.array(False)
        noise, scale = jnp.zeros(size), jnp.zeros(size)
        # nothing random: only one message is possible, up to the solver's tolerance
        weight = -IMPOSSIBLE * jnp.any(jnp.abs(y - quiet) > 1e-6 * (1 + jnp.abs(y)))
        for inside in (True, False) if solves else (False,):  # noise in an objective drowns the little on the point
            for name in names:
                by = entry.inside[name] if inside else entry.outside[name]
                some = jnp.where(by == 0, 1.0, by)
                if inside:
                    residual = -(shard.slope(y) + entry.curvature * y + entry.linear)
                    hessian = shard.hessian(y) + entry.curvature * jnp.eye(size)
                    extra = jnp.linalg.slogdet(hessian)[1]
                else:
                    residual, extra = y - quiet, jnp.zeros(())
                value = jnp.where(by == 0, 0.0, residual / some)
                law = laws[name]
                density = blurred(value, width / some) if "weight" in laws else law.log_density(_as(value, law))
                off = jnp.any((by == 0) & (jnp.abs(residual) > 1e-6 * (1 + jnp.abs(y))))
                likely = density - jnp.sum(jnp.log(jnp.abs(some))) + extra - IMPOSSIBLE * off
                here = ~found & jnp.any(by != 0)
                draws[name] = jnp.where(here, _as(value, law), draws[name])
                noise, scale = jnp.where(here, value, noise), jnp.where(here, by, scale)
                weight = jnp.where(here, likely, weight)
                answer = jnp.where(here & inside, y, answer)
                found, tilted = found | here, tilted | (here & inside)
        keep = lambda x: jnp.where(spoke, x, jnp.zeros_like(x))  # noqa: E731
        return draws, answer, (keep(weight), keep(noise), keep(scale), keep(width), tilted, edge)

    def one(messages: PyTree, sent: Array) -> Explanation:
        def step(carry: tuple, now: tuple) -> tuple[tuple, tuple]:
            state, memory = carry
            t, message, spoke = now
            y = _flat(message)
            draw, answer, row = draw_of(t, state, y, spoke)
            state = speak(algorithm, cfg, place, t, state, _probe(shard, answer) if solves else shard, draw)[0]
            heard = neighbours.answer(jax.tree.unflatten(structure, [y.reshape(shape)]), t)
            return _hear(algorithm, cfg, place, t, state, memory, heard), row

        start = of_a_batch(begin(algorithm, cfg, place, neighbours.degree), sent)
        (state, _), rounds = jax.lax.scan(step, start, (jnp.arange(place.rounds), messages, sent))
        weight, noise, scale, width, inside, edge = rounds
        return Explanation(weight, noise, scale, width, inside, algorithm.estimate(cfg, place, state), edge)

    return jax.vmap(one)(seen.messages, seen.sent)


def _as(value: Array, law: Law) -> Array:
    return value.reshape(law.shape)


def features(seen: Transcripts) -> np.ndarray:
    """Everything that the adversary saw of each transcript, as one row of numbers."""
    parts = [*jax.tree.leaves(seen.messages), seen.sent]
    return np.concatenate([np.asarray(p, float).reshape(len(p), -1) for p in parts], axis=1)
