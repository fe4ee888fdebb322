r"""Xiao, Ye and Devadas: Theorem 3.3 (rate and floor of LDP-ADMM), Theorems 4.1 and 4.2 ("independent of d").

**Theorem 3.3.** E‖u^K − u*‖²_G ≤ a^K ‖u⁰ − u*‖²_G + R^K, where (58) gives R^K = Σ_i w_i Σ_k a^k E‖Δ_i‖²; with Laplace
noise of scale B K d/(ε D), E‖Δ‖² = 2d (B K d/(εD))². `floor` is that. The order d³NB²/ε² hides K² and 1/(1 − a): at a
fixed ε it falls and then rises as K², so a number of rounds belongs to it (`best_rounds`). a is proved only for ρ⁰
near m/(N²σ²) and ζ < ρ⁰/5, where 1 − a is of order N⁻³; no experiment of the paper lies there (docs/errata.md). In
B₂, the L2 sensitivity that the product charges, d³ B_∞² is d² B₂²: the same where a record moves all coordinates
alike.

For f_i = ½‖x − v_i‖² on a complete graph the mean of all agents follows x̄ ← x̄ − (x̄ − v̄)/D + (mean of noises) + (what
random weights move, which has mean 0 given the past, as Σ (x_i − x̄) = 0), so

    E‖x̄ − v̄‖² ≥ q^{2K} ‖v̄‖² + (E‖Δ‖²/N) (1 − q^{2K})/(1 − q²),  q = 1 − 1/D          (`least_error`).

**Theorems 4.1, 4.2.** "Utility loss independent of d" for m-strongly convex f_i at noise σ a coordinate. Two facts:

- Releasing x̄ with noise n̄ of covariance (σ²/N) I costs at least E f(x + n̄) − f(x) ≥ m d σ²/(2N) (`least_loss`).
  *Proof.* f(x + n) ≥ f(x) + ⟨∇f(x), n⟩ + m/2 ‖n‖², and n̄ has mean 0 and is independent of x. ∎ With a fixed m the
  loss grows linearly in d, whatever the algorithm that ends in such a release. Nor does Thm 4.2 escape: ‖∇f‖₁ ≤ C₁
  and m > 0 cannot both hold on all of R^d, where Gaussian noise goes.
- A generalised linear f_i with ‖z‖ ≤ C₂ has trace ∇²f_i ≤ M C₂², so m ≤ M C₂²/d (`most_convexity`): in Thm 4.1 the
  factor m^{−3/2} hides d^{3/2}. With a ridge m may be constant, and then f_i is no such function: the first fact
  applies to the ridge's part.

What is true: the *loss's own part* does not depend on d (`part_of_data`), because noise across the data does nothing
to scores.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

__all__ = [
    "best_rounds",
    "floor",
    "least_error",
    "least_loss",
    "most_convexity",
    "noise_square",
    "part_of_data",
    "rate",
    "whole_excess",
]


def noise_square(dim: int, rounds: int, bound: float, epsilon: float, inverse_step: float) -> float:
    """E‖Δ‖² of one release: Laplace noise of scale B K d/(εD) in each coordinate."""
    return 2 * dim * (bound * rounds * dim / (epsilon * inverse_step)) ** 2


def floor(a: float, weights: ArrayLike, each: float, rounds: int) -> float:
    """R^K of (58): Σ_i w_i Σ_{k=1}^K a^k E‖Δ‖²."""
    return float(np.sum(weights) * each * a * (1 - a**rounds) / (1 - a))


def rate(
    a: float, initial: float, weights: ArrayLike, rounds: int, *, dim: int, bound: float, epsilon: float,
    inverse_step: float,
) -> float:  # fmt: skip
    """Right side of (14) in expectation, at a pure budget ε of the whole run."""
    return a**rounds * initial + floor(a, weights, noise_square(dim, rounds, bound, epsilon, inverse_step), rounds)


def best_rounds(
    a: float, initial: float, weights: ArrayLike, *, dim: int, bound: float, epsilon: float, inverse_step: float,
    most: int = 10_000,
) -> int:  # fmt: skip
    """The K at which `rate` is least: beyond it more rounds are worse, as K².

    >>> best_rounds(0.9, 1.0, [1.0], dim=5, bound=0.01, epsilon=100.0, inverse_step=1.0)
    39
    """

    def value(rounds: int) -> float:
        return rate(a, initial, weights, rounds, dim=dim, bound=bound, epsilon=epsilon, inverse_step=inverse_step)

    return min(range(1, most + 1), key=value)


def least_error(
    start: float, each: float, agents: int, rounds: int, inverse_step: float, curvature: float = 1.0
) -> float:
    """E‖x̄ − v̄‖² of LDP-ADMM on quadratics, but for what random weights add; `start` ‖v̄‖², `each` E‖Δ‖²."""
    q = 1 - curvature / inverse_step
    return q ** (2 * rounds) * start + each / agents * (1 - q ** (2 * rounds)) / (1 - q**2)


def least_loss(convexity: float, dim: int, sigma: float, agents: int) -> float:
    """m d σ²/(2N): what noise on the released mean costs every m-strongly convex objective at least."""
    return convexity * dim * sigma**2 / (2 * agents)


def most_convexity(smoothness: float, length: float, dim: int) -> float:
    """M C₂²/d: no generalised linear function of records no longer than C₂ is more strongly convex in R^d."""
    return smoothness * length**2 / dim


def part_of_data(curvatures: ArrayLike, ridge: float, step: float, sigma: float, agents: int) -> float:
    """Mean excess of the loss without its ridge after many rounds of `gauss-avg-gd`, near the optimum.

    `curvatures` are those of the loss, one for each direction that data have: each adds h/2 times the variance
    (σ²/N)/(1 − (1 − η(h + ridge))²) there. How many directions have none does not matter.
    """
    h = np.asarray(curvatures, float)
    spread = sigma**2 / agents / (1 - (1 - step * (h + ridge)) ** 2)
    return float(np.sum(h / 2 * spread))


def whole_excess(curvatures: ArrayLike, dim: int, ridge: float, step: float, sigma: float, agents: int) -> float:
    """The same with the ridge, which counts in all `dim` directions: grows linearly in d."""
    h = np.concatenate([np.asarray(curvatures, float), np.zeros(dim - np.size(curvatures))]) + ridge
    return float(np.sum(h / 2 * sigma**2 / agents / (1 - (1 - step * h) ** 2)))
