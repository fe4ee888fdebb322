"""Envelopes as they travel, and how many bytes a round takes. No cryptography here."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

__all__ = ["OVERHEAD", "SEED_BYTES", "TAG", "Envelope", "Kind", "Rejected"]

_HEADER = struct.Struct("<IIIBQI")  # sender, receiver, round, kind, counter, length of the sealed body
TAG = 16
OVERHEAD = _HEADER.size + TAG
"""Bytes that an envelope adds to what it carries."""

SEED_BYTES = 32


class Rejected(Exception):
    """A message that is not accepted: the reason in one line. The receiver's state is as before."""


class Kind(IntEnum):
    """What an envelope carries."""

    SHARE = 1  # each receiver gets a part of its own, unread by others
    SUM = 2  # everybody gets the same


@dataclass(frozen=True)
class Envelope:
    """A sealed message. Everything but `sealed` is in the clear: relays need it, and the seal covers it."""

    sender: int
    receiver: int
    round: int
    kind: Kind
    counter: int
    sealed: bytes

    def pack(self) -> bytes:
        """As it travels."""
        return self.header() + self.sealed

    @classmethod
    def unpack(cls, data: bytes) -> Envelope:
        """What `pack` packed; a truncated or padded envelope is rejected."""
        if len(data) < OVERHEAD:
            raise Rejected(f"an envelope has at least {OVERHEAD} bytes, got {len(data)}: it was truncated")
        sender, receiver, number, kind, counter, length = _HEADER.unpack_from(data)
        if len(data) != _HEADER.size + length:
            raise Rejected(f"an envelope says {length} sealed bytes but brings {len(data) - _HEADER.size}")
        if kind not in set(Kind):
            raise Rejected(f"an envelope of unknown kind {kind}")
        return cls(sender, receiver, number, Kind(kind), counter, data[_HEADER.size :])

    def header(self) -> bytes:
        """All but the sealed body: what the seal authenticates."""
        return _HEADER.pack(self.sender, self.receiver, self.round, self.kind, self.counter, len(self.sealed))
