r"""PR-ADMM: local solves with Gaussian noise on what is sent; neighbours that stray may be left out.

Agent i (x̃⁰ public and common, α = 0, S = 0), round k, noise std σ_{k+1}:
    emit     x ← K gradient steps from x̃_i towards argmin f_i(v) + ⟨α, v⟩ + η Σ_j ‖v − ½(x̃_i + u_j)‖²
             broadcast x̃_i = x + N(0, σ²I)
    absorb   α ← α + η (|V_i| x̃_i − Σ_j x̃_j);   S_j ← S_j + ‖x̃_i − x̃_j‖;   u_j = x̃_i if S_j > U, else x̃_j
    answer   the average of x̃ over the agent and its neighbours, over the last `tail` of the rounds
Over a set every gradient step ends with the projection, and so does the answer.
The unreleased x enters nothing but its own release. The decay of the noise is the run's schedule (`periodic`,
`iteration`, `uniform`, `optimal`); at a fixed budget a uniform one has the least total noise.

**Sensitivity.** Given the transcript, α, u and x̃ are constants, so data enter the steps only. Each is a contraction by
q = (M − Λ)/(M + Λ), Λ = ridge + 2η|V_i|, M = Λ + unit · n · c₁, that one record changes by at most 2/(M + Λ) · 2 V unit
(V: `lipschitz`, c₁: `smoothness`), and both worlds start at x̃_i: Δ = 2 V unit (1 − q^K)/Λ, for every K
(`coterie.algorithms._admm`); a projection does not expand.
There is no solver that could stop early, and no error to charge but rounding, which a
deployed party does charge: with K ≤ 1000 and messages below 2³⁹ steps of its grid it stays below half a step.

**Guarantee.** Each round is a Gaussian mechanism with μ = Δ/σ given the past, the total μ² = Σ (Δ/σ_k)², exactly.
Replace-one, sizes public, every message seen. Dual, threshold and answer are functions of the transcript: free.
It needs a convex loss with bounds on slope and curvature. The threshold never lowered the loss in our runs; exclusion
by it is permanent. If it or the decay is chosen by looking at the data, that costs privacy too.
"""

from __future__ import annotations

import math
from typing import ClassVar, TypeVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from pydantic import Field, model_validator

from coterie.algorithms import _penalty
from coterie.algorithms._admm import asked, convexity, dual_step, enough_steps, left_over, short_way, tail_mean
from coterie.algorithms.base import Auto, AutoInt, Erratum, Inbox, Law, Needs, Normal, Place, Public, Round, add
from coterie.algorithms.base import Config as BaseConfig
from coterie.errors import InputError
from coterie.privacy.events import Event, Gaussian
from coterie.privacy.rdp import zcdp_epsilon
from coterie.problems import Shard

REFERENCE = "Ding, Zhang, Chen, Xue, Zhang, Pan, PR-ADMM, Alg. 1; Ding dissertation (2022) §3.3"


class Stepping(BaseConfig):
    """The hyper-parameters that `p-admm` has, too."""

    COUNTS: ClassVar[tuple[str, ...]] = ("steps",)
    penalty: Auto = Field(None, gt=0, description="η; None: see `tune`")
    tail: float = Field(0.5, ge=0, le=1, description="share of the rounds whose releases the answer averages; 0: last")
    steps: AutoInt = Field(
        None, ge=1, le=1000, description="K: gradient steps in a round; None: what leaves 1/10 of the way, at most 64"
    )
    as_printed: bool = Field(False, description="scale the noise to the printed sensitivity, which forgets 1/n")


class Config(Stepping):
    """Hyper-parameters."""

    threshold: float | None = Field(None, gt=0, description="U; None: neighbours are never left out")
    paper_threshold: bool = Field(
        False, description="fill `threshold` with the paper's value (unproved, far too large)"
    )

    @model_validator(mode="after")
    def _one_threshold(self) -> Config:
        if self.paper_threshold and self.threshold is not None:
            raise InputError(f"threshold = {self.threshold:g} and paper_threshold exclude each other: give one")
        return self


C = TypeVar("C", bound=Stepping)
EXAMPLE = Config(penalty=0.1, steps=40)

ERRATA = (
    Erratum("Lemma 5 / diss. Lemma 10", "Δ = V/(η|V_i|)", "Δ = (2V/n)/(ridge + 2η|V_i|); n times smaller", "loose"),
    Erratum(
        "proof of Lemma 5", "both worlds' gradients at one point", "strong convexity at both minimisers", "unproved"
    ),
    Erratum(
        "Alg. 1",
        "the minimiser is exact",
        "a solver at gradient norm β adds 2β/Λ to Δ, and whether it gets there depends on the data: K public steps",
        "privacy",
    ),
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
        "Thm 5, 6 / diss. Thm 4, 5", "Σ‖Qξ^k‖ ≤ Û", "not so for Gaussian noise; reproduction.bounds has one", "unproved"
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
    """What the agent keeps: all of it released or derived from releases."""

    x: Float[Array, " d"]  # last release
    dual: Float[Array, " d"]
    near: Float[Array, " d"]  # Σ_j u_j
    mean: Float[Array, " d"]  # the answer so far


class Message(eqx.Module):
    """Everything that leaves."""

    x: Float[Array, " d"]


def needs(cfg: Stepping) -> Needs:
    """Convexity and a curvature bound make a step contract; a bound on the slope makes a record's part small."""
    return Needs(convex=True, smooth=True, bounded=True, steps=True, projects=True)


def tune(cfg: Config, public: Public) -> Config:
    """`penalty`, `steps` by public rules; with `paper_threshold`, U from bounds on the paper's constants."""
    cfg = fill(cfg, public)
    if cfg.paper_threshold and cfg.threshold is None:
        cfg = cfg.replace(threshold=paper_threshold_from(public, float(cfg.penalty or 0)))
    return cfg


def fill(cfg: C, public: Public) -> C:
    """`penalty` by `_penalty.private_penalty`, `steps` by `enough_steps`."""
    if cfg.penalty is None:
        cfg = cfg.replace(penalty=_penalty.private_penalty(public))
    return cfg if cfg.steps is not None else cfg.replace(steps=enough_steps(public, float(cfg.penalty)))


def convergent(cfg: Stepping, public: Public) -> str | None:
    """A warning where the steps of a round go so short a way that the method is another one."""
    return short_way(public, float(cfg.penalty), cfg.steps)


def init(cfg: Stepping, place: Place) -> State:
    """All agents start at the same public point."""
    zero = jnp.zeros_like(place.start)
    return State(place.start, zero, place.degree * place.start, place.start)


def edge(cfg: Config, place: Place) -> Float[Array, ""]:
    """S_j: how far the neighbour has strayed so far, summed over the rounds."""
    return jnp.zeros((), place.start.dtype)


def draws(cfg: Stepping, place: Place) -> dict[str, Law]:
    """One standard normal vector."""
    return {"noise": Normal(place.dim)}


def sensitivity(cfg: Stepping, place: Place, t: Round) -> Array:
    """Δ = 2 V unit (1 − q^K)/Λ."""
    gone = 1 - left_over(cfg.penalty, place, cfg.steps)
    return 2 * place.lipschitz * place.unit * gone / convexity(cfg.penalty, place)


def printed_sensitivity(cfg: Stepping, place: Place) -> Array:
    """V/(η|V_i|), as in the paper: without 1/n."""
    return place.lipschitz / (cfg.penalty * place.degree)


def sigma(cfg: Stepping, place: Place, t: Round) -> Array:
    """Noise std of round t."""
    declared = printed_sensitivity(cfg, place) if cfg.as_printed else sensitivity(cfg, place, t)
    return place.noise_at(t) * declared


wire = sigma  # a deployed message travels on the grid of its noise


def emit(cfg: Stepping, place: Place, t: Array, state: State, shard: Shard, draw: dict) -> tuple[State, Message]:
    """Step towards the subproblem's minimiser and send the point with noise on it."""
    bare = shard.descend(state.x, *asked(cfg.penalty, place, state), cfg.steps)
    x = add(bare, draw["noise"], sigma(cfg, place, t))
    return State(x, state.dual, state.near, state.mean), Message(x)


def listen(cfg: Stepping, place: Place, t: Array, state: State, total: Float[Array, " d"]) -> State:
    """Move the dual by the raw disagreement, renew the answer; `total` = Σ_j x̃_j also enters the next subproblem."""
    dual = dual_step(cfg.penalty, place, state.dual, state.x, total)
    mean = tail_mean(cfg.tail, place, t, state.mean, (state.x + total) / (1 + place.degree))
    return State(state.x, dual, total, mean)


def absorb(cfg: Config, place: Place, t: Array, state: State, inbox: Inbox) -> tuple[State, Array]:
    """Listen; then leave neighbours that have strayed out of the next subproblem (the dual keeps them)."""
    heard = listen(cfg, place, t, state, inbox.total.x)
    limit = cfg.threshold
    if limit is None:
        return heard, inbox.memory

    def strayed(message: Message, weight: Array, far: Array) -> Array:
        return far + jnp.linalg.norm(state.x - message.x)

    def trusted(message: Message, weight: Array, far: Array) -> Array:
        return jnp.where(strayed(message, weight, far) > limit, state.x, message.x)

    return eqx.tree_at(lambda s: s.near, heard, inbox.reduce(trusted)), inbox.map(strayed)


def estimate(cfg: Stepping, place: Place, state: State) -> Float[Array, " d"]:
    """Average of the releases that the agent has seen, its own and its neighbours', over the last rounds."""
    return place.project(state.mean)


def cost(cfg: Stepping, place: Place, t: Array, message: Message | None = None) -> Event:
    """A Gaussian release."""
    return Gaussian(sensitivity(cfg, place, t), sigma(cfg, place, t))


def claim(cfg: Config, place: Place, delta: float) -> float:
    """The paper's ε: printed Δ, ρ + 2√(ρ ln 1/δ), and for geometric schedules the first release forgotten."""
    rho, geometric = printed_rho(cfg, place), _geometric(np.asarray(place.shape, float))
    return zcdp_epsilon(float(np.sum(rho[1:] if geometric else rho)), delta)


def printed_rho(cfg: Stepping, place: Place) -> np.ndarray:
    """Δ²/(2σ_k²) of every round with the printed Δ."""
    spread = np.asarray([float(sigma(cfg, place, t)) for t in range(place.rounds)])
    with np.errstate(divide="ignore"):
        return float(printed_sensitivity(cfg, place)) ** 2 / (2 * spread**2)


def _geometric(shape: np.ndarray) -> bool:
    """Whether the schedule is of the paper's periodic kind: every step multiplies the noise by 1 or by one factor."""
    steps = shape[1:] / shape[:-1]
    steps = steps[~np.isclose(steps, 1, rtol=1e-6)]
    return bool(np.allclose(steps, steps[:1], rtol=1e-6))


def paper_threshold(
    penalty: float,
    radius: float,
    slope: float,
    *,
    edges: float,
    signless_max: float,
    laplacian_max: float,
    connectivity: float,
) -> float:
    r"""PR-ADMM's automatic threshold U = Û/(√2 E), as printed: its proof fails, and it is far too large to act.

    Û = (φ_max(L₊) + 2 φ_max(Q)) V₁² + 2 V₂²/(η² φ_min(L₋)) + 1, with ‖x‖ ≤ V₁ `radius`, ‖∇f_i‖ ≤ V₂ `slope`, φ_max(L₊)
    `signless_max`, φ_max(Q) = √(`laplacian_max`/2) and φ_min(L₋) `connectivity`, the smallest non-zero eigenvalue of
    the Laplacian. (Ding et al., Lemma 4: it adds squares of lengths as if they were lengths, and bounds a sum of
    norms by what ADMM theory says of the norm of a sum.) Values that acted in the paper's own runs are .1 to 1.
    """
    for name, value in (("penalty", penalty), ("edges", edges), ("connectivity", connectivity)):
        if not value > 0:
            raise InputError(f"{name} must be > 0, got {value}")
    q_max = math.sqrt(laplacian_max / 2)
    total = (signless_max + 2 * q_max) * radius**2 + 2 * slope**2 / (penalty**2 * connectivity) + 1
    return total / (math.sqrt(2) * edges)


def paper_threshold_from(public: Public, penalty: float) -> float:
    """`paper_threshold` from what a plan knows: bounds stand in for the spectrum.

    φ_max(L₊) ≤ 2 · largest degree; φ_min(L₋) ≥ 4/(N (N − 1)) (Mohar); E ≥ N − 1; the optimum of f_i obeys
    ridge ‖x‖ ≤ V, so V₁ = V/ridge and V₂ = 2V.
    """
    if not public.ridge > 0:
        raise InputError("the paper's threshold needs a bound on ‖x‖: set ridge > 0 or give threshold a number")
    return paper_threshold(
        penalty,
        public.lipschitz / public.ridge,
        2 * public.lipschitz,
        edges=public.agents - 1,
        signless_max=2 * public.degree_max,
        laplacian_max=public.laplacian_max,
        connectivity=4 / (public.agents * max(public.agents - 1, 1)),
    )
