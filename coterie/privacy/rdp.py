r"""Rényi curves D_α of single releases, and the conversion of a composed curve to (ε, δ).

Curve functions take parameters of shape (n,) and orders of shape (k,) and return (n, k); RDP adds over releases
chosen adaptively (Mironov 2017, Prop. 1). The conversion is Canonne, Kamath, Steinke 2020, Prop. 12:

    ε = min_α D_α + ln(1 − 1/α) − (ln δ + ln α)/(α − 1),

and ε = 0 where total variation already is below δ: TV² ≤ 1 − e^{−D_α} (Bretagnolle, Huber 1979; KL ≤ D_α).
"""

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln, log_ndtr

from coterie.errors import InputError
from coterie.privacy.profiles import Profile

__all__ = [
    "INTEGERS",
    "best_delta",
    "best_epsilon",
    "delta_from",
    "epsilon_from",
    "folded",
    "from_profile",
    "gaussian",
    "laplace",
    "log_inverse",
    "masked",
    "objective",
    "poisson_gaussian",
    "randomized_response",
    "symmetric_sampled_gaussian",
    "wbk_sampled_gaussian",
    "zcdp_epsilon",
    "zcdp_rho",
]

Floats = NDArray[np.float64]
Curve = Callable[[Floats], Floats]

# thinned: between large orders the curves hardly change
INTEGERS = np.array([*range(2, 33), *range(34, 65, 2), *range(72, 129, 8), *range(160, 257, 32)], float)
_GRID = 1 + np.geomspace(1e-3, 1e7, 161)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(200)
_PANEL, _PANEL_WEIGHTS = np.polynomial.legendre.leggauss(16)


# ---- conversion ----------------------------------------------------------------------------------------------------


def epsilon_from(orders: ArrayLike, curve: ArrayLike, delta: float) -> Floats:
    """ε at each order (not negative); the smallest is the answer."""
    orders, curve = np.asarray(orders, float), np.asarray(curve, float)
    eps = curve + np.log1p(-1 / orders) - (np.log(delta) + np.log(orders)) / (orders - 1)
    hidden = np.sqrt(-np.expm1(-curve)) <= delta
    return np.where(hidden, 0.0, np.maximum(eps, 0.0))


def delta_from(orders: ArrayLike, curve: ArrayLike, epsilon: float) -> Floats:
    """δ at each order; the smallest is the answer."""
    orders, curve = np.asarray(orders, float), np.asarray(curve, float)
    log_delta = (orders - 1) * (curve - epsilon + np.log1p(-1 / orders)) - np.log(orders)
    return np.minimum(np.exp(np.minimum(log_delta, 0.0)), np.sqrt(-np.expm1(-curve)))


def best_epsilon(curve: Curve, delta: float, *, integer: bool = False) -> float:
    """The smallest ε over all orders (dense grid, then refined), or over `INTEGERS`."""
    return _best(curve, lambda orders, values: epsilon_from(orders, values, delta), integer)


def best_delta(curve: Curve, epsilon: float, *, integer: bool = False) -> float:
    """The smallest δ over all orders (dense grid, then refined), or over `INTEGERS`."""
    return _best(curve, lambda orders, values: delta_from(orders, values, epsilon), integer)


def _best(curve: Curve, convert: Callable[[Floats, Floats], Floats], integer: bool) -> float:
    def value(orders: Floats) -> Floats:
        found = convert(orders, curve(orders))
        return np.where(np.isnan(found), np.inf, found)

    if integer:
        return float(np.min(value(INTEGERS)))
    orders = _GRID
    best = np.inf
    for _ in range(4):
        values = value(orders)
        at = int(np.argmin(values))
        best = min(best, float(values[at]))
        low, high = orders[max(at - 1, 0)], orders[min(at + 1, orders.size - 1)]
        orders = 1 + np.geomspace(low - 1, high - 1, 17)
    return best


def _log_sum(x: Floats, axis: int = -1) -> Floats:
    """ln Σ e^x; SciPy's spends more time on array-API dispatch than on the sum."""
    top = np.maximum(np.max(x, axis=axis, keepdims=True), -1e300)
    with np.errstate(divide="ignore"):
        return np.asarray(np.squeeze(top, axis) + np.log(np.sum(np.exp(x - top), axis=axis)))


# ---- curves --------------------------------------------------------------------------------------------------------


def gaussian(mu: Floats, orders: Floats) -> Floats:
    """α μ²/2."""
    return np.multiply.outer(mu**2 / 2, orders)


def randomized_response(epsilon: Floats, orders: Floats) -> Floats:
    """ln[(e^{αε} + e^{(1−α)ε})/(1 + e^ε)]/(α − 1): the exact worst case of pure ε-DP."""
    e, a = epsilon[:, None], orders[None, :]
    # ln[1 + (e^{(α−1)ε} − 1)(1 − e^{−αε})/(1 + e^{−ε})·e^{−…}]: written around 1 so that small ε keeps its digits
    with np.errstate(over="ignore"):
        excess = np.expm1((a - 1) * e) * -np.expm1(-a * e) / (1 + np.exp(-e))
        large = (a - 1) * e + np.log1p(np.exp((1 - 2 * a) * e)) - np.log1p(np.exp(-e))
        return np.where((a - 1) * e > 30, large, np.log1p(excess)) / (a - 1)


def laplace(shift: Floats, orders: Floats) -> Floats:
    """One Laplace coordinate, unit scale: ln[(α/(2α−1)) e^{(α−1)s} + ((α−1)/(2α−1)) e^{−αs}]/(α − 1)."""
    s, a = shift[:, None], orders[None, :]
    with np.errstate(over="ignore"):
        excess = (a * np.expm1((a - 1) * s) + (a - 1) * np.expm1(-a * s)) / (2 * a - 1)
        large = (a - 1) * s + np.log(a / (2 * a - 1)) + np.log1p((a - 1) / a * np.exp((1 - 2 * a) * s))
        # below 1e-4 the excess cancels: use its second-order bound D ≤ α (s + e^{−s} − 1) ≤ α s²/2
        small = a * s**2 / 2 * (a - 1)
        excess = np.where(a * s < 1e-5, np.maximum(excess, small), excess)
        return np.where((a - 1) * s > 30, large, np.log1p(excess)) / (a - 1)


def masked(mu: Floats, keep: Floats, orders: Floats) -> Floats:
    """Each coordinate is dropped with probability 1 − keep: ln(1 − c + c e^{α(α−1)μ²/2})/(α − 1).

    ln(1 − c + c e^x) is convex in x, so the worst gradient difference sits in one coordinate.
    """
    power = (orders[None, :] - 1) * gaussian(mu, orders)
    return _mixed(power, keep[:, None]) / (orders[None, :] - 1)


def _mixed(power: Floats, keep: Floats) -> Floats:
    """ln(1 − c + c e^x)."""
    with np.errstate(over="ignore", divide="ignore"):
        return np.where(
            power > 30, power + np.log(keep + (1 - keep) * np.exp(-power)), np.log1p(keep * np.expm1(power))
        )


def objective(gradient: Floats, kappa: Floats, directions: int, orders: Floats) -> Floats:
    """Objective perturbation of any convex GLM, theorem (B); `gradient` = gradient gap over the noise std.

    With g the gap, k `directions` spanned by the changed records (2 for replace-one, 1 for zero-out), u = 2(α−1)κ <
    1: ln(1+κ) + g²/2 + (α−1) g²/(2(1−u)) − (k/2) ln(1−u)/(α−1); infinite from u = 1.
    """
    g, kap, a = gradient[:, None], kappa[:, None], orders[None, :]
    u = 2 * (a - 1) * kap
    inside = np.where(u < 1, u, 0.0)
    value = np.log1p(kap) + g**2 / 2 + (a - 1) * g**2 / (2 * (1 - inside))
    return np.where(u < 1, value - directions / 2 * np.log1p(-inside) / (a - 1), np.inf)


def folded(gradient: Floats, kappa: Floats, orders: Floats) -> Floats:
    """Objective perturbation, folded normal: ln(1+κ) + g²/2 + ln E e^{(α−1)g|Z|}/(α−1), E e^{t|Z|} = 2e^{t²/2}Φ(t)."""
    g, a = gradient[:, None], orders[None, :]
    t = (a - 1) * g
    return np.log1p(kappa)[:, None] + g**2 / 2 + (t**2 / 2 + np.log(2) + log_ndtr(t)) / (a - 1)


def poisson_gaussian(noise_multiplier: Floats, rate: Floats, keep: Floats, orders: Floats) -> Floats:
    """Poisson batches, add/remove, integer orders: ln Σ_l C(α,l)(1−q)^{α−l} q^l e^{l(l−1)/(2ν²)}/(α−1), then the mask.

    Exact for Gaussian noise (Mironov, Talwar, Zhang 2019) and valid for discrete Gaussian noise, whose integer
    moments are no larger (Canonne, Kamath, Steinke 2020, Prop. 5).
    """
    out = np.empty((rate.size, orders.size))
    with np.errstate(divide="ignore"):
        log_q, log_p = np.log(rate), np.log1p(-rate)
    for j, a in enumerate(orders):
        l = np.arange(a + 1)
        binomial = gammaln(a + 1) - gammaln(l + 1) - gammaln(a - l + 1)
        left = np.where(a - l > 0, (a - l) * np.where(np.isfinite(log_p), log_p, -1e300)[:, None], 0.0)
        weights = binomial + left + l * log_q[:, None]
        terms = weights + l * (l - 1) / (2 * noise_multiplier[:, None] ** 2)
        # the weights alone sum to 1: keep what exceeds them, w_l (e^{l(l−1)/(2ν²)} − 1)
        gain = (l * (l - 1) / (2 * noise_multiplier[:, None] ** 2))[:, 2:]
        whole = np.exp(np.minimum(terms[:, 2:], 30.0))
        excess = np.where(gain > 30, whole, np.exp(weights[:, 2:]) * np.expm1(np.minimum(gain, 30.0)))
        log_a = np.where(np.max(terms, axis=1) > 30, _log_sum(terms, axis=1), np.log1p(excess.sum(axis=1)))
        out[:, j] = _mixed(np.maximum(log_a, 0.0), keep) / (a - 1)
    return out


def wbk_sampled_gaussian(noise_multiplier: float, rate: float, orders: Floats) -> Floats:
    """Batches without replacement, replace-one, integer orders, by Wang, Balle, Kasiviswanathan 2019, Thm 27.

    e^{(α−1)D} = 1 + q² C(α,2) min(4(e^{1/ν²} − 1), 2e^{1/ν²}) + Σ_{j≥3} q^j C(α,j) min(4 √(B_{2⌊j/2⌋} B_{2⌈j/2⌉}),
    2e^{j(j−1)/2ν²}), with ν noise std over sensitivity. Valid for discrete Gaussian noise too. B_m = E(L − 1)^m, L the
    ratio of the densities of N(1, ν²) and N(0, ν²), are integrals of positive functions here: as finite differences
    of e^{j(j−1)/2ν²}, which is how dp-accounting computes them, they cancel, and take O(α²) steps at each order.
    """
    return np.array(_wbk(float(noise_multiplier), float(rate), tuple(orders)))


@lru_cache(maxsize=256)
def _wbk(nu: float, q: float, orders: tuple[float, ...]) -> tuple[float, ...]:
    if q in (0.0, 1.0):
        return tuple(q * a / (2 * nu**2) for a in orders)
    j = np.arange(2, max(orders) + 1)
    plain = np.log(2) + j * (j - 1) / (2 * nu**2)
    even = _log_even_moments(nu, int(max(orders)) + 1)
    close = np.log(4) + (even[(j // 2).astype(int)] + even[((j + 1) // 2).astype(int)]) / 2
    terms = np.minimum(plain, close) + j * np.log(q)
    out = []
    for a in orders:
        own = j <= a
        binomial = gammaln(a + 1) - gammaln(j[own] + 1) - gammaln(a - j[own] + 1)
        out.append(float(np.logaddexp(0, _log_sum(terms[own] + binomial)) / (a - 1)))
    return tuple(out)


def _log_even_moments(nu: float, largest: int) -> Floats:
    """ln B_m for m = 0, 2, 4, … up to `largest`; ∞ above 256, and for ν < 0.2, where 2 E L^m ≈ 2 B_m is less anyway."""
    out = np.full(largest // 2 + 1, np.inf)
    m = np.arange(0, min(largest, 256) + 1, 2)
    if nu < 0.2:
        return out
    reach = (np.sqrt(m[-1]) + 12) * nu  # (L − 1)^m is about (x/ν²)^m for large ν, and peaks at x = m for small ν
    width = min(nu, 4 * nu**2)
    edges = np.arange(-reach, m[-1] + reach, width)
    x = (edges[:, None] + width * (1 + _PANEL) / 2).ravel()
    base = np.tile(np.log(width / 2 * _PANEL_WEIGHTS), edges.size) - x**2 / (2 * nu**2)
    loss = (2 * x - 1) / (2 * nu**2)
    with np.errstate(divide="ignore"):
        gap = np.maximum(loss, 0) + np.log(-np.expm1(-np.abs(loss)))  # ln |L − 1|
    out[: m.size] = [_log_sum(base + k * gap) - np.log(nu * np.sqrt(2 * np.pi)) for k in m]
    return out


def symmetric_sampled_gaussian(noise_multiplier: float, rate: float, orders: Floats) -> Floats:
    """Batches without replacement, replace-one, continuous noise, any order: the Rényi curve of the symmetric pair.

    e^{(α−1)D} − 1 = ∫_{l>0} (e^{(α−1)l} − 1 + e^{−αl} − e^{−l}) dP(l), l(x) = ln(1 − q + q e^{(2x−1)/(2ν²)}), over
    the law P = (1−q) N(0, ν²) + q N(1, ν²) on x > ½. Orders above 256 and ν below 0.05 are not
    computed (∞).
    """
    q, nu = rate, noise_multiplier
    out = np.full(orders.size, np.inf)
    usable = (orders <= 256) & (nu >= 0.05)
    if not usable.any():
        return out
    top = float(orders[usable].max()) + 12 * nu
    width = min(nu, 4 * nu**2)  # the densities vary over ν, the loss over ν²
    edges = 0.5 + np.arange(0, top / width + 1) * width
    x = (edges[:-1, None] + width * (1 + _PANEL) / 2).ravel()
    weight = np.tile(width / 2 * _PANEL_WEIGHTS, edges.size - 1)
    t = (2 * x - 1) / (2 * nu**2)
    with np.errstate(divide="ignore"):
        far = np.logaddexp(np.log1p(-q), np.log(q) + t)
    loss = np.where(t > 30, far, np.log1p(q * np.expm1(np.minimum(t, 30))))
    base = -(x**2) / (2 * nu**2) - np.log(nu * np.sqrt(2 * np.pi)) + loss + np.log(weight)
    top_mass, fall = float(base.max()), np.expm1(-loss)
    mass = np.exp(base - top_mass)
    for j in np.flatnonzero(usable):
        s = orders[j] - 1
        near = int(np.searchsorted(loss, 30 / s))  # losses rise with x; beyond, only e^{(α−1)l} counts
        small = np.maximum(np.expm1(s * loss[:near]) + np.expm1(-(s + 1) * loss[:near]) - fall[:near], 0.0)
        with np.errstate(divide="ignore"):
            total = np.log(mass[:near] @ small) + top_mass
        if near < loss.size:
            total = np.logaddexp(total, _log_sum(base[near:] + s * loss[near:]))
        out[j] = np.logaddexp(0, total) / s if total > -30 else np.exp(total) / s
    return out


def from_profile(profile: Profile, orders: Floats) -> Floats:
    """The Rényi curve of a symmetric pair with bounded loss, from its profile.

    e^{(α−1)D} − 1 = α(α−1) ∫_0^top (e^{(α−1)ε} + e^{−αε}) δ(ε) dε (the f-divergence of x^α in hockey sticks): every
    term is positive. Never above the pure bound `top`, which stands alone where (α−1)·top > 500.
    """
    if profile.top < 1e-100:
        return np.minimum(orders * profile.top**2 / 2, profile.top)  # any pure pair; below, squares underflow
    eps = profile.top * (1 + _NODES) / 2
    with np.errstate(divide="ignore"):
        log_mass = np.log(profile.delta(eps)) + np.log(_WEIGHTS * profile.top / 2)
    a = np.minimum(orders, 1 + 500 / profile.top)[:, None]
    log_sum = _log_sum(np.logaddexp((a - 1) * eps, -a * eps) + log_mass, axis=1) + np.log(a * (a - 1))[:, 0]
    with np.errstate(over="ignore"):
        log_a = np.where(log_sum > 30, log_sum, np.log1p(np.exp(np.minimum(log_sum, 30))))
    value = np.minimum(log_a / (a[:, 0] - 1), profile.top)
    return np.where((orders - 1) * profile.top > 500, profile.top, value)


def zcdp_epsilon(rho: float, delta: float) -> float:
    """ρ + 2√(ρ ln 1/δ), the conversion printed nearly everywhere (Bun, Steinke 2016, Prop. 1.3): valid, loose."""
    return rho + 2 * float(np.sqrt(rho * log_inverse(delta)))


def zcdp_rho(epsilon: float, delta: float) -> float:
    """Its inverse, (√(L + ε) − √L)² with L = ln 1/δ.

    >>> round(zcdp_rho(1.0, 1e-4), 7)
    0.0257628
    """
    log = log_inverse(delta)
    return float((epsilon / (np.sqrt(log + epsilon) + np.sqrt(log))) ** 2)


def log_inverse(delta: float) -> float:
    """ln 1/δ."""
    if not 0 < delta < 1:
        raise InputError(f"delta must be in (0, 1), got {delta}")
    return float(-np.log(delta))
