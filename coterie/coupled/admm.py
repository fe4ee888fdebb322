r"""Coupled ADMM (Xiao, Ye, Devadas, (12) and (13)): min Σ f_i(x_i) s.t. Σ A_i x_i = c, random penalties, noise.

Agent i (x_i⁰ public, price λ = 0, residual r = Σ A_j x_j⁰ − c), constants D_i (inverse step) and ζ (dual step):
    draw     ρ_i diagonal, uniform on ρ⁰[1 − s, 1 + s], afresh every round
    step     first-order (13):  y = x_i − (∇f_i(x_i) + A_iᵀ(ρ_i r − λ))/D_i
             exact (12):        y = argmin f_i(v) + ⟨A_iᵀ(ρ_i r − λ), v⟩ + D_i/2 ‖v − x_i‖²  over the box
    emit     x_i ← P(y + e), e Gaussian or Laplace, P the projection on the box; send A_i x_i
    absorb   r ← Σ A_j x_j − c;  λ ← λ − ζ r
With Γ_i = D_i I − A_iᵀ ρ_i A_i these are the paper's updates, written so that an agent needs of the others only the sum
Σ A_j x_j: a secret-sum exchange suffices.

**Convergence** (no noise). Let G = diag(D_1, …, D_N, 1/ζ), u = (x, λ), e_i = x_i⁺ − x_i*, d = x⁺ − x, Ξ_i = ρ_i − ζ.
Strong convexity (for (13) also smoothness: ⟨∇f(x) − ∇f(x*), e⟩ ≥ m/2‖e‖² + m/2‖x − x*‖² − L/2‖d‖²) and the identity
⟨2λ − λ⁻ − λ*, r⁺⟩ = ⟨λ⁺ − λ*, r⁺⟩ + ζ⟨r⁺, A d⟩ give, with k = 1 and l_i = L_i for (13), k = 2 and l_i = 0 for (12),

    ‖u⁺ − u*‖²_G ≤ ‖u − u*‖²_G − Σ (D_i − l_i)‖d_i‖² + ζ‖A d‖² − ζ‖r‖² − k Σ m_i‖e_i‖² − 2 Σ ⟨Ξ_i r, A_i e_i⟩.

So if  ζ ‖[A_i/√(D_i − l_i)]‖² ≤ 1  and  Σ_i |Ξ_i|² σ_i²/(k m_i) < ζ  for every draw, the distance never grows and x
converges to x* (a box only adds a monotone term). For Ξ = 0 this is the Condat-Vũ iteration. The range is some N times
wider than the paper's Theorem 3.1, which asks for ζ ≪ ρ⁰ ≈ m/(N²σ²).

**Sensitivity.** x_i, r and λ are functions of what was released, so given the past a change of f_i within its class
moves y by at most gap/D_i (13), or by gap/(D_i + m_i) (12): two strongly convex objectives whose gradients differ by at
most gap (for a point on the way to the minimiser: see `coterie.problems.coupled.Smooth`). The projection comes after
the noise and costs nothing; it also keeps x_i in the box, the only place where `gap` is promised. The random penalties
only mix such laws, so they never cost anything. That they also save is claimed nowhere here: the saving has no bound
that holds for general A_i.

**Guarantee.** Per round `Gaussian(gap₂/D_i, σ)` or `Laplace`, neighbours differing in one f_i ("replace-function").
The adversary knows everything else and sees every x_i. If it sees only opened sums, the same ε holds all the more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from pydantic import Field

from coterie.algorithms.base import Auto, Erratum, LaplaceLaw, Law, Normal, Uniform, add
from coterie.algorithms.base import Config as BaseConfig
from coterie.privacy import events
from coterie.privacy.events import Event
from coterie.problems.coupled import Coupled, CoupledAgent, Curved, Gap, Numbers

__all__ = [
    "ADJACENCY",
    "ERRATA",
    "REFERENCE",
    "Config",
    "StepSizes",
    "convergent",
    "cost",
    "draws",
    "emit",
    "price_step",
    "resolve",
    "sensitivity",
]

REFERENCE = "Xiao, Ye, Devadas, Local Differential Privacy in Decentralized Optimization, (12), (13), (49)"
ADJACENCY = "replace-function"
MARGIN = 0.9  # part of the provable spread of penalties that is used by default


class Config(BaseConfig):
    """Hyper-parameters."""

    method: Literal["first-order", "exact"] = Field("first-order", description="update (13) or (12)")
    dual_step: Auto = Field(None, gt=0, description="ζ; None: L/‖A‖²")
    penalty: Auto = Field(None, gt=0, description="ρ⁰, the middle of the random penalties; None: ζ")
    spread: Auto = Field(None, ge=0, lt=1, description="s: penalties are uniform on ρ⁰[1 − s, 1 + s]; None: provable")
    inverse_step: Auto = Field(None, gt=0, description="D; None: L_i + ζ‖A‖² (exact: ζ‖A‖²), more under noise")
    law: Literal["gaussian", "laplace"] = Field("gaussian", description="law of the noise")
    tail: Auto = Field(
        None, ge=0, le=1, description="share of rounds that the answer averages; None: 0, or ½ with noise"
    )
    as_printed: bool = Field(False, description="Algorithm 1's sign of the dual step, and no projection: diverges")


ERRATA = (
    Erratum(
        "Alg. 1 beside (12)",
        "λ_i − ζ Σ_j (x_j − x_i) as the consensus case of λ − ζ(Σ A_i x_i − c)",
        "(12) is right; its consensus case has a plus: A_iᵀ(Σ A_j x_j) = Σ_j (x_i − x_j). The minus diverges",
        "utility",
    ),
    Erratum(
        "Thm 3.1",
        "ρ_max is the largest deviation from ρ⁰ in every condition",
        "only in the second term; (43) needs the penalty itself. As stated fixed penalties (deviation 0) admit any "
        "D > 0 and ζ < 2ρ⁰, which diverges",
        "utility",
    ),
    Erratum(
        "Thm 3.1, (43), (48)",
        "ρ⁰ > N/(2α), so ρ⁰ < m/(N²σ²) and ζ < ρ⁰/5",
        "ρ⁰ = ζ up to (D − L)/‖A‖² converges, with deviations up to √(ζ/Σ(σ_i²/m_i))",
        "loose",
    ),
    Erratum("Thm 3.1", "G with ζI", "ζ⁻¹I, as App. F uses", "typo"),
    Erratum(
        "Thm 3.1, (37)",
        "linear rate from ‖λ − λ*‖ ≤ ‖A_iᵀ(λ − λ*)‖/σ_min for one i",
        "needs A_iᵀ without kernel, and no bound active; else x converges without a proved rate",
        "unproved",
    ),
    Erratum(
        "(49)",
        "noise added last and the projection left out, B_q a supremum over C",
        "iterates leave C, where B_q promises nothing (quadratic costs of different curvature: no bound at all); "
        "noise inside the projection",
        "privacy",
    ),
)


class StepSizes(eqx.Module):
    """The numbers that a configuration stands for, one row per agent: public."""

    inverse: Float[Numbers, "*agents"]  # D_i
    dual: Float[Numbers, "*agents"]  # ζ, the same for all
    penalty: Float[Numbers, "*agents"]  # ρ⁰
    spread: Float[Numbers, "*agents"]  # s


def resolve(cfg: Config, problem: Coupled, rounds: int = 0) -> StepSizes:
    """Fill in what the configuration leaves open, from public constants only.

    ζ = L/‖A‖² with L the largest L_i; D_i the least that the convergence proof allows; s = .9 of what it allows. Under
    noise give the number of `rounds`: a step of 1/D_i carries noise ∝ √rounds/D_i, and the box cuts off what is larger
    than itself, so steps are made as short as rounds permit, D_i ≥ rounds · m/10 (m the least m_i).
    """
    one, least = np.ones(problem.size), _curvatures(problem)
    norm = float(np.linalg.norm(problem.matrix, 2)) ** 2
    dual = float(np.max(least[1]) / norm if cfg.dual_step is None else cfg.dual_step)
    inverse = (least[1] if cfg.method == "first-order" else 0.0) + dual * norm * one
    inverse = np.maximum(inverse, rounds * np.min(least[0]) / 10)
    inverse = inverse if cfg.inverse_step is None else float(cfg.inverse_step) * one
    penalty = dual if cfg.penalty is None else float(cfg.penalty)
    room = MARGIN * _reach(cfg, problem, dual) - abs(penalty - dual)
    spread = float(np.clip(room / penalty, 0.0, 0.95)) if cfg.spread is None else float(cfg.spread)
    return StepSizes(inverse, dual * one, penalty * one, spread * one)


def convergent(cfg: Config, problem: Coupled, steps: StepSizes | None = None) -> str | None:
    """None where the iteration without noise provably converges, else what is out of range."""
    steps = resolve(cfg, problem) if steps is None else steps
    if cfg.as_printed:
        return "as_printed: the dual step goes the wrong way"
    dual = float(steps.dual[0])
    room = np.asarray(steps.inverse) - (_curvatures(problem)[1] if cfg.method == "first-order" else 0.0)
    if np.any(room <= 0):
        return f"inverse_step {np.min(steps.inverse):g} may diverge: it must be above the curvature"
    scaled = np.concatenate([a.matrix / np.sqrt(d) for a, d in zip(problem.agents, room, strict=True)], axis=1)
    limit = 1 / float(np.linalg.norm(scaled, 2)) ** 2
    if dual > limit * (1 + 1e-9):
        return f"dual_step {dual:g} may diverge with this inverse_step: at most {limit:.4g} is safe"
    off = np.max(np.abs(steps.penalty * (1 + np.array([[-1.0], [1.0]]) * steps.spread) - dual))
    reach = _reach(cfg, problem, dual)
    if off > 0 and not off < reach:
        return f"penalties up to {off:.4g} away from dual_step {dual:g} may diverge: less than {reach:.4g} is safe"
    return None


def _curvatures(problem: Coupled) -> np.ndarray:
    """(m_i, L_i) as two rows."""
    return np.array([[float(a.strong), float(a.smooth)] for a in problem.agents]).T


def _reach(cfg: Config, problem: Coupled, dual: float) -> float:
    """How far every penalty may be from ζ: √(kζ/Σ(σ_i²/m_i))."""
    factor = 1 if cfg.method == "first-order" else 2
    with np.errstate(divide="ignore"):
        return float(np.sqrt(factor * dual / np.sum(problem.norms**2 / _curvatures(problem)[0])))


def draws(cfg: Config, agent: CoupledAgent) -> dict[str, Law]:
    """A round's randomness: `weight` becomes ρ_i, `noise` becomes e."""
    rows, dim = agent.matrix.shape[-2:]
    return {"weight": Uniform(rows), "noise": Normal(dim) if cfg.law == "gaussian" else LaplaceLaw(dim)}


def sensitivity(cfg: Config, steps: StepSizes, agent: CoupledAgent) -> Gap:
    """How far y can move when f_i is replaced by another function of its class. One agent's row of `steps`."""
    if cfg.method == "first-order":
        return Gap(*(norm / steps.inverse for norm in agent.gap))
    convex = steps.inverse + agent.strong
    if agent.cost.separable:
        return Gap(*(norm / convex for norm in agent.gap))
    moved = agent.gap.l2 / convex
    return Gap(agent.matrix.shape[-1] ** 0.5 * moved, moved, moved)


def scale(cfg: Config, steps: StepSizes, agent: CoupledAgent, noise: Array) -> Array:
    """Std (Gaussian) or mean absolute value (Laplace) of the noise at multiplier `noise`; 0 means none."""
    gap = sensitivity(cfg, steps, agent)
    wide = gap.l2 if cfg.law == "gaussian" else gap.l1
    return jnp.where(noise > 0, noise * jnp.where(noise > 0, wide, 0.0), 0.0)


def emit(
    cfg: Config,
    steps: StepSizes,
    agent: CoupledAgent,
    x: Float[Array, " d"],
    price: Float[Array, " rows"],
    residual: Float[Array, " rows"],
    noise: Float[Array, ""],
    draw: Mapping[str, Array],
) -> tuple[Float[Array, " d"], Float[Array, " rows"]]:
    """One agent's round: its next point, and the message A_i x_i. Nothing else leaves."""
    penalty = steps.penalty * (1 + steps.spread * (2 * draw["weight"] - 1))
    matrix = jnp.asarray(agent.matrix)
    pull = matrix.T @ (penalty * residual - price)
    if cfg.method == "exact":
        curved = Curved(agent.strong, agent.smooth)
        y = agent.cost.prox(pull, x, steps.inverse, agent.low, agent.high, curved)
    else:
        y = x - (agent.cost.gradient(x) + pull) / steps.inverse
    noisy = add(y, draw["noise"], scale(cfg, steps, agent, noise))
    x = noisy if cfg.as_printed else jnp.clip(noisy, agent.low, agent.high)
    return x, matrix @ x


def price_step(cfg: Config, dual: Array, price: Array, residual: Array) -> Array:
    """The next λ from the residual that everybody has just learnt."""
    return price + dual * residual if cfg.as_printed else price - dual * residual


def cost(cfg: Config, steps: StepSizes, agent: CoupledAgent, noise: np.ndarray) -> Event:
    """What rounds with the given noise multipliers cost one agent, on the host: one row per round."""
    gap = Gap(*(float(norm) for norm in sensitivity(cfg, steps, agent)))
    loose = cfg.as_printed and bool(np.any(np.isfinite(agent.low) | np.isfinite(agent.high)))
    if loose or not np.isfinite(gap.l2):  # no promise about the gradients, or only for points that are left
        return events.NonPrivate(times=np.ones_like(noise), adjacency=ADJACENCY)
    if gap.l2 == 0:
        return events.Free(times=np.ones_like(noise), adjacency=ADJACENCY)
    same = np.ones_like(noise)
    if cfg.law == "gaussian":
        return events.Gaussian(gap.l2 * same, gap.l2 * noise, adjacency=ADJACENCY)
    with np.errstate(divide="ignore"):
        rate = 1 / (gap.l1 * noise)
    return events.Laplace(gap.l1 * same, rate, agent.dim, linf=gap.linf * same, l2=gap.l2 * same, adjacency=ADJACENCY)
