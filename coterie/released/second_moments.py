"""What a release of second moments is good for: any ridge model on any columns, starts and preconditioners, all free.

Everything here is a function of what was released, so it costs nothing more, however often it is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
from jaxtyping import Array
from numpy.typing import ArrayLike, NDArray

from coterie.errors import InputError
from coterie.problems.records import Rows, namespace

__all__ = ["RidgeModel", "SecondMoments", "default_penalty", "inverse_root", "ridge_weights"]

Floats = NDArray[np.float64]
Number = TypeVar("Number", float, Array)
LEAST = 1e-9  # penalty where there is no noise
PART = 0.3  # of the noise's length: the best of seven on Adult, at ε = 0.1 and at 1, local and shared


def default_penalty(noise: Number, dim: int) -> Number:
    """λ by the noise, which is public: a part of the length of a symmetric d × d matrix of it, σ√(2d)."""
    return PART * noise * (2 * dim) ** 0.5 + LEAST


def positive(matrix: Rows) -> Rows:
    """The nearest positive semidefinite matrix: what second moments are, whatever the noise."""
    xp = namespace(matrix)
    values, vectors = xp.linalg.eigh(matrix)
    return (vectors * xp.maximum(values, 0.0)) @ vectors.T


def ridge_weights(matrix: Rows, cross: Rows, penalty: object) -> Rows:
    """θ = (A₊ + λI)⁻¹ b, with A₊ the nearest positive semidefinite matrix."""
    xp = namespace(matrix)
    values, vectors = xp.linalg.eigh(matrix)
    return vectors @ ((vectors.T @ cross) / (xp.maximum(values, 0.0) + penalty))


def inverse_root(matrix: Floats, penalty: float) -> Floats:
    """(A₊ + λI)^(−1/2), with A₊ the nearest positive semidefinite matrix."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors / np.sqrt(np.maximum(values, 0.0) + penalty)) @ vectors.T, float)


@dataclass(frozen=True, eq=False)
class RidgeModel:
    """A linear model of released moments, for rows as they were released (scaled, in the unit ball)."""

    weights: Floats  # zero on columns that were left out
    penalty: float
    reach: float
    numbers: bool

    def decision(self, rows: ArrayLike) -> Floats:
        """⟨θ, x⟩ for each row."""
        return np.asarray(rows, float) @ self.weights

    def predict(self, rows: ArrayLike) -> Floats:
        """Numbers, or −1 and 1."""
        score = self.decision(rows)
        return self.reach * score if self.numbers else np.where(score > 0, 1.0, -1.0)


@dataclass(frozen=True, eq=False)
class SecondMoments:
    """Noisy means of x xᵀ and of y x over all records: variance σ² on the diagonal, σ²/2 off it, σ_b² on y x.

    >>> import numpy as np
    >>> seen = SecondMoments(np.diag([0.5, 0.25]), np.array([0.2, -0.1]), 0.0, 0.0)
    >>> seen.ridge(0.25).weights.round(3)
    array([ 0.267, -0.2  ])
    >>> seen.ridge(0.25, columns=[1]).weights.round(3)
    array([ 0. , -0.2])
    """

    matrix: Floats  # mean of x xᵀ, symmetric
    cross: Floats  # mean of y x, y in units of `reach`
    noise: float  # σ
    cross_noise: float  # σ_b
    reach: float = 1.0
    numbers: bool = False
    names: tuple[str, ...] = field(default=())  # of the columns

    def named(self, names: Sequence[str]) -> SecondMoments:
        """The same, with names by which columns may be asked for."""
        if len(names) != len(self.cross):
            raise InputError(f"{len(self.cross)} columns were released, got {len(names)} names")
        return replace(self, names=tuple(names))

    def exclusive(self, groups: Sequence[Sequence[int | str]]) -> SecondMoments:
        """The same where at most one column of each group is not zero in a record, by a public rule: products of two
        of them are zero for certain, and their noise is taken off.
        """
        matrix = self.matrix.copy()
        for group in groups:
            at = self._numbers(group)
            block = np.ix_(at, at)
            matrix[block] = np.diag(np.diag(matrix[block]))
        return replace(self, matrix=matrix)

    @property
    def default(self) -> float:
        """The penalty by the noise."""
        return float(default_penalty(self.noise, len(self.cross)))

    def positive(self) -> Floats:
        """The mean of x xᵀ as the nearest positive semidefinite matrix."""
        return np.asarray(positive(self.matrix), float)

    def ridge(self, penalty: float | None = None, columns: Sequence[int | str] | None = None) -> RidgeModel:
        """The minimiser of ½ mean (⟨θ, x⟩ − y)² + λ/2 ‖θ‖² over the given columns (all), λ by the noise if left out."""
        if penalty is not None and not penalty > 0:
            raise InputError(f"penalty must be > 0, got {penalty}")
        at = np.arange(len(self.cross)) if columns is None else self._numbers(columns)
        used = float(default_penalty(self.noise, len(at))) if penalty is None else float(penalty)
        weights = np.zeros(len(self.cross))
        weights[at] = ridge_weights(self.matrix[np.ix_(at, at)], self.cross[at], used)
        return RidgeModel(weights, used, self.reach, self.numbers)

    def start(self, penalty: float | None = None) -> Floats:
        """Where a logistic model may begin: labels ±1 have the mean ½⟨θ, x⟩ near θ = 0, so twice the ridge model."""
        return 2 * self.ridge(penalty).weights

    def preconditioner(self, penalty: float | None = None) -> Floats:
        """P = (A₊ + λI)^(−1/2): in the coordinates P⁻¹θ all directions of the records are about as long."""
        return inverse_root(self.matrix, self.default if penalty is None else penalty)

    def _numbers(self, columns: Sequence[int | str]) -> NDArray[np.int64]:
        """Columns by name or number; an InputError names one that is not there, or is named twice."""
        out = []
        for column in columns:
            if isinstance(column, str):
                if column not in self.names:
                    known = ", ".join(self.names[:8]) or "none: use numbers, or `named`"
                    raise InputError(f"unknown column {column!r}; names are {known}")
                out.append(self.names.index(column))
            elif 0 <= int(column) < len(self.cross):
                out.append(int(column))
            else:
                raise InputError(f"column {column} is not in 0 … {len(self.cross) - 1}")
        if not out or len(set(out)) < len(out):
            raise InputError(f"columns must be one or more different ones, got {list(columns)}")
        return np.array(out)
