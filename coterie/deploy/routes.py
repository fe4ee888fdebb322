"""Who is connected to whom, by everybody's own word, and the way from here to each party.

A party tells all others which of its neighbours it is connected to, in a *notice* that it signs. An edge is used while
both its ends say so, so nobody can invent one to an honest party, and a party that is gone is passed by as soon as its
neighbours have said that. Of each party only the notice with the highest number counts. Numbers are the nanoseconds of
the author's clock; one that was restarted with an older clock hears its former number from its neighbours and goes on
from there.

    notice   "CTRN" protocol, 3 zeros, plan hash 32, author 4, number 8, set of parties ⌈N/8⌉, Ed25519 signature 64

Ways are shortest, and the neighbours of a party have an order: the first one is the way to all to whom a shortest way
leads over it, the second to all others of whom that is true, and so on. So branches never meet again: a node on a
shortest way over the first neighbour belongs to the first. A packet to everybody travels a tree.

This finds ways around those who are gone. A relay that stays, says that it is connected and throws packets away can
only be noticed by those who miss an answer.
"""

from __future__ import annotations

import struct
import time
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from nacl.exceptions import BadSignatureError

from coterie.deploy.agreement import Agreement
from coterie.deploy.frames import SIGNATURE_BYTES, BadFrame
from coterie.deploy.protocol import PROTOCOL

__all__ = ["NOTICE", "Notice", "View", "members"]

NOTICE = b"CTRN%c\0\0\0" % PROTOCOL
_HEAD = struct.Struct("<8s32sIQ")
_DOMAIN = b"coterie post notice\0"
_LAST = 2**63  # numbers lie below: the nanoseconds of three centuries


def members(parties: int) -> list[int]:
    """The nodes in a set of parties, which is the number that has their bits.

    >>> members(0b1101)
    [0, 2, 3]
    """
    return [node for node in range(parties.bit_length()) if parties >> node & 1]


class Notice(NamedTuple):
    """What a party has said of its connections."""

    number: int = -1
    up: int = 0  # the neighbours that it is connected to
    data: bytes = b""  # as it was signed


class View:
    """Everybody's latest notice.

    Args:
        agreement: the graph and the keys.
        node: this party.
        key: its frame key.
    """

    def __init__(self, agreement: Agreement, node: int, key: Ed25519PrivateKey) -> None:
        self._agreement, self._node, self._key = agreement, node, key
        count = len(agreement.parties)
        self.bytes = (count + 7) // 8  # of a set of parties on the wire
        self.neighbours = [0] * count
        for i, j in agreement.edges:
            self.neighbours[i] |= 1 << j
            self.neighbours[j] |= 1 << i
        self.notices = [Notice()] * count
        self._past = 0  # the last number of this party that is in circulation

    @property
    def notice_bytes(self) -> int:
        """Length of a notice."""
        return _HEAD.size + self.bytes + SIGNATURE_BYTES

    def declare(self, up: int) -> None:
        """Make a new notice of this party."""
        self._past = max(time.time_ns(), self._past + 1)
        body = _HEAD.pack(NOTICE, self._agreement.plan_hash, self._node, self._past) + up.to_bytes(self.bytes, "little")
        self.notices[self._node] = Notice(self._past, up, body + self._key.sign(_DOMAIN + body))

    def author(self, data: bytes) -> int:
        """Who is said to have made a notice."""
        if len(data) != self.notice_bytes:
            raise BadFrame(f"a notice has {self.notice_bytes} bytes, got {len(data)}")
        _, plan, author, _ = _HEAD.unpack_from(data)
        if plan != self._agreement.plan_hash:
            raise BadFrame("a notice under another agreement")
        if author >= len(self.notices):
            raise BadFrame(f"a notice of node {author} of {len(self.notices)}")
        return int(author)

    def hear(self, data: bytes) -> bool:
        """Take in a notice; whether it is new. BadFrame if no honest party would have handed it on."""
        author, body = self.author(data), data[:-SIGNATURE_BYTES]
        number = _HEAD.unpack_from(data)[3]
        if number <= self.notices[author].number:
            return False
        up = int.from_bytes(body[_HEAD.size :], "little")
        if up & ~self.neighbours[author]:
            raise BadFrame(f"a notice of node {author} names {members(up & ~self.neighbours[author])[0]}, no neighbour")
        if number >= _LAST:
            raise BadFrame(f"a notice of node {author} has number {number}")
        try:
            self._agreement.frame_keys[author].verify(_DOMAIN + body, data[-SIGNATURE_BYTES:])
        except BadSignatureError:
            raise BadFrame(f"a notice that node {author} has not signed") from None
        if author == self._node:
            self._past = number  # from an earlier life, with a clock that was ahead: `declare` goes beyond it
        else:
            self.notices[author] = Notice(number, up, data)
        return True

    def ways(self, up: int) -> dict[int, int]:
        """For each neighbour, the parties whose way from here begins with it.

        Args:
            up: the neighbours that this party is connected to just now.
        """
        near = [notice.up for notice in self.notices]
        near[self._node] = up
        ways, reached = {first: 1 << first for first in members(up)}, up | 1 << self._node
        edge = [(first, first) for first in ways]
        for here, first in edge:  # grows as it goes
            for there in members(near[here] & ~reached):
                if near[there] >> here & 1:
                    reached |= 1 << there
                    ways[first] |= 1 << there
                    edge.append((there, first))
        return ways
