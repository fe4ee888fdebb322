"""What a run with secret sums costs: the opened sums if enough parties are honest, and one party's vectors if none is.

Two claims, two adversaries. **Main**: any c of those who answered, together with all who did not, see the opened sums
and what they know themselves; each round's sum is one Gaussian release with the noise of all honest parties on it.
**Local**: everybody else colludes and strips a party's masked vector down to its own part of the noise; one Gaussian
release for every masked vector that left, one per round and `retries` more at most.

The main claim is valid for algorithms that read only the total (`READS = "total"`), with mixing weights 1/N: then all
that an agent does later is a function of opened sums, its records and fresh noise. How noise on the grid becomes a
Gaussian release, and what rounding and float64 add, is in `coterie.exchange.sum_noise`.
"""

from __future__ import annotations

import math

import numpy as np

from coterie.algorithms._charges import alike, run_events
from coterie.algorithms.base import Algorithm, Config, Place
from coterie.errors import InputError
from coterie.exchange.statement import EVERY_MESSAGE, Claim
from coterie.exchange.sum_noise import FLOAT_ERROR, FLOAT_STEPS, SMOOTHING, opened_event
from coterie.exchange.sums import SumTerms
from coterie.privacy.accountants import account
from coterie.privacy.events import Event, Gaussian

__all__ = [
    "EVERYBODY_ELSE",
    "LARGEST",
    "cap_of",
    "cap_words",
    "capped",
    "central_claim",
    "central_words",
    "check_grid",
    "coarse_grid",
    "finest_grid",
    "local_words",
    "own_events",
    "released",
    "shared_events",
]

LARGEST = 2.0**18
"""Largest noise of one party, in grid steps, that can be drawn by table."""

EVERYBODY_ELSE = "is all other parties together: they strip every vector of a party to its own part of the noise"
"""The adversary of the local claim beside shared noise."""

Released = tuple[np.ndarray, np.ndarray, np.ndarray]

COARSE = 1.05
"""How much larger than need be the noise may be because of the grid, before it is said."""


def released(algorithm: Algorithm, cfg: Config, places: Place, rounds: int | None = None) -> Released:
    """Sensitivity, noise and number of every agent's messages in every round, in their own units."""
    if algorithm.reads != "total":
        raise InputError(
            f"{algorithm.slug} keeps its own messages, so its opened sums have no claim of their own: remove "
            "exchange.honest, or choose an algorithm that reads only the total"
        )
    if not np.allclose(places.self_weight, 1 / places.agents, rtol=1e-9):
        raise InputError("a claim for opened sums needs mixing weights 1/N: use graph.mixing = 'uniform'")
    shape = (places.agents, places.rounds if rounds is None else rounds)
    shift, sigma, times = np.zeros(shape), np.zeros(shape), np.zeros(shape, int)
    for members, place in alike(places, np.asarray(places.noise)):
        event = _gaussian(algorithm, cfg, place, rounds)
        shift[members], sigma[members], times[members] = event.sensitivity, event.sigma, event.times
    return shift, sigma, times


def _gaussian(algorithm: Algorithm, cfg: Config, place: Place, rounds: int | None) -> Gaussian:
    """What an agent's messages cost, where that is one Gaussian a round."""
    found = run_events(algorithm, cfg, place, rounds)
    if len(found) != 1 or type(found[0]) is not Gaussian:
        kinds = " and ".join(dict.fromkeys(type(event).__name__ for event in found)) or "none"
        raise InputError(
            f"a claim for opened sums needs Gaussian noise on all records, {algorithm.slug} has {kinds}: remove "
            "exchange.honest and exchange.noise, or choose dp-dsgd"
        )
    return found[0]


def shared_events(
    algorithm: Algorithm, cfg: Config, places: Place, terms: SumTerms, rounds: int | None = None
) -> tuple[Gaussian, Gaussian]:
    """(main, local): the first `rounds` (all) as events with a round axis, each for the agent that it costs most.

    Main: an agent's own noise is in the sum, and at least that of the others who add least, as many as are honest and
    answer. Local: its own part alone, once per round (`capped` adds what may be sent again).
    """
    shift, sigma, times = released(algorithm, cfg, places, rounds)
    honest, dim, scale = terms.heard, places.dim, 2.0**terms.code.fraction_bits
    least = SMOOTHING * math.sqrt(terms.parts[0] / min(terms.parts))  # for the smallest layer to have enough
    kinds = np.unique(np.concatenate([shift, sigma, times], axis=1), axis=0, return_index=True)[1]
    main, local = [], []
    for owner in kinds:
        others = np.sort(np.delete(sigma, owner, axis=0), axis=0)[: honest - 1]
        heard = np.concatenate([sigma[[owner]], others])
        enough = heard.min(0) * scale >= least  # of each party: the distances are computed for that
        deviation = np.where(enough, np.sqrt(np.mean(heard**2, axis=0)), 0.0)
        paid = shift[owner], deviation, honest, terms.code.fraction_bits, dim, times[owner]
        main.append(opened_event(*paid, draws=terms.draws, error=FLOAT_ERROR))
        local.append(_own(terms, shift[owner], sigma[owner], dim, times[owner]))
    return max(main, key=_size), max(local, key=_size)


def _own(terms: SumTerms, shift: np.ndarray, sigma: np.ndarray, dim: int, times: np.ndarray) -> Gaussian:
    bits = terms.code.fraction_bits
    return opened_event(shift, sigma, 1, bits, dim, times, draws=terms.draws, error=FLOAT_ERROR)


def _size(event: Gaussian) -> float:
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.sum(np.where(event.times > 0, (event.sensitivity / event.sigma) ** 2, 0.0)))


def own_events(
    algorithm: Algorithm, cfg: Config, place: Place, rounds: int | None = None, *, terms: SumTerms | None = None
) -> list[Event]:
    """What one agent's messages cost if everybody else sees them: with shared noise, its own part on the grid."""
    if terms is None or not terms.shared:
        return run_events(algorithm, cfg, place, rounds)
    event = _gaussian(algorithm, cfg, place, rounds)
    shape = (place.rounds if rounds is None else rounds,)
    shift, sigma, times = (np.broadcast_to(x, shape) for x in (event.sensitivity, event.sigma, event.times))
    return [_own(terms, shift, sigma, place.dim, times)]


def capped(events: list[Event], retries: int) -> list[Event]:
    """A party's events with so many vectors more, each at the price of the round that costs most."""
    if not retries:
        return events
    (event,) = events
    assert isinstance(event, Gaussian)
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = np.where(event.times > 0, event.sensitivity / event.sigma, 0.0)
    worst = int(np.argmax(rate))
    again = Gaussian(event.sensitivity[worst], event.sigma[worst], times=retries, tv=event.tv)
    return [event, again]


def finest_grid(terms: SumTerms, sigma: np.ndarray, times: np.ndarray) -> int:
    """The most fraction bits at which every party's noise can be drawn and float64 computes messages well enough."""
    noise = float(np.max(np.where(times > 0, sigma, 0.0)))
    fine = math.floor(math.log2(FLOAT_STEPS / terms.code.bound))
    bits = fine if noise == 0 else min(fine, math.floor(math.log2(LARGEST / noise)))
    if bits < 0:
        raise InputError(
            f"a party's noise of {noise:.3g} or exchange.bound = {terms.code.bound:g} is too large for any grid of a "
            "secret sum: raise privacy.epsilon, or lower the bound"
        )
    return bits


def check_grid(terms: SumTerms, sigma: np.ndarray) -> None:
    """Refuse a grid on which noise cannot be drawn, or on which float64 does not compute messages well enough."""
    code = terms.code
    if code.bound * 2.0**code.fraction_bits > FLOAT_STEPS:
        raise InputError(
            f"exchange.bound = {code.bound:g} is 2^{math.log2(code.bound) + code.fraction_bits:.2f} steps of "
            f"2^-{code.fraction_bits}, more than 2^{math.log2(FLOAT_STEPS):.0f}: float64 would not keep a message's "
            "error below 1/32 of a step; lower exchange.bound or fraction_bits, or leave fraction_bits out"
        )
    steps = float(np.max(sigma)) * 2.0**code.fraction_bits
    if steps > LARGEST:
        less = math.ceil(math.log2(steps / LARGEST))
        raise InputError(
            f"a party's noise of {steps:.3g} grid steps is more than 2^18, the most that can be drawn: lower "
            f"exchange.fraction_bits to {code.fraction_bits - less}, or leave it out"
        )


def central_claim(algorithm: Algorithm, cfg: Config, places: Place, terms: SumTerms, delta: float) -> Claim:
    """The account of a run's opened sums."""
    main, _ = shared_events(algorithm, cfg, places, terms)
    check_grid(terms, released(algorithm, cfg, places)[1])
    return Claim(*central_words(terms), account([main], delta))


def central_words(terms: SumTerms) -> tuple[str, str]:
    """The name of the main claim and its adversary."""
    c, n = terms.colluders, terms.parties
    others = f", and all that any {c} of the {n} parties know" if c else ""
    if c and terms.dropouts:
        others = f", and all that any {c} of the parties who answered know, together with all who did not"
    name = f"central, at least {n - c} honest parties"
    return name, f"sees the opened sums{others}, and every record but one; not against who sees a party's own message"


def local_words(*, shared: bool) -> tuple[str, str]:
    """The name of the local claim and its adversary."""
    if not shared:
        return "local, every message seen", EVERY_MESSAGE
    return "local, everybody else colludes", EVERYBODY_ELSE


def cap_words(terms: SumTerms) -> tuple[str, str]:
    """The same if as many vectors are sent again as a party may send."""
    name, adversary = local_words(shared=True)
    return f"{name}, {terms.retries} vectors sent again", adversary


def cap_of(algorithm: Algorithm, cfg: Config, places: Place, terms: SumTerms | None, delta: float) -> Claim | None:
    """The local claim if as many vectors are sent again as the plan lets a party send, with shared noise."""
    if terms is None or not terms.shared:
        return None
    _, local = shared_events(algorithm, cfg, places, terms)
    return Claim(*cap_words(terms), account(capped([local], terms.retries), delta))


def coarse_grid(algorithm: Algorithm, cfg: Config, places: Place, terms: SumTerms) -> str | None:
    """By how much rounding to the sum's grid enlarges the noise of a budget for opened sums, where that is much.

    A message is rounded before it is summed, which lets one record move it by √dim steps more.
    """
    (main, _), bits = shared_events(algorithm, cfg, places, terms), terms.code.fraction_bits
    shift, (_, sigma, paid) = np.asarray(main.sensitivity)[np.asarray(main.times) > 0], released(algorithm, cfg, places)
    times = float(np.max(shift / (shift - (1 + FLOAT_ERROR) * math.sqrt(places.dim))))
    finest = finest_grid(terms, sigma / times, paid)
    if times <= COARSE or finest <= bits:
        return None
    return (
        f"exchange.fraction_bits = {bits} is a coarse grid: rounding to it makes the noise {times:.2g} times as large "
        f"as it need be; {finest} would do, and so does leaving it out"
    )
