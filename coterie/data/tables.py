"""Any CSV or Parquet table with a label column, encoded by ranges and categories that the user declares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coterie.data.bins import Bins
from coterie.data.dataset import Dataset, Origins
from coterie.data.download import digest
from coterie.data.encode import Book, Category, Number, RowNorm, class_indices, encode, normalise_rows
from coterie.data.files import PARQUET, read_fields, read_parquet
from coterie.data.people import person_names
from coterie.data.stated import MISSING, OTHER, Gaps, Stated, Task, site_origin
from coterie.data.survey import MANY, are_numbers, examine, numbers, text, whole
from coterie.errors import InputError, InputErrors
from coterie.lazily import lazily

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = lazily("pandas")

__all__ = [
    "CONSTANT",
    "encode_column",
    "load_table",
    "read_table",
    "site_numbers",
    "site_origin",
    "table_book",
    "table_origins",
]


CONSTANT = "constant"  # the name of a feature that is 1 in every record


def load_table(
    path: str | Path | None = None,
    seed: int = 0,
    *,
    label: str,
    site: str | None = None,
    sites: Sequence[object] | None = None,
    person: str | None = None,
    protected: str | None = None,
    features: Sequence[str] | None = None,
    bounds: Mapping[str, Sequence[float]] | None = None,
    log: Sequence[str] = (),
    categories: Mapping[str, Sequence[object]] | str | None = None,
    classes: Sequence[object] | None = None,
    task: Task = "auto",
    missing: Gaps = "keep",
    missing_values: Sequence[object] | None = None,
    optional: Sequence[str] | None = None,
    impute: Mapping[str, float] | None = None,
    other: bool | Sequence[str] = False,
    read_from_records: bool = False,
    centre: bool = True,
    row_norm: RowNorm = "clip",
    constant: bool = False,
    bins: Bins | None = None,
) -> Dataset:
    """A table from `path`: Parquet by its suffix, else CSV with a header, compressed (gz, bz2, xz) or not.

    `features` are all other columns unless named. `bounds` gives public (low, high) ranges: values are clipped and
    mapped to [−1, 1] (to [0, 1] without `centre`, and so is a label with bounds), those in `log` by the logarithm of 1
    + x − low, for counts and amounts that are mostly small; a numeric column without is used as it is. `categories`
    gives the public levels of text columns (one feature a level); "data" reads them from the data. `other` (of all
    columns, or of those listed) makes what is not a level one of its own. `task`: `classification`, `regression`, or
    `auto` (`classes` make it the first, bounds of the label the second; else text, truth values and few integers are
    classes). `classes` states the labels and their order. `site` and `person` name the columns that group records,
    `sites` states the names of all sites. `protected` names the column of a protected group: it is no feature, its
    `categories` are the groups, and every class in every group is a class of its own, as `problem.loss = "fair"` takes
    them. What is not stated is read from the data, and `leaks` reports it; `read_from_records` says that the options
    themselves were.

    An empty field is a gap, and so is each of `missing_values`, as it is written. `missing="keep"` gives every feature
    in `optional`, or all where that is left out, one more column that says whether it has a gap (of categories a level
    `missing`), whatever the records are like; in a number's own place stands `impute`, or the middle of its bounds, or
    0 without. `drop` leaves out records with gaps, `error` refuses them. `row_norm` as in `normalise_rows`; the default
    keeps every row in the unit ball. `bins` puts every record into public bins instead (`coterie.data.bins`).
    """
    stated = Stated.of({name: value for name, value in locals().items() if name in Stated.__dataclass_fields__})
    if path is None:
        raise InputError("a table needs a path")
    table = examine(read_fields(Path(path)), stated)
    if table.problems:
        raise InputErrors([f"{path}: {problem}" for problem in table.problems])
    frame, square = table.frame, float(constant)
    blocks: list[np.ndarray] = []
    names: list[str] = []
    notes: list[str] = []
    if bins is not None:
        _need_stated(path, table.features, bins)
    for name in table.features if bins is None else ():
        rule = _rule(frame[name], name, stated)
        if rule is None:
            notes.append(f"{name}: no public range, used as it is")
        block, labels, largest = encode_column(frame[name], name, rule, stated, centre)
        blocks.append(block)
        names.extend(labels)
        square += largest**2
    if bins is not None:
        blocks, names = [bins.rows(_in_kind(frame, bins))], list(bins.feature_names)
        row_norm, constant = "none", False
    if constant:
        blocks.insert(0, np.ones((len(frame), 1)))
        names.insert(0, CONSTANT)
    largest_row = None if notes else float(np.sqrt(square))
    targets, label_names = _targets(frame[label], stated)
    if protected is not None:
        targets, label_names = _in_groups(targets, label_names, frame[protected], stated)
    where, site_names = (None, ()) if site is None else site_numbers(text(frame[site]), site, sites)
    used = [*stated.groups, *table.features]
    return Dataset(
        name=Path(path).name,
        features=normalise_rows(np.concatenate(blocks, axis=1), row_norm, largest_row),
        targets=targets,
        classes=label_names,
        feature_names=tuple(names),
        sites=where,
        site_names=site_names,
        people=None if person is None else person_names(text(frame[person]).to_numpy(object), f"{path}, {person!r}"),
        columns={c: _raw(frame[c]) for c in frame.columns if c not in used},
        source=str(path),
        sha256={Path(path).name: digest(Path(path))},
        notes=(*notes, f"missing values: {missing}", f"row norm {row_norm!r}"),
        remarks=tuple((one.column, one.words) for one in table.remarks),
        origins=stated.origins,
    )


def table_book(**options: object) -> Book:
    """The ranges and categories that options of `load_table` state, in the order of `features`, or of the names."""
    stated = Stated.of(options)
    known = sorted({*stated.bounds, *stated.levels} - set(stated.groups))
    names = known if stated.features is None else stated.features
    book: dict[str, Number | Category] = {}
    for name in names:
        rule = stated.category(name) or stated.range(name)
        if rule is None:
            raise InputError(f"column {name!r} has neither bounds nor categories, so it has no public bins: state one")
        book[name] = rule
    if not book:
        raise InputError("there are no public bins: state bounds or categories of the columns to learn from")
    return book


def _need_stated(path: object, features: Sequence[str], bins: Bins) -> None:
    """Refuse columns of a table of which nothing public is known: nobody has said whether they are to be left out."""
    known = set(bins.names)
    if unknown := [name for name in features if name not in known]:
        raise InputError(
            f"{path}: column {unknown[0]!r} has no bins: state its bounds or categories, or features without it"
        )


def _in_kind(frame: pd.DataFrame, bins: Bins) -> pd.DataFrame:
    """The columns of all attributes: numbers where bins are of numbers, else text."""
    return pd.DataFrame({a.name: numbers(frame[a.name]) if a.ordered else text(frame[a.name]) for a in bins.attributes})


def table_origins(**options: object) -> Origins:
    """What `load_table` would read from the records, by its options alone; options that contradict are refused."""
    return Stated.of(options).origins


def site_numbers(values: pd.Series, site: str, sites: Sequence[object] | None) -> tuple[np.ndarray, tuple[str, ...]]:
    """Which site each record belongs to, and the names of all: those stated, or those that occur, sorted."""
    names = sorted(values.astype("string").str.strip().unique()) if sites is None else sites
    return class_indices(values, site, tuple(map(str, names))), tuple(map(str, names))


def read_table(path: Path, **options: Any) -> pd.DataFrame:
    """A Parquet file by its suffix, else a CSV file as pandas reads it with its options, for files of known form."""
    if path.suffix in PARQUET:
        return read_parquet(path)
    try:
        return pd.read_csv(path, skipinitialspace=True, **options)
    except (OSError, ValueError, EOFError) as error:  # pandas' parser errors are ValueErrors
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(f"cannot read {path}: {reason}") from None


def _rule(values: pd.Series, name: str, stated: Stated) -> Number | Category | None:
    """How a column becomes features; None: a number that is used as it is."""
    rule = stated.category(name) or stated.range(name)
    if rule is None and stated.categories == "data" and not are_numbers(values):
        return Category(tuple(sorted(text(values).dropna().unique())))
    return rule


def encode_column(
    values: pd.Series, name: str, rule: Number | Category | None, stated: Stated, centre: bool
) -> tuple[np.ndarray, tuple[str, ...], float]:
    """The features of one column, their names, and the largest norm that they can have in a row."""
    flags = {name} if stated.may_miss(name) else set()
    if isinstance(rule, Category):
        values = text(values)
        if stated.takes_others(name):
            values = values.where(values.isna() | values.isin(rule.levels), OTHER)
        if flags and MISSING in rule.levels:  # the book has a name for it
            values, flags = values.fillna(MISSING), set()
        return encode(pd.DataFrame({name: values}), {name: rule}, flags=flags)
    column = numbers(values)
    if rule is not None:
        return encode(pd.DataFrame({name: column}), {name: rule}, flags=flags, centre=centre)
    absent = np.isnan(column)
    block = np.where(absent, stated.impute.get(name, 0.0), column)
    if not flags:
        return block[:, None], (name,), np.inf
    return np.column_stack([block, absent]), (name, f"{name}={MISSING}"), np.inf


def _targets(values: pd.Series, stated: Stated) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """Class indices with names, or numbers."""
    kind, classes = stated.kind, stated.classes
    if kind == "auto":
        codes = whole(values) and values.nunique() <= MANY
        kind = "regression" if are_numbers(values) and not codes else "classification"
    if kind == "regression":
        rule = stated.range(stated.label)
        return (numbers(values) if rule is None else rule.scale(numbers(values))), None
    written = text(values)
    if classes is None:
        found = written.unique().tolist()
        classes = sorted(found, key=float) if are_numbers(values) and not _truth(values) else sorted(found)
    return class_indices(written, stated.label, tuple(map(str, classes))), tuple(map(str, classes))


def _in_groups(
    targets: np.ndarray, classes: tuple[str, ...] | None, values: pd.Series, stated: Stated
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Every class of every protected group as a class: those of the first group come first."""
    assert classes is not None  # that is stated
    assert stated.protected is not None
    groups = tuple(map(str, stated.levels[stated.protected]))
    group = class_indices(text(values), stated.protected, groups)
    return targets + len(classes) * group, tuple(f"{c} ({stated.protected} {g})" for g in groups for c in classes)


def _truth(values: pd.Series) -> bool:
    return not pd.to_numeric(text(values), errors="coerce").notna().all()


def _raw(values: pd.Series) -> np.ndarray:
    """A column that is no feature: numbers where all are, else text."""
    if are_numbers(values):
        return numbers(values)
    return text(values).astype(object).where(values.notna(), None).to_numpy()
