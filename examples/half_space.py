"""Half-space: the numbers of a model add up to at most `most`. A set of one's own, `problem.within` of a plan."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from coterie.problems import Constraint

EXAMPLE = {"most": 0.5}


class HalfSpace(Constraint):
    """{x : Σ x_l ≤ most}."""

    most: float = eqx.field(static=True)

    def project(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        return x - jnp.maximum(jnp.sum(x) - self.most, 0.0) / x.shape[0]


def make(dim: int, most: float) -> HalfSpace:
    """The set for a model of `dim` numbers."""
    return HalfSpace(float(most))
