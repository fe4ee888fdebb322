r"""Decentralized ADMM: exact local solves, duals on the edges. Not private; the reference of its family.

Agent i with degree n_i (x⁰ public and common, α = 0):
    emit     x ← argmin f_i(v) + ⟨α, v⟩ + η Σ_j ‖v − ½(x_i + x_j)‖²,  broadcast x
    absorb   α ← α + η (n_i x_i − Σ_j x_j)
Σ_i α_i = 0 throughout, and fixed points are consensus at the optimum of Σ f_i.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float
from pydantic import Field

from coterie.algorithms.base import Auto, Inbox, Law, Needs, Place, Public
from coterie.algorithms.base import Config as BaseConfig
from coterie.privacy.events import Event, NonPrivate
from coterie.problems import Shard, Solver

REFERENCE = "Shi, Ling, Yuan, Wu, Yin (2014), decentralized consensus ADMM; the base of Zhang-Zhu and Ding et al."
READS = "sums"


class Config(BaseConfig):
    """Hyper-parameters."""

    penalty: Auto = Field(None, gt=0, description="η; None: √(ridge · smoothness) / largest degree")
    tolerance: float = Field(1e-8, gt=0, description="gradient norm at which the solver stops")


EXAMPLE = Config(penalty=0.1)


class State(eqx.Module):
    """What the agent keeps."""

    x: Float[Array, " d"]
    dual: Float[Array, " d"]
    near: Float[Array, " d"]  # sum of the neighbours' last messages
    solver: Solver


class Message(eqx.Module):
    """Everything that leaves."""

    x: Float[Array, " d"]


def needs(cfg: Config) -> Needs:
    """It proves nothing, so it asks for nothing; a loss without bounds is solved as well as possible."""
    return Needs(solver=True, projects=True)


def tune(cfg: Config, public: Public) -> Config:
    """η balances the slowest direction (ridge) against the fastest (smoothness): their geometric mean."""
    if cfg.penalty is not None:
        return cfg
    return cfg.replace(penalty=(max(public.ridge, 1e-4) * public.smoothness) ** 0.5 / public.degree_max)


def init(cfg: Config, place: Place) -> State:
    """All agents start at the same public point."""
    return State(place.start, jnp.zeros_like(place.start), place.degree * place.start, place.solver())


def draws(cfg: Config, place: Place) -> dict[str, Law]:
    """None: the algorithm is deterministic."""
    return {}


def emit(cfg: Config, place: Place, t: Array, state: State, shard: Shard, draw: dict) -> tuple[State, Message]:
    """Solve the agent's subproblem exactly and send the answer."""
    linear = state.dual - cfg.penalty * (place.degree * state.x + state.near)
    x, solver = shard.argmin(linear, 2 * cfg.penalty * place.degree, state.solver, cfg.tolerance)
    return State(x, state.dual, state.near, solver), Message(x)


def absorb(cfg: Config, place: Place, t: Array, state: State, inbox: Inbox) -> State:
    """Move the dual by the disagreement with the neighbours."""
    near = inbox.total.x
    return State(state.x, state.dual + cfg.penalty * (place.degree * state.x - near), near, state.solver)


def estimate(cfg: Config, place: Place, state: State) -> Float[Array, " d"]:
    """The agent's last point."""
    return state.x


def cost(cfg: Config, place: Place, t: Array, message: Message | None = None) -> Event:
    """No privacy at all."""
    return NonPrivate()
