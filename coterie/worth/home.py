"""What a party can do at home with its own records, which costs nothing: a model of its own, or a blend with another.

Every candidate is a minimiser of the mean loss over its records + ridge/2 ‖x − centre‖². With the centre 0 that is
its model alone; with the private model as the centre it lies between the two: a stiff ridge keeps to the private
model, a loose one to the party's own records. Which ridge is chosen by cross-validation on the party's own records
(`FOLDS` parts), so nothing of it ever leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import NDArray

from coterie.compiler import brief
from coterie.drivers.layout import host
from coterie.drivers.references import minimise
from coterie.problems import Problem, SolverSettings
from coterie.problems.records import of_a_batch

__all__ = ["AtHome", "at_home", "at_homes", "room"]

RIDGES = (1.0, 0.1, 1e-2, 1e-3, 1e-4, 1e-5)  # of the mean loss, from the stiffest down
FOLDS, FEW = 5, 1  # parts of cross-validation, and how many of them are held back where a model is large
LARGE = 600  # parameters
SMALL = 1 << 16  # numbers of a party's records
TOGETHER = 1 << 20  # numbers of the parties that one program works on


@dataclass(frozen=True)
class AtHome:
    """A party's own model, and its blend with each of several others, with the ridge that was chosen."""

    alone: NDArray[np.float64]
    blends: NDArray[np.float64]  # one row for each centre
    ridge: float


@brief
def _paths(
    problem: Problem, features: Array, targets: Array, weights: Float[Array, "parties folds rows"],
    start: Float[Array, "parties d"], centre: Float[Array, "parties d"], ridges: Float[Array, " k"],
) -> Float[Array, "parties folds k d"]:  # fmt: skip
    """Minimisers for every weighting of a party's records along the ridges, each from the last one's answer."""
    how, tolerance = (SolverSettings(max_steps=100), 1e-4) if _large(problem) else (SolverSettings(), 1e-5)
    eye = jnp.eye(centre.shape[1] if problem.keeps_factor else 0, dtype=centre.dtype)

    def party(features: Array, targets: Array, weights: Array, start: Array, centre: Array) -> Array:
        def path(weight: Array) -> Array:
            def step(x: Array, ridge: Array) -> tuple[Array, Array]:
                def value(v: Array) -> Array:
                    far = jnp.sum((v - centre) ** 2)
                    return jnp.dot(weight, problem.losses(v, features, targets)) + ridge / 2 * far

                def slope(v: Array) -> Array:
                    return problem.weighted_gradient(v, features, targets, weight) + ridge * (v - centre)

                def hessian(v: Array) -> Array:
                    return problem.weighted_hessian(v, features, targets, weight) + ridge * eye

                x = minimise(problem, value, slope, hessian, x, problem.smoothness + ridge, how, tolerance)
                return x, x

            return jax.lax.scan(step, of_a_batch(start, weight), ridges)[1]

        return jax.vmap(path)(weights)

    return _over_parties(party, features, targets, weights, start, centre)


@brief
def _held_out(
    problem: Problem, features: Array, targets: Array, held: Float[Array, "parties folds rows"],
    points: Float[Array, "parties folds k d"],
) -> Float[Array, "parties k"]:  # fmt: skip
    """The mean loss of each candidate over records of a party that its fold did not see."""

    def party(features: Array, targets: Array, held: Array, points: Array) -> Array:
        losses = partial(problem.losses, features=features, targets=targets)
        each = jax.vmap(lambda h, some: jax.vmap(lambda x: jnp.dot(h, losses(x)))(some))(held, points)
        return jnp.sum(each, axis=0) / jnp.sum(held)

    return _over_parties(party, features, targets, held, points)


def _over_parties(f: Callable[..., Array], *args: Array) -> Array:
    """f of every party; of a single one without a batch, in which every branch of a solver would be taken."""
    return jax.vmap(f)(*args) if len(args[0]) > 1 else f(*(a[0] for a in args))[None]


class _Folded(NamedTuple):
    """A party's records, padded, and which of them each fold holds back and keeps (weights that add up to 1)."""

    features: NDArray[np.float64]
    targets: NDArray
    held: NDArray[np.float64]
    kept: NDArray[np.float64]

    @classmethod
    def of(cls, features: NDArray, targets: NDArray, size: int, folds: int, seed: int) -> _Folded:
        n = len(features)
        order = np.random.default_rng([seed, n]).permutation(n)
        fold = np.empty(n, int)
        fold[order] = np.arange(n) % min(FOLDS, n)
        held, kept = np.zeros((max(folds, 1), size)), np.zeros((folds + 1, size))
        for k in range(folds):
            held[k, :n] = fold == k
            kept[k, :n] = (fold != k) / np.sum(fold != k)
        kept[-1, :n] = 1 / n
        x = np.zeros((size, *features.shape[1:]))
        y = np.full((size, *targets.shape[1:]), targets[0], targets.dtype)
        x[:n], y[:n] = features, targets
        return cls(x, y, held, kept)


def at_home(
    problem: Problem, features: NDArray, targets: NDArray, centres: NDArray, *, seed: int = 0,
    rows: int | None = None, ridges: tuple[float, ...] = RIDGES,
) -> AtHome:  # fmt: skip
    """What a party with these records makes of them, and of them with each model in `centres` (one row each).

    `rows`: to how many the records are padded (see `room`).
    """
    given = np.atleast_2d(np.asarray(centres, float))
    mine = _Folded.of(features, targets, rows or len(features), _folds(problem, len(features)), seed)
    return _together(problem, [mine], given[None], [seed], ridges)[0]


def at_homes(
    problem: Problem, records: Sequence[tuple[NDArray, NDArray]], centres: NDArray, seeds: Sequence[int]
) -> list[AtHome]:
    """The same of several parties: `centres` is (parties, models, d). Small ones of about one size in one program."""
    alike: dict[tuple[int, int], list[int]] = {}
    sizes = [len(features) for features, _ in records]
    for i, size in enumerate(room(sizes)):
        alike.setdefault((size, _folds(problem, sizes[i])), []).append(i)
    found: dict[int, AtHome] = {}
    for (size, folds), some in alike.items():
        numbers = size * int(np.prod(records[some[0]][0].shape[1:]))
        most = max(1, TOGETHER // numbers) if numbers < SMALL else 1
        for low in range(0, len(some), most):
            now = some[low : low + most]
            folded = [_Folded.of(*records[i], size, folds, seeds[i]) for i in now]
            found |= zip(now, _together(problem, folded, centres[now], [seeds[i] for i in now], RIDGES), strict=True)
    return [found[i] for i in range(len(records))]


def _together(
    problem: Problem, parties: Sequence[_Folded], centres: Float[NDArray, "parties models d"], seeds: Sequence[int],
    ridges: tuple[float, ...],
) -> list[AtHome]:  # fmt: skip
    """What each of some parties that are laid out alike makes of its records."""
    x, y, held, kept = (np.stack(part) for part in zip(*parties, strict=True))
    folds = kept.shape[1] - 1
    # Many short steps on few records: an accelerator would wait for the host at each.
    with jax.enable_x64(True), jax.default_device(host() if x[0].size < SMALL else None):
        put = jax.device_put
        data = problem, put(x), put(y)
        stiff, kept, held = put(np.asarray(ridges, float)), put(kept), put(held)

        def paths(start: NDArray, centre: NDArray) -> tuple[NDArray, NDArray]:
            points = _paths(*data, kept, put(start), put(centre), stiff)
            if folds < 1:  # one record: nothing to choose by
                return np.asarray(points[:, -1]), np.tile(np.arange(len(ridges), dtype=float), (len(parties), 1))
            return np.asarray(points[:, -1]), np.asarray(_held_out(*data, held, points[:, :-1]))

        begin = np.stack([np.asarray(problem.start(seed), float) for seed in seeds])
        own, loss = paths(begin, np.zeros_like(begin))
        best = np.argmin(np.where(np.isfinite(loss), loss, np.inf), axis=1)
        everybody = np.arange(len(parties))
        chosen = own[everybody, best]
        blends = np.empty(centres.shape)
        for k in range(centres.shape[1]):
            centre = centres[:, k]
            near, near_loss = paths(centre, centre)
            as_is = np.zeros((len(parties), 1))
            if folds:
                same = np.repeat(centre[:, None, None], held.shape[1], axis=1)
                as_is = np.asarray(_held_out(*data, held, put(same)))
            candidates = np.concatenate([centre[:, None], near, chosen[:, None]], axis=1)
            losses = np.concatenate([as_is, near_loss, loss[everybody, best][:, None]], axis=1)
            blends[:, k] = candidates[everybody, np.argmin(np.where(np.isfinite(losses), losses, np.inf), axis=1)]
    return [AtHome(a, b, ridges[c]) for a, b, c in zip(chosen, blends, best, strict=True)]


def _folds(problem: Problem, records: int) -> int:
    return min(FEW if _large(problem) else FOLDS, records - 1)


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
