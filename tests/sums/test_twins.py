"""More attacks on the real core that need a fault to succeed: what is then learned, and that nothing is without it.

Where each of the attacks that the protocol was designed against is tried, with the fault that lets it through; after
the semicolon, without. *Model*: the protocol without cryptography (`test_model`), where rules of agreement can be taken
out one by one; an attack by votes needs two faults there and here, since shares are given once per round besides.

 1. two sides, shares under two sets: a quorum of ⌊N/2⌋ + 1, here and model `two_sides`; here
 2. a leader that signs two sets: votes and shares twice, `test_votes` and model `two_sides`; there, `test_lies`
 3. killed after a vote: sent before stored, here and model `final_then_again`; here, `test_deaths`
 4. a leader dies after votes: fresh without the reported vote, `test_votes`, model `final_then_again`; there
 5. missing in round 2, answered in round 1: one secret for all slots, here and model `one-slot`; here
 6. words come late: level from the own count, `test_attacks`; there
 7. cut off after its words: charged at the vote, `test_attacks`; there
 8. shares of S, then of S′: shares on request, `test_attacks`; there
 9. starts again with another vector: words not stored, `test_attacks`; there
10. an old copy of the ledger: nobody is asked, `test_attacks`; there, `test_late`
11. a relay swaps keys: keys not signed, long-term keys left out, here; here, `test_altered`
12. an altered partial sum: not checked, or a coin known before, `test_altered`; there, `test_blame`
13. an error of half the modulus: modulo 2^64, `test_altered`; there
14. noise halved, missing, known to others: `tests.audit.seeded.sums`; `tests/audit/test_sums`
15. silent because of the data: only numbers take part, here; here
16. an envelope of another batch or direction: context not bound, here; here, `test_parts`
17. a machine with another sampler: layers not removed exactly, `test_attacks`; there
18. an old slot started again: no rule for slots, `test_votes`, streams not bound, `test_uniform`, model; there
19. finished after a fresh start: shares erased at the fresh start, here and model `finished_after_fresh`; here
"""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.typing import ArrayLike, NDArray

from coterie.sums import secrets
from coterie.sums.core import Outgoing
from coterie.sums.messages import Answered, Ballots, Partial, Step, SumFrame, read_secrets, read_shares
from coterie.sums.secrets import Context, layer_seed, open_envelope, seal_envelope, walk
from coterie.sums.shamir import Weights
from coterie.sums.terms import ROSTER_BIT, SharedTerms
from coterie.sums.words import subtract, to_signed
from tests.sums.coalition import TERMS, wire
from tests.sums.test_uniform import OneSecret
from tests.sums.world import Ledger, Watched, World, keys_of, terms_of

SLOT = 0


def dealt_world(terms: SharedTerms, make: type[Watched] = Watched) -> World:
    """A batch is dealt; vectors are not offered yet."""
    world = World(terms, offers=0)
    if make is not Watched:
        world = remade(world, make)
    assert world.run(lambda w: all(p.batch == 0 for p in w.live), most=20)
    return world


def remade(world: World, make: type[Watched]) -> World:
    """The same parties of another kind, from the start."""
    world.make = make
    for i in range(world.terms.parties):
        world.stores[i] = Ledger()
        world.start(i)
    return world


def offer(world: World, rounds: int) -> None:
    world.offers = rounds
    for i in range(world.terms.parties):
        world._offer(i)


def stripped(world: World, i: int, slot: int, a: bytes, link: bytes) -> NDArray[np.int64]:
    """What both secrets of party i make of its words of a slot: its vector and layer 0."""
    terms, where = world.terms, Context(world.terms.plan, slot)
    frame = next(f for _, f in world.sent if (f.kind, f.sender, f.slot) == (Step.WORDS, i, slot))
    partial, party = Partial.read(frame.body, terms), world.live[0]
    assert partial.members == (i,)
    chain = walk(where, i, link, 0, terms.layers.last)
    y = subtract(partial.words, secrets.self_mask(where, i, chain[-1], terms.size))
    for j in party.members():
        if j != i:
            public = party.deal_of(slot >> 16, j).public[slot & 0xFFFF][:32]
            y = subtract(y, secrets.pair_mask(where, i, a, j, public, partial.start, terms.size))
    rest = to_signed(y)
    for k in range(1, terms.layers.last + 1):
        rest = rest - terms.layers.read(k, layer_seed(where, i, chain[k - 1], k), terms.size)
    return rest


# ---- 1: two sides ----------------------------------------------------------------------------------------------------


def two_sides(threshold: int) -> tuple[World, dict[bytes, dict[int, bytes]]]:
    """A lying leader, 0, shows each side another set and certifies both with its own votes; shares of 4's secrets."""
    terms = copy.copy(TERMS)
    object.__setattr__(terms, "threshold", threshold)  # the real one refuses it
    world = dealt_world(terms)
    lost = (Step.SET, Step.CERT, Step.OPENED)
    world.cross = lambda to, frame: [] if frame.sender == 0 and frame.kind in lost else [(to, frame)]
    offer(world, 1)
    world.run(lambda w: bool(wire(w, Step.SET)), most=3)
    full = Answered.read(wire(world, Step.SET)[0][0].body, terms)
    fourth = Partial.read(wire(world, Step.WORDS)[4][0].body, terms).words
    sets = {
        (3, 4): full,
        (1, 2): Answered(full.start, full.members[:-1], full.commits[:-1], subtract(full.words, fourth)),
    }
    values = {
        side: SumFrame(terms.plan, Step.SET, 0, 0, 0, SLOT, found.pack(terms), b"").sign(keys_of(0)[0])
        for side, found in sets.items()
    }
    for side, value in values.items():
        for j in side:
            world.post(j, value)
    world.run(lambda w: False, most=0.5)
    given: dict[bytes, dict[int, bytes]] = {}
    for side, value in values.items():
        votes = {f.sender: f for fs in wire(world, Step.VOTE).values() for f in fs if f.body[:32] == value.digest}
        mine = SumFrame(terms.plan, Step.VOTE, 0, 0, 0, SLOT, value.digest + bytes(16), b"").sign(keys_of(0)[0])
        votes[0] = mine
        voters = tuple(sorted(votes))
        body = Ballots(value.digest, voters, tuple((votes[i].body[32:], votes[i].signature) for i in voters))
        cert = SumFrame(terms.plan, Step.CERT, 0, 0, 0, SLOT, body.pack(terms), b"").sign(keys_of(0)[0])
        for j in side:
            world.post(j, cert)
        kind = 0 if 4 in sets[side].members else 2
        row = world.stores[0].rows["shares", SLOT, 4]
        assert isinstance(row, tuple)
        given[value.digest] = {0: row[kind]}  # the liar's own
    world.run(lambda w: False, most=0.5)
    for frames in wire(world, Step.SHARES).values():
        for frame in frames:
            digest, shares = read_shares(frame.body, range(5))
            given[digest][frame.sender] = shares[4]
    return world, given


def test_two_sides_give_both_secrets_only_if_two_quorums_can_do_without_each_other() -> None:
    world, given = two_sides(threshold=3)
    link, a = (Weights(sorted(shares)).recover(shares) for shares in given.values())
    assert link is not None
    assert a is not None
    drawn = world.drawn[4, SLOT]
    assert np.array_equal(stripped(world, 4, SLOT, a, link), drawn[0] + drawn[1])  # its vector, under layer 0 alone

    world, given = two_sides(threshold=TERMS.threshold)
    assert wire(world, Step.SHARES) == {}
    assert all(set(shares) == {0} for shares in given.values())


# ---- 3: killed after a vote ------------------------------------------------------------------------------------------


def opened_in_private(forgets: bool) -> tuple[World, set[bytes]]:
    """A lying leader, 0, opens a sum with 1, 2 and 3 and is never heard of again; they are killed and come back.

    One that `forgets` sent its vote and shares before it stored them. What the coalition, who sees all frames, opens.
    """
    world = dealt_world(TERMS)
    told = (Step.SET, Step.CERT)
    world.cross = lambda to, frame: [] if frame.sender == 0 and frame.kind in told and to == 4 else [(to, frame)]
    offer(world, 1)
    world.run(lambda w: len(wire(w, Step.SHARES)) >= 3, most=10)
    world.cross = lambda to, frame: [(to, frame)]
    world.events.clear()
    for i in (1, 2, 3):
        world.kill(i)
        rows = world.stores[i].rows
        lost = ("vote", "voted", "voted in", "final", "cert", "given", "given in", "total", "opened", "checked", "at")
        said = (int(Step.VOTE), int(Step.SHARES))
        forgotten = [k for k in rows if k[0] in lost and k[1:2] != (ROSTER_BIT,)]
        forgotten += [k for k in rows if k[0] in ("own", "to") and k[1] in said and k[2] == 0]
        for key in forgotten if forgets else ():
            del rows[key]
    world.kill(0)
    for i in (1, 2, 3):
        world.start(i)
    world.run(lambda w: w.at(1), most=200)
    opened = {f.body for _, f in world.sent if f.kind is Step.SHARES and f.round == 0}
    return world, {body[:32] for body in opened}


def test_a_vote_that_is_sent_is_stored() -> None:
    world, sums = opened_in_private(forgets=True)
    assert len(sums) == 2  # two sets of one round, each with t holders' shares …
    for digest in sums:
        holders = {f.sender for _, f in world.sent if f.kind is Step.SHARES and f.body[:32] == digest}
        assert len(holders | {0}) >= TERMS.threshold
    charges = [charge for charge in world.stores[1].charges if charge.round == 0]
    assert [charge.main for charge in charges] == [True, False]  # … and one charge

    world, sums = opened_in_private(forgets=False)
    assert len(sums) == 1
    assert world.at(1)
    world.check()


# ---- 5: one slot's secrets in another --------------------------------------------------------------------------------


def answered_then_missing(make: type[Watched]) -> tuple[World, bytes, bytes]:
    """Party 4 answers in round 0 and is missing in round 1: a link of its chain is shown, then its other secret."""
    world = dealt_world(TERMS, make)
    offer(world, 1)
    assert world.run(lambda w: w.at(1), most=20)
    world.kill(4)
    offer(world, 2)
    assert world.run(lambda w: w.at(2), most=60)
    shown = []
    for t in (0, 1):
        frame = world.live[0].row(("opened", t), SumFrame)
        assert frame is not None
        shown.append(read_secrets(frame.body, range(5))[1][4])
    return world, shown[0], shown[1]


def test_what_one_round_gives_out_tells_nothing_about_another(monkeypatch: pytest.MonkeyPatch) -> None:
    world, link, a = answered_then_missing(Watched)
    drawn = world.drawn[4, SLOT]
    assert not np.array_equal(stripped(world, 4, SLOT, a, link), drawn[0] + drawn[1])
    assert np.abs(stripped(world, 4, SLOT, a, link)).min() > 2**40  # still covered

    world, link, a = answered_then_missing(OneSecret)
    drawn = world.drawn[4, SLOT]
    assert np.array_equal(stripped(world, 4, SLOT, a, link), drawn[0] + drawn[1])


# ---- 11: swapped keys ------------------------------------------------------------------------------------------------


class Trusting(Watched):
    """Takes a deal under any batch key."""

    def on_deal(self, frame: SumFrame) -> None:
        self._deals.setdefault(frame.sender, frame)
        self.hold(frame.sender)


def between(monkeypatch: pytest.MonkeyPatch, planted: bool) -> tuple[World, dict[tuple[int, int], list[bytes]]]:
    """A relay puts its own batch key into everybody's KEYS and seals what it has read anew: what it has read."""
    key = X25519PrivateKey.generate()
    public = key.public_key().public_bytes_raw()
    if planted:  # nobody checks who signed keys and envelopes, and these are sealed under batch keys alone
        real_check, real_box = SumFrame.genuine, secrets._box

        def trusting(self: SumFrame, terms: SharedTerms) -> bool:
            return self.kind in (Step.KEYS, Step.ENVELOPE) or real_check(self, terms)

        monkeypatch.setattr(SumFrame, "genuine", trusting)
        monkeypatch.setattr(
            secrets, "_box", lambda mine, theirs, context: real_box((mine[1],) * 2, (theirs[1],) * 2, context)
        )
    world = World(TERMS, offers=0)
    if planted:
        world.events.clear()
        remade(world, Trusting)
    true: dict[int, bytes] = {}
    read: dict[tuple[int, int], list[bytes]] = {}

    def cross(to: int, frame: SumFrame) -> list[Outgoing]:
        i = frame.sender
        if frame.kind is Step.KEYS and to != i:
            true[i] = frame.body
            return [(to, replace(frame, body=public))]
        if frame.kind is Step.ENVELOPE and i in true and to in true:
            ours = (keys_of(99)[1], key)  # it has nobody's long-term key
            there, here = (TERMS.sealing[i], true[i]), (TERMS.sealing[to], true[to])
            shares = open_envelope(TERMS.plan, 0, (i, to), ours, there, frame.body)
            if shares is not None:
                read[i, to] = shares
                return [(to, replace(frame, body=seal_envelope(TERMS.plan, 0, (i, to), ours, here, shares)))]
        return [(to, frame)]

    world.cross = cross
    world.run(lambda w: all(p.batch == 0 for p in w.live), most=20)
    return world, read


def test_a_relay_that_swaps_keys_reads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world, read = between(monkeypatch, planted=False)
    assert read == {}
    assert all(party.dropped for party in world.live)
    assert all(party.batch == -1 for party in world.live)  # nor does anybody deal under its keys

    world, read = between(monkeypatch, planted=True)
    assert all(party.batch == 0 for party in world.live)
    offer(world, 1)
    assert world.run(lambda w: w.at(1), most=20)
    held = {j: read[4, j] for j in range(4)}
    kinds = TERMS.kinds
    link, a = (Weights(held).recover({j: row[SLOT * kinds + k] for j, row in held.items()}) for k in (0, kinds - 1))
    assert link is not None
    assert a is not None
    drawn = world.drawn[4, SLOT]
    assert np.array_equal(stripped(world, 4, SLOT, a, link), drawn[0] + drawn[1])  # a vector that only the sum may show


# ---- 15: silent because of the data ----------------------------------------------------------------------------------


class Picky(Watched):
    """Takes part only with numbers that are numbers."""

    def offer(self, vector: ArrayLike) -> None:
        if np.isfinite(vector).all():
            super().offer(vector)


@pytest.mark.parametrize(("make", "told"), [(Picky, True), (Watched, False)])
def test_who_takes_part_does_not_tell_of_the_data(make: type[Watched], told: bool) -> None:
    seen = []
    for value in (1.0, np.nan):

        class Has(make):  # type: ignore[valid-type,misc]
            number = value

            def give_vector(self, vector: ArrayLike, now: float) -> list[Outgoing]:
                return super().give_vector([self.number, 0.0, 0.0] if self.me == 3 else vector, now)  # type: ignore[no-any-return]

        world = dealt_world(TERMS, Has)
        offer(world, 1)
        assert world.run(lambda w: all(p.round == 1 for p in w.live if p.me != 3), most=100)
        seen.append(world.live[0].finished[0].members)
    assert (seen[0] != seen[1]) is told  # one bit of a record, for nothing


# ---- 16: envelopes elsewhere -----------------------------------------------------------------------------------------


def test_an_envelope_of_another_batch_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where its context is not bound, a holder takes shares of batch 0 for those of batch 1: secrets are used twice."""
    pair = keys_of(1)[1], keys_of(2)[1]
    ours, theirs = (pair[0], pair[0]), (pair[1].public_key().public_bytes_raw(),) * 2
    mine, back = (pair[1], pair[1]), (pair[0].public_key().public_bytes_raw(),) * 2
    shares = [bytes([k]) * 17 for k in range(4)]
    places = [(1, (1, 2)), (0, (2, 1)), (1, (2, 1))]
    for bound in (True, False):
        if not bound:
            monkeypatch.setattr(secrets, "_envelope", lambda plan, batch, sender, receiver: (b"envelope", plan))
        sealed = seal_envelope(TERMS.plan, 0, (1, 2), ours, theirs, shares)
        for batch, ends in places:
            assert open_envelope(TERMS.plan, batch, ends, mine, back, sealed) == (None if bound else shares)


# ---- 19: finished after a fresh start --------------------------------------------------------------------------------


class ErasesEarly(Watched):
    """Erases the shares of older slots of a round as soon as it answers a fresh START."""

    def answer(self, frame: SumFrame) -> None:
        super().answer(frame)
        if frame.ballot:
            first = self.first_slot(self.round)
            self.store.commit({}, [("shares", first, owner) for owner in self.everybody])


SEVEN = terms_of(7, 0, ring=False)


def finished_after_fresh(make: type[Watched]) -> World:
    """Ballot 0 gets two votes, of 0 and 3; ballot 1 starts fresh without hearing of them, and gets no words; ballot 2
    finishes ballot 0."""
    world = dealt_world(SEVEN, make)

    def cross(to: int, frame: SumFrame) -> list[Outgoing]:
        at = frame.kind, frame.ballot
        unheard = at == (Step.PROMISE, 1) and frame.sender in (0, 3)
        lost = at in ((Step.COMMIT, 1), (Step.WORDS, 1)) or (at == (Step.SET, 0) and to != 3 and world.now < 8)
        return [] if frame.round == 0 and (unheard or lost) else [(to, frame)]

    world.cross = cross
    offer(world, 1)
    world.run(lambda w: w.at(1), most=200)
    return world


def test_an_older_slot_can_be_finished_after_a_fresh_start() -> None:
    real = finished_after_fresh(Watched)
    assert [f.slot for fs in wire(real, Step.START).values() for f in fs] == [0, SEVEN.rounds]
    assert wire(real, Step.FINISH)
    assert real.at(1)
    assert {f.slot for fs in wire(real, Step.CERT).values() for f in fs if f.round == 0} == {0}
    real.check()
    twin = finished_after_fresh(ErasesEarly)
    assert wire(twin, Step.FINISH)
    assert any(party.store.get(("final", 0)) for party in twin.live)
    assert not any(party.round for party in twin.live)  # final, paid, and never opened
