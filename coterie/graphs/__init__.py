"""Who talks to whom, and with what weight: topologies, mixing matrices and their spectra.

Everything is host NumPy with O(edges) memory, so a million nodes is a normal graph. Structured kinds are
written down in closed form; random kinds are vectorised draws of the usual models: a NetworkX graph of
a million nodes takes gigabytes and tens of seconds (`Graph.to_networkx` converts where its algorithms help).
"""

from coterie.graphs.building import from_edges
from coterie.graphs.edge_lists import connected_chance
from coterie.graphs.graph import Graph
from coterie.graphs.kinds import KINDS
from coterie.graphs.make import build_graph, from_outside, make_graph
from coterie.graphs.mixing import Mixing, Spectrum, build_mixing, mixing
from coterie.graphs.rules import RULES

__all__ = [
    "KINDS",
    "RULES",
    "Graph",
    "Mixing",
    "Spectrum",
    "build_graph",
    "build_mixing",
    "connected_chance",
    "from_edges",
    "from_outside",
    "make_graph",
    "mixing",
]
