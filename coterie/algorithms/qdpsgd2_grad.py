r"""Q-DPSGD-2 with the noise on the gradient: quantize, add discrete Gaussian noise, send few-bit points.

    emit     broadcast z_i = Q(x_i), stochastic rounding to s bits; keep v_i = α h ĝ_i with
             ĝ_i = (Q_γ(Σ_S clip_K ∇loss) + ζ_i)/b,  ζ_i discrete Gaussian on γZ of std ν S(2K, γ, p, β);  0 if b = 0
    absorb   x_i ← a_i x_i + h Σ_j w_ij z_j − v_i,   a_i = 1 − h + h w_ii

Our repair of Q-DPSGD-2 for messages of few bits: quantized gradients, exact integer noise and 3-bit messages survive;
the noise is S(2K, γ, p, β)/2K (1.14 for the MNIST network) times that of `qdpsgd1` at the same multiplier.

**Sensitivity.** As in `qdpsgd1` one record moves the batch sum by 2K (K under add/remove) given the transcript; after
rounding with a common dither by at most S(2K, γ, p, β), but with probability β (`common_dither`).
**Guarantee.** Integer-order Rényi bound of the discrete Gaussian on a batch without replacement (Wang, Balle,
Kasiviswanathan), plus 3 q β in δ each round; Poisson batches: the exact integer moments under add/remove, q β.
Rounding and sending x_i is post-processing. Against a reader of every message.
"""

from __future__ import annotations

from jaxtyping import Array
from pydantic import Field

from coterie.algorithms import _quantized as q
from coterie.algorithms._quantized import (  # noqa: F401
    LATE,
    TRAVELS,
    Message,
    State,
    absorb,
    bits,
    duration,
    estimate,
    greeting,
    init,
    lattice,
    reveals,
)
from coterie.algorithms.base import Auto, Law, Needs, Normal, Place, Public, Uniform
from coterie.algorithms.quantize import common_dither, released
from coterie.privacy.events import Event
from coterie.problems import Shard

REFERENCE = "Ding dissertation (2022) ch. 4, Q-DPSGD-2, with the discrete noise moved to the gradient (ours)"


class Config(q.LowBit):
    """Hyper-parameters."""

    clip: float = Field(0.5, gt=0, description="K: bound on a record's gradient norm")
    grid: Auto = Field(None, gt=0, description="γ: step of the gradient's grid; None: 2K/√dim")
    failure: Auto = Field(None, ge=0, lt=1, description="β of the dither lemma; None: δ/(100 q rounds)")


EXAMPLE = Config(step=0.5, averaging=0.5, batch=10, bits=10, range=8.0, clip=1.0, grid=0.5, failure=1e-9)


def needs(cfg: Config) -> Needs:
    """Nothing: every gradient is clipped."""
    return Needs(projects=True)


def tune(cfg: Config, public: Public) -> Config:
    """As the family; γ = (what one record can move)/√dim, β so small that it takes about 3 % of δ."""
    cfg = q.tune(cfg, public)
    grid = cfg.grid or (1 if cfg.scheme == "poisson" else 2) * cfg.clip / public.dim**0.5
    return cfg.replace(grid=grid, failure=q.tuned_failure(cfg, public))


def draws(cfg: Config, place: Place) -> dict[str, Law]:
    """Noise, dithers of the gradient's and of the message's rounding (public), the batch's coins."""
    rounding = {"dither": Uniform(place.dim), "gradient_dither": Uniform(place.dim)}
    return {"noise": Normal(place.dim), **rounding, **q.batch_draws(cfg, place)}


def sensitivity(cfg: Config, place: Place, t: Array) -> Array:
    """S: how far one record can move the rounded batch sum, but with probability β."""
    return common_dither((1 if cfg.scheme == "poisson" else 2) * cfg.clip, cfg.grid, place.dim, cfg.failure)


def sigma(cfg: Config, place: Place, t: Array) -> Array:
    """Noise std on the batch sum."""
    return place.noise_at(t) * sensitivity(cfg, place, t)


wire = sigma  # of the step, which no message shows but rounded


def emit(cfg: Config, place: Place, t: Array, state: State, shard: Shard, draw: dict) -> tuple[State, Message]:
    """Send the rounded point; make the noisy step to take from the exact one."""
    total, size = q.batch_sum(cfg, place, shard, state.x, draw, cfg.clip)
    total = released(total, draw["gradient_dither"], draw["noise"], cfg.grid, sigma(cfg, place, t))
    slope = q.weight(place, size) * total + place.ridge * state.x
    return q.send(cfg, state, q.rate(cfg) * slope, size, draw)


def cost(cfg: Config, place: Place, t: Array, message: Message | None = None) -> Event:
    """Discrete Gaussian on a random batch; before the run over the law of its size, afterwards at the size sent."""
    return q.batch_cost(cfg, place, t, message, discrete=True, failure=cfg.failure)
