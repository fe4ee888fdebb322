r"""Q-DPSGD-2, released state: quantize the point, add discrete Gaussian noise, keep nothing else.

    emit     u_i = a_i z_i + h Σ_j w_ij z_j;   g_i = mean clipped gradient at z_i over the deadline's b records
             z_i ← Q(u_i − α h g_i) + ζ_i,   ζ_i discrete Gaussian on ηZ of std ν S(Δ, η, p, β),  Δ = 2 α h K/b;  send
    absorb   keep Σ_j w_ij z_j
The state is the released z_i alone, so given the transcript u_i is fixed.

**Sensitivity.** One record moves u_i − α h g_i by Δ (half of it under add/remove) and its rounding with a common
dither by at most S(Δ, η, p, β), but with probability β (`common_dither`). b = 0: Q(u_i), no noise, free.
**Guarantee.** Integer-order Rényi bound of the discrete Gaussian on a batch without replacement, plus 3 q β in δ each
round (Poisson: exact integer moments, q β). Cutting at ±(R + 6 std) comes after. Against a reader of every message.

`as_printed`: the paper's z_i = Q(x_i) + ζ_i with ζ_i of std ν (2 α h K/B + 2η√p) *and a state that is never noised*,
x_i ← a_i x_i + h Σ_j w_ij z_j − α h g_i(x_i). Its Theorem 15 is false: after a record was used once, it is in every
later message, sampled or not. Given the same transcript the states of the two worlds are Δ_t apart,

    Δ_0 = 0,   Δ_{t+1} ≤ φ(Δ_t) + 2 α h K/b,   φ(Δ) = (a_i + α h L) Δ, and never more than a_i Δ_t + 2 α h K,

φ(Δ) = max(a_i, |a_i − α h L|) Δ for a convex loss (`convex`: a generalised linear model, clipped or not), and what can
be charged is a discrete Gaussian with S(Δ_t, η, p, β) every round, without amplification. x_i is never handed out.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
from pydantic import Field, model_validator

from coterie.algorithms import _quantized as q
from coterie.algorithms.base import Auto, Erratum, Inbox, Law, Needs, Normal, Place, Public, Uniform
from coterie.algorithms.quantize import common_dither, released, width_of
from coterie.privacy.events import DiscreteGaussian, Event
from coterie.problems import Shard

TRAVELS = ("z",)  # a batch's size is for its owner's accounts
LATE = "reuse"  # averaging tolerates an old message of a late neighbour
REFERENCE = "Ding dissertation (2022) ch. 4, Q-DPSGD-2, Alg. 5, Lemma 19, Thm 15; released-state form: ours"


class Config(q.Config):
    """Hyper-parameters."""

    clip: float = Field(0.5, gt=0, description="K: bound on a record's gradient norm")
    grid: Auto = Field(None, gt=0, description="η: step of the grid; None: 2 α h K / (batch √dim)")
    range: Auto = Field(None, gt=0, description="R; messages are cut at R + 6 std; None: 1, linear models 64")
    failure: Auto = Field(None, ge=0, lt=1, description="β of the dither lemma; None: δ/(100 q rounds)")
    as_printed: bool = Field(False, description="the paper's version: not private as claimed")
    convex: bool = Field(False, description="as_printed: charge what convexity and one score per record allow")

    @model_validator(mode="after")
    def _batches(self) -> Config:
        if self.as_printed and self.scheme == "poisson":
            raise ValueError("as_printed has batches without replacement: scheme must be 'deadline' or 'fixed'")
        return self


EXAMPLE = Config(step=0.5, averaging=0.5, batch=10, clip=1.0, grid=0.02, range=64.0, failure=1e-9)

ERRATA = (
    Erratum(
        "Lemma 19",
        "sensitivity 2Kαh/b + 2η√p",
        "one step only: the state carries all earlier gradients un-noised (recursion for Δ_t); the rounding adds at "
        "most η√p",
        "privacy",
    ),
    Erratum("Thm 15", "amplification by sampling", "void on a carried state", "privacy"),
    Erratum("Alg. 5 output", "x_{i,T}", "un-noised: only z may be handed out", "privacy"),
    Erratum("Sect. 4.5", "3-bit messages", "noise of 10³ grid steps needs log₂((2R + 12 std)/η) bits", "unproved"),
    Erratum("Cor. 2", "variance of the discrete Gaussian ≤ σ²/η²", "≤ σ²", "unproved"),
    Erratum("proof of Thm 15; Cor. 1", "8ρ²; σ²/η", "8ρ; σ²/η²", "typo"),
    Erratum("(89)-(91)", "the noise term of T_3 is dropped", "keep 4h²pK²σ²/(1 − β_h²)", "unproved"),
)


class State(eqx.Module):
    """What the agent keeps: released values alone, unless as printed."""

    z: Float[Array, " d"]  # what it sent last
    near: Float[Array, " d"]  # Σ_j w_ij z_j
    x: Float[Array, " d"]  # as printed: the private state; else z again
    cut: Float[Array, ""]  # numbers cut to the range so far


class Message(eqx.Module):
    """Everything that leaves."""

    z: Float[Array, " d"]
    size: Float[Array, ""]  # records in this round's batch


def needs(cfg: Config) -> Needs:
    """Nothing, as every gradient is clipped; the bound on what the printed state carries may rest on convexity."""
    stated = cfg.as_printed and cfg.convex
    return Needs(convex=stated, smooth=stated, scored=stated)


def tune(cfg: Config, public: Public) -> Config:
    """As the family; η = Δ/√dim at a batch of B, β so small that it takes about 3 % of δ."""
    cfg = q.tune(cfg, public)
    reach = (1 if cfg.scheme == "poisson" else 2) * q.rate(cfg) * cfg.clip / cfg.batch
    linear = public.smoothness < float("inf")
    return cfg.replace(
        grid=cfg.grid or reach / public.dim**0.5,
        range=cfg.range or (64.0 if linear else 1.0),
        failure=q.tuned_failure(cfg, public),
    )


def init(cfg: Config, place: Place) -> State:
    """All agents start at the same public point."""
    start = place.start
    return State(start, (1 - place.self_weight) * start, start, jnp.zeros((), start.dtype))


def greeting(cfg: Config, place: Place) -> Message:
    """Before an agent has spoken: where all of them start."""
    return Message(place.start, jnp.zeros((), place.start.dtype))


def draws(cfg: Config, place: Place) -> dict[str, Law]:
    """Noise, the rounding's dither (public), the batch's coins."""
    return {"noise": Normal(place.dim), "dither": Uniform(place.dim), **q.batch_draws(cfg, place)}


def sensitivity(cfg: Config, place: Place, t: Array, size: Array | None = None) -> Array:
    """S: how far one record can move the rounded point (as printed: the state's drift Δ_t, rounded)."""
    if cfg.as_printed:
        return common_dither(drift(cfg, place, t), cfg.grid, place.dim, cfg.failure)
    size = q.smallest_batch(cfg, place) if size is None else size
    shift = q.rate(cfg) * q.reach(cfg, place, size)
    return common_dither(shift, cfg.grid, place.dim, cfg.failure)


def sigma(cfg: Config, place: Place, t: Array, size: Array | None = None) -> Array:
    """Noise std of the message; as printed: the multiplier times Lemma 19's sensitivity at a batch of B."""
    if not cfg.as_printed:
        return place.noise_at(t) * sensitivity(cfg, place, t, size)
    usual = jnp.minimum(float(cfg.batch), place.count)
    return place.noise_at(t) * (q.rate(cfg) * q.reach(cfg, place, usual) + 2 * cfg.grid * place.dim**0.5)


wire = sigma


def lattice(cfg: Config, place: Place, t: Array) -> tuple[Array, Array]:
    """The grid of step η, and where messages of the smallest batch are cut."""
    return jnp.asarray(cfg.grid), 1 + jnp.floor((cfg.range + 6 * sigma(cfg, place, t)) / cfg.grid)


def drift(cfg: Config, place: Place, t: Array | int) -> Array:
    """Δ_t of the printed algorithm: how far one record can have moved the un-noised state before round t's message."""
    rate, curvature = q.rate(cfg), place.unit * place.count * place.smoothness
    own = q.own_weight(cfg, place) - rate * place.ridge
    once = rate * q.reach(cfg, place, q.smallest_batch(cfg, place))
    most = rate * 2 * cfg.clip * place.unit * place.count  # two means of clipped gradients are no farther apart
    if cfg.convex:
        factor = jnp.maximum(jnp.abs(own), jnp.abs(own - rate * curvature))
    else:
        factor = jnp.abs(own) + rate * curvature

    def step(_: Array, gap: Array) -> Array:
        carried = jnp.where(gap > 0, factor * jnp.where(gap > 0, gap, 1.0), 0.0)  # the factor may be infinite
        return jnp.minimum(carried + once, jnp.abs(own) * gap + most)

    return jax.lax.fori_loop(0, t, step, jnp.zeros_like(place.noise))


def emit(cfg: Config, place: Place, t: Array, state: State, shard: Shard, draw: dict) -> tuple[State, Message]:
    """Step from the released point and release the result; as printed: release the private state, then step from it."""
    point = state.x if cfg.as_printed else state.z
    total, size = q.batch_sum(cfg, place, shard, point, draw, cfg.clip)
    slope = q.weight(place, size) * total + place.ridge * point
    x = q.own_weight(cfg, place) * point - q.rate(cfg) * slope  # what the neighbours add comes below, or in `absorb`
    value = point if cfg.as_printed else x + cfg.averaging * state.near
    scale = sigma(cfg, place, t, size)
    z = released(value, draw["dither"], draw["noise"], cfg.grid, scale)
    limit = cfg.grid * jnp.floor((cfg.range + 6 * scale) / cfg.grid)
    cut = state.cut + jnp.sum(jnp.abs(z) > limit, dtype=z.dtype)
    z = jnp.clip(z, -limit, limit)
    return State(z, state.near, x if cfg.as_printed else z, cut), Message(z, size)


def absorb(cfg: Config, place: Place, t: Array, state: State, inbox: Inbox) -> State:
    """Remember what the neighbours sent; as printed: average with it."""
    near = inbox.mixed.z
    x = state.x + cfg.averaging * near if cfg.as_printed else state.z
    return State(state.z, near, x, state.cut)


def estimate(cfg: Config, place: Place, state: State) -> Float[Array, " d"]:
    """What the agent sent last: the un-noised state is never handed out."""
    return state.z


def cost(cfg: Config, place: Place, t: Array, message: Message | None = None) -> Event:
    """Discrete Gaussian on a random batch; as printed: on everything so far, without amplification."""
    if cfg.as_printed:
        return DiscreteGaussian(sensitivity(cfg, place, t), sigma(cfg, place, t), slack=cfg.failure)
    return q.batch_cost(cfg, place, t, message, discrete=True, failure=cfg.failure)


def claim(cfg: Config, place: Place, delta: float) -> float:
    """Theorem 15: the formula of Theorem 11 at the multiplier, as if the state carried nothing."""
    return q.printed_epsilon(2 * float(place.noise) / cfg.batch, int(place.count), place.rounds, delta)


def bits(cfg: Config, place: Place, message: Message) -> Array:
    """As many bits per number as the largest one needs, a header and the batch size."""
    return q.message_bits(place.dim, width_of(jnp.round(message.z / cfg.grid)))


def duration(cfg: Config, place: Place, t: Array, draw: dict) -> Array:
    """T_d + T_c s/16 virtual seconds with s = log₂((2R + 12 std)/η) bits."""
    usual = jnp.minimum(float(cfg.batch), place.count)
    width = jnp.log2((2 * cfg.range + 12 * sigma(cfg, place, t, usual)) / cfg.grid)
    return q.seconds(cfg, draw, jnp.ceil(jnp.maximum(width, 1.0)))
