"""Frames: what parties send each other, as canonical bytes with one signature.

A frame is 48 bytes of header (plan, kind, sender, round, ballot, slot), a body and an Ed25519 signature of 64 bytes:
112 bytes and the body. A frame is named by the hash of header and body, so two signatures do not make two frames.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from coterie.sums.shamir import SECRET, SHARE
from coterie.sums.terms import SharedTerms
from coterie.sums.words import Words, checked

__all__ = ["OVERHEAD", "Step", "SumFrame"]

_HEADER = struct.Struct("<32sBxHIII")
_DOMAIN = b"coterie sum frame 2"
OVERHEAD = _HEADER.size + 64
HASH = 32
NONE = bytes(HASH)
_VERIFIED: set[tuple[bytes, bytes, bytes]] = set()
"""Signatures that were found good: promises and commitments come again within other frames."""


class Step(IntEnum):
    """What a frame is."""

    KEYS = 1  # fresh key of a batch
    DEAL = 2  # public part of the secrets of a batch
    ENVELOPE = 3  # one holder's shares
    HELD = 4  # whose deals the sender has stored
    ROSTER = 5  # proposal: who takes part in a batch, and with which deals
    START = 6  # proposal of fresh words for a slot
    COMMIT = 7
    WORDS = 8
    SET = 9  # proposal: who answered
    FINISH = 10  # an earlier proposal again
    PROMISE = 11
    VOTE = 12
    CERT = 13
    SHARES = 14
    OPENED = 15
    FETCH = 16  # a frame by its name, or what closed an instance
    ASK = 17  # after a start: what do you hold from me?
    STAND = 18
    SHOW = 19  # in a dispute: own words and the frames that were added
    PROVE = 20  # please prove your shares
    PROOF = 21
    LEND = 22  # frames that give the words of a member that did not vote
    DONE = 23  # the sender has the totals of all rounds


class BadSumFrame(Exception):
    """A frame that nobody who follows the protocol sends."""


@dataclass(frozen=True)
class SumFrame:
    plan: bytes
    kind: Step
    sender: int
    round: int
    ballot: int
    slot: int
    body: bytes
    signature: bytes

    @cached_property
    def unsigned(self) -> bytes:
        return _HEADER.pack(self.plan, self.kind, self.sender, self.round, self.ballot, self.slot) + self.body

    @cached_property
    def digest(self) -> bytes:
        """The frame's name."""
        return hashlib.sha256(self.unsigned).digest()

    def pack(self) -> bytes:
        """The bytes that travel."""
        return self.unsigned + self.signature

    @classmethod
    def unpack(cls, raw: bytes) -> SumFrame:
        """A frame from its bytes."""
        if len(raw) < OVERHEAD:
            raise BadSumFrame(f"a frame has at least {OVERHEAD} bytes, got {len(raw)}")
        plan, kind, sender, round_, ballot, slot = _HEADER.unpack_from(raw)
        if kind not in Step.__members__.values() or raw[33]:
            raise BadSumFrame(f"no such kind of frame: {kind}")
        return cls(plan, Step(kind), sender, round_, ballot, slot, raw[_HEADER.size : -64], raw[-64:])

    def sign(self, key: Ed25519PrivateKey) -> SumFrame:
        """The same frame with a signature."""
        signature = key.sign(_DOMAIN + self.unsigned)
        return SumFrame(self.plan, self.kind, self.sender, self.round, self.ballot, self.slot, self.body, signature)

    def genuine(self, terms: SharedTerms) -> bool:
        """Whether it belongs to this plan and its sender signed it."""
        if self.plan != terms.plan or self.sender >= terms.parties:
            return False
        public = terms.signing[self.sender]
        mark = (public, self.digest, self.signature)
        if mark in _VERIFIED:
            return True
        try:
            Ed25519PublicKey.from_public_bytes(public).verify(self.signature, _DOMAIN + self.unsigned)
        except InvalidSignature:
            return False
        if len(_VERIFIED) >= 1 << 16:
            _VERIFIED.clear()
        _VERIFIED.add(mark)
        return True


def sender_of(raw: bytes) -> int:
    """Whom the bytes of a frame name as its sender, unchecked; −1 where they are too short to."""
    return int.from_bytes(raw[34:36], "little") if len(raw) >= OVERHEAD else -1


# ---- bodies ----------------------------------------------------------------------------------------------------------


def pack_set(members: Iterable[int], terms: SharedTerms) -> bytes:
    return sum(1 << i for i in members).to_bytes(terms.bitmap, "little")


def read_set(raw: bytes, terms: SharedTerms) -> tuple[int, ...]:
    bits = int.from_bytes(raw, "little")
    if bits >> terms.parties:
        raise BadSumFrame("a set names parties that do not exist")
    return tuple(i for i in range(terms.parties) if bits >> i & 1)


def pack_words(words: Words) -> bytes:
    return words.astype("<u8").tobytes()


def read_words(raw: bytes) -> Words:
    return checked(np.frombuffer(raw, "<u8").astype(np.uint64))


def pack_frames(frames: Iterable[SumFrame]) -> bytes:
    return b"".join(len(raw := frame.pack()).to_bytes(4, "little") + raw for frame in frames)


def read_frames(raw: bytes, terms: SharedTerms) -> list[SumFrame]:
    """Frames in a frame; all must be genuine."""
    found = []
    while raw:
        end = 4 + int.from_bytes(raw[:4], "little")
        if len(raw) < end or end < 5:
            raise BadSumFrame("frames within a frame are cut off")
        found.append(SumFrame.unpack(raw[4:end]))
        if not found[-1].genuine(terms):
            raise BadSumFrame(f"a frame within a frame is not signed by party {found[-1].sender}")
        raw = raw[end:]
    return found


def cut(raw: bytes, *lengths: int) -> list[bytes]:
    """The body's parts of these lengths, and what is left."""
    parts, place = [], 0
    for length in lengths:
        parts.append(raw[place : place + length])
        place += length
    if len(raw) < place:
        raise BadSumFrame(f"a body has {len(raw)} bytes, expected at least {place}")
    return [*parts, raw[place:]]


def pieces(raw: bytes, length: int, count: int) -> list[bytes]:
    if len(raw) != length * count:
        raise BadSumFrame(f"a body has {len(raw)} bytes left, expected {count} times {length}")
    return [raw[k : k + length] for k in range(0, len(raw), length)]


@dataclass(frozen=True)
class Deal:
    """Per slot X_i and C_i; per holder the root over its shares; and the name of the KEYS that sealed them."""

    keys: bytes
    public: tuple[bytes, ...]
    roots: tuple[bytes, ...]

    def pack(self) -> bytes:
        """The bytes that travel."""
        return self.keys + b"".join(self.public) + b"".join(self.roots)

    @classmethod
    def read(cls, body: bytes, terms: SharedTerms) -> Deal:
        keys, public, roots = cut(body, HASH, 64 * terms.slots)
        return cls(keys, tuple(pieces(public, 64, terms.slots)), tuple(pieces(roots, HASH, terms.parties)))


@dataclass(frozen=True)
class Roster:
    """The members of a batch, the first round that it serves, and the name of every member's DEAL."""

    first: int
    members: tuple[int, ...]
    deals: tuple[bytes, ...]  # one for each member
    promises: tuple[SumFrame, ...]

    def pack(self, terms: SharedTerms) -> bytes:
        """The bytes that travel."""
        head = self.first.to_bytes(4, "little") + pack_set(self.members, terms)
        return head + b"".join(self.deals) + pack_frames(self.promises)

    @classmethod
    def read(cls, body: bytes, terms: SharedTerms) -> Roster:
        first, bits, rest = cut(body, 4, terms.bitmap)
        members = read_set(bits, terms)
        deals, promises = cut(rest, HASH * len(members))
        frames = tuple(read_frames(promises, terms))
        return cls(int.from_bytes(first, "little"), members, tuple(pieces(deals, HASH, len(members))), frames)


@dataclass(frozen=True)
class Begin:
    """The body of START: everybody's parent in the tree, and the promises that allow it."""

    parents: tuple[int, ...]
    promises: tuple[SumFrame, ...]

    def pack(self) -> bytes:
        """The bytes that travel."""
        return bytes(self.parents) + pack_frames(self.promises)

    @classmethod
    def read(cls, body: bytes, terms: SharedTerms) -> Begin:
        parents, promises = cut(body, terms.parties)
        return cls(tuple(parents), tuple(read_frames(promises, terms)))


@dataclass(frozen=True)
class Partial:
    """The body of WORDS: whose words were added, the hash over the frames added, and the sum."""

    start: bytes
    members: tuple[int, ...]
    added: bytes
    words: Words

    def pack(self, terms: SharedTerms) -> bytes:
        """The bytes that travel."""
        return self.start + pack_set(self.members, terms) + self.added + pack_words(self.words)

    @classmethod
    def read(cls, body: bytes, terms: SharedTerms) -> Partial:
        start, bits, added, words = cut(body, HASH, terms.bitmap, HASH)
        if len(words) != 8 * terms.size:
            raise BadSumFrame(f"a partial sum has {len(words)} bytes, expected {8 * terms.size}")
        return cls(start, read_set(bits, terms), added, read_words(words))


@dataclass(frozen=True)
class Answered:
    """The body of SET: who answered, what each committed to with its signature, and the sum of their words."""

    start: bytes
    members: tuple[int, ...]
    commits: tuple[tuple[bytes, bytes], ...]
    words: Words

    def pack(self, terms: SharedTerms) -> bytes:
        """The bytes that travel."""
        commits = b"".join(h + signature for h, signature in self.commits)
        return self.start + pack_set(self.members, terms) + commits + pack_words(self.words)

    @classmethod
    def read(cls, body: bytes, terms: SharedTerms) -> Answered:
        start, bits, rest = cut(body, HASH, terms.bitmap)
        members = read_set(bits, terms)
        commits, words = cut(rest, (HASH + 64) * len(members))
        if len(words) != 8 * terms.size:
            raise BadSumFrame(f"a sum has {len(words)} bytes, expected {8 * terms.size}")
        pairs = tuple((p[:HASH], p[HASH:]) for p in pieces(commits, HASH + 64, len(members)))
        return cls(start, members, pairs, read_words(words))

    def commit_frames(self, frame: SumFrame) -> list[SumFrame]:
        """The members' COMMIT frames, as they were signed."""
        return [
            SumFrame(frame.plan, Step.COMMIT, i, frame.round, frame.ballot, frame.slot, self.start + h, signature)
            for i, (h, signature) in zip(self.members, self.commits, strict=True)
        ]


@dataclass(frozen=True)
class Ballots:
    """The body of CERT: the votes, each with its two functionals."""

    value: bytes
    voters: tuple[int, ...]
    votes: tuple[tuple[bytes, bytes], ...]  # functionals, signature

    def pack(self, terms: SharedTerms) -> bytes:
        """The bytes that travel."""
        return self.value + pack_set(self.voters, terms) + b"".join(f + s for f, s in self.votes)

    @classmethod
    def read(cls, body: bytes, terms: SharedTerms) -> Ballots:
        value, bits, rest = cut(body, HASH, terms.bitmap)
        voters = read_set(bits, terms)
        return cls(value, voters, tuple((p[:16], p[16:]) for p in pieces(rest, 80, len(voters))))

    def vote_frames(self, frame: SumFrame) -> list[SumFrame]:
        return [
            SumFrame(frame.plan, Step.VOTE, i, frame.round, frame.ballot, frame.slot, self.value + f, signature)
            for i, (f, signature) in zip(self.voters, self.votes, strict=True)
        ]


def read_promise(body: bytes) -> tuple[bytes, bytes, bytes]:
    """The proposal voted for, the START answered for the round's first slot, and that of the highest spare."""
    voted, first, spare, rest = cut(body, HASH, HASH, HASH)
    if rest:
        raise BadSumFrame("a promise is too long")
    return voted, first, spare


def read_shares(body: bytes, owners: Sequence[int]) -> tuple[bytes, dict[int, bytes]]:
    value, rest = cut(body, HASH)
    return value, dict(zip(owners, pieces(rest, SHARE, len(owners)), strict=True))


def read_secrets(body: bytes, owners: Sequence[int]) -> tuple[bytes, dict[int, bytes]]:
    value, rest = cut(body, HASH)
    return value, dict(zip(owners, pieces(rest, SECRET, len(owners)), strict=True))
