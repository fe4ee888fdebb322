"""Mixing matrices W on a graph and their spectra: how fast neighbourly averaging reaches the common mean.

With L the Laplacian, each rule of `coterie.graphs.rules` gives a symmetric, doubly stochastic W, w_ij > 0 on edges.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coterie.errors import InputError
from coterie.graphs.graph import DENSE, LANCZOS, Graph, lanczos
from coterie.graphs.rules import RULES
from coterie.lazily import lazily
from coterie.settings import Settings, read

if TYPE_CHECKING:
    import scipy.sparse as sp
else:
    sp = lazily("scipy.sparse")

__all__ = ["Mixing", "Spectrum", "build_mixing", "mixing"]

PARTS = ("Settings", "weights")


@dataclass(frozen=True)
class Spectrum:
    """Eigenvalues of a mixing matrix: 1 = λ₁ > λ₂ ≥ … ≥ λ_n, β = max(λ₂, −λ_n), gap = 1 − β.

    All but `lambda_max` are None where they are out of reach; `method` says how they were got, or why not.
    """

    beta: float | None
    gap: float | None
    lambda_2: float | None
    lambda_min: float | None
    method: str
    lambda_max: float = 1.0


@dataclass(frozen=True, eq=False)
class Mixing:
    """A symmetric doubly stochastic matrix W on a graph; build it with `mixing`.

    `self_weights` (n,) is the diagonal, `edge_weights` (2E,) is aligned with `graph.indices`.
    """

    graph: Graph
    rule: str
    self_weights: np.ndarray
    edge_weights: np.ndarray

    def matrix(self) -> sp.csr_array:
        """W as a sparse matrix."""
        import scipy.sparse as sp

        graph = self.graph
        off = sp.csr_array((self.edge_weights, graph.indices, graph.indptr), shape=(graph.size,) * 2)
        return sp.csr_array(off + sp.diags_array(self.self_weights))

    def dense(self) -> np.ndarray:
        """W as a dense array, for small graphs."""
        return self.matrix().toarray()

    def check(self, *, nonnegative: bool = True) -> None:
        """Refuse what is not symmetric, doubly stochastic (1e-12), nonnegative and on a connected graph."""
        graph, n = self.graph, self.graph.size
        if not graph.connected:
            raise InputError(f"the {graph.kind} graph of {n} nodes is not connected: averages cannot spread")
        matrix = self.matrix()
        if abs(matrix - matrix.T).max() > 1e-12:
            raise InputError(f"mixing weights {self.rule!r} are not symmetric")
        if (worst := np.abs(matrix.sum(axis=1) - 1).max()) > 1e-12:
            raise InputError(f"mixing weights {self.rule!r} are not doubly stochastic: a row is {worst:.3g} off 1")
        if nonnegative and (least := min(self.self_weights.min(), self.edge_weights.min())) < 0:
            raise InputError(f"mixing weights {self.rule!r} go down to {least:.6g} < 0: use a larger kappa")

    def spectrum(self) -> Spectrum:
        """β, the spectral gap and the ends of the spectrum; never hangs (see `Spectrum`).

        Equal edge weights w mean W = I − wL: the Laplacian's closed forms apply, and the gap suffers no
        cancellation.
        """
        w, n = self.edge_weights, self.graph.size
        low, high, method = None, None, f"out of reach for {n} nodes"
        if np.ptp(w) <= 1e-15:
            lambda_2, lambda_n, how = self.graph.laplacian_extremes
            if lambda_2 is not None:
                low, high, method = float(w[0]) * lambda_2, float(w[0]) * lambda_n, how
        elif n <= DENSE:
            values = np.linalg.eigvalsh(self.dense())
            low, high, method = 1 - float(values[-2]), 1 - float(values[0]), "dense"
        elif n <= LANCZOS:
            second, last = (lanczos(self.matrix(), 1.0, end) for end in ("LA", "SA"))
            if second is not None and last is not None:
                low, high, method = 1 - second, 1 - last, "lanczos"
        if low is None or high is None:
            return Spectrum(None, None, None, None, method)
        gap = min(low, 2 - high)  # of β = max(1 − low, high − 1)
        return Spectrum(1 - gap, gap, 1 - low, 1 - high, method)


def mixing(graph: Graph, rule: str = "metropolis", *, negative: bool = False, **params: object) -> Mixing:
    """The mixing matrix of a connected graph by a rule in `RULES` with its settings (`kappa` of "laplacian").

    λ_max(L) is exact up to 50,000 nodes and wherever a closed form exists; beyond, the bound max_ij d_i + d_j
    takes its place, which keeps every property and mixes a little slower. `negative=True` admits w_ii < 0
    (κ < max degree).

    >>> from coterie.graphs import make_graph
    >>> mixing(make_graph("ring", 4), "laplacian").dense()[0].tolist()
    [0.5, 0.25, 0.0, 0.25]
    """
    settings = read(RULES.load(rule, *PARTS).Settings, params, rule)
    return build_mixing(graph, rule, settings, negative=negative)


def build_mixing(graph: Graph, rule: str, settings: Settings, *, negative: bool = False) -> Mixing:
    """The same with settings that were read already."""
    edge = _weights(RULES.load(rule, *PARTS).weights(graph, settings), graph, rule)
    rows = np.add.reduceat(edge, graph.indptr[:-1]) if graph.degrees.min() else np.zeros(graph.size)
    result = Mixing(graph, rule, 1 - rows, edge)
    result.check(nonnegative=not negative)
    return result


def _weights(given: object, graph: Graph, rule: str) -> np.ndarray:
    """What a rule gave, if it is a weight for each neighbour of each node; with none an average would not spread."""
    wanted = f"mixing rule {rule!r} must give {graph.indices.size} numbers > 0, one for each neighbour of each node"
    try:
        edge = np.asarray(given, float)
    except (TypeError, ValueError):
        raise InputError(f"{wanted}; got a {type(given).__name__}") from None
    if edge.shape != graph.indices.shape:
        raise InputError(f"{wanted}; got shape {edge.shape}")
    if not (np.isfinite(edge) & (edge > 0)).all():
        raise InputError(f"{wanted}; got {edge[~(np.isfinite(edge) & (edge > 0))][0]}")
    return edge
