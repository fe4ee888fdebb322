"""Complete: everyone with everyone."""

from coterie.graphs import edge_lists
from coterie.graphs.building import affordable, from_edges
from coterie.graphs.graph import Graph
from coterie.settings import Settings

__all__ = ["EXAMPLE", "Settings", "build"]

EXAMPLE = Settings()


def build(size: int, settings: Settings) -> Graph:
    """The graph."""
    affordable("complete", size, size * (size - 1) // 2)
    return from_edges(size, edge_lists.complete_edges(size))
