r"""From released coefficients to weights: repair, then a closed form. All of it is post-processing and costs nothing.

    minimise  wᵀ(Â + diag ρ)w + b̂ᵀw + α Σ_j |v̂_jᵀw|

`ridge` ρ comes from the public noise levels, about twice the norm that the noise matrix is likely to have. Eigenvalues
that are still not positive are dropped (spectral trimming): the answer then lies in the span of the others, and is 0
if there are none. The noise is never drawn again until the matrix is definite: that would be a release chosen by the
data, and unpaid (functional mechanism: Zhang et al. 2012, section 6).

With P = (2Â)⁺, R = P^{1/2}, q = −Rb̂ and M = RV̂ᵀ the answer is w = R(q − Mt), where t is the least-squares solution of
Mt ≈ q in the box |t_j| ≤ α. One penalty: t = clip(v̂ᵀw₀/v̂ᵀPv̂, −α, α).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray
from scipy.optimize import lsq_linear

from coterie.errors import InputError

__all__ = ["minimise", "minimise_here", "ridge_for"]

Floats = NDArray[np.float64]
SWEEPS = 200  # over the penalties, inside a compiled program


def ridge_for(spread: Floats) -> Floats:
    """The ridge of each coordinate from the standard deviations of the noise on every entry of A (public).

    A symmetric matrix of independent centred entries has norm about 2 max_i √Σ_j spread_ij² (for equal entries
    √(2d)·σ_svec); row i gets max(4 spread_ii, 2√Σ_j spread_ij² + 2 spread_ii). No noise, no ridge.
    """
    own = np.diag(spread)
    return np.maximum(4 * own, 2 * np.sqrt((spread**2).sum(1)) + 2 * own)


def minimise(quadratic: Floats, linear: Floats, penalties: Floats | None = None, alpha: float = 1.0) -> Floats:
    """The minimiser of wᵀAw + bᵀw + α Σ_j |penalties_j ᵀw|, in the span of A's positive eigenvectors.

    >>> minimise(np.eye(2), np.array([-2.0, -2.0]), np.array([[1.0, 0.0]]), np.inf)
    array([0., 1.])
    """
    if not alpha >= 0:
        raise InputError(f"the fairness penalty must be >= 0, got {alpha}")
    values, vectors = np.linalg.eigh((quadratic + quadratic.T) / 2)
    keep = values > len(values) * np.finfo(float).eps * np.max(np.abs(values), initial=0.0)
    if not keep.any():
        return np.zeros_like(linear)
    root = vectors[:, keep] / np.sqrt(2 * values[keep])  # R in the coordinates of the kept eigenvectors
    q = -root.T @ linear
    if penalties is None or not len(penalties) or alpha == 0:
        return root @ q
    m = root.T @ penalties.T
    if m.shape[1] == 1:
        square = float(m[:, 0] @ m[:, 0])
        t = np.clip(m.T @ q / square, -alpha, alpha) if square > 0 else np.zeros(1)
    elif np.isinf(alpha):
        t = np.linalg.lstsq(m, q)[0]
    else:
        t = lsq_linear(m, q, (-alpha, alpha), method="bvls").x
    return root @ (q - m @ t)


def minimise_here(quadratic: Array, linear: Array, penalties: Array, alpha: float) -> Array:
    """The same inside a compiled program, where runs are scored; t comes from sweeps over its coordinates."""
    values, vectors = jnp.linalg.eigh((quadratic + quadratic.T) / 2)
    keep = values > len(values) * jnp.finfo(values.dtype).eps * jnp.max(jnp.abs(values))
    root = vectors * jnp.where(keep, 1 / jnp.sqrt(2 * jnp.where(keep, values, 1.0)), 0.0)
    q, m = -root.T @ linear, root.T @ penalties.T
    inner, wanted = m.T @ m, m.T @ q

    def sweep(_: int, t: Array) -> Array:
        for j in range(len(wanted)):
            own = inner[j, j]
            best = t[j] + (wanted[j] - inner[j] @ t) / jnp.where(own > 0, own, 1.0)
            t = t.at[j].set(jnp.where(own > 0, jnp.clip(best, -alpha, alpha), 0.0))
        return t

    return root @ (q - m @ jax.lax.fori_loop(0, SWEEPS, sweep, jnp.zeros_like(wanted)))
