"""Any loss that JAX can differentiate: loss(params, features, target) over a pytree of parameters.

Gradients are clipped record by record in pieces that fit in memory (`coterie.problems.single`).
"""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from coterie.errors import InputError
from coterie.problems.base import Problem
from coterie.problems.labels import NUMBERS, WHOLE, Labels
from coterie.problems.records import Rows, namespace, rescale
from coterie.problems.sets import Constraint
from coterie.problems.single import (
    clipped_gradients,
    crowd_of,
    each_gradient,
    numbers_of,
    piece_of,
    room,
    several_points,
    summed,
)
from coterie.problems.steps import rewritten

__all__ = ["Custom", "Template"]


class Custom(Problem):
    """Any per-record loss(params, features, target) over a pytree of parameters.

    `forecast(params, features)` predicts one record. You may state what you know of the loss for every target, all
    features of norm up to `bound` (None: of any norm) and all parameters: `convex`, `lipschitz`, `smoothness`. What is
    not stated is not assumed, and algorithms whose proofs need it refuse the loss. Statements are tried on made-up
    records before anything runs (`coterie.problems.facts`); a gradient longer than `lipschitz` is cut to it.
    """

    loss: Callable[[PyTree, Array, Array], Array] = eqx.field(static=True)
    template: PyTree = eqx.field(static=True)  # starting parameters and their pytree; see `make`
    forecast: Callable[[PyTree, Array], Array] | None = eqx.field(static=True, default=None)
    lipschitz: float = eqx.field(static=True, default=float("inf"))
    smoothness: float = eqx.field(static=True, default=float("inf"))
    constraint: Constraint | None = None
    integer_targets: bool = eqx.field(static=True, default=False)
    convex: bool = eqx.field(static=True, default=False)
    bound: float | None = eqx.field(static=True, default=None)

    @property
    def name(self) -> str:
        return f"loss {getattr(self.loss, '__name__', 'of your own')!r}"

    @classmethod
    def make(cls, loss: Callable[[PyTree, Array, Array], Array], params: PyTree, **options: PyTree) -> Custom:
        """Wrap a loss and the (data-free) starting parameters.

        >>> import jax.numpy as jnp
        >>> absolute = lambda p, x, y: jnp.sqrt(1 + (p["w"] @ x + p["b"] - y) ** 2)
        >>> Custom.make(absolute, {"w": jnp.zeros(3), "b": jnp.zeros(())}).dim
        4
        """
        return cls(loss, Template(params), **options)

    @property
    def dim(self) -> int:
        """Numbers in the tree of parameters."""
        return self.template.flat.size

    @property
    def labels(self) -> Labels:
        return WHOLE if self.integer_targets else NUMBERS

    @property
    def metric(self) -> str:
        return "accuracy" if self.integer_targets else "negative mean loss"

    def losses(self, x: Float[Array, " d"], features: Array, targets: Array) -> Float[Array, " rows"]:
        if self._numbers(x, features, targets) < room():
            return self._plain(x, features, targets)

        def some(x: Array, features: Array, targets: Array) -> Array:
            leaves, size = self.template.leaves(x), piece_of(features.shape[0], self._each(x, features, targets))
            one = lambda of: rewritten(self._of_leaves, leaves, *of)  # noqa: E731
            return jax.lax.map(one, (features, targets), batch_size=size)

        def back(of: tuple[Array, Array, Array], slopes: Array) -> tuple[Array, None, None]:
            return self._flat(summed(self._of_leaves, self.template.leaves(of[0]), *of[1:], slopes)), None, None

        all_of = several_points(some, self._numbers)
        each = jax.custom_vjp(all_of)
        each.defvjp(lambda *of: (all_of(*of), of), back)
        return each(x, features, targets)

    def _each(self, x: Array, features: Array, targets: Array) -> int:
        """Numbers that one record needs."""
        return numbers_of(self._of_leaves, self.template.leaves(x), features, targets)

    def _numbers(self, x: Array, features: Array, targets: Array, *_: Array) -> int:
        """Numbers that all records at one point need."""
        return crowd_of(self._of_leaves, self.template.leaves(x), features, targets)

    @staticmethod
    def _flat(leaves: list[Array]) -> Array:
        return jnp.concatenate([leaf.ravel() for leaf in leaves])

    def _plain(self, x: Float[Array, " d"], features: Array, targets: Array) -> Float[Array, " rows"]:
        params = self.template.unravel(x)
        return jax.vmap(lambda f, y: self.loss(params, f, y))(features, targets)

    def _of_leaves(self, leaves: list[Array], features: Array, target: Array) -> Array:
        return self.loss(jax.tree.unflatten(self.template.treedef, leaves), features, target)

    def weighted_gradient(
        self, x: Float[Array, " d"], features: Array, targets: Array, weights: Array, clip: Array | float | None = None
    ) -> Float[Array, " d"]:
        plain = clip is None and not self.bounded  # nothing rests on single records: no need to look at each
        limit = jnp.asarray(self.lipschitz if clip is None else jnp.minimum(clip, self.lipschitz), x.dtype)

        def total(x: Array, features: Array, targets: Array, weights: Array, limit: Array) -> Array:
            leaves, of = self.template.leaves(x), (features, targets, weights, limit)
            found = (
                summed(self._of_leaves, leaves, *of[:3]) if plain else clipped_gradients(self._of_leaves, leaves, *of)
            )
            return self._flat(found)

        return several_points(total, self._numbers)(x, features, targets, weights, limit)

    def each_gradient(self, x: Float[Array, " d"], features: Array, targets: Array, clip: Array | float) -> Array:
        def every(x: Array, features: Array, targets: Array) -> Array:
            return each_gradient(self._of_leaves, self.template.leaves(x), features, targets)

        found = several_points(every, self._numbers)(x, features, targets)
        return rescale(found, jnp.linalg.norm(found, axis=1), jnp.minimum(clip, self.lipschitz))

    def weighted_hessian(
        self, x: Float[Array, " d"], features: Array, targets: Array, weights: Array
    ) -> Float[Array, "d d"]:
        return jax.hessian(lambda v: jnp.sum(weights * self._plain(v, features, targets)))(x)

    @property
    def predicts(self) -> bool:
        return self.forecast is not None

    def predict(self, x: Float[Array, " d"], features: Array) -> Array:
        if self.forecast is None:
            raise InputError("this custom problem has no `forecast`, so it cannot predict")
        return self.every(self.forecast, x, features)

    def every(self, forecast: Callable[[PyTree, Array], Array], x: Float[Array, " d"], features: Array) -> Array:
        """forecast(params, features) of each record."""

        def of(x: Array, features: Array) -> Array:
            params = self.template.unravel(x)
            size = piece_of(features.shape[0], self._each(x, features, jnp.zeros(features.shape[0], self._kind)))
            return jax.lax.map(lambda f: rewritten(forecast, params, f), features, batch_size=size)

        return several_points(of, lambda x, f: self._numbers(x, f, jnp.zeros(f.shape[0], self._kind)))(x, features)

    @property
    def _kind(self) -> type:
        return int if self.integer_targets else float

    def score(self, x: Float[Array, " d"], features: Array, targets: Array) -> Float[Array, ""]:
        if self.forecast is None or not self.integer_targets:
            return -jnp.mean(self.losses(x, features, targets))
        return jnp.mean(self.predict(x, features) == targets, dtype=x.dtype)

    def encode(self, targets: np.ndarray, classes: tuple[str, ...] | None) -> np.ndarray:
        return np.asarray(targets, dtype=np.int32 if self.integer_targets else float)

    def shaped(self, point: np.ndarray) -> PyTree:
        return self.template.unravel(jnp.asarray(point))

    def start(self, seed: int) -> np.ndarray:
        return self.template.flat


class Template:
    """Starting parameters and how to rebuild their pytree; compared by identity, so it may sit in static fields."""

    def __init__(self, params: PyTree):
        leaves, self.treedef = jax.tree.flatten(params)
        arrays = [np.asarray(leaf) for leaf in leaves]
        real = (jnp.floating, jnp.integer, jnp.bool_)
        for leaf, array in zip(leaves, arrays, strict=True):
            if not any(jnp.issubdtype(array.dtype, kind) for kind in real):
                said = " ".join(repr(leaf).split())
                raise InputError(f"starting parameters are a tree of real numbers, and one of its leaves is {said}")
        if not sum(array.size for array in arrays):
            raise InputError(f"starting parameters are a tree of real numbers, and {params!r} has none")
        self.flat = np.concatenate([array.ravel() for array in arrays]).astype(float)
        if not np.isfinite(self.flat).all():
            raise InputError("starting parameters must be finite numbers")
        self.shapes = [np.shape(leaf) for leaf in leaves]

    def __reduce__(self) -> tuple:
        return Template, (jax.tree.unflatten(self.treedef, [np.asarray(v) for v in self.leaves(self.flat)]),)

    def leaves(self, x: Rows) -> list[Rows]:
        """The parameters in a flat vector, each in its shape."""
        sizes = [int(np.prod(s)) for s in self.shapes]
        pieces = namespace(x).split(x, np.cumsum(sizes)[:-1].tolist())
        return [p.reshape(s) for p, s in zip(pieces, self.shapes, strict=True)]

    def unravel(self, x: Array) -> PyTree:
        """The tree of parameters that a flat vector stands for."""
        return jax.tree.unflatten(self.treedef, self.leaves(x))
