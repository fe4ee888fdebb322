"""A liar that signs whatever it likes: nothing breaks, and the others go on."""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Iterator
from dataclasses import replace

import pytest

from coterie.sums import core
from coterie.sums.core import EARLY, KEPT, Outgoing
from coterie.sums.dealing import NO_SLOT
from coterie.sums.messages import Answered, Deal, Partial, Step, SumFrame
from coterie.sums.party import SumParty
from coterie.sums.store import MemoryStore
from coterie.sums.terms import ROSTER_BIT
from coterie.sums.words import subtract
from tests.sums.coalition import TERMS, prepared, wire
from tests.sums.world import Watched, World, keys_of, terms_of
from tests.support import mostly_slow


def fuzzed(seed: int) -> World:
    """Three rounds in which party 2 sends altered copies of everything that passes, signed by itself."""
    rng = random.Random(seed)
    world = World(terms_of(5, 1), offers=3)

    def cross(to: int, frame: SumFrame) -> list[Outgoing]:
        out = [(to, frame)]
        if rng.random() < 0.3:
            body = bytearray(frame.body)
            for _ in range(rng.randrange(3)):
                if body:
                    body[rng.randrange(len(body))] = rng.randrange(256)
            body = body[: rng.randrange(len(body) + 1)] if rng.random() < 0.2 else body
            changed = replace(
                frame,
                sender=2,
                kind=rng.choice(list(Step)) if rng.random() < 0.2 else frame.kind,
                round=rng.choice([frame.round, 0, 1, 2**31, 2**32 - 1]),
                ballot=rng.choice([frame.ballot, 0, 1, 7, 2**32 - 1]),
                slot=rng.choice([frame.slot, 0, 1, 65535]),
                body=bytes(body),
            )
            out.append((rng.choice([0, 1, 3, 4]), changed.sign(keys_of(2)[0])))
        return out

    world.cross = cross
    world.liars = {2}
    opened = world.run(lambda w: all(p.round >= 3 for p in w.live if p.me != 2), most=400)
    world.check()
    honest = [party for party in world.live if party.me != 2]
    assert opened or any(party.named or party.stuck or party.refusal for party in honest)
    return world


@pytest.mark.parametrize("seed", range(3))
def test_altered_frames_of_a_liar(seed: int) -> None:
    fuzzed(seed)


@pytest.mark.slow
def test_many_altered_frames_of_a_liar() -> None:
    for seed in range(3, 100):
        fuzzed(seed)


def invented(what: str, world: World) -> Iterator[SumFrame]:
    """Frames without end that party 2 signs, each of another content, and so another name."""
    party = world.live[0]
    now, junk = party.round, (k.to_bytes(32, "little") for k in itertools.count(1))
    nowhere, padding = b"?" * 32, bytes(2000)
    bare = SumFrame(TERMS.plan, Step.START, 2, now, 0, 0, b"", b"")
    start = wire(world, Step.START)[TERMS.leader(now, 0)][-1]
    words = Partial.read(wire(world, Step.WORDS)[2][-1].body, TERMS)
    for k, name in enumerate(junk):
        match what:
            case "of a round far ahead":
                frame = replace(bare, kind=list(KEPT)[k % len(KEPT)], round=2**30 + k, body=name + padding)
            case "that wait for one that does not exist":
                frame = replace(bare, kind=Step.COMMIT, body=nowhere + name)
            case "that wait for many that do not exist":
                frame = replace(bare, kind=Step.WORDS, body=replace(words, start=name).pack(TERMS))
            case "that start what it does not lead":
                frame = replace(start, sender=2, ballot=k, slot=k % 2**16)
            case "that ask":
                frame = replace(bare, kind=Step.FETCH, round=k)
            case "that add":
                mine = replace(bare, ballot=k, body=start.body).sign(keys_of(2)[0])
                yield mine
                frame = replace(bare, kind=Step.WORDS, ballot=k, body=replace(words, start=mine.digest).pack(TERMS))
        yield frame.sign(keys_of(2)[0])


def kept_by(party: SumParty) -> int:
    """Objects that a party has in memory, in all its collections."""

    def size(value: object) -> int:
        if isinstance(value, dict):
            return len(value) + sum(map(size, value.values()))
        return len(value) + sum(map(size, value)) if isinstance(value, (list, set, tuple, deque)) else 0

    return sum(size(value) for name, value in vars(party).items() if name != "store")


FLOODS = (
    "of a round far ahead", "that wait for one that does not exist", "that wait for many that do not exist",
    "that start what it does not lead", "that ask", "that add",
)  # fmt: skip


@pytest.mark.parametrize("what", FLOODS)
def test_frames_without_end_fill_no_memory(what: str) -> None:
    """In the middle of a round, with all of them signed by a party of the plan; then the others go on."""
    world = prepared(drop=(Step.SET,))
    world.liars = {2}
    world.run(lambda w: len(wire(w, Step.WORDS)) > 3, most=3)
    party, frames = world.live[0], invented(what, world)
    for frame in itertools.islice(frames, 2000):
        party.handle(frame, world.now)
    assert kept_by(party) < 800
    world.cross = lambda to, frame: [(to, frame)]
    world.offers = 3
    assert world.run(lambda w: all(p.round >= 2 for p in w.live if p.me != 2), most=200)
    world.check()


def questions(what: str, world: World) -> Iterator[SumFrame]:
    """What party 2 may ask or say again, without end; all of it is answered, or stored."""
    bare = SumFrame(TERMS.plan, Step.FETCH, 2, world.live[0].round, 0, 0, b"", b"")
    for k in itertools.count():
        match what:
            case "for a frame":
                roster = world.live[0].row(("roster", 0), SumFrame)
                assert roster is not None
                frame = replace(bare, slot=k, body=roster.digest)
            case "what is held":
                frame = replace(bare, kind=Step.ASK, slot=k)
            case "for sealed shares":
                frame = replace(wire(world, Step.KEYS)[2][-1], slot=k)
        yield frame.sign(keys_of(2)[0])


ASKED = [(what, twin) for what in ("for a frame", "what is held", "for sealed shares") for twin in (False, True)]


@pytest.mark.parametrize(("what", "twin"), mostly_slow(ASKED, *ASKED[:2]))
def test_questions_without_end_are_answered_at_a_pace(what: str, twin: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten seconds of 400 questions each, of one party of the plan. What it asked last is answered in the end."""
    most = core.AT_ONCE + 10 * core.ANSWERS
    if twin:
        monkeypatch.setattr(core, "AT_ONCE", 1e9)
    world = World(TERMS, offers=1) if what == "for sealed shares" else prepared(drop=(Step.SET,))
    world.liars = {2}
    if what == "for sealed shares":
        world.cross = lambda to, frame: [] if frame.kind is Step.HELD else [(to, frame)]
        assert world.run(lambda w: bool(w.live[0].own(Step.ENVELOPE, w.live[0].instance, 2, NO_SLOT)), most=10)
    assert world.run(lambda w: w.live[0].ready, most=2)
    party, frames, commits = world.live[0], questions(what, world), world.stores[0].commits
    answers: list[SumFrame] = []
    for k, frame in enumerate(itertools.islice(frames, 4000)):
        answers += [answer for to, answer in party.handle(frame, world.now + k / 400) if to == 2]
    assert (core.ANSWERS < len(answers) <= 1.01 * most) != twin
    assert world.stores[0].commits == commits
    assert kept_by(party) < 800
    last = next(frames)
    party.handle(last, world.now + 10)
    later = [answer for to, answer in party.tick(world.now + 11) if to == 2]
    assert later or twin


def test_what_is_held_is_stored_as_often_as_it_can_change() -> None:
    """A HELD names more deals than the one before it: of more of them than there are parties, none is stored."""
    world = World(TERMS, offers=1)
    world.cross = lambda to, frame: [] if frame.kind is Step.HELD else [(to, frame)]
    world.run(lambda w: bool(wire(w, Step.HELD)), most=10)
    party, commits = world.live[0], world.stores[0].commits
    said = SumFrame(TERMS.plan, Step.HELD, 2, party.instance, 0, NO_SLOT, bytes(32 * TERMS.parties), b"")
    for k in range(1000):
        party.handle(replace(said, ballot=k + 1).sign(keys_of(2)[0]), world.now)
    assert world.stores[0].commits - commits == TERMS.parties + 1
    assert party.dropped == 1000 - TERMS.parties - 1


def test_a_party_says_nothing_before_enough_others_said_what_they_hold() -> None:
    """t − 1 others, or what a second process of it said could be said again in another way."""
    party = SumParty(TERMS, 0, *keys_of(0), MemoryStore())
    said = party.begin(0.0)
    for j in range(1, TERMS.threshold - 1):
        said += party.handle(SumFrame(TERMS.plan, Step.STAND, j, 0, 0, 0, b"", b"").sign(keys_of(j)[0]), 1.0)
    for now in range(2, 200):
        said += party.tick(float(now))
        said += party.handle(wire_keys(1), float(now))
    assert {frame.kind for _, frame in said} == {Step.ASK}
    j = TERMS.threshold - 1
    party.handle(SumFrame(TERMS.plan, Step.STAND, j, 0, 0, 0, b"", b"").sign(keys_of(j)[0]), 200.0)
    assert Step.KEYS in {frame.kind for _, frame in party.tick(210.0)}


def wire_keys(sender: int) -> SumFrame:
    public = keys_of(sender)[1].public_key().public_bytes_raw()
    return SumFrame(TERMS.plan, Step.KEYS, sender, ROSTER_BIT, 0, NO_SLOT, public, b"").sign(keys_of(sender)[0])


def test_one_party_does_not_take_the_place_of_others_before_the_start() -> None:
    """What comes before a party knows that its ledger is no old copy waits, so much of each."""
    party = SumParty(TERMS, 0, *keys_of(0), MemoryStore())
    party.begin(0.0)
    bare = SumFrame(TERMS.plan, Step.FETCH, 2, 0, 0, 0, b"", b"")
    for k in range(1000):
        party.handle(replace(bare, slot=k).sign(keys_of(2)[0]), 0.0)
    party.handle(replace(bare, sender=1).sign(keys_of(1)[0]), 0.0)
    assert [f.sender for f in party._early] == [2] * EARLY + [1]


def test_spares_are_used_in_turn_and_then_a_person_is_needed() -> None:
    """The first attempt of every round fails: each round takes the next spare slot, also over rounds."""
    terms = terms_of(5, 1, rounds=8, spares=3)
    world = World(terms, offers=8)
    world.cross = lambda to, frame: [] if frame.kind is Step.SET and frame.ballot == 0 else [(to, frame)]
    assert world.run(lambda w: w.at(3), most=200)
    slots = {frame.round: frame.slot for frame in wire(world, Step.SET)[1] + wire(world, Step.SET)[2]}
    assert [f.slot for fs in wire(world, Step.CERT).values() for f in fs if f.round < 3] == [8, 9, 10]
    assert slots
    assert not world.run(lambda w: w.at(4), most=100)
    assert any("used up" in party.stuck for party in world.live)
    charges = [c for c in world.stores[4].charges if c.round == 0]
    assert [(c.slot, c.main) for c in charges] == [(0, True), (8, False)]  # two masked vectors, one opened sum
    world.check()


@pytest.mark.parametrize("what", ["batch key", "pair key"])
def test_a_key_that_agrees_with_nothing_stops_nobody(what: str) -> None:
    class Zero(Watched):
        def frame(self, kind: Step, instance: int, ballot: int = 0, slot: int = 0, body: bytes = b"") -> SumFrame:
            if kind is Step.KEYS and what == "batch key":
                body = bytes(32)
            if kind is Step.DEAL and what == "pair key":
                deal = Deal.read(body, self.terms)
                body = Deal(deal.keys, (bytes(32) + deal.public[0][32:], *deal.public[1:]), deal.roots).pack()
            return super().frame(kind, instance, ballot, slot, body)

    world = World(TERMS, offers=0)
    world.make = Zero
    world.stores[3] = type(world.stores[3])()
    world.start(3)
    world.offers = 1
    assert world.run(lambda w: all(p.round == 1 for p in w.live if p.me != 3), most=100)
    assert world.live[0].finished[0].members == (0, 1, 2, 4)
    world.check()


def test_a_leader_that_signs_two_sets_is_named_and_opens_nothing() -> None:
    world = prepared(drop=(Step.SET, Step.CERT))
    world.run(lambda w: len(wire(w, Step.SET)) > 0, most=3)
    first = wire(world, Step.SET)[0][0]
    full = Answered.read(first.body, TERMS)
    less = subtract(full.words, Partial.read(wire(world, Step.WORDS)[4][0].body, TERMS).words)
    body = Answered(full.start, full.members[:-1], full.commits[:-1], less).pack(TERMS)
    second = replace(first, body=body).sign(keys_of(0)[0])
    for j in (1, 2, 3, 4):
        world.post(j, first if j < 3 else second)
    world.kill(0)  # and says nothing more
    world.cross = lambda to, frame: [(to, frame)]
    assert not world.run(lambda w: any(p.round for p in w.live), most=60)
    assert {len(frames) for i, frames in wire(world, Step.VOTE).items() if i} == {1}
    assert wire(world, Step.SHARES) == {}
    named = [party.named for party in world.live if party.named]
    assert named
    assert all(set(names) == {0} for names in named)


@pytest.mark.parametrize("heard", [True, False])
def test_a_set_that_one_party_heard_of_is_finished(heard: bool) -> None:
    """A set reaches one party, and its leader dies; or the leader lives, and that party's promise is not heard."""
    world = prepared()

    def cross(to: int, frame: SumFrame) -> list[Outgoing]:
        first = frame.kind is Step.SET and frame.ballot == 0 and to != 3 and world.now < 4
        unheard = not heard and frame.kind is Step.PROMISE and frame.sender == 3 and world.now < 14
        return [] if first or unheard else [(to, frame)]

    world.cross = cross
    world.run(lambda w: 3 in wire(w, Step.VOTE), most=3)
    if heard:
        world.kill(0)
    assert world.run(lambda w: w.at(1), most=200)
    world.check()
    slots = {f.slot for fs in wire(world, Step.CERT).values() for f in fs if f.round == 0}
    assert slots == {0}


def test_a_slot_of_an_earlier_round_is_not_started_again() -> None:
    """Whoever leads round 1 asks for words under the slot of round 0, or for a spare that is not due."""
    world = prepared()
    assert world.run(lambda w: w.at(1), most=20)
    start = wire(world, Step.START)[0][0]
    world.offers = 2
    world.kill(1)
    for i in (0, 2, 3, 4):
        world._offer(i)
    for slot in (0, TERMS.rounds, TERMS.rounds + 3):
        again = replace(start, sender=1, round=1, slot=slot, body=bytes(TERMS.tree(1))).sign(keys_of(1)[0])
        for j in (0, 2, 3, 4):
            world.post(j, again)
    before = len(wire(world, Step.COMMIT))
    world.run(lambda w: False, most=2)
    assert len(wire(world, Step.COMMIT)) == before
    assert {f.round for fs in wire(world, Step.COMMIT).values() for f in fs} == {0}


def test_a_lying_leader_cannot_put_in_who_did_not_answer() -> None:
    """A set with a member that never committed gets no vote; it would otherwise have to be finished for ever."""
    world = prepared(drop=(Step.SET,))
    world.kill(4)
    world.run(lambda w: len(wire(w, Step.WORDS)) >= 3, most=1)
    world.run(lambda w: Step.SET in {f.kind for _, f in w.sent}, most=10)
    honest = wire(world, Step.SET)[0][0]
    body = bytearray(honest.body)
    assert body[32] == 0b01111
    body[32] = 0b11111
    at = 33 + 4 * 96
    forged = bytes(body[:at]) + bytes(96) + bytes(body[at:])
    frame = replace(honest, body=forged).sign(keys_of(0)[0])
    for j in (1, 2, 3):
        world.post(j, frame)
    world.run(lambda w: False, most=1)
    assert not [f for fs in wire(world, Step.VOTE).values() for f in fs if f.body[:32] == frame.digest]
