"""Class labels of arrays that a user hands over: publicly known, or read from the records and reported as that."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from coterie.errors import InputError

__all__ = ["LabelsWarning", "public_labels"]


class LabelsWarning(UserWarning):
    """The class labels were read from the records, which no budget pays for: the model is not private."""


def public_labels(
    classes: Sequence | None, y: NDArray, stacklevel: int, warn: bool = True
) -> tuple[NDArray, tuple[str, ...]]:
    """The labels, and what was read from the records to know them: nothing where they are given, as they should be.

    One record with a rare label would change the shape of the model and what it predicts. `warn`: unless no privacy is
    claimed anyway.
    """
    if classes is not None:
        labels, leaks = np.asarray(classes), ()
        if len(np.unique(labels)) < len(labels):
            raise InputError(f"classes must be different labels, got {labels.tolist()}")
        stray = ~np.isin(y, labels)
        if stray.any():
            raise InputError(f"label {y[stray].tolist()[0]!r} is not one of the classes {labels.tolist()}")
        return labels, leaks
    if warn:
        warnings.warn(
            "no public labels: the classes are those that occur in y, so one record can change the model's shape. This "
            "is not private, whatever ε was spent. Give classes=[…] from public knowledge, never from these records",
            LabelsWarning,
            stacklevel=stacklevel,
        )
    return np.unique(y), ("the class labels are read from y",)
