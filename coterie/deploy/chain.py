"""Hash chains: one way to write each value, and SHA-256 over fields that no other fields share."""

from __future__ import annotations

import hashlib
import json
import struct

__all__ = ["canonical", "link", "sha256"]

_KINDS: dict[type, bytes] = {str: b"s", int: b"i"}
_KIND_AND_LENGTH = struct.Struct(">cQ").pack
_JSON = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


def canonical(value: object) -> str:
    """JSON with one way to write each value."""
    return _JSON.encode(value)


def link(*fields: bytes | str | int) -> bytes:
    """SHA-256 over the fields, each with its type and length."""
    encoded = bytearray()
    for field in fields:
        if isinstance(field, bytes):
            kind, data = b"b", field
        else:  # a damaged file may hold anything
            kind, data = _KINDS.get(type(field)) or type(field).__name__[:1].encode(), str(field).encode()
        encoded += _KIND_AND_LENGTH(kind, len(data))
        encoded += data
    return hashlib.sha256(encoded).digest()


def sha256(*parts: bytes | memoryview) -> bytes:
    """Of the parts as if they were one."""
    hasher = hashlib.sha256()
    for part in parts:
        hasher.update(part)
    return hasher.digest()
