"""The same noise every round: the least Σσ² of all schedules at a given budget (Cauchy-Schwarz)."""

import numpy as np
from numpy.typing import NDArray


def log_variance(rounds: int) -> NDArray[np.float64]:
    """All alike."""
    return np.zeros(rounds)
