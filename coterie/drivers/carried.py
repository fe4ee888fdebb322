"""What a loop need not carry twice: numbers of a state that are the very message that was sent.

In most algorithms an agent keeps what it sends. A compiled loop that carried both would copy everybody's messages in
every round, which is a twentieth of a round of a million agents. So such numbers are carried as messages alone; before
the first round, when nothing was sent, they are made anew, as a state is data-free then.
"""

from __future__ import annotations

import copy
import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.extend.core import Var
from jaxtyping import Array, Key

from coterie.algorithms.base import Config
from coterie.algorithms.inbox import Maybe
from coterie.exchange.choice import Broadcast

if TYPE_CHECKING:
    from coterie.drivers.layout import Arrays
    from coterie.drivers.program import LoopCarry, Program

__all__ = ["MANY", "Carried", "carried"]

MANY = 1 << 22  # numbers of all states below which a copy is not worth a second look at the algorithm


class Carried(NamedTuple):
    """Which leaves of a state are which of the message; `first` has the leaves of the state before the first round."""

    same: list[int | None]
    first: list[Array]

    def slim(self, carry: LoopCarry) -> LoopCarry:
        """Without what is carried as a message."""
        kept = [x for x, k in zip(jax.tree.leaves(carry.state), self.same, strict=True) if k is None]
        return eqx.tree_at(lambda c: c.state, carry, kept)

    def full(self, carry: LoopCarry, like: object, sent: Array | None = None) -> LoopCarry:
        """With a whole state, of the structure of `like`; where nothing was `sent` yet, the first one."""
        kept, said = iter(jax.tree.leaves(carry.state)), jax.tree.leaves(carry.message)
        leaves = []
        for k, first in zip(self.same, self.first, strict=True):
            if k is None:
                leaves.append(next(kept))
            else:
                leaves.append(said[k] if sent is None else jnp.where(sent, said[k], first))
        return eqx.tree_at(lambda c: c.state, carry, jax.tree.unflatten(jax.tree.structure(like), leaves))

    def before(self, state: object) -> object:
        """The state as it stands before the first round, where that is not carried."""
        pairs = zip(jax.tree.leaves(state), self.same, self.first, strict=True)
        leaves = [own if k is None else first for own, k, first in pairs]
        return jax.tree.unflatten(jax.tree.structure(state), leaves)


def carried(program: Program, cfg: Config, arrays: Arrays, key: Key[Array, ""], carry: LoopCarry) -> Carried | None:
    """What this algorithm keeps of what it sends, as its own code shows; None where there is nothing to gain."""
    large = sum(x.size for x in jax.tree.leaves(carry.state)) >= MANY
    plainly = type(program.exchange) is Broadcast and arrays.place.present is None and not program.streams
    if not (large and plainly):
        return None
    silent = []

    def emit(*args: Any) -> Any:
        out = program.algorithm.emit(*args)
        silent.append(isinstance(out[1], Maybe))
        return out

    probe = copy.copy(program)
    probe.algorithm = dataclasses.replace(program.algorithm, emit=emit)
    now = jnp.zeros((), jnp.int32)
    draw = jax.eval_shape(lambda: program.draw(cfg, arrays, key, now))
    traced = jax.make_jaxpr(lambda s, d: probe.emit(cfg, arrays, now, s, d)[:2])(carry.state, draw).jaxpr
    count = len(jax.tree.leaves(carry.state))
    states, said = traced.outvars[:count], traced.outvars[count:]
    same = [next((k for k, m in enumerate(said) if isinstance(s, Var) and m is s), None) for s in states]
    if any(silent) or all(k is None for k in same):
        return None
    return Carried(same, jax.tree.leaves(program.starts(cfg, arrays)))
