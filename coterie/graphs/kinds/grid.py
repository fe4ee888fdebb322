"""Grid: a lattice of rows and columns without wrap-around, the most square one by default."""

import math

from pydantic import Field

from coterie import settings
from coterie.errors import InputError
from coterie.graphs import edge_lists
from coterie.graphs.building import from_edges, integer
from coterie.graphs.graph import Graph

__all__ = ["EXAMPLE", "Settings", "build"]


class Settings(settings.Settings):
    """Its shape."""

    rows: int | None = Field(None, ge=1, description="rows of the lattice; default: as square as can be")


EXAMPLE = Settings()


def build(size: int, settings: Settings) -> Graph:
    """The graph."""
    rows = settings.rows
    if rows is None:
        rows = next(r for r in range(math.isqrt(size), 0, -1) if size % r == 0)
        if rows == 1 and size > 3:
            raise InputError(f"a grid of {size} nodes is a single line: choose a size that is rows × columns")
    rows = integer("rows", rows, 1, size)
    if size % rows:
        raise InputError(f"a grid of {size} nodes cannot have {rows} equal rows")
    return from_edges(size, edge_lists.grid_edges(size, rows), shape=(rows, size // rows))
