r"""LDP-ADMM (Xiao, Ye, Devadas): first-order ADMM with random penalties and Laplace noise.

Agent i (x⁰ public and common, λ = 0), round t, constants D (inverse step) and ζ (dual step):
    emit     w ~ U(0, 1)ᵈ;  x ← w x + (1 − w) mean_j x_j − (∇f_i(x) − λ)/D + e,  e Laplace of rate β_t;  broadcast
    absorb   λ ← λ + ζ Σ_j (x_j − x_i)
    answer   the average of x over the agent and its neighbours, over the last `tail` of the rounds
w stands for random penalties: Γ = wD and |V_i| ρ = (1 − w)D. It stays secret and is drawn afresh. Σ_i λ_i = 0.
Over a set the linearised problem's minimiser is the projection of that point, as its curvature D is the same in all
directions: x ← P(…) + e, and the answer is projected too.

**Sensitivity.** x, the neighbours' mean and λ are functions of broadcasts, and the gradient is taken at a public point:
given the transcript one record moves the next point by S = 2V·unit/D in L2 norm (so in any coordinate), and by √d S
in L1 norm. V: `lipschitz`, or `clip` if smaller. P does not expand the L2 norm, from which the others follow.

**Guarantee.** `Laplace(L1 = √d S, L∞ = S, L2 = S)` each round with rate β_t = 1/(noise_t √d S), pure 1/noise_t. The
random weights are a post-processing of it: they lower the mean realised loss (`reproduction.realised`) but no pure
guarantee. Their (ε, δ) gain depends on widths |x_i − mean_j x_j| that the transcript decides, so it takes a Rényi
filter: charge `mixture` of each round to a `coterie.privacy.filter.Filter`. Replace-one, sizes public, every message
seen; any loss with bounded or clipped gradients.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from pydantic import Field

from coterie.algorithms import _penalty
from coterie.algorithms._admm import tail_mean
from coterie.algorithms.base import Auto, Erratum, Inbox, LaplaceLaw, Law, Needs, Place, Public, Uniform, add
from coterie.algorithms.base import Config as BaseConfig
from coterie.errors import InputError
from coterie.privacy import events, gdp
from coterie.privacy.events import Event, LaplaceUniform
from coterie.problems import Shard

REFERENCE = "Xiao, Ye, Devadas, Local Differential Privacy in Decentralized Optimization, Alg. 1"
READS = "sums"
ANY_LENGTH = True


class Config(BaseConfig):
    """Hyper-parameters."""

    inverse_step: Auto = Field(None, gt=0, description="D; None: 2 (smoothness + ridge)")
    dual_step: Auto = Field(None, gt=0, description="ζ; None: D / (2 · largest Laplacian eigenvalue)")
    clip: float | None = Field(None, gt=0, description="largest norm of a record's gradient; None: its own bound")
    tail: float = Field(0.5, ge=0, le=1, description="share of the rounds whose releases the answer averages; 0: last")
    as_printed: bool = Field(False, description="the dual with the paper's sign, which diverges")


EXAMPLE = Config(inverse_step=2.0, dual_step=0.2)

ERRATA = (
    Erratum("Alg. 1, λ", "λ_i − ζ Σ_j (x_j − x_i)", "plus: the printed sign feeds back and diverges", "utility"),
    Erratum(
        "Thm 2.2, App. E", "worst case Σ_k β_k B_∞/D", "d times that, or B₁ for B_∞: .318 is 4.459 at d = 14", "privacy"
    ),
    Erratum("App. E", "B_∞ = 1/b_i for one record", "2/b_i when a ±1-labelled record is replaced", "privacy"),
    Erratum("App. E", "labels {0, 1} in log(1 + e^{−ℓxz})", "labels ±1", "utility"),
    Erratum(
        "Thm 2.3, (11)",
        "an upper bound of the mean realised loss",
        "App. D maximises the wrong branch and understates it: .8215 where the mean is .8683",
        "privacy",
    ),
    Erratum("Def. 1, (8)", "Pr ≤ ε(X) Pr' + δ(X)", "e^{ε(X)}; privacy per output, not LDP (its supremum)", "typo"),
    Erratum(
        "footnote 1",
        "the composition theorem with realised, output-dependent ε(X)",
        "parameters must be fixed in advance: worst-case ε, or a filter on announced widths",
        "privacy",
    ),
    Erratum(
        "(10)", "publish the realised ε(X)", "it contains the gradient; publish γ of public widths only", "privacy"
    ),
    Erratum("App. C", "equality βt outside both intervals", "not in the gap between them; ≤ suffices", "typo"),
    Erratum(
        "Thm 3.1",
        "G with ζI; ‖λ‖ bounded through one A_i",
        "ζ⁻¹I and D_i > Nσ²/α + L_i; stack all A_i, whose transposes have kernels in consensus",
        "unproved",
    ),
    Erratum("(27)", "e^{ωαB}", "e^{βαB}", "typo"),
    Erratum("Alg. 1", "a private constant D_i", "public, or at least independent of the data", "typo"),
    Erratum("Thm 3.3", "Õ(d³N B²/ε²)", "times K²/(1 − a): at a pure ε more rounds are worse", "utility"),
)


class State(eqx.Module):
    """What the agent keeps: all of it released or derived from releases."""

    x: Float[Array, " d"]
    dual: Float[Array, " d"]  # λ
    near: Float[Array, " d"]  # Σ_j x_j
    mean: Float[Array, " d"]  # the answer so far


class Message(eqx.Module):
    """Everything that leaves."""

    x: Float[Array, " d"]


def needs(cfg: Config) -> Needs:
    """Nothing where gradients are clipped, else a bound on them."""
    return Needs(bounded=cfg.clip is None, projects=True)


def tune(cfg: Config, public: Public) -> Config:
    """D = 2L with L = smoothness + ridge (.25 + ridge without a curvature bound); ζ = D/(2 λ_max).

    Both half of what the linearised iteration allows: random weights converged with them on every graph we tried.
    """
    if cfg.inverse_step is None:
        bounded = public.smoothness < float("inf")
        cfg = cfg.replace(inverse_step=2 * ((public.smoothness if bounded else 0.25) + public.ridge))
    if cfg.dual_step is None:
        cfg = cfg.replace(dual_step=cfg.inverse_step / (2 * public.laplacian_max))
    return cfg


def suggest_rounds(public: Public) -> int:
    """Steps of 1/D are short, so the number of rounds K plays the part of the penalty in the exact methods.

    As in `_penalty.private_penalty` progress and noise depend on K/D only: K = MARGIN_NOISE · nDμ√N'/(2√2 V), between
    100 and 1000, √2 being what Laplace noise loses to Gaussian noise. Without a budget at some δ > 0: 100.
    """
    if not public.epsilon or not public.delta or not np.isfinite(public.lipschitz):
        return 100
    mu = float(gdp.mu_for(public.epsilon, public.delta))
    room = public.count_min * tune(Config(), public).inverse_step * mu * public.agents**0.5
    return int(np.clip(_penalty.MARGIN_NOISE * room / (2 * 2**0.5 * public.lipschitz), 100, 1000))


def convergent(cfg: Config, public: Public) -> str | None:
    """A warning if D and ζ lie outside the region in which the linearised iteration converges, else None.

    With a = 1 − ν/2 − L/D, ν the largest eigenvalue of the normalised Laplacian (at most 2, and at most λ_max over the
    smallest degree): a > −1 and ζ λ_max < 2D(1 + a). Random weights need a margin, 7 % here. The provable region
    (D ≥ L + 2m/N², ζ ≤ m/(5N²σ²)) is far smaller, and no published experiment lies in it.
    """
    cfg = tune(cfg, public)
    d, dual = float(cfg.inverse_step or 0), float(cfg.dual_step or 0)
    steep = public.smoothness + public.ridge
    if not np.isfinite(steep):
        return None
    slow = 1 - min(2.0, public.laplacian_max / max(public.degree_min, 1)) / 2 - steep / d
    if slow <= -1:
        return f"inverse_step {d:g} may diverge: at least {2 * steep:.3g} is safe for curvature {steep:.3g}"
    limit = 0.93 * 2 * d * (1 + slow) / public.laplacian_max
    if dual >= limit:
        safe = d / (2 * public.laplacian_max)
        return f"dual_step {dual:g} may diverge on this graph: the limit is about {limit:.3g}, {safe:.3g} is safe"
    return None


def init(cfg: Config, place: Place) -> State:
    """All agents start at the same public point."""
    return State(place.start, jnp.zeros_like(place.start), place.degree * place.start, place.start)


def draws(cfg: Config, place: Place) -> dict[str, Law]:
    """`weight` is w, `noise` becomes e."""
    return {"weight": Uniform(place.dim), "noise": LaplaceLaw(place.dim)}


def sensitivity(cfg: Config, place: Place, t: Array) -> Array:
    """S: how far one record moves the next point, in L2 norm."""
    bound = place.lipschitz if cfg.clip is None else jnp.minimum(cfg.clip, place.lipschitz)
    return 2 * bound * place.unit / cfg.inverse_step


def scale(cfg: Config, place: Place, t: Array) -> Array:
    """1/β_t: scale of the Laplace noise of round t."""
    return place.noise_at(t) * place.dim**0.5 * sensitivity(cfg, place, t)


wire = scale  # a deployed message travels on the grid of its noise


def emit(cfg: Config, place: Place, t: Array, state: State, shard: Shard, draw: dict) -> tuple[State, Message]:
    """Mix own point and neighbours' mean at random, step along the gradient, add noise."""
    w = draw["weight"]
    gradient = place.unit * shard.gradient(state.x, cfg.clip) + place.ridge * state.x
    mixed = w * state.x + (1 - w) * state.near / place.degree
    step = place.project(mixed - (gradient - state.dual) / cfg.inverse_step)
    x = add(step, draw["noise"], scale(cfg, place, t))
    return State(x, state.dual, state.near, state.mean), Message(x)


def absorb(cfg: Config, place: Place, t: Array, state: State, inbox: Inbox) -> State:
    """Move the dual towards the neighbours."""
    near = inbox.total.x
    toward = cfg.dual_step * (near - place.degree * state.x)
    dual = state.dual - toward if cfg.as_printed else state.dual + toward
    mean = tail_mean(cfg.tail, place, t, state.mean, (state.x + near) / (1 + place.degree))
    return State(state.x, dual, near, mean)


def estimate(cfg: Config, place: Place, state: State) -> Float[Array, " d"]:
    """Average of the releases that the agent has seen, its own and its neighbours', over the last rounds."""
    return place.project(state.mean)


def cost(cfg: Config, place: Place, t: Array, message: Message | None = None) -> Event:
    """Laplace noise of rate 1/scale on a vector whose shift is known in L1, L∞ and L2 norm."""
    shift = sensitivity(cfg, place, t)
    return events.Laplace(place.dim**0.5 * shift, 1 / scale(cfg, place, t), place.dim, linf=shift, l2=shift)


def mixture(cfg: Config, place: Place, t: Array, width: Array) -> LaplaceUniform:
    """The event of round t at known widths |x_i − mean_j x_j|, one row per coordinate: for a filter, not for a plan.

    Its Rényi cost is at most that of the shift spread evenly, S/√d in each coordinate, only for `Laplace` noise; here
    every coordinate is charged the full S.
    """
    if place.within is not None:
        raise InputError("ldp-admm projects on a set before its noise: what the random weights save is not known there")
    shift = jnp.broadcast_to(sensitivity(cfg, place, t), jnp.shape(width))
    return LaplaceUniform(jnp.broadcast_to(1 / scale(cfg, place, t), jnp.shape(width)), width, shift)


def claim(cfg: Config, place: Place, delta: float) -> float:
    """The paper's worst case Σ β_t B_∞/D with B_∞ = V·unit: without the dimension, and for a record left out."""
    place = jax.tree.map(np.asarray, place)  # JAX would compile each operation for every number of rounds
    t: Any = np.arange(place.rounds)
    with jax.enable_x64(True):
        return float(np.sum(sensitivity(cfg, place, t) / 2 / scale(cfg, place, t)))
