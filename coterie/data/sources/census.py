"""Censuses of the United States and of Brazil, from an extract of IPUMS International of your own: income above limits.

IPUMS International (international.ipums.org) gives extracts to whoever registers and forbids passing them on, so there
is nothing here to download. Ask it for a CSV of the variables in `BOOK` and INCTOT; columns that it adds to every
extract (`TECHNICAL`) are not read. The header's variables are compared with the schema by a checksum, so that an
extract of other variables is refused and not read by halves. Which variables the papers used is not stated in them;
these are the thirteen of Zhang et al. (VLDB 2012), on whose two data sets later papers build.

Codes and ranges are those of the public documentation. This loader is tested on made records of that schema: nobody
here has had an extract, and a code that is not listed is refused, never guessed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from coterie.data.bins import Bins
from coterie.data.dataset import ALL_PUBLIC, Dataset, Origins
from coterie.data.download import digest
from coterie.data.encode import Book, Category, Number, RowNorm, encode, normalise_rows
from coterie.data.tables import read_table
from coterie.errors import InputError
from coterie.lazily import lazily

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = lazily("pandas")

__all__ = ["BOOK", "SCHEMA", "book", "load", "origins", "schema_of"]

Country = Literal["us", "brazil"]
LIMITS = {"us": 25_000.0, "brazil": 300.0}  # income above it is the label: a year's in dollars, a month's in reais
TECHNICAL = frozenset(
    ("COUNTRY", "YEAR", "SAMPLE", "SERIAL", "HHWT", "PERNUM", "PERWT", "GQ", "RESIDENT", "HHTYPE", "PERSONS", "STRATA")
)
BOOK: Book = {
    "AGE": Number(0, 100),
    "SEX": Category(("1", "2")),
    "MARST": Category(("1", "2", "3", "4")),
    "EDATTAIN": Category(("1", "2", "3", "4")),
    "DISABLED": Category(("1", "2")),
    "NATIVITY": Category(("1", "2")),
    "HRSWORK1": Number(0, 99),
    "MIGYRS1": Number(0, 96),
    "OWNERSHIP": Category(("1", "2")),
    "FAMSIZE": Number(1, 20),
    "NCHILD": Number(0, 9),
    "AUTOS": Number(0, 7),
}
INCOME = "INCTOT"
GAPS = {  # codes that stand for “not in the universe” or “unknown”
    "AGE": (999,), "SEX": (9,), "MARST": (0, 9), "EDATTAIN": (0, 9), "DISABLED": (0, 9), "NATIVITY": (0, 9),
    "HRSWORK1": (998, 999), "MIGYRS1": (97, 98, 99), "OWNERSHIP": (0, 9), "FAMSIZE": (98, 99), "NCHILD": (98, 99),
    "AUTOS": (8, 9), INCOME: (9_999_998, 9_999_999),
}  # fmt: skip
SCHEMA = "b1260a8b3ff3d679"  # of the variables above and the income


def schema_of(columns: Iterable[str]) -> str:
    """The checksum of an extract's variables, in any order and case, without those that every extract has."""
    named = sorted({str(name).strip().upper() for name in columns} - TECHNICAL)
    return hashlib.sha256("\n".join(named).encode()).hexdigest()[:16]


def load(
    path: str | Path | None = None,
    seed: int = 0,
    *,
    country: Country = "us",
    limit: float | None = None,
    coding: Literal["onehot", "ordinal"] = "onehot",
    centre: bool = False,
    row_norm: RowNorm = "unit",
    constant: bool = False,
    bins: Bins | None = None,
) -> Dataset:
    """Census records of one country: class 1 has an income above `limit` (25,000 a year; Brazil: 300 a month).

    `path`: the extract, a CSV; else `ipums-us.csv` or `ipums-brazil.csv` in COTERIE_DATA. Records with a gap are left
    out. Numbers lie in [0, 1], or with `centre` in [−1, 1].
    """
    file = _extract(path, country)
    frame = read_table(file)
    frame = frame.rename(columns={name: str(name).strip().upper() for name in frame.columns})
    _check_schema(file, frame.columns)
    table = _without_gaps(frame[[*BOOK, INCOME]])
    if table.empty:
        raise InputError(f"{file} has no record without a gap")
    z, names, largest = encode(table, BOOK, coding=coding, centre=centre)
    if constant:
        z, names, largest = np.column_stack([np.ones(len(z)), z]), ("constant", *names), float(np.hypot(largest, 1.0))
    if bins is not None:
        z, names, row_norm = bins.rows(table), bins.feature_names, "none"
    above = LIMITS[country] if limit is None else limit
    income = pd.to_numeric(table[INCOME]).to_numpy(float)
    return Dataset(
        name=f"census of {'the United States' if country == 'us' else 'Brazil'}",
        features=normalise_rows(z, row_norm, largest),
        targets=(income > above).astype(np.int64),
        classes=(f"<={above:g}", f">{above:g}"),
        feature_names=names,
        columns={name: table[name].to_numpy() for name in BOOK},
        source=str(file),
        sha256={file.name: digest(file)},
        notes=(f"numbers in public ranges, {coding} coding of public categories, row norm {row_norm!r}",),
        origins=origins(),
    )


def book(**_: object) -> Book:
    """The public code book."""
    return BOOK


def origins(**_: object) -> Origins:
    """Nothing is read: ranges, codes and limits are known."""
    return ALL_PUBLIC


def _extract(path: str | Path | None, country: str) -> Path:
    """The user's own file, or one line that says where to get one."""
    name, folder = f"ipums-{country}.csv", os.environ.get("COTERIE_DATA")
    file = Path(path) if path is not None else Path(folder or "") / name
    if (path is not None or folder) and file.is_file():
        return file
    where = f"{file} is not there" if path is not None or folder else "COTERIE_DATA is not set"
    raise InputError(
        f"the census of {country!r} comes from an extract of your own: {where}. Ask international.ipums.org for a CSV "
        f"of {', '.join(BOOK)} and {INCOME}, and state data.path, or put it into COTERIE_DATA as {name}"
    )


def _check_schema(file: Path, columns: Iterable[str]) -> None:
    columns = list(columns)
    if schema_of(columns) == SCHEMA:
        return
    wanted, named = {*BOOK, INCOME}, set(columns) - TECHNICAL
    missing, extra = sorted(wanted - named), sorted(named - wanted)
    told = [f"{word} {', '.join(some)}" for word, some in (("it lacks", missing), ("it has", extra)) if some]
    raise InputError(f"{file} is another extract than the one that is known here: {'; '.join(told)}")


def _without_gaps(frame: pd.DataFrame) -> pd.DataFrame:
    """Whole records; codes as text."""
    table = frame.copy()
    for name in table.columns:
        numbers = pd.to_numeric(table[name], errors="coerce")
        if (wrong := numbers.isna() & ~table[name].isna()).any():
            raise InputError(f"column {name!r} must be a code or a number, but has {table[name][wrong].iloc[0]!r}")
        numbers = numbers.mask(numbers.isin(GAPS[name]))
        table[name] = numbers if not isinstance(BOOK.get(name), Category) else numbers.astype("Int64").astype("string")
    return table.dropna(ignore_index=True)
