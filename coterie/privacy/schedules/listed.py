"""Relative noise that the plan lists, for each round or for each party and round: `noise`, or privacy `levels`."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from coterie.errors import InputError

Numbers = Sequence[float] | Sequence[Sequence[float]]


def log_variance(rounds: int, noise: Numbers | None = None, levels: Numbers | None = None) -> NDArray[np.float64]:
    """σ_t ∝ `noise`, or ∝ 1/`levels` (α_t: with pure rounds, each gets ε in proportion to its level)."""
    if (noise is None) == (levels is None):
        raise InputError("schedule 'listed' takes one of noise and levels, a list with a number for each round")
    name, given = ("noise", noise) if noise is not None else ("levels", levels)
    try:
        found = np.asarray(given, float)
    except (TypeError, ValueError):
        raise InputError(
            f"{name} must be a list of numbers, or a list of those for each party, of one length"
        ) from None
    if found.ndim not in (1, 2) or found.shape[-1] != rounds:
        shown = found.shape[-1] if found.ndim else "a single one"
        raise InputError(f"{name} must list a number for each of {rounds} rounds, got {shown}")
    if not np.all((found > 0) & np.isfinite(found)):
        stray = found[~((found > 0) & np.isfinite(found))][0]
        raise InputError(f"{name} must be > 0 and finite in every round, got {stray:g}")
    return (2.0 if name == "noise" else -2.0) * np.log(found)
