r"""Gaussian differential privacy: the exact trade between ε and δ of Gaussian noise, stable far into the tails.

A release of L2 sensitivity Δ with N(0, σ²I) noise is μ-GDP with μ = Δ/σ; adaptive composition adds μ². With
a = ε/μ − μ/2 and b = ε/μ + μ/2,

    δ(μ, ε) = Φ(−a) − e^ε Φ(−b),     ∂δ/∂μ = φ(a),     ∂δ/∂ε = −e^ε Φ(−b).

As φ(a) = e^ε φ(b), δ = φ(a) [R(a) − R(b)] with the Mills ratio R(x) = √(π/2) erfcx(x/√2); the bracket is integrated
instead of subtracted where μ is small, so that δ keeps its relative accuracy. All functions broadcast over arrays.

References: Dong, Roth, Su, *Gaussian Differential Privacy* (2022), Cor. 2.13 and 3.3; Balle, Wang, *Improving the
Gaussian Mechanism* (2018), Thm 8.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erfcx, log_ndtr, ndtr, ndtri, ndtri_exp

from coterie.errors import InputError

__all__ = ["delta_of", "epsilon_of", "log_delta_of", "mu_for", "mu_of_pure"]

Floats = NDArray[np.float64]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)
_SMALL = 0.5  # below this μ the eight-point rule is exact to the last digit and subtraction is not
_ROOT2 = np.sqrt(2.0)


def delta_of(mu: ArrayLike, epsilon: ArrayLike) -> Floats:
    """δ such that μ-GDP implies (ε, δ)-DP, exactly; any real ε, μ ≥ 0 (∞ gives 1).

    >>> round(float(delta_of(1.0, 1.0)), 7)
    0.1269367
    """
    mu, epsilon = np.broadcast_arrays(np.asarray(mu, float), np.asarray(epsilon, float))
    size = np.abs(epsilon)
    positive = np.exp(log_delta_of(mu, size))
    # reverse the two worlds: δ(−ε) = 1 − e^{−ε}(1 − δ(ε))
    return np.asarray(np.where(epsilon < 0, -np.expm1(-size) + np.exp(-size) * positive, positive))


def log_delta_of(mu: ArrayLike, epsilon: ArrayLike) -> Floats:
    """ln δ for ε ≥ 0, accurate where δ itself underflows (−∞ at μ = 0)."""
    mu, epsilon = np.broadcast_arrays(np.asarray(mu, float), np.asarray(epsilon, float))
    safe = np.where((mu > 0) & np.isfinite(mu), mu, 1.0)
    a, b = epsilon / safe - safe / 2, epsilon / safe + safe / 2
    small, direct = safe < _SMALL, (safe >= _SMALL) & (a < 0)
    plain = ~small & ~direct
    value = np.empty(safe.shape)
    with np.errstate(all="ignore"):
        value[small] = _log_tail(a[small], _gap_of_small(a[small], safe[small]))
        value[plain] = _log_tail(a[plain], np.sqrt(np.pi / 2) * (erfcx(a[plain] / _ROOT2) - erfcx(b[plain] / _ROOT2)))
        value[direct] = np.log(ndtr(-a[direct]) - np.exp(epsilon[direct] + log_ndtr(-b[direct])))
    return np.asarray(np.where(mu > 0, np.where(np.isfinite(mu), np.minimum(value, 0.0), 0.0), -np.inf))


def _gap_of_small(a: Floats, mu: Floats) -> Floats:
    """R(a) − R(a + μ) = ∫ −R'(x) dx with −R'(x) = 1 − x R(x)."""
    x = (a + mu / 2)[..., None] + (mu / 2)[..., None] * _NODES
    slope = 1 - x * np.sqrt(np.pi / 2) * erfcx(x / _ROOT2)
    far = x > 1e4  # 1 − x R(x) = x^{-2} − 3x^{-4} + …, where the subtraction has no digits left
    slope[far] = (1 - 3 / x[far] ** 2) / x[far] ** 2
    return np.asarray(mu / 2 * (slope @ _WEIGHTS))


def _log_tail(a: Floats, gap: Floats) -> Floats:
    return np.asarray(-(a**2) / 2 - np.log(2 * np.pi) / 2 + np.log(gap))


def epsilon_of(mu: ArrayLike, delta: ArrayLike) -> Floats:
    """The smallest ε ≥ 0 with δ(μ, ε) ≤ δ; never below the exact value by more than rounding.

    >>> round(float(epsilon_of(0.313902, 1e-4)), 5)
    1.0
    """
    mu, delta = np.broadcast_arrays(_not_negative("mu", mu), _unit(delta))
    target = np.log(delta)
    with np.errstate(divide="ignore", invalid="ignore"):
        finite = np.where(np.isfinite(mu), mu, 1.0)
        # δ ≤ Φ(−a) ≤ e^{−a²/2} for a ≥ 0, so this ε is large enough
        upper = finite**2 / 2 + finite * np.sqrt(-2 * target)

        def step(eps: Floats) -> tuple[Floats, Floats]:
            log_delta = log_delta_of(finite, eps)
            b = eps / np.maximum(finite, 1e-300) + finite / 2
            return log_delta - target, -np.exp(eps + log_ndtr(-b) - log_delta)

        free = log_delta_of(finite, np.zeros_like(finite)) <= target
        start = finite**2 / 2 - finite * ndtri(delta)  # where Φ(−a) = δ
        found = _root(step, np.zeros_like(upper), upper, start)[1]
    return np.asarray(np.where(free, 0.0, np.where(np.isfinite(mu), found, np.inf)))


def mu_for(epsilon: ArrayLike, delta: ArrayLike) -> Floats:
    """The largest μ that (ε, δ) allows, ε ≥ 0: noise σ = Δ/μ spends the budget and no more.

    >>> round(float(mu_for(1.0, 1e-4)), 6)
    0.313902
    """
    epsilon, delta = np.broadcast_arrays(_not_negative("epsilon", epsilon), _unit(delta))
    target = np.log(delta)
    finite = np.where(np.isfinite(epsilon), epsilon, 1.0)
    upper = np.sqrt(2 * finite) + 40.0  # a ≤ −20 there: δ = 1 to the last digit
    z = ndtri(delta)
    start = z + np.sqrt(z**2 + 2 * finite)  # where Φ(−a) = δ

    def step(mu: Floats) -> tuple[Floats, Floats]:
        log_delta = log_delta_of(mu, finite)
        a = finite / np.maximum(mu, 1e-300) - mu / 2
        return target - log_delta, -np.exp(-(a**2) / 2 - np.log(2 * np.pi) / 2 - log_delta)

    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        found = _root(step, np.full_like(upper, 1e-300), upper, start)[0]
    return np.asarray(np.where(np.isfinite(epsilon), found, np.inf))


def mu_of_pure(epsilon: ArrayLike) -> Floats:
    """The smallest μ such that every pure ε-DP release is μ-GDP: 2 Φ⁻¹(e^ε/(1 + e^ε)).

    The worst such release is randomised response, whose trade-off curve has one corner, at false-alarm rate and miss
    rate 1/(1 + e^ε). A Gaussian's curve is convex and has the same ends, so it lies below all of it as soon as it
    passes through the corner, where Φ(μ/2) = e^ε/(1 + e^ε).

    >>> float(mu_of_pure(1.0).round(6)), float(mu_of_pure(0.0))
    (1.232035, 0.0)
    """
    epsilon = _not_negative("epsilon", epsilon)
    finite = np.where(np.isfinite(epsilon), epsilon, 0.0)
    found = -2 * ndtri_exp(-np.logaddexp(0.0, finite)) * (1 + 1e-13)  # never below it by rounding
    return np.asarray(np.where(np.isfinite(epsilon), np.where(finite > 0, found, 0.0), np.inf))


def _not_negative(name: str, given: ArrayLike) -> Floats:
    numbers = np.asarray(given, float)
    if np.any(numbers < 0) or np.any(np.isnan(numbers)):
        raise InputError(f"{name} must be >= 0, got {numbers}")
    return numbers


def _unit(delta: ArrayLike) -> Floats:
    delta = np.asarray(delta, float)
    if not np.all((delta > 0) & (delta < 1)):
        raise InputError(f"delta must be in (0, 1), got {delta}")
    return delta


def _root(
    step: Callable[[Floats], tuple[Floats, Floats]], lower: Floats, upper: Floats, start: Floats
) -> tuple[Floats, Floats]:
    """Brackets (below, above) of the root of a decreasing function, to rounding: Newton, safeguarded by bisection.

    `step` returns value and slope; value > 0 at `lower`, ≤ 0 at `upper`.
    """
    x = np.where((start > lower) & (start < upper), start, (lower + upper) / 2)
    for _ in range(200):
        value, slope = step(x)
        lower, upper = np.where(value > 0, x, lower), np.where(value > 0, upper, x)
        if np.all(upper - lower <= 2e-13 * np.abs(upper)):
            break
        newton = x - value / slope
        # a step just beyond the Newton point closes the bracket from the other side
        newton = newton + np.where(value > 0, 1, -1) * 5e-14 * np.abs(newton)
        inside = np.isfinite(newton) & (newton > lower) & (newton < upper)
        x = np.where(inside, newton, (lower + upper) / 2)
    return lower, upper
