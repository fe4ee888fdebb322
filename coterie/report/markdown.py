"""Small pieces of Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

__all__ = ["cell", "code", "table"]


def cell(value: object) -> str:
    """Text for a table cell: one line, and no character that would be read as markup.

    >>> cell("‖x‖ | a_b_c")
    '‖x‖ \\\\| a\\\\_b\\\\_c'
    """
    text = " ".join(str(value).split())
    parts = text.split("`")  # what stands between backticks is code: only the column separator matters there
    parts[::2] = [re.sub(r"[|_*]|<(?=[a-zA-Z/!])", r"\\\g<0>", part) for part in parts[::2]]
    parts[1::2] = [part.replace("|", "\\|") for part in parts[1::2]]
    return "`".join(parts)


def code(value: object) -> str:
    """Text as code."""
    return f"`{value}`"


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; cells are escaped."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line if line == '---' else cell(line) for line in row)} |" for row in lines)
