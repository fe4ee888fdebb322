"""One party's own file, and its records as the algorithm takes them."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from coterie.data import load, origins
from coterie.data.planned import options_of, planned_bins
from coterie.deploy.journal import for_owner
from coterie.errors import InputError
from coterie.plan import Plan
from coterie.problems import HeldShard, Problem, SolverSettings

__all__ = ["Outline", "Records", "is_stored", "read_records", "write_records"]


class Records(NamedTuple):
    """One party's data: class indices with `classes`, or numbers without; `leaks` as in `coterie.data.Dataset`."""

    features: np.ndarray
    targets: np.ndarray
    classes: tuple[str, ...] | None
    leaks: tuple[str, ...]
    remarks: tuple[tuple[str, str], ...] = ()  # for its owner: a column, and what happens to values in it


def read_records(plan: Plan, path: Path) -> Records:
    """A party's own file: a table read with the plan's label, ranges and categories, or what `write_records` wrote.

    One that was made by looking at more than each record is refused; of a table the plan says so before it is read.
    """
    if is_stored(path):
        found = _stored(path)
        if found.leaks:
            raise InputError(f"{path}: {found.leaks[0]}; an agent takes records that only public rules have made")
        return found
    if plan.data.label is None:
        raise InputError("the plan must state data.label, the label column of every party's table")
    kind = "parquet" if path.suffix in (".parquet", ".pq") else "csv"
    options = options_of(plan, kind)
    if leaks := origins(kind, **options).leaks:
        raise InputError(f"{leaks[0]}: state it in data.options, so that the data decide nothing")
    data = load(kind, path=path, bins=planned_bins(plan), **options)
    return Records(data.features, data.targets, data.classes, data.leaks, data.remarks)


def is_stored(path: Path) -> bool:
    """Whether this is what `write_records` wrote: by its name, or in memory, where it has none, by its first bytes."""
    if path.suffix or not path.exists():
        return path.suffix == ".npz"
    with path.open("rb") as file:
        return file.read(4) == b"PK\x03\x04"


def _stored(path: Path) -> Records:
    try:
        with np.load(path, allow_pickle=False) as stored:
            if "leaks" not in stored:
                raise InputError(f"{path} does not say what was read from its records: write it by `write_records`")
            classes = tuple(map(str, stored["classes"])) if "classes" in stored else None
            leaks = tuple(map(str, stored["leaks"]))
            return Records(stored["features"].astype(float), stored["targets"], classes, leaks)
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise InputError(f"cannot read {path}: {error}") from None


def write_records(path: Path | BinaryIO, records: Records) -> None:
    """Store records so that `read_records` finds them again."""
    names = {} if records.classes is None else {"classes": np.array(records.classes)}
    leaks = np.array(records.leaks, dtype=str)
    np.savez(path, features=records.features, targets=records.targets, leaks=leaks, **names)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Outline:
    """Everything of a party's shard that is public: all but what its records say."""

    problem: Problem
    count: int
    width: int  # features of a record
    classes: int | None  # of the label; None: a number
    rows: int  # records of the largest party: all shards are padded to that
    unit: float
    ridge: float

    def shard(self, records: Records) -> HeldShard:
        """The records as the algorithm takes them; an InputError where they are not as many as agreed."""
        count, width = records.features.shape
        if count != self.count:
            raise InputError(f"the plan says {self.count} records for this party, its file has {count}")
        if width != self.width:
            raise InputError(f"the plan says {self.width} features, the file has {width}")
        # To refuse a record would tell everybody of it: this party would not come. It is made admissible instead.
        targets = self.problem.encode(records.targets, records.classes)
        features, targets = self.problem.admit(records.features, targets)
        if changed := int(np.sum(np.any(features != records.features, axis=1))):
            text = "%d of %d records lie outside the bounds that the noise is priced for: pulled back"
            for_owner.warning(text, changed, count)
        kind = np.float64 if targets.dtype.kind == "f" else np.int32
        with jax.enable_x64(True):  # arrays of NumPy are taken over: nothing is compiled here
            return self._made(*jax.device_put((self._padded(features), self._padded(targets).astype(kind))))

    def blank(self) -> HeldShard:
        """Shapes and types alone, to compile for."""
        names = None if self.classes is None else tuple(map(str, range(self.classes)))
        kind = self.problem.encode(np.zeros(1, int), names).dtype.kind
        targets = jax.ShapeDtypeStruct((self.rows,), jnp.float64 if kind == "f" else jnp.int32)
        shard = self._made(jax.ShapeDtypeStruct((self.rows, self.width), jnp.float64), targets)
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), shard)

    def _padded(self, x: np.ndarray) -> np.ndarray:
        """Padding repeats the first record; `count` keeps it out of every result."""
        return np.concatenate([x, np.repeat(x[:1], self.rows - self.count, axis=0)])

    def _made(self, features: Any, targets: Any) -> HeldShard:
        how = SolverSettings(fixed=True)  # so that its duration says nothing
        count: Any = np.array(self.count, np.int32)
        unit: Any = np.array(self.unit)
        ridge: Any = np.array(self.ridge)
        return HeldShard(self.problem, features, targets, count, unit, ridge, how)
