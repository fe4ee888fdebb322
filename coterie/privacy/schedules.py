r"""How a budget is spread over rounds: the noise of each round relative to its sensitivity.

A schedule is a positive vector s of length T; round t draws noise of std z·s_t·Δ_t, with Δ_t the sensitivity of that
round and z one multiplier for the whole run. All are normalised to Σ 1/s_t² = T, so that at equal z all cost the
same, μ² = T/z², and choosing among them is a question of utility alone.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coterie.errors import InputError

__all__ = ["NAMES", "iteration", "make", "optimal", "periodic", "periodic_total", "power", "uniform"]

Floats = NDArray[np.float64]


def uniform(rounds: int) -> Floats:
    """The same noise every round: the least Σσ² of all schedules at a given budget (Cauchy-Schwarz)."""
    return _normalised(np.zeros(_rounds(rounds)))


def periodic(rounds: int, rate: float = 0.925, period: int = 1) -> Floats:
    """PR-ADMM's periodic decay: variance v_{k+1} = rate^⌊k/period⌋, k = 0…T−1 (rate 1 is uniform)."""
    _positive("rate", rate)
    if not (period >= 1 and period == int(period)):
        raise InputError(f"period must be a whole number >= 1, got {period}")
    return _normalised(np.log(rate) * (np.arange(_rounds(rounds)) // int(period)))


def iteration(rounds: int, rate: float = 0.015) -> Floats:
    """PR-ADMM's iteration-based decay: v_1 = 1, v_{k+1} = 1/(rate·k(k+1)) for k ≥ 1 (as printed k = 0 divides by zero).

    With a small rate the variance first rises: by 33 at round 2 for the published 0.015.
    """
    _positive("rate", rate)
    k = np.arange(1, _rounds(rounds), dtype=float)
    return _normalised(np.concatenate([[0.0], -np.log(rate * k * (k + 1))]))


def power(rounds: int, exponent: float = -1.5, sensitivity: float = -1.0) -> Floats:
    """Absolute variance ∝ t^exponent where the sensitivity falls as t^sensitivity.

    The defaults are Showkatbakhsh, Karakus and Diggavi's: step sizes η_t ∝ 1/t make Δ_t ∝ 1/t, and variance t^{−3/2}
    minimises their bound. Relative to the sensitivity the std is t^{exponent/2 − sensitivity} = t^{1/4}: it *rises*.
    Give the actual Δ_t to the noise; a constant Δ_t turns this schedule into that relative one.
    """
    if not (np.isfinite(exponent) and np.isfinite(sensitivity)):
        raise InputError(f"exponent and sensitivity must be finite, got {exponent} and {sensitivity}")
    return _normalised((exponent - 2 * sensitivity) * np.log(np.arange(1, _rounds(rounds) + 1)))


def optimal(rounds: int, contraction: float = 0.95, sensitivity: ArrayLike | None = None) -> Floats:
    """Least final error when the iteration contracts errors by `contraction` each round.

    Noise of round t reaches the end with weight w_t = contraction^{2(T−t)}. Minimising Σ w_t σ_t² at fixed Σ
    Δ_t²/σ_t² gives σ_t² ∝ Δ_t/√w_t; with constant sensitivity the variance falls by `contraction` each round.
    `sensitivity`: Δ_t up to a factor. The contraction must come from public bounds.
    """
    rounds = _rounds(rounds)
    if not 0 < contraction <= 1:
        raise InputError(f"contraction must be in (0, 1], got {contraction}")
    gaps = np.ones(rounds) if sensitivity is None else np.asarray(sensitivity, float)
    if gaps.shape != (rounds,) or not np.all((gaps > 0) & np.isfinite(gaps)):
        raise InputError(f"sensitivity must be {rounds} positive numbers, got {gaps}")
    to_go = np.arange(rounds - 1, -1, -1)
    return _normalised(-np.log(gaps) - to_go * np.log(contraction))


NAMES: dict[str, Callable[..., Floats]] = {
    "uniform": uniform,
    "periodic": periodic,
    "iteration": iteration,
    "power": power,
    "optimal": optimal,
}


def make(name: str, rounds: int, **params: float) -> Floats:
    """The schedule of that name.

    >>> make("periodic", 3, rate=0.5).round(3).tolist()
    [1.528, 1.08, 0.764]
    """
    if name not in NAMES:
        raise InputError(f"schedule must be one of {', '.join(NAMES)}, got {name!r}")
    try:
        return NAMES[name](rounds, **params)
    except TypeError as error:
        raise InputError(f"schedule {name!r} does not take {', '.join(params)}") from error


def periodic_total(rounds: int, rate: float, period: int = 1) -> float:
    """A = Σ 1/v_k of the periodic schedule in closed form, any T: σ₁ = Δ√A/μ.

    With q = ⌊T/period⌋ and r = T − q·period: A = period (rate^{−q} − 1)/(rate^{−1} − 1) + r·rate^{−q}.
    """
    whole, rest = divmod(_rounds(rounds), period)
    if rate == 1:
        return float(rounds)
    return float(period * (rate**-whole - 1) / (1 / rate - 1) + rest * rate**-whole)


def _rounds(rounds: int) -> int:
    if not (rounds >= 1 and rounds == int(rounds)):
        raise InputError(f"rounds must be a whole number >= 1, got {rounds}")
    return int(rounds)


def _positive(name: str, value: float) -> None:
    if not (value > 0 and np.isfinite(value)):
        raise InputError(f"{name} must be > 0, got {value}")


def _normalised(log_variance: Floats) -> Floats:
    """Std with Σ 1/s² = T from ln v_t, computed in logarithms: v spans many decades in long runs."""
    low = float(np.min(log_variance))
    # ln Σ 1/v = −low + ln Σ e^{low − ln v}
    log_total = -low + np.log(np.sum(np.exp(low - log_variance)))
    half = (log_variance + log_total - np.log(log_variance.size)) / 2
    if np.max(half) > 700 or np.min(half) < -700:
        raise InputError(
            f"schedule spans e^{np.ptp(half):.0f} in noise: not representable, use fewer rounds or a flatter one"
        )
    return np.exp(half)
