r"""Default penalties of the private ADMM methods, from public numbers only."""

from __future__ import annotations

import math

from coterie.algorithms.base import Public
from coterie.errors import InputError
from coterie.privacy import gdp

__all__ = ["MARGIN_NOISE", "jacobian_penalty", "private_penalty"]

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
