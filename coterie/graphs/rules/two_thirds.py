"""Two thirds: W = I − 2L / (3 λ_max(L))."""

import numpy as np

from coterie.graphs.graph import Graph
from coterie.settings import Settings

__all__ = ["Settings", "weights"]


def weights(graph: Graph, settings: Settings) -> np.ndarray:
    """Of every edge."""
    return np.full(len(graph.indices), 1 / (1.5 * graph.laplacian_extremes[1]))
