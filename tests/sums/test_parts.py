"""Words, shares, noise and secrets: exact arithmetic, golden values, laws."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from scipy import stats

from coterie.errors import InputError
from coterie.sums import secrets, shamir, words
from coterie.sums.core import latest
from coterie.sums.messages import Step, SumFrame
from coterie.sums.noise import Layers, default_levels
from coterie.sums.words import MODULUS, Code, Refused
from tests.sums.world import World, terms_of

PLAN = bytes(range(32))


def test_arithmetic_is_that_of_integers() -> None:
    rng = random.Random(0)
    edge = [0, 1, 2**31 - 1, 2**31, 2**60, MODULUS - 1]
    a = [x for x in edge for _ in edge] + [rng.randrange(MODULUS) for _ in range(2000)]
    b = edge * len(edge) + [rng.randrange(MODULUS) for _ in range(2000)]
    va, vb = np.array(a, np.uint64), np.array(b, np.uint64)
    assert words.multiply(va, vb).tolist() == [x * y % MODULUS for x, y in zip(a, b, strict=True)]
    assert words.add(va, vb, va).tolist() == [(2 * x + y) % MODULUS for x, y in zip(a, b, strict=True)]
    assert words.subtract(va, vb).tolist() == [(x - y) % MODULUS for x, y in zip(a, b, strict=True)]
    assert words.dot(va, vb) == sum(x * y for x, y in zip(a, b, strict=True)) % MODULUS


def test_the_value_that_is_no_word_is_skipped() -> None:
    raw = np.array([5, MODULUS, 2**61 + 7, 2**64 - 1, 9, 11], "<u8").tobytes()
    source = iter(raw[k : k + 8] for k in range(0, len(raw), 8))
    found = words.pick(lambda count: b"".join(next(source) for _ in range(count // 8)), 4)
    assert found.tolist() == [5, 7, 9, 11]


def test_a_mask_is_chacha20_of_its_key() -> None:
    # RFC 8439, A.1, test vector 1: the first block of key 0, nonce 0, counter 0
    block = bytes.fromhex("76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7")
    assert words.keystream(bytes(32))(32) == block
    assert int(words.mask(bytes(32), 3)[0]) == int.from_bytes(block[:8], "little") & MODULUS


def test_numbers_come_back_and_nothing_in_them_stops_a_party() -> None:
    code = Code(parties=3, fraction_bits=20, bound=8.0, reach=100)
    values = np.array([1.5, -8.0, np.nan, np.inf, -np.inf, 9.0, -1e300])
    assert code.decode(code.encode(values)).tolist() == [1.5, -8.0, 0.0, 8.0, -8.0, 8.0, -8.0]
    with pytest.raises(Refused, match="a vector is wrong"):
        code.decode(words.from_signed(np.array([code.most + 1])))
    assert words.to_signed(words.from_signed(np.array([-code.most]))).tolist() == [-code.most]
    with pytest.raises(InputError, match=r"2\^60"):
        Code(parties=3, fraction_bits=50, bound=2.0**9)


def test_golden_shares() -> None:
    shares = shamir.evaluate(bytes(range(16)), [2**127, shamir.PRIME - 1], 5)
    assert shares[0].hex() == "00800102030405060708090a0b0c0d0e0e"
    assert shares[2].hex() == "00800102030405060708090a0b0c0d0dd3"
    assert shares[4].hex() == "00800102030405060708090a0b0c0d0d90"
    found = shamir.Weights([0, 2, 4])
    for holder, (top, bottom) in zip((0, 2, 4), ((15, 8), (-5, 4), (3, 8)), strict=True):
        assert found.weights[holder] == top * pow(bottom, -1, shamir.PRIME) % shamir.PRIME
    assert found.recover({i: shares[i] for i in (0, 2, 4)}) == bytes(range(16))


def test_the_field_is_prime() -> None:
    for base in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37):  # deterministic far beyond, but this much is quick
        assert pow(base, shamir.PRIME - 1, shamir.PRIME) == 1
        assert pow(base, MODULUS - 1, MODULUS) == 1


def test_golden_layers() -> None:
    layers = Layers(10, 2, default_levels(3), Fraction(10**6))
    of = [v / layers.variance for v in layers.variances]
    assert of == [Fraction(1, 8), Fraction(1, 56), Fraction(1, 42), Fraction(1, 30)]
    assert [layers.kept(k) / layers.variance for k in range(4)] == [Fraction(1, n) for n in (8, 7, 6, 5)]
    total = [float((10 - r) * layers.kept(layers.keep(r)) / layers.variance) for r in range(4)]
    assert total == pytest.approx([1.25, 1.2857, 1.3333, 1.4], abs=5e-5)
    big = Layers(100, 49, default_levels(25), Fraction(10**6))
    left = {r: round(float(big.honest(r, 49) / big.variance), 4) for r in (3, 9, 17, 25)}
    assert left == {3: 1.0213, 9: 1.2, 17: 1.3077, 25: 1.0}
    for r in range(26):
        assert big.honest(r, 49) >= big.variance
    with pytest.raises(InputError, match="fraction_bits"):
        Layers(100, 49, default_levels(25), Fraction(20_000))


def test_layers_are_the_same_integers_everywhere() -> None:
    small, large = (Layers(5, 1, (0, 1), Fraction(v)) for v in (10**4, 10**10))
    assert (small.tables[1].words_per_draw, large.tables[1].words_per_draw) == (2, 4)
    assert small.read(1, bytes(32), 8).tolist() == SMALL
    assert large.read(1, bytes(32), 6).tolist() == LARGE
    assert np.array_equal(small.read(1, bytes(32), 20)[:8], SMALL)
    assert small.distance(142) < 1e-30


SMALL = [-1, -30, -2, -29, -8, 42, -13, -12]
LARGE = [-12571, -12660, 27129, 14896, -34290, 13843]


def scaled(factor: Fraction, seed: int, count: int = 40_000) -> float:
    """p-value that layer 1, read at `factor` of its scale, has the law that it is charged for."""
    layers = Layers(5, 1, (0, 1), Fraction(3600))  # layer 1: variance 300
    drawn = Layers(5, 1, (0, 1), Fraction(3600) * factor**2).read(1, bytes([seed]) * 32, count)
    variance = float(layers.variances[1])
    grid = np.arange(-200, 201)
    weight = np.exp(-(grid**2) / (2 * variance))
    edges = np.concatenate([np.arange(-50, 51, 5)])
    cells = np.digitize(grid, edges)
    expected = np.bincount(cells, weight / weight.sum(), len(edges) + 1) * count
    return float(stats.chisquare(np.bincount(np.digitize(drawn, edges), minlength=len(edges) + 1), expected).pvalue)


def test_the_law_of_a_layer_is_right_and_a_scale_five_percent_off_is_not() -> None:
    assert scaled(Fraction(1), 1) > 1e-3
    assert scaled(Fraction(105, 100), 2) < 1e-9
    assert scaled(Fraction(95, 100), 3) < 1e-9


def test_a_chain_opens_forwards_only() -> None:
    where = secrets.Context(PLAN, 7)
    mine = secrets.SlotSecrets(bytes(16), bytes(range(16)))
    chain = mine.chain(where, owner=3, last=4)
    assert secrets.walk(where, 3, chain[2], 2, 4) == chain[2:]
    assert len({*chain, *mine.chain(secrets.Context(PLAN, 8), 3, 4), *mine.chain(where, 2, 4)}) == 13  # B_0 is common
    seeds = {secrets.layer_seed(where, 3, chain[k - 1], k) for k in range(1, 5)}
    assert len(seeds) == 4
    assert mine.public(where, 3, 4)[32:] == secrets.commitment(where, 3, chain[4])


def test_pair_masks_cancel_under_one_start_only() -> None:
    where = secrets.Context(PLAN, 7)
    a, b = bytes([1]) * 16, bytes([2]) * 16
    xa, xb = secrets.public_of(where, 0, a), secrets.public_of(where, 5, b)
    one = secrets.pair_mask(where, 0, a, 5, xb, b"start", 6)
    assert not words.add(one, secrets.pair_mask(where, 5, b, 0, xa, b"start", 6)).any()
    assert words.add(one, secrets.pair_mask(where, 5, b, 0, xa, b"other", 6)).all()


def test_an_envelope_opens_for_its_batch_pair_and_direction_only() -> None:
    keys = [tuple(X25519PrivateKey.from_private_bytes(bytes([10 * i + k]) * 32) for k in (1, 2)) for i in range(3)]
    public = [tuple(key.public_key().public_bytes_raw() for key in pair) for pair in keys]
    shares = [bytes([k]) * 17 for k in range(5)]
    sealed = secrets.seal_envelope(PLAN, 4, (0, 1), keys[0], public[1], shares)
    assert len(sealed) == 5 * 17 + 16
    assert secrets.open_envelope(PLAN, 4, (0, 1), keys[1], public[0], sealed) == shares
    assert secrets.open_envelope(PLAN, 5, (0, 1), keys[1], public[0], sealed) is None  # another batch
    assert secrets.open_envelope(PLAN, 4, (1, 0), keys[1], public[0], sealed) is None  # the other direction
    assert secrets.open_envelope(PLAN, 4, (0, 2), keys[2], public[0], sealed) is None  # another holder
    assert secrets.open_envelope(PLAN, 4, (0, 1), keys[1], public[0], sealed[:-1] + b"\0") is None


def test_a_share_is_shown_to_be_the_one_dealt() -> None:
    shares = [bytes([k]) * 17 for k in range(7)]
    root = secrets.root_of(PLAN, 1, 2, 3, shares)
    for place, share in enumerate(shares):
        proof = secrets.branch(secrets.leaves_of(PLAN, 1, 2, 3, shares), place)
        assert secrets.dealt(root, PLAN, 1, 2, 3, place, share, proof)
        assert not secrets.dealt(root, PLAN, 1, 2, 3, place, bytes(17) if place else bytes([9]) * 17, proof)
        assert not secrets.dealt(root, PLAN, 1, 2, 4, place, share, proof)
        assert not secrets.dealt(root, PLAN, 1, 2, 3, place + 8, share, proof)


def test_a_vector_of_another_length_is_refused_at_once() -> None:
    world = World(terms_of(3, 1), offers=0)
    party = world.live[0]
    with pytest.raises(InputError, match=r"shape \(2,\) cannot be summed, expected 3 numbers"):
        party.give_vector([1.0, 2.0], 0.0)


def test_frames_that_wait_are_one_for_each_sender() -> None:
    frames = [SumFrame(bytes(32), Step.SHOW, k % 3, 0, k, 0, b"", bytes(64)) for k in range(1000)]
    kept: list[SumFrame] = []
    for frame in frames:
        kept = latest(kept, frame)
    assert [frame.ballot for frame in kept] == [997, 998, 999]
