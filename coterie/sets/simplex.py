"""Simplex: numbers that are not negative and add up to `total`, such as shares."""

from coterie.errors import InputError
from coterie.problems.sets import Simplex

EXAMPLE = {"total": 2.5}


def make(dim: int, total: float = 1.0) -> Simplex:
    """{x : x_l ≥ 0, Σ_l x_l = total}."""
    if not total > 0:
        raise InputError(f"problem.within_options.total must be > 0, got {total}")
    return Simplex(float(total))
