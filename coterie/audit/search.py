r"""Canaries by gradient search: the pair of records, and the neighbours' point, that move the messages most.

`coterie.audit.setting` crafts its pairs by hand. Here they are found, for algorithms where nobody has said how, and to
check those that were crafted: projected gradient ascent through the algorithm's own `emit`, from several random starts,
of

    ratio = max_t (gap between the worlds in round t, given the same messages so far) / (what is declared for round t)

over two records in the unit ball (the public bound) and a point within ‖·‖ ≤ `FAR` where neighbours and start lie. The
gap is measured as in the replay check: in units of the noise, or as a log-likelihood ratio for pure events. A ratio
above 1 is a privacy bug; the search reports the largest that it met anywhere.

Derivatives are taken forwards, since solvers loop until they are done.
"""

from __future__ import annotations

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from coterie.audit.audit import PIECE
from coterie.audit.declared import declare
from coterie.audit.losses import Pair
from coterie.audit.neighbours import Neighbours
from coterie.audit.setting import ATTACKS, FAR, Setting, place_of, shard_of, worlds
from coterie.audit.transcripts import _explain, _needs_solution, explainable, play, solves_whole
from coterie.errors import InputError
from coterie.problems import HeldShard

__all__ = ["Candidate", "Searched", "ratios", "search"]

STARTS, STEPS, HISTORIES = 24, 40, 24  # a log-likelihood ratio reaches its bound in some histories only


class Candidate(eqx.Module):
    """Two records and where the neighbours stand (in units of `FAR`), each in the unit ball."""

    first: Float[Array, " d"]
    second: Float[Array, " d"]
    point: Float[Array, " d"]

    def projected(self) -> Candidate:
        """The nearest candidate within the bounds."""
        return jax.tree.map(lambda x: x / jnp.maximum(1.0, jnp.linalg.norm(x)), self)


@dataclass(frozen=True)
class Searched:
    """What a search found."""

    ratio: float  # of the best candidate
    largest: float  # met anywhere, on the way too
    candidate: Candidate

    @property
    def attack(self) -> Pair:
        """The candidate as an attack for `audit`."""
        c = self.candidate
        first, second = (np.asarray(c.first), 1.0), (np.asarray(c.second), 1.0)
        return Pair("records found by gradient search", first, second, (0 * first[0], 1.0), FAR * np.asarray(c.point))


class _Ratio:
    """The ratio of a setting as a function of candidates, compiled once."""

    def __init__(self, setting: Setting):
        self.setting = setting
        with jax.enable_x64(True):
            attack = ATTACKS[0]
            args = (setting.algorithm, setting.cfg, place_of(setting, attack))
            shard = worlds(setting, attack)[0]
            if setting.slip or not explainable(*args, shard):
                raise InputError(f"{setting.algorithm.slug}: its transcripts have no explanation to differentiate")
            self.solves = solves_whole(*args, shard)
            self.bare = self.solves and bool(_needs_solution(*args, shard))
            self.keys = jax.random.split(jax.random.key(1), HISTORIES)
            here = declare(setting, play(*args, shard, attack.neighbours(setting.degree), self.keys).messages)
            self.pure = bool(here.pure[0].max() > 0)
            self.limits = jnp.asarray((here.pure if self.pure else here.gaussian)[0])
            self.values = jax.jit(jax.vmap(self._value))
            self.slopes = jax.jit(jax.vmap(self._slope))

    def _value(self, c: Candidate) -> Array:
        setting, start = self.setting, FAR * c.point
        place = eqx.tree_at(lambda p: p.start, setting.place, start)
        other = c.second if setting.replaces else 0 * c.second
        shards = [_world(setting, x) for x in (c.first, other)]
        neighbours = Neighbours.at(start)
        args = (setting.algorithm, setting.cfg, place)
        seen = play(*args, shards[0], neighbours, self.keys)
        told = [_explain(*args, s, neighbours, seen, self.solves, self.bare, False, jnp.zeros(())) for s in shards]
        if self.pure:
            gaps = jnp.abs(told[1].weight - told[0].weight)
        else:
            gaps = _norm(told[1].noise - told[0].noise)
        limits = jnp.where(self.limits > 0, self.limits, jnp.inf)
        free = jnp.where(self.limits > 0, 0.0, jnp.where(gaps > 1e-6, jnp.inf, 0.0))  # nothing is declared: no gap
        return jnp.max(gaps / limits + free)

    def _slope(self, c: Candidate) -> Candidate:
        return jax.jacfwd(self._value)(c)


def _norm(x: Array) -> Array:
    """Euclidean norm over the last axis, with a derivative at zero."""
    square = jnp.sum(x**2, axis=-1)
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0)


def _world(setting: Setting, record: Array) -> HeldShard:
    # the other records are almost nothing: at nothing at all a clipped norm has no derivative
    return shard_of(setting, jnp.full((setting.records, setting.place.dim), 1e-12).at[0].set(record))


def ratios(setting: Setting, pairs: np.ndarray) -> np.ndarray:
    """The ratio of every row (first record, second record, point/`FAR`), each in the unit ball: (n, 3, d) → (n,)."""
    of = _Ratio(setting)
    out = []
    with jax.enable_x64(True):
        for low in range(0, len(pairs), PIECE):
            rows = jnp.asarray(pairs[low : low + PIECE])
            out.append(
                np.asarray(of.values(jax.vmap(Candidate.projected)(Candidate(rows[:, 0], rows[:, 1], rows[:, 2]))))
            )
    return np.concatenate(out)


def search(setting: Setting, *, starts: int = STARTS, steps: int = STEPS, seed: int = 0) -> Searched:
    """The strongest pair of records and point that gradient ascent finds, within the public bounds."""
    of, rng = _Ratio(setting), np.random.default_rng(seed)
    with jax.enable_x64(True):
        at = _draw(rng, starts, setting.place.dim)
        values = np.asarray(of.values(at))
        best, top, largest = at, values, float(values.max())
        for k in range(steps):
            slope = of.slopes(at)
            length = 0.5 / (1 + k) ** 0.7
            at = jax.vmap(Candidate.projected)(jax.tree.map(lambda x, g: x + length * _unit(g), at, slope))  # noqa: B023
            values = np.asarray(of.values(at))
            largest = max(largest, float(values.max()))
            better = values > top
            best = jax.tree.map(lambda b, x: jnp.where(better[:, None], x, b), best, at)  # noqa: B023
            top = np.where(better, values, top)
        winner = int(np.argmax(top))
        return Searched(float(top[winner]), largest, jax.tree.map(lambda x: np.asarray(x[winner]), best))


def _unit(g: Array) -> Array:
    """Each row's direction; zero where the derivative is zero or not finite."""
    g = jnp.where(jnp.all(jnp.isfinite(g), axis=1, keepdims=True), g, 0.0)
    return g / jnp.maximum(jnp.linalg.norm(g, axis=1, keepdims=True), 1e-12)


def _draw(rng: np.random.Generator, count: int, dim: int) -> Candidate:
    """Random candidates: records of length ½ to 1, points from near zero to the farthest."""
    rows = rng.normal(size=(3, count, dim))
    rows /= np.linalg.norm(rows, axis=2, keepdims=True)
    rows[:2] *= rng.uniform(0.5, 1.0, (2, count, 1))
    rows[2] *= 10 ** rng.uniform(-3, 0, (count, 1))
    return Candidate(*(jnp.asarray(r) for r in rows))
