"""One run over many devices and hosts: agents are spread, and only messages along cut edges travel.

Every device holds a part of the agents and runs the program of `coterie.drivers.program` on them (`shard_map`: one
program, many devices). Before agents read their inboxes, the messages that cross between parts are exchanged by a few
collective permutes, so a round moves (boundary agents) × (message) numbers, whatever the number of agents. Draws are
keyed by (seed, round, agent), so the result is that of one device, up to the order of sums in measurements.

Parts are padded to one shape with copies of agents; nobody reads a copy's messages and no sum counts it.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as Spec
from jaxtyping import Array, Bool, Int

import coterie
from coterie.algorithms.base import Algorithm, Config
from coterie.algorithms.batches import SHARED
from coterie.drivers.checkpoint import Checkpoint
from coterie.drivers.compiled import noisy, over_runs
from coterie.drivers.layout import Arrays, Terrain
from coterie.drivers.partition_graph import Traffic, make_traffic, partition_graph
from coterie.drivers.program import Held, LoopCarry, Program, Test
from coterie.drivers.seeds import IMPL, keys_of
from coterie.drivers.simulate import Run, Trace, check_runs, in_pieces, make_trace, stack
from coterie.errors import InputError
from coterie.exchange.choice import Broadcast, Exchange

T = TypeVar("T")

__all__ = ["Part", "Shards", "make_mesh", "make_shards", "simulate_shards"]

AXIS = "devices"
EACH, RUNS, ALL = Spec(AXIS), Spec(None, AXIS), Spec()  # per agent; per run and agent; the same everywhere


class Part(Arrays):
    """One device's agents: neighbour lists point into its own messages followed by those it receives."""

    real: Bool[Array, " agents"]  # False for the copies that pad the part
    judge: Int[Array, " judges"]  # where the judged agents are, if they are here …
    mine: Bool[Array, " judges"]  # … and whether they are
    send: list[Int[Array, " messages"]]  # whose messages leave in each wave
    everyone: Int[Array, " all"] | None  # where each agent's message is then, if everybody hears everybody


@dataclass(frozen=True, eq=False)
class Shards:
    """The parts of all devices as global arrays, and who sits where."""

    arrays: Part
    mesh: Mesh
    traffic: Traffic
    members: np.ndarray  # (devices, agents of a device): the plan's agent numbers
    real: np.ndarray  # (devices, agents of a device)

    def restore(self, x: np.ndarray, axis: int = 0) -> np.ndarray:
        """Put the agent axis back into the plan's order, without padding."""
        position = np.empty(self.arrays.place.agents, int)
        position[self.members[self.real]] = np.flatnonzero(self.real.ravel())
        return np.take(x, position, axis=axis)

    def arrange(self, x: np.ndarray, axis: int = 0) -> np.ndarray:
        """Put the agent axis of something in the plan's order into the devices' order."""
        return np.take(x, self.members.ravel(), axis=axis)


def make_mesh(devices: int | None = None) -> Mesh:
    """The first `devices` devices (default: all, of all processes) in one row."""
    found = jax.devices()
    if devices is not None and not 1 <= devices <= len(found):
        raise InputError(f"--devices must be from 1 to {len(found)} here, got {devices}")
    if devices is not None and devices < len(found) and jax.process_count() > 1:
        raise InputError(f"--devices must be 'all' with {jax.process_count()} processes, got {devices}")
    return Mesh(np.array(found[:devices]), (AXIS,))


def make_shards(*what: Any, mesh: Mesh, **options: Any) -> Shards:
    """Spread the agents of a `Terrain` (what it takes, and a mesh) over devices, cutting few edges."""
    terrain = Terrain(*what, **options)
    parts = mesh.devices.size
    if parts > len(terrain.parts):
        raise InputError(f"{parts} devices for {len(terrain.parts)} parties: use at most one device per party")
    labels = partition_graph(terrain.graph, parts, terrain.key)
    traffic = make_traffic(terrain.graph, labels)
    members, real, lows = _seats(terrain, labels, parts)
    mine = [p for p, device in enumerate(mesh.devices) if device.process_index == jax.process_index()]
    shares = []
    for p in mine:
        with jax.default_device(mesh.devices[p]):
            shares.append(_part(terrain, traffic, members[p], real[p], lows, p))
    return Shards(_globally(shares, mesh), mesh, traffic, members, real)


def _seats(terrain: Terrain, labels: np.ndarray, parts: int) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Agents of every device, class by class, each class padded to its largest share; and where classes begin."""
    blocks, masks, lows, low = [], [], [], 0
    for k in np.unique(terrain.key):
        everybody = np.flatnonzero(terrain.key == k)
        own = [everybody[labels[everybody] == p] for p in range(parts)]
        size = max(map(len, own))
        fill = [np.resize(a if len(a) else everybody[:1], size) for a in own]
        blocks.append(np.stack(fill))
        masks.append(np.arange(size) < np.array([len(a) for a in own])[:, None])
        lows.append(low)
        low += size
    return np.concatenate(blocks, 1), np.concatenate(masks, 1), [*lows, low]


def _part(
    terrain: Terrain, traffic: Traffic, members: np.ndarray, real: np.ndarray, lows: list[int], p: int
) -> Part:  # fmt: skip
    size = len(members)
    position = np.zeros(len(terrain.parts), int)  # a copy of somebody else's agent may read anything
    position[members[real]] = np.flatnonzero(real)
    at, send = position.copy(), []
    for k, wave in enumerate(traffic.waves):
        length = traffic.length(k)
        leaving = next((traffic.needs[p, q] for source, q in wave if source == p), members[:0])
        send.append(jnp.asarray(np.pad(position[leaving], (0, length - len(leaving))), jnp.int32))
        arriving = next((traffic.needs[q, p] for q, target in wave if target == p), members[:0])
        at[arriving] = size + np.arange(len(arriving))
        size += length
    everyone = None
    if (terrain.graph.degrees == len(terrain.parts) - 1).all():  # slots then number the agents as on one device
        everyone, at, size = jnp.asarray(at[terrain.order], jnp.int32), np.argsort(terrain.order), len(terrain.parts)
    groups = [terrain.group(low, members[low:high], at) for low, high in pairwise(lows)]
    judges = terrain.order[Program.judged(len(terrain.parts))]
    here = np.isin(judges, members[real])
    return Part(
        groups,
        terrain.place(members),
        jnp.asarray(members, jnp.int32),
        terrain.matrices(members, at, size) if terrain.dense else None,
        jnp.asarray(real),
        jnp.asarray(np.where(here, position[judges], 0), jnp.int32),
        jnp.asarray(here),
        send,
        everyone,
    )


def _spec(path: tuple, x: Array) -> Spec:
    """Where an array of a part lies; of a schedule each agent may have a row of its own."""
    name = getattr(path[-1], "name", None)
    return ALL if name in SHARED and (name != "shape" or x.ndim == 1) else EACH


def _globally(shares: list[Part], mesh: Mesh) -> Part:
    """The parts of this process's devices as parts of global arrays."""

    def join(path: tuple, *pieces: Array) -> Array:
        spec = _spec(path, pieces[0])
        return assemble(list(pieces), NamedSharding(mesh, spec), 0 if spec == EACH else None)

    return jax.tree_util.tree_map_with_path(join, *shares)


def assemble(pieces: list[Array], sharding: NamedSharding, axis: int | None) -> Array:
    """A global array of this process's pieces, split along `axis` (None: the same on every device)."""
    shape = list(pieces[0].shape)
    if axis is not None:
        shape[axis] *= sharding.mesh.size
    return jax.make_array_from_single_device_arrays(tuple(shape), sharding, pieces)


class ShardedProgram(Program):
    """The program on one device's part, with the sums and messages that reach beyond it."""

    def __init__(
        self, algorithm: Algorithm, shards: Shards, rounds: int, every: int, test: Test | None,
        exchange: Exchange | None,
    ):  # fmt: skip
        super().__init__(algorithm, shards, rounds, every, False, test, exchange)
        self.traffic, self.later = shards.traffic, False

    def reach(self, arrays: Arrays, message: T) -> T:
        """Own messages, then what each wave brought from other devices."""
        assert isinstance(arrays, Part)
        blocks = [message]
        for rows, pairs in zip(arrays.send, self.traffic.waves, strict=True):
            leaving = jax.tree.map(lambda m: m[rows], message)  # noqa: B023
            blocks.append(jax.tree.map(lambda m: jax.lax.ppermute(m, AXIS, pairs), leaving))  # noqa: B023
        found = jax.tree.map(lambda *x: jnp.concatenate(x), *blocks)
        return found if arrays.everyone is None else jax.tree.map(lambda m: m[arrays.everyone], found)

    def total(self, arrays: Arrays, x: Array, low: int = 0) -> Array:
        assert isinstance(arrays, Part)
        real = arrays.real[low : low + x.shape[0]].reshape(-1, *[1] * (x.ndim - 1))
        return jax.lax.psum(jnp.sum(jnp.where(real, x, 0), axis=0, dtype=x.dtype), AXIS)

    def largest(self, x: Array) -> Array:
        return jax.lax.pmax(jnp.max(x), AXIS)

    def pick(self, arrays: Arrays, points: Array) -> Array:
        assert isinstance(arrays, Part)
        return jax.lax.psum(jnp.where(arrays.mine[:, None], points[arrays.judge], 0), AXIS)


def simulate_shards(
    algorithm: Algorithm,
    shards: Shards,
    runs: Sequence[Run],
    *,
    rounds: int,
    every: int = 1,
    test: Test | None = None,
    exchange: Exchange | None = None,
    progress: Callable[[int], None] | None = None,
    checkpoint: Checkpoint | None = None,
) -> Trace:
    """`coterie.drivers.simulate.simulate` over the devices of a mesh; every process calls it and gets the trace.

    With a `checkpoint` the run's state is stored every so many rounds and at the end, and a run that finds a stored
    state goes on from there. Ctrl-C in any process ends all of them after the same round.
    """
    check_runs(runs, rounds, every)
    if exchange is not None and exchange.sums_only:
        raise InputError("exchange.kind = 'secret-sum' runs on one device: every party hears from every other in it")
    arrays, mesh = shards.arrays, shards.mesh
    dtype = arrays.place.start.dtype
    with jax.enable_x64(dtype == jnp.float64), jax.default_matmul_precision("highest"):
        started = time.perf_counter()
        program = ShardedProgram(algorithm, shards, rounds, every, test, exchange)
        everywhere = lambda x: _put(np.asarray(x), NamedSharding(mesh, ALL))  # noqa: E731
        cfg = jax.tree.map(everywhere, stack([r.cfg for r in runs], dtype))
        words = everywhere(jax.random.key_data(keys_of([r.seed for r in runs])))
        n = arrays.place.agents
        noise = np.stack([shards.arrange(np.broadcast_to(np.asarray(r.noise, float), (n,))) for r in runs])
        multipliers = _put(noise.astype(dtype), NamedSharding(mesh, RUNS))
        program.test = held_out = None if program.test is None else jax.tree.map(everywhere, program.test)
        spread = jax.tree_util.tree_map_with_path(_spec, arrays)

        def begin(cfg: Config, part: Part, z: Array, held_out: Held) -> tuple:
            program.test = held_out
            return over_runs(lambda c, z: _apart(program.begin(c, noisy(part, z))), cfg, z)

        def ahead(carry: tuple, cfg: Config, part: Part, z: Array, words: Array, held_out: Held, *span: Array) -> tuple:
            program.test = held_out

            def one(carry: tuple, cfg: Config, z: Array, own: Array) -> tuple:
                whole = LoopCarry(*carry[0], *carry[1], None)  # type: ignore[call-arg]
                key = jax.random.wrap_key_data(own, impl=IMPL)
                return _apart(program.advance(whole, cfg, noisy(part, z), key, None, *span))

            return over_runs(one, carry, cfg, z, words)

        def answers(state: object, cfg: Config, part: Part, z: Array) -> Array:
            return jax.vmap(lambda s, c, z: program.estimates(c, noisy(part, z), s))(state, cfg, z)

        on = lambda f, given, out: jax.shard_map(  # noqa: E731
            f, mesh=mesh, in_specs=given, out_specs=out, check_vma=False
        )
        carried = (RUNS, ALL)
        start = jax.jit(on(begin, (ALL, spread, RUNS, ALL), carried))
        forward = jax.jit(on(ahead, (carried, ALL, spread, RUNS, ALL, ALL, ALL, ALL), carried), donate_argnums=0)
        carry, done = start(cfg, arrays, multipliers, held_out), 0
        at = lambda t: everywhere(np.int32(t))  # noqa: E731
        rest = (cfg, arrays, multipliers, words, held_out)
        compiled = forward.lower(carry, *rest, at(0), at(0)).compile()
        if checkpoint is not None:
            found = checkpoint.load(_fingerprint(algorithm, shards, runs, rounds, every, noise, exchange), carry)
            carry, done = found or (carry, 0)
        first, compile_s = done, time.perf_counter() - started

        def advance(low: int, high: int) -> None:
            nonlocal carry
            carry = jax.block_until_ready(compiled(carry, *rest, at(low), at(high)))

        keep = None if checkpoint is None else lambda done: checkpoint.save(done, carry)
        started = time.perf_counter()
        done = in_pieces(
            advance, done, rounds + 1, progress, _agree, keep, checkpoint.every if checkpoint is not None else 0
        )
        timing = {"compile_s": compile_s, "run_s": time.perf_counter() - started}
        (state, message, _, *each), shared = carry
        points = jax.jit(on(answers, (RUNS, ALL, spread, RUNS), RUNS))(state, cfg, arrays, multipliers)
        seen = SimpleNamespace(**dict(zip(("sent", "bits", "cut", "clock", "curves"), (*each, *shared), strict=True)))
        for name, value in vars(seen).items():
            setattr(seen, name, jax.tree.map(fetch, value))
        trace = make_trace(program, shards, seen, fetch(points), done, timing)
        trace.extras |= {"resumed": max(0, first - 1), "crossing_bytes": _crossing(shards, message, len(runs))}
        return trace


def _apart(c: LoopCarry) -> tuple[tuple, tuple]:
    """What a carry holds of each agent, and what is the same everywhere."""
    return (c.state, c.message, c.memory, c.sent, c.bits), (c.cut, c.clock, c.curves)


def _agree(stop: bool, seconds: float) -> tuple[bool, float]:
    """All processes stop together, and after equally many rounds: the slowest one's clock counts."""
    if jax.process_count() == 1:
        return stop, seconds
    with jax.enable_x64(False):
        heard = multihost_utils.process_allgather(np.array([stop, seconds], np.float32))
    return bool(heard[:, 0].max()), float(heard[:, 1].max())


def _put(x: np.ndarray, sharding: NamedSharding) -> Array:
    """A host array that every process holds as a global array."""
    return jax.make_array_from_callback(x.shape, sharding, lambda at: x[at])


def fetch(x: Array) -> np.ndarray:
    """The whole of a global array, on every process."""
    return np.asarray(x if x.is_fully_addressable else multihost_utils.process_allgather(x, tiled=True))


def _crossing(shards: Shards, message: object, runs: int) -> int:
    """Bytes between devices in one round: boundary agents × size of a message × runs."""
    each = sum(x.dtype.itemsize * int(np.prod(x.shape[2:])) for x in jax.tree.leaves(message))
    return shards.traffic.messages * each * runs


def _fingerprint(
    algorithm: Algorithm, shards: Shards, runs: Sequence[Run], rounds: int, every: int, noise: np.ndarray,
    exchange: Exchange | None,
) -> str:  # fmt: skip
    """Tells this run from others: code version, settings, seeds, noise, seats, sizes and a sample of the records."""
    what = [coterie.__version__, algorithm.slug, rounds, every, [(r.seed, repr(r.cfg)) for r in runs]]
    digest = hashlib.sha256(repr((what, repr(exchange or Broadcast()), jax.process_index())).encode())
    for x in (noise, shards.members, shards.real):
        digest.update(np.ascontiguousarray(x).tobytes())
    for leaf in jax.tree.leaves(eqx.filter(shards.arrays, eqx.is_array)):
        digest.update(repr((leaf.shape, str(leaf.dtype))).encode())
        for shard in leaf.addressable_shards:
            digest.update(
                np.asarray(shard.data[:: max(1, len(shard.data) // 16)] if leaf.ndim else shard.data).tobytes()
            )
    return digest.hexdigest()
