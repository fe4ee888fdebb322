"""From a plan's [exchange] table to an exchange, its noise, its claim and its statement."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from coterie.algorithms.base import Algorithm, Config, Place
from coterie.algorithms.batches import rows
from coterie.exchange.central import LARGEST, central_claim, coarse_grid, finest_grid, released, shared_events
from coterie.exchange.choice import Exchange, SecretSum, check_fits
from coterie.exchange.kinds import KINDS, secret_sum
from coterie.exchange.statement import Claim, Statement
from coterie.exchange.sums import SumTerms
from coterie.graphs import Graph, Mixing
from coterie.privacy.calibration import calibrate
from coterie.privacy.events import Event, Gaussian

if TYPE_CHECKING:  # experiment and plan build on this module
    from coterie.plan import Plan

__all__ = ["central_noise", "claim_of", "exchange_of", "fitted", "grid_warnings", "statement_of", "sum_terms"]

PARTS = ("Settings", "make", "statement")


def exchange_of(
    plan: Plan, algorithm: Algorithm, graph: Graph, mixing: Mixing, terms: SumTerms | None = None
) -> Exchange:
    """How messages travel, checked against who sends them and whose they read; `terms` of its sums, if they are set."""
    asked = plan.exchange
    exchange: Exchange
    if terms is None or asked.sums is None:
        exchange = KINDS.load(asked.kind, *PARTS).make(asked.chosen("kind"), graph.size)
    else:
        exchange = SecretSum.of(terms, asked.sums.away)
    check_fits(exchange, algorithm, graph, mixing, plan.run.dtype)
    return exchange


def sum_terms(plan: Plan, parties: int, rounds: int = 0) -> SumTerms | None:
    """What the parties of the plan's secret sums agree on; None if nothing is summed.

    Where the plan leaves the grid open and sums are priced, it follows from their noise: `Priced.terms` has it.
    """
    sums = plan.exchange.sums
    return None if sums is None else secret_sum.terms(sums, parties, rounds)


def fitted(plan: Plan, algorithm: Algorithm, cfg: Config, places: Place) -> SumTerms | None:
    """The terms of the plan's sums for places whose noise is set: on the finest grid, where the plan leaves it open."""
    terms, sums = sum_terms(plan, places.agents, places.rounds), plan.exchange.sums
    if terms is None or sums is None or sums.honest is None or sums.fraction_bits is not None:
        return terms
    _, sigma, times = released(algorithm, cfg, places)
    return _on(terms, finest_grid(terms, sigma, times))


def central_noise(plan: Plan, algorithm: Algorithm, cfg: Config, places: Place) -> tuple[np.ndarray, SumTerms]:
    """Noise multipliers that put equal noise on all agents' messages, the least that keeps the sums within the budget.

    With several budgets the smallest counts: a sum is one release for everybody in it. The grid of the sums, if the
    plan leaves it open, is the finest on which that noise can be drawn; both follow from public numbers.
    """
    sums = plan.exchange.sums
    assert plan.privacy is not None
    assert sums is not None
    assert algorithm.sensitivity is not None
    epsilon, delta = float(np.min(plan.privacy.epsilon)), plan.privacy.delta
    with jax.enable_x64(True):
        reach = np.array([float(algorithm.sensitivity(cfg, rows(places, i), 0)) for i in range(places.agents)])
    share = reach.max() / reach  # σ_i = multiplier_i × sensitivity_i

    def noisy(multiplier: float) -> Place:
        with jax.enable_x64(True):
            return eqx.tree_at(lambda p: p.noise, places, jnp.asarray(multiplier * share))

    def needed(terms: SumTerms) -> float:
        def events(multiplier: float) -> list[Event]:
            return [shared_events(algorithm, cfg, noisy(multiplier), terms)[0]]

        return calibrate(events, epsilon, delta)

    terms = secret_sum.terms(sums, places.agents, places.rounds)
    open_grid, honest = sums.fraction_bits is None, terms.heard

    def without_grid(multiplier: float) -> list[Event]:
        shift, sigma, times = released(algorithm, cfg, noisy(multiplier))
        return [Gaussian(shift.max(0), sigma.max(0) * honest**0.5, times=times[0])]

    if open_grid:
        _, sigma, times = released(algorithm, cfg, noisy(calibrate(without_grid, epsilon, delta)))
        terms = _on(terms, finest_grid(terms, sigma, times))
    multiplier = needed(terms)
    while open_grid and terms.code.fraction_bits and _too_fine(terms, algorithm, cfg, noisy(multiplier)):
        terms = _on(terms, terms.code.fraction_bits - 1)
        multiplier = needed(terms)
    return share * multiplier, terms


def _on(terms: SumTerms, fraction_bits: int) -> SumTerms:
    return replace(terms, code=replace(terms.code, fraction_bits=fraction_bits))


def _too_fine(terms: SumTerms, algorithm: Algorithm, cfg: Config, places: Place) -> bool:
    """Whether what rounding adds to the noise has carried it beyond what can be drawn."""
    _, sigma, _ = released(algorithm, cfg, places)
    return float(np.max(sigma)) * 2.0**terms.code.fraction_bits > LARGEST


def grid_warnings(algorithm: Algorithm, cfg: Config, places: Place, terms: SumTerms | None) -> list[str]:
    """What must be said of the grid on which noise for opened sums is drawn."""
    said = coarse_grid(algorithm, cfg, places, terms) if terms is not None and terms.shared else None
    return [] if said is None else [said]


def claim_of(plan: Plan, algorithm: Algorithm, cfg: Config, places: Place, terms: SumTerms | None) -> Claim | None:
    """What the opened sums of a priced run cost, if the plan says how many agents are honest."""
    if terms is None or terms.honest is None or plan.privacy is None:
        return None
    return central_claim(algorithm, cfg, places, terms, plan.privacy.delta)


def statement_of(plan: Plan, graph: Graph, epsilon: float | None, claim: Claim | None = None) -> Statement:
    """What the plan's exchange promises; `epsilon` is what the messages themselves cost, if they are private."""
    paid = None
    if epsilon is not None and plan.privacy is not None:
        total, unit = f"({epsilon:.4g}, {plan.privacy.delta:g})", plan.data.unit or "record"
        paid = f"the noise of the messages in them: {total} per {unit} at least"
    asked = plan.exchange
    said: Statement = KINDS.load(asked.kind, *PARTS).statement(asked.chosen("kind"), graph.size, claim, paid)
    return said
