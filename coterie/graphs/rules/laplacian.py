"""Laplacian: W = I − L/κ; κ > λ_max/2 converges, κ ≥ max d_i keeps w_ii ≥ 0."""

import numpy as np
from pydantic import Field

from coterie import settings
from coterie.errors import InputError
from coterie.graphs.graph import Graph

__all__ = ["Settings", "weights"]


class Settings(settings.Settings):
    """The scale."""

    kappa: float | None = Field(None, gt=0, description="κ of I − L/κ; default λ_max(L)")


def weights(graph: Graph, settings: Settings) -> np.ndarray:
    """Of every edge."""
    largest = graph.laplacian_extremes[1]
    kappa = largest if settings.kappa is None else settings.kappa
    if not kappa > largest / 2:
        raise InputError(f"kappa must be > {largest / 2:.6g} (half of the Laplacian's λ_max), got {kappa}")
    return np.full(len(graph.indices), 1 / kappa)
