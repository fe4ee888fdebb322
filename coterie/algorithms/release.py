r"""One release: every party's sums leave once with Gaussian noise, and all that is made of their total is free.

With φ(r) the vector that the problem makes of record r (`coterie.problems.released`), n records of all N parties:
    emit     first round: x_i ← (1/n) Σ_r φ(r) + N(0, σ²I) over the party's own records; then what it holds
    absorb   x_i ← Σ_j w_ij x_j
    answer   N x_i: the mean of φ over all records with noise √N σ, and that number
On a complete graph with weights 1/N, and wherever sums are opened, one round is enough; elsewhere rounds of averaging
follow, which are functions of messages.

**Sensitivity**, replace-one: one record moves x_i by at most Δ = 2V/n in L2, 2V the problem's bound on ‖φ(r) − φ(r')‖.
**Guarantee**: one Gaussian event, μ = Δ/σ exactly, against a reader of all messages. Where only the sum of all parties
is opened, σ is a party's part of the sum's noise, and h honest parties' together pay: the sum has √(N/h) times that.
"""

from __future__ import annotations

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from pydantic import Field

from coterie.algorithms.base import Auto, Inbox, Law, Needs, Normal, Place, Public, Round, add, settle
from coterie.algorithms.base import Config as BaseConfig
from coterie.errors import InputError
from coterie.graphs import Graph
from coterie.privacy.events import Event, Gaussian
from coterie.privacy.observers import NEIGHBOURS, linear, view
from coterie.problems import Problem, Shard

REFERENCE = "Dwork, McSherry, Nissim, Smith (2006), with Gaussian noise; averaging as in Xiao and Boyd (2004)"
READS = "total"


class Config(BaseConfig):
    """Public numbers."""

    records: Auto = Field(None, gt=0, description="records of all parties together; None: as the plan or the data say")


EXAMPLE = Config(records=44.0)


class State(eqx.Module):
    """What the party keeps: functions of messages alone."""

    x: Float[Array, " dim"]


class Message(eqx.Module):
    """Everything that leaves."""

    x: Float[Array, " dim"]


def needs(cfg: Config) -> Needs:
    """A problem that consists of bounded sums over records, and one noise for all, whose scale it states."""
    return Needs(directed=True, bounded=True, released=True, even=True, alike=True)


def tune(cfg: Config, public: Public) -> Config:
    """How many records there are."""
    if None not in (cfg.records, public.records) and cfg.records != public.records:
        raise InputError(f"algorithm.records = {cfg.records:g} is counted by the plan, not stated: leave it out")
    return cfg if public.records is None else cfg.replace(records=float(public.records))  # type: ignore[no-any-return]


def suggest_rounds(public: Public) -> int:
    """One where all hear all; else averages come within 1e-4 of each other."""
    gap = public.mixing_gap
    return 50 if gap is None else 1 if gap > 1 - 1e-9 else math.ceil(math.log(1e-4) / math.log1p(-max(gap, 0.01)))


def init(cfg: Config, place: Place) -> State:
    """Nothing is released yet."""
    return State(jnp.zeros_like(place.start))


def draws(cfg: Config, place: Place) -> dict[str, Law]:
    """One standard normal vector, used in the first round."""
    return {"noise": Normal(place.dim)}


def sensitivity(cfg: Config, place: Place, t: Round) -> Array:
    """Δ = 2V/n."""
    return 2 * place.lipschitz / cfg.records


def sigma(cfg: Config, place: Place, t: Round) -> Array:
    """The noise on every number."""
    return place.noise * sensitivity(cfg, place, t)


wire = sigma  # a deployed message travels on the grid of its noise


def emit(cfg: Config, place: Place, t: Array, state: State, shard: Shard, draw: dict) -> tuple[State, Message]:
    """The party's own part of the means, with noise; later what is under way."""
    noise, scale = draw["noise"], sigma(cfg, place, t)

    def release() -> Array:
        return add(shard.gradient(place.start) / cfg.records, noise, scale)

    x = jax.lax.cond(t == 0, release, lambda: settle(state.x, noise, scale))
    return State(x), Message(x)


def absorb(cfg: Config, place: Place, t: Array, state: State, inbox: Inbox) -> State:
    """The weighted average with the neighbours."""
    return State(place.self_weight * state.x + inbox.mixed.x)


def estimate(cfg: Config, place: Place, state: State) -> Float[Array, " dim"]:
    """The total of all parties, and last the standard deviation of its noise, which is public."""
    stated = jnp.asarray(place.agents**0.5 * sigma(cfg, place, jnp.zeros((), int)), state.x.dtype)
    return (place.agents * state.x).at[-1].set(stated)


def cost(cfg: Config, place: Place, t: Array, message: Message | None = None) -> Event:
    """One Gaussian release in the first round; nothing later."""
    return Gaussian(sensitivity(cfg, place, t), sigma(cfg, place, t), times=jnp.where(t == 0, 1.0, 0.0))


def observed(
    cfg: Config, places: Place, problem: Problem, graph: Graph, weights: np.ndarray, observers: tuple[int, ...]
) -> tuple[str, np.ndarray]:
    """μ of everybody against these observers: exact. Noise is drawn once, so most of them solve for it."""
    shift = np.full(places.agents, float(sensitivity(cfg, places, jnp.zeros((), int))))
    scale = np.zeros((places.agents, places.rounds))
    scale[:, 0] = np.asarray(places.noise, float) * shift
    return NEIGHBOURS, linear(view(weights, observers), shift, scale)
