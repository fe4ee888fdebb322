r"""Dissertation, Theorems 12, 13 (Q-DPSGD-1) and 16, 17 (Q-DPSGD-2): rates in the number of rounds T.

    x_i ← (1 − h + h w_ii) x_i + h Σ_j w_ij z_j − α h (∇f_i(x_i) + ζ_i),   z_j = Q(x_j)      Q-DPSGD-1
    the same without ζ_i, and z_j = Q(x_j) + ζ_j                                              Q-DPSGD-2
Strongly convex (12, 16): h = T^{−3δ̃/2}, α = 2T^{−δ̃/2} (16 prints T^{−δ̃/2}). Other (13, 17): h = T^{−1/2}, α =
T^{−1/6}.

**Exact for quadratics.** f_i = ½‖x − v_i‖², W symmetric with the same weight w on itself everywhere, rounding and
noise of variances r (beside a neighbour's z) and g (beside a gradient) in each coordinate. In W's eigenbasis, λ_k:
c_k = 1 − h(1 − λ_k + α), the limit is α v_k/(1 − λ_k + α), and the variance s_k²(1 − c_k^{2t})/(1 − c_k²) with s_k² =
h²(λ_k − w)² r + α²h² g. `Quadratic` sums this: what every assumption of the theorems allows, so what no bound may lie
below.

**What holds.** Thm 12: T^{−δ̃} from rounding and T^{−2δ̃} from the noise of a *fixed* σ are right. At a fixed budget
σ² grows with T, and the second term as T^{1−2δ̃}: more rounds are worse.

**What is wrong.**
- Thm 13, 17, first bound: without noise, rounding and spread of the data the right side is 0; descent from 0 has
  (1/T) Σ ‖∇f‖² → ‖v̄‖² T^{−1/3}/2. The term f(0) − f* is missing.
- Thm 13, 17, second bound: with equal v_i (γ = 0) and σ = 0 it says disagreement ≤ O(T^{−2/3}). Rounding alone keeps
  it at h r (λ − w)²/(2(1 − λ)) in every mode: T^{−1/2}. False for every constant, from some T on.
- Thm 16, 17: pK²σ²/η² must be pK²σ² (Cor. 2 is wrong): for a coarse grid, η > 1, the printed term is too small.
- Remark 5: T^{−½} "with δ̃ close to ½": there (1 − αh)^T ≈ e^{−2T^{1−2δ̃}} does not vanish (`first_rounds`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Quadratic", "first_rounds", "printed_stationary", "printed_strongly_convex", "steps"]

Floats = NDArray[np.float64]


def steps(theorem: int, rounds: float, exponent: float = 0.4) -> tuple[float, float]:
    """(α, h) of the theorem; `exponent` is δ̃ of the strongly convex ones."""
    if theorem in (12, 16):
        return (2.0 if theorem == 12 else 1.0) * rounds ** (-exponent / 2), rounds ** (-1.5 * exponent)
    return rounds ** (-1 / 6), rounds**-0.5


def printed_strongly_convex(
    theorem: int, rounds: float, *, exponent: float, pull: float, rounding: float, noise: float, spread: float = 0.0,
    grid: float = 1.0, convexity: float = 1.0, smoothness: float = 1.0, gap: float = 1.0,
) -> float:  # fmt: skip
    """Right side of Theorem 12 or 16 with constants 1: a bound on (1/n) Σ E‖x_i − x*‖².

    `pull` E² = 2L Σ (f_i(0) − f_i*), `rounding` σ̃², `noise` pK²σ² and `spread` γ²/b as sums over coordinates, `grid` η.
    """
    first = pull * (smoothness / convexity) ** 2 / gap**2 + rounding / convexity
    second = spread / convexity
    if theorem == 12:
        second += noise / convexity
    else:
        first += noise / grid**2 / convexity
    return first * rounds**-exponent + second * rounds ** (-2 * exponent)


def printed_stationary(
    theorem: int, rounds: float, *, agents: int, rounding: float, noise: float, spread: float = 0.0, grid: float = 1.0,
    smoothness: float = 1.0, gap: float = 1.0,
) -> tuple[float, float]:  # fmt: skip
    """Right sides of Theorem 13 or 17 with constants 1: mean ‖∇f(x̄)‖², and mean disagreement."""
    sent = rounding + (noise / grid**2 if theorem == 17 else 0.0)
    own = noise if theorem == 13 else 0.0
    slow, fast = rounds ** (-1 / 3), rounds ** (-2 / 3)
    first = (smoothness * sent / agents + smoothness**2 * (spread + own) / gap**2) * slow
    first += smoothness * (spread + own) / agents * fast
    second = spread / gap**2 * slow
    second += (smoothness**2 * (spread + own) / gap**4 + smoothness * sent / (gap**2 * agents)) * fast
    return first, second


def first_rounds(exponent: float, share: float = 0.01) -> float:
    """log₁₀ of the T from which the start, e^{−4T^{1−2δ̃}} of ‖x*‖², stays below `share` · T^{−δ̃}; 0: always.

    Before it Theorem 12's rate is not seen: its "large enough T" is this at least.

    >>> [round(first_rounds(e), 1) for e in (0.4, 0.45, 0.48, 0.49, 0.495)]
    [0.5, 2.6, 21.1, 64.2, 169.4]
    """
    at = np.linspace(0.0, 10_000.0, 1_000_001)  # ln T
    with np.errstate(over="ignore"):
        seen = 4 * np.exp(at * (1 - 2 * exponent)) < -np.log(share) + exponent * at
    return float(at[seen][-1] / np.log(10)) if np.any(seen) else 0.0


@dataclass(frozen=True)
class Quadratic:
    """f_i = ½‖x − v_i‖² on a graph: what the recursion really does, in expectation."""

    weights: Floats  # W
    centres: Floats  # v_i, one row each
    averaging: float  # h
    step: float  # α
    sent: float = 0.0  # r
    own: float = 0.0  # g

    def _modes(self) -> tuple[NDArray[np.bool_], Floats, Floats, Floats, Floats]:
        values, vectors = np.linalg.eigh(self.weights)
        along = np.sum((vectors.T @ self.centres) ** 2, axis=1)  # ‖v_k‖²
        width = 1 - values + self.step
        shrink = 1 - self.averaging * width
        jump = self.averaging**2 * ((values - self.weights[0, 0]) ** 2 * self.sent + self.step**2 * self.own)
        common = np.isclose(values, 1.0)
        assert common.sum() == 1
        assert np.allclose(np.diag(self.weights), self.weights[0, 0])
        return common, along, width, shrink, jump * self.centres.shape[1]

    def _last(self, rounds: int) -> tuple[NDArray[np.bool_], Floats]:
        """Which mode is the mean's, and what each adds to (1/n) Σ_i E‖x_i − x*‖² after so many rounds from 0."""
        common, along, width, shrink, jump = self._modes()
        gone = shrink**rounds
        off = np.where(common, gone**2, (self.step / width * (1 - gone)) ** 2)
        return common, (off * along + jump * (1 - gone**2) / (1 - shrink**2)) / len(self.weights)

    def error(self, rounds: int) -> float:
        """(1/n) Σ_i E‖x_i − x*‖² after so many rounds from 0."""
        return float(np.sum(self._last(rounds)[1]))

    def apart(self, rounds: int) -> float:
        """(1/n) Σ_i E‖x_i − x̄‖² after so many rounds."""
        common, each = self._last(rounds)
        return float(np.sum(each[~common]))

    def stationary(self, rounds: int) -> tuple[float, float]:
        """Over rounds 0 to T − 1 the means of E‖∇f(x̄)‖², and of (1/n) Σ_i E‖x̄ − x_i‖²."""
        common, along, width, shrink, jump = self._modes()
        once = (1 - shrink**rounds) / (1 - shrink) / rounds  # means over t of c^t and of c^{2t}
        twice = (1 - shrink ** (2.0 * rounds)) / (1 - shrink**2) / rounds
        spread = jump / (1 - shrink**2) * (1 - twice)
        off = np.where(common, twice, (self.step / width) ** 2 * (1 - 2 * once + twice))
        each = (off * along + spread) / len(self.weights)
        return float(np.sum(each[common])), float(np.sum(each[~common]))
