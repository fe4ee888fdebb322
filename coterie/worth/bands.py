"""How far noise alone moves a model: the run once more, on records that say nothing.

Records whose features are all 0 have gradients of 0, whatever the point. What a run makes of them is its noise, by the
same algorithm, exchange and settings, and so a public number: it needs no record and costs nothing. Where records do
say something, a convex loss pulls the point back to its optimum, so a coordinate that has records has less noise than
this. It is the law of a coordinate: all have the same.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from coterie.data import ALL_PUBLIC, Dataset
from coterie.experiment import Experiment
from coterie.losses import by_labels
from coterie.losses.base import find_loss
from coterie.network import Network
from coterie.plan import Plan
from coterie.pricing import Priced

__all__ = ["noise_alone"]

COORDINATES, SEEDS = 12, 16  # 192 draws: the deviation is known to 5 %


def noise_alone(plan: Plan, network: Network, priced: Priced) -> float | None:
    """Standard deviation of a coordinate of the parties' average model, by noise alone; None without privacy."""
    if priced.spending is None or network.store is not None:
        return None
    problem = network.problem
    loss, classes = plan.problem.loss or by_labels(problem.labels.classes), problem.labels.classes or 1
    small = find_loss(loss).make(plan.problem.settings(loss), COORDINATES, classes)
    sizes = np.asarray(network.sizes)
    parts = np.split(np.arange(sizes.sum()), np.cumsum(sizes)[:-1])
    features = np.zeros((int(sizes.sum()), COORDINATES))
    targets = small.encode(np.zeros(len(features), int), tuple(map(str, range(classes))) if classes > 1 else None)
    empty = Dataset("noise alone", features[:1], targets[:1], None, tuple(map(str, range(COORDINATES))),
                    origins=ALL_PUBLIC)  # fmt: skip
    silent = Experiment(plan, replace(network, problem=small), empty, parts, *small.admit(features, targets), None)
    trace = silent.run(priced, list(range(SEEDS)), every=priced.rounds)
    return float(np.std(np.asarray(trace.points, float).mean(axis=1)))
