"""What a party may be called, and how it is reached. Its name is in its certificate and in TLS, and names a folder."""

from __future__ import annotations

import ipaddress
import re

from coterie.errors import InputError

__all__ = ["host_and_port", "is_title", "party_name", "route_name", "routes_of", "title_of"]

TITLE = 80  # characters
_SUFFIX = "coterie.internal"
_LABEL = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*\.?")


def party_name(text: str) -> str:
    """The name, if it can be one: TLS would take one that ends in a number for an address, and refuse an empty part."""
    if len(text) > 63 or not _NAME.fullmatch(text):
        raise InputError(
            "a name has lower-case letters, digits, '-' and '.', each part begins and ends with a letter or digit, "
            f"at most 63 in all; got {text!r}"
        )
    if text.rpartition(".")[2].isdigit() and "." in text:
        raise InputError(f"a name with dots must not end in a number, which would make it an address, got {text!r}")
    return text


def is_title(text: str) -> bool:
    """Whether people can be shown this in a line among others: nothing in it is invisible or turns the line."""
    return bool(text) and text == text.strip() and len(text) <= TITLE and text.isprintable()


def title_of(text: str) -> str:
    """What people call a party, if it can be a title."""
    if not is_title(text):
        raise InputError(
            f"a title is one line of 1 to {TITLE} printable characters without spaces around it, got {text!r}"
        )
    return text


def routes_of(name: str) -> str:
    """What a party's certificate says besides its name: that it answers under each of its agreements' routes."""
    return f"*.{name}.{_SUFFIX}"


def route_name(plan_hash: bytes, name: str) -> str:
    """What a caller asks for in TLS: the party *under this agreement*, so that a host with several can tell them apart.

    >>> route_name(bytes(32), "harbour")
    '00000000000000000000000000000000.harbour.coterie.internal'
    """
    return f"{plan_hash[:16].hex()}.{name}.{_SUFFIX}"


def host_and_port(text: str) -> tuple[str, int]:
    """The two halves of "host:port"; an IPv6 address stands in brackets."""
    host, colon, port = text.rpartition(":")
    bare = host[1:-1] if host[:1] == "[" and host[-1:] == "]" else ""
    good = _is_ipv6(bare) if bare else len(host) <= 253 and _HOST.fullmatch(host) is not None
    if not (colon and good and re.fullmatch(r"[0-9]{1,5}", port) and 1 <= int(port) <= 65535):
        raise InputError(f"an address is host:port with a port from 1 to 65535, got {text!r}")
    return bare or host, int(port)


def _is_ipv6(text: str) -> bool:
    try:
        return bool(ipaddress.IPv6Address(text))
    except ValueError:
        return False
