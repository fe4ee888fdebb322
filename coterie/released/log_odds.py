r"""A logistic additive model of released moments, without the records: their distribution stands in for them.

The score equations of logistic regression, E[σ(s) x] = E[1{y = 1} x] with s = Σ_a θ_a(x_a), ask the records for two
things: the right side t, which is released, and the law of x, for which the latent classes of the released tables are
taken (`coterie.released.latent_classes`). In a class s is a sum of independent numbers, and is taken to be normal with
its mean m_k and variance v_k, which are exact: so

    F(θ) = Σ_k π_k E softplus(m_k + √v_k Z),      g = ∇F stands for E[σ(s) x],      H = ∇²F.

F is convex: m_k is linear in θ, √v_k is a norm, and E softplus(m + aZ) is convex, and rises with a.

**The noise on t is known.** So θ is not g⁻¹(t) but the mode of θ given t, with t normal around g(θ), covariance
N = (2ν)² I + c H: ν is the standard deviation of the noise on t, doubled for what the tables get wrong, and c H is what
1/c records would vary by. Beforehand a bin's value is normal around the intercept, neighbours correlated by ρ
(`coterie.data.bins`), with a variance τ_a² for each attribute, which is found by expectation maximisation: an attribute
that says nothing above the noise is left flat, and no penalty has to be chosen. Where a penalty λ is stated, θ = B u is
the minimiser of F − ⟨t, θ⟩ + λ/2 uᵀu instead.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coterie.data.bins import Bins
from coterie.released.latent_classes import LatentClasses, latent_classes, members

__all__ = ["fitted_means", "log_odds"]

Floats = NDArray[np.float64]
ROUNDS = 20  # of expectation maximisation, and of Newton's method
DOUBT = 2.0  # times ν; chosen, as are classes, on splits 10 to 14 of Adult and split 10 of diabetes
RECORDS = 1e5  # 1/c
FIRST, LEAST = 0.5, 1e-4  # τ²
FARTHEST = 2.0  # that a round moves a bin's log-odds
SURE = 1e-3  # a share of a class is not taken to be less
NODES, _RAW = np.polynomial.hermite_e.hermegauss(9)
MASS = _RAW / _RAW.sum()


def log_odds(tables: Floats, labelled: Floats, noise: tuple[float, float], bins: Bins, penalty: float | None) -> Floats:
    """What every bin adds to the log-odds, from consistent tables, means of y (±1) in bins, and the noise on both."""
    classes = latent_classes(tables, noise[0], bins)
    target = (classes.shares() + labelled) / 2
    share = np.clip(target.sum() / bins.ones, SURE, 1 - SURE)
    flat = np.full(bins.width, np.log(share / (1 - share)) / bins.ones)
    basis, member = np.zeros((bins.width, bins.width)), members(bins)
    for block in bins.blocks:
        basis[block.where, block.where] = bins.basis(block)
    spread = np.full(bins.width, FIRST if penalty is None else 1 / penalty)
    inner, one = np.zeros(bins.width), np.eye(bins.width)
    for _ in range(ROUNDS):
        mean, slope = _means(classes, flat + basis @ inner, member)
        doubt = (DOUBT * noise[1] / 2) ** 2 * one + slope / RECORDS if penalty is None else slope
        reach = slope @ basis
        known = np.linalg.solve(doubt + 1e-12 * one, reach).T
        left = np.linalg.inv(known @ reach + np.diag(1 / spread))
        step = left @ (known @ (target - mean + reach @ inner)) - inner
        inner = inner + step * min(1.0, FARTHEST / max(np.abs(basis @ step).max(), FARTHEST))
        if penalty is None:
            square = member @ (inner**2 + left.diagonal()) / member.sum(axis=1)
            spread = np.maximum(square, LEAST) @ member
    return np.asarray(flat + basis @ inner, float)


def fitted_means(tables: Floats, noise: float, theta: Floats, bins: Bins) -> tuple[Floats, Floats]:
    """The tables, and means of y (±1) in bins, of records that are as the classes say and whose log-odds are θ's."""
    classes, member = latent_classes(tables, noise, bins), members(bins)
    shares = classes.shares()
    known = (1 - member.T @ member) * classes.tables() + np.diag(shares)
    return known, 2 * _means(classes, theta, member)[0] - shares


def _means(classes: LatentClasses, theta: Floats, member: Floats) -> tuple[Floats, Floats]:
    """g and H at θ."""
    share, shape = classes.weights, classes.bins
    off = theta - ((shape * theta) @ member.T) @ member  # from the class's mean of the attribute
    deviation = np.sqrt((shape * off**2).sum(axis=1) + 1e-12)
    along = shape * off / deviation[:, None]  # the deviation's gradient
    odds = 1 / (1 + np.exp(-(shape @ theta)[:, None] - deviation[:, None] * NODES))
    steep = odds * (1 - odds)
    first, bent = share * (odds @ (MASS * NODES)), share * (steep @ MASS)
    mixed, wide, turned = share * (steep @ (MASS * NODES)), share * (steep @ (MASS * NODES**2)), first / deviation
    cross = (shape.T * mixed) @ along
    slope = (shape.T * bent) @ shape + cross + cross.T + (along.T * (wide - turned)) @ along
    slope += np.diag(shape.T @ turned) - ((shape.T * turned) @ shape) * (member.T @ member)
    return shape.T @ (share * (odds @ MASS)) + along.T @ first, slope
