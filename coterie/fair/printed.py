r"""The releases as the dissertation printed them, with what they are proved to cost beside what it claimed.

The printed query of the fair methods is not the covariance penalty: it replaces |Σ(z − z̄)xᵀw| by the linear term
Σ|z − z̄| xᵀw, uses the exact z̄ (which is data) and composes two budgets by a formula that does not hold. The printed
sensitivities are so loose that they cover the loss all the same; `Release.account` holds a bound that is proved on the
unit ball, z̄ included, and `Release.claim` what was printed.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from coterie.errors import InputError
from coterie.fair import polynomial as poly
from coterie.fair.mechanisms import Attribute, Release
from coterie.fair.methods import METHODS
from coterie.fair.noise import Noise, total
from coterie.fair.polynomial import Statistics
from coterie.fair.solve import ridge_for
from coterie.privacy.events import Event, Gaussian, Laplace

__all__ = ["Repair", "extended_gaussian", "release_as_printed"]

Repair = Literal["ridge", "trim"]


def extended_gaussian(epsilon: float, delta: float) -> float:
    """σ/Δ of the printed "extended" Gaussian mechanism (Theorem 19): valid, but larger than the exact curve asks for.

    >>> round(extended_gaussian(1.0, 1e-3), 2)
    3.79
    """
    s = np.log(np.sqrt(2 / np.pi) / delta)
    return float(np.sqrt(2.0) / (2 * epsilon) * (np.sqrt(s) + np.sqrt(s + epsilon)))


def release_as_printed(
    statistics: Statistics,
    method: str,
    *,
    epsilon: float,
    delta: float = 0.0,
    noise: Noise,
    signed: bool = True,
    attribute: Attribute | None = None,
    ratio: float = 1.0,
    repair: Repair = "ridge",
) -> Release:
    """The printed release for a claimed (ε, δ). Group-wise: ε_s = ε_n/ratio with ε = ε_s/d + ε_n(d − 1)/d.

    Proved cost, replace-one on the unit ball, α = 1: fm Δ₁(d)/b and relaxed-fm 1/σ (the exact sensitivities);
    with the fairness term (4√d + d/4)/b, and for Gaussian noise μ = (√(own + 1/16) + 1)/σ_n, own = 4.5 (9 for signed
    features) from the record itself, 1/16 from its monomials and 1 from the shift of z̄ under all others.

    What bounds a noisy objective is not stated: `repair` adds the ridge of `release`, or only trims eigenvalues.
    """
    how = METHODS.get(method)
    if how is None or how.law is None:
        raise InputError(f"no printed release for method {method!r}")
    if not (np.isfinite(epsilon) and epsilon > 0):
        raise InputError(f"epsilon must be > 0 and finite as printed, got {epsilon}")
    if noise.secure:
        raise InputError("as_printed is for study: it has no grid noise, so secure must be False")
    if how.fair and len(statistics.groups) != 2:
        raise InputError(f"{method} as printed knows two protected groups, got {len(statistics.groups)}")
    if not ratio >= 1:
        raise InputError(f"ratio must be >= 1, got {ratio}")
    d = statistics.dim
    linear = statistics.linear
    if how.fair:
        mean = statistics.groups[1] / max(statistics.count, 1)
        linear = linear + mean * statistics.sums[0] + (1 - mean) * statistics.sums[1]
    chosen = np.zeros(d, bool)
    if attribute is not None and how.attribute:
        chosen[list(attribute.indices)] = True
    times = ratio if chosen.any() else 1.0
    normal = epsilon * d / (d - 1 + 1 / times)  # ε_n of the printed composition (Theorems 18, 20)
    if how.law == "laplace":
        size = d**2 / 4 + (3 * d if how.fair else d)  # Lemmas 21, 22
        scale_n, scale_s = size / normal, size / (normal / times)
        cost = 4 * np.sqrt(d) + d / 4 if how.fair else poly.l1_objective(d)
        events: tuple[Event, ...] = (Laplace(cost, 1 / scale_n),)
    else:
        if not 0 < delta < 1:
            raise InputError(f"Gaussian noise needs delta in (0, 1), got {delta}")
        size = float(np.sqrt(d**2 / 16 + (9 * d if how.fair else d)))  # Lemmas 23, 24
        each = 1 - np.sqrt(1 - delta) if how.attribute else delta
        scale_n = size * extended_gaussian(normal, each)
        scale_s = size * extended_gaussian(normal / times, each)
        own = 9.0 if signed else 4.5
        cost = np.sqrt(own + 1 / 16) + 1 if how.fair else poly.L2_OBJECTIVE
        events = (Gaussian(cost, scale_n),)
    upper = np.triu_indices(d, 1)
    touched = np.concatenate([chosen, chosen, chosen[upper[0]] | chosen[upper[1]]])
    scale = np.where(touched, scale_s, scale_n)
    noisy = noise.add(np.concatenate([linear, poly.monomials(statistics.quadratic)]), scale, how.law)
    deviation = scale[d:] * (np.sqrt(2.0) if how.law == "laplace" else 1.0)
    ridge = ridge_for(poly.from_monomials(deviation, d)) if repair == "ridge" else np.zeros(d)
    spent = total(events, how.law, delta)
    return Release(
        method, noisy[:d], poly.from_monomials(noisy[d:], d), ridge, events, spent, claim=epsilon
    )  # fmt: skip
