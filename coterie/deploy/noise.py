r"""Noise of a deployed agent: whole numbers on a public grid, from the operating system, and what they cost.

A message x with noise of scale s becomes g·(round(x/g) + Z) with g = s/65,544 (Laplace: s/65,536) and Z from
`coterie.privacy.secure`; the integer travels, g is public. What differs from the simulated float is charged (`on_grid`
replaces an algorithm's `cost`, so that calibration, ledger and certificate all see the true price):

- **Rounding.** ‖round(a) − round(b)‖ ≤ ‖a − b‖ + √d in grid steps. Float64 arithmetic may add its own error, which the
  bound on a message keeps below half a step. Charged: Δ + 2g√d (L1: Δ + 2gd).
- **The discrete law.** The discrete Gaussian of parameter σ is a post-processing of a *continuous* one with variance
  σ² − 16 in grid steps, up to a factor 1 ± 1e−136, so every Gaussian accountant applies to it. The table's own error of
  1e−32 a coordinate is charged as total variation.
- **Noise that neighbours share** (`Shared`) lies on the grid of own noise, which is finer than that of noise which
  hides as much alone. The sum of all is a discrete Gaussian vector, a processed continuous one likewise; the tables of
  everybody's own noise and of all secrets are charged.
- **Laplace.** The discrete Laplace law is exactly pure with ε = shift/scale; it is charged as such (`Pure`).
- **Noise inside a solve** (`Inside`) lies on a grid that is 3·10⁸ times as fine. An answer that was computed with it is
  one that the continuous noise would have given, computed a little less well: what is left counts as the solver's
  error, which noise on the answer hides and pays for (`ObjectivePerturbation.output`).
- **Tests** against a noisy threshold shift by whole steps too (`SparseVector`).

Proofs: docs/theory/wire.md. What is made of noised numbers (rounding to few bits, masks, averages) costs nothing.
Noise of density exp(−‖x‖₂) has no such form: it is refused, and Gaussian noise named instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Protocol, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from coterie.algorithms._sampling import DeadlineGaussian, Pace
from coterie.algorithms.base import PRINTED, Algorithm, Config, Place, Round, find
from coterie.algorithms.batches import axes
from coterie.algorithms.laws import Grid, Inside, L2LaplaceLaw, LaplaceLaw, Law, Normal, Shared, Uniform
from coterie.compiler import brief
from coterie.errors import InputError
from coterie.exchange.choice import Exchange, Quantized
from coterie.exchange.kinds import broadcast, quantized, secret_sum
from coterie.graphs import Graph
from coterie.plan import Plan, refuse_ignored
from coterie.privacy import events, secure
from coterie.privacy.observers import STEEPEST
from coterie.problems import Problem
from coterie.solvable import Charged
from coterie.sums.words import keyed
from coterie.tables.algorithm import REFERENCES

__all__ = ["GAUSSIAN_UNIT", "INSIDE_UNIT", "LAPLACE_UNIT", "UNITS", "Source", "Steps", "SystemSource",
           "check_deployable", "grid_steps", "noise_scales", "on_grid", "refusal"]  # fmt: skip

GAUSSIAN_UNIT = float(np.sqrt(secure.GRID_VARIANCE))
LAPLACE_UNIT = float(secure.GRID_LAPLACE_SCALE)
SMOOTHING = 16.0  # s² in grid steps²
TABLE_ERROR = 1e-32  # total variation of one drawn coordinate
UNIFORM_ERROR = 2.0**-53  # of one drawn uniform, as a float64
FINER = int(secure.GRID_VARIANCE**0.5 / SMOOTHING**0.5)  # by which each of the three parts of `Inside` is finer
INSIDE_UNIT = GAUSSIAN_UNIT * (FINER**4 + FINER**2 + 1) ** 0.5
UNITS: dict[type[Law], float] = {
    Normal: GAUSSIAN_UNIT, Shared: GAUSSIAN_UNIT, Inside: INSIDE_UNIT, LaplaceLaw: LAPLACE_UNIT,
}  # fmt: skip
KEPT = 3 / 16  # of a solver's error: what arithmetic on a solution of any length adds to it
REACH, BEYOND = 12 * SMOOTHING**0.5, 2e-31  # how far, in steps, `Inside` lies from continuous noise; but with chance …
MOST_STEPS = 2.0**39  # in a message: beyond, the error of float64 arithmetic might exceed half a step …
MOST_SOLVED = 2.0**50  # … as that of a solution does, whose own error is charged apart


T = TypeVar("T")
Drawn = dict[str, Grid | np.ndarray]  # noise on a grid, and uniform numbers


class Source(Protocol):
    """Where a deployed agent's randomness comes from. There is one in the product; tests may replay recorded draws."""

    def draw(self, round: int, laws: Mapping[str, Law]) -> Drawn:
        """One round's draws."""


class SystemSource:
    """Fresh draws, never kept: a fork, clone or restored snapshot draws anew.

    From the operating system, or from a stream whose key comes from there: one for each table of each draw of a round.
    """

    def draw(self, round: int, laws: Mapping[str, Law]) -> Drawn:
        """One round's draws, on the grid where they are noise."""
        return {name: _draw(law) for name, law in laws.items()}


@cache
def _gaussian() -> secure.DiscreteGaussianTable:
    return secure.DiscreteGaussianTable.from_variance(secure.GRID_VARIANCE)


def _draw(law: Law) -> Grid | np.ndarray:
    match law:
        case Inside():
            coarse, middle, fine = (_gaussian().sample(law.shape, keyed) for _ in range(3))
            return Grid(FINER**2 * coarse + FINER * middle + fine, INSIDE_UNIT)
        case Shared():  # own noise alone would hide less than is charged
            raise InputError("noise that neighbours share needs their secrets (coterie.deploy.pairs)")
        case Normal():
            return Grid(_gaussian().sample(law.shape, keyed), GAUSSIAN_UNIT)
        case LaplaceLaw():
            return Grid(secure.DiscreteLaplaceTable(secure.GRID_LAPLACE_SCALE).sample(law.shape, keyed), LAPLACE_UNIT)
        case Uniform():
            return secure.uniform(law.shape, keyed)
        case Pace():  # all of the work; of a machine with a deadline its clock says how much (`Party.speak`)
            return np.ones(law.shape)
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
    if reason := refusal(algorithm, cfg):
        raise InputError(f"{slug} cannot be deployed: {reason}")
    if cfg.printed:
        raise InputError(f"{slug} {PRINTED} is not private as claimed: an agent refuses it")
    if plan.privacy is not None and plan.privacy.delta == 0:
        raise InputError(
            f"{slug} cannot be deployed with privacy.delta = 0: its noise comes from tables on a grid, whose error is "
            "charged to delta (and gamma noise has no form on a grid at all); give delta > 0, or simulate it"
        )
    refuse_ignored(
        plan, "an agent: whoever is away is missed after deploy.deadline, and no list says so beforehand", "run.away"
    )
    refuse_ignored(
        plan,
        "an agent, which sees its neighbours' messages only: a rule looks at all",
        "privacy.adaptive",
    )
    refuse_ignored(plan, "an agent, which measures nothing and computes in float64", "run.every", "run.dtype")
    refuse_ignored(
        plan, "an agent, whose covered scores are an agreement of their own (problem.loss = 'scores')", "run.covered"
    )
    if not rehearsed:
        whole = "an agent, which reads all of its own file"
        refuse_ignored(plan, whole, "data.path", "data.site", "data.test_fraction")
    sums = plan.exchange.sums
    if type(plan.exchange.chosen("kind")) not in (broadcast.Settings, quantized.Settings, secret_sum.Settings):
        raise InputError(
            f"exchange.kind = {plan.exchange.kind!r} is for simulation: deployed it must be broadcast, quantized or "
            "secret-sum"
        )
    if sums is not None and sums.noise == "local" and plan.deploy is not None and plan.deploy.bound > sums.bound:
        raise InputError(  # a number between the two would stop a party in the middle of a run
            f"deploy.bound = {plan.deploy.bound:g} exceeds what a secret sum can hold, exchange.bound = {sums.bound:g}"
        )
    if algorithm.named and plan.deploy is not None and plan.deploy.bound < 1:
        raise InputError(
            f"deploy.bound = {plan.deploy.bound:g} would cut messages of {slug}, which are in units of the largest "
            "number that there is: it must be at least 1"
        )
    if plan.deploy is not None and plan.deploy.work is not None and not _paced(algorithm, cfg):
        raise InputError(
            f"deploy.work = {plan.deploy.work:g} is for batches that go by the clock (algorithm.scheme = 'clock', as "
            f"qdpsgd1 has), which {slug} does not draw here: leave it out"
        )


GAMMA = "noise of density exp(-|x|) has no exact form on a grid: use noise = 'gaussian', with privacy.delta > 0"


def refusal(algorithm: Algorithm, cfg: Config) -> str | None:
    """Why an algorithm cannot be deployed with these settings, and what to use instead; None if it can."""
    if not algorithm.private:
        return "it sends private data without noise, and an agent runs private algorithms only: use dp-dsgd or pr-admm"
    if algorithm.wire is None:
        other = "pr-admm" if algorithm.needs(cfg).solver else "dp-dsgd"
        return f"it states no scale of its message's noise (`wire`); the nearest that can is {other}"
    laws = algorithm.draws(cfg, _somewhere()).values()
    if any(isinstance(law, L2LaplaceLaw) for law in laws):
        return GAMMA
    if steep := [float(law.ratio) for law in laws if isinstance(law, Shared) and law.ratio > STEEPEST]:
        return f"a ratio of {steep[0]:g} hides no more than {STEEPEST:g} and has no place on a grid: use less"
    return None


def _paced(algorithm: Algorithm, cfg: Config) -> bool:
    """Whether a party's clock decides how much of a batch it works off."""
    return any(isinstance(law, Pace) for law in algorithm.draws(cfg, _somewhere()).values())


def _somewhere() -> Place:
    """A place with no meaning but its shapes."""
    one, empty = jnp.ones(()), jnp.ones(1)
    return Place(one, one, one, one, one, empty, empty, one, one, one, dim=1, rounds=1, agents=2, rows=1)


# ---- what it costs ---------------------------------------------------------------------------------------------------


Observed = Callable[[Config, Place, Problem, Graph, np.ndarray, tuple[int, ...]], tuple[str, np.ndarray]]
Cost = Callable[[Config, Place, Round, PyTree], events.Event | tuple[events.Event, ...]]


@cache
def on_grid(algorithm: Algorithm) -> Algorithm:
    """The algorithm with the price of its deployed form: the same functions, but `cost` charges grid and tables."""

    def priced(declare: Cost, known: bool) -> Cost:
        def cost(cfg: Config, place: Place, t: Round, message: PyTree = None) -> tuple[events.Event, ...]:
            declared, laws = declare(cfg, place, t, message), algorithm.draws(cfg, place).values()
            coins = sum(_uneven(law, place) for law in laws if isinstance(law, Uniform))
            parts = declared if isinstance(declared, tuple) else (declared,)
            dim, shared = _noised(algorithm, cfg, place), [law for law in laws if isinstance(law, Shared) and not known]
            finer, drawn = (shared[0].own, place.agents**2) if shared else (1.0, 1)
            return tuple(_charged(e, algorithm.slug, cfg, place, coins, dim, finer, drawn) for e in parts)

        return cost

    alone = None if algorithm.own_cost is None else priced(algorithm.own_cost, known=True)
    return replace(
        algorithm, cost=priced(algorithm.cost, known=False), own_cost=alone, observed=_observed(algorithm)
    )  # fmt: skip


def _observed(algorithm: Algorithm) -> Observed | None:
    """What observers learn of the integers, where that is proved: of noise that neighbours share, whose every reader
    sees all messages. A round costs as much more as it does against the adversary of `cost`."""
    real = algorithm.observed
    if real is None or algorithm.against is None:
        return real

    def observed(
        cfg: Config, places: Place, problem: Problem, graph: Graph, weights: np.ndarray, own: tuple[int, ...]
    ) -> tuple[str, np.ndarray]:
        words, mu = real(cfg, places, problem, graph, weights, own)
        (law,) = (law for law in algorithm.draws(cfg, places).values() if isinstance(law, Shared))
        most = float(np.max(places.noise)) * float(np.max(places.shape))
        rounding = 2 * np.sqrt(places.dim) * float(law.own) * most / GAUSSIAN_UNIT
        return words, mu * (1 + rounding) / np.sqrt(1 - SMOOTHING / secure.GRID_VARIANCE)

    return observed


def _uneven(law: Uniform, place: Place) -> float:
    """What float64 makes of uniform numbers, as total variation: each may fall on the wrong side of a rate, a speed or
    a rounding; of those that put an agent's records in an order, two may be equal."""
    count = int(np.prod(law.shape))
    return (max(count, count**2 / 2) if law.shape == (place.rows,) else count) * UNIFORM_ERROR


def _noised(algorithm: Algorithm, cfg: Config, place: Place) -> int:
    """How many numbers are rounded to the grid: those of a point, or where it has everybody's, those of one party."""
    laws = [law for law in algorithm.draws(cfg, place).values() if isinstance(law, Normal | LaplaceLaw)]
    return max(int(np.prod(law.shape)) for law in laws) if algorithm.named else place.dim


def _charged(
    event: events.Event, slug: str, cfg: Config, place: Place, coins: float, dim: int, finer: float | Array, drawn: int
) -> events.Event:  # fmt: skip
    """`finer`: the grid's step over that of noise which hides as much alone; `drawn`: tables for one number."""
    thin, root = float(np.sqrt(1 - SMOOTHING / secure.GRID_VARIANCE)), float(np.sqrt(dim))
    tv = event.tv + drawn * dim * TABLE_ERROR
    match event:
        case events.Gaussian() | events.MaskedGaussian():
            moved = event.sensitivity + 2 * root * finer * event.sigma / GAUSSIAN_UNIT
            tv = tv + coins if isinstance(event, events.MaskedGaussian) else tv
            return replace(event, sensitivity=moved, sigma=thin * event.sigma, tv=tv)
        case events.SampledGaussian() | DeadlineGaussian():
            nu = event.noise_multiplier
            return replace(event, noise_multiplier=thin * nu / (1 + 2 * root * nu / GAUSSIAN_UNIT), tv=tv + coins)
        case events.ObjectivePerturbation():
            assert isinstance(cfg, Charged)
            solved = event.output / cfg.tolerance  # 2/Λ: what an error of 1 in the gradient moves, in both worlds
            moved = (1 + KEPT) * event.output + root * (
                solved * REACH * event.sigma / INSIDE_UNIT + 2 * event.output_sigma / GAUSSIAN_UNIT
            )
            return replace(
                event, sigma=float(np.sqrt(1 - SMOOTHING / INSIDE_UNIT**2)) * event.sigma, output=moved,
                output_sigma=thin * event.output_sigma, tv=tv + dim * (3 * TABLE_ERROR + BEYOND),
            )  # fmt: skip
        case events.SparseVector():
            low, high = event.threshold, event.query
            rounding = 2 + high / low + event.positives * (4 + 2 * low / high)  # whole steps, in units of 1/65,536
            pure = event.sensitivity / low + 2 * event.positives * event.sensitivity / high
            raised = event.sensitivity * (1 + rounding / (LAPLACE_UNIT * pure))
            return replace(event, sensitivity=raised, tv=event.tv + (place.rounds + 1) * TABLE_ERROR)
        case events.Laplace():
            pure = event.rate * event.l1 + 2 * dim / LAPLACE_UNIT
            return events.Pure(pure, times=event.times, slack=event.slack, tv=tv, adjacency=event.adjacency)
        case events.Free():
            return event
        case events.Pure() | events.L2Laplace():
            raise InputError(f"{slug} cannot be deployed: {GAMMA}")
        case _:
            raise InputError(f"{slug} cannot be deployed: {type(event).__name__} has no price on a grid")


# ---- the public grid -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Steps:
    """Grid step of every party (by node) and round: public, the same numbers at every party."""

    size: np.ndarray  # (agents, rounds)
    limit: np.ndarray  # (agents, rounds): largest whole number of steps within the plan's bound
    width: int  # bytes of a number in memory
    bits: int  # of a number on the wire
    rounded: bool = False  # whether it is coarser than that of the noise, to which messages are rounded last

    @classmethod
    def of(cls, size: np.ndarray, bound: float, most: float = MOST_STEPS) -> Steps:
        """Limits and width for messages within `bound`, which may be at most `most` steps."""
        limit = np.floor(bound / size)
        if not np.all((limit >= 1) & (limit < most)):
            raise InputError(
                f"deploy.bound = {bound:g} is {limit.max():.3g} steps of the noise's grid, which must be "
                f"between 1 and {most:.1g}: choose a bound that fits the noise"
            )
        width = 4 if limit.max() < 2**31 else 8
        return cls(size, limit.astype(np.int64), width, 8 * width)

    @classmethod
    def few(cls, size: np.ndarray, limit: np.ndarray) -> Steps:
        """Numbers of as many bits as the limits need: from −most to most − 1, with most a power of two."""
        bits = 1 + int(np.ceil(np.log2(limit.max())))
        return cls(size, limit.astype(np.int64), 4 if bits <= 32 else 8, bits, rounded=True)


def noise_scales(algorithm: Algorithm, cfg: Config, places: Place) -> np.ndarray:
    """The scale of the noise on every party's message of every round: (agents, rounds)."""
    if algorithm.wire is None:
        raise InputError(f"{algorithm.slug} cannot be deployed: it states no scale of its message's noise")
    return np.asarray(_everywhere(algorithm.wire, cfg, places))


def _everywhere(f: Callable[[Config, Place, Round], T], cfg: Config, places: Place) -> T:
    """f(cfg, place, t) of every party and round."""
    with jax.enable_x64(True):
        places = jax.tree.map(np.asarray, places)
        try:
            found = _of_all(f, jax.tree.map(np.float64, cfg), places)
        except TypeError:  # JAX's, of every kind: an algorithm of a user's own asks how large one is, or calls NumPy
            found = _of_all(f, cfg, places)
        return jax.tree.map(lambda x: np.asarray(x, float), found)


@brief
def _of_all(f: Callable[[Config, Place, Round], T], cfg: Config, places: Place) -> T:
    one = lambda p, t: jax.tree.map(lambda x: jnp.broadcast_to(x, ()), f(cfg, p, t))  # noqa: E731
    return jax.vmap(lambda p: jax.vmap(partial(one, p))(jnp.arange(places.rounds)), (axes(places),))(places)


def _need_reach(algorithm: Algorithm, cfg: Config, places: Place, scale: np.ndarray, bound: float) -> None:
    """Refuse a bound that would cut noise which neighbours share: what is cut off at one end is left in the average."""
    for law in algorithm.draws(cfg, places).values():
        if isinstance(law, Shared):
            whole = np.sqrt(1 + float(law.ratio) ** 2 * np.asarray(places.degree, float))
            if (widest := 8 * float(np.max(scale * whole[:, None]))) > bound:
                raise InputError(
                    f"deploy.bound = {bound:g} would cut noise that neighbours share, up to {widest:.3g}: raise it, or "
                    "lower algorithm.ratio"
                )


def grid_steps(
    algorithm: Algorithm, cfg: Config, places: Place, bound: float, exchange: Exchange | None = None
) -> Steps:
    """The grid of every party and round; a round without noise keeps the grid of the last one with noise.

    That of the noise, or the coarser one to which an algorithm or the exchange rounds what was noised.
    """
    laws = {type(law) for law in algorithm.draws(cfg, places).values()}
    scale = noise_scales(algorithm, cfg, places)
    if not np.all(scale[:, 0] > 0):
        raise InputError(f"{algorithm.slug} puts no noise on its first message: an agent refuses to send it")
    last = np.maximum.accumulate(np.where(scale > 0, np.arange(places.rounds), 0), axis=1)
    size = np.take_along_axis(scale, last, axis=1) / UNITS[Normal if laws & {Normal, Shared} else LaplaceLaw]
    _need_reach(algorithm, cfg, places, scale, bound)
    noised = Steps.of(size, bound, MOST_SOLVED if Inside in laws else MOST_STEPS)
    if isinstance(exchange, Quantized):
        few = Steps.few(np.full_like(size, exchange.step), np.full_like(size, exchange.most))
    elif algorithm.lattice is not None:
        few = Steps.few(*map(np.asarray, _everywhere(algorithm.lattice, cfg, places)))
        dithered = getattr(cfg, "grid", None)  # the grid that a sensitivity with rounding was worked out for
        if dithered is not None and np.any(size > dithered):
            raise InputError(
                f"{algorithm.slug}: its grid has steps of {dithered:.3g}, and that of its noise is coarser, "
                f"{size.max():.3g}: choose a larger grid, or less noise"
            )
    else:
        return noised
    largest = float((few.size * few.limit).max())
    if largest > bound:
        raise InputError(f"deploy.bound = {bound:g} is less than the largest number in a message, {largest:g}")
    return few
