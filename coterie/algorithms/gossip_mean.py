r"""Means by gossip: every party's mean leaves once with noise, and is averaged with fresh noise in every round.

With w_i = unit Σ_r v_r the weighted sum of party i's records (`mean` loss: the point is their mean):
    emit     round 0:  y_i = w_i + N(0, σ² I);   later:  y_i = x_i + N(0, (again σ)² I)
    absorb   x_i ← Σ_j w_ij y_j
    answer   x_i/(1 + ridge)
What a party adds in a later round depends on nothing but messages.

**Sensitivity**, replace-one: one record moves w_i by at most Δ = 2 V unit, 2V the bound on the distance of two records.
**Guarantee**: one Gaussian event, μ = Δ/σ, against a reader of every message; later rounds are functions of messages
with more noise, so they cost nothing. Inputs do not react to what is heard, so a single observer's view is linear in
the noise and its μ is exact (`observed`, `coterie.privacy.observers`): with `again` > 0 parties far from it are hidden by
the noise on the way; with again = 0 most observers solve for everybody's first message, and learn as much as a reader.
"""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
from pydantic import Field

from coterie.algorithms.base import Config as BaseConfig
from coterie.algorithms.base import Inbox, Law, Needs, Normal, Observed, Place, Public, add, settle
from coterie.privacy.events import Event, Gaussian
from coterie.problems import Problem, Shard

REFERENCE = (
    "Xiao and Boyd (2004) on noisy means, as in Cyffers et al. (2022), Muffliato; fresh noise and account are ours"
)
RIDGE = 0.0


class Config(BaseConfig):
    """Public numbers."""

    again: float = Field(0.5, ge=0, description="noise of every later round over that of the first one")


EXAMPLE = Config()


class State(eqx.Module):
    """What the party keeps: functions of messages alone."""

    x: Float[Array, " dim"]


class Message(eqx.Module):
    """Everything that leaves."""

    y: Float[Array, " dim"]


def needs(cfg: Config) -> Needs:
    """A loss whose answer is the mean of records, and a bound on their distance."""
    return Needs(convex=True, directed=True, bounded=True, averages=True, even=True)


def suggest_rounds(public: Public) -> int:
    """As long as averaging takes to leave a tenth of the differences, at most 50: each round adds noise."""
    gap = public.mixing_gap
    return 20 if gap is None else min(50, 1 + math.ceil(math.log(0.1) / math.log1p(-min(max(gap, 0.01), 0.99))))


def init(cfg: Config, place: Place) -> State:
    """Nothing is released yet."""
    return State(jnp.zeros_like(place.start))


def draws(cfg: Config, place: Place) -> dict[str, Law]:
    """One standard normal vector a round."""
    return {"noise": Normal(place.dim)}


def sensitivity(cfg: Config, place: Place, t: Array) -> Array:
    """Δ = 2 V unit."""
    return 2 * place.lipschitz * place.unit


def _first(cfg: Config, place: Place) -> Array:
    return place.noise * sensitivity(cfg, place, jnp.zeros((), int))


def wire(cfg: Config, place: Place, t: Any) -> Array:
    """The noise of round t, on whose grid a deployed message travels; without any later noise, that of the first."""
    return _first(cfg, place) * jnp.where((t == 0) | (cfg.again == 0), 1.0, cfg.again)


def emit(cfg: Config, place: Place, t: Array, state: State, shard: Shard, draw: dict) -> tuple[State, Message]:
    """The party's own mean with noise; later what is under way, with more."""
    noise, scale = draw["noise"], wire(cfg, place, t)

    def release() -> Array:
        return add(place.unit * (place.count * place.start - shard.gradient(place.start)), noise, scale)

    def pass_on() -> Array:
        return jnp.where(cfg.again > 0, add(state.x, noise, scale), settle(state.x, noise, scale))

    y = jax.lax.cond(t == 0, release, pass_on)
    return State(y), Message(y)


def absorb(cfg: Config, place: Place, t: Array, state: State, inbox: Inbox) -> State:
    """The weighted average with the neighbours."""
    return State(place.self_weight * state.x + inbox.mixed.y)


def estimate(cfg: Config, place: Place, state: State) -> Float[Array, " dim"]:
    """The point that the party hands out."""
    return state.x / (1 + place.ridge)


def cost(cfg: Config, place: Place, t: Array, message: Message | None = None) -> Event:
    """One Gaussian release in the first round; nothing later."""
    shift = sensitivity(cfg, place, t)
    return Gaussian(shift, _first(cfg, place), times=jnp.where(t == 0, 1.0, 0.0))


def observed(cfg: Config, places: Place, problem: Problem) -> Observed:
    """What an observer's account needs: one input, and the noise of every round."""
    shift = jnp.broadcast_to(sensitivity(cfg, places, jnp.zeros((), int)), (places.agents,))
    later = jnp.where(jnp.arange(places.rounds) == 0, 1.0, cfg.again)
    return Observed(shift, places.noise * shift, later, None)
