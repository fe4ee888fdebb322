"""A dense network with softmax cross-entropy on top: neither convex nor bounded, so algorithms clip its gradients.

Layer l's gradient for one record is activation ⊗ delta, so its squared norm is (‖activation‖² + 1) · ‖delta‖². One
forward and one backward pass give all norms, and the clipped sum is one matrix product per layer: no per-record
gradient is ever formed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from pydantic import Field

from coterie.losses.base import LossSettings
from coterie.losses.softmax import cross_entropy
from coterie.problems.base import Problem
from coterie.problems.labels import ClassNumbers, Labels
from coterie.problems.records import apart, clip_factor, sound
from coterie.problems.sets import Constraint

__all__ = ["Perceptron", "Settings"]

MODEL = "neural network"
Activation = Literal["sigmoid", "tanh", "relu"]
ACTIVATIONS: dict[str, tuple[Callable[[Array], Array], Callable[[Array], Array]]] = {
    # name: (function, its derivative as a function of its value)
    "sigmoid": (jax.nn.sigmoid, lambda a: a * (1 - a)),
    "tanh": (jnp.tanh, lambda a: 1 - a**2),
    "relu": (jax.nn.relu, lambda a: (a > 0).astype(a.dtype)),
}


class Perceptron(Problem):
    """Dense layers of the given sizes with softmax cross-entropy on top, e.g. sizes (784, 50, 10)."""

    sizes: tuple[int, ...] = eqx.field(static=True)
    activation: Activation = eqx.field(static=True, default="tanh")
    constraint: Constraint | None = None
    likely: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return "neural network"

    @property
    def labels(self) -> Labels:
        return ClassNumbers(self.sizes[-1])

    @property
    def columns(self) -> int:
        return self.sizes[0]

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

    def shaped(self, point: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        return [(np.asarray(w), np.asarray(b)) for w, b in self.layers(jnp.asarray(point))]

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
        return cross_entropy(self.forward(x, features)[-1], targets)

    def weighted_gradient(
        self, x: Float[Array, " d"], features: Array, targets: Array, weights: Array, clip: Array | float | None = None
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
        deltas = apart([weights[:, None] * d for d in deltas])
        parts = []
        for a, d in zip(values, deltas, strict=False):
            parts += [(a.T @ d).reshape(-1), jnp.sum(d, axis=0)]
        return jnp.concatenate(parts)

    def evidence(self, x: Float[Array, " d"], features: Array) -> Float[Array, "rows classes"]:
        return self.forward(x, features)[-1]

    def predict(self, x: Float[Array, " d"], features: Array) -> Array:
        return jnp.argmax(self.forward(x, features)[-1], axis=1)

    def start(self, seed: int) -> np.ndarray:
        """Glorot-uniform weights, zero biases, from a public seed (all-zero weights would never break symmetry)."""
        rng = np.random.default_rng(seed)
        parts = []
        for i, o in self._layers:
            limit = (6 / (i + o)) ** 0.5
            parts += [rng.uniform(-limit, limit, i * o), np.zeros(o)]
        return np.concatenate(parts)


class Settings(LossSettings):
    """What a plan may say for it."""

    hidden: list[Annotated[int, Field(ge=1)]] = Field([50], description="sizes of the hidden layers")
    activation: Activation = Field("tanh", description="of the hidden layers")


def make(settings: Settings, features: int, classes: int) -> Perceptron:
    """The problem on records with this many features and classes."""
    return Perceptron((features, *settings.hidden, classes), settings.activation, constraint=settings.ball)


EXAMPLE = Perceptron((2, 3, 2))
