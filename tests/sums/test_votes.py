"""Attacks by votes on the real core: two sets of one ballot, a retry that forgets a vote, an old slot started again.

Agreement, the ledger and the rule that shares are given once per round each stand in the way, so that every twin here
has more than one fault. Each attack is shown to get through with all of them, and not with any one of them mended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from coterie.sums.core import Outgoing
from coterie.sums.messages import Answered, Ballots, Step, SumFrame, pack_frames, read_shares
from coterie.sums.rounds import functionals_of
from coterie.sums.shamir import Weights
from coterie.sums.store import Key
from coterie.sums.terms import ROSTER_BIT
from coterie.sums.words import subtract, to_signed
from tests.sums.coalition import SLOT, TERMS, dealt_batch, prepared, strip, wire, words_of
from tests.sums.world import Watched, World, keys_of

EVERYBODY = range(TERMS.parties)


def signed(liar: int, kind: Step, round_: int, slot: int, body: bytes, ballot: int = 0) -> SumFrame:
    return SumFrame(TERMS.plan, kind, liar, round_, ballot, slot, body, b"").sign(keys_of(liar)[0])


def certificate(world: World, liar: int, value: SumFrame) -> SumFrame:
    """The liar's certificate of a set: all votes for it that were sent, and its own."""
    votes = {f.sender: f for fs in wire(world, Step.VOTE).values() for f in fs if f.body[:32] == value.digest}
    at = value.round, value.slot
    votes[liar] = signed(liar, Step.VOTE, *at, value.digest + functionals_of(value.digest, np.zeros(TERMS.size, "u8")))
    voters = tuple(sorted(votes))
    body = Ballots(value.digest, voters, tuple((votes[i].body[32:], votes[i].signature) for i in voters))
    return signed(liar, Step.CERT, *at, body.pack(TERMS))


def rebuilt(world: World, value: bytes, own: dict[int, bytes] | None = None) -> dict[int, bytes]:
    """Every owner's secret under a set, as far as t shares of it went over wires; `own`: those of the liar, 0."""
    given = {0: own} if own else {}
    for frames in wire(world, Step.SHARES).values():
        for frame in frames:
            if frame.body[:32] == value:
                given[frame.sender] = read_shares(frame.body, EVERYBODY)[1]
    if len(given) < TERMS.threshold:
        return {}
    holders = sorted(given)[: TERMS.threshold]
    found = {i: Weights(holders).recover({j: given[j][i] for j in holders}) for i in EVERYBODY}
    return {i: secret for i, secret in found.items() if secret is not None}


def own_shares(world: World, value: SumFrame) -> dict[int, bytes]:
    """The liar's own shares, of party 0, for a set."""
    party = world.live[0]
    rows = {i: dealt_batch()[0].rows["shares", value.slot, i] for i in EVERYBODY}
    return {i: row[party.place(value, i)] for i, row in rows.items()}  # type: ignore[index]


def what_it_says(world: World, value: SumFrame, slot: int, kept: int) -> NDArray[np.int64]:
    """Vectors and noise of a set's members in a slot."""
    members = Answered.read(value.body, TERMS).members
    return np.asarray(np.sum([part for i in members for part in world.drawn[i, slot][: kept + 2]], axis=0))


# ---- two sets of one ballot ------------------------------------------------------------------------------------------


class VotesTwice(Watched):
    """Votes for every set of a ballot that is valid."""

    def on_proposal(self, frame: SumFrame) -> None:
        if frame.kind is not Step.SET or not self.valid(frame):
            return super().on_proposal(frame)
        body = frame.digest + self.functionals(frame)
        self.commit(send=[(frame.sender, self.frame(Step.VOTE, frame.round, frame.ballot, frame.slot, body))])
        return None


class GivesTwice(Watched):
    """Gives shares for every set that has a certificate."""

    def on_cert(self, frame: SumFrame) -> None:
        self.became_final(frame.round, self.check_cert(frame)[0], frame)


class TwiceAll(VotesTwice, GivesTwice):
    """Both."""


def equivocation(make: type[Watched]) -> tuple[World, list[SumFrame]]:
    """The leader, 0, signs a set with party 4 and one without it, shows both to all, and certifies what it can."""
    world = prepared(make, loose=make is not Watched, drop=(Step.SET, Step.CERT, Step.OPENED))
    world.run(lambda w: bool(wire(w, Step.SET)), most=3)
    first = wire(world, Step.SET)[0][0]
    full = Answered.read(first.body, TERMS)
    less = subtract(full.words, words_of(world, 4)[0])
    body = Answered(full.start, full.members[:-1], full.commits[:-1], less).pack(TERMS)
    values = [first, signed(0, Step.SET, 0, SLOT, body)]
    for frame in values:
        for j in range(1, 5):
            world.post(j, frame)
        world.run(lambda w: False, most=0.5)
    for frame in values:
        for j in range(1, 5):
            world.post(j, certificate(world, 0, frame))
        world.run(lambda w: False, most=0.5)
    return world, values


def test_a_leader_that_signs_two_sets_gets_both_secrets_of_who_votes_and_gives_twice() -> None:
    world, values = equivocation(TwiceAll)
    link, a = (rebuilt(world, value.digest)[4] for value in values)
    drawn = world.drawn[4, SLOT]
    assert np.array_equal(strip(world, 4, a, link, 0), drawn[0] + drawn[1])  # its vector, under layer 0 alone


@pytest.mark.parametrize("make", [Watched, VotesTwice, GivesTwice])
def test_a_leader_that_signs_two_sets_opens_one_at_most(make: type[Watched]) -> None:
    world, values = equivocation(make)
    assert wire(world, Step.VOTE)
    opened = [value for value in values if rebuilt(world, value.digest)]
    assert len(opened) <= 1
    if make is Watched:
        assert all(len(frames) == 1 for frames in wire(world, Step.VOTE).values())


# ---- a retry that forgets a vote -------------------------------------------------------------------------------------


class NeverAdopts(Watched):
    """Starts afresh, and lets others do so, whatever votes are reported."""

    def basis(self, promises: Sequence[SumFrame], instance: int, ballot: int) -> tuple[bool, bytes | None]:
        return super().basis(promises, instance, ballot)[0], None


class PerSlot(Watched):
    """Gives shares once per slot, and goes on with the round as if nothing had become final."""

    def became_final(self, instance: int, value: SumFrame, cert: SumFrame) -> None:
        if instance & ROSTER_BIT:
            return super().became_final(instance, value, cert)
        shares = self.shares_for(value)
        assert shares is not None
        frame = self.frame(Step.SHARES, instance, 0, value.slot, value.digest + b"".join(shares.values()))
        return self.commit({("given", value.slot): value.digest}, [(cert.sender, frame)])


class Forgetful(NeverAdopts, PerSlot):
    """Both."""


def given_for(world: World) -> set[bytes]:
    """The sets for which shares went over wires in round 0."""
    return {f.body[:32] for fs in wire(world, Step.SHARES).values() for f in fs if f.round == 0}


def final_then_again(make: type[Watched]) -> tuple[World, dict[bytes, SumFrame]]:
    """The leader, 0, opens a sum with 1, 2 and 3, tells nobody and dies; the others try again. The sums that it sees
    open, by their slots."""
    world = prepared(make)
    told = (Step.SET, Step.CERT, Step.OPENED)
    world.cross = lambda to, frame: (
        [] if frame.sender == 0 and frame.kind in told and (to == 4 or frame.kind is Step.OPENED) else [(to, frame)]
    )
    world.run(lambda w: len(wire(w, Step.SHARES)) >= 3, most=10)
    world.kill(0)
    world.cross = lambda to, frame: [(to, frame)]
    world.run(lambda w: w.at(1) or len(given_for(w)) > 1, most=40)
    world.run(lambda w: False, most=1)
    sets = {f.digest: f for fs in wire(world, Step.SET).values() for f in fs if f.round == 0}
    return world, {d: f for d, f in sets.items() if rebuilt(world, d, own_shares(world, f))}


def test_a_retry_without_the_reported_vote_opens_a_second_sum() -> None:
    world, opened = final_then_again(Forgetful)
    assert {frame.slot for frame in opened.values()} == {SLOT, TERMS.rounds}
    party, vectors = world.live[0], []
    for digest, frame in opened.items():
        level = party.level(frame)
        total = to_signed(party.unmask(frame, rebuilt(world, digest, own_shares(world, frame))))
        assert np.array_equal(total, what_it_says(world, frame, frame.slot, level))  # two sums, with noise of their own
        vectors.append([world.drawn[i, frame.slot][0] for i in (1, 2, 3, 4)])
    assert np.array_equal(vectors[0], vectors[1])  # of the same vectors …
    charges = [charge.main for charge in world.stores[2].charges if charge.round == 0]
    assert charges == [True, False]  # … for one charge


@pytest.mark.parametrize("make", [Watched, NeverAdopts, PerSlot])
def test_a_retry_after_a_vote_opens_one_sum(make: type[Watched]) -> None:
    world, opened = final_then_again(make)
    assert {frame.slot for frame in opened.values()} == {SLOT}
    if make is PerSlot:
        assert wire(world, Step.FINISH)  # it did try again, with the reported set
    if make is Watched:
        assert world.at(1)
        world.check()


# ---- an old slot started again ---------------------------------------------------------------------------------------


class AnySlot(Watched):
    """Takes a START for whatever slot it names."""

    def check_start(self, frame: SumFrame, promises: Sequence[SumFrame]) -> bool:
        return True


class AnyCommit(Watched):
    """Takes words for those of a set, whichever START they answered."""

    def check_set(self, frame: SumFrame) -> bool:
        start = self.known(Answered.read(frame.body, TERMS).start)
        return self.valid(start) and (start.round, start.slot) == (frame.round, frame.slot)


class KeepsShares(Watched):
    """Erases the shares of the slot that was opened, and no other's."""

    def settled(self, value: SumFrame) -> list[Key]:
        return [("shares", value.slot, owner) for owner in self.everybody]


class OldWords(AnySlot, AnyCommit, KeepsShares):
    """All three."""


class NoSlotRule(AnyCommit, KeepsShares):
    """Two of them."""


class NoCommitRule(AnySlot, KeepsShares):
    """Two of them."""


class ErasesOne(AnySlot, AnyCommit):
    """Two of them."""


def old_words(make: type[Watched]) -> tuple[World, SumFrame, SumFrame]:
    """Party 1 lies. In round 0 it starts a slot and sends no set; another slot is opened. In round 1, which it leads,
    it starts the old one again, and fills a set with the words of round 0. The set that it hid, and that new one."""
    world = prepared(make)

    def cross(to: int, frame: SumFrame) -> list[Outgoing]:
        unheard = frame.kind in (Step.SET, Step.CERT) or (frame.kind is Step.PROMISE and frame.ballot > 1)
        return [] if frame.round == 0 and frame.sender == 1 and unheard else [(to, frame)]

    world.cross = cross
    world.kill(0)  # who would lead first
    assert world.run(lambda w: 1 in wire(w, Step.SET), most=60)
    world.start(0)
    assert world.run(lambda w: w.at(1), most=200)
    first, later = wire(world, Step.START)[1][0], wire(world, Step.SET)[2][0]
    assert (first.round, first.slot, later.round) == (0, SLOT, 0)
    assert later.slot > SLOT
    hidden = wire(world, Step.SET)[1][0]  # made, and shown to nobody
    left = Answered.read(hidden.body, TERMS)
    world.kill(1)
    again = replace(first, round=1, ballot=0, body=bytes(TERMS.tree(1)) + pack_frames([])).sign(keys_of(1)[0])
    value = signed(1, Step.SET, 1, SLOT, Answered(again.digest, left.members, left.commits, left.words).pack(TERMS))
    for frame in (again, value):
        for j in (0, 2, 3, 4):
            world.post(j, frame)
        world.run(lambda w: False, most=0.5)
    for j in (0, 2, 3, 4):
        world.post(j, certificate(world, 1, value))
    world.run(lambda w: False, most=0.5)
    return world, hidden, value


def test_a_slot_that_is_started_again_opens_the_words_of_a_round_that_was_opened_already() -> None:
    world, hidden, value = old_words(OldWords)
    party = world.live[0]
    total = to_signed(party.unmask(hidden, rebuilt(world, value.digest)))
    assert np.array_equal(total, what_it_says(world, hidden, SLOT, party.level(hidden)))
    one, two = (world.drawn[3, slot][0] for slot in (SLOT, TERMS.rounds))
    assert np.array_equal(one, two)  # the vector of round 0, in two open sums …
    assert [charge.main for charge in world.stores[3].charges] == [True, False]  # … for one charge


@pytest.mark.parametrize("make", [Watched, NoSlotRule, NoCommitRule, ErasesOne])
def test_a_slot_that_is_started_again_opens_nothing(make: type[Watched]) -> None:
    world, _, value = old_words(make)
    assert rebuilt(world, value.digest) == {}
    if make is Watched:
        assert not [f for fs in wire(world, Step.VOTE).values() for f in fs if f.round == 1]
        world.check()
