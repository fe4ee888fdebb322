"""Noisy decentralized gradient descent, the algorithm of `benchmarks.engine`: a fixed noise level and no calibration.

emit     y_i = x_i − γ ∇f_i(x_i) + σ ξ_i,  broadcast y_i
absorb   x_i ← Σ_j w_ij y_j
"""

from __future__ import annotations

import equinox as eqx
from jaxtyping import Array, Float

from coterie.algorithms.base import Config as BaseConfig
from coterie.algorithms.base import Inbox, Law, Needs, Normal, Place, add
from coterie.privacy.events import Event, Gaussian
from coterie.problems import Shard


class Config(BaseConfig):
    step: float = 0.5
    sigma: float = 0.01
    clip: float | None = None


EXAMPLE = Config()


class State(eqx.Module):
    x: Float[Array, " d"]


class Message(eqx.Module):
    y: Float[Array, " d"]


def needs(cfg: Config) -> Needs:
    """Nothing: it makes no promise."""
    return Needs()


def init(cfg: Config, place: Place) -> State:
    return State(place.start)


def draws(cfg: Config, place: Place) -> dict[str, Law]:
    return {"noise": Normal(place.dim)}


def emit(cfg: Config, place: Place, t: Array, state: State, shard: Shard, draw: dict) -> tuple[State, Message]:
    slope = place.unit * shard.gradient(state.x, clip=cfg.clip) + place.ridge * state.x
    y = add(state.x - cfg.step * slope, draw["noise"], cfg.sigma)
    return State(y), Message(y)


def absorb(cfg: Config, place: Place, t: Array, state: State, inbox: Inbox) -> State:
    return State(place.self_weight * state.x + inbox.mixed.y)


def estimate(cfg: Config, place: Place, state: State) -> Float[Array, " d"]:
    return state.x


def sensitivity(cfg: Config, place: Place, t: Array) -> Array:
    return 2 * cfg.step * place.lipschitz * place.unit


def cost(cfg: Config, place: Place, t: Array, message: Message | None = None) -> Event:
    return Gaussian(sensitivity(cfg, place, t), cfg.sigma)
