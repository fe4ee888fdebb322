"""A plan's file as plain data: its text, the code book that it names, and what a command changes."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import TypeGuard

from coterie.errors import InputError

__all__ = ["PLANS", "apply_change", "read_tree", "toml_of"]

PLANS = ("adult", "clinics", "default", "mnist")
"""Plans that come with the package."""


def read_tree(path: Path | None, embedded: str, changes: Sequence[str] | None = None) -> dict[str, object]:
    """The tables of a plan's file (of the `embedded` one without a path), with "table.key=value" changes.

    A bare name such as `clinics` that is no file here is one of the plans that come with the package.
    `data.path` and `data.codebook` are relative to the file that states them; one that a change gives is relative to
    the working directory. The code book's keys become `data.options`, where those of the plan itself win.
    """
    path, embedded = _found(path, embedded)
    if path is None:
        tree = _tables(resources.files("coterie").joinpath(f"plans/{embedded}").read_text(encoding="utf-8"), embedded)
    else:
        tree = _read(path, "plan")
    data = tree.get("data")
    if path is not None and isinstance(data, dict):
        for key in ("path", "codebook"):
            if isinstance(data.get(key), str):
                data[key] = str(Path(path).parent / data[key])
    for change in changes or []:
        apply_change(tree, change)
    data = tree.get("data")
    if isinstance(data, dict) and isinstance(book := data.get("codebook"), str):
        options = data.get("options", {})
        if isinstance(options, dict):
            data["options"] = _under(_read(Path(book), "code book"), options)
            del data["codebook"]
    return tree


def _found(path: Path | None, embedded: str) -> tuple[Path | None, str]:
    """The file to read, or None and the embedded plan to read instead."""
    if path is None or Path(path).name != str(path) or Path(path).suffix or Path(path).exists():
        return path, embedded
    if str(path) not in PLANS:
        raise InputError(
            f"there is no file {str(path)!r}: give one, or the name of a plan that is here: {', '.join(PLANS)}"
        )
    return None, f"{path}.toml"


def _read(path: Path, what: str) -> dict[str, object]:
    try:
        text = Path(path).read_text(encoding="utf-8-sig")  # some editors begin a file with a mark of its coding
    except UnicodeDecodeError:
        raise InputError(f"cannot read {what} {path}: it is not UTF-8 text; save it as UTF-8") from None
    except OSError as error:
        raise InputError(f"cannot read {what} {path}: {error.strerror or error}") from None
    return _tables(text, str(path))


def _tables(text: str, where: str) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{where} is not valid TOML: {error}") from None


def _under(below: Mapping[str, object], above: Mapping[str, object]) -> dict[str, object]:
    """Both tables in one; where both say something, `above` is obeyed."""
    made = dict(below)
    for key, value in above.items():
        beneath = made.get(key)
        made[key] = _under(beneath, value) if isinstance(value, dict) and isinstance(beneath, dict) else value
    return made


def apply_change(tree: dict[str, object], change: str) -> None:
    """Make one "table.key=value" change."""
    key, equals, value = change.partition("=")
    if not equals or not key.strip():
        raise InputError(f"--set needs key=value such as run.rounds=50, got {change!r}")
    try:
        parsed = tomllib.loads(f"v = {value.strip()}")["v"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()  # a bare word is a string: --set graph.kind=star
    *tables, last = key.strip().split(".")
    for name in tables:
        below = tree.setdefault(name, {})
        if not isinstance(below, dict):
            raise InputError(f"--set {change}: {name!r} is not a table")
        tree = below
    tree[last] = parsed


# ---- writing ---------------------------------------------------------------------------------------------------------


def toml_of(tree: Mapping[str, object], where: str = "") -> str:
    """Plain data as TOML that reads back the same: values first, then tables, then lists of tables.

    >>> print(toml_of({"run": {"rounds": 3}, "name": "a"}), end="")
    name = "a"
    <BLANKLINE>
    [run]
    rounds = 3
    """
    plain = {k: v for k, v in tree.items() if not _is_table(v) and not _are_tables(v)}
    text = "".join(f"{_toml_key(key)} = {_toml_value(value)}\n" for key, value in plain.items())
    for key, value in tree.items():
        name = f"{where}{_toml_key(key)}"
        if _is_table(value):
            text += f"\n[{name}]\n{toml_of(value, f'{name}.')}"
        elif _are_tables(value):
            text += "".join(f"\n[[{name}]]\n{toml_of(one, f'{name}.')}" for one in value)
    return text


def _is_table(value: object) -> TypeGuard[Mapping[str, object]]:
    return isinstance(value, Mapping)


def _are_tables(value: object) -> TypeGuard[list[Mapping[str, object]]]:
    return isinstance(value, list) and bool(value) and all(map(_is_table, value))


def _toml_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key, ensure_ascii=False)


def _toml_value(value: object) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml_value, value))}]"
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{_toml_key(k)} = {_toml_value(v)}' for k, v in value.items())} }}"
    return repr(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)
