"""The bytes of one message: a fixed layout, signed as a whole, of a length that the agreement fixes.

    offset  bytes
         0  4      magic "CTRF"
         4  1      protocol: `coterie.deploy.protocol`
         5  1      kind: 1 message, 2 silent (same length, all numbers zero)
         6  2      zero
         8  32     plan hash: which agreement
        40  4      sender: its node
        44  4      round
        48  ⌈nb/8⌉ the numbers, n signed integers of b bits, lowest first; with b = 32 or 64 little-endian words
         …  64     Ed25519 signature by the sender's frame key

A frame holds nothing else, so reading this page is reading all that leaves a party. The numbers are whole multiples of
a public grid step: not-a-number, infinity and the low bits of floating-point noise cannot be written down.

The signature covers "coterie frame", plan hash, sender, round and the SHA-256 of everything before it. Hashing first
is four times faster on large frames, and makes (round, digest, signature) a receipt that proves itself: whoever shows
it has held that frame, and nobody but the sender can have made it (`Receipt`).

A reader takes no length, count or type from the frame. It checks, cheapest first and the signature before any number:
length, magic, plan hash, sender, round, signature, range.

Keys are made, stored and used for signing by `cryptography`; signatures are verified by libsodium (`nacl`), in half to
two thirds of the time: to verify two frames is the largest single piece of a small round.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from nacl.exceptions import BadSignatureError
from nacl.signing import VerifyKey

from coterie.deploy.protocol import PROTOCOL

__all__ = ["HEADER_BYTES", "MESSAGE", "SIGNATURE_BYTES", "SILENT", "BadFrame", "Frame", "Misdeed", "Receipt", "Wire",
           "digest", "open_frame", "seal", "seal_hashed"]  # fmt: skip

MAGIC = b"CTRF"
MESSAGE, SILENT = 1, 2
_HEADER = struct.Struct("<4sBBH32sII")
HEADER_BYTES = _HEADER.size  # 48, a multiple of 8: the numbers lie aligned
SIGNATURE_BYTES = 64
_SIGNED = struct.Struct("<14s32sII32s")
_DOMAIN = b"coterie frame\0"
_RECEIPT = struct.Struct("<ii32s64s")


class BadFrame(ValueError):
    """Bytes that are not an acceptable frame; the message says which check failed."""


class Misdeed(BadFrame):
    """A frame that its sender has signed and should not have: evidence against it."""


@dataclass(frozen=True)
class Wire:
    """What both ends know of every message before it comes.

    Attributes:
        count: integers in a message.
        width: bytes of an integer in memory, 4 or 8.
        rounds: number of rounds of the run; a frame's round lies below.
        limit: limit(sender, round) is the largest absolute value an integer of that frame may have.
        bits: bits of an integer on the wire; None: all of its memory.
    """

    count: int
    width: Literal[4, 8]
    rounds: int
    limit: Callable[[int, int], int]
    bits: int | None = None

    def __post_init__(self) -> None:
        if self.count < 1 or self.width not in (4, 8) or not 1 <= self.rounds < 2**31:
            raise ValueError(f"no such wire: {self.count} integers of {self.width} bytes, {self.rounds} rounds")
        if self.bits is not None and not 1 <= self.bits <= 8 * self.width:
            raise ValueError(f"no such wire: integers of {self.bits} bits in {self.width} bytes")

    @property
    def packed(self) -> bool:
        """Whether numbers share bytes."""
        return self.bits not in (None, 8 * self.width)

    @cached_property
    def bytes(self) -> int:
        """Length of the numbers."""
        return -(-self.count * (self.bits or 8 * self.width) // 8)

    @cached_property
    def frame_bytes(self) -> int:
        """Length of a whole frame."""
        return HEADER_BYTES + self.bytes + SIGNATURE_BYTES

    @cached_property
    def dtype(self) -> np.dtype:
        """How numbers lie in a frame."""
        return np.dtype(f"<i{self.width}")

    def encode(self, numbers: np.ndarray, sender: int, round: int) -> bytes:
        """Integers as payload; one that a receiver would refuse is an error here, before anything is signed."""
        if numbers.shape != (self.count,) or numbers.dtype.kind != "i":
            raise ValueError(f"expected {self.count} integers, got {numbers.dtype} of shape {numbers.shape}")
        self.check(numbers, sender, round)
        if not self.packed:
            return numbers.astype(self.dtype, copy=False).tobytes()
        if int(np.maximum.reduce(numbers)) >= 1 << (self.bits - 1):  # type: ignore[operator]
            raise ValueError(f"{np.maximum.reduce(numbers)} does not fit {self.bits} bits")
        table = (numbers[:, None] >> np.arange(self.bits, dtype=np.int64)) & 1  # type: ignore[arg-type]
        return np.packbits(table.astype(np.uint8), bitorder="little").tobytes()

    def decode(self, data: bytes | memoryview) -> np.ndarray:
        """The integers of a payload of the right length, unchecked; bits that belong to none are not looked at."""
        if not self.packed:
            return np.frombuffer(data, self.dtype, self.count)
        bits = int(self.bits)  # type: ignore[arg-type]
        flat = np.unpackbits(np.frombuffer(data, np.uint8), count=self.count * bits, bitorder="little")
        weights = 1 << np.arange(bits, dtype=np.int64)
        weights[-1] *= -1
        return (flat.reshape(self.count, bits).astype(np.int64) @ weights).astype(self.dtype)

    def check(self, numbers: np.ndarray, sender: int, round: int) -> None:
        """Refuse integers beyond the limit. Minimum and maximum: the absolute value of −2⁶³ is negative."""
        bound = self.limit(sender, round)
        if int(np.minimum.reduce(numbers)) < -bound or int(np.maximum.reduce(numbers)) > bound:
            raise Misdeed(f"a number lies beyond ±{bound}")


class Frame(NamedTuple):
    """An accepted frame. `stored` are its numbers where they lie in the bytes that arrived, in the wire's own type;
    `digest` and `signature` identify it."""

    sender: int
    round: int
    kind: int
    stored: np.ndarray
    digest: bytes
    signature: bytes

    @property
    def numbers(self) -> np.ndarray:
        """The numbers as int64, which may be added up."""
        return self.stored.astype(np.int64)

    @property
    def silent(self) -> bool:
        """Whether the sender said nothing in this round."""
        return self.kind == SILENT

    @property
    def receipt(self) -> Receipt:
        """That this frame was received, and is kept: what a ledger stores once the frame is in its state."""
        return Receipt(self.round, self.digest, self.signature, self.round)


class Receipt(NamedTuple):
    """What a neighbour has of a party's frames: the last one it saw, proven by that frame's own signature.

    Attributes:
        round: round of the last frame seen; −1 if none.
        digest: `digest` of that frame.
        signature: its signature. The owner of the frames verifies it, so a neighbour cannot invent a receipt.
        kept: last round the neighbour has stored durably: its owner need not offer it again, ever.
    """

    round: int = -1
    digest: bytes = bytes(32)
    signature: bytes = bytes(SIGNATURE_BYTES)
    kept: int = -1

    def pack(self) -> bytes:
        """Fixed-length bytes, for the wire and for a ledger."""
        return _RECEIPT.pack(self.round, self.kept, self.digest, self.signature)

    @classmethod
    def unpack(cls, data: bytes) -> Receipt:
        """The receipt in such bytes; BadFrame if there is none."""
        if len(data) != _RECEIPT.size:
            raise BadFrame(f"a receipt has {_RECEIPT.size} bytes, got {len(data)}")
        round, kept, content, signature = _RECEIPT.unpack(data)
        if not -1 <= kept <= round:
            raise BadFrame(f"receipt for round {round}, kept {kept}")
        return cls(round, content, signature, kept)

    def proven(self, key: VerifyKey, plan_hash: bytes, sender: int) -> bool:
        """Whether `sender` (whose frame key this is) really made the frame that this receipt names."""
        if self.round < 0:
            return True  # claims nothing
        return _verifies(key, self.signature, plan_hash, sender, self.round, self.digest)


def seal(
    key: Ed25519PrivateKey, plan_hash: bytes, sender: int, round: int, payload: bytes, kind: int = MESSAGE
) -> bytes:
    """Sign a payload into a frame. Ed25519 is deterministic: the same message gives the same bytes."""
    return seal_hashed(key, plan_hash, sender, round, payload, kind)[0]


def seal_hashed(
    key: Ed25519PrivateKey, plan_hash: bytes, sender: int, round: int, payload: bytes, kind: int = MESSAGE
) -> tuple[bytes, bytes]:
    """The same, and SHA-256 of the whole frame: what is signed is hashed on the way, so it costs nothing more."""
    header = _HEADER.pack(MAGIC, PROTOCOL, kind, 0, plan_hash, sender, round)
    content = hashlib.sha256(header)
    content.update(payload)
    signature = key.sign(_SIGNED.pack(_DOMAIN, plan_hash, sender, round, content.digest()))
    content.update(signature)
    return b"".join((header, payload, signature)), content.digest()  # one copy of what may be megabytes


def digest(data: bytes) -> bytes:
    """What identifies a frame: SHA-256 of everything before the signature."""
    return hashlib.sha256(memoryview(data)[:-SIGNATURE_BYTES]).digest()


def open_frame(
    data: bytes,
    keys_by_sender: Mapping[int, VerifyKey],
    plan_hash: bytes,
    wire: Wire,
    expected_sender: int,
) -> Frame:
    """Check bytes from the network and return the frame in them.

    Args:
        data: exactly what arrived.
        keys_by_sender: every party's frame key, by node.
        plan_hash: of the agreement in force.
        wire: lengths and limits, from the agreement.
        expected_sender: whom the connection belongs to.

    Raises:
        BadFrame: whatever is wrong, and nothing else.
    """
    if len(data) != wire.frame_bytes:
        raise BadFrame(f"length {len(data)}, expected {wire.frame_bytes}")
    magic, version, kind, zero, plan, sender, round = _HEADER.unpack_from(data)
    if magic != MAGIC or version != PROTOCOL or kind not in (MESSAGE, SILENT) or zero:
        raise BadFrame(f"not a frame of protocol {PROTOCOL}")
    if plan != plan_hash:
        raise BadFrame("made under another agreement")
    if sender != expected_sender or sender not in keys_by_sender:
        raise BadFrame(f"sender {sender}, expected {expected_sender}")
    if round >= wire.rounds:
        raise BadFrame(f"round {round} of {wire.rounds}")
    signature = bytes(data[-SIGNATURE_BYTES:])
    content = digest(data)
    if not _verifies(keys_by_sender[sender], signature, plan_hash, sender, round, content):
        raise BadFrame("the signature does not fit")
    payload = memoryview(data)[HEADER_BYTES:-SIGNATURE_BYTES]
    stored = wire.decode(payload)
    wire.check(stored, sender, round)
    if wire.packed and wire.encode(stored, sender, round) != payload:
        raise Misdeed("bits that belong to no number are set")
    if kind == SILENT and stored.any():
        raise Misdeed("a silent frame holds numbers")
    return Frame(sender, round, kind, stored, content, signature)


def _verifies(key: VerifyKey, signature: bytes, plan_hash: bytes, sender: int, round: int, content: bytes) -> bool:
    try:
        key.verify(_SIGNED.pack(_DOMAIN, plan_hash, sender, round, content), signature)
    except BadSignatureError:
        return False
    return True
