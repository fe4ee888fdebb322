"""What algorithms are attacked on: a small problem for every loss, and pairs of records that move its gradients far.

An algorithm is audited on each of these that its contract accepts. A pair is two records, the others, and where the
neighbours stand. For the linear losses pairs are crafted (see `coterie.audit.setting`); for all losses some are drawn:
antipodal or unlike features on the bound, beyond it or no numbers at all, all kinds of targets, points from zero to far
away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from coterie.algorithms.base import Algorithm, Config
from coterie.api.coding import columns_taken
from coterie.audit.neighbours import DEGREE, Neighbours
from coterie.errors import InputError
from coterie.losses.base import all_losses, find_loss
from coterie.losses.logistic import Logistic
from coterie.losses.mean import Mean
from coterie.problems import Ball, Box, Custom, Linear, Problem, Simplex, of_people
from coterie.problems.glm import Pointwise
from coterie.problems.labels import SIGNS, Labels

__all__ = ["LOSSES", "Pair", "accepted", "pairs"]

FAR = 400.0
ENDLESS = 1e6  # longer than any bound on records


def _pseudo_huber(p: Array, f: Array, y: Array) -> Array:
    return jnp.sqrt(1 + (p @ f - y) ** 2) - 1


def _absolute(p: Array, f: Array, y: Array) -> Array:
    return jnp.abs(p @ f - y)


def _wild(p: Array, f: Array, y: Array) -> Array:
    """Neither convex nor bounded, and at p = 0 with y = 0 its gradient is not a number."""
    return jnp.sqrt((p @ f - y) ** 2) + 3 * jnp.sin(5 * (p @ f)) + 0.1 * (p @ p)


def _wavy(p: Array, f: Array, y: Array) -> Array:
    return jnp.sin(p @ f - y)


def _sigmoid(score: Array, y: Array) -> Array:
    return jax.nn.sigmoid(-y * score)


def _smooth_distance(score: Array, y: Array) -> Array:
    return jnp.sqrt(1 + (score - y) ** 2) - 1


class _Scored(Linear):
    """A loss of one score that lacks one fact only: to see whether a contract asks for it."""

    of: Callable[[Array, Array], Array] = eqx.field(static=True, kw_only=True)
    smoothness: float = eqx.field(static=True, kw_only=True)
    monotone: bool = eqx.field(static=True, kw_only=True)
    convex: bool = eqx.field(static=True, kw_only=True)
    labels: ClassVar[Labels] = SIGNS
    scored: ClassVar[bool] = True
    directed: ClassVar[bool] = True
    lipschitz: ClassVar[float] = 1.0

    @property
    def name(self) -> str:
        return f"scored loss {self.of.__name__[1:]!r}"

    def of_score(self, score: Array, targets: Array) -> Pointwise:
        first, second = jax.grad(self.of), jax.grad(jax.grad(self.of))
        return Pointwise(*(jax.vmap(f)(score, targets) for f in (self.of, first, second)))


def _found() -> dict[str, Problem]:
    """The example of every loss that is found, the logistic one first: pairs are crafted for it."""
    every = {name: loss.example for name, loss in all_losses().items()}
    return {"logistic": every["logistic"], **every}


LOSSES: dict[str, Problem] = {
    **_found(),
    "logistic, five features": Logistic(5),
    "logistic, in a ball": Logistic(2, constraint=Ball(2.0)),
    "logistic, in a box": Logistic(2, constraint=Box(-0.5, 1.0)),
    "logistic, in a simplex": Logistic(2, constraint=Simplex(1.5)),
    "mean, in its box": Mean(2),
    "moments": find_loss("moments").example,
    "scores": find_loss("scores").example,
    "statistics": find_loss("statistics").example,
    "own, smooth": Custom.make(_pseudo_huber, np.zeros(2), lipschitz=1.0, smoothness=1.0, convex=True, bound=1.0),
    "own, cornered": Custom.make(_absolute, np.zeros(2), lipschitz=1.0, convex=True, bound=1.0),
    "own, wild": Custom.make(_wild, np.zeros(2)),
    "own, wavy": Custom.make(_wavy, np.zeros(2), lipschitz=1.0, smoothness=1.0, bound=1.0),
    "scored, not convex": _Scored(2, of=_sigmoid, smoothness=0.1, monotone=True, convex=False),
    "scored, not monotone": _Scored(2, of=_smooth_distance, smoothness=1.0, monotone=False, convex=True),
}
"""By name. Those of two classes and of one score in two features have crafted pairs."""


def accepted(algorithm: Algorithm, cfg: Config | None = None, *, person: bool = False) -> list[str]:
    """The losses that the algorithm's contract accepts, by name; where `person`, with a person as the unit."""
    out = []
    for name, problem in LOSSES.items():
        try:
            algorithm.check(cfg or algorithm.example, of_people(problem) if person else problem)
        except InputError:
            continue
        out.append(name)
    return out


@dataclass(frozen=True, eq=False)
class Pair:
    """Two records (features and target each), what all others are, and how the neighbours answer."""

    name: str
    first: tuple[np.ndarray, float]
    second: tuple[np.ndarray, float]
    rest: tuple[np.ndarray, float]
    point: np.ndarray  # where the neighbours stand
    flags: tuple[str, ...] = ()  # echo, turning, apart
    start: np.ndarray | None = None  # the (public) start, if it is elsewhere
    seed: int | None = None  # of the others' differences; None: all alike

    def records(self, world: int, count: int, last: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Features and targets of `count` records in one of the worlds; the one in question is anywhere, or `last`."""
        features = np.tile(np.asarray(self.rest[0], float), (count, 1))
        targets = np.full(count, float(self.rest[1]))
        rng = np.random.default_rng(self.seed or 0)
        if self.seed is not None:
            features *= rng.uniform(-1, 1, (count, 1))
            features += 0.1 * rng.standard_normal(features.shape)
        at = self.place(count, last)
        features[at], targets[at] = (self.first, self.second)[world]
        return features, targets

    def place(self, count: int, last: bool = False) -> int:
        """Where the record in question stands."""
        return count - 1 if last else (self.seed or 0) % count

    def neighbours(self, degree: int = DEGREE) -> Neighbours:
        """Who answers (inside x64)."""
        return Neighbours.at(self.point, degree=degree, **dict.fromkeys(self.flags, True))


def pairs(problem: Problem, count: int, seed: int = 0) -> Iterator[Pair]:
    """Pairs drawn at random, the same for the same seed: hostile in features, targets and neighbours."""
    rng = np.random.default_rng(seed)
    flags: tuple[tuple[str, ...], ...] = ((), ("turning",), ("echo",), ("apart",), ("turning", "apart"))
    far = 1.0 if problem.start(0).any() else FAR  # a model that starts away from zero, as networks do, lives there
    width = columns_taken(problem)
    for k in range(count):
        u, v = rng.standard_normal((2, width))
        u, v = u / np.linalg.norm(u), v / np.linalg.norm(v)
        if k % 2 == 0:
            v = -u + 0.1 * v * (k % 4 == 2)  # nearly antipodal
            v /= np.linalg.norm(v)
        u, v = _farthest(problem, u), _farthest(problem, v)
        point = rng.standard_normal(problem.dim)
        point *= far * 10 ** rng.uniform(-3, 0) / np.linalg.norm(point) * (k % 5 != 4) * (30.0 if k % 10 == 6 else 1.0)
        rest = (0.0 * u if k % 3 else 0.3 * v, _target(problem, rng))
        if k % 10 == 7:
            u = 50.0 * u  # beyond the bound: `admit` pulls it back
        if k % 10 == 8:
            u = np.where(np.arange(u.size) % 2, np.nan, np.inf)  # no record at all: `admit` makes it zeros
        yield Pair(f"records drawn at random, {k}", (u, _target(problem, rng)), (v, _target(problem, rng)), rest,
                   point + problem.start(k), flags[k % len(flags)], seed=None if k % 3 == 0 else k)  # fmt: skip


def _farthest(problem: Problem, direction: np.ndarray) -> np.ndarray:
    """The longest record that `admit` leaves of a direction: on a sphere, in a corner of a box; else as it is."""
    (row,), _ = problem.admit(ENDLESS * direction[None], np.zeros(1))
    return direction if np.linalg.norm(row) >= ENDLESS / 2 else row


def _target(problem: Problem, rng: np.random.Generator) -> float:
    return float(rng.choice(problem.labels.samples))
