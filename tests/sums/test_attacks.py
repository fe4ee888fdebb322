"""Attacks on the real core: each gets through on a planted twin, and what is then learned is shown; else nothing is.

Attacks on agreement itself (two sides, votes forgotten, fresh starts, old words, early erasure) are in `test_votes`,
`test_twins` and, without cryptography, `test_model`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from coterie.sums.core import Outgoing
from coterie.sums.dealing import NO_SLOT
from coterie.sums.messages import Answered, Ballots, Step, SumFrame, read_shares
from coterie.sums.secrets import Context, commitment, walk
from coterie.sums.shamir import Weights
from coterie.sums.store import Charge
from coterie.sums.terms import ROSTER_BIT
from coterie.sums.words import subtract, to_signed
from tests.sums.coalition import SLOT, TERMS, dealt_batch, prepared, strip, wire, words_of
from tests.sums.world import Watched, World, keys_of, vector_of

# ---- shares under two sets -------------------------------------------------------------------------------------------


class OnRequest(Watched):
    """Gives shares for any set that it is asked for."""

    def check_cert(self, frame: SumFrame) -> tuple[SumFrame, Ballots]:
        ballots = Ballots.read(frame.body, self.terms)
        return self.known(ballots.value), ballots

    def on_cert(self, frame: SumFrame) -> None:
        self.became_final(frame.round, self.check_cert(frame)[0], frame)


def two_requests(make: type[Watched], loose: bool) -> World:
    world = prepared(make, loose, drop=(Step.SET, Step.CERT, Step.OPENED))
    world.run(lambda w: len(wire(w, Step.SET)) > 0, most=3)
    honest = wire(world, Step.SET)[0][0]
    full = Answered.read(honest.body, TERMS)
    without = subtract(full.words, words_of(world, 4)[0])
    parts = ((full.members, full.commits, full.words), (full.members[:-1], full.commits[:-1], without))
    for members, commits, words in parts:
        body = Answered(full.start, members, commits, words).pack(TERMS)
        value = SumFrame(TERMS.plan, Step.SET, 0, 0, 0, SLOT, body, b"").sign(keys_of(0)[0])
        vote = SumFrame(TERMS.plan, Step.VOTE, 0, 0, 0, SLOT, value.digest + bytes(16), b"").sign(keys_of(0)[0])
        cert = Ballots(value.digest, (0,), ((bytes(16), vote.signature),)).pack(TERMS)
        for j in range(1, 5):
            world.post(j, value)
            world.post(j, SumFrame(TERMS.plan, Step.CERT, 0, 0, 0, SLOT, cert, b"").sign(keys_of(0)[0]))
        world.run(lambda w: False, most=0.5)
    return world


def test_shares_are_given_under_one_certified_set_only() -> None:
    twin = two_requests(OnRequest, loose=True)
    given: dict[bytes, dict[int, bytes]] = {}
    for frames in wire(twin, Step.SHARES).values():
        for frame in frames:
            value, shares = read_shares(frame.body, range(5))
            given.setdefault(value, {})[frame.sender] = shares[4]
    rebuilt = [Weights(sorted(shares)[:4]).recover(shares) for shares in given.values() if len(shares) == 4]
    link, a = rebuilt
    assert link is not None
    assert a is not None
    drawn = twin.drawn[4, SLOT]
    assert np.array_equal(strip(twin, 4, a, link, 0), drawn[0] + drawn[1])  # the vector with layer 0: a local release

    real = two_requests(Watched, loose=False)
    assert wire(real, Step.SHARES) == {}
    votes = wire(real, Step.VOTE)
    assert all(len(frames) == 1 for frames in votes.values())  # and nobody voted for both sets
    assert votes


# ---- one slot, two vectors -------------------------------------------------------------------------------------------


def two_vectors(forgets: bool) -> World:
    """Party 4 restarts with another vector; a party that `forgets` stored its commitment, not its words."""
    world = prepared(loose=forgets, drop=(Step.SET,))
    world.run(lambda w: 4 in wire(w, Step.WORDS), most=2)
    first = [part.copy() for part in world.drawn[4, SLOT]]
    world.kill(4)
    if forgets:
        rows = world.stores[4].rows
        for key in [k for k in rows if k[0] in ("words", "answered") or k[:2] == ("own", int(Step.WORDS))]:
            del rows[key]
    world.offers = 0
    world.start(4)
    world.run(lambda w: False, most=0.5)
    party = world.parties[4]
    assert party is not None
    world._do(4, lambda: party.give_vector(vector_of(0, 3, TERMS.size), world.now))
    for start in wire(world, Step.START)[0]:
        world.post(4, start)
    world.run(lambda w: False, most=1)
    world.drawn[99, SLOT] = first
    return world


def test_a_slot_is_masked_once() -> None:
    twin = two_vectors(forgets=True)
    one, two = words_of(twin, 4)
    before, after = twin.drawn[99, SLOT], twin.drawn[4, SLOT]
    # layers above 0 come from the chain and cancel too: what is left is both vectors with their layer 0
    assert np.array_equal(to_signed(subtract(one, two)), before[0] + before[1] - after[0] - after[1])

    real = two_vectors(forgets=False)
    assert len(words_of(real, 4)) == 1


class Unasked(Watched):
    """Trusts its ledger, however old."""

    def begin(self, now: float) -> list[Outgoing]:
        out = super().begin(now)
        self.ready = True
        self.resume()
        return out + self._drain()


def old_copy(make: type[Watched]) -> World:
    world = prepared(make, drop=(Step.SET,))
    backup = dealt_batch()[4].copy()
    world.run(lambda w: 4 in wire(w, Step.WORDS), most=2)
    world.kill(4)
    world.stores[4] = backup
    world.start(4)
    for start in wire(world, Step.START)[0]:
        world.post(4, start)
    world.run(lambda w: False, most=1)
    return world


def test_a_ledger_from_an_old_copy_is_refused() -> None:
    assert len(words_of(old_copy(Unasked), 4)) == 2  # two vectors under one mask: the difference is out, as above
    real = old_copy(Watched)
    assert len(words_of(real, 4)) == 1
    party = real.parties[4]
    assert party is not None
    assert "old copy" in party.refusal


# ---- charge, level, noise --------------------------------------------------------------------------------------------


class ChargedLate(Watched):
    """Pays when it votes."""

    def commit(self, puts=None, send=(), erase=(), charge=None) -> None:  # type: ignore[no-untyped-def]
        sending = list(send)
        votes = any(frame.kind is Step.VOTE and frame.round == 0 for _, frame in sending)
        super().commit(puts, sending, erase, Charge(0, SLOT, True) if votes else None)


def cut_off(make: type[Watched]) -> World:
    """Party 4 hears nothing any more once its words have left."""
    world = prepared(make)
    world.cross = lambda to, frame: [] if to == 4 and 4 in wire(world, Step.WORDS) else [(to, frame)]
    assert world.run(lambda w: all(p.round == 1 for p in w.live if p.me != 4), most=100)
    assert 4 in world.live[0].finished[0].members  # its vector is in the opened sum
    return world


def test_who_is_cut_off_after_its_words_has_paid() -> None:
    assert cut_off(ChargedLate).stores[4].charges == []
    assert [charge.main for charge in cut_off(Watched).stores[4].charges] == [True]


class OwnCount(Watched):
    """Takes the level of noise from the number of words that it happens to know of."""

    def level(self, value: SumFrame) -> int:
        return max(0, super().level(value) - 1)


def lowest_level(make: type[Watched]) -> int:
    """After a round without party 2: the lowest link of party 4's chain that t shares give."""
    world = prepared(make)
    world.kill(2)
    assert world.run(lambda w: w.at(1), most=100)
    value = wire(world, Step.SHARES)[4][0].body[:32]
    shares = {f.sender: read_shares(f.body, range(5))[1][4] for fs in wire(world, Step.SHARES).values() for f in fs}
    party = world.live[0]
    mine = party.row(("given", SLOT), bytes)
    assert mine == value
    own = next(f for key, f in world.stores[party.me].rows.items() if key[:2] == ("own", int(Step.SHARES)))
    assert isinstance(own, SumFrame)
    shares[party.me] = read_shares(own.body, range(5))[1][4]
    link = Weights(sorted(shares)[:4]).recover(shares)
    assert link is not None
    end = party.deal_of(0, 4).public[SLOT][32:]
    where = Context(TERMS.plan, SLOT)
    return next(k for k in (0, 1) if commitment(where, 4, walk(where, 4, link, k, 1)[-1]) == end)


def test_the_level_of_noise_follows_from_the_set() -> None:
    layers = TERMS.layers
    assert lowest_level(OwnCount) == 0
    assert 3 * layers.kept(0) < layers.variance  # three honest parties are left with less than σ²
    assert lowest_level(Watched) == 1
    assert 3 * layers.kept(1) == layers.variance


class Derived(Watched):
    """Draws layer 0 from the shared chain."""

    def draw_layers(self, round_: int, slot: int, chain: Sequence[bytes]) -> list[NDArray[np.int64]]:
        layers = super().draw_layers(round_, slot, chain)
        layers[0] = self.terms.layers.read(0, chain[0] * 2, self.terms.size)
        self.drawn[self.me, slot][1] = layers[0]
        return layers


@pytest.mark.parametrize(("make", "exposed"), [(Derived, True), (Watched, False)])
def test_everybody_else_together_still_faces_layer_0(make: type[Watched], exposed: bool) -> None:
    world = prepared(make, drop=(Step.SET,))
    world.run(lambda w: 4 in wire(w, Step.WORDS), most=2)
    rows = {j: world.stores[j].rows[("shares", SLOT, 4)] for j in range(4)}
    link, a = (Weights(rows).recover({j: row[k] for j, row in rows.items()}) for k in (0, 2))  # type: ignore[index]
    assert link is not None
    assert a is not None
    left = strip(world, 4, a, link, 0)
    assert np.array_equal(left, world.drawn[4, SLOT][0] + world.drawn[4, SLOT][1])
    guess = left - TERMS.layers.read(0, link * 2, TERMS.size)
    assert np.array_equal(guess, world.drawn[4, SLOT][0]) is exposed


class Elsewhere(Watched):
    """A machine with another sampler."""

    def draw_layers(self, round_: int, slot: int, chain: Sequence[bytes]) -> list[NDArray[np.int64]]:
        layers = super().draw_layers(round_, slot, chain)
        seed = int.from_bytes(chain[0], "big")
        deviation = float(self.terms.layers.variances[1]) ** 0.5
        return [layers[0], np.rint(np.random.default_rng(seed).normal(0, deviation, self.terms.size)).astype(np.int64)]


@pytest.mark.parametrize(("make", "exact"), [(Elsewhere, False), (Watched, True)])
def test_layers_come_off_exactly(make: type[Watched], exact: bool) -> None:
    world = prepared(make)
    assert world.run(lambda w: w.at(1), most=20)
    total = world.live[0].total(0)
    assert total is not None
    assert np.array_equal(to_signed(total), world.honest_sum(world.live[0], 0)) is exact


def test_numbers_that_are_none_do_not_choose_who_takes_part() -> None:
    world = prepared()
    world.kill(3)
    world.start(3)
    party = world.parties[3]
    assert party is not None
    party.vector = np.array([np.nan, np.inf, 1.0])
    assert world.run(lambda w: w.at(1), most=20)
    assert world.live[0].finished[0].members == (0, 1, 2, 3, 4)


# ---- in a party's own name -------------------------------------------------------------------------------------------


class TrustsItself(Watched):
    """Takes whatever bears its own name for its own."""

    def handle(self, frame: SumFrame, now: float) -> list[Outgoing]:
        if frame.sender != self.me:
            return super().handle(frame, now)
        self._queue.append(frame)
        return self._drain()


def unsigned(kind: Step, body: bytes, instance: int = 0, slot: int = 0) -> SumFrame:
    """A frame in the name of party 4 that anybody can write: whoever hands packets on needs no key for it."""
    return SumFrame(TERMS.plan, kind, 4, instance, 0, slot, body, bytes(64))


@pytest.mark.parametrize(("make", "let_in"), [(TrustsItself, True), (Watched, False)])
def test_nobody_vouches_for_a_ledger_in_its_owners_name(make: type[Watched], let_in: bool) -> None:
    world = prepared(make)
    world.kill(4)
    world.run(lambda w: False, most=0.5)
    answering = {1, 2}  # one fewer than the t − 1 = 3 whose answers show that a ledger is no old copy
    world.cross = lambda to, frame: [] if frame.kind is Step.STAND and frame.sender not in answering else [(to, frame)]
    world.start(4)
    world.post(4, unsigned(Step.STAND, b""))
    world.run(lambda w: False, most=3)
    party = world.parties[4]
    assert party is not None
    assert party.ready == let_in


@pytest.mark.parametrize(("make", "out"), [(TrustsItself, True), (Watched, False)])
def test_nobody_keeps_a_party_out_of_a_roster_in_its_own_name(make: type[Watched], out: bool) -> None:
    class Made(World):
        def start(self, i: int) -> None:
            self.make = make
            super().start(i)

    world = Made(TERMS, offers=0)
    world.post(4, unsigned(Step.ENVELOPE, bytes(64), ROSTER_BIT, NO_SLOT))  # comes before its own, which is not read
    assert world.run(lambda w: all(p.batch == 0 for p in w.live), most=60)
    assert (4 not in world.live[0].members()) == out
