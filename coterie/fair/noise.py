r"""Where noise comes from: seeded floating point for study, or integers on a grid from the operating system.

A stage of a release hides D numbers whose sensitivity is 1 after whitening; its noise multiplier ν is the noise scale
over that sensitivity. Floating-point noise costs `Gaussian(1, ν)` or `Laplace(1, 1/ν)`. On a grid of step g = scale/G
(G grid steps per scale) rounding moves D numbers by at most g each, so the sensitivity grows to 1 + ν√D/G (L2) or
1 + νD/G (L1), and Gaussian noise is the discrete one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from coterie.algorithms.laws import Grid, add
from coterie.errors import InputError
from coterie.privacy.accountants import Account, account
from coterie.privacy.events import DiscreteGaussian, Event, Gaussian, Laplace, flat
from coterie.privacy.secure import GRID_LAPLACE_SCALE, GRID_VARIANCE, grid_noise
from coterie.problems.records import namespace

__all__ = [
    "GRID_SIGMA", "Charge", "GridNoise", "Law", "Noise", "Seeded", "laplace_multiplier", "noised", "on_grid", "total",
]  # fmt: skip

Law = Literal["gaussian", "laplace"]
Charge = Callable[[Sequence[Event]], object]
"""Hears the events of a release before anything of it leaves, and raises where they cannot be paid."""
Floats = NDArray[np.float64]

GRID_SIGMA = float(np.sqrt(GRID_VARIANCE))
_UP = 1 + 1e-9  # the grid step is rounded upwards: a little more rounding error than scale/G


class Noise(ABC):
    """Draws noise, adds it, and knows what a stage costs."""

    secure: bool

    @abstractmethod
    def draw(self, shape: tuple[int, ...], law: Law) -> Floats | Grid:
        """Independent noise of the standard law, one number for each that is to be hidden."""

    def add(self, values: Floats, scale: Floats, law: Law) -> Floats:
        """`values` with independent noise of scale σ or b, one scale for each number (0: none)."""
        return noised(values, self.draw(values.shape, law), scale)

    @abstractmethod
    def event(self, multiplier: float, size: int, law: Law, sensitivity: float = 1.0) -> Event:
        """What releasing `size` numbers costs, whitened sensitivity over noise being sensitivity/multiplier."""


def noised(values: Any, noise: Any, scale: Any) -> Any:
    """Noise on numbers, each with its own scale; where that is 0 they stay as they are."""
    xp = namespace(values)
    return xp.where(scale > 0, add(values, noise, xp.where(scale > 0, scale, 1.0)), values)


class Seeded(Noise):
    """Floating-point noise from a NumPy generator: reproducible, for study; it protects nobody."""

    secure = False

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def draw(self, shape: tuple[int, ...], law: Law) -> Floats:
        """Standard normals, or Laplace variables of scale 1."""
        return self.rng.normal(size=shape) if law == "gaussian" else self.rng.laplace(size=shape)

    def event(self, multiplier: float, size: int, law: Law, sensitivity: float = 1.0) -> Event:
        """What releasing numbers with this noise costs."""
        return Gaussian(sensitivity, multiplier) if law == "gaussian" else Laplace(sensitivity, 1 / multiplier)


class GridNoise(Noise):
    """Integer noise from the operating system (`coterie.privacy.secure.grid_noise`): no seed, no floating point."""

    secure = True

    def draw(self, shape: tuple[int, ...], law: Law) -> Grid:
        """Whole numbers of grid steps."""
        return on_grid(grid_noise(1.0, shape, law)[0], law)

    def event(self, multiplier: float, size: int, law: Law, sensitivity: float = 1.0) -> Event:
        """What releasing `size` numbers costs, what rounding to the grid adds to the sensitivity included."""
        if law == "gaussian":
            rounding = multiplier * np.sqrt(size) / GRID_SIGMA * _UP
            return DiscreteGaussian(sensitivity + rounding, multiplier)
        return Laplace(sensitivity + multiplier * size / GRID_LAPLACE_SCALE * _UP, 1 / multiplier)


def on_grid(steps: NDArray[np.int64], law: Law = "gaussian") -> Grid:
    """Integer noise as a draw. The grid's step is a little more than scale/G, so there is never too little noise."""
    return Grid(steps, (GRID_SIGMA if law == "gaussian" else float(GRID_LAPLACE_SCALE)) / (1 + 1e-12))


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
