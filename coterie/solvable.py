"""What a solver and floating-point numbers can do: a plan is refused where its proof asks for more.

Enough steps to solve a subproblem on any data (`need_solvable`), a tolerance that rounding does not exceed
(`need_precision`), room for noise that must not be rounded away (`need_room`), projections that are exact enough
between parties (`need_short`). All of it is decided by public numbers.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from coterie.algorithms._admm import LEAST_TOLERANCE, longest
from coterie.algorithms._charges import alike, run_events
from coterie.algorithms.base import Algorithm, Config, Place
from coterie.compiler import brief
from coterie.errors import InputError
from coterie.plan import Plan
from coterie.privacy.events import ObjectivePerturbation, Pure
from coterie.problems import Problem
from coterie.problems.sets import Simplex
from coterie.problems.solve import MOST_STEPS, sure_steps

__all__ = ["Charged", "need_precision", "need_room", "need_short", "need_solvable"]

_sure_steps = brief(sure_steps)
LONGEST_SIMPLEX = 8000  # numbers of a simplex between parties: (8000 + 4) 2⁻¹⁴ of a grid step is below half of one


@runtime_checkable
class Charged(Protocol):
    """Settings of an algorithm that solves subproblems to a tolerance, whose effect it charges."""

    penalty: float
    tolerance: float


@runtime_checkable
class SharesBudget(Protocol):
    """Settings that say which share of ε is for the solver."""

    share: float


def need_precision(plan: Plan, algorithm: Algorithm, cfg: Config, rounding: float = 0.0) -> None:
    """Refuse a charged tolerance that rounding would exceed, in a solver or in sums over many records."""
    if not (algorithm.private and algorithm.needs(cfg).solver):
        return
    if plan.run.dtype != "float64":
        raise InputError(
            f"{algorithm.slug} charges a solver's error, which run.dtype = {plan.run.dtype!r} exceeds by rounding: "
            "use 'float64'"
        )
    assert isinstance(cfg, Charged)
    if cfg.tolerance < (least := max(LEAST_TOLERANCE, rounding)):
        raise InputError(
            f"algorithm.tolerance = {cfg.tolerance:g} is out of reach: rounding may leave a gradient of {least:.3g}"
        )


def need_solvable(plan: Plan, algorithm: Algorithm, cfg: Config, places: Place, problem: Problem) -> None:
    """Refuse subproblems unless public constants show that they are solved to the charged tolerance on any data."""
    if not (algorithm.private and algorithm.needs(cfg).solver):
        return
    assert isinstance(cfg, Charged)
    if problem.constraint is not None and problem.interior:  # noise inside an objective leads out of any set
        raise InputError(f"{algorithm.slug} solves over a set, and {problem.name} says that its own does not matter")
    within, eps = problem.constraint, np.finfo(float).eps
    kept = within is not None
    with jax.enable_x64(True):
        places = jax.tree.map(np.asarray, places)  # NumPy: JAX would compile each operation for every shape
        low = places.ridge + 2 * cfg.penalty * places.degree  # the least curvature that the method ever adds
        weight = places.unit * places.count
        far, high = weight * problem.lipschitz / low, low + weight * problem.smoothness
        steps = float(np.max(_sure_steps(far, low, high, np.float64(cfg.tolerance / (2 if kept else 1)), kept)[0]))
        summing = float(np.max(places.count * weight)) * problem.lipschitz * eps
        if within is not None:
            if not np.isfinite(off := within.rounding(places.dim)):
                raise InputError(
                    f"{algorithm.slug} charges a solver's error, and {type(within).__name__} does not state how far "
                    "rounding may move its projection: use a ball, a box or a simplex, or give it `rounding`"
                )
            nearest = float(np.linalg.norm(within.project(jnp.zeros(places.dim))))
            summing += 48 * off * eps * float(np.max(high * (far + nearest)))
    if steps > MOST_STEPS:
        raise InputError(
            f"{algorithm.slug} may need {steps:.3g} gradient steps to solve a subproblem of {problem.name} to "
            f"algorithm.tolerance = {cfg.tolerance:g} on any data, more than {MOST_STEPS}: use a larger penalty or a "
            "smoother loss"
        )
    need_precision(plan, algorithm, cfg, summing)


def need_short(plan: Plan, places: Place) -> None:
    """Refuse a simplex between real parties that is so long that rounding may move its projection by half a grid step.

    Its level is a running sum: in float64 its error grows with the number of coordinates (docs/theory/sets.md).
    """
    if plan.deploy is not None and isinstance(places.within, Simplex) and places.dim > LONGEST_SIMPLEX:
        raise InputError(
            f"problem.within = 'simplex' of {places.dim:,} numbers: between parties up to {LONGEST_SIMPLEX:,} are "
            "proved to be rounded by less than half a step of the wire's grid; use 'box' or 'ball', or fewer features"
        )


def need_room(algorithm: Algorithm, cfg: Config, places: Place) -> None:
    """Refuse noise inside an objective that is so long that its rounding exceeds the tolerance that is charged.

    What neighbours send may fill half of the room (`coterie.algorithms._admm.heed`); the noise exceeds the other half
    with a probability below 1e-30. Lengths of the noise: a normal vector's is at most √d + 12 times its scale, that of
    density exp(−‖b‖/s) at most 2d + 150 times s ≤ 2G/((1 − share) α).
    """
    if not (algorithm.private and algorithm.needs(cfg).solver):
        return
    assert isinstance(cfg, Charged)
    d = places.dim
    for _, place in alike(places, np.asarray(places.noise)):
        with jax.enable_x64(True):
            room = float(longest(place, place.ridge + 2 * cfg.penalty * place.degree, cfg.tolerance)) / 2
            gap = float(2 * place.lipschitz * place.unit)
        for event in run_events(algorithm, cfg, place):
            used = np.broadcast_to(event.times, (place.rounds,)) > 0
            if isinstance(event, ObjectivePerturbation):
                long = np.broadcast_to(event.sigma, used.shape) * (d**0.5 + 12)
            elif type(event) is Pure:
                assert isinstance(cfg, SharesBudget)
                long = 2 * gap / ((1 - cfg.share) * np.broadcast_to(event.epsilon, used.shape)) * (2 * d + 150)
            else:
                continue
            if np.any(used) and not (widest := float(np.max(long[used]))) <= room:
                raise InputError(
                    f"{algorithm.slug} needs noise of length up to {widest:.3g} in its objective, of which rounding "
                    f"would leave more than algorithm.tolerance = {cfg.tolerance:g} beyond {room:.3g}: use a larger "
                    "tolerance or budget"
                )
