"""A table's file as it stands: every field of a CSV file is text, no type is guessed and no row is left out.

A reader that guesses types from all rows lets one record change how the others are read: a single gap turns every 1
of its column into 1.0.
"""

from __future__ import annotations

import _csv
import bz2
import csv
import gzip
import io
import lzma
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

from coterie.errors import InputError, InputErrors
from coterie.lazily import lazily

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = lazily("pandas")

__all__ = ["PARQUET", "TABLES", "blanked", "is_number", "read_fields", "read_parquet"]

PARQUET = (".parquet", ".pq")
UNPACK = {".gz": gzip.decompress, ".bz2": bz2.decompress, ".xz": lzma.decompress}
TABLES = (".csv", *PARQUET, *UNPACK)
OTHERS = {
    b"PK\x03\x04": "a zip archive or an Excel file: unpack it, or save the sheet as CSV",
    b"\xd0\xcf\x11\xe0": "an Excel file: save the sheet as CSV",
    b"\x1f\x8b": "compressed by gzip: its name must end with .gz",
    b"BZh": "compressed by bzip2: its name must end with .bz2",
    b"\xfd7zXZ": "compressed by xz: its name must end with .xz",
    b"PAR1": "a Parquet file: its name must end with .parquet",
    b"\xff\xfe": "text in UTF-16: save it as UTF-8",
    b"\xfe\xff": "text in UTF-16: save it as UTF-8",
}
SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}
CHUNK = 50_000  # rows that are Python strings at once


def read_fields(path: Path) -> pd.DataFrame:
    """Columns of text (CSV, with a gap where a field is empty), or as Parquet types them; an InputError otherwise."""
    if path.is_dir():
        raise InputError(f"{path} is a folder: expected a CSV or Parquet file")
    if path.suffix in PARQUET:
        frame = read_parquet(path)
        _header(path, [str(name) for name in frame.columns])
        made = {str(name): _typed(path, str(name), frame.iloc[:, k]) for k, name in enumerate(frame.columns)}
        return pd.DataFrame(made, copy=False)
    return _read_csv(path)


def read_parquet(path: Path) -> pd.DataFrame:
    """A Parquet file with its own types."""
    try:
        return pd.read_parquet(path)
    except ImportError:
        raise InputError(f"reading {path} needs pyarrow: install coterie[parquet]") from None
    except (OSError, ValueError, EOFError) as error:  # pyarrow's errors are ValueErrors
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(f"cannot read {path}: {reason}") from None


def blanked(frame: pd.DataFrame, listed: Sequence[object]) -> pd.DataFrame:
    """The table with a gap wherever a value is one of those listed: as text it must be written just so."""
    words = [str(value) for value in listed]
    numbers = [float(w) for w in words if is_number(w)]
    if not words:
        return frame
    found = {n: c.isin(words if pd.api.types.is_string_dtype(c) else numbers) for n, c in frame.items()}
    return frame.assign(**{str(n): frame[n].mask(where) for n, where in found.items() if where.any()})


def is_number(word: str) -> bool:
    """Whether a listed gap is a number, so that it is one in a column of numbers too."""
    return word.lstrip("+-").replace(".", "", 1).isdecimal()


def _read_csv(path: Path) -> pd.DataFrame:
    rows = csv.reader(io.StringIO(_text(path), newline=""), skipinitialspace=True, strict=True)
    try:
        names = next((row for row in rows if row), None)
        if names is None:
            raise InputError(f"{path} is empty: expected a header with the names of the columns, then records")
        names = [name.strip() for name in names]
        _header(path, names)
        chunks = [_frame(chunk, names) for chunk in _chunks(path, rows, len(names))]
    except csv.Error as error:
        why = "a quote is never closed" if "end of data" in str(error) else str(error)
        raise InputError(f"cannot read {path}: line {rows.line_num}: {why}") from None
    return pd.concat(chunks, ignore_index=True) if chunks else _frame([], names)


def _text(path: Path) -> str:
    try:
        content = path.read_bytes()
        if path.suffix in UNPACK:
            content = UNPACK[path.suffix](content)
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise InputError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    if kind := next((k for k in OTHERS if content.startswith(k)), None):
        raise InputError(f"{path} is {OTHERS[kind]}")
    if b"\0" in content:
        raise InputError(f"{path} is no text: expected a CSV or Parquet file")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        wrong = f"line {line} has the byte {content[error.start]:#04x}"
        raise InputError(f"{path} is not UTF-8 text: {wrong}; save it as UTF-8") from None


def _header(path: Path, names: Sequence[str]) -> None:
    """Refuse names that cannot be meant."""
    if names and names[0].startswith("#"):
        raise InputError(f"{path}: its first line {names[0]!r} is a comment: expected the names of the columns")
    if len(names) == 1 and (found := next((s for s in SEPARATORS if s in names[0]), None)):
        raise InputError(
            f"{path}: its columns are separated by {SEPARATORS[found]}: expected commas, and points in decimal numbers"
        )
    if names and all(_is_number(name) for name in names):
        raise InputError(f"{path}: its first line holds numbers: expected the names of the columns")
    wrong = [
        f"{path}: column {k} has no name (a table that pandas wrote with its index: write it with index=False)"
        for k, name in enumerate(names, 1)
        if not name
    ]
    wrong += [f"{path}: {n} columns are called {name!r}" for name, n in Counter(names).items() if n > 1 and name]
    if wrong:
        raise InputErrors(wrong)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _chunks(path: Path, rows: _csv._reader, width: int) -> Iterator[list[list[str]]]:
    """Rows in pieces; a row of another length is refused, since nobody knows which of its values is missing."""
    held: list[list[str]] = []
    first, wrong = "", 0
    for row in rows:
        if len(row) == width:
            held.append(row)
            if len(held) == CHUNK:
                yield held
                held = []
        elif row:
            wrong += 1
            first = first or _ragged(row, rows.line_num, width)
    if wrong:
        raise InputError(f"{path}: {first}" + (f"; and so {wrong - 1} more lines" if wrong > 1 else ""))
    if held:
        yield held


def _ragged(row: list[str], line: int, width: int) -> str:
    why = ""
    if row[0].startswith("#"):
        why = ": it looks like a comment, which a table cannot have"
    elif len(row) > width:
        why = ": a value with a comma needs quotes, a decimal number a point"
    return f"line {line} has {len(row)} fields, the header has {width}{why}"


def _frame(rows: list[list[str]], names: Sequence[str]) -> pd.DataFrame:
    columns = zip(*rows, strict=True) if rows else ([] for _ in names)
    made = {name: pd.Series(list(values), dtype="string") for name, values in zip(names, columns, strict=True)}
    stripped = {name: values.str.strip() for name, values in made.items()}
    return pd.DataFrame({name: values.mask(values == "") for name, values in stripped.items()})


def _typed(path: Path, name: str, values: pd.Series) -> pd.Series:
    """A column of a Parquet file as text, numbers or truth values."""
    if isinstance(values.dtype, pd.CategoricalDtype):
        values = values.astype(values.cat.categories.dtype)
    if pd.api.types.is_numeric_dtype(values):
        return values
    present = values.dropna()
    kinds = set(map(type, present)) if values.dtype == object else set()
    if kinds == {Decimal}:
        return values.astype(float)
    if kinds & {list, dict, bytes, tuple} or "ndarray" in {kind.__name__ for kind in kinds}:
        raise InputError(f"{path}: column {name!r} holds {kinds.pop().__name__} values: expected numbers or text")
    if kinds == {bool}:
        return values.astype("boolean")
    text = values.astype("string").str.strip()
    return text.mask(text == "")
