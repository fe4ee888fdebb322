"""Kinds of graphs, one file each, found and never listed.

A kind has `Settings`, the keys that it adds to [graph]; `EXAMPLE`, settings with which twelve nodes make a graph; and
`build(size, settings)`, a connected graph, the same for the same settings. `OUTSIDE = True` says that its edges come
from elsewhere, a file for instance: such a kind needs no EXAMPLE, and certificates list its edges.
"""

from coterie.found import Kinds

__all__ = ["KINDS"]

KINDS = Kinds("graph kind", __name__)
"""Every kind of graph, by name."""
