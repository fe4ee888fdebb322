r"""Primal-variable perturbation (Zhang-Zhu): ADMM with noise on what is sent, and a tilted objective in the last round.

Agent i (x⁰ public and common, α = 0), T rounds:
    emit, t < T − 1   f ← argmin f_i(v) + ⟨α, v⟩ + η Σ_j ‖v − ½(g_i + x_j)‖²,  broadcast x = f + e
    emit, t = T − 1   one round of `dvp` from the broadcast values: x ← argmin … + ⟨b, v⟩ + Φ/2 ‖v‖² with g_i = x_i
    absorb            α ← α + η (|V_i| x_i − Σ_j x_j), from broadcast values only
    answer            the average of x over the agent and its neighbours, over the last `tail` of the rounds
e is gamma noise (density ∝ exp(−‖e‖/s)) or Gaussian; b, Φ: see `coterie.algorithms._objective`. The own centre g_i is

    centre       g_i              sensitivity of round t (G = 2V·unit + 2β, Λ = ridge + 2η|V_i|)
    "released"   x_i = f + e      Δ = G/Λ
    "own"        f                Δ_{t+1} = (G + η|V_i|Δ_t)/Λ    -> G/(ridge + η|V_i|)
    "literal"    f − e            Δ_{t+1} = (G + 2η|V_i|Δ_t)/Λ   -> G/ridge

"released" has the least noise, and the round's own noise cancels against the dual.

**Sensitivity.** Given the transcript, the subproblems of two worlds differ in their gradients by at most 2V·unit and
by 2η|V_i| times the gap of their centres ½(g_i + ·), which is 0, Δ_t/2 or Δ_t; divide by the strong convexity Λ. A
solver that stops at gradient norm β adds 2β/Λ.

**Guarantee.** gamma: `L2Laplace(Δ_t, rate 1/(z_t Δ_t))` with z_t = noise_t, and `Pure(final/z_T)` for the last round;
gaussian: `Gaussian(Δ_t, z_t Δ_t)`, and `ObjectivePerturbation` at z_T/final. Replace-one, sizes public, every message
seen; a generalised linear model with bounded slope.
"""

from __future__ import annotations

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from pydantic import Field

from coterie.algorithms import _objective as objective
from coterie.algorithms import _penalty
from coterie.algorithms._admm import convexity, heed
from coterie.algorithms._objective import Message, Tilt
from coterie.algorithms.base import Erratum, Inbox, Law, Needs, Place, Public, add
from coterie.privacy.events import Event, Gaussian, L2Laplace, NonPrivate
from coterie.problems import Shard, Solver

REFERENCE = "Zhang, Zhu, Dynamic Privacy For Distributed Machine Learning Over Network, Alg. 3"
READS = "sums"


class Config(objective.Config):
    """Hyper-parameters."""

    centre: Literal["released", "own", "literal"] = Field("released", description="the own centre g_i; see the module")
    final: float = Field(1.0, gt=0, description="privacy level of the last round relative to one of the others")
    as_printed: bool = Field(False, description="the paper's last step, fed with points that carry no noise")


EXAMPLE = Config(penalty=0.1, noise="gamma")

ERRATA = (
    Erratum(
        "Alg. 3, final iteration",
        "the dual step starts from the un-noised f_p(T) and the neighbours' f_i(T)",
        "from the broadcast V(T): un-noised points on the wire have no guarantee, and the own one alone raises the "
        "shift from 2 to 2 + (2ηN/ρ)(1 − qᵀ), 15.4 at T = 30",
        "privacy",
    ),
    Erratum("Alg. 3 line 15", "the final step is Algorithm 1, without noise", "Algorithm 2", "privacy"),
    Erratum("Thm 2", "ζ = ρBα/2", "ζ = ρBα/(2C), as in the algorithm: C times more noise", "privacy"),
    Erratum(
        "Thm 2, proof",
        "f_p(t) held fixed between worlds, curvature ρ",
        "the un-noised own point depends on all data; with 2ηN more curvature the recursion tends to the same 2C/(ρB)",
        "unproved",
    ),
    Erratum("Cor. 2.1", "the network's level is that of one round", "rounds compose", "privacy"),
    Erratum("Alg. 3 lines 5, 12", "updates (11), (16)", "L_prim and (24)", "typo"),
    Erratum("Z_prim", "−η(…)", "+η(…); harmless, the noise is symmetric", "typo"),
    Erratum("Alg. 3 line 3, Eq. (23)", "ε_p(t) in one, ε_p(t + 1) in the other", "fresh noise per release", "typo"),
    Erratum(
        "Thm 5, 6",
        "records ∝ C/accuracy² in one term",
        "C², as in Thm 3 (reproduction.theorems has a proved size)",
        "utility",
    ),
)


class State(eqx.Module):
    """What the agent keeps. `own` and the solver are private; `released` centres never read `own`."""

    x: Float[Array, " d"]  # last release
    own: Float[Array, " d"]  # f, before its noise
    dual: Float[Array, " d"]  # α
    near: Float[Array, " d"]  # Σ_j x_j
    mean: Float[Array, " d"]  # the answer so far
    solver: Solver


def needs(cfg: Config) -> Needs:
    """A linear model with one sign of slope, and a solver: see `coterie.algorithms._objective`."""
    return objective.needs(cfg)


def tune(cfg: Config, public: Public) -> Config:
    """`penalty` by `_penalty.private_penalty`: one round only has a Jacobian; `noise` gaussian unless δ = 0."""
    if cfg.penalty is None:
        cfg = cfg.replace(penalty=_penalty.private_penalty(public))
    return objective.fill(cfg, public)


def init(cfg: Config, place: Place) -> State:
    """All agents start at the same public point."""
    base = objective.init(cfg, place)
    return State(base.x, base.x, base.dual, base.near, base.mean, base.solver)


def draws(cfg: Config, place: Place) -> dict[str, Law]:
    """`output` goes on the point; `tilt` is the last round's b."""
    return objective.draws(cfg, place)


def sensitivity(cfg: Config, place: Place, t: Array) -> Array:
    """Δ of the point made in round t: a geometric sum of what one record moves in rounds 0 … t."""
    once = (objective.gap(place) + 2 * cfg.tolerance) / convexity(cfg.penalty, place)
    if cfg.centre == "released":
        return once
    pull = (2 if cfg.centre == "literal" else 1) * cfg.penalty * place.degree
    keep = pull / convexity(cfg.penalty, place)  # q
    terms = jnp.where(keep < 1, (1 - keep ** (t + 1)) / jnp.where(keep < 1, 1 - keep, 1.0), t + 1)
    return once * terms


def last_round(cfg: Config, place: Place) -> Tilt:
    """Scale of b, Φ and scale of the noise that hides the solver's error in the last round."""
    return objective.tilt(
        cfg, place, convexity(cfg.penalty, place), place.noise_at(jnp.asarray(place.rounds - 1)) / cfg.final
    )


def wire(cfg: Config, place: Place, t: Array) -> Array:
    """Scale of the noise on the point."""
    early = place.noise_at(t) * sensitivity(cfg, place, t)
    return jnp.where(t == place.rounds - 1, last_round(cfg, place).output, early)


def emit(cfg: Config, place: Place, t: Array, state: State, shard: Shard, draw: dict) -> tuple[State, Message]:
    """Solve and send with noise on the point; in the last round tilt the objective instead."""
    end, wide = last_round(cfg, place), cfg.penalty * place.degree
    own = {"released": state.x, "own": state.own, "literal": 2 * state.own - state.x}[cfg.centre]
    kept = state.own if cfg.as_printed else state.x

    def around(centre: Array) -> Array:  # shortening does not expand, so centres that differ stay as close
        asked = state.dual - wide * centre - cfg.penalty * state.near
        return heed(asked, place, convexity(cfg.penalty, place), cfg.tolerance)

    def primal() -> tuple[Array, Array]:
        return around(own), jnp.zeros_like(end.ridge)

    def final() -> tuple[Array, Array]:
        return add(around(kept), draw["tilt"], end.linear), end.ridge

    last = t == place.rounds - 1
    linear, ridge = jax.lax.cond(last, final, primal)
    f, solver = shard.argmin(linear, 2 * wide + ridge, state.solver, cfg.tolerance)
    solver = eqx.tree_at(lambda s: s.aside, solver, jnp.where(last, solver.aside, 0.0))  # seen in the last round only
    x = add(f, draw["output"], wire(cfg, place, t))
    if cfg.as_printed:  # the final step of all agents needs each other's f(T)
        x = jnp.where(t == place.rounds - 2, f, x)
    return State(x, f, state.dual, state.near, state.mean, solver), Message(x)


def absorb(cfg: Config, place: Place, t: Array, state: State, inbox: Inbox) -> State:
    """Move the dual by the disagreement of broadcast values."""
    base = objective.State(state.x, state.dual, state.near, state.mean, state.solver)
    heard = objective.hear(cfg, place, t, cfg.penalty, base, inbox)
    return State(state.x, state.own, heard.dual, heard.near, heard.mean, state.solver)


def estimate(cfg: Config, place: Place, state: State) -> Float[Array, " d"]:
    """Average of the releases that the agent has seen, its own and its neighbours', over the last rounds."""
    return place.project(state.mean)


def reveals(cfg: Config, place: Place, state: State, message: Message) -> Array | None:
    """In a set, what it cut off as well: see `coterie.algorithms._objective`."""
    return objective.reveals(cfg, place, state, message)


def cost(cfg: Config, place: Place, t: Array, message: Message | None = None) -> Event | tuple[Event, Event]:
    """Noise on the point in all rounds but the last, an objective perturbation in the last."""
    if cfg.as_printed:
        return NonPrivate()
    last, z, shift = t == place.rounds - 1, place.noise_at(t), sensitivity(cfg, place, t)
    early = jnp.where(last, 0, 1)
    if cfg.noise == "gamma":
        primal: Event = L2Laplace(shift, 1 / (z * shift), place.dim, times=early)
    else:
        primal = Gaussian(shift, z * shift, times=early)
    return primal, objective.event(cfg, place, convexity(cfg.penalty, place), z / cfg.final, jnp.where(last, 1, 0))


def claim(cfg: Config, place: Place, delta: float) -> float:
    """The paper's level of the whole run: the largest of the rounds'. It has no Gaussian variant (nan)."""
    if cfg.noise != "gamma":
        return float("nan")
    with np.errstate(divide="ignore"):
        return float(np.max(1 / (float(place.noise) * np.asarray(place.shape, float))))
