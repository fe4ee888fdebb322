r"""Bounds on what `pr-admm` reaches: the proved one, and the paper's automatic threshold from a graph's spectrum."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from coterie.errors import InputError

__all__ = ["objective_gap_bound"]


def objective_gap_bound(penalty: float, degrees: ArrayLike, sigma: ArrayLike, distance: float, dim: int) -> float:
    r"""Bound on E[Σ_i f_i(x̄_i) − f*] after K rounds of `pr-admm` without a threshold, f* = min_x Σ_i f_i(x).

    x̄ = (1/K) Σ_k x^k averages the exact (unreleased) minimisers, so this is a statement and not an output. With
    `degrees` |V_i|, `sigma` of shape (K, agents) (or anything that broadcasts to it), x⁰ common to all agents and
    `distance` ‖x⁰ − x*‖,

        E[f(x̄) − f*] ≤ (η/K) { Σ_i |V_i| ‖x⁰ − x*‖² + dim Σ_k Σ_i |V_i| σ²_{i,k} },

    since ½‖1 ⊗ v‖² in the signless Laplacian is 2·edges·‖v‖² = Σ_i |V_i| ‖v‖². The gap may be negative: x̄ need not
    be consensual. At a fixed budget Σ_k σ_k² grows at least as K², so the noise part grows at least linearly in K.
    (Ding et al., Thm 5 and 6, corrected: no spectral constants, no Û.)

    >>> objective_gap_bound(0.5, [1, 1], [[0.1, 0.1], [0.1, 0.1]], 1.0, dim=1)
    0.51
    """
    size = np.asarray(degrees, float)
    spread = np.asarray(sigma, float)
    if spread.ndim != 2 or spread.shape[1] not in (1, size.size):
        raise InputError(f"sigma must have shape (rounds, {size.size}), got {spread.shape}")
    if not (penalty > 0 and distance >= 0 and np.all(size > 0) and np.all(spread >= 0)):
        raise InputError("penalty and degrees must be > 0, distance and sigma >= 0")
    noise = dim * np.sum(size * np.broadcast_to(spread, (spread.shape[0], size.size)) ** 2)
    return float(penalty / spread.shape[0] * (size.sum() * distance**2 + noise))
