"""The quantized family's runs again in NumPy, from the recorded draws: written from the papers' formulas."""

from __future__ import annotations

import numpy as np

from coterie.drivers.layout import Layout
from coterie.graphs import make_graph, mixing


def records(layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    """(agents, records, d) features and (agents, records) labels."""
    shards = layout.arrays.groups[0].shards
    return np.asarray(shards.features), np.asarray(shards.targets)


def weights(graph: str, agents: int = 5) -> np.ndarray:
    """W as a matrix."""
    return mixing(make_graph(graph, agents), "metropolis").dense()


def clipped(x: np.ndarray, features: np.ndarray, labels: np.ndarray, clip: float) -> np.ndarray:
    """Every record's clipped logistic gradient."""
    each = (-labels / (1 + np.exp(labels * (features @ x))))[:, None] * features
    return each * np.minimum(1, clip / np.maximum(np.linalg.norm(each, axis=1), 1e-300))[:, None]


def deadline_batch(draws: dict, agent: int, t: int, batch: int, count: int) -> np.ndarray:
    """Which records agent `agent` processed in round t: a fresh random order, cut after ⌊V B/50⌋."""
    order = np.argsort(draws["coins"][0, t, agent][:count])
    speed = 10 + 80 * draws["speed"][0, t, agent]
    return order[: min(count, int(np.floor(speed * batch / 50)))]


def rounded(x: np.ndarray, dither: np.ndarray, step: float) -> np.ndarray:
    """Stochastic rounding to whole multiples of `step`."""
    low = np.floor(x / step)
    return step * (low + (x / step - low >= 1 - dither))
