r"""Private decentralized gradient descent with momentum, extra mixing and tail averaging: the strong default.

Agent i, f_i = unit Σ_r loss_r + ridge/2 ‖x‖², every k-th round (k = `mixing`) a gradient round, the others mix only:
    emit     gradient round:  y_i = x_i + β (x_i − p_i) − γ (unit Σ_r clip_C(∇loss_r(x_i)) + ridge x_i) + noise
             and p_i ← x_i;   mixing round:  y_i = x_i
    absorb   x_i ← P(Σ_j w_ij y_j);   m_i ← running mean of x_i over the last `tail` share of the rounds
P projects on the problem's set, if it has one. The answer is m_i.
p_i is the *mixed* point of the last gradient round, so momentum is averaged with the neighbours at
no extra traffic; with W = 11ᵀ/N the mean follows centralised heavy-ball descent exactly.

**Sensitivity** of the message, replace-one: x_i and p_i are functions of earlier messages, so one record moves y_i only
through its own clipped gradient: 2 γ C unit with all records, 2 γ C unit n_i/b for a batch of b of n_i without
replacement (the batch mean stands for all), γ C unit n_i/b for Poisson batches of expected size b under add/remove.
**Guarantee**: noise of std `sigma` = noise multiplier × sensitivity; Gaussian event per gradient round (exact
accounting), SampledGaussian with batches. Mixing rounds, momentum and averages are functions of what was released and
cost nothing. Against a reader of every message.

**Defaults** (`tune`, public quantities only; chosen on five problems, reported on five others: docs/defaults.md). With
L and G the bounds on a record's curvature and gradient, μ the Gaussian parameter of (ε, δ):
    ridge = 1e-5                        `travel` bounds the point already: a larger one adds bias and saves no noise
    C = G/2                             the noise halves; probabilities are corrected (`coterie.problems.clipped`)
    s = N/√Σ_i unit_i²                  1/noise on the agents' mean at μ = 1: n √N for N agents of n records; where the
                                        budget is for sums of h honest ones √(Nh)/max_i unit_i, that is n √(Nh)
    travel = .4 s μ / L                 what Σ_t γ/(1 − β) should add up to. All noise together is 2C/(s μ) in each
                                        coordinate of the mean gradient, so where there is no curvature it moves the
                                        point by .4 · 2C/L: for logistic loss, rows of norm 1 and this C, by 1.6, about
                                        what coefficients are. 1/travel acts as the ridge that fits such a prior.
                                        Of additive models, whose rows have norm 1 and not less, .6 s μ / L, and less
                                        where there is little to learn from: times (s μ/1000)^¼ below 1000
    T = √(8 travel L)                   gradient rounds (`suggest_rounds`); then 1 − β = 16/T
    tail = 3/4                          of the rounds are averaged; without noise, or for networks, 1/2
    γ = 2/L, 1 − β = γ T/travel in [6/T, 1]; where even β = 0 goes too far, γ = travel/T
    k = the least even number with |λ₂(W)|^k ≤ .3, at most 10; 1 where |λ₂| ≤ .3 already; ≤ .1 where kT ≤ 200 even so
Networks, which have no such bounds: C = γ = .5, β = .9, T = 100. Even k make W^k positive semi-definite, which keeps
heavy-ball stable in every disagreement direction.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from pydantic import Field, model_validator

from coterie.algorithms._sampling import first_of_permutation, poisson, poisson_cap, poisson_overflow
from coterie.algorithms.base import Auto, AutoInt, Inbox, Law, Needs, Normal, Place, Public, Uniform, add, settle
from coterie.algorithms.base import Config as BaseConfig
from coterie.errors import InputError
from coterie.graphs import Graph
from coterie.privacy import gdp
from coterie.privacy.events import Event, Gaussian, SampledGaussian
from coterie.privacy.observers import NEIGHBOURS, everybody_reacting, view
from coterie.problems import Problem, Shard
from coterie.problems.additive import AdditiveModel

REFERENCE = (
    "Our own combination: DP-SGD (Abadi et al. 2016, Alg. 1) with diffusion (Sayed 2014) and free mixing rounds; "
    "exact Gaussian accounting (Dong, Roth, Su 2022)"
)
READS = "total"
ANY_LENGTH = True
RIDGE = 1e-5  # travel bounds the point already: a larger ridge only adds bias

LATE = "reuse"  # averaging tolerates an old message of a late neighbour
FRESH = True  # so that the noise of a round may be chosen by what was sent before


class StepSettings(BaseConfig):
    """The settings of the steps, which `decor` has too; None is filled by the rule in the module's docstring."""

    step: Auto = Field(None, gt=0, description="γ; None: 2/smoothness, less where that would go too far")
    momentum: Auto = Field(None, ge=0, lt=1, description="β; None: by the budget")
    clip: Auto = Field(None, gt=0, description="C, bound on a record's gradient norm; None: half its bound")
    mixing: AutoInt = Field(None, ge=1, description="rounds per gradient round; None: by the graph's spectral gap")
    tail: Auto = Field(
        None,
        ge=0,
        le=1,
        description="share of the last rounds that the answer averages; 0: last point; None: by the rule",
    )


class Config(StepSettings):
    """Hyper-parameters; None is filled by the rule in the module's docstring."""

    batch: int | None = Field(None, ge=1, description="records per gradient round (expected, if Poisson); None: all")
    scheme: Literal["without-replacement", "poisson"] = Field(
        "without-replacement", description="how a batch is drawn; Poisson is accounted under add/remove"
    )

    @model_validator(mode="after")
    def _needs_a_batch(self) -> Config:
        if self.batch is None and self.scheme != "without-replacement":
            raise InputError(f"scheme {self.scheme!r} is about batches: give batch a number")
        return self


EXAMPLE = Config(step=1.0, momentum=0.5, clip=1.0, mixing=2)

NETWORK = {"clip": 0.5, "step": 0.5, "momentum": 0.9, "rounds": 100}  # without bounds on gradient and curvature
MOST_MIXING, LEAST_ROUNDS, MOST_ROUNDS, SHORT = 10, 10, 1000, 200
TAIL, SHORT_TAIL = 0.75, 0.5


class State(eqx.Module):
    """What the agent keeps: all of it a function of released values."""

    x: Float[Array, " d"]
    before: Float[Array, " d"]  # p: x at the last gradient round
    mean: Float[Array, " d"]


class Message(eqx.Module):
    """Everything that leaves."""

    y: Float[Array, " d"]


# ---- defaults from public quantities ---------------------------------------------------------------------------------


def signal_to_noise(public: Public) -> float:
    """s μ: 1/noise on the mean of all gradients that will ever be released, in units of 2C; ∞ without a budget."""
    if public.epsilon is None or public.delta is None:
        return math.inf
    return public.noise_strength() * float(gdp.mu_for(public.epsilon, public.delta))


def _travel(public: Public) -> float:
    """.4 s μ, in units of 1/L; of additive models .6 s μ, less where s μ is below 1000."""
    known = signal_to_noise(public)
    share = 0.6 * min(1.0, (known / 1000) ** 0.25) if isinstance(public.problem, AdditiveModel) else 0.4
    return share * known


def suggest_mixing(public: Public, left: float = 0.3) -> int:
    """k: rounds per gradient round that leave at most this much of the disagreement; 1 or even, at most 10."""
    if public.mixing_gap is None:
        return MOST_MIXING
    slowest = 1 - public.mixing_gap
    if slowest <= 0.3:
        return 1
    return min(MOST_MIXING, 2 * math.ceil(math.log(left) / math.log(slowest) / 2))


def _mixing(public: Public, room: int | float) -> int:
    """k: mixes more where the whole run stays short, and has `room` for that."""
    thorough = suggest_mixing(public, 0.1)
    fits = thorough * _gradient_rounds(public) <= min(SHORT, room)
    return thorough if fits else suggest_mixing(public)


def _gradient_rounds(public: Public) -> int:
    """√(8 travel L), from 10 to 1000."""
    known = math.isfinite(public.smoothness)
    wanted = math.sqrt(8 * _travel(public)) if known else NETWORK["rounds"]
    return round(min(max(wanted, LEAST_ROUNDS), MOST_ROUNDS))


def suggest_rounds(public: Public) -> int:
    """Rounds in all: gradient rounds and their mixing rounds; reads no `public.rounds`."""
    return _mixing(public, math.inf) * _gradient_rounds(public)


def paced(travel: float, rounds: int, smoothness: float, step: float | None = None) -> tuple[float, float]:
    """(γ, 1 − β) with which this many gradient rounds go as far as `travel`, as nearly as is stable."""
    step = step or min(2 / smoothness, travel / rounds)
    return step, min(max(step * rounds / travel, 6 / rounds), 1.0)


def needs(cfg: Config) -> Needs:
    """Nothing: every gradient is clipped. Averages are projected on the problem's set."""
    return Needs(projects=True)


def tune(cfg: Config, public: Public) -> Config:
    """Clip, mixing, step and momentum by the rule in the module's docstring."""
    mixing = cfg.mixing or _mixing(public, public.rounds)
    share = 0.5 if public.epsilon is not None else 1.0  # clip for the noise's sake only
    clip = cfg.clip or (share * public.lipschitz if math.isfinite(public.lipschitz) else NETWORK["clip"])
    rounds = max(1, math.ceil(public.rounds / mixing))
    smoothness = public.smoothness + public.ridge
    known = math.isfinite(smoothness)
    if known:
        step, rest = paced(_travel(public) / smoothness, rounds, smoothness, cfg.step)
    else:
        step, rest = cfg.step or NETWORK["step"], 1 - NETWORK["momentum"]
    momentum = cfg.momentum if cfg.momentum is not None else 1 - rest
    tail = cfg.tail
    if tail is None:
        tail = TAIL if known and public.epsilon is not None else SHORT_TAIL
    return cfg.replace(clip=clip, mixing=mixing, step=step, momentum=momentum, tail=tail)


# ---- the algorithm ---------------------------------------------------------------------------------------------------


def init(cfg: Config, place: Place) -> State:
    """All agents start at the same public point, at rest."""
    return State(place.start, place.start, place.start)


def greeting(cfg: Config, place: Place) -> Message:
    """Until an agent speaks it stands at the public start."""
    return Message(place.start)


def draws(cfg: Config, place: Place) -> dict[str, Law]:
    """Noise, and one coin per record where a batch is drawn."""
    noise: dict[str, Law] = {"noise": Normal(place.dim)}
    return noise if cfg.batch is None else noise | {"coins": Uniform(place.rows)}


def _size(cfg: Config, place: Place) -> Array:
    """(Expected) batch size, at most all records."""
    return place.count if cfg.batch is None else jnp.minimum(float(cfg.batch), place.count)


def sensitivity(cfg: Config, place: Place, t: Array) -> Array:
    """How far one record can move a gradient round's message."""
    reach = place.unit * cfg.step * cfg.clip * place.count / _size(cfg, place)
    return reach if _is_poisson(cfg) else 2 * reach


def sigma(cfg: Config, place: Place, t: Array) -> Array:
    """Noise std of a gradient round's message."""
    return place.noise_at(t) * sensitivity(cfg, place, t)


wire = sigma  # a deployed message travels on the grid of its noise


def _is_poisson(cfg: Config) -> bool:
    return cfg.batch is not None and cfg.scheme == "poisson"


def _gradient(cfg: Config, place: Place, shard: Shard, x: Array, draw: dict) -> Array:
    """unit · Σ of clipped gradients over all records, or its estimate from a batch."""
    if cfg.batch is None:
        return place.unit * shard.gradient(x, clip=cfg.clip)
    size = _size(cfg, place)
    if _is_poisson(cfg):
        rows, mask = poisson(draw["coins"], place.count, size / place.count, poisson_cap(cfg.batch, place.rows))
    else:
        rows, mask = first_of_permutation(draw["coins"], place.count, size, cfg.batch)
    return place.unit * place.count / size * shard.gradient(x, clip=cfg.clip, rows=rows, mask=mask)


def emit(cfg: Config, place: Place, t: Array, state: State, shard: Shard, draw: dict) -> tuple[State, Message]:
    """A noisy descent step from the mixed point, or, in a mixing round, the mixed point itself."""
    return stepped(cfg, place, t, state, shard, draw, partial(sigma, cfg, place))


def stepped(
    cfg: Config, place: Place, t: Array, state: State, shard: Shard, draw: dict, scale: Callable[[Array], Array]
) -> tuple[State, Message]:  # fmt: skip
    """The same with noise whose scale in every round is given."""

    def descend(s: State) -> tuple[State, Message]:
        slope = _gradient(cfg, place, shard, s.x, draw) + place.ridge * s.x
        y = s.x + cfg.momentum * (s.x - s.before) - cfg.step * slope
        return State(s.x, s.x, s.mean), Message(add(y, draw["noise"], scale(t)))

    def mix(s: State) -> tuple[State, Message]:
        return s, Message(settle(s.x, draw["noise"], scale(t - t % cfg.mixing)))

    if cfg.mixing == 1:
        state, message = descend(state)
    else:
        state, message = jax.lax.cond(t % cfg.mixing == 0, descend, mix, state)
    return State(message.y, state.before, state.mean), message


def absorb(cfg: Config, place: Place, t: Array, state: State, inbox: Inbox) -> State:
    """Average with the neighbours; from the tail's start on, average over time too."""
    x = place.project(place.self_weight * state.x + inbox.mixed.y)
    tail = SHORT_TAIL if cfg.tail is None else cfg.tail
    averaged = jnp.maximum(1.0, t + 1 - jnp.floor((1 - tail) * place.length))
    return State(x, state.before, state.mean + (x - state.mean) / averaged)


def estimate(cfg: Config, place: Place, state: State) -> Float[Array, " d"]:
    """The tail average."""
    return state.mean


def cost(cfg: Config, place: Place, t: Array, message: Message | None = None) -> Event:
    """One Gaussian (or sampled Gaussian) release per gradient round; mixing rounds are free."""
    times = (t % cfg.mixing == 0).astype(int)
    if cfg.batch is None:
        return Gaussian(sensitivity(cfg, place, t), sigma(cfg, place, t), times=times)
    rate = _size(cfg, place) / place.count
    if not _is_poisson(cfg):
        return SampledGaussian(place.noise_at(t), rate, times=times)
    tv = poisson_overflow(place.count, rate, poisson_cap(cfg.batch, place.rows))
    return SampledGaussian(place.noise_at(t), rate, scheme="poisson", times=times, tv=tv)


def observed(
    cfg: Config, places: Place, problem: Problem, graph: Graph, weights: np.ndarray, observers: tuple[int, ...]
) -> tuple[str, np.ndarray]:
    """A bound on μ of everybody against these observers, for gradient steps with a Lipschitz constant.

    A record's clipped gradient turns no faster than its gradient where the loss is one of a score (the slope in the
    score is cut) or of a distance, or where the clip never acts. So a step x − γ (unit Σ_r clip(∇loss_r) + ridge x) has
    the constant max |1 − γ c| over curvatures c from ridge (less, if the loss is not convex) to unit n L + ridge.
    """
    wrong = [
        *(["momentum = 0"] if cfg.momentum else []),
        *(["mixing = 1 (every message needs noise of its own)"] if cfg.mixing != 1 else []),
        *(["no batch"] if cfg.batch is not None else []),
        *(["no set"] if places.within is not None else []),
    ]
    if not problem.smooth:
        wrong.append("a bound on the loss's curvature")
    if not (problem.scored or problem.isotropic or cfg.clip >= problem.lipschitz):
        wrong.append("a loss of one score per record, or a clip that never acts")
    if wrong:
        raise InputError(
            "privacy.observers: dp-dsgd reacts to what it hears, and no account per observer is proved for it without "
            + " and ".join(wrong)
        )
    load = np.asarray(places.unit * places.count, float) * float(problem.smoothness)
    step, ridge = float(cfg.step), float(places.ridge)
    gain = np.maximum(np.abs(1 - step * (ridge - (0.0 if problem.convex else load))), np.abs(1 - step * (ridge + load)))
    shift = np.broadcast_to(np.asarray(sensitivity(cfg, places, jnp.zeros((), int)), float), (places.agents,))
    scale = (np.asarray(places.noise, float) * shift)[:, None] * np.asarray(places.shape, float)
    return NEIGHBOURS, everybody_reacting(view(weights, observers), shift, scale, gain)
