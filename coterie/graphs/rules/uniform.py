"""Uniform: W = 11ᵀ/n, on complete graphs only."""

import numpy as np

from coterie.errors import InputError
from coterie.graphs.graph import Graph
from coterie.settings import Settings

__all__ = ["Settings", "weights"]


def weights(graph: Graph, settings: Settings) -> np.ndarray:
    """Of every edge."""
    if len(graph.edges) != graph.size * (graph.size - 1) // 2:
        raise InputError(f"mixing rule 'uniform' needs a complete graph, got {graph.kind!r}")
    return np.full(len(graph.indices), 1 / graph.size)
