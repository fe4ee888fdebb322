"""Metropolis: w_ij = 1 / (1 + max(d_i, d_j)), from degrees alone (Xiao, Boyd & Kim 2007)."""

import numpy as np

from coterie.graphs.graph import Graph
from coterie.settings import Settings

__all__ = ["Settings", "weights"]


def weights(graph: Graph, settings: Settings) -> np.ndarray:
    """Of every edge."""
    return 1.0 / (1 + np.maximum(graph.degrees[graph.sources], graph.degrees[graph.indices]))
