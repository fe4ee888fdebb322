"""Coefficients of private functions, for `problem.loss = "coupled"`: a CSV with a curvature and a slope per variable.

A row is one record of a party: a function itself, or one of several whose mean it is. Columns are `curvature` and
`slope`, or `curvature_1`, `slope_1`, `curvature_2`, … where somebody has several variables; cells of variables that a
party does not have are empty. Nothing is scaled: the plan's ranges say what counts.
"""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path

import numpy as np

from coterie.data.dataset import ALL_PUBLIC, Dataset, Origins
from coterie.errors import InputError

__all__ = ["NEEDS_PATH", "columns_of", "load", "origins", "read_coefficients"]

NEEDS_PATH = True


def load(path: str | Path | None, seed: int, *, site: str, sites: list[str]) -> Dataset:
    """Everybody's records in one table, for a simulation.

    Args:
        path: the table.
        seed: nothing is drawn.
        site: the column that names a record's party.
        sites: the parties, in the order of problem.variables.
    """
    if path is None:
        raise InputError("data.path is needed for data.source = 'coefficients'")
    names, cells = _rows(Path(path))
    if site not in names:
        raise InputError(f"{path} has no column {site!r} (data.site): it has {', '.join(names)}")
    named = [row[names.index(site)] for row in cells]
    if unknown := sorted({name for name in named if name not in sites}):
        raise InputError(f"{path}: column {site!r} has {unknown[0]!r}; data.options.sites has {', '.join(sites)}")
    ends = [name.rpartition("_")[2] for name in names]
    columns = columns_of(max((int(end) for end in ends if end.isdecimal()), default=1))
    _need_known([name for name in names if name != site], columns, path)
    numbers = np.nan_to_num(_numbers(names, cells, columns, path))  # of what a party does not have
    party = np.array([sites.index(name) for name in named])
    return Dataset(
        "coefficients", numbers, party.astype(float), None, columns, party, tuple(sites),
        test=np.zeros(len(party), bool), origins=ALL_PUBLIC,
    )  # fmt: skip


def origins(*, site: str, sites: list[str]) -> Origins:
    """Who the parties are is stated, and nothing else is read."""
    return ALL_PUBLIC


def read_coefficients(path: Path, most: int) -> np.ndarray:
    """A party's own table, as records for a problem in which somebody has `most` variables."""
    (names, cells), columns = _rows(path), columns_of(most)
    _need_known(names, columns, path)
    numbers = _numbers(names, cells, columns, path)
    gaps = np.isnan(numbers) & ~np.all(np.isnan(numbers), axis=0)
    if gaps.any():
        row, column = np.argwhere(gaps)[0]
        raise InputError(f"{path}: row {row + 1}, column {columns[column]!r} is empty")
    return numbers


def columns_of(most: int) -> tuple[str, ...]:
    """What coefficients are called where somebody has so many variables: curvatures, then slopes."""
    numbers = [""] if most == 1 else [f"_{k + 1}" for k in range(most)]
    return tuple(f"{kind}{number}" for kind in ("curvature", "slope") for number in numbers)


def _need_known(names: list[str], columns: tuple[str, ...], path: str | Path) -> None:
    if unknown := next((name for name in names if name not in columns), None):
        raise InputError(f"{path} has a column {unknown!r}; expected {', '.join(columns)}")


def _rows(path: Path) -> tuple[list[str], list[list[str]]]:
    try:
        table = list(csv.reader(io.StringIO(path.read_text("utf-8-sig"))))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"cannot read {path}: {error}") from None
    rows = [[cell.strip() for cell in row] for row in table if any(cell.strip() for cell in row)]
    if len(rows) < 2:
        raise InputError(f"{path} needs a header and at least one row of coefficients")
    names = rows[0]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InputError(f"{path} has two columns {twice!r}")
    if short := next((k for k, row in enumerate(rows[1:], 1) if len(row) != len(names)), None):
        raise InputError(f"{path}: row {short} has {len(rows[short])} cells, the header {len(names)}")
    return names, rows[1:]


def _numbers(names: list[str], cells: list[list[str]], columns: tuple[str, ...], path: str | Path) -> np.ndarray:
    """The cells of these columns; NaN for those that are missing or empty."""
    out = np.full((len(cells), len(columns)), np.nan)
    for k, name in enumerate(columns):
        if name not in names:
            continue
        for row, line in enumerate(cells):
            if not (text := line[names.index(name)]):
                continue
            try:
                out[row, k] = float(text)
            except ValueError:
                raise InputError(f"{path}: row {row + 1}, column {name!r}: {text!r} is not a number") from None
            if not math.isfinite(out[row, k]):
                raise InputError(f"{path}: row {row + 1}, column {name!r}: {text!r} is not finite")
    return out
