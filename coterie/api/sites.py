"""The sites of a call: their records, columns and people, looked at without reading what is in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from coterie.api.bounds import ENCODE
from coterie.api.given import shown
from coterie.data.dataset import Dataset
from coterie.data.people import person_names
from coterie.data.tables import site_origin
from coterie.errors import InputError

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike

    Table = ArrayLike | pd.DataFrame
    Site = tuple[Table, ArrayLike] | Table | Dataset
    People = str | bool | Sequence[ArrayLike] | Mapping[str, ArrayLike] | None
    Sites = Sequence[Site] | Mapping[str, Site] | Dataset | pd.DataFrame

__all__ = [
    "columns_of", "named_columns", "party_names", "people_of_sites", "person_numbers", "shape_of_site", "site_words",
    "split_by_site", "split_frame", "table_of", "whose_records",
]  # fmt: skip


def whose_records(people: People, held: Sequence[Site], counts: Sequence[int]) -> tuple[np.ndarray, ...] | None:
    """Numbers of people for every record of every site; None: records are the unit."""
    if people is None or isinstance(people, bool):
        told = [one.people if isinstance(one, Dataset) else None for one in held]
        known = [ids for ids in told if ids is not None]
        if people is False or (people is None and not known):
            return None
        if len(known) < len(told):
            silent = next(i for i, ids in enumerate(told) if ids is None)
            raise InputError(f"people: the records of site {silent} do not say whose they are")
        return people_of_sites(known, counts)
    if isinstance(people, str | Mapping):
        what = "a column of a frame" if isinstance(people, str) else "a dictionary, as the sites are not"
        raise InputError(f"people: expected one list of names for each site, got {what}")
    return people_of_sites(people, counts)


def people_of_sites(people: Sequence[ArrayLike], counts: Sequence[int]) -> tuple[np.ndarray, ...]:
    """Whose each record of each site is, by number over all of them: a name at two sites is one person's."""
    if len(people) != len(counts):
        raise InputError(f"people: {len(people)} lists of names for {len(counts)} sites")
    each = [_named(ids, n, f"site {i}") for i, (ids, n) in enumerate(zip(people, counts, strict=True))]
    named = np.concatenate(each)
    return tuple(np.split(person_numbers(named, len(named), "sites"), np.cumsum(counts)[:-1]))


def person_numbers(ids: ArrayLike, records: int, where: str) -> np.ndarray:
    """The people of some records, numbered; an InputError where a record is nobody's."""
    named = _named(ids, records, where)
    whole = np.asarray(ids)  # of which each has one form
    return np.unique(whole if whole.dtype.kind in "iu" else named, return_inverse=True)[1].reshape(-1)


def _named(ids: ArrayLike, records: int, where: str) -> np.ndarray:
    names = np.asarray(ids)
    if names.shape != (records,):
        raise InputError(f"{where}: people must name the person of each of {records} records, got shape {names.shape}")
    return person_names(names, where)


def party_names(names: Sequence[str] | None, count: int) -> tuple[str, ...]:
    """The names that were given, one for each site, or numbers."""
    if names is None:
        return tuple(f"agent {i}" for i in range(count))
    if len(names) != count:
        raise InputError(f"{len(names)} names for {count} sites")
    if len(set(map(str, names))) < count:
        raise InputError(f"names must differ, got {list(names)}")
    return tuple(map(str, names))


def site_words(index: int, names: Sequence[str]) -> str:
    """What a mistake in a site's records calls it: by its name, where somebody gave it one."""
    return f"site {index}" if names[index] == f"agent {index}" else f"site {names[index]!r}"


def table_of(one: Site) -> Table:
    """The features of a site."""
    if isinstance(one, Dataset):
        return one.features
    return one[0] if isinstance(one, tuple) and len(one) == 2 else one


def shape_of_site(one: Site, where: str) -> tuple[int, int]:
    """Records and columns of a site, without reading it if it says its shape."""
    table = table_of(one)
    try:
        shape = tuple(getattr(table, "shape", None) or np.shape(table))
    except ValueError:
        shape = ()
    if len(shape) == 2 and shape[0] == 0:
        raise InputError(f"{where}: it has no record, and a party needs records")
    if len(shape) != 2 or 0 in shape:
        flat = "; pictures go as x.reshape(len(x), -1), their shape to ct.neural" if len(shape) > 2 else ""
        raise InputError(f"{where}: expected a table of features (records, columns), got shape {shape}{flat}")
    return int(shape[0]), int(shape[1])


def named_columns(table: object, where: str) -> tuple[str, ...] | None:
    """The names of a table's columns; None where they only count, as those of an array."""
    names = table.feature_names if isinstance(table, Dataset) else getattr(table, "columns", None)
    if names is None:
        return None
    names = tuple(map(str, names))
    _need_once(names, where)
    return None if names == tuple(map(str, range(len(names)))) else names


def _need_once(names: Sequence[str], where: str) -> None:
    """Refuse two columns of one name: nobody could say which is meant."""
    name, times = Counter(names).most_common(1)[0] if names else ("", 0)
    if times > 1:
        raise InputError(f"{where}: it has two columns {name!r}")


def columns_of(held: Sequence[Site], width: int) -> tuple[str, ...]:
    """The columns of all sites, in the order of the first that names them; the same at all that do."""
    tables = [one if isinstance(one, Dataset) else table_of(one) for one in held]
    every = {i: names for i, one in enumerate(tables) if (names := named_columns(one, f"site {i}")) is not None}
    if not every:
        return tuple(map(str, range(width)))
    first, columns = next(iter(every.items()))
    for i, names in every.items():
        if sorted(names) != sorted(columns):
            raise InputError(f"site {i}: its columns are {list(names)}, those of site {first} are {list(columns)}")
    return columns


def split_by_site(data: Dataset, names: Sequence[str] | None) -> tuple[list[Dataset], Sequence[str]]:
    """A data set whose records know their site, as one data set for each."""
    if data.sites is None:
        raise InputError(f"data set {data.name!r} has no sites: give a list with one (X, y) for each party")
    parts = [data.take(np.flatnonzero(data.sites == i)) for i in range(len(data.site_names))]
    return parts, data.site_names if names is None else names


def split_frame(
    frame: pd.DataFrame, site: str | None, label: str | None, names: Sequence[str] | None, people: People
) -> tuple[list[Site], list[str], tuple[str, ...], tuple[str, ...], list[np.ndarray] | None]:
    """Sites from one table: the records of each, the names, the feature columns, what was read to know them, and whose
    the records are.
    """
    if not (people is None or people is False or isinstance(people, str)):
        raise InputError(f"people: of a frame it is the column that says whose a record is, got {shown(people)}")
    person = people or None
    if site is None:
        raise InputError("a frame needs site='…', the column that says which party holds a record")
    if site == label:
        raise InputError(f"site and label are both {site!r}: who holds a record is no target")
    _need_once(list(map(str, frame.columns)), "the frame")
    if person is not None and person in (site, label):
        raise InputError(f"people = {person!r} is the column of the {'site' if person == site else 'label'}")
    for column in (site, *(column for column in (label, person) if column is not None)):
        if column not in frame.columns:
            raise InputError(f"the frame has no column {column!r}: it has {', '.join(map(str, frame.columns))}")
    holders = frame[site]
    if gaps := int(holders.isna().sum()):
        raise InputError(f"column {site!r} is missing in {gaps} rows")
    found = sorted(holders.astype(str).unique())
    known = found if names is None else list(map(str, names))
    if stray := [name for name in found if name not in known]:
        raise InputError(f"column {site!r} has {stray[0]!r}, which is not one of the names {known}")
    if empty := [name for name in known if name not in found]:
        raise InputError(f"no record has {empty[0]!r} in column {site!r}: a party needs records")
    chosen = [c for c in frame.columns if c not in (site, label, person)]
    for column in chosen:
        if frame[column].to_numpy().dtype.kind not in "biuf":
            raise InputError(f"column {str(column)!r} does not hold numbers: {ENCODE}")
    parts = [frame[holders.astype(str) == name] for name in known]
    sites: list[Site] = [part[chosen] if label is None else (part[chosen], part[label].to_numpy()) for part in parts]
    whose = None if person is None else [part[person].to_numpy() for part in parts]
    return sites, known, tuple(map(str, chosen)), site_origin(site, names), whose
