"""From a certificate to the sum: SHARES, OPENED, what is erased then.

Under a certificate every member gives, once per slot and once per round, one share per owner: of B_{i,κ} for those in
the set, of a_i for the others, where κ follows from the size of the set alone. Anyone with t of them rebuilds the
secrets, checks them against C_i and X_i, and shows them to all; everybody takes off the masks and the surplus noise.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from coterie.sums.core import latest
from coterie.sums.messages import (
    Answered,
    BadSumFrame,
    Ballots,
    Roster,
    Step,
    SumFrame,
    read_secrets,
    read_shares,
    read_words,
)
from coterie.sums.messages import pack_words as raw_words
from coterie.sums.rounds import Rounds, coin
from coterie.sums.secrets import commitment, layer_seed, pair_mask, public_of, self_mask, walk
from coterie.sums.shamir import Weights
from coterie.sums.store import Key
from coterie.sums.terms import ROSTER_BIT
from coterie.sums.words import MODULUS, Words, add, dot, from_signed, subtract

__all__ = ["Opening", "Outcome"]


RECENT = 2
"""Rounds for which a party can still be asked what it added."""

BY_INSTANCE = ("own", "to", "answered", "proposal", "promise", "vote", "voted in", "charged", "given in")
BY_SLOT = ("words", "added", "slot of", "given", "voted")
BY_BATCH = ("held count", "held by", "keys", "deal", "leaves")


@dataclass(frozen=True)
class Outcome:
    """How a round ended. `checked`: True if the words add up by what members signed, False if they do not, None if a
    member's functional is missing."""

    round: int
    members: tuple[int, ...]
    total: Words
    checked: bool | None


class Opening(Rounds):
    """The part of a party that opens."""

    finished: list[Outcome]
    _late_shares: list[SumFrame]
    _distrusted: set[int]

    def forget(self) -> None:
        super().forget()
        self._shares: dict[int, dict[int, bytes]] = {}  # by holder
        self._share_frames: dict[int, SumFrame] = {}

    # -- SHARES --------------------------------------------------------------------------------------------------------

    def became_final(self, instance: int, value: SumFrame, cert: SumFrame) -> None:
        """Give shares for the final set, in the transaction that stores it."""
        if instance & ROSTER_BIT:
            self.adopt_roster(value, cert)
            self.next_instance()
            return
        puts: dict[Key, object] = {
            ("final", instance): value.digest,
            ("cert", instance): cert,
            ("frame", cert.digest.hex()): cert,
            ("frame", value.digest.hex()): value,
        }
        shares = self.shares_for(value)
        if shares is None:
            self.commit(puts)
            return
        puts |= {("given", value.slot): value.digest, ("given in", instance): value.digest}
        frame = self.frame(Step.SHARES, instance, 0, value.slot, value.digest + b"".join(shares.values()))
        self.commit(puts, [(cert.sender, frame)])

    def level(self, value: SumFrame) -> int:
        """κ, from the set and nothing else."""
        return self.terms.layers.keep(self.terms.parties - len(Answered.read(value.body, self.terms).members))

    def place(self, value: SumFrame, owner: int) -> int:
        """Which of an owner's shares is due: B_κ for a member of the set, a for the others."""
        members = Answered.read(value.body, self.terms).members
        return self.level(value) if owner in members else self.terms.kinds - 1

    def shares_for(self, value: SumFrame) -> dict[int, bytes] | None:
        """The shares that are due under a set, or None where this party holds none."""
        given: dict[int, bytes] = {}
        for owner in self.members():
            row = self.row(("shares", value.slot, owner), tuple)
            if row is None:
                return None
            given[owner] = row[self.place(value, owner)]
        return given if self.me in self.members() else None

    def final_value(self) -> SumFrame | None:
        """The SET that is final in this round."""
        digest = self.row(("final", self.round), bytes)
        return None if digest is None else self.known(digest)

    def on_shares(self, frame: SumFrame) -> None:
        """Note a holder's shares."""
        value = self.final_value()
        if value is None:
            self._late_shares = latest(self._late_shares, frame)
            self.ask_how_it_ended(self.round, frame.sender)
            return
        digest, shares = read_shares(frame.body, self.members())
        if digest != value.digest or frame.slot != value.slot or frame.sender not in self.members():
            raise BadSumFrame("shares of something else")
        if frame.sender not in self._shares:
            self._shares[frame.sender], self._share_frames[frame.sender] = shares, frame
            self.rebuild(value)

    def fits(self, value: SumFrame, owner: int, secret: bytes) -> bool:
        """Whether a rebuilt secret is the one that its owner published."""
        where, last = self.context(value.slot), self.terms.layers.last
        public = self.deal_of(value.slot >> 16, owner).public[value.slot & 0xFFFF]
        kind = self.place(value, owner)
        if kind <= last:
            return commitment(where, owner, walk(where, owner, secret, kind, last)[-1]) == public[32:]
        return public_of(where, owner, secret) == public[:32]

    def rebuild(self, value: SumFrame) -> None:
        """Open once t holders answered; where a secret does not fit, ask them for proof of their shares."""
        good = [i for i in sorted(self._shares) if i not in self._distrusted]
        if len(good) < self.terms.threshold or self.own(Step.OPENED, self.round, 0, value.slot):
            return
        holders = good[: self.terms.threshold]
        weights = Weights(holders)
        found: dict[int, bytes] = {}
        for owner in self.members():
            secret = weights.recover({i: self._shares[i][owner] for i in holders})
            if secret is None or not self.fits(value, owner, secret):
                self.doubt(value, owner, holders)
                return
            found[owner] = secret
        body = value.digest + b"".join(found.values())
        frame = self.frame(Step.OPENED, self.round, 0, value.slot, body)
        self.commit(send=self.to_all(frame))

    @abc.abstractmethod
    def doubt(self, value: SumFrame, owner: int, holders: list[int]) -> None:
        """A secret does not fit: find out whose fault it is."""

    # -- OPENED --------------------------------------------------------------------------------------------------------

    def on_opened(self, frame: SumFrame) -> None:
        """Check the secrets, take off the masks, store the total, erase the shares."""
        value = self.final_value()
        if value is None:
            self.ask_how_it_ended(self.round, frame.sender)
            return
        digest, found = read_secrets(frame.body, self.members())
        if digest != value.digest:
            raise BadSumFrame("an opening of something else")
        for owner, secret in found.items():
            if not self.fits(value, owner, secret):
                raise BadSumFrame(f"the secret of party {owner} is not what it published")
        total = self.unmask(value, found)
        checked = self.adds_up(value)
        round_ = self.round
        puts: dict[Key, object] = {
            ("total", round_): raw_words(total),
            ("checked", round_): checked,
            ("opened", round_): frame,
            ("frame", frame.digest.hex()): frame,
            ("at",): round_ + 1,
        }
        members = Answered.read(value.body, self.terms).members
        self.commit(puts, erase=[*self.settled(value), *self.outdated()])
        self.finished.append(Outcome(round_, members, total, checked))
        self._absent = set(self.everybody) - (set(members) & set(self.signed_functionals(value)))
        self.vector = None
        if checked is False:
            self.dispute(round_, value)
        elif checked is None:
            self.lend(round_, value)
        self.next_instance()

    def unmask(self, value: SumFrame, found: Mapping[int, bytes]) -> Words:
        """Σ e_i + noise up to κ over the set."""
        terms, where, answered = self.terms, self.context(value.slot), Answered.read(value.body, self.terms)
        level, last, index = self.level(value), terms.layers.last, value.slot & 0xFFFF
        layers = terms.noise(value.round)
        total, surplus = answered.words, np.zeros(terms.size, np.int64)
        for i in answered.members:
            chain = walk(where, i, found[i], level, last)
            total = subtract(total, self_mask(where, i, chain[-1], terms.size))
            for k in range(level + 1, last + 1):
                surplus = surplus + layers.read(k, layer_seed(where, i, chain[k - 1 - level], k), terms.size)
        for i in set(self.members()) - set(answered.members):
            for j in answered.members:  # what i would have cancelled
                public = self.deal_of(value.slot >> 16, j).public[index][:32]
                total = add(total, pair_mask(where, i, found[i], j, public, answered.start, terms.size))
        return subtract(total, from_signed(surplus))

    def signed_functionals(self, value: SumFrame) -> dict[int, bytes]:
        """What the voters of a round's certificate signed beside the value."""
        cert = self.row(("cert", value.round), SumFrame)
        assert cert is not None
        ballots = Ballots.read(cert.body, self.terms)
        return {i: functionals for i, (functionals, _) in zip(ballots.voters, ballots.votes, strict=True)}

    def adds_up(self, value: SumFrame, found: Mapping[int, bytes] | None = None) -> bool | None:
        """Whether Σ F_i = ⟨ω, Y⟩ by the members' signed functionals, and those found otherwise."""
        answered, votes = Answered.read(value.body, self.terms), {**(found or {}), **self.signed_functionals(value)}
        if not set(answered.members) <= set(votes):
            return None
        for k, omega in enumerate(coin(value.digest, self.terms.size)):
            signed = sum(int.from_bytes(votes[i][8 * k : 8 * k + 8], "little") for i in answered.members)
            if signed % MODULUS != dot(omega, answered.words):
                return False
        return True

    @abc.abstractmethod
    def dispute(self, round_: int, value: SumFrame) -> None:
        """The words do not add up: find out who lied."""

    @abc.abstractmethod
    def lend(self, round_: int, value: SumFrame) -> None:
        """A member did not vote: find its functional otherwise."""

    def settled(self, value: SumFrame) -> list[Key]:
        """Secrets and shares that can never be needed again: first slots up to this round, spares up to those used.

        Not before: an older slot may still be finished while a fresh one is under way.
        """
        batch, rounds = value.slot >> 16, self.terms.rounds
        here = self.round - batch * rounds
        spares = [k for k in range(rounds, self.terms.slots) if self.used(batch << 16 | k) or value.slot & 0xFFFF == k]
        indices = [*range(here + 1), *range(rounds, max(spares, default=rounds - 1) + 1)]
        slots = {batch << 16 | k for k in indices}
        gone: list[Key] = [("secret", slot) for slot in slots]
        gone += [("shares", slot, owner) for slot in slots for owner in self.everybody]
        return gone

    def forgotten(self, instance: int) -> bool:
        if instance & ROSTER_BIT:
            return instance & ~ROSTER_BIT < self.batch
        return instance < self.round - RECENT

    def outdated(self) -> list[Key]:
        """Rows of rounds and batches that are over, but for what tells a late party how they ended."""
        recent = self.round - RECENT

        def over(kind: str, key: Key) -> bool:
            if kind in BY_BATCH:
                return int(key[1]) < self.batch
            if kind in BY_SLOT:
                batch, index = int(key[1]) >> 16, int(key[1]) & 0xFFFF
                last = (batch + 1) * self.terms.rounds - 1  # spares may have served the last round of their batch
                spare, under_way = index >= self.terms.rounds, batch == self.batch
                return not (spare and under_way) and (last if spare else last + 1 - self.terms.rounds + index) < recent
            return self.forgotten(int(key[2 if kind in ("own", "to") else 1]))

        return [key for kind in (*BY_INSTANCE, *BY_SLOT, *BY_BATCH) for key in self.store.keys(kind) if over(kind, key)]

    @abc.abstractmethod
    def next_instance(self) -> None:
        """Go on after a round or a roster."""

    def closing(self, instance: int) -> list[SumFrame]:
        """SET, certificate and opening of a round; roster, certificate and deals of a batch."""
        digest, cert = self.row(("final", instance), bytes), self.row(("cert", instance), SumFrame)
        if digest is None or cert is None:
            return []
        value = self.known(digest)
        if instance & ROSTER_BIT:
            roster = Roster.read(value.body, self.terms)
            return [*(self.known(name) for name in roster.deals), value, cert]
        opened = self.row(("opened", instance), SumFrame)
        return [value, cert, *([opened] if opened else [])]

    def total(self, round_: int) -> Words | None:
        """The opened total of a round, in grid steps modulo q."""
        found = self.row(("total", round_), bytes)
        return None if found is None else read_words(found)

    def outcome(self, round_: int) -> Outcome | None:
        """How a round ended, if it did: from the ledger."""
        total, digest = self.total(round_), self.row(("final", round_), bytes)
        if total is None or digest is None:
            return None
        members = Answered.read(self.known(digest).body, self.terms).members
        return Outcome(round_, members, total, self.row(("checked", round_), bool))

    def tick_opening(self) -> None:
        """The collector may be gone: hand certificate and shares to the next one."""
        value = self.final_value()
        if value is None or self.now < self.entered + self.terms.deadline(0) * (1 + self.rested) / 2:
            return
        self.rested += 1
        cert = self.row(("cert", self.round), SumFrame)
        assert cert is not None
        collector = (cert.sender + self.rested) % self.terms.parties
        self.restart_clock()
        mine = self.own(Step.SHARES, self.round, 0, value.slot)
        for frame in (value, cert, mine):
            if frame is not None:
                self.pass_on(frame, collector)
        if len(self._shares) >= self.terms.threshold:
            self.rebuild(value)
