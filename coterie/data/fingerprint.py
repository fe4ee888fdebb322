"""Which records these are, as only the holder of a key can tell: the same for the same records, however they are given.

A record is what a table says of it: its columns' names and values, a number as a number however it is written, text in
one form of Unicode. The fingerprint of a data set is a keyed hash of their number and of the sum, modulo 2^256, of a
keyed hash of every record: neither their order nor how they are dealt to parties changes it (a keyed multiset hash:
Clarke, Devadas, van Dijk, Gassend, Suh 2003). Without the key it tells nothing, not even whether a guess is right.
"""

from __future__ import annotations

import hashlib
import os
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from coterie.data.dataset import Dataset
from coterie.data.files import read_fields
from coterie.data.people import person_names
from coterie.errors import InputError

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike

__all__ = ["KEY", "fingerprint", "grouping"]

KEY = 32  # bytes
_MODULUS = 2**256
TARGET = "y"  # of (X, y), whose target has no name
STORED = "people"  # the array of a stored file that says whose its records are


class Column(Protocol):
    """A column of a table."""

    def to_numpy(self) -> np.ndarray:
        """Its values."""


@runtime_checkable
class Framed(Protocol):
    """A table with named columns, of whatever library."""

    @property
    def columns(self) -> Iterable[str]:
        """Their names."""

    def __contains__(self, name: object) -> bool: ...

    def __getitem__(self, name: str) -> Column: ...


def fingerprint(key: bytes, data: object) -> bytes:
    """The fingerprint of records: a file (CSV, Parquet, npz), a frame, an array, (X, y), a `Dataset`, a list of these.

    >>> table = np.arange(6.0).reshape(3, 2)
    >>> whole = fingerprint(bytes(32), table)
    >>> whole == fingerprint(bytes(32), [table[2:], table[:2]]), whole == fingerprint(bytes(32), table + 1)
    (True, False)
    """
    return _whole(key, _macs(key, data), b"coterie records").to_bytes(32, "big")


def grouping(key: bytes, data: object, people: object) -> bytes:
    """The fingerprint of which records are one person's: the same whatever people are called, and in any order.

    `people`: a column of the table or file (an npz file has an array for it), or a name for each record in its order.

    >>> table = np.arange(6.0).reshape(3, 2)
    >>> first = grouping(bytes(32), table, ["ann", "bob", "ann"])
    >>> first == grouping(bytes(32), table[::-1], [7, 5, 7]), first == grouping(bytes(32), table, [7, 7, 5])
    (True, False)
    """
    names = _people(data, people)
    each: dict[bytes, list[int]] = {}
    macs = list(_macs(key, data))
    if len(names) != len(macs):
        raise InputError(f"people must name the person of each of {len(macs)} records, got {len(names)}")
    for name, mac in zip(names, macs, strict=True):
        each.setdefault(name, []).append(mac)
    whole = (_whole(key, own, b"coterie person") for own in each.values())
    return _whole(key, whole, b"coterie people").to_bytes(32, "big")


def _macs(key: bytes, data: object) -> Iterator[int]:
    """A keyed hash of every record."""
    for one in _parts(data):
        for row in _rows(one):
            mac = hashlib.blake2b(row, key=key, digest_size=32, person=b"coterie record")
            yield int.from_bytes(mac.digest(), "big")


def _whole(key: bytes, macs: Iterable[int], kind: bytes) -> int:
    """One hash of several, whatever their order."""
    total, count = 0, 0
    for mac in macs:
        total, count = (total + mac) % _MODULUS, count + 1
    if not count:
        raise InputError("there are no records to take a fingerprint of")
    body = total.to_bytes(32, "big") + count.to_bytes(8, "big")
    return int.from_bytes(hashlib.blake2b(body, key=key, digest_size=32, person=kind).digest(), "big")


def _people(data: object, people: object) -> list[bytes]:
    """A name for every record, as bytes."""
    if not isinstance(people, str):
        several = isinstance(people, list | tuple) and len(people) and np.ndim(people[0]) == 1
        each = people if several and isinstance(people, list | tuple) else [people]
        return [name for one in each for name in _names(one)]
    found: list[bytes] = []
    for one in _parts(data):
        if isinstance(one, str | os.PathLike):
            stored = _npz(Path(one))
            one, people = (read_fields(Path(one)), people) if stored is None else (stored, STORED)
        if not isinstance(one, Mapping | Framed) or people not in one:
            raise InputError(f"the records have no column {people!r} that says whose they are")
        found += _names(one[people])
    return found


def _names(ids: object) -> list[bytes]:
    return [name.encode() for name in person_names(ids, "the records").tolist()]


def _parts(data: object) -> Iterator[object]:
    """Tables, one at a time."""
    if getattr(data, "sites", None) is not None and not isinstance(data, Dataset):  # parties
        data = data.sites  # type: ignore[attr-defined]
    rows = isinstance(data, list) and data and isinstance(data[0], list | tuple) and all(map(np.isscalar, data[0]))
    if (isinstance(data, list) and not rows) or (isinstance(data, tuple) and not _is_pair(data)):
        for one in data:
            yield from _parts(one)
    else:
        yield data


def _is_pair(data: tuple[ArrayLike, ...]) -> bool:
    """(X, y), and not two tables."""
    return len(data) == 2 and len(np.shape(data[0])) == 2 and len(np.shape(data[1])) == 1


def _rows(one: object) -> Iterator[bytes]:
    columns: dict[str, np.ndarray] = {}
    if isinstance(one, str | os.PathLike):
        one = _read(Path(one))
    target = None
    if isinstance(one, Dataset):
        names, target = one.feature_names, one.targets if one.classes is None else np.array(one.classes)[one.targets]
        columns = {str(name): one.features[:, j] for j, name in enumerate(names)}
    else:
        if isinstance(one, tuple):
            one, target = one
        if isinstance(one, Mapping):
            columns = {str(name): np.asarray(values) for name, values in one.items()}
        elif isinstance(one, Framed):
            columns = {str(name): one[name].to_numpy() for name in one.columns}
        else:
            table = np.asarray(one)
            if table.ndim != 2:
                raise InputError(f"records are a table (records, columns), got shape {table.shape}")
            columns = {str(j): table[:, j] for j in range(table.shape[1])}
    if target is not None:
        columns[TARGET] = np.asarray(target)
    if len({len(values) for values in columns.values()}) > 1:
        raise InputError(f"columns of different length: {sorted({len(values) for values in columns.values()})}")
    return _joined(columns)


def _read(path: Path) -> pd.DataFrame | tuple[np.ndarray, np.ndarray]:
    arrays = _npz(path)
    if arrays is None:
        return read_fields(path)
    try:
        targets = arrays["targets"]
        return arrays["features"], np.asarray(arrays["classes"])[targets] if "classes" in arrays else targets
    except (KeyError, IndexError) as error:
        raise InputError(f"cannot read {path}: {error}") from None


def _npz(path: Path) -> dict[str, np.ndarray] | None:
    """The arrays of an npz file; None if it is not one."""
    if not path.is_file():
        raise InputError(f"{path} is no file")
    with path.open("rb") as file:
        if file.read(4) != b"PK\x03\x04":
            return None
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return dict(arrays)
    except (OSError, KeyError, ValueError) as error:
        raise InputError(f"cannot read {path}: {error}") from None


def _joined(columns: dict[str, np.ndarray]) -> Iterator[bytes]:
    """Every record as bytes: a hash of the names, then each value with its kind."""
    names = sorted(columns)
    head = hashlib.sha256("\0".join(names).encode()).digest()
    written = [_written(columns[name]) for name in names]
    for values in zip(*written, strict=True):
        yield head + b"".join(values)


def _written(values: object) -> Sequence[bytes]:
    """The values of a column; a number that is written as text is a number."""
    array = np.asarray(values)
    if array.dtype.kind in "fiub":
        table = np.ascontiguousarray(array, dtype=np.float64) + 0.0  # no −0
        gaps = np.isnan(table)
        return [b"-" if gap else b"n" + one.tobytes() for one, gap in zip(table, gaps, strict=True)]
    return [_value(value) for value in array.astype(object)]


def _value(value: object) -> bytes:
    text = unicodedata.normalize("NFC", str(value)).strip()
    if text in ("", "None", "nan", "NaN", "<NA>", "NaT"):  # a gap, however a library writes it
        return b"-"
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        data = text.encode()
        return b"s" + len(data).to_bytes(8, "big") + data
    return b"n" + (np.float64(number) + 0.0).tobytes()
