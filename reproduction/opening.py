"""What may be opened: one sum over all parties, and nothing else.

Opening Σ_i A_i x_i for public matrices A_i gives everybody m linear equations. A party subtracts its own term; if some
combination of the equations then contains a single other party, that party's values are known. So it is for consensus
as printed by Xiao, Ye and Devadas, where the rows of Σ A_i x_i are x_i − x_j on edges, and for sums over overlapping
neighbourhoods, whose differences contain one party.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coterie.errors import InputError

__all__ = ["check_opening", "revealed"]

_SMALL = 1e-9  # relative size below which a coefficient counts as zero


def revealed(blocks: Sequence[ArrayLike], observer: int) -> dict[int, NDArray[np.float64]]:
    """What one party learns of single others from Σ_i A_i x_i: party -> K, where it can compute K x_party exactly.

    `blocks[i]` is A_i, (m, d_i). A combination y of the equations contains only parties i and `observer` if y A_k = 0
    for all others; then y A_i x_i is known. K is empty (no key) where no such combination moves with x_i. With three
    parties and one equation nothing is revealed; with a square system everything is.

    >>> edges = np.array([[1, -1, 0], [0, 1, -1]])  # a path: the opened rows are x₀ − x₁ and x₁ − x₂
    >>> sorted(revealed([edges[:, [i]] for i in range(3)], observer=1))
    [0, 2]
    >>> revealed([[[1.0]], [[1.0]], [[1.0]]], observer=1)
    {}
    """
    from scipy.linalg import null_space

    matrices = [np.atleast_2d(np.asarray(b, float)) for b in blocks]
    if len({m.shape[0] for m in matrices}) > 1:
        raise InputError(f"all A_i need the same number of rows, got {[m.shape[0] for m in matrices]}")
    found = {}
    for i, own in enumerate(matrices):
        if i == observer:
            continue
        others = [m for k, m in enumerate(matrices) if k not in (i, observer)]
        free = null_space(np.hstack(others).T) if others else np.eye(own.shape[0])
        known = free.T @ own
        if np.abs(known).max(initial=0.0) > _SMALL * max(np.abs(own).max(initial=0.0), 1e-300):
            found[i] = known
    return found


def check_opening(blocks: Sequence[ArrayLike]) -> None:
    """Refuse to open Σ_i A_i x_i if any party could then compute something of a single other party.

    The sum of all x_i (every A_i = I) passes from three parties on; incidence and Laplacian products do not.
    """
    for observer in range(len(blocks)):
        if found := revealed(blocks, observer):
            victim = min(found)
            raise InputError(
                f"opening Σ A_i x_i would show party {observer} values of party {victim} alone"
                f"{f' (and of {len(found) - 1} more)' if len(found) > 1 else ''}: differences of the opened rows "
                "isolate it, as for incidence products and neighbourhood sums; open the sum of all x_i instead"
            )
