"""A state as it is stored: what is hashed when it is, and parts that were hashed before, named by their SHA-256.

    no such parts    the state
    else             head, state, the parts one after the other; the head says how long each is, and names the parts

The row of a round holds SHA-256 of the state, or of "coterie parts", head and state: whoever has that hash can check
every byte, and head and state by themselves are no state. What neighbours said last is such a part. It was hashed when
it came, to verify its signature; that takes longer than all else that is done with it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from coterie.deploy.chain import sha256
from coterie.deploy.sealing import Damaged

__all__ = ["Hashed", "laid_out", "taken_apart"]

_DOMAIN = b"coterie parts\0"
_HEAD, _PART = struct.Struct("<QI"), struct.Struct("<32sQ")


class Hashed(NamedTuple):
    """A part whose SHA-256 is known."""

    digest: bytes
    content: memoryview


def laid_out(state: Sequence[memoryview], known: Sequence[Hashed] = ()) -> tuple[list[memoryview], bytes]:
    """All that is stored, in parts that are not copied, and the hash that stands for it."""
    if not known:
        return list(state), sha256(*state)
    table = [_PART.pack(part.digest, part.content.nbytes) for part in known]
    head = memoryview(b"".join((_HEAD.pack(sum(part.nbytes for part in state), len(known)), *table)))
    return [head, *state, *(part.content for part in known)], sha256(_DOMAIN, head, *state)


def taken_apart(stored: bytes, expected: bytes) -> tuple[bytes, list[Hashed]]:
    """The state and the known parts in what was stored; `Damaged` if it is not what the hash stands for."""
    if sha256(stored) == expected and not stored.startswith(_DOMAIN):
        return stored, []
    try:
        length, count = _HEAD.unpack_from(stored)
        table = [_PART.unpack_from(stored, _HEAD.size + i * _PART.size) for i in range(count)]
    except struct.error:
        raise Damaged("a state without its head") from None
    whole, known = memoryview(stored), []
    start = _HEAD.size + count * _PART.size
    at = start + length
    if sha256(_DOMAIN, whole[:at]) != expected:
        raise Damaged("a state of another hash")
    for digest, size in table:
        known.append(Hashed(digest, whole[at : at + size]))
        at += size
        if sha256(known[-1].content) != digest:
            raise Damaged("a part of a state of another hash")
    if at != len(stored):
        raise Damaged(f"a state of {len(stored)} bytes, expected {at}")
    return stored[start : start + length], known
