"""Docstrings are Markdown, where `>>>` would be a quotation: examples become code before they are shown."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

EXAMPLE = re.compile(r"(?:^[ ]*>>> .*\n?(?:^[ ]*(?!>>>)\S.*\n?)*)+", re.MULTILINE)


class Doctests(Extension):
    """Fences every doctest."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rewrite one docstring."""
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub(lambda m: f"```pycon\n{m[0].rstrip()}\n```\n", obj.docstring.value)
