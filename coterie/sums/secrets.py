"""What a party draws for one use of a sum (a slot), what follows from it, and how shares of it travel.

Owner i draws a_i and B_{i,0}, 16 bytes each. From a_i comes the X25519 key whose agreements with the others give the
masks that cancel in pairs. B_{i,0} starts a chain B_{i,k} = KDF(B_{i,k−1}): layer k ≥ 1 of the noise comes from
B_{i,k−1}, the mask of one's own from the end B_{i,m}. So B_{i,κ} gives that mask and the layers above κ and tells
nothing of the others: one share per owner takes off both, and never for two different sets.

Sixteen bytes are enough because every derivation has its own context: a guess tests one secret. X_i and
C_i = SHA-256(B_{i,m}) are published; so is, for every holder, the root of a hash tree over its shares: a share can
then be shown to be the one that was dealt, and a wrong opening names either the holder or the owner.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from coterie.sums.shamir import SECRET, SHARE, coefficients, evaluate
from coterie.sums.words import Words, mask, subtract

__all__ = [
    "Context",
    "SlotSecrets",
    "agrees",
    "branch",
    "leaves_of",
    "open_envelope",
    "pair_mask",
    "public_of",
    "root_of",
    "seal_envelope",
    "self_mask",
    "walk",
]


def derive(secret: bytes, length: int, *context: bytes) -> bytes:
    """Bytes from a secret for one use; parts of the context are length-prefixed, so no two contexts agree."""
    info = b"coterie sum 2" + b"".join(len(part).to_bytes(4, "big") + part for part in context)
    return HKDF(SHA256(), length, None, info).derive(secret)


@dataclass(frozen=True)
class Context:
    """Which plan and slot a secret belongs to; nothing derived under one context serves in another."""

    plan: bytes
    slot: int

    def of(self, purpose: bytes, *numbers: int) -> tuple[bytes, ...]:
        """A purpose within this context."""
        return purpose, self.plan, struct.pack(f"<I{len(numbers)}I", self.slot, *numbers)


def _next(where: Context, owner: int, link: bytes, k: int) -> bytes:
    return derive(link, SECRET, *where.of(b"next", owner, k))


def walk(where: Context, owner: int, link: bytes, start: int, last: int) -> list[bytes]:
    """B_{owner,start} … B_{owner,last} from the first of them."""
    chain = [link]
    for k in range(start + 1, last + 1):
        chain.append(_next(where, owner, chain[-1], k))
    return chain


def layer_seed(where: Context, owner: int, link: bytes, k: int) -> bytes:
    """The seed of noise layer k from B_{owner,k−1}."""
    return derive(link, 32, *where.of(b"noise", owner, k))


def self_mask(where: Context, owner: int, end: bytes, size: int) -> Words:
    """The mask of one's own, from B_{owner,m}."""
    return mask(derive(end, 32, *where.of(b"self", owner)), size)


def commitment(where: Context, owner: int, end: bytes) -> bytes:
    """C_owner."""
    purpose, plan, numbers = where.of(b"end", owner)
    return hashlib.sha256(purpose + plan + numbers + end).digest()


def _pair_key(where: Context, owner: int, a: bytes) -> X25519PrivateKey:
    return X25519PrivateKey.from_private_bytes(derive(a, 32, *where.of(b"pair", owner)))


def agrees(public: bytes) -> bool:
    """Whether an X25519 public key gives a secret at all; keys of low order do not."""
    try:
        X25519PrivateKey.generate().exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        return False
    return True


def public_of(where: Context, owner: int, a: bytes) -> bytes:
    """X_owner."""
    return _pair_key(where, owner, a).public_key().public_bytes_raw()


def pair_mask(where: Context, owner: int, a: bytes, other: int, public: bytes, start: bytes, size: int) -> Words:
    """What `owner` adds for its pair with `other`, who adds the opposite. `start` is the hash of the START frame:
    words for one START never cancel against words for another."""
    low, high = min(owner, other), max(owner, other)
    agreed = _pair_key(where, owner, a).exchange(X25519PublicKey.from_public_bytes(public))
    words = mask(derive(agreed, 32, *where.of(b"mask", low, high), start), size)
    return words if owner == low else subtract(words * 0, words)


@dataclass(frozen=True)
class SlotSecrets:
    """An owner's two secrets of one slot."""

    a: bytes
    start: bytes  # B_{i,0}

    @classmethod
    def fresh(cls) -> SlotSecrets:
        """New secrets from the operating system."""
        return cls(os.urandom(SECRET), os.urandom(SECRET))

    def public(self, where: Context, owner: int, last: int) -> bytes:
        """X_i ‖ C_i."""
        return public_of(where, owner, self.a) + commitment(where, owner, self.chain(where, owner, last)[-1])

    def chain(self, where: Context, owner: int, last: int) -> list[bytes]:
        """B_{i,0} … B_{i,m}."""
        return walk(where, owner, self.start, 0, last)

    def shares(self, where: Context, owner: int, last: int, threshold: int, parties: int) -> list[list[bytes]]:
        """For each holder its shares of B_{i,0} … B_{i,m} and a_i, in this order."""
        kinds = [*self.chain(where, owner, last), self.a]
        return [list(row) for row in zip(*(evaluate(s, coefficients(threshold), parties) for s in kinds), strict=True)]


# ---- the hash tree over what one owner dealt to one holder -----------------------------------------------------------


def _leaf(plan: bytes, batch: int, owner: int, holder: int, place: int, share: bytes) -> bytes:
    return hashlib.sha256(b"\0" + plan + struct.pack("<IIII", batch, owner, holder, place) + share).digest()


def _rows(leaves: list[bytes]) -> list[list[bytes]]:
    rows = [leaves]
    while len(rows[-1]) > 1:
        row = rows[-1] + [bytes(32)] * (len(rows[-1]) % 2)
        rows.append([hashlib.sha256(b"\1" + row[k] + row[k + 1]).digest() for k in range(0, len(row), 2)])
    return rows


def leaves_of(plan: bytes, batch: int, owner: int, holder: int, shares: Sequence[bytes]) -> list[bytes]:
    """The hashes of a holder's shares."""
    return [_leaf(plan, batch, owner, holder, place, share) for place, share in enumerate(shares)]


def root_of(plan: bytes, batch: int, owner: int, holder: int, shares: Sequence[bytes]) -> bytes:
    """The root that the owner signs for this holder."""
    return _rows(leaves_of(plan, batch, owner, holder, shares))[-1][0]


def branch(leaves: Sequence[bytes], place: int) -> list[bytes]:
    """The proof that a holder adds to one share when an opening fails; it needs the hashes, not the other shares."""
    proof = []
    for row in _rows(list(leaves))[:-1]:
        beside = place ^ 1
        proof.append(row[beside] if beside < len(row) else bytes(32))
        place >>= 1
    return proof


def dealt(
    root: bytes, plan: bytes, batch: int, owner: int, holder: int, place: int, share: bytes, proof: Sequence[bytes]
) -> bool:
    """Whether this share at this place is what the owner signed for."""
    node = _leaf(plan, batch, owner, holder, place, share)
    for beside in proof:
        node = hashlib.sha256(b"\1" + (beside + node if place & 1 else node + beside)).digest()
        place >>= 1
    return node == root and place == 0


# ---- envelopes -------------------------------------------------------------------------------------------------------


def _box(
    mine: tuple[X25519PrivateKey, X25519PrivateKey], theirs: tuple[bytes, bytes], context: tuple[bytes, ...]
) -> ChaCha20Poly1305:
    agreed = b"".join(
        key.exchange(X25519PublicKey.from_public_bytes(public)) for key, public in zip(mine, theirs, strict=True)
    )
    return ChaCha20Poly1305(derive(agreed, 32, *context))


def _envelope(plan: bytes, batch: int, sender: int, receiver: int) -> tuple[bytes, ...]:
    return b"envelope", plan, struct.pack("<III", batch, sender, receiver)


def seal_envelope(
    plan: bytes,
    batch: int,
    ends: tuple[int, int],
    mine: tuple[X25519PrivateKey, X25519PrivateKey],
    theirs: tuple[bytes, bytes],
    shares: Sequence[bytes],
) -> bytes:
    """One holder's shares of all slots of a batch; `ends` are sender and receiver, the keys long-term and batch.

    The key belongs to this batch and direction and seals once, so the nonce may be zero.
    """
    context = _envelope(plan, batch, *ends)
    return _box(mine, theirs, context).encrypt(bytes(12), b"".join(shares), b"".join(context))


def open_envelope(
    plan: bytes,
    batch: int,
    ends: tuple[int, int],
    mine: tuple[X25519PrivateKey, X25519PrivateKey],
    theirs: tuple[bytes, bytes],
    sealed: bytes,
) -> list[bytes] | None:
    """The shares in an envelope, or None if it was altered or made for another batch, pair or direction."""
    context = _envelope(plan, batch, *ends)
    try:
        plain = _box(mine, theirs, context).decrypt(bytes(12), sealed, b"".join(context))
    except InvalidTag:
        return None
    return [plain[k : k + SHARE] for k in range(0, len(plain), SHARE)] if len(plain) % SHARE == 0 else None
