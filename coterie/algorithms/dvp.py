r"""Dual-variable perturbation (Zhang-Zhu): ADMM whose local objective is tilted by fresh noise every round.

Agent i (x⁰ public and common, α = 0), round t with privacy level a = 1/noise_t:
    emit     x ← argmin f_i(v) + ⟨α + b, v⟩ + η Σ_j ‖v − ½(x_i + x_j)‖² + Φ/2 ‖v‖²,  broadcast x + e
    absorb   α ← α + η (|V_i| x_i − Σ_j x_j), from broadcast values only
    answer   the average of x over the agent and its neighbours, over the last `tail` of the rounds
b is gamma noise, P(b) ∝ exp(−ζ‖b‖/unit) with ζ = (a − ln(1 + κ))/(2V), κ = c₁·unit/Λ, or Gaussian noise; Φ and e: see
`coterie.algorithms._objective`. In the paper's symbols α = 2λ, unit = C/B, ridge = ρ, b = (C/B)ε.

**Sensitivity.** Given the transcript, the b that explains an output moves by at most G = 2V·unit with one record, and
the Jacobians differ by a factor of at most 1 + κ: the log-density ratio is at most ζ·2V + ln(1 + κ) = a.

**Guarantee.** gamma: `Pure(a_t)` each round, gaussian: `ObjectivePerturbation`. Rounds compose: the last output alone
depends on all of them. Replace-one, sizes public, every message seen; a generalised linear model with bounded slope.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from pydantic import Field

from coterie.algorithms import _objective as objective
from coterie.algorithms._admm import convexity
from coterie.algorithms._objective import Message, State, Tilt, absorb, draws, estimate, init, reveals  # noqa: F401
from coterie.algorithms.base import Erratum, Needs, Place, Public
from coterie.privacy.events import Event, Pure
from coterie.problems import Shard

REFERENCE = "Zhang, Zhu, Dynamic Privacy For Distributed Machine Learning Over Network, Alg. 2"
READS = "sums"


class Config(objective.Config):
    """Hyper-parameters."""

    as_printed: bool = Field(False, description="the paper's noise, half as large as its proof needs (gamma only)")


EXAMPLE = Config(penalty=0.1, noise="gamma")

ERRATA = (
    Erratum(
        "Alg. 2 line 5",
        "noise density exp(−ζ‖ε‖) with ζ = α̂",
        "ζ = α̂/2, as App. B uses: a record moves ε by 2. As printed the loss is up to 2α̂ + ᾱ (.555 for α = .3)",
        "privacy",
    ),
    Erratum(
        "Cor. 1.1, 2.1",
        "the network's level is that of one round",
        "levels add up: the final outputs depend on every round (two agents, two rounds: .995 for α = .5)",
        "privacy",
    ),
    Erratum("Eq. (41)", "determinant ratio ≤ (1 + κ)²", "1 + κ: both changes have rank one; ᾱ halves", "loose"),
    Erratum("App. F", "ζ = α/4 because α̂ > 0", "ζ = α̂/2; the constants that follow are off", "loose"),
    Erratum("Thm 1, Φ", "Φ > 0 only once α̂ ≤ 0", "switch at ᾱ = α/2: noise is unbounded as α̂ → 0⁺", "utility"),
    Erratum("Def. 2", "bounds the marginal law of one round", "the law given the transcript is what composes", "typo"),
    Erratum("Props 7, 8", "convergence in distribution", "bounded densities at each t prove none", "unproved"),
    Erratum("Eq. (39)", "Jacobian to the power −1", "to the power +1", "typo"),
    Erratum("Asm. 2", "R once differentiable", "twice: Hessians are used", "typo"),
    Erratum("Alg. 2 lines 7, 14", "updates (15), (16)", "(18), (19)", "typo"),
    Erratum(
        "Thm 3, 4",
        "records ∝ C/accuracy², d ln(d/δ)/accuracy",
        "C² and C: as printed a change of units shrinks them; ρ is not stated (reproduction.theorems)",
        "utility",
    ),
)


def needs(cfg: Config) -> Needs:
    """A linear model with one sign of slope, and a solver: see `coterie.algorithms._objective`."""
    return objective.needs(cfg)


def tune(cfg: Config, public: Public) -> Config:
    """`penalty` by `_penalty.private_penalty` and `jacobian_penalty`; `noise` gaussian unless δ = 0 asks for pure."""
    return objective.fill(cfg, public)


def sensitivity(cfg: Config, place: Place, t: Array) -> Array:
    """G = 2V·unit: how far one record moves the gradient."""
    return objective.gap(place)


def perturbation(cfg: Config, place: Place, t: Array) -> Tilt:
    """Scale of b, Φ and scale of e in round t."""
    scale = objective.tilt(cfg, place, convexity(cfg.penalty, place), place.noise_at(t))
    return _printed(cfg, place, t, scale) if cfg.as_printed and cfg.noise == "gamma" else scale


def emit(cfg: Config, place: Place, t: Array, state: State, shard: Shard, draw: dict) -> tuple[State, Message]:
    """Solve the tilted subproblem and send the answer."""
    x, solver = objective.solve(cfg, perturbation(cfg, place, t), place, cfg.penalty, state, shard, draw)
    return State(x, state.dual, state.near, state.mean, solver), Message(x)


def wire(cfg: Config, place: Place, t: Array) -> Array:
    """Scale of the noise on the point."""
    return perturbation(cfg, place, t).output


def cost(cfg: Config, place: Place, t: Array, message: Message | None = None) -> Event:
    """Pure 1/noise_t, or a Gaussian objective perturbation; as printed what that noise really gives."""
    z, convex = place.noise_at(t), convexity(cfg.penalty, place)
    if not (cfg.as_printed and cfg.noise == "gamma"):
        return objective.event(cfg, place, convex, z)
    scale = perturbation(cfg, place, t)
    kappa = place.smoothness * place.unit / (convex + scale.ridge)
    return Pure(objective.gap(place) / scale.linear + jnp.log1p(kappa) + cfg.share / z)


def claim(cfg: Config, place: Place, delta: float) -> float:
    """The paper's level of the whole run: the largest of the rounds'. It has no Gaussian variant (nan)."""
    if cfg.noise != "gamma":
        return float("nan")
    with np.errstate(divide="ignore"):
        return float(np.max(1 / (float(place.noise) * np.asarray(place.shape, float))))


def _printed(cfg: Config, place: Place, t: Array, scale: Tilt) -> Tilt:
    """ζ = α̂, α̂ = α − 2 ln(1 + κ); if that is ≤ 0, α̂ = α/2 and Φ = c₁unit/(e^{α/4} − 1) − Λ."""
    z, convex, bend = place.noise_at(t), convexity(cfg.penalty, place), place.smoothness * place.unit
    left = 1 - 2 * z * jnp.log1p(bend / convex)  # α̂/α
    bare = left <= 0
    ridge = jnp.where(bare, bend / jnp.expm1(0.25 / jnp.where(bare, z, 1.0)) - convex, 0.0)
    return Tilt(objective.gap(place) / 2 * z / jnp.where(bare, 0.5, left), ridge, scale.output)
