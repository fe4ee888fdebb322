"""The compiled programs of a run: made once for all runs of equal structure and shapes, and kept for later ones.

How many rounds a piece of the loop takes is an argument of its program. So is how many there are in all, where the
algorithm does not ask (`ANY_LENGTH`).
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple, TypeVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from coterie.algorithms.base import Config
from coterie.compiler import Options, of_runs, quickly
from coterie.drivers.layout import Arrays, Group
from coterie.drivers.program import ROOM, Held, LoopCarry, Program
from coterie.problems import HeldShard
from coterie.problems.sparse import Sparse

__all__ = ["Compiled", "compiled", "for_any_length", "kept", "noisy", "over_runs"]

T = TypeVar("T")
A = TypeVar("A", bound=Arrays)
ROUNDS, SLOTS = 1024, 48  # a program that serves any number of rounds has room for so many, or a multiple of that
KEEP = 32  # compiled programs kept for later runs of equal structure and shapes


class Compiled(NamedTuple):
    """The three compiled functions of a run, for arguments of one structure and of one set of shapes."""

    begin: Callable[..., LoopCarry]
    advance: Callable[..., LoopCarry]
    estimates: Callable[..., Array]


_KEPT: OrderedDict[object, object] = OrderedDict()  # the last programs compiled, the latest at the end


def kept(code: tuple, given: object, compile_it: Callable[[], T]) -> T:
    """What `compile_it` makes, or made before of the same code for arguments of the same structure and shapes."""
    leaves, structure = jax.tree.flatten(given)
    where = (jax.default_backend(), getattr(jax.config, "jax_default_device", None))
    key = (*code, *where, structure, tuple(jax.typeof(leaf) for leaf in leaves))
    try:
        if key in _KEPT:
            _KEPT.move_to_end(key)
            return cast(T, _KEPT[key])
    except TypeError:
        return compile_it()
    made = _KEPT[key] = compile_it()
    if len(_KEPT) > KEEP:
        _KEPT.popitem(last=False)
    return made


def compiled(program: Program, cfg: Config, arrays: Arrays, noise: Array, keys: Array, again: object) -> Compiled:
    """Compile, or find what an equal run compiled: same algorithm, same static structure, same shapes.

    Whatever tracing reads is in the key or is an argument; functions and modules are told apart by identity, so a
    changed copy of an algorithm is another algorithm. A structure that cannot be hashed is compiled each time.
    """
    recorded, how = program.rounds if program.record else None, _how(program, arrays, len(noise))
    code = (type(program), program.algorithm, program.slots, recorded, program.later, *sorted(how.items()))
    given = (cfg, arrays, noise, keys, program.test, again, program.exchange)
    return kept(code, given, lambda: _compile(program, cfg, arrays, noise, keys, again, how))


def _how(program: Program, arrays: Arrays, runs: int) -> Options:
    """How to compile the loop so that it takes least in all: in every round it reads all records, or matrices too."""
    solves, d = program.algorithm.solves, arrays.place.dim

    def read(group: Group) -> float:
        shards = group.shards
        if not isinstance(shards, HeldShard):
            return math.inf
        features = shards.features
        records = features.read(runs) if isinstance(features, Sparse) else shards.targets.size * d
        return float(records + (group.high - group.low) * d**2 * solves)

    return of_runs(runs, cast(int, program.rounds) * sum(map(read, arrays.groups)), solves)


def _compile(
    program: Program, cfg: Config, arrays: Arrays, noise: Array, keys: Array, again: object, how: Options
) -> Compiled:
    def with_test(test: Held) -> Program:  # its records are an argument: constants would tie the program to them
        other = copy.copy(program)
        other.test = test
        return other

    def begin(cfg: Config, arrays: Arrays, noise: Array, test: Held) -> LoopCarry:
        return over_runs(lambda c, z: with_test(test).begin(c, noisy(arrays, z)), cfg, noise)

    def advance(
        carry: LoopCarry, cfg: Config, arrays: Arrays, noise: Array, keys: Array, test: Held, again: object,
        low: Array, high: Array, rounds: Array, every: Array,
    ) -> LoopCarry:  # fmt: skip
        own = with_test(test)
        own.rounds, own.every = rounds, every
        one = lambda c, g, z, k: own.advance(c, g, noisy(arrays, z), k, again, low, high)  # noqa: E731
        return over_runs(one, carry, cfg, noise, keys)

    def estimates(cfg: Config, arrays: Arrays, noise: Array, state: object) -> Array:
        return jax.vmap(lambda c, s, z: program.estimates(c, noisy(arrays, z), s))(cfg, state, noise)

    test, program.test = program.test, None  # so that nothing kept for later holds anybody's records
    try:
        started = jax.jit(begin).lower(cfg, arrays, noise, test).compile(quickly())
        carry = started.out_info
        zero = jax.ShapeDtypeStruct((), jnp.int32)
        ahead = jax.jit(advance, donate_argnums=0)
        return Compiled(
            started,
            ahead.lower(carry, cfg, arrays, noise, keys, test, again, *[zero] * 4).compile(how),
            jax.jit(estimates).lower(cfg, arrays, noise, carry.state).compile(quickly()),
        )
    finally:
        program.test = test


def for_any_length(program: Program) -> Callable[[A], A]:
    """Arrays as the program takes them: where it can, without how many rounds there are in their structure."""

    def fit(arrays: A) -> A:
        place = arrays.place
        # no round that there is none of is ever without noise
        shape = np.pad(place.shape, (0, _in_steps(place.rounds, ROUNDS) - place.rounds), mode="edge")
        shape, horizon = jax.device_put((shape, np.int32(place.rounds)))
        place = dataclasses.replace(place, rounds=cast(int, None), shape=shape, horizon=horizon)
        return eqx.tree_at(lambda a: a.place, arrays, place)

    slots = _in_steps(program.slots, SLOTS)
    if not program.later or slots * program.judges.size * program.dim <= ROOM:  # models wait in their slots
        program.slots = slots
    return fit


def _in_steps(number: int, step: int) -> int:
    """The next multiple of a step."""
    return -(-number // step) * step


def noisy(arrays: A, noise: Array) -> A:
    """The arrays with these noise multipliers in every agent's place."""
    return eqx.tree_at(lambda a: a.place.noise, arrays, noise)


def over_runs(f: Callable[..., T], *args: object) -> T:
    """f over the batch of runs; a single run is not batched, which would cost it a fifth of its speed."""
    if jax.tree.leaves(args[-1])[0].shape[0] > 1:
        return jax.vmap(f)(*args)
    return jax.tree.map(lambda x: x[None], f(*jax.tree.map(lambda x: x[0], args)))
