"""File: an edge list that somebody wrote, two nodes a line."""

from pathlib import Path

from pydantic import Field

from coterie import settings
from coterie.errors import InputError
from coterie.graphs import edge_lists
from coterie.graphs.building import from_edges
from coterie.graphs.graph import Graph

__all__ = ["OUTSIDE", "Settings", "build"]

OUTSIDE = True


class Settings(settings.Settings):
    """Where it lies."""

    path: Path = Field(description="edge list")


def build(size: int | None, settings: Settings) -> Graph:
    """The graph; without a size, as many nodes as the file has."""
    edges, names = edge_lists.read_edges(settings.path)
    if size is not None and size != len(names):
        raise InputError(f"graph file {settings.path} has {len(names)} nodes, but {size} are wanted")
    graph = from_edges(len(names), edges, names=names)
    if not graph.connected:
        raise InputError(f"the graph in {settings.path} is not connected: some nodes cannot reach the others")
    return graph
