"""Shamir's secret sharing of 32-byte secrets over the prime field of p = 2^256 + 297 (Shamir 1979).

A secret s is the constant term of a polynomial of degree t − 1 with uniform coefficients; party i holds its value at
i + 1. Any t values give s by interpolation, fewer are independent of it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping

from coterie.errors import InputError
from coterie.exchange.wire import SHARE_BYTES

__all__ = ["PRIME", "SECRET_BYTES", "Combiner", "share_secret"]

PRIME = 2**256 + 297
SECRET_BYTES = 32


def share_secret(secret: bytes, threshold: int, parties: int) -> list[bytes]:
    """One share of 33 bytes for each party; any `threshold` of them recover the secret."""
    if len(secret) != SECRET_BYTES:
        raise InputError(f"a shared secret has {SECRET_BYTES} bytes, got {len(secret)}")
    if not 1 <= threshold <= parties:
        raise InputError(f"threshold must be in 1..{parties}, got {threshold}")
    terms = [int.from_bytes(secret, "big"), *(secrets.randbelow(PRIME) for _ in range(threshold - 1))]
    shares = []
    for x in range(1, parties + 1):
        value = 0
        for term in reversed(terms):
            value = (value * x + term) % PRIME
        shares.append(value.to_bytes(SHARE_BYTES, "big"))
    return shares


class Combiner:
    """Interpolation at 0 from one set of holders; its weights serve for every secret that they hold shares of.

    >>> shares = share_secret(bytes(31) + b"!", threshold=2, parties=3)
    >>> Combiner([0, 2]).recover({0: shares[0], 2: shares[2]})[-1:]
    b'!'
    """

    def __init__(self, holders: Iterable[int]) -> None:
        points = {i: i + 1 for i in sorted(holders)}
        self._weights = {}
        for i, x in points.items():
            top = bottom = 1
            for j, y in points.items():
                if j != i:
                    top, bottom = top * y % PRIME, bottom * (y - x) % PRIME
            self._weights[i] = top * pow(bottom, -1, PRIME) % PRIME

    def recover(self, shares: Mapping[int, bytes]) -> bytes:
        """The secret from these holders' shares; an error if they are not of one polynomial (detected only by luck)."""
        if shares.keys() != self._weights.keys():
            raise InputError(f"expected shares of {sorted(self._weights)}, got {sorted(shares)}")
        value = sum(w * int.from_bytes(shares[i], "big") for i, w in self._weights.items()) % PRIME
        if value >= 2 ** (8 * SECRET_BYTES):
            raise InputError("the shares do not belong to one secret")
        return value.to_bytes(SECRET_BYTES, "big")
