r"""R-ADMM (Zhang, Khalili, Liu): ADMM with a tilted objective that looks at the data every second round only.

Rounds counted from 0; x⁰ public and common, α = 0:
    even t   x ← argmin f_i(v) + ⟨α + b, v⟩ + η Σ_j ‖v − ½(x_i + x_j)‖² + Φ/2 ‖v‖²,  broadcast
             α ← α + η (|V_i| x_i − Σ_j x_j)
    odd t    x ← x + η (2 Σ_j x_j − |V_i| x' − Σ_j x'_j) / (2η|V_i| + γ),  broadcast   (x': values before round t − 1)
    answer   the average of x over the agent and its neighbours, over the last `tail` of the rounds
The odd step linearises f_i at x with the noisy gradient that the even step's optimality condition already revealed
(`coterie.algorithms._recycled`). T rounds come about as far as T rounds of ADMM with half the uses of the data.

**Sensitivity.** Even rounds: one record moves the gradient by at most G = 2V·unit and the determinant of the Hessian by
a factor of at most 1 + κ, κ = c₁·unit/(ridge + 2η|V_i| + Φ). Odd rounds: 0, they are functions of the transcript.

**Guarantee.** gamma: `Pure(1/noise_t)`, gaussian: `ObjectivePerturbation`, in ⌈T/2⌉ rounds. Replace-one, sizes public,
every message seen; a generalised linear model with bounded slope.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array

from coterie.algorithms import _objective as objective
from coterie.algorithms import _recycled
from coterie.algorithms._objective import Message, draws, reveals  # noqa: F401
from coterie.algorithms._recycled import State, absorb, estimate, init, reads_data  # noqa: F401
from coterie.algorithms.base import Erratum, Needs, Place, Public
from coterie.privacy.events import Event
from coterie.problems import Shard

REFERENCE = "Zhang, Khalili, Liu (2018), Recycled ADMM: Improve Privacy and Accuracy with Less Computation"
READS = "sums"


class Config(_recycled.Config):
    """Hyper-parameters."""


EXAMPLE = Config(penalty=0.1, noise="gamma")

ERRATA = (
    Erratum(
        "privacy theorem",
        "determinant ratio charged as 2.8 c₁ C/(B(ρ/N + 2η|V_i|)), under a condition on η",
        "ln(1 + κ), at least 2.8 times smaller, without a condition",
        "loose",
    ),
)


def needs(cfg: Config) -> Needs:
    """A linear model with one sign of slope, and a solver: see `coterie.algorithms._objective`."""
    return objective.needs(cfg)


def tune(cfg: Config, public: Public) -> Config:
    """`penalty` by `_penalty.private_penalty` and `jacobian_penalty`; `noise` gaussian unless δ = 0 asks for pure."""
    return objective.fill(cfg, public, (public.rounds + 1) // 2)


def sensitivity(cfg: Config, place: Place, t: Array) -> Array:
    """G = 2V·unit in data rounds: how far one record moves the gradient. 0 in recycled ones."""
    return jnp.where(reads_data(t), objective.gap(place), 0.0)


def emit(cfg: Config, place: Place, t: Array, state: State, shard: Shard, draw: dict) -> tuple[State, Message]:
    """Solve the tilted subproblem, or recycle its last solution."""
    return _recycled.emit(cfg, place, t, cfg.penalty, state, shard, draw)


def wire(cfg: Config, place: Place, t: Array) -> Array:
    """Scale of the noise on the point."""
    return _recycled.wire(cfg, place, t, cfg.penalty)


def cost(cfg: Config, place: Place, t: Array, message: Message | None = None) -> Event:
    """An objective perturbation in data rounds; recycled rounds are not charged."""
    return _recycled.cost(cfg, place, t, cfg.penalty)


def claim(cfg: Config, place: Place, delta: float) -> float:
    """The paper's pure total Σ 2·unit (1.4 c₁/Λ + V α_t) over data rounds, α_t the rate of b (nan if Gaussian)."""
    return _recycled.claim(cfg, place, lambda t: jnp.asarray(cfg.penalty))
