"""How agents are laid out in memory so that one compiled round costs edges × dimension + data.

Agents are sorted into groups of like degree and like record count. A group is a contiguous slice of every per-agent
array, with its shards padded to one length and its neighbour lists to one width; padding is bounded by the group's
spread, so a star with a million leaves is two groups and no array ever has agents² entries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Protocol, cast, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Bool, Float, Int

from coterie.algorithms.base import Place
from coterie.algorithms.batches import rows
from coterie.data.parts import Parts, lengths_of
from coterie.data.store import Store
from coterie.errors import InputError
from coterie.graphs import Graph, Mixing
from coterie.passes import aligned, joined, over
from coterie.problems import HeldShard, People, Problem, Shard, SolverSettings, StoredShard
from coterie.problems.people import lay_out
from coterie.problems.stored import PIECE

__all__ = ["Arrays", "Group", "Laid", "Layout", "Terrain", "host", "make_layout", "make_places"]

PADDING = 1.5  # regroup where padding would cost more than this factor …
SMALL = 1 << 18  # … of more than this many numbers: each group is compiled on its own
# numbers gathered at once per group: what a core keeps in its cache, or what keeps an accelerator busy
SLOT_BUDGET, CORE_SLOT_BUDGET = 1 << 22, 1 << 14
DENSE_FROM = 8  # one matrix product for all sums from N²/8 edges on
DENSE_MAX = 4096


class Group(eqx.Module):
    """A slice [low, high) of the agents, of like degree and like record count."""

    low: int = eqx.field(static=True)
    high: int = eqx.field(static=True)
    chunk: int = eqx.field(static=True)  # neighbours gathered at once
    one_by_one: bool = eqx.field(static=True)  # solve for one agent after the other instead of for all at once
    shards: Shard
    index: Int[Array, "agents width"]
    weight: Float[Array, "agents width"]
    here: Bool[Array, "agents width"]


class Arrays(eqx.Module):
    """What a compiled round reads and never writes."""

    groups: list[Group]
    place: Place
    agent_ids: Int[Array, " agents"]  # position -> the plan's agent number; draws are keyed by it
    adjacency: tuple[Array, Array] | None  # 0/1 and weights as matrices, for dense graphs


@runtime_checkable
class Laid(Protocol):
    """Agents laid out, on one device or on many."""

    @property
    def arrays(self) -> Arrays:
        """What a compiled round reads."""

    def restore(self, x: np.ndarray, axis: int = 0) -> np.ndarray:
        """Put the agent axis back into the plan's order."""


@dataclass(frozen=True)
class Layout:
    """The arrays of a simulation and the order in which agents sit in them."""

    arrays: Arrays  # in the host's memory, where JAX has a CPU backend
    problem: Problem
    order: np.ndarray

    @cached_property
    def placed(self) -> Arrays:
        """The arrays on the device that computes: ask for them after compiling.

        A compiler that times its choices on an accelerator makes arguments of its own for that: as large as these.
        """
        if jax.default_backend() == "cpu":
            return self.arrays
        there = getattr(jax.config, "jax_default_device", None) or jax.local_devices()[0]
        with jax.enable_x64(self.arrays.place.start.dtype == jnp.float64):  # without, halves arrive of what is double
            return jax.device_put(self.arrays, there)

    def restore(self, x: np.ndarray, axis: int = 0) -> np.ndarray:
        """Put the agent axis back into the plan's order."""
        return np.take(x, np.argsort(self.order), axis=axis)

    def arrange(self, x: np.ndarray, axis: int = 0) -> np.ndarray:
        """Put the agent axis of something in the plan's order into the layout's order."""
        return np.take(x, self.order, axis=axis)


def _classes(values: np.ndarray, width: int) -> np.ndarray:
    """Class of each value: one class where padding all to the largest is cheap, else at most six geometric ones."""
    padded = len(values) * int(values.max())
    if padded <= PADDING * values.sum() or padded * width <= SMALL:
        return np.zeros(len(values), dtype=int)
    ratio = 1.25
    while True:
        low, edges = float(values.max()), []
        while low > values.min():
            low /= ratio
            edges.append(low)
        found = np.searchsorted(np.array(edges[::-1]), values, side="left") if edges else np.zeros(len(values), int)
        if len(np.unique(found)) <= 6:
            return found
        ratio *= 1.25


@dataclass(frozen=True, eq=False)
class Terrain:
    """Agents on a graph, checked and classed, before they are placed in memory; agent i holds records `parts[i]`.

    `targets` are in the problem's coding; where `features` is a `Store`, it holds them too. `people` says whose each
    record is, where the person is the unit; `per_person`, how many records of one person are used at most. Groups are
    cut from the terrain: all of them on one device (`make_layout`) or spread over many (`coterie.drivers.sharded`).
    """

    problem: Problem
    features: np.ndarray | Store
    targets: np.ndarray
    parts: Sequence[np.ndarray | range]
    graph: Graph
    mixing: Mixing
    rounds: int = field(kw_only=True)
    ridge: float = field(default=0.0, kw_only=True)
    weighting: str = field(default="agents", kw_only=True)
    shape: np.ndarray | None = field(default=None, kw_only=True)
    start: np.ndarray | None = field(default=None, kw_only=True)
    how: SolverSettings | None = field(default=None, kw_only=True)
    dtype: DTypeLike = field(default=jnp.float64, kw_only=True)
    people: np.ndarray | None = field(default=None, kw_only=True)
    present: np.ndarray | None = field(default=None, kw_only=True)  # 1 where agent and round are there; None: all are
    per_person: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        n = len(self.parts)
        if n != self.graph.size:
            raise InputError(f"the graph has {self.graph.size} nodes but the data is split over {n} parties")
        if (self.counts == 0).any():
            raise InputError(f"party {int(np.argmin(self.counts))} has no records: every party needs at least one")
        if self.start is not None and self.start.shape != (self.problem.dim,):
            raise InputError(f"the starting point has {self.start.shape} numbers, the problem {self.problem.dim}")

    @cached_property
    def counts(self) -> np.ndarray:
        """Records of each agent, or its people where these are the unit."""
        if self.people is None:
            return self._lengths
        return np.array([len(np.unique(self.people[p])) for p in self.parts])

    @cached_property
    def _lengths(self) -> np.ndarray:
        """Records of each agent."""
        return lengths_of(self.parts)

    @cached_property
    def unit(self) -> np.ndarray:
        """Weight of one record of each agent."""
        n = len(self.parts)
        return np.full(n, n / self.counts.sum()) if self.weighting == "records" else 1.0 / self.counts

    @cached_property
    def key(self) -> np.ndarray:
        """Class of each agent: of like degree, where neighbours are gone through, and like record count."""
        degrees = np.zeros(len(self.parts), int) if self.dense else np.asarray(self.graph.degrees)
        by_degree = _classes(degrees, self.problem.dim)
        if isinstance(self.features, Store):  # nothing is padded
            return by_degree
        by_count = _classes(self._lengths, self.features.shape[1])
        return by_degree * (by_count.max() + 1) + by_count

    @cached_property
    def order(self) -> np.ndarray:
        """The agents, class by class: their order in memory on one device."""
        return np.argsort(self.key, kind="stable") if len(np.unique(self.key)) > 1 else np.arange(len(self.parts))

    @property
    def dense(self) -> bool:
        """Whether sums over neighbours are one matrix product."""
        n = len(self.parts)
        return n <= DENSE_MAX and DENSE_FROM * len(self.graph.edges) >= n * n

    def place(self, members: np.ndarray) -> Place:
        """The places of these agents."""
        place = make_places(
            self.problem, self.counts, self.graph, self.mixing,
            rounds=self.rounds, ridge=self.ridge, weighting=self.weighting, shape=self.shape, dtype=self.dtype,
            present=self.present,
        )  # fmt: skip
        start = self.problem.start(0) if self.start is None else self.start
        return jax.device_put(rows(jax.tree.map(np.asarray, place.begin_at(start)), members))

    def group(self, low: int, members: np.ndarray, position: np.ndarray) -> Group:
        """These agents of one class side by side from `low` on; `position`: where each agent's messages are found."""
        (longest, width), size = self._extents[int(self.key[members[0]])], len(members)
        here, flat = self._slots(members, width)
        index = np.zeros((size, width), dtype=np.int32)
        weight = np.zeros((size, width))
        index[here] = position[self.graph.indices[flat]]
        weight[here] = np.asarray(self.mixing.edge_weights)[flat]

        stored = isinstance(self.features, Store)
        shards = self._stored(members) if stored else self._shards(members, longest)
        # A batch of subproblems takes as many steps as its slowest, and every branch of each: few large ones run two to
        # three times faster one after the other on a CPU; a GPU wants the batch.
        # Streamed ones come one after the other, or the batch would be as large as all of them.
        numbers = 0 if isinstance(self.features, Store) else longest * self.features.shape[1]
        core = jax.default_backend() == "cpu"
        large = stored or (numbers >= 1 << 16 and size <= 64 and core)
        budget = CORE_SLOT_BUDGET if core else SLOT_BUDGET
        chunk = int(np.clip(budget // max(1, size * self.problem.dim), 1, max(width, 1))) if width > 16 else 1
        slots = _put(index), _put(weight, self.dtype), _put(here)
        return Group(low, low + size, chunk, large, shards, *slots)

    def _shards(self, members: np.ndarray, longest: int) -> Shard:
        """The records of these agents in memory, padded to one length."""
        assert isinstance(self.features, np.ndarray)
        if self.people is not None:
            return self._grouped(members, longest)
        # Padding repeats the agent's own first record, so that whatever is finite on records is finite on padding (0
        # times it is 0); `count` keeps it out of every result.
        slot = np.arange(longest)

        def take(own: slice) -> np.ndarray:
            some = members[own, None]
            return self._held.rows[self._held.ends[some] + np.where(slot < self.counts[some], slot, 0)]

        shown = self._admitted((len(members), longest), take)
        alike = self.key == self.key[members[0]]  # on all devices: they run one program
        full = bool(np.all(self.counts[alike] == longest))
        return HeldShard(self.problem, *shown, *self._weights(members), self.how or SolverSettings(), full=full)

    def _grouped(self, members: np.ndarray, longest: int) -> Shard:
        """The same where people are the unit: rows of one person stand together."""
        assert self.people is not None
        owners = [self.people[self.parts[i]] for i in members]
        alike = np.flatnonzero(self.key == self.key[members[0]])  # on all devices: they run one program
        counted = (np.unique(self.people[self.parts[i]], return_counts=True)[1].max() for i in alike.tolist())
        most = min(self.per_person or longest, int(max(counted)))
        at, laid = lay_out(owners, longest, int(self.counts[alike].max()), most)
        take = np.stack([self.parts[i][own] for i, own in zip(members, at, strict=True)])
        kinds = {"share": self.dtype}
        people = People(**{name: _put(x, kinds.get(name)) for name, x in laid.items()}, most=most)
        shown = self._admitted(take.shape, lambda own: take[own]), self._weights(members)
        return HeldShard(self.problem, *shown[0], *shown[1], self.how or SolverSettings(), people)

    @cached_property
    def _held(self) -> Parts:
        """Everybody's rows, one after the other."""
        return Parts.of(self.parts)

    def _admitted(self, shape: tuple[int, ...], take: Callable[[slice], np.ndarray]) -> tuple[Array, Array]:
        """The records that `take` says, as the facts take them, a block of agents at a time: each on its own."""
        assert isinstance(self.features, np.ndarray)
        features, targets = self.features, self.targets
        block = aligned((*shape, *features.shape[1:]), np.dtype(self.dtype))
        alike = features.dtype == block.dtype and self._held.within(len(features))

        def admit(own: slice) -> np.ndarray:
            these, there = take(own), block[own]
            if alike:  # gathered where it will stand
                np.take(features, these, axis=0, out=there, mode="clip")
            shown, labels = self.problem.admit(there if alike else features[these], targets[these])
            if shown is not there:
                there[...] = shown
            return labels

        labels = joined(over(shape[0], int(np.prod(block.shape[1:])), admit))
        kind = self.dtype if targets.dtype.kind == "f" else jnp.int32
        # On an accelerator (`sharded`) `jnp.asarray` would make a second copy.
        return jax.device_put(block), _put(labels, kind)

    def _stored(self, members: np.ndarray) -> StoredShard:
        """These agents' files; nothing is read."""
        assert isinstance(self.features, Store)
        store, agents = self.features, _put(members, jnp.int32)
        rows = int(np.clip(PIECE // store.stride, 1, max(store.counts)))
        if not self.problem.per_person:
            return StoredShard(self.problem, agents, *self._weights(members), store, rows)
        rows = max(rows, store.most)  # a person is read whole
        pieces = _put(np.array([len(store.cuts(int(i), rows)) - 1 for i in members]), jnp.int32)
        most = min(self.per_person or store.most, store.most)
        return StoredShard(self.problem, agents, *self._weights(members), store, rows, pieces, most)

    def _weights(self, members: np.ndarray) -> tuple[Array, Array, Array]:
        """Count, unit and ridge of these agents."""
        counts, unit = _put(self.counts[members], jnp.int32), _put(self.unit[members], self.dtype)
        return counts, unit, _put(self.ridge, self.dtype)

    def matrices(self, members: np.ndarray, position: np.ndarray, width: int) -> tuple[Array, Array]:
        """Adjacency and weights of these agents' neighbours as matrices over `width` positions of messages."""
        here, flat = self._slots(members, int(self.graph.degrees[members].max()))
        row = np.nonzero(here)[0]
        ones, weights = np.zeros((2, len(members), width))
        ones[row, position[self.graph.indices[flat]]] = 1.0
        weights[row, position[self.graph.indices[flat]]] = self.mixing.edge_weights[flat]
        return _put(ones, self.dtype), _put(weights, self.dtype)

    @cached_property
    def _extents(self) -> dict[int, tuple[int, int]]:
        """Most records and most neighbours of an agent, by class."""
        degrees = np.asarray(self.graph.degrees)
        alike = {int(k): self.key == k for k in np.unique(self.key)}
        return {k: (int(self._lengths[m].max()), int(degrees[m].max())) for k, m in alike.items()}

    def _slots(self, members: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
        """Which of `width` slots these agents' neighbours fill, and where these stand in the graph's lists."""
        degrees = np.asarray(self.graph.degrees)[members]
        starts = np.asarray(self.graph.indptr)[members] - np.concatenate([[0], np.cumsum(degrees)[:-1]])
        return np.arange(width) < degrees[:, None], np.repeat(starts, degrees) + np.arange(degrees.sum())


def make_layout(*what: Any, **options: Any) -> Layout:
    """Lay all agents of a `Terrain` out for one device; takes what `Terrain` takes."""
    with jax.default_device(host()):
        return _laid_out(Terrain(*what, **options))


def host() -> jax.Device | None:
    """JAX's device of the host's own processors; None where JAX_PLATFORMS names accelerators only."""
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:
        return None


def _laid_out(terrain: Terrain) -> Layout:
    order, key = terrain.order, terrain.key
    position = np.argsort(order)
    groups = []
    for k in np.unique(key):
        members = order[key[order] == k]
        group = terrain.group(int(position[members[0]]), members, position)
        if isinstance(group.shards, HeldShard) and group.shards.people is None:
            listed = terrain.problem.listed(group.shards.features)
            group = replace(group, shards=replace(group.shards, features=cast(Array, listed)))
        groups.append(group)
    adjacency = terrain.matrices(order, position, len(order)) if terrain.dense else None
    place, ids = terrain.place(order), _put(order, jnp.int32)
    return Layout(Arrays(groups, place, ids, adjacency), terrain.problem, order)


def make_places(
    problem: Problem,
    counts: np.ndarray,
    graph: Graph,
    mixing: Mixing,
    *,
    rounds: int,
    ridge: float = 0.0,
    weighting: str = "agents",
    shape: np.ndarray | None = None,
    dtype: DTypeLike = jnp.float64,
    present: np.ndarray | None = None,
) -> Place:
    """Every agent's place, in the plan's order: from public sizes alone, so that accounting needs no data."""
    n = len(counts)
    unit = np.full(n, n / counts.sum()) if weighting == "records" else 1.0 / counts
    put = partial(_put, dtype=dtype)
    return Place(
        count=put(counts),
        degree=put(graph.degrees),
        self_weight=put(mixing.self_weights),
        unit=put(unit),
        noise=put(np.zeros(n)),
        shape=put(np.ones(rounds) if shape is None else shape),
        start=put(np.zeros(problem.dim)),
        ridge=put(ridge),
        lipschitz=put(problem.half_gap),
        smoothness=put(problem.smoothness),
        dim=problem.dim,
        rounds=rounds,
        agents=n,
        rows=int(counts.max()),
        factor=problem.keeps_factor,
        monotone=problem.monotone,
        steepness=float(problem.lipschitz),
        within=None if problem.interior else problem.constraint,
        seat=put(np.arange(n)) if problem.coupled else None,
        present=None if present is None else put(present),
    )


def _put(x: ArrayLike, dtype: DTypeLike | None = None) -> Array:
    """An array of the device, converted on the host: `jnp.asarray` compiles a program for every shape."""
    return jax.device_put(np.asarray(x, dtype))
