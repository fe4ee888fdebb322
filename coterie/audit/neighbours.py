"""The neighbours of an audited agent: all of them the adversary's, who says what it likes."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree
from numpy.typing import ArrayLike

__all__ = ["DEGREE", "Neighbours"]

DEGREE = 2  # of the agent under attack, unless a plan says otherwise


class Neighbours(eqx.Module):
    """What they answer, to every number of a message that has a point's shape `point`, to others its size.

    `echo`: they repeat the agent's own last message. `turning`: the point's sign changes from round to round.
    `apart`: the second half of them says the opposite of the first.
    """

    point: Float[Array, " d"]
    echo: Bool[Array, ""]
    turning: Bool[Array, ""]
    apart: Bool[Array, ""]
    degree: int = eqx.field(static=True, default=DEGREE)

    @classmethod
    def at(
        cls, point: ArrayLike, *, echo: bool = False, turning: bool = False, apart: bool = False, degree: int = DEGREE
    ) -> Neighbours:
        """Neighbours who stand at a point."""
        where = jnp.asarray(point, jnp.float64)
        return cls(where, jnp.asarray(echo), jnp.asarray(turning), jnp.asarray(apart), degree)

    def answer(self, own: PyTree, t: Array) -> PyTree:
        """Their messages of round t, one row each, after the agent has said `own`."""
        sign = jnp.where(self.turning & (t % 2 == 1), -1.0, 1.0)
        side = jnp.where(self.apart & (jnp.arange(self.degree) >= self.degree // 2), -1.0, 1.0)

        def one(x: Array) -> Array:
            mine = jnp.broadcast_to(x, (self.degree, *x.shape))
            if not jnp.issubdtype(x.dtype, jnp.floating):
                return jnp.where(self.echo | (t % 2 == 0), mine, (1 - mine).astype(x.dtype))
            like = x.shape == self.point.shape
            far = self.point if like else jnp.full(x.shape, jnp.linalg.norm(self.point))
            theirs = sign * side.reshape(-1, *(1,) * x.ndim) * far
            return jnp.where(self.echo, mine, theirs.astype(x.dtype))

        return jax.tree.map(one, own)
