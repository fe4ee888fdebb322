r"""How much a random weight hides: the mean realised loss of Laplace noise on a uniformly random mean (Xiao et al.).

One coordinate is released as U(0, ω) + Laplace(rate β), moved by up to s by the data. The loss at an output x is at
most Θ(x) = ln p(x̃)/p(x̃ − s), x̃ = min(x, ω − x), and γ = E[Θ]/(βs) is its mean as a part of the worst case βs. γ is a
*diagnostic*: outputs outside [0, ω] lose the full βs, with probability (1 − e^{−βω})/(βω), so the pure guarantee is βs
whatever ω. The formal (ε, δ) saving is that of `LaplaceUniform`, charged through a Rényi filter where ω depends on
earlier messages. Only γ(ω) may be published: the loss realised at an actual output reveals the gradient.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from coterie.algorithms import ldp_admm
from coterie.algorithms.base import Place

__all__ = ["bounds", "of_run", "printed", "reduction"]

Floats = NDArray[np.float64]
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)
_TINY = 1e-6  # βω below which the width is as good as none, and βs below which γ no longer changes


def reduction(rate: ArrayLike, width: ArrayLike, shift: ArrayLike) -> Floats:
    """γ = (2/βs)[βs·F(0) + ∫_0^{ω/2} p(x) ln(p(x)/p(x − s)) dx], by Gauss-Legendre quadrature split at s.

    >>> reduction(2.0, 0.1, 0.001).round(6).tolist()
    0.952556
    """
    shape = np.broadcast_shapes(*(np.shape(x) for x in (rate, width, shift)))
    # in units of the noise: u = βω, s = βs
    u, s = (np.broadcast_to(np.asarray(rate, float) * np.asarray(x, float), shape).ravel() for x in (width, shift))
    safe_u, safe_s = np.where(u < _TINY, 1.0, u), np.maximum(s, _TINY)  # γ has a limit as s → 0
    split = np.minimum(safe_s, safe_u / 2)
    total = safe_s * -np.expm1(-safe_u) / (2 * safe_u)
    for low, high in ((np.zeros_like(split), split), (split, safe_u / 2)):
        x = low[:, None] + (high - low)[:, None] * (1 + _NODES) / 2
        here = _log_density(x, safe_u[:, None])
        inner = np.exp(here) / (2 * safe_u[:, None]) * (here - _log_density(x - safe_s[:, None], safe_u[:, None]))
        total += (high - low) / 2 * (inner @ _WEIGHTS)
    found = 2 * total / safe_s
    return np.where(u < _TINY, 1.0, found).reshape(shape)


def bounds(rate: ArrayLike, width: ArrayLike, shift: ArrayLike) -> tuple[Floats, Floats]:
    """(lower, upper) bounds of γ in closed form; the lower one needs s ≤ ω/2 and is 0 otherwise.

    From p(x) ≤ e^{β(x−y)} p(y) and ln p(x)/p(x − s) = ∫ p'/p.
    """
    b, w, s = (np.asarray(x, float) for x in (rate, width, shift))
    half, fits = np.exp(-b * w / 2), s <= w / 2
    front = 2 / (b * s * w)
    low = front * (s - half * np.sinh(np.minimum(b * s, 700)) / b)
    near = front * (np.expm1(b * s) / b - half * (s / 2 + np.expm1(2 * b * s) / (4 * b)))
    any_shift = (1 - half) / (b * w / 2) * np.expm1(b * s) / (b * s)
    high = np.minimum(1.0, np.where(fits, np.minimum(near, any_shift), any_shift))
    return np.where(fits, low, 0.0), high


def printed(rate: ArrayLike, width: ArrayLike, shift: ArrayLike) -> Floats:
    """The paper's (11) in closed form, for its Figure 1. It takes the wrong branch and is no upper bound of γ."""
    b, w, s = (np.asarray(x, float) for x in (rate, width, shift))
    h = (w - s) / 2
    fall = -np.expm1(-b * h) / b
    first = (2 * h - fall - (np.exp(-b * (h + s)) - np.exp(-b * w)) / b) / (2 * w)
    second = (2 * h - np.exp(-b * s) * fall - (np.exp(-b * h) - np.exp(-b * (w - s))) / b) / (2 * w)
    return np.asarray(np.log(np.exp(b * s) * (1 - 2 * first) + 2 * second) / (b * s))


def of_run(cfg: ldp_admm.Config, place: Place, own: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """γ of every round and coordinate of `ldp-admm`: the mean realised loss as a part of the worst. No guarantee.

    `own` and `mean`, both (rounds, dim): the agent's and its neighbours' mean point *before* each round, all public.
    """
    with jax.enable_x64(True):
        t = jnp.arange(len(own))
        of_round = (ldp_admm.sensitivity, ldp_admm.scale)
        shift, spread = (np.broadcast_to(f(cfg, place, t), len(own))[:, None] for f in of_round)
    with np.errstate(divide="ignore"):
        return reduction(1 / spread, np.abs(np.asarray(own, float) - np.asarray(mean, float)), shift)


def _log_density(x: Floats, u: Floats) -> Floats:
    """ln of 2u·p at x ≤ u/2, in units where β = 1 and the width is u."""
    inside = np.maximum(x, 0.0)
    middle = np.log(-np.expm1(-inside) - np.expm1(-(u - inside)))
    return np.where(x < 0, x + np.log(-np.expm1(-u)), middle)
