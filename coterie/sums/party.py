"""One party of a secret sum on any connected graph: frames in, frames out.

`begin`, then `offer` a vector for every round, `handle` what arrives and `tick` as time passes; `finished` lists the
rounds that were opened. The party writes to its store before anything leaves, and a party that is made again on that
store goes on where it was.
"""

from __future__ import annotations

import contextlib

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.typing import ArrayLike, NDArray

from coterie.errors import InputError
from coterie.sums.core import CALLS, Missing, Outgoing
from coterie.sums.lending import Lending
from coterie.sums.messages import BadSumFrame, Roster, Step, SumFrame
from coterie.sums.opening import RECENT, Outcome
from coterie.sums.store import SumStore
from coterie.sums.terms import ROSTER_BIT, SharedTerms

__all__ = ["SumParty"]


class SumParty(Lending):
    """One party. All its state is in `store`, but for what it can hear again."""

    def __init__(
        self, terms: SharedTerms, me: int, signing: Ed25519PrivateKey, sealing: X25519PrivateKey, store: SumStore
    ) -> None:
        super().__init__(terms, me, signing, sealing, store)
        self.vector: NDArray[np.float64] | None = None
        self.stuck = ""  # why a person is needed
        self.finished: list[Outcome] = []
        self._late_shares: list[SumFrame] = []
        self._shows: list[SumFrame] = []
        self._lent: dict[int, dict[int, SumFrame]] = {}
        self._deals: dict[int, SumFrame] = {}
        self._envelopes: dict[int, SumFrame] = {}
        self._said_held = False
        self._rosters: dict[int, Roster] = {}
        self.forget()

    def give_vector(self, vector: ArrayLike, now: float) -> list[Outgoing]:
        """This party's numbers for the round under way."""
        if (shape := np.shape(vector)) != (self.terms.size,):
            raise InputError(f"a vector of shape {shape} cannot be summed, expected {self.terms.size} numbers")
        self.now = max(now, self.now)
        if self.ready:
            self.offer(vector)
        else:
            self.vector = np.asarray(vector, np.float64)
        return self._drain()

    def say_done(self, now: float) -> list[Outgoing]:
        """Tell everybody that this party has all that it needs."""
        self.now = max(now, self.now)
        for j in self.everybody:
            if j != self.me:
                self.pass_on(self.frame(Step.DONE, 0), j)
        return self._drain()

    def tick(self, now: float) -> list[Outgoing]:
        """What is due at this time."""
        self.now = max(now, self.now)
        self.answer_later()
        if self.ready and not self.refusal:
            roster = self.instance & ROSTER_BIT
            for due in (self.tick_dealing,) if roster else (self.tick_round, self.tick_opening):
                with contextlib.suppress(Missing):  # what rests on a frame that is not here is not due
                    due()
            self.tick_agreement()
        elif not self.refusal:
            self.ask_again()
            self.stand_up()
        return self._drain()

    def ask_again(self) -> None:
        """Ask those who did not say what they hold from this party."""
        if self.now >= self._asked + self.terms.patience / 4:
            self._asked = self.now
            for j in self.everybody:
                if j != self.me and j not in self._stands:
                    self.pass_on(self.frame(Step.ASK, 0), j)

    _asked = 0.0

    def over(self, instance: int) -> bool:
        """Whether an instance is settled here."""
        number = instance & ~ROSTER_BIT
        return number <= self.batch if instance & ROSTER_BIT else number < self.round

    def dispatch(self, frame: SumFrame) -> None:
        """Hand a frame to the part that it is for."""
        if frame.kind in (Step.SHOW, Step.PROVE, Step.PROOF, Step.LEND):
            self.on_blame(frame)
        elif self.over(frame.round):
            if frame.kind in CALLS and frame.sender != self.me:
                self.tell(frame.round, frame.sender)
        elif frame.round != self.instance:
            if frame.kind in CALLS:
                self.ask_how_it_ended(self.instance, frame.sender)
        else:
            (self._on_roster if frame.round & ROSTER_BIT else self._on_round)(frame)

    def _on_roster(self, frame: SumFrame) -> None:
        match frame.kind:
            case Step.KEYS:
                self.on_keys(frame)
            case Step.DEAL:
                self.remember(frame)
                self.on_deal(frame)
            case Step.ENVELOPE:
                self.on_envelope(frame)
            case Step.HELD:
                self.on_held(frame)
            case Step.ROSTER | Step.FINISH:
                self.on_proposal(frame)
            case _:
                self._on_any(frame)

    def _on_round(self, frame: SumFrame) -> None:
        match frame.kind:
            case Step.START:
                self.on_start(frame)
            case Step.COMMIT:
                self.on_commit(frame)
            case Step.WORDS:
                self.on_words(frame)
            case Step.SET | Step.FINISH:
                if frame.kind is Step.SET:
                    self.remember(frame)  # a certificate makes it final, whatever it rests on
                if not self.store.get(("final", self.round)):
                    self.on_proposal(frame)
            case Step.SHARES:
                self.on_shares(frame)
            case Step.OPENED:
                self.on_opened(frame)
            case _:
                self._on_any(frame)

    def _on_any(self, frame: SumFrame) -> None:
        match frame.kind:
            case Step.PROMISE:
                cert = self.row(("cert", frame.round), SumFrame)
                if cert is not None and frame.sender != self.me:
                    self.tell(frame.round, frame.sender)
                else:
                    self.on_promise(frame)
            case Step.VOTE:
                self.on_vote(frame)
            case Step.CERT:
                self.on_cert(frame)
                late, self._late_shares = self._late_shares, []
                self._queue.extend(late)
            case _:
                raise BadSumFrame(f"a {frame.kind.name} is out of place")

    def next_instance(self) -> None:
        """A round or a roster is settled."""
        self.forget()
        self._reached.clear()
        self._seen = {name: frame for name, frame in self._seen.items() if not self.over(frame.round)}
        for waiting in self._waiting.values():
            for name in [name for name, (_, frame) in waiting.items() if self.over(frame.round)]:
                del waiting[name]
        self._lent = {round_: lent for round_, lent in self._lent.items() if round_ >= self.round - RECENT}
        if self._ahead is not None:
            self.ask_how_it_ended(self.instance, self._ahead)
        if self.instance & ROSTER_BIT:
            self.begin_batch()
        elif self.vector is not None:
            self.offer(self.vector)

    def resume(self) -> None:
        self.forget()
        for _, round_ in self.store.keys("checked"):
            if self.store.get(("checked", round_)) is False:
                self.dispute(int(round_), self.known(self.row(("final", int(round_)), bytes) or b""))
                break
        for j in self.everybody:
            for to, frame in self.frames_for(self.instance, j):
                self.pass_on(frame, to)
            self.ask_how_it_ended(self.instance, j)
        if self.instance & ROSTER_BIT:
            self.begin_batch()
        answered = self.row(("answered", self.round, self.promised()), bytes)
        if answered is not None:
            self._answered_at[answered] = self.now  # its words may not have left
        if self.vector is not None:
            self.offer(self.vector)
