"""Is a loss what it says? Derivatives, clipping, records of any kind, every stated fact, and an audit on it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from types import MappingProxyType

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from coterie.algorithms.base import find
from coterie.audit import examine, gather, make_setting
from coterie.errors import InputError
from coterie.losses.base import Loss, find_loss
from coterie.problems import HeldShard, Problem, SolverSettings
from coterie.problems.facts import try_facts
from coterie.problems.labels import ClassNumbers
from coterie.testing.claims import need, need_settings

__all__ = ["LOSS_CHECKS", "PROBLEM_CHECKS", "check_loss", "check_problem"]

ROWS, CLASSES = 9, 3
FEATURES = (3, 5)  # of the problems that are made, beside the example
CLIPS = (0.0, 1e-3, 0.3, 1e9)
NASTY = (np.nan, np.inf, -np.inf, 1e300, -1e160, 1e-300, 0.0, -0.0, 0.5, 1.0, 1e9)
HUGE = (1e150, 1e300, float(np.finfo(float).max))  # coordinates of points
AUDITED = ("dp-dsgd", "gauss-avg-gd")  # one algorithm that clips, one that rests on the stated bounds
STEPS, RIDGE, TOLERANCE = 3, 0.1, 1e-9


def check_loss(name: str) -> None:
    """Check the loss of a plan's `problem.loss`: a name, or package.module."""
    loss = find_loss(name)
    for check in LOSS_CHECKS.values():
        check(loss)


def check_problem(problem: Problem) -> None:
    """Check one problem, of a loss file or of a class of your own."""
    for check in PROBLEM_CHECKS.values():
        check(problem)


# ---- what a module says ----------------------------------------------------------------------------------------------


def check_parts(loss: Loss) -> None:
    """Docstrings, settings that say what they are, and problems of as many features and classes as asked for."""
    need(len(loss.text.strip()) > 20, "the module has no docstring")
    need_settings(loss.settings)
    need(loss.example.columns == 2, f"EXAMPLE has {loss.example.columns} features, expected 2")
    for problem in _made(loss):
        need(type(problem) is type(loss.example), "make returns another kind of problem than EXAMPLE")
        need(type(problem.labels) is type(loss.example.labels), "make returns other labels than EXAMPLE has")
    for features, problem in zip(FEATURES, _made(loss), strict=True):
        need(problem.columns == features, f"make is asked for {features} features and returns {problem.columns}")
        if isinstance(problem.labels, ClassNumbers):
            need(problem.labels.classes == CLASSES, f"make is asked for {CLASSES} classes")
        need(jax.tree.leaves(problem) == [], "the problem holds arrays: make its fields static")
        need(
            bool(problem == loss.make(loss.settings(), features, CLASSES)),
            "make returns another problem the second time",
        )


def check_audit(loss: Loss) -> None:
    """Two worlds that differ in one record, played among hostile neighbours, tell no more than was paid for."""
    for slug in AUDITED:
        algorithm = find(slug)
        try:
            algorithm.check(algorithm.example, loss.example)
        except InputError:
            continue  # the contract refuses it: nothing is claimed
        for finding in examine(gather(make_setting(algorithm, epsilon=1.0, problem=loss.example))):
            need(finding.passed, f"{slug}: {finding.check}: {finding.detail}")


def _made(loss: Loss) -> list[Problem]:
    return [loss.make(loss.settings(), features, CLASSES) for features in FEATURES]


# ---- what a problem says ---------------------------------------------------------------------------------------------


def check_facts(problem: Problem) -> None:
    """No made-up record contradicts a stated fact."""
    try:
        try_facts(problem, problem.columns)
    except InputError as error:
        raise AssertionError(str(error)) from None


def check_derivatives(problem: Problem) -> None:
    """Gradient and Hessian are those of the losses: by automatic differentiation, and by differences."""
    features, targets, points = _records(problem)
    weights = np.linspace(0.5, 2, len(targets))
    with jax.enable_x64(True):
        f, y, w = map(jnp.asarray, (features, targets, weights))
        total = lambda x: jnp.sum(w * problem.losses(x, f, y))  # noqa: E731

        @jax.jit
        def everything(x: jax.Array, step: jax.Array) -> tuple[jax.Array, ...]:
            stated = problem.weighted_gradient(x, f, y, w), problem.weighted_hessian(x, f, y, w)
            return *stated, jax.grad(total)(x), jax.hessian(total)(x), (total(x + step) - total(x - step)) / 2

        for point in points:
            step = 1e-6 * np.random.default_rng(0).standard_normal(problem.dim)
            slope, bend, true_slope, true_bend, rise = map(
                np.asarray, everything(jnp.asarray(point), jnp.asarray(step))
            )
            _close(slope, true_slope, "weighted_gradient is not the derivative of losses")
            _close(bend, true_bend, "weighted_hessian is not the second derivative of losses")
            off = abs(float(rise) - slope @ step)
            need(bool(off <= 1e-5 * abs(float(rise)) + 1e-10), "losses do not change as weighted_gradient says")
    small = [jax.ShapeDtypeStruct(np.shape(a), np.float32 if a.dtype == float else a.dtype)
             for a in (points[0], features, targets, weights)]  # fmt: skip
    kinds = {jax.eval_shape(problem.weighted_gradient, *small).dtype, jax.eval_shape(problem.losses, *small[:3]).dtype}
    need(kinds == {np.dtype(np.float32)}, f"of single precision it makes {kinds}")


def check_clipping(problem: Problem) -> None:
    """A clipped sum is that of clipped records, whatever the clip and wherever the point."""
    features, targets, points = _records(problem)
    weights = np.linspace(0.5, 2, len(targets))
    with jax.enable_x64(True):
        f, y, w = map(jnp.asarray, (features, targets, weights))
        one = jax.grad(lambda v, f, y: problem.losses(v, f[None], y[None])[0])
        alone = jax.jit(jax.vmap(one, (None, 0, 0)))
        clipped = jax.jit(lambda x, clip: problem.weighted_gradient(x, f, y, w, clip))
        for x in map(jnp.asarray, points):
            each = np.asarray(alone(x, f, y))
            norms = np.linalg.norm(each, axis=1)
            for clip in (*CLIPS, float(np.median(norms))):
                factors = np.where(norms > 0, np.minimum(1, clip / np.maximum(norms, 1e-30)), 1.0)
                _close(clipped(x, clip), (weights * factors) @ each, f"records are not clipped to {clip:g} one by one")
        for size in HUGE:
            for sign in (1.0, np.where(np.arange(problem.dim) % 2, -1.0, 1.0)):
                got = np.asarray(clipped(jnp.asarray(size * sign * np.ones(problem.dim)), 0.5))
                need(bool(np.isfinite(got).all()), f"a clipped gradient is no number at coordinates of {size:g}")
                need(float(np.linalg.norm(got)) <= 0.5 * weights.sum() * (1 + 1e-9), f"nor clipped at {size:g}")


def check_records(problem: Problem) -> None:
    """`admit` makes something admissible of every record on its own, and leaves what is admissible as it is."""
    rng = np.random.default_rng(0)
    features = rng.choice(NASTY, (40, problem.columns))
    features[::2] = rng.standard_normal((20, problem.columns)) * 10 ** rng.uniform(-3, 3, (20, 1))
    targets = rng.choice(NASTY, 40)
    rows, labels = problem.admit(features, targets)
    need(bool(np.isfinite(rows).all() and np.isfinite(labels).all()), "admit leaves what is not finite")
    need(problem.outside(rows) is None, f"admitted records {problem.outside(rows)}")
    again, same = problem.admit(rows, labels)
    need(np.array_equal(again, rows) and np.array_equal(same, labels), "admit changes what it has admitted")
    for k in range(len(rows)):
        row, label = problem.admit(features[k : k + 1], targets[k : k + 1])
        alike = np.array_equal(row[0], rows[k]) and label[0] == labels[k]
        need(bool(alike), "what admit makes of a record depends on the others")
    many = problem.labels.classes
    given = rng.normal(size=20) if many is None else rng.integers(0, many, 20)
    names = None if many is None else tuple(map(str, range(many)))
    codes = [problem.encode(given[k : k + 1], names)[0] for k in range(20)]
    need(np.array_equal(problem.encode(given, names), codes), "what encode makes of a label depends on the others")
    with jax.enable_x64(True):
        inside = jax.jit(problem.admit)(jnp.asarray(features), jnp.asarray(targets))
    _close(inside[0], rows, "admit makes other records inside a compiled round than on the host")
    _close(inside[1], labels, "admit makes other targets inside a compiled round than on the host")
    try:
        problem.labels.taken(labels)
    except InputError as error:
        raise AssertionError(f"targets that admit makes are not in the coding: {error}") from None


def check_answers(problem: Problem) -> None:
    """Start, predictions and score have their shapes and are finite."""
    features, targets, points = _records(problem)
    start = problem.start(3)
    need(start.shape == (problem.dim,) and bool(np.isfinite(start).all()), "start is not one finite vector")
    need(np.array_equal(start, problem.start(3)), "start is another one the second time: it must be public")
    with jax.enable_x64(True):
        inside = jax.jit(problem.project)
        said, score = jax.jit(lambda x, f, y: (problem.predict(x, f), problem.score(x, f, y)))(
            *map(jnp.asarray, (points[0], features, targets))
        )
        need(len(said) == len(targets), "predict does not answer for each record")
        need(bool(np.isfinite(score)), "score is no number")
        once = inside(jnp.asarray(points[0]))
        _close(inside(once), once, "project moves a projected point")


def check_solving(problem: Problem) -> None:
    """Where it is convex and smooth, gradient steps contract as stated; with a bound too, subproblems are solved."""
    if not (problem.convex and problem.smooth):
        return
    features, targets, points = _records(problem)
    with jax.enable_x64(True):
        shard = _shard(problem, features, targets)
        step = eqx.filter_jit(lambda x: shard.descend(x, jnp.zeros(problem.dim), 0.0, STEPS))
        low, high = RIDGE, RIDGE + problem.smoothness
        for one, other in pairwise(points):
            begun = [problem.project(jnp.asarray(x)) for x in (one, other)]
            ends = [np.asarray(step(x)) for x in begun]
            before = np.linalg.norm(np.asarray(begun[0]) - np.asarray(begun[1]))
            most = ((high - low) / (high + low)) ** STEPS * before
            apart = float(np.linalg.norm(ends[0] - ends[1]))
            need(apart <= float(most) * (1 + 1e-9) + 1e-12, "gradient steps do not contract")
        if np.isfinite(problem.lipschitz) and problem.constraint is None:
            solved = eqx.filter_jit(lambda b, x: shard.argmin(b, 1.0, shard.solver(x), TOLERANCE)[1].residual)
            for linear in (0.0, 1.0, 1e3):
                left = solved(jnp.full(problem.dim, linear), jnp.asarray(points[0]))
                need(float(left) <= TOLERANCE, f"a subproblem is solved to {float(left):.3g} only")


def _shard(problem: Problem, features: np.ndarray, targets: np.ndarray) -> HeldShard:
    count, unit = jnp.asarray(len(targets)), jnp.asarray(1 / len(targets))
    how = SolverSettings(fixed=True)
    return HeldShard(problem, jnp.asarray(features), jnp.asarray(targets), count, unit, jnp.asarray(RIDGE), how)


def _records(problem: Problem) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Admissible records (one of them all zeros), and points: near the start, far from it, and between."""
    rng = np.random.default_rng(1)
    features = rng.standard_normal((ROWS, problem.columns))
    features *= rng.uniform(0.2, 1, (ROWS, 1)) / np.linalg.norm(features, axis=1, keepdims=True)
    features[ROWS // 2] = 0
    targets = rng.choice(problem.labels.samples, ROWS)
    targets[::2] += rng.uniform(-1, 1, len(targets[::2])) * (problem.labels.classes is None)
    rows, labels = problem.admit(features, targets)
    return rows, labels, problem.start(0) + rng.standard_normal((4, problem.dim)) * [[0.7], [0.01], [3.0], [20.0]]


def _close(got: object, expected: object, words: str) -> None:
    try:
        np.testing.assert_allclose(np.asarray(got), np.asarray(expected), rtol=1e-7, atol=1e-10)
    except AssertionError as error:
        raise AssertionError(f"{words}: {' '.join(str(error).split())}") from None


PROBLEM_CHECKS: MappingProxyType[str, Callable[[Problem], None]] = MappingProxyType(
    {
        "facts": check_facts,
        "derivatives": check_derivatives,
        "clipping": check_clipping,
        "records": check_records,
        "answers": check_answers,
        "solving": check_solving,
    }
)


def _on_made(check: Callable[[Problem], None]) -> Callable[[Loss], None]:
    return lambda loss: check(_made(loss)[0])


def _all_facts(loss: Loss) -> None:
    for problem in (loss.example, _made(loss)[0]):
        check_facts(problem)


LOSS_CHECKS: MappingProxyType[str, Callable[[Loss], None]] = MappingProxyType(
    {
        "parts": check_parts,
        **{name: _on_made(check) for name, check in PROBLEM_CHECKS.items()},
        "facts": _all_facts,
        "audit": check_audit,
    }
)
