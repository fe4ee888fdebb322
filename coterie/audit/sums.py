r"""Attack on opened sums: what colluding parties make of the frames and stores of deployed ones that share their noise.

Two worlds that differ in one record of party 0, as in `coterie.audit.wire`; everybody else stands far away, where both
candidates saturate the sensitivity. Nothing of the protocol is imitated: `SharedParty` computes the message, and real
`SumParty`s mask, commit, add, vote and open it. All runs of both worlds lie side by side in one long vector, so that
one round of the protocol serves them all; every number has noise of its own.

- **main**: c parties that answer pool what they drew, what they hold and the opened totals. They take off their own
  vectors and layers, the other honest parties' vectors (they know every record but one), and whatever of the honest
  parties' noise the product's own code draws again from secrets that were given out. Left are party 0's message and the
  noise of N − r − c parties, r of whom may be missing, differently from round to round.
- **local**: all N − 1 others do. They take every mask off party 0's words, and all noise that follows from a shared
  seed. Left are its message and layer 0.

What is left is whole numbers, and the likelihood is exact: discrete Gaussian noise of the variance v that was not taken
off, log P_w = −Σ (k − r_w)²/2v, where r_w is the integer that a world's message starts from. Sums of layers are within
log-ratio 1e-35 of that law.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from coterie.audit import bounds
from coterie.audit.coalition import Rest, local_rest, main_rest
from coterie.audit.sum_hall import SumHall
from coterie.audit.sum_worlds import SumWorlds, sum_worlds, sums_of_plan
from coterie.audit.transcripts import IMPOSSIBLE
from coterie.audit.wire import WireVerdict
from coterie.errors import InputError
from coterie.sums.terms import SharedTerms
from coterie.sums.words import to_signed

__all__ = ["Heard", "audit_sums", "listen", "sum_worlds", "sums_of_plan"]

PIECE = 20_000  # runs of both worlds that lie side by side


@dataclass
class Heard:
    """Log-likelihood ratios of runs, by world: (main, local), larger = more like the second world."""

    main: NDArray[np.float64]
    local: NDArray[np.float64]
    missing: list[int] = field(default_factory=list)  # from each round's sum


def listen(worlds: SumWorlds, runs: int, drops: Sequence[int] | None = None) -> Heard:
    """Play both worlds `runs` times, and score each run from the seats of c colluders, and of everybody else.

    `drops`: how many parties are missing in each round, over and over; by default each level of the noise in turn.
    """
    hall = SumHall(worlds, runs)
    terms, crowd = hall.terms, worlds.crowd
    drops = terms.layers.levels if drops is None else drops
    colluders = range(terms.parties - terms.colluders, terms.parties)
    both = 2 * runs
    carry = [crowd.begin(both), crowd.begin(both)]
    scores = {"main": np.zeros(both), "local": np.zeros(both)}
    heard = Heard(scores["main"], scores["local"])
    other = np.tile(worlds.point, both)
    for t in range(worlds.rounds):
        carry = [crowd.utter(world, t, carry[world]) for world in (0, 1)]
        own = np.concatenate([carry[0].value[:runs], carry[1].value[runs:]])
        vectors = [own.ravel(), *[other] * (terms.parties - 1)]
        dropped = drops[t % len(drops)]
        hall.open(t, vectors, range(1, 1 + dropped))
        seat = hall.seats[-1]
        outcome = seat.outcome(t)
        assert outcome is not None
        heard.missing.append(terms.parties - len(outcome.members))
        found = {"main": main_rest(hall, t, colluders, vectors), "local": local_rest(hall, t)}
        for name, rest in found.items():
            likely = [_likely(rest, carry[world].value, terms) for world in (0, 1)]
            scores[name] += likely[1] - likely[0]
        total = terms.code.decode(outcome.total).reshape(both, worlds.dim)
        carry = [crowd.told(carry[world], total, len(outcome.members)) for world in (0, 1)]
    return heard


def _likely(rest: Rest, messages: NDArray[np.float64], terms: SharedTerms) -> NDArray[np.float64]:
    """Log-likelihood, but for a constant, of what is left, if these messages are in it."""
    noise = rest.numbers.reshape(messages.shape) - to_signed(terms.code.encode(messages))
    if rest.variance == 0:
        return np.where(np.any(noise != 0, axis=1), -IMPOSSIBLE, 0.0)
    return np.asarray(np.sum(-(noise.astype(np.float64) ** 2), axis=1) / (2 * rest.variance))


def audit_sums(
    worlds: SumWorlds, trials: int = 1000, *, confidence: float = 0.99, drops: Sequence[int] | None = None
) -> tuple[WireVerdict, WireVerdict]:
    """Attack a deployed sum with `trials` runs per world: the main claim, and the local one."""
    if trials < 1:
        raise InputError(f"trials must be >= 1, got {trials}")
    scores: dict[str, list[list[NDArray[np.float64]]]] = {"main": [[], []], "local": [[], []]}
    for low in range(0, trials, PIECE):
        runs = min(PIECE, trials - low)
        heard = listen(worlds, runs, drops)
        for name, found in (("main", heard.main), ("local", heard.local)):
            scores[name][0].append(found[:runs])
            scores[name][1].append(found[runs:])
    verdicts = []
    for name, claim in (("main", worlds.main), ("local", worlds.local)):
        first, second = (np.concatenate(part) for part in scores[name])
        mu_low = bounds.mu_bound(bounds.rates(first, second, 0.0, confidence))
        verdicts.append(
            WireVerdict(
                f"{worlds.slug}, {claim.words}",
                claim.epsilon,
                worlds.delta,
                claim.mu,
                mu_low,
                bounds.epsilon_of_mu(mu_low, worlds.delta),
                confidence,
                trials,
                mu_low > claim.mu,
                scores=(first, second),
            )
        )
    return verdicts[0], verdicts[1]
