r"""IPP-ADMM: PP-ADMM that speaks only when a private test says its loss would fall enough, at most c times.

Agent i, round t, while it has spoken fewer than c times:
    test     x' = approximate minimiser of the unperturbed subproblem;  q = unit Σ_r clip(ℓ_r(x_i) − ℓ_r(x'), ±C)
             gauss: q + N(0, σ_q²) ≥ a;   svt: q + Lap(2cΔ_q/ε₂) ≥ a + ρ, ρ ~ Lap(Δ_q/ε₁) drawn once
    emit     if the test passes: a `pp-admm` release with *fresh* b₁, b₂; else silence, and x_i stays
    absorb   α ← α + η (|V_i| x_i − Σ_j x_j) with the last message of silent neighbours
Whether an agent spoke is public: the bit is a release. After c releases there are no more tests.

**Sensitivity** of q: one record's term lies in [−C, C], and x' moves by (2V unit + 2β)/Λ, along which the sum is
V' unit n-Lipschitz, V' ≥ V the bound on a gradient's norm: Δ_q = 2C unit + V' unit n (2V unit + 2β)/Λ. Leaving the
record out moves q by half of that.

**Guarantee.** Test and release use independent noise, so given the transcript each is a mechanism of its own; since c
is fixed in advance every interleaving is dominated by T tests and c releases. gauss: μ² = T(Δ_q/σ_q)² + c(μ of a
release)² in theorem (A) of `pp-admm`, with c for T in the Jacobian's part. svt: pure ε₁ + ε₂ once (Lyu, Su, Li 2017;
interleaving by Vadhan, Wang 2021), Rényi. Assumptions and adversary as in `pp-admm`. The multiplier z stands for
μ² = T/z² whatever c: share `test_share` to the tests, σ_q = Δ_q z/√share, releases at z√(c/T)/√(1 − share). The run's
schedule is not used: which rounds release is not known in advance.
What it buys is silence (at most c messages per agent); at equal (ε, δ) it never beat `pp-admm` in accuracy in our runs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from pydantic import Field

from coterie.algorithms import _penalty, pp_admm
from coterie.algorithms._admm import convexity, dual_step, solve
from coterie.algorithms.base import (
    Erratum,
    Inbox,
    Inside,
    LaplaceLaw,
    Law,
    Maybe,
    Needs,
    Normal,
    Place,
    Public,
    Round,
    add,
    standard,
)
from coterie.algorithms.pp_admm import Message
from coterie.privacy import events
from coterie.privacy.events import Event, Gaussian, SparseVector
from coterie.problems import Shard, Solver
from coterie.problems.records import sound

REFERENCE = "Ding dissertation (2022) ch. 3, IPP-ADMM, Alg. 3, rebuilt with fresh noise; Lyu, Su, Li (2017) for svt"
PREPAYS = True  # releases are booked in the first c rounds, whenever they happen
THRESHOLD = "threshold"


class Config(pp_admm.Config):
    """Hyper-parameters."""

    broadcasts: int = Field(15, ge=1, description="c: most messages that a party sends")
    test: Literal["gauss", "svt"] = Field("gauss", description="how the test is made private")
    threshold: float = Field(1e-3, description="a: least fall of the loss worth a message")
    clip: float = Field(2.0, gt=0, description="C: bound on one record's part in the test")
    test_share: float = Field(0.1, gt=0, lt=1, description="share of the budget for the tests")
    split: float = Field(0.01, gt=0, lt=1, description="share of a release's budget that hides the solver's error")
    as_printed: bool = Field(False, description="test the very point that is released, with the printed noise")


EXAMPLE = Config(penalty=0.1, broadcasts=8)

ERRATA = (
    Erratum(
        "Thm 10, Alg. 3",
        "ρ_SVT + c (ρ₁ + ρ₂), testing the point that is then released",
        "the bit selects on b₁, so c releases are not enough: fresh noise for the release, or T releases charged",
        "privacy",
    ),
    Erratum("Lemma 12", "query sensitivity 2C", "2C/n and the movement of x', (2/n + 2β)/Λ", "privacy"),
    Erratum("Lemma 13", "a sparse-vector test", "its noises are redrawn every round, so it is not one", "unproved"),
    Erratum("Alg. 3 line 6", "σ₁ from ε_i1", "from ε_i3, else nothing is left for the Jacobian", "typo"),
    Erratum("Alg. 3", "abort when count > c", "stop at count = c: the (c+1)-th test must not run", "privacy"),
    Erratum("text on the budget", "ε₁ for the query, ε₂ for the threshold", "swapped against Alg. 3", "typo"),
    Erratum("Alg. 3", "f_i with its regularizer in the test", "the data part only: it is what is bounded", "privacy"),
    Erratum("Alg. 3", "no split between test and release", "`test_share` of μ², by default a tenth", "loose"),
)


class State(eqx.Module):
    """What the agent keeps."""

    x: Float[Array, " d"]  # last release
    dual: Float[Array, " d"]
    near: Float[Array, " d"]  # sum of the neighbours' last releases
    mean: Float[Array, " d"]  # the answer so far
    averaged: Float[Array, ""]  # releases in it
    count: Int[Array, ""]  # messages sent
    spoke: Bool[Array, ""]
    bar: Float[Array, ""]  # threshold noise of the svt test (private, standard)
    solver: Solver


def needs(cfg: Config) -> Needs:
    """As `pp-admm`: the test asks for no more. Which rounds release is not known in advance: no schedule applies."""
    return replace(pp_admm.needs(cfg), even=True)


def tune(cfg: Config, public: Public) -> Config:
    """`penalty` as in `pp-admm`, with c releases."""
    if cfg.penalty is not None:
        return cfg
    c = cfg.broadcasts
    return cfg.replace(penalty=max(_penalty.private_penalty(public, c), _penalty.jacobian_penalty(public, c)))


def init(cfg: Config, place: Place) -> State:
    """All agents start at the same public point, silent."""
    zero, one = jnp.zeros((), place.start.dtype), place.start
    silent = jnp.array(False)
    return State(one, 0 * one, place.degree * one, one, zero, jnp.array(0), silent, zero, place.solver())


def greeting(cfg: Config, place: Place) -> Message:
    """Until an agent speaks it stands at the public start."""
    return Message(place.start)


def draws(cfg: Config, place: Place) -> dict[str, Law]:
    """The release's normals, and noise for the test (a Laplace threshold is kept from the first round, or redrawn)."""
    noise: dict[str, Law] = {"test": Normal()}
    if _laplace(cfg):
        noise = {"test": LaplaceLaw(), "bar": LaplaceLaw()}
    return noise | {"objective": Inside(place.dim), "output": Normal(place.dim)}


def sensitivity(cfg: Config, place: Place, t: Round) -> Array:
    """Δ_q: how far one record moves the test's query."""
    reach = place.steepness * place.unit * place.count  # Lipschitz constant of the summed losses
    moves = (2 * place.lipschitz * place.unit + 2 * cfg.tolerance) / convexity(cfg.penalty, place)
    return 2 * cfg.clip * place.unit + reach * moves


def wire(cfg: Config, place: Place, t: Round) -> Array:
    """Scale of the noise on a release."""
    return pp_admm.scales(cfg, place, _release_noise(cfg, place))[1]


def query(cfg: Config, here: Array, there: Array, shard: Shard) -> Float[Array, ""]:
    """q: by how much the data part of the loss falls from here to there, each record's part clipped to ±C."""
    fall = jnp.clip(shard.losses(here) - shard.losses(there), -cfg.clip, cfg.clip)
    return shard.unit * jnp.sum(sound(fall))  # a loss that is not finite here or there has no say


def emit(cfg: Config, place: Place, t: Array, state: State, shard: Shard, draw: dict) -> tuple[State, Maybe]:
    """Test whether to speak; if so, release the perturbed subproblem's answer."""
    if not cfg.as_printed:
        tried, solver = solve(cfg.penalty, place, state, shard, cfg.tolerance)
        state = eqx.tree_at(lambda s: s.solver, state, solver)
    released, solver = pp_admm.release(cfg, place, _release_noise(cfg, place), state, shard, draw)
    if cfg.as_printed:
        tried = solver.x  # the very point that is sent, before b₂
    fall = query(cfg, state.x, tried, shard)
    bar = state.bar
    if _laplace(cfg):
        fresh = standard(draw["bar"])
        bar = fresh if cfg.as_printed else jnp.where(t == 0, fresh, state.bar)
    over, above = _test_noise(cfg, place)
    passed = add(fall, draw["test"], over) >= add(jnp.asarray(cfg.threshold, fall.dtype), bar, above)
    sent = passed & (state.count < cfg.broadcasts)
    x = jnp.where(sent, released, state.x)
    state = State(x, state.dual, state.near, state.mean, state.averaged, state.count + sent, sent, bar, solver)
    return state, Maybe(Message(x), sent)


def absorb(cfg: Config, place: Place, t: Array, state: State, inbox: Inbox) -> State:
    """Move the dual by the disagreement; average what is new."""
    near = inbox.total.x
    dual = dual_step(cfg.penalty, place, state.dual, state.x, near)
    new = state.spoke | jnp.any(near != state.near)
    late = t >= place.rounds - jnp.ceil(cfg.tail * place.rounds)
    averaged = jnp.where(new, jnp.where(late, state.averaged, 0) + 1, state.averaged)
    around = (state.x + near) / (1 + place.degree)
    mean = jnp.where(new, state.mean + (around - state.mean) / jnp.maximum(averaged, 1), state.mean)
    return State(state.x, dual, near, mean, averaged, state.count, state.spoke, state.bar, state.solver)


def estimate(cfg: Config, place: Place, state: State) -> Float[Array, " d"]:
    """Average of the releases that the agent has seen, its own and its neighbours', over the last rounds."""
    return place.project(state.mean)


def reveals(cfg: Config, place: Place, state: State, message: Message) -> Array | None:
    """In a set, what it cut off of a release as well: see `pp-admm`. Of a silent round nothing is seen."""
    return None if place.within is None else jnp.where(state.spoke, message.x + state.solver.aside, message.x)


def cost(cfg: Config, place: Place, t: Array, message: Message | None = None) -> tuple[Event, ...]:
    """A test every round and c releases, booked in the first c rounds whenever they really happen.

    As printed, the bit looks at the noise that the release relies on: every round is charged as if it had released.
    """
    if cfg.as_printed:
        over, _ = _test_noise(cfg, place)
        frozen = 2 * cfg.clip * place.unit + place.steepness * place.unit * place.count * pp_admm.slip(cfg, place)
        bit = events.Laplace(frozen, 1 / over)
        return bit, pp_admm.release_cost(cfg, place, _release_noise(cfg, place))
    gap, (over, above) = sensitivity(cfg, place, t), _test_noise(cfg, place)
    spoken = min(cfg.broadcasts, place.rounds)
    svt = cfg.test == "svt"
    test: Event = SparseVector(gap, above, over, spoken, times=t == 0) if svt else Gaussian(gap, over)
    return test, pp_admm.release_cost(cfg, place, _release_noise(cfg, place), times=t < cfg.broadcasts)


def claim(cfg: Config, place: Place, delta: float) -> float:
    """The paper's ε: √(4 ρ ln 1/δ) with ρ = (ε₁ + ε₂)²/2 + c (ρ₁ + ρ₂) (Thm 10)."""
    spoken = min(cfg.broadcasts, place.rounds)
    releases = spoken * pp_admm.printed_rho(cfg, place, float(_release_noise(cfg, place)), delta)
    return float(np.sqrt(4 * (float(_pure(cfg, place)) ** 2 / 2 + releases) * np.log(1 / delta)))


def _laplace(cfg: Config) -> bool:
    return cfg.test == "svt" or cfg.as_printed


def _release_noise(cfg: Config, place: Place) -> Array:
    """Multiplier of a release: c of them cost the share that the tests leave."""
    share = min(cfg.broadcasts, place.rounds) / place.rounds
    return place.noise * (share / (1 - cfg.test_share)) ** 0.5


def _pure(cfg: Config, place: Place) -> Array:
    """ε₁ + ε₂ with (ε₁ + ε₂)²/2 = the tests' share of μ²/2."""
    return (cfg.test_share * place.rounds) ** 0.5 / place.noise


def _test_noise(cfg: Config, place: Place) -> tuple[Array, Array]:
    """Scales of the noise on the query and on the threshold; ε₁ : ε₂ = 1 : (2c)^{2/3} where both are Laplace."""
    if not _laplace(cfg):
        return sensitivity(cfg, place, 0) * place.noise / cfg.test_share**0.5, jnp.zeros_like(place.noise)
    c = min(cfg.broadcasts, place.rounds)
    ratio = (2 * c) ** (2 / 3)
    inverse = place.noise / (cfg.test_share * place.rounds) ** 0.5  # 1/(ε₁ + ε₂)
    first, second = inverse * (1 + ratio), inverse * (1 + ratio) / ratio  # 1/ε₁, 1/ε₂
    if cfg.as_printed:
        return 4 * c * cfg.clip * second, 2 * c * cfg.clip * first
    gap = sensitivity(cfg, place, 0)
    return 2 * c * gap * second, gap * first
