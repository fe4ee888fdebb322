"""One round up to its set: START (`starts`), COMMIT, WORDS along a tree, SET.

y_i = e_i + noise + masks; what a party sends is y_i plus what its children sent. The words of a slot are made once and
stored with their charge before anything leaves; from then on the party needs its secrets of that slot no more and
erases them. Every member's signed COMMIT stands in the SET: no leader can put in whom it likes, and whoever is in the
set can vote for it.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from coterie.sums.core import Missing
from coterie.sums.messages import (
    HASH,
    Answered,
    BadSumFrame,
    Begin,
    Partial,
    Roster,
    Step,
    SumFrame,
    read_words,
)
from coterie.sums.messages import pack_words as raw_words
from coterie.sums.secrets import SlotSecrets, layer_seed, pair_mask, self_mask
from coterie.sums.starts import Starting
from coterie.sums.store import Charge, Key
from coterie.sums.words import Words, add, dot, from_signed, mask

__all__ = ["Rounds", "coin", "words_hash"]


def words_hash(start: bytes, owner: int, words: bytes) -> bytes:
    """h_i: what a party commits to before words flow."""
    return hashlib.sha256(b"words" + start + owner.to_bytes(2, "big") + words).digest()


def coin(value: bytes, size: int) -> tuple[Words, Words]:
    """Two random functionals that exist only when the set is fixed."""
    first, second = (mask(hashlib.sha256(b"coin%d" % k + value).digest(), size) for k in range(2))
    return first, second


def functionals_of(value: bytes, words: Words) -> bytes:
    return b"".join(dot(w, words).to_bytes(8, "little") for w in coin(value, words.size))


class Rounds(Starting):
    """The part of a party that masks and adds."""

    def forget(self) -> None:
        super().forget()
        self._commits: dict[bytes, dict[int, SumFrame]] = defaultdict(dict)
        self._words: dict[bytes, dict[int, SumFrame]] = defaultdict(dict)
        self._answered_at: dict[bytes, float] = {}
        self._direct: set[bytes] = set()

    # -- COMMIT and WORDS ----------------------------------------------------------------------------------------------

    def answer(self, frame: SumFrame) -> None:
        """Mask the vector, pay, store, and only then commit to it."""
        words = raw_words(self.masked(frame))
        commit = self.frame(
            Step.COMMIT,
            self.round,
            frame.ballot,
            frame.slot,
            frame.digest + words_hash(frame.digest, self.me, words),
        )
        puts: dict[Key, object] = {
            ("answered", self.round, frame.ballot): frame.digest,
            ("words", frame.slot): (frame.digest, words),
            ("slot of", frame.slot): self.round,
            ("charged", self.round): True,
            ("promise", self.round): frame.ballot,
            **self.kept_with(frame),
        }
        if frame.ballot > self.promised():
            self.restart_clock()
        charge = Charge(self.round, frame.slot, main=self.store.get(("charged", self.round)) is None)
        self.commit(puts, [(frame.sender, commit)], [("secret", frame.slot)], charge)
        self._answered_at[frame.digest] = self.now
        self._ahead = None  # who takes part is not behind
        self.flush(frame)

    def masked(self, frame: SumFrame) -> Words:
        """y_i of a slot under a START."""
        terms, where, me = self.terms, self.context(frame.slot), self.me
        drawn = self.row(("secret", frame.slot), SlotSecrets)
        assert drawn is not None
        assert self.vector is not None
        chain = drawn.chain(where, me, terms.layers.last)
        noise = [from_signed(layer) for layer in self.draw_layers(frame.round, frame.slot, chain)]
        total = add(terms.code.encode(self.vector), *noise, self_mask(where, me, chain[-1], terms.size))
        for j in self.members():
            if j != me:
                public = self.deal_of(self.batch, j).public[frame.slot & 0xFFFF][:32]
                total = add(total, pair_mask(where, me, drawn.a, j, public, frame.digest, terms.size))
        return total

    def draw_layers(self, round_: int, slot: int, chain: Sequence[bytes]) -> list[NDArray[np.int64]]:
        """This party's noise: layer 0 from the operating system, the others from the chain."""
        size, where, layers = self.terms.size, self.context(slot), self.terms.noise(round_)
        drawn = [layers.fresh(size)]
        for k in range(1, layers.last + 1):
            drawn.append(layers.read(k, layer_seed(where, self.me, chain[k - 1], k), size))
        return drawn

    def on_commit(self, frame: SumFrame) -> None:
        """The leader notes a commitment."""
        if len(frame.body) != 2 * HASH:
            raise BadSumFrame("a commitment has another length")
        start = self.known(frame.body[:HASH])
        if (start.ballot, start.slot, start.sender) == (frame.ballot, frame.slot, self.me):
            first = self._commits[start.digest].setdefault(frame.sender, frame)
            if first.digest != frame.digest:
                self.accuse(frame.sender, f"committed to two vectors for slot {frame.slot}", first, frame)
            self.choose(start)

    def on_words(self, frame: SumFrame) -> None:
        """Add a partial sum, or pass it on."""
        partial = Partial.read(frame.body, self.terms)
        start = self.known(partial.start)
        if (start.round, start.ballot, start.slot) != (frame.round, frame.ballot, frame.slot):
            raise BadSumFrame("words of another ballot")
        others = [heard for digest, heard in self._words.items() if digest != start.digest]
        if sum(frame.sender in heard for heard in others) >= self.terms.attempts:
            raise BadSumFrame("more partial sums of a round than it has attempts")
        first = self._words[start.digest].setdefault(frame.sender, frame)
        if first.digest != frame.digest:
            self.accuse(frame.sender, f"signed two partial sums of slot {frame.slot}", first, frame)
            return
        if start.sender == self.me:
            self.choose(start)
        elif self.own(Step.WORDS, start.round, start.ballot, start.slot) or not self._answering(start):
            self.pass_on(frame, self.parent(start))  # what comes late is passed on as it is
        else:
            self.flush(start)

    def _answering(self, start: SumFrame) -> bool:
        mine = self.used(start.slot)
        return mine is not None and mine[0] == start.digest

    def disjoint(self, start: SumFrame, allowed: set[int]) -> tuple[list[SumFrame], Words, set[int]]:
        """Own words and frames that overlap nowhere, the largest first; their sum and members."""
        mine = self.used(start.slot)
        total, members = np.zeros(self.terms.size, np.uint64), set[int]()
        if mine is not None and mine[0] == start.digest:
            total, members = read_words(mine[1]), {self.me}
        chosen = []
        partials = {f.digest: Partial.read(f.body, self.terms) for f in self._words[start.digest].values()}
        for frame in sorted(
            self._words[start.digest].values(), key=lambda f: (-len(partials[f.digest].members), f.digest)
        ):
            partial = partials[frame.digest]
            if members.isdisjoint(partial.members) and set(partial.members) <= allowed:
                chosen.append(frame)
                total, members = add(total, partial.words), members | set(partial.members)
        return chosen, total, members

    def flush(self, start: SumFrame, late: bool = False) -> None:
        """Send one partial sum for the slot, when all children sent theirs or it is time."""
        if start.sender == self.me:
            self.choose(start)
            return
        if self.own(Step.WORDS, start.round, start.ballot, start.slot) or not self._answering(start):
            return
        parents, members = Begin.read(start.body, self.terms).parents, set(self.members())
        children = {j for j in members if parents[j] == self.me} - self._absent
        heard = {f.sender for f in self._words[start.digest].values()}
        if not late and not children <= heard:
            return
        chosen, total, added = self.disjoint(start, members)
        names = b"".join(sorted(f.digest for f in chosen))
        body = Partial(start.digest, tuple(sorted(added)), hashlib.sha256(names).digest(), total).pack(self.terms)
        frame = self.frame(Step.WORDS, start.round, start.ballot, start.slot, body)
        self.commit({("added", start.slot): tuple(chosen)}, [(self.parent(start), frame)])
        for other in self._words[start.digest].values():
            if other not in chosen:
                self.pass_on(other, self.parent(start))

    # -- SET -----------------------------------------------------------------------------------------------------------

    def choose(self, start: SumFrame, late: bool = False) -> None:
        """The leader's set: everybody whose words and commitment are here."""
        if self.own(Step.SET, start.round, start.ballot, start.slot) or self.promised() > start.ballot:
            return
        if self.store.get(("proposal", start.round, start.ballot)) != start.digest or not self.valid(start):
            return
        roster, commits = set(self.members()), self._commits[start.digest]
        chosen, total, members = self.disjoint(start, roster & set(commits))
        if len(members) < self.terms.least:
            return
        if not (late or members == roster or (members >= roster - self._absent and self.has_waited())):
            return
        listed = tuple(sorted(members))
        pairs = tuple((commits[i].body[HASH:], commits[i].signature) for i in listed)
        body = Answered(start.digest, listed, pairs, total).pack(self.terms)
        frame = self.frame(Step.SET, start.round, start.ballot, start.slot, body)
        self.commit({("added", start.slot): tuple(chosen)}, self.to_all(frame))

    def check_set(self, frame: SumFrame) -> bool:
        """Whether a SET follows from its START and every member signed its commitment."""
        answered = Answered.read(frame.body, self.terms)
        start = self.known(answered.start)
        same = (start.kind, start.sender, start.round, start.ballot, start.slot)
        if same != (Step.START, frame.sender, frame.round, frame.ballot, frame.slot) or not self.valid(start):
            return False
        if len(answered.members) < self.terms.least or not set(answered.members) <= set(self.members()):
            return False
        return all(commit.genuine(self.terms) for commit in answered.commit_frames(frame))

    # -- what agreement asks -------------------------------------------------------------------------------------------

    def check_value(self, frame: SumFrame) -> bool:
        return self.check_set(frame) if frame.kind is Step.SET else self.check_roster(frame)

    def promises_in(self, frame: SumFrame) -> Sequence[SumFrame]:
        """The promises that a proposal carries."""
        if frame.kind is Step.START:
            return Begin.read(frame.body, self.terms).promises
        if frame.kind is Step.ROSTER:
            return [f for f in Roster.read(frame.body, self.terms).promises if f.kind is Step.PROMISE]
        return super().promises_in(frame)

    def refers_to(self, frame: SumFrame) -> list[bytes]:
        """The names of the frames that a proposal or START rests on."""
        return [frame.body[:HASH]] if frame.kind is Step.SET else super().refers_to(frame)

    def propose_fresh(self, ballot: int, promises: Sequence[SumFrame]) -> None:
        """Propose a new value in a ballot whose promises report none."""
        if self.instance == self.round:
            self.propose_start(ballot, promises)
        else:
            self.propose_roster(ballot, promises)

    def functionals(self, value: SumFrame) -> bytes:
        mine = self.used(value.slot) if value.kind is Step.SET else None
        if mine is None or self.me not in Answered.read(value.body, self.terms).members:
            return bytes(16)
        return functionals_of(value.digest, read_words(mine[1]))

    def awaited(self, value: SumFrame) -> set[int]:
        return set(Answered.read(value.body, self.terms).members) if value.kind is Step.SET else set()

    def tick_round(self) -> None:
        """Partial sums and the set that are due: leaves first, the leader last."""
        wait = self.terms.deadline(self.promised()) / 4
        for digest, since in list(self._answered_at.items()):
            start = self.known(digest)
            share = (self.terms.parties - self.depth(start)) / self.terms.parties
            if self.now >= since + wait * share:
                self.flush(start, late=True)
            sent = self.own(Step.WORDS, start.round, start.ballot, start.slot)
            if sent and self.now >= since + wait * (1 + share) / 2 and digest not in self._direct:
                self._direct.add(digest)  # the parent may be gone: the same frame by another way
                if not self.own(Step.VOTE, start.round, start.ballot, start.slot):
                    self.pass_on(sent, start.sender)
        made = self.row(("proposal", self.round, self.promised()), bytes)
        if made is not None:
            try:
                start = self.known(made)
            except Missing:
                return
            if start.kind is Step.START:
                self.choose(start, late=self.now >= self.entered + 2 * wait)
