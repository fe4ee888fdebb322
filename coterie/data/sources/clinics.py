"""Clinics: synthetic patients whose truth is known (`coterie.data.clinics` says how they are made)."""

from pathlib import Path

from coterie.data.clinics import make_clinics
from coterie.data.dataset import ALL_PUBLIC, Dataset, Origins
from coterie.errors import InputError

__all__ = ["MADE", "SITED", "load", "origins"]

MADE = SITED = True


def load(
    path: str | Path | None = None,
    seed: int = 0,
    *,
    sites: int = 5,
    records: int = 3000,
    features: int = 12,
    strength: float = 1.0,
    unlike: float = 1.0,
) -> Dataset:
    """Patients of `sites` clinics."""
    if path is not None:
        raise InputError(f"data set 'clinics' is synthetic and takes no path, got {path}")
    return make_clinics(seed, sites, records, features, strength, unlike)


def origins(**_: object) -> Origins:
    """There are no records to read from."""
    return ALL_PUBLIC
