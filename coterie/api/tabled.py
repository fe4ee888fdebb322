"""Records in Python as a plan's parties write them: tables with named columns, or numbers; predictions from these."""

from __future__ import annotations

import contextlib
import io
import mmap
import os
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coterie.api.coding import Coding
from coterie.api.sites import person_numbers
from coterie.data.dataset import Dataset
from coterie.data.planned import options_of, planned_bins
from coterie.errors import InputError, InputErrors
from coterie.plan import Plan

if TYPE_CHECKING:
    import pandas as pd

    from coterie.api.sites import Site, Table
    from coterie.deploy.data import Records

__all__ = ["TableCoding", "coding_of", "handed_over", "packed"]


@runtime_checkable
class NamedColumns(Protocol):
    """A table with named columns, of pandas or alike."""

    @property
    def columns(self) -> Iterable[object]:
        """Their names."""

    def drop(self, *, columns: Sequence[object]) -> pd.DataFrame:
        """The table without some of them."""


@contextlib.contextmanager
def handed_over(
    plan: Plan, X: Table, y: ArrayLike | None, people: ArrayLike | None = None
) -> Iterator[tuple[Path, tuple[int, ...]]]:
    """Where an agent reads these records: a file that is there, or anonymous memory and the descriptor of it."""
    if isinstance(X, str | os.PathLike):
        if y is not None:
            raise InputError(f"X is the file {os.fspath(X)!r}, which has the labels too: leave y out")
        if people is not None:
            raise InputError(f"X is the file {os.fspath(X)!r}, which says whose its records are: leave people out")
        yield Path(X).absolute(), ()
        return
    if people is not None and not plan.by_person:
        raise InputError("people are given, and the agreement protects records: its unit was agreed as 'record'")
    with _in_memory(packed(plan, X, y, people)) as found:
        yield found


@contextlib.contextmanager
def _in_memory(content: bytes) -> Iterator[tuple[Path, tuple[int, ...]]]:
    """A path that leads to anonymous memory with this content, and its descriptor; mistakes in it are called X's."""
    memory = os.memfd_create("records", os.MFD_CLOEXEC)
    try:
        os.ftruncate(memory, len(content))
        with mmap.mmap(memory, len(content)) as shared:  # handed to nobody by a call
            shared[:] = content
        yield Path(f"/proc/self/fd/{memory}"), (memory,)
    except InputError as error:  # which names a file that nobody knows
        if type(error) not in (InputError, InputErrors):
            raise
        raise InputErrors([text.replace(f"/proc/self/fd/{memory}", "X") for text in error.mistakes]) from None
    finally:
        os.close(memory)


def packed(plan: Plan, X: ArrayLike, y: ArrayLike | None, people: ArrayLike | None) -> bytes:
    """Records as the file that the plan's parties read: a table with the label column, or encoded numbers."""
    if plan.problem.settings().features is not None:
        return _coefficients(plan, X, y)
    if plan.data.label is not None:
        return _owned(plan, _table(plan, X, y), people).to_csv(index=False).encode()  # type: ignore[no-any-return]
    from coterie.deploy.data import write_records

    file = io.BytesIO()
    found = _numbers(plan, X, y)
    if people is not None:
        found = found._replace(people=person_numbers(people, len(found.features), "X"))
    write_records(file, found)
    return file.getvalue()


def _coefficients(plan: Plan, X: ArrayLike, y: ArrayLike | None) -> bytes:
    """A party's functions: a table with their columns, or rows in the order of these."""
    from coterie.data.sources.coefficients import columns_of

    if y is not None:
        raise InputError("y: functions that share something have no labels: leave it out")
    if hasattr(X, "to_csv"):
        return X.to_csv(index=False).encode()  # type: ignore[no-any-return]
    rows, names = np.asarray(X, float), columns_of((plan.problem.dim or 0) // 2)
    if rows.ndim != 2 or rows.shape[1] != len(names):
        raise InputError(f"X: expected rows of {len(names)} numbers ({', '.join(names)}), got shape {rows.shape}")
    lines = [",".join(map(repr, row)) for row in rows.tolist()]
    return "\n".join([",".join(names), *lines, ""]).encode()


def _table(plan: Plan, X: Table, y: ArrayLike | None) -> pd.DataFrame:
    """A frame with the columns that the plan names, the label among them."""
    import pandas as pd

    label, stated = plan.data.label, plan.data.options.get("features")
    if isinstance(X, NamedColumns):
        frame = pd.DataFrame(X).reset_index(drop=True)  # type: ignore[call-overload]
        frame.columns = [str(name) for name in frame.columns]
    else:
        rows = np.asarray(X)
        if rows.ndim != 2:
            raise InputError(f"X: expected records in rows (records, columns), got shape {rows.shape}")
        if stated is None:
            raise InputError(
                "X has no column names, and the plan does not state data.options.features: give a DataFrame"
            )
        if rows.shape[1] != len(stated):
            raise InputError(f"X has {rows.shape[1]} columns, and the plan states {len(stated)}: {', '.join(stated)}")
        frame = pd.DataFrame(rows, columns=list(stated))
    if y is None:
        if label not in frame:
            raise InputError(f"y is not given, and X has no column {label!r}, the plan's label")
        return frame
    if label in frame:
        raise InputError(f"X has the label column {label!r}, and y is given too: leave one out")
    values = np.asarray(y)
    if values.shape != (len(frame),):
        raise InputError(f"y: expected one label for each of {len(frame)} records, got shape {values.shape}")
    return frame.assign(**{str(label): values})


def _owned(plan: Plan, frame: pd.DataFrame, people: ArrayLike | None) -> pd.DataFrame:
    """The frame with the column that says whose a record is, where the plan names one."""
    column = options_of(plan, "csv").get("person")
    if column is None or not plan.by_person:
        return frame
    if (people is None) == (column not in frame):
        gap = "is not given, and X has no" if people is None else "are given, and X has the"
        raise InputError(f"people {gap} column {column!r}, in which the plan says whose a record is")
    return frame if people is None else frame.assign(**{column: person_numbers(people, len(frame), "X")})


def _numbers(plan: Plan, X: ArrayLike, y: ArrayLike | None) -> Records:
    """Encoded records of a plan without a label column: features as they are, classes by number."""

    from coterie.deploy.data import Records

    problem = coding_of(plan).problem
    features, targets = np.asarray(X, float), np.asarray(y)
    if y is None or features.ndim != 2 or targets.shape != (len(features),):
        raise InputError(
            f"X, y: expected features (records, columns) and one target each, got {features.shape} and {targets.shape}"
        )
    classes = problem.labels.classes
    if classes is None:
        return Records(features, targets.astype(float), None, ())
    if not (known := np.isin(targets, range(classes))).all():
        stray = targets[~known].tolist()[0]
        raise InputError(f"y: the plan has no label column, so classes are 0 to {classes - 1}, got {stray!r}")
    stated = plan.data.options.get("classes")
    names = tuple(map(str, stated if stated and len(stated) == classes else range(classes)))
    return Records(features, targets.astype(int), names, ())


# ---- predictions -----------------------------------------------------------------------------------------------------


class TableCoding(Coding):
    """Records as the plan's parties write them: tables with named columns, read by its public ranges and categories."""

    plan: Plan

    @classmethod
    def of(cls, plan: Plan, coding: Coding) -> TableCoding:
        """The same problem, labels and order of features, with the plan's way of reading a table."""
        made = cls(coding.problem, coding.labels, columns=coding.columns)
        object.__setattr__(made, "plan", plan)
        return made

    @cached_property
    def reading(self) -> dict[str, Any]:
        """How a table is read for its features alone: whose records they are and what came of them does not matter."""
        options = options_of(self.plan, "csv")
        levels = options.get("categories")
        if isinstance(levels, dict) and options.get("protected") in levels:
            options["categories"] = {name: of for name, of in levels.items() if name != options["protected"]}
        label = str(options["label"])
        bounds = {name: ends for name, ends in options.get("bounds", {}).items() if name != label}
        gone = ("site", "sites", "person", "protected", "classes", "read_from_records")
        kept = {name: value for name, value in options.items() if name not in gone}
        return kept | {"bounds": bounds, "task": "regression"}

    @property
    def ends(self) -> tuple[float, float] | None:
        """The public range of a label that is a number, which the model knows as [0, 1]."""
        found = self.plan.data.options.get("bounds", {}).get(str(self.plan.data.label))
        return None if found is None or self.labels is not None else (float(found[0]), float(found[1]))

    def rows(self, features: Table | Dataset, where: str = "X") -> NDArray[np.float64]:
        """Features as the problem takes them; label, site and person may be there and are not looked at."""
        from coterie.data import load, origins
        from coterie.data.survey import absent

        if isinstance(features, Dataset):
            raise InputError(f"{where}: expected a table as the plan's parties write it, got a Dataset")
        stated = options_of(self.plan, "csv")
        if isinstance(features, NamedColumns):
            named = list(map(str, features.columns))  # before a label is put beside them, which the table may not have
            if gone := [name for name in stated.get("features") or () if name not in named]:
                raise InputErrors([f"{where}: {absent(name, named)}" for name in gone])
            others = [stated.get(role) for role in ("label", "site", "person", "protected")]
            there = set(features.columns)
            features = features.drop(columns=[name for name in others if name in there])
        table = _table(self.plan, features, np.zeros(np.shape(features)[0]))
        if leaks := origins("csv", **self.reading).leaks:
            raise InputError(f"{leaks[0]}: state it in data.options, so that the model knows it")
        with _in_memory(table.to_csv(index=False).encode()) as (path, _):
            found = load("csv", path=path, bins=planned_bins(self.plan), **self.reading)
        if len(found.features) != len(table):
            lost = len(table) - len(found.features)
            raise InputError(f"{where}: the plan leaves out records with gaps, {lost} of them")
        return self._in_order(found.features, found.feature_names, where)

    def records(self, site: Site, where: str) -> tuple[NDArray, NDArray]:
        """Features and targets of a table, or of (X, y)."""
        from coterie.deploy.data import read_records

        x, y = site if isinstance(site, tuple) else (site, None)
        with handed_over(self.plan, x, y) as (path, _):
            found = read_records(self.plan, path)
        return self.problem.admit(found.features, self.problem.encode(found.targets, found.classes))


def coding_of(plan: Plan) -> Coding:
    """How records are written for the model of an agreement's plan."""
    from coterie.experiment import public_network

    problem = public_network(plan).problem
    stated, classes = plan.data.options.get("classes"), problem.labels.classes
    if plan.data.label is None:
        return Coding(problem, None if classes is None else tuple(range(classes)))
    return TableCoding.of(plan, Coding(problem, None if stated is None else tuple(stated)))
