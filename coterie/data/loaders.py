"""`load`: every data set by its name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

from pydantic import PydanticUserError, create_model

from coterie.data.bins import Bins
from coterie.data.dataset import Dataset, Origins
from coterie.data.encode import Book
from coterie.data.sources import SOURCES
from coterie.data.store import Store
from coterie.errors import InputError
from coterie.settings import Settings, read

__all__ = ["RecordSource", "find_source", "load", "origins"]


@dataclass(frozen=True)
class RecordSource:
    """Where records come from: loaded whole, or streamed."""

    name: str
    options: type[Settings]
    load: Callable[..., Dataset] | None
    origins: Callable[..., Origins] | None
    people: Callable[..., bool] | None
    stream: Callable[[Path], Store] | None
    book: Callable[..., Book] | None  # the public code book, by the options; None: it has none
    made: bool
    needs_path: bool
    sited: bool
    handed: bool

    @property
    def tells(self) -> bool:
        """Whether its records themselves say what was read to make them, so that no options can say it before."""
        return self.handed or self.stream is not None

    def takes(self, option: str) -> bool:
        """Whether it has this option."""
        return option in self.options.model_fields

    def checked(self, options: Mapping[str, object], *where: str) -> dict[str, object]:
        """Options with their types and names checked; a mistake names `where` they stand."""
        found = read(self.options, options, *(where or (self.name,)))
        return {name: getattr(found, name) for name in found.model_fields_set}


def find_source(name: str) -> RecordSource:
    """The source of that name, or in the module `name` if it has a dot; an error lists what there is."""
    module = SOURCES.load(name)
    if not hasattr(module, "stream"):
        module = SOURCES.load(name, "load", "origins")
    try:
        return _source(name, module)
    except (TypeError, NameError, PydanticUserError) as error:  # types that cannot be looked up, or checked
        if SOURCES.ours(name):
            raise
        raise InputError(f"data set {name!r}: its options have no types that can be checked: {error}") from None


@cache
def _source(name: str, module: ModuleType) -> RecordSource:
    load, origins = getattr(module, "load", None), getattr(module, "origins", None)
    options = _options(name, load)
    if origins is not None:
        taken = inspect.signature(origins).parameters.values()
        if not any(p.kind is p.VAR_KEYWORD for p in taken):
            for option in set(options.model_fields) - {p.name for p in taken}:
                raise InputError(f"data set {name!r}: origins in {module.__name__} does not take {option!r}")
    flags = {flag: bool(getattr(module, flag.upper(), False)) for flag in ("made", "needs_path", "sited", "handed")}
    people, stream, book = (getattr(module, part, None) for part in ("people", "stream", "book"))
    return RecordSource(name, options, load, origins, people, stream, book, **flags)


def _options(name: str, load: Callable[..., Dataset] | None) -> type[Settings]:
    """The keyword arguments of a loader as settings: their types, and which of them are needed.

    `bins` is not one: a plan says them where it says what is learned.
    """
    fields: dict[str, Any] = {}
    if load is not None:
        types = get_type_hints(load)
        for p in inspect.signature(load).parameters.values():
            if p.kind is p.KEYWORD_ONLY and p.name != "bins":
                fields[p.name] = (types.get(p.name, Any), ... if p.default is p.empty else p.default)
    return create_model(f"options of {name}", __base__=Settings, **fields)


def origins(name: str, **options: object) -> Origins:
    """What `load` would read from the records with these options: known before a record is read.

    >>> origins("adult", coding="frequency").leaks
    ('categories are coded by their frequency in the data',)
    """
    source = find_source(name)
    if source.origins is None:
        raise InputError(f"data set {name!r} is streamed: it says by itself what was read, once it is opened")
    return source.origins(**source.checked(options))


def load(
    name: str, *, path: str | Path | None = None, seed: int = 0, bins: Bins | None = None, **options: object
) -> Dataset:  # fmt: skip
    """A data set by name: one of `SOURCES`, with that loader's options; its records in `bins`, if there are any.

    Files are searched in `path` alone if given; else in the directory `COTERIE_DATA`, then in the user's cache, into
    which they are downloaded and checked if nowhere to be found. `seed` matters to synthetic data only.

    >>> load("clinics", seed=1, records=500).features.shape
    (500, 12)
    """
    source = find_source(name)
    if source.load is None:
        raise InputError(f"data set {name!r} is streamed: it cannot be loaded whole")
    stated, into = origins(name, **options), {} if bins is None else {"bins": bins}
    data = source.load(path, seed, **into, **source.checked(options))
    if data.origins != stated:
        raise InputError(
            f"data set {name!r} read from the records what it had not stated: {', '.join(data.leaks) or 'less'}"
        )
    return data
