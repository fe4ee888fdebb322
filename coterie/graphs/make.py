"""`make_graph`: a kind and its settings in, a connected graph out."""

from __future__ import annotations

from coterie.errors import InputError
from coterie.graphs.building import integer
from coterie.graphs.graph import Graph
from coterie.graphs.kinds import KINDS
from coterie.settings import Settings, read

__all__ = ["build_graph", "from_outside", "make_graph"]

PARTS = ("Settings", "build")


def make_graph(kind: str, size: int | None = None, *, seed: int = 0, **params: object) -> Graph:
    """A connected graph of `size` nodes, of a kind in `KINDS` with its settings; the same for the same seed.

    `star` has node 0 in the middle, `grid` is as square as can be unless it has `rows`, `regular` takes `degree`,
    `erdos-renyi` `p`, `gnm` `edges`, `small-world` `k` and `p`, `listed` `pairs`, `file` a `path` (and no size if you
    like). Random kinds are drawn until connected.

    >>> make_graph("erdos-renyi", 10, p=0.6, seed=1).connected
    True
    """
    model: type[Settings] = KINDS.load(kind, *PARTS).Settings
    given = {"seed": seed, **params} if "seed" in model.model_fields else params
    return build_graph(kind, size, read(model, given, kind))


def build_graph(kind: str, size: int | None, settings: Settings) -> Graph:
    """The same with settings that were read already."""
    if size is not None or not from_outside(kind):
        size = integer("size", size, 2, 2**31 - 2)
    made = KINDS.load(kind, *PARTS).build(size, settings)
    if not isinstance(made, Graph):
        raise InputError(f"graph kind {kind!r} must make a coterie.graphs.Graph, got a {type(made).__name__}")
    graph = made.called(kind)
    if size not in (None, graph.size):
        raise InputError(f"graph kind {kind!r} made {graph.size} nodes where {size} were wanted")
    if not graph.connected:
        raise InputError(f"graph kind {kind!r} made a graph that is not connected: some nodes cannot reach the others")
    return graph


def from_outside(kind: str) -> bool:
    """Whether the edges of such a graph come from elsewhere, so that a plan alone does not say them."""
    return bool(getattr(KINDS.load(kind, *PARTS), "OUTSIDE", False))
