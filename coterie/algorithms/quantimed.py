r"""QuanTimed-DSGD: few-bit messages and batches cut at a deadline. Not private; `qdpsgd1` without noise.

emit     broadcast z_i = Q(x_i), stochastic rounding to s bits; keep α h g_i, the mean gradient over the b records
         that a fresh random order reached by the deadline (0 if none)
absorb   x_i ← a_i x_i + h Σ_j w_ij z_j − α h g_i,   a_i = 1 − h + h w_ii
"""

from __future__ import annotations

from jaxtyping import Array
from pydantic import Field

from coterie.algorithms import _quantized as q
from coterie.algorithms._quantized import Message, State, absorb, bits, duration, estimate, init, tune  # noqa: F401
from coterie.algorithms.base import Law, Needs, Place, Uniform
from coterie.privacy.events import Event, NonPrivate
from coterie.problems import Shard

LATE = "reuse"  # averaging tolerates an old message of a late neighbour
REFERENCE = "Reisizadeh, Taheri, Mokhtari, Hassani, Pedarsani (NeurIPS 2019), QuanTimed-DSGD"


class Config(q.LowBit):
    """Hyper-parameters."""

    clip: float | None = Field(None, gt=0, description="bound on a record's gradient norm; None: no clipping")


EXAMPLE = Config(step=0.5, averaging=0.5, batch=10, bits=10, range=8.0)


def needs(cfg: Config) -> Needs:
    """Nothing: it makes no promise."""
    return Needs(projects=True)


def draws(cfg: Config, place: Place) -> dict[str, Law]:
    """The rounding's dither (public) and the batch's coins."""
    return {"dither": Uniform(place.dim), **q.batch_draws(cfg, place)}


def emit(cfg: Config, place: Place, t: Array, state: State, shard: Shard, draw: dict) -> tuple[State, Message]:
    """Send the rounded point; compute the step to take from the exact one."""
    total, size = q.batch_sum(cfg, place, shard, state.x, draw, cfg.clip)
    slope = q.weight(place, size) * total + place.ridge * state.x
    move = q.rate(cfg) * slope
    return q.send(cfg, state, move, size, draw)


def cost(cfg: Config, place: Place, t: Array, message: Message | None = None) -> Event:
    """No privacy at all."""
    return NonPrivate()
