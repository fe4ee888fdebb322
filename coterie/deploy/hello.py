"""How two parties begin to talk: each shows that it holds the agreement, its frame key, and what it has received.

Both ends send an *opening* (plan hash, own node, which process of it, 32 fresh random bytes). Once the other's opening
has come and names the same agreement and the expected node, each sends a *hello*: what it has received from the other
(a `Receipt`), signed by its frame key together with both openings. The random bytes of both sides make a recorded hello
useless; the signature ties the connection, which TLS has tied to the certificate, to the key that signs frames.

    opening  "CTRO" protocol, 3 zeros, plan hash 32, node 4, process 16, nonce 32         92 bytes
    hello    "CTRH" protocol, 3 zeros, receipt 104, Ed25519 signature 64                 176 bytes
    busy     "CTRB" protocol, 3 zeros, receipt 104, Ed25519 signature 64                 176 bytes, instead of a hello
    receipt  "CTRR" protocol, 3 zeros, receipt 104                                       112 bytes, later
    rumours  "CTRG" protocol, 3 zeros, up to 16 of: node 4, receipt 104           up to 1,736 bytes, with the next frame

A party that is connected to another process of the same neighbour answers *busy*: the newcomer learns what has been
received, which may tell it that its ledger is an old copy, and is not let in. So of two processes that run on copies of
one ledger only one can speak to a neighbour, and none speaks before it has met all of them.

A conversation of another kind (`post`) begins in the same way, with hellos that name no round and are signed for that
kind. Nothing that follows is read before this is done.
"""

from __future__ import annotations

import os
import struct

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from nacl.exceptions import BadSignatureError
from nacl.signing import VerifyKey

from coterie.deploy.frames import BadFrame, Receipt
from coterie.deploy.peers import Rumour
from coterie.deploy.protocol import PROTOCOL

__all__ = ["BUSY", "HELLO", "LONGEST", "MOST_RUMOURS", "OPENING", "PACKETS", "RECEIPT", "ROUNDS", "RUMOURS",
           "check_hello", "check_opening", "make_hello", "make_opening", "pack_receipt", "pack_rumours", "process_of",
           "unpack_receipt", "unpack_rumours"]  # fmt: skip

OPENING, HELLO, BUSY, RECEIPT, RUMOURS = (b"CTR%c%c\0\0\0" % (kind, PROTOCOL) for kind in b"OHBRG")
_OPENING = struct.Struct("<8s32sI16s32s")
ROUNDS, PACKETS = b"coterie hello\0", b"coterie post hello\0"  # the conversations: what a hello is signed for
LONGEST = 2048  # no message of this page is longer
MOST_RUMOURS = 16
_RUMOUR = 4 + len(Receipt().pack())


def make_opening(plan_hash: bytes, sender: int, process: bytes = b"") -> bytes:
    """The first message of a connection; `process` are 16 random bytes that the sender has drawn when it started."""
    return _OPENING.pack(OPENING, plan_hash, sender, process or os.urandom(16), os.urandom(32))


def check_opening(data: bytes, plan_hash: bytes, sender: int) -> None:
    """Refuse what is no opening, is under another agreement, or comes from another node than the connection's."""
    if len(data) != _OPENING.size:
        raise BadFrame(f"an opening has {_OPENING.size} bytes, got {len(data)}")
    head, plan, node, _, _ = _OPENING.unpack(data)
    if head != OPENING:
        raise BadFrame(f"not an opening of protocol {PROTOCOL}")
    if plan != plan_hash:
        raise BadFrame("holds another agreement")
    if node != sender:
        raise BadFrame(f"says it is node {node}, its certificate belongs to node {sender}")


def process_of(opening: bytes) -> bytes:
    """Which process of its sender a checked opening comes from."""
    return _OPENING.unpack(opening)[3]


def make_hello(key: Ed25519PrivateKey, mine: bytes, theirs: bytes, receipt: Receipt, busy: bool = False,
               domain: bytes = ROUNDS) -> bytes:  # fmt: skip
    """Answer the other's opening: what I have received from it, signed over both openings."""
    body = (BUSY if busy else HELLO) + receipt.pack()
    return body + key.sign(domain + mine + theirs + body)


def check_hello(
    data: bytes, key: VerifyKey, mine: bytes, theirs: bytes, domain: bytes = ROUNDS
) -> tuple[Receipt, bool]:
    """The receipt in the other's hello, if its frame key signed it for these two openings; and whether it is busy."""
    body, signature = data[:-64], data[-64:]
    if not body.startswith((HELLO, BUSY)):
        raise BadFrame(f"not a hello of protocol {PROTOCOL}")
    try:
        key.verify(domain + theirs + mine + body, signature)
    except (BadSignatureError, ValueError):  # a signature of another length
        raise BadFrame("its hello is not signed by its frame key for this connection") from None
    return Receipt.unpack(body[len(HELLO) :]), body.startswith(BUSY)


def pack_receipt(receipt: Receipt) -> bytes:
    """A receipt as a message of its own."""
    return RECEIPT + receipt.pack()


def unpack_receipt(data: bytes) -> Receipt:
    """The receipt in such a message."""
    return Receipt.unpack(data[len(RECEIPT) :])


def pack_rumours(rumours: list[Rumour]) -> bytes:
    """What was received from others, as one message."""
    return RUMOURS + b"".join(r.node.to_bytes(4, "little") + r.receipt.pack() for r in rumours)


def unpack_rumours(data: bytes) -> list[Rumour]:
    """The rumours in such a message."""
    body = data[len(RUMOURS) :]
    if len(body) % _RUMOUR or not 0 < len(body) <= MOST_RUMOURS * _RUMOUR:
        raise BadFrame(f"no rumours have {len(data)} bytes")
    parts = (body[at : at + _RUMOUR] for at in range(0, len(body), _RUMOUR))
    return [Rumour(int.from_bytes(part[:4], "little"), Receipt.unpack(part[4:])) for part in parts]
