"""PR-ADMM's periodic decay: variance v_{k+1} = rate^⌊k/period⌋, k = 0…T−1 (rate 1 is uniform)."""

import numpy as np
from numpy.typing import NDArray

from coterie.errors import InputError
from coterie.privacy.schedules import positive


def log_variance(rounds: int, rate: float = 0.925, period: float = 1) -> NDArray[np.float64]:
    """Less by the same factor after every `period` rounds."""
    positive("rate", rate)
    if not (period >= 1 and period == int(period)):
        raise InputError(f"period must be a whole number >= 1, got {period}")
    return np.log(rate) * (np.arange(rounds) // int(period))
