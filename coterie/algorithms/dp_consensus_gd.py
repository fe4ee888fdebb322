r"""Private consensus descent: noisy gradient steps with c/t step sizes, then free averaging of what was released.

Agent i, T = `stage_one`, y_i(1) the public start, t = 1, 2, … (round t − 1 of the run):
    stage I, t ≤ T   z = P(Σ_j w_ij y_j(t)),  x = P(z − η_t ∇f_i(z)),  broadcast y_i(t+1) = x + N(0, M_t² I)
    stage II, t > T  broadcast y_i(t+1) = Σ_j w_ij y_j(t)
    answer           P(Σ_j w_ij y_j(t)) at the last t
with P the projection on the problem's set, η_t = c/t and c = (μ + L)/(2μL) from public bounds μ ≤ ∇²f_i ≤ L. The
own term uses the released y_i, and the last gradient step (t = T) is released with noise like every other.

**Sensitivity.** Given the transcript, z is a constant. P does not expand, so one record moves x by at most Δ_t =
η_t · 2 V unit (V: `lipschitz`; for mean estimation over a box 2V is its diagonal, the exact gap). Stage II reads no
data.

**Guarantee.** Gaussian with μ² = Σ_{t≤T} (Δ_t/M_t)², exactly; replace-one, sizes public, every message seen. Stage
II and the answer are functions of y(T+1): free.

**Schedule.** M_t = noise · s_t · Δ_t. With `uniform` s, M_t ∝ 1/t and for quadratics of equal curvature the
released mean has E‖x̄ − x*‖² = p c²/(N κ), κ = μ²/(2V unit)²: for every T the error of one release of the local
optima. `power` is the paper's M_t² ∝ t^{−3/2}, a third worse for large T.
"""

from __future__ import annotations

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from pydantic import Field

from coterie.algorithms.base import Auto, Erratum, Inbox, Law, Needs, Normal, Place, Public, add, settle
from coterie.algorithms.base import Config as BaseConfig
from coterie.errors import InputError
from coterie.privacy.events import Event, Gaussian, NonPrivate
from coterie.privacy.rdp import log_inverse
from coterie.problems import Shard

REFERENCE = "Showkatbakhsh, Karakus, Diggavi, Differentially private consensus-based distributed optimization, Alg. 1"
READS = "total"

LATE = "reuse"  # averaging tolerates an old message of a late neighbour


class Config(BaseConfig):
    """Hyper-parameters."""

    step: Auto = Field(None, gt=0, description="c of η_t = c/t; None: (μ + L)/(2μL), see `tune`")
    stage_one: int | None = Field(
        None, ge=1, description="T, rounds with data and noise; None: all but log₂(agents · rounds) rounds"
    )
    as_printed: bool = Field(False, description="send the last gradient step without noise: not private")


EXAMPLE = Config(step=12.0)

ERRATA = (
    Erratum(
        "Alg. 1 line 8, (12) against (11) at t = T + 1",
        "x_i(T) is broadcast exactly",
        "y_i(T+1) = x_i(T) + noise; z_i(T) is public, so the exact x_i(T) discloses the gradient (as_printed)",
        "privacy",
    ),
    Erratum("(14)", "Σ Δ²/M² ≤ ε²/(ε + 2 ln(2/δ))", "solve the exact Gaussian δ(ε); variance 1.25–5× smaller", "loose"),
    Erratum("proof, (48)–(49)", "two-sided tail, ln(2/δ)", "one side suffices: ln(1/δ)", "loose"),
    Erratum(
        "Prop. 3", "2 η_t G, G of the agent's whole sum", "one record: 2 η_t G_ℓ, up to |D_i| times less noise", "loose"
    ),
    Erratum("Prop. 1", "the two conditions are equivalent", "the stated one is sufficient only", "typo"),
    Erratum("Prop. 2, Def. 3", "σ² ≥ 2 ln(1.25/δ) Δ/ε²", "Δ², and σ² is the variance", "typo"),
    Erratum(
        "Thm 2, noise scales", "M_t² from the bound 2√T", "S_T = Σ s^{−1/2} ≤ 2√T spends the whole budget", "loose"
    ),
    Erratum("schedule", "t^{−3/2}, optimal for the bound", "uniform M_t/Δ_t has 25 % less true error", "loose"),
    Erratum("Thm 2, C_(ε,δ)", "2pc²/κ", "4pc²/κ, as its own (31)", "typo"),
    Erratum(
        "Thm 2, cross terms",
        "T^{−1/4}; (30) without a 2 on the β₂ sums; 3/(1 − β₂) and 4/(1 − β₂)",
        "the algebra gives T^{−1/2}, as Cor. 2 prints; Σ 1/t ≤ 1 + ln T",
        "loose",
    ),
    Erratum("Lemma 1, (29)", "noise n(t), M_t; no η_t", "index t − 1; a factor 2η_t; S(1)/T", "typo"),
    Erratum("Asm. 4, §II-C, (25), §V", "f − f; Stage II; d; side R", "∇f; Stage I; p; side 2R", "typo"),
    Erratum(
        "Fig. 1",
        "the error of x̄(T) falls with T",
        "x̄(T) without the last noise rises from 0; the released consensus value and a single node's error fall",
        "typo",
    ),
)


class State(eqx.Module):
    """What the agent keeps: releases and functions of them only."""

    sent: Float[Array, " d"]  # own last message
    mixed: Float[Array, " d"]  # Σ_j w_ij y_j
    point: Float[Array, " d"]  # its projection, taken where the problem is at hand: the answer


class Message(eqx.Module):
    """Everything that leaves."""

    y: Float[Array, " d"]


def needs(cfg: Config) -> Needs:
    """Gradients are not clipped: they need a bound. Points are projected on the problem's set."""
    return Needs(bounded=True, projects=True)


def tune(cfg: Config, public: Public) -> Config:
    """c = (μ + L)/(2μL) with L = smoothness + ridge and μ = ridge; without a ridge μ = L, right for quadratics."""
    if cfg.step is not None:
        return cfg
    steep = public.smoothness + public.ridge
    flat = public.ridge if public.ridge > 0 else steep
    return cfg.replace(step=(flat + steep) / (2 * flat * steep))


def stage_one(cfg: Config, place: Place) -> int:
    """T: in how many rounds data are used. At least one round is left for averaging the last release."""
    if cfg.stage_one is None:
        return place.rounds - max(1, min(place.rounds // 2, math.ceil(math.log2(place.agents * place.rounds))))
    if cfg.stage_one >= place.rounds:
        raise InputError(f"stage_one must be < rounds ({place.rounds}) to leave one to mix in, got {cfg.stage_one}")
    return cfg.stage_one


def init(cfg: Config, place: Place) -> State:
    """All agents start at the same public point."""
    return State(place.start, place.start, place.start)


def greeting(cfg: Config, place: Place) -> Message:
    """Until an agent speaks it stands at the public start."""
    return Message(place.start)


def draws(cfg: Config, place: Place) -> dict[str, Law]:
    """One standard normal vector."""
    return {"noise": Normal(place.dim)}


def step_size(cfg: Config, t: Array) -> Array:
    """η of round t (which counts from 0): c/(t + 1)."""
    return cfg.step / (t + 1)


def sensitivity(cfg: Config, place: Place, t: Array) -> Array:
    """Δ = η · 2 V unit in stage I, 0 in stage II."""
    return jnp.where(t < stage_one(cfg, place), step_size(cfg, t) * 2 * place.lipschitz * place.unit, 0.0)


def sigma(cfg: Config, place: Place, t: Array) -> Array:
    """M: noise std of round t; 0 in stage II, and in the last round of stage I as printed."""
    bare = cfg.as_printed & (t == stage_one(cfg, place) - 1)
    return jnp.where(bare, 0.0, place.noise_at(t) * sensitivity(cfg, place, t))


wire = sigma  # a deployed message travels on the grid of its noise


def emit(cfg: Config, place: Place, t: Array, state: State, shard: Shard, draw: dict) -> tuple[State, Message]:
    """Stage I: a projected gradient step with noise on it. Stage II: the average, as it is."""
    project = shard.problem.project
    point = project(state.mixed)

    def descend() -> Array:
        x = project(point - step_size(cfg, t) * shard.slope(point))
        return add(x, draw["noise"], sigma(cfg, place, t))

    def agree() -> Array:
        return settle(state.mixed, draw["noise"], sigma(cfg, place, jnp.maximum(stage_one(cfg, place) - 1, 0)))

    y = jax.lax.cond(t < stage_one(cfg, place), descend, agree)
    return State(y, state.mixed, point), Message(y)


def absorb(cfg: Config, place: Place, t: Array, state: State, inbox: Inbox) -> State:
    """Average the releases."""
    return State(state.sent, place.self_weight * state.sent + inbox.mixed.y, state.point)


def estimate(cfg: Config, place: Place, state: State) -> Float[Array, " d"]:
    """The projected average that the agent last computed."""
    return state.point


def cost(cfg: Config, place: Place, t: Array, message: Message | None = None) -> Event | tuple[Event, ...]:
    """A Gaussian release in stage I, nothing in stage II; as printed the last release of stage I has no guarantee."""
    last = stage_one(cfg, place) - 1
    paid = t <= last
    if not cfg.as_printed:
        return Gaussian(sensitivity(cfg, place, t), sigma(cfg, place, t), times=1 * paid)
    return Gaussian(sensitivity(cfg, place, t), sigma(cfg, place, t), times=1 * (t < last)), NonPrivate(
        times=1 * (t == last)
    )


def claim(cfg: Config, place: Place, delta: float) -> float:
    """The ε at which (14) holds with equality for Σ_{t≤T} Δ_t²/M_t², the bare last release counted as if noised."""
    shape = np.asarray(place.shape, float)[: stage_one(cfg, place)]
    with np.errstate(divide="ignore"):
        alpha = float(np.sum(1 / (float(place.noise) * shape) ** 2))
    return float((alpha + np.sqrt(alpha**2 + 8 * alpha * np.log(2 / delta))) / 2)


def printed_noise(cfg: Config, place: Place, epsilon: float, delta: float) -> float:
    """The multiplier that makes M_t² = 2c²√T t^{−3/2}/κ with κ of (14), for a place with the `power` schedule.

    Both (14) and the bound S_T ≤ 2√T are loose: calibration to the exact Gaussian total needs less.
    """
    rounds, shape = stage_one(cfg, place), np.asarray(place.shape, float)
    budget = np.arange(1, rounds + 1) ** 0.25  # M_t/Δ_t = (2√T/α)^½ t^{1/4}
    if not np.allclose(shape[:rounds], shape[0] * budget, rtol=1e-5):
        raise InputError("printed noise needs the schedule 'power', got another one")
    return float(np.sqrt(2 * np.sqrt(rounds) / showkatbakhsh_alpha(epsilon, delta)) / shape[0])


def showkatbakhsh_alpha(epsilon: float, delta: float) -> float:
    """The paper's (14): Σ Δ_t²/M_t² ≤ ε²/(ε + 2 ln(2/δ)); valid, but the variance is 1.25 to 5 times too large."""
    return float(epsilon**2 / (epsilon + 2 * (log_inverse(delta) + np.log(2))))
