"""Every algorithm, one file each, found by walking this package; `base` says what an algorithm is."""

import pkgutil
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from coterie.errors import InputError

__all__ = ["names", "unknown"]

PARTS = ("base", "batches", "inbox", "laws", "quantize")  # of the protocol, not algorithms


@cache
def names() -> dict[str, str | EntryPoint]:
    """Every algorithm's name, and the module or entry point where it is; nothing is imported.

    Those of other packages are found by their entry points in the group "coterie.algorithms".
    """
    found: dict[str, str | EntryPoint] = {}
    for info in pkgutil.iter_modules(__path__):
        if not info.name.startswith("_") and info.name not in PARTS:
            found[info.name.replace("_", "-")] = f"{__name__}.{info.name}"
    for point in entry_points(group="coterie.algorithms"):
        if point.name in found:
            raise InputError(f"two algorithms are called {point.name!r}: rename the entry point of {point.value}")
        found[point.name] = point
    return dict(sorted(found.items()))


def unknown(name: str) -> str:
    """What to say about a name that no algorithm has."""
    return f"unknown algorithm {name!r}; there are {', '.join(names())}, or one of your own as package.module"
