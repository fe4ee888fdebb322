"""Confidential, authenticated channels between pairs of parties; whoever carries an envelope learns nothing from it.

Every party has a long-term X25519 key, whose public half the others know in advance, and a fresh one for the session,
announced at its start. The key of the direction i → j is

    HKDF-SHA256( DH(long-term i, long-term j) ‖ DH(session i, session j), info = plan, i, j, direction )

so nobody without a long-term key can speak for its owner, and recorded traffic stays closed when a long-term key is
lost later. A session key is made anew by every process, hence a counter may serve as ChaCha20-Poly1305 nonce: it never
meets the same key twice. Plan, kind, round, sender, receiver and counter are authenticated with every body.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from coterie.errors import InputError
from coterie.exchange.wire import TAG, Envelope, Kind, Rejected

__all__ = ["Channels", "Keys", "PublicKeys", "derive"]


@dataclass(frozen=True)
class PublicKeys:
    """What the others know of a party: its long-term public key (in advance) and its session's (announced)."""

    identity: bytes
    session: bytes


class Keys:
    """A party's private keys: `identity` for long (32 bytes, or made here), and one that lives as long as this object.

    >>> keys = Keys()
    >>> len(keys.public.identity), keys.public.session == Keys(keys.identity).public.session
    (32, False)
    """

    def __init__(self, identity: bytes | None = None) -> None:
        if identity is not None and len(identity) != 32:
            raise InputError(f"an identity key has 32 bytes, got {len(identity)}")
        self._identity = X25519PrivateKey.from_private_bytes(identity) if identity else X25519PrivateKey.generate()
        self._session = X25519PrivateKey.generate()

    @property
    def identity(self) -> bytes:
        """The long-term private key: store it as such."""
        return self._identity.private_bytes_raw()

    @property
    def public(self) -> PublicKeys:
        """What to give to the others."""
        return PublicKeys(self._identity.public_key().public_bytes_raw(), self._session.public_key().public_bytes_raw())

    def agree(self, other: PublicKeys) -> bytes:
        """The secret that only these two parties, in these two sessions, can compute."""
        lasting = self._identity.exchange(X25519PublicKey.from_public_bytes(other.identity))
        return lasting + self._session.exchange(X25519PublicKey.from_public_bytes(other.session))


def derive(secret: bytes, *context: bytes) -> bytes:
    """32 bytes from a secret for one use; every part of the context is length-prefixed, so no two contexts agree."""
    info = b"coterie secret sum 1" + b"".join(len(part).to_bytes(4, "big") + part for part in context)
    return HKDF(SHA256(), 32, None, info).derive(secret)


class Channels:
    """One party's end of its channels to all others.

    `plan` is the 32-byte hash of the plan, `roster` everybody's public keys in the plan's order, own included.
    """

    def __init__(self, plan: bytes, me: int, keys: Keys, roster: Sequence[PublicKeys]) -> None:
        if len(plan) != 32:
            raise InputError(f"the plan's hash has 32 bytes, got {len(plan)}")
        if not 0 <= me < len(roster) or roster[me] != keys.public:
            raise InputError(f"the roster of {len(roster)} parties does not hold this party's keys at place {me}")
        self.plan, self.me, self.parties = plan, me, len(roster)
        self._out: dict[int, ChaCha20Poly1305] = {}
        self._in: dict[int, ChaCha20Poly1305] = {}
        self._sent, self._seen = [0] * self.parties, [-1] * self.parties
        for peer, public in enumerate(roster):
            if peer == me:
                continue
            secret = keys.agree(public)
            for box, sender, receiver in ((self._out, me, peer), (self._in, peer, me)):
                ends = sender.to_bytes(4, "big"), receiver.to_bytes(4, "big")
                box[peer] = ChaCha20Poly1305(derive(secret, plan, b"channel", *ends))

    def seal(self, receiver: int, number: int, kind: Kind, body: bytes) -> Envelope:
        """The body for one receiver, in the next envelope to it."""
        if receiver not in self._out:
            raise InputError(f"party {self.me} has no channel to {receiver}")
        counter = self._sent[receiver]
        self._sent[receiver] += 1
        bare = Envelope(self.me, receiver, number, kind, counter, bytes(len(body) + TAG))
        sealed = self._out[receiver].encrypt(counter.to_bytes(12, "big"), body, self.plan + bare.header())
        return Envelope(self.me, receiver, number, kind, counter, sealed)

    def open(self, envelope: Envelope) -> bytes:
        """The body of an envelope to this party; anything altered, misdirected or seen before is rejected."""
        sender = envelope.sender
        if envelope.receiver != self.me or sender not in self._in:
            raise Rejected(f"an envelope from {sender} to {envelope.receiver} is not for party {self.me}")
        if envelope.counter <= self._seen[sender]:
            raise Rejected(
                f"envelope {envelope.counter} from party {sender} is a replay: {self._seen[sender]} was seen"
            )
        try:
            nonce, known = envelope.counter.to_bytes(12, "big"), self.plan + envelope.header()
            body = self._in[sender].decrypt(nonce, envelope.sealed, known)
        except InvalidTag:
            raise Rejected(
                f"an envelope from party {sender} fails authentication: it was altered, or made for another plan, "
                "round, receiver or session"
            ) from None
        self._seen[sender] = envelope.counter
        return body
