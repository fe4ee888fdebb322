"""The one interface of secret sums: what is agreed, what one party says and hears, what is opened.

A sum is opened by `Member`s, one at each party. A member has no network, no clock, no cipher and no ledger:

    share(number, words)               sum `number` begins: the first parts of what this party says
    take(number, sender, kind, body)   a part of somebody else's arrived, or `Rejected`, which changes nothing
    missing()                          who has not answered in this message round
    proceed()                          whoever is missing now is left out: the next parts, or `Aborted`
    result()                           after the last message round: the sum and whose words are in it, or `Aborted`

What carries the parts is somebody else's business: nothing at all inside one process (`coterie.exchange.members`, under
coupled problems and fair classifiers), sealed envelopes along routes (`coterie.exchange.protocol`), signed frames and a
ledger (`coterie.deploy.secret`). A part for one receiver must reach it unread, a part for everybody must be authentic.
A simulation adds the words that members would open (`coterie.exchange.choice`).

`SumTerms` is what everybody knows beforehand: the encoding, how many must answer, what is revealed to how many. Callers
know terms and `Opened`; which members there are is decided in `coterie.exchange.members` alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from coterie.errors import InputError
from coterie.exchange.fixed_point import FixedPoint, Words
from coterie.exchange.statement import Claim, Statement
from coterie.exchange.wire import Kind, Rejected, additive_bytes, threshold_bytes

__all__ = ["Aborted", "Kept", "Member", "Opened", "SumPart", "SumTerms"]


class Aborted(Exception):
    """A sum that cannot be opened: who is missing, in one line. Nothing was opened."""


@dataclass(frozen=True)
class SumPart:
    """Something a party says in a message round: to one receiver in confidence (if its kind is addressed), or to
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
    """What all parties of a sum agree on: how numbers become words, and how many may be missing (None: nobody)."""

    code: FixedPoint
    threshold: int | None = None

    def __post_init__(self) -> None:
        n, t = self.parties, self.threshold
        if n < 3:
            raise InputError(
                f"a secret sum needs at least 3 parties (2 honest ones and somebody to hide from), got {n}"
            )
        if t is not None and (t > n or self.tolerated < 1):
            raise InputError(f"threshold must be in {max(3, (n + 3) // 2)}..{n} for {n} parties, got {t}")

    @property
    def parties(self) -> int:
        """How many there are."""
        return self.code.parties

    @property
    def present(self) -> int:
        """How many vectors a sum holds at least."""
        return self.parties if self.threshold is None else self.threshold

    @property
    def tolerated(self) -> int:
        """How many parties may pool what they see without learning more than the sum of the others.

        Without a threshold N − 2. With one, colluders must not recover a secret alone (fewer than t), leave two honest
        contributions in a sum of t (at most t − 2), and not profit when honest parties disagree about who survived:
        both secrets of one owner need t shares each, of which colluders hold both and others give one, so fewer than
        2t − N.
        """
        n, t = self.parties, self.threshold
        return n - 2 if t is None else min(t - 2, 2 * t - n - 1)

    @property
    def message_rounds(self) -> int:
        """How often everybody speaks for one sum."""
        return 2 if self.threshold is None else 3

    def bytes_each(self, size: int) -> int:
        """What a party sends to one other for a sum of `size` numbers, if nobody is lost."""
        return additive_bytes(size) if self.threshold is None else threshold_bytes(size, self.parties)

    def statement(self, claim: Claim | None = None, *, paid: str | None = None) -> Statement:
        """What is revealed to whom. `paid` says what guarantee the summed messages carry themselves, if any."""
        sums = "their own vectors and, each round, the sum of all the others'"
        cost = "The opened sums are exact: they are not private" if paid is None else f"The opened sums carry {paid}"
        assumptions = [
            "parties follow the protocol",
            "public keys are authentic",
            "two honest parties at least: with N − 1 colluders everything is open",
            "with exactly two honest parties their pair sum is what is revealed",
        ]
        kind = "secret-sum"
        if self.threshold is not None:
            kind, sums = f"{kind} with threshold {self.threshold}", f"{sums} who answered"
            assumptions += [
                f"a round needs {self.threshold} of {self.parties} parties; below that it aborts and nothing is opened",
                "the stated number holds even if parties disagree about who answered",
            ]
        return Statement(kind, self.tolerated, 0.0, sums, cost, tuple(assumptions), claim)


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
