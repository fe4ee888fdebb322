r"""MR-ADMM (Zhang, Khalili, Liu): recycled ADMM whose penalty grows from one data round to the next.

Rounds counted from 0; x⁰ public and common, α = 0; η_t = penalty · min(growth^⌊t/2⌋, limit), fixed in advance; θ =
penalty:
    even t   x ← argmin f_i(v) + ⟨α + b, v⟩ + η_t Σ_j ‖v − ½(x_i + x_j)‖² + Φ/2 ‖v‖²,  broadcast
             α ← α + θ (|V_i| x_i − Σ_j x_j)
    odd t    x ← x − [(θ − η_t)|V_i| x − (θ + η_t) Σ_j x_j + η_t (|V_i| x' + Σ_j x'_j)] / (2η_t|V_i| + γ),  broadcast
    answer   the average of x over the agent and its neighbours, over the last `tail` of the rounds
x' are the values before round t − 1. With growth = 1 this is `r-admm`; what a growing penalty does: see `m-admm`.

**Sensitivity.** Even rounds: one record moves the gradient by at most G = 2V·unit and the determinant of the Hessian by
a factor of at most 1 + κ, κ = c₁·unit/(ridge + 2η_t|V_i| + Φ). Odd rounds: 0, they are functions of the transcript.

**Guarantee.** gamma: `Pure(1/noise_t)`, gaussian: `ObjectivePerturbation`, in ⌈T/2⌉ rounds. Replace-one, sizes public,
every message seen; a generalised linear model with bounded slope.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array
from pydantic import Field

from coterie.algorithms import _objective as objective
from coterie.algorithms import _recycled
from coterie.algorithms._objective import Message, draws, reveals  # noqa: F401
from coterie.algorithms._recycled import State, absorb, estimate, init, reads_data  # noqa: F401
from coterie.algorithms.base import Erratum, Needs, Place, Public
from coterie.algorithms.r_admm import ERRATA as RECYCLING
from coterie.privacy.events import Event
from coterie.problems import Shard

REFERENCE = "Zhang, Khalili, Liu (2020), Recycled ADMM, IEEE TIFS: the modified variant"
READS = "sums"


class Config(_recycled.Config):
    """Hyper-parameters."""

    growth: float = Field(1.04, ge=1, description="factor by which the penalty grows from one data round to the next")
    limit: float = Field(2.0, ge=1, description="the penalty never exceeds this multiple of its first value")


EXAMPLE = Config(penalty=0.1, noise="gamma")

ERRATA = (
    *RECYCLING,
    Erratum("experiments", "η grows geometrically without end", "then iterates freeze short of the optimum", "utility"),
)


def needs(cfg: Config) -> Needs:
    """A linear model with one sign of slope, and a solver: see `coterie.algorithms._objective`."""
    return objective.needs(cfg)


def tune(cfg: Config, public: Public) -> Config:
    """`penalty` by `_penalty.private_penalty` and `jacobian_penalty`; `noise` gaussian unless δ = 0 asks for pure."""
    return objective.fill(cfg, public, (public.rounds + 1) // 2)


def penalty_at(cfg: Config, t: Array) -> Array:
    """η_t."""
    return cfg.penalty * jnp.minimum(cfg.growth ** (t // 2), cfg.limit)


def sensitivity(cfg: Config, place: Place, t: Array) -> Array:
    """G = 2V·unit in data rounds: how far one record moves the gradient. 0 in recycled ones."""
    return jnp.where(reads_data(t), objective.gap(place), 0.0)


def emit(cfg: Config, place: Place, t: Array, state: State, shard: Shard, draw: dict) -> tuple[State, Message]:
    """Solve the tilted subproblem, or recycle its last solution."""
    return _recycled.emit(cfg, place, t, penalty_at(cfg, t), state, shard, draw)


def wire(cfg: Config, place: Place, t: Array) -> Array:
    """Scale of the noise on the point."""
    return _recycled.wire(cfg, place, t, penalty_at(cfg, t))


def cost(cfg: Config, place: Place, t: Array, message: Message | None = None) -> Event:
    """An objective perturbation in data rounds; recycled rounds are not charged."""
    return _recycled.cost(cfg, place, t, penalty_at(cfg, t))


def claim(cfg: Config, place: Place, delta: float) -> float:
    """As `r-admm`, with the data rounds' own penalties: Σ 2·unit (1.4 c₁/Λ_t + V α_t) (nan for Gaussian noise)."""
    return _recycled.claim(cfg, place, lambda t: penalty_at(cfg, t))
