r"""Typed privacy events: what one message costs the agent that sent it.

An event is a pytree of public numbers. Its fields are scalars or arrays (a `cost` function mapped over rounds gives
arrays of shape (rounds,)), `times` says how often each is charged (0: free), `slack` is a δ added per charge, `tv`
the total variation distance between the noise actually drawn and the declared one (it adds (1 + e^ε)·tv to δ).
Constructors check nothing, since they run under tracing; `check` does, and every accountant calls it.

The privacy methods (`mu`, `pure`, `zcdp`, `rdp`, `law`) act on the *flat* form made by `flat`: float64 NumPy vectors,
one row for each distinct parameter set, `times` the number of charges. An event that offers no such bound says None
or ∞.
"""

from collections.abc import Callable
from typing import ClassVar

import numpy as np

from coterie.errors import InputError
from coterie.privacy import pld, profiles, radial, rdp
from coterie.privacy.base import Event, Floats, MaybeNumeric, Numeric, bits_of, check, flat, merge, numbers, static

__all__ = [
    "DiscreteGaussian",
    "Event",
    "Free",
    "Gaussian",
    "L2Laplace",
    "Laplace",
    "LaplaceUniform",
    "MaskedGaussian",
    "NonPrivate",
    "ObjectivePerturbation",
    "Pure",
    "SampledGaussian",
    "SparseVector",
    "bits_of",
    "check",
    "flat",
    "merge",
]


def _over(top: Floats, bottom: Floats) -> Floats:
    """top/bottom for top, bottom ≥ 0 with 0/0 = 0 (nothing to hide costs nothing)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(np.equal(top, 0), 0.0, np.divide(top, bottom))
    return np.where(np.isnan(ratio), np.inf, ratio)


class Gaussian(Event):
    """N(0, σ²I) added to a vector of L2 sensitivity Δ: exactly μ = Δ/σ."""

    sensitivity: Numeric
    sigma: Numeric
    limits: ClassVar = {"sensitivity": ">= 0", "sigma": ">= 0"}

    def mu(self) -> Floats:
        return _over(self.sensitivity, self.sigma)

    def rdp(self, orders: Floats) -> Floats:
        return rdp.gaussian(self.mu(), orders)


class MaskedGaussian(Event):
    """Gaussian whose coordinates are each sent with probability `keep`, independently; the mask is public.

    Rényi: ln(1 − c + c e^{α(α−1)μ²/2})/(α − 1). As a post-processing of the Gaussian it is also μ-GDP.
    """

    sensitivity: Numeric
    sigma: Numeric
    keep: Numeric
    limits: ClassVar = {"sensitivity": ">= 0", "sigma": ">= 0", "keep": "in [0, 1]"}

    def mu(self) -> Floats:
        return np.where(self.keep > 0, _over(self.sensitivity, self.sigma), 0.0)

    def rdp(self, orders: Floats) -> Floats:
        return rdp.masked(self.mu(), self.keep, orders)


class DiscreteGaussian(Event):
    """Discrete Gaussian on a grid, parameter σ, added to a grid vector of L2 sensitivity Δ: D_α ≤ αΔ²/(2σ²).

    (Canonne, Kamath, Steinke 2020, Thm 4.) With `dim` = 1 and Δ a whole number of grid units (both then in those
    units) the loss distribution is used too.
    """

    sensitivity: Numeric
    sigma: Numeric
    dim: int | None = static(default=None)
    limits: ClassVar = {"sensitivity": ">= 0", "sigma": ">= 0"}

    def zcdp(self) -> Floats:
        return _over(self.sensitivity, self.sigma) ** 2 / 2

    def rdp(self, orders: Floats) -> Floats:
        return rdp.gaussian(_over(self.sensitivity, self.sigma), orders)

    def law(self, row: int, step: float) -> pld.PrivacyLossDistribution | None:
        shift = self.sensitivity[row]
        if self.dim != 1 or shift != int(shift) or not 0 < self.sigma[row] < np.inf:
            return None
        return pld.integer_shift(self.sigma[row], int(shift), step)


class SampledGaussian(Event):
    """Gaussian (or discrete Gaussian) noise on a sum or mean over a random batch.

    `noise_multiplier` ν = noise std over the sensitivity of the batch query, `rate` q = the expected share of the
    records. Two schemes, each with its own adjacency:

    - "without-replacement" (batch of fixed size b = qm, replace-one): mean of gradients clipped to K has sensitivity
      2K/b. Continuous noise: the symmetrised pair, as a loss distribution and as a Rényi curve; `discrete`: the bound
      of Wang, Balle and Kasiviswanathan at integer orders.
    - "poisson" (each record with probability q, add/remove or zero-out): *sum* of gradients clipped to K over a
      data-independent divisor has sensitivity K. Loss distribution for continuous noise, Rényi at integer orders for
      both. `keep` < 1 adds the amplification of a public random mask (Rényi only).
    """

    noise_multiplier: Numeric
    rate: Numeric
    keep: Numeric = numbers(default=1.0)
    scheme: str = static(default="without-replacement")
    discrete: bool = static(default=False)
    limits: ClassVar = {"noise_multiplier": ">= 0", "rate": "in [0, 1]", "keep": "in [0, 1]"}

    def __post_init__(self) -> None:
        if self.scheme == "poisson" and self.adjacency == "replace-one":
            object.__setattr__(self, "adjacency", "add-remove")

    def validate(self) -> None:
        allowed = {"poisson": ("add-remove", "zero-out"), "without-replacement": ("replace-one",)}
        if self.scheme not in allowed:
            raise InputError(f"SampledGaussian: scheme must be one of {', '.join(allowed)}, got {self.scheme!r}")
        if self.adjacency not in allowed[self.scheme]:
            raise InputError(f"SampledGaussian: no bound for {self.scheme} sampling under {self.adjacency!r}")
        if self.scheme != "poisson" and np.any(np.asarray(self.keep) < 1):
            raise InputError(f"SampledGaussian: keep < 1 needs scheme 'poisson', got {self.scheme!r}")

    @property
    def integer_orders(self) -> bool:
        return self.discrete or self.scheme == "poisson"

    def mu(self) -> Floats | None:
        """Without its amplification (exact at rate 1); none is known for discrete noise."""
        return None if self.discrete else self._plain()

    def zcdp(self) -> Floats:
        return self._plain() ** 2 / 2

    def _plain(self) -> Floats:
        return np.where(self.rate * self.keep > 0, _over(np.ones_like(self.rate), self.noise_multiplier), 0.0)

    def rdp(self, orders: Floats) -> Floats:
        plain = rdp.gaussian(self._plain(), orders)
        sampled = (self.rate > 0) & (self.rate < 1) & (self._plain() > 0) & np.isfinite(self._plain())
        rows = np.flatnonzero(sampled)
        if self.scheme == "poisson":
            rows = np.flatnonzero((sampled | (self.keep < 1)) & (self.rate > 0) & np.isfinite(self._plain()))
            if rows.size:
                amplified = rdp.poisson_gaussian(self.noise_multiplier[rows], self.rate[rows], self.keep[rows], orders)
                plain[rows] = np.minimum(plain[rows], amplified)
            return plain
        curve = rdp.wbk_sampled_gaussian if self.discrete else rdp.symmetric_sampled_gaussian
        for row in rows:
            plain[row] = np.minimum(plain[row], curve(self.noise_multiplier[row], self.rate[row], orders))
        return plain

    def profile(self, row: int) -> profiles.Profile | None:
        nu, q = float(self.noise_multiplier[row]), float(self.rate[row])
        if self.discrete or nu == 0:
            return None
        return profiles.gaussian(1 / nu) if q == 1 else profiles.sampled_gaussian(nu, q)

    def law(self, row: int, step: float) -> pld.PrivacyLossDistribution | None:
        nu, q = float(self.noise_multiplier[row]), float(self.rate[row])
        if self.scheme == "poisson" and not self.discrete and nu > 0 and q < 1:
            return pld.poisson_gaussian(nu, q, step)
        return super().law(row, step)


class L2Laplace(Event):
    """Noise of density ∝ exp(−rate ‖x‖₂) in R^dim, L2 sensitivity Δ: pure rate·Δ, zCDP (rate·Δ)²/(2 dim)."""

    sensitivity: Numeric
    rate: Numeric
    dim: int = static()
    limits: ClassVar = {"sensitivity": ">= 0", "rate": ">= 0"}

    def pure(self) -> Floats:
        return self.sensitivity * self.rate

    def zcdp(self) -> Floats:
        shift = self.pure()
        return np.minimum(_pure_zcdp(shift), radial.zcdp(shift, self.dim))

    def rdp(self, orders: Floats) -> Floats:
        return rdp.laplace(self.pure(), orders) if self.dim == 1 else radial.renyi(self.pure(), self.dim, orders)

    def profile(self, row: int) -> profiles.Profile:
        return profiles.l2_laplace(self.pure()[row], self.dim)


class Laplace(Event):
    """Independent Laplace noise, density (rate/2) e^{−rate|y|} in each of `dim` coordinates.

    The shift is known by its L1 norm and, if given, by its largest coordinate `linf` and L2 norm `l2`. The
    one-coordinate curve g is convex in the shift τ and concave in τ²: with l1 and linf the worst shift fills whole
    coordinates, with l2 it is spread evenly; the smaller bound counts.
    """

    l1: Numeric
    rate: Numeric
    dim: int = static(default=1)
    linf: MaybeNumeric = numbers(default=None)
    l2: MaybeNumeric = numbers(default=None)
    limits: ClassVar = {"l1": ">= 0", "rate": ">= 0", "linf": ">= 0", "l2": ">= 0"}

    def _norms(self) -> tuple[Floats, Floats, Floats]:
        """rate · (L1, L∞, L2), each cut to what the others allow."""
        inf = np.full_like(self.l1, np.inf)
        linf, l2 = inf if self.linf is None else self.linf, inf if self.l2 is None else self.l2
        one = np.minimum(self.l1, np.minimum(self.dim * linf, np.sqrt(self.dim) * l2))
        largest = np.minimum(one, np.minimum(linf, l2))
        two = np.minimum(l2, np.sqrt(one * largest))
        return self.rate * one, self.rate * largest, self.rate * two

    def _worst(self, curve: Callable[[Floats], Floats]) -> Floats:
        one, largest, two = self._norms()
        full = np.where(largest > 0, np.floor(_over(one, largest) * (1 + 1e-12)), 0.0)
        with np.errstate(invalid="ignore"):  # without noise (rate ∞) all of this is ∞, said below
            rest = np.clip(one - full * largest, 0.0, None)
            full_, even = full[:, None], np.sqrt(self.dim)
            bound = np.minimum(full_ * curve(largest) + curve(rest), self.dim * curve(two / even))
        return np.where(np.isinf(one)[:, None], np.inf, bound)

    def pure(self) -> Floats:
        return self._norms()[0]

    def zcdp(self) -> Floats:
        # one coordinate: exactly s + e^{−s} − 1 (Harrison, Manurangsi 2024)
        return self._worst(lambda s: (s + np.expm1(-s))[:, None])[:, 0]

    def rdp(self, orders: Floats) -> Floats:
        return self._worst(lambda s: rdp.laplace(s, orders))

    def law(self, row: int, step: float) -> pld.PrivacyLossDistribution:
        """All in one coordinate (shifts of a log-concave law add along a chain of worlds), or `dim` × the largest."""
        one, largest, _ = (norm[row] for norm in self._norms())
        square = rdp.laplace(np.array([one, largest]), np.array([2.0]))[:, 0]
        if self.dim > 1 and self.dim * square[1] < square[0]:
            return pld.from_profile(profiles.laplace(largest), step).self_compose(self.dim)
        return pld.from_profile(profiles.laplace(one), step)

    def profile(self, row: int) -> profiles.Profile:
        return profiles.laplace(self.pure()[row])


class LaplaceUniform(Event):
    """One coordinate of Laplace noise (density (rate/2) e^{−rate|y|}) plus U(0, width), moved by at most `shift`.

    A width that depends on past messages may not enter a fixed composition: charge it through a
    `coterie.privacy.filter.Filter`.
    """

    rate: Numeric
    width: Numeric
    shift: Numeric
    limits: ClassVar = {"rate": ">= 0", "width": ">= 0", "shift": ">= 0"}

    def pure(self) -> Floats:
        return self.rate * self.shift

    def zcdp(self) -> Floats:
        s = self.pure()
        return s + np.expm1(-s)

    def profile(self, row: int) -> profiles.Profile:
        return profiles.laplace_uniform(self.rate[row], self.width[row], self.shift[row])

    def rdp(self, orders: Floats) -> Floats:
        return np.stack([rdp.from_profile(self.profile(row), orders) for row in range(self.rate.size)])


def _pure_zcdp(epsilon: Floats) -> Floats:
    """ε tanh(ε/2): the exact zCDP of pure ε-DP (Harrison, Manurangsi 2024)."""
    return epsilon * np.tanh(epsilon / 2)


class Pure(Event):
    """Any pure ε-DP release; the worst of them is randomised response with losses ±ε."""

    epsilon: Numeric
    limits: ClassVar = {"epsilon": ">= 0"}

    def pure(self) -> Floats:
        return self.epsilon

    def zcdp(self) -> Floats:
        return _pure_zcdp(self.epsilon)

    def rdp(self, orders: Floats) -> Floats:
        return rdp.randomized_response(self.epsilon, orders)

    def profile(self, row: int) -> profiles.Profile:
        return profiles.randomized_response(self.epsilon[row])


class SparseVector(Event):
    """A whole sparse-vector interaction, charged once however long it runs (Lyu, Su, Li 2017, Alg. 1).

    Queries of sensitivity Δ, each with fresh Laplace noise of scale `query`, are compared with a threshold whose own
    Laplace noise of scale `threshold` is drawn once; after `positives` answers "above" nothing is asked any more. Pure
    ε = Δ/threshold + 2 positives Δ/query. Its answers may interleave with other releases: an interactive pure mechanism
    is a post-processing of randomised response (Vadhan, Wang 2021), so the curve of `Pure` adds.
    """

    sensitivity: Numeric
    threshold: Numeric
    query: Numeric
    positives: Numeric
    limits: ClassVar = {
        "sensitivity": ">= 0", "threshold": ">= 0", "query": ">= 0", "positives": "a whole number >= 0"
    }  # fmt: skip

    def pure(self) -> Floats:
        return _over(self.sensitivity, self.threshold) + _over(2 * self.positives * self.sensitivity, self.query)

    def zcdp(self) -> Floats:
        return _pure_zcdp(self.pure())

    def rdp(self, orders: Floats) -> Floats:
        return rdp.randomized_response(self.pure(), orders)

    def profile(self, row: int) -> profiles.Profile:
        return profiles.randomized_response(self.pure()[row])


class ObjectivePerturbation(Event):
    """The minimiser of a GLM objective with a random linear term b ~ N(0, σ²I), plus optional Gaussian output noise.

    `gradient`: L2 gap of the objective's gradient between the worlds (replace-one 2/n, zero-out 1/n); `kappa` κ =
    c₁/(nΛ), largest loss curvature over n times strong convexity; `output` and `output_sigma`: what the solver's
    error can move the answer (2β/Λ) and the noise that hides it. `monotone`: the loss derivative has one sign
    (logistic), which allows theorem (A), δ ≤ e^{ΣJ} δ_G(μ; ε − 2ΣJ) with J = ln(1 + κ) and μ² = Σ (gradient/σ)² +
    (output/output_sigma)²; its zero-out form is δ_G(μ; ε − ΣJ). Otherwise the smaller of the Rényi curves (B) and
    folded at each order.
    """

    gradient: Numeric
    sigma: Numeric
    kappa: Numeric
    output: Numeric = numbers(default=0.0)
    output_sigma: Numeric = numbers(default=np.inf)
    monotone: bool = static(default=False)
    limits: ClassVar = {
        "gradient": ">= 0", "sigma": ">= 0", "kappa": ">= 0", "output": ">= 0", "output_sigma": ">= 0"
    }  # fmt: skip

    def validate(self) -> None:
        if self.adjacency not in ("replace-one", "zero-out"):
            raise InputError(
                f"ObjectivePerturbation: adjacency must be replace-one or zero-out, got {self.adjacency!r}"
            )

    def jacobian(self) -> Floats:
        """J = ln(1 + κ) of each row."""
        return np.log1p(self.kappa)

    def gaussian_part(self) -> Floats:
        """The μ of theorem (A)."""
        return np.hypot(_over(self.gradient, self.sigma), _over(self.output, self.output_sigma))

    def rdp(self, orders: Floats) -> Floats:
        gap = _over(self.gradient, self.sigma)
        directions = 1 if self.adjacency == "zero-out" else 2
        curve = np.minimum(rdp.objective(gap, self.kappa, directions, orders), rdp.folded(gap, self.kappa, orders))
        return curve + rdp.gaussian(_over(self.output, self.output_sigma), orders)


class Free(Event):
    """A message that reads no data, or only what was already released."""

    def mu(self) -> Floats:
        return np.zeros(self.times.shape)

    def pure(self) -> Floats:
        return np.zeros(self.times.shape)

    def rdp(self, orders: Floats) -> Floats:
        return np.zeros((self.times.size, orders.size))


class NonPrivate(Event):
    """A message without any guarantee: the total is infinite."""

    def rdp(self, orders: Floats) -> Floats:
        return np.full((self.times.size, orders.size), np.inf)
