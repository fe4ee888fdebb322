"""The words of a member that did not vote, from frames that others hold.

Its parent (or the leader) holds the partial sum that it signed, its children hold theirs: the difference is its y_v,
which must fit the h_v that it signed. So a sum can be checked although a member died before it voted; if a frame is
lost too, the sum stays unchecked.
"""

from __future__ import annotations

from dataclasses import replace

from coterie.sums.blame import Blame
from coterie.sums.messages import Answered, Begin, Partial, Step, SumFrame, pack_frames, pack_words, read_frames
from coterie.sums.rounds import functionals_of, words_hash
from coterie.sums.words import Words, subtract

__all__ = ["Lending"]


class Lending(Blame):
    """The part of a party that stands in for votes that did not arrive."""

    _lent: dict[int, dict[int, SumFrame]]

    def lend(self, round_: int, value: SumFrame) -> None:
        """Send everybody the frames that bear on members without a vote."""
        answered = Answered.read(value.body, self.terms)
        silent = set(answered.members) - set(self.signed_functionals(value))
        added = self.row(("added", value.slot), tuple) or ()
        frames = [frame for frame in added if frame.sender in silent]
        mine = self.own(Step.WORDS, round_, value.ballot, value.slot)
        if mine is not None:
            parents = Begin.read(self.known(answered.start).body, self.terms).parents
            if parents[self.me] in silent:
                frames.append(mine)
        if frames:
            lent = self.frame(Step.LEND, round_, value.ballot, value.slot, pack_frames(frames))
            for j in self.everybody:
                self.pass_on(lent, j)
        self.recheck(round_)

    def on_blame(self, frame: SumFrame) -> None:
        """Frames of disputes, and frames lent."""
        if frame.kind is not Step.LEND:
            super().on_blame(frame)
            return
        if frame.round > self.round or frame.round < self.round - 2:
            return
        lent = self._lent.setdefault(frame.round, {})
        for one in read_frames(frame.body, self.terms):
            if (one.kind, one.round) == (Step.WORDS, frame.round):
                Partial.read(one.body, self.terms)
                lent.setdefault(one.sender, one)
        self.recheck(frame.round)

    def recheck(self, round_: int) -> None:
        """Check a sum again with the functionals that lent frames give."""
        if self.store.get(("total", round_)) is None or self.store.get(("checked", round_)) is not None:
            return
        value = self.known(self.row(("final", round_), bytes) or b"")
        found: dict[int, bytes] = {}
        for v in set(Answered.read(value.body, self.terms).members) - set(self.signed_functionals(value)):
            words = self.words_from_frames(v, value)
            if words is not None:
                found[v] = functionals_of(value.digest, words)
        checked = self.adds_up(value, found)
        if checked is None:
            return
        self.commit({("checked", round_): checked})
        self.finished[:] = [replace(o, checked=checked) if o.round == round_ else o for o in self.finished]
        self._lent.pop(round_, None)
        if not checked:
            self.dispute(round_, value)

    def words_from_frames(self, v: int, value: SumFrame) -> Words | None:
        """y_v as its own frame less those that it added, if that fits what it committed to."""
        answered, lent = Answered.read(value.body, self.terms), self._lent.get(value.round, {})
        parts = {i: Partial.read(f.body, self.terms) for i, f in lent.items()}
        if v == value.sender:
            words, rest = answered.words, set(answered.members) - {v}
        elif v in parts:
            words, rest = parts[v].words, set(parts[v].members) - {v}
        else:
            return None
        for i, part in sorted(parts.items(), key=lambda item: -len(item[1].members)):
            if i != v and part.start == answered.start and set(part.members) <= rest:
                words, rest = subtract(words, part.words), rest - set(part.members)
        h = dict(zip(answered.members, answered.commits, strict=True))[v][0]
        return words if not rest and words_hash(answered.start, v, pack_words(words)) == h else None
