"""Bytes of the post: packets, and news of what was taken. See `coterie.deploy.post`.

    packet   "CTRP" protocol, zero, hops 2, length 4, identity 8, receivers ⌈N/8⌉, payload     one or more in a message
    taken    "CTRA" protocol, 3 zeros, packets taken 8, allowance 8

Numbers are little-endian; of the receivers, bit i is node i.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

from coterie.deploy.frames import BadFrame
from coterie.deploy.parcels import Copy
from coterie.deploy.protocol import PROTOCOL

__all__ = ["OVERHEAD", "PACKET", "TAKEN", "Packet", "Packets", "pack_taken", "read_taken"]

PACKET = b"CTRP%c" % PROTOCOL
TAKEN = b"CTRA%c\0\0\0" % PROTOCOL
OVERHEAD = 512  # bytes that a packet counts for beyond its length, so that rooms bound their number too
_HEAD = struct.Struct("<5sBHI8s")
_TAKEN = struct.Struct("<8sQQ")


class Packet(NamedTuple):
    """A packet as it arrives."""

    hops: int
    to: int  # a bit for each receiver
    identity: bytes
    payload: bytes


@dataclass(frozen=True)
class Packets:
    """How packets are written, between this many parties and with payloads up to the largest agreed on."""

    parties: int
    largest: int

    @property
    def _bits(self) -> int:
        """Bytes of the receivers."""
        return -(-self.parties // 8)

    @property
    def longest(self) -> int:
        """Bytes of the longest packet."""
        return _HEAD.size + self._bits + self.largest

    def size(self, payload: int) -> int:
        """What a packet with a payload of so many bytes counts for in a room."""
        return OVERHEAD + _HEAD.size + self._bits + payload

    def pack(self, copy: Copy) -> bytes:
        """A copy's bytes."""
        parcel, to, hops = copy
        head = _HEAD.pack(PACKET, 0, hops, len(parcel.payload), parcel.identity)
        return b"".join((head, to.to_bytes(self._bits, "little"), parcel.payload))

    def read(self, data: bytes, at: int, sender: int) -> tuple[Packet, int]:
        """The packet at a place of a message from a neighbour, and where the next one begins."""
        if len(data) < at + _HEAD.size + self._bits:
            raise BadFrame("a packet without its head")
        start, zero, hops, length, identity = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        to, at = int.from_bytes(data[at : at + self._bits], "little"), at + self._bits
        if start != PACKET or zero:
            raise BadFrame(f"not a packet of protocol {PROTOCOL}")
        if not 1 <= hops <= self.parties:
            raise BadFrame(f"a packet with {hops} hops left, expected 1 to {self.parties}")
        if not to or to >> self.parties or to >> sender & 1:
            raise BadFrame("a packet for nobody, for an unknown party or for its own sender")
        if length > self.largest or len(data) < at + length:
            raise BadFrame(f"a payload of {length} bytes, expected up to {min(self.largest, len(data) - at)}")
        return Packet(hops, to, identity, data[at : at + length]), at + length


def pack_taken(packets: int, allowance: int) -> bytes:
    """News of how many packets were taken, and how much may be sent."""
    return _TAKEN.pack(TAKEN, packets, allowance)


def read_taken(data: bytes) -> tuple[int, int]:
    """Packets that were taken, and the allowance."""
    if len(data) != _TAKEN.size:
        raise BadFrame(f"news of what was taken of {len(data)} bytes, expected {_TAKEN.size}")
    _, packets, allowance = _TAKEN.unpack(data)
    return packets, allowance
