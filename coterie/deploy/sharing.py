"""What a plan fixes of secret sums between deployed parties, and the terms that they hold each other to."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from fractions import Fraction

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from nacl.exceptions import CryptoError
from nacl.signing import SigningKey, VerifyKey

from coterie.deploy.agreement import Agreement
from coterie.deploy.keys import PartyKeys
from coterie.errors import InputError
from coterie.privacy.events import Event
from coterie.sums.noise import Layers, default_levels
from coterie.sums.terms import BATCH, SharedTerms, spares_for
from coterie.sums.words import Code

__all__ = ["ATTEMPTS", "Sharing", "public_sealing_key", "sealing_key", "steady"]

ATTEMPTS = 4  # of one round


def steady(variance: float) -> Fraction:
    """A variance of noise, rounded up to twelve bits: all parties must draw from the same tables, and machines may
    differ in the last bits of what they compute.

    >>> steady(1000.0001), steady(0.0)
    (Fraction(4001, 4), Fraction(0, 1))
    """
    if variance == 0:
        return Fraction(0)
    size = 2.0 ** (math.frexp(variance)[1] - 12)
    return Fraction(math.ceil(variance / size * (1 + 1e-9))) * Fraction(size)


@dataclass(frozen=True)
class Sharing:
    """What the plan fixes of a party's sums: public, the same at all of them.

    Attributes:
        colluders, threshold, dropouts: c, t and D of `SharedTerms`.
        fraction_bits, bound: the grid of the sum, and the largest number in a message.
        variances: of the shared noise in each round, in grid steps²; 0: none.
        local: what a masked vector of each round costs if everybody else colludes; empty with local noise.
        most: masked vectors that a party may send in the whole run.
    """

    colluders: int
    threshold: int
    dropouts: int
    fraction_bits: int
    bound: float
    variances: tuple[Fraction, ...]
    local: tuple[Event, ...]
    most: int

    @property
    def again(self) -> int:
        """Masked vectors beyond one per round that a party may send."""
        return self.most - len(self.variances)

    @property
    def central(self) -> bool:
        """Whether noise is shared."""
        return any(self.variances)

    def terms(self, agreement: Agreement, size: int) -> SharedTerms:
        """What the parties of an agreement must have in common; its name is in every frame."""
        parties, levels = len(agreement.parties), default_levels(self.dropouts)
        made = {v: Layers(parties, self.colluders, levels, v) for v in set(self.variances)}
        usual = max(made, key=self.variances.count)
        code = Code(parties, self.fraction_bits, self.bound, max(layers.reach for layers in made.values()))
        said = (self.colluders, self.threshold, self.dropouts, size, code, *self.variances, agreement.deploy.deadline)
        return SharedTerms(
            plan=hashlib.sha256(agreement.plan_hash + repr(said).encode()).digest(),
            colluders=self.colluders,
            threshold=self.threshold,
            dropouts=self.dropouts,
            neighbours=tuple(tuple(map(agreement.index, agreement.neighbours(p.name))) for p in agreement.parties),
            size=size,
            layers=made[usual],
            code=code,
            signing=tuple(bytes.fromhex(p.frame_key) for p in agreement.parties),
            sealing=tuple(public_sealing_key(bytes.fromhex(p.frame_key)) for p in agreement.parties),
            rounds=min(BATCH, len(self.variances)),
            spares=spares_for(parties),
            attempts=ATTEMPTS,
            patience=agreement.deploy.deadline,
            last=len(self.variances),
            otherwise={t: made[v] for t, v in enumerate(self.variances) if v != usual},
        )


def public_sealing_key(frame_key: bytes) -> bytes:
    """The X25519 key that belongs to an Ed25519 key, by the map between their curves.

    One key pair signs and agrees here. That this is safe, where every use has its own context, is shown by Thormarker
    (*On using the same key pair for Ed25519 and an X25519 based KEM*, 2021). Batch keys are agreed on besides.
    """
    try:
        return bytes(VerifyKey(frame_key).to_curve25519_public_key())
    except CryptoError:  # not on the curve, or of low order: anybody would know what is agreed on with it
        raise InputError(
            f"the frame key {frame_key.hex()[:16]} gives no secret: its party must make a new one"
        ) from None


def sealing_key(keys: PartyKeys) -> X25519PrivateKey:
    """A party's own half of `public_sealing_key`."""
    own = SigningKey(keys.frame_key.private_bytes_raw()).to_curve25519_private_key()
    return X25519PrivateKey.from_private_bytes(bytes(own))
