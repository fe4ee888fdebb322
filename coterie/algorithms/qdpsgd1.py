r"""Q-DPSGD-1: Gaussian noise on deadline-batch gradients, few-bit messages.

    emit     broadcast z_i = Q(x_i), stochastic rounding to s bits; keep v_i = α h (g_i + ζ_i), g_i the mean clipped
             gradient over the b records of a fresh random order that the deadline allowed, ζ_i ~ N(0, (ν 2K/b)² I);
             v_i = 0 if b = 0 (but for the ridge's share)
    absorb   x_i ← a_i x_i + h Σ_j w_ij z_j − v_i,   a_i = 1 − h + h w_ii

**Sensitivity.** x_i is a function of the public start, earlier *noisy* gradients and received messages, so given these
one record moves v_i by at most α h 2K/b (replace-one, unit = 1/n). Rounding, clamping and all messages are
post-processing of the noisy gradients; so is the answer x_{i,T}.
**Guarantee.** Per round a Gaussian on a batch without replacement, accounted by the symmetrised loss distribution
(`coterie.privacy.profiles.sampled_gaussian`); needs batch sizes that do not depend on data values. Against a reader of
every message.

`as_printed` draws noise of the same std ν 2K/B whatever b: the cost told is still the true one. `claim` is Theorem 11.
"""

from __future__ import annotations

import jax.numpy as jnp
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
    printed_epsilon,
    reveals,
    tune,
)
from coterie.algorithms.base import Erratum, Law, Needs, Normal, Place, Uniform, add
from coterie.privacy.events import Event
from coterie.problems import Shard

REFERENCE = "Ding, Liang, Bi, Pan: Q-DPSGD-1; Ding dissertation (2022) ch. 4, Alg. 4, Thm 11"


class Config(q.LowBit):
    """Hyper-parameters."""

    clip: float = Field(0.5, gt=0, description="K: bound on a record's gradient norm")
    as_printed: bool = Field(False, description="the same noise whatever the batch size, as the paper has it")


EXAMPLE = Config(step=0.5, averaging=0.5, batch=10, bits=10, range=8.0, clip=1.0)

ERRATA = (
    Erratum(
        "Thm 11",
        "8ρ/(m²σ²) at order ρ for every batch size b",
        "a closed form used outside its range: far too small for small b or short runs, about 2.5 times too large in ε "
        "otherwise; account each round as sampling without replacement with q = b/m, ν = σb/2",
        "privacy",
    ),
    Erratum("Thm 11, sampling", "a batch is random", "only a fresh uniform order every round earns it", "privacy"),
    Erratum(
        "Lemma 8 in Thm 11",
        "Poisson amplification at the realised rate with sensitivity 2K/b",
        "mixes two neighbour relations: fixed normaliser and K under add/remove, or without replacement and 2K/b",
        "unproved",
    ),
    Erratum("Remark 4", "a random ε is the guarantee", "fix ε in advance from the law of the batch size", "unproved"),
    Erratum("quantizer (26)", "range up to 2^s − 1", "2^{s−1} − 1 above, −2^{s−1} below", "typo"),
    Erratum("proof of Thm 11", "8ρ/(mσ²); (ε(ρ) + ln 1/δ)/(ρ − 1)", "8ρ/(m²σ²); ε(ρ) + ln(1/δ)/(ρ − 1)", "typo"),
    Erratum("Remark 6", "empirical and true risk differ by O(1/mn)", "O(1/√(mn))", "unproved"),
    Erratum("Thms 12, 13; Lemma 18", "K as smoothness, T^{−3δ̃}, α = 2T^{−δ̃/2}", "L, T^{−4δ̃}, T^{−δ̃/2}", "typo"),
    Erratum("Lemma 15 (v)", "the batch gradient is unbiased", "only for b ≥ 1", "unproved"),
    Erratum("Remark 5", "rate near 1/√T as δ̃ → ½", "only from T ≥ exp(exp(1/(1 − 2δ̃))) on", "unproved"),
    Erratum("Assumption 1, κ > λ_max/2", "W has non-negative weights", "needs κ ≥ the largest degree", "utility"),
    Erratum("x_0 = 0", "any network can start there", "hidden units stay equal: start at random", "utility"),
    Erratum(
        "Thm 13, consensus",
        "T^{−2/3} from rounding",
        "T^{−1/2}: quadratics show it exactly (reproduction.theorems)",
        "utility",
    ),
    Erratum("Thm 13", "no f(0) − f*", "without noise the right side is 0, and descent is not done", "utility"),
)


def needs(cfg: Config) -> Needs:
    """Nothing: every gradient is clipped."""
    return Needs(projects=True)


def draws(cfg: Config, place: Place) -> dict[str, Law]:
    """Noise, the rounding's dither (public) and the batch's coins."""
    return {"noise": Normal(place.dim), "dither": Uniform(place.dim), **q.batch_draws(cfg, place)}


def sensitivity(cfg: Config, place: Place, t: Array, size: Array | None = None) -> Array:
    """How far one record can move v_i with a batch of `size`, the smallest possible one if not given."""
    size = q.smallest_batch(cfg, place) if size is None else size
    return q.rate(cfg) * q.reach(cfg, place, size)


def sigma(cfg: Config, place: Place, t: Array, size: Array | None = None) -> Array:
    """Noise std of v_i."""
    if not cfg.as_printed:
        return place.noise_at(t) * sensitivity(cfg, place, t, size)
    usual = jnp.minimum(float(cfg.batch), place.count)
    scale = place.noise_at(t) * sensitivity(cfg, place, t, usual)
    return scale if size is None else jnp.where(size > 0, scale, 0.0)


wire = sigma  # of the step, which no message shows but rounded


def emit(cfg: Config, place: Place, t: Array, state: State, shard: Shard, draw: dict) -> tuple[State, Message]:
    """Send the rounded point; make the noisy step to take from the exact one."""
    total, size = q.batch_sum(cfg, place, shard, state.x, draw, cfg.clip)
    slope = q.weight(place, size) * total + place.ridge * state.x
    move = add(q.rate(cfg) * slope, draw["noise"], sigma(cfg, place, t, size))
    return q.send(cfg, state, move, size, draw)


def cost(cfg: Config, place: Place, t: Array, message: Message | None = None) -> Event:
    """A Gaussian on a random batch; before the run over the law of its size, afterwards at the size that was sent."""
    constant = cfg.as_printed and cfg.scheme != "poisson"
    return q.batch_cost(cfg, place, t, message, discrete=False, constant=constant)


def claim(cfg: Config, place: Place, delta: float) -> float:
    """Theorem 11 at the noise σ = 2ν/B (as a multiple of K) that a batch of B gets."""
    return printed_epsilon(2 * float(place.noise) / cfg.batch, int(place.count), place.rounds, delta)
