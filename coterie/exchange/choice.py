"""How messages travel, as a choice next to the algorithm: `broadcast`, `quantized` or `secret-sum`.

An exchange stands between `emit` and `absorb`. In a simulation it acts inside the compiled round:

    broadcast    every neighbour gets the message
    quantized    every neighbour gets it rounded to a public grid of few bits: post-processing, so no price changes
    secret-sum   nobody gets a message; everybody gets Σ_j round(2^f m_j) modulo 2^64 over all agents

The masks of a secret sum cancel in it, so a simulation does not draw them: it computes the same integers as the
members of `coterie.exchange.sums`, which a test holds it to. Sums over neighbourhoods are not opened (they reveal
individuals): an algorithm sees everybody as its neighbour (`coterie.network`), whose sum is the total without the own
message, and the plan's graph only carries the words.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from coterie.algorithms.base import Algorithm, Law, Place, Uniform
from coterie.algorithms.quantize import dithered, packed_bits, saturate
from coterie.errors import InputError
from coterie.exchange.fixed_point import BOUND, FRACTION_BITS, FixedPoint, to_steps
from coterie.exchange.sums import SumTerms, bytes_per_round
from coterie.graphs import Graph, Mixing

__all__ = ["BITS", "RANGE", "Broadcast", "Exchange", "Lost", "Quantized", "SecretSum", "check_fits"]

BITS = 16
RANGE = 8.0


class Lost(eqx.Module):
    """What a simulated round needs to leave agents out of: a key of its own, and the noise on everybody's message."""

    key: Array
    sigma: Array  # (agents,)


class Exchange(eqx.Module):
    """What happens to messages on the way. All settings are static."""

    @property
    def sums_only(self) -> bool:
        """Whether agents see nothing but sums."""
        return False

    def draws(self, message: PyTree) -> dict[str, Law]:
        """The laws of what it draws for one agent's message; of that only the shape is read."""
        return {}

    def send(self, message: PyTree, draw: Mapping[str, Array]) -> tuple[PyTree, Array]:
        """One agent's message as its neighbours get it, and how many of its numbers were cut to the bound."""
        return message, jnp.zeros((), jnp.int32)

    @property
    def lossy(self) -> bool:
        """Whether a simulation leaves agents out of sums."""
        return False

    def sums(self, place: Place, message: PyTree, lost: Lost | None = None) -> tuple[PyTree, PyTree]:
        """(Σ_j m_j, Σ_j w_ij m_j) over the neighbours of every agent, where that is all they see."""
        raise NotImplementedError(f"{type(self).__name__} carries individual messages")

    def bits(self, usual: Array, message: PyTree) -> Array:
        """Bits that each agent sends to one neighbour; `usual`: those of the message as it is."""
        return usual


class Broadcast(Exchange):
    """Every neighbour gets the message."""


class Quantized(Exchange):
    """Numbers rounded to `bits_each` bits on the grid of [−bound, bound): post-processing of what was released.

    "stochastic" rounding is unbiased within the bound; "nearest" has half the worst error and a bias.
    """

    bits_each: int = eqx.field(static=True, default=BITS)
    bound: float = eqx.field(static=True, default=RANGE)
    rounding: Literal["stochastic", "nearest"] = eqx.field(static=True, default="stochastic")

    @property
    def step(self) -> float:
        """The grid's step, 2 bound / 2^bits."""
        return 2 * self.bound / 2**self.bits_each

    @property
    def most(self) -> int:
        """How many steps a number has at most: −most … most − 1."""
        return int(2 ** (self.bits_each - 1))

    def draws(self, message: PyTree) -> dict[str, Law]:
        """The dither of every part of a message, where chance rounds it."""
        if self.rounding == "nearest":
            return {}
        return {f"rounding {k}": Uniform(*x.shape) for k, x in enumerate(jax.tree.leaves(message))}

    def send(self, message: PyTree, draw: Mapping[str, Array]) -> tuple[PyTree, Array]:
        leaves, tree = jax.tree.flatten(message)
        out, cut = [], jnp.zeros((), jnp.int32)
        for k, x in enumerate(leaves):
            dither = draw[f"rounding {k}"] if self.rounding == "stochastic" else jnp.full(x.shape, 0.5, x.dtype)
            whole, outside = saturate(dithered(x, dither, self.step), self.bits_each)
            out.append(self.step * whole)
            cut += outside.astype(jnp.int32)
        return jax.tree.unflatten(tree, out), cut

    def bits(self, usual: Array, message: PyTree) -> Array:
        count = sum(x[0].size for x in jax.tree.leaves(message))
        return jnp.full_like(usual, packed_bits(count, self.bits_each))


class SecretSum(Exchange):
    """Everybody learns the total of all messages on the grid 2^−fraction_bits, and nothing else."""

    parties: int = eqx.field(static=True)
    fraction_bits: int = eqx.field(static=True, default=FRACTION_BITS)
    bound: float = eqx.field(static=True, default=BOUND)
    honest: int | None = eqx.field(static=True, default=None)
    threshold: int | None = eqx.field(static=True, default=None)
    shared: bool = eqx.field(static=True, default=False)
    away: float = eqx.field(static=True, default=0.0)  # chance that an agent is left out of a round

    def __check_init__(self) -> None:
        _ = self.terms  # refuses what could wrap around, or protects nobody

    @classmethod
    def of(cls, terms: SumTerms, away: float = 0.0) -> SecretSum:
        """The exchange of these terms."""
        code = terms.code
        return cls(code.parties, code.fraction_bits, code.bound, terms.honest, terms.threshold, terms.shared, away)

    @property
    def terms(self) -> SumTerms:
        """What the parties of such a sum agree on."""
        code = FixedPoint(self.parties, self.fraction_bits, self.bound)
        return SumTerms(code, self.honest, self.threshold, shared=self.shared)

    @property
    def sums_only(self) -> bool:
        return True

    @property
    def lossy(self) -> bool:
        return self.away > 0

    def send(self, message: PyTree, draw: Mapping[str, Array]) -> tuple[PyTree, Array]:
        outside = [jnp.sum(~(jnp.abs(x) <= self.bound), dtype=jnp.int32) for x in jax.tree.leaves(message)]
        return message, sum(outside, jnp.zeros((), jnp.int32))

    def encode(self, values: Array) -> Array:
        """round(2^f v) as words, cut to the bound (cuts are counted by `send`)."""
        code = self.terms.code
        return jax.lax.bitcast_convert_type(to_steps(values, code.grid, code.most).astype(jnp.int64), jnp.uint64)

    def opened(self, values: Array) -> Array:
        """The words that the parties open: their encoded values' sum modulo 2^64."""
        return jnp.sum(self.encode(values), axis=0, dtype=jnp.uint64)

    def sums(self, place: Place, message: PyTree, lost: Lost | None = None) -> tuple[PyTree, PyTree]:
        """What is left of the total without the own message; mixing weights on a complete graph are all alike.

        A sum that lacks some stands for all: it is scaled by N over those who answered.
        """
        here = None if lost is None else self.answered(lost)

        def others(number: int, m: Array) -> Array:
            if here is None or lost is None:
                whole = jax.lax.bitcast_convert_type(self.opened(m), jnp.int64)
                return whole.astype(m.dtype) * 2.0**-self.fraction_bits - m
            words = jnp.where(here.reshape(here.shape + (1,) * (m.ndim - 1)), self.encode(m), jnp.uint64(0))
            whole = jax.lax.bitcast_convert_type(jnp.sum(words, axis=0, dtype=jnp.uint64), jnp.int64)
            count = jnp.sum(here)
            more = self.surplus(here, lost.sigma) * jax.random.normal(jax.random.fold_in(lost.key, number), m.shape[1:])
            opened = whole.astype(m.dtype) + jnp.round(more * 2.0**self.fraction_bits)
            return opened * (self.parties / count * 2.0**-self.fraction_bits) - m

        leaves, tree = jax.tree.flatten(message)
        total = jax.tree.unflatten(tree, [others(k + 1, m) for k, m in enumerate(leaves)])
        weight = (1 - place.self_weight) / place.degree
        mixed = jax.tree.map(lambda m: weight.reshape(weight.shape + (1,) * (m.ndim - 1)) * m, total)
        return total, mixed

    def answered(self, lost: Lost) -> Array:
        """Who is in a simulated sum: each is away by chance, and no more of them than may be missing."""
        chance = jax.random.uniform(lost.key, (self.parties,))
        rank = jnp.argsort(jnp.argsort(chance))
        return ~((chance < self.away) & (rank < self.terms.dropouts))

    def surplus(self, here: Array, sigma: Array) -> Array:
        """Std of what the layers that stay when some are missing add to the noise of the messages in a sum."""
        if not self.shared:
            return jnp.zeros(())
        terms, honest = self.terms, self.parties - self.terms.colluders
        level = [next(k for k in terms.levels if k >= r) for r in range(terms.dropouts + 1)]
        extra = jnp.asarray([honest / (honest - k) - 1 for k in level])[self.parties - jnp.sum(here)]
        return jnp.sqrt(extra * jnp.sum(jnp.where(here, sigma**2, 0.0)))

    def bits(self, usual: Array, message: PyTree) -> Array:
        size = sum(x[0].size for x in jax.tree.leaves(message))
        return jnp.full_like(usual, 8 * bytes_per_round(self.terms, size) / (self.parties - 1))


def check_fits(exchange: Exchange, algorithm: Algorithm, graph: Graph, mixing: Mixing, dtype: str = "float64") -> None:
    """Refuse an exchange that the algorithm or the graph cannot live with, with the reason."""
    if isinstance(exchange, Quantized) and algorithm.bits is not None:
        raise InputError(f"{algorithm.slug} encodes its messages itself: use exchange.kind = 'broadcast'")
    if algorithm.named and not isinstance(exchange, Broadcast):
        raise InputError(
            f"{algorithm.slug} has everybody know everybody's point as it was sent: use exchange.kind = 'broadcast'"
        )
    if not exchange.sums_only:
        return
    if algorithm.reads == "individuals":
        raise InputError(
            f"{algorithm.slug} needs individual messages, which exchange.kind = 'secret-sum' never opens: choose an "
            "algorithm that reads sums, or 'broadcast'"
        )
    if np.any(graph.degrees < graph.size - 1) or np.ptp(mixing.edge_weights) > 1e-12:
        raise InputError(
            f"an exchange that opens sums needs everybody as neighbour with equal weights, got graph.kind = "
            f"{graph.kind!r}: differences of overlapping neighbourhood sums reveal individuals"
        )
    if isinstance(exchange, SecretSum) and exchange.threshold is not None and algorithm.reads != "total":
        raise InputError(
            f"{algorithm.slug} keeps its own messages, so it cannot go on with a sum that lacks some: remove "
            "exchange.threshold, or choose an algorithm that reads only the total"
        )
    if dtype != "float64":
        raise InputError(f"exchange.kind = 'secret-sum' needs run.dtype = 'float64', got {dtype!r}: sums have 64 bits")
