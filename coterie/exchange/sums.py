"""The one interface of secret sums: what is agreed, what one party says and hears, what is opened.

A sum is opened by `Member`s, one at each party. A member has no network, no clock, no cipher and no ledger:

    share(number, words)               sum `number` begins: the first parts of what this party says
    take(number, sender, kind, body)   a part of somebody else's arrived, or `Rejected`, which changes nothing
    missing()                          who has not answered in this message round
    proceed()                          whoever is missing now is left out: the next parts, or `Aborted`
    result()                           after the last message round: the sum and whose words are in it, or `Aborted`

What carries the parts is somebody else's business: nothing at all inside one process (`coterie.exchange.members`, under
coupled problems and fair classifiers), sealed envelopes along routes (`coterie.exchange.protocol`), signed frames and a
ledger (`coterie.deploy.shared`). A part for one receiver must reach it unread, a part for everybody must be authentic.
A simulation adds the words that members would open (`coterie.exchange.choice`).

`SumTerms` is what everybody knows beforehand: the encoding, how many must answer, what is revealed to how many. Callers
know terms and `Opened`; which members there are is decided in `coterie.exchange.members` alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import numpy as np
from numpy.typing import NDArray

from coterie.errors import InputError
from coterie.exchange.fixed_point import FixedPoint, Words
from coterie.exchange.statement import Claim, Statement
from coterie.exchange.wire import Kind, Rejected
from coterie.sums.terms import BATCH, spares_for

__all__ = ["Aborted", "Kept", "Member", "Opened", "SumPart", "SumTerms", "bytes_per_round"]


class Aborted(Exception):
    """A sum that cannot be opened: who is missing, in one line. Nothing was opened."""


@dataclass(frozen=True)
class SumPart:
    """Something a party says in a message round: to one receiver in confidence (if it is a share), or to
    everybody (None)."""

    kind: Kind
    receiver: int | None
    body: bytes


@dataclass(frozen=True, eq=False)
class Opened:
    """An opened sum, and whose vectors are in it."""

    values: NDArray[np.float64]
    words: Words
    included: tuple[int, ...]

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
            raise InputError(f"exchange.honest must be in 2..{n} for {n} agents, got {self.honest}")
        if t is not None and self.honest is None:
            raise InputError(
                f"exchange.threshold = {t} needs exchange.honest: how many may collude decides how many must answer"
            )
        if t is not None and not (2 * t > n + c and t <= n):
            raise InputError(
                f"exchange.threshold must be in {(n + c) // 2 + 1}..{n} for {n} agents of whom {c} may collude (twice "
                f"the threshold exceeds agents and colluders together), got {t}"
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


class Member(ABC):
    """One party's half of sums of `size` words, one after the other: what all protocols have in common.

    Numbers of sums only go up, so no share is used twice. Parts may arrive early, by one sum at most.
    """

    def __init__(self, terms: SumTerms, me: int, size: int) -> None:
        self.terms, self.me, self.size, self.number = terms, me, size, -1
        self.others = [j for j in range(terms.parties) if j != me]
        self._stage = 0  # how many message rounds of this sum the party has spoken in
        self._heard: dict[tuple[int, Kind], dict[int, bytes]] = {}

    @property
    @abstractmethod
    def kinds(self) -> tuple[Kind, ...]:
        """What is said in each message round of a sum."""

    @property
    def done(self) -> bool:
        """Whether the party has said all that there is to say."""
        return self._stage == len(self.kinds)

    def share(self, number: int, words: Words) -> list[SumPart]:
        """The first message round of a sum of these words."""
        if number <= self.number:
            raise InputError(f"round {number} was started before (the last one is {self.number}): shares are used once")
        if words.shape != (self.size,):
            raise InputError(f"expected {self.size} numbers to sum, got shape {words.shape}")
        early = {key: got for key, got in self._heard.items() if key[0] >= number}
        self.number, self._stage, self._heard = number, 1, early
        parts = self._share(words)
        for (when, kind), got in early.items():
            if when == number:
                got.update({sender: self._keep(kind, body) for sender, body in got.items()})
        return parts

    def expects(self, number: int, sender: int, kind: Kind) -> None:
        """Whether parts of this sum are taken now, which a carrier may ask before it opens one; else `Rejected`."""
        if not max(self.number, 0) <= number <= self.number + 1:
            raise Rejected(f"party {sender} sent a {kind.name} of round {number}, this party is in round {self.number}")

    def take(self, number: int, sender: int, kind: Kind, body: bytes) -> None:
        """A part that arrived, from a sender that its carrier vouches for; `Rejected` where it does not belong."""
        self.expects(number, sender, kind)
        got = self._heard.setdefault((number, kind), {})
        if sender in got:
            raise Rejected(f"a second {kind.name} of party {sender} in round {number}")
        self._check(kind, sender, body)
        got[sender] = self._keep(kind, body) if number == self.number else body

    def missing(self) -> list[int]:
        """Who has not answered in the message round that this party spoke in last."""
        return [j for j in self.others if j not in self._got(self.kinds[self._stage - 1])]

    def proceed(self) -> list[SumPart]:
        """The next message round, without those who are missing; `Aborted` if they cannot be missed."""
        if not 0 < self._stage < len(self.kinds):
            raise InputError(f"party {self.me} has no message round to go on to in round {self.number}")
        parts = self._next(self.kinds[self._stage])
        self._stage += 1
        return parts

    def result(self) -> Opened:
        """The sum, or `Aborted`."""
        if not self.done:
            raise InputError(f"party {self.me} has not finished round {self.number}: there is no result yet")
        return self._result()

    # -- of each protocol ----------------------------------------------------------------------------------------------

    @abstractmethod
    def _share(self, words: Words) -> list[SumPart]: ...

    @abstractmethod
    def _next(self, kind: Kind) -> list[SumPart]: ...

    @abstractmethod
    def _result(self) -> Opened: ...

    @abstractmethod
    def _check(self, kind: Kind, sender: int, body: bytes) -> None: ...

    def _keep(self, kind: Kind, body: bytes) -> bytes:
        """What must be kept of a part of the sum under way."""
        return body

    def _got(self, kind: Kind) -> dict[int, bytes]:
        return self._heard.get((self.number, kind), {})

    def _length(self, sender: int, kind: Kind, body: bytes, expected: int) -> None:
        if len(body) != expected:
            raise Rejected(f"a {kind.name} of party {sender} has {len(body)} bytes, expected {expected}")


class Kept(Member):
    """A member that a ledger can keep: its state is stored before what it said leaves, and it goes on from there."""

    @property
    @abstractmethod
    def state(self) -> tuple[Words, ...]:
        """All that it needs to go on, in arrays of fixed length."""

    @abstractmethod
    def body_bytes(self, kind: Kind) -> int:
        """Length of a part."""

    @abstractmethod
    def resume(self, number: int, kind: Kind, state: tuple[Words, ...], answered: Iterable[int] = ()) -> Self:
        """This member as it was when it had spoken in the message round of `kind` and these had answered."""
