"""The public side of an experiment: who talks to whom, how many records each has, and what is learned."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from coterie.algorithms.base import Public
from coterie.data.store import Store
from coterie.graphs import Graph, Mixing, from_outside
from coterie.plan import GraphPlan, Plan
from coterie.problems import Problem

__all__ = ["Network", "graph_of", "public_facts"]


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
        ridge=plan.problem.ridge,
        lipschitz=problem.half_gap,
        smoothness=problem.smoothness,
        load=float(network.sizes.max() / network.sizes.mean()) if plan.problem.weighting == "records" else 1.0,
        epsilon=min(epsilon) if isinstance(epsilon, list) else epsilon,
        delta=None if plan.privacy is None else plan.privacy.delta,
    )
