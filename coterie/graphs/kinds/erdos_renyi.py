"""Erdős–Rényi G(n, p): every pair of nodes is an edge with probability p, independently."""

import math

import numpy as np
from pydantic import Field

from coterie import settings
from coterie.graphs import edge_lists
from coterie.graphs.building import affordable, until_connected
from coterie.graphs.graph import Graph

__all__ = ["EXAMPLE", "Settings", "build"]


class Settings(settings.Settings):
    """How many edges there are on average."""

    p: float = Field(ge=0, le=1, description="probability of an edge")
    seed: int = Field(0, ge=0, le=2**63, description="seed of the random graph (public)")


EXAMPLE = Settings(p=0.5)


def build(size: int, settings: Settings) -> Graph:
    """The graph."""
    rng, p, pairs = np.random.default_rng(settings.seed), settings.p, size * (size - 1) // 2
    affordable("erdos-renyi", size, p * pairs)
    enough = min(1.0, 2 * math.log(size) / size)
    hint = f"use p of {enough:.2g} or more, or kind 'gnm' with a number of edges"
    chance = edge_lists.connected_chance(size, p)
    draw = lambda: edge_lists.gnm_edges(rng, size, int(rng.binomial(pairs, p)))  # noqa: E731
    return until_connected("erdos-renyi", size, round(p * pairs), chance, hint, draw)
