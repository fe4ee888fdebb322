"""What the plan fixes for every party: settings, noise, grid, sizes. Public, and the same at all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import jax
import numpy as np

from coterie.algorithms.base import Law, Place, find
from coterie.algorithms.batches import rows
from coterie.data.planned import leaks_of
from coterie.deploy.data import Outline
from coterie.deploy.noise import Steps, check_deployable, grid_steps, on_grid
from coterie.drivers.budget import run_events
from coterie.errors import InputError
from coterie.exchange.planned import sum_terms
from coterie.exchange.sums import SumTerms
from coterie.experiment import Network, Priced, price, public_network
from coterie.plan import Plan
from coterie.privacy.events import Event, Free
from coterie.privacy.ledger import Entry

__all__ = ["Terms"]


@dataclass(frozen=True)
class Terms:
    """What the plan fixes for every party: settings, noise, grid, sizes. Public, and the same at all of them."""

    plan: Plan
    network: Network
    priced: Priced
    steps: Steps

    @classmethod
    def of(cls, plan: Plan) -> Terms:
        """Work the terms out from a plan; refuse one that cannot be deployed."""
        network = cls.check(plan)
        priced = price(plan, network, algorithm=on_grid(find(plan.algorithm.name)), fast=True)
        assert plan.deploy is not None
        return cls(plan, network, priced, grid_steps(priced.algorithm, priced.cfg, _bare(priced), plan.deploy.bound))

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
                f"deploy.parties lists {len(plan.deploy.parties)} parties, but there are {len(network.sizes)} agents"
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
            float(place.ridge),
        )  # fmt: skip

    def _priced_place(self, node: int) -> Place:
        """The place that the noise was worked out for: what it costs is compiled already."""
        with jax.enable_x64(True):
            return jax.device_put(rows(jax.tree.map(np.asarray, self.priced.places), node))  # type: ignore[no-any-return]

    @property
    def sum(self) -> SumTerms | None:
        """What the parties of its secret sums agree on, if only the sum of all messages is opened."""
        return sum_terms(self.plan, len(self.network.sizes))

    def charges(self, node: int) -> list[list[Event]]:
        """What every round of the wire will cost a party.

        A secret sum takes a round for keys, and then some for each of the algorithm's: shares of the message, which is
        charged here, and what opens the sum, which says nothing that the shares did not.
        """
        events = run_events(self.priced.algorithm, self.priced.cfg, self._priced_place(node))
        paid: list[list[Event]] = [[jax.tree.map(lambda x: x[t], e) for e in events] for t in range(self.rounds)]  # noqa: B023
        if self.sum is None:
            return paid
        free: list[Event] = [Free()]
        return [free, *(charge for round in paid for charge in (round, *[free] * (self.sum.message_rounds - 1)))]

    def charged(self, entries: Iterable[Entry]) -> list[Event]:
        """What a ledger's entries charged for the algorithm's own rounds: the inverse of `charges`."""
        each = None if self.sum is None else self.sum.message_rounds
        return [entry.event for entry in entries if each is None or (entry.round - 1) % each == 0]

    def draws(self, node: int) -> Mapping[str, Law]:
        """The laws of a round's randomness."""
        return self.priced.algorithm.draws(self.priced.cfg, self.place(node))


def _bare(priced: Priced, start: np.ndarray | None = None) -> Place:
    """All places, at the public start; the solver keeps no factor between rounds, as its work is fixed."""
    with jax.enable_x64(True):
        at = priced.places.start if start is None else jax.device_put(np.asarray(start, priced.places.start.dtype))
        return replace(priced.places, start=at, factor=False)
