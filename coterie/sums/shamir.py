"""Shamir's secret sharing of 16-byte secrets over the prime field of p = 2^128 + 51 (Shamir 1979).

A secret is the constant term of a polynomial of degree t − 1 with uniform coefficients; party j holds its value at
j + 1 in 17 bytes. Any t values give it, fewer are independent of it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence

from coterie.errors import InputError

__all__ = ["PRIME", "SECRET", "SHARE", "Weights", "coefficients", "evaluate"]

PRIME = 2**128 + 51
SECRET, SHARE = 16, 17  # bytes


def coefficients(threshold: int) -> list[int]:
    """Fresh coefficients of degree 1 … t − 1."""
    return [secrets.randbelow(PRIME) for _ in range(threshold - 1)]


def evaluate(secret: bytes, terms: Sequence[int], parties: int) -> list[bytes]:
    """The shares of all parties of one secret under these coefficients."""
    if len(secret) != SECRET:
        raise InputError(f"a shared secret has {SECRET} bytes, got {len(secret)}")
    ascending = [int.from_bytes(secret, "big"), *terms]
    shares = []
    for x in range(1, parties + 1):
        value = 0
        for term in reversed(ascending):
            value = (value * x + term) % PRIME
        shares.append(value.to_bytes(SHARE, "big"))
    return shares


class Weights:
    """Interpolation at 0 from one set of holders, for every secret that they hold shares of.

    >>> shares = evaluate(bytes(15) + b"!", coefficients(2), parties=3)
    >>> Weights([0, 2]).recover({0: shares[0], 2: shares[2]})[-1:]
    b'!'
    """

    def __init__(self, holders: Iterable[int]) -> None:
        points = {i: i + 1 for i in sorted(holders)}
        self.weights: dict[int, int] = {}
        for i, x in points.items():
            top = bottom = 1
            for j, y in points.items():
                if j != i:
                    top, bottom = top * y % PRIME, bottom * (y - x) % PRIME
            self.weights[i] = top * pow(bottom, -1, PRIME) % PRIME

    def recover(self, shares: Mapping[int, bytes]) -> bytes | None:
        """The secret that these shares give, or None where they cannot belong to one."""
        value = sum(w * int.from_bytes(shares[i], "big") for i, w in self.weights.items()) % PRIME
        return None if value >> 128 else value.to_bytes(SECRET, "big")
