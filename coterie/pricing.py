"""What a plan costs: an algorithm's settings filled in by public rules, and noise fixed for the budget."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from functools import partial

import equinox as eqx
import jax
import numpy as np

from coterie.algorithms.base import Algorithm, Config, Place, Public, find
from coterie.algorithms.batches import rows
from coterie.contracts import hollow, need_fit
from coterie.data import find_source
from coterie.drivers.budget import Spending, calibrate_agents, spending
from coterie.drivers.dry_run import need_sums
from coterie.drivers.layout import make_places
from coterie.errors import InputError
from coterie.exchange.central import cap_of, local_words, own_events
from coterie.exchange.planned import central_noise, claim_of, exchange_of, fitted, grid_warnings
from coterie.exchange.statement import Claim
from coterie.exchange.sums import SumTerms
from coterie.losses import by_labels
from coterie.losses.base import problem_of
from coterie.network import Network, ObserverAccount, present_of, public_facts, seats_of, shape_of
from coterie.plan import Plan
from coterie.solvable import need_room, need_short, need_solvable

__all__ = ["Priced", "needs_dimension", "noise_of", "price", "settle"]

DEFAULT_ROUNDS = 50


@dataclass(frozen=True)
class Priced:
    """An algorithm with its settings filled in and its noise fixed for a budget."""

    algorithm: Algorithm
    cfg: Config
    rounds: int
    public: Public
    places: Place
    noise: np.ndarray
    shape: np.ndarray
    spending: Spending | None  # None for an algorithm without privacy
    claim: float | None  # what the paper would print, if the module says
    central: Claim | None = field(default=None, kw_only=True)  # what opened sums cost, if the plan asks
    cap: Claim | None = field(default=None, kw_only=True)  # and a party's vectors, if it sends every allowed repetition
    terms: SumTerms | None = field(default=None, kw_only=True)  # of the sums that are opened, if only those are
    alone: Claim | None = field(default=None, kw_only=True)  # against everybody else, where they share secrets
    seats: tuple[ObserverAccount, ...] = field(default=(), kw_only=True)  # single observers that the plan names
    leaks: tuple[str, ...] = field(kw_only=True)  # of the network: what was read from the records, unpaid
    warnings: list[str] = field(default_factory=list)

    @property
    def claims(self) -> tuple[Claim, ...]:
        """Every guarantee, each against its own adversary: the one that the plan's budget is for comes first."""
        if self.spending is None:
            return ()
        if self.algorithm.against is not None and self.alone is not None:
            return Claim(*self.algorithm.against(self.cfg), self.spending.worst), self.alone
        local = Claim(*local_words(shared=self.for_sums), self.spending.worst)
        if self.central is None:
            return (local,)
        if not self.for_sums:
            return local, self.central
        return (self.central, local) if self.cap is None else (self.central, local, self.cap)

    @property
    def for_sums(self) -> bool:
        """Whether the budget is for opened sums, not for messages."""
        return self.terms is not None and self.terms.shared

    @property
    def private(self) -> bool:
        """Whether what the budget is for is a guarantee: finite, proved, and nothing else was read from the records."""
        finite = bool(self.claims) and bool(np.isfinite(self.claims[0].account.epsilon))
        return finite and not self.cfg.printed and not self.leaks


def needs_dimension(plan: Plan, network: Network) -> bool:
    """Whether the price depends on the number of parameters, which a plan without data need not state."""
    source = find_source(plan.data.source)
    if plan.problem.dim is not None or source.made or source.stream is not None:
        return False
    other = dataclasses.replace(network, problem=problem_of(plan, plan.problem.loss or by_labels(2), 7))
    return not np.allclose(price(plan, network).noise, price(plan, other).noise, rtol=1e-6)


def settle(plan: Plan, network: Network, algorithm: Algorithm | None = None, cfg: Config | None = None) -> Priced:
    """Fill in the algorithm's settings by its public rules; noise is still 0 and nothing is spent."""
    algorithm = algorithm or find(plan.algorithm.name)
    need_fit(algorithm, plan)
    exchange_of(plan, algorithm, network.graph, network.mixing)
    cfg = cfg or plan.algorithm.config()
    algorithm.check(cfg, network.problem)
    rounds = plan.run.rounds or 0
    public = public_facts(plan, network, rounds)
    if not rounds:
        rounds = algorithm.suggest_rounds(public) if algorithm.suggest_rounds is not None else DEFAULT_ROUNDS
        public = public_facts(plan, network, rounds)
    if algorithm.tune is not None:
        cfg = algorithm.tune(cfg, public)
    warnings = []
    if cfg.printed:
        warnings.append(f"{algorithm.slug} runs as its paper printed it: it is not private as claimed")
    if algorithm.private:
        warnings += [f"no privacy can be claimed: {leak}" for leak in network.leaks]
        if network.problem.before:
            warnings.append(f"{network.problem.before} were released before: what that cost adds to this price")
    warnings += hollow(plan, int(network.sizes.sum()))
    if algorithm.convergent is not None and (complaint := algorithm.convergent(cfg, public)):
        warnings.append(complaint)
    shape = shape_of(plan, rounds, len(network.sizes))
    with jax.enable_x64(True):
        places = make_places(
            network.problem, network.sizes, network.graph, network.mixing,
            rounds=rounds, ridge=plan.ridge, weighting=plan.weighting, shape=shape,
            present=present_of(plan, rounds, network),
        )  # fmt: skip
    if network.store is not None:
        need_sums(algorithm, cfg, rows(places, 0), network.problem, network.store)
    need_solvable(plan, algorithm, cfg, places, network.problem)
    return Priced(
        algorithm, cfg, rounds, public, places, np.zeros(len(network.sizes)), shape, None, None, warnings,
        leaks=network.leaks,
    )  # fmt: skip


def price(
    plan: Plan, network: Network, algorithm: Algorithm | None = None, cfg: Config | None = None, *, fast: bool = False
) -> Priced:
    """Fill in the algorithm's settings by its public rules and fix the noise for the plan's budget.

    `fast`: work out what is spent by closed forms where they exist, as for the noise.
    """
    settled = settle(plan, network, algorithm, cfg)
    algorithm, cfg, places = settled.algorithm, settled.cfg, settled.places
    if plan.privacy is None:
        return settled
    (noise, terms), delta = noise_of(plan, settled), plan.privacy.delta
    with jax.enable_x64(True):
        places = eqx.tree_at(lambda p: p.noise, places, jax.device_put(np.asarray(noise)))
    need_room(algorithm, cfg, places)
    need_short(plan, places)
    spent = spending(algorithm, cfg, places, delta, fast, events=partial(own_events, terms=terms))
    central = claim_of(plan, algorithm, cfg, places, terms)
    claim = None
    if algorithm.claim is not None:
        with jax.enable_x64(True):
            public = jax.tree.map(np.asarray, places)  # NumPy cuts it out: JAX would compile that for every shape
            own = jax.device_put(rows(public, int(np.argmax(spent.per_agent))))
            claim = float(algorithm.claim(cfg, own, delta))
    alone = None
    if algorithm.own_cost is not None:
        other = dataclasses.replace(algorithm, cost=algorithm.own_cost)
        alone = Claim(*local_words(shared=True), spending(other, cfg, places, delta, fast).worst)
    return dataclasses.replace(
        settled, places=places, noise=noise, spending=spent, claim=claim, central=central,
        cap=cap_of(algorithm, cfg, places, terms, delta), terms=terms, alone=alone,
        seats=seats_of(plan, network, algorithm, cfg, places),
        warnings=[*settled.warnings, *grid_warnings(algorithm, cfg, places, terms)],
    )  # fmt: skip


def noise_of(plan: Plan, settled: Priced) -> tuple[np.ndarray, SumTerms | None]:
    """The noise multiplier of every agent that the plan's budget gives, from public numbers only; and the terms of the
    plan's sums, whose grid may follow from it.
    """
    assert plan.privacy is not None
    algorithm, places, epsilon = settled.algorithm, settled.places, plan.privacy.epsilon
    if isinstance(epsilon, list) and len(epsilon) != places.agents:
        raise InputError(f"privacy.epsilon lists {len(epsilon)} budgets for {places.agents} parties")
    fixed = settled.cfg.corrected()
    if plan.exchange.central:
        return central_noise(plan, algorithm, fixed, places)
    noise = calibrate_agents(algorithm, fixed, places, np.asarray(epsilon, float), plan.privacy.delta)
    with jax.enable_x64(True):
        noisy = eqx.tree_at(lambda p: p.noise, places, jax.device_put(noise))
    return noise, fitted(plan, algorithm, fixed, noisy)
