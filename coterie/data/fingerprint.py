"""Which records these are, as only the holder of a key can tell: the same for the same records, however they are given.

A record is what a table says of it: its columns' names and values, a number as a number however it is written. The
fingerprint of a data set is a keyed hash of their number and of the sum, modulo 2^256, of a keyed hash of every record:
neither their order nor how they are dealt to parties changes it (a keyed multiset hash: Clarke, Devadas, van Dijk,
Gassend, Suh 2003). Without the key it tells nothing, not even whether a guess is right.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from coterie.data.dataset import Dataset
from coterie.data.files import read_fields
from coterie.errors import InputError

__all__ = ["KEY", "fingerprint"]

KEY = 32  # bytes
_MODULUS = 2**256
TARGET = "y"  # of (X, y), whose target has no name


def fingerprint(key: bytes, data: Any) -> bytes:
    """The fingerprint of records: a file (CSV, Parquet, npz), a frame, an array, (X, y), a `Dataset`, a list of these.

    >>> table = np.arange(6.0).reshape(3, 2)
    >>> whole = fingerprint(bytes(32), table)
    >>> whole == fingerprint(bytes(32), [table[2:], table[:2]]), whole == fingerprint(bytes(32), table + 1)
    (True, False)
    """
    total, count = 0, 0
    for one in _parts(data):
        for row in _rows(one):
            mac = hashlib.blake2b(row, key=key, digest_size=32, person=b"coterie record")
            total, count = (total + int.from_bytes(mac.digest(), "big")) % _MODULUS, count + 1
    if not count:
        raise InputError("there are no records to take a fingerprint of")
    body = total.to_bytes(32, "big") + count.to_bytes(8, "big")
    return hashlib.blake2b(body, key=key, digest_size=32, person=b"coterie records").digest()


def _parts(data: Any) -> Iterator[Any]:
    """Tables, one at a time."""
    if getattr(data, "sites", None) is not None and not isinstance(data, Dataset):  # parties
        data = data.sites
    rows = isinstance(data, list) and data and isinstance(data[0], list | tuple) and all(map(np.isscalar, data[0]))
    if (isinstance(data, list) and not rows) or (isinstance(data, tuple) and not _is_pair(data)):
        for one in data:
            yield from _parts(one)
    else:
        yield data


def _is_pair(data: tuple[Any, ...]) -> bool:
    """(X, y), and not two tables."""
    return len(data) == 2 and len(np.shape(data[0])) == 2 and len(np.shape(data[1])) == 1


def _rows(one: Any) -> Iterator[bytes]:
    columns: dict[str, Any] = {}
    if isinstance(one, str | os.PathLike):
        one = _read(Path(one))
    target = None
    if isinstance(one, Dataset):
        names, target = one.feature_names, one.targets if one.classes is None else np.array(one.classes)[one.targets]
        columns = {str(name): one.features[:, j] for j, name in enumerate(names)}
    else:
        if isinstance(one, tuple):
            one, target = one
        if hasattr(one, "columns"):
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


def _read(path: Path) -> Any:
    with path.open("rb") if path.is_file() else _missing(path) as file:
        stored = file.read(4) == b"PK\x03\x04"
    if not stored:
        return read_fields(path)
    try:
        with np.load(path, allow_pickle=False) as arrays:
            targets = arrays["targets"]
            return arrays["features"], np.asarray(arrays["classes"])[targets] if "classes" in arrays else targets
    except (OSError, KeyError, ValueError, IndexError) as error:
        raise InputError(f"cannot read {path}: {error}") from None


def _missing(path: Path) -> Any:
    raise InputError(f"{path} is no file")


def _joined(columns: dict[str, Any]) -> Iterator[bytes]:
    """Every record as bytes: a hash of the names, then each value with its kind."""
    names = sorted(columns)
    head = hashlib.sha256("\0".join(names).encode()).digest()
    written = [_written(columns[name]) for name in names]
    for values in zip(*written, strict=True):
        yield head + b"".join(values)


def _written(values: Any) -> Sequence[bytes]:
    """The values of a column; a number that is written as text is a number."""
    array = np.asarray(values)
    if array.dtype.kind in "fiub":
        table = np.ascontiguousarray(array, dtype=np.float64) + 0.0  # no −0
        gaps = np.isnan(table)
        return [b"-" if gap else b"n" + one.tobytes() for one, gap in zip(table, gaps, strict=True)]
    return [_value(value) for value in array.astype(object)]


def _value(value: Any) -> bytes:
    text = str(value).strip()
    if text in ("", "None", "nan", "NaN", "<NA>", "NaT"):  # a gap, however a library writes it
        return b"-"
    try:
        number = float(value)
    except (TypeError, ValueError):
        data = text.encode()
        return b"s" + len(data).to_bytes(8, "big") + data
    return b"n" + (np.float64(number) + 0.0).tobytes()
