"""Logistic loss of a linear model: log(1 + exp(−y · score)) for labels −1 and 1.

The slope in the score is at most 1 and never changes sign; the curvature p(1 − p) is at most 1/4.
"""

from __future__ import annotations

import math
from functools import partial
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array

from coterie.losses.base import LossSettings
from coterie.problems.glm import Linear, Pointwise
from coterie.problems.labels import SIGNS, Labels

__all__ = ["Logistic"]

MODEL = "logistic classifier"
LN2 = 0.693145751953125, 1.42860682030941723212e-6  # their sum; the first has so few digits that products are exact
once = partial(jax.jit, inline=True)  # traced once, not at every place that asks for it; the program is the same


class Logistic(Linear):
    """Logistic regression without an intercept, for two classes."""

    labels: ClassVar[Labels] = SIGNS
    convex: ClassVar[bool] = True
    scored: ClassVar[bool] = True
    directed: ClassVar[bool] = True
    monotone: ClassVar[bool] = True
    likely: ClassVar[bool] = True
    margins: ClassVar[bool] = True

    @property
    def lipschitz(self) -> float:
        return self.bound

    @property
    def smoothness(self) -> float:
        return 0.25 * self.bound**2

    def of_score(self, score: Array, targets: Array) -> Pointwise:
        margin = targets * score
        p = sigmoid(-margin)
        return Pointwise(softplus(-margin), -targets * p, p * (1 - p))


@jax.custom_jvp
@once
def sigmoid(x: Array) -> Array:
    """1/(1 + exp(−x)): always in [0, 1].

    On a core XLA's exponential of a double goes through a quotient, and a range where numbers are not normal: with it a
    slope takes half as long again.
    """
    return 1 / (1 + _exp(-x)) if x.dtype == jnp.float64 else jax.nn.sigmoid(x)


@sigmoid.defjvp
def _steepness(given: tuple[Array], moved: tuple[Array]) -> tuple[Array, Array]:
    p = sigmoid(*given)
    return p, p * (1 - p) * moved[0]


@once
def _exp(x: Array) -> Array:
    """exp(x) of doubles, as of ±708 where x is further from 0: 2^k Σ r^i/i!, x = k ln 2 + r, |r| ≤ ln(2)/2.

    The first term left out is 2e-16 of the sum.
    """
    x = jnp.clip(x, -708, 708)
    k = jnp.floor(x * (1 / math.log(2)) + 0.5)
    r = (x - k * LN2[0]) - k * LN2[1]
    series = jnp.full_like(x, 1 / math.factorial(12))
    for i in range(11, -1, -1):
        series = series * r + 1 / math.factorial(i)
    return series * jax.lax.bitcast_convert_type((k.astype(jnp.int32).astype(jnp.int64) + 1023) << 52, x.dtype)


@jax.custom_jvp
@once
def softplus(x: Array) -> Array:
    """log(1 + exp(x)) = max(x, 0) + log(1 + e), e = exp(−|x|).

    log(1 + e) = 2 artanh z, z = e/(2 + e) ≤ 1/3: 16 terms of its series leave out less than 2e-17 of it. A core has no
    logarithm of several numbers at once, and takes four times as long for `jax.nn.softplus`.
    """
    e = _exp(-jnp.abs(x)) if x.dtype == jnp.float64 else jnp.exp(-jnp.abs(x))
    z = e / (2 + e)
    square = z * z
    series = jnp.full_like(x, 1 / 31)
    for k in range(29, 0, -2):
        series = series * square + 1 / k
    return jnp.maximum(x, 0) + 2 * z * series


softplus.defjvps(lambda along, _, x: along * sigmoid(x))  # that of the series would be rounded where it bends


def make(settings: LossSettings, features: int, classes: int) -> Logistic:
    """The problem on records with this many features."""
    return Logistic(features, constraint=settings.ball)


EXAMPLE = Logistic(2)
