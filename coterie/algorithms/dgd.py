r"""Decentralized gradient descent: mix with the neighbours, step along the own gradient. Not private.

    emit     broadcast x_i; keep γ_t ∇f_i(x_i)
    absorb   x_i ← P(Σ_j w_ij x_j − γ_t ∇f_i(x_i)),   γ_t = step / (1 + t)^decay
With a constant step the agents stop within O(step) of the optimum; a decaying one removes that floor.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float
from pydantic import Field

from coterie.algorithms.base import Auto, Inbox, Law, Needs, Place, Public
from coterie.algorithms.base import Config as BaseConfig
from coterie.privacy.events import Event, NonPrivate
from coterie.problems import Shard

REFERENCE = "Nedić, Ozdaglar (2009), distributed subgradient methods"
READS = "sums"
LATE = "reuse"  # averaging tolerates an old message of a late neighbour


class Config(BaseConfig):
    """Hyper-parameters."""

    step: Auto = Field(None, gt=0, description="first step size; None: 1 / (smoothness + ridge)")
    decay: float = Field(0.0, ge=0, le=1, description="γ_t = step / (1 + t)^decay")


EXAMPLE = Config(step=1.0)


class State(eqx.Module):
    """What the agent keeps."""

    x: Float[Array, " d"]
    move: Float[Array, " d"]  # γ_t ∇f_i(x), taken when the neighbours have answered


class Message(eqx.Module):
    """Everything that leaves."""

    x: Float[Array, " d"]


def needs(cfg: Config) -> Needs:
    """Nothing: it makes no promise. P projects on the problem's set, if it has one."""
    return Needs(projects=True)


def tune(cfg: Config, public: Public) -> Config:
    """The largest step that never overshoots a record's curvature bound."""
    return cfg if cfg.step is not None else cfg.replace(step=1 / (public.smoothness + public.ridge))


def init(cfg: Config, place: Place) -> State:
    """All agents start at the same public point."""
    return State(place.start, jnp.zeros_like(place.start))


def greeting(cfg: Config, place: Place) -> Message:
    """Until an agent speaks it stands at the public start."""
    return Message(place.start)


def draws(cfg: Config, place: Place) -> dict[str, Law]:
    """None: the algorithm is deterministic."""
    return {}


def emit(cfg: Config, place: Place, t: Array, state: State, shard: Shard, draw: dict) -> tuple[State, Message]:
    """Send the current point; compute the step to take from it."""
    slope = place.unit * shard.gradient(state.x) + place.ridge * state.x
    return State(state.x, cfg.step / (1 + t) ** cfg.decay * slope), Message(state.x)


def absorb(cfg: Config, place: Place, t: Array, state: State, inbox: Inbox) -> State:
    """Average with the neighbours, then step."""
    mixed = place.self_weight * state.x + inbox.mixed.x
    return State(place.project(mixed - state.move), state.move)


def estimate(cfg: Config, place: Place, state: State) -> Float[Array, " d"]:
    """The agent's point."""
    return state.x


def cost(cfg: Config, place: Place, t: Array, message: Message | None = None) -> Event:
    """No privacy at all."""
    return NonPrivate()
