"""What a loss learns to predict: numbers, one of two classes, one of several, or nothing.

Each kind says how a data set's labels are coded for the loss (`encode`), what becomes of a target that is none
(`admit`: every one on its own, whatever it says), and whether given targets are in that coding (`taken`).
"""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from coterie.errors import InputError
from coterie.passes import each
from coterie.problems.records import Rows, class_numbers, namespace

__all__ = ["NOTHING", "NUMBERS", "SIGNS", "WHOLE", "ClassNumbers", "Labels"]


class Labels(abc.ABC):
    """A kind of labels; `name` in its methods is what messages call the loss."""

    classes: int | None = None  # how many classes they are; None: they are not classes
    words: ClassVar[str]  # what targets must be
    samples: ClassVar[tuple[float, ...]] = (-1.0, 0.0, 1.0, 50.0)  # worth trying, before `admit`

    @abc.abstractmethod
    def encode(self, targets: np.ndarray, classes: tuple[str, ...] | None, name: str) -> np.ndarray:
        """The labels of a data set in this coding (`targets` number its `classes`, if it has any), or an InputError."""

    def admit(self, targets: Rows) -> Rows:
        """The targets, with something admissible for every one that is not: here 0 for what is not a number."""
        xp = namespace(targets)
        return xp.where(xp.isfinite(targets), targets, xp.zeros((), targets.dtype))

    def taken(self, targets: ArrayLike) -> np.ndarray:
        """The targets as an array; an InputError where they are not in this coding."""
        given = np.asarray(targets)
        if given.dtype.kind not in "biuf" or not np.array_equal(kept := self.admit(given.astype(float)), given):
            raise InputError(f"targets must be {self.words}")
        return kept


@dataclass(frozen=True)
class Numbers(Labels):
    """Any finite number."""

    words: ClassVar[str] = "finite numbers"

    def encode(self, targets: np.ndarray, classes: tuple[str, ...] | None, name: str) -> np.ndarray:
        if classes is not None:
            raise InputError(f"{name} needs a numeric label, but it has the classes {classes[:4]}")
        return np.asarray(targets, dtype=float)


@dataclass(frozen=True)
class Signs(Labels):
    """One of two classes, as −1 and 1."""

    classes: int = 2
    words: ClassVar[str] = "−1 and 1"

    def encode(self, targets: np.ndarray, classes: tuple[str, ...] | None, name: str) -> np.ndarray:
        if classes is None or len(classes) != 2:
            what = "continuous values" if classes is None else f"{len(classes)} classes {classes[:4]}"
            raise InputError(f"{name} needs labels of two classes, but the label column has {what}")
        given = np.asarray(targets)
        return each(lambda some: np.where(some == 1, 1.0, -1.0), given)

    def admit(self, targets: Rows) -> Rows:
        xp = namespace(targets)
        one = xp.ones((), targets.dtype)
        if isinstance(targets, np.ndarray):
            return each(lambda some: np.where(some > 0, one, -one), targets)
        return xp.where(targets > 0, one, -one)


@dataclass(frozen=True)
class ClassNumbers(Labels):
    """One of several classes, as its number."""

    classes: int

    @property
    def words(self) -> str:  # type: ignore[override]
        return f"whole numbers from 0 to {self.classes - 1}"

    @property
    def samples(self) -> tuple[float, ...]:  # type: ignore[override]
        return tuple(map(float, range(self.classes)))

    def encode(self, targets: np.ndarray, classes: tuple[str, ...] | None, name: str) -> np.ndarray:
        if classes is None or len(classes) != self.classes:
            have = "continuous values" if classes is None else f"{len(classes)} classes"
            raise InputError(f"{name} was set up for {self.classes} classes, but the label column has {have}")
        return np.asarray(targets, dtype=np.int32)

    def admit(self, targets: Rows) -> Rows:
        return class_numbers(targets, self.classes)


@dataclass(frozen=True)
class Whole(Labels):
    """Any whole number: what it means is the loss's own business."""

    words: ClassVar[str] = "whole numbers"

    def encode(self, targets: np.ndarray, classes: tuple[str, ...] | None, name: str) -> np.ndarray:
        return np.asarray(targets, dtype=np.int32)

    def taken(self, targets: ArrayLike) -> np.ndarray:
        kept = super().taken(targets)
        if not np.array_equal(kept, np.rint(kept)):
            raise InputError(f"targets must be {self.words}")
        return kept.astype(np.int32)


@dataclass(frozen=True)
class Nothing(Labels):
    """No labels: whatever stands in their place is not read."""

    words: ClassVar[str] = "anything"

    def encode(self, targets: np.ndarray, classes: tuple[str, ...] | None, name: str) -> np.ndarray:
        return np.zeros(len(targets))

    def taken(self, targets: ArrayLike) -> np.ndarray:
        return np.zeros(len(np.asarray(targets)))


NUMBERS, SIGNS, WHOLE, NOTHING = Numbers(), Signs(), Whole(), Nothing()
