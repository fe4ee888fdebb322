r"""Decentralized stochastic gradient descent: `dgd` on a random batch of each agent's records. Not private.

    emit     broadcast x_i; keep γ_t · (batch mean of ∇loss(x_i), scaled to f_i, plus ridge)
    absorb   x_i ← P(Σ_j w_ij x_j − γ_t g_i),   γ_t = step / (1 + t/hold)^decay
Batches are drawn with replacement. With W = 11ᵀ/N and equal starts the mean follows centralised SGD.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float
from pydantic import Field

from coterie.algorithms._sampling import speed
from coterie.algorithms.base import Auto, Inbox, Law, Needs, Place, Public, Uniform
from coterie.algorithms.base import Config as BaseConfig
from coterie.privacy.events import Event, NonPrivate
from coterie.problems import Shard

REFERENCE = "Lian et al. (2017), D-PSGD; Ding dissertation (2022) ch. 4, baseline DSGD"
READS = "sums"
LATE = "reuse"  # averaging tolerates an old message of a late neighbour


class Config(BaseConfig):
    """Hyper-parameters."""

    step: Auto = Field(None, gt=0, description="first step size; None: 1 / (smoothness + ridge), .2 for networks")
    decay: float = Field(0.0, ge=0, le=1, description="γ_t = step / (1 + t/hold)^decay")
    hold: float = Field(1.0, gt=0, description="rounds before the step size starts to fall")
    batch: int = Field(20, ge=1, description="records per party and round")
    link: float = Field(3.0, ge=0, description="T_c: virtual seconds that a message of 16-bit numbers takes")


EXAMPLE = Config(step=0.5, batch=8)


class State(eqx.Module):
    """What the agent keeps."""

    x: Float[Array, " d"]
    move: Float[Array, " d"]


class Message(eqx.Module):
    """Everything that leaves."""

    x: Float[Array, " d"]


def needs(cfg: Config) -> Needs:
    """Nothing: it makes no promise. P projects on the problem's set, if it has one."""
    return Needs(projects=True)


def tune(cfg: Config, public: Public) -> Config:
    """As `dgd` where the loss has a curvature bound, else the dissertation's .2."""
    if cfg.step is not None:
        return cfg
    bounded = public.smoothness < float("inf")
    return cfg.replace(step=1 / (public.smoothness + public.ridge) if bounded else 0.2)


def init(cfg: Config, place: Place) -> State:
    """All agents start at the same public point."""
    return State(place.start, jnp.zeros_like(place.start))


def greeting(cfg: Config, place: Place) -> Message:
    """Until an agent speaks it stands at the public start."""
    return Message(place.start)


def draws(cfg: Config, place: Place) -> dict[str, Law]:
    """Which records the batch holds, and how fast the machine is this round."""
    return {"batch": Uniform(cfg.batch), "speed": Uniform()}


def emit(cfg: Config, place: Place, t: Array, state: State, shard: Shard, draw: dict) -> tuple[State, Message]:
    """Send the current point; compute the step to take from it."""
    rows = jnp.minimum(draw["batch"] * place.count, place.count - 1).astype(jnp.int32)
    data = shard.gradient(state.x, rows=rows) * (place.unit * place.count / cfg.batch)
    rate = cfg.step / (1 + t / cfg.hold) ** cfg.decay
    return State(state.x, rate * (data + place.ridge * state.x)), Message(state.x)


def absorb(cfg: Config, place: Place, t: Array, state: State, inbox: Inbox) -> State:
    """Average with the neighbours, then step."""
    mixed = place.self_weight * state.x + inbox.mixed.x
    return State(place.project(mixed - state.move), state.move)


def duration(cfg: Config, place: Place, t: Array, draw: dict) -> Array:
    """B/V + T_c virtual seconds: every agent finishes its batch, and the slowest decides."""
    return cfg.batch / speed(draw["speed"]) + cfg.link


def estimate(cfg: Config, place: Place, state: State) -> Float[Array, " d"]:
    """The agent's point."""
    return state.x


def cost(cfg: Config, place: Place, t: Array, message: Message | None = None) -> Event:
    """No privacy at all."""
    return NonPrivate()
