r"""Objective perturbation inside decentralized ADMM: what `dvp`, `pvp`, `m-admm`, `r-admm` and `mr-admm` share.

    x ← argmin f_i(v) + ⟨α + b, v⟩ + η Σ_j ‖v − ½(x_i + x_j)‖² + Φ/2 ‖v‖²,  send x + e

Given the transcript, x ↔ b is a bijection (in a set: x and what the set cut off ↔ b, docs/theory/sets.md). One record
moves b(x) by at most G = 2V·unit (V: `lipschitz`) and changes the Hessian by one matrix of rank one each way, so with
Λ = ridge + 2η|V_i| + Φ the determinants differ by a factor of at most 1 + κ, κ = c₁·unit/Λ (c₁: `smoothness`): det(H₀ +
aaᵀ)/det(H₀ + bbᵀ) = (1 + aᵀH₀⁻¹a)/(1 + bᵀH₀⁻¹b). Rank one is what a generalised linear model gives: a scalar score per
record.

- "gamma": b has density ∝ exp(−‖b‖/s), s = G/(α − ln(1 + κ)): the release is pure α-DP, and because the shift of b
  depends on x no better bound is at hand.
- "gaussian": b ~ N(0, σ²I): `ObjectivePerturbation`, accounted with all rounds together. At equal (ε, δ) its b is
  about √d times shorter than gamma noise, whose rounds compose as pure mechanisms.

The determinants' part ln(1 + κ) does not shrink with noise, only with curvature. Where it would take more than half of
α (gamma), or 1/(z_t √T) with z_t the noise multiplier (gaussian: Σ ln(1 + κ) ≤ μ of the run, by Cauchy-Schwarz),
the ridge Φ is raised until it takes just that: Zhang-Zhu's device. So every budget can be met, at the price of bias.

x is solved to gradient norm β only, which moves it by up to β/Λ in each world: e is noise of the same kind for the
shift 2β/Λ, and `share` of the round's budget pays for it. That β is reached is a matter of public constants, not of the
data or of what neighbours send (`Shard.argmin`, `coterie.algorithms._admm.heed`): a plan under which it might not be is
refused (`coterie.contracts`).
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float
from pydantic import Field

from coterie.algorithms import _admm, _penalty
from coterie.algorithms._admm import Number, Solving, asked, dual_step, heed, tail_mean
from coterie.algorithms.base import Auto, Inbox, Inside, L2LaplaceLaw, Law, Needs, Normal, Place, Public, add
from coterie.algorithms.base import Config as BaseConfig
from coterie.privacy.events import Event, ObjectivePerturbation, Pure
from coterie.problems import Shard, Solver

__all__ = [
    "Config", "Message", "State", "Tilt", "absorb", "draws", "estimate", "event", "gap", "hear", "init", "needs",
    "reveals", "solve", "tilt", "without",
]  # fmt: skip

Vector = Float[Array, " d"]
C = TypeVar("C", bound="Config")


class Config(BaseConfig):
    """The hyper-parameters that the family shares."""

    penalty: Auto = Field(None, gt=0, description="η; None: see `tune`")
    noise: Literal["gamma", "gaussian"] | None = Field(
        None, description="law of b; None: gaussian, or gamma where the budget has delta = 0"
    )
    tail: float = Field(0.5, ge=0, le=1, description="share of the rounds whose releases the answer averages; 0: last")
    tolerance: float = Field(1e-8, gt=0, description="β: gradient norm at which the solver stops; charged")
    share: float = Field(0.01, gt=0, lt=1, description="part of each round's budget that hides the solver's error")


class State(eqx.Module):
    """What the agent keeps: all of it released or derived from releases, but the solver's."""

    x: Float[Array, " d"]  # last release
    dual: Float[Array, " d"]  # α
    near: Float[Array, " d"]  # Σ_j x_j
    mean: Float[Array, " d"]  # the answer so far
    solver: Solver


class Message(eqx.Module):
    """Everything that leaves."""

    x: Float[Array, " d"]


class Tilt(NamedTuple):
    """A round's perturbation: scale of b, the ridge Φ, scale of e."""

    linear: Array
    ridge: Array
    output: Array


def gap(place: Place) -> Array:
    """G: how far one record moves the gradient of f_i."""
    return 2 * place.lipschitz * place.unit


def fill(cfg: C, public: Public, releases: int | None = None) -> C:
    """`noise`: gaussian unless δ = 0 asks for a pure guarantee. `penalty`: the larger of two rules.

    `_penalty.private_penalty` balances noise and progress; `jacobian_penalty` there keeps the determinants' part of the
    budget small, so that Φ, which biases the answer, is rarely needed. `releases`: how many rounds read the data.
    """
    if cfg.noise is None:
        cfg = cfg.replace(noise="gamma" if public.delta == 0 else "gaussian")
    if cfg.penalty is None:
        rules = _penalty.private_penalty, _penalty.jacobian_penalty
        cfg = cfg.replace(penalty=max(rule(public, releases) for rule in rules))
    return cfg


def init(cfg: Config, place: Place) -> State:
    """All agents start at the same public point."""
    zero = jnp.zeros_like(place.start)
    return State(place.start, zero, place.degree * place.start, place.start, place.solver())


def draws(cfg: Config, place: Place) -> dict[str, Law]:
    """`tilt` becomes b, `output` becomes e."""
    if cfg.noise == "gamma":
        return {"tilt": L2LaplaceLaw(place.dim), "output": L2LaplaceLaw(place.dim)}
    return {"tilt": Inside(place.dim), "output": Normal(place.dim)}


def tilt(cfg: Config, place: Place, convexity: Array, z: Array) -> Tilt:
    """The perturbation at noise multiplier z, for a subproblem that is `convexity`-strongly convex without Φ.

    gamma: the round is pure 1/z; gaussian: its μ² = (G/σ)² + (2β/(Λ σ_e))² is 1/z².
    """
    move = 2 * cfg.tolerance / convexity
    if cfg.noise != "gamma":
        ridge, _ = _capped(place, convexity, z * place.rounds**0.5)
        return Tilt(gap(place) * z / jnp.sqrt(1 - cfg.share), ridge, move * z / jnp.sqrt(cfg.share))
    inverse = z / (1 - cfg.share)  # 1/α of the objective's part of the budget
    ridge, lost = _capped(place, convexity, 2 * inverse)
    return Tilt(gap(place) * inverse / (1 - inverse * lost), ridge, move * z / cfg.share)


def _capped(place: Place, convexity: Array, inverse_cap: Array) -> tuple[Array, Array]:
    """(Φ, ln(1 + κ)): the least Φ ≥ 0 with ln(1 + κ) ≤ 1/inverse_cap."""
    bend = place.smoothness * place.unit
    bare = jnp.log1p(bend / convexity)
    over = bare * inverse_cap > 1
    cap = 1 / jnp.where(over, inverse_cap, 1.0)
    return jnp.where(over, bend / jnp.expm1(cap) - convexity, 0.0), jnp.where(over, cap, bare)


def event(cfg: Config, place: Place, convexity: Array, z: Array, times: Array | int = 1) -> Event:
    """What a round at noise multiplier z costs."""
    if cfg.noise == "gamma":
        return Pure(1 / z, times=times)
    scale = tilt(cfg, place, convexity, z)
    kappa = place.smoothness * place.unit / (convexity + scale.ridge)
    move = 2 * cfg.tolerance / convexity
    return ObjectivePerturbation(gap(place), scale.linear, kappa, move, scale.output, monotone=True, times=times)


def absorb(cfg: Config, place: Place, t: Array, state: State, inbox: Inbox) -> State:
    """Move the dual by the disagreement with the neighbours, at the first penalty."""
    return hear(cfg, place, t, cfg.penalty, state, inbox)


def estimate(cfg: Config, place: Place, state: State) -> Vector:
    """Average of the releases that the agent has seen, its own and its neighbours', over the last rounds."""
    return place.project(state.mean)


def needs(cfg: Config) -> Needs:
    """What the proof covers: one score per record whose slope has one sign and a bound, and a solver to tolerance β."""
    return Needs(convex=True, smooth=True, bounded=True, scored=True, monotone=True, solver=True, projects=True)


def solve(
    cfg: Config, scale: Tilt, place: Place, penalty: Number, state: Solving, shard: Shard, draw: dict
) -> tuple[Vector, Solver]:
    """The perturbed subproblem's minimiser with the noise that hides the solver's error, and the solver after it."""
    linear, curvature = asked(penalty, place, state)
    linear = heed(linear, place, _admm.convexity(penalty, place), cfg.tolerance)
    linear = add(linear, draw["tilt"], scale.linear)
    x, solver = shard.argmin(linear, curvature + scale.ridge, state.solver, cfg.tolerance)
    return add(x, draw["output"], scale.output), solver


def reveals(cfg: Config, place: Place, state: Solving, message: Message) -> Array | None:
    """In a set the proof counts as seen what the set cut off as well: x + aside, which tells b."""
    return None if place.within is None else message.x + state.solver.aside


def without(solver: Solver) -> Solver:
    """The solver in a round whose point was not made random inside the objective: what the set cut off is not seen."""
    return eqx.tree_at(lambda s: s.aside, solver, jnp.zeros_like(solver.aside))


def hear(cfg: Config, place: Place, t: Array, step: Number, state: State, inbox: Inbox) -> State:
    """Move the dual by `step` times the disagreement; average what was released into the answer."""
    near = inbox.total.x
    dual = dual_step(step, place, state.dual, state.x, near)
    mean = tail_mean(cfg.tail, place, t, state.mean, (state.x + near) / (1 + place.degree))
    return State(state.x, dual, near, mean, state.solver)
