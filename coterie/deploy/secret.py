"""A party whose messages are opened only as the sum over all parties: secret shares inside the same signed frames.

    round 0        every party publishes a fresh X25519 key (its frame is signed, so the key is authentic)
    round 2t + 1   shares of message t: v = round(2^f x) is split into N words that add up to v modulo 2^64. The others'
                   words are ChaCha20 streams of fresh 32-byte seeds, each sealed for its receiver alone; the rest, v −
                   Σ streams, stays here. This is the release that is charged.
    round 2t + 2   the sum of the own rest and of the streams received. The sum of these over all parties is Σ v.

All frames have one length. Everybody sees all frames, and a seed only its receiver can open (ChaCha20-Poly1305 under a
key derived from both X25519 keys, with plan, round, sender and receiver bound to it). Up to N − 2 colluding parties
learn the sum of the honest messages and nothing else of them; a message itself is noised and charged all the same,
so the local guarantee does not rest on any of this.

The seeds, the rest and the key lie in the ledger's state until the round is over. A nonce is the round: it meets a key
twice only if the first frame never left (a crash before it was stored), since stored bytes are sent again as they are.
A share that cannot be opened ends the run: it is signed evidence against its sender.
"""

from __future__ import annotations

import os
from typing import Any

import equinox as eqx
import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from jaxtyping import Array, Float, Int, UInt

from coterie.deploy.frames import Wire
from coterie.deploy.noise import Source
from coterie.deploy.party import Carry, Party, Records
from coterie.deploy.work import Turns
from coterie.exchange.channels import derive
from coterie.exchange.fixed_point import FixedPoint
from coterie.exchange.parties import expand
from coterie.plan import Plan

__all__ = ["BadShare", "SecretParty", "join"]

KEY, SEED, SEALED = 32, 32, 48  # bytes of a public key, of a seed, of a sealed seed
PER_SEED = SEALED // 8  # words of a frame that one sealed seed takes


class BadShare(ArithmeticError):
    """A neighbour's signed frame holds a share or key that cannot be used."""


def join(turns: Turns, records: Records, plan: Plan, plan_hash: bytes) -> Party:
    """The party that the plan's exchange asks for."""
    sums = plan.exchange.sums
    if sums is None:
        return Party(turns, records)
    return SecretParty(turns, records, FixedPoint(turns.agents, sums.fraction_bits, sums.bound), plan_hash)


class SecretCarry(eqx.Module):
    """What a party of a secret sum takes from round to round."""

    inner: Carry  # `heard`: the sum of the others' messages
    private: UInt[Array, " 32"]
    public: UInt[Array, "neighbours 32"]
    value: Float[Array, " count"]  # the own message
    rest: UInt[Array, " count"]  # of it, after the streams that the others hold; with those received, once they are
    opened: UInt[Array, " count"]  # sums of shares heard so far
    mine: Int[Array, ""]  # the round of `inner` that is under way


class SecretParty(Party):
    """One node of a secret sum. The agent sees rounds of the wire, `Party.turn` rounds of the algorithm."""

    def __init__(self, turns: Turns, records: Records, code: FixedPoint, plan_hash: bytes):
        super().__init__(turns, records)
        self.code, self.plan_hash, self.rounds = code, plan_hash, 2 * turns.rounds + 1
        self.words = max(self.count, KEY // 8, PER_SEED * len(self.neighbours))

    # -- what the agent asks -------------------------------------------------------------------------------------------

    @property
    def wire(self) -> Wire:
        """Words of any value: shares are uniform."""
        return Wire(self.words, 8, self.rounds, lambda sender, round: 1 << 63)

    @property
    def late(self) -> str:
        """A sum needs everybody."""
        return "wait"

    def begin(self) -> Any:
        """A fresh key, and nothing else."""
        own = X25519PrivateKey.generate().private_bytes_raw()
        return eqx.tree_at(lambda c: c.private, self._fresh(), np.frombuffer(own, np.uint8))

    def speak(self, r: int, carry: Any, source: Source) -> tuple[Any, np.ndarray, bool]:
        """The words of wire round r."""
        if r == 0:
            public = X25519PrivateKey.from_private_bytes(_bytes(carry.private)).public_key().public_bytes_raw()
            return carry, self._padded(np.frombuffer(public, "<i8")), True
        if r % 2 == 0:
            own = np.asarray(carry.rest)  # with all streams received
            carry = eqx.tree_at(lambda c: c.opened, carry, np.asarray(carry.opened) + own)
            return carry, self._padded(own.view(np.int64)), True
        t = (r - 1) // 2
        inner = carry.inner if t == 0 else self._with_total(carry)
        inner, numbers, sent = self.turn(t, inner, source.draw(t, self.turns.laws))
        if not sent:
            raise BadShare(f"round {t}: an algorithm that may stay silent cannot be summed")
        value = numbers * self.turns.steps.size[self.node, t]
        words, sealed = self.code.encode(value), []
        for slot, other in enumerate(self.neighbours):
            seed = os.urandom(SEED)
            words = words - expand(seed, self.count)
            sealed.append(self._cipher(carry, slot, int(other), out=True).encrypt(_nonce(r), seed, self._bound(r)))
        new = (inner, value, words, np.zeros(self.count, np.uint64), np.array(t))
        carry = eqx.tree_at(lambda c: (c.inner, c.value, c.rest, c.opened, c.mine), carry, new)
        return carry, self._padded(np.frombuffer(b"".join(sealed), "<i8")), True

    def heard(self, carry: Any, slot: int, r: int, numbers: np.ndarray) -> Any:
        """The carry after a neighbour's words of round r."""
        if r == 0:
            public = np.array(carry.public)
            public[slot] = np.frombuffer(numbers[: KEY // 8].astype("<i8").tobytes(), np.uint8)
            return eqx.tree_at(lambda c: c.public, carry, public)
        if r % 2 == 0:
            theirs = numbers[: self.count].astype(np.int64).view(np.uint64)
            return eqx.tree_at(lambda c: c.opened, carry, np.asarray(carry.opened) + theirs)
        sender = int(self.neighbours[slot])
        at = PER_SEED * (self.node - (self.node > sender))  # on a complete graph everybody lists all others in order
        sealed = numbers[at : at + PER_SEED].astype("<i8").tobytes()
        try:
            seed = self._cipher(carry, slot, sender, out=False).decrypt(_nonce(r), sealed, self._bound(r))
        except InvalidTag:
            raise BadShare(f"round {r}: the share of party {sender} cannot be opened; its frame is evidence") from None
        return eqx.tree_at(lambda c: c.rest, carry, np.asarray(carry.rest) + expand(seed, self.count))

    def answer(self, carry: Any) -> Float[np.ndarray, " dim"]:
        """The model after the last opened sum."""
        return super().answer(self._with_total(carry))

    def unpack(self, data: bytes) -> Any:
        """The carry in such bytes."""
        return self._unpack(data, self._fresh())

    # -- inside --------------------------------------------------------------------------------------------------------

    def _fresh(self) -> SecretCarry:
        n, d = len(self.neighbours), self.count
        words, keys = np.zeros(d, np.uint64), np.zeros(KEY, np.uint8)
        rest: list[Any] = [keys, np.zeros((n, KEY), np.uint8), np.zeros(d), words, words, np.array(-1)]
        return SecretCarry(self.turns.first, *rest)

    def _with_total(self, carry: SecretCarry) -> Carry:
        """The algorithm's carry, told the sum of the others."""
        others = self.code.decode(np.asarray(carry.opened, np.uint64)) - np.asarray(carry.value)
        return eqx.tree_at(lambda c: (c.heard, c.when), carry.inner, ((others,), np.asarray(carry.mine)[None]))

    def _padded(self, words: np.ndarray) -> np.ndarray:
        return np.concatenate([words, np.zeros(self.words - len(words), np.int64)]).astype(np.int64)

    def _cipher(self, carry: SecretCarry, slot: int, other: int, out: bool) -> ChaCha20Poly1305:
        """The one-way key between this party and a neighbour."""
        try:
            theirs = X25519PublicKey.from_public_bytes(_bytes(carry.public[slot]))
            secret = X25519PrivateKey.from_private_bytes(_bytes(carry.private)).exchange(theirs)
        except ValueError:
            raise BadShare(f"the key of party {other} is no X25519 key") from None
        ends = (self.node, other) if out else (other, self.node)
        return ChaCha20Poly1305(derive(secret, b"deployed sum", self.plan_hash, *(e.to_bytes(4, "big") for e in ends)))

    def _bound(self, r: int) -> bytes:
        return self.plan_hash + r.to_bytes(4, "big")


def _bytes(array: Any) -> bytes:
    return np.asarray(array, np.uint8).tobytes()


def _nonce(r: int) -> bytes:
    return r.to_bytes(12, "big")
