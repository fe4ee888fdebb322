"""Networks written with Equinox or Flax NNX, as losses: a module is a tree of parameters and a function of them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from math import prod
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from coterie.errors import InputError
from coterie.problems.base import Problem
from coterie.problems.custom import Custom, Template
from coterie.problems.labels import NUMBERS, ClassNumbers, Labels

__all__ = ["Likely", "Module", "as_network"]

Measure = Callable[[Array, Array], Array]
BATCH_NORM = "normalises over a batch, so one record changes what others say: use a layer or group norm instead"
PORT = "is a PyTorch module: write it with Equinox or Flax NNX and copy its weights (docs/custom-models.md says how)"


@dataclass(frozen=True)
class _Named:
    """A function by its home and name."""

    home: str
    name: str

    @staticmethod
    def of(leaf: PyTree) -> PyTree:
        """The name of a leaf that has one; any other leaf as it is."""
        made = _Named(getattr(leaf, "__module__", None) or "", getattr(leaf, "__name__", ""))
        return made if callable(leaf) and getattr(sys.modules.get(made.home), made.name, None) is leaf else leaf

    def found(self) -> PyTree:
        """The function."""
        return getattr(import_module(self.home), self.name)


@dataclass(frozen=True, eq=False)
class _Equinox:
    """An Equinox module, without dropout."""

    rest: PyTree

    @staticmethod
    def of(module: eqx.Module) -> tuple[_Equinox, PyTree]:
        """What is fixed, and the parameters."""
        indices = [x for x in jax.tree.leaves(module, is_leaf=_is_index) if _is_index(x)]
        if indices:
            raise InputError(f"neural: a layer of {type(module).__name__} {BATCH_NORM}")
        params, rest = eqx.partition(eqx.nn.inference_mode(module), eqx.is_inexact_array)
        return _Equinox(rest), params

    def whole(self, params: PyTree) -> PyTree:
        return eqx.combine(params, self.rest)

    def __reduce__(self) -> tuple:
        """Functions among the leaves, such as jax.nn.relu, go by their names where they have one that is found."""
        return _Equinox._again, (jax.tree.map(_Named.of, self.rest),)

    @staticmethod
    def _again(rest: object) -> _Equinox:
        back = lambda leaf: leaf.found() if isinstance(leaf, _Named) else leaf  # noqa: E731
        return _Equinox(jax.tree.map(back, rest, is_leaf=lambda leaf: isinstance(leaf, _Named)))


@dataclass(frozen=True, eq=False)
class _Nnx:
    """A Flax NNX module, without dropout."""

    graph: PyTree
    rest: PyTree

    @staticmethod
    def of(module: Any) -> tuple[_Nnx, PyTree]:
        """What is fixed, and the parameters."""
        from flax import nnx

        still = nnx.clone(module)
        still.eval()
        if jax.tree.leaves(nnx.state(still, nnx.BatchStat)):
            raise InputError(f"neural: a layer of {type(module).__name__} {BATCH_NORM}")
        parts: Any = nnx.split(still, nnx.Param, ...)
        graph, params, rest = parts
        return _Nnx(graph, rest), params

    def whole(self, params: PyTree) -> PyTree:
        from flax import nnx

        return nnx.merge(self.graph, params, self.rest)


def _is_index(x: object) -> bool:
    return isinstance(x, eqx.nn.StateIndex)


def _taken(module: object) -> tuple[_Equinox | _Nnx, object]:
    """A module of either library; nothing is imported that the caller has not imported."""
    homes = {kind.__module__.split(".")[0] for kind in type(module).__mro__}
    if isinstance(module, eqx.Module) and callable(module):
        return _Equinox.of(module)
    if "flax" in homes and hasattr(module, "eval"):
        return _Nnx.of(module)
    if "torch" in homes:
        raise InputError(f"neural: {type(module).__name__} {PORT}")
    raise InputError(
        f"neural: module must be an Equinox or Flax NNX module that can be called, got {type(module).__name__}; "
        "a function of your own is trained with ct.loss"
    )


@dataclass(frozen=True, eq=False)
class _Scores:
    """What a module says of one record: a score for each class, or one number."""

    parts: _Equinox | _Nnx
    shape: tuple[int, ...] | None
    classes: int | None
    name: str

    def __call__(self, params: PyTree, features: Array) -> Array:
        if self.shape is not None and prod(self.shape) != features.size:
            raise InputError(
                f"shape = {self.shape} takes {prod(self.shape)} features, and the records have {features.size}"
            )
        out = self.parts.whole(params)(features if self.shape is None else features.reshape(self.shape))
        wanted = [(self.classes,)] if self.classes is not None else [(), (1,)]
        if getattr(out, "shape", None) not in wanted:
            words = "one number" if self.classes is None else f"{self.classes} scores, one for each class"
            raise InputError(f"{self.name} gives {getattr(out, 'shape', out)} for a record, expected {words}")
        return out if self.classes is not None else jnp.reshape(out, ())


@dataclass(frozen=True, eq=False)
class _Loss:
    """The loss of one record: cross-entropy, half the squared error, or one's own of (output, target)."""

    scores: _Scores
    own: Measure | None

    def __call__(self, params: PyTree, features: Array, target: Array) -> Array:
        out = self.scores(params, features)
        if self.own is not None:
            return self.own(out, target)
        if self.scores.classes is None:
            return 0.5 * (out - target) ** 2
        return -jax.nn.log_softmax(out)[target.astype(int)]


class Module(Custom):
    """A module whose outputs are scores of classes, or a number, with a loss on top."""

    @property
    def _scores(self) -> _Scores:
        assert isinstance(self.loss, _Loss)
        return self.loss.scores

    @property
    def name(self) -> str:
        return f"network {self._scores.name!r}"

    @property
    def labels(self) -> Labels:
        return NUMBERS if self._scores.classes is None else ClassNumbers(self._scores.classes)

    @property
    def metric(self) -> str:
        return "r2" if self._scores.classes is None else "accuracy"

    def evidence(self, x: Float[Array, " d"], features: Array) -> Float[Array, "rows classes"] | None:
        return None if self._scores.classes is None else self.every(self._scores, x, features)

    def predict(self, x: Float[Array, " d"], features: Array) -> Array:
        found = self.every(self._scores, x, features)
        return found if self._scores.classes is None else jnp.argmax(found, axis=1)

    def score(self, x: Float[Array, " d"], features: Array, targets: Array) -> Float[Array, ""]:
        return Problem.score(self, x, features, targets)

    def encode(self, targets: np.ndarray, classes: tuple[str, ...] | None) -> np.ndarray:
        return self.labels.encode(targets, classes, self.name)

    def shaped(self, point: np.ndarray) -> PyTree:
        return self._scores.parts.whole(self.template.unravel(jnp.asarray(point)))


class Likely(Module):
    """A network whose loss is cross-entropy: the softmax of its scores are chances."""

    likely: ClassVar[bool] = True


def as_network(
    module: object, classes: int | None, shape: tuple[int, ...] | None = None, loss: Measure | None = None
) -> Module:
    """The problem of a module."""
    parts, params = _taken(module)
    scores = _Scores(parts, shape, classes, type(module).__name__)
    kind = Likely if classes is not None and loss is None else Module
    return kind(_Loss(scores, loss), Template(params), integer_targets=classes is not None)
