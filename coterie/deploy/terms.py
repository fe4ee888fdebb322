"""What the plan fixes for every party: settings, noise, grid, sizes. Public, and the same at all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

import jax
import numpy as np

from coterie.algorithms.base import Law, Place, find
from coterie.algorithms.batches import rows
from coterie.data.planned import leaks_of
from coterie.deploy.data import Outline
from coterie.deploy.noise import Steps, check_deployable, grid_steps, noise_scales, on_grid
from coterie.deploy.sharing import ATTEMPTS, Sharing, steady
from coterie.drivers.budget import run_events
from coterie.errors import InputError
from coterie.exchange.central import shared_events
from coterie.exchange.choice import Exchange
from coterie.exchange.planned import exchange_of
from coterie.exchange.sums import SumTerms
from coterie.experiment import public_network
from coterie.network import Network
from coterie.plan import Plan
from coterie.pricing import Priced, price
from coterie.privacy.events import Event, Free, Gaussian
from coterie.privacy.ledger import Entry

__all__ = ["Terms"]


@dataclass(frozen=True)
class Terms:
    """What the plan fixes for every party: settings, noise, grid, sizes. Public, and the same at all of them."""

    plan: Plan
    network: Network
    priced: Priced
    steps: Steps
    exchange: Exchange

    @classmethod
    def of(cls, plan: Plan) -> Terms:
        """Work the terms out from a plan; refuse one that cannot be deployed."""
        network = cls.check(plan)
        found = find(plan.algorithm.name)
        priced = price(plan, network, algorithm=found if plan.exchange.central else on_grid(found), fast=True)
        assert plan.deploy is not None
        exchange = exchange_of(plan, found, network.graph, network.mixing, priced.terms)
        if priced.terms is None or not priced.terms.shared:
            steps = grid_steps(priced.algorithm, priced.cfg, _bare(priced), plan.deploy.bound, exchange)
        else:  # a message has no noise of its own, and lies on the grid of the sum
            code = priced.terms.code
            steps = Steps.of(np.full((len(network.sizes), priced.rounds), 2.0**-code.fraction_bits), code.bound)
        return cls(plan, network, priced, steps, exchange)

    @staticmethod
    def check(plan: Plan) -> Network:
        """The public side of a plan that can be deployed; an InputError for any other."""
        check_deployable(plan)
        if plan.deploy is None:
            raise InputError("the plan has no [deploy] table: it says who the parties are")
        if plan.problem.loss is None or plan.problem.dim is None:
            raise InputError("a deployed plan states problem.loss and problem.dim, since nobody sees all data")
        if leaks := leaks_of(plan):
            raise InputError(f"{leaks[0]}: state it in data.options, so that the data decide nothing")
        network = public_network(plan)
        if len(network.sizes) != len(plan.deploy.parties):
            raise InputError(
                f"deploy.parties lists {len(plan.deploy.parties)} parties, but records are split over "
                f"{len(network.sizes)}"
            )
        return network

    @property
    def rounds(self) -> int:
        """How many rounds there are."""
        return self.priced.rounds

    def place(self, node: int) -> Place:
        """One party's place."""
        with jax.enable_x64(True):
            everywhere = _bare(self.priced, self.network.problem.start(self.plan.data.seed))
            return jax.device_put(rows(jax.tree.map(np.asarray, everywhere), node))  # type: ignore[no-any-return]

    def outline(self, node: int) -> Outline:
        """What is public of one party's records."""
        place, asked = self.place(node), self.plan.problem
        assert asked.dim is not None
        problem = self.network.problem
        return Outline(
            problem, int(self.network.sizes[node]), asked.dim, problem.labels.classes, place.rows, float(place.unit),
            float(place.ridge), node, self.plan.data.records_per_person if self.plan.by_person else None,
        )  # fmt: skip

    def _priced_place(self, node: int) -> Place:
        """The place that the noise was worked out for: what it costs is compiled already."""
        with jax.enable_x64(True):
            return jax.device_put(rows(jax.tree.map(np.asarray, self.priced.places), node))  # type: ignore[no-any-return]

    @property
    def sum(self) -> SumTerms | None:
        """What the parties of its secret sums agree on, if only the sum of all messages is opened."""
        return self.priced.terms

    @property
    def work(self) -> float | None:
        """Seconds for a party's share of a round's work, if its clock decides on that."""
        return None if self.plan.deploy is None else self.plan.deploy.work

    def charges(self, node: int) -> list[list[Event]]:
        """What every round will cost a party: its message, or with shared noise the sum that it is in."""
        if self.sum is not None and self.sum.shared:
            return [[event] for event in self._of_sums(self.sum)[0]]
        events = run_events(self.priced.algorithm, self.priced.cfg, self._priced_place(node))
        return [[jax.tree.map(lambda x: x[t], e) for e in events] for t in range(self.rounds)]  # noqa: B023

    def alone(self, node: int) -> list[Event] | None:
        """What the whole run costs a party if everybody else pools what they know, where neighbours share noise."""
        algorithm = self.priced.algorithm
        if algorithm.own_cost is None:
            return None
        return run_events(replace(algorithm, cost=algorithm.own_cost), self.priced.cfg, self._priced_place(node))

    def charged(self, entries: Iterable[Entry]) -> list[Event]:
        """What a ledger's entries charged for the algorithm's rounds; further attempts at a sum are free."""
        return [entry.event for entry in entries if self.sum is None or not isinstance(entry.event, Free)]

    def sharing(self, node: int) -> Sharing | None:
        """What is fixed of the sums, if only they are opened."""
        terms = self.sum
        if terms is None:
            return None
        variances, local = [Fraction(0)] * self.rounds, list[Event]()
        if terms.shared:
            local, grid = self._of_sums(terms)[1], 2.0**terms.code.fraction_bits
            own = noise_scales(self.priced.algorithm, self.priced.cfg, self.priced.places).max(axis=0)
            variances = [terms.heard * steady((grid * sigma) ** 2) for sigma in own]
        return Sharing(
            colluders=terms.colluders,
            threshold=terms.quorum,
            dropouts=terms.dropouts,
            fraction_bits=terms.code.fraction_bits,
            bound=terms.code.bound,
            variances=tuple(variances),
            local=tuple(local),
            most=self.rounds + terms.retries if terms.shared else self.rounds * ATTEMPTS,
        )

    def _of_sums(self, terms: SumTerms) -> tuple[list[Event], list[Event]]:
        """What the opened sum of each round costs, and a masked vector of it if everybody else colludes."""
        events = shared_events(self.priced.algorithm, self.priced.cfg, self.priced.places, terms)
        main, local = ([_at(event, t, self.rounds) for t in range(self.rounds)] for event in events)
        return main, local

    def draws(self, node: int) -> Mapping[str, Law]:
        """The laws of a round's randomness."""
        return self.priced.algorithm.draws(self.priced.cfg, self.place(node))


def _at(event: Gaussian, t: int, rounds: int) -> Event:
    """Round t of an event with a round axis."""
    one = jax.tree.map(lambda x: float(np.broadcast_to(x, (rounds,))[t]), event)
    return one if one.times else Free()


def _bare(priced: Priced, start: np.ndarray | None = None) -> Place:
    """All places, at the public start; the solver keeps no factor between rounds, as its work is fixed."""
    with jax.enable_x64(True):
        places = priced.places if start is None else priced.places.begin_at(start)
        return replace(places, factor=False)
