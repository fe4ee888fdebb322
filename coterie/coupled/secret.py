"""Coupled problems over secret sums: in every round only Σ A_i x_i is opened, through the exchange's real messages."""

from __future__ import annotations

import numpy as np

from coterie.coupled.solve import Aggregate
from coterie.errors import InputError
from coterie.problems.coupled import Coupled

__all__ = ["secret_sum"]


def secret_sum(problem: Coupled, *, fraction_bits: int = 24) -> Aggregate:
    """An `aggregate` for `solve` that opens each round's sum between party objects with fresh keys and shares.

    The fixed-point range comes from the public bounds, which the agents' boxes must therefore give. Each opened number
    is off by at most N·2^(−fraction_bits − 1).
    """
    from coterie.exchange.parties import Opened  # the exchange needs the extra `deploy`
    from coterie.exchange.protocol import Post, make_parties, one_round

    if not np.isfinite(problem.message_bound):
        raise InputError("a secret sum needs finite bounds low and high for every agent: they fix its number range")
    bound = problem.message_bound * (1 + 1e-9)  # rounding in A_i x_i
    post = Post(make_parties(problem.size, problem.rows, fraction_bits=fraction_bits, bound=bound))
    number = iter(range(2**62))

    def opened(messages: np.ndarray) -> np.ndarray:
        first = one_round(post, next(number), list(messages))[0]
        if not isinstance(first, Opened):
            raise first
        return first.values

    return opened
