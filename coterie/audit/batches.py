r"""Random batches: that a round's own coins and public sizes alone choose them, and that they have the charged law.

What a random batch earns is proved for coins that are fresh and that nobody's records have touched. Both are looked at
without statistics. An agent learns a loss whose gradients are the records themselves, x·f, in as many dimensions as it
holds records. So what it says, less what it says of empty records from the same state and draws, is a sum of the
records in the batch, and linear algebra tells which. Then

- with the same draws the batch must be the same whatever all the records and labels are;
- with the same coins in a round it must be the same whatever was drawn before, and whatever the noise is: no batch that
  is kept, no order that is gone through.

So the batches of the rounds are independent, each a function of its coins, and only the law of each is left to see: the
share of rounds in which a record is used, the sizes, and with few records every single subset, each compared with the
charged law by Chernoff's bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import product
from math import comb

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree
from scipy.special import xlogy
from scipy.stats import binom

from coterie.algorithms._sampling import DeadlineGaussian, Pace, deadline_sizes
from coterie.algorithms.base import Algorithm, Config, Law, Place
from coterie.audit.neighbours import Neighbours
from coterie.audit.setting import Setting, make_setting
from coterie.drivers.agent import begin, facing, hear, speak
from coterie.errors import InputError
from coterie.privacy.events import Event, SampledGaussian
from coterie.problems import Custom, HeldShard, SolverSettings
from coterie.problems.records import of_a_batch

__all__ = ["batches", "drawn", "explained"]

RECORDS = 6  # of the agent: few, so that every subset occurs
FINE = {"batch": 2, "grid": 1e-12}  # few of them in a batch, and grids on which nothing is lost
TRANSCRIPTS = 2048
PIECE = 256
WORLDS = 4  # sets of records that are tried with the same draws
SEEN = 1e-9  # what a record in the batch adds, at least
RARE = 1e-6  # how rarely correct code may be found fault with
NOISES = ("normal", "laplace", "l2-laplace")


def drawn(setting: Setting) -> bool:
    """Whether random batches are charged."""
    return any(isinstance(e, DeadlineGaussian) or _rate(e) < 1 for e in setting.events)


def batches(setting: Setting, seed: int = 0) -> str | None:
    """What is wrong with the setting's batches, if something is."""
    here = _small(setting)
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(seed), TRANSCRIPTS)
        play = partial(_played, here.algorithm, here.cfg, here.place, here.degree)
        first, *others = _worlds(seed)
        same, some = jnp.asarray(-1), keys[:PIECE]
        seen = np.asarray(play(*first, some, same))
        for world in others:
            if np.any(wrong := np.any(seen != np.asarray(play(*world, some, same)), axis=2)):
                return f"round {_when(wrong)}: with the same draws, the batch depends on what the records say"
        for since in range(here.place.rounds):
            twin = np.asarray(play(*first, some, jnp.asarray(since)))
            if np.any(wrong := np.any(seen != twin, axis=2) & (np.arange(here.place.rounds) >= since)):
                return f"round {_when(wrong)}: the batch depends on more than the round's own coins"
        more = [np.asarray(play(*first, keys[k : k + PIECE], same)) for k in range(PIECE, TRANSCRIPTS, PIECE)]
    return _law(here, np.concatenate([seen, *more]))


def explained(setting: Setting) -> bool:
    """Whether batches can be seen: the algorithm takes the loss that shows them."""
    try:
        _small(setting)
    except InputError:
        return False
    return True


# ---- playing ---------------------------------------------------------------------------------------------------------


def _inner(p: Array, f: Array, y: Array) -> Array:
    return p @ f


def _small(setting: Setting) -> Setting:
    """The same settings with few records of as many features, and few of them in a batch."""
    problem = Custom.make(_inner, np.zeros(RECORDS), lipschitz=1.0, smoothness=1.0, convex=True, bound=1.0)
    cfg = setting.cfg
    fine = {n: value for n, value in FINE.items() if n in type(cfg).model_fields}
    return make_setting(
        setting.algorithm, cfg.replace(**fine), rounds=setting.place.rounds,
        records=RECORDS, noise=float(setting.place.noise), delta=setting.delta, problem=problem,
        shape=np.asarray(setting.place.shape), load=float(setting.place.unit * setting.place.count),
        graph=setting.graph, agent=setting.agent,
    )  # fmt: skip


def _worlds(seed: int) -> list[tuple[Array, Array]]:
    """Records that linear algebra can tell apart, and labels: exact ones and zeros, either sign, or nothing special."""
    rng = np.random.default_rng(seed)
    out = [(np.eye(RECORDS), np.ones(RECORDS))]
    for k in range(1, WORLDS):
        rows = rng.standard_normal((RECORDS, RECORDS))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        if k % 2:
            rows = np.diag(rng.choice([-1.0, 1.0], RECORDS) * rng.uniform(0.2, 1.0, RECORDS))
        out.append((rows, rng.choice([-1.0, 0.0, 1.0], RECORDS)))
    return [(jnp.asarray(rows), jnp.asarray(labels)) for rows, labels in out]


@eqx.filter_jit
def _played(
    algorithm: Algorithm, cfg: Config, place: Place, degree: int, rows: Array, labels: Array, keys: Array, since: Array
) -> Array:
    """Who is in each round's batch. `since` ≥ 0: the rounds before it, and all noise, are drawn anew."""
    laws: dict[str, Law] = algorithm.draws(cfg, place)
    shard, empty = (
        HeldShard(_problem(place), x, labels, jnp.asarray(RECORDS), place.unit, place.ridge, SolverSettings())
        for x in (rows, 0 * rows)
    )
    neighbours = Neighbours.at(jnp.zeros(place.dim), degree=degree)
    weight = jnp.full(degree, (1 - place.self_weight) / degree)

    def shown(t: Array, state: PyTree, holder: HeldShard, draw: dict) -> tuple[Array, PyTree, PyTree]:
        state, message, _ = speak(algorithm, cfg, place, t, state, holder, draw)
        told = algorithm.reveals(cfg, place, state, message) if algorithm.reveals is not None else None
        vector = next(x for x in jax.tree.leaves(message if told is None else told) if x.shape == (place.dim,))
        return vector, state, message

    def one(key: Array) -> Array:
        def step(carry: tuple, t: Array) -> tuple[tuple, Array]:
            state, memory = carry
            draw = {}
            for k, (name, law) in enumerate(laws.items()):
                fresh = (t < since) | ((since >= 0) & (law.name in NOISES))
                own = jax.random.fold_in(jax.random.fold_in(key, t), k + jnp.where(fresh, 1000, 0))
                draw[name] = jnp.zeros(law.shape) if name == "mask" else law.sample(own, jnp.float64)
            vector, new, message = shown(t, state, shard, draw)
            added = jnp.linalg.solve(rows.T, vector - shown(t, state, empty, draw)[0])
            heard = neighbours.answer(message, t)
            return hear(algorithm, cfg, place, t, new, facing(heard, weight, memory)), jnp.abs(added) > SEEN

        start = of_a_batch(begin(algorithm, cfg, place, degree), jax.random.key_data(key))
        return jax.lax.scan(step, start, jnp.arange(place.rounds))[1]

    return jax.vmap(one)(keys)


def _problem(place: Place) -> Custom:
    return Custom.make(_inner, np.zeros(place.dim), lipschitz=1.0, smoothness=1.0, convex=True, bound=1.0)


# ---- the charged law -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Sizes:
    """The charged law of a batch: chances of its sizes, and every subset of a size alike."""

    chance: np.ndarray  # of each size 0 … RECORDS

    @property
    def rate(self) -> float:
        return float(self.chance @ np.arange(RECORDS + 1)) / RECORDS

    def subset(self, size: int) -> float:
        return float(self.chance[size]) / comb(RECORDS, size)


def _rate(event: Event) -> float:
    return float(np.max(event.rate)) if isinstance(event, SampledGaussian) else 1.0


def _sizes(event: Event, t: int) -> _Sizes | None:
    """What an event says about the batch of a round; None: it says nothing."""
    chance = np.zeros(RECORDS + 1)
    if isinstance(event, DeadlineGaussian):
        sizes, often = deadline_sizes(event.batch, RECORDS)
        chance[sizes.astype(int)] = often
        return _Sizes(chance)
    if not isinstance(event, SampledGaussian):
        return None
    rate = float(np.broadcast_to(event.rate, np.shape(event.times) or (t + 1,))[t])
    if event.scheme == "poisson":
        return _Sizes(binom.pmf(np.arange(RECORDS + 1), RECORDS, rate))
    chance[min(RECORDS, round(rate * RECORDS))] = 1.0
    return _Sizes(chance)


def _law(here: Setting, used: np.ndarray) -> str | None:
    """Where the batches that were seen, (transcript, round, record), are not those that are charged."""
    paid = np.any([np.broadcast_to(e.times, (here.place.rounds,)) > 0 for e in here.events], axis=0)
    tests = here.place.rounds * (2**RECORDS + 2 * RECORDS + 1)
    for t in np.flatnonzero(paid):
        law = next((s for e in here.events if (s := _sizes(e, int(t))) is not None), None)
        if law is None:
            continue
        now, n = used[:, t], len(used)
        if any(isinstance(draw, Pace) for draw in here.algorithm.draws(here.cfg, here.place).values()):
            # a clock decides how many: the most there can be is charged, and all batches of one size are equally likely
            most, sizes = int(np.flatnonzero(law.chance)[-1]), now.sum(1)
            if sizes.max() > most:
                return f"round {t}: a batch of {sizes.max()} is drawn, and at most {most} records are charged"
            law = _Sizes(np.bincount(sizes, minlength=RECORDS + 1) / n)
        cells = {"a record": (now.mean(0), law.rate)}
        cells |= {f"a batch of {k}": (np.mean(now.sum(1) == k), law.chance[k]) for k in range(RECORDS + 1)}
        for members in product((False, True), repeat=RECORDS):
            share = np.mean(np.all(now == np.array(members), axis=1))
            cells[f"the batch {np.flatnonzero(members).tolist()}"] = (share, law.subset(sum(members)))
        for what, (seen, charged) in cells.items():
            if np.any(_surprise(np.asarray(seen), charged, n) * tests < RARE):
                worst = np.max(np.abs(np.asarray(seen) - charged)) + 0.0
                return f"round {t}: {what} is drawn {worst:.3f} more or less often than {charged:.3f}, as charged"
    return None


def _surprise(seen: np.ndarray, charged: float, n: int) -> np.ndarray:
    """How likely a share so far from the charged one is, at most (Chernoff, both sides)."""
    if charged in (0.0, 1.0):
        return np.where(np.abs(seen - charged) > 1e-12, 0.0, 1.0)
    far = xlogy(seen, seen / charged) + xlogy(1 - seen, (1 - seen) / (1 - charged))
    return np.exp(-n * far)


def _when(where: np.ndarray) -> int:
    return int(np.argmax(np.any(where, axis=0)))
