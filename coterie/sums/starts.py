"""The beginning of a round: which slot a START may name, along which tree words go, and who answers it."""

from __future__ import annotations

import abc
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coterie.sums.core import latest
from coterie.sums.dealing import Dealing
from coterie.sums.messages import NONE, Begin, Step, SumFrame, read_promise
from coterie.sums.terms import NOBODY, ROSTER_BIT

__all__ = ["Starting"]


class Starting(Dealing):
    """The part of a party that starts rounds and answers who starts one."""

    vector: NDArray[np.float64] | None
    stuck: str

    def forget(self) -> None:
        super().forget()
        self._starts: list[SumFrame] = []  # that wait for this party's vector

    @abc.abstractmethod
    def answer(self, frame: SumFrame) -> None:
        """Mask the vector, pay, store, and only then commit to it."""

    @property
    def round(self) -> int:
        """The round under way."""
        return self.row(("at",), int) or 0

    @property
    def instance(self) -> int:
        covered = self.batch >= 0 and self.round < (self.batch + 1) * self.terms.rounds
        return self.round if covered else ROSTER_BIT | self.coming

    def first_slot(self, round_: int) -> int:
        """The slot that belongs to a round; spares serve further attempts."""
        return self.batch << 16 | round_ - self.batch * self.terms.rounds

    def used(self, slot: int) -> tuple[bytes, bytes] | None:
        """The START that this party answered with a slot, and its words."""
        return self.row(("words", slot), tuple)

    def offer(self, vector: ArrayLike) -> None:
        """This party's vector of the round: nothing in it decides whether the party takes part."""
        if self.stuck:
            return
        self.vector = np.asarray(vector, np.float64)
        if self.terms.leader(self.instance, 0) == self.me and self.instance == self.round and self.promised() == 0:
            self.propose_start(0, ())
        waiting, self._starts = self._starts, []
        self._queue.extend(waiting)

    def evidence(self) -> tuple[bytes, bytes]:
        if self.batch < 0 or self.instance != self.round:
            return NONE, NONE
        first = self.used(self.first_slot(self.round))
        spare = NONE
        for index in range(self.terms.rounds, self.terms.slots):
            found = self.used(self.batch << 16 | index)
            spare = found[0] if found else spare
        return (first[0] if first else NONE), spare

    def next_slot(self, promises: Sequence[SumFrame], round_: int) -> int:
        """The one slot that may be started on these promises: nobody can skip any."""
        first, spare = False, self.terms.rounds - 1
        for promise in promises:
            for digest in read_promise(promise.body)[1:]:
                if digest == NONE:
                    continue
                start = self.known(digest)
                if start.kind is not Step.START or start.slot >> 16 != self.batch or not self.valid(start):
                    continue
                index = start.slot & 0xFFFF
                first = first or start.slot == self.first_slot(round_)
                spare = max(spare, index) if index >= self.terms.rounds else spare
        started = first or spare >= self.terms.rounds
        return self.batch << 16 | spare + 1 if started else self.first_slot(round_)

    def check_start(self, frame: SumFrame, promises: Sequence[SumFrame]) -> bool:
        """Whether a START names the slot and a tree that it may."""
        begin = Begin.read(frame.body, self.terms)
        root = frame.sender
        for i, parent in enumerate(begin.parents):
            if parent == NOBODY:
                continue
            if i == root or parent >= self.terms.parties or i not in self.terms.neighbours[parent]:
                return False
        for i in self.everybody:  # every way up ends
            steps, at = 0, i
            while begin.parents[at] != NOBODY and steps <= self.terms.parties:
                at, steps = begin.parents[at], steps + 1
            if steps > self.terms.parties:
                return False
        return frame.slot == self.next_slot(promises, frame.round) and frame.slot & 0xFFFF < self.terms.slots

    def propose_start(self, ballot: int, promises: Sequence[SumFrame]) -> None:
        """Ask for fresh words."""
        slot = self.next_slot(promises, self.round)
        if self.store.get(("proposal", self.round, ballot)):
            return
        if ballot and len({p.sender for p in promises} & set(self.members())) < self.terms.least:
            return  # no set could be large enough, and a slot would be used up for nothing
        if slot & 0xFFFF >= self.terms.slots:
            self.stuck = "the spare slots of this batch are used up"
            return
        here = {p.sender for p in promises} if ballot else set(self.everybody) - self._absent
        silent = frozenset(self.everybody) - here - {self.me}
        begin = Begin(self.terms.tree(self.me, silent), tuple(promises))
        self.propose(self.frame(Step.START, self.round, ballot, slot, begin.pack()))

    def on_start(self, frame: SumFrame) -> None:
        """Answer a START, if nothing speaks against it."""
        if frame.ballot < self.promised() or self.store.get(("final", self.round)):
            return
        if not self.valid(frame):
            self.dropped += 1
            return
        answered = self.row(("answered", self.round, frame.ballot), bytes)
        if self.me not in self.members() or answered is not None:
            return
        if self.used(frame.slot) or self.store.get(("given", frame.slot)) or self._spare_below(frame.slot):
            return
        if self.vector is None:
            self._starts = latest(self._starts, frame)
            return
        attempts = sum(self.row(key, int) == self.round for key in self.store.keys("slot of"))
        if attempts >= self.terms.attempts:
            self.stuck = f"round {self.round} has used {attempts} slots"
            return
        self.answer(frame)

    def _spare_below(self, slot: int) -> bool:
        index = slot & 0xFFFF
        return index >= self.terms.rounds and any(
            self.used(slot & ~0xFFFF | higher) for higher in range(index, self.terms.slots)
        )

    def parent(self, start: SumFrame) -> int:
        """Where words go under a START."""
        up = Begin.read(start.body, self.terms).parents[self.me]
        return start.sender if up == NOBODY else up

    def depth(self, start: SumFrame) -> int:
        """Steps to the leader under a START."""
        parents, at, depth = Begin.read(start.body, self.terms).parents, self.me, 0
        while parents[at] != NOBODY and depth < self.terms.parties:
            at, depth = parents[at], depth + 1
        return depth
