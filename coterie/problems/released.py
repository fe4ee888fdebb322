"""Problems without a minimum: what is wanted is the mean of a vector over all records, released once with noise.

A record's loss at a point is the scalar product with the record's own vector, so its gradient is that vector whatever
the point, and `shard.gradient` of an agent gives the sum over its records. How far one record moves the sum is the
problem's `half_gap`; `coterie.algorithms.release` adds the noise for it, the same on every number. A problem whose
numbers need unlike noise weighs them before (`each`) and after.

A point is what came of it: the `size` means, and last the standard deviation of the noise on each of them. That number
is public, and with it a release states its own errors wherever it is kept.
"""

from __future__ import annotations

import abc
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from coterie.problems.base import Problem
from coterie.problems.records import clip_factor

__all__ = ["Released"]


class Released(Problem):
    """The mean over all records of `each`. A subclass states its facts: `convex`, `directed`, `smoothness`, bounds."""

    constraint: ClassVar[None] = None  # type: ignore[misc]
    released: ClassVar[str] = "release"  # type: ignore[misc]

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """Numbers that are released."""

    @abc.abstractmethod
    def each(self, features: Array, targets: Array) -> Float[Array, "rows size"]:
        """Every record's own vector."""

    def total(self, features: Array, targets: Array, weights: Array) -> Float[Array, " size"]:
        """Σ weights · each, without forming the vectors where that is possible."""
        return weights @ self.each(features, targets)

    def inner(self, x: Float[Array, " size"], features: Array, targets: Array) -> Float[Array, " rows"]:
        """⟨x, each⟩, without forming the vectors where that is possible."""
        return self.each(features, targets) @ x

    @property
    def dim(self) -> int:
        """The numbers, and the standard deviation of their noise."""
        return self.size + 1

    def losses(self, x: Float[Array, " dim"], features: Array, targets: Array) -> Float[Array, " rows"]:
        return self.inner(x[:-1], features, targets)

    def weighted_gradient(
        self, x: Float[Array, " dim"], features: Array, targets: Array, weights: Array,
        clip: Array | float | None = None,
    ) -> Float[Array, " dim"]:  # fmt: skip
        if clip is None:
            sums = self.total(features, targets, weights)
        else:
            own = self.each(features, targets)
            sums = weights * clip_factor(jnp.linalg.norm(own, axis=1), clip) @ own
        return jnp.append(sums, 0.0).astype(x.dtype)
