r"""Privacy-loss distributions: from profiles by connect-the-dots, composed by dp-accounting's convolutions.

A symmetric pair's loss law on the grid h·Z is fixed by δ at 0, h, …, nh: interpolating the profile linearly in e^ε
(which only raises it) puts on i·h the mass

    p_i = [(δ_{i+1} − δ_i) − e^h (δ_i − δ_{i−1})]/(e^h − 1),   p_n = (δ_{n−1} − δ_n)/(1 − e^{−h}),   p_∞ = δ_n,

mirrored as p_i e^{−ih} on −i·h, with the rest on 0 (Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022, Alg. 1; the
mirror image of a linear piece is linear, so nothing is lost). Positive losses alone are differenced, so tails keep
their digits.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from coterie.privacy.profiles import Profile
from coterie.privacy.roots import brentq

if TYPE_CHECKING:  # half a second to import, which most runs can do without
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
else:
    PrivacyLossDistribution = object

__all__ = ["PrivacyLossDistribution", "compose", "from_profile", "grid", "integer_shift", "poisson_gaussian", "reach"]

_TAIL = 1e-16  # δ beyond which a single release's loss is counted as infinite
_RESOLUTION = 0.01  # grid step over the root mean square loss of one release
_LARGEST = 2**17  # grid points for one release


def grid(mean_square: float, top: float) -> float:
    """Grid step for releases of mean square loss `mean_square` whose losses reach `top`.

    Splitting a loss between two grid points adds at most h²/4 to its variance: over n releases h²n/4 against a total
    of n·mean_square, less than 1e-4 of it. Laws that would need more than 2^17 points get a coarser grid, which is
    a looser bound.
    """
    return float(max(_RESOLUTION * np.sqrt(mean_square), top / _LARGEST))


def from_profile(profile: Profile, step: float) -> PrivacyLossDistribution:
    """The dominating grid law of a symmetric pair."""
    top = profile.top
    if not np.isfinite(top) or top / step > 1e4:
        top = min(top, reach(profile))
    points = max(1, int(np.ceil(top / step)))
    eps = step * np.arange(points + 1, dtype=np.float64)
    delta = np.minimum.accumulate(np.clip(profile.delta(eps), 0.0, 1.0))
    drop = -np.diff(delta)
    growth = np.expm1(step)
    mass = np.empty(points)
    mass[:-1] = (np.exp(step) * drop[:-1] - drop[1:]) / growth
    mass[-1] = drop[-1] * np.exp(step) / growth
    mass = np.maximum(mass, 0.0)
    mirror = mass * np.exp(-eps[1:])
    rest = max(0.0, 1 - delta[-1] - mass.sum() - mirror.sum())
    probs = np.concatenate([mirror[::-1], [rest], mass])
    from dp_accounting.pld import pld_pmf, privacy_loss_distribution

    return privacy_loss_distribution.PrivacyLossDistribution(
        pld_pmf.DensePLDPmf(step, -points, probs, float(delta[-1]), True)
    )


def reach(profile: Profile) -> float:
    """The loss beyond which δ < 1e-16."""

    def excess(log_eps: float) -> float:
        return float(np.ravel(profile.delta(np.array([np.exp(log_eps)])))[0]) - _TAIL

    low, high = -700.0, 0.0
    if excess(low) <= 0:
        return float(np.exp(low))
    while excess(high) > 0:
        high += 1.0
        if high > 50:
            return float(np.exp(high))
    return float(np.exp(brentq(excess, low, high, xtol=1e-3)) * 1.01)


def poisson_gaussian(noise_multiplier: float, rate: float, step: float) -> PrivacyLossDistribution:
    """Poisson batches, add/remove: both directions, by the library."""
    from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

    return from_gaussian_mechanism(
        noise_multiplier, sampling_prob=rate, value_discretization_interval=step, use_connect_dots=True
    )


def integer_shift(sigma: float, shift: int, step: float) -> PrivacyLossDistribution:
    """The discrete Gaussian on the integers moved by `shift`, by the library."""
    from dp_accounting.pld.privacy_loss_distribution import from_discrete_gaussian_mechanism

    return from_discrete_gaussian_mechanism(sigma, shift, value_discretization_interval=step, use_connect_dots=True)


def compose(parts: Iterable[tuple[PrivacyLossDistribution, int]]) -> PrivacyLossDistribution | None:
    """Compose each law with itself the given number of times and all with one another (None if there is nothing)."""
    total: PrivacyLossDistribution | None = None
    for law, count in parts:
        power = law.self_compose(count) if count > 1 else law
        total = power if total is None else total.compose(power)
    return total
