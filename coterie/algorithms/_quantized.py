r"""What the quantized family shares: batches at a deadline, step sizes, few-bit messages, virtual time, costs.

`quantimed`, `qdpsgd1`, `qdpsgd2` and `qdpsgd2-grad` all follow

    x_i ← a_i x_i + h Σ_j w_ij z_j − α h g_i,     a_i = 1 − h + h w_ii,

(projected on the problem's set, if it has one, but for `qdpsgd2`)
with z_j what neighbour j sent on a grid and g_i a batch gradient, noised or not. α is `step`, h `averaging`, K `clip`.
All but `qdpsgd2` keep x_i exact and send z_i = Q(x_i), stochastic rounding to s bits: `State` to `duration` below are
theirs.

Four ways to draw the batch (`scheme`): "deadline", as many records of a fresh permutation as the machine processes in
B/50 virtual seconds; "clock", at most B of them, as the machine's own clock allows; "fixed", B of them however long it
takes; "poisson", every record with probability B/n (accounted under add/remove; all gradients are divided by B).
Without replacement one record moves the batch mean by 2K/b, under add/remove by K/B. The noise of a round is ν times
that, with one ν for all rounds, so a round with a small batch costs no more than one with a large batch and a round
without a batch (b = 0) adds no noise and costs nothing.

Cost before the run: the law of b is public, so `DeadlineGaussian` gives an ε fixed in advance. Cost of a message that
was sent: its batch size is known (it travels with the message), so `SampledGaussian` at the rate b/n. By the clock
every round costs what a batch of B does, before and after: what one ν costs grows with the batch (docs/stragglers.md).
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree
from pydantic import Field, model_validator

from coterie.algorithms._sampling import (
    DeadlineGaussian,
    Pace,
    batch_by_clock,
    batch_by_deadline,
    deadline,
    deadline_sizes,
    first_of_permutation,
    most_by_deadline,
    piece_of,
    poisson,
    poisson_cap,
    poisson_overflow,
    speed,
)
from coterie.algorithms.base import Auto, Inbox, Law, Place, Public, Uniform
from coterie.algorithms.base import Config as BaseConfig
from coterie.algorithms.quantize import Whole, dithered, packed_bits, saturate
from coterie.privacy.events import Event, SampledGaussian
from coterie.privacy.rdp import zcdp_epsilon
from coterie.problems import Shard

SIZE_BITS = 32  # the batch size travels with every message
BASELINE_BITS = 16  # the dissertation's clock: T_c is the time of a message with 16 bits per number


Scheme = Literal["deadline", "clock", "fixed", "poisson"]


class Config(BaseConfig):
    """Hyper-parameters of the family; None is filled by `tune`."""

    step: Auto = Field(None, ge=0, description="α; None: .3 / rounds^(1/6)")
    averaging: Auto = Field(None, gt=0, le=1, description="h; None: the smaller of 11/√rounds and 1/(2 − spectral gap)")
    batch: int = Field(20, ge=1, description="B: records per round, on average if a deadline decides")
    scheme: Scheme = Field("deadline", description="how a batch comes about")
    link: float = Field(3.0, ge=0, description="T_c: virtual seconds that a message with 16 bits per number takes")

    @model_validator(mode="after")
    def _noise_of_its_batch(self) -> Config:
        if self.scheme == "clock" and getattr(self, "as_printed", False):
            raise ValueError("as_printed has the same noise whatever the batch: scheme must not be 'clock'")
        return self


class LowBit(Config):
    """With messages of `bits` bits per number on a grid over ±`range`."""

    bits: int = Field(3, ge=1, le=32, description="s: bits per number of a message")
    range: Auto = Field(
        None, gt=0, description="R: the grid covers ±R in steps of 2R/2^bits; None: 1 for networks, 8 for linear models"
    )


C = TypeVar("C", bound=Config)


@runtime_checkable
class Batches(Protocol):
    """How batches are drawn."""

    @property
    def batch(self) -> int:
        """B."""

    @property
    def scheme(self) -> Scheme:
        """How a batch comes about."""


@runtime_checkable
class Clipped(Batches, Protocol):
    """Batches of gradients that are clipped."""

    @property
    def clip(self) -> float:
        """K."""


@runtime_checkable
class Dithered(Batches, Protocol):
    """Batches whose sum is rounded with a common dither."""

    @property
    def failure(self) -> float:
        """β of the dither lemma."""


class Batch(NamedTuple):
    """`Batches` of an algorithm that may also take all records."""

    batch: int
    scheme: Scheme


def tune(cfg: C, public: Public) -> C:
    """The dissertation's α and h (capped so that a_i stays a contraction), a grid over ±R."""
    step = cfg.step if cfg.step is not None else 0.3 / max(public.rounds, 1) ** (1 / 6)
    # h ≤ 1/(1 − λ_min(W)), and λ_min ≥ −(1 − gap)
    most = 1 / (2 - (public.mixing_gap or 0.0))
    averaging = cfg.averaging or min(11 / math.sqrt(max(public.rounds, 1)), most)
    cfg = cfg.replace(step=step, averaging=averaging)
    if isinstance(cfg, LowBit) and cfg.range is None:
        cfg = cfg.replace(range=8.0 if math.isfinite(public.smoothness) else 1.0)
    return cfg


def tuned_failure(cfg: Dithered, public: Public) -> float:
    """β of the dither lemma: δ/(100 q rounds), so that all rounds together take 3 % of δ (1e-9 without a budget)."""
    if cfg.failure is not None:
        return float(cfg.failure)
    share = min(1.0, cfg.batch / public.count_min)
    return 1e-9 if public.delta is None else public.delta / (100 * share * max(public.rounds, 1))


def resolution(cfg: LowBit) -> Array | float:
    """η: the step of the grid that messages live on."""
    return 2 * cfg.range / 2**cfg.bits


def rate(cfg: Config) -> Array | float:
    """α h: what a gradient is multiplied by."""
    return cfg.step * cfg.averaging


def own_weight(cfg: Config, place: Place) -> Array:
    """a_i."""
    return 1 - cfg.averaging + cfg.averaging * place.self_weight


# ---- batches ---------------------------------------------------------------------------------------------------------


def batch_draws(cfg: Batches, place: Place) -> dict[str, Law]:
    """One coin per record (which records) and one for the machine's speed (how many, or how long)."""
    return {"coins": Uniform(place.rows), "speed": Pace() if cfg.scheme == "clock" else Uniform()}


def batch_size(cfg: Batches, place: Place, draw: dict) -> Array:
    """b of this round; the expected one, by which sums are divided, if Poisson."""
    if cfg.scheme == "deadline":
        return batch_by_deadline(cfg.batch, draw["speed"], place.count)
    if cfg.scheme == "clock":
        return batch_by_clock(cfg.batch, draw["speed"], place.count)
    return jnp.minimum(float(cfg.batch), place.count)


def smallest_batch(cfg: Batches, place: Place) -> Array:
    """The least b > 0: what the largest sensitivity belongs to."""
    least = float(cfg.batch)
    if cfg.scheme == "deadline":
        least = max(1.0, float(deadline_sizes(cfg.batch, np.inf)[0][0]))
    elif cfg.scheme == "clock":
        least = float(piece_of(cfg.batch))
    return jnp.minimum(least, place.count)


def batch_sum(
    cfg: Batches, place: Place, shard: Shard, x: Float[Array, " d"], draw: dict, clip: Array | float | None
) -> tuple[Float[Array, " d"], Array]:
    """(Σ of clipped gradients over the batch, b)."""
    size = batch_size(cfg, place, draw)
    if cfg.scheme == "poisson":
        rows, mask = poisson(draw["coins"], place.count, size / place.count, poisson_cap(cfg.batch, place.rows))
    else:
        width = most_by_deadline(cfg.batch) if cfg.scheme == "deadline" else cfg.batch
        rows, mask = first_of_permutation(draw["coins"], place.count, size, max(width, 1))
    if cfg.scheme == "clock":
        return _in_pieces(shard, x, clip, rows, mask, size, piece_of(cfg.batch)), size
    return shard.gradient(x, clip=clip, rows=rows, mask=mask), size


def _in_pieces(
    shard: Shard, x: Float[Array, " d"], clip: Array | float | None, rows: Array, mask: Array, size: Array, piece: int
) -> Float[Array, " d"]:
    """Σ of gradients, worked off `piece` records at a time: as much work as `size` records take, whatever they are."""
    rows, mask = (jnp.pad(each, (0, -rows.shape[0] % piece)) for each in (rows, mask))

    def one(k: Array, total: Array) -> Array:
        own, here = (jax.lax.dynamic_slice_in_dim(each, k * piece, piece) for each in (rows, mask))
        return total + shard.gradient(x, clip=clip, rows=own, mask=here)

    return jax.lax.fori_loop(0, jnp.ceil(size / piece).astype(int), one, jnp.zeros_like(x))


def weight(place: Place, size: Array) -> Array:
    """What a batch sum is multiplied by to stand for unit Σ over all records (0 for an empty batch)."""
    return jnp.where(size > 0, place.unit * place.count / jnp.maximum(size, 1.0), 0.0)


def reach(cfg: Clipped, place: Place, size: Array) -> Array:
    """How far one record can move the weighted batch sum: 2K (add/remove: K) times its weight."""
    return (1.0 if cfg.scheme == "poisson" else 2.0) * cfg.clip * weight(place, size)


def batch_cost(
    cfg: Batches,
    place: Place,
    t: Array,
    message: PyTree,
    *,
    discrete: bool,
    failure: Array | float = 0.0,
    constant: bool = False,
    keep: Array | float = 1.0,
) -> Event:
    """The event of one round with multiplier `place.noise_at(t)`; see the module's docstring.

    `failure` β: probability that a dither breaks the declared sensitivity of one pair; it adds 3 q β to δ (one pair
    for each two of the batch laws without, with the old and with the new record), q β under add/remove. `keep`: the
    share of coordinates that a public random mask lets through, which earns something under Poisson sampling only.
    """
    nu, count = place.noise_at(t), place.count
    if cfg.scheme == "poisson":
        share = jnp.minimum(float(cfg.batch), count) / count
        tv = poisson_overflow(count, share, poisson_cap(cfg.batch, place.rows))
        return SampledGaussian(nu, share, keep, scheme="poisson", discrete=discrete, slack=share * failure, tv=tv)
    if message is None and cfg.scheme == "deadline":
        # E b ≤ B, and b ≤ n
        slack = 3 * failure * jnp.minimum(float(cfg.batch), count) / count
        return DeadlineGaussian(nu, count, cfg.batch, discrete=discrete, constant=constant, slack=slack)
    whatever = message is None or cfg.scheme == "clock"
    size = jnp.minimum(float(cfg.batch), count) if whatever else message.size
    nu = nu * (size / cfg.batch if constant else 1.0)
    times = (size > 0).astype(int)
    return SampledGaussian(nu, size / count, discrete=discrete, slack=3 * failure * size / count, times=times)


# ---- clock and wire --------------------------------------------------------------------------------------------------


def seconds(cfg: Config, draw: dict, bits: Array | float | int) -> Array:
    """Virtual time of a round: until the deadline, or until all B records are done, then the message's T_c bits/16."""
    work = deadline(cfg.batch) if cfg.scheme in ("deadline", "clock") else cfg.batch / speed(draw["speed"])
    return jnp.asarray(work + cfg.link * bits / BASELINE_BITS)


def message_bits(dim: int, bits: Whole) -> Whole:
    """Size on the wire: batch size, header, `bits` per number."""
    return SIZE_BITS + packed_bits(dim, bits)


# ---- agents that keep their point exact and send it rounded ----------------------------------------------------------


class State(eqx.Module):
    """What the agent keeps."""

    x: Float[Array, " d"]
    move: Float[Array, " d"]  # α h g_i, taken when the neighbours have answered
    saturated: Float[Array, ""]  # numbers cut to the range so far


class Message(eqx.Module):
    """Everything that leaves."""

    z: Float[Array, " d"]
    size: Float[Array, ""]  # records in this round's batch


def init(cfg: LowBit, place: Place) -> State:
    """All agents start at the same public point."""
    return State(place.start, jnp.zeros_like(place.start), jnp.zeros((), place.start.dtype))


def greeting(cfg: LowBit, place: Place) -> Message:
    """Before an agent has spoken: where all of them start."""
    return Message(place.start, jnp.zeros((), place.start.dtype))


def send(cfg: LowBit, state: State, move: Array, size: Array, draw: dict) -> tuple[State, Message]:
    """Round the point to s bits and broadcast it; keep the step to take from the exact one."""
    whole, cut = saturate(dithered(state.x, draw["dither"], resolution(cfg)), cfg.bits)
    return State(state.x, move, state.saturated + cut), Message(resolution(cfg) * whole, size)


TRAVELS = ("z",)  # a batch's size is for its owner's accounts
LATE = "reuse"  # averaging tolerates an old message of a late neighbour


def lattice(cfg: LowBit, place: Place, t: Array) -> tuple[Array, Array]:
    """The grid of s bits: −2^{s−1} … 2^{s−1} − 1 steps."""
    return jnp.asarray(resolution(cfg)), jnp.asarray(2.0 ** (cfg.bits - 1))


def absorb(cfg: LowBit, place: Place, t: Array, state: State, inbox: Inbox) -> State:
    """Average with what the neighbours sent, then step."""
    x = own_weight(cfg, place) * state.x + cfg.averaging * inbox.mixed.z - state.move
    return State(place.project(x), state.move, state.saturated)


def estimate(cfg: LowBit, place: Place, state: State) -> Float[Array, " d"]:
    """The agent's point."""
    return state.x


def reveals(cfg: LowBit, place: Place, state: State, message: Message) -> tuple[Array, Array]:
    """The noisy step itself: the proofs let everybody see it, of which messages show a rounding only."""
    return state.move, message.size


def bits(cfg: LowBit, place: Place, message: Message) -> int:
    """s bits per number, a header and the batch size."""
    return message_bits(place.dim, cfg.bits)


def duration(cfg: LowBit, place: Place, t: Array, draw: dict) -> Array:
    """T_d + T_c s/16 virtual seconds."""
    return seconds(cfg, draw, cfg.bits)


def printed_epsilon(sigma: float, count: int, rounds: int, delta: float) -> float:
    """Ding (diss., Thm 11): 8ρ/(m²σ²) per round at order ρ whatever the batch, best order; unsafe for small batches.

    Minimising Tρ·8/(m²σ²) + ln(1/δ)/(ρ − 1) over ρ gives A + 2√(A ln 1/δ) with A = 8T/(m²σ²).
    """
    return zcdp_epsilon(8 * rounds / (count * sigma) ** 2, delta)
