r"""Closed forms that the papers' analyses leave once corrected: bounds, orders of magnitude, default parameters.

All are functions of public numbers. `objective_gap_bound` is proved; `sample_complexity` is an order of magnitude and
`paper_threshold` what a paper prints: neither of those is a guarantee.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from coterie.algorithms.base import Public
from coterie.errors import InputError
from coterie.privacy import gdp

__all__ = [
    "jacobian_penalty",
    "objective_gap_bound",
    "paper_threshold",
    "paper_threshold_from",
    "private_penalty",
    "sample_complexity",
]


def objective_gap_bound(penalty: float, degrees: ArrayLike, sigma: ArrayLike, distance: float, dim: int) -> float:
    r"""Bound on E[Σ_i f_i(x̄_i) − f*] after K rounds of `pr-admm` without a threshold, f* = min_x Σ_i f_i(x).

    x̄ = (1/K) Σ_k x^k averages the exact (unreleased) minimisers, so this is a statement and not an output. With
    `degrees` |V_i|, `sigma` of shape (K, agents) (or anything that broadcasts to it), x⁰ common to all agents and
    `distance` ‖x⁰ − x*‖,

        E[f(x̄) − f*] ≤ (η/K) { Σ_i |V_i| ‖x⁰ − x*‖² + dim Σ_k Σ_i |V_i| σ²_{i,k} },

    since ½‖1 ⊗ v‖² in the signless Laplacian is 2·edges·‖v‖² = Σ_i |V_i| ‖v‖². The gap may be negative: x̄ need not
    be consensual. At a fixed budget Σ_k σ_k² grows at least as K², so the noise part grows at least linearly in K.
    (Ding et al., Thm 5 and 6, corrected: no spectral constants, no Û.)

    >>> objective_gap_bound(0.5, [1, 1], [[0.1, 0.1], [0.1, 0.1]], 1.0, dim=1)
    0.51
    """
    size = np.asarray(degrees, float)
    spread = np.asarray(sigma, float)
    if spread.ndim != 2 or spread.shape[1] not in (1, size.size):
        raise InputError(f"sigma must have shape (rounds, {size.size}), got {spread.shape}")
    if not (penalty > 0 and distance >= 0 and np.all(size > 0) and np.all(spread >= 0)):
        raise InputError("penalty and degrees must be > 0, distance and sigma >= 0")
    noise = dim * np.sum(size * np.broadcast_to(spread, (spread.shape[0], size.size)) ** 2)
    return float(penalty / spread.shape[0] * (size.sum() * distance**2 + noise))


def sample_complexity(
    accuracy: float,
    gap: float,
    reference_norm: float,
    objective_sigma: float,
    output_sigma: float,
    tolerance: float,
    dim: int,
    failure: float = 0.05,
    constant: float = 1.0,
    slack: float = 0.0,
) -> float | None:
    r"""Records per agent that `pp-admm` needs to come within `accuracy` of a reference: an order of magnitude only.

    n ≥ V₀ ln(1/ξ) / [a²/(2‖x_ref‖²) − (1 + a₀)(β + H)], a = accuracy − gap (what is left after the T rounds' own
    error `gap`), H = σ₂ a √(2 d ln 1/ξ)/‖x_ref‖² + 2 σ₁² d ln(1/ξ); σ₁ `objective_sigma`, σ₂ `output_sigma`, β
    `tolerance`, ξ `failure` ≤ ½, V₀ `constant`, a₀ `slack`. None where the noise alone exceeds the accuracy.
    (Ding dissertation, Thm 8 and 9. V₀ and the gap are assumed there, not derived: never a guarantee.)

    >>> sample_complexity(0.1, 0.0, 1.0, 1e-3, 1e-4, 1e-6, dim=10, failure=0.05) > 600
    True
    """
    if not 0 < failure <= 0.5:
        raise InputError(f"failure must be in (0, 0.5], got {failure}")
    if not reference_norm > 0:
        raise InputError(f"reference_norm must be > 0, got {reference_norm}")
    a, log, square = accuracy - gap, math.log(1 / failure), reference_norm**2
    noise = output_sigma * a * math.sqrt(2 * dim * log) / square + 2 * objective_sigma**2 * dim * log
    room = a**2 / (2 * square) - (1 + slack) * (tolerance + noise)
    return constant * log / room if a > 0 and room > 0 else None


def paper_threshold(
    penalty: float,
    radius: float,
    slope: float,
    *,
    edges: float,
    signless_max: float,
    laplacian_max: float,
    connectivity: float,
) -> float:
    r"""PR-ADMM's automatic threshold U = Û/(√2 E), as printed: its proof fails, and it is far too large to act.

    Û = (φ_max(L₊) + 2 φ_max(Q)) V₁² + 2 V₂²/(η² φ_min(L₋)) + 1, with ‖x‖ ≤ V₁ `radius`, ‖∇f_i‖ ≤ V₂ `slope`, φ_max(L₊)
    `signless_max`, φ_max(Q) = √(`laplacian_max`/2) and φ_min(L₋) `connectivity`, the smallest non-zero eigenvalue of
    the Laplacian. (Ding et al., Lemma 4: it adds squares of lengths as if they were lengths, and bounds a sum of
    norms by what ADMM theory says of the norm of a sum.) Values that acted in the paper's own runs are .1 to 1.
    """
    for name, value in (("penalty", penalty), ("edges", edges), ("connectivity", connectivity)):
        if not value > 0:
            raise InputError(f"{name} must be > 0, got {value}")
    q_max = math.sqrt(laplacian_max / 2)
    total = (signless_max + 2 * q_max) * radius**2 + 2 * slope**2 / (penalty**2 * connectivity) + 1
    return total / (math.sqrt(2) * edges)


def paper_threshold_from(public: Public, penalty: float) -> float:
    """`paper_threshold` from what a plan knows: bounds stand in for the spectrum.

    φ_max(L₊) ≤ 2 · largest degree; φ_min(L₋) ≥ 4/(N (N − 1)) (Mohar); E ≥ N − 1; the optimum of f_i obeys
    ridge ‖x‖ ≤ V, so V₁ = V/ridge and V₂ = 2V.
    """
    if not public.ridge > 0:
        raise InputError("the paper's threshold needs a bound on ‖x‖: set ridge > 0 or give threshold a number")
    return paper_threshold(
        penalty,
        public.lipschitz / public.ridge,
        2 * public.lipschitz,
        edges=public.agents - 1,
        signless_max=2 * public.degree_max,
        laplacian_max=public.laplacian_max,
        connectivity=4 / (public.agents * max(public.agents - 1, 1)),
    )


MARGIN_NOISE = 1.5  # noise that the default penalty lets into a unit record's score over a whole run


def private_penalty(public: Public, releases: int | None = None) -> float:
    r"""Default η of the private ADMM methods: as small as the curvature allows and as large as the noise asks.

    *Noise.* The agents' mean follows x ← x − ∇f/Λ + noise, Λ = ridge + 2η|V|, so after K releases of std
    2V√K/(nΛμ) each a unit record's score carries noise of about 2VK/(nΛμ√N'), with μ the Gaussian budget of (ε, δ)
    and N' the agents that mix within the run, at most 1 + |V|√K. Both the progress and this noise depend on K/Λ
    only; η is chosen so that the noise is `MARGIN_NOISE`, of the order of the scores themselves. That constant was
    chosen on Adult (5 × 8000, 30 rounds), where it comes within .003 of the best accuracy on a grid of η at every ε
    of .1, .5, 1 and 10.
    *Curvature.* η ≥ √(ridge · smoothness/d)/|V|, the geometric mean of the slowest direction and of the mean
    eigenvalue of the loss's Hessian, whose trace is at most `smoothness`; this decides where there is no budget.

    `releases`: K, where it is not the number of rounds. |V| is the geometric mean of the extreme degrees.
    """
    degree = math.sqrt(public.degree_min * public.degree_max)
    curved = min(public.smoothness, 1.0) / public.dim
    fast = math.sqrt(max(public.ridge, 1e-4) * curved) / degree
    if not public.epsilon or not public.delta or math.isinf(public.epsilon):
        return fast
    if math.isinf(public.lipschitz):
        raise InputError("the default penalty needs a loss with bounded slope: give penalty a number")
    rounds = public.rounds if releases is None else min(releases, public.rounds)
    mixing = min(public.agents, 1 + degree * math.sqrt(rounds))
    mu = float(gdp.mu_for(public.epsilon, public.delta))
    wanted = 2 * public.lipschitz * rounds / (public.count_min * mu * math.sqrt(mixing) * MARGIN_NOISE)
    return max(fast, (wanted - public.ridge) / (2 * degree))


def jacobian_penalty(public: Public, releases: int | None = None) -> float:
    """Least η at which objective perturbation loses no more than a quarter of ε to its Jacobian.

    K releases lose 2KJ, J = ln(1 + smoothness/(nΛ)): no noise buys that back. 0 where there is no budget.
    """
    if not public.epsilon or math.isinf(public.epsilon):
        return 0.0
    rounds = public.rounds if releases is None else min(releases, public.rounds)
    curved = public.smoothness / (public.count_min * math.expm1(public.epsilon / (8 * rounds)))
    return max(0.0, (curved - public.ridge) / (2 * public.degree_min))
