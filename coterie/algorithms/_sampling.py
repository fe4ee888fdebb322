r"""Random batches whose size and choice never depend on data values, and the virtual machines that process them.

- `first_of_permutation`: a fresh uniform permutation of the agent's records, cut after `size` of them (at a deadline:
  after as many as were processed). Given its size the batch is uniform *without replacement*, whatever decided the
  size, as long as that was not the data: equal-shape inputs, branch-free clipping, speed drawn before data is read.
- `poisson`: every record independently with probability `rate`, at most `cap` of them. The cap moves the law of the
  batch by at most `poisson_overflow` in total variation, which belongs into the event's `tv`.

Both keep the `width` smallest of one uniform number per record, so a batch costs one selection and no loop. The coins
stay secret; a batch known to the adversary earns no amplification.

Virtual machines process V ~ Unif(10, 90) records per second, anew in every round (Ding dissertation ch. 4). With a
deadline of B/50 seconds, B records on average, b = min(n, ⌊V B/50⌋) of them are done: a size that is random but whose
law is public, so an ε can be fixed in advance (`DeadlineGaussian`).

Real machines have no known law. Theirs is a batch of at most B: as many of its `PIECES` pieces as the machine will get
done in time, said by its clock before a record is read (`Pace`). Every round is charged as if it were all B, which
covers whatever the clock says (docs/stragglers.md).
"""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int, Key

from coterie.algorithms.laws import Law
from coterie.privacy import profiles, rdp
from coterie.privacy.base import Numeric, static
from coterie.privacy.events import Event, SampledGaussian

__all__ = [
    "PIECES",
    "DeadlineGaussian",
    "Pace",
    "batch_by_clock",
    "batch_by_deadline",
    "deadline",
    "deadline_sizes",
    "first_of_permutation",
    "most_by_deadline",
    "piece_of",
    "poisson",
    "poisson_cap",
    "poisson_overflow",
    "speed",
]

Batch = tuple[Int[Array, " width"], Bool[Array, " width"]]
SLOWEST, FASTEST = 10.0, 90.0  # records per virtual second
PIECES = 8  # in which a batch by the clock is worked off
CLASSES = {False: 8, True: 4}  # of batch sizes that Rényi bounds are evaluated for; those of discrete noise are slow


def first_of_permutation(coins: Float[Array, " rows"], count: Array | float, size: Array | float, width: int) -> Batch:
    """(rows, mask): the first `size` ≤ `width` records of the permutation that sorts the first `count` coins."""
    rows = _smallest(coins, count, width)[0]
    return rows, jnp.arange(rows.shape[0]) < jnp.minimum(size, count)


def poisson(coins: Float[Array, " rows"], count: Array | float, rate: Array | float, cap: int) -> Batch:
    """(rows, mask): the records whose coin falls below `rate`, a uniform `cap` of them if there are more."""
    rows, lowest = _smallest(coins, count, cap)
    return rows, lowest < rate


def _smallest(coins: Array, count: Array | float, width: int) -> tuple[Array, Array]:
    there = jnp.where(jnp.arange(coins.shape[0]) < count, coins, 2.0)  # padding comes last
    highest, rows = jax.lax.top_k(-there, min(width, coins.shape[0]))
    return rows, -highest


def poisson_cap(batch: int, rows: int) -> int:
    """A cap that Poisson batches of expected size `batch` pass with probability below 1e-13; never more than `rows`.

    >>> poisson_cap(100, 8000)
    204
    """
    return min(rows, batch + int(8 * batch**0.5) + 24)


def poisson_overflow(count: Array | float, rate: Array | float, cap: int) -> Array:
    """P(Binomial(count, rate) > cap) at most: Chernoff, exp(−count · KL(share‖rate)) with share = (cap + 1)/count."""
    share = (cap + 1) / jnp.asarray(count)
    inside = jnp.where((share < 1) & (share > rate), share, rate)  # elsewhere the bound is 1, or the event impossible
    others = jnp.where(rate < 1, (1 - inside) / jnp.maximum(1 - rate, 1e-300), 1.0)
    gap = inside * jnp.log(inside / rate) + (1 - inside) * jnp.log(others)
    return jnp.where(share > 1, 0.0, jnp.where(share > rate, jnp.exp(-count * gap), 1.0))


def speed(coin: Array) -> Array:
    """Records per virtual second that a machine processes this round: uniform on [10, 90)."""
    return SLOWEST + (FASTEST - SLOWEST) * coin


def deadline(batch: int) -> float:
    """Virtual seconds in which a machine of average speed processes `batch` records."""
    return 2 * batch / (SLOWEST + FASTEST)


def batch_by_deadline(batch: int, coin: Array, count: Array | float) -> Array:
    """Records processed when the deadline strikes: b = min(count, ⌊V · deadline⌋)."""
    return jnp.minimum(count, jnp.floor(speed(coin) * deadline(batch)))


def most_by_deadline(batch: int) -> int:
    """The largest b: the fastest machine's, V < 90.

    >>> most_by_deadline(20)
    35
    """
    return int(np.ceil(FASTEST * deadline(batch))) - 1


class Pace(Law):
    """The share of its work that a machine will get done in time: 1/8, 2/8 … 1, known before the work begins.

    Simulated: that of a virtual machine, with time for what one of average speed does. A deployed party reads it off
    its clock (`coterie.deploy.party`); one that has no deadline gets all of its work done.
    """

    name = "pace"
    USUAL: ClassVar = (SLOWEST + FASTEST) / 2

    def sample(self, key: Key[Array, ""], dtype: DTypeLike) -> Array:
        share = speed(jax.random.uniform(key, self.shape, dtype)) / self.USUAL
        return jnp.clip(jnp.floor(PIECES * share), 1, PIECES) / PIECES

    def log_density(self, value: Array) -> Float[Array, ""]:
        edges = [SLOWEST, *(self.USUAL * k / PIECES for k in range(2, PIECES + 1)), FASTEST]
        chance = np.diff(edges) / (FASTEST - SLOWEST)
        k = jnp.round(PIECES * value).astype(int)
        known = (k >= 1) & (k <= PIECES)
        return jnp.sum(jnp.where(known, jnp.log(jnp.asarray(chance)[jnp.clip(k, 1, PIECES) - 1]), -jnp.inf))


def piece_of(batch: int) -> int:
    """Records in a piece of a batch by the clock; the last piece may have fewer."""
    return -(-batch // PIECES)


def batch_by_clock(batch: int, pace: Array, count: Array | float) -> Array:
    """Records in the pieces that a machine of this pace gets done: at most `batch`, and at most `count`.

    >>> [int(batch_by_clock(20, jnp.array(k / 8), 1000)) for k in (1, 2, 6, 7, 8)]
    [3, 6, 18, 20, 20]
    """
    return jnp.minimum(jnp.minimum(piece_of(batch) * jnp.round(PIECES * pace), float(batch)), count)


def deadline_sizes(batch: int, count: float) -> tuple[np.ndarray, np.ndarray]:
    """Every possible b and its probability.

    >>> sizes, chance = deadline_sizes(20, 1000)
    >>> int(sizes[0]), int(sizes[-1]), round(float(sizes @ chance), 2)
    (4, 35, 19.5)
    """
    low, high = SLOWEST * deadline(batch), FASTEST * deadline(batch)
    whole = np.arange(np.floor(low), most_by_deadline(batch) + 1)
    chance = (np.minimum(whole + 1, high) - np.maximum(whole, low)) / (high - low)
    sizes, which = np.unique(np.minimum(whole, count), return_inverse=True)
    return sizes, np.bincount(which, weights=chance)


class DeadlineGaussian(Event):
    r"""Gaussian (or discrete Gaussian) noise on the mean of as many records as a deadline allows, without replacement.

    b has the law of `deadline_sizes` and may be seen by everybody. The pair of worlds is then a mixture of the pairs
    given b with the *same* weights in both worlds, so its profile is Σ_b P(b) δ_b(ε) and its Rényi curve
    ln(Σ_b P(b) e^{(α−1) D_b})/(α−1): exact, fixed before the run, and free where b = 0. It composes like any
    dominating pair. `noise_multiplier` ν is noise std over the sensitivity 2K/b of the mean, whatever b; with
    `constant` the noise std is ν 2K/`batch` for every b instead, so ν_b = ν b/`batch` (small batches then leak more).
    """

    realised_as: ClassVar = (SampledGaussian,)
    noise_multiplier: Numeric
    count: Numeric
    batch: int = static()
    discrete: bool = static(default=False)
    constant: bool = static(default=False)
    limits: ClassVar = {"noise_multiplier": ">= 0", "count": ">= 0"}

    @property
    def integer_orders(self) -> bool:
        return self.discrete

    def _parts(self, row: int) -> list[tuple[float, float, float]]:
        """(probability, ν_b, q_b) of every batch size but 0."""
        sizes, chance = deadline_sizes(self.batch, float(self.count[row]))
        nu = self.noise_multiplier[row] * (sizes / self.batch if self.constant else np.ones_like(sizes))
        return [(p, v, b / float(self.count[row])) for p, v, b in zip(chance, nu, sizes, strict=True) if b > 0]

    def mu(self) -> np.ndarray | None:
        """Without any amplification, at the least noise."""
        return None if self.discrete else self._plain()

    def zcdp(self) -> np.ndarray:
        return self._plain() ** 2 / 2

    def _plain(self) -> np.ndarray:
        least = [min((v for _, v, _ in self._parts(row)), default=np.inf) for row in range(self.times.size)]
        with np.errstate(divide="ignore"):
            return 1 / np.array(least)

    def rdp(self, orders: np.ndarray) -> np.ndarray:
        return np.stack([self._curve(row, orders) for row in range(self.times.size)])

    def _curve(self, row: int, orders: np.ndarray) -> np.ndarray:
        parts = self._parts(row)
        if any(nu == 0 for _, nu, _ in parts):
            return np.full(orders.size, np.inf)
        if not self.constant and parts:  # a larger batch costs more: few classes, each at its largest size
            groups = np.array_split(np.array(parts), min(CLASSES[self.discrete], len(parts)))
            parts = [(float(g[:, 0].sum()), float(g[0, 1]), float(g[-1, 2])) for g in groups]
        total = np.zeros(orders.size)
        for chance, nu, rate in parts:
            curve = rdp.gaussian(np.array([1 / nu]), orders)[0]
            if rate < 1:
                sampled = rdp.wbk_sampled_gaussian if self.discrete else rdp.symmetric_sampled_gaussian
                curve = np.minimum(curve, sampled(nu, rate, orders))
            with np.errstate(over="ignore"):
                total += chance * np.expm1((orders - 1) * curve)
        return np.log1p(total) / (orders - 1)

    def profile(self, row: int) -> profiles.Profile | None:
        parts = self._parts(row)
        if self.discrete or any(nu == 0 for _, nu, _ in parts):
            return None
        if not parts:
            return profiles.gaussian(0.0)
        chance, nu, rate = np.array(parts).T
        return profiles.sampled_gaussian(nu, rate, chance)
