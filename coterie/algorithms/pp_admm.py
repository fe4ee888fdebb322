r"""PP-ADMM: approximate local solves hidden by noise in the objective and a little noise on the output.

Agent i (x⁰ public and common, α = 0), round t:
    emit     b₁ ~ N(0, σ₁²I);  x̂ with ‖∇L(x̂)‖ ≤ β,  L(v) = f_i(v) + ⟨α + b₁, v⟩ + η Σ_j ‖v − ½(x_i + x_j)‖²
             broadcast x_i = x̂ + N(0, σ₂²I)
    absorb   α ← α + η (|V_i| x_i − Σ_j x_j)
    answer   the average of x over the agent and its neighbours, over the last `tail` of the rounds

**Sensitivity.** The exact minimiser θ fixes b₁ = −∇(L − ⟨b₁, ·⟩)(θ), so θ has density φ(b₁(θ)) det H(θ) with H ≽ Λ =
ridge + 2η|V_i|. Replacing a record moves b₁(θ) by at most 2 V unit, and ln det H by at most J = ln(1 + κ), κ =
smoothness · unit/Λ (two rank-one terms over a common H₀ ≽ Λ). That shift depends on b₁ through θ, so this is *not* the
Gaussian mechanism; it needs a GLM loss. Given θ, x̂ − θ is a function of (θ, data) of norm ≤ β/Λ in each world: 2β/Λ.

**Guarantee.** For a loss whose slope has one sign (`monotone`), δ ≤ e^{TJ} δ_G(μ; ε − 2TJ) with μ² = Σ (2V unit/σ₁)² +
(2β/(Λσ₂))²; otherwise the smaller of two Rényi curves (`coterie.privacy.events.ObjectivePerturbation`). No lower
bound on the regularizer. Convex GLM loss with bounded curvature, over all points or a set (docs/theory/sets.md);
replace-one, sizes public, every message seen; b₁, x̂ and the solver's work stay secret. That the solver reaches β is a
matter of public constants (`Shard.argmin`).
The share `split` of the budget pays for the output: σ₁ = 2V unit · z/√(1 − split), σ₂ = (2β/Λ) · z/√split.
"""

from __future__ import annotations

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float
from pydantic import Field

from coterie.algorithms import _penalty
from coterie.algorithms._admm import Number, Solving, convexity, dual_step, solve, tail_mean
from coterie.algorithms.base import Auto, Erratum, Inbox, Inside, Law, Needs, Normal, Place, Public, Round, add
from coterie.algorithms.base import Config as BaseConfig
from coterie.privacy.events import Event, ObjectivePerturbation
from coterie.privacy.rdp import log_inverse, zcdp_rho
from coterie.problems import Shard, Solver

REFERENCE = "Ding dissertation (2022) ch. 3, PP-ADMM, Alg. 2"
READS = "sums"


class Config(BaseConfig):
    """Hyper-parameters."""

    penalty: Auto = Field(None, gt=0, description="η; None: see `tune`")
    tail: float = Field(0.5, ge=0, le=1, description="share of the rounds whose releases the answer averages; 0: last")
    tolerance: float = Field(1e-6, gt=0, description="β: gradient norm at which the solver stops; charged")
    split: float = Field(0.01, gt=0, lt=1, description="share of the budget that hides the solver's error")
    as_printed: bool = Field(False, description="output noise for β/Λ, half of what the solver's error can move")


EXAMPLE = Config(penalty=0.1)
RESERVE = 0.99  # the paper's ε_i3/ε_i1: what the Jacobian leaves of a round's ε

ERRATA = (
    Erratum("Thm 6", "(ε, δ)-DP of a round gives ε²/(4 ln 1/δ)-zCDP", "it gives no zCDP at all", "unproved"),
    Erratum(
        "Thm 7",
        "a total of ε = 10 (T = 30, n = 7000, splits .001)",
        "11.18 by the tight bound; .703 at 1: the totals hold up to 2 because σ₁ is generous, and fail at 10",
        "privacy",
    ),
    Erratum("Lemma 3", "ρ = ε²/(4 ln 1/δ) suffices for (ε, δ)", "not for ε > 7.53 at δ = 1e-4; 10.79 at 10", "privacy"),
    Erratum("Lemma on b₂", "output sensitivity β/Λ", "2β/Λ: the two worlds' errors can point apart", "privacy"),
    Erratum(
        "Thm 6",
        "the Gaussian mechanism at a fixed output",
        "the shift depends on the noise: a GLM is needed",
        "unproved",
    ),
    Erratum("Alg. 2", "classical σ at ε_i1 > 1", "proved for ε < 1 only; the exact curve has no limit", "unproved"),
    Erratum(
        "Alg. 2", "λ̂ ≥ 2.8 N c₁/((ε₁ − ε₃) n)", "no bound is needed: the Jacobian costs ln(1 + κ), κ = c₁/(nΛ)", "loose"
    ),
    Erratum("Thm 6", "2.8N… − 2η|V_i| ≥ 2.8N…; λ̂ + 2η|V_i|", "reversed; −2ηN|V_i| and λ̂/N", "typo"),
    Erratum("experiments", "β = 10^{−3.5}, splits .001", "b₂ is 34 × the effect of b₁: β = 1e-6, split .01", "loose"),
    Erratum("Thm 9", "x_i^t approaches a fixed point", "b₁ is fresh every round", "unproved"),
    Erratum("Lemma 14", "‖X‖ ≤ √(2d ln 1/ξ) for every ξ", "for ξ ≤ ½", "typo"),
)


class State(eqx.Module):
    """What the agent keeps: all of it released or derived from releases, but the solver's."""

    x: Float[Array, " d"]  # last release
    dual: Float[Array, " d"]
    near: Float[Array, " d"]  # sum of the neighbours' releases
    mean: Float[Array, " d"]  # the answer so far
    solver: Solver


class Message(eqx.Module):
    """Everything that leaves."""

    x: Float[Array, " d"]


def needs(cfg: Config) -> Needs:
    """A generalised linear model with bounds on slope and curvature, and a solver to tolerance β."""
    return Needs(convex=True, smooth=True, bounded=True, scored=True, solver=True, projects=True)


def tune(cfg: Config, public: Public) -> Config:
    """`penalty`: the larger of `_penalty.private_penalty` and `_penalty.jacobian_penalty`."""
    if cfg.penalty is not None:
        return cfg
    return cfg.replace(penalty=max(_penalty.private_penalty(public), _penalty.jacobian_penalty(public)))


def init(cfg: Config, place: Place) -> State:
    """All agents start at the same public point."""
    return State(place.start, 0 * place.start, place.degree * place.start, place.start, place.solver())


def draws(cfg: Config, place: Place) -> dict[str, Law]:
    """Standard normals for the objective and for the output."""
    return {"objective": Inside(place.dim), "output": Normal(place.dim)}


def sensitivity(cfg: Config, place: Place, t: Round) -> Array:
    """2 V unit: how far one record moves the objective's gradient."""
    return 2 * place.lipschitz * place.unit


def slip(cfg: Config, place: Place) -> Array:
    """2β/Λ: how far the two worlds' solver errors can lie apart."""
    return 2 * cfg.tolerance / convexity(cfg.penalty, place)


def scales(cfg: Config, place: Place, multiplier: Number) -> tuple[Array, Array]:
    """(σ₁, σ₂) such that a round costs μ = 1/multiplier (with the printed σ₂, which is half as large, more)."""
    declared = slip(cfg, place) / (2 if cfg.as_printed else 1)
    return (
        multiplier * sensitivity(cfg, place, 0) / (1 - cfg.split) ** 0.5,
        multiplier * declared / cfg.split**0.5,
    )


def wire(cfg: Config, place: Place, t: Array) -> Array:
    """σ₂: scale of the noise on the point."""
    return scales(cfg, place, place.noise_at(t))[1]


def release(
    cfg: Config, place: Place, multiplier: Number, state: Solving, shard: Shard, draw: dict
) -> tuple[Array, Solver]:
    """The perturbed subproblem's approximate minimiser with noise on it."""
    objective, output = scales(cfg, place, multiplier)
    tilt = add(0 * state.x, draw["objective"], objective)
    x, solver = solve(cfg.penalty, place, state, shard, cfg.tolerance, tilt)
    return add(x, draw["output"], output), solver


def emit(cfg: Config, place: Place, t: Array, state: State, shard: Shard, draw: dict) -> tuple[State, Message]:
    """Solve the perturbed subproblem and send the answer with a little noise on it."""
    x, solver = release(cfg, place, place.noise_at(t), state, shard, draw)
    return State(x, state.dual, state.near, state.mean, solver), Message(x)


def absorb(cfg: Config, place: Place, t: Array, state: State, inbox: Inbox) -> State:
    """Move the dual by the disagreement, renew the answer."""
    total = inbox.total.x
    dual = dual_step(cfg.penalty, place, state.dual, state.x, total)
    mean = tail_mean(cfg.tail, place, t, state.mean, (state.x + total) / (1 + place.degree))
    return State(state.x, dual, total, mean, state.solver)


def estimate(cfg: Config, place: Place, state: State) -> Float[Array, " d"]:
    """Average of the releases that the agent has seen, its own and its neighbours', over the last rounds."""
    return place.project(state.mean)


def reveals(cfg: Config, place: Place, state: State, message: Message) -> Array | None:
    """In a set the proof counts as seen what the set cut off as well: x + aside, which tells b₁."""
    return None if place.within is None else message.x + state.solver.aside


def release_cost(cfg: Config, place: Place, multiplier: Number, times: Number = 1) -> Event:
    """What one release costs."""
    objective, output = scales(cfg, place, multiplier)
    curved = place.smoothness * place.unit / convexity(cfg.penalty, place)
    gap = sensitivity(cfg, place, 0)
    return ObjectivePerturbation(gap, objective, curved, slip(cfg, place), output, monotone=place.monotone, times=times)


def cost(cfg: Config, place: Place, t: Array, message: Message | None = None) -> Event:
    """Objective perturbation with output noise."""
    return release_cost(cfg, place, place.noise_at(t))


def claim(cfg: Config, place: Place, delta: float) -> float:
    """The paper's ε: √(4 ρ ln 1/δ) with ρ = Σ ρ₁ + ρ₂ of all rounds (Thm 7)."""
    noise = np.asarray(place.noise * place.shape, float)
    rho = np.sum([printed_rho(cfg, place, z, delta) for z in noise])
    return float(np.sqrt(4 * rho * np.log(1 / delta)))


def printed_rho(cfg: Config, place: Place, multiplier: Number, delta: float) -> float:
    """A round's ρ₁ + ρ₂ as printed: ε₁ = ε₃/.99 with ε₃ from σ₁ by the classical formula; ε₁ = ρ₁ + 2√(ρ₁ ln 1/δ)."""
    objective, output = (float(s) for s in scales(cfg, place, multiplier))
    if objective == 0:
        return float("inf")
    share = classic_gaussian(1.0, delta) * float(sensitivity(cfg, place, 0)) / objective / RESERVE
    hidden = 0.0 if output == 0 else (float(slip(cfg, place)) / 2 / output) ** 2 / 2
    return zcdp_rho(share, delta) + hidden


def classic_gaussian(epsilon: float, delta: float) -> float:
    """Noise std over sensitivity √(2 ln(1.25/δ))/ε (Dwork, Roth 2014, Thm A.1); proved for ε < 1 only."""
    return float(np.sqrt(2 * (log_inverse(delta) + np.log(1.25))) / epsilon)
