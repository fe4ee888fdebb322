"""The public side of an experiment: who talks to whom, how many records each has, and what is learned."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from coterie.algorithms.base import Public
from coterie.data.store import Store
from coterie.graphs import Graph, Mixing, from_outside
from coterie.plan import GraphPlan, Plan
from coterie.privacy.gdp import mu_for
from coterie.problems import Problem

__all__ = ["Network", "graph_of", "noise_strength", "public_facts"]


@dataclass(frozen=True)
class Network:
    """The public side of an experiment: no field of it depends on what a record says, but for what `leaks` lists."""

    graph: Graph
    mixing: Mixing
    problem: Problem
    sizes: np.ndarray
    names: tuple[str, ...]
    store: Store | None = None  # where records are streamed from
    leaks: tuple[str, ...] = field(kw_only=True)  # what was read from the records all the same: nothing is private then


def graph_of(plan: Plan, size: int) -> tuple[Graph, Mixing]:
    """Who talks to whom, with which weights: made once, as a plan is checked before it is run."""
    made = _made if from_outside(plan.graph.kind) else _kept  # a file may change
    return made(plan.graph, size)


def _made(asked: GraphPlan, size: int) -> tuple[Graph, Mixing]:
    graph = asked.graph(size)
    return graph, asked.weights(graph)


_kept = lru_cache(maxsize=2)(_made)


def noise_strength(plan: Plan, sizes: np.ndarray) -> float:
    """1 / the noise on the agents' mean that a budget of μ = 1 asks for, where one record weighs `unit`.

    An agent whose every message is paid for adds noise unit_i, so the mean has √(Σ unit_i²)/N of it. Noise for opened
    sums is equal on all agents, and the h honest ones' together must hide the heaviest record: max unit_i/√h each. Of
    agents with budgets of their own, μ is the least of all and counts as 1.
    """
    unit = 1 / sizes if plan.problem.weighting == "agents" else np.full(len(sizes), 1 / sizes.mean())
    sums = plan.exchange.sums
    if sums is not None and sums.honest is not None and plan.exchange.central:
        noise = np.full(len(sizes), unit.max() / np.sqrt(sums.honest))
    elif (
        plan.privacy is not None and isinstance(plan.privacy.epsilon, list) and len(plan.privacy.epsilon) == len(sizes)
    ):
        budgets = np.array([float(mu_for(epsilon, plan.privacy.delta)) for epsilon in plan.privacy.epsilon])
        noise = unit * budgets.min() / budgets
    else:
        noise = unit
    return float(len(sizes) / np.linalg.norm(noise))


def public_facts(plan: Plan, network: Network, rounds: int) -> Public:
    """What settings may be chosen by."""
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
        load=float(network.sizes.max() / network.sizes.mean()) if plan.problem.weighting == "records" else 1.0,
        strength=noise_strength(plan, network.sizes),
        epsilon=min(epsilon) if isinstance(epsilon, list) else epsilon,
        delta=None if plan.privacy is None else plan.privacy.delta,
    )
