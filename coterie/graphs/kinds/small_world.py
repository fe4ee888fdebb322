"""Small world: a ring lattice some of whose edges lead elsewhere (Watts & Strogatz 1998)."""

import numpy as np
from pydantic import Field

from coterie import settings
from coterie.errors import InputError
from coterie.graphs import edge_lists
from coterie.graphs.building import affordable, integer, until_connected
from coterie.graphs.graph import Graph

__all__ = ["EXAMPLE", "Settings", "build"]


class Settings(settings.Settings):
    """The lattice, and how much of it is rewired."""

    k: int = Field(ge=2, description="neighbours before rewiring, half of them on each side")
    p: float = Field(ge=0, le=1, description="probability that an edge is rewired")
    seed: int = Field(0, ge=0, le=2**63, description="seed of the random graph (public)")


EXAMPLE = Settings(k=4, p=0.3)


def build(size: int, settings: Settings) -> Graph:
    """The graph."""
    if size < 4:
        raise InputError(f"a small-world graph needs at least 4 nodes, got {size}")
    rng, k, p = np.random.default_rng(settings.seed), integer("k", settings.k, 2, size // 2), settings.p
    if k % 2:
        raise InputError(f"a small-world graph needs an even k (k/2 neighbours on each side), got {k}")
    edges = size * k // 2
    affordable("small-world", size, edges)
    hint = "use a larger k or a smaller p"
    draw = lambda: edge_lists.small_world_edges(rng, size, k, p)  # noqa: E731
    return until_connected("small-world", size, edges, 1.0, hint, draw)
