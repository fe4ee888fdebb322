"""Which algorithms and kinds of graph there are, as identifiers: found, and nothing heavy is loaded for it."""

from __future__ import annotations

from collections.abc import Iterable

from coterie.algorithms import ALGORITHMS
from coterie.graphs import KINDS

__all__ = ["algorithms", "graphs"]

GIVEN = ("listed", "file")  # kinds of graph that `ct.graph` makes


def algorithms() -> dict[str, str]:
    """Every algorithm: as an identifier, and by its name."""
    return _identifiers(ALGORITHMS.names)


def graphs() -> dict[str, str]:
    """Every kind of graph that parties can be put on by its name."""
    return _identifiers(kind for kind in KINDS.names if kind not in GIVEN)


def _identifiers(names: Iterable[str]) -> dict[str, str]:
    written = {name.replace("-", "_"): name for name in names}
    return {python: name for python, name in written.items() if python.isidentifier()}
