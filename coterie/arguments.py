"""Checks of what a user asked for, shared by everything that is chosen by name and keyword."""

from collections.abc import Iterable

from coterie.errors import InputError

__all__ = ["choose", "numbers"]


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
