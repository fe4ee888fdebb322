"""What is public of one agent (Place) and of the whole network (Public)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Int

from coterie.graphs import Graph
from coterie.problems.base import Problem
from coterie.problems.sets import Constraint
from coterie.problems.solve import Solver

__all__ = ["Place", "Public", "Round"]


Round = int | Int[Array, "..."]  # its number; traced in a run, and a row of them where all are priced at once

if TYPE_CHECKING:
    Rounds = int
else:
    Rounds = int | None  # None while a program that serves any number is traced: it cannot be calculated with


class Place(eqx.Module):
    """What an agent knows of its spot: all of it public.

    In a simulation every number has a leading agent axis; a deployed agent holds one row.
    """

    count: Float[Array, "*agents"]  # records held, n_i
    degree: Float[Array, "*agents"]  # neighbours
    self_weight: Float[Array, "*agents"]  # w_ii of the mixing matrix
    unit: Float[Array, "*agents"]  # weight of one record in f_i = unit Σ loss + ridge/2 ‖x‖²; 1/n_i by default
    noise: Float[Array, "*agents"]  # noise multiplier that calibration solved for; 0 = no noise
    shape: Float[Array, " rounds"] | Float[Array, "agents rounds"]  # relative noise of each round, of all or of each
    start: Float[Array, " dim"]  # the public starting point
    ridge: Float[Array, ""]  # strong convexity of f_i that the regularizer gives
    lipschitz: Float[Array, ""]  # V: half of what replacing a record can change of a gradient (`Problem.half_gap`)
    smoothness: Float[Array, ""]  # bound on a record's curvature
    dim: int = eqx.field(static=True)
    rounds: Rounds = eqx.field(static=True)
    agents: int = eqx.field(static=True)
    rows: int = eqx.field(static=True)  # records an agent may hold at most (the shard's padded length)
    factor: bool = eqx.field(static=True, default=False)  # whether `argmin` keeps a dense factor between rounds
    monotone: bool = eqx.field(static=True, default=False)  # whether the loss's slope never changes sign
    steepness: float = eqx.field(static=True, default=float("inf"))  # bound on the norm of a record's gradient
    within: Constraint | None = eqx.field(static=True, default=None)  # the set that points are kept in
    seat: Float[Array, "*agents"] | None = None  # which party this is, where the problem tells them apart
    present: Float[Array, "*agents rounds"] | None = None  # 1 in rounds in which it speaks and hears; None: in all
    horizon: Int[Array, ""] | None = None  # rounds, where the program at hand serves any number of them

    @property
    def length(self) -> int | Int[Array, ""]:
        """How many rounds, as a number to calculate with: all that an algorithm of `ANY_LENGTH` may read."""
        return self.rounds if self.horizon is None else self.horizon

    def noise_at(self, t: Round) -> Float[Array, ...]:
        """Noise of round t as a multiple of the round's sensitivity."""
        return self.noise * self.shape[t]

    def project(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        """The nearest point of the set that points are kept in: x itself where there is none."""
        return x if self.within is None else self.within.project(x)

    def begin_at(self, start: np.ndarray) -> Place:
        """The same place with this public starting point, or the one of the set that is nearest to it."""
        point = self.project(jax.device_put(np.asarray(start, self.start.dtype)))
        return eqx.tree_at(lambda p: p.start, self, point)

    def solver(self) -> Solver:
        """A fresh solver for `shard.argmin`, at the public start."""
        return Solver.fresh(self.start, self.factor, self.within is not None)


@dataclass(frozen=True)
class Public:
    """The public facts from which `tune` may choose a default: sizes, graph, curvature bounds, budget."""

    agents: int
    rounds: int
    dim: int
    count_min: int
    count_max: int
    degree_min: int
    degree_max: int
    laplacian_max: float  # largest eigenvalue of the graph Laplacian, or an upper bound
    mixing_gap: float | None  # 1 − second largest |eigenvalue| of the mixing matrix, None if not computed
    ridge: float
    lipschitz: float
    smoothness: float
    epsilon: float | None
    delta: float | None
    load: float = 1.0  # largest unit · count: what all records of an agent together weigh
    strength: float | None = None  # see `noise_strength`; None: of equal parties, each with noise of its own
    records: int | None = None  # of all agents together
    classes: int | None = None  # of the label
    problem: Problem | None = None  # itself: of a coupled one, everybody's numbers
    graph: Graph | None = None  # who hears whom

    def noise_strength(self) -> float:
        """How much smaller the noise on the agents' mean is than on one record: n √N for N agents of n records.

        `strength` states it for unequal agents, and for noise on opened sums only (`coterie.network`).
        """
        equal = math.sqrt(self.count_min * self.count_max * self.agents)
        return equal if self.strength is None else self.strength
