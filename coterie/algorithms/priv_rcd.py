r"""Private coordinate descent on a complete graph: one public coordinate a round, one noisy number per message.

Rounds come in epochs of d; an epoch takes every coordinate once, in an order drawn from `public_seed`. With l the
round's coordinate and x̄ the common point:
    emit     v_i ← x̄[l] − η ∂_l f_i(x̄) + N(0, σ²),   broadcast v_i
    absorb   x̄[l] ← mean of all v_j, cut to the set's interval in l if the problem has a set: it must be a box
    answer   x̄

**Sensitivity.** x̄ is public. Let b_l bound how much replacing u by u' moves η ∂_l f_i at any point. A GLM record's
gradient is a slope in [−V/‖u‖, V/‖u‖] times u, so b_l ≤ η unit V (|u_l|/‖u‖ + |u'_l|/‖u'‖); for mean estimation b_l
= η unit |u_l − u'_l|. Either way Σ_l b_l² ≤ Δ² with Δ = η · 2 V unit, although every b_l alone may be as large as
Δ.

**Guarantee.** For any two neighbouring data sets the b_l are fixed, so an epoch costs at most one Gaussian release
of sensitivity Δ, however x̄ moves in between: μ² = ⌈K/d⌉ Δ²/σ² over K rounds, against K Δ²/σ² round by round. It is
charged when the epoch begins. Replace-one, sizes public, every message seen. This needs the gradient's direction
not to depend on the point (GLMs with one score, mean estimation): other problems are refused.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from pydantic import Field

from coterie.algorithms.base import Auto, Erratum, Inbox, Law, Needs, Normal, Place, Public, add
from coterie.algorithms.base import Config as BaseConfig
from coterie.privacy.events import Event, Gaussian
from coterie.problems import Shard

REFERENCE = "Xiao, Ye, Devadas, Local differential privacy in decentralized optimization, App. K, (72)"
READS = "total"
GRAPHS = ("complete",)
PREPAYS = True  # an epoch is charged when it begins


class Config(BaseConfig):
    """Hyper-parameters."""

    step: Auto = Field(None, gt=0, description="η = 1/M̂, M̂ a bound on ∂²f_i/∂x_l²; None: 1 / (smoothness + ridge)")
    public_seed: int = Field(0, ge=0, description="from which all parties draw the same order of coordinates; public")


EXAMPLE = Config(step=3.0)

ERRATA = (
    Erratum(
        "App. K, σ²",
        "(1 + a)(B^c)² K/(ε² M̂² d): no ln(1/δ)",
        "that is μ ≈ ε, hence δ ≈ .13 at ε = 1; σ = (B^c/M̂)√(K/d)/μ with μ of (ε, δ)",
        "privacy",
    ),
    Erratum(
        "App. K", "independent indices, a Chernoff factor 1 + a", "permutation epochs: exactly K/d visits", "loose"
    ),
    Erratum(
        "(73), step (a)",
        "coordinate Lipschitz constant C_1/d in expectation",
        "not justified; by smoothness a step's noise costs M̂σ²/2 in expectation",
        "unproved",
    ),
)


class State(eqx.Module):
    """What the agent keeps: releases and functions of them only."""

    x: Float[Array, " d"]  # x̄
    sent: Float[Array, ""]  # own last message


class Message(eqx.Module):
    """Everything that leaves: the new value of the round's coordinate."""

    v: Float[Array, ""]


def needs(cfg: Config) -> Needs:
    """Bounded gradients that keep their direction: the coordinates of an epoch share one bound."""
    return Needs(bounded=True, directed=True, projects=True, separable=True)


def tune(cfg: Config, public: Public) -> Config:
    """The largest step that never overshoots a record's curvature bound."""
    return cfg if cfg.step is not None else cfg.replace(step=1 / (public.smoothness + public.ridge))


def suggest_rounds(public: Public) -> int:
    """Twenty whole epochs: one that is begun is charged in full."""
    return 20 * public.dim


def coordinates(cfg: Config, place: Place) -> Int[np.ndarray, " rounds"]:
    """The coordinate of every round: epochs of d, each a fresh permutation."""
    rng = np.random.default_rng(cfg.public_seed)
    epochs = -(-place.rounds // place.dim)
    order = np.concatenate([rng.permutation(place.dim) for _ in range(epochs)])
    return order[: place.rounds].astype(np.int32)


def init(cfg: Config, place: Place) -> State:
    """All agents start at the same public point."""
    return State(place.start, jnp.zeros((), place.start.dtype))


def draws(cfg: Config, place: Place) -> dict[str, Law]:
    """One standard normal number."""
    return {"noise": Normal()}


def sensitivity(cfg: Config, place: Place, t: Array) -> Array:
    """Δ = η · 2 V unit: bounds one message, and the root of the squares over an epoch."""
    return cfg.step * 2 * place.lipschitz * place.unit


def sigma(cfg: Config, place: Place, t: Array) -> Array:
    """Noise std of round t: that of the round in which its epoch began."""
    return place.noise_at(t - t % place.dim) * sensitivity(cfg, place, t)


wire = sigma  # a deployed message travels on the grid of its noise


def emit(cfg: Config, place: Place, t: Array, state: State, shard: Shard, draw: dict) -> tuple[State, Message]:
    """The round's coordinate after a step along it, with noise on it."""
    l = jnp.asarray(coordinates(cfg, place))[t]
    v = add(state.x[l] - cfg.step * shard.slope(state.x)[l], draw["noise"], sigma(cfg, place, t))
    return State(state.x, v), Message(v)


def absorb(cfg: Config, place: Place, t: Array, state: State, inbox: Inbox) -> State:
    """Everybody's mean goes into the coordinate."""
    l = jnp.asarray(coordinates(cfg, place))[t]
    x = state.x.at[l].set((state.sent + inbox.total.v) / (1 + place.degree))
    return State(place.project(x), state.sent)


def estimate(cfg: Config, place: Place, state: State) -> Float[Array, " d"]:
    """x̄."""
    return state.x


def cost(cfg: Config, place: Place, t: Array, message: Message | None = None) -> Event:
    """One Gaussian release for each epoch, charged in its first round."""
    return Gaussian(sensitivity(cfg, place, t), sigma(cfg, place, t), times=1 * (t % place.dim == 0))


def claim(cfg: Config, place: Place, delta: float) -> float:
    """The paper's ε = (B^c/M̂σ)√(K/d), its Chernoff factor left out: δ does not enter."""
    start = np.arange(0, place.rounds, place.dim)
    with np.errstate(divide="ignore"):
        return float(np.sqrt(np.sum(1 / (float(place.noise) * np.asarray(place.shape, float)[start]) ** 2)))
