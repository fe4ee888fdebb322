"""Unlike agents: the share of each class that agent k holds is drawn from a Dirichlet law."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from coterie import settings
from coterie.data.dataset import Dataset
from coterie.errors import InputError


class Settings(settings.Settings):
    """How unlike they are."""

    concentration: float = Field(0.5, gt=0, description="Dirichlet concentration: smaller = more unlike parties")


def deal(
    dataset: Dataset, agents: int, settings: Settings, *, sizes: None, rng: np.random.Generator
) -> list[np.ndarray]:
    """Rows of each agent; one that is left without records gets one of the largest shard."""
    if dataset.classes is None:
        raise InputError(f"the partition 'dirichlet' needs class labels, and {dataset.name!r} has none")
    if dataset.people is not None:
        raise InputError(f"the partition 'dirichlet' would separate the records of a person in {dataset.name!r}")
    if agents > len(dataset):
        raise InputError(f"{agents} parties cannot share {len(dataset)} records")
    owner = np.empty(len(dataset), int)
    for label in range(len(dataset.classes)):
        rows = rng.permutation(np.flatnonzero(dataset.targets == label))
        ends = np.round(np.cumsum(rng.dirichlet(np.full(agents, settings.concentration))) * len(rows))
        owner[rows] = np.searchsorted(ends[:-1], np.arange(len(rows)), side="right")
    shards = [np.flatnonzero(owner == agent) for agent in range(agents)]
    for agent in range(agents):
        if not len(shards[agent]):
            largest = max(range(agents), key=lambda k: len(shards[k]))
            pick = rng.integers(len(shards[largest]))
            shards[agent] = shards[largest][pick : pick + 1]
            shards[largest] = np.delete(shards[largest], pick)
    return shards
