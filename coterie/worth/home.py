"""What a party can do at home with its own records, which costs nothing: a model of its own, or a blend with another.

Every candidate is a minimiser of the mean loss over its records + ridge/2 ‖x − centre‖². With the centre 0 that is
its model alone; with the private model as the centre it lies between the two: a stiff ridge keeps to the private
model, a loose one to the party's own records. Which ridge is chosen by cross-validation on the party's own records
(`FOLDS` parts), so nothing of it ever leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import NDArray

from coterie.drivers.layout import host
from coterie.drivers.references import minimise
from coterie.problems import Problem, SolverSettings

__all__ = ["AtHome", "at_home", "room"]

RIDGES = (1.0, 0.1, 1e-2, 1e-3, 1e-4, 1e-5)  # of the mean loss, from the stiffest down
FOLDS, FEW = 5, 1  # parts of cross-validation, and how many of them are held back where a model is large
LARGE = 600  # parameters
SMALL = 1 << 16  # numbers of a party's records


@dataclass(frozen=True)
class AtHome:
    """A party's own model, and its blend with each of several others, with the ridge that was chosen."""

    alone: NDArray[np.float64]
    blends: NDArray[np.float64]  # one row for each centre
    ridge: float


@eqx.filter_jit
def _paths(
    problem: Problem, features: Array, targets: Array, weights: Float[Array, "folds rows"],
    start: Float[Array, " d"], centre: Float[Array, " d"], ridges: Float[Array, " k"],
) -> Float[Array, "folds k d"]:  # fmt: skip
    """Minimisers for every weighting of the records along the ridges, each from the last one's answer."""
    how, tolerance = (SolverSettings(max_steps=100), 1e-4) if _large(problem) else (SolverSettings(), 1e-5)
    eye = jnp.eye(centre.shape[0] if problem.keeps_factor else 0, dtype=centre.dtype)

    def path(weight: Array) -> Array:
        def step(x: Array, ridge: Array) -> tuple[Array, Array]:
            def value(v: Array) -> Array:
                return jnp.dot(weight, problem.losses(v, features, targets)) + ridge / 2 * jnp.sum((v - centre) ** 2)

            def slope(v: Array) -> Array:
                return problem.weighted_gradient(v, features, targets, weight) + ridge * (v - centre)

            def hessian(v: Array) -> Array:
                return problem.weighted_hessian(v, features, targets, weight) + ridge * eye

            x = minimise(problem, value, slope, hessian, x, problem.smoothness + ridge, how, tolerance)
            return x, x

        return jax.lax.scan(step, start, ridges)[1]

    return jax.vmap(path)(weights)


@eqx.filter_jit
def _held_out(
    problem: Problem, features: Array, targets: Array, held: Float[Array, "folds rows"], points: Array
) -> Float[Array, " k"]:
    """The mean loss of each candidate over records that its fold did not see; `points` is (folds, candidates, d)."""
    losses = partial(problem.losses, features=features, targets=targets)
    each = jax.vmap(lambda h, some: jax.vmap(lambda x: jnp.dot(h, losses(x)))(some))(held, points)
    return jnp.sum(each, axis=0) / jnp.sum(held)


def at_home(
    problem: Problem, features: NDArray, targets: NDArray, centres: NDArray, *, seed: int = 0,
    rows: int | None = None, ridges: tuple[float, ...] = RIDGES,
) -> AtHome:  # fmt: skip
    """What a party with these records makes of them, and of them with each model in `centres` (one row each).

    `rows`: to how many the records are padded (see `room`).
    """
    n = len(features)
    folds = min(FEW if _large(problem) else FOLDS, n - 1)
    order = np.random.default_rng([seed, n]).permutation(n)
    fold = np.empty(n, int)
    fold[order] = np.arange(n) % min(FOLDS, n)
    size = rows or n
    held = np.zeros((max(folds, 1), size))
    kept = np.zeros((max(folds, 0) + 1, size))
    for k in range(folds):
        held[k, :n] = fold == k
        kept[k, :n] = (fold != k) / np.sum(fold != k)
    kept[-1, :n] = 1 / n
    x = np.zeros((size, *features.shape[1:]))
    y = np.full((size, *targets.shape[1:]), targets[0], targets.dtype)
    x[:n], y[:n] = features, targets
    # Many short steps on few records: an accelerator would wait for the host at each.
    with jax.enable_x64(True), jax.default_device(host() if x.size < SMALL else None):
        put = jax.device_put
        data = problem, put(x), put(y)
        stiff = put(np.asarray(ridges, float))

        def paths(start: NDArray, centre: NDArray) -> tuple[NDArray, NDArray]:
            points = _paths(*data, put(kept), put(start), put(centre), stiff)
            if folds < 1:  # one record: nothing to choose by
                return np.asarray(points[-1]), np.arange(len(ridges), dtype=float)
            return np.asarray(points[-1]), np.asarray(_held_out(*data, put(held), points[:-1]))

        own, loss = paths(np.asarray(problem.start(seed), float), np.zeros(problem.dim))
        best = int(np.nanargmin(np.where(np.isfinite(loss), loss, np.inf)))
        blends = []
        for centre in np.atleast_2d(np.asarray(centres, float)):
            near, near_loss = paths(centre, centre)
            as_is = np.asarray(_held_out(*data, put(held), put(np.tile(centre, (len(held), 1, 1)))))
            candidates = np.concatenate([centre[None], near, own[best : best + 1]])
            losses = np.concatenate([as_is if folds else [0.0], near_loss, loss[best : best + 1]])
            blends.append(candidates[int(np.argmin(np.where(np.isfinite(losses), losses, np.inf)))])
    return AtHome(own[best], np.array(blends), ridges[best])


def _large(problem: Problem) -> bool:
    return problem.dim > LARGE


def room(sizes: Sequence[int]) -> list[int]:
    """To how many rows to pad parties of these sizes: those of about the same size share a compiled program.

    >>> room([100, 900, 400, 20])
    [100, 900, 900, 20]
    """
    out, held = [0] * len(sizes), max(sizes)
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        held = held if sizes[i] * 3 > held else sizes[i]
        out[i] = held
    return out
