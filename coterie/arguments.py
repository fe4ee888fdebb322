"""Checks of what a user asked for, shared by everything that is chosen by name and keyword."""

from collections.abc import Iterable, Sequence

from coterie.errors import InputError

MOST = 1e6
"""Largest ε that a budget may state: far smaller ones promise nothing already."""

__all__ = ["MOST", "budgets", "choose", "names", "numbers"]


def choose(name: str, value: object, allowed: Iterable[str]) -> str:
    """The value itself, if it is one of the allowed ones."""
    allowed = tuple(allowed)
    if not isinstance(value, str) or value not in allowed:
        raise InputError(f"unknown {name} {value!r}: expected one of {', '.join(allowed)}")
    return value


def budgets(option: str, text: str) -> list[float]:
    """Different ε from a list with commas, for a command's option."""
    found = numbers(option, text)
    if not found or not all(0 < e <= MOST for e in found):
        raise InputError(f"{option} needs positive numbers up to {MOST:g} such as 0.1,1,10, got {text!r}")
    _different(option, text, found)
    return found


def names(option: str, text: str) -> list[str]:
    """Different names from a list with commas, for a command's option."""
    found = [name.strip() for name in text.split(",") if name.strip()]
    if not found:
        raise InputError(f"{option} needs names with commas between them, got {text!r}")
    _different(option, text, found)
    return found


def _different(option: str, text: str, found: Sequence[object]) -> None:
    if len(set(found)) < len(found):
        raise InputError(f"{option} needs each of its values once, got {text!r}")


def numbers(option: str, text: str) -> list[float]:
    """Numbers from a list with commas, for a command's option."""
    try:
        return [float(e) for e in text.split(",") if e.strip()]
    except ValueError:
        raise InputError(f"{option} needs numbers such as 0.1,1,10, got {text!r}") from None
