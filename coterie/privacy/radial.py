r"""The Rényi curve of noise of density ∝ e^{−‖x‖} in R^d moved by s: a closed form, never rounded down.

With the two worlds' points as foci, ξ = (‖x‖ + ‖x−s‖)/s ≥ 1 and η = (‖x‖ − ‖x−s‖)/s in [−1, 1] are elliptic
coordinates, the volume is ∝ (ξ² − η²) [(ξ² − 1)(1 − η²)]^{(d−3)/2} dξ dη, and p^α q^{1−α} ∝ e^{−aξ − bη}, a = s/2,
b = (2α−1)a: a product. As ξ² − η² = (ξ² − 1) + (1 − η²), the integrals are Bessel functions of orders ν = d/2 − 1 and
ν + 1 (DLMF 10.32.2, 10.32.8), the constant is their Wronskian, and

    e^{(α−1)D_α} = a (a/b)^ν [K_{ν+1}(a) I_ν(b) + (a/b) K_ν(a) I_{ν+1}(b)].

(d = 1: the curve of `rdp.laplace`.) Shorter shifts cost less, by the monotone-shift lemma. Of three bounds the least
counts:

- Expanding I in powers, e^{(α−1)D} = Σ_k u_k t^{2k} / Σ_k u_k with t = 2α−1, ρ = K_ν(a)/K_{ν+1}(a) and
  u_k = (a²/4)^k (1 + ρa/(2(ν+k+1)))/(k! Γ(ν+k+1)): nothing cancels. Where ρ is smaller, weight moves to
  larger k: a lower bound of ρ gives an upper bound. What a window of terms leaves out is at most a geometric series;
  sums below the line only lose. Rounding is counted at 16 half units in the last place of every logarithm, and added.
- D_α ≤ α s²/(2d): d/db ln b^{−ν}[…] lies between I_{ν+2}/I_{ν+1} and I_{ν+1}/I_ν at b, both at most b/d.
- Where the series would be too long: (α−1)D_α is convex in α with a slope of at most s, and D_α ≤ s.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, k0e, k1e

__all__ = ["renyi", "zcdp"]

Floats = NDArray[np.float64]
_MOST = 20_000  # terms of a series
_STEPS = 501  # of the recurrence for K_{ν+1}/K_ν: odd, so that a lower bound becomes an upper one
_UNIT = 16 * 2.0**-53


def zcdp(shift: Floats, dim: int) -> Floats:
    """ρ such that D_α ≤ ρα at every α: s²/(2d)."""
    return np.asarray(shift**2 / (2 * dim) * (1 + 1e-15))


def renyi(shift: Floats, dim: int, orders: Floats) -> Floats:
    """An upper bound of D_α, tight to rounding wherever the series is summed: shape (shifts, orders); dim ≥ 2."""
    simple = np.minimum(np.multiply.outer(zcdp(shift, dim), orders), shift[:, None])
    for row, s in enumerate(shift):
        if 1e-150 < s < np.inf:
            simple[row] = np.minimum(simple[row], _series(float(s), dim, orders))
    return simple


def _series(s: float, dim: int, orders: Floats) -> Floats:
    a, nu = s / 2, dim / 2 - 1
    last = _MOST - _width(_MOST, nu)  # the largest peak whose window fits
    t_most = np.sqrt(4 * last * (last + nu)) / a  # of the order that has it
    if t_most <= 1:
        return np.full(orders.size, np.inf)
    t = np.minimum(2 * orders - 1, t_most)
    k = np.arange(min(_MOST, _window(a * float(t.max()), nu)[1]) + 1.0)
    pieces = 2 * k * np.log(a / 2), gammaln(k + 1), gammaln(nu + k + 1)
    logs = pieces[0] - pieces[1] - pieces[2] + np.log1p(a / _ratio_above(nu, a) / (2 * (nu + k + 1)))
    sizes = sum((np.abs(piece) for piece in pieces), np.ones(k.size))
    from_, to = _window(a, nu)
    below = logs[from_ : to + 1]
    high = float(below.max())
    whole = float(np.exp(below - high).sum())  # too small, if anything
    found = np.array([_grown(logs, sizes, high, whole, from_, a, nu, float(x)) for x in t])
    # beyond the longest series: convex, with a slope of at most s
    wanted, had = orders - 1, (t - 1) / 2
    return np.asarray((found + np.maximum(wanted - had, 0.0) * s) / wanted * (1 + _UNIT))


def _grown(logs: Floats, sizes: Floats, high: float, whole: float, from_: int, a: float, nu: float, t: float) -> float:
    """ln Σ u_k t^{2k} − ln Σ u_k, at least; `whole` e^`high` is the second sum, whose terms begin at `from_`."""
    b = a * t
    start, end = _window(b, nu)
    start = min(start, from_)
    own, k = slice(start, end + 1), np.arange(float(start), end + 1.0)
    rise = 2 * k * np.log(t)
    terms = logs[own] + rise - high
    top = float(terms.max())
    error = float(_UNIT * ((sizes[own] + rise).max() + sizes.max() + k.size))
    up = (b / 2) ** 2 / ((end + 1) * (nu + end + 1))  # at most the ratio of the next term to the last
    down = start * (nu + start + 1) / (b / 2) ** 2  # and of the one before to the first
    rest = float(np.exp(terms[-1] - top) * up / (1 - up) + np.exp(terms[0] - top) * down / (1 - down))
    total = float(np.exp(terms - top).sum()) + rest
    value = top + np.log(total / whole)
    if value > 1:
        return float(value + 2 * error)
    # near 1 only what exceeds it is summed
    more = np.where(rise > 30, np.exp(terms), np.exp(logs[own] - high) * np.expm1(np.minimum(rise, 30)))
    excess = float(more.sum()) + rest * float(np.exp(top))
    return float(np.log1p(excess / whole * (1 + 4 * error)))


def _width(k: float, nu: float) -> int:
    """Half the window around a peak at k: nine standard deviations of the terms' law, and some for a small k."""
    return 60 + int(9 * np.sqrt(k * (k + nu) / (2 * k + nu + 1)))


def _window(b: float, nu: float) -> tuple[int, int]:
    """First and last k of the terms of Σ (b²/4)^k/(k! Γ(ν+k+1)) that count: around k(k + ν) = b²/4."""
    peak = (b / 2) ** 2 / (nu / 2 + np.hypot(nu / 2, b / 2))
    half = _width(float(peak), nu)
    return max(int(peak) - half, 0), int(peak) + half


def _ratio_above(nu: float, x: float) -> float:
    """K_{ν+1}(x)/K_ν(x), at least: h_ν = 2ν/x + 1/h_{ν−1} from where h is known, or from h_μ ≥ (μ + √(μ² + x²))/x.

    (That holds for every real μ, since h rises with μ.)
    """
    steps = int(nu + 0.5)
    if steps <= _STEPS:
        h = 1.0 if 2 * nu % 2 else float(k1e(x) / k0e(x))
        orders = [nu - steps + 1 + i for i in range(steps)] if 2 * nu % 2 else [i + 1.0 for i in range(int(nu))]
    else:
        first = nu - _STEPS
        h = (first + np.hypot(first, x)) / x
        orders = [first + 1 + i for i in range(_STEPS)]
    for order in orders:
        h = 2 * order / x + 1 / h
    return float(h * (1 + 1e-13))
