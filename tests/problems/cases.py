"""One small instance of every problem, with records, a point away from any kink, and the naive per-record gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from coterie.losses.hinge import Hinge
from coterie.losses.logistic import Logistic
from coterie.losses.mean import Mean
from coterie.losses.mlp import Perceptron
from coterie.losses.softmax import Softmax
from coterie.losses.squared import Squared
from coterie.problems import Ball, Box, Custom, HeldShard, Problem, Shard, SolverSettings

ROWS, FEATURES, CLASSES = 9, 4, 3


def robust(params: dict, features: jax.Array, target: jax.Array) -> jax.Array:
    """Pseudo-Huber loss of a linear model with a bias: a user's own loss over a pytree."""
    return jnp.sqrt(1 + (params["w"] @ features + params["b"] - target) ** 2) - 1


CUSTOM = Custom.make(robust, {"w": np.zeros(FEATURES), "b": np.zeros(())}, smoothness=2.0)
PROBLEMS: dict[str, Problem] = {
    "logistic": Logistic(FEATURES),
    "hinge": Hinge(FEATURES, width=0.3),
    "squared": Squared(FEATURES),
    "softmax": Softmax(FEATURES, CLASSES),
    "mean": Mean(FEATURES),
    "sigmoid-net": Perceptron((FEATURES, 5, CLASSES), "sigmoid"),
    "tanh-net": Perceptron((FEATURES, 5, CLASSES), "tanh"),
    "deep-relu-net": Perceptron((FEATURES, 5, 4, CLASSES), "relu"),
    "custom": CUSTOM,
    "logistic-ball": Logistic(FEATURES, constraint=Ball(0.4)),
    "logistic-box": Logistic(FEATURES, constraint=Box(-0.3, 0.25)),
}


class Case(NamedTuple):
    """A problem, its records and a point."""

    problem: Problem
    features: np.ndarray
    targets: np.ndarray
    point: np.ndarray


def case(name: str, rows: int = ROWS, seed: int = 1) -> Case:
    """Records in the unit ball (one of them all zero) with targets in the problem's coding."""
    problem, rng = PROBLEMS[name], np.random.default_rng(seed)
    features = rng.standard_normal((rows, FEATURES))
    features *= rng.uniform(0.2, 1, (rows, 1)) / np.linalg.norm(features, axis=1, keepdims=True)
    features[rows // 2] = 0
    if name.startswith("logistic") or name == "hinge":
        targets = rng.choice([-1.0, 1.0], rows)
    elif name == "softmax" or name.endswith("net"):
        targets = rng.integers(0, CLASSES, rows).astype(np.int32)
    else:
        targets = rng.uniform(-1, 1, rows)
    return Case(problem, features, targets, problem.start(0) + 0.7 * rng.standard_normal(problem.dim))


@eqx.filter_jit
def _losses(problem: Problem, x: jax.Array, features: jax.Array, targets: jax.Array) -> jax.Array:
    return jax.vmap(lambda v: problem.losses(v, features, targets))(x)


@eqx.filter_jit
def _each(problem: Problem, x: jax.Array, features: jax.Array, targets: jax.Array) -> jax.Array:
    one = lambda v, f, y: problem.losses(v, f[None], y[None])[0]  # noqa: E731
    return jax.vmap(jax.grad(one), (None, 0, 0))(x, features, targets)


@eqx.filter_jit
def _gradient(problem: Problem, x: jax.Array, features: jax.Array, targets: jax.Array, weights: jax.Array, clip: Any):
    return jax.vmap(lambda v: problem.weighted_gradient(v, features, targets, weights, clip))(x)


def losses(c: Case, points: np.ndarray | None = None) -> np.ndarray:
    """(points, rows): the problem's losses at the case's point, or at several."""
    points = c.point[None] if points is None else points
    with jax.enable_x64(True):
        return np.asarray(_losses(c.problem, *map(jnp.asarray, (points, c.features, c.targets))))


def per_record(c: Case) -> np.ndarray:
    """(rows, dim): every record's gradient by automatic differentiation of its own loss."""
    with jax.enable_x64(True):
        return np.asarray(_each(c.problem, *map(jnp.asarray, (c.point, c.features, c.targets))))


def gradient(c: Case, weights: np.ndarray, clip: float | None = None, points: np.ndarray | None = None) -> np.ndarray:
    """(points, dim): the problem's own weighted and clipped gradient, at the case's point or at several."""
    points = c.point[None] if points is None else points
    with jax.enable_x64(True):
        limit = None if clip is None else jnp.asarray(clip, jnp.float64)
        return np.asarray(_gradient(c.problem, *map(jnp.asarray, (points, c.features, c.targets, weights)), limit))


def shard(
    c: Case, unit: float | None = None, ridge: float = 0.1, how: SolverSettings | None = None, padding: int = 0
) -> Shard:
    """The case as one agent's shard, with rows of rubbish after its records."""
    rows = len(c.targets)
    with jax.enable_x64(True):
        return HeldShard(
            c.problem,
            jnp.asarray(np.concatenate([c.features, np.full((padding, c.features.shape[1]), 55.0)])),
            jnp.asarray(np.concatenate([c.targets, np.ones(padding, c.targets.dtype)])),
            jnp.asarray(rows, jnp.int32),
            jnp.asarray(1 / rows if unit is None else unit),
            jnp.asarray(ridge),
            how or SolverSettings(),
        )


def finite_difference(f: Callable[[np.ndarray], np.ndarray], x: np.ndarray, h: float = 1e-6) -> np.ndarray:
    """(dim, …): central differences along every coordinate of an f that takes many points at once."""
    steps = h * np.eye(len(x))
    high, low = np.split(f(np.concatenate([x + steps, x - steps])), 2)
    return (high - low) / (2 * h)
