"""One party's half of every round as pure functions: the `emit` and `absorb` of a simulation, for a single agent.

Whole numbers are at the border: a turn takes the integers that arrived and returns the integers that leave. Nothing
here knows a record: `Turns` is all that a party needs to take part but its records, and can be made in another process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import serialize_executable
from jaxtyping import Array, Float, Int

from coterie.algorithms.base import Law
from coterie.algorithms.inbox import Inbox
from coterie.algorithms.laws import Grid
from coterie.deploy.data import Outline
from coterie.deploy.frames import Wire
from coterie.deploy.noise import UNITS, Steps
from coterie.deploy.sharing import Sharing
from coterie.deploy.terms import Terms
from coterie.drivers import agent
from coterie.errors import InputError
from coterie.exchange.fixed_point import to_steps
from coterie.privacy.events import Event
from coterie.problems import HeldShard

__all__ = ["Carry", "SharedWork", "Turns", "Work", "wire_of"]


class Carry(NamedTuple):
    """What a party takes from round to round, and stores with every message so that it can go on after a crash."""

    kept: tuple[Array | np.ndarray, ...]  # the leaves of the algorithm's state and of its memory of each neighbour
    heard: tuple[Int[Array, " count"] | np.ndarray, ...]  # the last integers of every neighbour …
    when: Int[Array, " neighbours"] | np.ndarray  # … and their round; −1: nothing yet


def wire_of(terms: Terms | Turns, count: int) -> Wire:
    """Length and limits of everybody's messages, where they are broadcast."""
    limit, width = terms.steps.limit.tolist(), terms.steps.width
    most = lambda sender, round: limit[sender][round]  # noqa: E731
    return Wire(count, width, terms.rounds, most, terms.steps.bits)  # type: ignore[arg-type]


class Work:
    """One node of the terms: what it computes in a round."""

    def __init__(self, terms: Terms, node: int):
        self._terms, self.node, self._dtype = terms, node, f"int{8 * terms.steps.width}"
        network, self._algorithm, self._cfg = terms.network, terms.priced.algorithm, terms.priced.cfg
        self.neighbours, self.outline = np.asarray(network.graph.neighbours(node)), terms.outline(node)
        algorithm, cfg = self._algorithm, self._cfg
        with jax.enable_x64(True):
            self._place = terms.place(node)
            low, high = network.graph.indptr[node : node + 2]
            self._weights = jax.device_put(network.mixing.edge_weights[low:high])
            self._sizes = jax.device_put(terms.steps.size)
            self._limits = jax.device_put(terms.steps.limit)
            self.laws = terms.draws(node)
            draw = {name: jax.ShapeDtypeStruct(law.shape, jnp.float64) for name, law in self.laws.items()}
            state, memory = jax.eval_shape(self._start)
            self._structure = jax.tree.structure((state, memory))
            say = lambda s, shard, d: agent.speak(algorithm, cfg, self._place, jnp.array(0), s, shard, d)[1]  # noqa: E731
            self._message = jax.eval_shape(say, state, self.outline.blank(), draw)
            leaves = jax.tree.leaves(self._travelling(self._message))
            if any(not jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in leaves):
                raise InputError(f"{algorithm.slug} cannot be deployed: its messages are not all numbers on a grid")
            self.count = sum(int(np.prod(leaf.shape)) for leaf in leaves)
            self._greetings = self._greet()

    def _start(self) -> tuple[Any, Any]:
        """State, and memory of each neighbour if the algorithm keeps any, before the first round."""
        return agent.begin(self._algorithm, self._cfg, self._place, len(self.neighbours))

    def begin(self) -> Carry:
        """Everything before the first round: data-free."""
        nobody = len(self.neighbours)
        heard = (jnp.zeros(self.count, self._dtype),) * nobody
        return Carry(tuple(jax.tree.leaves(self._start())), heard, jnp.full(nobody, -1))

    def _parts(self, carry: Carry) -> tuple[Any, Any]:
        """State and memory. Between rounds they are bare leaves, which take less time to hand to a compiled turn."""
        return jax.tree.unflatten(self._structure, carry.kept)  # type: ignore[no-any-return]

    def _listen(self, t: Array, carry: Carry) -> Carry:
        """Absorb round t − 1, if there was one."""
        algorithm, cfg = self._algorithm, self._cfg

        def absorb(c: Carry) -> Carry:
            state, memory = self._parts(c)
            new = agent.hear(algorithm, cfg, self._place, t - 1, state, self._inbox(c, memory))
            return Carry(tuple(jax.tree.leaves(new)), c.heard, c.when)

        return jax.lax.cond(t > 0, absorb, lambda c: c, carry)

    def _inbox(self, c: Carry, memory: Any) -> Inbox:
        steps = self._sizes[self.neighbours, jnp.maximum(c.when, 0)]
        values = jnp.where((c.when >= 0)[:, None], jnp.stack(c.heard) * steps[:, None], self._greetings)
        return agent.facing(jax.vmap(self._unflatten)(values), self._weights, memory, jnp.asarray(self.neighbours))

    def turn(self, shard: HeldShard, t: Array, carry: Carry, draw: dict) -> tuple[tuple, Array, Array]:
        """Make up for round t − 1's messages (in `carry`) and speak in round t.

        Returned: what is kept, what leaves, and whether to send it. Records are an argument of whatever is compiled:
        as constants they would be part of the program, and so of every place where the compiler puts one.
        """
        algorithm, cfg = self._algorithm, self._cfg
        before, memory = self._parts(self._listen(t, carry))
        state, message, sent = agent.speak(algorithm, cfg, self._place, t, before, shard, draw)
        values = jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(self._travelling(message))])
        return tuple(jax.tree.leaves((state, memory))), self._said(values, t), sent

    def _said(self, values: Array, t: Array) -> Array:
        """What leaves of a message."""
        limit = self._limits[self.node, t]
        # The noise is on already: to cut a number at the public bound is to process what is released. One that is not
        # finite can only come of released numbers that overflowed, since a record's part is bounded: it is 0 then. To
        # stop instead would be a message that nobody has paid for.
        return to_steps(values, self._sizes[self.node, t], limit).astype(self._dtype)

    def answer(self, carry: Carry) -> Float[Array, " dim"]:
        """The model after the last round's messages."""
        state, _ = self._parts(self._listen(jnp.array(self._terms.rounds), carry))
        return agent.answer(self._algorithm, self._cfg, self._place, state)

    def _travelling(self, message: Any) -> Any:
        """The part of a message that leaves: all of it, or the fields that neighbours need."""
        fields = self._algorithm.travels
        return tuple(getattr(message, name) for name in fields) if fields else message

    def _unflatten(self, values: Array) -> Any:
        """A neighbour's message; what of it did not travel is 0."""
        leaves, structure = jax.tree.flatten(self._travelling(self._message))
        ends = np.cumsum([int(np.prod(leaf.shape)) for leaf in leaves])
        parts = jnp.split(values, ends[:-1])
        came = jax.tree.unflatten(structure, [p.reshape(leaf.shape) for p, leaf in zip(parts, leaves, strict=True)])
        if not self._algorithm.travels:
            return came
        blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), self._message)
        return eqx.tree_at(self._travelling, blank, came)

    def _greet(self) -> Array:
        """What stands for a neighbour that has not spoken yet."""
        algorithm, cfg = self._algorithm, self._cfg
        if algorithm.greeting is None:
            return jnp.zeros((len(self.neighbours), self.count))
        theirs = [algorithm.greeting(cfg, self._terms.place(int(j))) for j in self.neighbours]
        parts = [jax.tree.leaves(self._travelling(g)) for g in theirs]
        return jnp.stack([jnp.concatenate([jnp.ravel(x) for x in leaves]) for leaves in parts])


class SharedWork(Work):
    """The same for a node that hears sums alone: nobody's own message is known to it."""

    def begin(self) -> Carry:
        """Everything before the first round: data-free."""
        return Carry(super().begin().kept, (jnp.zeros(self.count),), jnp.full(1, -1))

    def _said(self, values: Array, t: Array) -> Array:
        """The message as it is: what masks it also rounds it. The algorithm has the same number in its state, so that
        nothing of what was rounded off stays there when the sum of the others is what is left of the total."""
        return values

    def _inbox(self, c: Carry, memory: Any) -> Inbox:
        total = self._unflatten(jnp.asarray(c.heard[0]))
        weight = (1 - self._place.self_weight) / self._place.degree
        mixed = jax.tree.map(lambda x: weight * x, total)
        nobody = jnp.arange(len(self.neighbours))
        unknown = jax.tree.map(lambda x: jnp.full((1, *x.shape), jnp.nan), total)
        return Inbox(unknown, jnp.zeros_like(nobody), self._weights, nobody >= 0, memory, (total, mixed))


# ---- compiled --------------------------------------------------------------------------------------------------------


class _Program:
    """A function of trees of arrays, compiled once; may be sent to another process of this machine."""

    _sent: tuple

    def __init__(self, function: Callable, *example: Any):
        leaves, shape = jax.tree.flatten(example)

        def run(*given: Any) -> Any:
            return function(*jax.tree.unflatten(shape, given))

        self._run = jax.jit(run).lower(*leaves).compile()

    def __call__(self, *arguments: Any) -> Any:
        return self._run(*jax.tree.leaves(arguments))

    @cached_property
    def _run(self) -> Any:
        return serialize_executable.deserialize_and_load(*self._sent)

    def __getstate__(self) -> dict[str, Any]:
        return {"_sent": serialize_executable.serialize(self._run)}  # not loaded before it is run: JAX starts then


@dataclass(frozen=True)
class Turns:
    """All that a node needs to take part, but its records and its keys.

    Attributes:
        node, neighbours: where it is.
        count: numbers of a message.
        rounds: of the algorithm.
        agents: how many parties there are.
        steps: everybody's grid.
        charges: what every round costs.
        laws: of a round's draws.
        late: what to do about a late neighbour: "wait", or "reuse" its last message.
        outline: what is public of its records.
        first: the carry before the first round.
        turn, answer: `Work.turn` and `Work.answer`.
        sharing: what is fixed of its sums, if only they are opened.
    """

    node: int
    neighbours: np.ndarray
    count: int
    rounds: int
    agents: int
    steps: Steps
    charges: list[list[Event]]
    laws: Mapping[str, Law]
    late: str
    outline: Outline
    first: Carry
    turn: Callable[..., tuple[tuple, Array, Array]]
    answer: Callable[[Carry], Array]
    sharing: Sharing | None = None

    @classmethod
    def of(cls, terms: Terms, node: int) -> Turns:
        """From public numbers alone; turn and answer are compiled when they are first asked for."""
        work = (Work if terms.sum is None else SharedWork)(terms, node)
        with jax.enable_x64(True):
            first = jax.tree.map(np.asarray, jax.jit(work.begin)())
        return cls(
            node=node, neighbours=work.neighbours, count=work.count, rounds=terms.rounds,
            agents=terms.priced.places.agents, steps=terms.steps, charges=terms.charges(node), laws=work.laws,
            late=terms.priced.algorithm.late, outline=work.outline, first=first,
            turn=jax.jit(work.turn), answer=jax.jit(work.answer), sharing=terms.sharing(node),
        )  # fmt: skip

    def compiled(self) -> Turns:
        """The same, compiled for draws as `SystemSource` makes them: these turns can go to another process."""
        with jax.enable_x64(True):
            bare = self.sharing is not None and self.sharing.central
            turn = _Program(self.turn, self.outline.blank(), np.array(0), self.first, _example(self.laws, bare))
            return replace(self, turn=turn, answer=_Program(self.answer, self.first))


def _example(laws: Mapping[str, Law], bare: bool) -> dict[str, Any]:
    """A round's draws by shape and type, as `SystemSource` makes them; `bare`: zeros, as the noise is put on later."""

    def one(law: Law) -> Any:
        unit = None if bare else UNITS.get(type(law))
        if unit is None:
            return jax.ShapeDtypeStruct(law.shape, jnp.float64)
        return Grid(jax.ShapeDtypeStruct(law.shape, jnp.int64), unit)  # type: ignore[arg-type]

    return {name: one(law) for name, law in laws.items()}
