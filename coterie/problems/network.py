"""Neural networks and any loss that JAX can differentiate.

`Perceptron` is a dense network whose per-record gradient norms have a closed form: layer l's gradient for one record
is activation ⊗ delta, so its squared norm is (‖activation‖² + 1) · ‖delta‖². One forward and one backward pass give
all norms, and the clipped sum is one matrix product per layer: no per-record gradient is ever formed.

`Custom` takes a user's loss(params, features, target) over any pytree of parameters and falls back on `vmap(grad)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from coterie.errors import InputError
from coterie.problems.base import Constraint, Problem, class_numbers, clip_factor, rescale, sound

__all__ = ["Custom", "Perceptron"]

ACTIVATIONS: dict[str, tuple[Callable[[Array], Array], Callable[[Array], Array]]] = {
    # name: (function, its derivative as a function of its value)
    "sigmoid": (jax.nn.sigmoid, lambda a: a * (1 - a)),
    "tanh": (jnp.tanh, lambda a: 1 - a**2),
    "relu": (jax.nn.relu, lambda a: (a > 0).astype(a.dtype)),
}


class Perceptron(Problem):
    """Dense layers of the given sizes with softmax cross-entropy on top, e.g. sizes (784, 50, 10)."""

    sizes: tuple[int, ...] = eqx.field(static=True)
    activation: Literal["sigmoid", "tanh", "relu"] = eqx.field(static=True, default="tanh")
    constraint: Constraint | None = None

    @property
    def name(self) -> str:
        return "neural network"

    @property
    def dim(self) -> int:
        """Weights and biases of all layers."""
        return sum((i + 1) * o for i, o in self._layers)

    @property
    def _layers(self) -> tuple[tuple[int, int], ...]:
        return tuple(zip(self.sizes[:-1], self.sizes[1:], strict=True))

    def layers(self, x: Float[Array, " d"]) -> list[tuple[Array, Array]]:
        """(weights, bias) of each layer, read off the flat point."""
        out, at = [], 0
        for i, o in self._layers:
            out.append((x[at : at + i * o].reshape(i, o), x[at + i * o : at + (i + 1) * o]))
            at += (i + 1) * o
        return out

    def forward(self, x: Float[Array, " d"], features: Array) -> list[Array]:
        """Activations of every layer, the features first and the scores last."""
        act = ACTIVATIONS[self.activation][0]
        values = [features]
        params = self.layers(x)
        for k, (w, b) in enumerate(params):
            z = values[-1] @ w + b
            values.append(sound(z if k == len(params) - 1 else act(z)))
        return values

    def losses(self, x: Float[Array, " d"], features: Array, targets: Array) -> Float[Array, " rows"]:
        logits = jax.nn.log_softmax(self.forward(x, features)[-1])
        return -jnp.take_along_axis(logits, targets[:, None].astype(int), axis=1)[:, 0]

    def weighted_gradient(
        self,
        x: Float[Array, " d"],
        features: Array,
        targets: Array,
        weights: Array,
        clip: Array | float | None = None,
    ) -> Float[Array, " d"]:
        derivative = ACTIVATIONS[self.activation][1]
        values, params = self.forward(x, features), self.layers(x)
        delta = jax.nn.softmax(values[-1]) - jax.nn.one_hot(targets, self.sizes[-1], dtype=x.dtype)
        deltas = [delta]
        for k in reversed(range(1, len(params))):
            deltas.append(sound(deltas[-1] @ params[k][0].T * derivative(values[k])))
        deltas.reverse()
        if clip is not None:
            square = sum(
                (jnp.sum(a**2, axis=1) + 1) * jnp.sum(d**2, axis=1) for a, d in zip(values, deltas, strict=False)
            )
            weights = weights * clip_factor(jnp.sqrt(square), clip)
        parts = []
        for a, d in zip(values, deltas, strict=False):
            d = weights[:, None] * d
            parts += [(a.T @ d).reshape(-1), jnp.sum(d, axis=0)]
        return jnp.concatenate(parts)

    def predict(self, x: Float[Array, " d"], features: Array) -> Array:
        return jnp.argmax(self.forward(x, features)[-1], axis=1)

    def encode(self, targets: np.ndarray, classes: tuple[str, ...] | None) -> np.ndarray:
        if classes is None or len(classes) != self.sizes[-1]:
            have = "continuous values" if classes is None else f"{len(classes)} classes"
            raise InputError(f"the network has {self.sizes[-1]} outputs, but the label column has {have}")
        return np.asarray(targets, dtype=np.int32)

    def admit_targets(self, targets: Any) -> Any:
        return class_numbers(targets, self.sizes[-1])

    def start(self, seed: int) -> np.ndarray:
        """Glorot-uniform weights, zero biases, from a public seed (all-zero weights would never break symmetry)."""
        rng = np.random.default_rng(seed)
        parts = []
        for i, o in self._layers:
            limit = (6 / (i + o)) ** 0.5
            parts += [rng.uniform(-limit, limit, i * o), np.zeros(o)]
        return np.concatenate(parts)


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
    def metric(self) -> str:  # type: ignore[override]
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

    def start(self, seed: int) -> np.ndarray:
        return self.template.flat


class _Template:
    """Starting parameters and how to rebuild their pytree; compared by identity, so it may sit in static fields."""

    def __init__(self, params: Any):
        leaves, self.treedef = jax.tree.flatten(params)
        self.flat = np.concatenate([np.ravel(leaf) for leaf in leaves]).astype(float)
        self.shapes = [np.shape(leaf) for leaf in leaves]

    def unravel(self, x: Array) -> Any:
        sizes = [int(np.prod(s)) for s in self.shapes]
        pieces = jnp.split(x, np.cumsum(sizes)[:-1].tolist())
        return jax.tree.unflatten(self.treedef, [p.reshape(s) for p, s in zip(pieces, self.shapes, strict=True)])
