"""Mixing matrices W on a graph and their spectra: how fast neighbourly averaging reaches the common mean.

With L the Laplacian and d_i the degrees; each rule gives a symmetric, doubly stochastic W, w_ij > 0 on edges:

    metropolis   w_ij = 1 / (1 + max(d_i, d_j))            Xiao, Boyd & Kim 2007
    laplacian    W = I − L/κ,  κ = λ_max(L) by default     κ > λ_max/2 converges, κ ≥ max d_i keeps w_ii ≥ 0
    two-thirds   W = I − 2L/(3 λ_max(L))
    uniform      W = 11ᵀ/n                                 complete graphs only
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coterie.arguments import choose
from coterie.errors import InputError
from coterie.graphs.graph import DENSE, LANCZOS, Graph, lanczos
from coterie.lazily import lazily

if TYPE_CHECKING:
    import scipy.sparse as sp
else:
    sp = lazily("scipy.sparse")

if TYPE_CHECKING:
    import scipy.sparse as sp

__all__ = ["RULES", "Mixing", "Spectrum", "mixing"]

RULES = ("metropolis", "laplacian", "two-thirds", "uniform")
"""Names of the rules that `mixing` knows."""


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


def mixing(graph: Graph, rule: str = "metropolis", *, kappa: float | None = None, negative: bool = False) -> Mixing:
    """The mixing matrix of a connected graph by one of `RULES`; `kappa` belongs to "laplacian".

    λ_max(L) is exact up to 50,000 nodes and wherever a closed form exists; beyond, the bound max_ij d_i + d_j
    takes its place, which keeps every property and mixes a little slower. `negative=True` admits w_ii < 0
    (κ < max degree).

    >>> from coterie.graphs import make_graph
    >>> mixing(make_graph("ring", 4), "laplacian").dense()[0].tolist()
    [0.5, 0.25, 0.0, 0.25]
    """
    choose("mixing rule", rule, RULES)
    if kappa is not None and rule != "laplacian":
        raise InputError(f"kappa belongs to the mixing rule 'laplacian', not to {rule!r}")
    degrees = graph.degrees
    if rule == "metropolis":
        edge = 1.0 / (1 + np.maximum(degrees[graph.sources], degrees[graph.indices]))
    elif rule == "uniform":
        if len(graph.edges) != graph.size * (graph.size - 1) // 2:
            raise InputError(f"mixing rule 'uniform' needs a complete graph, got {graph.kind!r}")
        edge = np.full(len(graph.indices), 1 / graph.size)
    else:
        largest = graph.laplacian_extremes[1]
        scale = 1.5 * largest if rule == "two-thirds" else largest if kappa is None else kappa
        if not scale > largest / 2:
            raise InputError(f"kappa must be > {largest / 2:.6g} (half of the Laplacian's λ_max), got {kappa}")
        edge = np.full(len(graph.indices), 1 / scale)
    rows = np.add.reduceat(edge, graph.indptr[:-1]) if degrees.min() else np.zeros(graph.size)
    result = Mixing(graph, rule, 1 - rows, edge)
    result.check(nonnegative=not negative)
    return result
