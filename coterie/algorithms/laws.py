"""The laws of an algorithm's random draws: standard, of fixed shape, and independent of any data.

An algorithm says which draws a round needs (`draws`), a driver supplies them, and `emit` scales them with `add`.
A simulation draws them here with `jax.random`; a deployed agent draws integers on a grid from the operating system
(`coterie.privacy.secure`); a test replays recorded ones; an audit evaluates `log_density` of the ones it inferred.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Float, Int, Key

from coterie.algorithms._threefry import exponential, fold_in, laplace, normal, uniform

__all__ = [
    "Draw", "Grid", "Inside", "L2LaplaceLaw", "LaplaceLaw", "Law", "Normal", "Shared", "Uniform", "add", "settle",
    "standard",
]  # fmt: skip


class Law(abc.ABC):
    """A standard law: `sample(key, dtype)` draws from it, `log_density` is what an audit needs."""

    name: ClassVar[str]

    def __init__(self, *shape: int):
        self.shape = tuple(int(n) for n in shape)

    def __repr__(self) -> str:
        return f"{type(self).__name__}{self.shape}"

    @abc.abstractmethod
    def sample(self, key: Key[Array, ""], dtype: DTypeLike) -> Array:
        """One draw. Simulation only: a float from a seeded generator never goes on a wire (docs/threat-model.md)."""

    @abc.abstractmethod
    def log_density(self, value: Array) -> Float[Array, ""]:
        """Log-density of a draw, summed over its coordinates."""


class Normal(Law):
    """Independent standard normals."""

    name = "normal"

    def sample(self, key: Key[Array, ""], dtype: DTypeLike) -> Array:
        return normal(key, self.shape, dtype)

    def log_density(self, value: Array) -> Float[Array, ""]:
        return -0.5 * jnp.sum(value**2 + jnp.log(2 * jnp.pi))


class Inside(Normal):
    """Standard normals that go into a solve: what comes out of it lies on no grid, whatever grid they lie on.

    Simulated they are normals like any others. A deployed agent draws them on a grid some 10¹³ times finer than
    their scale, so that other noise, on the answer, hides what is left of it (docs/theory/wire.md).
    """


class Shared(Normal):
    """Normals of which a part is shared: `own` times a standard one, and `ratio` times as much of neighbours' secrets.

    Two neighbours derive the same secret for every round, and one of them takes it off where the other puts it on, so
    that secrets cancel in the sum over all parties. `own` is such that what nobody else knows of the draw is standard:
    to an adversary who sees all messages and knows all other noise it is what `sample` draws. A driver of a whole
    network makes the rest of it (`among`). Deployed parties agree on secrets by their keys (`coterie.deploy.pairs`);
    the `Grid` that they draw is in units of own noise, which lies on the same grid as secrets do.
    """

    def __init__(self, *shape: int, own: Array | float = 1.0, ratio: Array | float = 0.0):
        super().__init__(*shape)
        self.own, self.ratio = own, ratio

    @property
    def edge(self) -> Array | float:
        """The scale of a secret."""
        return self.own * self.ratio

    def secret(self, key: Key[Array, ""], low: ArrayLike, high: ArrayLike, dtype: DTypeLike) -> Array:
        """What the parties low < high share in the round of this key. Simulation only."""
        return normal(fold_in(fold_in(key, low), high), self.shape, dtype)

    def among(
        self, own: Array, key: Key[Array, ""], me: Array, others: Int[Array, " width"], here: Array
    ) -> Float[Array, " ..."]:
        """The draw of party `me` among its neighbours (`here`: which slots hold one), from its own standard normals."""
        key = fold_in(key, SECRETS)

        def step(total: Array, slot: tuple[Array, Array]) -> tuple[Array, None]:
            other, there = slot
            low, high = jnp.minimum(me, other), jnp.maximum(me, other)
            sign = jnp.where(there, jnp.where(me == low, 1.0, -1.0), 0.0).astype(own.dtype)
            return total + sign * self.secret(key, low, high, own.dtype), None

        secrets, _ = jax.lax.scan(step, jnp.zeros_like(own), (others, here))
        return self.own * own + self.edge * secrets


SECRETS = 0x7FFF_5EC2  # place of the key of what neighbours share, beyond all agents' numbers


class LaplaceLaw(Law):
    """Independent Laplace variables of scale 1, density ½ exp(−|x|) each."""

    name = "laplace"

    def sample(self, key: Key[Array, ""], dtype: DTypeLike) -> Array:
        return laplace(key, self.shape, dtype)

    def log_density(self, value: Array) -> Float[Array, ""]:
        return -jnp.sum(jnp.abs(value) + jnp.log(2.0))


class Uniform(Law):
    """Independent uniforms on [0, 1)."""

    name = "uniform"

    def sample(self, key: Key[Array, ""], dtype: DTypeLike) -> Array:
        return uniform(key, self.shape, dtype)

    def log_density(self, value: Array) -> Float[Array, ""]:
        inside = jnp.all((value >= 0) & (value < 1))
        return jnp.where(inside, 0.0, -jnp.inf)


class L2LaplaceLaw(Law):
    """A vector with density ∝ exp(−‖x‖₂) in R^d: a Gamma(d, 1) radius times a uniform direction."""

    name = "l2-laplace"

    def sample(self, key: Key[Array, ""], dtype: DTypeLike) -> Array:
        radius_key, direction_key = jax.random.split(key)
        # Gamma with the whole-numbered shape d is a sum of d exponentials: no rejection loop inside a vmap.
        radius = jnp.sum(exponential(radius_key, self.shape, dtype))
        direction = normal(direction_key, self.shape, dtype)
        return radius * direction / jnp.linalg.norm(direction)

    def log_density(self, value: Array) -> Float[Array, ""]:
        d = self.shape[0]
        log_sphere = jnp.log(2.0) + d / 2 * jnp.log(jnp.pi) - gammaln(d / 2)
        return -jnp.linalg.norm(value) - log_sphere - gammaln(float(d))


@partial(jax.tree_util.register_dataclass, data_fields=["steps"], meta_fields=["unit"])
@dataclass(frozen=True)
class Grid:
    """A deployed draw: whole numbers of grid steps whose standard scale is `unit` steps."""

    steps: Int[Array | np.ndarray, " ..."]
    unit: float


Draw = Mapping[str, Array | np.ndarray | Grid]
"""One round's draws by name."""


def add(value: Array, noise: Array | Grid, scale: Array | float) -> Array:
    """Put noise of standard deviation (or rate⁻¹) `scale` on a number: the only place where that happens.

    With a simulated draw this is `value + scale * noise`. With a deployed `Grid` draw the value is first rounded to
    the grid of step `scale / unit`, so that the sum is a whole number of steps and no float artefact survives. With a
    scale of 0 there is no noise and no grid.
    """
    if isinstance(noise, Grid):
        step = jnp.asarray(scale / noise.unit)
        some = jnp.where(step > 0, step, 1.0)
        return jnp.where(step > 0, some * ((value / some).round() + noise.steps), value)
    return value + scale * noise


def settle(value: Array, noise: Array | Grid, scale: Array | float) -> Array:
    """A number that needs no more noise, on the grid of deployed noise of that scale; simulated: the number itself.

    For what is made of noised numbers and sent: kept and sent are then the same. Averages of whole numbers are often
    halves: these go up, also where the rounding of floats has taken a little of them off.
    """
    if isinstance(noise, Grid):
        step = jnp.asarray(scale / noise.unit)
        some = jnp.where(step > 0, step, 1.0)
        return jnp.where(step > 0, some * jnp.floor(value / some + (0.5 + 1e-6)), value)
    return value


def standard(noise: Array | np.ndarray | Grid) -> Array:
    """A draw as a multiple of its own scale, to be kept for later rounds."""
    return jnp.asarray(noise.steps) / noise.unit if isinstance(noise, Grid) else jnp.asarray(noise)
