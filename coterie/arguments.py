"""Checks of what a user asked for, shared by everything that is chosen by name and keyword."""

import inspect
from collections.abc import Callable, Iterable, Mapping

from coterie.errors import InputError

__all__ = ["check_arguments", "choose", "numbers"]


def check_arguments(what: str, function: Callable[..., object], given: Mapping[str, object]) -> None:
    """Refuse keywords that `function` does not take, and the absence of those it needs, naming `what`.

    >>> check_arguments("ring", lambda size, *, width: None, {"depth": 3})
    Traceback (most recent call last):
    coterie.errors.InputError: ring has no parameter 'depth': it takes width
    """
    wanted = {p.name: p for p in inspect.signature(function).parameters.values() if p.kind == p.KEYWORD_ONLY}
    for name in given:
        if name not in wanted:
            raise InputError(f"{what} has no parameter {name!r}: it takes {', '.join(wanted) or 'none'}")
    for name, parameter in wanted.items():
        if parameter.default is parameter.empty and name not in given:
            raise InputError(f"{what} needs {name}")


def choose(name: str, value: object, allowed: Iterable[str]) -> str:
    """The value itself, if it is one of the allowed ones."""
    allowed = tuple(allowed)
    if not isinstance(value, str) or value not in allowed:
        raise InputError(f"unknown {name} {value!r}: expected one of {', '.join(allowed)}")
    return value


def numbers(option: str, text: str) -> list[float]:
    """Numbers from a list with commas, for a command's option."""
    try:
        return [float(e) for e in text.split(",") if e.strip()]
    except ValueError:
        raise InputError(f"{option} needs numbers such as 0.1,1,10, got {text!r}") from None
