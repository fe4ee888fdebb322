"""Agent k holds the records of site k."""

from __future__ import annotations

import numpy as np
from pydantic import Field, field_validator

from coterie import settings
from coterie.data.dataset import Dataset
from coterie.errors import InputError

SITED = True


class Settings(settings.Settings):
    """Who takes part."""

    outsiders: list[str] = Field(
        default_factory=list, description="sites that take no part: what the model is worth to them is reported"
    )

    @field_validator("outsiders")
    @classmethod
    def _once(cls, names: list[str]) -> list[str]:
        if len(set(names)) < len(names):
            raise ValueError(f"a site is named twice: {names}")
        return names


def deal(
    dataset: Dataset, agents: int | None, settings: Settings, *, sizes: None, rng: np.random.Generator
) -> list[np.ndarray]:
    """Rows of each site."""
    if dataset.sites is None:
        raise InputError(f"data set {dataset.name!r} has no sites: use the partition 'iid' or 'dirichlet'")
    count = len(dataset.site_names)
    if agents not in (None, count):
        raise InputError(f"data set {dataset.name!r} has {count} sites, but {agents} parties are wanted")
    shards = [np.flatnonzero(dataset.sites == site) for site in range(count)]
    for name, rows in zip(dataset.site_names, shards, strict=True):
        if not len(rows):
            raise InputError(f"site {name!r} of data set {dataset.name!r} has no records to learn from")
    return shards
