r"""ADMM with exact local solves and random or fixed penalties: Xiao et al. (12), and what they compare with.

Agent i (x⁰ public and common, λ = 0), round t, penalty D_t = (D + D' |V_i|) growthᵗ:
    emit     x ← argmin f_i(v) − ⟨λ, v⟩ + D_t/2 ‖v − w x − (1 − w) mean_j x_j‖²,  broadcast
    absorb   λ ← λ + ζ Σ_j (x_j − x_i)
w = ½ for fixed penalties Γ = |V_i|ρ = D/2 (`random` 0), w ~ U(0, 1)ᵈ for random ones (1). Noise goes on the broadcast
point (`output` 1, ref. [48]) or on the multiplier (0, refs. [42] and [43]), there times D_t so that it moves the point
as far. The noise multiplier is the scale of the Laplace noise itself. Every setting is a number, so that all variants
run in one batch. For study: nothing here is priced.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float
from pydantic import Field

from coterie.algorithms.base import Config as BaseConfig
from coterie.algorithms.base import Inbox, LaplaceLaw, Law, Needs, Place, Uniform, add
from coterie.privacy.events import Event, NonPrivate
from coterie.problems import Shard, Solver


class Config(BaseConfig):
    """Hyper-parameters."""

    inverse_step: float = Field(10.0, ge=0, description="D")
    by_degree: float = Field(0.0, ge=0, description="D', added to D for each neighbour")
    growth: float = Field(1.0, ge=1, description="factor by which the penalty grows each round")
    dual_step: float = Field(0.5, gt=0, description="ζ")
    random: float = Field(1.0, ge=0, le=1, description="1: random weights, 0: the weight ½")
    output: float = Field(1.0, ge=0, le=1, description="1: noise on the point, 0: on the multiplier")


EXAMPLE = Config()


class State(eqx.Module):
    """What the agent keeps."""

    x: Float[Array, " d"]
    dual: Float[Array, " d"]  # λ
    near: Float[Array, " d"]  # Σ_j x_j
    solver: Solver


class Message(eqx.Module):
    """Everything that leaves."""

    x: Float[Array, " d"]


def needs(cfg: Config) -> Needs:
    """It proves nothing, so it asks for nothing."""
    return Needs(solver=True)


def init(cfg: Config, place: Place) -> State:
    """All agents start at the same public point."""
    return State(place.start, jnp.zeros_like(place.start), place.degree * place.start, place.solver())


def draws(cfg: Config, place: Place) -> dict[str, Law]:
    """`weight` is w, `noise` the Laplace noise."""
    return {"weight": Uniform(place.dim), "noise": LaplaceLaw(place.dim)}


def emit(cfg: Any, place: Place, t: Array, state: State, shard: Shard, draw: dict) -> tuple[State, Message]:
    """Solve around the mixture of own point and neighbours' mean."""
    penalty = (cfg.inverse_step + cfg.by_degree * place.degree) * cfg.growth**t
    w = 0.5 + cfg.random * (draw["weight"] - 0.5)
    linear = -state.dual - penalty * (w * state.x + (1 - w) * state.near / place.degree)
    linear = add(linear, draw["noise"], (1 - cfg.output) * penalty * place.noise_at(t))
    x, solver = shard.argmin(linear, penalty, state.solver, 1e-10)
    x = add(x, draw["noise"], cfg.output * place.noise_at(t))
    return State(x, state.dual, state.near, solver), Message(x)


def absorb(cfg: Config, place: Place, t: Array, state: State, inbox: Inbox) -> State:
    """Move the dual towards the neighbours."""
    near = inbox.total.x
    return State(state.x, state.dual + cfg.dual_step * (near - place.degree * state.x), near, state.solver)


def estimate(cfg: Config, place: Place, state: State) -> Float[Array, " d"]:
    """The agent's last point."""
    return state.x


def cost(cfg: Config, place: Place, t: Array, message: Message | None = None) -> Event:
    """Not priced."""
    return NonPrivate()
