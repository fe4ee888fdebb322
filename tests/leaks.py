"""Planted records and private keys, and the search for them in everything that a run leaves behind or sends.

A planted number is random in all its digits and occurs once, so that none turns up by accident. It is looked for as
float64 of either byte order; as float32, which is short enough to turn up by accident, two in a row; as decimal text
of twelve digits, or of seven, two in a row. Whatever looks compressed or written in hexadecimal or base64 is undone
and searched too, as deep as it goes. Of a key half is enough, in the same disguises.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import io
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

DEPTH = 4  # archives within archives
NUMBER = re.compile(rb"\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
HEX = re.compile(rb"[0-9a-fA-F]{32,}|(?:\\x[0-9a-f]{2}){16,}")
BASE64 = re.compile(rb"[A-Za-z0-9+/_-]{32,}={0,2}")
ZLIB = re.compile(rb"\x78[\x01\x5e\x9c\xda]")
ZSTD, GZIP = b"\x28\xb5\x2f\xfd", b"\x1f\x8b\x08"


def planted_numbers(shape: tuple[int, ...], low: float, high: float, seed: int) -> np.ndarray:
    """Numbers that nobody else has: random in every digit."""
    return np.random.default_rng([seed, 20]).uniform(low, high, shape)


class _Looking:
    """Looks into files, and into what is packed in them."""

    def _plain(self, data: bytes) -> str | None:
        """How what is wanted is written in these bytes, as they are."""
        raise NotImplementedError

    def found(self, data: bytes, depth: int = DEPTH) -> str | None:
        """How what is wanted is written in these bytes; None: it is not there."""
        if how := self._plain(data):
            return how
        for kind, inside in _unpacked(data) if depth else ():
            if how := self.found(inside, depth - 1):
                return f"{how} in {kind}"
        return None

    def files(self, folder: Path) -> dict[str, str]:
        """Every file below the folder in which it is, and how."""
        paths = [p for p in sorted(folder.rglob("*")) if p.is_file()]
        hits = {str(p.relative_to(folder)): self.found(p.read_bytes()) for p in paths}
        return {name: how for name, how in hits.items() if how}


class Secrets(_Looking):
    """Looks for secret bytes, by name: either half of them."""

    def __init__(self, secrets: Mapping[str, bytes]):
        assert all(len(secret) >= 32 for secret in secrets.values()), "too short to be sure"
        self._halves = {
            half: name
            for name, secret in secrets.items()
            for half in (secret[: len(secret) // 2], secret[len(secret) // 2 :])
        }

    def _plain(self, data: bytes) -> str | None:
        return next((name for half, name in self._halves.items() if half in data), None)


class Search(_Looking):
    """Looks for these numbers, and for what they become when they are scaled."""

    def __init__(self, *planted: np.ndarray):
        numbers = np.unique(np.concatenate([np.abs(np.ravel(p)) for p in planted]).astype(float))
        numbers = numbers[(numbers != 0) & (numbers != np.round(numbers, 6))]  # round ones are nobody's
        assert len(numbers) >= 8, "nothing is planted"
        self._wide = _Wanted(numbers.view(np.uint64))
        self._narrow = _Wanted(numbers.astype(np.float32).view(np.uint32))
        self._long = {_digits(x, 12) for x in numbers}
        self._short = {_digits(x, 7) for x in numbers}

    def _plain(self, data: bytes) -> str | None:
        return self._floats(data) or self._text(data)

    def _floats(self, data: bytes) -> str | None:
        if any(self._wide.found(data, at).size for at in range(8)):
            return "float64"
        # a planted number after a planted number
        return "float32" if any(np.any(np.diff(self._narrow.found(data, at)) == 1) for at in range(4)) else None

    def _text(self, data: bytes) -> str | None:
        last = False
        for match in NUMBER.finditer(data):
            if len(match[0]) < 8:
                continue
            digits = match[0].lower().split(b"e")[0].replace(b".", b"").lstrip(b"0").decode()
            if digits[:12] in self._long:
                return "decimal"
            hit = digits[:7] in self._short
            if hit and last:
                return "decimal"
            last = hit
        return None


class _Wanted:
    """Words of one width that are looked for in either byte order, whatever their sign."""

    def __init__(self, words: np.ndarray):
        self._words = np.unique(np.concatenate([words, words.byteswap()]))
        self._kind = words.dtype.type
        self._middle = self._kind(4 * words.dtype.itemsize)  # of the mantissa in both orders: a quick first look
        self._signs = [self._kind(sign) for sign in (0, 1 << 7, 1 << (8 * words.dtype.itemsize - 1))]
        self._seen = np.zeros(1 << 16, bool)
        self._seen[(self._words >> self._middle) & self._kind(0xFFFF)] = True

    def found(self, data: bytes, at: int) -> np.ndarray:
        """Which words of these bytes, read from `at` on, are wanted."""
        size = self._words.dtype.itemsize
        words = np.frombuffer(data[at : at + max(0, len(data) - at) // size * size], self._kind)
        near = np.flatnonzero(self._seen[(words >> self._middle) & self._kind(0xFFFF)])
        hit = np.zeros(len(near), bool)
        for sign in self._signs if len(near) else ():
            plain = words[near] ^ sign
            hit |= self._words[np.minimum(np.searchsorted(self._words, plain), len(self._words) - 1)] == plain
        return near[hit]


def _digits(x: float, count: int) -> str:
    """The first significant digits of a number, as they are printed."""
    return f"{x:.25e}".replace(".", "")[:count]


def _unpacked(data: bytes) -> Iterator[tuple[str, bytes]]:
    """What is inside, wherever a packed part begins; what only looked packed yields nothing."""
    if data[:4] == b"PK\x03\x04":
        with contextlib.suppress(zipfile.BadZipFile), zipfile.ZipFile(io.BytesIO(data)) as archive:
            for name in archive.namelist():
                yield f"zip:{name}", archive.read(name)
            return
    for start in ZLIB.finditer(data):
        if inside := _inflated(data[start.start() :], zlib.MAX_WBITS):
            yield "zlib", inside
    for at in _all(data, GZIP):
        if inside := _inflated(data[at:], zlib.MAX_WBITS | 16):
            yield "gzip", inside
    for at in _all(data, ZSTD):
        import zstandard  # only JAX with this package writes such a thing

        with contextlib.suppress(zstandard.ZstdError):
            yield "zstd", zstandard.ZstdDecompressor().decompressobj().decompress(data[at:])
    for match in HEX.finditer(data):
        text = match[0].replace(b"\\x", b"").decode()
        for digits in (text, text[1:]) if text == match[0].decode() else (text,):  # a letter before may look like one
            yield "hexadecimal", bytes.fromhex(digits[: len(digits) // 2 * 2])
    for match in BASE64.finditer(data):
        text = match[0].rstrip(b"=").replace(b"-", b"+").replace(b"_", b"/")
        for at in range(4):
            part = text[at : at + (len(text) - at) // 4 * 4]
            with contextlib.suppress(binascii.Error):
                yield "base64", base64.b64decode(part)


def _inflated(data: bytes, window: int) -> bytes:
    try:
        return zlib.decompressobj(window).decompress(data)
    except zlib.error:
        return b""


def _all(data: bytes, mark: bytes) -> Iterator[int]:
    at = data.find(mark)
    while at >= 0:
        yield at
        at = data.find(mark, at + 1)


__all__ = ["Search", "Secrets", "planted_numbers"]
