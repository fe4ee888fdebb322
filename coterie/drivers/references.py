"""What collaboration is worth: `pooled`, the optimum of all data together, and `alone`, each agent on its own data.

Neither is a protocol: `pooled` needs every record in one place and `alone` sends nothing. They are the two ends that
every report shows a decentralized run between.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from coterie.drivers.layout import Layout, axes
from coterie.drivers.program import Test
from coterie.problems import Settings, Solver
from coterie.problems.solve import newton_like, projected, quasi_newton

__all__ = ["REFERENCES", "alone", "pooled", "scores"]


def pooled(layout: Layout, how: Settings | None = None) -> np.ndarray:
    """The minimiser of (1/N) Σ_i f_i, to gradient norm 1e-9 (in float64) where the problem is convex."""
    groups, place, problem = layout.placed.groups, layout.placed.place, layout.problem
    dtype = place.start.dtype
    how = how or Settings(tolerance=1e-9 if dtype == jnp.float64 else 1e-5, max_steps=500)

    def mean(f_name: str, x: Array) -> Array:
        total: Any = 0.0
        for g in groups:
            total += jnp.sum(jax.vmap(lambda s: getattr(s, f_name)(x), (axes(g.shards),))(g.shards), axis=0)
        return total / place.agents

    def solve(x: Array) -> Array:
        solver = Solver.fresh(x, problem.keeps_factor)
        if problem.constraint is not None:
            weight = jnp.max(place.unit * place.count)
            smooth = weight * problem.smoothness + place.ridge
            return projected(lambda v: mean("slope", v), problem.project, smooth, solver, how, problem.bounded).x
        if problem.keeps_factor:
            return newton_like(lambda v: mean("slope", v), lambda v: mean("hessian", v), solver, how).x
        return quasi_newton(lambda v: (mean("value", v), mean("slope", v)), solver, how).x

    with jax.enable_x64(dtype == jnp.float64):
        return np.asarray(jax.jit(solve)(place.start))


def alone(layout: Layout) -> np.ndarray:
    """(agents, dim): every agent's own minimiser of f_i, in the plan's order."""
    place, dtype = layout.placed.place, layout.arrays.place.start.dtype
    with jax.enable_x64(dtype == jnp.float64):
        zero = jnp.zeros_like(place.start)
        one = jax.jit(lambda s: s.argmin(zero, 0.0, s.solver(place.start))[0])
        out = [np.asarray(jax.vmap(one, (axes(g.shards),))(g.shards)) for g in layout.placed.groups]
    return layout.restore(np.concatenate(out))


def scores(layout: Layout, test: Test) -> dict[str, dict[str, float]]:
    """Scores and losses of `pooled` and of `alone` (mean over the agents)."""
    with jax.enable_x64(layout.arrays.place.start.dtype == jnp.float64):
        objective = jax.jit(lambda x: _objective(layout, x))
        held_out = jnp.asarray(test.features), jnp.asarray(test.targets)
        score = jax.jit(lambda x: layout.problem.score(x, *held_out))
        out = {}
        for name, points in (("pooled", pooled(layout)[None]), ("alone", alone(layout))):
            points = points[np.linspace(0, len(points) - 1, min(len(points), 64)).astype(int)]
            out[name] = {
                "train_loss": float(np.mean([objective(jnp.asarray(x)) for x in points])),
                "test_score": float(np.mean([score(jnp.asarray(x)) for x in points])),
            }
        return out


def _objective(layout: Layout, x: Array) -> Array:
    total = jnp.zeros((), x.dtype)
    for g in layout.placed.groups:
        total += jnp.sum(jax.vmap(lambda s: s.value(x), (axes(g.shards),))(g.shards))
    return total / layout.arrays.place.agents


REFERENCES = {
    "pooled": "The optimum of all agents' data in one place: what decentralized learning tries to reach. Not private.",
    "alone": "Every agent trains on its own data and sends nothing: what it gets without the others.",
}
