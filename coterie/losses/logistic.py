"""Logistic loss of a linear model: log(1 + exp(−y · score)) for labels −1 and 1.

The slope in the score is at most 1 and never changes sign; the curvature p(1 − p) is at most 1/4.
"""

from __future__ import annotations

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


class Logistic(Linear):
    """Logistic regression without an intercept, for two classes."""

    labels: ClassVar[Labels] = SIGNS
    convex: ClassVar[bool] = True
    scored: ClassVar[bool] = True
    directed: ClassVar[bool] = True
    monotone: ClassVar[bool] = True
    likely: ClassVar[bool] = True

    @property
    def lipschitz(self) -> float:
        return self.bound

    @property
    def smoothness(self) -> float:
        return 0.25 * self.bound**2

    def of_score(self, score: Array, targets: Array) -> Pointwise:
        margin = targets * score
        p = jax.nn.sigmoid(-margin)
        return Pointwise(softplus(-margin), -targets * p, p * (1 - p))


@jax.custom_jvp
@partial(jax.jit, inline=True)  # traced once, not at every place that asks for it; the program is the same
def softplus(x: Array) -> Array:
    """log(1 + exp(x)) = max(x, 0) + log(1 + e), e = exp(−|x|).

    log(1 + e) = 2 artanh z, z = e/(2 + e) ≤ 1/3: 16 terms of its series leave out less than 2e-17 of it. A core has no
    logarithm of several numbers at once, and takes four times as long for `jax.nn.softplus`.
    """
    e = jnp.exp(-jnp.abs(x))
    z = e / (2 + e)
    square = z * z
    series = jnp.full_like(x, 1 / 31)
    for k in range(29, 0, -2):
        series = series * square + 1 / k
    return jnp.maximum(x, 0) + 2 * z * series


softplus.defjvps(lambda along, _, x: along * jax.nn.sigmoid(x))  # that of the series would be rounded where it bends


def make(settings: LossSettings, features: int, classes: int) -> Logistic:
    """The problem on records with this many features."""
    return Logistic(features, constraint=settings.ball)


EXAMPLE = Logistic(2)
