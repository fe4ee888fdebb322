r"""Coupled ADMM between parties: each sends its point with noise, and everybody works out price and residual from them.

The first-order method of `coterie.coupled.admm` with one fixed penalty, the dual step ζ: random penalties cost nothing,
and save nothing that is claimed.

    emit     y = x_i − (∇f_i(x_i) + A_iᵀ(ζ r − λ))/D_i, cut at ± 2 reach_i;  send y + noise
    absorb   x_j ← P_j(what j sent), P_j the projection on j's box;  r ← Σ A_j x_j − total;  λ ← λ − ζ r
    answer   everybody's points and the price, averaged over the last rounds

A message is in units of `reach`, the largest number that the party's box and ∇f_i/D_i may have. What is added up is at
most four of them, since y is cut: so rounding errors of floats are as far below a step of the grid as a message's
length in steps allows for (`coterie.deploy.noise.MOST_STEPS`). The projection is a function of the message, on which
everybody agrees; a number that is cut at `deploy.bound` ≥ 1 has the same projection.

**Sensitivity**: x_i, r and λ are functions of messages. One record of party i replaced by another of its class moves
∇f_i by at most gap·unit on the box, where gap = ‖(a_max − a_min) max|x| + b_max − b_min‖₂, and y by gap·unit/D_i. With
a single record the function itself is replaced. The cut moves no two numbers apart, and whatever comes later has no
other access to f_i.
**Guarantee**: one Gaussian event a round, neighbours as in `ADJACENCY`, against a reader of all messages.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from pydantic import Field

from coterie.algorithms.base import Auto, Inbox, Law, Needs, Normal, Place, Public, add
from coterie.algorithms.base import Config as BaseConfig
from coterie.coupled import admm
from coterie.coupled.admm import ADJACENCY, ERRATA, REFERENCE
from coterie.coupled.functions import EXAMPLE as PROBLEM
from coterie.coupled.functions import CoupledFunctions
from coterie.errors import InputError
from coterie.privacy import events
from coterie.privacy.events import Event
from coterie.problems import Shard

__all__ = ["ERRATA", "EXAMPLE", "GRAPHS", "NAMED", "REFERENCE", "RIDGE", "Config"]

GRAPHS = ("complete",)
NAMED = True
RIDGE = 0.0
ROUNDS = 200


class PartySteps(NamedTuple):
    """A party's public numbers."""

    matrix: tuple[tuple[float, ...], ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    reach: float  # the largest number in its box and in ∇f/D_i: what a message is measured in
    gap: float  # how far the gradients of two of its records can be apart
    inverse: float  # D_i


class Config(BaseConfig):
    """Step sizes; those that are left out follow from the public numbers of the problem."""

    dual_step: Auto = Field(None, gt=0, description="ζ, also the penalty; default: L/‖A‖²")
    inverse_step: Auto = Field(None, gt=0, description="D; default: L_i + ζ‖A‖², at least rounds·m/10")
    tail: float = Field(0.5, gt=0, le=1, description="share of the rounds, the last ones, that the answer averages")
    total: tuple[float, ...] | None = Field(None, description="filled in from problem.total")
    seats: tuple[PartySteps, ...] | None = Field(None, description="filled in from problem.variables")


class State(eqx.Module):
    """What a party keeps: functions of messages alone."""

    points: Float[Array, "parties most"]  # everybody's last one
    price: Float[Array, " totals"]
    mean: Float[Array, " dim"]  # of points and price, over those of the last rounds that there were


class Message(eqx.Module):
    """Everything that leaves: the party's point with noise, before the projection, in units of its reach."""

    x: Float[Array, " most"]


def needs(cfg: Config) -> Needs:
    """A coupled problem."""
    return Needs(coupled=True)


def tune(cfg: Config, public: Public) -> Config:
    """Step sizes in the range in which the method provably converges, as short as noise asks for."""
    problem = public.problem
    assert isinstance(problem, CoupledFunctions)  # `needs`
    if cfg.seats is not None or cfg.total is not None:
        raise InputError("algorithm.seats and algorithm.total follow from the [problem] table: leave them out")
    if public.ridge != 0:
        raise InputError(f"problem.ridge = {public.ridge:g} would change everybody's function: leave it out")
    if public.load != 1:
        raise InputError("problem.weighting = 'records' would change everybody's function: leave it out")
    if public.agents != len(problem.members):
        raise InputError(f"problem.variables lists {len(problem.members)} parties, but there are {public.agents}")
    return _filled(cfg, problem, public.rounds)


def _given(cfg: Config) -> admm.Config:
    """The same step sizes for the method's own rules, without random penalties."""
    return admm.Config(dual_step=cfg.dual_step, inverse_step=cfg.inverse_step, spread=0.0)


def _filled(cfg: Config, problem: CoupledFunctions, rounds: int) -> Config:
    steps = admm.resolve(_given(cfg), problem.stated, rounds)
    seats = tuple(
        PartySteps(m.matrix, m.low, m.high, m.reach(float(inverse)), float(agent.gap.l2), float(inverse))
        for m, agent, inverse in zip(problem.members, problem.stated.agents, steps.inverse, strict=True)
    )
    return cfg.replace(dual_step=float(steps.dual[0]), total=problem.total, seats=seats)  # type: ignore[no-any-return]


EXAMPLE = _filled(Config(), PROBLEM, 20)


def convergent(cfg: Config, public: Public) -> str | None:
    """What of the step sizes lies outside the range of the proof."""
    assert isinstance(public.problem, CoupledFunctions)
    given, stated = _given(cfg), public.problem.stated
    return admm.convergent(given, stated, admm.resolve(given, stated, public.rounds))


def suggest_rounds(public: Public) -> int:
    """Some hundred: steps are as short as the rounds permit, so more of them do not add noise to the average."""
    return ROUNDS


class _Seats(NamedTuple):
    """The numbers of all parties side by side, or of one; those of `PartySteps`, as arrays."""

    matrix: Array
    low: Array
    high: Array
    reach: Array
    gap: Array
    inverse: Array


@cache
def _stacked(seats: tuple[PartySteps, ...]) -> tuple[np.ndarray, ...]:
    return tuple(np.array(column) for column in zip(*seats, strict=True))


def _everybody(cfg: Config) -> _Seats:
    return _Seats(*map(jnp.asarray, _stacked(cfg.seats or EXAMPLE.seats or ())))


def _own(cfg: Config, place: Place) -> _Seats:
    return _Seats(*(column[_seat(place)] for column in _everybody(cfg)))


def _seat(place: Place) -> Array:
    assert place.seat is not None  # a coupled problem tells parties apart
    return place.seat.astype(int)


def _total(cfg: Config) -> tuple[float, ...]:
    assert cfg.total is not None  # `tune`
    return cfg.total


def _residual(cfg: Config, points: Float[Array, "parties most"]) -> Float[Array, " totals"]:
    return jnp.einsum("irk,ik->r", _everybody(cfg).matrix, points) - jnp.asarray(_total(cfg))


def _shares(cfg: Config, place: Place, point: Array) -> Float[Array, "parties most"]:
    return point[: point.shape[0] - len(_total(cfg))].reshape(place.agents, -1)


def init(cfg: Config, place: Place) -> State:
    """Everybody in the middle of its box, and a price of 0."""
    price = jnp.zeros(len(_total(cfg)), place.start.dtype)
    return State(_shares(cfg, place, place.start), price, place.start)


def draws(cfg: Config, place: Place) -> dict[str, Law]:
    """Noise on every variable; of those that a party does not have it is cut off with them."""
    return {"noise": Normal(_everybody(cfg).low.shape[-1])}


def sensitivity(cfg: Config, place: Place, t: Array) -> Array:
    """How far y moves, in units of `reach`."""
    own = _own(cfg, place)
    return own.gap * place.unit / (own.inverse * own.reach)


def wire(cfg: Config, place: Place, t: Array) -> Array:
    """Scale of the noise on every number of a message."""
    return place.noise_at(t) * sensitivity(cfg, place, t)


def emit(cfg: Config, place: Place, t: Array, state: State, shard: Shard, draw: dict) -> tuple[State, Message]:
    """The next point, with noise."""
    own, seat, scale = _own(cfg, place), _seat(place), wire(cfg, place, t)
    here = jnp.concatenate([state.points.ravel(), state.price])
    slope = _shares(cfg, place, place.unit * shard.gradient(here))[seat]
    pull = own.matrix.T @ (cfg.dual_step * _residual(cfg, state.points) - state.price)
    y = state.points[seat] - (slope + pull) / own.inverse
    sent = add(jnp.clip(y / own.reach, -2.0, 2.0), draw["noise"], scale)
    points = state.points.at[seat].set(jnp.clip(sent * own.reach, own.low, own.high))
    return State(points, state.price, state.mean), Message(sent)


def absorb(cfg: Config, place: Place, t: Array, state: State, inbox: Inbox) -> State:
    """Everybody's points, then residual and price."""
    them = _Seats(*(column[inbox.senders] for column in _everybody(cfg)))
    theirs = jnp.clip(inbox.stack().x * them.reach[:, None], them.low, them.high)
    who = jnp.where(inbox.here, inbox.senders, place.agents)  # an empty slot points nowhere
    points = state.points.at[who].set(theirs, mode="drop")
    price = state.price - cfg.dual_step * _residual(cfg, points)
    now, last = jnp.concatenate([points.ravel(), price]), jnp.maximum(1.0, jnp.round(cfg.tail * place.rounds))
    before = jnp.maximum(0.0, t - (place.rounds - last))  # rounds that are in the mean already
    return State(points, price, state.mean + (now - state.mean) / (before + 1))


def estimate(cfg: Config, place: Place, state: State) -> Float[Array, " dim"]:
    """Points and price, averaged over the last rounds; before these, as they are."""
    return state.mean


def cost(cfg: Config, place: Place, t: Array, message: Message | None = None) -> Event:
    """One event a round."""
    return events.Gaussian(sensitivity(cfg, place, t), wire(cfg, place, t), adjacency=ADJACENCY)
