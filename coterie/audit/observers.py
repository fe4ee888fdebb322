"""An audit from a seat: what some parties see of a run, in two worlds that differ in one record of somebody else.

The whole network is simulated, by the driver that runs plans. The view of the observers is every message that reaches
them and what they sent themselves (so their own noise is known to them); where parties share secrets, those that they
hold; where the claim is against a reader of everything, every message. Everybody else's records are as a strong
adversary would have them. A linear filter, Σ⁺ d for the mean difference d and the covariance Σ of pilot runs, is the
best test there is where the view is Gaussian and linear in the noise; where it is not, it is a test like any other:
the bound holds whatever the score, since its threshold is fixed before the trials are drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from numpy.typing import NDArray

from coterie.algorithms.base import Algorithm, Config
from coterie.algorithms.laws import SECRETS, Shared
from coterie.audit.bounds import epsilon_of_mu, mu_bound, rates
from coterie.audit.losses import pairs
from coterie.drivers.layout import Layout, make_layout, make_places
from coterie.drivers.seeds import keys_of
from coterie.drivers.simulate import Run, Trace, simulate
from coterie.errors import InputError
from coterie.graphs import Graph, Mixing
from coterie.problems import Problem

__all__ = ["Record", "Vantage", "Witnessed", "attack", "record_pair"]

Floats = NDArray[np.float64]
Record = tuple[Floats, float]
BATCH = 2000  # runs that are simulated at once
NOTHING = 1e-9  # share of a view's variance below which it has none: what differs there tells everything
DRAWN = 20  # pairs of records that are looked at
GLANCES = 1 << 40  # first seed of the runs that choose a seat: no attack uses them


@dataclass(frozen=True)
class Vantage:
    """A priced network, who looks, and whose record differs."""

    algorithm: Algorithm
    cfg: Config
    problem: Problem
    graph: Graph
    mixing: Mixing
    records: int  # of every party
    rounds: int
    noise: float | Floats  # multipliers
    observers: tuple[int, ...]
    victim: int
    pair: tuple[Record, Record]  # the record in question, in either world
    others: dict[int, Sequence[Record]] | None = None  # what others hold, over and over; by default both of the pair
    shape: Floats | None = None
    ridge: float = 0.0
    weighting: str = "agents"
    everything: bool = False  # the observers read every message

    def layout(self, world: int) -> Layout:
        """The network in one of the worlds (inside x64)."""
        features, targets = [], []
        for party in range(self.graph.size):
            held = (self.others or {}).get(party, self.pair)
            rows = [held[k % len(held)] for k in range(self.records)]
            if party == self.victim:
                rows[0] = self.pair[world]
            features.append(np.array([np.asarray(f, float) for f, _ in rows]))
            targets.append(np.array([y for _, y in rows], float))
        admitted = self.problem.admit(np.concatenate(features), np.concatenate(targets))
        parts = np.split(np.arange(self.graph.size * self.records), self.graph.size)
        return make_layout(
            self.problem, *admitted, parts, self.graph, self.mixing, rounds=self.rounds, ridge=self.ridge,
            weighting=self.weighting, shape=self.shape, start=self.problem.start(0),
        )  # fmt: skip

    @property
    def heard(self) -> list[int]:
        """The parties whose messages are in the view."""
        if self.everything:
            return list(range(self.graph.size))
        near = [self.graph.neighbours(o).tolist() for o in self.observers]
        return sorted(set(self.observers).union(*near))


@dataclass(frozen=True)
class Witnessed:
    """What an attack from a seat proves: μ at least, at a confidence; and what the pilot runs estimate."""

    mu: float
    estimate: float
    numbers: int  # in the view
    trials: int  # in each world
    confidence: float

    def epsilon(self, delta: float) -> float:
        """ε at least, of a claim that is a Gaussian trade-off curve."""
        return epsilon_of_mu(self.mu, delta)


def attack(
    seat: Vantage, *, pilot: int = BATCH, trials: int = 5 * BATCH, seed: int = 0, confidence: float = 0.99
) -> Witnessed:  # fmt: skip
    """Fit the filter on `pilot` runs of either world, fix the threshold, and try it on `trials` others."""
    if seat.victim in seat.observers:
        raise InputError(f"party {seat.victim} is an observer itself: it knows its own records")
    with jax.enable_x64(True):
        worlds = seat.layout(0), seat.layout(1)
        first, second = (_views(seat, world, pilot, seed) for world in worlds)  # the same noise in both
        weights, threshold, estimate = _filter(first, second)
        scores = [
            np.concatenate([
                _views(seat, world, min(BATCH, trials - done), seed + pilot + k * trials + done) @ weights
                for done in range(0, trials, BATCH)
            ])
            for k, world in enumerate(worlds)
        ]  # fmt: skip
    found = mu_bound(rates(scores[0], scores[1], threshold, confidence))
    return Witnessed(found, estimate, first.shape[1], trials, confidence)


def glance(seat: Vantage) -> float:
    """μ as pilot runs make it look: to choose among seats before one is attacked."""
    with jax.enable_x64(True):
        return _filter(*(_views(seat, seat.layout(world), BATCH, GLANCES) for world in (0, 1)))[2]


def _filter(first: Floats, second: Floats) -> tuple[Floats, float, float]:
    """Σ⁺ d, the point between the worlds, and μ as it looks; where Σ has no variance and d is not 0, d itself."""
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise InputError("the runs of this audit diverge: there is no view to score")
    size = np.maximum(np.sqrt((first.var(0) + second.var(0)) / 2), 1e-300)
    size = np.where(size < NOTHING * size.max(), size.max(), size)  # numbers that never change
    gap = (second - first).mean(0) / size
    centred = np.concatenate([first - first.mean(0), second - second.mean(0)]) / size
    values, vectors = np.linalg.eigh(centred.T @ centred / len(centred))
    along = vectors.T @ gap
    inverse = 1 / np.maximum(values, NOTHING)
    weights = vectors @ (inverse * along) / size
    middle = float((first.mean(0) + second.mean(0)) @ weights / 2)
    return weights, middle, float(np.sqrt(np.sum(inverse * along**2)))


def _views(seat: Vantage, layout: Layout, runs: int, seed: int) -> Floats:
    """One row a run: all that the observers see, and what they know of others' noise."""
    seeds = range(seed, seed + runs)
    trace = simulate(
        seat.algorithm, layout, [Run(s, seat.cfg, seat.noise) for s in seeds], rounds=seat.rounds, every=seat.rounds,
        record=True,
    )  # fmt: skip
    parts = [np.asarray(x)[:, :, seat.heard].reshape(runs, -1) for x in jax.tree.leaves(trace.messages)]
    spoke = np.asarray(trace.extras["sent"])[:, :, seat.heard].reshape(runs, -1)
    if not spoke.all():
        parts.append(spoke.astype(float))
    return np.concatenate([*parts, *_secrets(seat, trace, seeds)], axis=1).astype(float)


def _secrets(seat: Vantage, trace: Trace, seeds: range) -> list[Floats]:
    """What the observers share with their neighbours, round by round."""
    with jax.enable_x64(True):
        places = make_places(
            seat.problem, np.full(seat.graph.size, seat.records), seat.graph, seat.mixing, rounds=seat.rounds
        )
        laws = seat.algorithm.draws(seat.cfg, places)
    found = []
    for law in laws.values():
        if not isinstance(law, Shared):
            continue
        links = {tuple(sorted((o, int(j)))) for o in seat.observers for j in seat.graph.neighbours(o)}

        def secret(key: ArrayLike, low: int, high: int, law: Shared = law) -> ArrayLike:
            rounds = [jax.random.fold_in(jax.random.fold_in(key, t), SECRETS) for t in range(seat.rounds)]
            return jnp.concatenate([law.secret(k, low, high, np.float64).ravel() for k in rounds])

        over = jax.jit(jax.vmap(secret, (0, None, None)))
        found += [np.asarray(over(keys_of(list(seeds)), *link), float) for link in sorted(links)]
    return found


def record_pair(problem: Problem, clip: float | None) -> tuple[Record, Record]:
    """Of some pairs of records the one whose (clipped) gradients differ most at the public start."""
    point = problem.start(0)
    best: tuple[float, tuple[Record, Record]] | None = None
    with jax.enable_x64(True):
        for pair in pairs(problem, DRAWN):
            gradients = []
            for features, target in (pair.first, pair.second):
                rows, targets = map(jnp.asarray, problem.admit(np.atleast_2d(features), np.array([target])))
                gradients.append(
                    np.asarray(problem.weighted_gradient(jnp.asarray(point), rows, targets, jnp.ones(1), clip=clip))
                )
            apart = float(np.linalg.norm(gradients[0] - gradients[1]))
            if best is None or apart > best[0]:
                best = apart, (pair.first, pair.second)
    assert best is not None
    return best[1]
