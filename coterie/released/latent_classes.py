r"""A distribution of records from the tables of two attributes that were released: a mixture of latent classes.

Within class k, which has the share π_k, the attributes are independent, bin i with probability P_ki. So the table of
two attributes is Σ_k π_k P_ki P_kj: never negative, consistent with all others, and of few numbers beside those of the
tables, so that most of the noise does not fit in. The classes are the mode, or near it, of

    Σ_i<j (Σ_k π_k P_ki P_kj − T_ij)² / 2s²  +  Σ_ki (z_ki − log m_i)² / 2v,     P_k the softmax of z_k by attribute,

with s the noise on a table, which is public, and m the shares: where noise is large, classes are alike and attributes
independent. It is sought from a fixed start by a fixed number of steps. Nothing here reads anything but noisy tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coterie.data.bins import Bins

__all__ = ["LatentClasses", "latent_classes", "members"]

Floats = NDArray[np.float64]
CLASSES, STEPS, VARIANCE = 64, 400, 3.0  # chosen on splits 10 to 14 of Adult and split 10 of diabetes
RATES = ((0.5, 0.1), (0.8, 0.03), (1.0, 0.01))  # until this part of the steps: their length
FAST, SLOW = 0.9, 0.99  # memories of Adam's mean and square
LEAST_SHARE = 1e-5
START = 26  # of the generator of the first classes: public, the same for everybody


class _Moving(NamedTuple):
    """Numbers under Adam, in place."""

    value: Floats
    mean: Floats
    square: Floats

    @classmethod
    def at(cls, value: Floats) -> _Moving:
        return cls(value, np.zeros_like(value), np.zeros_like(value))

    def step(self, slope: Floats, length: float, count: int) -> None:
        self.mean[:] = FAST * self.mean + (1 - FAST) * slope
        self.square[:] = SLOW * self.square + (1 - SLOW) * slope**2
        root = np.sqrt(self.square / (1 - SLOW**count))
        self.value[:] -= length * self.mean / (1 - FAST**count) / (root + 1e-12)


@dataclass(frozen=True, eq=False)
class LatentClasses:
    """The classes' shares (K), and the probability of every bin in each (K × d)."""

    weights: Floats
    bins: Floats

    def shares(self) -> Floats:
        """Of the records, in every bin."""
        return np.asarray(self.weights @ self.bins, float)

    def tables(self) -> Floats:
        """The share of the records in every two bins of different attributes (d × d)."""
        return np.asarray((self.bins.T * self.weights) @ self.bins, float)


def members(bins: Bins) -> Floats:
    """(A × d): which bins are of which attribute, or pair."""
    found = np.zeros((bins.ones, bins.width))
    for k, block in enumerate(bins.blocks):
        found[k, block.where] = 1.0
    return found


def latent_classes(tables: Floats, noise: float, bins: Bins) -> LatentClasses:
    """The classes of consistent tables (shares on the diagonal) whose noise has this standard deviation off it."""
    member = members(bins)
    starts = np.array([block.start for block in bins.blocks])
    sizes = np.array([block.count for block in bins.blocks])
    apart = 1 - member.T @ member
    middle = np.log(np.maximum(tables.diagonal(), LEAST_SHARE))
    pull = 2 * noise**2 / VARIANCE
    draw = np.random.default_rng(START).standard_normal((CLASSES, bins.width))
    logits, sizes_of = _Moving.at(middle + draw), _Moving.at(np.zeros(CLASSES))
    for count in range(1, STEPS + 1):
        shape = _softmax(logits.value, starts, sizes)
        share = np.exp(sizes_of.value - sizes_of.value.max())
        share /= share.sum()
        residual = apart * ((shape.T * share) @ shape - tables)
        across = shape @ residual
        slope = 2 * share[:, None] * across
        inner = shape * (slope - ((shape * slope) @ member.T) @ member)
        along = (shape * across).sum(axis=1)
        length = next(rate for part, rate in RATES if count <= part * STEPS)
        logits.step(inner + pull * (logits.value - middle), length, count)
        sizes_of.step(share * (along - share @ along), length, count)
    return LatentClasses(share, shape)


def _softmax(logits: Floats, starts: NDArray, sizes: NDArray) -> Floats:
    """Probabilities of the bins within every attribute."""
    top = np.maximum.reduceat(logits, starts, axis=1).repeat(sizes, axis=1)
    raised = np.exp(logits - top)
    return np.asarray(raised / np.add.reduceat(raised, starts, axis=1).repeat(sizes, axis=1), float)
