"""What transcripts prove: lower bounds on the privacy loss that hold with a stated confidence, whatever the score.

An attack scores transcripts of two worlds and calls those above a threshold "the second world". Its true and false
positive rates are binomial, so their Clopper-Pearson limits are valid with no model of the score. A μ-GDP mechanism
allows no attack with Φ⁻¹(TPR) − Φ⁻¹(FPR) > μ; an (ε, δ)-DP one none with TPR > e^ε FPR + δ (and the same for the
complement). Spec of the arithmetic: Nasr et al. 2023; Steinke, Nasr, Jagielski 2023 and Mahloujifar, Melis, Chaudhuri
2025 for one run with many canaries.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri
from scipy.stats import beta, binom, norm

from coterie.errors import InputError
from coterie.privacy import gdp

__all__ = ["Rates", "epsilon_bound", "mu_bound", "one_run_epsilon", "one_run_mu", "rates", "violates"]


@dataclass(frozen=True)
class Rates:
    """Confidence limits of an attack: it detects at least `hit` and is wrong at most `miss`, both at once."""

    hit: float
    miss: float
    hits: int
    misses: int
    per_world: int
    confidence: float


def rates(first: np.ndarray, second: np.ndarray, threshold: float, confidence: float = 0.99) -> Rates:
    """Limits of P[score > threshold] in the second world (lower) and in the first (upper), at joint `confidence`.

    The threshold must be fixed before the scores are seen.
    """
    if not 0 < confidence < 1:
        raise InputError(f"confidence must be in (0, 1), got {confidence}")
    tail = (1 - confidence) / 2
    n, m = len(second), len(first)
    hits, misses = int(np.sum(second > threshold)), int(np.sum(first > threshold))
    hit = float(beta.ppf(tail, hits, n - hits + 1)) if hits else 0.0
    miss = float(beta.ppf(1 - tail, misses + 1, m - misses)) if misses < m else 1.0
    return Rates(hit, miss, hits, misses, min(n, m), confidence)


def mu_bound(r: Rates) -> float:
    """μ that a Gaussian-DP mechanism must have to allow this attack (0 if it proves nothing)."""
    if r.hit <= 0 or r.miss >= 1:
        return 0.0
    return max(0.0, float(norm.ppf(r.hit) - norm.ppf(r.miss)))


def epsilon_bound(r: Rates, delta: float) -> float:
    """ε that any (ε, δ)-DP mechanism must have to allow this attack, looking at both error types."""
    with np.errstate(divide="ignore"):
        one = np.log(max(r.hit - delta, 0.0) / r.miss) if r.miss > 0 else np.inf
        other = np.log(max(1 - r.miss - delta, 0.0) / (1 - r.hit)) if r.hit < 1 else np.inf
    return float(max(0.0, one, other))


def violates(r: Rates, profile: Callable[[float], float]) -> bool:
    """Whether the attack is better than the claimed δ(ε) curve allows at some ε.

    TPR ≤ e^ε FPR + δ(ε) must hold at every ε ≥ 0, and the same with the roles of the worlds exchanged (the pairs that
    algorithms declare dominate both orders).
    """
    for epsilon in np.concatenate([[0.0], np.geomspace(0.01, 30, 60)]):
        room = profile(float(epsilon))
        if r.hit > np.exp(epsilon) * r.miss + room or 1 - r.miss > np.exp(epsilon) * (1 - r.hit) + room:
            return True
    return False


def one_run_epsilon(canaries: int, guesses: int, right: int, delta: float, confidence: float = 0.99) -> float:
    """ε from one run: `canaries` records in or out by fair coins, `guesses` of them guessed, `right` correctly.

    Rejected ε: P[Bin(r, e^ε/(1+e^ε)) ≥ v] + 2 m δ max_i (P[Bin ≥ v − i] − P[Bin ≥ v])/i ≤ 1 − confidence.
    """
    _guesses(canaries, guesses, right)

    def p_value(epsilon: float) -> float:
        q = 1 / (1 + np.exp(-epsilon))
        tail = binom.sf(right - 1, guesses, q)
        steps = np.arange(1, right + 1)
        slope = np.max((binom.sf(right - steps - 1, guesses, q) - tail) / steps) if right else 0.0
        return float(tail + 2 * canaries * delta * slope)

    if p_value(0.0) > 1 - confidence:
        return 0.0
    if p_value(50.0) <= 1 - confidence:
        return 50.0
    return float(brentq(lambda e: p_value(e) - (1 - confidence), 0.0, 50.0, xtol=1e-6))


def one_run_mu(canaries: int, guesses: int, right: int, confidence: float = 0.99) -> float:
    """μ of a Gaussian-DP claim from one run, by the recursion for f-DP (tighter at equal canaries)."""
    _guesses(canaries, guesses, right)
    alpha = 1 - confidence

    def refuted(mu: float) -> bool:
        r, h = alpha * right / canaries, alpha * (guesses - right) / canaries
        for i in range(right - 1, -1, -1):
            following = max(h, float(ndtr(ndtri(min(r, 1.0)) - mu)))
            r += i / (guesses - i) * (following - h)
            h = following
        return r + h > guesses / canaries

    if not refuted(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while refuted(high) and high < 64:
        low, high = high, 2 * high
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def _guesses(canaries: int, guesses: int, right: int) -> None:
    if not 0 <= right <= guesses <= canaries or guesses == 0:
        raise InputError(f"expected 0 ≤ right ≤ guesses ≤ canaries and guesses > 0, got {right}, {guesses}, {canaries}")


def epsilon_of_mu(mu: float, delta: float) -> float:
    """ε of a μ-GDP mechanism at δ."""
    return float(gdp.epsilon_of(mu, delta)) if mu > 0 else 0.0
