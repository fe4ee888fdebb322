"""Events as JSON and back: the one codec under ledgers, frames and certificates.

Numbers have two spellings, both exact: hexadecimal floats in ledgers, where arrays are nested lists, and in
certificates, which people read, the fewest decimal digits that give the same float64, with infinity as "inf".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, TypeAlias, get_args, get_origin, get_type_hints

import numpy as np

from coterie.errors import InputError
from coterie.privacy.base import Event, check, fields_of, merge, numeric_of

__all__ = ["Json", "every_kind", "from_json", "from_row", "to_json", "to_rows"]

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
"""What a JSON file can hold."""


def to_json(event: Event) -> dict[str, Json]:
    """The event as JSON values, exactly: numbers as hexadecimal floats (arrays as nested lists), counts as integers.

    >>> from coterie.privacy.events import Gaussian
    >>> to_json(Gaussian(0.5, 2.0, times=3))["sigma"], from_json(to_json(Gaussian(0.5, 2.0, times=3))).times
    ('0x1.0000000000000p+1', 3)
    """
    check(event)
    return _written(event, float.hex)


def from_json(fields: Mapping[str, Json]) -> Event:
    """The event that `to_json` wrote; an `InputError` if it is not one."""
    return _read(fields, lambda value: float.fromhex(value) if isinstance(value, str) else float("nan"), every_kind())


def to_rows(events: Iterable[Event]) -> list[dict[str, Json]]:
    """Events as rows of plain numbers, equal ones counted in `times`; a slack or tv of 0 is left out.

    >>> from coterie.privacy.events import Gaussian
    >>> to_rows([Gaussian(1.0, 5.0), Gaussian(1.0, 5.0)])
    [{'kind': 'Gaussian', 'times': 2, 'sensitivity': 1.0, 'sigma': 5.0, 'adjacency': 'replace-one'}]
    """
    rows = []
    for event in merge(events):
        names = numeric_of(event)
        for values in zip(*(getattr(event, name) for name in names), strict=True):
            row = _written(dataclasses.replace(event, **dict(zip(names, values, strict=True))), _plain)
            rows.append({name: value for name, value in row.items() if value != 0 or name not in ("slack", "tv")})
    return rows


def from_row(fields: Mapping[str, Json], kinds: Mapping[str, type[Event]]) -> Event:
    """The event of one row that `to_rows` wrote, of one of these kinds; an `InputError` if it is not one."""
    return _read(fields, _number, kinds)


def every_kind(kind: type[Event] = Event) -> dict[str, type[Event]]:
    """Every class of events that has been defined, by name."""
    found = {sub.__name__: sub for sub in kind.__subclasses__()}
    return found | {name: sub for base in kind.__subclasses__() for name, sub in every_kind(base).items()}


def _plain(value: float) -> Json:
    return value if np.isfinite(value) else str(value)


def _number(value: Json) -> float:
    if isinstance(value, bool) or not (isinstance(value, int | float) or value == "inf"):
        raise ValueError(f"{value!r} is not a number")
    return float(value)


def _count(value: Json) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{value!r} is not a whole number")
    return value


def _written(event: Event, number: Callable[[float], Json]) -> dict[str, Json]:
    fields: dict[str, Json] = {"kind": type(event).__name__}
    for name in numeric_of(event):
        value = np.asarray(getattr(event, name), float).tolist()
        fields[name] = _nested(value, int if name == "times" else number)  # type: ignore[arg-type]
    static = {name: getattr(event, name) for name in fields_of(type(event))[1]}
    return fields | {name: int(value) if isinstance(value, np.integer) else value for name, value in static.items()}


def _read(fields: Mapping[str, Json], number: Callable[[Json], float], kinds: Mapping[str, type[Event]]) -> Event:
    try:
        kind = kinds[str(fields["kind"])]
        numeric, static = fields_of(kind)
        hints = get_type_hints(kind)
        values: dict[str, object] = {}
        for name in static:
            if not _fits(fields[name], hints[name]):
                raise ValueError(f"{name} must not be {fields[name]!r}")
            values[name] = fields[name]
        for name in numeric:
            if name in fields:
                value = _nested(fields[name], _count if name == "times" else number)  # type: ignore[arg-type]
                values[name] = np.array(value) if isinstance(value, list) else value
        if unknown := set(fields) - {"kind", *numeric, *static}:
            raise KeyError(min(unknown))
        event = kind(**values)  # type: ignore[arg-type]
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InputError(f"expected a privacy event in JSON, got {str(fields)[:80]!r} ({error})") from error
    check(event)
    return event


def _fits(value: Json, hint: object) -> bool:
    """Whether a static field may have this value: True is not a number, though Python treats it as one."""
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    return type(value) in (get_args(hint) or (hint,))


def _nested(value: Json, convert: Callable[[Json], Json]) -> Json:
    return [_nested(item, convert) for item in value] if isinstance(value, list) else convert(value)
