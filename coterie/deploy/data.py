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
from coterie.data.people import person_names
from coterie.data.planned import options_of, planned_bins
from coterie.data.sources.coefficients import read_coefficients
from coterie.deploy.journal import for_owner
from coterie.errors import InputError
from coterie.plan import Plan
from coterie.problems import HeldShard, People, Problem, SolverSettings
from coterie.problems.people import lay_out

__all__ = ["Outline", "Records", "is_stored", "read_records", "write_records"]


class Records(NamedTuple):
    """One party's data: class indices with `classes`, or numbers without; `leaks` as in `coterie.data.Dataset`."""

    features: np.ndarray
    targets: np.ndarray
    classes: tuple[str, ...] | None
    leaks: tuple[str, ...]
    remarks: tuple[tuple[str, str], ...] = ()  # for its owner: a column, and what happens to values in it
    people: np.ndarray | None = None  # whose each record is, where that was said


def read_records(plan: Plan, path: Path) -> Records:
    """A party's own file: a table read with the plan's label, ranges and categories, or what `write_records` wrote.

    One that was made by looking at more than each record is refused; of a table the plan says so before it is read.
    """
    if is_stored(path):
        found = _stored(path)
        if found.leaks:
            raise InputError(f"{path}: {found.leaks[0]}; only records that public rules have made may be deployed")
        return found if plan.by_person else found._replace(people=None)
    if (numbers := plan.problem.settings().features) is not None:
        features = read_coefficients(path, numbers // 2)
        return Records(features, np.zeros(len(features)), None, ())
    if plan.data.label is None:
        raise InputError("the plan must state data.label, the label column of every party's table")
    kind = "parquet" if path.suffix in (".parquet", ".pq") else "csv"
    options = options_of(plan, kind)
    if leaks := origins(kind, **options).leaks:
        raise InputError(f"{leaks[0]}: state it in data.options, so that the data decide nothing")
    data = load(kind, path=path, bins=planned_bins(plan), **options)
    return Records(
        data.features, data.targets, data.classes, data.leaks, data.remarks, data.people if plan.by_person else None
    )


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
            people = person_names(stored["people"], str(path)) if "people" in stored else None
            return Records(stored["features"].astype(float), stored["targets"], classes, leaks, people=people)
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise InputError(f"cannot read {path}: {error}") from None


def write_records(path: Path | BinaryIO, records: Records) -> None:
    """Store records so that `read_records` finds them again."""
    names = {} if records.classes is None else {"classes": np.array(records.classes)}
    if records.people is not None:
        names["people"] = np.unique(records.people.astype(str), return_inverse=True)[1].reshape(-1)
    leaks = np.array(records.leaks, dtype=str)
    np.savez(path, features=records.features, targets=records.targets, leaks=leaks, **names)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Outline:
    """Everything of a party's shard that is public: all but what its records say.

    Where the person is the unit, all sizes are those of as many people with `per_person` records each: neither shapes
    nor work say how many records there are, or how many somebody has.
    """

    problem: Problem
    count: int  # records, or people
    width: int  # features of a record
    classes: int | None  # of the label; None: a number
    rows: int  # records, or people, of the largest party: all shards are padded to that
    unit: float
    ridge: float
    node: int
    per_person: int | None = None  # records of a person that are used at most; None: the unit is a record

    def shard(self, records: Records) -> HeldShard:
        """The records as the algorithm takes them; an InputError where they are not as many as agreed."""
        count, width = records.features.shape
        if self.per_person is not None:
            if records.people is None:
                raise InputError("the unit is a person, and this party's file does not say whose its records are")
            people = len(np.unique(records.people))
            if people != self.count:
                raise InputError(f"the plan says {self.count} people for this party, its file has {people}")
        elif count != self.count:
            raise InputError(f"the plan says {self.count} records for this party, its file has {count}")
        if width != self.width:
            raise InputError(f"the plan says {self.width} features, the file has {width}")
        # To refuse a record would tell everybody of it: this party would not come. It is made admissible instead.
        targets = self.problem.encode(records.targets, records.classes)
        given, targets = self.problem.owned(records.features, targets, self.node)
        features, targets = self.problem.admit(given, targets)
        if changed := int(np.sum(np.any(features != given, axis=1))):
            text = "%d of %d records lie outside the bounds that the noise is priced for: pulled back"
            for_owner.warning(text, changed, count)
        kind = np.float64 if targets.dtype.kind == "f" else np.int32
        targets, laid = targets.astype(kind), None
        if self.per_person is None:
            padded = self._padded(features), self._padded(targets)
        else:
            take, laid = self._grouped(records)
            padded = features[take], targets[take]
        with jax.enable_x64(True):  # arrays of NumPy are taken over: nothing is compiled here
            x, y, whose = jax.device_put((*padded, laid))
            return self._made(x, y, whose)

    def _grouped(self, records: Records) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Which records stand in which rows, and whose they are."""
        assert self.per_person is not None
        assert records.people is not None
        many = np.unique(records.people, return_counts=True)[1]
        if more := int(np.sum(many > self.per_person)):
            text = "%d of %d people have more than %d records, of which the first are used"
            for_owner.warning(text, more, len(many), self.per_person)
        take, laid = lay_out([records.people], self.rows * self.per_person, self.rows, self.per_person)
        return take[0], {name: values[0] for name, values in laid.items()}

    def blank(self) -> HeldShard:
        """Shapes and types alone, to compile for."""
        names = None if self.classes is None else tuple(map(str, range(self.classes)))
        kind = self.problem.encode(np.zeros(1, int), names).dtype.kind
        rows, laid = self.rows * (self.per_person or 1), None
        if self.per_person is not None:
            shapes = {"owner": rows, "share": rows, "first": self.rows, "many": self.rows}
            laid = {
                n: jax.ShapeDtypeStruct((k,), jnp.float64 if n == "share" else jnp.int32) for n, k in shapes.items()
            }
        targets = jax.ShapeDtypeStruct((rows,), jnp.float64 if kind == "f" else jnp.int32)
        shard = self._made(jax.ShapeDtypeStruct((rows, self.width), jnp.float64), targets, laid)
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), shard)

    def _padded(self, x: np.ndarray) -> np.ndarray:
        """Padding repeats the first record; `count` keeps it out of every result."""
        return np.concatenate([x, np.repeat(x[:1], self.rows - self.count, axis=0)])

    def _made(self, features: Any, targets: Any, laid: dict[str, Any] | None) -> HeldShard:
        how = SolverSettings(fixed=True)  # so that its duration says nothing
        numbers: Any = np.array(self.count, np.int32), np.array(self.unit), np.array(self.ridge)
        count, unit, ridge = numbers
        people = None if laid is None or self.per_person is None else People(**laid, most=self.per_person)
        return HeldShard(self.problem, features, targets, count, unit, ridge, how, people)
