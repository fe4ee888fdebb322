"""What is wrong with a party's table, all of it at once, for its owner alone: these words come from the records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from coterie.data.tables import read_table
from coterie.lazily import lazily

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = lazily("pandas")

__all__ = ["Outside", "outside", "survey"]


class Outside(NamedTuple):
    """Values of a column beyond its public range: an encoder moves them to its end."""

    column: str
    wrong: int
    records: int
    low: float
    high: float
    least: float
    most: float

    def __str__(self) -> str:
        return f"{self.wrong} of {self.records} values lie outside [{self.low:g}, {self.high:g}]"


def outside(frame: pd.DataFrame, bounds: Mapping[str, Sequence[float]]) -> list[Outside]:
    """The columns that have values beyond their range; gaps and text are another's business."""
    found = []
    for column, (low, high) in bounds.items():
        if column in frame:
            numbers = pd.to_numeric(frame[column], errors="coerce").to_numpy(float)
            count = int(np.sum((numbers < low) | (numbers > high)))
            if count:
                least, most = float(np.nanmin(numbers)), float(np.nanmax(numbers))
                found.append(Outside(column, count, len(numbers), low, high, least, most))
    return found


def survey(path: Path, options: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Problems, and what will be changed, in a table that is read with these options of `load_table`."""
    label, bounds, classes = options["label"], options.get("bounds") or {}, options.get("classes")
    levels = options.get("categories") if isinstance(options.get("categories"), Mapping) else {}
    assert levels is not None
    known = dict(levels) | ({} if classes is None else {label: classes})
    frame = read_table(path, dtype=dict.fromkeys(map(str, known), "string"))
    groups = [options[key] for key in ("label", "site", "person") if options.get(key) is not None]
    chosen = options.get("features") or [str(c) for c in frame.columns if c not in groups]
    expected = dict.fromkeys([*groups, *chosen, *bounds, *levels])
    problems = [f"there is no column {name!r}; it has {', '.join(map(str, frame.columns))}"
                for name in expected if name not in frame]  # fmt: skip
    for name in (name for name in expected if name in frame):
        values = frame[name]
        if (gaps := int(values.isna().sum())) and options.get("missing", "error") != "drop":
            problems.append(f"column {name!r} is missing in {gaps} rows; missing = 'drop' leaves them out")
        if name in known:
            problems += _unknown(values, name, list(map(str, known[name])))
        elif name in bounds or pd.api.types.is_numeric_dtype(values):
            problems += _not_numbers(values, name)
        elif name in chosen:
            problems.append(f"column {name!r} is text: declare its categories, or leave it out of the features")
    changed = [f"column {one.column!r}: {one} (from {one.least:g} to {one.most:g}); they are moved to its ends"
               for one in outside(frame, bounds)]  # fmt: skip
    return problems, changed


def _unknown(values: pd.Series, name: str, levels: list[str]) -> list[str]:
    text = values.astype("string").str.strip()
    wrong = text[~text.isin(levels) & ~values.isna()]
    if wrong.empty:
        return []
    return [f"column {name!r} has {wrong.iloc[0]!r} and the like in {len(wrong)} rows: expected {', '.join(levels)}"]


def _not_numbers(values: pd.Series, name: str) -> list[str]:
    numbers = pd.to_numeric(values, errors="coerce").to_numpy(float)
    wrong = np.isnan(numbers) & ~values.isna().to_numpy()
    found = []
    if wrong.any():
        found.append(f"column {name!r} must be numeric, but has {values[wrong].iloc[0]!r} (in {wrong.sum()} rows)")
    if wild := int(np.isinf(numbers).sum()):
        found.append(f"column {name!r} is infinite in {wild} rows")
    return found
