"""What the figures of Zhang-Zhu, of PR-ADMM and of Ding's chapter 3 share: equal agents, released points, their scores.

All agents hold as many records and have as many neighbours, so one agent's price is everybody's. Scores are the
papers' own: the loss of agent i's point on agent i's records and its error on held-out ones, averaged over the agents,
for points that were *sent* (the papers also evaluate points that never leave the agent).
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import brentq

from coterie.algorithms.base import find
from coterie.algorithms.batches import rows
from coterie.drivers.simulate import Run, Trace, simulate
from coterie.experiment import Experiment, prepare
from coterie.plan import Plan, validate
from coterie.pricing import Priced, settle
from coterie.privacy.rdp import zcdp_rho
from reproduction.study import Study

__all__ = [
    "World", "accuracy", "claimed_by", "losses", "noise_claiming", "noise_of_baseline", "points_sent", "settled",
    "with_shape",
]  # fmt: skip


@dataclasses.dataclass(frozen=True)
class World:
    """Records and graph: a ring (degree 2) or a random regular graph. `table` is a file of the user's, else Adult."""

    agents: int
    records: int
    degree: int = 2
    table: str = ""
    coding: str = "onehot"  # of categories: see `coterie.data.encode`

    def plan(self, algorithm: str, rounds: int, ridge: float, **more: Any) -> Plan:
        """A plan on this world; `epsilon`, `delta`, `schedule`, `options` go to [privacy], the rest to [algorithm]."""
        data: dict[str, Any] = {"source": "adult", "test_fraction": 0.07 if self.table else 0.11}
        data["options"] = {"centre": False, "coding": self.coding}  # papers map numbers to [0, 1]
        if self.table:
            data |= {"source": "census", "path": str(Path(os.environ["COTERIE_DATA"]) / self.table)}
            data["options"] = {"country": Path(self.table).stem.removeprefix("ipums-"), "coding": self.coding}
        budget = {"epsilon": more.pop("epsilon", 1.0), "delta": more.pop("delta", 1e-4)}
        budget |= {"schedule": more.pop("schedule", "uniform"), "schedule_options": more.pop("options", {})}
        graph: dict[str, Any] = {"kind": "ring"} if self.degree == 2 else {"kind": "regular", "degree": self.degree}
        if self.degree == self.agents - 1:
            graph = {"kind": "complete"}
        tree: dict[str, Any] = {
            "data": data,
            "partition": {"kind": "iid", "agents": self.agents, "records": self.records},
            "graph": graph,
            "problem": {"loss": "logistic", "ridge": ridge},
            "algorithm": {"name": algorithm, **more},
            "run": {"rounds": rounds, "every": rounds},
        }
        if find(algorithm).private:
            tree["privacy"] = budget
        return validate(tree)

    def experiment(self, ridge: float) -> Experiment:
        """Data and graph, read once."""
        return dataclasses.replace(_prepared(self), plan=self.plan("admm", 1, ridge))


@lru_cache(maxsize=4)
def _prepared(world: World) -> Experiment:
    return prepare(world.plan("admm", 1, 0.0))


def settled(world: World, experiment: Experiment, algorithm: str, rounds: int, **settings: Any) -> Priced:
    """An algorithm on this network with these settings, its schedule included, and no noise yet."""
    return settle(world.plan(algorithm, rounds, experiment.plan.ridge, **settings), experiment.network)


def with_shape(priced: Priced, shape: np.ndarray) -> Priced:
    """The same with another schedule, given as relative noise of each round."""
    with jax.enable_x64(True):
        places = eqx.tree_at(lambda p: p.shape, priced.places, jnp.asarray(shape))
    return dataclasses.replace(priced, places=places, shape=np.asarray(shape, float))


def claimed_by(priced: Priced, noise: float, delta: float, rounds: int | None = None, **changes: Any) -> float:
    """The ε that the paper prints for this noise multiplier, after all `rounds` or after the first of them."""
    with jax.enable_x64(True):
        place = eqx.tree_at(lambda p: p.noise, rows(priced.places, 0), jnp.asarray(float(noise)))
        place = dataclasses.replace(place, rounds=rounds or place.rounds)
        assert priced.algorithm.claim is not None
        return float(priced.algorithm.claim(priced.cfg.replace(**changes), place, delta))


def noise_claiming(priced: Priced, epsilon: float, delta: float, **changes: Any) -> float:
    """The noise multiplier for which the paper's ρ + 2√(ρ ln 1/δ) is ε: ρ falls as its square."""
    return (zcdp_rho(claimed_by(priced, 1.0, delta, **changes), delta) / zcdp_rho(epsilon, delta)) ** 0.5


def noise_of_baseline(priced: Priced, delta: float, rho: float | None, epsilon: float) -> float:
    """The noise of a baseline that a paper compares with, where its rounds as zCDP add up to `rho`.

    Its own theorem prices each round as pure ε_t, which is ε_t²/2-zCDP. Without `rho`: the noise at which its own
    theorem's total is ε (DVP's is the largest of its rounds). DP-ADMM's rounds are Gaussian, 1/(2 noise²)-zCDP each.
    """
    rounds, slug = priced.rounds, priced.algorithm.slug

    def total(noise: float) -> float:
        if rho is None:
            return claimed_by(priced, noise, delta) / epsilon
        totals = [claimed_by(priced, noise, delta, rounds=t) for t in range(1, rounds + 1)]
        levels = np.full(rounds, totals[0]) if slug == "dvp" else np.diff(totals, prepend=0.0)
        return float(np.sum(levels**2) / 2) / rho

    if slug == "dp-admm" and rho is not None:
        return float((rounds / (2 * rho)) ** 0.5)
    return float(brentq(lambda z: np.log(total(z)), 1e-2, 1e5))


def points_sent(
    study: Study, experiment: Experiment, priced: Priced, noise: float, seeds: int
) -> tuple[np.ndarray, Trace]:
    """Every agent's broadcast point of every round, (seeds, rounds, agents, dim); silence repeats the last one."""
    runs = [Run(s, priced.cfg, noise) for s in range(seeds)]
    layout = experiment.layout(priced.rounds, priced.shape)
    found = simulate(priced.algorithm, layout, runs, rounds=priced.rounds, every=priced.rounds, record=True)
    trace = study.whole(found, priced.rounds)
    return np.asarray(jax.tree.leaves(trace.messages)[0]), trace


def losses(experiment: Experiment, points: np.ndarray) -> np.ndarray:
    """Mean logistic loss of each agent's points on its own records, mean over the agents: (…,) of (…, agents, d)."""
    total = np.zeros(points.shape[:-2])
    for i, part in enumerate(experiment.parts):
        signed = experiment.features[part] * experiment.targets[part, None]
        flat = points[..., i, :].reshape(-1, points.shape[-1])
        for at in range(0, len(flat), 64):  # 64 points at a time: margins of all at once would be large
            margins = signed @ flat[at : at + 64].T
            total.reshape(-1)[at : at + 64] += np.logaddexp(0, -margins).mean(axis=0)
    return total / len(experiment.parts)


def accuracy(experiment: Experiment, points: np.ndarray, where: str) -> np.ndarray:
    """Share of records that each agent's point gets right, averaged over the agents: (…,) of (…, agents, d).

    `where`: "test", the held-out records, or "train", each agent's own.
    """
    shares = []
    for i, part in enumerate(experiment.parts):
        if where == "train":
            z, y = experiment.features[part], experiment.targets[part]
        else:
            assert experiment.test is not None
            z, y = experiment.test.features, experiment.test.targets
        right = (points[..., i, :] @ z.T > 0) == (y > 0)
        shares.append(right.mean(axis=-1))
    return np.mean(shares, axis=0)


def every(rounds: int, points: int = 25) -> Sequence[int]:
    """Rounds at which curves are drawn: the first, the last and some between (counted from 1)."""
    return np.unique(np.linspace(1, rounds, min(points, rounds)).round().astype(int)).tolist()
