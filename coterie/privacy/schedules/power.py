"""Absolute variance ∝ t^exponent where the sensitivity falls as t^sensitivity.

The defaults are Showkatbakhsh, Karakus and Diggavi's: step sizes η_t ∝ 1/t make Δ_t ∝ 1/t, and variance t^{−3/2}
minimises their bound. Relative to the sensitivity the std is t^{exponent/2 − sensitivity} = t^{1/4}: it *rises*.
Give the actual Δ_t to the noise; a constant Δ_t turns this schedule into that relative one.
"""

import numpy as np
from numpy.typing import NDArray

from coterie.errors import InputError


def log_variance(rounds: int, exponent: float = -1.5, sensitivity: float = -1.0) -> NDArray[np.float64]:
    """A power of the round, relative to the sensitivity's."""
    if not (np.isfinite(exponent) and np.isfinite(sensitivity)):
        raise InputError(f"exponent and sensitivity must be finite, got {exponent} and {sensitivity}")
    return (exponent - 2 * sensitivity) * np.log(np.arange(1, rounds + 1))
