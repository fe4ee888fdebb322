"""Small files that matter: written whole or not at all, private ones never readable by others, errors in one line."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from coterie.errors import InputError

__all__ = ["make_folder", "private_files", "private_folder", "read_bytes", "read_json", "write_bytes", "write_json"]


def make_folder(folder: Path, *new: str) -> None:
    """Make a folder that only its owner can enter; the files `new` must not exist in it yet."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise InputError(f"cannot make {folder}: {error.strerror}") from None
    if found := next((n for n in new if (folder / n).exists()), None):
        raise InputError(f"{folder / found} exists: keys are never overwritten; choose another folder for a new key")


def private_folder(folder: Path) -> None:
    """Make a folder, or take the one that is there, and let nobody else into it."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if (mode := folder.stat().st_mode) & stat.S_ISVTX:  # root could, and would lock everybody out of /tmp
            raise InputError(f"{folder} is shared by all users: give a folder in it that is yours alone")
        if mode & 0o077:
            folder.chmod(0o700)
    except OSError as error:
        raise InputError(f"cannot make {folder} a folder of your own: {error.strerror}") from None


@contextlib.contextmanager
def private_files() -> Iterator[None]:
    """Files made in here, by whatever library, can be read by their owner alone."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def read_bytes(path: Path, *, private: bool = False) -> bytes:
    """A whole file; a private one that others can read is refused."""
    try:
        if private and path.stat().st_mode & 0o077:
            raise InputError(f"{path} can be read by others: chmod 600 it, and replace the key if it may be known")
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None


def write_bytes(path: Path, content: bytes, *, private: bool = False) -> None:
    """Write a whole file durably in one step; a private one is never readable by others, not for a moment."""
    temporary: Path | None = None
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        temporary = Path(name)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), 0o600 if private else 0o644)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise InputError(f"cannot write {path}: {error.strerror}") from None


def write_json(path: Path, kind: str, content: Mapping[str, object]) -> None:
    """Write plain data with the kind of file it is."""
    write_bytes(path, (json.dumps({"format": f"{kind} 1", **content}, indent=1, allow_nan=False) + "\n").encode())


def read_json(path: Path, kind: str) -> dict[str, Any]:
    """Plain data of that kind of file."""
    content = read_bytes(path)
    try:
        tree = json.loads(content)
    except (ValueError, RecursionError):
        tree = None
    if not isinstance(tree, dict) or tree.get("format") != f"{kind} 1":
        raise InputError(f"{path} is not a {kind} file of version 1")
    return tree
