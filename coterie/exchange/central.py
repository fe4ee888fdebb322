"""What the opened sums of a run cost, if enough parties are honest: a claim of its own, beside the default adversary's.

Valid for algorithms that read only the total (`READS = "total"`), with mixing weights 1/N: then everything an agent
does later is a function of opened sums, its records and fresh noise, and each round's sum is one Gaussian release with
the noise of all honest parties on it (`coterie.exchange.sum_noise`). In a deployment each party must draw its noise on
the sum's grid, as `SumNoise` does.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np

from coterie.algorithms.base import Algorithm, Config, Place
from coterie.algorithms.batches import axes
from coterie.errors import InputError
from coterie.exchange.choice import SecretSum
from coterie.exchange.fixed_point import FRACTION_BITS
from coterie.exchange.statement import Claim
from coterie.exchange.sum_noise import SMOOTHING, opened_event
from coterie.privacy.accountants import account
from coterie.privacy.events import Gaussian

__all__ = ["LARGEST", "central_claim", "central_event", "check_honest", "coarse_grid"]

LARGEST = 2.0**18
"""Largest noise of one party, in grid steps, that can be drawn by table."""


COARSE = 1.05
"""How much larger than need be the noise may be because of the grid, before it is said."""


def check_honest(honest: int, exchange: SecretSum) -> None:
    """Refuse a number of honest parties that the protocol cannot protect or that a sum need not contain."""
    terms = exchange.terms
    least = terms.present - terms.tolerated
    if not least <= honest <= terms.present:
        raise InputError(
            f"exchange.honest must be in {least}..{terms.present} for {terms.parties} agents, got {honest}"
        )


def central_event(
    algorithm: Algorithm, cfg: Config, places: Place, honest: int, fraction_bits: int, rounds: int | None = None
) -> Gaussian:
    """The opened sums of the first `rounds` (all) as one event with a round axis, for the agent they cost most.

    Its own noise is in the sum, and at least that of the h − 1 others who add least.
    """
    if algorithm.reads != "total":
        raise InputError(
            f"{algorithm.slug} keeps its own messages, so its opened sums have no claim of their own: remove "
            "exchange.honest, or choose an algorithm that reads only the total"
        )
    if not np.allclose(places.self_weight, 1 / places.agents, rtol=1e-9):
        raise InputError("a claim for opened sums needs mixing weights 1/N: use graph.mixing = 'uniform'")
    with jax.enable_x64(True):
        when = jnp.arange(places.rounds if rounds is None else rounds)
        every = jax.vmap(lambda p: jax.vmap(lambda t: algorithm.cost(cfg, p, t, None))(when), (axes(places),))(places)
    if not isinstance(every, Gaussian):
        raise InputError(f"a claim for opened sums needs Gaussian noise on all records, {algorithm.slug} has another")
    shape = (places.agents, len(when))
    shift, sigma, times = (
        np.broadcast_to(np.asarray(x, float), shape) for x in (every.sensitivity, every.sigma, every.times)
    )
    worst: tuple[float, Gaussian] | None = None
    for owner in range(places.agents):
        others = np.sort(np.delete(sigma, owner, axis=0), axis=0)[: honest - 1]
        heard = np.concatenate([sigma[[owner]], others])
        enough = heard.min(0) * 2.0**fraction_bits >= SMOOTHING  # of each party: the distances are computed for that
        deviation = np.where(enough, np.sqrt(np.mean(heard**2, axis=0)), 0.0)
        event = opened_event(shift[owner], deviation, honest, fraction_bits, places.dim, times[owner])
        with np.errstate(divide="ignore"):
            size = float(np.sum(np.where(times[owner] > 0, (event.sensitivity / event.sigma) ** 2, 0.0)))
        if worst is None or size > worst[0]:
            worst = size, event
    assert worst is not None
    return worst[1]


def central_claim(
    algorithm: Algorithm, cfg: Config, places: Place, honest: int, exchange: SecretSum, delta: float
) -> Claim:
    """The account of a run's opened sums."""
    check_honest(honest, exchange)
    event = central_event(algorithm, cfg, places, honest, exchange.fraction_bits)
    steps = np.asarray(event.sigma) / math.sqrt(honest)
    if np.any(steps > LARGEST):
        less = math.ceil(math.log2(float(np.max(steps)) / LARGEST))
        raise InputError(
            f"a party's noise of {np.max(steps):.3g} grid steps is more than 2^18, the most that can be drawn: lower "
            f"exchange.fraction_bits to {exchange.fraction_bits - less}"
        )
    rest = exchange.terms.present - honest
    others = f" and what any {rest} of the {exchange.parties} parties know" if rest else ""
    return Claim(
        f"central, at least {honest} honest parties",
        f"sees the opened sums{others}, and every record but one; not against who sees a party's own message",
        account([event], delta),
    )


def coarse_grid(
    algorithm: Algorithm, cfg: Config, places: Place, honest: int, exchange: SecretSum
) -> str | None:  # fmt: skip
    """By how much rounding to the sum's grid enlarges the noise of a budget for opened sums, where that is much.

    A message is rounded before it is summed, which lets one record move it by √dim steps more.
    """
    event, bits = central_event(algorithm, cfg, places, honest, exchange.fraction_bits), exchange.fraction_bits
    shift, steps = np.asarray(event.sensitivity), float(np.max(np.asarray(event.sigma))) / math.sqrt(honest)
    times = float(np.max(shift / (shift - math.sqrt(places.dim))))
    room = math.floor(math.log2(LARGEST / (steps / times)))
    if times <= COARSE or room < 1:
        return None
    return (
        f"exchange.fraction_bits = {bits} is a coarse grid: rounding to it makes the noise {times:.2g} times as large "
        f"as it need be; {min(bits + room, FRACTION_BITS)} would do"
    )
