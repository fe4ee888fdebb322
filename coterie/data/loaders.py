"""`load`: every data set by its name."""

from collections.abc import Callable
from pathlib import Path

from coterie.arguments import check_arguments, choose
from coterie.data.adult import adult_origins, load_adult
from coterie.data.clinics import make_clinics
from coterie.data.dataset import ALL_PUBLIC, Dataset, Origins
from coterie.data.hospitals import diabetes_origins, load_diabetes, load_heart
from coterie.data.images import load_cifar10, load_mnist
from coterie.data.tables import load_table, table_origins
from coterie.errors import InputError

__all__ = ["LOADERS", "load", "origins"]


def _clinics(
    path: str | Path | None = None,
    seed: int = 0,
    *,
    sites: int = 5,
    records: int = 3000,
    features: int = 12,
    strength: float = 1.0,
) -> Dataset:
    if path is not None:
        raise InputError(f"data set 'clinics' is synthetic and takes no path, got {path}")
    return make_clinics(seed, sites, records, features, strength)


LOADERS: dict[str, Callable[..., Dataset]] = {
    "clinics": _clinics,
    "adult": load_adult,
    "mnist": load_mnist,
    "cifar10": load_cifar10,
    "heart": load_heart,
    "diabetes": load_diabetes,
    "csv": load_table,
    "parquet": load_table,
}
"""Name → loader(path, seed, *, options); the options are its keyword arguments."""


_ORIGINS: dict[str, Callable[..., Origins]] = {
    "adult": adult_origins,
    "diabetes": diabetes_origins,
    "csv": table_origins,
    "parquet": table_origins,
}  # what depends on options; the others read nothing, whatever they are asked for


def origins(name: str, **options: object) -> Origins:
    """What `load` would read from the records with these options: known before a record is read.

    >>> origins("adult", coding="frequency").leaks
    ('categories are coded by their frequency in the data',)
    """
    choose("data set", name, LOADERS)
    check_arguments(f"data set {name!r}", LOADERS[name], options)
    return _ORIGINS.get(name, lambda **_: ALL_PUBLIC)(**options)


def load(name: str, *, path: str | Path | None = None, seed: int = 0, **options: object) -> Dataset:
    """A data set by name: one of `LOADERS`, with that loader's options.

    Files are searched in `path` alone if given; else in the directory `COTERIE_DATA`, then in the user's cache, into
    which they are downloaded and checked if nowhere to be found. `seed` matters to synthetic data only.

    >>> load("clinics", seed=1, records=500).features.shape
    (500, 12)
    """
    choose("data set", name, LOADERS)
    check_arguments(f"data set {name!r}", LOADERS[name], options)
    return LOADERS[name](path, seed, **options)
