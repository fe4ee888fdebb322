"""Box: every coordinate between `low` and `high`, one number for all or a list with one for each."""

import numpy as np

from coterie.errors import InputError
from coterie.problems.sets import Box
from coterie.sets import Option, numbers

EXAMPLE = {"low": -0.2, "high": 0.3}


def make(dim: int, low: Option, high: Option) -> Box:
    """{x : low ≤ x_l ≤ high}."""
    made = Box(numbers("low", low, dim), numbers("high", high, dim))
    if not np.all(np.less(made.low, made.high)):
        raise InputError(f"problem.within_options.low must be < high, got {low} and {high}")
    return made
