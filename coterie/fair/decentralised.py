r"""Fair learning over several holders in a single release: the objective's coefficients are sums over holders.

`fit_by_consensus`: every holder noises its own statistics (local noise: the guarantee needs to trust nobody) and the
noisy values are averaged over the graph by x ← Wx, which is post-processing. The noise of N holders adds up: √N
times that of one holder with all records.

`fit_by_secret_sum`: holders round to a common grid, each adds discrete Gaussian noise of variance σ²/(N − colluding)
and only the sum is opened. What the sum costs is a separate, named claim: it holds against those who see the sum (and
what `colluding` holders know), not against those who see a holder's own vector. The sum itself is an argument,
`sums`: additive secret sharing by default, with real shares but all holders in one process; confidential channels
between machines are not there yet. The sum of N discrete Gaussians of σ₀ ≥ 65,544 grid steps differs from one discrete
Gaussian by less than e^(−10¹⁰) (Kairouz, Liu, Steinke 2021, Thm 1), so it is charged as one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coterie.errors import InputError
from coterie.exchange.fixed_point import FixedPoint
from coterie.exchange.members import Sums, SumsHere
from coterie.exchange.statement import Claim
from coterie.exchange.sums import SumTerms
from coterie.fair import mechanisms as mech
from coterie.fair import polynomial as poly
from coterie.fair.noise import GRID_SIGMA, Law, Noise
from coterie.fair.polynomial import Statistics
from coterie.fair.solve import minimise, ridge_for
from coterie.graphs.mixing import Mixing
from coterie.privacy.events import DiscreteGaussian, Event
from coterie.privacy.secure import grid_noise

__all__ = ["Claim", "FairNetwork", "fit_by_consensus", "fit_by_secret_sum"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class FairNetwork:
    """What each holder ends with, and what the records pay."""

    weights: Floats  # (holders, d)
    claim: Claim
    share: Floats | None
    disagreement: float  # largest distance of a holder's weights from the mean


def fit_by_consensus(
    holders: Sequence[Statistics],
    mixing: Mixing,
    method: str = "adfc",
    *,
    epsilon: float,
    delta: float,
    noise: Noise,
    rounds: int = 50,
    signed: bool = True,
    penalty: float = 1.0,
    shares: Sequence[float] | None = None,
) -> FairNetwork:
    """Noisy local coefficients, averaged over the graph for `rounds` rounds; every holder solves what it then holds.

    Each holder pays (ε, δ) for all that it ever sends; a record sits at one holder, so that is the network's guarantee
    against an adversary who sees every message. Numbers of records are public.
    """
    _, law, split = mech.private_method(method, shares)
    if len(holders) != mixing.graph.size:
        raise InputError(f"{len(holders)} holders on a graph of {mixing.graph.size} nodes")
    n, walk = len(holders), np.linalg.matrix_power(mixing.dense(), rounds)
    d, groups = holders[0].dim, len(holders[0].groups)
    levels = mech.levels_for(law, d, groups, epsilon=epsilon, delta=delta, shares=split, noise=noise)
    total = sum(h.count for h in holders)
    share: Floats | None = None
    if levels.stages[0] is not None:
        local = np.stack([c for h in holders if (c := mech.noisy_counts(h, levels, noise)) is not None])
        share = np.stack([mech.shares_of(n * row, total) for row in walk @ local])
    linear, quadratic, penalties = [], [], []
    for i, holder in enumerate(holders):
        b, a, _ = mech.noisy_coefficients(holder, levels, noise)
        linear.append(b)
        quadratic.append(a)
        if share is not None and levels.stages[2] is not None:
            penalties.append(mech.noisy_covariance(holder, share[i], levels, noise, signed))
    assert levels.stages[1] is not None
    spread = mech.spread_of(mech.flat_objective(holders[0], law, levels.stages[1])[1], law, d)
    ridges = [ridge_for(n * np.linalg.norm(row) * spread) for row in walk]  # noise of n Σ_j walk_ij â_j
    b_mean = n * np.einsum("ij,jd->id", walk, np.stack(linear))
    a_mean = n * np.einsum("ij,jde->ide", walk, np.stack(quadratic))
    v_mean = n * np.einsum("ij,jkd->ikd", walk, np.stack(penalties)) if penalties else None  # type: ignore[arg-type]
    weights = np.stack([
        minimise(a_mean[i] + np.diag(ridges[i]), b_mean[i], None if v_mean is None else v_mean[i], penalty)
        for i in range(n)
    ])  # fmt: skip
    claim = Claim("local noise", "sees every message of every holder, and knows every record but one", levels.account)
    gap = float(np.max(np.linalg.norm(weights - weights.mean(0), axis=1)))
    return FairNetwork(weights, claim, None if share is None else share.mean(0), gap)


class _Shared:
    """Noise source of a secret sum: each of `holders` adds its part on a common grid; cost as the sum's."""

    secure = True

    def __init__(self, holders: int, colluding: int, rng: np.random.Generator | None) -> None:
        if not 0 <= colluding < holders:
            raise InputError(f"colluding must be in 0 … {holders - 1}, got {colluding}")
        self.honest, self.rng = holders - colluding, rng

    def event(self, multiplier: float, size: int, law: Law, sensitivity: float = 1.0) -> Event:
        step = multiplier / np.sqrt(self.honest) / GRID_SIGMA * (1 + 1e-9)
        return DiscreteGaussian(sensitivity + step * np.sqrt(size), multiplier)

    def add(self, values: Floats, scale: Floats, law: Law) -> Floats:
        raise TypeError("noise of a secret sum is added by its holders")

    def sum(self, parts: Sequence[Floats], scale: Floats, sums: Sums) -> Floats:
        """Σ parts with noise of the given scale: a secret sum of whole grid steps."""
        scale = np.broadcast_to(scale, parts[0].shape)
        step = np.where(scale > 0, scale, 1.0) / np.sqrt(self.honest) / GRID_SIGMA * (1 + 1e-12)
        room = 2**61 // len(parts)
        terms = SumTerms(FixedPoint(len(parts), fraction_bits=0, bound=float(room), reach=room))
        noise = [self._units(part.shape) for part in parts]
        opened = sums(terms, parts[0].size).open([np.ravel(p / step) for p in parts], [z.ravel() for z in noise])
        return step * opened.steps.reshape(parts[0].shape)

    def _units(self, shape: tuple[int, ...]) -> NDArray[np.int64]:
        if self.rng is None:
            return grid_noise(GRID_SIGMA, shape)[0]
        return np.rint(self.rng.normal(scale=GRID_SIGMA, size=shape)).astype(np.int64)


def fit_by_secret_sum(
    holders: Sequence[Statistics],
    method: str = "adfc",
    *,
    epsilon: float,
    delta: float,
    sums: Sums = SumsHere,
    colluding: int = 0,
    random_state: int | None = None,
    signed: bool = True,
    penalty: float = 1.0,
    shares: Sequence[float] | None = None,
) -> FairNetwork:
    """One secret-shared sum for each stage: the noise of a single holder with all records, none of which has left home.

    `colluding` holders may pool what they know (each holder's noise grows to make up for theirs). Noise comes from the
    operating system; an integer `random_state` makes a reproducible run, for study only. Gaussian methods only.
    """
    _, law, split = mech.private_method(method, shares)
    if law != "gaussian":
        raise InputError(f"secret sums carry discrete Gaussian noise: use relaxed-fm or adfc, not {method!r}")
    if not np.isfinite(epsilon):
        raise InputError(f"a secret sum needs a finite epsilon: its grid is made from the noise, got {epsilon}")
    rng = None if random_state is None else np.random.default_rng(random_state)
    source = _Shared(len(holders), colluding, rng)
    d, groups = holders[0].dim, len(holders[0].groups)
    levels = mech.levels_for(law, d, groups, epsilon=epsilon, delta=delta, shares=split, noise=source)
    zero, one, two = levels.stages
    share = penalties = None
    if zero is not None:
        noisy = source.sum([mech.counted(h) for h in holders], np.array(zero * poly.count_sensitivity(groups, 2)), sums)
        share = mech.shares_of(noisy, sum(h.count for h in holders))
    assert one is not None
    pairs = [mech.flat_objective(h, law, one) for h in holders]
    scale = pairs[0][1]
    flat = source.sum([values for values, _ in pairs], scale, sums)
    if two is not None and share is not None:
        codes = poly.codes_of(share)
        level = np.array(two * poly.l2_covariance(codes, signed))
        penalties = source.sum([poly.covariance(h, codes) for h in holders], level, sums)
    ridge = ridge_for(mech.spread_of(scale, law, d))
    weights = minimise(poly.from_svec(flat[d:], d) + np.diag(ridge), flat[:d], penalties, penalty)
    name = "secret-sum (one process)" if sums is SumsHere else "secret-sum"
    who = "sees the opened sums" + (f" and all that {colluding} holders know" if colluding else "")
    claim = Claim(name, f"{who}, and knows every record but one; not a holder's own vector", levels.account)
    return FairNetwork(np.tile(weights, (len(holders), 1)), claim, share, 0.0)
