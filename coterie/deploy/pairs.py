r"""Noise that two neighbours share: both derive the same whole numbers from their keys; one adds, one subtracts them.

The parties' frame keys, which the agreement pins, give any two of them a common secret (X25519, as for secret sums).
From it comes a key for each agreement, edge, round and draw (HKDF), from that a stream (ChaCha20), and from the stream
numbers of the discrete Gaussian law of parameter `ratio` times that of own noise, on the same grid. So

- nothing has to be agreed on while a run goes on, and nothing stored: after a crash the same numbers come out, and they
  are part of one message only, the one in the ledger;
- another agreement, an amended one too, another round or another edge has numbers of its own;
- a neighbour that is away takes nothing with it: its numbers stay in the messages, uncancelled;
- one that uses other numbers, or shows them, harms the average, and itself; others are charged for it as for anybody
  `curious`, who knows the secrets that it shares.

What it costs: docs/theory/wire.md. There are no keys for single runs: whoever gets hold of a party's frame key, even
years later, knows its secrets, and is one of the `curious` (docs/threat-model.md).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from fractions import Fraction
from functools import cache

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from coterie.algorithms.laws import Grid, Law, Normal, Shared
from coterie.deploy.agreement import Agreement
from coterie.deploy.keys import PartyKeys
from coterie.deploy.noise import Drawn, Source
from coterie.deploy.sharing import public_sealing_key, sealing_key
from coterie.errors import InputError
from coterie.privacy.secure import GRID_VARIANCE
from coterie.privacy.secure_table import WideGaussianTable
from coterie.sums.words import keystream

__all__ = ["LEAST", "PairSecrets", "SharedSource", "pair_table", "shares", "with_secrets"]

BLOCK = 1 << 14  # numbers that are read from a stream at a time
LEAST = 64  # steps: the least parameter of a secret's law; below it the sum of secrets and own noise is no Gaussian


@cache
def pair_table(ratio: float) -> WideGaussianTable:
    """The law of a secret, in steps of own noise: from exact arithmetic, so that all parties read the same numbers."""
    return WideGaussianTable(max(Fraction(ratio) ** 2 * GRID_VARIANCE, Fraction(LEAST**2)))


class PairSecrets:
    """What a party shares with each of its neighbours, under one agreement."""

    def __init__(self, plan: bytes, me: int, agreed: Mapping[int, bytes]):
        self._plan, self._me, self._agreed = plan, me, dict(agreed)

    @classmethod
    def between(cls, plan: bytes, me: int, own: X25519PrivateKey, others: Mapping[int, bytes]) -> PairSecrets:
        """Of node `me` with the owners of these public keys, by node."""
        agreed = {}
        for node, public in others.items():
            try:
                agreed[node] = own.exchange(X25519PublicKey.from_public_bytes(public))
            except ValueError:  # a point of low order: anybody would know the secret
                raise InputError(f"the frame key of party {node} gives no secret: it must make a new one") from None
        return cls(plan, me, agreed)

    @classmethod
    def of(cls, agreement: Agreement, keys: PartyKeys) -> PairSecrets:
        """Of the party that these keys belong to."""
        others = {agreement.index(name): agreement.party(name).frame_key for name in agreement.neighbours(keys.name)}
        public = {node: public_sealing_key(bytes.fromhex(key)) for node, key in others.items()}
        return cls.between(agreement.plan_hash, agreement.index(keys.name), sealing_key(keys), public)

    def secret(self, other: int, round: int, name: str, law: Shared) -> NDArray[np.int64]:
        """What the two ends of an edge both know in a round: the same numbers at either of them."""
        low, high = min(self._me, other), max(self._me, other)
        info = b"coterie shared noise 1" + self._plan + struct.pack("<III", low, high, round) + name.encode()
        source = keystream(HKDF(SHA256(), 32, None, info).derive(self._agreed[other]))
        table, out = pair_table(float(law.ratio)), np.empty(int(np.prod(law.shape)), np.int64)
        for start in range(0, out.size, BLOCK):  # both ends read the stream in the same pieces
            block = out[start : start + BLOCK]
            words = np.frombuffer(source(8 * table.words_per_draw * block.size), "<u8").astype(np.uint64)
            block[:] = table.read(words)
        return out.reshape(law.shape)

    def total(self, round: int, name: str, law: Shared) -> NDArray[np.int64]:
        """What this party adds in a round: its secrets, those with lower nodes taken off."""
        out = np.zeros(law.shape, np.int64)
        for other in sorted(self._agreed):
            secret = self.secret(other, round, name, law)
            out += secret if self._me < other else -secret
        return out


class SharedSource:
    """Draws of which a part is shared: own noise from another source, which is fresh, and the neighbours' secrets."""

    def __init__(self, source: Source, pairs: PairSecrets):
        self._source, self._pairs = source, pairs

    def draw(self, round: int, laws: Mapping[str, Law]) -> Drawn:
        """One round's draws."""
        own = {name: Normal(*law.shape) if isinstance(law, Shared) else law for name, law in laws.items()}
        drawn = self._source.draw(round, own)
        for name, law in laws.items():
            if isinstance(law, Shared):
                fresh = drawn[name]
                assert isinstance(fresh, Grid)
                drawn[name] = Grid(fresh.steps + self._pairs.total(round, name, law), fresh.unit)
        return drawn


def shares(laws: Mapping[str, Law]) -> bool:
    """Whether a draw has a part that neighbours share."""
    return any(isinstance(law, Shared) for law in laws.values())


def with_secrets(source: Source, laws: Mapping[str, Law], agreement: Agreement, keys: PartyKeys) -> Source:
    """The source, with the neighbours' secrets where a law asks for them."""
    return SharedSource(source, PairSecrets.of(agreement, keys)) if shares(laws) else source
