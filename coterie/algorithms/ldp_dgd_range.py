r"""Locally private descent on any graph: start anywhere between the neighbours' extremes, step, add Laplace noise.

Agent i (x⁰ public and common), w ~ U(0,1)^d secret and fresh, Δ Laplace noise:
    emit     x_i ← w ⊙ lo + (1 − w) ⊙ hi − η_t ∇f_i(x_i) + Δ,   broadcast x_i
    absorb   x_j ← P(x_j);  lo, hi ← coordinate-wise min and max of x_j over the neighbours and the agent itself
    answer   x_i, or its mean over the rounds
P projects on the problem's set, if it has one.
The start of the step is uniform on an interval of public width ω = hi − lo. Steps, noise, sensitivity and
guarantee: `coterie.algorithms._ldp_dgd`; the gradient is taken at the agent's own *released* x_i. There is no
convergence theorem: the agents' mean is not preserved, and at equal worst-case privacy plain noisy descent does
better.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from coterie.algorithms import _ldp_dgd as family
from coterie.algorithms._ldp_dgd import (  # noqa: F401
    Config,
    claim,
    cost,
    draws,
    mixture,
    needs,
    scale,
    sensitivity,
    step_size,
    tune,
    wire,
)
from coterie.algorithms.base import Erratum, Inbox, Place, add
from coterie.problems import Shard

REFERENCE = "Xiao, Ye, Devadas, Local differential privacy in decentralized optimization, Alg. 2*"
LATE = "reuse"  # what neighbours sent is only compared and averaged: an old message will do
EXAMPLE = Config(step=4.0, average=False)
ERRATA = (
    *family.ERRATA,
    Erratum("(28)", "∇f_i without a coordinate", "its l-th coordinate", "typo"),
    Erratum(
        "Fig. C",
        "privacy loss far below noisy descent's",
        "in the realised loss only: in the worst case its larger steps cost more (Σ η_k β_k 18.4 against 11.2)",
        "privacy",
    ),
    Erratum("Alg. 2*", "presented beside Thm 3.4", "no convergence theorem; the mean is not preserved", "unproved"),
)


class State(eqx.Module):
    """What the agent keeps: releases and functions of them only."""

    x: Float[Array, " d"]  # own last message, in the set
    low: Float[Array, " d"]
    high: Float[Array, " d"]
    answer: Float[Array, " d"]


class Message(eqx.Module):
    """Everything that leaves."""

    x: Float[Array, " d"]


def init(cfg: Config, place: Place) -> State:
    """All agents start at the same public point."""
    return State(place.start, place.start, place.start, place.start)


def greeting(cfg: Config, place: Place) -> Message:
    """Before an agent has spoken: where all of them start."""
    return Message(place.start)


def emit(cfg: Config, place: Place, t: Array, state: State, shard: Shard, draw: dict) -> tuple[State, Message]:
    """A gradient step from a random point between the extremes, with noise on it."""
    start = state.high + draw["weight"] * (state.low - state.high)
    x = add(start - step_size(cfg, t) * shard.slope(state.x), draw["noise"], scale(cfg, place, t))
    return State(x, state.low, state.high, state.answer), Message(x)


def absorb(cfg: Config, place: Place, t: Array, state: State, inbox: Inbox) -> State:
    """The extremes of the neighbourhood, coordinate by coordinate."""
    x = place.project(state.x)
    low = jnp.minimum(x, inbox.reduce(lambda m, w, e: place.project(m.x), "min"))
    high = jnp.maximum(x, inbox.reduce(lambda m, w, e: place.project(m.x), "max"))
    answer = state.answer + (x - state.answer) / (t + 1) if cfg.average else x
    return State(x, low, high, answer)


def width(cfg: Config, place: Place, state: State) -> Float[Array, " d"]:
    """ω: widths of the intervals from which the next message's start is drawn; public."""
    return state.high - state.low


def estimate(cfg: Config, place: Place, state: State) -> Float[Array, " d"]:
    """The agent's last release, or the mean of all."""
    return state.answer
