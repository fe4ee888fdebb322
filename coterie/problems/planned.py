"""The problem that a plan asks for, and the bounds on records that its price rests on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coterie.data.dataset import Dataset
from coterie.errors import InputError
from coterie.problems import Ball, Linear, Mean, Perceptron, Problem, Softmax

if TYPE_CHECKING:
    from coterie.plan import Plan

__all__ = ["make_problem", "need_bounds", "problem_of"]


def make_problem(plan: Plan, name: str, features: int, classes: tuple[str, ...] | None) -> Problem:
    """The plan's problem for records of so many features and of these classes; `name` is the data's, for errors."""
    many = None if classes is None else len(classes)
    loss = plan.problem.loss or ("squared" if many is None else "logistic" if many == 2 else "softmax")
    if loss in ("softmax", "mlp") and many is None:
        raise InputError(f"problem.loss = {loss!r} needs classes, but the label of {name!r} is a number")
    if plan.problem.dim not in (None, features):
        raise InputError(f"problem.dim = {plan.problem.dim}, but {name!r} has {features} features")
    if plan.problem.classes not in (None, many):
        raise InputError(f"problem.classes = {plan.problem.classes}, but {name!r} has {many}")
    return problem_of(plan, loss, features, many or 1)


def problem_of(plan: Plan, loss: str, d: int, classes: int) -> Problem:
    """The problem of a loss in d features, with the plan's settings."""
    p = plan.problem
    ball = None if p.radius is None else Ball(p.radius)
    if loss in ("logistic", "hinge", "squared"):
        return Linear(d, loss=loss, width=p.width, constraint=ball)  # type: ignore[arg-type]
    if loss == "mean":
        return Mean(d, radius=p.radius or 1.0)
    if loss == "softmax":
        return Softmax(d, classes, constraint=ball)
    return Perceptron((d, *p.hidden, classes), p.activation, constraint=ball)


def need_bounds(problem: Problem, dataset: Dataset) -> None:
    """Refuse records outside the set that the problem's price rests on: a ball, the box of a mean, or anything.

    The loaders scale every record into the unit ball by public rules; anything else cannot be priced.
    """
    if isinstance(problem, Mean):
        largest = float(np.max(np.abs(dataset.features)))
        if largest > problem.radius * (1 + 1e-9):
            raise InputError(
                f"records of {dataset.name!r} reach {largest:.3g}; expected at most problem.radius = {problem.radius}"
            )
    elif isinstance(problem, Linear | Softmax):
        largest = float(np.max(np.linalg.norm(dataset.features, axis=1)))
        if largest > problem.bound * (1 + 1e-9):
            raise InputError(
                f"records of {dataset.name!r} have norms up to {largest:.3g}; expected at most {problem.bound:g}: "
                "give public bounds, so that the loader can scale them"
            )
