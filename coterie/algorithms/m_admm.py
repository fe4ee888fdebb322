r"""M-ADMM (Zhang, Khalili, Liu): ADMM with a growing penalty whose quadratic term is perturbed.

Agent i (x⁰ public and common, α = 0), round t, η_t = penalty · min(growthᵗ, limit), fixed in advance:
    emit     x ← argmin f_i(v) + ⟨α, v⟩ + η_t Σ_j ‖v + e − ½(x_i + x_j)‖² + Φ/2 ‖v‖²,  broadcast x + e'
    absorb   α ← α + penalty · (|V_i| x_i − Σ_j x_j)
    answer   the average of x over the agent and its neighbours, over the last `tail` of the rounds
The perturbed penalty is a linear term: b = 2η_t|V_i| e tilts the objective, so with growth = 1 this is `dvp`, draw for
draw, and at equal cost the law of b does not depend on η_t: a growing penalty only damps later steps. Unbounded growth
stalls short of the optimum (growth 1.02: .9 away after 400 rounds of a test problem), hence `limit`.

**Sensitivity.** One record moves the gradient by at most G = 2V·unit (e by G/(2η_t|V_i|)) and the determinant of the
Hessian by a factor of at most 1 + κ, κ = c₁·unit/(ridge + 2η_t|V_i| + Φ); proof in `coterie.algorithms._objective`.

**Guarantee.** gamma: `Pure(1/noise_t)` each round, gaussian: `ObjectivePerturbation`; no condition on the penalty.
Replace-one, sizes public, every message seen; a generalised linear model with bounded slope.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array
from pydantic import Field

from coterie.algorithms import _objective as objective
from coterie.algorithms._admm import convexity
from coterie.algorithms._objective import Message, State, Tilt, absorb, draws, estimate, init, reveals  # noqa: F401
from coterie.algorithms.base import Erratum, Needs, Place, Public
from coterie.privacy.events import Event
from coterie.problems import Shard

REFERENCE = "Zhang, Khalili, Liu (2018), Improving the Privacy and Accuracy of ADMM-Based Distributed Algorithms"
READS = "sums"


class Config(objective.Config):
    """Hyper-parameters."""

    growth: float = Field(1.02, ge=1, description="factor by which the penalty grows each round")
    limit: float = Field(2.0, ge=1, description="the penalty never exceeds this multiple of its first value")


EXAMPLE = Config(penalty=0.1, noise="gamma")

ERRATA = (
    Erratum(
        "privacy theorem",
        "determinant ratio charged as 1.4 c₁ C/(η|V_i|B), if 2c₁ < (B/C)(ρ/N + 2θ|V_i|)",
        "ln(1 + κ), at least 2.8 times smaller, without a condition",
        "loose",
    ),
    Erratum(
        "motivation",
        "a growing penalty buys privacy",
        "at equal cost the objective's noise has the same law whatever η; larger η damps the step",
        "unproved",
    ),
    Erratum("experiments", "η grows geometrically without end", "then iterates freeze short of the optimum", "utility"),
)


def needs(cfg: Config) -> Needs:
    """A linear model with one sign of slope, and a solver: see `coterie.algorithms._objective`."""
    return objective.needs(cfg)


def tune(cfg: Config, public: Public) -> Config:
    """`penalty` by `_penalty.private_penalty` and `jacobian_penalty`; `noise` gaussian unless δ = 0 asks for pure."""
    return objective.fill(cfg, public)


def penalty_at(cfg: Config, t: Array) -> Array:
    """η_t."""
    return cfg.penalty * jnp.minimum(cfg.growth**t, cfg.limit)


def sensitivity(cfg: Config, place: Place, t: Array) -> Array:
    """G = 2V·unit: how far one record moves the gradient."""
    return objective.gap(place)


def perturbation(cfg: Config, place: Place, t: Array) -> Tilt:
    """Scale of b, Φ and scale of e' in round t."""
    return objective.tilt(cfg, place, convexity(penalty_at(cfg, t), place), place.noise_at(t))


def emit(cfg: Config, place: Place, t: Array, state: State, shard: Shard, draw: dict) -> tuple[State, Message]:
    """Solve the perturbed subproblem and send the answer."""
    x, solver = objective.solve(cfg, perturbation(cfg, place, t), place, penalty_at(cfg, t), state, shard, draw)
    return State(x, state.dual, state.near, state.mean, solver), Message(x)


def wire(cfg: Config, place: Place, t: Array) -> Array:
    """Scale of the noise on the point."""
    return perturbation(cfg, place, t).output


def cost(cfg: Config, place: Place, t: Array, message: Message | None = None) -> Event:
    """Pure 1/noise_t, or a Gaussian objective perturbation."""
    return objective.event(cfg, place, convexity(penalty_at(cfg, t), place), place.noise_at(t))


def claim(cfg: Config, place: Place, delta: float) -> float:
    """The paper's pure total Σ unit (1.4 c₁ + α_t)/(η_t|V_i|), α_t the rate of e (nan for Gaussian noise)."""
    if cfg.noise != "gamma":
        return float("nan")
    with jax.enable_x64(True):
        t = jnp.arange(place.rounds)
        wide = penalty_at(cfg, t) * place.degree
        rate = 2 * wide / perturbation(cfg, place, t).linear
        return float(jnp.sum(place.unit * (1.4 * place.smoothness + rate * place.lipschitz) / wide))
