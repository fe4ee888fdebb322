"""What a coalition sees before and after a sum is opened, less all that it knows: evenly spread, or the total itself.

Real transcripts. The coalition takes off its own words, its half of every pair mask, and after the opening the masks
that were given out; it may also take words of one slot from those of another, and add words that answered two STARTs.
Each broken twin is found by the same test.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from coterie.sums import opening, rounds, secrets, words
from coterie.sums.core import Outgoing
from coterie.sums.messages import Answered, Begin, Partial, Step, SumFrame, read_secrets, read_words
from coterie.sums.secrets import Context, SlotSecrets, self_mask, walk
from coterie.sums.terms import NOBODY, SharedTerms
from coterie.sums.words import Words, add, subtract, to_signed
from tests.sums.coalition import wire
from tests.sums.world import Watched, World, keys_of, terms_of

SIZE = 4000
CHANCE = 1e-7  # of one test to find fault with what is uniform; there are some hundreds
FOUND = 1e-20


def spread(found: Words) -> float:
    """How likely words as uneven as these are, if they are drawn evenly: the least of several tests."""
    bits = [np.bincount((found >> np.uint64(k) & np.uint64(15)).astype(np.int64), minlength=16) for k in (57, 28, 0)]
    return float(min(stats.chisquare(counts).pvalue for counts in bits))


def spread_of_bytes(raw: bytes) -> float:
    return float(stats.chisquare(np.bincount(np.frombuffer(raw, np.uint8), minlength=256)).pvalue)


@dataclass
class Transcript:
    """Rounds that were opened, and the coalition that looks at them with secrets that it did not erase."""

    world: World
    coalition: tuple[int, ...]
    kept: dict[tuple[int, int], SlotSecrets]  # of all; only the coalition's are used to look

    @property
    def terms(self) -> SharedTerms:
        return self.world.terms

    def frames(self, kind: Step, round_: int) -> list[SumFrame]:
        found = {f.digest: f for _, f in self.world.sent if (f.kind, f.round) == (kind, round_)}
        return list(found.values())

    def strip(self, seen: Words, members: Sequence[int], slot: int, start: bytes, shown: dict[int, bytes]) -> Words:
        """Words of these members less what the coalition knows of them; `shown` are secrets that were given out."""
        where, party = Context(self.terms.plan, slot), self.world.live[0]
        for i in members:
            if i in self.coalition:
                seen = subtract(seen, read_words(self.world.stores[i].rows["words", slot][1]))  # type: ignore[index]
                continue
            public = party.deal_of(slot >> 16, i).public[slot & 0xFFFF][:32]
            for k in self.coalition:  # what k adds, i takes off
                seen = add(seen, secrets.pair_mask(where, k, self.kept[k, slot].a, i, public, start, self.terms.size))
            if i in shown:
                end = walk(where, i, shown[i], 0, self.terms.layers.last)[-1]
                seen = subtract(seen, self_mask(where, i, end, self.terms.size))
        return seen

    def shown(self, round_: int) -> dict[int, bytes]:
        frame = self.world.live[0].row(("opened", round_), SumFrame)
        assert frame is not None
        return read_secrets(frame.body, self.world.live[0].members())[1]

    def seen(self, round_: int, opened: bool) -> Iterator[tuple[tuple[int, ...], Words]]:
        """Every partial sum of a round, and the whole one: its honest members, and what is left of it."""
        shown = self.shown(round_) if opened else {}
        for frame in self.frames(Step.WORDS, round_):
            partial = Partial.read(frame.body, self.terms)
            yield (
                self._honest(partial.members),
                self.strip(partial.words, partial.members, frame.slot, partial.start, shown),
            )
        (frame,) = self.frames(Step.SET, round_)
        answered = Answered.read(frame.body, self.terms)
        yield (
            self._honest(answered.members),
            self.strip(answered.words, answered.members, frame.slot, answered.start, shown),
        )

    def _honest(self, members: Sequence[int]) -> tuple[int, ...]:
        return tuple(i for i in members if i not in self.coalition)


def transcript(
    n: int, c: int, dropouts: int | None = None, size: int = SIZE, make: type[Watched] = Watched
) -> Transcript:
    """Two rounds with everybody there, on a ring, so that words are added on the way."""
    world = World(terms_of(n, c, dropouts, size=size), offers=0)
    world.make = make
    for i in range(n):
        world.stores[i] = type(world.stores[i])()
        world.start(i)
    assert world.run(lambda w: all(p.batch == 0 for p in w.live), most=10)
    drawn = {
        (i, g): s for i in range(n) for g in (0, 1) if isinstance(s := world.stores[i].rows["secret", g], SlotSecrets)
    }
    world.offers = 2
    for i in range(n):
        world._offer(i)
    assert world.run(lambda w: w.at(2), most=60)
    return Transcript(world, tuple(range(n - c, n)), drawn)


SETTINGS = [(5, 3, 0), (8, 2, None), (6, 1, None)]  # N − 2 collude and nobody may be missing; c with a threshold


@pytest.mark.parametrize(("n", "c", "dropouts"), SETTINGS)
def test_words_of_a_round_are_uniform_but_for_the_sum(n: int, c: int, dropouts: int | None) -> None:
    found = transcript(n, c, dropouts)
    honest = tuple(range(n - c))
    party = found.world.live[0]
    for round_ in (0, 1):
        before, after = list(found.seen(round_, opened=False)), list(found.seen(round_, opened=True))
        assert len(before) == n  # one partial sum from everybody but the leader, and the set
        for members, left in before:
            assert not members or spread(left) > CHANCE
        for members, left in after:
            if members and members != honest:
                assert spread(left) > CHANCE
        (total,) = {left.tobytes() for members, left in after if members == honest}
        value = party.known(party.row(("final", round_), bytes) or b"")
        drawn = found.world.drawn
        expected = np.sum([part for i in honest for part in drawn[i, value.slot]], axis=0)
        assert np.array_equal(to_signed(np.frombuffer(total, np.uint64)), expected)  # nothing more is learned, nor less
        assert spread(np.frombuffer(total, np.uint64)) < FOUND
    frames = {(r, members): left for r in (0, 1) for members, left in found.seen(r, opened=False) if members}
    for first, second in combinations(frames.values(), 2):
        assert spread(subtract(first, second)) > CHANCE  # no two sums share a mask, of one slot or of two


def test_commitments_and_shares_are_uniform() -> None:
    found = transcript(8, 2, size=3)
    raw, hashes = [], []
    for seed in range(4):
        found = transcript(8, 2, size=3) if seed else found
        for round_ in (0, 1):
            hashes += [f.body[32:] for f in found.frames(Step.COMMIT, round_) if f.sender not in found.coalition]
            for frame in found.frames(Step.SHARES, round_):
                shares = [frame.body[32 + 17 * k : 49 + 17 * k] for k in range(8)]
                assert {share[0] for share in shares} <= {0, 1}
                raw += [share[1:] for share in shares if frame.sender not in found.coalition]
    assert len(hashes) >= 40
    assert spread_of_bytes(b"".join(hashes)) > CHANCE
    assert spread_of_bytes(b"".join(raw)) > CHANCE


# ---- broken twins ----------------------------------------------------------------------------------------------------


class OneSecret(Watched):
    """Deals the same secrets for every slot."""

    def deal(self) -> None:
        one, real = SlotSecrets.fresh(), SlotSecrets.fresh
        SlotSecrets.fresh = lambda: one  # type: ignore[method-assign,assignment]
        try:
            super().deal()
        finally:
            SlotSecrets.fresh = real  # type: ignore[method-assign]


def unbound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pair streams that are the same under every START."""

    real = secrets.pair_mask

    def same(where: Context, owner: int, a: bytes, other: int, public: bytes, start: bytes, size: int) -> Words:
        return real(where, owner, a, other, public, bytes(32), size)

    for module in (rounds, opening, secrets):
        monkeypatch.setattr(module, "pair_mask", same)


def test_masks_of_one_slot_in_another_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    unbound(monkeypatch)
    monkeypatch.setattr(Context, "of", lambda self, purpose, *numbers: (purpose, self.plan, repr(numbers).encode()))
    found = transcript(6, 1, make=OneSecret)
    slots = {(i, g): frame for g in (0, 1) for i, frame in by_sender(found, g).items()}
    ((i, _), *_) = [
        (i, g) for i, g in slots if slots[i, g].members == (i,) == slots.get((i, 1 - g), slots[i, g]).members
    ]
    apart = subtract(slots[i, 0].words, slots[i, 1].words)
    assert spread(slots[i, 0].words) > CHANCE  # one frame alone looks right
    assert spread(apart) < FOUND
    vectors = [found.world.drawn[i, g] for g in (0, 1)]
    assert np.array_equal(to_signed(apart), sum(vectors[0][:2]) - sum(vectors[1][:2]))  # the rest cancels


def by_sender(found: Transcript, round_: int) -> dict[int, Partial]:
    return {f.sender: Partial.read(f.body, found.terms) for f in found.frames(Step.WORDS, round_)}


def test_small_masks_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "mask", lambda key, count: words.mask(key, count) & np.uint64(2**40 - 1))
    found = transcript(5, 3, 0)
    left = [left for members, left in found.seen(0, opened=False) if members]
    assert left
    assert all(spread(one) < FOUND for one in left)


def two_starts() -> NDArray[np.uint64]:
    """Parties 0 and 3 collude, 0 leads: party 1 answers one START and 2 another one of the same slot and ballot.

    What is left of the sum of their words if the masks of their own were out too.
    """
    world = World(terms_of(4, 2, 0, size=SIZE, ring=False), offers=0)
    assert world.run(lambda w: all(p.batch == 0 for p in w.live), most=10)
    kept = {(i, 0): s for i in range(4) if isinstance(s := world.stores[i].rows["secret", 0], SlotSecrets)}

    def cross(to: int, frame: SumFrame) -> list[Outgoing]:
        if frame.kind is not Step.START or to != 2:
            return [(to, frame)]
        other = Begin((NOBODY,) * 4, ()).pack()
        return [(to, SumFrame(frame.plan, Step.START, 0, 0, 0, frame.slot, other, b"").sign(keys_of(0)[0]))]

    world.cross = cross
    world.offers = 1
    for i in range(4):
        world._offer(i)
    world.run(lambda w: {1, 2} <= set(wire(w, Step.WORDS)), most=5)
    found = Transcript(world, (0, 3), kept)
    parts = {i: Partial.read(frame.body, world.terms) for i, (frame,) in wire(world, Step.WORDS).items()}
    assert parts[1].start != parts[2].start
    return add(*(found.strip(parts[i].words, (i,), 0, parts[i].start, {i: kept[i, 0].start}) for i in (1, 2)))


def test_words_that_answer_two_starts_do_not_cancel() -> None:
    assert spread(two_starts()) > CHANCE


def test_streams_that_are_not_bound_to_a_start_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    unbound(monkeypatch)
    assert spread(two_starts()) < FOUND
