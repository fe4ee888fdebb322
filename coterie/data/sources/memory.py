"""Memory: records that were handed over in Python, to `coterie.train`; no file holds them."""

from pathlib import Path

from coterie.data.dataset import ALL_PUBLIC, Dataset, Origins
from coterie.data.encode import Book, Category, Number
from coterie.errors import InputError

__all__ = ["HANDED", "book", "load", "origins"]

HANDED = True


def load(
    path: str | Path | None = None,
    seed: int = 0,
    *,
    classes: list[str | int | float] | None = None,
    bounds: list[list[float]] | None = None,
    radius: float | None = None,
    named: list[str] | None = None,
    attributes: dict[str, list[float] | list[str]] | None = None,
) -> Dataset:
    """Nothing can be loaded; the options say how labels and features were written, for those who use the model."""
    raise InputError("data.source = 'memory': these records were handed over in Python, and no file holds them")


def book(*, attributes: dict[str, list[float] | list[str]] | None = None, **_: object) -> Book:
    """What was said of every column: its range, or its levels; by name, as a plan that was read again has any order."""
    if not attributes:
        raise InputError("data.options.attributes is needed for an additive model of records handed over in Python")
    return {
        name: Category(tuple(map(str, rule))) if isinstance(rule[0], str) else Number(float(rule[0]), float(rule[1]))
        for name, rule in sorted(attributes.items())
    }


def origins(**options: object) -> Origins:
    """Whoever handed the records over said it (`HANDED`)."""
    return ALL_PUBLIC
