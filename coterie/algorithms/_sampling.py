r"""Random batches whose size and choice never depend on data values, and the virtual machines that process them.

- `first_of_permutation`: a fresh uniform permutation of the agent's records, cut after `size` of them (at a deadline:
  after as many as were processed). Given its size the batch is uniform *without replacement*, whatever decided the
  size, as long as that was not the data: equal-shape inputs, branch-free clipping, speed drawn before data is read.
- `poisson`: every record independently with probability `rate`, at most `cap` of them. The cap moves the law of the
  batch by at most `poisson_overflow` in total variation, which belongs into the event's `tv`.

Both keep the `width` smallest of one uniform number per record, so a batch costs one selection and no loop. The coins
stay secret; a batch known to the adversary earns no amplification.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

__all__ = ["batch_by", "first_of_permutation", "poisson", "poisson_cap", "poisson_overflow", "speed"]

Batch = tuple[Int[Array, " width"], Bool[Array, " width"]]
SLOWEST, FASTEST = 10.0, 90.0  # records per virtual second: V ~ Unif(10, 90), Ding dissertation ch. 4


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
    """A cap that Poisson batches of expected size `batch` pass with probability below 1e-13, and never more than `rows`.

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


def batch_by(deadline: Array | float, coin: Array, count: Array | float) -> Array:
    """Records processed when the deadline strikes: b = min(count, ⌊V · deadline⌋)."""
    return jnp.minimum(count, jnp.floor(speed(coin) * deadline))
