"""Shared by the tests of the secure samplers: χ² against a law on the integers, and retries.

The draws are unseeded, as in deployment. A statistical check at level 1e-3 gets three independent tries and fails
when all of them do: a correct sampler fails it with probability 1e-9 (all checks of one run together: below 1e-7). A
wrong scale must give p < 1e-6; the sample sizes make a miss of that less likely than 1e-9 as well.
"""

import math
from collections.abc import Callable

import numpy as np
from scipy import stats

__all__ = ["accepted", "gaussian", "laplace", "p_value"]


def accepted(p_value: Callable[[], float], level: float = 1e-3, tries: int = 3) -> bool:
    return any(p_value() > level for _ in range(tries))


def p_value(draws: np.ndarray, pmf: Callable[[np.ndarray], np.ndarray], spread: float, bins: int = 40) -> float:
    """χ² of draws against a law on the integers, in about `bins` intervals of equal probability."""
    reach = math.ceil(25 * spread) + 3
    support = np.arange(-reach, reach + 1)
    weights = pmf(support / spread)
    cdf = np.cumsum(weights) / weights.sum()
    last = np.unique(np.searchsorted(cdf, np.arange(1, bins) / bins))  # last support point of each interval
    expected = np.diff(np.concatenate(([0.0], cdf[last], [1.0])))
    keep = expected * draws.size > 10  # an interval that is all but empty joins its neighbour
    if not keep.all():
        last = last[keep[:-1]]
        expected = np.diff(np.concatenate(([0.0], cdf[last], [1.0])))
    counts = np.bincount(np.searchsorted(support[last], draws), minlength=expected.size)
    return float(stats.chisquare(counts, expected * draws.size).pvalue)


def gaussian(z: np.ndarray) -> np.ndarray:
    return np.exp(-(z**2) / 2)


def laplace(z: np.ndarray) -> np.ndarray:
    return np.exp(-np.abs(z))
