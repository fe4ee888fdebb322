r"""Locally private descent on a complete graph: a common average, blurred along the two agents furthest apart.

Agent i (x⁰ public and common), w ~ U(0,1)^d secret and fresh, Δ Laplace noise:
    emit     x_i ← x̄ + (2w − 1) ⊙ (x_a − x_b)/N − η_t ∇f_i(x̄) + Δ,   broadcast x_i
    absorb   x̄ ← P(mean of all x_j);   (a, b) ← argmax_{a<b} ‖x_a − x_b‖₁, ties to the smallest pair
    answer   x̄, or its mean over the rounds
P projects on the problem's set, if it has one.
x̄ and the pair are public; the start of the step is uniform on an interval of width ω_l = (2/N)|x_a[l] − x_b[l]|.
Steps, noise, sensitivity and guarantee: `coterie.algorithms._ldp_dgd`; the gradient is taken at the public x̄.
Every agent needs every other's value (no secret-shared sums), and finding the pair costs N² d per agent.
"""

from __future__ import annotations

import equinox as eqx
import jax
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

REFERENCE = "Xiao, Ye, Devadas, Local differential privacy in decentralized optimization, Alg. 2"
LATE = "reuse"  # what neighbours sent is only compared and averaged: an old message will do
GRAPHS = ("complete",)
EXAMPLE = Config(step=4.0, average=False)
ERRATA = (
    *family.ERRATA,
    Erratum("(62)", "telescoped sum", "a factor ½ is dropped: the bound of Thm 3.4 is twice too large", "loose"),
    Erratum(
        "Thm 3.4",
        "utility for K sufficiently large",
        "at a pure budget the bound grows as √K: choose K ≈ Gε/(d^{3/2} B_∞)",
        "utility",
    ),
)


class State(eqx.Module):
    """What the agent keeps: releases and functions of them only."""

    x: Float[Array, " d"]  # own last message
    mean: Float[Array, " d"]  # x̄
    gap: Float[Array, " d"]  # x_a − x_b
    answer: Float[Array, " d"]


class Message(eqx.Module):
    """Everything that leaves."""

    x: Float[Array, " d"]


def init(cfg: Config, place: Place) -> State:
    """All agents start at the same public point."""
    return State(place.start, place.start, jnp.zeros_like(place.start), place.start)


def greeting(cfg: Config, place: Place) -> Message:
    """Before an agent has spoken: where all of them start."""
    return Message(place.start)


def emit(cfg: Config, place: Place, t: Array, state: State, shard: Shard, draw: dict) -> tuple[State, Message]:
    """A gradient step from a random point near the public average, with noise on it."""
    start = state.mean + (2 * draw["weight"] - 1) * state.gap / place.agents
    x = add(start - step_size(cfg, t) * shard.slope(state.mean), draw["noise"], scale(cfg, place, t))
    return State(x, state.mean, state.gap, state.answer), Message(x)


def absorb(cfg: Config, place: Place, t: Array, state: State, inbox: Inbox) -> State:
    """Everybody's mean, and the two that are furthest apart."""
    n = place.agents
    others = jnp.where(inbox.here, inbox.senders, n)  # an empty slot points nowhere
    me = n * (n - 1) // 2 - jnp.sum(jnp.where(inbox.here, inbox.senders, 0))  # the number that no neighbour has
    everyone = jnp.zeros((n, place.dim), state.x.dtype).at[others].set(inbox.stack().x, mode="drop").at[me].set(state.x)
    mean = place.project(jnp.mean(everyone, axis=0))
    first, second = furthest(everyone)
    answer = state.answer + (mean - state.answer) / (t + 1) if cfg.average else mean
    return State(state.x, mean, everyone[first] - everyone[second], answer)


def furthest(points: Float[Array, "n d"]) -> tuple[Array, Array]:
    """The pair a < b with the largest ‖x_a − x_b‖₁; of several the smallest (a, b)."""
    n = points.shape[0]
    distance = jax.lax.map(lambda x: jnp.sum(jnp.abs(points - x), axis=1), points)
    upper = jnp.arange(n)[:, None] < jnp.arange(n)
    first, second = jnp.unravel_index(jnp.argmax(jnp.where(upper, distance, -1.0)), (n, n))
    return first, second


def width(cfg: Config, place: Place, state: State) -> Float[Array, " d"]:
    """ω: widths of the intervals from which the next message's start is drawn; public."""
    return 2 * jnp.abs(state.gap) / place.agents


def estimate(cfg: Config, place: Place, state: State) -> Float[Array, " d"]:
    """x̄, or its mean over the rounds."""
    return state.answer
