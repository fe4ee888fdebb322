"""F1: no mutated frame is accepted and only BadFrame is raised; a decoder whose digest omits the header fails."""

from __future__ import annotations

import hashlib
import os
import random
import struct
from collections.abc import Callable

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st
from nacl.signing import VerifyKey

from coterie.deploy import hello
from coterie.deploy.frames import MESSAGE, SILENT, BadFrame, Frame, Receipt, Wire, digest, open_frame, seal, seal_hashed
from coterie.deploy.protocol import PROTOCOL

KEYS = {n: Ed25519PrivateKey.from_private_bytes(bytes([n + 1]) * 32) for n in range(3)}
PUBLIC = {n: VerifyKey(k.public_key().public_bytes_raw()) for n, k in KEYS.items()}
PLAN = hashlib.sha256(b"plan").digest()
WIRE = Wire(count=10, width=4, rounds=50, limit=lambda sender, round: 1000 * (sender + 1))


def frame(numbers: np.ndarray | None = None, sender: int = 1, round: int = 7, kind: int = MESSAGE) -> bytes:
    numbers = np.arange(-5, 5) if numbers is None else numbers
    return seal(KEYS[sender], PLAN, sender, round, numbers.astype("<i4").tobytes(), kind)


def opened(data: bytes, wire: Wire = WIRE, sender: int = 1) -> Frame:
    return open_frame(data, PUBLIC, PLAN, wire, sender)


def test_round_trip_and_layout() -> None:
    data = frame()
    found = opened(data)
    assert (found.sender, found.round, found.kind, found.silent) == (1, 7, MESSAGE, False)
    assert found.numbers.dtype == np.int64
    np.testing.assert_array_equal(found.numbers, np.arange(-5, 5))
    # the layout of the module's page, byte by byte, written again by hand
    assert len(data) == WIRE.frame_bytes == 48 + 40 + 64
    assert data[:8] == b"CTRF%c\x01\x00\x00" % PROTOCOL
    assert data[8:40] == PLAN
    assert struct.unpack("<II10i", data[40:88]) == (1, 7, *range(-5, 5))
    assert digest(data) == found.digest == hashlib.sha256(data[:88]).digest()
    signed = b"coterie frame\0" + PLAN + struct.pack("<II", 1, 7) + found.digest
    KEYS[1].public_key().verify(data[88:], signed)
    assert frame() == data  # the same message is the same bytes: a resend can be recognised


@given(st.integers(1, 40), st.integers(1, 33), st.randoms(use_true_random=False))
def test_few_bits_come_back_and_no_bit_is_free(bits: int, count: int, rng: random.Random) -> None:
    """Numbers of any width share bytes; what a receiver would refuse is not encoded, and spare bits must be zero."""
    most = 1 << (bits - 1)
    wire = Wire(count, 4 if bits <= 32 else 8, 50, lambda sender, round: most, bits)
    numbers = np.array([rng.randrange(-most, most) for _ in range(count)])
    payload = wire.encode(numbers, 0, 3)
    assert len(payload) == wire.bytes == -(-count * bits // 8)
    np.testing.assert_array_equal(opened(seal(KEYS[0], PLAN, 0, 3, payload), wire, 0).numbers, numbers)
    if bits not in (32, 64):
        with pytest.raises(ValueError, match="does not fit"):
            wire.encode(np.append(numbers[1:], most), 0, 3)
    with pytest.raises(BadFrame, match="beyond"):
        wire.encode(np.append(numbers[1:], -most - 1), 0, 3)
    if spare := 8 * wire.bytes - count * bits:
        full = payload[:-1] + bytes([payload[-1] | 1 << (8 - spare)])
        with pytest.raises(BadFrame, match="belong to no number"):
            opened(seal(KEYS[0], PLAN, 0, 3, full), wire, 0)


@pytest.mark.parametrize("width", [4, 8])
def test_encode_refuses_what_a_receiver_would(width: int) -> None:
    wire = Wire(10, width, 50, lambda sender, round: 1000)  # type: ignore[arg-type]
    good = np.full(10, 1000)
    data = seal(KEYS[0], PLAN, 0, 3, wire.encode(good, 0, 3))
    np.testing.assert_array_equal(opened(data, wire, 0).numbers, good)
    for bad in (good + 1, -good - 1):
        with pytest.raises(BadFrame, match="beyond"):
            wire.encode(bad, 0, 3)
    for wrong in (good[:9], good.astype(float)):
        with pytest.raises(ValueError, match="10 integers"):
            wire.encode(wrong, 0, 3)


def test_a_frame_is_hashed_as_it_is_made() -> None:
    frame, hashed = seal_hashed(KEYS[0], PLAN, 0, 3, bytes(40))
    assert frame == seal(KEYS[0], PLAN, 0, 3, bytes(40))
    assert hashed == hashlib.sha256(frame).digest()


def test_each_check_has_its_reason() -> None:
    good, silent = frame(), frame(np.zeros(10), kind=SILENT)
    assert opened(silent).silent
    cases = {
        "length 151": good[:-1],
        "length 0": b"",
        "not a frame": b"X" + good[1:],
        "another agreement": seal(KEYS[1], bytes(32), 1, 7, bytes(40)),
        "sender 0": frame(sender=0),
        "round 50": frame(round=50),
        "signature": good[:-1] + bytes([good[-1] ^ 1]),
        "beyond": frame(np.full(10, 2001)),
        "silent frame holds": frame(np.eye(10)[3], kind=SILENT),
        "not a frame of": frame(kind=3),
    }
    for reason, data in cases.items():
        with pytest.raises(BadFrame, match=reason):
            opened(data)
    opened(frame(np.full(10, 2000)))  # the limit is this sender's, and inclusive
    with pytest.raises(BadFrame, match="signature"):  # another party's key under this sender's number
        opened(seal(KEYS[0], PLAN, 1, 7, bytes(40)))


@pytest.mark.parametrize("value", [-(2**31), 2**31 - 1])
def test_extreme_int32(value: int) -> None:
    with pytest.raises(BadFrame, match="beyond"):
        opened(frame(np.full(10, value)))


def test_extreme_int64_has_no_absolute_value() -> None:
    """|−2⁶³| is −2⁶³ in int64: a check by absolute value would let it pass."""
    wire = Wire(1, 8, 50, lambda sender, round: 1000)
    for value in (-(2**63), 2**63 - 1):
        with pytest.raises(BadFrame, match="beyond"):
            opened(seal(KEYS[1], PLAN, 1, 7, struct.pack("<q", value)), wire)
    assert np.abs(np.int64(-(2**63))) <= 1000  # what the twin would have concluded


def test_bits_of_nan_are_just_integers_beyond_the_limit() -> None:
    with pytest.raises(BadFrame, match="beyond"):
        opened(seal(KEYS[1], PLAN, 1, 7, np.full(10, np.nan, "<f4").tobytes()))


# ---- F1 --------------------------------------------------------------------------------------------------------------


def mutated(source: random.Random, frames: list[bytes]) -> bytes:
    """A frame after one to three of: flipped bits, a changed byte, cut, grown, spliced with another, a moved field."""
    data = bytearray(source.choice(frames))
    for _ in range(source.randint(1, 3)):
        match source.randrange(7):
            case 0:
                data[source.randrange(len(data))] ^= 1 << source.randrange(8)
            case 1:
                data[source.randrange(len(data))] = source.randrange(256)
            case 2 if len(data) > 1:
                del data[source.randrange(1, len(data)) :]
            case 3:
                data += source.randbytes(source.randint(1, 9))
            case 4:  # the head of one frame, the rest of another
                at = source.choice([8, 40, 44, 48, 60, len(data) - 64])
                data[at:] = source.choice(frames)[at:]
            case 5 if len(data) > 48:  # another round or sender
                struct.pack_into("<I", data, source.choice([40, 44]), source.choice([0, 1, 2, 49, 50, 2**32 - 1]))
            case 6 if len(data) > 52:
                at = source.randrange(48, len(data) - 3)
                struct.pack_into("<i", data, at, source.choice([0, -1, 2**31 - 1, -(2**31), 0x7FC00000]))
    return bytes(data)


def accepted(decode: Callable[[bytes], object], count: int, seed: int) -> int:
    source = random.Random(seed)
    frames = [
        frame(np.array([source.randint(-2000, 2000) for _ in range(10)]), round=r, kind=MESSAGE) for r in range(20)
    ] + [frame(np.zeros(10), round=r, kind=SILENT) for r in range(20, 30)]
    genuine, taken = set(frames), 0
    for _ in range(count):
        data = mutated(source, frames)
        if data in genuine:
            continue
        try:
            decode(data)
        except BadFrame:
            continue
        taken += 1
    return taken


def payload_only(data: bytes) -> None:
    """The twin: the same checks, but what is authenticated is the payload and not the header."""
    first = b"CTRF%c" % PROTOCOL
    if len(data) != WIRE.frame_bytes or data[:5] != first or data[8:40] != PLAN or data[40:44] != b"\1\0\0\0":
        raise BadFrame("header")
    if int.from_bytes(data[44:48], "little") >= WIRE.rounds:
        raise BadFrame("round")
    if data[48:88] not in PAYLOADS:  # an ideal digest of the payload
        raise BadFrame("digest")


PAYLOADS: set[bytes] = set()


def test_no_mutated_frame_is_accepted() -> None:
    assert accepted(opened, 20_000, seed=1) == 0


def test_a_digest_of_the_payload_alone_accepts_some() -> None:
    source = random.Random(1)
    PAYLOADS.update(
        frame(np.array([source.randint(-2000, 2000) for _ in range(10)]), round=r)[48:88] for r in range(20)
    )
    assert accepted(payload_only, 20_000, seed=1) > 0


@pytest.mark.slow
def test_no_mutated_frame_is_accepted_in_a_million() -> None:
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert accepted(opened, 1_000_000, seed=2) == 0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # KB


@given(st.binary(max_size=400))
@settings(max_examples=300, deadline=None)
def test_any_bytes_raise_bad_frame(data: bytes) -> None:
    with pytest.raises(BadFrame):
        opened(data)


@given(st.sampled_from([b"", hello.OPENING, hello.HELLO, hello.RECEIPT]), st.binary(max_size=300))
@settings(max_examples=300, deadline=None)
def test_any_greeting_that_is_none_raises_bad_frame(head: bytes, rest: bytes) -> None:
    mine, theirs = hello.make_opening(PLAN, 0), hello.make_opening(PLAN, 1)
    with pytest.raises(BadFrame):
        hello.check_opening(head + rest, PLAN, 1)
    with pytest.raises(BadFrame):
        hello.check_hello(head + rest, PUBLIC[1], mine, theirs)
    if len(rest) != 104:
        with pytest.raises(BadFrame):
            hello.unpack_receipt(hello.RECEIPT + rest)


def test_a_hello_is_for_one_connection_and_one_direction() -> None:
    receipt = opened(frame()).receipt
    mine, theirs = hello.make_opening(PLAN, 0), hello.make_opening(PLAN, 1)
    hello.check_opening(theirs, PLAN, 1)
    greeting = hello.make_hello(KEYS[1], theirs, mine, receipt)
    assert (len(mine), len(greeting), len(hello.pack_receipt(receipt))) == (92, 176, 112)
    assert hello.check_hello(greeting, PUBLIC[1], mine, theirs) == (receipt, False)
    busy = hello.make_hello(KEYS[1], theirs, mine, receipt, busy=True)
    assert hello.check_hello(busy, PUBLIC[1], mine, theirs) == (receipt, True)
    other = hello.make_opening(PLAN, 0)
    for key, a, b in ((PUBLIC[0], mine, theirs), (PUBLIC[1], theirs, mine), (PUBLIC[1], other, theirs)):
        with pytest.raises(BadFrame, match="not signed"):
            hello.check_hello(greeting, key, a, b)
    assert hello.unpack_receipt(hello.pack_receipt(receipt)) == receipt


@given(st.integers(0, 151), st.integers(1, 255))
@settings(max_examples=300, deadline=None)
def test_every_byte_counts(place: int, change: int) -> None:
    data = bytearray(frame())
    data[place] ^= change
    with pytest.raises(BadFrame):
        opened(bytes(data))


# ---- receipts --------------------------------------------------------------------------------------------------------


def test_receipts_prove_themselves() -> None:
    receipt = opened(frame()).receipt
    assert receipt.round == receipt.kept == 7
    assert Receipt.unpack(receipt.pack()) == receipt
    assert receipt.proven(PUBLIC[1], PLAN, 1)
    assert Receipt().proven(PUBLIC[1], PLAN, 1)  # claims nothing
    forged = [
        Receipt(8, receipt.digest, receipt.signature, 7),
        Receipt(7, os.urandom(32), receipt.signature, 7),
        Receipt(7, receipt.digest, os.urandom(64), 7),
    ]
    assert not any(r.proven(PUBLIC[1], PLAN, 1) for r in forged)
    assert not receipt.proven(PUBLIC[0], PLAN, 1)
    assert not receipt.proven(PUBLIC[1], PLAN, 0)
    assert not receipt.proven(PUBLIC[1], bytes(32), 1)
    for bad in (b"", receipt.pack()[:-1], Receipt(-2).pack(), Receipt(3, kept=4).pack()):
        with pytest.raises(BadFrame):
            Receipt.unpack(bad)
