"""What every loader returns: features, targets, and an honest note of where they came from."""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace

import numpy as np

from coterie.errors import InputError
from coterie.passes import gather, some_not_finite

__all__ = ["ALL_PUBLIC", "PUBLIC", "Dataset", "Origins", "Truth"]

PUBLIC: tuple[str, ...] = ()
"""Where something came from that was declared, or that each record alone decides: nothing was read from the others."""


@dataclass(frozen=True, kw_only=True)
class Origins:
    """Where everything came from that shapes or scales what is released, for whoever makes a data set to state.

    Each is `PUBLIC`, or sentences that say what was read from the records: one record more or less could change it for
    all, and no budget pays for that. There are no defaults, so nothing is public because somebody forgot to say.
    """

    classes: tuple[str, ...]  # the labels and their order, or that the target is a number
    columns: tuple[str, ...]  # which features there are, categories included
    scale: tuple[str, ...]  # how values become numbers: ranges, codes, norms, what stands for a missing value
    rows: tuple[str, ...]  # which records are kept
    sites: tuple[str, ...]  # who the parties are

    @property
    def leaks(self) -> tuple[str, ...]:
        """Everything that was read from the records."""
        return (*self.classes, *self.columns, *self.scale, *self.rows, *self.sites)


ALL_PUBLIC = Origins(classes=PUBLIC, columns=PUBLIC, scale=PUBLIC, rows=PUBLIC, sites=PUBLIC)
"""A data set of which nothing was read from the records."""


@dataclass(frozen=True, eq=False)
class Truth:
    """What is known about a synthetic data set: P(y = 1 | z) = 1 / (1 + exp(−coefficients·z))."""

    coefficients: np.ndarray
    bayes_accuracy: float  # of the rule coefficients·z > 0, averaged over the records drawn


@dataclass(frozen=True, eq=False)
class Dataset:
    """Records of one learning problem. Row i of every array is record i.

    `targets` are class indices 0 … k − 1 (int64) with their names in `classes`, or float64 with `classes=None`.
    `sites` says which of `site_names` holds a record, `people` which person it is about (where one person has
    several records: split and account by it), `test` marks the records of an official test set (where it marks none,
    nothing is ever held out). `columns` keeps raw attributes that are not features, such as sex or race. `notes` says
    how features were made and which public bounds were used, `origins` which of that was read from the records
    (`leaks`; empty: nothing, as privacy needs); `remarks` what happened to records (a column, or "", and words), for
    their owner alone; `source` and `sha256` (by file) where from. Building one refuses empty, misshapen or non-finite
    data.
    """

    name: str
    features: np.ndarray
    targets: np.ndarray
    classes: tuple[str, ...] | None
    feature_names: tuple[str, ...]
    sites: np.ndarray | None = None
    site_names: tuple[str, ...] = ()
    people: np.ndarray | None = None
    test: np.ndarray | None = None
    columns: Mapping[str, np.ndarray] = field(default_factory=dict)
    source: str = ""
    sha256: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    truth: Truth | None = None
    remarks: tuple[tuple[str, str], ...] = ()
    origins: Origins = field(kw_only=True)

    def __post_init__(self) -> None:
        n = len(self.features)
        if self.features.ndim != 2 or n == 0 or self.features.shape[1] == 0:
            raise InputError(f"data set {self.name!r} is empty: features have shape {self.features.shape}")
        if self.features.shape[1] != len(self.feature_names):
            raise InputError(
                f"data set {self.name!r} has {self.features.shape[1]} features "
                f"but {len(self.feature_names)} feature names"
            )
        for name, values in (*self._per_record().items(), *self.columns.items()):
            if values is not None and len(values) != n:
                raise InputError(f"data set {self.name!r} has {n} records but {len(values)} {name}")
        if some_not_finite(self.features):
            bad = ~np.isfinite(self.features)
            column = int(bad.any(axis=0).argmax())
            raise InputError(
                f"data set {self.name!r}: column {self.feature_names[column]!r} is not finite "
                f"in {int(bad[:, column].sum())} rows"
            )
        if self.classes is None:
            if not np.isfinite(self.targets).all():
                rows = int((~np.isfinite(self.targets)).sum())
                raise InputError(f"data set {self.name!r}: the target is not finite in {rows} rows")
        elif self.targets.min() < 0 or self.targets.max() >= len(self.classes):
            raise InputError(f"data set {self.name!r}: class indices must lie in 0 … {len(self.classes) - 1}")

    @property
    def leaks(self) -> tuple[str, ...]:
        """What was read from the records to make this: no privacy can be claimed unless it is empty."""
        return self.origins.leaks

    def __len__(self) -> int:
        return len(self.features)

    def take(self, rows: np.ndarray) -> "Dataset":
        """The same data set with only these rows, in this order."""
        kept = {name: None if values is None else gather(values, rows) for name, values in self._per_record().items()}
        columns = {name: gather(values, rows) for name, values in self.columns.items()}
        taken = copy(self)  # what was looked at when it was built is not looked at again
        taken.__dict__.update(columns=columns, **kept)
        return taken if len(taken) else replace(self, columns=columns, **kept)  # type: ignore[arg-type]  # refused

    def leave_out(self, names: Sequence[str]) -> tuple["Dataset", list["Dataset"]]:
        """The data set without these sites, and the records of each of them."""
        if self.sites is None:
            raise InputError(f"data set {self.name!r} has no sites to leave out: got {list(names)}")
        if unknown := [name for name in names if name not in self.site_names]:
            raise InputError(f"{self.name!r} has no site {unknown[0]!r}: it has {', '.join(self.site_names)}")
        left = [self.site_names.index(name) for name in names]
        stay = [k for k in range(len(self.site_names)) if k not in left]
        if len(stay) < 2:
            raise InputError(
                f"leaving out {', '.join(names)} leaves {len(stay)} sites of {self.name!r}: two are needed"
            )
        number = np.full(len(self.site_names), -1)
        number[stay] = np.arange(len(stay))
        rest = self.take(np.flatnonzero(number[self.sites] >= 0))
        assert rest.sites is not None
        inside = replace(rest, sites=number[rest.sites], site_names=tuple(self.site_names[k] for k in stay))
        return inside, [self.take(np.flatnonzero(self.sites == k)) for k in left]

    def _per_record(self) -> dict[str, np.ndarray | None]:
        return {name: getattr(self, name) for name in ("features", "targets", "sites", "people", "test")}
