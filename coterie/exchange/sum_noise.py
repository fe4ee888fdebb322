r"""Noise that is as small as one trusted party's: every party adds its part before sharing, only the sum is opened.

Each party rounds to the grid 2^−f and adds a discrete Gaussian of variance σ²/h in its own units, h = `honest`. If at
least h parties do so honestly, the opened sum carries σ², however the others' parts are chosen. What that is worth:

1. the sum of h discrete Gaussians of variance s² ≥ ½ is within log-ratio 10 Σ_{k<h} e^{−2π²s²k/(k+1)} of the
   discrete Gaussian of variance hs², in each coordinate (Kairouz, Liu, Steinke 2021, Thm 1);
2. a discrete Gaussian of variance v is within log-ratio ln((1 + 2q)/(1 − 2q)), q = Σ_m e^{−2π²r²m²}, of a normal of
   variance v − r² rounded at random to the integers with weights e^{−(k−y)²/2r²} (Poisson summation). That rounding
   commutes with whole shifts, so value + noise is a post-processing of a Gaussian release on the integers.

So the opened sum costs what a Gaussian of std √(σ² − r²) costs at sensitivity 2^f Δ + √d (rounding moves a coordinate
by at most one step), up to a total variation below 1e-30. The claim is central: it holds against those who see sums
(and up to N − h parties' secrets), not against those who see a party's own message.

**Float64.** Δ is proved for real numbers; a party rounds what float64 made of them. Numbers are cut to a public bound
B, and 2^f B ≤ 2^34 is required where sums are charged (`FLOAT_STEPS`). One unit in the last place of B is then at most
2^34 · 2^−52 = 2^−18 steps, so a message whose error is up to 2^13 such units (as of a sum of 2^13 numbers, each as
large as B and each off by one) is off by at most 2^−5 steps. Two neighbouring data sets' messages come apart by twice
that, 1/16 of a step in each coordinate, besides the step of rounding: √d (1 + 1/16) in all (`FLOAT_ERROR`).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coterie.privacy.events import Gaussian

__all__ = [
    "FLOAT_ERROR",
    "FLOAT_STEPS",
    "SMOOTHING",
    "log_ratio_of_rounding",
    "log_ratio_of_sum",
    "opened_event",
]

SMOOTHING = 3.0
"""r of step 2, in grid steps; also the least noise of one party: both distances are then below 1e-37."""

TABLE_ERROR = 2e-34
"""More than the total variation of any `DiscreteGaussianTable`."""


FLOAT_STEPS = 2.0**34
"""The largest bound on a charged message, in grid steps: float64 then computes it well enough."""

FLOAT_ERROR = 1 / 16
"""How far apart float64 may bring a coordinate of two neighbouring messages, in grid steps."""


def log_ratio_of_sum(deviation: float, count: int) -> float:
    """Bound 1: how far `count` discrete Gaussians of this standard parameter are from one, in log-ratio."""
    k = np.arange(1, count)
    return float(10 * np.sum(np.exp(-2 * (math.pi * deviation) ** 2 * k / (k + 1))))


def log_ratio_of_rounding(smoothing: float) -> float:
    """Bound 2: how far a discrete Gaussian is from a randomly rounded normal of variance smaller by smoothing²."""
    q = sum(math.exp(-2 * (math.pi * smoothing * m) ** 2) for m in range(1, 20))
    return math.log1p(4 * q / (1 - 2 * q)) if q < 0.5 else math.inf


def opened_event(
    sensitivity: ArrayLike, deviation: ArrayLike, honest: int, fraction_bits: int, dim: int,
    times: NDArray | int = 1, *, draws: int = 0, error: float = 0.0,
) -> Gaussian:  # fmt: skip
    """What opening sums costs a record of one party: L2 `sensitivity` and each party's noise `deviation` in own units.

    Arrays have one entry per round. Where the noise of a party is below 3 grid steps there is no bound, so sigma is 0.
    `draws`: how many draws of all parties are added in a coordinate, if more than the honest ones' (noise in layers).
    `error`: how far computing may move a coordinate besides rounding, in steps.
    """
    scale, count = 2.0**fraction_bits, max(honest, draws)
    shift = scale * np.asarray(sensitivity, float) + math.sqrt(dim) * (1 + error)
    own = scale * np.asarray(deviation, float)
    sigma = np.sqrt(np.where(own >= SMOOTHING, honest * own**2 - SMOOTHING**2, 0.0))
    distance = log_ratio_of_sum(SMOOTHING, count) + log_ratio_of_rounding(SMOOTHING) + count * TABLE_ERROR
    return Gaussian(shift, sigma, times=times, tv=dim * distance)
