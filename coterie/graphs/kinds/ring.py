"""Ring: 0 – 1 – … – (size − 1) – 0."""

from coterie.graphs import edge_lists
from coterie.graphs.building import from_edges
from coterie.graphs.graph import Graph
from coterie.settings import Settings

__all__ = ["EXAMPLE", "Settings", "build"]

EXAMPLE = Settings()


def build(size: int, settings: Settings) -> Graph:
    """The graph."""
    return from_edges(size, edge_lists.ring_edges(size))
