"""Any loss that JAX can differentiate: loss(params, features, target) over a pytree of parameters, by `vmap(grad)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from coterie.errors import InputError
from coterie.problems.base import Problem
from coterie.problems.labels import NUMBERS, WHOLE, Labels
from coterie.problems.records import rescale
from coterie.problems.sets import Constraint

__all__ = ["Custom"]


class Custom(Problem):
    """Any per-record loss(params, features, target) over a pytree of parameters.

    `forecast(params, features)` predicts one record. You may state what you know of the loss for every target, all
    features of norm up to `bound` (None: of any norm) and all parameters: `convex`, `lipschitz`, `smoothness`. What is
    not stated is not assumed, and algorithms whose proofs need it refuse the loss. Statements are tried on made-up
    records before anything runs (`coterie.problems.facts`); a gradient longer than `lipschitz` is cut to it.
    """

    loss: Callable[[Any, Array, Array], Array] = eqx.field(static=True)
    template: Any = eqx.field(static=True)  # starting parameters and their pytree; see `make`
    forecast: Callable[[Any, Array], Array] | None = eqx.field(static=True, default=None)
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
    def make(cls, loss: Callable[[Any, Array, Array], Array], params: Any, **options: Any) -> Custom:
        """Wrap a loss and the (data-free) starting parameters.

        >>> import jax.numpy as jnp
        >>> absolute = lambda p, x, y: jnp.sqrt(1 + (p["w"] @ x + p["b"] - y) ** 2)
        >>> Custom.make(absolute, {"w": jnp.zeros(3), "b": jnp.zeros(())}).dim
        4
        """
        return cls(loss, _Template(params), **options)

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
        params = self.template.unravel(x)
        return jax.vmap(lambda f, y: self.loss(params, f, y))(features, targets)

    def weighted_gradient(
        self,
        x: Float[Array, " d"],
        features: Array,
        targets: Array,
        weights: Array,
        clip: Array | float | None = None,
    ) -> Float[Array, " d"]:
        if clip is None and not self.bounded:  # nothing rests on single records: no need to look at each
            return jax.grad(lambda v: jnp.sum(weights * self.losses(v, features, targets)))(x)
        limit = self.lipschitz if clip is None else jnp.minimum(clip, self.lipschitz)
        one = jax.grad(lambda v, f, y: self.loss(self.template.unravel(v), f, y))
        each = jax.vmap(one, (None, 0, 0))(x, features, targets)
        return weights @ rescale(each, jnp.linalg.norm(each, axis=1), limit)

    @property
    def predicts(self) -> bool:
        return self.forecast is not None

    def predict(self, x: Float[Array, " d"], features: Array) -> Array:
        if self.forecast is None:
            raise InputError("this custom problem has no `forecast`, so it cannot predict")
        params = self.template.unravel(x)
        return jax.vmap(lambda f: self.forecast(params, f))(features)  # type: ignore[misc]

    def score(self, x: Float[Array, " d"], features: Array, targets: Array) -> Float[Array, ""]:
        if self.forecast is None or not self.integer_targets:
            return -jnp.mean(self.losses(x, features, targets))
        return jnp.mean(self.predict(x, features) == targets, dtype=x.dtype)

    def encode(self, targets: np.ndarray, classes: tuple[str, ...] | None) -> np.ndarray:
        return np.asarray(targets, dtype=np.int32 if self.integer_targets else float)

    def shaped(self, point: np.ndarray) -> Any:
        return self.template.unravel(jnp.asarray(point))

    def start(self, seed: int) -> np.ndarray:
        return self.template.flat


class _Template:
    """Starting parameters and how to rebuild their pytree; compared by identity, so it may sit in static fields."""

    def __init__(self, params: Any):
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

    def unravel(self, x: Array) -> Any:
        sizes = [int(np.prod(s)) for s in self.shapes]
        pieces = jnp.split(x, np.cumsum(sizes)[:-1].tolist())
        return jax.tree.unflatten(self.treedef, [p.reshape(s) for p, s in zip(pieces, self.shapes, strict=True)])
