"""Any CSV or Parquet table with a label column, encoded by ranges and categories that the user declares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coterie.arguments import choose
from coterie.data.dataset import PUBLIC, Dataset, Origins
from coterie.data.download import digest
from coterie.data.encode import Category, Number, class_indices, encode, normalise_rows
from coterie.errors import InputError
from coterie.lazily import lazily

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = lazily("pandas")

__all__ = ["load_table", "read_table", "site_numbers", "site_origin", "table_origins"]

MANY = 20  # an integer label with more values than this is a quantity, not a class


def load_table(
    path: str | Path | None = None,
    seed: int = 0,
    *,
    label: str,
    site: str | None = None,
    sites: Sequence[object] | None = None,
    person: str | None = None,
    features: Sequence[str] | None = None,
    bounds: Mapping[str, Sequence[float]] | None = None,
    categories: Mapping[str, Sequence[object]] | str | None = None,
    classes: Sequence[object] | None = None,
    task: str = "auto",
    missing: str = "error",
    row_norm: str = "clip",
    constant: bool = False,
) -> Dataset:
    """A table from `path`: Parquet by its suffix, else CSV with a header, compressed or not.

    `features` are all other columns unless named. `bounds` gives public (low, high) ranges: values are clipped and
    mapped to [0, 1] (a label with bounds too); a numeric column without is used as it is. `categories` gives the
    public levels of text columns (one feature a level); "data" reads them from the data. `task`: `classification`,
    `regression`, or `auto` (`classes` make it the first, bounds of the label the second; else text, truth values and
    few integers are classes). `classes` states the labels and their order. `site` and `person` name the columns that
    group records, `sites` states the names of all sites. What is not stated is read from the data, and `leaks` reports
    it. `missing="drop"` leaves out incomplete records. `row_norm` as in `normalise_rows`; the default keeps every row
    in the unit ball.
    """
    origins = table_origins(
        label=label, site=site, sites=sites, bounds=bounds, categories=categories, classes=classes, task=task
    )
    choose("missing", missing, ("error", "drop"))
    if path is None:
        raise InputError("a table needs a path")
    ranges, levels = dict(bounds or {}), {} if isinstance(categories, str | None) else dict(categories)
    named = [*levels, *([] if classes is None else [label]), *([] if site is None or sites is None else [site])]
    # text is kept as it stands: a reader that guesses a column's type from all rows turns 1 into 1.0 for one gap
    frame = read_table(Path(path), dtype=dict.fromkeys(named, "string"))
    groups = [name for name in (label, site, person) if name is not None]
    chosen = [str(c) for c in frame.columns if c not in groups] if features is None else list(features)
    for name in (*groups, *chosen, *ranges, *levels):
        if name not in frame:
            raise InputError(f"{path} has no column {name!r}: it has {', '.join(map(str, frame.columns))}")
    for name in (*ranges, *levels):
        if name not in chosen and not (name == label and name in ranges):
            raise InputError(f"column {name!r} has bounds or categories, but it is not one of the features")
    used = [*groups, *chosen]
    if missing == "drop":
        frame = frame.dropna(subset=used, ignore_index=True)
    for name in used:
        if gaps := int(frame[name].isna().sum()):
            raise InputError(f"{path}: column {name!r} is missing in {gaps} rows; missing = 'drop' leaves them out")
        if pd.api.types.is_float_dtype(frame[name]) and (wild := int(np.isinf(frame[name]).sum())):
            raise InputError(f"{path}: column {name!r} is infinite in {wild} rows")
    if frame.empty or not chosen:
        raise InputError(f"{path} has {len(frame)} complete records and {len(chosen)} feature columns")
    blocks, names, notes, bounded = [], [], [], True
    for name in chosen:
        rule = _rule(frame[name], name, ranges.get(name), levels.get(name), categories == "data")
        if rule is None:
            bounded = False
            notes.append(f"{name}: no public range, used as it is")
            blocks.append(frame[name].to_numpy(float)[:, None])
            names.append(name)
            continue
        block, labels, _ = encode(frame, {name: rule})
        blocks.append(block)
        names.extend(labels)
    largest = float(np.sqrt(len(chosen) + constant)) if bounded else None
    if constant:
        blocks.insert(0, np.ones((len(frame), 1)))
        names.insert(0, "constant")
    targets, label_names = _targets(
        frame[label], label, _task(label, task, classes, ranges), classes, ranges.get(label)
    )
    where, site_names = (None, ()) if site is None else site_numbers(frame[site], site, sites)
    return Dataset(
        name=Path(path).name,
        features=normalise_rows(np.concatenate(blocks, axis=1), row_norm, largest),
        targets=targets,
        classes=label_names,
        feature_names=tuple(names),
        sites=where,
        site_names=site_names,
        people=None if person is None else frame[person].to_numpy(),
        columns={str(c): frame[c].to_numpy() for c in frame.columns if c not in used},
        source=str(path),
        sha256={Path(path).name: digest(Path(path))},
        notes=(*notes, f"row norm {row_norm!r}"),
        origins=origins,
    )


def table_origins(
    *,
    label: str,
    site: str | None = None,
    sites: Sequence[object] | None = None,
    bounds: Mapping[str, Sequence[float]] | None = None,
    categories: Mapping[str, Sequence[object]] | str | None = None,
    classes: Sequence[object] | None = None,
    task: str = "auto",
    **_: object,
) -> Origins:
    """What `load_table` would read from the records, by its options alone; options that contradict are refused."""
    kind = _task(label, task, classes, bounds or {})
    if isinstance(categories, str):
        choose("categories", categories, ("data",))
    read = {
        "regression": PUBLIC,
        "classification": (f"{label}: its classes are read from the data",) if classes is None else PUBLIC,
        "auto": (f"{label}: whether it is a class or a number is read from the data, and so are its classes",),
    }
    return Origins(
        classes=read[kind],
        columns=("categories of text columns are read from the data",) if categories == "data" else PUBLIC,
        scale=PUBLIC,
        rows=PUBLIC,  # a record with a gap is left out for itself: how many are left is public, as every size is
        sites=site_origin(site, sites),
    )


def site_origin(site: str | None, sites: Sequence[object] | None) -> tuple[str, ...]:
    """Where the names of the sites come from."""
    if site is None and sites is not None:
        raise InputError("sites lists names, but site, the column that holds them, is not given")
    return PUBLIC if site is None or sites is not None else (f"{site}: the names of the sites are read from the data",)


def site_numbers(values: pd.Series, site: str, sites: Sequence[object] | None) -> tuple[np.ndarray, tuple[str, ...]]:
    """Which site each record belongs to, and the names of all: those stated, or those that occur, sorted."""
    names = sorted(values.astype("string").str.strip().unique()) if sites is None else sites
    return class_indices(values, site, tuple(map(str, names))), tuple(map(str, names))


def _task(label: str, task: str, classes: Sequence[object] | None, bounds: Mapping[str, Sequence[float]]) -> str:
    """What is learned, where the options say it; "auto" where only the data can."""
    choose("task", task, ("auto", "classification", "regression"))
    if task == "regression" and classes is not None:
        raise InputError(f"classes = {list(classes)} are for classification, and task is 'regression'")
    if label in bounds and (task == "classification" or classes is not None):
        raise InputError(f"bounds of the label {label!r} are for regression, and its values are classes")
    if task != "auto":
        return task
    return "classification" if classes is not None else "regression" if label in bounds else "auto"


def read_table(path: Path, **options: Any) -> pd.DataFrame:
    """A Parquet file by its suffix, else a CSV file with pandas' options; InputError when it cannot be read."""
    try:
        if path.suffix in {".parquet", ".pq"}:
            return pd.read_parquet(path)
        return pd.read_csv(path, skipinitialspace=True, **options)
    except ImportError:
        raise InputError(f"reading {path} needs pyarrow: install coterie[parquet]") from None
    except (OSError, ValueError, EOFError) as error:  # pandas' and pyarrow's parser errors are ValueErrors
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(f"cannot read {path}: {reason}") from None


def _rule(
    values: pd.Series, name: str, bounds: Sequence[float] | None, levels: Sequence[object] | None, infer: bool
) -> Number | Category | None:
    if levels is not None:
        return Category(tuple(map(str, levels)))
    if bounds is not None:
        if len(bounds) != 2:
            raise InputError(f"bounds of {name!r} must be (low, high), got {list(bounds)}")
        return Number(float(bounds[0]), float(bounds[1]))
    if pd.api.types.is_numeric_dtype(values):
        return None
    if not infer:
        raise InputError(f"column {name!r} is text: declare its categories, or leave it out of the features")
    return Category(tuple(sorted(values.astype("string").str.strip().unique())))


def _targets(
    values: pd.Series, label: str, task: str, classes: Sequence[object] | None, bounds: Sequence[float] | None
) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """Class indices with names, or numbers."""
    numeric = pd.api.types.is_numeric_dtype(values)
    if task == "auto":
        whole = pd.api.types.is_integer_dtype(values) or pd.api.types.is_bool_dtype(values)
        task = "regression" if numeric and not (whole and values.nunique() <= MANY) else "classification"
    if task == "regression":
        if not numeric:
            raise InputError(f"label {label!r} is text, so it cannot be a regression target")
        numbers = values.to_numpy(float)
        return (numbers if bounds is None else Number(float(bounds[0]), float(bounds[1])).scale(numbers)), None
    if classes is None:
        classes = sorted(values.unique().tolist())
    if len(classes) < 2:
        raise InputError(f"label {label!r} has the single class {list(classes)}: nothing to learn")
    names = tuple(map(str, classes))
    return class_indices(values, label, names), names
