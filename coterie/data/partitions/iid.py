"""A random deal: equal up to one record, or of given sizes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from pydantic import Field

from coterie import settings
from coterie.data.dataset import Dataset
from coterie.data.parts import Parts
from coterie.errors import InputError
from coterie.passes import shuffled

SIZED = True


class Settings(settings.Settings):
    """How many records each gets."""

    records: int | None = Field(
        None, ge=1, description="records per party (people, where they are the unit); default: all"
    )


def deal(
    dataset: Dataset,
    agents: int,
    settings: Settings,
    *,
    sizes: int | Sequence[int] | None,
    rng: np.random.Generator,
) -> Sequence[np.ndarray]:
    """Rows of each agent; what is left over belongs to nobody.

    All records of a person go to one agent, and sizes are numbers of people then.
    """
    n, sizes = len(dataset), settings.records if sizes is None else sizes
    if dataset.people is not None:
        _, person = np.unique(dataset.people, return_inverse=True)
        if person.max() + 1 < agents:
            raise InputError(f"{agents} parties cannot share {person.max() + 1} people")
        owner = rng.permutation(person.max() + 1)
        if sizes is None:
            return [np.flatnonzero(owner[person] % agents == agent) for agent in range(agents)]
        ends = np.concatenate([[0], np.cumsum(_counts(agents, sizes, len(owner), "people"))])
        return [np.flatnonzero((owner[person] >= low) & (owner[person] < high)) for low, high in pairwise(ends)]
    if sizes is None:
        counts = np.full(agents, n // agents) + (np.arange(agents) < n % agents)
    else:
        counts = _counts(agents, sizes, n, "records")
    if counts.min() < 1:
        raise InputError(f"{agents} parties cannot share {n} records")
    return Parts(shuffled(n, rng)[: counts.sum()], counts)


def _counts(agents: int, sizes: int | Sequence[int], n: int, what: str) -> np.ndarray:
    """How many each gets, of `n` that there are."""
    counts = np.full(agents, sizes) if isinstance(sizes, int) else np.asarray(sizes)
    if len(counts) != agents:
        raise InputError(f"{agents} parties need {agents} sizes, got {len(counts)}")
    if counts.min() < 1 or counts.sum() > n:
        raise InputError(f"{agents} parties with {counts.min()} or more {what} need {counts.sum()} of {n} {what}")
    return counts


def sizes(agents: int, settings: Settings) -> list[int] | None:
    """Records of each agent, where they are stated."""
    return None if settings.records is None else [settings.records] * agents
