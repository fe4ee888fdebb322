"""`ss-sum`: the parties of a secret-shared sum as objects with explicit messages, for a simulator or a network.

Additive shares over Z_2^64 (Xiao, Ye, Devadas, Alg. 3, with what it left open): party i draws a share s_ij for every
other j, keeps s_ii = e_i − Σ_j s_ij, and sends s_ij to j alone (first message round). Then it sends ŝ_i = Σ_j s_ji to
everybody (second message round), and Σ_i ŝ_i = Σ_i e_i. A share is d uniform words, or a fresh 32-byte seed that both
ends expand with ChaCha20: the same view for whoever cannot break the cipher, and 32 bytes instead of 8d.

A round that lacks a party's message is aborted; `coterie.exchange.masks` has parties that survive that.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from numpy.typing import ArrayLike, NDArray

from coterie.errors import InputError
from coterie.exchange.channels import Link
from coterie.exchange.fixed_point import FixedPoint, Words
from coterie.exchange.wire import SEED_BYTES, Envelope, Kind, Rejected
from coterie.privacy.secure import uniform_bits

__all__ = ["Aborted", "AdditiveParty", "Opened", "Party", "expand"]


class Aborted(Exception):
    """A round that cannot be finished: who is missing, in one line. Nothing was opened."""


@dataclass(frozen=True, eq=False)
class Opened:
    """An opened sum, and whose vectors are in it."""

    values: NDArray[np.float64]
    words: Words
    included: tuple[int, ...]


def expand(seed: bytes, size: int) -> Words:
    """`size` words from a seed that is used once: ChaCha20's key stream."""
    stream = Cipher(ChaCha20(seed, bytes(16)), mode=None).encryptor().update(bytes(8 * size))
    return np.frombuffer(stream, "<u8").astype(np.uint64, copy=False)


class Party(ABC):
    """What all parties of a sum have in common: rounds, an inbox, and what may not enter it.

    One round is `share` → deliver → `sums` → deliver (→ `unmask` → deliver, with a threshold) → `result`. Envelopes may
    arrive early, by one round at most; whatever does not belong is `Rejected` and changes nothing.
    """

    def __init__(self, link: Link, code: FixedPoint, size: int) -> None:
        if code.parties != link.parties:
            raise InputError(f"the encoding is for {code.parties} parties, the roster has {link.parties}")
        if link.parties < 3:
            raise InputError(
                f"a secret sum needs at least 3 parties (2 honest ones and somebody to hide from), got {link.parties}"
            )
        self.link, self.code, self.size, self.round = link, code, size, -1
        self.stage: Literal["idle", "shared", "summed", "unmasked"] = "idle"
        self._inbox: dict[tuple[int, Kind], dict[int, bytes]] = {}

    @property
    def me(self) -> int:
        """This party's number in the plan."""
        return self.link.me

    @property
    def others(self) -> list[int]:
        """Everybody else."""
        return [j for j in range(self.link.parties) if j != self.me]

    def share(self, number: int, values: ArrayLike, noise: NDArray[np.int64] | None = None) -> list[Envelope]:
        """First message round: `values` (d numbers within the bound) split among all; `noise` in grid steps is added.

        Round numbers only go up, so shares are never used twice.
        """
        if number <= self.round:
            raise InputError(f"round {number} was started before (the last one is {self.round}): shares are used once")
        words = self.code.encode(values)
        if words.shape != (self.size,):
            raise InputError(f"expected {self.size} numbers to sum, got shape {words.shape}")
        if noise is not None:
            if np.abs(noise).max(initial=0) > self.code.reach:
                raise InputError(
                    f"noise of {np.abs(noise).max()} steps, but the encoding has room for {self.code.reach}"
                )
            words = words + noise.astype(np.int64).view(np.uint64)
        self.round, self.stage = number, "shared"
        self._inbox = {key: got for key, got in self._inbox.items() if key[0] >= number}
        return self._share(words)

    def receive(self, envelope: Envelope) -> None:
        """Take an envelope in, or raise `Rejected` with the reason."""
        if not max(self.round, 0) <= envelope.round <= self.round + 1:
            raise Rejected(
                f"party {envelope.sender} sent a {envelope.kind.name} of round {envelope.round}, this party is in "
                f"round {self.round}"
            )
        body = self.link.open(envelope)
        slot = self._inbox.setdefault((envelope.round, envelope.kind), {})
        if envelope.sender in slot:
            raise Rejected(f"a second {envelope.kind.name} of party {envelope.sender} in round {envelope.round}")
        self._check(envelope.kind, envelope.sender, body)
        slot[envelope.sender] = body

    @abstractmethod
    def sums(self) -> list[Envelope]:
        """Second message round: what this party adds to the sum, for everybody."""

    @abstractmethod
    def result(self) -> Opened:
        """The sum, or `Aborted`."""

    @abstractmethod
    def _share(self, words: Words) -> list[Envelope]: ...

    @abstractmethod
    def _check(self, kind: Kind, sender: int, body: bytes) -> None: ...

    def _after(self, stage: str) -> None:
        if self.stage != stage:
            raise InputError(f"party {self.me} has {self.stage} in round {self.round}; this step comes after {stage!r}")

    def _got(self, kind: Kind) -> dict[int, bytes]:
        return self._inbox.get((self.round, kind), {})

    def _seal(self, receiver: int, kind: Kind, body: bytes) -> Envelope:
        return self.link.seal(receiver, self.round, kind, body)

    def _length(self, sender: int, kind: Kind, body: bytes, expected: int) -> None:
        if len(body) != expected:
            raise Rejected(f"a {kind.name} of party {sender} has {len(body)} bytes, expected {expected}")


class AdditiveParty(Party):
    """Everybody must answer in both message rounds; up to N − 2 of the others may pool what they see.

    `seeds`: send shares as seeds (the default) or word by word.
    """

    def __init__(self, link: Link, code: FixedPoint, size: int, *, seeds: bool = True) -> None:
        super().__init__(link, code, size)
        self.seeds = seeds
        self._own = np.zeros(size, np.uint64)

    def sums(self) -> list[Envelope]:
        self._after("shared")
        got = self._all(Kind.SHARE)
        total = self._own.copy()
        for body in got.values():
            total += self._words(body)
        self._own, self.stage = total, "summed"
        return [self._seal(j, Kind.SUM, total.astype("<u8").tobytes()) for j in self.others]

    def result(self) -> Opened:
        self._after("summed")
        total = self._own.copy()
        for body in self._all(Kind.SUM).values():
            total += np.frombuffer(body, "<u8")
        return Opened(self.code.decode(total), total, tuple(range(self.link.parties)))

    def _share(self, words: Words) -> list[Envelope]:
        self._own = words.copy()
        out = []
        for j in self.others:
            body = os.urandom(SEED_BYTES) if self.seeds else uniform_bits(self.size).astype("<u8").tobytes()
            self._own -= self._words(body)
            out.append(self._seal(j, Kind.SHARE, body))
        return out

    def _words(self, body: bytes) -> Words:
        return expand(body, self.size) if self.seeds else np.frombuffer(body, "<u8").astype(np.uint64, copy=False)

    def _check(self, kind: Kind, sender: int, body: bytes) -> None:
        if kind is Kind.UNMASK:
            raise Rejected(f"party {sender} sent an UNMASK, but this sum has no threshold")
        expected = SEED_BYTES if kind is Kind.SHARE and self.seeds else 8 * self.size
        self._length(sender, kind, body, expected)

    def _all(self, kind: Kind) -> dict[int, bytes]:
        got = self._got(kind)
        if missing := ", ".join(str(j) for j in self.others if j not in got):
            raise Aborted(
                f"round {self.round}: no {kind.name} from {missing}; without a threshold everybody must answer, so the "
                "round is aborted and nothing is opened"
            )
        return got
