"""One party's half of every round, compiled: what it says, and what it makes of what it hears.

The same `emit` and `absorb` as in a simulation, for a single agent, with whole numbers at the border: `turn` takes the
integers that arrived and returns the integers that leave. No network, no ledger, no randomness of its own.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from coterie.algorithms.base import Law, Place, find
from coterie.algorithms.batches import rows
from coterie.algorithms.inbox import Inbox
from coterie.data import load, origins
from coterie.data.planned import leaks_of, options_of
from coterie.data.survey import outside
from coterie.data.tables import read_table
from coterie.deploy.frames import Wire
from coterie.deploy.journal import for_owner
from coterie.deploy.noise import Source, Steps, check_deployable, grid_steps, on_grid
from coterie.drivers import agent
from coterie.drivers.budget import run_events
from coterie.errors import InputError
from coterie.experiment import Network, Priced, price, public_network
from coterie.plan import Plan
from coterie.privacy.events import Event, Free
from coterie.privacy.ledger import Entry
from coterie.problems import HeldShard, Settings

__all__ = ["Carry", "Party", "Records", "Terms", "read_records", "wire_of", "write_records"]

# ---- what everybody knows --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Terms:
    """What the plan fixes for every party: settings, noise, grid, sizes. Public, and the same at all of them."""

    plan: Plan
    network: Network
    priced: Priced
    steps: Steps

    @classmethod
    def of(cls, plan: Plan) -> Terms:
        """Work the terms out from a plan; refuse one that cannot be deployed."""
        network = cls.check(plan)
        priced = price(plan, network, algorithm=on_grid(find(plan.algorithm.name)))
        assert plan.deploy is not None
        return cls(plan, network, priced, grid_steps(priced.algorithm, priced.cfg, _bare(priced), plan.deploy.bound))

    @staticmethod
    def check(plan: Plan) -> Network:
        """The public side of a plan that can be deployed; an InputError for any other."""
        check_deployable(plan)
        if plan.deploy is None:
            raise InputError("the plan has no [deploy] table: it says who the parties are")
        if plan.problem.loss is None or plan.problem.dim is None:
            raise InputError("a deployed plan states problem.loss and problem.dim, since nobody sees all data")
        if leaks := leaks_of(plan):
            raise InputError(f"{leaks[0]}: state it in data.options, so that the data decide nothing")
        network = public_network(plan)
        if len(network.sizes) != len(plan.deploy.parties):
            raise InputError(
                f"deploy.parties lists {len(plan.deploy.parties)} parties, but there are {len(network.sizes)} agents"
            )
        return network

    @property
    def rounds(self) -> int:
        """How many rounds there are."""
        return self.priced.rounds

    def place(self, node: int) -> Place:
        """One party's place."""
        with jax.enable_x64(True):
            return rows(_bare(self.priced, self.network.problem.start(self.plan.data.seed)), node)

    @property
    def secret(self) -> bool:
        """Whether only the sum of all messages is opened."""
        return self.plan.exchange.kind == "secret-sum"

    def charges(self, node: int) -> list[list[Event]]:
        """What every round of the wire will cost a party.

        A secret sum takes a round for keys, and then two for each of the algorithm's: shares of the message, which is
        charged here, and sums of shares, which say nothing that the shares did not.
        """
        events = run_events(self.priced.algorithm, self.priced.cfg, self.place(node))
        paid: list[list[Event]] = [[jax.tree.map(lambda x: x[t], e) for e in events] for t in range(self.rounds)]  # noqa: B023
        if not self.secret:
            return paid
        free: list[Event] = [Free()]
        return [free, *(charge for round in paid for charge in (round, free))]

    def charged(self, entries: Iterable[Entry]) -> list[Event]:
        """What a ledger's entries charged for the algorithm's own rounds: the inverse of `charges`."""
        return [entry.event for entry in entries if not self.secret or entry.round % 2 == 1]

    def draws(self, node: int) -> Mapping[str, Law]:
        """The laws of a round's randomness."""
        return self.priced.algorithm.draws(self.priced.cfg, self.place(node))


def _bare(priced: Priced, start: np.ndarray | None = None) -> Place:
    """All places, at the public start; the solver keeps no factor between rounds, as its work is fixed."""
    with jax.enable_x64(True):
        at = priced.places.start if start is None else jnp.asarray(start, priced.places.start.dtype)
        return replace(priced.places, start=at, factor=False)


# ---- one party's records ---------------------------------------------------------------------------------------------


class Records(NamedTuple):
    """One party's data: class indices with `classes`, or numbers without; `leaks` as in `coterie.data.Dataset`."""

    features: np.ndarray
    targets: np.ndarray
    classes: tuple[str, ...] | None
    leaks: tuple[str, ...]


def read_records(plan: Plan, path: Path) -> Records:
    """A party's own file: a table read with the plan's label, ranges and categories, or what `write_records` wrote.

    One that was made by looking at more than each record is refused; of a table the plan says so before it is read.
    """
    if path.suffix == ".npz":
        found = _stored(path)
        if found.leaks:
            raise InputError(f"{path}: {found.leaks[0]}; an agent takes records that only public rules have made")
        return found
    if plan.data.label is None:
        raise InputError("the plan must state data.label, the label column of every party's table")
    kind = "parquet" if path.suffix in (".parquet", ".pq") else "csv"
    options = options_of(plan, kind)
    if leaks := origins(kind, **options).leaks:
        raise InputError(f"{leaks[0]}: state it in data.options, so that the data decide nothing")
    data = load(kind, path=path, **options)
    if bounds := options.get("bounds"):
        for one in outside(read_table(path, usecols=lambda name: name in bounds), bounds):
            for_owner.warning("column %r: %s and are moved to its ends", one.column, one, extra={"about": one.column})
    return Records(data.features, data.targets, data.classes, data.leaks)


def _stored(path: Path) -> Records:
    try:
        with np.load(path, allow_pickle=False) as stored:
            if "leaks" not in stored:
                raise InputError(f"{path} does not say what was read from its records: write it by `write_records`")
            classes = tuple(map(str, stored["classes"])) if "classes" in stored else None
            leaks = tuple(map(str, stored["leaks"]))
            return Records(stored["features"].astype(float), stored["targets"], classes, leaks)
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise InputError(f"cannot read {path}: {error}") from None


def write_records(path: Path, records: Records) -> None:
    """Store records so that `read_records` finds them again."""
    names = {} if records.classes is None else {"classes": np.array(records.classes)}
    leaks = np.array(records.leaks, dtype=str)
    np.savez(path, features=records.features, targets=records.targets, leaks=leaks, **names)  # type: ignore[arg-type]


# ---- one party -------------------------------------------------------------------------------------------------------


class Carry(NamedTuple):
    """What a party takes from round to round, and stores with every message so that it can go on after a crash."""

    kept: tuple[Array | np.ndarray, ...]  # the leaves of the algorithm's state and of its memory of each neighbour
    heard: tuple[Int[Array, " count"] | np.ndarray, ...]  # the last integers of every neighbour …
    when: Int[Array, " neighbours"] | np.ndarray  # … and their round; −1: nothing yet


def wire_of(terms: Terms, count: int) -> Wire:
    """Length and limits of everybody's messages, where they are broadcast."""
    limit, width = terms.steps.limit.tolist(), terms.steps.width
    return Wire(count, width, terms.rounds, lambda sender, round: limit[sender][round])  # type: ignore[arg-type]


class Party:
    """One node of the terms with its records, ready to take turns."""

    def __init__(self, terms: Terms, node: int, records: Records):
        self.terms, self.node, self._dtype = terms, node, f"int{8 * terms.steps.width}"
        network, priced = terms.network, terms.priced
        self.neighbours = np.asarray(network.graph.neighbours(node))
        with jax.enable_x64(True):
            self._place = terms.place(node)
            self.shard = _shard(terms, node, records, self._place)
            low, high = network.graph.indptr[node : node + 2]
            self._weights = jnp.asarray(network.mixing.edge_weights[low:high])
            self._sizes = jnp.asarray(terms.steps.size)
            self._limits = jnp.asarray(terms.steps.limit)
            algorithm, cfg = priced.algorithm, priced.cfg
            draw = {
                n: jax.ShapeDtypeStruct(law.shape, jnp.float64) for n, law in algorithm.draws(cfg, self._place).items()
            }
            state, memory = jax.eval_shape(self._compute_start)
            self._structure = jax.tree.structure((state, memory))
            say = lambda s, d: agent.speak(algorithm, cfg, self._place, jnp.array(0), s, self.shard, d)[1]  # noqa: E731
            self._message = jax.eval_shape(say, state, draw)
            leaves = jax.tree.leaves(self._message)
            if any(not jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in leaves):
                raise InputError(f"{algorithm.slug} cannot be deployed: its messages are not all numbers on a grid")
            self.count = sum(int(np.prod(leaf.shape)) for leaf in leaves)
            self._greetings = self._greet()
            # Records are an argument of whatever is compiled: as constants they would be part of the program, and so of
            # every place where the compiler, or a cache of its programs, puts one.
            self._turn = jax.jit(self.compute_turn)
            self._listen = jax.jit(self._compute_listen)
            self._layout = jax.eval_shape(self._compute_begin)

        self.rounds = terms.rounds  # of the wire; a secret sum takes more of them than the algorithm
        self.charges = terms.charges(node)
        self._laws = terms.draws(node)

    # -- public face ---------------------------------------------------------------------------------------------------

    @property
    def wire(self) -> Wire:
        """Length and limits of everybody's messages."""
        return wire_of(self.terms, self.count)

    @property
    def late(self) -> str:
        """What to do about a late neighbour: "wait", or "reuse" its last message."""
        return self.terms.priced.algorithm.late

    def speak(self, t: int, carry: Carry, source: Source) -> tuple[Carry, np.ndarray, bool]:
        """The integers of round t, with fresh draws, and whether to send them."""
        return self.turn(t, carry, source.draw(t, self._laws))

    def begin(self) -> Carry:
        """Everything before the first round: data-free."""
        with jax.enable_x64(True):
            return self._compute_begin()

    def turn(self, t: int, carry: Carry, draw: Mapping[str, Any]) -> tuple[Carry, np.ndarray, bool]:
        """Make up for round t − 1's messages (in `carry`) and speak in round t: integers, and whether to send them."""
        with jax.enable_x64(True):
            kept, numbers, sent = self._turn(self.shard, t, carry, dict(draw))
            return Carry(kept, carry.heard, carry.when), np.asarray(numbers), bool(sent)

    def answer(self, carry: Carry) -> Float[np.ndarray, " dim"]:
        """The model after the last round's messages."""
        with jax.enable_x64(True):
            carry = self._listen(self.terms.rounds, carry)
            priced = self.terms.priced
            state, _ = self._parts(carry)
            return np.asarray(agent.answer(priced.algorithm, priced.cfg, self._place, state))

    def heard(self, carry: Carry, slot: int, round: int, numbers: np.ndarray) -> Carry:
        """The carry after a neighbour's message has arrived."""
        heard, when = list(carry.heard), np.array(carry.when)
        heard[slot], when[slot] = numbers.astype(self._dtype, copy=False), round
        return Carry(carry.kept, tuple(heard), when)

    def pack(self, carry: Carry) -> list[memoryview]:
        """The carry as bytes of a fixed length, in parts that are not copied."""
        return [np.ascontiguousarray(leaf).reshape(-1).view(np.uint8).data for leaf in jax.tree.leaves(carry)]

    def unpack(self, data: bytes) -> Carry:
        """The carry in such bytes."""
        return self._unpack(data, self._layout)

    @staticmethod
    def _unpack(data: bytes, layout: Any) -> Any:
        leaves, structure = jax.tree.flatten(layout)
        at, out = 0, []
        for leaf in leaves:
            size = leaf.dtype.itemsize * int(np.prod(leaf.shape))
            out.append(np.frombuffer(data[at : at + size], leaf.dtype).reshape(leaf.shape))
            at += size
        if at != len(data):
            raise InputError(f"the stored state has {len(data)} bytes, this plan's has {at}: made by another version?")
        return jax.tree.unflatten(structure, out)

    # -- compiled ------------------------------------------------------------------------------------------------------

    def _compute_start(self) -> tuple[Any, Any]:
        """State, and memory of each neighbour if the algorithm keeps any, before the first round."""
        return agent.begin(self.terms.priced.algorithm, self.terms.priced.cfg, self._place, len(self.neighbours))

    def _compute_begin(self) -> Carry:
        nobody = len(self.neighbours)
        heard = (jnp.zeros(self.count, self._dtype),) * nobody
        return Carry(tuple(jax.tree.leaves(self._compute_start())), heard, jnp.full(nobody, -1))

    def _parts(self, carry: Carry) -> tuple[Any, Any]:
        """State and memory. Between rounds they are bare leaves, which take less time to hand to a compiled turn."""
        return jax.tree.unflatten(self._structure, carry.kept)  # type: ignore[no-any-return]

    def _compute_listen(self, t: Array, carry: Carry) -> Carry:
        """Absorb round t − 1, if there was one."""
        algorithm, cfg = self.terms.priced.algorithm, self.terms.priced.cfg

        def absorb(c: Carry) -> Carry:
            state, memory = self._parts(c)
            new = agent.hear(algorithm, cfg, self._place, t - 1, state, self._inbox(c, memory))
            return Carry(tuple(jax.tree.leaves(new)), c.heard, c.when)

        return jax.lax.cond(t > 0, absorb, lambda c: c, carry)

    def _inbox(self, c: Carry, memory: Any) -> Inbox:
        steps = self._sizes[self.neighbours, jnp.maximum(c.when, 0)]
        values = jnp.where((c.when >= 0)[:, None], jnp.stack(c.heard) * steps[:, None], self._greetings)
        return agent.facing(jax.vmap(self._unflatten)(values), self._weights, memory)

    def compute_turn(self, shard: HeldShard, t: Array, carry: Carry, draw: dict) -> tuple[tuple, Array, Array]:
        """`turn`, to be compiled, on the records of `shard`: what is kept, the integers, and whether to send them."""
        algorithm, cfg = self.terms.priced.algorithm, self.terms.priced.cfg
        before, memory = self._parts(self._compute_listen(t, carry))
        state, message, sent = agent.speak(algorithm, cfg, self._place, t, before, shard, draw)
        values = jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(message)])
        limit = self._limits[self.node, t]
        # The noise is on already: to cut a number at the public bound is to process what is released. One that is not
        # finite can only come of released numbers that overflowed, since a record's part is bounded: it is 0 then. To
        # stop instead would be a message that nobody has paid for.
        steps = jnp.round(jnp.nan_to_num(values / self._sizes[self.node, t], posinf=jnp.inf, neginf=-jnp.inf))
        numbers = jnp.clip(steps, -limit, limit).astype(self._dtype)
        return tuple(jax.tree.leaves((state, memory))), numbers, sent

    def _unflatten(self, values: Array) -> Any:
        leaves, structure = jax.tree.flatten(self._message)
        ends = np.cumsum([int(np.prod(leaf.shape)) for leaf in leaves])
        parts = jnp.split(values, ends[:-1])
        return jax.tree.unflatten(structure, [p.reshape(leaf.shape) for p, leaf in zip(parts, leaves, strict=True)])

    def _greet(self) -> Array:
        """What stands for a neighbour that has not spoken yet."""
        algorithm, cfg = self.terms.priced.algorithm, self.terms.priced.cfg
        theirs = [agent.greet(algorithm, cfg, self.terms.place(int(j)), self.shard) for j in self.neighbours]
        return jnp.stack([jnp.concatenate([jnp.ravel(x) for x in jax.tree.leaves(g)]) for g in theirs])


def _shard(terms: Terms, node: int, records: Records, place: Place) -> HeldShard:
    problem, plan = terms.network.problem, terms.plan
    count, width = records.features.shape
    if count != terms.network.sizes[node]:
        raise InputError(f"the plan says {terms.network.sizes[node]} records for this party, its file has {count}")
    if width != plan.problem.dim:
        raise InputError(f"the plan says {plan.problem.dim} features, the file has {width}")
    # To refuse a record would tell everybody of it: this party would not come. What it says is made admissible instead.
    features, targets = problem.admit(records.features, problem.encode(records.targets, records.classes))
    if changed := int(np.sum(np.any(features != records.features, axis=1))):
        text = "%d of %d records lie outside the bounds that the noise is priced for: pulled back"
        for_owner.warning(text, changed, count)
    fill = place.rows - count  # padding repeats the first record; `count` keeps it out of every result
    pad = lambda x: np.concatenate([x, np.repeat(x[:1], fill, axis=0)])  # noqa: E731
    kind = jnp.float64 if targets.dtype.kind == "f" else jnp.int32
    how = Settings(fixed=True)  # so that its duration says nothing
    return HeldShard(
        problem, jnp.asarray(pad(features)), jnp.asarray(pad(targets), kind),
        jnp.asarray(count, jnp.int32), place.unit, place.ridge, how,
    )  # fmt: skip
