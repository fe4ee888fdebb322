r"""Private releases of the objective: one stage for the group shares, one for the coefficients, one for the covariance.

    stage 0   group counts                     -> shares p̂, clipped to [0.01, 0.99]
    stage 1   b and A                          -> b̂, Â (distinct monomials once, then made symmetric)
    stage 2   V = Σ u_z xᵀ given p̂             -> V̂, whose sensitivity depends on p̂ only, which is public by then

`fm`, `pdfc`, `pflr-star` use Laplace noise and are pure ε-DP, ε = Σ ε_i; `relaxed-fm` and `adfc` use Gaussian noise,
μ² = Σ μ_i² and (ε, δ) by the exact Gaussian curve. `shares` divides ε (Laplace) or μ² (Gaussian) over the stages; a
stage with share 0 is left out. In stage 1 Gaussian noise on svec A is √8 smaller than on b, which costs nothing.

Group-wise noise: the noise on every monomial that contains a feature of one chosen attribute is `ratio` ≥ 1 times as
large. For a record this changes nothing (the worst one has zeros there); neighbours that differ only in that attribute
get the stronger guarantee `Release.attribute`, reported beside. ratio < 1 would break the record's guarantee.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coterie.errors import InputError
from coterie.fair import polynomial as poly
from coterie.fair.methods import METHODS, Method
from coterie.fair.noise import Charge, Law, Noise, laplace_multiplier, total
from coterie.fair.polynomial import Numbers, Statistics
from coterie.fair.solve import minimise, ridge_for
from coterie.privacy.accountants import Account, account
from coterie.privacy.calibration import calibrate
from coterie.privacy.events import Event, NonPrivate
from coterie.problems.records import namespace

__all__ = ["Attribute", "Levels", "Release", "levels_for", "multiplier", "noisy_coefficients", "noisy_covariance",
           "noisy_shares", "private_method", "release", "scale_of", "shares_of", "sizes_of", "values_of"]  # fmt: skip

Floats = NDArray[np.float64]
FAIR_SHARES = (0.05, 0.65, 0.30)
PLAIN_SHARES = (0.0, 1.0, 0.0)
CLIP = 0.01  # shares of groups are kept in [CLIP, 1 − CLIP]


@dataclass(frozen=True)
class Attribute:
    """The features that carry one attribute, and a public bound on their norm within a record."""

    indices: tuple[int, ...]
    radius: float = 1.0


@dataclass(frozen=True, eq=False)
class Release:
    """Everything that left the party, what it cost, and what it is good for."""

    method: str
    linear: Floats
    quadratic: Floats
    ridge: Floats
    events: tuple[Event, ...]
    account: Account
    penalties: Floats | None = None  # V̂, one row for each penalty
    share: Floats | None = None  # p̂ of the protected groups
    attribute: Account | None = None  # neighbours that differ in the chosen attribute only
    claim: float | None = None  # ε that the paper would print (as_printed only)

    def weights(self, penalty: float = 1.0) -> Floats:
        """The minimiser of the repaired objective with covariance penalty α (∞: released covariance exactly 0)."""
        return minimise(self.quadratic + np.diag(self.ridge), self.linear, self.penalties, penalty)


@dataclass(frozen=True)
class Levels:
    """Noise of the three stages as multiples of their sensitivities (0: no noise; None: not released)."""

    law: Law
    stages: tuple[float | None, float | None, float | None]
    noise: float  # one number for all: stage i has `multiplier(noise, shares[i], law)`
    events: tuple[Event, ...]
    account: Account


def private_method(name: str, shares: Sequence[float] | None = None) -> tuple[Method, Law, Sequence[float]]:
    """A method that adds noise, its law, and how the budget is divided over the stages unless `shares` says so."""
    how = METHODS.get(name)
    if how is None or how.law is None:
        private = ", ".join(slug for slug, m in METHODS.items() if m.law is not None)
        raise InputError(f"no private release for method {name!r}: expected one of {private}")
    return how, how.law, shares if shares is not None else FAIR_SHARES if how.fair else PLAIN_SHARES


def levels_for(
    law: Law, d: int, groups: int, *, epsilon: float, delta: float, shares: Sequence[float], noise: Noise
) -> Levels:
    """Noise levels that spend exactly (ε, δ) (Laplace: pure ε); ε = ∞ means no noise, and no guarantee."""
    shares = tuple(float(s) for s in shares)
    if len(shares) != 3 or min(shares) < 0 or not np.isclose(sum(shares), 1.0):
        raise InputError(f"shares must be three numbers >= 0 that sum to 1, got {list(shares)}")
    if not epsilon > 0:
        raise InputError(f"epsilon must be > 0, got {epsilon}")
    used = [i for i in range(3) if shares[i] > 0]
    if np.isinf(epsilon):
        events: tuple[Event, ...] = (NonPrivate(),)
        silent = tuple(0.0 if s > 0 else None for s in shares)
        return Levels(law, silent, 0.0, events, account(events, delta, fast=True))  # type: ignore[arg-type]
    sizes = sizes_of(d, groups)

    def costs(z: float) -> list[Event]:
        return [noise.event(multiplier(z, shares[i], law), sizes[i], law) for i in used]

    if law == "laplace":
        z = laplace_multiplier(epsilon, [sizes[i] for i in used], noise)
    elif 0 < delta < 1:
        z = calibrate(costs, epsilon, delta, upper=1e9)
    else:
        raise InputError(f"Gaussian noise needs delta in (0, 1), got {delta}")
    stages = tuple(multiplier(z, s, law) if s > 0 else None for s in shares)
    return Levels(law, stages, z, tuple(costs(z)), total(costs(z), law, delta))  # type: ignore[arg-type]


def multiplier(z: Numbers, share: Numbers, law: Law) -> Numbers:
    """Noise of a stage with this share of the budget, over its sensitivity."""
    return z / share**0.5 if law == "gaussian" else z / share


def sizes_of(d: int, groups: int) -> tuple[int, int, int]:
    """How many numbers each stage releases."""
    penalties = 1 if groups == 2 else groups
    return penalties, d + d * (d + 1) // 2, penalties * d


def release(
    statistics: Statistics,
    method: str,
    *,
    epsilon: float,
    delta: float = 0.0,
    noise: Noise,
    signed: bool = True,
    shares: Sequence[float] | None = None,
    attribute: Attribute | None = None,
    ratio: float = 1.0,
    charge: Charge | None = None,
) -> Release:
    """Release the objective of one of the private methods, corrected; see `coterie.fair.printed` for what was printed.

    `signed`: whether features may be negative (public). `attribute` and `ratio`: group-wise noise (`pdfc`, `adfc`).
    `charge` hears the events before anything is released, and may refuse.
    """
    how, law, split = private_method(method, shares)
    if attribute is not None and not how.attribute:
        raise InputError(f"method {method!r} has no group-wise noise: use pdfc or adfc")
    groups = len(statistics.groups)
    levels = levels_for(law, statistics.dim, groups, epsilon=epsilon, delta=delta, shares=split, noise=noise)
    if charge is not None:
        charge(levels.events)
    share = noisy_shares(statistics, levels, noise)
    linear, quadratic, ridge = noisy_coefficients(statistics, levels, noise, attribute, ratio)
    penalties = None if share is None else noisy_covariance(statistics, share, levels, noise, signed)
    inner = None
    if attribute is not None and np.isfinite(epsilon):
        inner = _attribute_account(attribute, ratio, statistics.dim, share, levels, noise, signed, delta)
    return Release(
        method, linear, quadratic, ridge, levels.events, levels.account, penalties, share, inner
    )  # fmt: skip


def values_of(stage: int, statistics: Statistics, law: Law, share: Numbers = None) -> Numbers:
    """The numbers that a stage hides: counts, (b, A) as one vector, or V for the released shares of the groups."""
    if stage == 0:  # with two groups and a public total, one count is enough
        return statistics.groups[1:] if len(statistics.groups) == 2 else statistics.groups
    if stage == 2:
        return poly.covariance(statistics, poly.codes_of(share))
    flat = poly.svec if law == "gaussian" else poly.monomials
    return namespace(statistics.linear).concatenate([statistics.linear, flat(statistics.quadratic)])


def scale_of(
    stage: int, level: Numbers, law: Law, d: int, groups: int, share: Numbers = None, signed: bool = True
) -> Numbers:
    """The scale of a stage's noise at a level: one number, or one for each of the objective's."""
    if stage == 0:
        return level * poly.count_sensitivity(groups, 2 if law == "gaussian" else 1)
    return level * (covariance_sensitivity(poly.codes_of(share), d, law, signed) if stage == 2 else whitened(d, law))


def whitened(d: int, law: Law, attribute: Attribute | None = None, ratio: float = 1.0) -> Floats:
    """The scale of the noise on each number of (b, A) at level 1; `ratio` times that on what touches the attribute."""
    chosen = np.zeros(d, bool)
    if attribute is not None:
        if not ratio >= 1:
            raise InputError(f"ratio must be >= 1 (less noise would break the record's guarantee), got {ratio}")
        if not attribute.indices or min(attribute.indices) < 0 or max(attribute.indices) >= d:
            raise InputError(f"attribute indices must lie in 0 … {d - 1}, got {list(attribute.indices)}")
        chosen[list(attribute.indices)] = True
    upper = np.triu_indices(d, 1)
    pairs = np.concatenate([chosen, chosen[upper[0]] | chosen[upper[1]]])
    gain = poly.QUADRATIC_GAIN if law == "gaussian" else 1.0
    base = poly.L2_OBJECTIVE if law == "gaussian" else poly.l1_objective(d)
    return base * np.concatenate([np.where(chosen, ratio, 1.0), np.where(pairs, ratio, 1.0) / gain])


def shares_of(counts: Numbers, total: Numbers) -> Numbers:
    """Shares from noisy counts, clipped to [CLIP, 1 − CLIP] and summing to 1."""
    p = (counts / total).clip(CLIP, 1 - CLIP)
    return namespace(p).concatenate([1 - p, p]) if len(p) == 1 else p / p.sum()


def noisy_shares(statistics: Statistics, levels: Levels, noise: Noise) -> Floats | None:
    """Stage 0: shares of the protected groups; None where the stage is left out."""
    if levels.stages[0] is None:
        return None
    scale = scale_of(0, levels.stages[0], levels.law, statistics.dim, len(statistics.groups))
    counts = noise.add(values_of(0, statistics, levels.law), np.array(scale), levels.law)
    return shares_of(counts, statistics.count)


def noisy_coefficients(
    statistics: Statistics, levels: Levels, noise: Noise, attribute: Attribute | None = None, ratio: float = 1.0
) -> tuple[Floats, Floats, Floats]:
    """Stage 1: b̂, Â, and the public ridge that goes with their noise."""
    level, d = levels.stages[1], statistics.dim
    if level is None:
        raise InputError("the objective needs a share of the budget: shares[1] is 0")
    scale = level * whitened(d, levels.law, attribute, ratio)
    noisy = noise.add(values_of(1, statistics, levels.law), scale, levels.law)
    return noisy[:d], matrix_of(noisy[d:], levels.law, d), ridge_for(spread_of(scale, levels.law, d))


def matrix_of(flat: Numbers, law: Law, d: int) -> Numbers:
    """The symmetric matrix whose flat form is noised: svec for Gaussian noise, distinct monomials for Laplace."""
    return poly.from_svec(flat, d) if law == "gaussian" else poly.from_monomials(flat, d)


def spread_of(scale: Floats, law: Law, d: int) -> Floats:
    """Standard deviation of the noise on every entry of A, from the scales of the flat form."""
    return matrix_of(scale[d:] * (1.0 if law == "gaussian" else np.sqrt(2.0)), law, d)


def noisy_covariance(
    statistics: Statistics, share: Floats, levels: Levels, noise: Noise, signed: bool
) -> Floats | None:
    """Stage 2: V̂ for the released shares."""
    if levels.stages[2] is None:
        return None
    scale = scale_of(2, levels.stages[2], levels.law, statistics.dim, len(share), share, signed)
    return noise.add(values_of(2, statistics, levels.law, share), np.array(scale), levels.law)


def covariance_sensitivity(codes: Numbers, d: int, law: Law, signed: bool) -> Numbers:
    """The sensitivity of V that fits the law of the noise."""
    return poly.l2_covariance(codes, signed) if law == "gaussian" else poly.l1_covariance(codes, d, signed)


def _attribute_account(
    attribute: Attribute, ratio: float, d: int, share: Floats | None, levels: Levels, noise: Noise, signed: bool,
    delta: float,
) -> Account:  # fmt: skip
    """The cost for neighbours whose records differ only in the features of the attribute (same label and group)."""
    size = len(attribute.indices)
    gaussian = levels.law == "gaussian"
    if gaussian:
        move, gap = poly.attribute_l2(attribute.radius, signed)
        move /= poly.L2_OBJECTIVE
    else:
        move, gap = poly.attribute_l1(attribute.radius, size, d, signed)
        move /= poly.l1_objective(d)
    events = []
    if levels.stages[1] is not None:
        touched = size + size * (size + 1) // 2 + size * (d - size)
        events.append(noise.event(levels.stages[1], touched, levels.law, move / ratio))
    if levels.stages[2] is not None and share is not None:
        codes = poly.codes_of(share)
        largest = np.max(np.linalg.norm(codes, ord=2 if gaussian else 1, axis=1))
        sensitivity = covariance_sensitivity(codes, d, levels.law, signed)
        events.append(noise.event(levels.stages[2], codes.shape[1] * size, levels.law, largest * gap / sensitivity))
    return total(events, levels.law, delta)
