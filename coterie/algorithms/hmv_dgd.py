r"""Private descent with geometric steps and geometric Laplace noise: pure ε however long it runs.

Agent i, x(0) public, t = 1, 2, … (round t − 1 of the run), 0 < q < p < 1:
    emit     x ← P(z − γ_t ∇f_i(z)),   broadcast y = x + w,  w_l ~ Laplace(M_t) independently
    absorb   z ← Σ_j a_ij y_j          (own term: the released y_i)
    γ_t = c q^{t−1},   M_t = noise · 2 V unit √d · c p^t/(p − q)
P projects on the problem's set.

**Sensitivity.** Given the transcript, z is a constant and P does not expand: one record moves x by at most 2 V unit
γ_t in L2 (V: `lipschitz`), hence by Δ_t = √d times that in L1.

**Guarantee.** Pure Σ_{t≤T} Δ_t/M_t = (1 − (q/p)^T)/noise with the uniform schedule, below 1/noise for ever;
replace-one, sizes public, every message seen. The paper protects an agent's whole cost function: its 2V has no
`unit`. At δ > 0 the Laplace accountant finds a smaller ε from the L2 norm of the move.

Steps sum to c/(1 − q): q must be near 1 for the optimum to be within reach even without noise.
"""

from __future__ import annotations

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float
from pydantic import Field, model_validator

from coterie.algorithms.base import Auto, Inbox, LaplaceLaw, Law, Needs, Place, Public, add
from coterie.algorithms.base import Config as BaseConfig
from coterie.errors import InputError
from coterie.privacy.events import Event, Laplace
from coterie.problems import Shard

REFERENCE = "Huang, Mitra, Vaidya (2015), Differentially private distributed optimization"
READS = "total"

LATE = "reuse"  # averaging tolerates an old message of a late neighbour


class Config(BaseConfig):
    """Hyper-parameters."""

    step: Auto = Field(None, gt=0, description="c, the first step; None: 1 / (smoothness + ridge)")
    step_ratio: Auto = Field(None, gt=0, lt=1, description="q; None: the last step is 1/100 of the first")
    noise_ratio: Auto = Field(None, gt=0, lt=1, description="p > q; None: √q")

    @model_validator(mode="after")
    def _ordered(self) -> Config:
        if self.step_ratio is not None and self.noise_ratio is not None and self.step_ratio >= self.noise_ratio:
            raise InputError(f"noise_ratio must be > step_ratio ({self.step_ratio}), got {self.noise_ratio}")
        return self


EXAMPLE = Config(step=3.0, step_ratio=0.99, noise_ratio=0.995)


class State(eqx.Module):
    """What the agent keeps: releases and functions of them only."""

    sent: Float[Array, " d"]  # own last message
    z: Float[Array, " d"]


class Message(eqx.Module):
    """Everything that leaves."""

    y: Float[Array, " d"]


def needs(cfg: Config) -> Needs:
    """Gradients are not clipped: they need a bound. Points are projected on the problem's set."""
    return Needs(bounded=True, projects=True)


def tune(cfg: Config, public: Public) -> Config:
    """Steps that never overshoot and fall a hundredfold over the run; noise that falls tenfold."""
    step = 1 / (public.smoothness + public.ridge) if cfg.step is None else cfg.step
    q = 0.01 ** (1 / max(public.rounds, 2)) if cfg.step_ratio is None else cfg.step_ratio
    p = q**0.5 if cfg.noise_ratio is None else cfg.noise_ratio
    if q >= p:
        raise InputError(f"noise_ratio must be > step_ratio ({q:g}), got {p:g}")
    return cfg.replace(step=step, step_ratio=q, noise_ratio=p)


def init(cfg: Config, place: Place) -> State:
    """All agents start at the same public point."""
    return State(place.start, place.start)


def greeting(cfg: Config, place: Place) -> Message:
    """Until an agent speaks it stands at the public start."""
    return Message(place.start)


def draws(cfg: Config, place: Place) -> dict[str, Law]:
    """One standard Laplace vector."""
    return {"noise": LaplaceLaw(place.dim)}


def step_size(cfg: Config, t: Array) -> Array:
    """γ of round t (which counts from 0): c q^t."""
    return cfg.step * cfg.step_ratio**t


def reach(cfg: Config, place: Place, t: Array) -> Array:
    """How far one record can move the step in L2: 2 V unit γ."""
    return 2 * place.lipschitz * place.unit * step_size(cfg, t)


def sensitivity(cfg: Config, place: Place, t: Array) -> Array:
    """Δ = √d · 2 V unit γ, in L1."""
    return place.dim**0.5 * reach(cfg, place, t)


def scale(cfg: Config, place: Place, t: Array) -> Array:
    """M: scale of each coordinate's Laplace noise in round t."""
    fall = cfg.step_ratio / cfg.noise_ratio
    size = place.dim**0.5 * 2 * place.lipschitz * place.unit * cfg.step  # Δ of the first round
    return place.noise_at(t) * size * cfg.noise_ratio**t / (1 - fall)


wire = scale  # a deployed message travels on the grid of its noise


def emit(cfg: Config, place: Place, t: Array, state: State, shard: Shard, draw: dict) -> tuple[State, Message]:
    """A projected gradient step at the public average, with noise on it."""
    x = shard.problem.project(state.z - step_size(cfg, t) * shard.slope(state.z))
    y = add(x, draw["noise"], scale(cfg, place, t))
    return State(y, state.z), Message(y)


def absorb(cfg: Config, place: Place, t: Array, state: State, inbox: Inbox) -> State:
    """Average the releases."""
    return State(state.sent, place.self_weight * state.sent + inbox.mixed.y)


def estimate(cfg: Config, place: Place, state: State) -> Float[Array, " d"]:
    """The average of the last releases, in the set (the agent's own x is not released)."""
    return place.project(state.z)


def cost(cfg: Config, place: Place, t: Array, message: Message | None = None) -> Event:
    """Product Laplace noise on a vector that moves by √d r in L1 and by r in L2."""
    r = reach(cfg, place, t)
    return Laplace(sensitivity(cfg, place, t), 1 / scale(cfg, place, t), place.dim, linf=r, l2=r)


def claim(cfg: Config, place: Place, delta: float) -> float:
    """The paper's ε for an endless run: this run's Σ Δ_t/M_t and the geometric tail after it."""
    fall = float(cfg.step_ratio) / float(cfg.noise_ratio)
    with np.errstate(divide="ignore"):
        full = 1 / (float(place.noise) * np.asarray(place.shape, float))
    return float(np.sum(full * (1 - fall) * fall ** np.arange(place.rounds)) + full[-1] * fall**place.rounds)
