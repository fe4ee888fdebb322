r"""PR-ADMM: exact local solves with Gaussian noise on what is sent; neighbours that stray may be left out.

Agent i (x̃⁰ public and common, α = 0, S = 0), round k, noise std σ_{k+1}:
    emit     x ← argmin f_i(v) + ⟨α, v⟩ + η Σ_j ‖v − ½(x̃_i + u_j)‖²,  broadcast x̃_i = x + N(0, σ²I)
    absorb   α ← α + η (|V_i| x̃_i − Σ_j x̃_j);   S_j ← S_j + ‖x̃_i − x̃_j‖;   u_j = x̃_i if S_j > U, else x̃_j
    answer   the average of x̃ over the agent and its neighbours, over the last `tail` of the rounds
The unreleased x enters nothing but its own release. The decay of the noise is the run's schedule (`periodic`,
`iteration`, `uniform`, `optimal`); at a fixed budget a uniform one has the least total noise.

**Sensitivity.** Given the transcript, α, u and x̃ are constants, so data enter the subproblem g only. It is Λ-strongly
convex, Λ = ridge + 2η|V_i|, and one record moves ∇g by at most 2 V unit (V: `lipschitz`); at the minimiser x' of the
other world ‖∇g(x')‖ ≤ 2 V unit, hence Λ‖x − x'‖ ≤ 2 V unit. A solver that stops at gradient norm β is off by β/Λ in
each world: Δ = (2 V unit + 2β)/Λ.

**Guarantee.** Each round is a Gaussian mechanism with μ = Δ/σ given the past, the total μ² = Σ (Δ/σ_k)², exactly.
Replace-one, sizes public, every message seen. Dual, threshold and answer are functions of the transcript: free.
A convex loss with bounded slope is all it needs. The threshold never lowered the loss in our runs; exclusion by it is
permanent. If it or the decay is chosen by looking at the data, that costs privacy too.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from pydantic import Field

from coterie import theory
from coterie.algorithms._admm import Number, convexity, dual_step, solve, tail_mean
from coterie.algorithms.base import Config as BaseConfig
from coterie.algorithms.base import Erratum, Inbox, Law, Normal, Place, Public, add
from coterie.privacy.claims import zcdp_epsilon
from coterie.privacy.events import Event, Gaussian
from coterie.problems import Shard, Solver

REFERENCE = "Ding, Zhang, Chen, Xue, Zhang, Pan, PR-ADMM, Alg. 1; Ding dissertation (2022) ch. 2"
NEEDS = ("argmin",)


class Config(BaseConfig):
    """Hyper-parameters."""

    penalty: float | None = Field(None, gt=0, description="η; None: see `tune`")
    tail: float = Field(0.5, ge=0, le=1, description="share of the rounds whose releases the answer averages; 0: last")
    threshold: float | None = Field(None, gt=0, description="U; None: neighbours are never left out")
    paper_threshold: bool = Field(
        False, description="fill `threshold` with the paper's value (unproved, far too large)"
    )
    tolerance: float = Field(1e-8, ge=0, description="β: gradient norm at which the solver stops; charged")
    as_printed: bool = Field(False, description="scale the noise to the printed sensitivity, which forgets 1/n")


EXAMPLE = Config(penalty=0.1)

ERRATA = (
    Erratum(
        "Lemma 5 / diss. Lemma 10", "Δ = V/(η|V_i|)", "Δ = (2V/n + 2β)/(ridge + 2η|V_i|); n times smaller", "loose"
    ),
    Erratum(
        "proof of Lemma 5", "both worlds' gradients at one point", "strong convexity at both minimisers", "unproved"
    ),
    Erratum("Alg. 1", "the minimiser is exact", "a solver at gradient norm β adds 2β/Λ to Δ", "privacy"),
    Erratum(
        "Thm 3 / diss. Thm 2",
        "total factor K_p(1 − R^{K/K_p})/(R^{K/K_p−1} − R^{K/K_p}) − 1",
        "no − 1: it drops one release (K = 1 would be free); 595.793, not 594.793, at the defaults",
        "privacy",
    ),
    Erratum("Thm 3 / diss. Thm 2", "K a multiple of K_p", "schedules.periodic_total holds for every K", "loose"),
    Erratum("Eq. (15), Alg. 1 line 6", "σ²/(R_T k(k+1)) from k = 0", "from k = 1; the first round has σ₁²", "typo"),
    Erratum(
        "iteration-based decay",
        "decaying noise with R_T = .015",
        "variance is 33 σ₁² at round 2, < σ₁² at 9",
        "utility",
    ),
    Erratum("all theorems", "ε = ρ + 2√(ρ ln 1/δ)", "the exact Gaussian curve: 16–48 % less ε", "loose"),
    Erratum(
        "Lemma 4 / diss. Lemma 9", "an automatic U with a proof", "the proof fails; U is a plain choice", "unproved"
    ),
    Erratum(
        "Thm 5, 6 / diss. Thm 4, 5", "Σ‖Qξ^k‖ ≤ Û", "not so for Gaussian noise; theory.objective_gap_bound", "unproved"
    ),
    Erratum("Thm 5, 6", "initial term ‖x⁰ − x*‖² in L₋/2", "in L₊/2 (L₋ gives 0)", "typo"),
    Erratum("Thm 6 / diss. Thm 5", "noise sum d σ₁²/R_T", "(1 + 1/R_T): the first release is missing", "typo"),
    Erratum(
        "Thm 5, 6",
        "objective gap O(1/K)",
        "for fixed σ₁ only; at a fixed budget the noise part grows at least linearly in K, least for uniform noise",
        "unproved",
    ),
    Erratum("experiments", "the unreleased x_i^k is evaluated", "answers are functions of the released x̃", "privacy"),
    Erratum("experiments", "U, K_p and R tuned on the data", "such a choice costs budget", "unproved"),
    Erratum("Prop. 1", "a bound on every path", "false (consensual noise); it holds in expectation", "unproved"),
    Erratum("Eq. (16)", "2M⁻¹ξ in the residual identity", "2Mξ, M the degree matrix", "typo"),
)


class State(eqx.Module):
    """What the agent keeps: all of it released or derived from releases, but the solver's."""

    x: Float[Array, " d"]  # last release
    dual: Float[Array, " d"]
    near: Float[Array, " d"]  # Σ_j u_j
    mean: Float[Array, " d"]  # the answer so far
    solver: Solver


class Message(eqx.Module):
    """Everything that leaves."""

    x: Float[Array, " d"]


def tune(cfg: Config, public: Public) -> Config:
    """`penalty` by `theory.private_penalty`; with `paper_threshold`, U from bounds on the paper's constants."""
    if cfg.penalty is None:
        cfg = cfg.replace(penalty=theory.private_penalty(public))
    if cfg.paper_threshold and cfg.threshold is None:
        cfg = cfg.replace(threshold=theory.paper_threshold_from(public, float(cfg.penalty or 0)))
    return cfg


def init(cfg: Any, place: Place) -> State:
    """All agents start at the same public point."""
    zero = jnp.zeros_like(place.start)
    return State(place.start, zero, place.degree * place.start, place.start, place.solver())


def edge(cfg: Config, place: Place) -> Float[Array, ""]:
    """S_j: how far the neighbour has strayed so far, summed over the rounds."""
    return jnp.zeros((), place.start.dtype)


def draws(cfg: Any, place: Place) -> dict[str, Law]:
    """One standard normal vector."""
    return {"noise": Normal(place.dim)}


def sensitivity(cfg: Any, place: Place, t: Number) -> Array:
    """Δ = (2 V unit + 2β)/Λ."""
    return (2 * place.lipschitz * place.unit + 2 * cfg.tolerance) / convexity(cfg.penalty, place)


def printed_sensitivity(cfg: Any, place: Place) -> Array:
    """V/(η|V_i|), as in the paper: without 1/n."""
    return place.lipschitz / (cfg.penalty * place.degree)


def sigma(cfg: Any, place: Place, t: Number) -> Array:
    """Noise std of round t."""
    declared = printed_sensitivity(cfg, place) if cfg.as_printed else sensitivity(cfg, place, t)
    return place.noise_at(t) * declared


wire = sigma  # a deployed message travels on the grid of its noise


def emit(cfg: Any, place: Place, t: Array, state: State, shard: Shard, draw: dict) -> tuple[State, Message]:
    """Solve the subproblem and send the answer with noise on it."""
    exact, solver = solve(cfg.penalty, place, state, shard)
    x = add(exact, draw["noise"], sigma(cfg, place, t))
    return State(x, state.dual, state.near, state.mean, solver), Message(x)


def listen(cfg: Any, place: Place, t: Array, state: State, total: Float[Array, " d"]) -> State:
    """Move the dual by the raw disagreement, renew the answer; `total` = Σ_j x̃_j also enters the next subproblem."""
    dual = dual_step(cfg.penalty, place, state.dual, state.x, total)
    mean = tail_mean(cfg.tail, place, t, state.mean, (state.x + total) / (1 + place.degree))
    return State(state.x, dual, total, mean, state.solver)


def absorb(cfg: Config, place: Place, t: Array, state: State, inbox: Inbox) -> tuple[State, Array]:
    """Listen; then leave neighbours that have strayed out of the next subproblem (the dual keeps them)."""
    heard = listen(cfg, place, t, state, inbox.total.x)
    limit: Number = cfg.threshold
    if limit is None:
        return heard, inbox.memory

    def strayed(message: Message, weight: Array, far: Array) -> Array:
        return far + jnp.linalg.norm(state.x - message.x)

    def trusted(message: Message, weight: Array, far: Array) -> Array:
        return jnp.where(strayed(message, weight, far) > limit, state.x, message.x)

    return eqx.tree_at(lambda s: s.near, heard, inbox.reduce(trusted)), inbox.map(strayed)


def estimate(cfg: Any, place: Place, state: State) -> Float[Array, " d"]:
    """Average of the releases that the agent has seen, its own and its neighbours', over the last rounds."""
    return state.mean


def cost(cfg: Any, place: Place, t: Array, message: Message | None = None) -> Event:
    """A Gaussian release of the subproblem's minimiser."""
    return Gaussian(sensitivity(cfg, place, t), sigma(cfg, place, t))


def claim(cfg: Config, place: Place, delta: float) -> float:
    """The paper's ε: printed Δ, ρ + 2√(ρ ln 1/δ), and for geometric schedules the first release forgotten."""
    rho, geometric = printed_rho(cfg, place), _geometric(np.asarray(place.shape, float))
    return zcdp_epsilon(float(np.sum(rho[1:] if geometric else rho)), delta)


def printed_rho(cfg: Any, place: Place) -> np.ndarray:
    """Δ²/(2σ_k²) of every round with the printed Δ."""
    spread = np.asarray([float(sigma(cfg, place, t)) for t in range(place.rounds)])
    with np.errstate(divide="ignore"):
        return float(printed_sensitivity(cfg, place)) ** 2 / (2 * spread**2)


def _geometric(shape: np.ndarray) -> bool:
    """Whether the schedule is of the paper's periodic kind: every step multiplies the noise by 1 or by one factor."""
    steps = shape[1:] / shape[:-1]
    steps = steps[~np.isclose(steps, 1, rtol=1e-6)]
    return bool(np.allclose(steps, steps[:1], rtol=1e-6))
