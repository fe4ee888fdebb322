r"""Noise of a deployed agent: whole numbers on a public grid, from the operating system, and what they cost.

A message x with noise of scale s becomes g·(round(x/g) + Z) with g = s/65,544 (Laplace: s/65,536) and Z from
`coterie.privacy.secure`; the integer travels, g is public. Three things differ from the simulated float and each is
charged (`on_grid` replaces an algorithm's `cost`, so that calibration, ledger and certificate all see the true price):

- **Rounding.** ‖round(a) − round(b)‖ ≤ ‖a − b‖ + √d in grid steps. Float64 arithmetic may add its own error, which the
  bound on a message keeps below half a step. Charged: Δ + 2g√d (L1: Δ + 2gd).
- **The discrete law.** Draw y ~ N(0, σ² − s²) and then round y to a random integer, z with probability ∝
  exp(−(z − y)²/2s²). Up to a factor 1 ± 4e^{−2π²s²} the result is the discrete Gaussian of parameter σ, because
  Σ_z exp(−(z − y)²/2s²) = s√2π (1 ± 2e^{−2π²s²}) hardly depends on y; and shifting the data by whole steps shifts y and
  z alike. So the discrete Gaussian is a post-processing of a *continuous* one with variance σ² − s² in grid steps, and
  every Gaussian accountant applies to it. With s = 4 the factor is 1 ± 1e−136, far below the table's own error of 1e−32
  a coordinate, which is charged as total variation.
- **Laplace.** The discrete Laplace law is exactly pure with ε = shift/scale; it is charged as such (`Pure`).

Noise inside an objective, noise of density exp(−‖x‖₂) and noise that is rounded at random have no such form: these
algorithms are refused, with the nearest one that has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from coterie.algorithms.base import Algorithm, Config, Grid, L2LaplaceLaw, LaplaceLaw, Law, Normal, Place, Uniform, find
from coterie.algorithms.batches import axes
from coterie.errors import InputError
from coterie.exchange.kinds import broadcast, secret_sum
from coterie.plan import REFERENCES, Plan, refuse_ignored
from coterie.privacy import events, secure

__all__ = ["GAUSSIAN_UNIT", "LAPLACE_UNIT", "Source", "SystemSource", "check_deployable", "grid_steps", "noise_scales",
           "on_grid"]  # fmt: skip

GAUSSIAN_UNIT = float(np.sqrt(secure.GRID_VARIANCE))
LAPLACE_UNIT = float(secure.GRID_LAPLACE_SCALE)
SMOOTHING = 16.0  # s² in grid steps²
TABLE_ERROR = 1e-32  # total variation of one drawn coordinate
UNIFORM_ERROR = 2.0**-53  # of one drawn uniform, as a float64
UNITS: dict[type[Law], float] = {Normal: GAUSSIAN_UNIT, LaplaceLaw: LAPLACE_UNIT}


class Source(Protocol):
    """Where a deployed agent's randomness comes from. There is one in the product; tests may replay recorded draws."""

    def draw(self, round: int, laws: Mapping[str, Law]) -> dict[str, Any]:
        """One round's draws."""


class SystemSource:
    """Fresh draws from the operating system, never kept: a fork, clone or restored snapshot draws anew."""

    def draw(self, round: int, laws: Mapping[str, Law]) -> dict[str, Any]:
        """One round's draws, on the grid where they are noise."""
        return {name: _draw(law) for name, law in laws.items()}


@cache
def _gaussian() -> secure.DiscreteGaussianTable:
    return secure.DiscreteGaussianTable.from_variance(secure.GRID_VARIANCE)


def _draw(law: Law) -> Any:
    match law:
        case Normal():
            return Grid(_gaussian().sample(law.shape), GAUSSIAN_UNIT)
        case LaplaceLaw():
            return Grid(secure.DiscreteLaplaceTable(secure.GRID_LAPLACE_SCALE).sample(law.shape), LAPLACE_UNIT)
        case Uniform():
            return secure.uniform(law.shape)
        case _:
            raise InputError(f"noise of law {law.name!r} has no exact form on a grid")


# ---- what may be deployed --------------------------------------------------------------------------------------------


def check_deployable(plan: Plan, rehearsed: bool = False) -> None:
    """Refuse a plan whose algorithm cannot run between parties, with the reason and the nearest one that can.

    `rehearsed`: all parties are on this machine, and a plan's own data is split between them.
    """
    if plan.algorithm.name in REFERENCES:
        raise InputError(f"{plan.algorithm.name} is a yardstick that pools data: it cannot be deployed")
    algorithm, cfg, slug = find(plan.algorithm.name), plan.algorithm.config(), plan.algorithm.name
    if not algorithm.private:
        raise InputError(f"{slug} sends private data without noise: an agent runs private algorithms only")
    if getattr(cfg, "as_printed", False):
        raise InputError(f"{slug} as_printed is not private as claimed: an agent refuses it")
    refuse_ignored(plan, "an agent, which measures nothing and computes in float64", "run.every", "run.dtype")
    if not rehearsed:
        whole = "an agent, which reads all of its own file"
        refuse_ignored(plan, whole, "data.path", "data.site", "data.test_fraction")
    sums = plan.exchange.sums
    if type(plan.exchange.chosen("kind")) not in (broadcast.Settings, secret_sum.Settings):  # others are for simulation
        raise InputError("deployed messages travel as integers already: exchange.kind must be broadcast or secret-sum")
    if sums is not None and sums.noise == "local" and plan.deploy is not None and plan.deploy.bound > sums.bound:
        raise InputError(  # a number between the two would stop a party in the middle of a run
            f"deploy.bound = {plan.deploy.bound:g} exceeds what a secret sum can hold, exchange.bound = {sums.bound:g}"
        )
    if algorithm.wire is not None:
        return
    other = "pr-admm" if algorithm.needs(cfg).solver else "dp-dsgd"
    raise InputError(f"{slug} cannot be deployed: {_reason(algorithm, cfg)}; the nearest that can is {other}")


def _reason(algorithm: Algorithm, cfg: Config) -> str:
    if algorithm.bits is not None:
        return "its messages are rounded or masked after the noise, and the proof is for continuous noise"
    names = {law.name for law in algorithm.draws(cfg, _somewhere()).values()}
    if L2LaplaceLaw.name in names:
        return "noise of density exp(-|x|) in the L2 norm has no exact form on a grid"
    if algorithm.needs(cfg).solver:
        return "its noise is inside the objective that it minimises, so what is sent lies on no grid"
    return "its privacy rests on the law of continuous random weights"


def _somewhere() -> Place:
    """A place with no meaning but its shapes."""
    one, empty = jnp.ones(()), jnp.ones(1)
    return Place(one, one, one, one, one, empty, empty, one, one, one, dim=1, rounds=1, agents=2, rows=1)


# ---- what it costs ---------------------------------------------------------------------------------------------------


@cache
def on_grid(algorithm: Algorithm) -> Algorithm:
    """The algorithm with the price of its deployed form: the same functions, but `cost` charges grid and tables."""

    def cost(cfg: Config, place: Place, t: Any, message: Any = None) -> tuple[events.Event, ...]:
        declared = algorithm.cost(cfg, place, t, message)
        uniforms = sum(
            int(np.prod(law.shape)) for law in algorithm.draws(cfg, place).values() if isinstance(law, Uniform)
        )
        parts = declared if isinstance(declared, tuple) else (declared,)
        return tuple(_charged(e, algorithm.slug, place.dim, uniforms) for e in parts)

    return replace(algorithm, cost=cost)


def _charged(event: events.Event, slug: str, dim: int, uniforms: int) -> events.Event:
    thin = float(np.sqrt(1 - SMOOTHING / secure.GRID_VARIANCE))
    root = float(np.sqrt(dim))
    tv = event.tv + dim * TABLE_ERROR
    match event:
        case events.Gaussian():
            moved = event.sensitivity + 2 * root * event.sigma / GAUSSIAN_UNIT
            return replace(event, sensitivity=moved, sigma=thin * event.sigma, tv=tv)
        case events.SampledGaussian(discrete=False):
            nu = event.noise_multiplier
            coins = uniforms**2 * UNIFORM_ERROR / 2  # two equal coins, or one on the wrong side of the rate
            return replace(event, noise_multiplier=thin * nu / (1 + 2 * root * nu / GAUSSIAN_UNIT), tv=tv + coins)
        case events.Laplace():
            pure = event.rate * event.l1 + 2 * dim / LAPLACE_UNIT
            return events.Pure(pure, times=event.times, slack=event.slack, tv=tv, adjacency=event.adjacency)
        case events.Free():
            return event
        case _:
            raise InputError(f"{slug} cannot be deployed: {type(event).__name__} has no price on a grid")


# ---- the public grid -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Steps:
    """Grid step of every party (by node) and round: public, the same numbers at every party."""

    size: np.ndarray  # (agents, rounds)
    limit: np.ndarray  # (agents, rounds): largest whole number of steps within the plan's bound
    width: int  # bytes of a number on the wire

    @classmethod
    def of(cls, size: np.ndarray, bound: float) -> Steps:
        """Limits and width for messages within `bound`."""
        limit = np.floor(bound / size)
        if not np.all((limit >= 1) & (limit < 2.0**39)):
            # beyond 2^39 steps, float64 would not keep its error below half a step
            raise InputError(
                f"deploy.bound = {bound:g} is {limit.max():.3g} steps of the noise's grid, which must be "
                "between 1 and 5e11: choose a bound that fits the noise"
            )
        return cls(size, limit.astype(np.int64), 4 if limit.max() < 2**31 else 8)


def noise_scales(algorithm: Algorithm, cfg: Config, places: Place) -> np.ndarray:
    """The scale of the noise on every party's message of every round: (agents, rounds)."""
    noise_scale = algorithm.wire
    if noise_scale is None:
        raise InputError(f"{algorithm.slug} cannot be deployed: it states no scale of its message's noise")
    with jax.enable_x64(True):
        per_round = lambda p: jax.vmap(lambda t: jnp.broadcast_to(noise_scale(cfg, p, t), ()))(  # noqa: E731
            jnp.arange(places.rounds)
        )
        return np.asarray(jax.jit(jax.vmap(per_round, (axes(places),)))(places), float)


def grid_steps(algorithm: Algorithm, cfg: Config, places: Place, bound: float) -> Steps:
    """The grid of every party and round; a round without noise keeps the grid of the last one with noise."""
    laws = {type(law) for law in algorithm.draws(cfg, places).values() if type(law) in UNITS}
    if len(laws) != 1:
        raise InputError(f"{algorithm.slug} cannot be deployed: its messages carry noise of several laws")
    scale = noise_scales(algorithm, cfg, places)
    if not np.all(scale[:, 0] > 0):
        raise InputError(f"{algorithm.slug} puts no noise on its first message: an agent refuses to send it")
    last = np.maximum.accumulate(np.where(scale > 0, np.arange(places.rounds), 0), axis=1)
    return Steps.of(np.take_along_axis(scale, last, axis=1) / UNITS[laws.pop()], bound)
