"""What a plan states about a table before a record is read: its columns, and what will be read from the records."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from coterie.arguments import choose
from coterie.data.dataset import PUBLIC, Origins
from coterie.data.encode import Category, Number
from coterie.errors import InputError, InputErrors

__all__ = ["MISSING", "OTHER", "PROPOSED", "Gaps", "Stated", "Task", "site_origin"]

Task = Literal["auto", "classification", "regression"]
Gaps = Literal["keep", "drop", "error"]
MISSING, OTHER = "missing", "other"  # levels of their own: no value, and a value that the book does not have
NO_COLUMN = "sites lists names, but site, the column that holds them, is not given"
PROPOSED = (
    "the code book was proposed by looking at the records: check it against public knowledge, then remove "
    "read_from_records"
)


@dataclass(frozen=True, kw_only=True)
class Stated:
    """Options of `coterie.data.tables.load_table`, which says what each means. All mistakes are refused at once."""

    label: str
    site: str | None = None
    sites: Sequence[object] | None = None
    person: str | None = None
    protected: str | None = None
    features: Sequence[str] | None = None
    bounds: Mapping[str, Sequence[float]] = field(default_factory=dict)
    log: Sequence[str] = ()
    categories: Mapping[str, Sequence[object]] | str = field(default_factory=dict)
    classes: Sequence[object] | None = None
    task: str = "auto"
    missing: str = "keep"
    missing_values: Sequence[object] = ()
    optional: Sequence[str] | None = None
    impute: Mapping[str, float] = field(default_factory=dict)
    other: bool | Sequence[str] = False
    read_from_records: bool = False

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Stated:
        """What options of a table say, those left aside that are about its rows' norms and not about its columns."""
        given = {name: value for name, value in options.items() if name in cls.__dataclass_fields__}
        stated = cls(**{name: value for name, value in given.items() if value is not None or name == "features"})
        if isinstance(stated.categories, str):
            choose("categories", stated.categories, ("data",))
        if problems := stated._contradictions():
            raise InputErrors(problems)
        return stated

    @property
    def groups(self) -> list[str]:
        """Columns that are no features."""
        return [name for name in (self.label, self.site, self.person, self.protected) if name is not None]

    @property
    def levels(self) -> Mapping[str, Sequence[object]]:
        """The declared categories."""
        return {} if isinstance(self.categories, str) else self.categories

    @property
    def kind(self) -> str:
        """What is learned, where the options say it; "auto" where only the data can."""
        if self.task != "auto":
            return self.task
        return "classification" if self.classes is not None else "regression" if self.label in self.bounds else "auto"

    @property
    def origins(self) -> Origins:
        """What is read from the records with these options."""
        label = self.label
        read = {
            "regression": PUBLIC,
            "classification": (f"{label}: its classes are read from the data",) if self.classes is None else PUBLIC,
            "auto": (f"{label}: whether it is a class or a number is read from the data, and so are its classes",),
        }
        return Origins(
            classes=read[self.kind],
            columns=("categories of text columns are read from the data",) if self.categories == "data" else PUBLIC,
            scale=(PROPOSED,) if self.read_from_records else PUBLIC,
            rows=PUBLIC,  # a record with a gap is left out for itself: how many are left is public, as every size is
            sites=site_origin(self.site, self.sites),
        )

    def range(self, column: str) -> Number | None:
        """The public range of a column, with what stands for a gap: the middle, unless the plan says a number."""
        if (ends := self.bounds.get(column)) is None:
            return None
        low, high = map(float, ends)
        return Number(low, high, log=column in self.log, fill=float(self.impute.get(column, (low + high) / 2)))

    def category(self, column: str) -> Category | None:
        """The public levels of a column, those for a gap and for the unknown included."""
        if (names := self.levels.get(column)) is None:
            return None
        levels = tuple(map(str, names))
        return Category((*levels, OTHER) if self.takes_others(column) and OTHER not in levels else levels)

    def takes_others(self, column: str) -> bool:
        """Whether a value that is none of the column's levels is the level `other`."""
        return column in self.levels and (self.other is True or (self.other is not False and column in self.other))

    def may_miss(self, column: str) -> bool:
        """Whether a gap in this feature has a place, whatever the records are like: all have, or those listed."""
        return self.missing == "keep" and (self.optional is None or column in self.optional)

    def _contradictions(self) -> list[str]:
        """Everything that cannot be meant, known without a record."""
        found = self._of_the_label()
        if self.site is None and self.sites is not None:
            found.append(NO_COLUMN)
        for key, names in (("classes", self.classes), ("sites", self.sites), ("features", self.features)):
            found += _repeated(key, [] if names is None else names)
        if len(set(self.groups)) < len(self.groups):
            found.append(f"label, site, person and protected must be different columns, got {', '.join(self.groups)}")
        if self.features is not None:
            if not self.features:
                found.append("features is empty: expected columns to learn from")
            roles = {self.label: "label", self.site: "site", self.person: "person", self.protected: "protected group"}
            found += [f"features lists {n!r}, which is the {roles[n]}" for n in self.features if n in roles]
        for column, ends in self.bounds.items():
            if len(ends) != 2 or not (-math.inf < ends[0] < ends[1] < math.inf):
                found.append(f"bounds of {column!r} must be two finite numbers, low < high, got {list(ends)}")
        for column, names in self.levels.items():
            found += _repeated(f"categories of {column!r}", names)
            if not names:
                found.append(f"categories of {column!r} are empty: expected the names that it can have")
            if column in self.bounds:
                found.append(f"column {column!r} has both bounds and categories: is it a number or a name?")
        found += _repeated("log", self.log)
        found += [
            f"log names {n!r}, which is not a feature with bounds: a logarithmic scale needs a public range"
            for n in self.log
            if n not in self.bounds or not self._feature(n)
        ]
        named = set(self.levels) - {self.protected}
        about: Mapping[str, Collection[str]] = {
            "bounds": set(self.bounds) - {self.label}, "categories": named, "optional": self.optional or ()
        }  # fmt: skip
        for key, columns in about.items():
            found += [f"{key} names {n!r}, which is not one of the features" for n in columns if not self._feature(n)]
        return found + self._of_gaps()

    def _of_gaps(self) -> list[str]:
        found = []
        if self.missing != "keep":
            for key in ("optional", "impute"):
                if getattr(self, key):
                    found.append(f"{key} is for missing = 'keep', and missing is {self.missing!r}")
        for column, value in self.impute.items():
            ends = self.bounds.get(column)
            if not self._feature(column) or column in self.levels:
                found.append(f"impute names {column!r}, which is not a number among the features")
            elif self.optional is not None and column not in self.optional:
                found.append(f"impute names {column!r}, which optional does not list, so it has no gaps")
            elif not math.isfinite(value) or (ends is not None and len(ends) == 2 and not ends[0] <= value <= ends[1]):
                found.append(f"impute gives {column!r} the value {value:g}, which is not in its bounds")
        if self.other is not False:
            known: Collection[str] = self.levels
            if not known:
                found.append("other is for columns with categories, and none has any")
            elif self.other is not True:
                found += [f"other names {n!r}, which has no categories" for n in self.other if n not in known]
        return found

    def _of_the_label(self) -> list[str]:
        found, classes = self._of_the_groups(), self.classes
        if self.task == "regression" and classes is not None:
            found.append(f"classes = {list(classes)} are for classification, and task is 'regression'")
        if self.label in self.bounds and (self.task == "classification" or classes is not None):
            found.append(f"bounds of the label {self.label!r} are for regression, and its values are classes")
        if classes is not None and len(classes) < 2:
            found.append(f"label {self.label!r} has the single class {list(classes)}: nothing to learn")
        return found

    def _of_the_groups(self) -> list[str]:
        """What is wrong with the protected column, by the options alone."""
        if self.protected is None:
            return []
        found = []
        if self.protected not in self.levels:
            found.append(f"protected = {self.protected!r} needs its groups: state categories of {self.protected!r}")
        elif len(self.levels[self.protected]) < 2:
            found.append(f"protected = {self.protected!r} has a single group: two are needed")
        if self.kind != "classification" or self.classes is None or len(self.classes) != 2:
            found.append(f"protected = {self.protected!r} goes with a label of two classes: state both as classes")
        return found

    def _feature(self, column: str) -> bool:
        """Whether it can be a feature, by the options alone."""
        return column not in self.groups and (self.features is None or column in self.features)


def site_origin(site: str | None, sites: Sequence[object] | None) -> tuple[str, ...]:
    """Where the names of the sites come from."""
    if site is None and sites is not None:
        raise InputError(NO_COLUMN)
    return PUBLIC if site is None or sites is not None else (f"{site}: the names of the sites are read from the data",)


def _repeated(what: str, names: Sequence[object]) -> list[str]:
    text = list(map(str, names))
    twice = next((name for k, name in enumerate(text) if name in text[:k]), None)
    return [] if twice is None else [f"{what} must be different names, and {twice!r} comes twice"]
