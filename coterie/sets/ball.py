"""Ball: no longer than `radius`. `problem.radius` says the same."""

from coterie.errors import InputError
from coterie.problems.sets import Ball

EXAMPLE = {"radius": 0.5}


def make(dim: int, radius: float) -> Ball:
    """{x : ‖x‖₂ ≤ radius}."""
    if not radius > 0:
        raise InputError(f"problem.within_options.radius must be > 0, got {radius}")
    return Ball(float(radius))
