"""What builders of graphs share: edges in canonical order, drawing until connected, and limits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from coterie.errors import InputError
from coterie.graphs import edge_lists
from coterie.graphs.graph import Graph

__all__ = ["affordable", "from_edges", "integer", "until_connected"]

MAX_EDGES = 50_000_000  # 0.8 GB of adjacency: beyond it a slip in a plan would exhaust the host


def from_edges(
    size: int, edges: np.ndarray, names: tuple[str, ...] | None = None, shape: tuple[int, int] | None = None
) -> Graph:
    """The graph with these edges, (E, 2) in any order and direction; `names` of its nodes, `shape` of a grid.

    >>> from_edges(3, np.array([[2, 1], [0, 1], [1, 2]])).edges.tolist()
    [[0, 1], [1, 2]]
    """
    codes = edge_lists.distinct(edge_lists.pair_codes(edges.astype(np.int64), size))
    ordered = np.column_stack([codes // size, codes % size]).astype(np.int32)
    ordered.flags.writeable = False
    return Graph(size, ordered, "", names, shape)  # `make_graph` says of which kind


def until_connected(
    what: str, size: int, edges: int, chance: float, hint: str, draw: Callable[[], np.ndarray]
) -> Graph:
    """Draw until connected; refuse at once when the cap of draws would almost surely not be enough."""
    cap = int(np.clip(20_000_000 // (size + edges), 10, 10_000))
    if chance * cap > 1e-6:
        for _ in range(cap):
            graph = from_edges(size, draw())
            if graph.connected:
                return graph
    raise InputError(
        f"no connected {what} graph of {size} nodes and about {edges} edges in {cap} draws "
        f"(one draw is connected with probability about {chance:.2g}); {hint}"
    )


def integer(name: str, value: object, low: int, high: int) -> int:
    """A number of a graph whose range depends on others."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not low <= value <= high:
        raise InputError(f"graph {name} must be an integer from {low} to {high}, got {value!r}")
    return int(value)


def affordable(what: str, size: int, edges: float) -> None:
    """Refuse a graph that the host could not hold."""
    if edges > MAX_EDGES:
        raise InputError(f"a {what} graph of {size:,} nodes has about {edges:,.0f} edges, more than {MAX_EDGES:,}")
