"""How agents are laid out in memory so that one compiled round costs edges × dimension + data.

Agents are sorted into groups of like degree and like record count. A group is a contiguous slice of every per-agent
array, with its shards padded to one length and its neighbour lists to one width; padding is bounded by the group's
spread, so a star with a million leaves is two groups and no array ever has agents² entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from coterie.algorithms.base import Place
from coterie.errors import InputError
from coterie.graphs import Graph, Mixing
from coterie.problems import Problem, Settings, Shard

__all__ = ["Arrays", "Group", "Layout", "axes", "make_layout", "make_places", "rows"]

PADDING = 1.5  # regroup where padding would cost more than this factor …
SMALL = 1 << 18  # … of more than so many numbers: each group is compiled on its own
SLOT_BUDGET = 1 << 22  # numbers gathered at once per group
DENSE_FROM = 8  # one matrix product for all sums from N²/8 edges on
DENSE_MAX = 4096


SHARED = {"shape", "start", "ridge", "lipschitz", "smoothness"}  # fields of Place and Shard that all agents share


def axes(tree: Any) -> Any:
    """`vmap` axes over agents of a batched Place, Shard, state or draw."""
    return jax.tree_util.tree_map_with_path(lambda path, _: None if _shared(tree, path) else 0, tree)


def rows(tree: Any, at: Any) -> Any:
    """The agents `at` (an index or a slice) of a batched Place, Shard, state or draw."""
    return jax.tree_util.tree_map_with_path(lambda path, x: x if _shared(tree, path) else x[at], tree)


def _shared(tree: Any, path: tuple) -> bool:
    return isinstance(tree, Place | Shard) and path[0].name in SHARED


class Group(eqx.Module):
    """A slice [low, high) of the agents, of like degree and like record count."""

    low: int = eqx.field(static=True)
    high: int = eqx.field(static=True)
    chunk: int = eqx.field(static=True)  # neighbours gathered at once
    one_by_one: bool = eqx.field(static=True)  # loop over the agents instead of batching them
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


@dataclass(frozen=True)
class Layout:
    """The arrays of a simulation and the order in which agents sit in them."""

    arrays: Arrays
    problem: Problem
    order: np.ndarray

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


def make_layout(
    problem: Problem,
    features: np.ndarray,
    targets: np.ndarray,
    parts: Sequence[np.ndarray],
    graph: Graph,
    mixing: Mixing,
    *,
    rounds: int,
    ridge: float = 0.0,
    weighting: str = "agents",
    shape: np.ndarray | None = None,
    start: np.ndarray | None = None,
    how: Settings | None = None,
    dtype: Any = jnp.float64,
) -> Layout:
    """Lay out agent i = records `parts[i]` on node i of the graph. `targets` are already in the problem's coding."""
    how = how or Settings()
    n = len(parts)
    if n != graph.size:
        raise InputError(f"the graph has {graph.size} nodes but the data is split over {n} agents")
    counts = np.array([len(p) for p in parts])
    if (counts == 0).any():
        raise InputError(f"agent {int(np.argmin(counts))} has no records: every agent needs at least one")
    degrees = np.asarray(graph.degrees)
    unit = np.full(n, n / counts.sum()) if weighting == "records" else 1.0 / counts
    start = problem.start(0) if start is None else start
    if start.shape != (problem.dim,):
        raise InputError(f"the starting point has {start.shape} numbers, the problem {problem.dim}")

    by_degree = _classes(degrees, problem.dim)
    by_count = _classes(counts, features.shape[1])
    key = by_degree * (by_count.max() + 1) + by_count
    order = np.argsort(key, kind="stable") if len(np.unique(key)) > 1 else np.arange(n)
    position = np.argsort(order)

    groups = []
    for k in np.unique(key):
        members = order[key[order] == k]
        low = int(position[members[0]])
        groups.append(
            _group(
                low,
                members,
                problem,
                features,
                targets,
                parts,
                graph,
                mixing,
                position,
                unit,
                ridge,
                how,
                dtype,
            )
        )
    adjacency = None
    if n <= DENSE_MAX and DENSE_FROM * len(graph.edges) >= n * n:
        ones, weights = _dense(graph, mixing, order)
        adjacency = jnp.asarray(ones, dtype), jnp.asarray(weights, dtype)
    place = make_places(problem, counts, graph, mixing, rounds=rounds, ridge=ridge, weighting=weighting, dtype=dtype)
    place = rows(place, order)
    if shape is not None:
        place = eqx.tree_at(lambda p: p.shape, place, jnp.asarray(shape, dtype))
    place = eqx.tree_at(lambda p: p.start, place, jnp.asarray(start, dtype))
    return Layout(Arrays(groups, place, jnp.asarray(order, jnp.int32), adjacency), problem, order)


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
    dtype: Any = jnp.float64,
) -> Place:
    """Every agent's place, in the plan's order: from public sizes alone, so that accounting needs no data."""
    n = len(counts)
    unit = np.full(n, n / counts.sum()) if weighting == "records" else 1.0 / counts
    return Place(
        count=jnp.asarray(counts, dtype),
        degree=jnp.asarray(graph.degrees, dtype),
        self_weight=jnp.asarray(mixing.self_weights, dtype),
        unit=jnp.asarray(unit, dtype),
        noise=jnp.zeros(n, dtype),
        shape=jnp.asarray(np.ones(rounds) if shape is None else shape, dtype),
        start=jnp.zeros(problem.dim, dtype),
        ridge=jnp.asarray(ridge, dtype),
        lipschitz=jnp.asarray(problem.lipschitz, dtype),
        smoothness=jnp.asarray(problem.smoothness, dtype),
        dim=problem.dim,
        rounds=rounds,
        agents=n,
        rows=int(counts.max()),
        factor=problem.keeps_factor,
    )


def _group(
    low: int,
    members: np.ndarray,
    problem: Problem,
    features: np.ndarray,
    targets: np.ndarray,
    parts: Sequence[np.ndarray],
    graph: Graph,
    mixing: Mixing,
    position: np.ndarray,
    unit: np.ndarray,
    ridge: float,
    how: Settings,
    dtype: Any,
) -> Group:
    size = len(members)
    counts = np.array([len(parts[i]) for i in members])
    longest = int(counts.max())
    # Padding repeats the agent's own first record, so that whatever is finite on records is finite on padding (0 times
    # it is 0); `count` keeps it out of every result.
    take = np.repeat([parts[i][0] for i in members], longest).reshape(size, longest)
    take[np.arange(longest) < counts[:, None]] = np.concatenate([parts[i] for i in members])
    block = features[take].astype(np.dtype(dtype), copy=False)
    kind = dtype if targets.dtype.kind == "f" else jnp.int32

    degrees = np.asarray(graph.degrees)[members]
    width = int(degrees.max())
    index = np.zeros((size, width), dtype=np.int32)
    weight = np.zeros((size, width))
    here = np.arange(width) < degrees[:, None]
    starts = np.asarray(graph.indptr)[members] - np.concatenate([[0], np.cumsum(degrees)[:-1]])
    flat = np.repeat(starts, degrees) + np.arange(degrees.sum())
    index[here] = position[graph.indices[flat]]
    weight[here] = np.asarray(mixing.edge_weights)[flat]

    shards = Shard(
        problem,
        jnp.asarray(block),
        jnp.asarray(targets[take], kind),
        jnp.asarray(counts, jnp.int32),
        jnp.asarray(unit[members], dtype),
        jnp.asarray(ridge, dtype),
        how,
    )
    # Few large float64 shards run two to three times faster one after the other on a CPU; a GPU wants the batch.
    large = longest * features.shape[1] >= 1 << 16 and size <= 64 and jax.default_backend() == "cpu"
    chunk = int(np.clip(SLOT_BUDGET // max(1, size * problem.dim), 1, max(width, 1))) if width > 16 else 1
    return Group(
        low,
        low + size,
        chunk,
        large,
        shards,
        jnp.asarray(index),
        jnp.asarray(weight, dtype),
        jnp.asarray(here),
    )


def _dense(graph: Graph, mixing: Mixing, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    row = np.repeat(np.arange(graph.size), np.diff(graph.indptr))
    ones, weights = np.zeros((2, graph.size, graph.size))
    ones[row, graph.indices] = 1.0
    weights[row, graph.indices] = mixing.edge_weights
    pick = np.ix_(order, order)
    return ones[pick], weights[pick]
