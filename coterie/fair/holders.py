r"""Fair release between holders, as an agent: each stage's sums leave once with noise and are averaged over the graph.

    emit     first round of a stage: values of the holder's own records + noise; then what it holds
    absorb   x_i ← Σ_j w_ij x_j; N·x_i is kept as the stage's total
    answer   the shares of the groups, b̂, Â and V̂ of all holders together: an objective

Stages (counts of groups, objective, covariance given the released shares) and their sensitivities are those of
`coterie.fair.mechanisms`. On a complete graph with weights 1/N one round is enough, and all that is read is the sum of
everybody's messages: then sums may be opened in secret, and `place.noise` is what each holder adds to them.

**Sensitivity**: noise is measured in the stage's own sensitivity, which depends on public numbers and on the released
shares, so one record moves a stage by at most 1. What is sent later in a stage is a function of messages.
**Guarantee**: one Gaussian (or Laplace) event per stage, against a reader of all messages; rounds between are free.
"""

from __future__ import annotations

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from pydantic import Field

from coterie.algorithms.base import Config as BaseConfig
from coterie.algorithms.base import Inbox, LaplaceLaw, Law, Needs, Normal, Place
from coterie.fair import mechanisms as mech
from coterie.fair.moments import FairMoments
from coterie.fair.noise import noised
from coterie.fair.polynomial import Statistics
from coterie.privacy import events
from coterie.privacy.events import Event
from coterie.problems import Shard

REFERENCE = "Ding et al. (2020), with the corrections of docs/fair.md; averaging as in Xiao and Boyd (2004)"
READS = "total"


class Config(BaseConfig):
    """Public numbers."""

    columns: int = Field(ge=1, description="features of a record, d")
    groups: int = Field(2, ge=2, description="protected groups, k")
    records: float = Field(gt=0, description="records of all holders together")
    law: Literal["gaussian", "laplace"] = Field("gaussian", description="law of the noise")
    stages: tuple[int, ...] = Field((0, 1, 2), description="which are released: counts, objective, covariance")
    shares: tuple[float, float, float] = Field(mech.FAIR_SHARES, description="how the budget is divided over them")
    signed: bool = Field(True, description="whether features may be negative")
    walk: int = Field(50, ge=1, description="rounds of averaging in each stage")

    @property
    def sizes(self) -> tuple[int, int, int]:
        """How many numbers each stage releases."""
        return mech.sizes_of(self.columns, self.groups)

    @property
    def rounds(self) -> int:
        """How many a run takes."""
        return self.walk * len(self.stages)


EXAMPLE = Config(columns=2, records=12.0, walk=2)


class State(eqx.Module):
    """What the holder keeps: functions of messages alone."""

    x: Float[Array, " size"]  # under way
    totals: Float[Array, "stages size"]  # of all holders, after the last round of each stage


class Message(eqx.Module):
    """Everything that leaves: the numbers of one stage, and zeros up to the length of the longest."""

    values: Float[Array, " size"]


def needs(cfg: Config) -> Needs:
    """A problem that consists of sums over records."""
    return Needs(directed=True, bounded=True)


def length(cfg: Config) -> int:
    """Numbers in a message."""
    return max(cfg.sizes[i] for i in cfg.stages)


def init(cfg: Config, place: Place) -> State:
    """Nothing is released yet."""
    nothing = jnp.zeros((len(cfg.stages), length(cfg)), place.start.dtype)
    return State(nothing[0], nothing)


def draws(cfg: Config, place: Place) -> dict[str, Law]:
    """A stage's noise, drawn in every round and used in its first."""
    return {"noise": Normal(length(cfg)) if cfg.law == "gaussian" else LaplaceLaw(length(cfg))}


def sensitivity(cfg: Config, place: Place, t: Array) -> Array:
    """In units of the stage's own sensitivity."""
    return jnp.ones(())


def level(cfg: Config, place: Place, stage: int) -> Array:
    """Noise of a stage over its sensitivity."""
    return mech.multiplier(place.noise, cfg.shares[stage], cfg.law)


def scales(cfg: Config, place: Place, t: Array, state: State) -> Float[Array, " size"]:
    """Scale of the noise on every number of the stage under way (0 on what fills it up): public once shares are."""

    def one(stage: int) -> Array:
        wide = mech.scale_of(
            stage, level(cfg, place, stage), cfg.law, cfg.columns, cfg.groups, _share(cfg, state), cfg.signed
        )
        return _filled(cfg, jnp.broadcast_to(wide / _units(cfg, stage), cfg.sizes[stage]))

    return jax.lax.switch(t // cfg.walk, [lambda stage=stage: one(stage) for stage in cfg.stages])


def emit(cfg: Config, place: Place, t: Array, state: State, shard: Shard, draw: dict) -> tuple[State, Message]:
    """The stage's own values with noise, or what is under way."""
    problem = shard.problem
    assert isinstance(problem, FairMoments)

    def release() -> Array:
        own, share = problem.parts(shard.gradient(place.start)), _share(cfg, state)

        def one(stage: int) -> Array:
            return _filled(cfg, mech.values_of(stage, own, cfg.law, share).ravel() / _units(cfg, stage))

        values = jax.lax.switch(t // cfg.walk, [lambda stage=stage: one(stage) for stage in cfg.stages])
        return noised(values, draw["noise"], scales(cfg, place, t, state))

    x = jax.lax.cond(t % cfg.walk == 0, release, lambda: state.x)
    return State(x, state.totals), Message(x)


def absorb(cfg: Config, place: Place, t: Array, state: State, inbox: Inbox) -> State:
    """The weighted average with the neighbours."""
    x = place.self_weight * state.x + inbox.mixed.values
    return State(x, state.totals.at[t // cfg.walk].set(place.agents * x))


def estimate(cfg: Config, place: Place, state: State) -> Float[Array, " dim"]:
    """The released objective as a point of `FairMoments`: V̂ stands where sums over groups would."""
    d, share = cfg.columns, _share(cfg, state)
    flat = _total(cfg, state, 1)
    groups = jnp.zeros(cfg.groups) if share is None else cfg.records * share
    rows = jnp.zeros((cfg.groups, d))
    if 2 in cfg.stages:
        penalties = _total(cfg, state, 2).reshape(-1, d)
        rows = rows.at[: len(penalties)].set(penalties)
    released = Statistics(0, groups, flat[:d], mech.matrix_of(flat[d:], cfg.law, d), rows)
    return FairMoments(d, cfg.groups).flat(released).astype(place.start.dtype)


def cost(cfg: Config, place: Place, t: Array, message: Message | None = None) -> Event:
    """One event per stage, in its first round."""
    wide = jnp.stack([level(cfg, place, stage) for stage in cfg.stages])[t // cfg.walk]
    times = jnp.where(t % cfg.walk == 0, 1.0, 0.0)
    if cfg.law == "laplace":
        return events.Laplace(jnp.ones(()), 1 / wide, times=times)
    return events.Gaussian(jnp.ones(()), wide, times=times)


def _units(cfg: Config, stage: int) -> np.ndarray | float:
    """What a stage's numbers are measured in, so that all carry the same noise: with Gaussian noise √8 A is sent."""
    if stage != 1:
        return 1.0
    wide = mech.whitened(cfg.columns, cfg.law)
    return wide / wide[0]


def _total(cfg: Config, state: State, stage: int) -> Array:
    return state.totals[cfg.stages.index(stage), : cfg.sizes[stage]] * _units(cfg, stage)


def _share(cfg: Config, state: State) -> Array | None:
    return mech.shares_of(_total(cfg, state, 0), cfg.records) if 0 in cfg.stages else None


def _filled(cfg: Config, values: Array) -> Array:
    return jnp.pad(values, (0, length(cfg) - values.shape[0]))
