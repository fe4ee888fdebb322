"""What is given to a public function: of the right type, or one line that says what was expected.

    @takes(ridge=NUMBER, weighting=TEXT)
    def squared(*, ridge=1e-3, weighting="agents"): ...

Types are looked at here, and ranges where no plan states the setting: the plan checks the rest.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from numbers import Integral, Real
from os import PathLike
from typing import Any, ParamSpec, TypeGuard, TypeVar

import numpy as np

from coterie.errors import InputError

__all__ = [
    "BOUNDS", "FACT", "FLAG", "FUNCTION", "NOTHING_GIVEN", "NUMBER", "PLACE", "TEXT", "WHOLE", "Expected", "bind",
    "listed", "of", "shown", "takes",
]  # fmt: skip

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Expected:
    """What is expected, in words, and whether something is that."""

    words: str
    fits: Callable[[object], bool]

    def __or__(self, other: Expected) -> Expected:
        return Expected(f"{self.words} or {other.words}", lambda value: self.fits(value) or other.fits(value))


def listed(each: Expected) -> Expected:
    """A list of such; its order matters, so no set, and a text is one thing and no list of letters."""
    return Expected(f"a list (each {each.words})", lambda value: _is_list(value) and all(map(each.fits, value)))


def of(words: str, *kinds: type) -> Expected:
    """Something that is made in a way that the words say."""
    return Expected(words, lambda value: isinstance(value, kinds))


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    if isinstance(value, str | bytes | Mapping) or (isinstance(value, np.ndarray) and value.ndim == 0):
        return False
    return hasattr(value, "__len__") and hasattr(value, "__iter__") and hasattr(value, "__getitem__")


def _is_whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool | np.bool_)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, Real) and not isinstance(value, bool | np.bool_) and not math.isnan(value)


NOTHING_GIVEN = Expected("None", lambda value: value is None)
WHOLE = Expected("a whole number", _is_whole)
NUMBER = Expected("a number", _is_number)
FACT = Expected("a number > 0", lambda value: _is_number(value) and value > 0)  # that a proof rests on
TEXT = Expected("text", lambda value: isinstance(value, str))
FLAG = Expected("True or False", lambda value: isinstance(value, bool | np.bool_))
FUNCTION = Expected("a function", callable)
PLACE = Expected("a path", lambda value: isinstance(value, str | PathLike))
BOUNDS = Expected(
    "(low, high), a list of such pairs or a dictionary by column",
    lambda value: isinstance(value, Mapping) or _is_list(value),
)


def shown(thing: object) -> str:
    """What something is, in one line and without the records that it may hold."""
    if isinstance(thing, str | int | float | None):
        return repr(thing)
    if isinstance(thing, list | tuple) and len(thing) <= 4 and all(isinstance(x, str | int | float) for x in thing):
        return repr(thing)
    return f"a {type(thing).__name__}"


def bind(
    name: str, signature: inspect.Signature, args: Sequence[object], options: Mapping[str, object]
) -> dict[str, Any]:
    """The arguments of a call by their names; too many, too few or unknown ones are one line."""
    try:
        return signature.bind(*args, **options).arguments
    except TypeError as error:
        raise InputError(f"{name}: {error}") from None


def takes(**rules: Expected) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Look at the arguments of each call before the function does."""

    def wrap(function: Callable[P, R]) -> Callable[P, R]:
        signature, name = inspect.signature(function), function.__name__

        @wraps(function)
        def checked(*args: P.args, **options: P.kwargs) -> R:
            for key, value in bind(name, signature, args, options).items():
                if key in rules and not rules[key].fits(value):
                    raise InputError(f"{key} must be {rules[key].words}, got {shown(value)}")
            return function(*args, **options)

        return checked

    return wrap
