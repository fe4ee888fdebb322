r"""Additive models of second moments that were released once: records in bins, and what is known of their moments.

A record has exactly one bin of each of A attributes, and its features are A ones, divided by √A. So with m_i the share
of the records in bin i, and T_ij the share of those in bins i and j,

    A · mean x xᵀ = T,   T_ii = m_i,   T_ij = 0 for two bins of one attribute,   Σ_j∈c T_ij = m_i,   Σ_i∈a m_i = 1,

and √A · mean y x sums to the mean label in every attribute. None of this depends on the records: `consistent` takes the
noise off that contradicts it. Shares are the mean of all A statements of them (the diagonal, and the sums of every
table), each weighed by its noise; then every table moves to these margins by the least squares.

**The model** of two classes is a logistic one (`coterie.released.log_odds`), which asks records for no more than these
tables and √A · mean y x. Of numbers it is least squares with the penalty λ uᵀu, θ = B u, B the root of the matrix
ρ^|i−j| of neighbouring bins (`coterie.data.bins`).
Everything here is a function of what was released and of public numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from coterie.api.curves import Curves
from coterie.data.bins import Bins
from coterie.errors import InputError
from coterie.released.latent_classes import members
from coterie.released.log_odds import log_odds
from coterie.released.second_moments import LEAST, default_penalty, inverse_root, ridge_weights

__all__ = ["AdditiveMoments", "basis_of", "consistent", "least_squares", "log_odds_weights"]

Floats = NDArray[np.float64]
PART = 0.6  # of the noise's length σ√(2d): λ; chosen on made problems, heart and diabetes


def consistent(matrix: Floats, cross: Floats, bins: Bins) -> tuple[Floats, Floats]:
    """Noisy means of x xᵀ and y x, with all that is known of them set."""
    member, many = members(bins), bins.ones
    counts = member.sum(axis=1)
    same = member.T @ member
    tables = many * matrix * (1 - same)  # T without its blocks on the diagonal
    sums = tables @ member.T  # (d, A): of a bin, its share as every other attribute's table says it
    trust = 2 / counts[None, :] * (1 - member.T)  # 1/noise², that of the diagonal being 1
    share = (many * matrix.diagonal() + (trust * sums).sum(axis=1)) / (1 + trust.sum(axis=1))
    share = share - ((member @ share - 1) / counts) @ member
    row = (share[:, None] - sums) / counts[None, :] * (1 - member.T)  # what a bin lacks, spread over the other's bins
    whole = (1 - member @ sums) / (counts[:, None] * counts[None, :]) * (1 - np.eye(many))
    spread = row @ member
    moved = tables + spread + spread.T - member.T @ whole @ member
    labelled = member @ cross
    middle = (labelled / counts).sum() / (1 / counts).sum()
    known = moved * (1 - same) + np.diag(share)
    return known / many, cross + ((middle - labelled) / counts) @ member


def basis_of(bins: Bins) -> Floats:
    """B, whose rows are the vectors of the bins (d × d): features of a gradient method are Bᵀ times ones and zeros."""
    basis = np.zeros((bins.width, bins.width))
    for block in bins.blocks:
        basis[block.where, block.where] = bins.basis(block)
    return basis


def least_squares(matrix: Floats, cross: Floats, noise: float, bins: Bins, penalty: float | None = None) -> Floats:
    """What every bin adds to a number, times √A."""
    matrix, cross = consistent(matrix, cross, bins)
    basis = basis_of(bins)
    lam = PART * noise * (2 * bins.width) ** 0.5 + LEAST if penalty is None else penalty
    return np.asarray(basis @ ridge_weights(basis.T @ matrix @ basis, basis.T @ cross, lam), float)


def log_odds_weights(
    matrix: Floats, cross: Floats, noise: float, cross_noise: float, bins: Bins, penalty: float | None = None
) -> Floats:
    """What every bin adds to the log-odds, times √A; the last few answers are kept, as all parties ask for the same."""
    given = [np.ascontiguousarray(part, np.float64).tobytes() for part in (matrix, cross)]
    return _kept(given[0], given[1], float(noise), float(cross_noise), bins, penalty)


@lru_cache(maxsize=16)
def _kept(matrix: bytes, cross: bytes, noise: float, cross_noise: float, bins: Bins, penalty: float | None) -> Floats:
    known, labelled = consistent(np.frombuffer(matrix).reshape(bins.width, bins.width), np.frombuffer(cross), bins)
    many, root = bins.ones, bins.ones**0.5
    found = root * log_odds(
        many * known, root * labelled, (many * noise / 2**0.5, root * cross_noise), bins,
        None if penalty is None else many * penalty,
    )  # fmt: skip
    found.setflags(write=False)
    return found


@dataclass(frozen=True, eq=False)
class AdditiveMoments:
    """Released moments of records in bins: an additive model of any attributes, with any penalty, for nothing."""

    matrix: Floats
    cross: Floats
    noise: float
    cross_noise: float
    bins: Bins
    reach: float = 1.0
    numbers: bool = False

    def shares(self) -> dict[str, Floats]:
        """The share of the records in every bin of each attribute (and pair), `missing` last."""
        known = self.bins.ones * consistent(self.matrix, self.cross, self.bins)[0].diagonal()
        return {block.name: known[block.where] for block in self.bins.blocks}

    def weights(self, penalty: float | None = None, attributes: Sequence[str] | None = None) -> Floats:
        """The model over the given attributes (all) as a linear one of the features; λ by the noise if left out."""
        if penalty is not None and not penalty > 0:
            raise InputError(f"penalty must be > 0, got {penalty}")
        bins, at = self._some(attributes)
        factor = self.bins.ones / bins.ones  # fewer ones a record: x xᵀ was divided by more of them
        matrix, cross = factor * self.matrix[np.ix_(at, at)], factor**0.5 * self.cross[at]
        if self.numbers:
            own = least_squares(matrix, cross, factor * self.noise, bins, penalty)
        else:
            noise, cross_noise = factor * self.noise, factor**0.5 * self.cross_noise
            own = log_odds_weights(matrix, cross, noise, cross_noise, bins, penalty)
        out = np.zeros(self.bins.width)
        out[at] = np.asarray(own) * (self.bins.ones / bins.ones) ** 0.5
        return out

    def predict(self, rows: NDArray, penalty: float | None = None, attributes: Sequence[str] | None = None) -> Floats:
        """Numbers, or −1 and 1, for rows of features."""
        score = np.asarray(rows, float) @ self.weights(penalty, attributes)
        return self.reach * score if self.numbers else np.where(score > 0, 1.0, -1.0)

    def curves(self, penalty: float | None = None, attributes: Sequence[str] | None = None) -> dict[str, Floats]:
        """What each bin adds to the score, `missing` last."""
        values = self.weights(penalty, attributes) / self.bins.ones**0.5
        return {block.name: values[block.where].reshape(block.shape) for block in self.bins.blocks}

    def readable(
        self, classes: Sequence[object] = (-1, 1), penalty: float | None = None, attributes: Sequence[str] | None = None
    ) -> Curves:
        """The model as curves, to be saved as JSON and read by `AdditiveClassifier`; the second class is above 0."""
        if not self.numbers and len(set(classes)) != 2:
            raise InputError(f"classes must be two different labels, got {list(classes)}")
        scale = self.reach if self.numbers else 1.0
        tables = [scale * table for table in self.curves(penalty, attributes).values()]
        return Curves.of_tables(self.bins, tables, classes=None if self.numbers else tuple(classes))

    def start(self, penalty: float | None = None) -> Floats:
        """Where a gradient method on the same bins may begin: the point whose curves are those of the release."""
        return np.asarray(np.linalg.solve(basis_of(self.bins), self.weights(penalty)), float)

    def preconditioner(self, penalty: float | None = None) -> Floats:
        """P = (A₊ + λI)^(−1/2) of a gradient method's features: in P⁻¹θ all directions are about as long."""
        basis = basis_of(self.bins)
        lam = default_penalty(self.noise, self.bins.width) if penalty is None else penalty
        return inverse_root(basis.T @ consistent(self.matrix, self.cross, self.bins)[0] @ basis, float(lam))

    def _some(self, attributes: Sequence[str] | None) -> tuple[Bins, NDArray[np.int64]]:
        """The bins of some attributes, and where they lie; pairs go with both of theirs."""
        names = self.bins.names
        if attributes is None:
            return self.bins, np.arange(self.bins.width)
        if stray := [name for name in attributes if name not in names]:
            raise InputError(f"unknown attribute {stray[0]!r}; there are {', '.join(names)}")
        if not attributes or len(set(attributes)) < len(attributes):
            raise InputError(f"attributes must be one or more different ones, got {list(attributes)}")
        kept = [k for k, name in enumerate(names) if name in attributes]
        place = {k: j for j, k in enumerate(kept)}
        pairs = tuple((place[a], place[b]) for a, b in self.bins.pairs if a in place and b in place)
        bins = replace(self.bins, attributes=tuple(self.bins.attributes[k] for k in kept), pairs=pairs)
        chosen = [block for block in self.bins.blocks if all(k in place for k in block.of)]
        return bins, np.concatenate([np.arange(block.start, block.start + block.count) for block in chosen])
