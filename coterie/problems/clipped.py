r"""Probabilities of a classifier that was trained on clipped gradients.

Clipping is part of the loss that is minimised: a record whose gradient is longer than C counts C/length of itself. In
a rare class nearly every record's is, so the model's own probabilities p are too low there (at 11 % positive and C =
half the bound their mean is near 6 %). Where the classes of the records at one place have probabilities q, the clipped
gradient vanishes for Σ_k q_k min(1, C/ℓ_k) (p − e_k) = 0, ℓ_k being the gradient's length for class k, so

    q_k ∝ p_k max(1, ℓ_k/C):

what the model says of the classes. It is a function of the model and of the record that is asked about, and free. The
most probable class stays the same.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["unclipped"]


def unclipped(
    p: NDArray[np.float64], norms: NDArray[np.float64] | float, clip: float | None, *, two: bool = False
) -> NDArray[np.float64]:
    """q of records with features of these `norms`: p, q are (records, classes); `two`: p is the logistic model's.

    >>> unclipped(np.array([[0.94, 0.06]]), 1.0, 0.5, two=True).round(3).tolist()
    [[0.893, 0.107]]
    """
    if clip is None:
        return p
    gap = 1 - p if two else np.sqrt(np.maximum(np.sum(p**2, axis=1, keepdims=True) + 1 - 2 * p, 0.0))
    lengths = gap * np.reshape(norms, (-1, 1))
    q = p * np.maximum(1.0, lengths / clip)
    return q / q.sum(axis=1, keepdims=True)
