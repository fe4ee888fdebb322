"""The compiled loop: one round of all agents at once, measured on the fly.

A step is `absorb` of the last round's messages, then `emit` of the next: the loop carries the messages, because a
compiler that saw them made and read in the same pass would recompute every message's noise once per reader. The first
step has nothing to absorb; the last one, after the loop, emits nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from coterie.algorithms._threefry import fold_in
from coterie.algorithms.base import Algorithm, Config, Draw, Law, Place, standard
from coterie.algorithms.batches import axes, rows
from coterie.algorithms.inbox import Inbox
from coterie.algorithms.laws import Shared
from coterie.drivers import agent
from coterie.drivers.carried import carried
from coterie.drivers.groups import fitting, join, over_agents
from coterie.drivers.layout import Arrays, Laid
from coterie.exchange.choice import Broadcast, Exchange, Lost
from coterie.privacy.events import Gaussian
from coterie.problems import HeldShard, Shard, StoredShard

__all__ = ["LoopCarry", "Program", "Test"]

SMALL = 16  # in networks up to this size every agent's own model is scored on the fly …
JUDGES = 4  # … in larger ones only these, evenly spaced
ON_THE_WAY = 0x0D17  # place of the key of an exchange's draws, behind the algorithm's own
MANY = 1 << 19  # scores from which a core measures one judged model after the other
ROOM = 1 << 18  # numbers of a run's judged models that may wait until they are measured …
FEW = 200  # … and models in time: each is a call of its own
Held = tuple[Array, Array] | None  # test records on the device: features and targets
Said = tuple[object, object, Array]  # next state, message, and whether it is sent
T = TypeVar("T")
AWAY = 0x7FFF_A3A1  # place of the key that says who is left out of a sum, beyond all agents' numbers


@dataclass(frozen=True)
class Test:
    """Held-out records, in the problem's coding."""

    __test__ = False  # not a pytest class
    features: np.ndarray
    targets: np.ndarray


class Recorded(NamedTuple):
    """Every round of a run, where it is kept; in front, an axis of rounds."""

    messages: object
    draws: Draw
    sent: Bool[Array, "rounds agents"]


class LoopCarry(eqx.Module):
    state: object
    message: object
    memory: list[object]
    sent: Int[Array, " agents"]
    bits: Float[Array, " agents"]  # sent so far by each agent to one neighbour
    cut: Int[Array, ""]  # numbers that the exchange cut to its bound
    clock: Float[Array, ""]  # virtual seconds, if the algorithm keeps time
    curves: dict[str, Float[Array, "slots ..."]]
    recorded: Recorded | None


class Program:
    """The compiled loop of one algorithm over one layout, for a batch of runs of one static structure."""

    def __init__(
        self, algorithm: Algorithm, layout: Laid, rounds: int, every: int, record: bool, test: Test | None,
        exchange: Exchange | None = None,
    ):  # fmt: skip
        self.algorithm, self.record = algorithm, record
        self.rounds: int | Array = rounds
        self.every: int | Array = every
        self.exchange = exchange or Broadcast()
        self.dtype, self.dim = layout.arrays.place.start.dtype, layout.arrays.place.dim
        self.test = None if test is None else (jnp.asarray(test.features, self.dtype), jnp.asarray(test.targets))
        self.slots = -(-rounds // every) + 1
        self.agents = layout.arrays.place.agents
        self.judges = self.judged(self.agents)
        self.later = self.slots <= FEW and self.slots * self.judges.size * self.dim <= ROOM
        self.streams = isinstance(layout.arrays.groups[0].shards, StoredShard)

    @staticmethod
    def judged(n: int) -> np.ndarray:
        """The places, in the layout's order, of the agents whose own models are scored."""
        return np.unique(np.linspace(0, n - 1, n if n <= SMALL else JUDGES).astype(int))

    # -- where agents are: all on one device here; `coterie.drivers.sharded` spreads them ---------------------------

    def reach(self, arrays: Arrays, message: T) -> T:
        """The messages that neighbour lists point into."""
        return message

    def total(self, arrays: Arrays, x: Array, low: int = 0) -> Array:
        """Σ over everybody of numbers that each agent has one row of (`low`: where the rows at hand begin)."""
        return jnp.sum(x, axis=0, dtype=x.dtype)

    def largest(self, x: Array) -> Array:
        """Maximum over everybody."""
        return jnp.max(x)

    def pick(self, arrays: Arrays, points: Array) -> Array:
        """The points of the judged agents."""
        return points[self.judges]

    # -- one round ------------------------------------------------------------------------------------------------

    def draw(self, cfg: Config, arrays: Arrays, key: Key[Array, ""], t: Array) -> Draw | Array:
        """Round t's draws of all agents, keyed by (seed, round, agent, place in `draws`), whatever the batching.

        Where records are streamed, only the keys: one coin per record of everybody might not fit in memory.
        """
        laws = self.algorithm.draws(cfg, arrays.place)
        round_key = fold_in(key, t)
        shared = {name: law for name, law in laws.items() if isinstance(law, Shared)}

        def one(number: Array) -> Draw | Array:
            own = fold_in(round_key, number)
            return own if self.streams and not self.record and not shared else self.drawn(laws, own)

        drawn = jax.vmap(one)(arrays.agent_ids)
        if not shared or not isinstance(drawn, Mapping):
            return drawn
        numbers = self.reach(arrays, arrays.agent_ids)
        for name, law in shared.items():
            parts = []
            for group in arrays.groups:
                mine, own = (rows(tree, slice(group.low, group.high)) for tree in (arrays.agent_ids, drawn[name]))
                among = jax.vmap(law.among, (0, None, 0, 0, 0))
                parts.append(among(own, round_key, mine, numbers[group.index], group.here))
            drawn = {**drawn, name: join(parts)}
        return drawn

    def drawn(self, laws: dict[str, Law], own: Array | Draw) -> Draw:
        """One agent's draws: from its key of the round, unless they were made before."""
        return own if isinstance(own, Mapping) else agent.draw(laws, own, self.dtype)

    def emit(self, cfg: Config, arrays: Arrays, t: Array, state: object, draw: object) -> Said:
        """Everybody's next state and message, and who spoke."""

        def one(place: Place, state: object, shard: Shard, own: Array | dict[str, Array]) -> Said:
            draw = self.drawn(self.algorithm.draws(cfg, place), own)
            return agent.speak(self.algorithm, cfg, place, t, state, shard, draw)

        parts = []
        for group in arrays.groups:
            place, own, dice = (rows(tree, slice(group.low, group.high)) for tree in (arrays.place, state, draw))
            parts.append(over_agents(one, (place, own, group.shards, dice), group, self.algorithm.solves))
        return join(parts)

    def absorb(
        self, cfg: Config, arrays: Arrays, t: Array, state: object, message: object, memory: list[object],
        key: Key[Array, ""],
    ) -> tuple[object, list[object]]:  # fmt: skip
        """Every agent reads its neighbours' last messages."""
        message = self.reach(arrays, message)
        sums, shown = None, message
        if self.exchange.sums_only:
            lost = self.lost(cfg, arrays, key, t) if self.exchange.lossy else None
            sums, shown = self.exchange.sums(arrays.place, message, lost), None
        elif arrays.adjacency is not None:
            ones, weights = arrays.adjacency
            sums = (
                jax.tree.map(lambda m: _product(ones, m).astype(m.dtype), message),
                jax.tree.map(lambda m: _product(weights, m), message),
            )
        parts, memories = [], []
        numbers = self.reach(arrays, arrays.agent_ids) if self.algorithm.named else None
        for k, group in enumerate(arrays.groups):
            chunk = group.chunk

            def one(
                place: Place, state: object, index: Array, weight: Array, here: Array, edge: object, sums: object
            ) -> tuple[object, object]:
                known = None if numbers is None else numbers[index]
                inbox = Inbox(shown, index, weight, here, edge, sums, chunk, known)  # noqa: B023
                return agent.hear(self.algorithm, cfg, place, t, state, inbox)

            place, own, neat = (rows(tree, slice(group.low, group.high)) for tree in (arrays.place, state, sums))
            heard, kept = jax.vmap(one, (axes(place), 0, 0, 0, 0, 0, 0))(
                place, own, group.index, group.weight, group.here, memory[k], neat
            )
            parts.append(heard)
            memories.append(kept)
        return join(parts), memories

    def lost(self, cfg: Config, arrays: Arrays, key: Key[Array, ""], t: Array) -> Lost:
        """What a sum of round t needs when it leaves some agents out."""
        now = jnp.maximum(t, 0)  # before the first round nothing is read
        cost = lambda p: self.algorithm.cost(cfg, p, now, None)  # noqa: E731
        event = jax.vmap(cost, (axes(arrays.place),))(arrays.place)
        free = jnp.zeros(arrays.agent_ids.shape, self.dtype)
        sigma = jnp.where(event.times > 0, event.sigma, 0.0) if isinstance(event, Gaussian) else free
        return Lost(fold_in(fold_in(key, now), AWAY), jnp.broadcast_to(sigma, free.shape))

    def deliver(
        self, arrays: Arrays, key: Key[Array, ""], t: Array, message: object, given: Draw
    ) -> tuple[object, Int[Array, ""]]:
        """The messages as they arrive, and how many numbers were cut on the way; `given`: draws that are replayed."""
        if type(self.exchange).send is Exchange.send:  # as they are: nothing is cut, and no sum of it taken
            return message, jnp.zeros((), jnp.int32)
        laws, round_key = self.exchange.draws(jax.tree.map(lambda x: x[0], message)), fold_in(key, t)

        def one(number: Array) -> dict[str, Array]:
            return agent.draw(laws, fold_in(fold_in(round_key, number), ON_THE_WAY), self.dtype)

        again = laws.keys() <= given.keys()
        draw = {n: standard(given[n]) for n in laws} if again else jax.vmap(one)(arrays.agent_ids)
        message, cut = jax.vmap(self.exchange.send)(message, draw)
        return message, self.total(arrays, cut.astype(jnp.int32))

    def bits(self, cfg: Config, arrays: Arrays, message: object) -> Array:
        """Size of each agent's message on the wire."""
        if self.algorithm.bits is not None:
            one = lambda p, m: self.algorithm.bits(cfg, p, m)  # noqa: E731
            usual = jax.vmap(one, (axes(arrays.place), 0))(arrays.place, message)
        else:
            numbers = [x.dtype.itemsize * 8 * x[0].size for x in jax.tree.leaves(message)]
            usual = jnp.full(arrays.agent_ids.shape, float(sum(numbers)), self.dtype)
        return self.exchange.bits(usual, message)

    def duration(self, cfg: Config, arrays: Arrays, t: Array, draw: Array | Draw) -> Array:
        """Virtual seconds until the slowest agent is done with the round (0 where the algorithm keeps no time)."""
        if self.algorithm.duration is None:
            return jnp.zeros((), self.dtype)

        def one(p: Place, d: Array | Draw) -> Array:
            took = self.algorithm.duration(cfg, p, t, self.drawn(self.algorithm.draws(cfg, p), d))  # type: ignore[misc]
            return (
                took if p.present is None else jnp.where(p.present[t] > 0, took, 0.0)
            )  # nobody waits for absent agents

        return self.largest(jax.vmap(one, (axes(arrays.place), 0))(arrays.place, draw))

    # -- measuring ------------------------------------------------------------------------------------------------

    def estimates(self, cfg: Config, arrays: Arrays, state: object) -> Float[Array, "agents dim"]:
        """Every agent's answer."""
        one = lambda p, s: agent.answer(self.algorithm, cfg, p, s)  # noqa: E731
        return jax.vmap(one, (axes(arrays.place), 0))(arrays.place, state)

    def noted(self, cfg: Config, arrays: Arrays, state: object) -> dict[str, Array]:
        """What is kept of a round that is measured: the disagreement of all, and the judged agents' own models."""
        points = self.estimates(cfg, arrays, state)
        mean = self.total(arrays, points) / arrays.place.agents
        gap = jnp.sqrt(self.total(arrays, jnp.sum((points - mean) ** 2, axis=1)) / arrays.place.agents)
        return {"consensus_gap": gap, "models": self.pick(arrays, points)}

    def judged_models(self, arrays: Arrays, models: Float[Array, "judges runs d"]) -> dict[str, Float[Array, " runs"]]:
        """Train loss and test score, averaged over the models of a run."""
        # An accelerator reads records once for all judged models. A core takes longer for four products at once than
        # for one after the other, unless all scores stay in its cache.
        core = jax.default_backend() == "cpu"
        apart = lambda rows: core and rows * models[:, :, 0].size >= MANY  # noqa: E731

        def all_of(value: Callable[[Array], Array], apart: bool) -> Float[Array, "judges runs"]:
            each = jax.vmap(value)
            return jax.lax.map(each, models) if apart else jax.vmap(each)(models)

        loss, problem = jnp.zeros(models.shape[:2], models.dtype), arrays.groups[0].shards.problem
        for group in arrays.groups:
            held = group.shards.targets.size if isinstance(group.shards, HeldShard) else 0
            many = apart(held // (group.high - group.low) if group.one_by_one else held)
            values = lambda shard, many=many: all_of(shard.value, many)  # noqa: E731
            each = over_agents(values, (group.shards,), group, core, None if core else fitting(group.shards))
            loss += self.total(arrays, each, group.low) / self.agents
        out = {"train_loss": jnp.mean(loss, axis=0)}
        if self.test is not None:
            features, targets = self.test
            score = all_of(lambda x: problem.score(x, features, targets), apart(len(targets)))
            out["test_score"] = jnp.mean(score, axis=0)
        return out

    def kept(self, cfg: Config, arrays: Arrays, state: object) -> dict[str, Array]:
        """What the loop keeps of a round that is measured; where it is not too large, the rest is done afterwards."""
        return (self.noted if self.later else self.measure)(cfg, arrays, state)

    def measure(self, cfg: Config, arrays: Arrays, state: object) -> dict[str, Array]:
        """Train loss and test score, averaged over the judged agents' own models, and the disagreement of all."""
        noted = self.noted(cfg, arrays, state)
        judged = self.judged_models(arrays, noted.pop("models")[:, None])
        return {"train_loss": judged["train_loss"][0], **noted} | {k: v[0] for k, v in judged.items()}

    # -- the loop -------------------------------------------------------------------------------------------------

    def starts(self, cfg: Config, arrays: Arrays) -> object:
        """Everybody's state before the first round: data-free."""
        places = [(rows(arrays.place, slice(g.low, g.high)), g.index.shape[1]) for g in arrays.groups]
        one = lambda slots: lambda p: agent.begin(self.algorithm, cfg, p, slots)[0]  # noqa: E731
        return join([jax.vmap(one(slots), (axes(place),))(place) for place, slots in places])

    def begin(self, cfg: Config, arrays: Arrays) -> LoopCarry:
        """Everything before the first round: data-free states and the public messages that stand before any is sent."""
        n = arrays.agent_ids.shape[0]
        starts, memory, greetings = [], [], []
        for g in arrays.groups:
            place, slots = rows(arrays.place, slice(g.low, g.high)), g.index.shape[1]
            start = lambda p: agent.begin(self.algorithm, cfg, p, slots)  # noqa: B023, E731
            state, kept = jax.vmap(start, (axes(place),))(place)
            hello = lambda p, shard: agent.greet(self.algorithm, cfg, p, shard)  # noqa: E731
            starts.append(state)
            memory.append(kept)
            greetings.append(over_agents(hello, (place, g.shards), g, self.algorithm.solves))
        state, message = join(starts), join(greetings)
        curves = {
            k: jnp.zeros((self.slots, *v.shape), v.dtype)
            for k, v in jax.eval_shape(lambda s: self.kept(cfg, arrays, s), state).items()
        }
        if self.algorithm.duration is not None:
            curves["time"] = jnp.zeros(self.slots, self.dtype)
        recorded = None
        if self.record:
            draw = jax.eval_shape(lambda k: self.draw(cfg, arrays, k, jnp.array(0)), jax.random.key(0))
            room = lambda s: jnp.zeros((self.rounds, *s.shape), s.dtype)  # noqa: E731
            sent = jnp.zeros((self.rounds, n), bool)
            recorded = Recorded(jax.tree.map(room, message), jax.tree.map(room, draw), sent)
        nothing = jnp.zeros(n, self.dtype)
        return LoopCarry(
            state, message, memory, nothing.astype(jnp.int32), nothing, jnp.zeros((), jnp.int32),
            jnp.zeros((), self.dtype), curves, recorded,
        )  # fmt: skip

    def advance(
        self,
        carry: LoopCarry,
        cfg: Config,
        arrays: Arrays,
        key: Key[Array, ""],
        replay: object,
        low: Array,
        high: Array,
    ) -> LoopCarry:
        """Steps low … high − 1. Step t reads round t − 1's messages, measures, and emits round t's (not the last).

        The last step comes after the loop: a branch on "is there a next round" inside it would keep the compiler from
        moving what is the same in every round, such as the norms of the records, out of it.
        """
        both = carried(self, cfg, arrays, key, carry)

        def listen(t: Array, c: LoopCarry) -> LoopCarry:
            # Selected, not branched on: an accelerator would wait for the host to see which branch it is.
            heard = self.absorb(cfg, arrays, t - 1, c.state, c.message, c.memory, key)
            before = c.state if both is None else both.before(c.state)
            state, memory = jax.tree.map(lambda new, old: jnp.where(t > 0, new, old), heard, (before, c.memory))

            def note(curves: dict[str, Array]) -> dict[str, Array]:
                now = {**self.kept(cfg, arrays, state), "time": c.clock}
                slot = (t + self.every - 1) // self.every
                return {k: curves[k].at[slot].set(now[k]) for k in curves}

            due = (t % self.every == 0) | (t == self.rounds)
            curves = jax.lax.cond(due, note, lambda x: x, c.curves)
            return eqx.tree_at(lambda c: (c.state, c.memory, c.curves), c, (state, memory, curves), is_leaf=_is_none)

        def speak(t: Array, c: LoopCarry) -> LoopCarry:
            given = {} if replay is None else jax.tree.map(lambda d: d[t], replay)
            own = self.algorithm.draws(cfg, arrays.place)
            draw = {name: given[name] for name in own} if given else self.draw(cfg, arrays, key, t)
            state, message, sent = self.emit(cfg, arrays, t, c.state, draw)
            message, cut = self.deliver(arrays, key, t, message, given)
            message = jax.tree.map(lambda new, old: jnp.where(_as(sent, new), new, old), message, c.message)
            recorded = c.recorded
            if self.record:
                assert isinstance(draw, Mapping)
                new = Recorded(message, {n: standard(d) for n, d in draw.items()}, sent)
                recorded = jax.tree.map(lambda room, x: room.at[t].set(x), recorded, new)
            bits = c.bits + sent * self.bits(cfg, arrays, message)
            clock = c.clock + self.duration(cfg, arrays, t, draw)
            return LoopCarry(state, message, c.memory, c.sent + sent, bits, c.cut + cut, clock, c.curves, recorded)

        end, shape = jnp.minimum(high, self.rounds), carry.state
        if both is None:
            carry = jax.lax.fori_loop(low, end, lambda t, c: speak(t, listen(t, c)), carry)
        else:
            step = lambda t, c: both.slim(speak(t, listen(t, both.full(c, shape))))  # noqa: E731
            carry = both.full(jax.lax.fori_loop(low, end, step, both.slim(carry)), shape, high > 0)
        return jax.lax.cond(high > self.rounds, lambda c: listen(high - 1, c), lambda c: c, carry)


def _as(mask: Array, x: Array) -> Array:
    return mask.reshape(mask.shape + (1,) * (x.ndim - 1))


def _product(matrix: Array, m: Array) -> Array:
    return (matrix @ m.reshape(m.shape[0], -1).astype(matrix.dtype)).reshape(-1, *m.shape[1:])


def _is_none(x: object) -> bool:
    return x is None
