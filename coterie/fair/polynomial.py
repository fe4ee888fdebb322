r"""The polynomial objective of fair logistic regression, and exactly how far one record can move it.

Records (x, y, z): x in the unit ball of R^d, y ∈ {0, 1}, z ∈ {0 … k−1} the protected group. To second order at w = 0
the logistic loss is log 2 + wᵀAw + bᵀw with

    A = Σ xxᵀ/8,     b = Σ (½ − y) x,     and the covariance penalty α Σ_j |v_jᵀw| has     V = Σ u_z xᵀ,

where u_z are the codes of the groups: z − p₁ for two groups, the rows of I − p for more (one against the rest), p the
shares of the groups. For two groups v = n p₁(1 − p₁)(mean of x in group 1 − mean of x in group 0).

All of it is a function of `Statistics`, sums over records: the statistics of several parties add. What is done with
them between parties runs inside a compiled round, so these lines serve NumPy's arrays and JAX's.

Sensitivities (replace one record; "signed" says that features may be negative; proofs in docs/fair.md):

    L2 of (b, √8·svec A)             1                              label flip of one x, whatever d
    L1 of (b, monomials of wᵀAw)     max_θ √d cos θ + (d/4) sin 2θ   ≤ √d + d/4
    L2 of V given p                  max over groups g, h and c of √(‖u_g‖² + ‖u_h‖² − 2c⟨u_g, u_h⟩), c ∈ {0 or −1, 1}
    L1 of V given p                  √d times the same, column by column
    group counts                     two groups: 1; more: √2 (L2), 2 (L1)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.errors import InputError
from coterie.problems.records import namespace

__all__ = [
    "L2_OBJECTIVE",
    "QUADRATIC_GAIN",
    "Numbers",
    "Statistics",
    "attribute_l1",
    "attribute_l2",
    "codes_of",
    "count_sensitivity",
    "covariance",
    "from_monomials",
    "from_svec",
    "from_upper",
    "l1_covariance",
    "l1_objective",
    "l2_covariance",
    "monomials",
    "svec",
    "upper",
]

Floats = NDArray[np.float64]
Numbers = Any  # an array of NumPy, or of JAX

L2_OBJECTIVE = 1.0
"""L2 sensitivity of (b, √8·svec A): ¼‖x ± x'‖² + ⅛‖xxᵀ − x'x'ᵀ‖² = ½(1 + c) + ¼(1 − c²) ≤ 1, c = ⟨x, x'⟩."""

QUADRATIC_GAIN = np.sqrt(8.0)
"""How much less noise the quadratic part needs at no cost: 8 is the largest weight that keeps the supremum at 1."""


@dataclass(frozen=True, eq=False)
class Statistics:
    """What the objective is made of: sums over records, so `+` joins the statistics of two parties."""

    count: int
    groups: Numbers  # (k,) records in each protected group
    linear: Numbers  # (d,) b
    quadratic: Numbers  # (d, d) A
    sums: Numbers  # (k, d) Σ x over each group

    @classmethod
    def of(cls, x: NDArray, y: NDArray, z: NDArray | None = None, groups: int = 2) -> Statistics:
        """The statistics of records; `z` (group numbers 0 … groups − 1) may be missing for methods without fairness."""
        x, y = np.asarray(x, float), np.asarray(y)
        if x.ndim != 2 or x.shape[0] != y.shape[0]:
            raise InputError(f"features and labels must have as many rows: shapes {x.shape} and {y.shape}")
        norm = float(np.sqrt(np.max(np.einsum("nd,nd->n", x, x), initial=0.0)))
        if not norm <= 1 + 1e-9:
            raise InputError(f"features must lie in the unit ball by public scaling, got a row of norm {norm:.6g}")
        if not np.isin(y, (0, 1)).all():
            raise InputError(f"labels must be 0 or 1, got {y[~np.isin(y, (0, 1))][0]}")
        member = np.zeros((groups, len(x)))
        if z is not None:
            z = np.asarray(z)
            if z.shape != y.shape or not np.isin(z, np.arange(groups)).all():
                raise InputError(f"protected groups must be numbers 0 … {groups - 1}, one for each record")
            member[z.astype(int), np.arange(len(x))] = 1.0
        return cls(len(x), member.sum(1), (0.5 - y) @ x, x.T @ x / 8, member @ x)

    @property
    def dim(self) -> int:
        """Number of features d."""
        return len(self.linear)

    def __add__(self, other: Statistics) -> Statistics:
        return Statistics(
            self.count + other.count,
            self.groups + other.groups,
            self.linear + other.linear,
            self.quadratic + other.quadratic,
            self.sums + other.sums,
        )


def codes_of(share: Numbers) -> Numbers:
    """Codes u_g of the groups, one row each, from their (released) shares: z − p₁ for two groups, I − p for more."""
    if len(share) == 2:
        return namespace(share).stack([-share[1:], 1 - share[1:]])
    return np.eye(len(share)) - share


def covariance(statistics: Statistics, codes: Numbers) -> Numbers:
    """V = Σ u_z xᵀ, one row for each penalty."""
    return codes.T @ statistics.sums


def svec(a: Numbers) -> Numbers:
    """A symmetric matrix as a vector of the same norm: diagonal, then √2 × what is above it."""
    return upper(a, np.sqrt(2.0))


def from_svec(vector: Numbers, d: int) -> Numbers:
    """Inverse of `svec`."""
    return from_upper(vector, d, np.sqrt(2.0))


def monomials(a: Numbers) -> Numbers:
    """Coefficients of the distinct monomials of wᵀAw: A_jj of w_j², then 2A_jl of w_j w_l."""
    return upper(a, 2.0)


def from_monomials(vector: Numbers, d: int) -> Numbers:
    """Inverse of `monomials`."""
    return from_upper(vector, d, 2.0)


def upper(a: Numbers, times: float = 1.0) -> Numbers:
    """The diagonal of a symmetric matrix, then what is above it times a number."""
    return namespace(a).concatenate([a.diagonal(), times * a[np.triu_indices(len(a), 1)]])


def from_upper(vector: Numbers, d: int, times: float = 1.0) -> Numbers:
    """Inverse of `upper`: entry (j, l) of the matrix is one of the vector's."""
    place = np.zeros((d, d), int)
    place[np.triu_indices(d, 1)] = np.arange(d, d + d * (d - 1) // 2)
    place += place.T + np.diag(np.arange(d))
    return vector[place] / np.where(np.eye(d) > 0, 1.0, times)


def l1_objective(d: int) -> float:
    """L1 sensitivity of b and the distinct monomials of wᵀAw: max_θ √d cos θ + (d/4) sin 2θ, tight up to its proof.

    With A₁ = ‖x + x'‖₁ and B₁ = ‖x − x'‖₁, A₁² + B₁² ≤ 4d and the change is at most A₁/2 + A₁B₁/8.

    >>> round(l1_objective(13), 3)
    6.008
    """
    s = (np.sqrt(d + 2 * d**2) - np.sqrt(d)) / (2 * d)  # sin θ at the maximum
    c = np.sqrt(1 - s**2)
    return float(np.sqrt(d) * c + d / 2 * s * c)


def count_sensitivity(groups: int, order: int) -> float:
    """L1 or L2 sensitivity of the released group counts (two groups: one count is enough)."""
    return 1.0 if groups == 2 else float(2.0 ** (1 / order))


def _least_cosine(signed: bool) -> float:
    """The smallest ⟨x, x'⟩ of two unit records."""
    return -1.0 if signed else 0.0


def l2_covariance(codes: Numbers, signed: bool) -> Numbers:
    """L2 sensitivity of V given the codes: convex in each record, so both have norm 1, and linear in c = ⟨x, x'⟩.

    >>> float(l2_covariance(codes_of(np.array([0.4, 0.6])), signed=False))  # max(1, √2·max(p, 1 − p))
    1.0
    """
    inner, own = codes @ codes.T, (codes**2).sum(1)
    low, high = (own[:, None] + own[None, :] - 2 * c * inner for c in (_least_cosine(signed), 1.0))
    xp = namespace(codes)
    return xp.sqrt(xp.maximum(low, high).max())


def l1_covariance(codes: Numbers, d: int, signed: bool) -> Numbers:
    """L1 sensitivity of V given the codes: ‖·‖₁ ≤ √d‖·‖₂ in each of its rows, summed."""
    g, h, xp = codes[:, None, :], codes[None, :, :], namespace(codes)
    rows = [xp.sqrt(xp.maximum(g**2 + h**2 - 2 * c * g * h, 0.0)) for c in (_least_cosine(signed), 1.0)]
    return np.sqrt(d) * xp.maximum(*rows).sum(-1).max()


def attribute_l2(radius: float, signed: bool) -> tuple[float, float]:
    """L2 moves of (b, √8·svec A) and of x when only features of one attribute change, ‖x_S‖ ≤ radius ≤ 1.

    The rest of the record has squared norm at most 1 − ‖x_S‖², and the worst pair has equal norms and the smallest
    cosine: squared move 2ρ² − ρ⁴ if features are signed, ρ² − ρ⁴/4 if not; x itself moves by 2ρ or √2 ρ.
    """
    if signed:
        return float(np.sqrt(2 * radius**2 - radius**4)), 2 * radius
    return float(np.sqrt(radius**2 - radius**4 / 4)), float(np.sqrt(2.0)) * radius


def attribute_l1(radius: float, size: int, d: int, signed: bool) -> tuple[float, float]:
    """L1 moves of (b, monomials) and of x when only the `size` features of one attribute change.

    With B = ‖x_S − x'_S‖₁ ≤ √size·(2ρ or √2ρ): ½B + ⅛B(‖x_S + x'_S‖₁ + 2‖x_N‖₁) ≤ B(½ + √d/4), by Cauchy's inequality.
    """
    gap = float(np.sqrt(size)) * attribute_l2(radius, signed)[1]
    return gap * (0.5 + float(np.sqrt(d)) / 4), gap
