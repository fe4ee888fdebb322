"""One party's half of every round as pure functions: the `emit` and `absorb` of a simulation, for a single agent.

The border is in whole numbers: a turn takes the integers that arrived and returns the integers that leave. Nothing
here knows a record: `Turns` is all that a party needs to take part, except its records, and can be made in another
process.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import PyTreeDef
from jaxtyping import Array, Float, Int, PyTree

from coterie.algorithms._sampling import PIECES, Pace
from coterie.algorithms.base import Algorithm, Config, Law, Place
from coterie.algorithms.inbox import Inbox, Maybe
from coterie.algorithms.laws import Grid
from coterie.deploy.data import Outline
from coterie.deploy.frames import Wire
from coterie.deploy.node_program import NodeProgram
from coterie.deploy.noise import UNITS, Steps
from coterie.deploy.sharing import Sharing
from coterie.deploy.terms import Terms
from coterie.drivers import agent
from coterie.errors import InputError
from coterie.exchange.choice import Broadcast, Exchange
from coterie.exchange.fixed_point import to_steps
from coterie.privacy.events import Event
from coterie.problems import HeldShard

__all__ = ["Carry", "SharedWork", "Turns", "Work", "wire_of"]


class Carry(NamedTuple):
    """What a party takes from round to round, and stores with every message so that it can go on after a crash."""

    kept: tuple[Array | np.ndarray, ...]  # the leaves of the algorithm's state and of its memory of each neighbour …
    heard: tuple[Int[Array, " count"] | np.ndarray, ...]  # the last integers of every neighbour …
    when: Int[Array, " neighbours"] | np.ndarray  # … and their round; −1: nothing yet
    said: Int[Array, " count"] | np.ndarray  # … but for those that are its own last message: the integers of that one

    def spoken(self, kept: tuple[Array, ...], numbers: Array | np.ndarray) -> Carry:
        """The carry after a turn that said these integers."""
        return Carry(kept, self.heard, self.when, numbers if self.said.size else self.said)


Said = tuple[tuple[Array, ...], Array, Array]  # what is kept, what leaves, and whether to send it


def wire_of(terms: Terms | Turns, count: int) -> Wire:
    """Length and limits of everybody's messages, where they are broadcast."""
    limit, width = terms.steps.limit.tolist(), terms.steps.width
    most = lambda sender, round: limit[sender][round]  # noqa: E731
    return Wire(count, width, terms.rounds, most, terms.steps.bits)  # type: ignore[arg-type]


class Known(NamedTuple):
    """The public numbers of a node. They are arguments of its programs, so that nodes of the same shapes share them."""

    cfg: Config
    place: Place
    neighbours: Int[Array, " neighbours"]
    weights: Float[Array, " neighbours"]
    sizes: Float[Array, " rounds"]  # its own grid …
    limits: Int[Array, " rounds"]
    theirs: Float[Array, "neighbours rounds"]  # … and the neighbours'
    greetings: Float[Array, "neighbours _"]  # what stands for a neighbour that has not spoken yet


@dataclass(frozen=True)
class Work:
    """What a node computes in a round, without its own numbers.

    Attributes:
        algorithm: whose rounds.
        exchange: what happens to its messages on the way.
        slots: how many neighbours there are.
        structure: of the algorithm's state and of its memory of each neighbour.
        kind, shapes, goes: structure of a message, shapes of its leaves, and which of them leave.
        dtype: of the integers on the wire.
        own: for every leaf of state and memory, which leaf of the message it is; None: none that leaves.
    """

    algorithm: Algorithm
    exchange: Exchange
    slots: int
    structure: PyTreeDef
    kind: PyTreeDef
    shapes: tuple[tuple[int, ...], ...]
    goes: tuple[bool, ...]
    dtype: str
    own: tuple[int | None, ...]

    @classmethod
    def of(cls, terms: Terms, node: int) -> tuple[Work, Known]:
        """The work of one node of the terms, and its numbers."""
        network, algorithm, cfg = terms.network, terms.priced.algorithm, terms.priced.cfg
        neighbours, steps = np.asarray(network.graph.neighbours(node)), terms.steps
        with jax.enable_x64(True):
            place, blank = terms.place(node), terms.outline(node).blank()
            draw = {name: jax.ShapeDtypeStruct(law.shape, jnp.float64) for name, law in terms.draws(node).items()}
            state, memory = _begin.eval_shape(algorithm, cfg, place, len(neighbours))
            message = _speak.eval_shape(algorithm, cfg, place, np.array(0), state, blank, draw)[1]
            paths, kind = jax.tree_util.tree_flatten_with_path(message)
            leaves, fields = [leaf for _, leaf in paths], algorithm.travels
            goes = tuple(not fields or getattr(path[0], "name", None) in fields for path, _ in paths)
            if any(not jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in leaves):
                raise InputError(f"{algorithm.slug} cannot be deployed: its messages are not all numbers on a grid")
            shapes = tuple(leaf.shape for leaf in leaves)
            structure = jax.tree.structure((state, memory))
            dtype = f"int{8 * steps.width}"
            own = (None,) * len(jax.tree.leaves((state, memory)))
            work = cls(algorithm, terms.exchange, len(neighbours), structure, kind, shapes, goes, dtype, own)
            work = replace(work, own=work._found_in_message(cfg, place, state, blank, draw))
            low, high = network.graph.indptr[node : node + 2]
            numbers = (
                jax.tree.map(np.float64, cfg), place, neighbours, network.mixing.edge_weights[low:high],
                steps.size[node], steps.limit[node], steps.size[neighbours],
                work._greet(cfg, [terms.place(int(j)) for j in neighbours]),
            )  # fmt: skip
            return work, Known(*jax.device_put(numbers))

    @property
    def count(self) -> int:
        """Numbers of a message."""
        return sum(math.prod(shape) for shape, goes in zip(self.shapes, self.goes, strict=True) if goes)

    def on_the_way(self) -> dict[str, Law]:
        """The laws of what the exchange draws for a message."""
        parts = [jax.ShapeDtypeStruct(shape, jnp.float64) for shape in self.shapes]
        return self.exchange.draws(jax.tree.unflatten(self.kind, parts))

    def _found_in_message(
        self, cfg: Config, place: Place, state: PyTree, blank: HeldShard, draw: dict
    ) -> tuple[int | None, ...]:
        """Which leaves of the state after a round are its message, seen from the program and so the same in any round.

        They are what was sent, to the last bit, and need not be stored beside it. An algorithm that may stay silent
        has none, since its frame is empty then; nor has one whose messages are rounded again on the way.
        """
        if type(self.exchange) is not Broadcast:
            return self.own
        found = list(self.own)

        def look(state: PyTree, blank: HeldShard, draw: dict) -> Array:
            after, out = self.algorithm.emit(cfg, place, jnp.array(0), state, blank, draw)
            if not isinstance(out, Maybe) and place.present is None:
                sent = jax.tree.leaves(out)
                for i, leaf in enumerate(jax.tree.leaves(after)):
                    found[i] = next((k for k, x in enumerate(sent) if x is leaf and self.goes[k]), None)
            return jnp.zeros(())

        jax.eval_shape(look, state, blank, draw)
        return tuple(found)

    def _flatten(self, message: PyTree) -> list[Array]:
        """The leaves that leave."""
        return [leaf for leaf, goes in zip(jax.tree.leaves(message), self.goes, strict=True) if goes]

    def _greet(self, cfg: Config, places: Sequence[Place]) -> np.ndarray:
        """What stands for each neighbour, at these places, until it has spoken."""
        if self.algorithm.greeting is None:
            return np.zeros((self.slots, 1))
        theirs = [self.algorithm.greeting(cfg, place) for place in places]
        rows = np.stack([np.concatenate([np.ravel(x) for x in self._flatten(g)]) for g in theirs])
        return rows if np.any(rows != rows[:, :1]) else rows[:, :1]  # one number stands for many that are the same

    def begin(self, known: Known) -> Carry:
        """Everything before the first round: data-free."""
        start = agent.begin(self.algorithm, known.cfg, known.place, self.slots)
        heard = (jnp.zeros(self.count, self.dtype),) * self.slots
        said = jnp.zeros(self.count if any(k is not None for k in self.own) else 0, self.dtype)
        return Carry(self._kept(start), heard, jnp.full(self.slots, -1), said)

    def _kept(self, parts: tuple[PyTree, PyTree]) -> tuple[Array, ...]:
        """What is kept of state and memory: bare leaves, which a compiled turn takes faster."""
        leaves = jax.tree.leaves(parts)
        return tuple(leaf for leaf, k in zip(leaves, self.own, strict=True) if k is None)

    def _parts(self, known: Known, t: Array, carry: Carry) -> tuple[PyTree, PyTree]:
        """State and memory after round t."""
        kept, sent = iter(carry.kept), [jnp.zeros(())] * len(self.shapes)
        if carry.said.size:
            sent = jax.tree.leaves(self._unflatten(jnp.asarray(carry.said) * known.sizes[t]))
        leaves = [next(kept) if k is None else sent[k] for k in self.own]
        return jax.tree.unflatten(self.structure, leaves)  # type: ignore[no-any-return]

    def _listen(self, known: Known, t: Array, carry: Carry) -> tuple[PyTree, PyTree]:
        """State and memory after round t − 1 was absorbed; the first ones, if there was none.

        Both are computed and one is taken: a branch would copy what goes into it, and be a border to the compiler.
        """
        state, memory = self._parts(known, t - 1, carry)
        inbox = self._inbox(known, carry, memory)
        then = agent.hear(self.algorithm, known.cfg, known.place, t - 1, state, inbox)
        first = agent.begin(self.algorithm, known.cfg, known.place, self.slots)
        return jax.tree.map(lambda a, b: jnp.where(t > 0, a, b), then, first)  # type: ignore[no-any-return]

    def _inbox(self, known: Known, c: Carry, memory: PyTree) -> Inbox:
        """What the neighbours said last. Sums are taken one neighbour after the other, so that none is copied."""
        steps, came = known.theirs[jnp.arange(self.slots), jnp.maximum(c.when, 0)], c.when >= 0
        values = [jnp.where(came[j], c.heard[j] * steps[j], known.greetings[j]) for j in range(self.slots)]
        nothing = jnp.zeros(self.count)
        mixed = sum((known.weights[j] * value for j, value in enumerate(values)), nothing)
        sums = self._unflatten(sum(values, nothing)), self._unflatten(mixed)
        said = jax.vmap(self._unflatten)(jnp.stack(values))
        return replace(agent.facing(said, known.weights, memory, known.neighbours), sums=sums)

    def turn(self, known: Known, shard: HeldShard, t: Array, carry: Carry, draw: dict) -> Said:
        """Absorb round t − 1's messages (in `carry`) and speak in round t.

        Records are an argument of whatever is compiled:
        as constants they would be part of the program, and so of every place where the compiler puts one.
        """
        before, memory = self._listen(known, t, carry)
        state, message, sent = agent.speak(self.algorithm, known.cfg, known.place, t, before, shard, draw)
        message, _ = self.exchange.send(message, draw)
        values = jnp.concatenate([jnp.ravel(leaf) for leaf in self._flatten(message)])
        return self._kept((state, memory)), self._said(known, values, t), sent

    def _said(self, known: Known, values: Array, t: Array) -> Array:
        """What leaves of a message."""
        # The noise is on already: to cut a number at the public bound is to process what is released. One that is not
        # finite can only come of released numbers that overflowed, since a record's part is bounded: it is 0 then. To
        # stop instead would be a message that nobody has paid for.
        return to_steps(values, known.sizes[t], known.limits[t]).astype(self.dtype)

    def answer(self, known: Known, carry: Carry) -> Float[Array, " dim"]:
        """The model after the last round's messages."""
        state, _ = self._listen(known, jnp.array(known.place.rounds), carry)
        return agent.answer(self.algorithm, known.cfg, known.place, state)

    def _unflatten(self, values: Array) -> PyTree:
        """A message; fields that did not travel are 0."""
        lengths = [math.prod(shape) for shape, goes in zip(self.shapes, self.goes, strict=True) if goes]
        parts = iter(jnp.split(values, np.cumsum(lengths)[:-1]))
        leaves = [
            next(parts).reshape(s) if goes else jnp.zeros(s) for s, goes in zip(self.shapes, self.goes, strict=True)
        ]
        return jax.tree.unflatten(self.kind, leaves)


_begin = jax.jit(agent.begin, static_argnums=(0, 3))
_speak = jax.jit(agent.speak, static_argnums=0)


class SharedWork(Work):
    """The same for a node that hears sums only and knows nobody's own message."""

    def begin(self, known: Known) -> Carry:
        """Everything before the first round: data-free."""
        first = super().begin(known)
        return first._replace(heard=(jnp.zeros(self.count),), when=jnp.full(1, -1))

    def _found_in_message(
        self, cfg: Config, place: Place, state: PyTree, blank: HeldShard, draw: dict
    ) -> tuple[int | None, ...]:
        """None: what leaves is masked."""
        return self.own

    def _said(self, known: Known, values: Array, t: Array) -> Array:
        """The message as it is: what masks it also rounds it. The algorithm has the same number in its state, so that
        nothing of what was rounded off stays there when the sum of the others is what is left of the total."""
        return values

    def _inbox(self, known: Known, c: Carry, memory: PyTree) -> Inbox:
        total = self._unflatten(jnp.asarray(c.heard[0]))
        weight = (1 - known.place.self_weight) / known.place.degree
        mixed = jax.tree.map(lambda x: weight * x, total)
        everybody = jnp.arange(self.slots)
        unknown = jax.tree.map(lambda x: jnp.full((1, *x.shape), jnp.nan), total)
        return Inbox(unknown, jnp.zeros_like(everybody), known.weights, everybody >= 0, memory, (total, mixed))


# ---- compiled --------------------------------------------------------------------------------------------------------


@cache
def _programs(work: Work) -> tuple[Callable[..., Carry], Callable[..., Said], Callable[..., Array]]:
    """Begin, turn and answer, compiled once for all nodes of the same shapes."""
    return jax.jit(work.begin), jax.jit(work.turn), jax.jit(work.answer)


@dataclass(frozen=True)
class Turns:
    """All that a node needs to take part, except its records and its keys.

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
        work: seconds for its share of a round's work, where the clock decides how much it does.
        alone: what the run costs if everybody else pools what they know, where neighbours share noise.
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
    turn: partial[Said] | NodeProgram
    answer: partial[Array] | NodeProgram
    sharing: Sharing | None = None
    work: float | None = None
    alone: list[Event] | None = None

    @classmethod
    def of(cls, terms: Terms, node: int) -> Turns:
        """From public numbers alone; turn and answer are compiled when they are first asked for."""
        work, known = (Work if terms.sum is None else SharedWork).of(terms, node)
        begin, turn, answer = _programs(work)
        with jax.enable_x64(True):
            first = jax.tree.map(np.asarray, begin(known))
        return cls(
            node=node, neighbours=np.asarray(terms.network.graph.neighbours(node)), count=work.count,
            rounds=terms.rounds, agents=terms.priced.places.agents, steps=terms.steps, charges=terms.charges(node),
            laws={**terms.draws(node), **work.on_the_way()}, late=terms.priced.algorithm.late,
            outline=terms.outline(node), first=first,
            turn=partial(turn, known), answer=partial(answer, known), sharing=terms.sharing(node),
            work=terms.work, alone=terms.alone(node),
        )  # fmt: skip

    def nothing(self) -> tuple[PyTree, ...]:
        """The arguments of a turn without records or chance: all zeros, for the least share of the work."""
        draw = {
            **_example(self.laws, False),
            **{n: np.array(1 / PIECES) for n, law in self.laws.items() if isinstance(law, Pace)},
        }
        blank = (self.outline.blank(), np.array(0), self.first, draw)
        return jax.tree.map(lambda x: np.zeros(x.shape, x.dtype) if isinstance(x, jax.ShapeDtypeStruct) else x, blank)

    def compiled(self) -> Turns:
        """The same, compiled for draws as `SystemSource` makes them: these turns can go to another process."""
        assert isinstance(self.turn, partial)
        assert isinstance(self.answer, partial)
        with jax.enable_x64(True):
            bare = self.sharing is not None and self.sharing.central
            turn = NodeProgram(self.turn, self.outline.blank(), np.array(0), self.first, _example(self.laws, bare))
            return replace(self, turn=turn, answer=NodeProgram(self.answer, self.first))


def _example(laws: Mapping[str, Law], bare: bool) -> dict[str, PyTree]:
    """A round's draws by shape and type, as `SystemSource` makes them; `bare`: zeros, as noise is added later."""

    def one(law: Law) -> PyTree:
        unit = None if bare else UNITS.get(type(law))
        if unit is None:
            return jax.ShapeDtypeStruct(law.shape, jnp.float64)
        return Grid(jax.ShapeDtypeStruct(law.shape, jnp.int64), unit)  # type: ignore[arg-type]

    return {name: one(law) for name, law in laws.items()}
