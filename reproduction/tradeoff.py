r"""Choosing a privacy level α from measured losses (Zhang, Zhu: the optimal privacy level).

Losses measured at some levels are fitted by L(α) = c₄ e^{−c₅α} + c₆. Privacy is worth U(α) = ω₁ ln(ω₂/(ω₃α + ω₄α²)),
more the smaller α is, and the level chosen minimises L(α) − U(α) over low ≤ α ≤ high with L(α) ≤ c₃. U has no upper
bound as α → 0, so one of `low` and c₃ must keep α away from there: without them the infimum is at 0. Stationary points
solve c₄c₅ e^{−c₅α} = ω₁ (ω₃ + 2ω₄α)/(ω₃α + ω₄α²); the paper prints ω₃ − 2ω₄α.

Losses measured on private data are private: choose with public or synthetic data, or pay for the choice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq, minimize_scalar, nnls

from coterie.errors import InputError

__all__ = ["WEIGHTS", "Fit", "Tradeoff", "choose_level", "fit_losses", "optimum"]

Floats = NDArray[np.float64]
WEIGHTS = (0.02, 6.0, 9.0, 1.0)  # ω₁ … ω₄ of the paper's experiments


@dataclass(frozen=True)
class Fit:
    """L(α) = drop · e^{−rate·α} + floor, and the root mean square of what it leaves unexplained."""

    drop: float
    rate: float
    floor: float
    error: float = 0.0

    def __call__(self, alpha: ArrayLike) -> Floats:
        """L(α)."""
        return self.drop * np.exp(-self.rate * np.asarray(alpha, float)) + self.floor


@dataclass(frozen=True)
class Tradeoff:
    """The level chosen, and all that a plot of the choice needs."""

    alpha: float
    binding: Literal["none", "low", "high", "max_loss"]  # what stopped it; "none": an inner optimum
    fit: Fit
    weights: tuple[float, float, float, float]
    low: float
    high: float
    max_loss: float | None
    alphas: Floats  # the measured points
    losses: Floats

    def utility(self, alpha: ArrayLike) -> Floats:
        """U(α): what privacy at level α is worth."""
        return _utility(self.weights, alpha)

    def objective(self, alpha: ArrayLike) -> Floats:
        """L(α) − U(α), of which `alpha` is the minimiser."""
        return self.fit(alpha) - self.utility(alpha)


def choose_level(
    alphas: ArrayLike,
    losses: ArrayLike,
    *,
    weights: tuple[float, float, float, float] = WEIGHTS,
    low: float | None = None,
    high: float | None = None,
    max_loss: float | None = None,
    floor: float | None = None,
) -> Tradeoff:
    """Fit losses against levels and choose the level that trades them best.

    `low`, `high`: the range of levels (default: that of the measurements). `max_loss`: c₃, the largest tolerable
    loss. `floor`: c₆ if it is known, e.g. the loss without noise; fitted otherwise.
    """
    levels, values = np.asarray(alphas, float).ravel(), np.asarray(losses, float).ravel()
    fit = fit_losses(levels, values, floor)
    low = float(levels.min()) if low is None else low
    high = float(levels.max()) if high is None else high
    alpha, binding = optimum(fit, weights, low, high, max_loss)
    return Tradeoff(alpha, binding, fit, weights, low, high, max_loss, levels, values)


def fit_losses(alphas: ArrayLike, losses: ArrayLike, floor: float | None = None) -> Fit:
    """Least squares with drop ≥ 0: for each rate the other two are linear, so only the rate is searched.

    >>> a = np.array([0.02, 0.05, 0.1, 0.3, 1.0])
    >>> fit = fit_losses(a, 0.2 * np.exp(-25 * a) + 0.3)
    >>> round(fit.drop, 6), round(fit.rate, 4), round(fit.floor, 6)
    (0.2, 25.0, 0.3)
    """
    x, y = np.asarray(alphas, float).ravel(), np.asarray(losses, float).ravel()
    need = 2 if floor is not None else 3
    if x.size != y.size or np.unique(x).size < need:
        raise InputError(f"a fit needs at least {need} levels and as many losses, got {x.size} and {y.size}")
    if not (np.all(x > 0) and np.all(np.isfinite(x)) and np.all(np.isfinite(y))):
        raise InputError("levels must be > 0 and losses finite")

    def solve(log_rate: float) -> tuple[float, float, float]:
        shape = np.exp(-np.exp(log_rate) * x)
        if floor is not None:
            drop = max(float(shape @ (y - floor) / max(shape @ shape, 1e-300)), 0.0)
            return drop, floor, float(np.linalg.norm(drop * shape + floor - y))
        base = y.min() - np.ptp(y) - 1.0  # the floor may be negative; drop may not
        (drop, above), residual = nnls(np.stack([shape, np.ones_like(x)], axis=1), y - base)
        return float(drop), float(above + base), float(residual)

    # rates at which the curve bends within the levels measured
    grid = np.linspace(np.log(0.01 / x.max()), np.log(30 / x.min()), 200)
    best = grid[np.argmin([solve(g)[2] for g in grid])]
    step = grid[1] - grid[0]
    found = minimize_scalar(
        lambda g: solve(g)[2], bounds=(best - step, best + step), method="bounded", options={"xatol": 1e-10}
    )
    drop, level, residual = solve(float(found.x))
    return Fit(drop, float(np.exp(found.x)), level, residual / x.size**0.5)


def optimum(
    fit: Fit,
    weights: tuple[float, float, float, float],
    low: float,
    high: float,
    max_loss: float | None = None,
) -> tuple[float, Literal["none", "low", "high", "max_loss"]]:
    """(α*, what stopped it): the least L(α) − U(α) on [low, high] where L(α) ≤ max_loss.

    >>> alpha, _ = optimum(Fit(0.2, 25.0, 0.0), WEIGHTS, low=0.01, high=1.0)
    >>> round(alpha, 4)
    0.1422
    """
    if not 0 < low <= high < np.inf:
        raise InputError(f"levels must satisfy 0 < low <= high, got {low} and {high}")
    if len(weights) != 4 or min(weights[:3]) <= 0 or weights[3] < 0:
        raise InputError(f"weights must be four numbers > 0 (the last >= 0), got {weights}")
    start = low
    if max_loss is not None:
        if fit(high) > max_loss:
            raise InputError(f"no level up to {high:g} reaches loss {max_loss:g}: the fit gives {fit(high):.4g} there")
        if fit(low) > max_loss:
            start = float(np.log(fit.drop / (max_loss - fit.floor)) / fit.rate)

    def slope(alpha: float) -> float:
        _, _, w3, w4 = weights
        gain = weights[0] * (w3 + 2 * w4 * alpha) / (w3 * alpha + w4 * alpha**2)
        return float(gain - fit.drop * fit.rate * np.exp(-fit.rate * alpha))

    # α·slope has at most a few sign changes: bracket them on a fine grid, then solve
    grid = np.geomspace(start, high, 2001) if high > start else np.array([start])
    signs = np.sign([slope(a) for a in grid])
    turns = [
        brentq(slope, grid[i], grid[i + 1], xtol=1e-14) for i in np.flatnonzero((signs[:-1] < 0) & (signs[1:] > 0))
    ]
    found: list[tuple[float, Literal["none", "low", "high", "max_loss"]]] = [(float(t), "none") for t in turns]
    found += [(start, "max_loss" if start > low else "low"), (high, "high")]
    return min(found, key=lambda pair: float(fit(pair[0]) - _utility(weights, pair[0])))


def _utility(weights: tuple[float, float, float, float], alpha: ArrayLike) -> Floats:
    a = np.asarray(alpha, float)
    return np.asarray(weights[0] * np.log(weights[1] / (weights[2] * a + weights[3] * a**2)))
