r"""Fair release between parties, as an agent: each stage's sums leave once with noise and are averaged over the graph.

    emit     first round of a stage: values of the party's own records + noise; then what it holds
    absorb   x_i ← Σ_j w_ij x_j; N·x_i is kept as the stage's total
    answer   the shares of the groups, b̂, Â and V̂ of all parties together, Â with the ridge of its noise: an objective

Stages (counts of groups, objective, covariance given the released shares) and their sensitivities are those of
`coterie.fair.mechanisms`. On a complete graph with weights 1/N one round is enough, and all that is read is the sum of
everybody's messages: then sums may be opened in secret, and `place.noise` is what each party adds to them.

**Sensitivity**: a stage's numbers are divided by its sensitivity, which depends on public numbers and on the released
shares, and by the number of all records, so one record moves a message by at most 1/records in every stage, and the
scale of its noise is known before the first. What is sent later in a stage is a function of messages.
**Guarantee**: one Gaussian (or Laplace) event per stage, against a reader of all messages; rounds between are free.
"""

from __future__ import annotations

import math
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
from pydantic import Field, field_validator, model_validator

from coterie.algorithms.base import (
    Auto,
    AutoInt,
    Inbox,
    LaplaceLaw,
    Law,
    Needs,
    Normal,
    Place,
    Public,
    Round,
    add,
    settle,
)
from coterie.algorithms.base import Config as BaseConfig
from coterie.errors import InputError
from coterie.fair import mechanisms as mech
from coterie.fair.moments import FairMoments
from coterie.fair.polynomial import Statistics
from coterie.fair.solve import ridge_for
from coterie.privacy import events
from coterie.privacy.events import Event
from coterie.problems import Shard

REFERENCE = "Ding et al. (2020), with the corrections of docs/fair.md; averaging as in Xiao and Boyd (2004)"
READS = "total"


class Config(BaseConfig):
    """Public numbers. Those that are left out follow from the problem and the rounds."""

    law: Literal["gaussian", "laplace"] = Field("gaussian", description="law of the noise")
    stages: tuple[int, ...] = Field((0, 1, 2), description="which are released: counts, objective, covariance")
    shares: tuple[float, float, float] = Field(mech.FAIR_SHARES, description="how the budget is divided over them")
    signed: bool = Field(True, description="whether features may be negative")
    groups: AutoInt = Field(None, ge=2, description="protected groups, k")
    records: Auto = Field(None, gt=0, description="records of all parties together")
    walk: AutoInt = Field(None, ge=1, description="rounds of averaging in each stage; the last has what is left over")

    @field_validator("stages")
    @classmethod
    def _possible(cls, stages: tuple[int, ...]) -> tuple[int, ...]:
        if stages not in ((1,), (0, 1), (0, 1, 2)):
            raise ValueError(f"stages must be [1], [0, 1] or [0, 1, 2], got {list(stages)}")
        return stages

    @model_validator(mode="after")
    def _paid(self) -> Config:
        if not all(self.shares[stage] > 0 for stage in self.stages):
            raise ValueError(f"shares must be > 0 for every one of the stages, got {list(self.shares)}")
        return self

    @property
    def rounds(self) -> int:
        """How many a run takes."""
        return int(self.walk) * len(self.stages)


EXAMPLE = Config(groups=2, records=12.0, walk=2)


class State(eqx.Module):
    """What the party keeps: functions of messages alone."""

    x: Float[Array, " dim"]  # under way
    totals: Float[Array, "stages dim"]  # of all parties, after the last round of each stage


class Message(eqx.Module):
    """Everything that leaves: the numbers of one stage; what fills it up to the length of a point is noise."""

    values: Float[Array, " dim"]


def needs(cfg: Config) -> Needs:
    """A problem that consists of sums over records; the stages share the budget by `shares`."""
    return Needs(directed=True, bounded=True, released=True, even=True)


def tune(cfg: Config, public: Public) -> Config:
    """Sizes of the problem, and rounds that are divided over the stages."""
    if public.rounds < len(cfg.stages):
        raise InputError(f"run.rounds = {public.rounds} is too few: {len(cfg.stages)} stages take one each at least")
    if not cfg.signed:  # of whoever calls from Python it is believed; a party's records may say otherwise
        raise InputError("algorithm.signed = false is a promise that nothing enforces: leave it out")
    most = public.rounds // len(cfg.stages)
    if cfg.walk is not None and cfg.walk > most:
        raise InputError(f"algorithm.walk = {cfg.walk} needs {cfg.rounds} rounds, and run.rounds = {public.rounds}")
    found = {"groups": public.classes and public.classes // 2, "records": public.records}
    for key, value in found.items():
        if None not in (stated := getattr(cfg, key), value) and stated != value:
            raise InputError(f"algorithm.{key} = {stated:g}, but the records have {value:g}: leave it out")
    given = {key: value for key, value in found.items() if value is not None}
    return cfg.replace(walk=cfg.walk or most, **given)  # type: ignore[no-any-return]


def suggest_rounds(public: Public) -> int:
    """Averages come within 1e-4 of each other in every stage; one round is enough where all hear all."""
    gap = public.mixing_gap
    walk = 50 if gap is None else 1 if gap > 1 - 1e-9 else math.ceil(math.log(1e-4) / math.log1p(-max(gap, 0.01)))
    return 3 * walk


def init(cfg: Config, place: Place) -> State:
    """Nothing is released yet."""
    nothing = jnp.zeros((len(cfg.stages), place.dim), place.start.dtype)
    return State(nothing[0], nothing)


def draws(cfg: Config, place: Place) -> dict[str, Law]:
    """A stage's noise, drawn in every round and used in its first."""
    return {"noise": Normal(place.dim) if cfg.law == "gaussian" else LaplaceLaw(place.dim)}


def sensitivity(cfg: Config, place: Place, t: Array) -> Array:
    """Of every stage: its numbers are in units of its own sensitivity, and of all records."""
    return jnp.asarray(1 / cfg.records)


def level(cfg: Config, place: Place, stage: int) -> Array:
    """Noise of a stage over its sensitivity."""
    return mech.multiplier(place.noise, cfg.shares[stage], cfg.law)


def wire(cfg: Config, place: Place, t: Array) -> Array:
    """Scale of the noise on every number of the stage under way."""
    return jnp.stack([level(cfg, place, stage) for stage in cfg.stages])[_stage(cfg, t)] / cfg.records


def emit(cfg: Config, place: Place, t: Array, state: State, shard: Shard, draw: dict) -> tuple[State, Message]:
    """The stage's own values with noise, or what is under way."""
    problem, scale = shard.problem, wire(cfg, place, t)
    assert isinstance(problem, FairMoments)

    def release() -> Array:
        own, share = problem.parts(shard.gradient(place.start)), _share(cfg, place, state)

        def one(stage: int) -> Array:
            values = mech.values_of(stage, own, cfg.law, share).ravel() / _units(cfg, place, stage, share)
            return jnp.pad(values, (0, place.dim - values.shape[0]))

        values = jax.lax.switch(_stage(cfg, t), [lambda stage=stage: one(stage) for stage in cfg.stages])
        return add(values, draw["noise"], scale)

    x = jax.lax.cond(_first(cfg, t), release, lambda: settle(state.x, draw["noise"], scale))
    return State(x, state.totals), Message(x)


def absorb(cfg: Config, place: Place, t: Array, state: State, inbox: Inbox) -> State:
    """The weighted average with the neighbours."""
    x = place.self_weight * state.x + inbox.mixed.values
    return State(x, state.totals.at[_stage(cfg, t)].set(place.agents * x))


def estimate(cfg: Config, place: Place, state: State) -> Float[Array, " dim"]:
    """The released objective as a point of `FairMoments`: V̂ stands where sums over groups would, and Â has a ridge.

    Its noise is that of all parties together, √N times one party's, once averages have come together.
    """
    problem, share = _problem(cfg, place), _share(cfg, place, state)
    d, flat = problem.features, _total(cfg, place, state, 1)
    groups = jnp.zeros(cfg.groups) if share is None else cfg.records * share
    rows = jnp.zeros((cfg.groups, d))
    if 2 in cfg.stages:
        penalties = _total(cfg, place, state, 2, share).reshape(-1, d)
        rows = rows.at[: len(penalties)].set(penalties)
    spread = mech.spread_of(mech.whitened(d, cfg.law), cfg.law, d)
    ridge = place.agents**0.5 * level(cfg, place, 1) * jnp.diag(jnp.asarray(ridge_for(spread)))
    released = Statistics(0, groups, flat[:d], mech.matrix_of(flat[d:], cfg.law, d) + ridge, rows)
    return problem.flat(released).astype(place.start.dtype)


def cost(cfg: Config, place: Place, t: Array, message: Message | None = None) -> Event:
    """One event per stage, in its first round."""
    moved, wide, times = sensitivity(cfg, place, t), wire(cfg, place, t), jnp.where(_first(cfg, t), 1.0, 0.0)
    if cfg.law == "laplace":
        return events.Laplace(moved, 1 / wide, times=times)
    return events.Gaussian(moved, wide, times=times)


def _stage(cfg: Config, t: Round) -> Array:
    """Which of `cfg.stages` a round belongs to."""
    return jnp.minimum(t // cfg.walk, len(cfg.stages) - 1)


def _first(cfg: Config, t: Round) -> Array | bool:
    """Whether a round is the first of its stage."""
    return (t % cfg.walk == 0) & (t < cfg.rounds)


def _problem(cfg: Config, place: Place) -> FairMoments:
    """What the records are about: a point has one length for each number of features."""
    return FairMoments.of_length(place.dim, cfg.groups)


def _units(cfg: Config, place: Place, stage: int, share: Array | None = None) -> Array:
    """What each of a stage's numbers is measured in, so that all carry the same noise."""
    d = _problem(cfg, place).features
    return cfg.records * jnp.asarray(mech.scale_of(stage, 1.0, cfg.law, d, cfg.groups, share, cfg.signed))


def _total(cfg: Config, place: Place, state: State, stage: int, share: Array | None = None) -> Array:
    size = mech.sizes_of(_problem(cfg, place).features, cfg.groups)[stage]
    return state.totals[cfg.stages.index(stage), :size] * _units(cfg, place, stage, share)


def _share(cfg: Config, place: Place, state: State) -> Array | None:
    return mech.shares_of(_total(cfg, place, state, 0), cfg.records) if 0 in cfg.stages else None
