"""Trying a loss's stated facts on made-up records: a statement that is false is refused before anything runs.

Facts are what privacy is proved from, and a user's own loss states its own. Nothing here proves them. It looks for a
counterexample among records and points from tiny to huge, the start and zero among them, and among records of exact
zeros and ones with every small label at scores of millions: a gradient that is not finite or longer than `lipschitz`
(of the loss, or as `weighted_gradient` gives it), a slope that falls along a line (`convex`), one that turns faster
than `smoothness`, or not as the point does (`isotropic`), a gradient that changes its direction (`scored`) or its sign
(`monotone`), and two records whose gradients are farther apart than `half_gap` allows for, at one point or, coordinate
by coordinate, at many (`directed`).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from coterie.errors import InputError
from coterie.problems.base import Problem
from coterie.problems.labels import WHOLE

__all__ = ["try_facts"]

TRIES, SLACK = 400, 1e-6
SUMMED = 24  # records, and points, on which clipped sums are tried
PAIRED = 48  # records, and points, that are tried in all pairs
LABELS = (*range(12), -1, 0.5)  # beside those drawn at random
RADII = (0.0, 1.0, 1e4, 1e6)  # of points
ALONE = 12  # records that are written together and one by one
ONES = 64  # features of which each is tried as the only one


def try_facts(problem: Problem, columns: int) -> None:
    """Refuse a loss whose statements a made-up record with this many columns contradicts.

    What it need not state is tried too: that records and labels are written one by one, that a clipped gradient is no
    longer than the clip, and that every record adds its own part to a sum, whatever the others are.
    """
    if complaint := _looks_at_others(problem, columns):
        raise InputError(f"{problem.name}: {complaint}")
    facts = problem.convex, problem.bounded, problem.smooth, problem.scored, problem.directed, problem.monotone
    stated = any(facts) or problem.isotropic
    features, targets, here, there = _made(problem, columns, TRIES if stated else SUMMED)
    if complaint := _sums(problem, features[:SUMMED], targets[:SUMMED], here[:SUMMED]):
        raise InputError(f"{problem.name}: {complaint}")
    if not stated:
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
    steps = (two, here - there), (three, here - np.nan_to_num(ahead))
    for slopes, step in steps:
        if complaint := _complaint(problem, one, slopes, step):
            raise InputError(f"{problem.name}: {complaint}")
    some = jnp.asarray(features[:PAIRED]), jnp.asarray(targets[:PAIRED])
    used = lambda x, f, y: problem.weighted_gradient(x, f[None], y[None], jnp.ones(1))  # noqa: E731
    everyone = jax.jit(lambda x: [jax.vmap(way, (None, 0, 0))(x, *some) for way in (slope, used)])
    apart = np.zeros(())
    with jax.enable_x64(True):
        for given in (np.asarray(g) for x in here[:PAIRED] for g in everyone(jnp.asarray(x))):
            if problem.bounded and not np.all(np.linalg.norm(given, axis=1) <= problem.lipschitz * (1 + SLACK)):
                raise InputError(f"{problem.name}: {_too_long(problem, given)}")
            apart = np.maximum(apart, _apart(given, problem.directed))
    if complaint := _replaced(problem, apart):
        raise InputError(f"{problem.name}: {complaint}")


def _looks_at_others(problem: Problem, columns: int) -> str | None:
    """Whether what becomes of a record, or of its label, depends on the other records: no budget pays for that."""
    rng = np.random.default_rng(1)
    features = rng.standard_normal((ALONE, columns)) * 10 ** rng.uniform(-3, 3, (ALONE, 1))
    targets = rng.choice(np.asarray(problem.labels.samples), ALONE)
    rows, labels = problem.admit(features, targets)
    many = problem.labels.classes
    given = rng.normal(size=ALONE) if many is None else rng.integers(0, many, ALONE)
    names = None if many is None else tuple(map(str, range(many)))
    codes = problem.encode(given, names)
    for k in range(ALONE):
        one = slice(k, k + 1)
        row, label = problem.admit(features[one], targets[one])
        if not (np.array_equal(row[0], rows[k]) and np.array_equal(label[0], labels[k])):
            return "what admit makes of a record depends on the others"
        if not np.array_equal(problem.encode(given[one], names)[0], codes[k]):
            return "what encode makes of a label depends on the others"
    return None


def _sums(problem: Problem, features: np.ndarray, targets: np.ndarray, points: np.ndarray) -> str | None:
    """What is wrong with the clipped sums that gradient methods are priced by, if something is."""
    clip, counted = 0.1, np.arange(len(features)) % 3 == 1
    with jax.enable_x64(True):
        rows, ys, weights = jnp.asarray(features), jnp.asarray(targets), jnp.asarray(counted, float)

        @jax.jit
        def tried(x: jax.Array) -> tuple[jax.Array, ...]:
            """Every record's own part, their sum, and that sum from a clip for each record, none for the uncounted."""
            one = lambda f, y: problem.weighted_gradient(x, f[None], y[None], jnp.ones(1), clip)  # noqa: E731
            parts, whole = jax.vmap(one)(rows, ys), problem.weighted_gradient(x, rows, ys, weights, clip)
            if not problem.per_person:
                return parts, whole
            return parts, whole, problem.weighted_gradient(x, rows, ys, weights, jnp.where(counted, clip, jnp.inf))

        for x in map(jnp.asarray, points):
            parts, whole, *each = map(np.asarray, tried(x))
            if not np.all(np.linalg.norm(parts, axis=1) <= clip * (1 + SLACK)):
                return f"weighted_gradient with clip = {clip:g} returns a longer gradient of a record, or no number"
            if not np.allclose(whole, parts[counted].sum(0), rtol=SLACK, atol=SLACK):
                return "weighted_gradient is not the sum of its records' own parts: one record changes the others'"
            if not all(np.allclose(own, whole, rtol=SLACK, atol=SLACK) for own in each):
                return "weighted_gradient does not take one clip for each record, which people as the unit need"
    return None


def _complaint(problem: Problem, one: np.ndarray, two: np.ndarray, apart: np.ndarray) -> str | None:
    """Which statement two gradients of one record, at points so far apart, contradict."""
    gradients = np.concatenate([one, two])
    if not np.isfinite(gradients).all():
        return "its gradient is not finite at some points, so it has no bounds; state none, or mend it"
    if np.any(np.linalg.norm(gradients, axis=1) > problem.lipschitz * (1 + SLACK)):
        return _too_long(problem, gradients)
    distance = np.linalg.norm(apart, axis=1)
    rounding = SLACK * (np.linalg.norm(one, axis=1) + np.linalg.norm(two, axis=1)) + 1e-12
    if problem.convex and np.any(np.sum((one - two) * apart, axis=1) < -rounding * distance):
        return "convex is stated, but along some line its slope falls"
    turned = np.linalg.norm(one - two, axis=1) - rounding
    if problem.smooth and np.any(turned > problem.smoothness * distance * (1 + SLACK)):
        worst = float(np.max(turned[distance > 0] / distance[distance > 0]))
        return f"smoothness = {problem.smoothness:g} is stated, but its slope turns by {worst:.4g} a unit somewhere"
    if problem.isotropic and np.any(np.linalg.norm(one - two - apart, axis=1) > rounding + SLACK * distance):
        return "isotropic is stated, but a gradient does not change by as much as the point"
    lengths, along = np.linalg.norm(one, axis=1) * np.linalg.norm(two, axis=1), np.sum(one * two, axis=1)
    if (problem.scored or problem.monotone) and np.any(np.abs(along) < lengths * (1 - SLACK)):
        return "scored is stated, but the gradient of a made-up record changes its direction with the point"
    if problem.monotone and np.any(along < -SLACK * lengths):
        return "monotone is stated, but the slope of a made-up record changes its sign"
    return None


def _too_long(problem: Problem, gradients: np.ndarray) -> str:
    longest = float(np.max(np.linalg.norm(gradients, axis=1)))
    return f"lipschitz = {problem.lipschitz:g} is stated, but a made-up record has a gradient of norm {longest:.4g}"


def _apart(gradients: np.ndarray, single: bool) -> np.ndarray:
    """How far the gradients of all pairs of records are apart at one point: in norm, or in every coordinate."""
    gap = np.abs(gradients[:, None] - gradients)
    return gap if single else np.linalg.norm(gap, axis=2, keepdims=True)


def _replaced(problem: Problem, apart: np.ndarray) -> str | None:
    """Whether replacing a record changes more than is stated, over all points together where `directed` says so."""
    worst = float(np.max(np.linalg.norm(apart, axis=2)))
    if worst <= 2 * problem.half_gap * (1 + SLACK):
        return None
    what = "directed is stated with" if problem.directed else "a bound is stated,"
    return f"{what} half_gap = {problem.half_gap:g}, but replacing a made-up record changes a gradient by {worst:.4g}"


def _made(problem: Problem, columns: int, tries: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Admissible records, and two points for each: at random, near and far, at zero and at the start; and crafted.

    Where fewer are tried, as for a network of many parameters, there are as many crafted ones.
    """
    rng = np.random.default_rng(0)
    features = _directions(rng, tries, columns) * (10 ** rng.uniform(-3, 3, (tries, 1)))
    features[::7] = 0.0
    targets = rng.choice([-1.0, 0.0, 1.0, 2.0], tries)
    targets[::3] *= 10 ** rng.uniform(-3, 3, len(targets[::3]))
    here = _directions(rng, tries, problem.dim) * 10 ** rng.uniform(-3, 3, (tries, 1))
    here[::5], here[1::5] = 0.0, problem.start(0)
    there = here + _directions(rng, tries, problem.dim) * 10 ** rng.uniform(-4, 3, (tries, 1))
    crafted = _crafted(problem, columns, tries)
    mixed = rng.permutation(tries + len(crafted[1]))  # the first few of both kinds are tried in pairs and sums
    whole = (features, targets, here, there)
    features, targets, here, there = (np.concatenate(x)[mixed] for x in zip(whole, crafted, strict=True))
    if problem.labels is WHOLE:
        targets = np.abs(np.rint(targets)).astype(np.int32)
    features, targets = problem.admit(features, targets)
    return features, targets, here, there


def _crafted(problem: Problem, columns: int, tries: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Records of exact zeros and ones, every label, points along the record (or along all ones) as far as 1e6."""
    size = 1.0 if problem.bound is None else problem.bound
    ones = np.eye(columns)[:: max(1, -(-columns // ONES))]
    halves = [np.arange(columns) % 2 == k for k in (0, 1)]
    shapes = np.stack([*ones[:4], -ones[-1], *halves, np.ones(columns), np.zeros(columns)]).astype(float)
    every = [(row, label, radius) for row in shapes for label in LABELS for radius in RADII]
    every += [(row, LABELS[k % len(LABELS)], RADII[k % len(RADII)]) for k, row in enumerate(ones)]
    if tries < TRIES:
        every = every[:: -(-len(every) // tries)]
    rows = np.stack([row for row, _, _ in every])
    rows *= size / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0)
    count = np.arange(len(rows))
    tiled = rows[:, np.arange(problem.dim) % columns]
    along = np.where((count % 2 == 1)[:, None], 1.0, tiled)
    along = along * np.where(count // 2 % 2, -1.0, 1.0)[:, None]
    here = np.array([radius for _, _, radius in every])[:, None] * along + problem.start(0)
    there = here + 10.0 ** (count % 9 - 4)[:, None] * along
    return rows, np.array([float(label) for _, label, _ in every]), here, there


def _directions(rng: np.random.Generator, tries: int, dim: int) -> np.ndarray:
    rows = rng.standard_normal((tries, dim))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)
