"""Sets that a model may be kept in, one file each, found and never listed.

A file has `make(dim, …)`, which returns a `coterie.problems.Constraint` of points with so many numbers: public, from
its options alone. Its keyword arguments are its options (`problem.within_options` of a plan), and `EXAMPLE` has some
with which the tests try it. What is not of this package is tried before anything runs (`coterie.problems.try_set`).
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from coterie.errors import InputError
from coterie.found import Kinds

if TYPE_CHECKING:
    from coterie.problems.sets import Constraint

__all__ = ["SETS", "Option", "check_options", "make_set", "numbers"]

SETS = Kinds("set", __name__)
"""Every set, by name."""
Option = float | list[float]
"""What an option of a set may be: one number, or one for each coordinate."""


def check_options(name: str, options: Mapping[str, Option]) -> None:
    """Refuse a set that does not exist, and options that it does not take or lacks."""
    make = SETS.load(name, "make").make
    try:
        inspect.signature(make).bind(1, **options)
    except TypeError:
        takes = ", ".join(list(inspect.signature(make).parameters)[1:]) or "none"
        given = ", ".join(options) or "none"
        raise InputError(f"problem.within = {name!r} takes {takes} in within_options, which has {given}") from None


def make_set(name: str, dim: int, options: Mapping[str, Option]) -> Constraint:
    """The set of that name for points of `dim` numbers."""
    from coterie.problems.sets import Constraint, try_set

    check_options(name, options)
    try:
        made = SETS.load(name, "make").make(dim, **options)
    except InputError:
        raise
    except (TypeError, ValueError) as error:  # a list where a number is wanted
        raise InputError(f"problem.within_options of {name!r}: {' '.join(str(error).split())}") from None
    if not isinstance(made, Constraint):
        raise InputError(f"set {name!r}: make must return a coterie.problems.Constraint, got {type(made).__name__}")
    if not SETS.ours(name):
        try_set(made, dim)
    return made


def numbers(option: str, given: Option, dim: int) -> float | tuple[float, ...]:
    """One number, or one for each of `dim` coordinates."""
    if not isinstance(given, Sequence):
        return float(given)
    if len(given) != dim:
        raise InputError(f"problem.within_options.{option} lists {len(given)} numbers for a model of {dim}")
    return tuple(float(v) for v in given)
