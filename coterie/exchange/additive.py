"""Additive shares over Z_2^64 (Xiao, Ye, Devadas, Alg. 3, with what it left open): everybody must answer.

Party i draws a share s_ij for every other j, keeps s_ii = e_i − Σ_j s_ij, and tells s_ij to j alone (first message
round). Then it tells everybody ŝ_i = Σ_j s_ji (second message round), and Σ_i ŝ_i = Σ_i e_i. A share is d uniform
words, or a fresh 32-byte seed that both ends expand with ChaCha20: the same view for whoever cannot break the cipher,
and 32 bytes instead of 8d. The view of colluders is simulatable from their own vectors and the sum of the others as
long as two parties are honest. That is not differential privacy: the sum itself leaks, and whoever opens it must have
paid.

A sum that lacks a party's part is aborted; `coterie.sums` has parties that survive that.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Self

import numpy as np

from coterie.exchange.fixed_point import Words
from coterie.exchange.sums import Aborted, Kept, Opened, SumPart, SumTerms
from coterie.exchange.wire import SEED_BYTES, Kind
from coterie.privacy.secure import uniform_bits

__all__ = ["Additive", "expand"]


def expand(seed: bytes, size: int) -> Words:
    """`size` words from a seed that is used once: ChaCha20's key stream."""
    from cryptography.hazmat.primitives.ciphers import Cipher  # of the extra `deploy`; shares word by word need none
    from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

    stream = Cipher(ChaCha20(seed, bytes(16)), mode=None).encryptor().update(bytes(8 * size))
    return np.frombuffer(stream, "<u8").astype(np.uint64, copy=False)


class Additive(Kept):
    """Everybody must answer in both message rounds; up to N − 2 of the others may pool what they see.

    `seeds`: send shares as seeds (the default) or word by word.
    """

    kinds = (Kind.SHARE, Kind.SUM)

    def __init__(self, terms: SumTerms, me: int, size: int, *, seeds: bool = True) -> None:
        super().__init__(terms, me, size)
        self.seeds = seeds
        self._own, self._total = np.zeros(size, np.uint64), np.zeros(size, np.uint64)

    @property
    def state(self) -> tuple[Words, Words]:
        """The share that is left here, with those received; and the sums of shares so far."""
        return self._own, self._total

    def body_bytes(self, kind: Kind) -> int:
        return SEED_BYTES if kind is Kind.SHARE and self.seeds else 8 * self.size

    def resume(self, number: int, kind: Kind, state: tuple[Words, ...], answered: Iterable[int] = ()) -> Self:
        self.number, self._stage = number, self.kinds.index(kind) + 1
        self._own, self._total = (np.asarray(words, np.uint64) for words in state)  # never changed in place
        self._heard = {(number, kind): dict.fromkeys(answered, b"")}
        return self

    def _share(self, words: Words) -> list[SumPart]:
        own, out = words.copy(), []
        for j in self.others:
            body = os.urandom(SEED_BYTES) if self.seeds else uniform_bits(self.size).astype("<u8").tobytes()
            own -= self._words(Kind.SHARE, body)
            out.append(SumPart(Kind.SHARE, j, body))
        self._own, self._total = own, np.zeros(self.size, np.uint64)
        return out

    def _next(self, kind: Kind) -> list[SumPart]:
        self._need(Kind.SHARE)
        self._total = self._total + self._own
        return [SumPart(kind, None, self._own.astype("<u8").tobytes())]

    def _result(self) -> Opened:
        self._need(Kind.SUM)
        return Opened(self.terms.code.decode(self._total), self._total, tuple(range(self.terms.parties)))

    def _keep(self, kind: Kind, body: bytes) -> bytes:
        """Parts are added as they come: none has to be kept."""
        if kind is Kind.SHARE:
            self._own = self._own + self._words(kind, body)
        else:
            self._total = self._total + self._words(kind, body)
        return b""

    def _words(self, kind: Kind, body: bytes) -> Words:
        if kind is Kind.SHARE and self.seeds:
            return expand(body, self.size)
        return np.frombuffer(body, "<u8").astype(np.uint64, copy=False)

    def _check(self, kind: Kind, sender: int, body: bytes) -> None:
        self._length(sender, kind, body, self.body_bytes(kind))

    def _need(self, kind: Kind) -> None:
        if missing := ", ".join(map(str, self.missing())):
            raise Aborted(
                f"round {self.number}: no {kind.name} from {missing}; everybody must answer, so the "
                "round is aborted and nothing is opened"
            )
