"""`pooled`: the optimum of all records in one place, and the objective that it is the optimum of.

It is no protocol, as it needs every record in one place: it is one of the two ends that every report shows a
decentralized run between. The other, every party alone, is `coterie.worth.home`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from coterie.algorithms.base import Place
from coterie.algorithms.batches import axes
from coterie.compiler import by_size
from coterie.drivers.compiled import kept
from coterie.drivers.layout import Arrays, Group, Layout
from coterie.problems import Problem, Solver, SolverSettings
from coterie.problems.solve import newton_like, projected, quasi_newton

__all__ = ["minimise", "objective", "pooled"]

Of = Callable[[Array], Array]


def minimise(
    problem: Problem, value: Of, slope: Of, hessian: Of, start: Array, smoothness: Array | float,
    how: SolverSettings, tolerance: float,
) -> Array:  # fmt: skip
    """Where `value` is least, by the solver that fits the problem; `smoothness` bounds its curvature."""
    solver = Solver.fresh(start, problem.keeps_factor)
    if problem.constraint is not None:
        return projected(slope, problem.project, smoothness, solver, how, tolerance, problem.smooth).x
    if problem.keeps_factor:
        return newton_like(slope, hessian, solver, how, tolerance).x
    return quasi_newton(lambda x: (value(x), slope(x)), solver, how, tolerance).x


def pooled(layout: Layout) -> np.ndarray:
    """The minimiser of (1/N) Σ_i f_i, to gradient norm 1e-9 (in float64) where the problem is convex."""
    given = layout.placed.place, layout.placed.groups
    with jax.enable_x64(given[0].start.dtype == jnp.float64):
        solve = partial(_pooled, layout.problem)
        how = by_size(given)
        code = _pooled, layout.problem, *sorted(how.items())
        compiled = kept(code, given, lambda: jax.jit(solve).lower(*given).compile(how))
        return np.asarray(compiled(*given))


def _pooled(problem: Problem, place: Place, groups: Sequence[Group]) -> Array:
    def mean(f_name: str, x: Array) -> Array:
        total = jnp.zeros(())
        for g in groups:
            total = total + jnp.sum(jax.vmap(lambda s: getattr(s, f_name)(x), (axes(g.shards),))(g.shards), axis=0)
        return total / place.agents

    value, slope, hessian = (lambda v, name=name: mean(name, v) for name in ("value", "slope", "hessian"))
    smoothness = jnp.max(place.unit * place.count) * problem.smoothness + place.ridge
    tolerance = 1e-9 if place.start.dtype == jnp.float64 else 1e-5
    return minimise(problem, value, slope, hessian, place.start, smoothness, SolverSettings(max_steps=500), tolerance)


def objective(layout: Layout) -> Callable[[np.ndarray], float]:
    """The mean of all parties' objectives, as a function of a point."""
    compiled = jax.jit(_objective, compiler_options=by_size(layout.arrays))

    def of(x: np.ndarray) -> float:
        with jax.enable_x64(layout.arrays.place.start.dtype == jnp.float64):
            return float(compiled(layout.placed, jnp.asarray(x, layout.arrays.place.start.dtype)))

    return of


def _objective(arrays: Arrays, x: Array) -> Array:
    total = jnp.zeros((), x.dtype)
    for g in arrays.groups:
        total += jnp.sum(jax.vmap(lambda s: s.value(x), (axes(g.shards),))(g.shards))
    return total / arrays.place.agents
