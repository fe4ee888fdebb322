"""Kinds of things that are found and never listed: one file of a package each, or an entry point of another package."""

from __future__ import annotations

import hashlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, distribution, entry_points, packages_distributions
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from coterie.errors import InputError

__all__ = ["Kinds", "OthersCode", "files_hash", "forget"]


@dataclass(frozen=True)
class OthersCode:
    """Whose code a stranger's kind is, and which."""

    module: str
    distribution: str | None  # that it was installed with, and its version; None: it lies on the path
    version: str | None
    sha256: str | None  # of the module's file, or of all Python files of a package; None: it has none

    def __str__(self) -> str:
        whence = "not of a distribution" if self.distribution is None else f"{self.distribution} {self.version}"
        return f"{self.module} ({whence}, SHA-256 {(self.sha256 or 'unknown')[:12]})"


@dataclass(frozen=True)
class Kinds:
    """What there is of one sort of thing, by name: the files of `package`, and the entry points of the group `package`.

    A file whose name begins with "_", or is in `parts`, is a part of others and no kind. Names are those of the files,
    with "-" for "_". Listing imports nothing. Those `apart` are ours too, and are not listed: each goes with one other
    thing alone, and lies beside it.
    """

    what: str  # what messages call one of them
    package: str  # which also names the group of entry points
    parts: tuple[str, ...] = ()
    apart: tuple[tuple[str, str], ...] = ()  # name and module

    @property
    def names(self) -> Mapping[str, str | EntryPoint]:
        """Every name, and the module or entry point where it is."""
        return _found(self)[0]

    def unknown(self, name: str) -> str:
        """What to say about a name that none has."""
        known = (*self.names, *dict(self.apart))
        near = get_close_matches(name, known, 1, 0.7)
        meant = f": do you mean {near[0]}? There" if near else "; there"
        return f"unknown {self.what} {name!r}{meant} are {', '.join(known)}, or one of your own as package.module"

    def place(self, name: str) -> str | EntryPoint | None:
        """The module or entry point of that name, listed or apart; None: there is none."""
        return self.names.get(name) or dict(self.apart).get(name)

    def check(self, name: str) -> str:
        """The name, or an error that lists what there is; a name with a dot is a module, looked up when loaded."""
        if clash := _found(self)[1].get(name):
            raise InputError(clash)
        if self.place(name) is None and "." not in name:
            raise InputError(self.unknown(name))
        return name

    def ours(self, name: str) -> bool:
        """Whether it is a file of ours, so that an error in it is not a user's mistake."""
        return isinstance(self.place(name), str)

    def load(self, name: str, *needed: str) -> ModuleType:
        """The module of that name, with the parts it needs; what is wrong with a stranger's is one line."""
        place = self.place(self.check(name)) or name
        if self.ours(name):
            return import_module(str(place))
        try:
            module = place.load() if isinstance(place, EntryPoint) else import_module(place)
            _source_hash(place.module if isinstance(place, EntryPoint) else place)  # of what runs: a file may change
        except Exception as error:  # whatever a stranger's file does
            usual = isinstance(error, ImportError | TypeError | ValueError)  # TypeError: a name that begins with a dot
            told = str(error) if usual else f"{type(error).__name__}: {error}"
            if isinstance(error, ModuleNotFoundError) and name.split(".")[0] == error.name:
                told += ": install it, or, if it lies in this folder, begin the command with PYTHONPATH=."
            raise InputError(f"{self.what} {name!r}: {' '.join(told.split())}") from None
        if lacking := [part for part in needed if not hasattr(module, part)]:
            raise InputError(f"{self.what} {name!r}: {module.__name__} lacks {', '.join(lacking)}")
        return module

    def code(self, name: str) -> OthersCode | None:
        """Whose code it is; None: ours. Packages around a module that is not loaded yet are imported, it is not."""
        if self.ours(name):
            return None
        place = self.place(name) or name
        if isinstance(place, EntryPoint):
            module, home = place.module, place.dist
        else:
            homes = packages_distributions().get(place.partition(".")[0], [])
            module, home = place, distribution(homes[0]) if homes else None
        whose, version = (None, None) if home is None else (home.name, home.version)
        return OthersCode(module, whose, version, _source_hash(module))


@cache
def _source_hash(module: str) -> str | None:
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):  # ValueError: made by hand, without a file
        return None
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        return None
    if spec.submodule_search_locations:
        return files_hash(Path(spec.origin).parent)
    return hashlib.sha256(Path(spec.origin).read_bytes()).hexdigest()


def files_hash(root: Path) -> str:
    """SHA-256 over the names and contents of all Python files under a folder."""
    total = hashlib.sha256()
    for path in sorted(root.rglob("*.py"), key=lambda p: p.relative_to(root).as_posix()):
        text = path.read_bytes()
        total.update(f"{path.relative_to(root).as_posix()} {len(text)}\n".encode() + text)
    return total.hexdigest()


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
    _source_hash.cache_clear()
