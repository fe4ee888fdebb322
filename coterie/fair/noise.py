r"""Where noise comes from: seeded floating point for study, or integers on a grid from the operating system.

A stage of a release hides D numbers whose sensitivity is 1 after whitening; its noise multiplier ν is the noise scale
over that sensitivity. Floating-point noise costs `Gaussian(1, ν)` or `Laplace(1, 1/ν)`. On a grid of step g = scale/G
(G grid steps per scale) rounding moves D numbers by at most g each, so the sensitivity grows to 1 + ν√D/G (L2) or
1 + νD/G (L1), and Gaussian noise is the discrete one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from coterie.errors import InputError
from coterie.privacy.accountants import Account, account
from coterie.privacy.events import DiscreteGaussian, Event, Gaussian, Laplace, flat
from coterie.privacy.secure import GRID_LAPLACE_SCALE, GRID_VARIANCE, grid_noise

__all__ = ["GRID_SIGMA", "GridNoise", "Law", "Noise", "Seeded", "laplace_multiplier", "total"]

Law = Literal["gaussian", "laplace"]
Floats = NDArray[np.float64]

GRID_SIGMA = float(np.sqrt(GRID_VARIANCE))
_UP = 1 + 1e-9  # the grid step is rounded upwards: a little more rounding error than scale/G


class Noise(Protocol):
    """Adds noise of given scales, and knows what a stage costs."""

    secure: bool

    def add(self, values: Floats, scale: Floats, law: Law) -> Floats:
        """`values` with independent noise of scale σ or b, one scale for each number (0: none)."""
        ...

    def event(self, multiplier: float, size: int, law: Law, sensitivity: float = 1.0) -> Event:
        """What releasing `size` numbers costs, whitened sensitivity over noise being sensitivity/multiplier."""
        ...


class Seeded:
    """Floating-point noise from a NumPy generator: reproducible, for study; it protects nobody."""

    secure = False

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def add(self, values: Floats, scale: Floats, law: Law) -> Floats:
        """`values` with independent noise of scale σ or b, one scale for each number (0: none)."""
        noise = self.rng.normal if law == "gaussian" else self.rng.laplace
        return values + scale * noise(size=values.shape)

    def event(self, multiplier: float, size: int, law: Law, sensitivity: float = 1.0) -> Event:
        """What releasing numbers with this noise costs."""
        return Gaussian(sensitivity, multiplier) if law == "gaussian" else Laplace(sensitivity, 1 / multiplier)


class GridNoise:
    """Integer noise from the operating system (`coterie.privacy.secure.grid_noise`): no seed, no floating point."""

    secure = True

    def add(self, values: Floats, scale: Floats, law: Law) -> Floats:
        """`values`, rounded to the noise's grid, with independent noise of scale σ or b (0: none, and not rounded)."""
        scale = np.broadcast_to(scale, values.shape)
        out = np.array(values, float)
        for one in np.unique(scale[scale > 0]):
            here = scale == one
            units, step = grid_noise(float(one), int(here.sum()), law)
            out[here] = step * (np.rint(values[here] / step) + units)
        return out

    def event(self, multiplier: float, size: int, law: Law, sensitivity: float = 1.0) -> Event:
        """What releasing `size` numbers costs, what rounding to the grid adds to the sensitivity included."""
        if law == "gaussian":
            rounding = multiplier * np.sqrt(size) / GRID_SIGMA * _UP
            return DiscreteGaussian(sensitivity + rounding, multiplier)
        return Laplace(sensitivity + multiplier * size / GRID_LAPLACE_SCALE * _UP, 1 / multiplier)


def total(events: Sequence[Event], law: Law, delta: float) -> Account:
    """What the stages cost together: the exact curve for Gaussian noise; for Laplace noise the sum of pure ε, δ = 0."""
    if law == "gaussian":
        return account(events, delta, fast=True)
    pure = sum(float(flat(event).pure().sum()) for event in events)
    return Account(pure, 0.0, "basic", {"basic": pure}, "replace-one")


def laplace_multiplier(epsilon: float, sizes: Sequence[int], noise: Noise) -> float:
    """z such that stages with multipliers z/share cost ε in all: 1/ε, or more where a grid's rounding must be paid.

    Rounding D numbers costs D/G of pure ε however much noise there is, so a small budget cannot hide many numbers.
    """
    floor = sum(sizes) / GRID_LAPLACE_SCALE * _UP if noise.secure else 0.0
    if floor >= epsilon:
        raise InputError(
            f"budget too small: rounding {sum(sizes)} numbers to the Laplace grid alone costs epsilon {floor:.3g}, got "
            f"{epsilon:g}; use a Gaussian method or fewer features"
        )
    return 1 / (epsilon - floor)
