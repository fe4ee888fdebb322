"""Kinds of things that are found and never listed: one file of a package each, or an entry point of another package."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType

from coterie.errors import InputError

__all__ = ["Kinds", "forget"]


@dataclass(frozen=True)
class Kinds:
    """What there is of one sort of thing, by name: the files of `package`, and the entry points of the group `package`.

    A file whose name begins with "_", or is in `parts`, is a part of others and no kind. Names are those of the files,
    with "-" for "_". Listing imports nothing.
    """

    what: str  # what messages call one of them
    package: str  # which also names the group of entry points
    parts: tuple[str, ...] = ()

    @property
    def names(self) -> Mapping[str, str | EntryPoint]:
        """Every name, and the module or entry point where it is."""
        return _found(self)[0]

    def unknown(self, name: str) -> str:
        """What to say about a name that none has."""
        return f"unknown {self.what} {name!r}; there are {', '.join(self.names)}, or one of your own as package.module"

    def check(self, name: str) -> str:
        """The name, or an error that lists what there is; a name with a dot is a module, looked up when loaded."""
        if clash := _found(self)[1].get(name):
            raise InputError(clash)
        if name not in self.names and "." not in name:
            raise InputError(self.unknown(name))
        return name

    def ours(self, name: str) -> bool:
        """Whether it is a file of ours, so that an error in it is no mistake of a user."""
        return isinstance(self.names.get(name), str)

    def load(self, name: str, *needed: str) -> ModuleType:
        """The module of that name, with the parts it needs; what is wrong with a stranger's is one line."""
        place = self.names.get(self.check(name), name)
        if self.ours(name):
            return import_module(str(place))
        try:
            module = place.load() if isinstance(place, EntryPoint) else import_module(place)
        except Exception as error:  # whatever a stranger's file does
            usual = isinstance(error, ImportError | TypeError | ValueError)  # TypeError: a name that begins with a dot
            told = str(error) if usual else f"{type(error).__name__}: {error}"
            raise InputError(f"{self.what} {name!r}: {' '.join(told.split())}") from None
        if lacking := [part for part in needed if not hasattr(module, part)]:
            raise InputError(f"{self.what} {name!r}: {module.__name__} lacks {', '.join(lacking)}")
        return module


@cache
def _found(kinds: Kinds) -> tuple[dict[str, str | EntryPoint], dict[str, str]]:
    """What there is, and what is wrong with names that two things have."""
    found: dict[str, str | EntryPoint] = {}
    clashes: dict[str, str] = {}
    for info in pkgutil.iter_modules(import_module(kinds.package).__path__):
        if not info.name.startswith("_") and info.name not in kinds.parts:
            found[info.name.replace("_", "-")] = f"{kinds.package}.{info.name}"
    for point in entry_points(group=kinds.package):
        if point.name in found:
            clashes[point.name] = f"{point.value} brings another {kinds.what} {point.name!r}: rename its entry point"
        else:
            found[point.name] = point
    return dict(sorted(found.items())), clashes


def forget() -> None:
    """Look anew at what there is: a file or an entry point was added while this process ran."""
    _found.cache_clear()
