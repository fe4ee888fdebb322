r"""From a budget to noise: the smallest multiplier whose events fit (ε, δ), never one that overspends.

Gaussian events whose μ is inversely proportional to the multiplier have a closed form; anything else is a root in ln
z of the tightest accountant's ε, and the answer returned is always one that was checked.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coterie.errors import InputError
from coterie.privacy import gdp, schedules
from coterie.privacy.accountants import account, total_mu
from coterie.privacy.events import Event
from coterie.privacy.roots import brentq

__all__ = ["TOLERANCE", "calibrate", "noise_for", "pure_noise_for"]

TOLERANCE = 1e-4  # relative, of the multiplier, where there is no closed form


def calibrate(
    make_events: Callable[[float], Sequence[Event]],
    epsilon: float,
    delta: float,
    *,
    lower: float = 1e-6,
    upper: float = 1e12,
) -> float:
    """The smallest multiplier z in [lower, upper] such that `make_events(z)` costs at most (ε, δ).

    More noise must not cost more. Exact for Gaussian events with μ ∝ 1/z, else within 1e-4 above the smallest.

    >>> from coterie.privacy.events import Gaussian
    >>> round(calibrate(lambda z: [Gaussian(1.0, z, times=50)], 1.0, 1e-5), 4)
    26.3795
    """
    _check_budget(epsilon, delta)
    if not 0 < lower < upper:
        raise InputError(f"lower and upper must satisfy 0 < lower < upper, got {lower} and {upper}")
    closed = _closed_form(make_events, epsilon, delta) if delta > 0 else None
    if closed is not None and lower <= closed <= upper:
        return closed

    spent: dict[float, float] = {}

    def excess(log_z: float) -> float:
        """ln of spent over allowed, kept finite so that the root finder can use it."""
        if log_z not in spent:
            spent[log_z] = account(make_events(float(np.exp(log_z))), delta, fast=True).epsilon
        return float(np.clip(np.log(max(spent[log_z], 1e-300) / epsilon), -50.0, 50.0))

    low, high = _bracket(excess, float(np.log(lower)), float(np.log(upper)))
    if high is None:
        least = spent[float(np.log(upper))]
        raise InputError(f"budget too small: noise multiplier {upper:g} still spends epsilon {least:.4g} > {epsilon:g}")
    if low is None:
        return float(np.exp(high))
    brentq(excess, low, high, xtol=TOLERANCE / 2)
    fits = min(log_z for log_z, eps in spent.items() if eps <= epsilon)
    breaks = max(log_z for log_z, eps in spent.items() if eps > epsilon and log_z < fits)
    while fits - breaks > TOLERANCE:  # the root finder may have stopped with its last points on one side
        middle = max((fits + breaks) / 2, fits - TOLERANCE)
        if excess(middle) <= 0:
            fits = middle
        else:
            breaks = middle
    return float(np.exp(fits))


def noise_for(
    rounds: int,
    epsilon: float,
    delta: float,
    sensitivity: ArrayLike = 1.0,
    schedule: str | ArrayLike = "uniform",
    **params: float,
) -> NDArray[np.float64]:
    """Gaussian noise std of each round that spends exactly (ε, δ) on `rounds` releases: σ_t = (√T/μ)·s_t·Δ_t.

    `sensitivity` is one number or one per round, `schedule` a name (its parameters as keywords) or the vector itself.

    >>> noise_for(2, 1.0, 1e-5, 0.5).round(4).tolist()
    [2.638, 2.638]
    """
    _check_budget(epsilon, delta)
    if delta == 0:
        raise InputError(
            "delta must be in (0, 1) for Gaussian noise, which has no pure guarantee, got 0: see pure_noise_for"
        )
    shape, gaps = _by_round(rounds, sensitivity, schedule, **params)
    mu = float(gdp.mu_for(epsilon, delta))
    with np.errstate(over="ignore", divide="ignore"):
        sigma = np.sqrt(np.sum(1 / shape**2)) / mu * shape * gaps
    if not np.all(np.isfinite(sigma)):
        raise InputError(f"budget too small to represent: epsilon {epsilon:g}, delta {delta:g} over {rounds} rounds")
    return sigma


def pure_noise_for(
    rounds: int, epsilon: float, sensitivity: ArrayLike = 1.0, schedule: str | ArrayLike = "uniform", **params: float
) -> NDArray[np.float64]:
    """Laplace scale of each round that spends exactly ε at δ = 0 on `rounds` releases: b_t = (Σ_s 1/s_s / ε)·s_t·Δ_t.

    `sensitivity` is that in the L1 norm; arguments are those of `noise_for`.

    >>> pure_noise_for(2, 1.0, 0.5).tolist()
    [1.0, 1.0]
    """
    _check_budget(epsilon, 0.0)
    shape, gaps = _by_round(rounds, sensitivity, schedule, **params)
    with np.errstate(over="ignore", divide="ignore"):
        scale = np.sum(1 / shape) / epsilon * shape * gaps
    if not np.all(np.isfinite(scale)):
        raise InputError(f"budget too small to represent: epsilon {epsilon:g} over {rounds} rounds")
    return scale


def _by_round(
    rounds: int, sensitivity: ArrayLike, schedule: str | ArrayLike, **params: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Relative noise and sensitivity of each round."""
    shape = schedules.make(schedule, rounds, **params) if isinstance(schedule, str) else np.asarray(schedule, float)
    gaps = np.asarray(sensitivity, float)
    gaps = np.full(shape.shape, gaps) if gaps.ndim == 0 else gaps
    if shape.shape != (rounds,) or not np.all((shape > 0) & np.isfinite(shape)):
        raise InputError(f"schedule must be {rounds} positive numbers, got shape {shape.shape}")
    if gaps.shape != (rounds,) or not np.all((gaps >= 0) & np.isfinite(gaps)):
        raise InputError(f"sensitivity must be >= 0, one number or {rounds}, got {gaps}")
    return shape, gaps


def _check_budget(epsilon: float, delta: float) -> None:
    if not (epsilon > 0 and np.isfinite(epsilon)):
        raise InputError(f"epsilon must be > 0 and finite, got {epsilon}")
    if not 0 <= delta < 1:
        raise InputError(f"delta must be in (0, 1), got {delta}")


def _closed_form(make_events: Callable[[float], Sequence[Event]], epsilon: float, delta: float) -> float | None:
    """z = μ(1)/μ* if all events are Gaussian and their μ is proportional to 1/z, checked at the answer."""
    first = total_mu(make_events(1.0))
    if first is None or first == 0:
        return None
    exact = first / float(gdp.mu_for(epsilon, delta))
    for surplus in (0.0, 1e-12, 1e-9, 1e-6):  # rounding in the events' own arithmetic may cost the last digits
        z = exact * (1 + surplus)
        mu = total_mu(make_events(z)) if np.isfinite(z) else None
        if mu is None or not np.isclose(mu * z, first, rtol=1e-6):
            return None
        if gdp.epsilon_of(mu, delta) <= epsilon:
            return float(z)
    return None


def _bracket(excess: Callable[[float], float], least: float, most: float) -> tuple[float | None, float | None]:
    """Points (too little noise, enough noise); None where the interval has no such point."""
    at = float(np.clip(0.0, least, most))
    step = 1.0
    if excess(at) <= 0:
        high = at
        while at > least:
            at, step = max(at - step, least), 2 * step
            if excess(at) > 0:
                return at, high
            high = at
        return None, high
    low = at
    while at < most:
        at, step = min(at + step, most), 2 * step
        if excess(at) <= 0:
            return low, at
        low = at
    return low, None
