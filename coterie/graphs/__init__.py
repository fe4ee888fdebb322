"""Who talks to whom, and with what weight: topologies, mixing matrices and their spectra.

Everything is host NumPy with O(edges) memory, so a million nodes is a normal graph. Structured kinds are
written down in closed form; random kinds are vectorised draws of the usual models: a NetworkX graph of
a million nodes takes gigabytes and tens of seconds (`Graph.to_networkx` converts where its algorithms help).
"""

from coterie.graphs.edge_lists import connected_chance
from coterie.graphs.graph import Graph
from coterie.graphs.make import KINDS, make_graph
from coterie.graphs.mixing import RULES, Mixing, Spectrum, mixing

__all__ = ["KINDS", "RULES", "Graph", "Mixing", "Spectrum", "connected_chance", "make_graph", "mixing"]
