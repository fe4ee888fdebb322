"""The methods by name: what each does, where it comes from, and what its source got wrong."""

from __future__ import annotations

from dataclasses import dataclass

from coterie.algorithms.base import Erratum
from coterie.fair.noise import Law

__all__ = ["METHODS", "Method"]

_DING = "J. Ding, Towards Plausible Collaborative Machine Learning (PhD dissertation, University of Houston, 2022)"

_L1 = Erratum(
    "Lemma 21", "L1 sensitivity d²/4 + d", "max_θ √d cos θ + (d/4) sin 2θ on the unit ball: 6.008 for 55.25 at d = 13",
    "loose",
)  # fmt: skip
_L2 = Erratum("Lemma 23", "L2 sensitivity √(d²/16 + d)", "exactly 1, whatever d (a label flip)", "loose")
_EXTENDED = Erratum(
    "Theorem 19, proof",
    "threshold r = (2σ²ε − 1)/2 and tail bound σ/(√2 r)",
    "r = σ²ε/Δ − Δ/2 and σ/(√(2π) r): the statement holds for δ ≤ 0.48, the proof as written does not",
    "unproved",
)
_ANALYTIC = Erratum(
    "Theorem 19", "σ/Δ = 366, 36.7, 3.79, 0.472 at ε = 0.01, 0.1, 1, 10, δ = 1e-3",
    "93.9, 17.4, 2.58, 0.406 by the exact Gaussian curve", "loose",
)  # fmt: skip
_OBJECTIVE = Erratum(
    "equations (101) to (102)",
    "|Σ(z − z̄)xᵀw| becomes the linear term Σ|z − z̄|xᵀw",
    "a different function and no penalty: it lowers every score, the minority group's most; the true penalty has a "
    "closed form",
    "utility",
)
_ZBAR = Erratum(
    "Lemmas 22 and 24",
    "sensitivities d²/4 + 3d and √(d²/16 + 9d), z̄ held fixed",
    "z̄ is data: replacing one record moves every linear term, by up to √d (L1) or 1 (L2) in total; the printed numbers "
    "suffice only by their looseness, tight ones without z̄ do not",
    "unproved",
)
_COMPOSE_L1 = Erratum(
    "Theorem 18",
    "ε = ε_s/d + ε_n(d − 1)/d",
    "sup over records of Σ_g ‖Δλ_g‖₁/b_g: with b_s ≥ b_n it is Δ₁/b_n. With tight sensitivities and ε_s = 10 ε_n the "
    "printed formula is 1.65 times too small",
    "privacy",
)
_COMPOSE_L2 = Erratum(
    "Theorem 20",
    "the same formula, from ‖B'‖ ≤ Δ₂/d",
    "μ² = sup Σ_g ‖Δλ_g‖²/σ_g²; ‖B'‖ ≤ Δ₂/d fails at x = e_s. With tight sensitivities and ε_s = 10 ε_n up to 4.6 "
    "times too small; δ = 1 − (1 − δ_s)(1 − δ_n) is not needed",
    "privacy",
)
_CHOICE = Erratum(
    "section 6.2.1", "noise on a randomly chosen attribute x_s reduces discrimination",
    "it only makes one attribute noisier: no theorem, and in the printed Table 1 (Adult) PDFC has less risk difference "
    "than PFLR* in 1 of 4 cells, ADFC in none", "unproved",
)  # fmt: skip
_TABLE = Erratum(
    "Table 1", "mean ± standard deviation of RD ≥ 0 over 10 runs",
    "five cells have a deviation above √10 times the mean, which no 10 values ≥ 0 can have", "typo",
)  # fmt: skip
_SHIFT = Erratum(
    "PFLR* (as described)", "Laplace noise whose mean is shifted by the fairness coefficients",
    "a data-dependent mean is a query: its sensitivity must be paid, and a shift adds a signed term, not a penalty",
    "unproved",
)  # fmt: skip


@dataclass(frozen=True)
class Method:
    """One way to train: `law` of its noise (None: not private), whether it penalises covariance, whether it can put
    more noise on one attribute."""

    slug: str
    summary: str
    reference: str
    law: Law | None = None
    fair: bool = False
    attribute: bool = False
    errata: tuple[Erratum, ...] = ()

    @property
    def private(self) -> bool:
        """Whether it adds noise."""
        return self.law is not None


_ALL = (
    Method("lr", "Logistic regression, neither private nor fair: the reference.", f"{_DING}, section 6.3"),
    Method(
        "fm", "Functional mechanism: Laplace noise on the coefficients of the quadratic objective; pure ε.",
        f"J. Zhang, Z. Zhang, X. Xiao, Y. Yang, M. Winslett, Functional Mechanism (VLDB 2012); {_DING}, Lemma 21",
        "laplace", errata=(_L1,),
    ),
    Method(
        "relaxed-fm", "Functional mechanism with Gaussian noise, √8 less of it on the quadratic part; (ε, δ).",
        f"{_DING}, Algorithm 7", "gaussian", errata=(_L2, _EXTENDED, _ANALYTIC),
    ),
    Method(
        "pflr-star", "Functional mechanism with a private covariance penalty, Laplace noise; pure ε.",
        "D. Xu, S. Yuan, X. Wu, Achieving Differential Privacy and Fairness in Logistic Regression (2019), as "
        f"described in {_DING}",
        "laplace", fair=True, errata=(_SHIFT, _OBJECTIVE, _ZBAR),
    ),
    Method(
        "pdfc", "Private and fair: covariance penalty, Laplace noise, more of it on a chosen attribute; pure ε.",
        f"{_DING}, Algorithm 6", "laplace", fair=True, attribute=True,
        errata=(_COMPOSE_L1, _OBJECTIVE, _ZBAR, _CHOICE, _TABLE),
    ),
    Method(
        "adfc", "Private and fair: covariance penalty, Gaussian noise, more of it on a chosen attribute; (ε, δ).",
        f"{_DING}, Algorithm 8", "gaussian", fair=True, attribute=True,
        errata=(_COMPOSE_L2, _OBJECTIVE, _ZBAR, _L2, _EXTENDED, _ANALYTIC, _CHOICE, _TABLE),
    ),
)  # fmt: skip

METHODS: dict[str, Method] = {m.slug: m for m in _ALL}
"""Every method, by slug."""
