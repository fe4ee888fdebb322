r"""Recycled ADMM: what `r-admm` and `mr-admm` share. Every second round reuses the noisy gradient of the one before.

Agent i, |V_i| neighbours, penalty η (of the last data round), dual step θ, x' and x'_j the values before x and x_j:
    data round      x ← argmin f_i(v) + ⟨α + b, v⟩ + η Σ_j ‖v − ½(x_i + x_j)‖² + Φ/2 ‖v‖²,  broadcast
                    α ← α + θ (|V_i| x_i − Σ_j x_j)
    recycled round  minimise the same with f_i linearised at x, plus γ/2 ‖v − x‖²; α stays. The optimality condition of
                    the data round says what the noisy gradient was, in broadcast values only, so
        x ← x − [(θ − η)|V_i| x − (θ + η) Σ_j x_j + η (|V_i| x' + Σ_j x'_j)] / (2η|V_i| + γ)
Where Φ > 0 the recycled gradient includes it: the step then recycles the gradient of the regularised objective. In a
set it also includes what holds x there, and the recycled point is projected.
"""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
from pydantic import Field

from coterie.algorithms import _objective as objective
from coterie.algorithms._admm import Number, convexity
from coterie.algorithms._objective import Message, Tilt
from coterie.algorithms.base import Inbox, Place, settle
from coterie.privacy.events import Event
from coterie.problems import Shard, Solver

__all__ = [
    "Config",
    "State",
    "absorb",
    "claim",
    "cost",
    "emit",
    "estimate",
    "init",
    "perturbation",
    "reads_data",
    "recycle",
    "wire",
]


class Config(objective.Config):
    """The hyper-parameters that both share."""

    damping: float = Field(0.0, ge=0, description="γ: pull of a recycled round towards where it starts")


class State(eqx.Module):
    """What the agent keeps: all of it released or derived from releases, but the solver's."""

    x: Float[Array, " d"]  # last release
    dual: Float[Array, " d"]  # α
    near: Float[Array, " d"]  # Σ_j x_j
    old_x: Float[Array, " d"]  # x' …
    old_near: Float[Array, " d"]  # … and Σ_j x'_j, from before the last data round
    mean: Float[Array, " d"]  # the answer so far
    solver: Solver


def reads_data(t: Array) -> Array:
    """Whether round t (counted from 0) looks at the data."""
    return t % 2 == 0


def init(cfg: Config, place: Place) -> State:
    """All agents start at the same public point."""
    base = objective.init(cfg, place)
    return State(base.x, base.dual, base.near, base.x, base.near, base.mean, base.solver)


def recycle(
    penalty: Number,
    step: Number,
    damping: Number,
    degree: Array,
    now: tuple[Array, Array],
    before: tuple[Array, Array],
) -> Array:
    """The recycled point, from (x, Σ_j x_j) now and before the data round: anyone who sees the messages can do it."""
    (x, near), (old_x, old_near) = now, before
    move = (step - penalty) * degree * x - (step + penalty) * near + penalty * (degree * old_x + old_near)
    return x - move / (2 * penalty * degree + damping)


def perturbation(cfg: Config, place: Place, t: Array, penalty: Number) -> Tilt:
    """Scale of b, Φ and scale of e in data round t."""
    return objective.tilt(cfg, place, convexity(penalty, place), place.noise_at(t))


def wire(cfg: Config, place: Place, t: Array, penalty: Number) -> Array:
    """Scale of the noise on the point of a data round; a recycled point needs none, and lies on the same grid."""
    return perturbation(cfg, place, t - t % 2, penalty).output


def emit(
    cfg: Config, place: Place, t: Array, penalty: Number, state: State, shard: Shard, draw: dict
) -> tuple[State, Message]:
    """A data round solves the tilted subproblem; a recycled one moves on without looking at the data."""

    def fresh(s: State) -> State:
        x, solver = objective.solve(cfg, perturbation(cfg, place, t, penalty), place, penalty, s, shard, draw)
        return State(x, s.dual, s.near, s.x, s.near, s.mean, solver)

    def again(s: State) -> State:
        now, before = (s.x, s.near), (s.old_x, s.old_near)
        x = place.project(recycle(penalty, cfg.penalty, cfg.damping, place.degree, now, before))
        x = settle(x, draw["output"], wire(cfg, place, t, penalty))
        return State(x, s.dual, s.near, s.old_x, s.old_near, s.mean, objective.without(s.solver))

    # t is common to all agents, so this stays a branch when they are batched: recycled rounds cost no solve
    state = jax.lax.cond(reads_data(t), fresh, again, state)
    return state, Message(state.x)


def absorb(cfg: Config, place: Place, t: Array, state: State, inbox: Inbox) -> State:
    """Read the neighbours; move the dual after a data round only."""
    base = objective.State(state.x, state.dual, state.near, state.mean, state.solver)
    heard = objective.hear(cfg, place, t, jnp.where(reads_data(t), cfg.penalty, 0.0), base, inbox)
    return State(state.x, heard.dual, heard.near, state.old_x, state.old_near, heard.mean, state.solver)


def estimate(cfg: Config, place: Place, state: State) -> Float[Array, " d"]:
    """Average of the releases that the agent has seen, its own and its neighbours', over the last rounds."""
    return place.project(state.mean)


def cost(cfg: Config, place: Place, t: Array, penalty: Number) -> Event:
    """A data round's objective perturbation, charged in data rounds only."""
    times = jnp.where(reads_data(t), 1, 0)
    return objective.event(cfg, place, convexity(penalty, place), place.noise_at(t), times)


def claim(cfg: Config, place: Place, penalty_at: Callable[[Array], Array]) -> float:
    """Σ 2·unit (1.4 c₁/Λ_t + V α_t) over data rounds: the papers' total for gamma noise (nan for Gaussian noise)."""
    if cfg.noise != "gamma":
        return float("nan")
    with jax.enable_x64(True):
        t = jnp.arange(0, place.rounds, 2)
        eta = jax.vmap(penalty_at)(t)
        rate = 1 / perturbation(cfg, place, t, eta).linear
        each = 1.4 * place.smoothness / convexity(eta, place) + place.lipschitz * rate
        return float(jnp.sum(2 * place.unit * each))
