"""Listed: pairs of nodes that the plan itself states."""

import numpy as np
from pydantic import Field

from coterie import settings
from coterie.errors import InputError
from coterie.graphs.building import affordable, from_edges
from coterie.graphs.graph import Graph

__all__ = ["EXAMPLE", "Settings", "build"]


class Settings(settings.Settings):
    """The pairs."""

    pairs: tuple[tuple[int, int], ...] = Field(description="who talks to whom, by number from 0")


EXAMPLE = Settings(pairs=tuple((i, i + 1) for i in range(11)))


def build(size: int, settings: Settings) -> Graph:
    """The graph."""
    affordable("listed", size, len(settings.pairs))
    for i, j in settings.pairs:
        if i == j or not (0 <= i < size and 0 <= j < size):
            raise InputError(f"graph pairs: [{i}, {j}] does not join two of the nodes 0 to {size - 1}")
    graph = from_edges(size, np.array(settings.pairs, np.int64).reshape(-1, 2))
    if not graph.connected:
        raise InputError(f"the {len(settings.pairs)} listed pairs do not connect all {size} nodes")
    return graph
