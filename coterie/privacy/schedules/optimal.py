"""Least final error when the iteration contracts errors by `contraction` each round.

Noise of round t reaches the end with weight w_t = contraction^{2(T−t)}. Minimising Σ w_t σ_t² at fixed Σ Δ_t²/σ_t²
gives σ_t² ∝ Δ_t/√w_t; with constant sensitivity the variance falls by `contraction` each round.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coterie.errors import InputError


def log_variance(rounds: int, contraction: float = 0.95, sensitivity: ArrayLike | None = None) -> NDArray[np.float64]:
    """`sensitivity`: Δ_t up to a factor. The contraction must come from public bounds."""
    if not 0 < contraction <= 1:
        raise InputError(f"contraction must be in (0, 1], got {contraction}")
    gaps = np.ones(rounds) if sensitivity is None else np.asarray(sensitivity, float)
    if gaps.shape != (rounds,) or not np.all((gaps > 0) & np.isfinite(gaps)):
        raise InputError(f"sensitivity must be {rounds} positive numbers, got {gaps}")
    to_go = np.arange(rounds - 1, -1, -1)
    return -np.log(gaps) - to_go * np.log(contraction)
