"""The graph itself: canonical edges, compressed adjacency, and the ends of its Laplacian's spectrum."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from coterie.lazily import lazily

if TYPE_CHECKING:
    import networkx as nx
    import scipy.sparse as sp
    from scipy.sparse import csgraph, linalg
else:
    nx, sp = lazily("networkx"), lazily("scipy.sparse")
    csgraph, linalg = lazily("scipy.sparse.csgraph"), lazily("scipy.sparse.linalg")

__all__ = ["DENSE", "LANCZOS", "Graph", "lanczos"]

DENSE = 600  # eigenvalues of a dense matrix up to here (0.1 s)
LANCZOS = 50_000  # and by Lanczos iteration up to here (a few seconds)


@dataclass(frozen=True, eq=False)
class Graph:
    """An undirected simple graph: `edges` is (E, 2) with i < j, sorted, unique. Build it with `make_graph`.

    >>> from coterie.graphs import make_graph
    >>> make_graph("ring", 5).edges.tolist()
    [[0, 1], [0, 4], [1, 2], [2, 3], [3, 4]]
    """

    size: int
    edges: np.ndarray
    kind: str
    names: tuple[str, ...] | None = None  # node names of a file
    shape: tuple[int, int] | None = None  # rows and columns of a grid

    def called(self, kind: str) -> Graph:
        """The same graph as one of that kind, with what was worked out about its edges alone."""
        same = replace(self, kind=kind)
        known = {name: value for name, value in vars(self).items() if name not in vars(same)}
        vars(same).update({name: value for name, value in known.items() if name != "laplacian_extremes"})
        return same

    @cached_property
    def _rows(self) -> tuple[np.ndarray, np.ndarray]:
        """CSR offsets and neighbours, without SciPy: a deployed party needs no more, and its memory counts."""
        i, j = self.edges.astype(np.int32).T
        order = np.argsort(owners := np.concatenate([j, i]), kind="stable")  # edges are sorted: so is each row
        counts = np.bincount(owners, minlength=self.size)
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int32), np.concatenate([i, j])[order]

    @cached_property
    def _adjacency(self) -> sp.csr_array:
        return sp.csr_array((np.ones(2 * len(self.edges)), self.indices, self.indptr), shape=(self.size,) * 2)

    @property
    def indptr(self) -> np.ndarray:
        """CSR offsets: the neighbours of i are `indices[indptr[i]:indptr[i + 1]]`."""
        return self._rows[0]

    @property
    def indices(self) -> np.ndarray:
        """CSR neighbours, sorted within each node; every edge appears twice."""
        return self._rows[1]

    @cached_property
    def degrees(self) -> np.ndarray:
        """Number of neighbours of each node."""
        return np.diff(self.indptr)

    @cached_property
    def sources(self) -> np.ndarray:
        """The node that owns each entry of `indices`."""
        return np.repeat(np.arange(self.size, dtype=np.int32), self.degrees)

    @cached_property
    def connected(self) -> bool:
        """Whether every node can reach every other."""
        if self.size <= DENSE:  # SciPy would be as quick, but takes a third of a second to load
            return len(self._reached(0)) == self.size
        return self.degrees.min() > 0 and csgraph.connected_components(self._adjacency, directed=False)[0] == 1

    def _reached(self, start: int) -> set[int]:
        reached, left = {start}, [start]
        while left:
            new = set(self.neighbours(left.pop()).tolist()) - reached
            reached |= new
            left += new
        return reached

    def neighbours(self, node: int) -> np.ndarray:
        """Sorted neighbours of one node."""
        return self.indices[self.indptr[node] : self.indptr[node + 1]]

    def laplacian(self) -> sp.csr_array:
        """L = diag(degrees) − adjacency, sparse float64."""
        return sp.csr_array(sp.diags_array(self.degrees.astype(float)) - self._adjacency)

    def to_networkx(self) -> nx.Graph:
        """The same graph as a NetworkX object, nodes 0 … size − 1."""
        graph: nx.Graph = nx.empty_graph(self.size)
        graph.add_edges_from(self.edges.tolist())
        return graph

    @cached_property
    def laplacian_extremes(self) -> tuple[float | None, float, str]:
        """(λ₂, λ_max) of L and how they were got: `closed form`, `dense`, `lanczos` or `bound`.

        λ₂ is None where it is out of reach; in place of λ_max may then stand its upper bound, the largest
        d_i + d_j over the edges (Anderson & Morley 1985).
        """
        closed = _closed_extremes(self)
        if closed:
            return *closed, "closed form"
        if self.size <= DENSE:
            values = np.linalg.eigvalsh(self.laplacian().toarray())
            return float(values[1]), float(values[-1]), "dense"
        if self.size <= LANCZOS:
            high = lanczos(self.laplacian(), 0.0, "LA")
            if high is not None:
                return lanczos(self.laplacian(), 0.0, "SA"), high, "lanczos"
        return None, float((self.degrees[self.edges[:, 0]] + self.degrees[self.edges[:, 1]]).max()), "bound"

    def describe(self) -> dict[str, object]:
        """One line of facts; `diameter` and `algebraic_connectivity` are None where they cost too much."""
        small = self.size <= 1000
        return {
            "kind": self.kind,
            "nodes": self.size,
            "edges": len(self.edges),
            "degree_min": int(self.degrees.min()),
            "degree_mean": float(self.degrees.mean()),
            "degree_max": int(self.degrees.max()),
            "connected": self.connected,
            "diameter": int(csgraph.shortest_path(self._adjacency, unweighted=True).max())
            if small and self.connected
            else None,
            "algebraic_connectivity": self.laplacian_extremes[0],
        }


def _path_modes(n: int) -> tuple[float, float]:
    """λ₂ and λ_max of a path's Laplacian, 4 sin²(πk/2n) at k = 1 and n − 1."""
    return 4 * math.sin(math.pi / (2 * n)) ** 2, 4 * math.sin(math.pi * (n - 1) / (2 * n)) ** 2


def _closed_extremes(graph: Graph) -> tuple[float, float] | None:
    n = graph.size
    if n == 2:
        return 2.0, 2.0
    match graph.kind:
        case "ring":
            return 4 * math.sin(math.pi / n) ** 2, 4 * math.sin(math.pi * (n // 2) / n) ** 2
        case "path":
            return _path_modes(n)
        case "star":
            return 1.0, float(n)
        case "complete":
            return float(n), float(n)
        case "grid" if graph.shape:
            sides = [_path_modes(k) for k in graph.shape if k > 1]
            return min(low for low, _ in sides), sum(high for _, high in sides)
    return None


def lanczos(matrix: sp.csr_array, eigenvalue: float, end: Literal["LA", "SA"]) -> float | None:
    """Largest ("LA") or smallest ("SA") eigenvalue of a symmetric matrix, the constant vector's left out.

    The constant vector has the given `eigenvalue`; a rank-one term moves it to the mean of the others, inside
    their range. The start vector is fixed, so the answer is reproducible. None when a bounded number of
    restarts does not suffice: a poorly connected graph cannot hang a run.
    """
    n = matrix.shape[0]
    shift = (matrix.diagonal().sum() - eigenvalue) / (n - 1) - eigenvalue
    operator = linalg.LinearOperator((n, n), matvec=lambda x: matrix @ x + shift * x.mean(), dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(n)
    try:
        found = linalg.eigsh(
            operator, k=1, which=end, v0=start, ncv=40, maxiter=100, tol=1e-9, return_eigenvectors=False
        )
    except linalg.ArpackNoConvergence:
        return None
    return float(found[0])
