"""Coupled problems over secret sums: in every round only Σ A_i x_i is opened, of real shares in one process."""

from __future__ import annotations

import numpy as np

from coterie.coupled.solve import Aggregate
from coterie.errors import InputError
from coterie.exchange.additive import SumsHere
from coterie.exchange.fixed_point import FixedPoint
from coterie.exchange.sums import SumTerms
from coterie.problems.coupled import Coupled

__all__ = ["secret_sum"]


def secret_sum(problem: Coupled, *, fraction_bits: int = 24) -> Aggregate:
    """An `aggregate` for `solve` that opens each round's sum from fresh shares.

    The fixed-point range comes from the public bounds, which the agents' boxes must therefore give. Each opened number
    is off by at most N·2^(−fraction_bits − 1).
    """
    if not np.isfinite(problem.message_bound):
        raise InputError("a secret sum needs finite bounds low and high for every agent: they fix its number range")
    bound = problem.message_bound * (1 + 1e-9)  # rounding in A_i x_i
    sums = SumsHere(SumTerms(FixedPoint(problem.size, fraction_bits, bound)), problem.rows)
    return lambda messages: sums.open(list(messages)).values
