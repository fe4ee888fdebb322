"""Frames: canonical bytes, signatures, and sizes as they are planned for."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from coterie.sums.messages import OVERHEAD, BadSumFrame, Partial, Step, SumFrame, read_frames
from coterie.sums.terms import ROSTER_BIT, SharedTerms
from tests.sums.world import World, keys_of, terms_of


def sent(terms: SharedTerms, rounds: int) -> Counter[tuple[Step, int]]:
    """Bytes that parties make, by kind and sender: a frame to all is made once."""
    world = World(terms, offers=rounds)
    assert world.run(lambda w: w.at(rounds), most=20)
    made = {(f.digest, f.sender): f for _, f in world.sent if f.round in (*range(rounds), ROSTER_BIT)}
    size: Counter[tuple[Step, int]] = Counter()
    for frame in made.values():
        size[frame.kind, frame.sender] += len(frame.pack())
    return size


def test_a_frame_comes_back_and_nothing_in_it_can_change() -> None:
    terms = terms_of(5, 1)
    frame = SumFrame(terms.plan, Step.VOTE, 2, 7, 1, 65536, b"body", b"").sign(keys_of(2)[0])
    assert len(frame.pack()) == OVERHEAD + 4 == 116
    assert SumFrame.unpack(frame.pack()) == frame
    assert frame.genuine(terms)
    changes = {
        "kind": Step.SET,
        "sender": 3,
        "round": 8,
        "ballot": 0,
        "slot": 0,
        "body": b"bodz",
        "plan": bytes(32),
    }
    for name, value in changes.items():
        assert not replace(frame, **{name: value}).genuine(terms), name
    for length in range(len(frame.pack())):
        with pytest.raises(BadSumFrame):
            read_frames((length or 1).to_bytes(4, "little") + frame.pack()[:length], terms)


def test_words_that_are_none_are_refused() -> None:
    terms = terms_of(5, 1)
    body = bytes(32) + b"\1" + bytes(32) + (2**61 - 1).to_bytes(8, "little") * 3
    with pytest.raises(ValueError, match="at least q"):
        Partial.read(body, terms)


def test_sizes_are_those_of_the_plan_of_bytes() -> None:
    terms = terms_of(5, 1, size=10, ring=False)
    n, d, bits, slots, kinds = 5, 10, 1, terms.slots, terms.kinds
    size = sent(terms, 1)
    leader, other = 0, 1
    assert size[Step.KEYS, other] == 144
    assert size[Step.DEAL, other] == 112 + 32 + 64 * slots + 32 * n
    assert size[Step.ENVELOPE, other] == (n - 1) * (112 + 16 + 17 * kinds * slots)
    assert size[Step.HELD, other] == 112 + 32 * n
    assert size[Step.ROSTER, leader] == 112 + 4 + bits + 32 * n + n * (4 + 112 + 32 * n)
    assert size[Step.START, leader] == 112 + n
    assert size[Step.COMMIT, other] == 112 + 64
    assert size[Step.WORDS, other] == 112 + 64 + bits + 8 * d
    assert size[Step.SET, leader] == 112 + 32 + bits + 96 * n + 8 * d
    assert size[Step.VOTE, other] == 2 * (112 + 48)  # one of them for the roster
    assert size[Step.CERT, leader] >= 112 + 32 + bits + 80 * n
    assert size[Step.SHARES, other] == 112 + 32 + 17 * n
    assert size[Step.OPENED, leader] == 112 + 32 + 16 * n


def mean_bytes(n: int, t: int, m: int, d: int, rounds: int = 24, spares: int = 4) -> float:
    """Mean bytes that a party makes per round, the leader's part spread; checked against the frames above."""
    bits, slots, kinds = (n + 7) // 8, rounds + spares, m + 2
    batch = 144 + 112 + 32 + 64 * slots + 32 * n + (n - 1) * (128 + 17 * kinds * slots) + 112 + 32 * n
    batch += (112 + 4 + bits + 32 * n + n * (116 + 32 * n) + 144 + bits + 80 * t + 160 * (n - 1)) / n
    each = (176 + 176 + bits + 8 * d + 160 + 144 + 17 * n) * (n - 1) / n  # a leader sends nothing to itself
    lead = 112 + n + 144 + bits + 96 * n + 8 * d + 144 + bits + 80 * n + 144 + 16 * n
    return batch / rounds + each + lead / n


@pytest.mark.parametrize(
    ("n", "c", "m", "most"),
    [(5, 1, 1, 4_408), (10, 2, 3, 5_408), (20, 9, 4, 7_408), (100, 49, 6, 23_408), (100, 10, 7, 23_408)],
)
def test_mean_bytes_stay_below_24_d_and_200_n(n: int, c: int, m: int, most: int) -> None:
    t = (n + c) // 2 + 1
    assert 24 * 142 + 200 * n == most
    assert mean_bytes(n, t, m, 142) < most


def test_the_formula_is_what_parties_send() -> None:
    terms = terms_of(5, 1, size=10, ring=False)
    total = sum(size for (kind, _), size in sent(terms, 2).items() if kind not in (Step.ASK, Step.STAND, Step.FETCH))
    assert total / 5 / 2 == pytest.approx(mean_bytes(5, 4, 1, 10, rounds=2, spares=4), rel=0.02)
