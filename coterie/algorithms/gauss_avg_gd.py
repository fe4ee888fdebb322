r"""Private averaged descent on a complete graph: everybody steps from the common average, with Gaussian noise.

Agent i (x⁰ public and common):
    emit     x_i ← x̄ − η ∇f_i(x̄) + N(0, σ²I),   broadcast x_i
    absorb   x̄ ← P(mean of all x_j),  P the projection on the problem's set, if it has one
    answer   x̄
so x̄ follows gradient descent on (1/N) Σ f_i with noise of std σ/√N.

**Sensitivity.** x̄ is public; one record moves the step by at most Δ = η · 2 V unit in L2 (V: `lipschitz`).

**Guarantee.** Gaussian with μ = √K Δ/σ over K rounds, exactly; replace-one, sizes public, every message seen.

With η = 1/M, M = smoothness + ridge, x̄ contracts by 1 − m/M a round where f_i is m-strongly convex: K ≈ (M/m)
ln(1/error). For a GLM with |loss'| ≤ V and records of norm ≤ 1 a round's noise costs at most V σ/√N in each f_i
whatever d is.
"""

from __future__ import annotations

import equinox as eqx
from jaxtyping import Array, Float
from pydantic import Field

from coterie.algorithms.base import Auto, Erratum, Inbox, Law, Needs, Normal, Place, Public, add
from coterie.algorithms.base import Config as BaseConfig
from coterie.privacy.events import Event, Gaussian
from coterie.problems import Shard

REFERENCE = "Xiao, Ye, Devadas, Local differential privacy in decentralized optimization, Thm 4.1, 4.2, App. J"
READS = "total"
GRAPHS = ("complete",)

LATE = "reuse"  # averaging tolerates an old message of a late neighbour
FRESH = True  # so that the noise of a round may be chosen by what was sent before


class Config(BaseConfig):
    """Hyper-parameters."""

    step: Auto = Field(None, gt=0, description="η; None: 1 / (smoothness + ridge)")


EXAMPLE = Config(step=3.0)

ERRATA = (
    Erratum("Thm 4.1, 4.2", "noise cost σ per round in Õ", "σ/√N: all agents' noise is averaged", "loose"),
    Erratum(
        "Thm 4.1", "φ strongly convex in its score", "f_i itself must be: a GLM in d > n needs a ridge", "unproved"
    ),
    Erratum(
        "Thm 4.1, 4.2",
        "utility loss independent of d, m-strongly convex",
        "noise costs at least m d σ²/(2N); a GLM has m ≤ M C₂²/d, so m^{−3/2} hides d^{3/2}. The loss without a "
        "ridge is free of d",
        "utility",
    ),
)


class State(eqx.Module):
    """What the agent keeps: releases and functions of them only."""

    x: Float[Array, " d"]  # own last message
    mean: Float[Array, " d"]


class Message(eqx.Module):
    """Everything that leaves."""

    x: Float[Array, " d"]


def needs(cfg: Config) -> Needs:
    """Gradients are not clipped: they need a bound. The mean is projected on the problem's set."""
    return Needs(bounded=True, projects=True)


def tune(cfg: Config, public: Public) -> Config:
    """The largest step that never overshoots a record's curvature bound."""
    return cfg if cfg.step is not None else cfg.replace(step=1 / (public.smoothness + public.ridge))


def init(cfg: Config, place: Place) -> State:
    """All agents start at the same public point."""
    return State(place.start, place.start)


def greeting(cfg: Config, place: Place) -> Message:
    """Until an agent speaks it stands at the public start."""
    return Message(place.start)


def draws(cfg: Config, place: Place) -> dict[str, Law]:
    """One standard normal vector."""
    return {"noise": Normal(place.dim)}


def sensitivity(cfg: Config, place: Place, t: Array) -> Array:
    """Δ = η · 2 V unit."""
    return cfg.step * 2 * place.lipschitz * place.unit


def sigma(cfg: Config, place: Place, t: Array) -> Array:
    """Noise std of round t."""
    return place.noise_at(t) * sensitivity(cfg, place, t)


wire = sigma  # a deployed message travels on the grid of its noise


def emit(cfg: Config, place: Place, t: Array, state: State, shard: Shard, draw: dict) -> tuple[State, Message]:
    """A gradient step from the public average, with noise on it."""
    x = add(state.mean - cfg.step * shard.slope(state.mean), draw["noise"], sigma(cfg, place, t))
    return State(x, state.mean), Message(x)


def absorb(cfg: Config, place: Place, t: Array, state: State, inbox: Inbox) -> State:
    """Everybody's mean."""
    return State(state.x, place.project((state.x + inbox.total.x) / (1 + place.degree)))


def estimate(cfg: Config, place: Place, state: State) -> Float[Array, " d"]:
    """x̄."""
    return state.mean


def cost(cfg: Config, place: Place, t: Array, message: Message | None = None) -> Event:
    """A Gaussian release."""
    return Gaussian(sensitivity(cfg, place, t), sigma(cfg, place, t))
