"""Words: integers modulo the prime q = 2^61 − 1, streams of them, and numbers on a grid.

Modulo a prime one random linear functional tells two vectors apart but for a chance of 1/q; modulo 2^64 a difference
of 2^63 escapes every second functional. A stream word is the low 61 bits of eight ChaCha20 bytes; the one value that
is no word, q itself, is skipped, so masks are exactly uniform.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coterie.errors import InputError
from coterie.privacy.secure_table import words64

__all__ = [
    "MODULUS", "Code", "Refused", "Words", "add", "dot", "from_signed", "keyed", "keystream", "mask", "pick", "subtract"
]  # fmt: skip

Words = NDArray[np.uint64]
MODULUS = 2**61 - 1
FEW, MANY = 2**11, 2**33  # integers for which a key is made; 2^35 is all that a counter of 32 bits has

_Q = np.uint64(MODULUS)
_31, _30, _61 = np.uint64(31), np.uint64(30), np.uint64(61)
_LOW31, _LOW30, _LOW32 = np.uint64(2**31 - 1), np.uint64(2**30 - 1), np.uint64(2**32 - 1)


class Refused(Exception):
    """An opened total that no honest vectors can have: the round gives no step."""


def _once(x: Words) -> Words:
    """x modulo q for x < 2q."""
    return np.where(x >= _Q, x - _Q, x)


def add(*parts: Words) -> Words:
    """Sum modulo q."""
    total = np.zeros_like(parts[0])
    for part in parts:
        total = _once(total + part)
    return total


def subtract(a: Words, b: Words) -> Words:
    """a − b modulo q."""
    return _once(a + (_Q - b))


def multiply(a: Words, b: Words) -> Words:
    """Products modulo q, in halves of 31 bits: 2^61 is 1, so 2^62 is 2, and nothing reaches 2^64."""
    a1, a0, b1, b0 = a >> _31, a & _LOW31, b >> _31, b & _LOW31
    middle = a1 * b0 + a0 * b1
    total = (a1 * b1 << np.uint64(1)) + (middle >> _30) + ((middle & _LOW30) << _31) + a0 * b0
    return _once((total & _Q) + (total >> _61))


def dot(a: Words, b: Words) -> int:
    """Σ a b modulo q, exact: the low and high halves of up to 2^32 products are added apart.

    >>> dot(np.array([MODULUS - 1, 3], np.uint64), np.array([MODULUS - 1, 5], np.uint64))
    16
    """
    products = multiply(a, b)
    low, high = int(np.sum(products & _LOW32)), int(np.sum(products >> np.uint64(32)))
    return (low + (high << 32)) % MODULUS


def from_signed(values: NDArray[np.int64]) -> Words:
    """Integers below q in size as words."""
    return np.where(values < 0, values + MODULUS, values).astype(np.uint64)


def to_signed(words: Words) -> NDArray[np.int64]:
    """Words read as integers in (−q/2, q/2)."""
    signed = words.astype(np.int64)
    return np.where(signed > MODULUS // 2, signed - MODULUS, signed)


def keystream(key: bytes) -> Callable[[int], bytes]:
    """The next bytes of the ChaCha20 stream of a key that has this one use."""
    from cryptography.hazmat.primitives.ciphers import Cipher  # of the extra `deploy`: pricing and simulating need none
    from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

    encrypt = Cipher(ChaCha20(key, bytes(16)), None).encryptor().update
    return lambda count: encrypt(bytes(count))


def keyed(count: int) -> Callable[[int], Words]:
    """A stream of 64-bit integers with a key of its own, fresh from the operating system: for one table and one call.

    Ten times as fast as the system's own bytes, and as good up to ChaCha20's distinguishing advantage
    (docs/threat-model.md). The key lives as long as what is returned. Few integers come from the system directly,
    and so do more than one key's counter can count.
    """
    if not FEW <= count <= MANY:
        return words64
    source = keystream(os.urandom(32))
    return lambda size: np.frombuffer(source(8 * size), np.uint64)


def pick(source: Callable[[int], bytes], count: int) -> Words:
    """The first `count` words of a stream of bytes."""
    parts: list[Words] = []
    missing = count
    while missing:
        raw = np.frombuffer(source(8 * missing), "<u8").astype(np.uint64) & _Q
        parts.append(raw[raw != _Q])
        missing -= parts[-1].size
    return np.concatenate(parts) if parts else np.zeros(0, np.uint64)


def mask(key: bytes, count: int) -> Words:
    """The mask that a key expands to."""
    return pick(keystream(key), count)


def checked(words: Iterable[int] | Words) -> Words:
    """Words that came from outside: an error if one is no word."""
    found = np.asarray(words, np.uint64)
    if (found >= _Q).any():
        raise ValueError(f"a word is at least q = {MODULUS}")
    return found


@dataclass(frozen=True)
class Code:
    """How numbers become words: round(2^f v), |v| ≤ `bound`, with room for noise up to `reach` grid steps.

    Settings under which a sum could leave (−2^60, 2^60) are refused. A number that is too large is cut to the bound,
    one that is no number counts as 0: whether a party takes part must never depend on its records.

    >>> code = Code(parties=3, fraction_bits=8, bound=100.0)
    >>> code.decode(add(code.encode([1.5, np.nan]), code.encode([-4.25, 500.0]), code.encode([0.5, 0.0])))
    array([ -2.25, 100.  ])
    """

    parties: int
    fraction_bits: int
    bound: float
    reach: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.fraction_bits <= 59:
            raise InputError(f"fraction_bits must be in 0..59, got {self.fraction_bits}")
        if not (self.bound > 0 and math.isfinite(self.bound)):
            raise InputError(f"bound must be a number > 0, got {self.bound}")
        if not self.most < 2**60:
            raise InputError(
                f"{self.parties} parties with numbers up to {self.bound:g} at {self.fraction_bits} fraction bits can "
                f"reach 2^{math.log2(self.most):.2f} ≥ 2^60: lower bound or fraction_bits"
            )

    @property
    def most(self) -> int:
        """The largest total that honest parties can have, in grid steps."""
        return self.parties * (math.ceil(self.bound * 2.0**self.fraction_bits) + self.reach)

    def encode(self, values: ArrayLike) -> Words:
        """Numbers as words; never an error."""
        numbers = np.clip(np.nan_to_num(np.asarray(values, np.float64), nan=0.0), -self.bound, self.bound)
        return from_signed(np.rint(np.ldexp(numbers, self.fraction_bits)).astype(np.int64))

    def decode(self, total: Words) -> NDArray[np.float64]:
        """An opened total as numbers; `Refused` beyond what honest parties can reach."""
        signed = to_signed(total)
        if signed.size and int(np.abs(signed).max()) > self.most:
            raise Refused(f"a total of {int(np.abs(signed).max())} grid steps is beyond {self.most}: a vector is wrong")
        return np.ldexp(signed.astype(np.float64), -self.fraction_bits)
