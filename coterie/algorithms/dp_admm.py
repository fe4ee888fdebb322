r"""DP-ADMM: one gradient step per round in place of the local solve, Gaussian noise on what is sent.

Step weight h_k = k^decay/step, the inverse step size, k = 1, 2, …;  g_i = unit Σ_r clip(∇ℓ_r(x̃_i)) + ridge x̃_i.
*decentralised* (any graph), Λ_k = h_k + 2η|V_i|:
    emit     x̃_i ← [h_k x̃_i + η(|V_i| x̃_i + Σ_j x̃_j) − g_i − α_i]/Λ_k + N(0, σ²I), broadcast
    absorb   α_i ← α_i + η (|V_i| x̃_i − Σ_j x̃_j)
*star* (the paper's; hub w, multiplier y_i = −α_i, penalty η), Λ_k = h_k + η, two rounds for one iteration:
    even     every agent, the hub too: x̃_i ← [h_k x̃_i + η w − g_i − α_i]/Λ_k + N(0, σ²I); the leaves send it
    odd      the hub sends w = mean x̃ (Σ α_i = 0, so the paper's mean of x̃_i − y_i/η is the same)
             all: α_i ← α_i + η (x̃_i − w)
Over a set the step is projected before its noise (the minimiser of the linearised problem), and so is the answer.
The paper's hub holds no data; here it is an agent like the others, whose release reaches them inside w.
    answer   average over the last `tail` of the rounds of w (star) or of x̃ over agent and neighbours

**Sensitivity.** x̃_i, α_i and the neighbours' points are constants given the transcript; one record moves the clipped
gradient by 2 clip unit: Δ_k = 2 clip unit/Λ_k (a projection does not expand it).
No inner solver, no smoothness, no convexity.
**Guarantee.** Gaussian, μ² = Σ (Δ_k/σ_k)², exactly; replace-one, every message seen.
"""

from __future__ import annotations

from typing import Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from pydantic import Field

from coterie.algorithms import _penalty
from coterie.algorithms._admm import Number, dual_step, tail_mean
from coterie.algorithms.base import Auto, Erratum, Inbox, Law, Maybe, Needs, Normal, Place, Public, Round, add, settle
from coterie.algorithms.base import Config as BaseConfig
from coterie.errors import InputError
from coterie.privacy.events import Event, Gaussian
from coterie.privacy.rdp import zcdp_epsilon
from coterie.problems import Shard

REFERENCE = "Huang, Hu, Guo, Chan-Tin, Gong (2019), DP-ADMM, TIFS; decentralised variant derived here"


class Config(BaseConfig):
    """Hyper-parameters."""

    variant: Literal["decentralised", "star"] = Field("decentralised", description="star: the paper's, hub = party 0")
    penalty: Auto = Field(None, gt=0, description="η; None: see `tune`")
    step: Auto = Field(None, gt=0, description="first step size; None: see `tune`")
    decay: float = Field(0.0, ge=0, le=1, description="step size ∝ k^−decay; the paper's is .5")
    clip: float | None = Field(None, gt=0, description="bound on a record's gradient; None: the loss's own")
    tail: float = Field(0.5, ge=0, le=1, description="share of the rounds whose releases the answer averages; 0: last")


EXAMPLE = Config(penalty=0.1, step=3.0)

ERRATA = (
    Erratum("total", "ε̄ = c₀ √T ε with c₀ not given", "μ² = Σ (Δ/σ)², exact", "loose"),
    Erratum("per-round noise", "√(2 ln 1.25/δ)/ε, for ε < 1 only", "the exact Gaussian curve, any ε", "loose"),
)


class State(eqx.Module):
    """What the agent keeps: all of it released or derived from releases."""

    x: Float[Array, " d"]  # last release
    dual: Float[Array, " d"]
    near: Float[Array, " d"]  # sum of the neighbours' releases; star: w
    mean: Float[Array, " d"]  # the answer so far


class Message(eqx.Module):
    """Everything that leaves."""

    x: Float[Array, " d"]


def needs(cfg: Config) -> Needs:
    """Nothing where gradients are clipped, else a bound on them."""
    return Needs(bounded=cfg.clip is None, projects=True)


def tune(cfg: Config, public: Public) -> Config:
    """step = 2/(smoothness + ridge), the largest that is stable on any data, or .2 without such a bound.

    η: the larger of `_penalty.private_penalty` and 1/(8 |V| step), which keeps the pull to the neighbours at a quarter
    of the pull to the last point.
    """
    star = public.degree_min == 1 and public.degree_max == public.agents - 1
    if cfg.variant == "star" and not (star and public.agents > 2):
        raise InputError("variant 'star' needs a star graph of at least 3 parties; use variant 'decentralised'")
    smooth = public.smoothness + public.ridge
    step = cfg.step if cfg.step is not None else 2 / smooth if smooth < float("inf") else 0.2
    penalty = cfg.penalty
    if penalty is None:
        penalty = max(_penalty.private_penalty(public), 1 / (8 * public.degree_max * step))
    return cfg.replace(step=step, penalty=penalty)


def init(cfg: Config, place: Place) -> State:
    """All agents start at the same public point."""
    near = place.start if cfg.variant == "star" else place.degree * place.start
    return State(place.start, jnp.zeros_like(place.start), near, place.start)


def greeting(cfg: Config, place: Place) -> Message:
    """Until an agent speaks it stands at the public start."""
    return Message(place.start)


def draws(cfg: Config, place: Place) -> dict[str, Law]:
    """One standard normal vector."""
    return {"noise": Normal(place.dim)}


def bound(cfg: Config, place: Place) -> Number:
    """Largest norm of one record's part in the gradient."""
    return place.lipschitz if cfg.clip is None else cfg.clip


def step_weight(cfg: Config, t: Round) -> Array:
    """h_k = k^decay/step of the k-th use of the data."""
    k = (t // 2 if cfg.variant == "star" else t) + 1
    return jnp.asarray(k, float) ** cfg.decay / cfg.step


def convexity(cfg: Config, place: Place, t: Round) -> Array:
    """Λ_k."""
    return step_weight(cfg, t) + (cfg.penalty if cfg.variant == "star" else 2 * cfg.penalty * place.degree)


def sensitivity(cfg: Config, place: Place, t: Round) -> Array:
    """Δ_k = 2 clip unit/Λ_k."""
    return 2 * bound(cfg, place) * place.unit / convexity(cfg, place, t)


def sigma(cfg: Config, place: Place, t: Round) -> Array:
    """Noise std of round t."""
    return place.noise_at(t) * sensitivity(cfg, place, t)


wire = sigma  # a deployed message travels on the grid of its noise


def emit(cfg: Config, place: Place, t: Array, state: State, shard: Shard, draw: dict) -> tuple[State, Message | Maybe]:
    """Take the linearised step and send it with noise; star: the leaves speak in even rounds, the hub in odd ones."""
    slope = place.unit * shard.gradient(state.x, clip=cfg.clip) + place.ridge * state.x
    star = cfg.variant == "star"
    pull = cfg.penalty * (state.near if star else place.degree * state.x + state.near)
    moved = step_weight(cfg, t) * state.x + pull - slope - state.dual
    x = add(place.project(moved / convexity(cfg, place, t)), draw["noise"], sigma(cfg, place, t))
    if not star:
        return eqx.tree_at(lambda s: s.x, state, x), Message(x)
    step = t % 2 == 0
    state = eqx.tree_at(lambda s: s.x, state, jnp.where(step, x, state.x))
    hub, noise = _hub(place), draw["noise"]
    near = settle(state.near, noise, sigma(cfg, place, t))
    state = eqx.tree_at(lambda s: s.near, state, jnp.where(hub & ~step, near, state.near))
    return state, Maybe(Message(jnp.where(hub, near, state.x)), step != hub)


def reveals(cfg: Config, place: Place, state: State, message: Message) -> Array:
    """The step with its noise: a star's hub keeps it for a round and then sends a mean in which it is."""
    return state.x


def absorb(cfg: Config, place: Place, t: Array, state: State, inbox: Inbox) -> State:
    """Move the dual by the disagreement; star: the hub averages after even rounds, all listen to it after odd ones."""
    total = inbox.total.x
    if cfg.variant == "decentralised":
        dual = dual_step(cfg.penalty, place, state.dual, state.x, total)
        mean = tail_mean(cfg.tail, place, t, state.mean, (state.x + total) / (1 + place.degree))
        return State(state.x, dual, total, mean)
    hub, step = _hub(place), t % 2 == 0
    w = jnp.where(hub, jnp.where(step, (state.x + total) / place.agents, state.near), total)
    near = jnp.where(hub | ~step, w, state.near)
    dual = jnp.where(step, state.dual, state.dual + cfg.penalty * (state.x - near))
    return State(state.x, dual, near, tail_mean(cfg.tail, place, t, state.mean, near))


def _hub(place: Place) -> Array:
    return place.degree == place.agents - 1


def estimate(cfg: Config, place: Place, state: State) -> Float[Array, " d"]:
    """Average over the last rounds of the hub's point, or of the releases of the agent and its neighbours."""
    return place.project(state.mean)


def cost(cfg: Config, place: Place, t: Array, message: Message | None = None) -> Event:
    """A Gaussian release of the step; the star's odd rounds read no data."""
    paid = (t % 2 == 0) if cfg.variant == "star" else 1
    return Gaussian(sensitivity(cfg, place, t), sigma(cfg, place, t), times=paid)


def claim(cfg: Config, place: Place, delta: float) -> float:
    """ρ + 2√(ρ ln 1/δ) with the zCDP of the printed noise (the paper's own total has an unspecified constant)."""
    noise = np.asarray(place.noise * place.shape, float)[:: 2 if cfg.variant == "star" else 1]
    with np.errstate(divide="ignore"):
        return zcdp_epsilon(float(np.sum(1 / (2 * noise**2))), delta)
