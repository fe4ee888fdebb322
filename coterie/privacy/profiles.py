r"""Privacy profiles δ(ε) of single releases, in closed form or by quadrature.

A *profile* is the hockey-stick divergence δ(ε) = sup_S P(S) − e^ε Q(S) of the worst pair of output laws. Every pair
here is symmetric (swapping the worlds changes nothing), so ε ≥ 0 says all: δ(−ε) = 1 − e^{−ε}(1 − δ(ε)). By the
monotone-shift lemma (a log-concave density: the largest shift is the worst) a declared sensitivity is always taken in
full.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, gammainc, gammainccinv, gammaincinv, gammaln

from coterie.privacy import gdp

__all__ = [
    "Profile",
    "gaussian",
    "l2_laplace",
    "laplace",
    "laplace_uniform",
    "randomized_response",
    "sampled_gaussian",
]

Floats = NDArray[np.float64]
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(200)
_RETURNED = 1e-9  # of a tail: a thousand times what its quadrature was found to be wrong by


class Profile(NamedTuple):
    """A symmetric pair: δ(ε) for arrays of ε ≥ 0, and the largest privacy loss (∞ if there is none)."""

    delta: Callable[[Floats], Floats]
    top: float


def gaussian(mu: float) -> Profile:
    """N(0, 1) against N(μ, 1)."""
    return Profile(lambda eps: gdp.delta_of(mu, eps), np.inf if mu > 0 else 0.0)


def randomized_response(epsilon: float) -> Profile:
    """The worst pure-ε pair, losses ±ε: every pure mechanism, interactive ones too, is a post-processing of it.

    (Kairouz, Oh, Viswanath 2015, Thm 3.3; interactive: Vadhan, Wang 2021.)
    """
    return Profile(lambda eps: np.maximum(-np.expm1(eps - epsilon), 0.0) / (1 + np.exp(-epsilon)), epsilon)


def laplace(shift: float) -> Profile:
    """Laplace noise of unit scale moved by `shift` = rate · sensitivity: δ = 1 − e^{(ε − shift)/2} below the shift."""
    return Profile(lambda eps: np.maximum(-np.expm1((eps - shift) / 2), 0.0), shift)


def l2_laplace(shift: float, dim: int) -> Profile:
    """Density ∝ e^{−‖x‖} in R^dim moved by `shift` = rate · sensitivity.

    The loss is L = √(r² + 2rcs + s²) − r with r ~ Gamma(dim, 1), (1+c)/2 ~ Beta(k, k), k = (dim−1)/2, s the shift, so
    P(L > ℓ) = P(r < r₀) + ∫_{r₀}^∞ gamma(r) I_{(1−c*)/2}(k, k) dr, c* = (ℓ² + 2rℓ − s²)/(2rs), r₀ = (s − ℓ)/2,
    and by symmetry δ(ε) = P(L > ε) − e^ε P(L < −ε).
    """
    if dim == 1:
        return laplace(shift)
    if shift < 1e-8 * np.sqrt(dim):
        return randomized_response(shift)  # the difference below has no digits left: take the worst pure pair
    # r beyond these quantiles carries less mass than a double can hold
    far, near = float(gammainccinv(dim, 1e-19)), float(gammaincinv(dim, 1e-19))
    half = (dim - 1) / 2

    def tails(loss: Floats, over: bool) -> Floats:
        """P(L > ℓ), or P(L < ℓ): each on its own, so that both keep their digits."""
        loss = np.clip(loss, -shift, shift)[:, None]
        start = np.minimum(np.maximum((shift - loss) / 2, near), far)
        # r = start + t²: the integrand's half-integer powers at the edge become whole ones
        t = np.sqrt(far - start) * (1 + _NODES) / 2
        r = start + t**2
        # (1 ∓ c*)/2, written without cancellation
        if over:
            x = (shift - loss) * (2 * r + shift + loss) / (4 * r * shift)
        else:
            x = (shift + loss) * (2 * r - shift + loss) / (4 * r * shift)
        inner = np.exp(_log_gamma(r, dim)) * betainc(half, half, np.clip(x, 0.0, 1.0)) * 2 * t
        whole = np.asarray(np.sqrt(far - start[:, 0]) / 2 * (inner @ _WEIGHTS))
        if not over:
            return whole
        # below the near quantile lies no mass, between start and r₀ the loss is surely above
        return np.asarray(whole + gammainc(dim, np.minimum(np.maximum((shift - loss[:, 0]) / 2, 0.0), far)))

    def delta(eps: Floats) -> Floats:
        eps = np.atleast_1d(np.asarray(eps, float))
        out = np.empty_like(eps)
        for chunk in np.array_split(np.arange(eps.size), max(1, eps.size // 1000)):
            e = eps[chunk]
            over, under = tails(e, True), tails(-e, False)
            with np.errstate(divide="ignore"):
                gap = over - np.exp(np.minimum(e + np.log(under), 0.0))
            # never too small: what quadrature and rounding may take from either tail is given back
            out[chunk] = np.where(e < shift, np.maximum(gap, 0.0) + _RETURNED * over, 0.0)
        return np.clip(out, 0.0, 1.0)

    return Profile(delta, shift)


def _log_gamma(r: Floats, dim: int) -> Floats:
    """ln of the density of Gamma(dim, 1), with no large numbers to subtract where dim is large."""
    if dim < 100:
        return np.asarray((dim - 1) * np.log(r) - r - gammaln(dim))
    y = (r - dim) / dim
    # Stirling: ln Γ(d) = (d − ½) ln d − d + ½ ln 2π + 1/12d − 1/360d³ + …
    rest = np.log(2 * np.pi * dim) / 2 + 1 / (12 * dim) - 1 / (360 * dim**3)
    return np.asarray(dim * (np.log1p(y) - y) - np.log1p(y) - rest)


def laplace_uniform(rate: float, width: float, shift: float) -> Profile:
    """One coordinate of Laplace noise (density (rate/2) e^{−rate|y|}) plus U(0, width), moved by `shift`.

    L(x) = ln p(x)/p(x − shift) falls from rate·shift (x ≤ 0) to its negative (x ≥ width + shift); δ(ε) = F(x_ε) −
    e^ε F(x_ε − shift) with L(x_ε) = ε found by bisection. Where rounding would spoil the
    difference (rate·width < 1e-6, rate·shift < 1e-9) the uniform part is dropped, which is the plain Laplace: an upper
    bound, since adding an independent variable is post-processing.
    """
    top = rate * shift
    if rate * width < 1e-6 or top < 1e-9:
        return laplace(top)

    def log_density(x: Floats) -> Floats:  # up to the constant −ln(2 width)
        edge = np.log(-np.expm1(-rate * width))
        inside = np.clip(x, 0, width)
        middle = np.log(-np.expm1(-rate * inside) - np.expm1(-rate * (width - inside)))
        return np.asarray(np.where(x < 0, rate * x + edge, np.where(x > width, edge - rate * (x - width), middle)))

    def cdf(x: Floats) -> Floats:
        side = -np.expm1(-rate * width) / (2 * rate * width)
        inside = np.clip(x, 0, width)
        middle = (inside + (np.expm1(-rate * inside) - np.expm1(-rate * (width - inside))) / (2 * rate)) / width
        left, right = np.exp(rate * np.minimum(x, 0)), np.exp(-rate * np.maximum(x - width, 0))
        return np.asarray(np.where(x < 0, left * side, np.where(x > width, 1 - right * side, middle)))

    def delta(eps: Floats) -> Floats:
        eps = np.atleast_1d(np.asarray(eps, float))
        low, high = np.zeros_like(eps), np.full_like(eps, width + shift)
        for _ in range(60):
            x = (low + high) / 2
            more = log_density(x) - log_density(x - shift) > eps
            low, high = np.where(more, x, low), np.where(more, high, x)
        return np.where(eps < top, np.clip(cdf(low) - np.exp(np.minimum(eps, top)) * cdf(low - shift), 0, 1), 0.0)

    return Profile(delta, top)


def sampled_gaussian(noise_multiplier: ArrayLike, rate: ArrayLike, chance: ArrayLike = 1.0) -> Profile:
    """Fixed-size batches without replacement, replace-one, ν = noise std over the L2 sensitivity of the batch query.

    The two laws are (1−q)A + qB and (1−q)A + qB', and every two of A, B, B' are one replacement apart, so advanced
    joint convexity gives δ(ε) ≤ q δ_G(1/ν; ln(1 + (e^ε − 1)/q)) in both directions, attained for one round. The
    symmetric pair with this profile dominates and therefore composes; the remove pair alone, without symmetrising,
    does not (Balle, Barthe, Gaboardi 2018, Thm 2; Zhu, Dong, Wang 2022, Thm 10; Lebeda, Regehr, Kamath, Steinke 2024).
    With several ν, q: a public coin picks one of them with the given chances, and the profiles are mixed.
    """
    nu, q, p = (column.reshape(-1, 1) for column in np.broadcast_arrays(noise_multiplier, rate, chance))

    def delta(eps: Floats) -> Floats:
        shape, eps = np.shape(eps), np.ravel(np.asarray(eps, float))
        with np.errstate(divide="ignore"):
            grown = np.where(eps > 30, eps, np.log(np.expm1(np.minimum(eps, 30))))
        out = np.empty(eps.size)
        for chunk in np.array_split(np.arange(eps.size), max(1, eps.size * q.size // 10_000)):
            inner = np.logaddexp(0.0, grown[chunk] - np.log(q))  # ln(1 + (e^ε − 1)/q)
            out[chunk] = (p * q * gdp.delta_of(1 / nu, inner)).sum(axis=0)
        return out.reshape(shape)

    return Profile(delta, np.inf)
