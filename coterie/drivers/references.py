"""What collaboration is worth: `pooled`, the optimum of all data together, and `alone`, each agent on its own data.

Neither is a protocol: `pooled` needs every record in one place and `alone` sends nothing. They are the two ends that
every report shows a decentralized run between.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from coterie.algorithms.batches import axes, rows
from coterie.drivers.layout import Arrays, Group, Layout
from coterie.drivers.program import Test
from coterie.problems import Solver, SolverSettings
from coterie.problems.solve import newton_like, projected, quasi_newton

JUDGED = 64  # agents, evenly spaced, whose own models are made and scored: a sample says what they are like

__all__ = ["alone", "pooled", "scores"]


def pooled(layout: Layout, how: SolverSettings | None = None) -> np.ndarray:
    """The minimiser of (1/N) Σ_i f_i, to gradient norm 1e-9 (in float64) where the problem is convex."""
    place, problem = layout.placed.place, layout.problem
    dtype = place.start.dtype
    how = how or SolverSettings(max_steps=500)
    tolerance = 1e-9 if dtype == jnp.float64 else 1e-5

    def solve(x: Array, groups: list[Group]) -> Array:  # an argument: as constants, records would be compiled in
        def mean(f_name: str, x: Array) -> Array:
            total: Any = 0.0
            for g in groups:
                total += jnp.sum(jax.vmap(lambda s: getattr(s, f_name)(x), (axes(g.shards),))(g.shards), axis=0)
            return total / place.agents

        solver = Solver.fresh(x, problem.keeps_factor)
        if problem.constraint is not None:
            weight = jnp.max(place.unit * place.count)
            smooth = weight * problem.smoothness + place.ridge
            slope = lambda v: mean("slope", v)  # noqa: E731
            return projected(slope, problem.project, smooth, solver, how, tolerance, problem.smooth).x
        if problem.keeps_factor:
            return newton_like(lambda v: mean("slope", v), lambda v: mean("hessian", v), solver, how, tolerance).x
        return quasi_newton(lambda v: (mean("value", v), mean("slope", v)), solver, how, tolerance).x

    with jax.enable_x64(dtype == jnp.float64):
        return np.asarray(jax.jit(solve)(place.start, layout.placed.groups))


def alone(layout: Layout, most: int | None = None) -> np.ndarray:
    """(agents, dim): every agent's own minimiser of f_i, in the plan's order; of so many, evenly spaced, if `most`."""
    place, dtype = layout.placed.place, layout.arrays.place.start.dtype
    everybody = np.arange(place.agents)
    chosen = everybody if most is None else np.unique(np.linspace(0, place.agents - 1, most).astype(int))
    where = layout.restore(everybody)[chosen]  # their places in the layout
    found = np.empty((len(chosen), *place.start.shape), dtype)
    with jax.enable_x64(dtype == jnp.float64):
        zero = jnp.zeros_like(place.start)
        tolerance = 1e-8 if dtype == jnp.float64 else 1e-5
        one = jax.jit(lambda s: s.argmin(zero, 0.0, s.solver(place.start), tolerance)[0])
        for g in layout.placed.groups:
            here = np.flatnonzero((g.low <= where) & (where < g.high))
            if len(here):
                few = rows(g.shards, where[here] - g.low)
                found[here] = jax.vmap(one, (axes(few),))(few)
    return found


def scores(layout: Layout, test: Test) -> dict[str, dict[str, float]]:
    """Scores and losses of `pooled` and of `alone` (mean over the agents, or over `JUDGED` of many)."""
    with jax.enable_x64(layout.arrays.place.start.dtype == jnp.float64):
        objective = partial(jax.jit(_objective), layout.placed)
        held_out = jnp.asarray(test.features), jnp.asarray(test.targets)
        score = jax.jit(layout.problem.score)  # all records are arguments: as constants they would be in the program
        out = {}
        for name, points in (("pooled", pooled(layout)[None]), ("alone", alone(layout, JUDGED))):
            out[name] = {
                "train_loss": float(np.mean([objective(jnp.asarray(x)) for x in points])),
                "test_score": float(np.mean([score(jnp.asarray(x), *held_out) for x in points])),
            }
        return out


def _objective(arrays: Arrays, x: Array) -> Array:
    total = jnp.zeros((), x.dtype)
    for g in arrays.groups:
        total += jnp.sum(jax.vmap(lambda s: s.value(x), (axes(g.shards),))(g.shards))
    return total / arrays.place.agents
