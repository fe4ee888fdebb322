"""Sums by additive secret sharing over Z_2^64 (Xiao, Ye, Devadas, Alg. 3): only the sum of all vectors is opened.

Party i splits its integer vector e_i into shares s_ij, uniform on Z_2^64 for j ≠ i and s_ii = e_i − Σ_j s_ij, sends
s_ij to party j, and broadcasts ŝ_i = Σ_j s_ji; everybody adds the ŝ_i up and reads a signed number. The view of
colluding parties is simulatable from their own vectors and the sum of the others as long as two parties are honest.
It is not differential privacy: the sum itself leaks, and whoever opens it must have paid for that.

Here everything happens in one call, for sums inside one process; the shares are real, from the operating system's
randomness. Parties with messages, sealed channels and drop-outs are in `coterie.exchange.protocol`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from coterie.errors import InputError
from coterie.privacy.secure import uniform_bits

__all__ = ["open_sum", "secret_shared_sum", "split"]

Words = NDArray[np.uint64]
Integers = NDArray[np.int64]


def split(vector: Integers, parties: int, own: int) -> Words:
    """(parties, d) shares of one vector; row `own` stays with its owner. Any parties − 1 rows are uniform."""
    if not 0 <= own < parties or parties < 2:
        raise InputError(f"expected 0 ≤ own < parties and parties ≥ 2, got {own} and {parties}")
    shares = uniform_bits((parties, *vector.shape), 64).astype(np.uint64)
    with np.errstate(over="ignore"):
        shares[own] = 0
        shares[own] = vector.astype(np.int64).view(np.uint64) - shares.sum(axis=0, dtype=np.uint64)
    return shares


def open_sum(partial: Sequence[Words]) -> Integers:
    """The signed sum from every party's broadcast ŝ_i."""
    with np.errstate(over="ignore"):
        return np.stack(partial).sum(axis=0, dtype=np.uint64).view(np.int64)


def secret_shared_sum(vectors: Sequence[Integers], bound: int | None = None) -> Integers:
    """Σ_i vectors[i], through shares. `bound` on a vector's entries is checked so that the sum cannot wrap around.

    >>> import numpy as np
    >>> secret_shared_sum([np.array([3, -5]), np.array([-4, 1]), np.array([2, 2])]).tolist()
    [1, -2]
    """
    n = len(vectors)
    if n < 3:
        raise InputError(f"a secret sum needs at least 3 parties (2 honest ones and somebody to hide from), got {n}")
    limit = (2**63 - 1) // n if bound is None else bound
    if bound is not None and n * bound >= 2**63:
        raise InputError(f"{n} parties with entries up to {bound} can exceed 63 bits: use a coarser grid")
    for i, vector in enumerate(vectors):
        largest = int(np.max(np.abs(vector.astype(object)))) if vector.size else 0
        if largest > limit:
            raise InputError(
                f"party {i} holds an entry of size {largest}, more than the {limit} that cannot wrap around"
            )
    sent = [split(v, n, i) for i, v in enumerate(vectors)]  # first message round: sent[i][j] goes to party j
    with np.errstate(over="ignore"):
        received = [np.stack([sent[i][j] for i in range(n)]) for j in range(n)]
        partial = [shares.sum(axis=0, dtype=np.uint64) for shares in received]  # second message round: broadcast
    return open_sum(partial)
