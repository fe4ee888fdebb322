"""The public side of an experiment: who talks to whom, how many records each has, and what is learned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, TypedDict

import jax
import numpy as np

from coterie.algorithms._charges import run_events
from coterie.algorithms.base import Algorithm, Config, Place, Public
from coterie.algorithms.batches import rows
from coterie.data.store import Store
from coterie.errors import InputError
from coterie.graphs import Graph, Mixing, from_outside, make_graph, mixing
from coterie.plan import Plan, refuse_ignored
from coterie.privacy import schedules
from coterie.privacy.accountants import account
from coterie.privacy.events import Gaussian
from coterie.privacy.gdp import epsilon_of, mu_for
from coterie.problems import Problem
from coterie.tables.links import GraphPlan

__all__ = [
    "Links", "Network", "ObserverAccount", "graph_of", "links_on", "noise_strength", "present_of", "public_facts",
    "seats_of", "shape_of",
]  # fmt: skip

UNIFORM = ("metropolis", "uniform")  # on a complete graph both give weights 1/N


@dataclass(frozen=True)
class Network:
    """The public side of an experiment: no field of it depends on what a record says, except what `leaks` lists."""

    graph: Graph  # whose messages a party reads: everybody's, where sums over all are opened
    mixing: Mixing
    transport: Graph  # who talks to whom: the plan's own graph
    problem: Problem
    sizes: np.ndarray
    names: tuple[str, ...]
    store: Store | None = None  # where records are streamed from
    leaks: tuple[str, ...] = field(kw_only=True)  # what was read from the records all the same: nothing is private then

    @classmethod
    def of(
        cls, plan: Plan, problem: Problem, sizes: np.ndarray, names: Sequence[str], store: Store | None = None, *,
        leaks: tuple[str, ...],
    ) -> Network:  # fmt: skip
        """The network of a plan, with this many records at each party."""
        return cls(*graph_of(plan, len(sizes)), problem, sizes, tuple(names), store, leaks=leaks)

    def number(self, name: str, key: str) -> int:
        """The place of the party of that name, or of that number."""
        if name in self.names:
            return self.names.index(name)
        if name.isdecimal() and int(name) < len(self.names):
            return int(name)
        some = ", ".join(self.names[:5])
        raise InputError(f"{key}: {name!r} is no party; expected one of {len(self.names)}, such as {some}")


class Links(NamedTuple):
    """What an algorithm sees of a network, and what carries its messages."""

    graph: Graph
    mixing: Mixing
    transport: Graph


def graph_of(plan: Plan, size: int) -> Links:
    """Who reads whose messages with which weights, and who talks to whom: made once, as a plan is checked first."""
    if plan.exchange.sums is not None:
        return links_on(plan, _graph(plan.graph, size))
    made = _made if from_outside(plan.graph.kind) else _kept  # a file may change
    return made(plan.graph, size)


def links_on(plan: Plan, transport: Graph) -> Links:
    """The same on a graph that exists already.

    A secret sum is over all parties, whatever they talk over: an algorithm sees a complete graph with weights 1/N, and
    the plan's graph only has to be connected.
    """
    if plan.exchange.sums is None:
        return Links(transport, plan.graph.weights(transport), transport)
    if plan.graph.mixing not in UNIFORM:
        refuse_ignored(plan, "exchange.kind = 'secret-sum', whose sums weigh all parties alike", "graph.mixing")
    if transport.size < 3:
        raise InputError(
            f"a secret sum needs at least 3 parties (2 honest ones and somebody to hide from), got {transport.size}"
        )
    if not transport.connected:
        raise InputError(
            f"the {transport.kind} graph of {transport.size} nodes is not connected: a secret sum reaches everybody"
        )
    return Links(*_everybody(transport.size), transport)


def _graph(asked: GraphPlan, size: int) -> Graph:
    return asked.graph(size) if from_outside(asked.kind) else _kept_graph(asked, size)


def _made(asked: GraphPlan, size: int) -> Links:
    graph = asked.graph(size)
    return Links(graph, asked.weights(graph), graph)


_kept = lru_cache(maxsize=2)(_made)
_kept_graph = lru_cache(maxsize=2)(lambda asked, size: asked.graph(size))


@lru_cache(maxsize=2)
def _everybody(size: int) -> tuple[Graph, Mixing]:
    graph = make_graph("complete", size)
    return graph, mixing(graph, "uniform")


class ToldSeat(TypedDict):
    """An observer's account in results and certificates; None stands for the observers' own records."""

    observer: str
    adversary: str
    members: list[int]
    epsilon: list[float | None]


@dataclass(frozen=True)
class ObserverAccount:
    """One observer, or several who pool what they know: what is proved of everybody's record against them."""

    name: str
    observers: tuple[int, ...]
    adversary: str
    mu: np.ndarray  # of a Gaussian trade-off curve, by party; 0 for the observers' own records
    tv: float = 0.0  # total variation of what is sent from what the curve is of: the tables of deployed noise

    def epsilon(self, mu: float, delta: float) -> float:
        """ε of a party with this μ."""
        if not self.tv:
            return float(epsilon_of(mu, delta)) if mu else 0.0
        return float(account([Gaussian(mu, 1.0, tv=self.tv)], delta, fast=True).epsilon)

    def as_json(self, delta: float) -> ToldSeat:
        """For results and certificates: ε of every party; the observers' own are null."""
        ε = [self.epsilon(mu, delta) for mu in self.mu.tolist()]
        shown = [None if k in self.observers else e for k, e in enumerate(ε)]
        return {"observer": self.name, "adversary": self.adversary, "members": list(self.observers), "epsilon": shown}


def seats_of(
    plan: Plan, network: Network, algorithm: Algorithm, cfg: Config, places: Place
) -> tuple[ObserverAccount, ...]:
    """The account of every observer that the plan names; none where something was read from the records unpaid."""
    asked = (plan.privacy.observers if plan.privacy is not None and not network.leaks else None) or []
    found = []
    for name in asked:
        own = tuple(sorted({network.number(part.strip(), "privacy.observers") for part in name.split("+")}))
        assert algorithm.observed is not None
        weights = network.mixing.dense()
        with jax.enable_x64(True):
            adversary, mu = algorithm.observed(cfg, places, network.problem, network.graph, weights, own)
        tv = sum(float(np.sum(e.times * e.tv)) for e in run_events(algorithm, cfg, rows(places, 0)))
        found.append(ObserverAccount(" + ".join(network.names[o] for o in own), own, adversary, mu, tv))
    return tuple(found)


def noise_strength(plan: Plan, sizes: np.ndarray) -> float:
    """1 / the noise on the agents' mean that a budget of μ = 1 asks for, where one record weighs `unit`.

    An agent whose every message is paid for adds noise unit_i, so the mean has √(Σ unit_i²)/N of it. Noise for opened
    sums is equal on all agents, and the h honest ones' together must hide the heaviest record: max unit_i/√h each.
    Where agents have budgets of their own, the smallest μ counts as 1.
    """
    unit = 1 / sizes if plan.weighting == "agents" else np.full(len(sizes), 1 / sizes.mean())
    sums = plan.exchange.sums
    if sums is not None and sums.honest is not None and plan.exchange.central:
        noise = np.full(len(sizes), unit.max() / np.sqrt(sums.honest))
    elif (
        plan.privacy is not None and isinstance(plan.privacy.epsilon, list) and len(plan.privacy.epsilon) == len(sizes)
    ):
        delta = plan.privacy.delta  # pure budgets count as they are: only their ratios matter
        budgets = np.array([float(mu_for(e, delta)) if delta else e for e in plan.privacy.epsilon])
        noise = unit * budgets.min() / budgets
    else:
        noise = unit
    return float(len(sizes) / np.linalg.norm(noise))


def shape_of(plan: Plan, rounds: int, agents: int) -> np.ndarray:
    """The plan's schedule: relative noise of each round, (rounds,), or of each agent and round, (agents, rounds)."""
    if plan.privacy is None:
        return np.ones(rounds)
    shape = schedules.make(plan.privacy.schedule, rounds, **plan.privacy.schedule_options)
    if shape.ndim == 2 and len(shape) != agents:
        raise InputError(f"privacy.schedule_options lists rounds of {len(shape)} parties, and there are {agents}")
    return shape


def present_of(plan: Plan, rounds: int, network: Network) -> np.ndarray | None:
    """Who is there in which round, (agents, rounds) of 0 and 1, by the plan's public list; None: all are in all."""
    if not plan.run.away and (plan.privacy is None or plan.privacy.adaptive is None):
        return None
    present = np.ones((len(network.sizes), rounds))
    for name, spans in plan.run.away.items():
        row = present[network.number(name, "run.away")]
        for first, last in spans:
            if last > rounds:
                raise InputError(f"run.away: {name!r} is away until round {last}, but there are {rounds} rounds")
            row[first - 1 : last] = 0
        if not row.any():
            raise InputError(f"run.away: {name!r} is away in all of {rounds} rounds: leave it out of the parties")
    return present


def public_facts(plan: Plan, network: Network, rounds: int) -> Public:
    """The public facts that settings may be chosen from."""
    graph, problem = network.graph, network.problem
    epsilon = None if plan.privacy is None else plan.privacy.epsilon
    return Public(
        agents=graph.size,
        rounds=rounds,
        dim=problem.dim,
        count_min=int(network.sizes.min()),
        count_max=int(network.sizes.max()),
        degree_min=int(graph.degrees.min()),
        degree_max=int(graph.degrees.max()),
        laplacian_max=float(graph.laplacian_extremes[1]),
        mixing_gap=network.mixing.spectrum().gap,
        ridge=plan.ridge,
        lipschitz=problem.half_gap,
        smoothness=problem.smoothness,
        load=float(network.sizes.max() / network.sizes.mean()) if plan.weighting == "records" else 1.0,
        strength=noise_strength(plan, network.sizes),
        records=int(network.sizes.sum()),
        classes=problem.labels.classes,
        problem=problem,
        graph=graph,
        epsilon=min(epsilon) if isinstance(epsilon, list) else epsilon,
        delta=None if plan.privacy is None else plan.privacy.delta,
    )
