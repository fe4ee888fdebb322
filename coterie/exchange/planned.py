"""From a plan's [exchange] table to an exchange, its noise, its claim and its statement."""

from __future__ import annotations

from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from coterie.algorithms.base import Algorithm, Config, Place
from coterie.algorithms.batches import rows
from coterie.exchange.central import central_claim, central_event, coarse_grid
from coterie.exchange.choice import Exchange, check_fits
from coterie.exchange.kinds import KINDS, secret_sum
from coterie.exchange.statement import Claim, Statement
from coterie.exchange.sums import SumTerms
from coterie.graphs import Graph, Mixing
from coterie.privacy.calibration import calibrate
from coterie.privacy.events import Event

if TYPE_CHECKING:  # experiment and plan build on this module
    from coterie.plan import Plan

__all__ = ["central_noise", "claim_of", "exchange_of", "grid_warnings", "statement_of", "sum_terms"]

PARTS = ("Settings", "make", "statement")


def exchange_of(plan: Plan, algorithm: Algorithm, graph: Graph, mixing: Mixing) -> Exchange:
    """How messages travel, checked against who sends them and along which edges."""
    asked = plan.exchange
    exchange: Exchange = KINDS.load(asked.kind, *PARTS).make(asked.chosen("kind"), graph.size)
    check_fits(exchange, algorithm, graph, mixing, plan.run.dtype)
    return exchange


def sum_terms(plan: Plan, parties: int) -> SumTerms | None:
    """What the parties of the plan's secret sums agree on; None if nothing is summed."""
    sums = plan.exchange.sums
    return None if sums is None else secret_sum.make(sums, parties).terms


def central_noise(plan: Plan, algorithm: Algorithm, cfg: Config, places: Place) -> np.ndarray:
    """Noise multipliers that put equal noise on all agents' messages, the least that keeps the sums within the budget.

    With several budgets the smallest counts: a sum is one release for everybody in it.
    """
    sums = plan.exchange.sums
    assert plan.privacy is not None
    assert sums is not None
    assert sums.honest is not None
    assert algorithm.sensitivity is not None
    honest, bits = sums.honest, sums.fraction_bits
    with jax.enable_x64(True):
        reach = np.array([float(algorithm.sensitivity(cfg, rows(places, i), 0)) for i in range(places.agents)])
    share = reach.max() / reach  # σ_i = multiplier_i × sensitivity_i

    def events(multiplier: float) -> list[Event]:
        with jax.enable_x64(True):
            noisy = eqx.tree_at(lambda p: p.noise, places, jnp.asarray(multiplier * share))
        return [central_event(algorithm, cfg, noisy, honest, bits)]

    return share * calibrate(events, float(np.min(plan.privacy.epsilon)), plan.privacy.delta)


def grid_warnings(plan: Plan, algorithm: Algorithm, cfg: Config, places: Place) -> list[str]:
    """What must be said of the grid on which noise for opened sums is drawn."""
    sums = plan.exchange.sums
    if not plan.exchange.central or sums is None or sums.honest is None:
        return []
    said = coarse_grid(algorithm, cfg, places, sums.honest, secret_sum.make(sums, places.agents))
    return [] if said is None else [said]


def claim_of(plan: Plan, algorithm: Algorithm, cfg: Config, places: Place, graph: Graph) -> Claim | None:
    """What the opened sums of a priced run cost, if the plan says how many agents are honest."""
    sums = plan.exchange.sums
    if sums is None or sums.honest is None or plan.privacy is None:
        return None
    return central_claim(
        algorithm, cfg, places, sums.honest, secret_sum.make(sums, graph.size), plan.privacy.delta
    )  # fmt: skip


def statement_of(plan: Plan, graph: Graph, epsilon: float | None, claim: Claim | None = None) -> Statement:
    """What the plan's exchange promises; `epsilon` is what the messages themselves cost, if they are private."""
    paid = None
    if epsilon is not None and plan.privacy is not None:
        paid = f"the noise of the messages in them: ({epsilon:.4g}, {plan.privacy.delta:g}) per record at least"
    asked = plan.exchange
    said: Statement = KINDS.load(asked.kind, *PARTS).statement(asked.chosen("kind"), graph.size, claim, paid)
    return said
