r"""Private selection: the price of training K times and releasing the best run only, with K random and hidden.

One run, its score included, has the Rényi curve D_α (replace-one). The best of K runs, K drawn in advance from a public
law and never published, has the curve D'_α:

- K truncated negative binomial with shape η > −1 and 0 < γ < 1 (η = 1 geometric, η = 0 logarithmic), for every α̂ ≥ 1:
      D'_α = D_α + (1 + η)(1 − 1/α̂) D_α̂ + (1 + η) ln(1/γ)/α̂ + ln E[K]/(α − 1);
- K Poisson with mean m, given that a run is (ε̂, δ̂)-DP with e^ε̂ ≤ 1 + 1/(α − 1) (K = 0 releases something data-free):
      D'_α = D_α + m δ̂ + ln m/(α − 1).

The theorem hides the other runs. It says nothing where somebody sees their messages: against a reader of the network
every run is paid for (`coterie.estimators.PrivateSearch`, adversary "network").

Reference: Papernot, Steinke, *Hyperparameter Tuning with Rényi Differential Privacy* (ICLR 2022), Def. 1, Thm 2, Thm 6.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from coterie.errors import InputError
from coterie.privacy import gdp, rdp
from coterie.privacy.roots import brentq

__all__ = ["draw_runs", "gamma_for", "mean_runs", "mu_for_selection", "selected", "selection_epsilon"]

Floats = NDArray[np.float64]
Curve = Callable[[Floats], Floats]

_HAT = 1 + np.geomspace(1e-4, 1e6, 401)  # α̂: any choice is valid, a fine grid loses nothing that shows


def mean_runs(gamma: float, shape: float) -> float:
    """E[K] of the truncated negative binomial law: η (1 − γ)/(γ (1 − γ^η)), at η = 0 its limit.

    >>> mean_runs(0.1, 1.0)
    10.0
    """
    _check_shape(shape)
    if not 0 < gamma < 1:
        raise InputError(f"gamma must be in (0, 1), got {gamma}")
    log = np.log(gamma)
    # η/(1 − γ^η) → 1/ln(1/γ) as η → 0; expm1 keeps the digits on the way
    front = -1 / log if abs(shape * log) < 1e-12 else -shape / np.expm1(shape * log)
    return float((1 - gamma) / gamma * front)


def gamma_for(mean: float, shape: float) -> float:
    """γ of the law with shape η and E[K] = mean > 1."""
    if not (mean > 1 and np.isfinite(mean)):
        raise InputError(f"the mean number of runs must be > 1, got {mean}")
    _check_shape(shape)
    root = brentq(lambda u: np.log(mean_runs(float(np.exp(u)), shape) / mean), -60.0, -1e-9, xtol=1e-13)
    return float(np.exp(root))


def draw_runs(mean: float, shape: float, rng: np.random.Generator) -> int:
    """K ≥ 1 from the truncated negative binomial law: P(k) ∝ (1 − γ)^k Γ(k + η)/k!.

    By inversion: each term is the last times (1 − γ)(k + η)/(k + 1).
    """
    gamma = gamma_for(mean, shape)
    log = np.log(gamma)
    none = abs(shape * log) < 1e-12
    # P(1) = η (1 − γ) γ^η/(1 − γ^η), at η = 0 (1 − γ)/ln(1/γ)
    chance = (1 - gamma) * (-1 / log if none else shape / np.expm1(-shape * log))
    left, k = rng.random() - chance, 1
    while left > 0 and chance > 1e-300:
        chance *= (1 - gamma) * (k + shape) / (k + 1)
        left, k = left - chance, k + 1
    return k


def selected(curve: Curve, mean: float, shape: float = 1.0) -> Curve:
    """The Rényi curve of the best of K runs, from the curve of one; `shape` = inf is Poisson.

    `curve` maps orders α > 1 to D_α and must hold at every real order.
    """
    if shape == np.inf:
        if not mean > 0:
            raise InputError(f"the mean number of runs must be > 0, got {mean}")

        def poisson(orders: Floats) -> Floats:
            hats = [rdp.best_delta(curve, float(np.log1p(1 / (a - 1)))) for a in orders]
            return curve(orders) + mean * np.array(hats) + np.log(mean) / (orders - 1)

        return poisson
    gamma = gamma_for(mean, shape)
    extra = (1 + shape) * float(np.min((1 - 1 / _HAT) * curve(_HAT) - np.log(gamma) / _HAT))
    return lambda orders: curve(orders) + extra + np.log(mean) / (orders - 1)


def selection_epsilon(curve: Curve, mean: float, shape: float, delta: float) -> float:
    """ε at δ of releasing the best of K runs.

    >>> one = lambda orders: rdp.gaussian(np.array([0.2]), orders)[0]
    >>> round(selection_epsilon(one, 10, 1.0, 1e-5) / float(gdp.epsilon_of(0.2, 1e-5)), 1)
    2.4
    """
    return rdp.best_epsilon(selected(curve, mean, shape), delta)


def mu_for_selection(epsilon: float, delta: float, mean: float, shape: float = 1.0) -> float:
    """The largest μ such that the best of K runs, each μ-GDP with its score, is (ε, δ)-DP."""
    if not (epsilon > 0 and np.isfinite(epsilon)):
        raise InputError(f"epsilon must be > 0 and finite, got {epsilon}")

    def excess(log_mu: float) -> float:
        mu = np.array([np.exp(log_mu)])
        spent = selection_epsilon(lambda orders: rdp.gaussian(mu, orders)[0], mean, shape, delta)
        return float(np.log(max(spent, 1e-300) / epsilon))

    top = float(np.log(gdp.mu_for(epsilon, delta)))  # the best of K never costs less than one run
    bottom = top - 1.0
    while excess(bottom) > 0:
        bottom -= 1.0
        if bottom < top - 40:
            raise InputError(f"budget too small for private selection: epsilon {epsilon:g}, delta {delta:g}")
    root = brentq(excess, bottom, top, xtol=1e-10)
    while excess(root) > 0:  # the answer must fit, not only to rounding
        root -= 1e-10
    return float(np.exp(root))


def _check_shape(shape: float) -> None:
    if not (shape > -1 and np.isfinite(shape)):
        raise InputError(f"shape must be > −1 (1: geometric, 0: logarithmic), got {shape}")
