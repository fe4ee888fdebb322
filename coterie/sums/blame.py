"""Who lied: partial sums that do not add up, shares that do not fit.

If Σ F_i ≠ ⟨ω, Y⟩, every member shows its words y_v and the frames that it added; words are uniform, so showing them
costs nothing. Named is everyone whose frame is not y_v plus the frames added, or whose y_v does not fit the h_v or F_v
that it signed. Each is judged by what it signed itself; a member that shows nothing is not named, since it may be dead.
If a secret cannot be rebuilt, the holders prove their shares by the owner's signed root: a share without proof names
its holder, shares that are proved and do not fit name the owner.

Not found: a party that lies about its own vector, and that is also what a lie is whose author changes its own
functional to fit.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass

from coterie.sums.core import latest
from coterie.sums.messages import (
    HASH,
    Answered,
    BadSumFrame,
    Ballots,
    Partial,
    Step,
    SumFrame,
    cut,
    pack_frames,
    pack_words,
    read_frames,
    read_words,
)
from coterie.sums.opening import Opening
from coterie.sums.rounds import functionals_of, words_hash
from coterie.sums.secrets import branch, dealt
from coterie.sums.shamir import SHARE, Weights
from coterie.sums.terms import SharedTerms
from coterie.sums.words import add

__all__ = ["Blame", "Shown", "judge"]


@dataclass(frozen=True)
class Shown:
    """What a member shows: its words, the frames that it added, and its own partial sum if it made one."""

    words: bytes
    added: tuple[SumFrame, ...]
    partial: SumFrame | None

    def pack(self) -> bytes:
        """The body of a SHOW."""
        mine = [self.partial] if self.partial else []
        return self.words + bytes([len(mine)]) + pack_frames([*mine, *self.added])

    @classmethod
    def read(cls, body: bytes, terms: SharedTerms) -> Shown:
        """What a SHOW shows."""
        words, has, rest = cut(body, 8 * terms.size, 1)
        frames = read_frames(rest, terms)
        return cls(words, tuple(frames[has[0] :]), frames[0] if has[0] else None)


def judge(value: SumFrame, cert: SumFrame, shown: Mapping[int, Shown], terms: SharedTerms) -> dict[int, str]:
    """Everyone who is shown to have lied about a sum, and how; anybody can check it again."""
    answered, ballots = Answered.read(value.body, terms), Ballots.read(cert.body, terms)
    votes = dict(zip(ballots.voters, ballots.votes, strict=True))
    named: dict[int, str] = {}
    for v, (h, _) in zip(answered.members, answered.commits, strict=True):
        if v not in shown:
            continue  # dead or silent: nobody can tell which
        mine = shown[v]
        if words_hash(answered.start, v, mine.words) != h:
            named[v] = "shows other words than it committed to"
        elif v in votes and votes[v][0] != functionals_of(value.digest, read_words(mine.words)):
            named[v] = "signed a functional of other words than it committed to"
        elif v != value.sender and (fault := _partial_fault(v, mine, terms)):
            named[v] = fault
    leader = value.sender
    if leader not in named and leader in shown:
        parts = [Partial.read(f.body, terms) for f in shown[leader].added]
        words = [part.words for part in parts]
        members = [i for part in parts for i in part.members]
        if leader in answered.members:
            words, members = [read_words(shown[leader].words), *words], [leader, *members]
        if sorted(members) != list(answered.members) or pack_words(add(*words)) != pack_words(answered.words):
            named[leader] = "its sum is not what it added"
    return named


def _partial_fault(v: int, mine: Shown, terms: SharedTerms) -> str:
    if mine.partial is None or mine.partial.sender != v or mine.partial.kind is not Step.WORDS:
        return "does not show its partial sum"
    claimed = Partial.read(mine.partial.body, terms)
    if hashlib.sha256(b"".join(sorted(f.digest for f in mine.added))).digest() != claimed.added:
        return "shows other frames than it added"
    parts = [Partial.read(f.body, terms) for f in mine.added]
    members = sorted([v, *(i for part in parts for i in part.members)])
    total = add(read_words(mine.words), *(part.words for part in parts))
    if members != list(claimed.members) or pack_words(total) != pack_words(claimed.words):
        return "its partial sum is not its words and the frames added"
    return ""


class Blame(Opening):
    """The part of a party that finds liars."""

    _shows: list[SumFrame]
    disputed: tuple[int, bytes] | None = None

    def forget(self) -> None:
        super().forget()
        self._distrusted: set[int] = set()
        self._doubted: set[int] = set()
        self._proofs: dict[int, dict[int, bytes]] = {}  # by owner and holder
        self._proof_frames: list[SumFrame] = []

    # -- a sum that does not add up ------------------------------------------------------------------------------------

    def dispute(self, round_: int, value: SumFrame) -> None:
        """Show what this party added; everybody else, seeing the same certificate, does too."""
        self.disputed = (round_, value.digest)
        self._shown: dict[int, Shown] = {}
        self._show_frames: dict[int, SumFrame] = {}
        self.stuck = f"the words of round {round_} do not add up: no step is taken"
        self._queue.extend(self._shows)
        self._shows.clear()
        for j in self.everybody:
            self.show(round_, value, j)

    def show(self, round_: int, value: SumFrame, whom: int) -> None:
        """Show somebody what this party added to a sum."""
        answered, mine = Answered.read(value.body, self.terms), self.used(value.slot)
        if mine is None or (self.me not in answered.members and self.me != value.sender):
            return
        added = self.row(("added", value.slot), tuple) or ()
        partial = self.own(Step.WORDS, round_, value.ballot, value.slot)
        body = Shown(mine[1], added, partial).pack()
        self._told[round_, whom] = self.now
        self.pass_on(self.frame(Step.SHOW, round_, value.ballot, value.slot, body), whom)

    def on_blame(self, frame: SumFrame) -> None:
        """Frames of disputes."""
        match frame.kind:
            case Step.SHOW:
                self._on_show(frame)
            case Step.PROVE:
                self._on_prove(frame)
            case _:
                self._on_proof(frame)

    def _on_show(self, frame: SumFrame) -> None:
        if self.disputed is None:
            self._shows = latest(self._shows, frame)
            return
        if self.disputed[0] != frame.round:
            return
        again = frame.sender in self._shown and frame.sender != self.me
        self._shown[frame.sender], self._show_frames[frame.sender] = Shown.read(frame.body, self.terms), frame
        if again and self.now >= self._told.get((frame.round, frame.sender), -math.inf) + self.terms.patience / 8:
            self.show(frame.round, self.known(self.disputed[1]), frame.sender)  # it started again, and knows nothing
        value, cert = self.known(self.disputed[1]), self.row(("cert", frame.round), SumFrame)
        assert cert is not None
        for liar, lie in judge(value, cert, self._shown, self.terms).items():
            self.accuse(liar, lie, value, cert, self._show_frames[liar])

    # -- a secret that does not fit ------------------------------------------------------------------------------------

    def doubt(self, value: SumFrame, owner: int, holders: list[int]) -> None:
        """Ask all who gave shares of this owner's secret to prove them."""
        if owner in self._doubted:
            return
        self._doubted.add(owner)
        self._proofs[owner] = {}
        for j in self._shares:
            self.pass_on(self.frame(Step.PROVE, self.round, 0, value.slot, owner.to_bytes(2, "little")), j)

    def _on_prove(self, frame: SumFrame) -> None:
        digest = self.row(("given", frame.slot), bytes)
        owner = int.from_bytes(frame.body, "little")
        leaves = self.row(("leaves", frame.slot >> 16, owner), tuple)
        if digest is None or leaves is None:
            return
        value = self.known(digest)
        row = self.row(("shares", value.slot, owner), tuple)
        if row is None:
            return
        place = self.place(value, owner)
        proof = branch(leaves, (value.slot & 0xFFFF) * self.terms.kinds + place)
        body = frame.body + row[place] + b"".join(proof)
        self.pass_on(self.frame(Step.PROOF, frame.round, 0, frame.slot, body), frame.sender)

    def _on_proof(self, frame: SumFrame) -> None:
        value = self.final_value()
        number, share, proof = cut(frame.body, 2, SHARE)
        owner, holder = int.from_bytes(number, "little"), frame.sender
        if value is None or frame.round != self.round or owner not in self._doubted or holder not in self._shares:
            return
        if len(proof) % HASH:
            raise BadSumFrame("a proof is cut off")
        batch, index = value.slot >> 16, value.slot & 0xFFFF
        root = self.deal_of(batch, owner).roots[holder]
        steps = [proof[k : k + HASH] for k in range(0, len(proof), HASH)]
        place = index * self.terms.kinds + self.place(value, owner)
        proved = dealt(root, self.terms.plan, batch, owner, holder, place, share, steps)
        if not proved or self._shares[holder][owner] != share:
            self._distrusted.add(holder)
            lie = f"gave a share of party {owner}'s secret that was not dealt to it"
            self.accuse(holder, lie, self._share_frames[holder], frame)
            self._doubted.discard(owner)
            self.rebuild(value)
            return
        if holder not in self._proofs[owner]:
            self._proof_frames.append(frame)
        self._proofs[owner][holder] = share
        if len(self._proofs[owner]) >= self.terms.threshold:
            holders = sorted(self._proofs[owner])[: self.terms.threshold]
            secret = Weights(holders).recover({i: self._proofs[owner][i] for i in holders})
            if secret is None or not self.fits(value, owner, secret):
                deal = self.row(("deal", batch, owner), SumFrame)
                assert deal is not None
                self.accuse(owner, "dealt shares that do not give what it published", deal, *self._proof_frames)
                self.stuck = f"round {self.round} is final and paid, and party {owner} made it impossible to open"
