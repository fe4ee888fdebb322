"""Erdős–Rényi G(n, m): a given number of edges, and any graph that has that many."""

import math

import numpy as np
from pydantic import Field

from coterie import settings
from coterie.graphs import edge_lists
from coterie.graphs.building import Seed, affordable, integer, until_connected
from coterie.graphs.graph import Graph

__all__ = ["EXAMPLE", "Settings", "build"]


class Settings(settings.Settings):
    """How many edges."""

    edges: int = Field(ge=1, description="number of edges")
    seed: Seed = 0


EXAMPLE = Settings(edges=20)


def build(size: int, settings: Settings) -> Graph:
    """The graph."""
    rng, pairs = np.random.default_rng(settings.seed), size * (size - 1) // 2
    edges = integer("edges", settings.edges, size - 1, pairs)
    affordable("gnm", size, edges)
    enough = min(pairs, math.ceil(size * math.log(size)))
    chance = edge_lists.connected_chance(size, edges / pairs)
    hint = f"use {enough} edges or more"
    return until_connected("gnm", size, edges, chance, hint, lambda: edge_lists.gnm_edges(rng, size, edges))
