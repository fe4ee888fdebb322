"""Trying a loss's stated facts on made-up records: a statement that is false is refused before anything runs.

Facts are what privacy is proved from, and a user's own loss states its own. Nothing here proves them. It looks for a
counterexample among records and points from tiny to huge, the start and zero among them: a gradient that is not finite
or longer than `lipschitz`, a slope that falls along a line (`convex`), one that turns faster than `smoothness`, a
gradient that changes its direction (`scored`) or its sign (`monotone`), and two records whose gradients are farther
apart than `half_gap` allows for, at one point or, coordinate by coordinate, at many (`directed`).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from coterie.errors import InputError
from coterie.problems.base import Problem
from coterie.problems.glm import Linear, Softmax
from coterie.problems.mean import Mean
from coterie.problems.network import Custom, Perceptron

__all__ = ["need_facts"]

PROVED = (Linear, Softmax, Mean, Perceptron)  # whose facts are derived where they are stated, and tested
TRIES, SLACK = 400, 1e-6
SUMMED = 12  # records, and points, on which clipped sums are tried
PAIRED = 24  # records, and points, that are tried in all pairs


def need_facts(problem: Problem, columns: int) -> None:
    """Refuse a loss of one's own whose statements a made-up record of so many columns contradicts.

    What it need not state is tried too: that a clipped gradient is no longer than the clip, and that every record adds
    its own part to a sum, whatever the others are.
    """
    if type(problem) in PROVED:
        return
    features, targets, here, there = _made(problem, columns)
    if complaint := _sums(problem, features[:SUMMED], targets[:SUMMED], here[:SUMMED]):
        raise InputError(f"{problem.name}: {complaint}")
    stated = problem.convex, problem.bounded, problem.smooth, problem.scored, problem.directed, problem.monotone
    if not any(stated):
        return

    def slope(x: jax.Array, f: jax.Array, y: jax.Array) -> jax.Array:
        return jax.grad(lambda v: problem.losses(v, f[None], y[None])[0])(x)

    with jax.enable_x64(True), np.errstate(over="ignore", invalid="ignore"):
        all_slopes = jax.jit(lambda x: jax.vmap(slope)(x, jnp.asarray(features), jnp.asarray(targets)))
        one, two = (np.asarray(all_slopes(jnp.asarray(x))) for x in (here, there))
        # along its own gradient a loss bends most
        length = np.linalg.norm(one, axis=1, keepdims=True)
        ahead = here + np.linalg.norm(there - here, axis=1, keepdims=True) * one / np.where(length > 0, length, 1.0)
        three = np.asarray(all_slopes(jnp.asarray(np.nan_to_num(ahead))))
        some = jnp.asarray(features[:PAIRED]), jnp.asarray(targets[:PAIRED])
        everyone = jax.jit(lambda x: jax.vmap(slope, (None, 0, 0))(x, *some))
        apart = [_apart(np.asarray(everyone(jnp.asarray(x))), problem.directed) for x in here[:PAIRED]]
    steps = (two, here - there), (three, here - np.nan_to_num(ahead))
    complaints = [_complaint(problem, one, slopes, step) for slopes, step in steps]
    if complaint := next(filter(None, complaints), None) or _replaced(problem, apart):
        raise InputError(f"{problem.name}: {complaint}")


def _sums(problem: Problem, features: np.ndarray, targets: np.ndarray, points: np.ndarray) -> str | None:
    """What is wrong with the clipped sums that gradient methods are priced by, if something is."""
    clip, count = 0.1, len(features)
    with jax.enable_x64(True):
        rows, ys = jnp.asarray(features), jnp.asarray(targets)
        add = jax.jit(lambda x, w: problem.weighted_gradient(x, rows, ys, w, clip))
        alone = jax.jit(
            lambda x: jax.vmap(lambda f, y: problem.weighted_gradient(x, f[None], y[None], jnp.ones(1), clip))(rows, ys)
        )
        for x in map(jnp.asarray, points):
            parts = np.asarray(alone(x))
            if not np.all(np.linalg.norm(parts, axis=1) <= clip * (1 + SLACK)):
                return f"weighted_gradient with clip = {clip:g} returns a longer gradient of a record, or no number"
            weights = np.arange(count) % 3 == 1
            whole = np.asarray(add(x, jnp.asarray(weights, float)))
            if not np.allclose(whole, parts[weights].sum(0), rtol=SLACK, atol=SLACK):
                return "weighted_gradient is not the sum of its records' own parts: one record changes the others'"
    return None


def _complaint(problem: Problem, one: np.ndarray, two: np.ndarray, apart: np.ndarray) -> str | None:
    """Which statement two gradients of one record, at points so far apart, contradict."""
    gradients = np.concatenate([one, two])
    if not np.isfinite(gradients).all():
        return "its gradient is not finite at some points, so it has no bounds; state none, or mend it"
    longest = float(np.max(np.linalg.norm(gradients, axis=1)))
    if longest > problem.lipschitz * (1 + SLACK):
        return f"lipschitz = {problem.lipschitz:g} is stated, but a made-up record has a gradient of norm {longest:.4g}"
    distance = np.linalg.norm(apart, axis=1)
    rounding = SLACK * (np.linalg.norm(one, axis=1) + np.linalg.norm(two, axis=1)) + 1e-12
    if problem.convex and np.any(np.sum((one - two) * apart, axis=1) < -rounding * distance):
        return "convex is stated, but along some line its slope falls"
    turned = np.linalg.norm(one - two, axis=1) - rounding
    if problem.smooth and np.any(turned > problem.smoothness * distance * (1 + SLACK)):
        worst = float(np.max(turned[distance > 0] / distance[distance > 0]))
        return f"smoothness = {problem.smoothness:g} is stated, but its slope turns by {worst:.4g} a unit somewhere"
    lengths, along = np.linalg.norm(one, axis=1) * np.linalg.norm(two, axis=1), np.sum(one * two, axis=1)
    if (problem.scored or problem.monotone) and np.any(np.abs(along) < lengths * (1 - SLACK)):
        return "scored is stated, but the gradient of a made-up record changes its direction with the point"
    if problem.monotone and np.any(along < -SLACK * lengths):
        return "monotone is stated, but the slope of a made-up record changes its sign"
    return None


def _apart(gradients: np.ndarray, single: bool) -> np.ndarray:
    """How far the gradients of all pairs of records are apart at one point: in norm, or in every coordinate."""
    gap = np.abs(gradients[:, None] - gradients)
    return gap if single else np.linalg.norm(gap, axis=2, keepdims=True)


def _replaced(problem: Problem, apart: list[np.ndarray]) -> str | None:
    """Whether replacing a record changes more than is stated, over all points together where `directed` says so."""
    worst = float(np.max(np.linalg.norm(np.max(apart, axis=0), axis=2)))
    if worst <= 2 * problem.half_gap * (1 + SLACK):
        return None
    what = "directed is stated with" if problem.directed else "a bound is stated,"
    return f"{what} half_gap = {problem.half_gap:g}, but replacing a made-up record changes a gradient by {worst:.4g}"


def _made(problem: Problem, columns: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Admissible records, and two points for each: near and far, at zero and at the start."""
    rng = np.random.default_rng(0)
    features = _directions(rng, columns) * (10 ** rng.uniform(-3, 3, (TRIES, 1)))
    features[::7] = 0.0
    targets = rng.choice([-1.0, 0.0, 1.0, 2.0], TRIES)
    targets[::3] *= 10 ** rng.uniform(-3, 3, len(targets[::3]))
    if isinstance(problem, Custom) and problem.integer_targets:
        targets = np.abs(np.rint(targets)).astype(np.int32)
    features, targets = problem.admit(features, targets)
    here = _directions(rng, problem.dim) * 10 ** rng.uniform(-3, 3, (TRIES, 1))
    here[::5], here[1::5] = 0.0, problem.start(0)
    there = here + _directions(rng, problem.dim) * 10 ** rng.uniform(-4, 3, (TRIES, 1))
    return features, targets, here, there


def _directions(rng: np.random.Generator, dim: int) -> np.ndarray:
    rows = rng.standard_normal((TRIES, dim))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)
