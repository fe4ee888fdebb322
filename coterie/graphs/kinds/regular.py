"""Regular: a random graph in which every node has the same number of neighbours."""

import math

import numpy as np
from pydantic import Field

from coterie import settings
from coterie.errors import InputError
from coterie.graphs import edge_lists
from coterie.graphs.building import affordable, integer, until_connected
from coterie.graphs.graph import Graph

__all__ = ["EXAMPLE", "Settings", "build"]


class Settings(settings.Settings):
    """How many neighbours."""

    degree: int = Field(ge=1, description="neighbours of every node")
    seed: int = Field(0, ge=0, le=2**63, description="seed of the random graph (public)")


EXAMPLE = Settings(degree=3)


def build(size: int, settings: Settings) -> Graph:
    """The graph."""
    rng, degree = np.random.default_rng(settings.seed), integer("degree", settings.degree, 1, size - 1)
    if degree * size % 2:
        raise InputError(f"no graph of {size} nodes has every degree {degree}: their product must be even")
    edges = degree * size // 2
    affordable("regular", size, edges)
    chance = {1: float(size == 2), 2: min(1.0, math.exp(0.75) * math.sqrt(math.pi / size) / 2)}.get(degree, 1.0)
    hint = "use a larger degree" + (" or kind 'ring'" if degree == 2 else "")
    return until_connected("regular", size, edges, chance, hint, lambda: edge_lists.regular_edges(rng, size, degree))
