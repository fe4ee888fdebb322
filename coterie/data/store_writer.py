"""Write a store: chunk by chunk, into a folder that appears only when all of it is there."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from coterie.data.dataset import Origins
from coterie.data.people import person_names
from coterie.data.store import (
    FORMAT,
    PEOPLE,
    TEST,
    Chunk,
    Store,
    check_names,
    data_files,
    fingerprint_of,
    header,
    open_store,
)
from coterie.errors import InputError

__all__ = ["write_store"]

Owned = tuple[np.ndarray, np.ndarray, np.ndarray]  # a chunk, and whose each record is, in rising order


def write_store(
    folder: str | Path,
    agents: Mapping[str, Iterable[Chunk | Owned]],
    *,
    test: Chunk,
    origins: Origins,
    classes: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
) -> Store:
    """Write a new store, chunk by chunk; `folder` appears only when all of it is there.

    Args:
        folder: must not exist.
        agents: by name, an iterable of (features, targets) chunks; one chunk at a time is in memory. Where people may
            be protected, of (features, targets, people): whose each record is, in rising order over all of an agent's
            chunks, so that a person's records stand together. Who they are is not stored.
        test: features and targets of held-out records; few, and of other people.
        origins: what was read from the records to make features and classes: `ALL_PUBLIC`, or a data set's `origins`.
            It stays with the store, and with every result of it.
        classes: names of the classes that targets 0 … k − 1 stand for; None: targets are numbers.
        feature_names: by default 0, 1, …

    >>> from coterie.data import ALL_PUBLIC
    >>> piece = (np.eye(2), np.array([0, 1]))
    >>> where = Path(tempfile.mkdtemp()) / "store"
    >>> agents = {"a": [piece, piece], "b": iter([piece])}
    >>> write_store(where, agents, test=piece, classes=("no", "yes"), origins=ALL_PUBLIC).counts
    (4, 2)
    """
    folder = Path(folder)
    if folder.exists():
        raise InputError(f"{folder} exists: a store is written into a new folder")
    check_names(tuple(agents))
    levels = None if classes is None else len(classes)
    width = np.shape(test[0])[-1] if feature_names is None else len(feature_names)
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        found = {name: _write(temporary / f"{name}.npy", pieces, width, levels) for name, pieces in agents.items()}
        if len({told["people"] is None for told in found.values()}) > 1:
            raise InputError("it is said of some parties whose their records are, and not of others: say it of all")
        owned = next(iter(found.values()))["people"] is not None
        held_out = _write(temporary / f"{TEST}.npy", [test], width, levels)["records"]
        about = {
            "format": FORMAT,
            "agents": [
                {"name": name} | {key: value for key, value in told.items() if value is not None}
                for name, told in found.items()
            ],
            "test": held_out,
            "features": list(feature_names or map(str, range(width))),
            "classes": None if classes is None else list(classes),
            "origins": asdict(origins),
            "fingerprint": fingerprint_of(temporary, data_files(tuple(agents), owned)),
        }
        (temporary / "manifest.json").write_text(json.dumps(about, indent=1) + "\n", "utf-8")
        temporary.chmod(0o755)
        os.rename(temporary, folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return open_store(folder)


class _Owners:
    """Whose the records of an agent are, written as they come; `most`: the largest number of one person."""

    def __init__(self, path: Path):
        self.path, self.people, self.rows, self.most = path, 0, 0, 1
        self._last: object = None
        self._name = ""
        self._first = 0
        path.write_bytes(header(0, 1))

    def add(self, who: np.ndarray, records: int) -> None:
        if who.shape != (records,):
            raise InputError(f"{self.path.stem}: expected a person for each of {records} records, got {who.shape}")
        if not records:
            return
        names = person_names(who, self.path.stem)
        if (who[1:] < who[:-1]).any() or (self.people and who[0] < self._last):
            raise InputError(
                f"{self.path.stem}: people must come in rising order, so that one's records stand together"
            )
        new = np.concatenate([[not self.people or names[0] != self._name], names[1:] != names[:-1]])
        starts = (self.rows + np.flatnonzero(new)).astype(np.int32)
        self._append(starts)
        self._longest(np.diff(starts, prepend=self._first if self.people else starts[:1]))
        self.people, self.rows = self.people + len(starts), self.rows + records
        self._last, self._name = who[-1], names[-1]
        self._first = int(starts[-1]) if len(starts) else self._first

    def _append(self, starts: np.ndarray) -> None:
        with self.path.open("ab") as file:
            file.write(starts.data)

    def _longest(self, lengths: np.ndarray) -> None:
        self.most = max(self.most, int(lengths.max(initial=1)))

    def end(self) -> dict[str, int]:
        """What the manifest says of them."""
        self._longest(np.array([self.rows - self._first]))
        self._append(np.array([self.rows], np.int32))
        with self.path.open("r+b") as file:
            file.write(header(self.people + 1, 1))
        return {"people": self.people, "most": self.most}


def _write(path: Path, pieces: Iterable[Chunk | Owned], width: int, levels: int | None) -> dict[str, int | None]:
    """Write one agent's records; what the manifest says of them."""
    count, crowd = 0, None
    with path.open("wb") as file:
        file.write(header(0, 1 + width))
        for features, targets, *who in pieces:
            x, y = np.asarray(features), np.asarray(targets)
            if count and (crowd is None) != (not who):
                raise InputError(f"{path.stem}: it is said of some chunks whose their records are: say it of all")
            if who:
                crowd = crowd or _Owners(path.with_suffix(f"{PEOPLE}.npy"))
                crowd.add(np.asarray(who[0]), len(x))
            if x.ndim != 2 or x.shape[1] != width or y.shape != (len(x),):
                raise InputError(f"{path.stem}: expected ({len(x)}, {width}) and targets, got {x.shape}, {y.shape}")
            if levels is not None and not np.isin(y, np.arange(levels)).all():
                raise InputError(f"{path.stem}: targets must be class numbers 0 … {levels - 1}")
            block = np.empty((len(x), 1 + width), np.float32)
            with np.errstate(over="ignore"):  # what float32 cannot hold is refused in the next line
                block[:, 0], block[:, 1:] = y, x
            if not np.isfinite(block).all():
                row = int(np.argmin(np.isfinite(block).all(axis=1)))
                raise InputError(f"{path.stem}: record {count + row} is not finite")
            file.write(block.data)
            count += len(x)
        if not count:
            raise InputError(f"{path.stem} has no records: every party needs at least one")
        file.seek(0)
        file.write(header(count, 1 + width))
    return {"records": count, "people": None, **({} if crowd is None else crowd.end())}
