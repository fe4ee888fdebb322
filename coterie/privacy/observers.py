r"""What one observer, or several who pool what they know, learn of somebody else's record in a run of gossip.

Party i sends y_i^t = g_i^t + Σ_j w_ij y_j^{t−1} + N(0, s_it² I). An observer sees what its neighbours send, and knows
its own noise and records; it may send what it likes. So what it sends is known, its node can be deleted, and what is
left is M = W without it, of which it sees its neighbours' rows, C. Three accounts (proofs: docs/theory/
observers.md), each μ of a Gaussian trade-off curve, never more than against a reader of every message:

- `linear`: inputs g that do not react to what is heard (means, counts, statistics). Exact: μ_u² = min ‖e‖² over shifts
  e of the noise, in units of its scale, that explain the shift of the view. By a Cholesky factor of the view's
  covariance, kT × kT for k visible neighbours, where every round has fresh noise; by an orthonormal basis of what can
  be observed where noise is drawn only once, or hardly any is drawn later.
- `reacting`: any local maps y_i = φ_i(x_i) + noise with |φ_i(x) − φ_i(x')| ≤ gain_i |x − x'|, as gradient steps are
  (gain 1: convex, smooth, step ≤ 2/L). A plan of absorption r ≥ 0 bounds how far two worlds may stand apart; what is
  absorbed at i in round t costs (gain_i Σ_j w_ij r_j^{t−1} + Δ_i^t − r_i^t)₊²/s_it². Every r gives a bound.
- `hidden_share`: noise that neighbours share and that cancels in their sum; the reader sees every message.

`factorised` is the matrix-factorisation account for learning, which is unproved and false: only the audit uses it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coterie.errors import InputError

__all__ = [
    "NEIGHBOURS", "Outlook", "everybody_reacting", "factorised", "hidden_share", "linear", "reacting", "view",
    "worst_hidden_share",
]  # fmt: skip

NEIGHBOURS = (
    "sees what its neighbours send, knows its own noise and records, may send what it likes, and is told nobody else's "
    "answer"
)
"""The adversary of `linear` and `reacting`."""
Floats = NDArray[np.float64]
DEPENDENT = 1e-12  # a direction of which this share is left, at most, beside those seen before is none of its own
QUIET = 1e-3  # of the largest noise: where there is less, later noise counts as none, and a covariance has digits left
MOST_SHIFTS = 20_000  # messages of a run whose parties react
LARGEST = 20_000  # numbers in a view: its covariance then has 3.2 GB
MOST_WORK = 1e11  # floating-point operations that pricing all coalitions may take
STEEP = 30.0  # a ratio beyond which updates of an inverse have too few digits: each is worked out anew
STEEPEST = 1e4  # and one beyond which that has too few; more of it hides more, so this one is an upper bound
SPARE = 1e-6  # of a share at a ratio above STEEP: a hundred times what rounding was found to take


@dataclass(frozen=True)
class Outlook:
    """The rest of a network without its observers: who is left, how they mix, and whose messages are seen."""

    rest: NDArray[np.int64]  # the parties that are left, in the network's numbers
    mixing: Floats  # M: their weights among each other
    seen: NDArray[np.int64]  # places in `rest` of those whose messages are seen
    size: int  # parties in all

    def spread(self, values: Floats) -> Floats:
        """Numbers of the parties that are left, in the network's order; the observers themselves learn no more: 0."""
        out = np.zeros(self.size)
        out[self.rest] = values
        return out


def view(weights: Floats, observers: Iterable[int]) -> Outlook:
    """What these parties, together, see of a network with mixing weights W."""
    size, own = len(weights), sorted(set(observers))
    if not own or own[0] < 0 or own[-1] >= size or len(own) == size:
        raise InputError(f"observers must be some of the {size} parties, and not all, got {own}")
    rest = np.setdiff1d(np.arange(size), own)
    near = np.any(np.asarray(weights)[own][:, rest] != 0, axis=0)
    return Outlook(rest, np.asarray(weights, float)[np.ix_(rest, rest)], np.flatnonzero(near), size)


def linear(seen: Outlook, sensitivity: Floats, scale: Floats) -> Floats:
    """μ of every party against the observer: one input each, in the first round, that reacts to nothing. Exact.

    `sensitivity` (parties,): how far a record moves the input; `scale` (parties, rounds): noise of every message.
    """
    shift, noise = np.asarray(sensitivity, float)[seen.rest], np.asarray(scale, float)[seen.rest]
    if not np.all(noise[:, 0] > 0):
        raise InputError("every party's first message needs noise")
    size = float(noise.max())  # work in units of it
    shift, noise = shift / size, noise / size
    if np.all(noise[:, 1:] > 0) and noise.min() >= QUIET:
        share = _fresh(seen, noise)
    elif np.all(noise[:, 1:] > 0) or not np.any(noise[:, 1:]):
        share = _observable(seen, noise[:, 0], noise.shape[1]) / noise[:, 0] ** 2
    else:
        raise InputError("noise must be fresh in every round, or drawn in the first one only")
    return seen.spread(np.minimum(shift * np.sqrt(share), shift / noise[:, 0]))


def _responses(seen: Outlook, rounds: int) -> Floats:
    """C M^j for j < rounds, one below the other."""
    row = np.eye(len(seen.rest))[seen.seen]
    out = [row]
    for _ in range(rounds - 1):
        out.append(out[-1] @ seen.mixing)
    return np.concatenate(out)


def _covariance(answers: Floats, noise: Floats, seen: int) -> Floats:
    """Of all that is seen: Σ_s F_{t−s} diag(s_s²) F_{t'−s}ᵀ in block (t, t')."""
    rounds = noise.shape[1]
    if len(answers) > LARGEST:
        raise InputError(f"the view has {len(answers)} numbers, more than {LARGEST}: ask for fewer rounds or observers")
    if rounds > 1 and np.all(noise[:, 1:] == noise[:, 1:2]):  # the same from the second round on: sums along diagonals
        total = (answers * noise[:, 1] ** 2) @ answers.T
        for t in range(1, rounds):
            total[t * seen : (t + 1) * seen, seen:] += total[(t - 1) * seen : t * seen, :-seen]
        if np.any(noise[:, 0] != noise[:, 1]):
            total += (answers * (noise[:, 0] ** 2 - noise[:, 1] ** 2)) @ answers.T
        return total
    total = np.zeros((len(answers), len(answers)))
    for s in range(rounds):
        part = answers[: len(answers) - s * seen]
        total[s * seen :, s * seen :] += (part * noise[:, s] ** 2) @ part.T
    return total


def _fresh(seen: Outlook, noise: Floats) -> Floats:
    """a_uᵀ Σ⁻¹ a_u of every party, by one Cholesky factor."""
    from scipy.linalg import cholesky, solve_triangular  # a deployed party never asks: see `coterie/deploy/apart.py`

    answers = _responses(seen, noise.shape[1])
    factor = cholesky(_covariance(answers, noise, len(seen.seen)), lower=True, overwrite_a=True, check_finite=False)
    whitened = solve_triangular(factor, answers, lower=True, overwrite_b=True, check_finite=False)
    return np.einsum("ij,ij->j", whitened, whitened)


def _observable(seen: Outlook, noise: Floats, rounds: int) -> Floats:
    """‖P e_u‖² of every party, P the projection on what C, CM, …, CM^{T−1} see of the noise: 1 where it is inverted.

    A direction counts as seen unless only rounding is left of it beside the others: what is hard to see in practice
    counts as seen.
    """
    basis = np.zeros((0, len(noise)))
    rows = np.eye(len(noise))[seen.seen]
    for _ in range(rounds):
        new = []
        for row in rows * noise:
            left = row / max(float(np.linalg.norm(row)), 1e-300)
            for _ in range(2):  # twice is enough (Kahan)
                left = left - basis.T @ (basis @ left)
            if (length := float(np.linalg.norm(left))) > DEPENDENT:
                basis = np.vstack([basis, left / length])
                new.append(left / length / noise)
        if not new:
            break
        rows = np.array(new) @ seen.mixing
    return np.minimum(np.sum(basis**2, axis=0), 1.0)


def factorised(seen: Outlook, party: int, sensitivity: Floats, scale: Floats) -> float:
    """μ that the matrix-factorisation account states for an input in every round (`sensitivity`, by round).

    Exact bound if inputs reacted to nothing. For learning it is refuted (docs/errata.md).
    """
    from scipy.linalg import cholesky, solve_triangular  # a deployed party never asks: see `coterie/deploy/apart.py`

    noise = np.asarray(scale, float)[seen.rest]
    rounds, k = noise.shape[1], len(seen.seen)
    answers = _responses(seen, rounds)
    factor = cholesky(_covariance(answers, noise, k), lower=True, check_finite=False)
    mine = answers[:, int(np.flatnonzero(seen.rest == party)[0])]
    columns = np.zeros((len(answers), rounds))
    for s in range(rounds):
        columns[s * k :, s] = mine[: len(answers) - s * k]
    white = solve_triangular(factor, columns, lower=True, check_finite=False)
    each = np.asarray(sensitivity, float)
    local = float(np.sum((each / noise[int(np.flatnonzero(seen.rest == party)[0])]) ** 2))
    return math.sqrt(min(float(each @ np.abs(white.T @ white) @ each), local))


def reacting(seen: Outlook, party: int, sensitivity: Floats, scale: Floats, gain: Floats) -> float:
    """A bound on μ of one party where everybody reacts to what it hears, with these Lipschitz constants.

    `sensitivity` (rounds,) of the party's message in every round, `scale` (parties, rounds) of the noise. Local maps
    are arbitrary within `gain` (parties,), and so are the observers. What the optimiser finds is a bound wherever it
    stops; none is above that of a reader of every message, which absorbs everything where it arises.
    """
    from scipy.optimize import minimize

    noise, more = np.asarray(scale, float)[seen.rest].T, np.asarray(gain, float)[seen.rest]
    if not np.all(noise > 0):
        raise InputError("every message needs noise of its own where parties react to what they hear")
    rounds, parties = noise.shape
    weights, me = more[:, None] * np.abs(seen.mixing), int(np.flatnonzero(seen.rest == party)[0])
    each = np.asarray(sensitivity, float)
    local = float(np.sum((each / noise[:, me]) ** 2))
    free = np.setdiff1d(np.arange(parties), seen.seen)
    if local == 0 or not len(free):
        return math.sqrt(local)
    size = float(np.max(each))  # work in units of it

    def absorbed(r: Floats) -> Floats:
        come = np.zeros_like(noise)
        come[1:] = r[:-1] @ weights.T
        come[:, me] += each / size
        return np.maximum(come - r, 0.0) / noise * size

    def cost(flat: Floats) -> tuple[float, Floats]:
        r = np.zeros_like(noise)
        r[:, free] = flat.reshape(rounds, len(free))
        taken = absorbed(r)
        push = taken / noise * size
        slope = -push
        slope[:-1] += push[1:] @ weights
        return float(np.sum(taken**2)), 2 * slope[:, free].ravel()

    found = minimize(
        cost, np.zeros(rounds * len(free)), jac=True, method="L-BFGS-B", bounds=[(0.0, None)] * (rounds * len(free)),
        options={"maxiter": 500, "ftol": 1e-12},
    )  # fmt: skip
    return math.sqrt(min(cost(np.maximum(found.x, 0.0))[0], local))


def everybody_reacting(seen: Outlook, sensitivity: Floats, scale: Floats, gain: Floats) -> Floats:
    """`reacting` for every party, each with the same sensitivity in all rounds."""
    if seen.size * scale.shape[1] > MOST_SHIFTS:
        raise InputError(
            f"an account per observer of {seen.size} parties over {scale.shape[1]} rounds that react takes too long: "
            f"at most {MOST_SHIFTS} messages"
        )
    out = np.zeros(seen.size)
    for party in seen.rest.tolist():
        out[party] = reacting(seen, party, np.full(scale.shape[1], sensitivity[party]), scale, gain)
    return out


# ---- noise that neighbours share -------------------------------------------------------------------------------------


def hidden_share(edges: NDArray[np.int64], size: int, ratio: float, without: Sequence[int] = ()) -> Floats:
    """(S⁻¹)_ii of every party for S = I + ratio² Laplacian, once the parties `without` and their edges are deleted.

    1 over it is the variance that hides party i's message from a reader of all others and of those parties' secrets,
    in units of its own noise: 1 where nobody shares with it, at most the number of parties. Deleted ones are 0.

    >>> hidden_share(np.array([[0, 1], [1, 2], [0, 2]]), 3, 100.0).round(3).tolist()
    [0.333, 0.333, 0.333]
    """
    ratio = min(ratio, STEEPEST)
    left = np.ones(size, bool)
    left[list(without)] = False
    pairs = edges[left[edges].all(axis=1)] if len(edges) else edges
    matrix = np.eye(size)
    i, j = pairs[:, 0], pairs[:, 1]
    np.add.at(matrix, (i, i), ratio**2)
    np.add.at(matrix, (j, j), ratio**2)
    matrix[i, j] -= ratio**2
    matrix[j, i] -= ratio**2
    share = np.diag(np.linalg.inv(matrix)) * (1 + SPARE if ratio > STEEP else 1.0)
    return np.where(left, np.minimum(share, 1.0), 0.0)


def worst_hidden_share(edges: NDArray[np.int64], size: int, ratio: float, gone: int) -> float:
    """The largest `hidden_share` of anybody, whichever `gone` parties are deleted: what a plan must charge.

    Deleting more raises it (it is an effective resistance to the ground, and conductances are taken away), so sets of
    that size are enough.
    """
    if not 0 <= gone < size:
        raise InputError(f"of {size} parties at most {size - 1} can be curious or missing, got {gone}")
    degrees = np.bincount(edges.ravel(), minlength=size)
    if gone >= degrees.min():  # the whole neighbourhood of somebody
        return 1.0
    steep = ratio > STEEP
    if math.comb(size, gone) * (float(size) ** 3 if steep else min(64.0 * size, float(size) ** 3)) > MOST_WORK:
        raise InputError(f"{math.comb(size, gone)} coalitions of {gone} among {size} parties are too many to price")
    inverse = np.zeros((0, 0)) if steep else _inverse(edges, size, ratio)
    near = [np.flatnonzero((edges == node).any(axis=1)) for node in range(size)]
    worst = 0.0
    for coalition in itertools.combinations(range(size), gone):
        cut = edges[np.unique(np.concatenate([near[c] for c in coalition]))] if gone else edges[:0]
        if steep or 4 * len(cut) > size:
            share = hidden_share(edges, size, ratio, coalition)
        else:  # S − ratio² U Uᵀ, of low rank
            across = inverse[cut[:, 0]] - inverse[cut[:, 1]]
            inner = np.eye(len(cut)) / ratio**2 - (across[:, cut[:, 0]] - across[:, cut[:, 1]])
            share = np.diag(inverse) + np.einsum("ki,ki->i", across, np.linalg.solve(inner, across))
            share[list(coalition)] = 0.0
        worst = max(worst, float(share.max()))
    return min(worst, 1.0)


def _inverse(edges: NDArray[np.int64], size: int, ratio: float) -> Floats:
    matrix = np.eye(size)
    for i, j in edges.tolist():
        matrix[[i, j], [i, j]] += ratio**2
        matrix[[i, j], [j, i]] -= ratio**2
    return np.asarray(np.linalg.inv(matrix), float)
