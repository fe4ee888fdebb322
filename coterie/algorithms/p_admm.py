r"""P-ADMM: local solves, Gaussian noise of geometrically falling variance on what is sent.

`pr-admm` without its threshold and with the decay built in: round k of K has noise std
    σ_k = multiplier · schedule_k · R^{(k−K)/2} · Δ,  so σ²_{k+1} = R σ²_k under a uniform schedule
The update, Δ = 2 V unit (1 − q^K)/Λ, its proof and the guarantee (μ² = Σ (Δ/σ_k)², exact) are those of `pr-admm`.
Where the iteration contracts by c each round, R = c makes the last iterate's error least: minimise Σ c^{2(K−k)} σ_k²
at fixed Σ 1/σ_k².
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from pydantic import Field

from coterie.algorithms import pr_admm
from coterie.algorithms.base import Auto, Erratum, Inbox, Place, Public
from coterie.algorithms.pr_admm import Message, State, Stepping, convergent, draws, estimate, init, needs, sensitivity
from coterie.privacy.events import Event
from coterie.privacy.rdp import zcdp_epsilon
from coterie.problems import Shard

__all__ = ["Config", "Message", "State", "convergent", "draws", "emit", "estimate", "init", "needs", "sensitivity"]

REFERENCE = "Ding, Gong, Pan, Han (2019), arXiv 1901.02094, P-ADMM"
READS = "sums"


class Config(Stepping):
    """Hyper-parameters."""

    decay: Auto = Field(None, gt=0, le=1, description="R, factor of the variance per round; None: see `tune`")


EXAMPLE = Config(penalty=0.1, decay=0.925, steps=40)

ERRATA = (
    Erratum("sensitivity lemma", "Δ = V/(η|V_i|)", "Δ = (2V/n)/(ridge + 2η|V_i|); n times smaller", "loose"),
    Erratum("algorithm", "the minimiser is exact", "a solver may stop early: K public steps instead", "privacy"),
    Erratum("total", "ε = ρ + 2√(ρ ln 1/δ)", "the exact Gaussian curve: 16–48 % less ε", "loose"),
)


def tune(cfg: Config, public: Public) -> Config:
    """`penalty`, `steps` as in `pr-admm`; R = 2η|V|/Λ, the contraction of the direction that only ridge moves."""
    cfg = pr_admm.fill(cfg, public)
    if cfg.decay is None:
        pull = 2 * cfg.penalty * public.degree_max
        cfg = cfg.replace(decay=pull / (pull + public.ridge))
    return cfg


def emit(cfg: Config, place: Place, t: Array, state: State, shard: Shard, draw: dict) -> tuple[State, Message]:
    """Step towards the subproblem's minimiser and send the point with noise on it."""
    return pr_admm.emit(cfg, _decayed(cfg, place), t, state, shard, draw)


def absorb(cfg: Config, place: Place, t: Array, state: State, inbox: Inbox) -> State:
    """Move the dual by the disagreement, renew the answer."""
    return pr_admm.listen(cfg, place, t, state, inbox.total.x)


def sigma(cfg: Config, place: Place, t: Array) -> Array:
    """Noise std of round t."""
    return pr_admm.sigma(cfg, _decayed(cfg, place), t)


wire = sigma  # a deployed message travels on the grid of its noise


def cost(cfg: Config, place: Place, t: Array, message: Message | None = None) -> Event:
    """A Gaussian release."""
    return pr_admm.cost(cfg, _decayed(cfg, place), t, message)


def claim(cfg: Config, place: Place, delta: float) -> float:
    """The paper's ε: ρ₁ (R^{−K} − 1)/(R^{−1} − 1) with the printed Δ, by ρ + 2√(ρ ln 1/δ)."""
    return zcdp_epsilon(float(np.sum(pr_admm.printed_rho(cfg, _decayed(cfg, place)))), delta)


def _decayed(cfg: Config, place: Place) -> Place:
    """The place with R^{(k−K)/2} in its schedule (1 in the last round, so that long runs keep the multiplier small)."""
    to_go = jnp.arange(place.rounds - 1, -1, -1)
    return eqx.tree_at(lambda p: p.shape, place, place.shape * cfg.decay ** (-to_go / 2))
