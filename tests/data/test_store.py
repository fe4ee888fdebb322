"""A store holds exactly what was written, opens without reading it, and refuses what is damaged."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from coterie.data import ALL_PUBLIC
from coterie.data.store import Chunk, Store, open_store
from coterie.data.store_writer import write_store
from coterie.errors import InputError

CLASSES = ("no", "yes")


def records(count: int, width: int = 3, seed: int = 0) -> Chunk:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((count, width)).astype(np.float32), rng.integers(0, 2, count).astype(np.float32)


def small(folder: Path) -> Store:
    agents = {"north": [records(50, seed=1)], "south.2": [records(7, seed=2)]}
    return write_store(folder, agents, test=records(5, seed=3), classes=CLASSES, origins=ALL_PUBLIC)


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    store = small(tmp_path / "s")
    x, y = records(50, seed=1)
    whole = np.column_stack([y, x])
    np.testing.assert_array_equal(np.load(tmp_path / "s" / "north.npy"), whole)  # a plain NumPy file
    np.testing.assert_array_equal(store.piece(0, 16, 8), whole[16:24])
    tail = store.piece(0, 48, 8)
    np.testing.assert_array_equal(tail[:2], whole[48:])
    assert not tail[2:].any()
    chosen = np.array([49, 0, -1, 7, 7])
    np.testing.assert_array_equal(store.rows(0, chosen), np.where(chosen[:, None] < 0, 0, whole[chosen]))
    assert (store.tally.records, store.tally.bytes) == (8 + 2 + 4, 14 * store.stride)
    np.testing.assert_array_equal(store.test()[0], records(5, seed=3)[0])
    assert (store.names, store.counts, store.width, store.classes) == (("north", "south.2"), (50, 7), 3, CLASSES)
    assert store.size == 57 * 16


def test_chunks_make_no_difference(tmp_path: Path) -> None:
    x, y = records(50, seed=1)
    cut = ((x[k : k + 11], y[k : k + 11]) for k in range(0, 50, 11))
    agents = {"north": cut, "south.2": [records(7, seed=2)]}
    pieces = write_store(tmp_path / "p", agents, test=records(5, seed=3), classes=CLASSES, origins=ALL_PUBLIC)
    assert pieces.fingerprint == small(tmp_path / "s").fingerprint
    assert (tmp_path / "p" / "north.npy").read_bytes() == (tmp_path / "s" / "north.npy").read_bytes()


def failing() -> Iterator[Chunk]:
    yield records(4)
    raise RuntimeError("the source broke off")


@pytest.mark.parametrize(
    ("agents", "message"),
    [
        ({"a": [records(4)], "test": [records(4)]}, "'test'"),
        ({"a": [records(4)], "../b": [records(4)]}, "file name"),
        ({"a": [records(4)]}, "at least 2 parties"),
        ({"a": [records(4)], "b": []}, "b has no records"),
        ({"a": [records(4)], "b": [records(4, width=2)]}, "b: expected"),
        ({"a": [records(4)], "b": [records(4), (np.full((1, 3), np.nan), np.zeros(1))]}, "record 4 is not finite"),
        ({"a": [records(4)], "b": [(np.full((1, 3), 1e39), np.zeros(1))]}, "record 0 is not finite"),
        ({"a": [records(4)], "b": [(np.ones((1, 3)), np.array([2]))]}, "class numbers 0 … 1"),
    ],
)
def test_bad_records_leave_nothing_behind(tmp_path: Path, agents: dict, message: str) -> None:
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        write_store(tmp_path / "s", agents, test=records(4), classes=CLASSES, origins=ALL_PUBLIC)
    assert list(tmp_path.iterdir()) == []


def test_a_writer_that_breaks_off_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="broke off"):
        write_store(tmp_path / "s", {"a": [records(4)], "b": failing()}, test=records(4), origins=ALL_PUBLIC)
    assert list(tmp_path.iterdir()) == []
    small(tmp_path / "s")
    with pytest.raises(InputError, match="exists"):
        small(tmp_path / "s")


def cut(folder: Path) -> None:
    with (folder / "north.npy").open("r+b") as file:
        file.truncate((folder / "north.npy").stat().st_size - 4)


def swap(folder: Path) -> None:
    path = folder / "north.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def manifest(**changes: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "manifest.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (cut, "north.npy has 924 bytes; expected 928 for 50 records"),
        (swap, "not those that were written"),
        (lambda f: (f / "south.2.npy").unlink(), "south.2.npy has 0 bytes"),
        (lambda f: (f / "manifest.json").unlink(), "is not a store"),
        (lambda f: (f / "manifest.json").write_text("{"), "manifest.json is damaged"),
        (manifest(format=3), "format 3; expected 2"),
        (manifest(agents=[{"name": "../x", "records": 1}, {"name": "b", "records": 1}]), "file name"),
        (manifest(agents=[{"name": "a", "records": 1 << 31}, {"name": "b", "records": 1}]), "split them over parties"),
    ],
)
def test_damage_is_refused_when_it_is_opened(tmp_path: Path, damage: Callable[[Path], object], message: str) -> None:
    store = small(tmp_path / "s")
    assert open_store(tmp_path / "s").fingerprint == store.fingerprint
    damage(tmp_path / "s")
    with pytest.raises(InputError, match=message):
        open_store(tmp_path / "s")


def test_a_file_that_shrinks_later_is_an_error(tmp_path: Path) -> None:
    store = small(tmp_path / "s")
    cut(tmp_path / "s")
    store.piece(0, 0, 49)
    with pytest.raises(InputError, match="ends before its last record"):
        store.piece(0, 0, 50)
    with pytest.raises(InputError, match="ends before its last record"):
        store.rows(0, np.array([49]))
    (tmp_path / "s" / "north.npy").unlink()
    with pytest.raises(InputError, match="cannot read"):
        store.piece(0, 0, 1)
