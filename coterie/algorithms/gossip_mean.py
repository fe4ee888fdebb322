r"""Means by gossip: every party's mean leaves once with noise, and is averaged with fresh noise in every round.

With w_i = unit Σ_r v_r the weighted sum of party i's records (`mean` loss: the point is their mean):
    emit     round 0:  y_i = w_i + N(0, σ² I);   later:  y_i = x_i + N(0, (again σ)² I)
    absorb   x_i ← Σ_j w_ij y_j
    answer   x_i/(1 + ridge)
What a party adds in a later round depends on nothing but messages.

**Sensitivity**, replace-one: one record moves w_i by at most Δ = 2 V unit, 2V the bound on the distance of two records.
**Guarantee**: one Gaussian event, μ = Δ/σ, against a reader of every message; later rounds are functions of messages
with more noise, so they cost nothing. Inputs do not react to what is heard, so a single observer's view is linear in
the noise and its μ is exact (`observed`): with `again` > 0 parties far from it are hidden by the noise on the way; with
again = 0 most observers solve for everybody's first message, and learn as much as a reader of all.
"""

from __future__ import annotations

import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from pydantic import Field

from coterie.algorithms.base import Config as BaseConfig
from coterie.algorithms.base import Erratum, Inbox, Law, Needs, Normal, Place, Public, add
from coterie.graphs import Graph
from coterie.privacy.events import Event, Gaussian
from coterie.privacy.observers import NEIGHBOURS, linear, view
from coterie.problems import Problem, Shard

REFERENCE = (
    "Xiao and Boyd (2004) on noisy means, as in Cyffers et al. (2022), Muffliato; fresh noise and account are ours"
)
RIDGE = 0.0
ERRATA = (
    Erratum(
        "Cyffers et al. (NeurIPS 2022), privacy of gossip",
        "share of the local loss: Σ over messages of (Wᵗ)_uw²/‖(Wᵗ)_w‖²",
        "messages share their noise, and the sum treats them as independent. Ring of 16, noise once, 5 rounds, 5 hops: "
        ".0009 printed, 1 is true, since the observer solves for the first messages",
        "privacy",
    ),
    Erratum(
        "its correction, Σ (Wᵗ)_uw/‖(Wᵗ)_w‖² (as in the code of Bellet et al. 2026)",
        ".073 of the local loss at the same place",
        "1 with noise once; with fresh noise in every round it is above the exact value wherever we looked",
        "privacy",
    ),
    Erratum(
        "Bellet et al. (ICLR 2026, arXiv 2510.17480), learning",
        "μ² = Δ²/σ² times a sum over CᵀB⁺BC, with gradients as inputs: ε = 1.20 on the path v – a – u, two rounds",
        "gradients of others react to what they hear: ε ≥ 3.9 at 99 % with an honest a that is not convex; with convex "
        "losses and steps up to 2/L its μ² is exceeded by 28 %. True for inputs that do not react",
        "privacy",
    ),
    Erratum(
        "Li et al. (NeurIPS 2025), random walks",
        "μ = Δ/(σ√t) after t steps, in the released code also for a neural network (contraction c = 1)",
        "proved where every step is non-expansive; after a step x ↦ 9x it is .994 Δ/σ, not .707, at t = 2",
        "unproved",
    ),
)


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


def emit(cfg: Config, place: Place, t: Array, state: State, shard: Shard, draw: dict) -> tuple[State, Message]:
    """The party's own mean with noise; later what is under way, with more."""
    own = place.unit * (place.count * place.start - shard.gradient(place.start))
    scale = _first(cfg, place) * jnp.where(t == 0, 1.0, cfg.again)
    y = add(jnp.where(t == 0, own, state.x), draw["noise"], scale)
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


def observed(
    cfg: Config, places: Place, problem: Problem, graph: Graph, weights: np.ndarray, observers: tuple[int, ...]
) -> tuple[str, np.ndarray]:
    """μ of everybody against these observers: exact, since nothing that is sent reacts to a record but the first."""
    shift = np.broadcast_to(np.asarray(sensitivity(cfg, places, jnp.zeros((), int)), float), (places.agents,))
    scale = np.tile((np.asarray(places.noise, float) * shift)[:, None], places.rounds)
    scale[:, 1:] *= float(cfg.again)
    return NEIGHBOURS, linear(view(weights, observers), shift, scale)
