"""What parties of a secret sum agree on beforehand (`SumTerms`), what a round of it takes, and what is opened.

Three know them: deployed parties, on any graph and with drop-outs (`coterie.sums`); parties of one process, under
coupled problems and fair classifiers (`coterie.exchange.additive`); and the simulator, which adds the words that
parties would open (`coterie.exchange.choice`).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from coterie.errors import InputError
from coterie.exchange.fixed_point import FixedPoint, Words
from coterie.exchange.statement import Claim, Statement
from coterie.sums.terms import BATCH, spares_for

__all__ = ["Opened", "SumTerms", "bytes_per_round"]


@dataclass(frozen=True, eq=False)
class Opened:
    """An opened sum: as numbers, and as the words that were added."""

    values: NDArray[np.float64]
    words: Words

    @property
    def steps(self) -> NDArray[np.int64]:
        """The sum in whole grid steps."""
        return self.words.view(np.int64)


@dataclass(frozen=True)
class SumTerms:
    """What all parties of a sum agree on: how numbers become words, how many are honest, how many may be missing.

    `honest` h: at most N − h parties pool what they know (None: all but two). `threshold` t: so many must answer (None:
    everybody). Two sets of t parties share 2t − N of them; where that is more than the colluders, an honest one is
    among them, and no two sums are opened in one round. `retries`: masked vectors beyond one per round that a party
    sends in a whole run at most. `shared`: whether noise is made for the opened sum, in layers, or for every message.

    >>> terms = SumTerms(FixedPoint(parties=20), honest=11, threshold=15)
    >>> terms.colluders, terms.quorum, terms.dropouts, terms.levels
    (9, 15, 5, (0, 1, 2, 4, 5))
    """

    code: FixedPoint
    honest: int | None = None
    threshold: int | None = None
    retries: int = 0
    shared: bool = False

    def __post_init__(self) -> None:
        n, t, c = self.parties, self.threshold, self.colluders
        if n < 3:
            raise InputError(
                f"a secret sum needs at least 3 parties (2 honest ones and somebody to hide from), got {n}"
            )
        if not 0 <= c <= n - 2:
            raise InputError(f"exchange.honest must be in 2..{n} for {n} parties, got {self.honest}")
        if t is not None and self.honest is None:
            raise InputError(
                f"exchange.threshold = {t} needs exchange.honest: how many may collude decides how many must answer"
            )
        if t is not None and not (2 * t > n + c and t <= n):
            raise InputError(
                f"exchange.threshold must be in {(n + c) // 2 + 1}..{n} for {n} parties of whom {c} may collude (twice "
                f"the threshold exceeds parties and colluders together), got {t}"
            )

    @property
    def parties(self) -> int:
        """How many there are."""
        return self.code.parties

    @property
    def colluders(self) -> int:
        """c: how many parties may pool what they see without learning more than the sum of the others."""
        return self.parties - (2 if self.honest is None else self.honest)

    @property
    def quorum(self) -> int:
        """t: how many must answer."""
        return self.parties if self.threshold is None else self.threshold

    @property
    def dropouts(self) -> int:
        """D: how many may be missing from a sum."""
        return self.parties - self.quorum

    @property
    def levels(self) -> tuple[int, ...]:
        """Numbers of drop-outs for which the shared noise that is left is exact: all up to four, powers of two beyond.

        Noise comes in as many layers, of which those above the level reached are taken off again.
        """
        most = self.dropouts
        if most <= 4:
            return tuple(range(most + 1))
        return (0, *(1 << k for k in range(most.bit_length()) if 1 << k < most), most)

    @property
    def parts(self) -> tuple[float, ...]:
        """Variance of each of a party's layers of shared noise, in units of what the honest ones must leave.

        >>> [round(1 / p) for p in SumTerms(FixedPoint(parties=10), honest=8, threshold=7, shared=True).parts]
        [8, 56, 42, 30]
        """
        honest = self.parties - self.colluders
        kept = [1 / (honest - level) for level in (self.levels if self.shared else (0,))]
        return (kept[0], *(after - before for before, after in pairwise(kept)))

    @property
    def draws(self) -> int:
        """How many draws of noise all parties together add to one coordinate."""
        return self.parties * len(self.parts)

    @property
    def heard(self) -> int:
        """How many honest parties' noise is in an opened sum at least; layers of shared noise stand in for the rest."""
        return self.parties - self.colluders - (0 if self.shared else self.dropouts)

    def left(self, dropped: int) -> float:
        """Noise variance in an opened sum when so many are missing, in units of what the honest ones must leave.

        >>> terms = SumTerms(FixedPoint(parties=10), honest=8, threshold=7)
        >>> [round(terms.left(r), 4) for r in range(4)]
        [1.25, 1.2857, 1.3333, 1.4]
        """
        level = next(k for k in self.levels if k >= dropped)
        return (self.parties - dropped) / (self.parties - self.colluders - level)

    def statement(self, claim: Claim | None = None, *, paid: str | None = None) -> Statement:
        """What is revealed to whom. `paid` says what guarantee the summed messages carry themselves, if any."""
        c, n, t = self.colluders, self.parties, self.quorum
        sums = "their own vectors and, each round, the sum of all the others'"
        cost = "The opened sums are exact: they are not private" if paid is None else f"The opened sums carry {paid}"
        assumptions = [
            "parties follow the protocol",
            "public keys are authentic",
            f"{n - c} honest parties at least: the more collude, the fewer share the sum that is revealed",
        ]
        kind = "secret-sum"
        if self.dropouts:
            kind, sums = f"{kind} with threshold {t}", f"{sums} who answered"
            assumptions += [
                f"a round needs {t} of {n} parties: below that nothing is opened",
                f"the {c} are counted among those who answered; who did not answer may help them",
            ]
        return Statement(kind, c, 0.0, sums, cost, tuple(assumptions), claim)


def bytes_per_round(terms: SumTerms, size: int, rounds: int = BATCH) -> float:
    """Mean bytes that a deployed party makes in a round for a sum of `size` numbers, a leader's part spread over all.

    Frames have 112 bytes of header and signature. Secrets are dealt ahead for `rounds` rounds and `spares_for` further
    attempts at once. What a party passes on for others comes on top.

    >>> round(bytes_per_round(SumTerms(FixedPoint(parties=20), honest=11, threshold=15, shared=True), 142))
    5856
    """
    n, t, bits = terms.parties, terms.quorum, (terms.parties + 7) // 8
    slots, kinds = rounds + spares_for(n), len(terms.parts) + 1
    batch = 144 + 112 + 32 + 64 * slots + 32 * n + (n - 1) * (128 + 17 * kinds * slots) + 112 + 32 * n
    roster = 112 + 4 + bits + 32 * n + n * (116 + 32 * n) + 144 + bits + 80 * t + 160 * (n - 1)
    each = (176 + 176 + bits + 8 * size + 160 + 144 + 17 * n) * (n - 1) / n  # a leader sends nothing to itself
    lead = 112 + n + 144 + bits + 96 * n + 8 * size + 144 + bits + 80 * n + 144 + 16 * n
    return (batch + roster / n) / rounds + each + lead / n
