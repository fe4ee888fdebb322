"""Files that commands write: looked at before any work is done, and put in place in one step."""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coterie.errors import InputError

__all__ = ["check_file", "check_out", "plain", "write_atomically", "write_json"]


def check_out(out: Path, named: str = "--out") -> None:
    """Refuse an output folder that cannot be written, before any work is done."""
    if out.exists() and not out.is_dir():
        raise InputError(f"{named} {out} is a file; expected a folder")
    parent = next(p for p in (out, *out.absolute().parents) if p.exists())
    if not parent.is_dir():
        raise InputError(f"{named} {out} cannot be made: {parent} is a file")
    try:  # rights, read-only and made-up file systems: only trying tells
        with tempfile.TemporaryFile(dir=parent):
            pass
    except OSError as error:
        raise InputError(f"{named} {out} cannot be written: {error.strerror or error}") from None


def check_file(path: Path, named: str = "--out") -> None:
    """Refuse an output file that cannot be written, before any work is done."""
    if path.is_dir():
        raise InputError(f"{named} {path} is a folder; expected a file")
    check_out(path.parent, f"{named} {path}: its folder")


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file beside `path`, then put it in place in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=path.suffix)
    os.close(handle)
    temporary = Path(name)
    try:
        write(temporary)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, content: object) -> None:
    """Write plain data as JSON, atomically; numbers that JSON lacks (a run that diverged) become null."""
    text = json.dumps(plain(content), indent=1, allow_nan=False) + "\n"
    write_atomically(path, lambda p: p.write_text(text, "utf-8"))


def plain(content: object) -> Any:
    """The content as JSON will give it back."""
    if isinstance(content, dict):
        return {key: plain(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [plain(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content
