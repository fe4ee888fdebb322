r"""Zhang and Zhu, Theorems 3 to 6: how many records B a node needs for a population loss within `accuracy` of a
reference.

Z(f) = (C/B) Σ L(y fᵀx) + ρ/2 ‖f‖²,  Ĉ(f) = C E L(y fᵀx),  |L'| ≤ 1, L'' ≤ c₁, ‖x‖ ≤ 1,  f⁰ any reference classifier.
    Thm 3   f minimises Z
    Thm 4   f minimises Z + (C/B) εᵀf,  ε of density ∝ exp(−ζ‖ε‖)                    (dual variable perturbation)
    Thm 5   f minimises Z − η Σ_i (ε_p − ε_i)ᵀf over N neighbours, same law           (primal variable perturbation)
    Thm 6   V = f of Thm 5 plus a fresh ε

**What is wrong.** Multiply C, ρ, η and `accuracy` by k: the same classifiers in other units. The size of Thm 3 falls by
k, so with k large enough it is below any number that is needed, whatever its constant: C must be C² beside
`accuracy`². In Thm 4 the first and third term fall alike (Lemma 11 loses C), and the second, which does not, knows no
d: noise of length d/ζ drowns the loss below B ~ d/ζ. In Thm 5 and 6 the second term is that of Thm 3, and the others
vanish with η or do not know it. The statements do not say ρ; the proofs take ρ = accuracy/‖f⁰‖² (Thm 4 also 6
accuracy/‖f⁰‖², with which its last line fails). "α_p ≤ 1" is used, not stated. Cor. 4.1 cites Thm 3 for Thm 4, and
Prop. 7 claims "probability ≤ 1 − 2δ".

**What is proved here**, in expectation over records and noise, with ρ = accuracy/‖f⁰‖²:

    E Ĉ(f) − Ĉ(f⁰) ≤ ρ/2 ‖f⁰‖² + 2C²/(ρB) + E‖g‖²/(2ρ)  (+ C c₁ E‖ε‖²/2 for V),

g the noise's gradient. *Proof.* For fixed noise, replacing a record moves the minimiser by at most 2C/(ρB), and Ĉ's
loss is C-Lipschitz: on average Ĉ(f) exceeds the empirical loss by at most 2C²/(ρB). Z(f) − min Z ≤ ‖∇Z(f)‖²/(2ρ) =
‖g‖²/(2ρ), and min Z ≤ Z(f⁰), whose mean is Ĉ(f⁰) + ρ/2 ‖f⁰‖². V's fresh noise has mean 0: the curvature bound gives
the rest. ∎ E‖ε‖² = d(d + 1)/ζ²; of N ε_p − Σ ε_i it is N(N + 1) times that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Setting", "excess", "needed", "printed"]


@dataclass(frozen=True)
class Setting:
    """What the sizes depend on."""

    accuracy: float  # α_acc
    norm: float  # ‖f⁰‖
    dim: int
    alpha: float = 1.0  # α_p, of a round
    delta: float = 0.05
    weight: float = 1.0  # C
    bend: float = 0.25  # c₁ = c₄
    penalty: float = 0.1  # η
    neighbours: int = 2  # N

    @property
    def ridge(self) -> float:
        """ρ, as the proofs take it."""
        return self.accuracy / self.norm**2

    def in_units(self, k: float) -> Setting:
        """The same problem with losses counted in units of 1/k."""
        return Setting(self.accuracy * k, self.norm, self.dim, self.alpha, self.delta, self.weight * k, self.bend,
                       self.penalty * k, self.neighbours)  # fmt: skip

    def rate(self, theorem: int, count: float) -> float:
        """ζ: α/2 in the objective (the determinants' part left out), ρBα/(2C) on the point."""
        return self.alpha / 2 if theorem == 4 else self.ridge * count * self.alpha / (2 * self.weight)


def printed(theorem: int, s: Setting) -> float:
    """B of Theorem 3, 4, 5 or 6 with constant 1."""
    many = s.dim * math.log(s.dim / s.delta)
    plain = s.weight * s.norm**2 * math.log(1 / s.delta) / s.accuracy**2
    if theorem == 3:
        return plain
    if theorem == 4:
        inside = s.norm * many / (s.accuracy * s.alpha)
        return max(inside, s.weight * s.bend * s.norm**2 / (s.accuracy * s.alpha), plain)
    pulled = s.weight * s.norm**3 * s.penalty * s.neighbours * many / (s.accuracy**2 * s.alpha)
    if theorem == 5:
        return max(pulled, plain)
    outside = 4 * s.weight * s.norm * s.dim * math.log(s.dim / s.delta) ** 2 / (s.accuracy * s.alpha)
    mixed = 4 * s.norm**3 * s.penalty * s.neighbours * many / (s.accuracy**2 * s.alpha)
    both = 4 * s.weight**1.5 * s.norm**2 * many / (s.accuracy**1.5 * s.alpha)
    return max(pulled, plain, outside, mixed, both)


def excess(theorem: int, s: Setting, count: float) -> float:
    """The proved bound on E Ĉ(f) − Ĉ(f⁰) with `count` records."""
    spread = s.dim * (s.dim + 1) / s.rate(theorem, count) ** 2 if theorem > 3 else 0.0  # E‖ε‖²
    pull = {3: 0.0, 4: (s.weight / count) ** 2}.get(theorem, s.penalty**2 * s.neighbours * (s.neighbours + 1))
    fresh = s.weight * s.bend * spread / 2 if theorem == 6 else 0.0
    return s.ridge / 2 * s.norm**2 + 2 * s.weight**2 / (s.ridge * count) + pull * spread / (2 * s.ridge) + fresh


def needed(theorem: int, s: Setting) -> float:
    """The least B with which `excess` is at most the accuracy: a/B + b/B² ≤ accuracy/2, solved.

    >>> round(needed(3, Setting(accuracy=0.1, norm=2.0, dim=5)))
    1600
    """
    once = 2 * s.weight**2 / s.ridge
    twice = excess(theorem, s, 1.0) - s.accuracy / 2 - once  # all noise falls as 1/B²
    return (once + math.sqrt(once**2 + 2 * twice * s.accuracy)) / s.accuracy
