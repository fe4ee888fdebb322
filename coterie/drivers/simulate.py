"""Simulation: one compiled program in which every agent takes its round at once.

A run is a loop over rounds of `absorb` then `emit` over all agents; runs (seeds, and numeric hyper-parameters or
noise levels) are a further `vmap`. The loop carries the messages: were they made and read in the same pass, the
compiler would recompute every message's noise once per reader. The number of rounds is an argument of the compiled
program, so the host can stop between pieces to show progress, or for good on Ctrl-C, without compiling again.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from coterie.algorithms.base import Algorithm, Config, Inbox, Maybe, Place
from coterie.drivers.layout import Arrays, Group, Layout, axes, rows
from coterie.errors import InputError

__all__ = ["Run", "Test", "Trace", "simulate"]

SMALL = 16  # in networks up to this size every agent's own model is scored on the fly …
JUDGES = 4  # … in larger ones only these, evenly spaced
PIECE_SECONDS = 0.25  # how long the host lets the compiled loop run before it shows progress


@dataclass(frozen=True)
class Run:
    """One point of a batch: its seed, its hyper-parameters, its noise multiplier (per agent or one for all)."""

    seed: int
    cfg: Config
    noise: float | np.ndarray = 0.0


@dataclass(frozen=True)
class Test:
    """Held-out records, in the problem's coding."""

    __test__ = False  # not a pytest class
    features: np.ndarray
    targets: np.ndarray


@dataclass
class Trace:
    """What a simulation leaves: leading axis = run, agents in the plan's order."""

    points: np.ndarray  # (runs, agents, dim): every agent's estimate
    rounds: np.ndarray  # (slots,): at which rounds the curves were measured
    curves: dict[str, np.ndarray]  # name -> (runs, slots)
    sent: np.ndarray  # (runs, agents): how many messages each agent sent
    bytes: np.ndarray  # (runs, agents): how much that was, to one neighbour
    completed: int  # rounds done; fewer than asked for after Ctrl-C
    timing: dict[str, float]
    messages: Any = None  # leaves (runs, rounds, agents, ...), if recorded
    draws: dict[str, np.ndarray] | None = None  # name -> (runs, rounds, agents, ...), if recorded
    states: Any = None  # final states, if recorded
    extras: dict[str, Any] = field(default_factory=dict)


class _Carry(eqx.Module):
    state: Any
    message: Any
    memory: list[Any]
    sent: Int[Array, " agents"]
    bits: Float[Array, " agents"]  # sent so far by each agent to one neighbour
    clock: Float[Array, ""]  # virtual seconds, if the algorithm keeps time
    curves: dict[str, Float[Array, " slots"]]
    recorded: dict[str, Any]


class _Program:
    """The compiled loop of one algorithm over one layout, for a batch of runs of one static structure."""

    def __init__(self, algorithm: Algorithm, layout: Layout, rounds: int, every: int, record: bool, test: Test | None):
        self.algorithm, self.rounds, self.every, self.record = algorithm, rounds, every, record
        self.dtype = layout.arrays.place.start.dtype
        self.test = None if test is None else (jnp.asarray(test.features, self.dtype), jnp.asarray(test.targets))
        self.slots = -(-rounds // every) + 1
        n = layout.arrays.place.agents
        self.judges = np.unique(np.linspace(0, n - 1, n if n <= SMALL else JUDGES).astype(int))

    # -- one round ------------------------------------------------------------------------------------------------

    def draw(self, cfg: Config, arrays: Arrays, key: Key[Array, ""], t: Array) -> dict[str, Array]:
        """This round's draws of all agents, keyed by (seed, round, agent, name): the same whatever the batching."""
        laws = self.algorithm.draws(cfg, arrays.place)
        round_key = jax.random.fold_in(key, t)

        def one(agent: Array) -> dict[str, Array]:
            own = jax.random.fold_in(round_key, agent)
            return {n: law.sample(jax.random.fold_in(own, k), self.dtype) for k, (n, law) in enumerate(laws.items())}

        return jax.vmap(one)(arrays.agent_ids)

    def emit(self, cfg: Config, arrays: Arrays, t: Array, state: Any, draw: dict[str, Array]) -> tuple:
        """Everybody's next state and message, and who spoke."""

        def one(place: Place, state: Any, shard: Any, draw: Any) -> tuple:
            state, out = self.algorithm.emit(cfg, place, t, state, shard, draw)
            return (state, out.message, out.sent) if isinstance(out, Maybe) else (state, out, jnp.array(True))

        parts = []
        for group in arrays.groups:
            place, own, dice = (rows(tree, slice(group.low, group.high)) for tree in (arrays.place, state, draw))
            parts.append(_over_agents(one, (place, own, group.shards, dice), group))
        return _join(parts)

    def absorb(self, cfg: Config, arrays: Arrays, t: Array, state: Any, message: Any, memory: list[Any]) -> tuple:
        """Everybody reads the last messages of its neighbours."""
        sums = None
        if arrays.adjacency is not None:
            ones, weights = arrays.adjacency
            sums = (
                jax.tree.map(lambda m: _product(ones, m).astype(m.dtype), message),
                jax.tree.map(lambda m: _product(weights, m), message),
            )
        with_edges = self.algorithm.has("edge")
        parts, memories = [], []
        for k, group in enumerate(arrays.groups):
            chunk = group.chunk

            def one(place: Place, state: Any, index: Any, weight: Any, here: Any, edge: Any, sums: Any) -> Any:
                inbox = Inbox(message, index, weight, here, edge, sums, chunk)  # noqa: B023
                return self.algorithm.absorb(cfg, place, t, state, inbox)

            place, own, neat = (rows(tree, slice(group.low, group.high)) for tree in (arrays.place, state, sums))
            out = jax.vmap(one, (axes(place), 0, 0, 0, 0, 0, 0))(
                place, own, group.index, group.weight, group.here, memory[k], neat
            )
            parts.append(out[0] if with_edges else out)
            memories.append(out[1] if with_edges else None)
        return _join(parts), memories

    def bits(self, cfg: Config, arrays: Arrays, message: Any) -> Array:
        """Size of each agent's message on the wire."""
        if self.algorithm.has("bits"):
            return jax.vmap(lambda p, m: self.algorithm.bits(cfg, p, m), (axes(arrays.place), 0))(arrays.place, message)
        numbers = [x.dtype.itemsize * 8 * x[0].size for x in jax.tree.leaves(message)]
        return jnp.full(arrays.place.agents, float(sum(numbers)), self.dtype)

    def duration(self, cfg: Config, arrays: Arrays, t: Array, draw: dict[str, Array]) -> Array:
        """Virtual seconds until the slowest agent is done with the round (0 where the algorithm keeps no time)."""
        if not self.algorithm.has("duration"):
            return jnp.zeros((), self.dtype)
        one = lambda p, d: self.algorithm.duration(cfg, p, t, d)  # noqa: E731
        return jnp.max(jax.vmap(one, (axes(arrays.place), 0))(arrays.place, draw))

    # -- measuring ------------------------------------------------------------------------------------------------

    def estimates(self, cfg: Config, arrays: Arrays, state: Any) -> Float[Array, "agents dim"]:
        """Every agent's answer."""
        return jax.vmap(lambda p, s: self.algorithm.estimate(cfg, p, s), (axes(arrays.place), 0))(arrays.place, state)

    def measure(self, cfg: Config, arrays: Arrays, state: Any) -> dict[str, Array]:
        """Train loss and test score, averaged over the judged agents' own models, and the disagreement of all."""
        points = self.estimates(cfg, arrays, state)
        judged = points[self.judges]
        problem = arrays.groups[0].shards.problem

        def objective(x: Array) -> Array:
            total = jnp.zeros((), x.dtype)
            for group in arrays.groups:
                total += jnp.sum(_over_agents(lambda s: s.value(x), (group.shards,), group))
            return total / arrays.place.agents

        records = sum(g.shards.targets.size for g in arrays.groups)
        loss = jax.vmap(objective)(judged) if records < 1 << 20 else jax.lax.map(objective, judged)
        gap = jnp.sqrt(jnp.mean(jnp.sum((points - points.mean(0)) ** 2, axis=1)))
        out = {"train_loss": jnp.mean(loss), "consensus_gap": gap}
        if self.test is not None:
            features, targets = self.test
            out["test_score"] = jnp.mean(jax.vmap(lambda x: problem.score(x, features, targets))(judged))
        return out

    # -- the loop -------------------------------------------------------------------------------------------------

    def begin(self, cfg: Config, arrays: Arrays) -> _Carry:
        """Everything before the first round: data-free states and the public messages that stand before any is sent."""
        place, n = arrays.place, arrays.place.agents
        per_agent = (axes(place),)
        state = jax.vmap(lambda p: self.algorithm.init(cfg, p), per_agent)(place)
        if self.algorithm.has("greeting"):
            message = jax.vmap(lambda p: self.algorithm.greeting(cfg, p), per_agent)(place)
        else:
            t = jnp.array(0, jnp.int32)
            draw = jax.eval_shape(lambda k: self.draw(cfg, arrays, k, t), jax.random.key(0))
            shape = jax.eval_shape(lambda s, d: self.emit(cfg, arrays, t, s, d)[1], state, draw)
            message = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shape)
        memory: list[Any] = [None] * len(arrays.groups)
        if self.algorithm.has("edge"):
            for k, g in enumerate(arrays.groups):
                edge = lambda p, slots: jax.vmap(lambda _: self.algorithm.edge(cfg, p))(slots)  # noqa: E731
                own = rows(place, slice(g.low, g.high))
                memory[k] = jax.vmap(edge, (axes(own), 0))(own, g.index)
        curves = {
            k: jnp.zeros(self.slots, v.dtype)
            for k, v in jax.eval_shape(lambda s: self.measure(cfg, arrays, s), state).items()
        }
        if self.algorithm.has("duration"):
            curves["time"] = jnp.zeros(self.slots, self.dtype)
        recorded: dict[str, Any] = {}
        if self.record:
            draw = jax.eval_shape(lambda k: self.draw(cfg, arrays, k, jnp.array(0)), jax.random.key(0))
            room = lambda s: jnp.zeros((self.rounds, *s.shape), s.dtype)  # noqa: E731
            recorded = {
                "messages": jax.tree.map(room, message),
                "draws": jax.tree.map(room, draw),
                "sent": jnp.zeros((self.rounds, n), bool),
            }
        nothing = jnp.zeros(n, self.dtype)
        return _Carry(
            state, message, memory, nothing.astype(jnp.int32), nothing, jnp.zeros((), self.dtype), curves, recorded
        )

    def advance(
        self,
        carry: _Carry,
        cfg: Config,
        arrays: Arrays,
        key: Key[Array, ""],
        replay: Any,
        low: Array,
        high: Array,
    ) -> _Carry:
        """Steps low … high − 1. Step t reads round t − 1's messages, measures, and emits round t's (not the last)."""

        def speak(t: Array, c: _Carry) -> _Carry:
            draw = self.draw(cfg, arrays, key, t) if replay is None else jax.tree.map(lambda d: d[t], replay)
            state, message, sent = self.emit(cfg, arrays, t, c.state, draw)
            message = jax.tree.map(lambda new, old: jnp.where(_as(sent, new), new, old), message, c.message)
            recorded = c.recorded
            if self.record:
                new = {"messages": message, "draws": draw, "sent": sent}
                recorded = jax.tree.map(lambda room, x: room.at[t].set(x), recorded, new)
            bits = c.bits + sent * self.bits(cfg, arrays, message)
            clock = c.clock + self.duration(cfg, arrays, t, draw)
            return _Carry(state, message, c.memory, c.sent + sent, bits, clock, c.curves, recorded)

        def step(t: Array, c: _Carry) -> _Carry:
            listen = lambda s, m: self.absorb(cfg, arrays, t - 1, s, c.message, m)  # noqa: E731
            state, memory = jax.lax.cond(t > 0, listen, lambda s, m: (s, m), c.state, c.memory)
            slot = (t + self.every - 1) // self.every

            def note(curves: dict[str, Array]) -> dict[str, Array]:
                now = {**self.measure(cfg, arrays, state), "time": c.clock}
                return {k: curves[k].at[slot].set(now[k]) for k in curves}

            due = (t % self.every == 0) | (t == self.rounds)
            curves = jax.lax.cond(due, note, lambda x: x, c.curves)
            c = eqx.tree_at(lambda c: (c.state, c.memory, c.curves), c, (state, memory, curves), is_leaf=_is_none)
            return jax.lax.cond(t < self.rounds, lambda c: speak(t, c), lambda c: c, c)

        return jax.lax.fori_loop(low, high, step, carry)


def simulate(
    algorithm: Algorithm,
    layout: Layout,
    runs: Sequence[Run],
    *,
    rounds: int,
    every: int = 1,
    test: Test | None = None,
    record: bool = False,
    replay: dict[str, np.ndarray] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Trace:
    """Run `rounds` rounds of every run at once and return what happened.

    `every`: measure the curves each so many rounds. `record`: keep all messages, draws and final states. `replay`:
    use these draws (rounds, agents, ...) instead of drawing. Ctrl-C ends the run early with what is done so far.
    """
    if rounds < 1:
        raise InputError(f"rounds must be at least 1, got {rounds}")
    if every < 1:
        raise InputError(f"every must be at least 1, got {every}")
    if not runs:
        raise InputError("there is nothing to run: the list of seeds is empty")
    if bad := [r.seed for r in runs if not 0 <= r.seed < 1 << 32]:
        raise InputError(f"seed must be from 0 to {(1 << 32) - 1}, got {bad[0]}")
    dtype = layout.arrays.place.start.dtype
    # A GPU would multiply float32 matrices in TF32, whose error no sensitivity bound covers.
    with jax.enable_x64(dtype == jnp.float64), jax.default_matmul_precision("highest"):
        program = _Program(algorithm, layout, rounds, every, record, test)
        arrays = layout.arrays
        keys = jax.vmap(jax.random.key)(jnp.asarray([r.seed for r in runs], jnp.uint32))
        cfg = _stack([r.cfg for r in runs], dtype)
        n = arrays.place.agents
        multipliers = [layout.arrange(np.broadcast_to(np.asarray(r.noise, float), (n,))) for r in runs]
        noise = jnp.asarray(np.stack(multipliers), dtype)
        again = None
        if replay is not None:
            again = {k: jnp.asarray(layout.arrange(np.asarray(v), axis=1)) for k, v in replay.items()}

        def begin(cfg: Config, arrays: Arrays, noise: Array) -> _Carry:
            return _over_runs(lambda c, z: program.begin(c, _noisy(arrays, z)), cfg, noise)

        def advance(
            carry: _Carry, cfg: Config, arrays: Arrays, noise: Array, keys: Array, low: Array, high: Array
        ) -> Any:
            one = lambda c, g, z, k: program.advance(c, g, _noisy(arrays, z), k, again, low, high)  # noqa: E731
            return _over_runs(one, carry, cfg, noise, keys)

        started = time.perf_counter()
        carry = jax.jit(begin)(cfg, arrays, noise)
        at = lambda t: jnp.asarray(t, jnp.int32)  # noqa: E731
        go = jax.jit(advance, donate_argnums=0).lower(carry, cfg, arrays, noise, keys, at(0), at(0)).compile()
        compile_s = time.perf_counter() - started

        started = time.perf_counter()
        done, piece = 0, 8
        with _interruptible() as interrupted:
            while done < rounds + 1 and not (interrupted() and done):
                piece_start = time.perf_counter()
                stop = min(done + piece, rounds + 1)
                carry = jax.block_until_ready(go(carry, cfg, arrays, noise, keys, at(done), at(stop)))
                seconds = time.perf_counter() - piece_start
                piece = int(np.clip(piece * PIECE_SECONDS / max(seconds, 1e-6), 1, 8 * piece))
                done = stop
                if progress is not None:
                    progress(min(done, rounds))
        run_s = time.perf_counter() - started

        points = jax.jit(jax.vmap(lambda c, s, z: program.estimates(c, _noisy(arrays, z), s)))(cfg, carry.state, noise)
        return _trace(program, layout, carry, points, done, {"compile_s": compile_s, "run_s": run_s})


@contextmanager
def _interruptible() -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C is noted and ends the loop between two pieces; a second one stops at once."""
    hits: list[int] = []

    def note(number: int, frame: Any) -> None:
        hits.append(number)
        if len(hits) > 1:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # signals belong to the main thread
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(hits)
    finally:
        signal.signal(signal.SIGINT, before)


def _trace(program: _Program, layout: Layout, carry: _Carry, points: Array, done: int, timing: dict) -> Trace:
    completed = min(done, program.rounds)
    due = [t for t in range(program.rounds + 1) if t % program.every == 0 or t == program.rounds]
    slots = [k for k, t in enumerate(due) if t < done]
    put = lambda x, axis: layout.restore(np.asarray(x), axis)  # noqa: E731
    trace = Trace(
        points=put(points, 1),
        rounds=np.array([due[k] for k in slots]),
        curves={k: np.asarray(v)[:, slots] for k, v in carry.curves.items()},
        sent=put(carry.sent, 1),
        bytes=put(carry.bits, 1) / 8,
        completed=completed,
        timing=timing,
    )
    if program.record:
        trace.messages = jax.tree.map(lambda x: put(x, 2), carry.recorded["messages"])
        trace.draws = {k: put(v, 2) for k, v in carry.recorded["draws"].items()}
        trace.states = jax.tree.map(lambda x: put(x, 1), carry.state)
        trace.extras["sent"] = put(carry.recorded["sent"], 2)
    return trace


def _is_none(x: Any) -> bool:
    return x is None


def _noisy(arrays: Arrays, noise: Array) -> Arrays:
    return eqx.tree_at(lambda a: a.place.noise, arrays, noise)


def _stack(configs: Sequence[Config], dtype: Any) -> Config:
    """One config whose numbers carry a leading run axis."""
    structures = {jax.tree.structure(c) for c in configs}
    if len(structures) > 1:
        raise InputError("runs of one batch may differ in numbers only, not in options or in which numbers are set")
    return jax.tree.map(lambda *x: jnp.asarray(x, dtype), *configs)


def _over_runs(f: Callable, *args: Any) -> Any:
    """f over the batch of runs; a single run is not batched, which would cost it a fifth of its speed."""
    if jax.tree.leaves(args[-1])[0].shape[0] > 1:
        return jax.vmap(f)(*args)
    return jax.tree.map(lambda x: x[None], f(*jax.tree.map(lambda x: x[0], args)))


def _over_agents(f: Callable, args: tuple, group: Group) -> Any:
    """f over the agents of a group: batched, or one after the other where that is faster."""
    if not group.one_by_one:
        return jax.vmap(f, tuple(axes(a) for a in args))(*args)
    return jax.lax.map(lambda i: f(*(rows(a, i) for a in args)), jnp.arange(group.high - group.low))


def _join(parts: list[Any]) -> Any:
    return parts[0] if len(parts) == 1 else jax.tree.map(lambda *x: jnp.concatenate(x), *parts)


def _as(mask: Array, x: Array) -> Array:
    return mask.reshape(mask.shape + (1,) * (x.ndim - 1))


def _product(matrix: Array, m: Array) -> Array:
    return (matrix @ m.reshape(m.shape[0], -1).astype(matrix.dtype)).reshape(m.shape)
