"""PR-ADMM's iteration-based decay: v_1 = 1, v_{k+1} = 1/(rate·k(k+1)) for k ≥ 1 (as printed k = 0 divides by zero)."""

import numpy as np
from numpy.typing import NDArray

from coterie.privacy.schedules import positive


def log_variance(rounds: int, rate: float = 0.015) -> NDArray[np.float64]:
    """With a small rate the variance first rises: by 33 at round 2 for the published 0.015."""
    positive("rate", rate)
    k = np.arange(1, rounds, dtype=float)
    return np.concatenate([[0.0], -np.log(rate * k * (k + 1))])
