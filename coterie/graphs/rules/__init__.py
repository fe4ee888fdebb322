"""Rules of mixing matrices, one file each, found and never listed.

A rule has `Settings`, the keys that it adds to [graph], and `weights(graph, settings)`: w_ij for every entry of
`graph.indices`. The diagonal is what makes the rows sum to 1.
"""

from coterie.found import Kinds

__all__ = ["RULES"]

RULES = Kinds("mixing rule", __name__)
"""Every mixing rule, by name."""
