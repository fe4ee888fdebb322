r"""What the papers print: their conversions and totals, reported beside the tight value and never instead of it."""

import numpy as np
from numpy.typing import ArrayLike

from coterie.errors import InputError

__all__ = [
    "classic_gaussian",
    "ding_rho",
    "kov_epsilon",
    "qdpsgd_epsilon",
    "qdpsgd_sigma",
    "showkatbakhsh_alpha",
    "zcdp_epsilon",
    "zcdp_rho",
]


def _log_inverse(delta: float) -> float:
    if not 0 < delta < 1:
        raise InputError(f"delta must be in (0, 1), got {delta}")
    return float(-np.log(delta))


def zcdp_epsilon(rho: float, delta: float) -> float:
    """ρ + 2√(ρ ln 1/δ), the conversion printed nearly everywhere (Bun, Steinke 2016, Prop. 1.3): valid, loose."""
    return rho + 2 * float(np.sqrt(rho * _log_inverse(delta)))


def zcdp_rho(epsilon: float, delta: float) -> float:
    """Its inverse, (√(L + ε) − √L)² with L = ln 1/δ.

    >>> round(zcdp_rho(1.0, 1e-4), 7)
    0.0257628
    """
    log = _log_inverse(delta)
    return float((epsilon / (np.sqrt(log + epsilon) + np.sqrt(log))) ** 2)


def ding_rho(epsilon: float, delta: float) -> float:
    """ε²/(4 ln 1/δ), used by Ding (diss., Lemma 3) as if it gave (ε, δ)-DP: false for ε > 7.53 at δ = 1e-4."""
    return epsilon**2 / (4 * _log_inverse(delta))


def showkatbakhsh_alpha(epsilon: float, delta: float) -> float:
    """Showkatbakhsh, Karakus, Diggavi (14): Σ Δ_t²/M_t² ≤ ε²/(ε + 2 ln(2/δ)); valid, variance 1.25–5× too large."""
    return float(epsilon**2 / (epsilon + 2 * (_log_inverse(delta) + np.log(2))))


def kov_epsilon(epsilons: ArrayLike, delta: float) -> float:
    """Xiao, Ye, Devadas, footnote 1: Σ ε tanh(ε/2) + √(2 ln(1/δ) Σ ε²), for pure ε's fixed in advance."""
    eps = np.asarray(epsilons, float)
    return float(np.sum(eps * np.tanh(eps / 2)) + np.sqrt(2 * _log_inverse(delta) * np.sum(eps**2)))


def classic_gaussian(epsilon: float, delta: float) -> float:
    """Noise std over sensitivity √(2 ln(1.25/δ))/ε (Dwork, Roth 2014, Thm A.1); proved for ε < 1 only."""
    if epsilon <= 0:
        raise InputError(f"epsilon must be > 0, got {epsilon}")
    return float(np.sqrt(2 * (_log_inverse(delta) + np.log(1.25))) / epsilon)


def qdpsgd_epsilon(sigma: float, count: int, rounds: int, delta: float) -> float:
    """Ding (diss., Thm 11): 8ρ/(m²σ²) per round at order ρ whatever the batch, best order; unsafe for small batches.

    Minimising Tρ·8/(m²σ²) + ln(1/δ)/(ρ − 1) over ρ gives A + 2√(A ln 1/δ) with A = 8T/(m²σ²).
    """
    return zcdp_epsilon(8 * rounds / (count * sigma) ** 2, delta)


def qdpsgd_sigma(epsilon: float, count: int, rounds: int, delta: float) -> float:
    """The σ (noise std over clip norm) that `qdpsgd_epsilon` prints for a budget (Remark 6, best order)."""
    return float(np.sqrt(8 * rounds / zcdp_rho(epsilon, delta)) / count)
