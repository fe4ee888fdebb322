r"""SDM-DSGD: sparse differential Gaussian-masked SGD; neighbours get a random share of the coordinates of every change.

Everybody's point x_j is public: it starts at the public start and moves by what j broadcasts.
    emit     y_i = (1 − θ) x_i + θ (Σ_j w_ij x_j − α (g_i + ζ_i)),  g_i the mean clipped gradient over a batch of B
             broadcast S(y_i − x_i): each coordinate divided by c with probability c, else 0;   x_i ← x_i + S(y_i − x_i)
    absorb   Σ_j w_ij x_j moves by Σ_j w_ij S(y_j − x_j)
Coordinates that were not sent are forgotten.

**Sensitivity.** Given the transcript all x_j are fixed, so one record moves y_i by θ α 2K/B (replace-one, batch without
replacement, unit = 1/n), θ α K/B for Poisson batches under add/remove.
**Guarantee.** Gaussian on a batch; the mask is data-free, so sending less costs nothing. It also *earns* something:
conditional on the mask only the sent coordinates are there, which turns e^{(ρ−1)D} into 1 − c + c e^{(ρ−1)D} at integer
orders ρ. Counted for Poisson and for full batches, where it is proved (`keep` of the events), not for batches without
replacement. A flat factor c at every order, as we remember the paper's theorem (`claim`), is not valid when the
gradients differ in few coordinates.
"""

from __future__ import annotations

import math
from typing import Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from pydantic import Field, model_validator

from coterie.algorithms import _quantized as q
from coterie.algorithms.base import Auto, Erratum, Inbox, Law, Needs, Normal, Place, Public, Uniform, add, settle
from coterie.algorithms.base import Config as BaseConfig
from coterie.algorithms.quantize import sparse_bits
from coterie.errors import InputError
from coterie.privacy.events import Event, MaskedGaussian
from coterie.privacy.rdp import zcdp_epsilon
from coterie.problems import Shard

REFERENCE = "Zhang, Fang, Liu, Zhu (2020), SDM-DSGD; Ding dissertation (2022) ch. 4, baseline SDM"
READS = "sums"


class Config(BaseConfig):
    """Hyper-parameters; None is filled by `tune`."""

    step: Auto = Field(None, gt=0, description="α; None: 1 / (smoothness + ridge), .2 for networks")
    mixing: Auto = Field(None, gt=0, le=1, description="θ; None: .6, less where that would not be stable")
    keep: float = Field(0.3, gt=0, le=1, description="c: chance that a coordinate is sent")
    clip: float = Field(0.5, gt=0, description="K: bound on a record's gradient norm")
    batch: int | None = Field(20, ge=1, description="B: records per round (expected, if Poisson); None: all")
    scheme: Literal["fixed", "poisson"] = Field("fixed", description="without replacement, or Poisson (add/remove)")
    link: float = Field(3.0, ge=0, description="T_c: virtual seconds that a full message of 16-bit numbers takes")

    @model_validator(mode="after")
    def _needs_a_batch(self) -> Config:
        if self.batch is None and self.scheme != "fixed":
            raise InputError(f"scheme {self.scheme!r} is about batches: give batch a number")
        return self


EXAMPLE = Config(step=0.5, mixing=0.3, keep=0.5, clip=1.0, batch=10)

ERRATA = (
    Erratum("update, as quoted by Ding", "time indices of d differ by one between lines", "one round each", "typo"),
    Erratum(
        "privacy theorem (as remembered)",
        "the mask saves a factor c at every order",
        "ln(1 − c + c e^{(ρ−1)D})/(ρ − 1): near c for small ρ D only",
        "privacy",
    ),
)


class State(eqx.Module):
    """What the agent keeps: all of it public."""

    x: Float[Array, " d"]
    near: Float[Array, " d"]  # Σ_j w_ij x_j over the neighbours


class Message(eqx.Module):
    """Everything that leaves."""

    change: Float[Array, " d"]  # S(y − x)


def needs(cfg: Config) -> Needs:
    """Nothing: every gradient is clipped."""
    return Needs()


def tune(cfg: Config, public: Public) -> Config:
    """α = 1/L, and θ ≤ .9 · 2c/(1 − λ_min + α L), which contracts in mean square; networks: .2 and .6."""
    bounded = math.isfinite(public.smoothness)
    smoothness = public.smoothness + public.ridge
    step = cfg.step or (1 / smoothness if bounded else 0.2)
    lowest = 1 - (public.mixing_gap or 0.0)  # −λ_min at most
    stable = 1.8 * cfg.keep / (1 + lowest + step * smoothness) if bounded else 1.0
    return cfg.replace(step=step, mixing=cfg.mixing or min(0.6, stable))


def init(cfg: Config, place: Place) -> State:
    """All agents start at the same public point."""
    return State(place.start, (1 - place.self_weight) * place.start)


def draws(cfg: Config, place: Place) -> dict[str, Law]:
    """Noise, the mask (public), and the batch's coins."""
    own = {"noise": Normal(place.dim), "mask": Uniform(place.dim)}
    if cfg.batch is None:
        return {**own, "speed": Uniform()}
    return {**own, **q.batch_draws(q.Batch(cfg.batch, cfg.scheme), place)}


def sensitivity(cfg: Config, place: Place, t: Array) -> Array:
    """How far one record can move y_i."""
    size = place.count if cfg.batch is None else jnp.minimum(float(cfg.batch), place.count)
    whole = (2.0 if cfg.batch is None or cfg.scheme == "fixed" else 1.0) * cfg.clip * q.weight(place, size)
    return whole * cfg.mixing * cfg.step


def sigma(cfg: Config, place: Place, t: Array) -> Array:
    """Noise std of y_i."""
    return place.noise_at(t) * sensitivity(cfg, place, t)


def wire(cfg: Config, place: Place, t: Array) -> Array:
    """Noise std of a coordinate that is sent."""
    return sigma(cfg, place, t) / cfg.keep


def emit(cfg: Config, place: Place, t: Array, state: State, shard: Shard, draw: dict) -> tuple[State, Message]:
    """A noisy step, of which a random share of the coordinates is made and sent."""
    if cfg.batch is None:
        total, size = shard.gradient(state.x, clip=cfg.clip), place.count
    else:
        total, size = q.batch_sum(q.Batch(cfg.batch, cfg.scheme), place, shard, state.x, draw, cfg.clip)
    slope = q.weight(place, size) * total + place.ridge * state.x
    target = place.self_weight * state.x + state.near - cfg.step * slope
    y = add((1 - cfg.mixing) * state.x + cfg.mixing * target, draw["noise"], sigma(cfg, place, t))
    change = settle((y - state.x) / cfg.keep, draw["noise"], wire(cfg, place, t))
    change = jnp.where(draw["mask"] < cfg.keep, change, 0.0)
    return State(state.x + change, state.near), Message(change)


def absorb(cfg: Config, place: Place, t: Array, state: State, inbox: Inbox) -> State:
    """Follow the neighbours' points."""
    return State(state.x, state.near + inbox.mixed.change)


def estimate(cfg: Config, place: Place, state: State) -> Float[Array, " d"]:
    """The agent's public point."""
    return state.x


def cost(cfg: Config, place: Place, t: Array, message: Message | None = None) -> Event:
    """Gaussian on a batch, with what the mask provably earns."""
    if cfg.batch is None:
        return MaskedGaussian(sensitivity(cfg, place, t), sigma(cfg, place, t), cfg.keep)
    return q.batch_cost(q.Batch(cfg.batch, cfg.scheme), place, t, None, discrete=False, keep=cfg.keep)


def claim(cfg: Config, place: Place, delta: float) -> float:
    """A flat factor c on the Gaussian's Rényi curve, as we remember the theorem; no amplification by sampling."""
    if not float(place.noise) > 0:
        return math.inf
    shape = np.asarray(place.shape, float)
    return zcdp_epsilon(float(cfg.keep) / 2 * float(np.sum((float(place.noise) * shape) ** -2.0)), delta)


def bits(cfg: Config, place: Place, message: Message) -> Array:
    """Header, which coordinates were sent, and their values."""
    return sparse_bits(message.change)


def duration(cfg: Config, place: Place, t: Array, draw: dict) -> Array:
    """B/V + c T_c virtual seconds: every agent finishes its batch."""
    size = place.count if cfg.batch is None else float(cfg.batch)
    return size / q.speed(draw["speed"]) + cfg.link * cfg.keep
