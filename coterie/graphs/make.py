"""`make_graph`: validated parameters in, a connected graph out."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from coterie.arguments import check_arguments, choose
from coterie.errors import InputError
from coterie.graphs import edge_lists
from coterie.graphs.graph import Graph

__all__ = ["KINDS", "make_graph"]

MAX_EDGES = 50_000_000  # 0.8 GB of adjacency: beyond it a slip in a plan would exhaust the host


def _finish(kind: str, size: int, edges: np.ndarray, **extra: object) -> Graph:
    """Canonical edge order, read-only."""
    codes = edge_lists.distinct(edge_lists.pair_codes(edges.astype(np.int64), size))
    ordered = np.column_stack([codes // size, codes % size]).astype(np.int32)
    ordered.flags.writeable = False
    return Graph(size, ordered, kind, **extra)  # type: ignore[arg-type]


def _until_connected(
    kind: str, size: int, edges: int, chance: float, hint: str, draw: Callable[[], np.ndarray]
) -> Graph:
    """Draw until connected; refuse at once when the cap of draws would almost surely not be enough."""
    cap = int(np.clip(20_000_000 // (size + edges), 10, 10_000))
    if chance * cap > 1e-6:
        for _ in range(cap):
            graph = _finish(kind, size, draw())
            if graph.connected:
                return graph
    raise InputError(
        f"no connected {kind} graph of {size} nodes and about {edges} edges in {cap} draws "
        f"(one draw is connected with probability about {chance:.2g}); {hint}"
    )


def _integer(name: str, value: object, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not low <= value <= high:
        raise InputError(f"graph {name} must be an integer from {low} to {high}, got {value!r}")
    return int(value)


def _probability(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InputError(f"graph p must be a probability from 0 to 1, got {value!r}")
    return float(value)


def _affordable(kind: str, size: int, edges: float) -> None:
    if edges > MAX_EDGES:
        raise InputError(f"a {kind} graph of {size:,} nodes has about {edges:,.0f} edges, more than {MAX_EDGES:,}")


def _complete(size: int, rng: np.random.Generator) -> Graph:
    _affordable("complete", size, size * (size - 1) // 2)
    return _finish("complete", size, edge_lists.complete_edges(size))


def _grid(size: int, rng: np.random.Generator, *, rows: int | None = None) -> Graph:
    if rows is None:
        rows = next(r for r in range(math.isqrt(size), 0, -1) if size % r == 0)
        if rows == 1 and size > 3:
            raise InputError(f"a grid of {size} nodes is a single line: choose a size that is rows × columns")
    rows = _integer("rows", rows, 1, size)
    if size % rows:
        raise InputError(f"a grid of {size} nodes cannot have {rows} equal rows")
    return _finish("grid", size, edge_lists.grid_edges(size, rows), shape=(rows, size // rows))


def _regular(size: int, rng: np.random.Generator, *, degree: int) -> Graph:
    degree = _integer("degree", degree, 1, size - 1)
    if degree * size % 2:
        raise InputError(f"no graph of {size} nodes has every degree {degree}: their product must be even")
    edges = degree * size // 2
    _affordable("regular", size, edges)
    chance = {1: float(size == 2), 2: min(1.0, math.exp(0.75) * math.sqrt(math.pi / size) / 2)}.get(degree, 1.0)
    hint = "use a larger degree" + (" or kind 'ring'" if degree == 2 else "")
    return _until_connected("regular", size, edges, chance, hint, lambda: edge_lists.regular_edges(rng, size, degree))


def _erdos_renyi(size: int, rng: np.random.Generator, *, p: float) -> Graph:
    p, pairs = _probability(p), size * (size - 1) // 2
    _affordable("erdos-renyi", size, p * pairs)
    enough = min(1.0, 2 * math.log(size) / size)
    hint = f"use p of {enough:.2g} or more, or kind 'gnm' with a number of edges"
    chance = edge_lists.connected_chance(size, p)
    draw = lambda: edge_lists.gnm_edges(rng, size, int(rng.binomial(pairs, p)))  # noqa: E731
    return _until_connected("erdos-renyi", size, round(p * pairs), chance, hint, draw)


def _gnm(size: int, rng: np.random.Generator, *, edges: int) -> Graph:
    pairs = size * (size - 1) // 2
    edges = _integer("edges", edges, size - 1, pairs)
    _affordable("gnm", size, edges)
    enough = min(pairs, math.ceil(size * math.log(size)))
    chance = edge_lists.connected_chance(size, edges / pairs)
    hint = f"use {enough} edges or more"
    return _until_connected("gnm", size, edges, chance, hint, lambda: edge_lists.gnm_edges(rng, size, edges))


def _small_world(size: int, rng: np.random.Generator, *, k: int, p: float) -> Graph:
    if size < 4:
        raise InputError(f"a small-world graph needs at least 4 nodes, got {size}")
    k, p = _integer("k", k, 2, size // 2), _probability(p)
    if k % 2:
        raise InputError(f"a small-world graph needs an even k (k/2 neighbours on each side), got {k}")
    _affordable("small-world", size, size * k // 2)
    return _until_connected(
        "small-world",
        size,
        size * k // 2,
        1.0,
        "use a larger k or a smaller p",
        lambda: edge_lists.small_world_edges(rng, size, k, p),
    )


def _file(size: int | None, rng: np.random.Generator, *, path: str | Path) -> Graph:
    edges, names = edge_lists.read_edges(path)
    if size is not None and size != len(names):
        raise InputError(f"graph file {path} has {len(names)} nodes, but {size} are wanted")
    graph = _finish("file", len(names), edges, names=names)
    if not graph.connected:
        raise InputError(f"the graph in {path} is not connected: some nodes cannot reach the others")
    return graph


def _listed(size: int, rng: np.random.Generator, *, pairs: Sequence[tuple[int, int]]) -> Graph:
    _affordable("listed", size, len(pairs))
    for i, j in pairs:
        if i == j or not (0 <= i < size and 0 <= j < size):
            raise InputError(f"graph pairs: [{i}, {j}] does not join two of the nodes 0 to {size - 1}")
    graph = _finish("listed", size, np.array(pairs, np.int64).reshape(-1, 2))
    if not graph.connected:
        raise InputError(f"the {len(pairs)} listed pairs do not connect all {size} nodes")
    return graph


def _plain(kind: str, edges: Callable[[int], np.ndarray]) -> Callable[..., Graph]:
    return lambda size, rng: _finish(kind, size, edges(size))


KINDS: dict[str, Callable[..., Graph]] = {
    "ring": _plain("ring", edge_lists.ring_edges),
    "path": _plain("path", edge_lists.path_edges),
    "star": _plain("star", edge_lists.star_edges),
    "complete": _complete,
    "grid": _grid,
    "regular": _regular,
    "erdos-renyi": _erdos_renyi,
    "gnm": _gnm,
    "small-world": _small_world,
    "listed": _listed,
    "file": _file,
}
"""Kind of graph → builder; its keyword arguments are the kind's parameters."""


def make_graph(kind: str, size: int | None = None, *, seed: int = 0, **params: object) -> Graph:
    """A connected graph of `size` nodes, the same for the same seed.

    Kinds and their parameters: `ring`, `path`, `star` (node 0 in the middle), `complete`, `grid` (rows: the
    most square one by default), `regular` (degree), `erdos-renyi` (p), `gnm` (edges), `small-world` (k, p),
    `listed` (pairs),
    `file` (path; size optional). Random kinds are drawn until connected.

    >>> make_graph("erdos-renyi", 10, p=0.6, seed=1).connected
    True
    """
    choose("graph kind", kind, KINDS)
    if kind != "file" or size is not None:
        size = _integer("size", size, 2, 2**31 - 2)
    check_arguments(f"graph kind {kind!r}", KINDS[kind], params)
    return KINDS[kind](size, np.random.default_rng(_integer("seed", seed, 0, 2**63)), **params)
