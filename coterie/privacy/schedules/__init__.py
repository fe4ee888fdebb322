r"""How a budget is spread over rounds, one file each, found and never listed: the noise of each round.

A schedule is a positive vector s of length T; round t draws noise of std z·s_t·Δ_t, with Δ_t the sensitivity of that
round and z one multiplier for the whole run. All are normalised to Σ 1/s_t² = T, so that at equal z all cost the
same, μ² = T/z², and choosing among them is a question of utility alone.

A file has `log_variance(rounds, …)`, ln s_t² of every round up to a constant: public numbers, from its options alone;
or a row of them for each party.
Its keyword arguments are its options (`privacy.schedule_options` of a plan).
"""

from __future__ import annotations

import inspect

import numpy as np
from numpy.typing import NDArray

from coterie.errors import InputError
from coterie.found import Kinds

__all__ = ["SCHEDULES", "make", "periodic_total", "positive"]

Floats = NDArray[np.float64]
SCHEDULES = Kinds("schedule", __name__)
"""Every schedule, by name."""


def make(name: str, rounds: int, **options: object) -> Floats:
    """The schedule of that name.

    >>> make("periodic", 3, rate=0.5).round(3).tolist()
    [1.528, 1.08, 0.764]
    """
    log_variance = SCHEDULES.load(name, "log_variance").log_variance
    rounds = _rounds(rounds)
    try:
        inspect.signature(log_variance).bind(rounds, **options)
    except TypeError:
        raise InputError(f"schedule {name!r} does not take {', '.join(options)}") from None
    given = np.asarray(log_variance(rounds, **options), float)
    if given.ndim not in (1, 2) or given.shape[-1] != rounds or not np.all(np.isfinite(given)):
        raise InputError(f"schedule {name!r} must give {rounds} finite numbers, got {given}")
    return _normalised(given) if given.ndim == 1 else np.stack([_normalised(row) for row in given])


def periodic_total(rounds: int, rate: float, period: int = 1) -> float:
    """A = Σ 1/v_k of the periodic schedule in closed form, any T: σ₁ = Δ√A/μ.

    With q = ⌊T/period⌋ and r = T − q·period: A = period (rate^{−q} − 1)/(rate^{−1} − 1) + r·rate^{−q}.
    """
    whole, rest = divmod(_rounds(rounds), period)
    if rate == 1:
        return float(rounds)
    return float(period * (rate**-whole - 1) / (1 / rate - 1) + rest * rate**-whole)


def positive(name: str, value: float) -> None:
    """Refuse an option that is not a number above 0."""
    if not (value > 0 and np.isfinite(value)):
        raise InputError(f"{name} must be > 0, got {value}")


def _rounds(rounds: int) -> int:
    if not (rounds >= 1 and rounds == int(rounds)):
        raise InputError(f"rounds must be a whole number >= 1, got {rounds}")
    return int(rounds)


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
