"""Agreement on one value: who answered in a round, who belongs to a batch.

One decree in the manner of Lamport's Paxos, with signed frames against liars. Ballot n has one leader. A party that
waited too long promises a higher ballot: no vote below it any more; the promise reports the last vote. From t promises
the leader takes the value voted for in the highest ballot (*finish*), and only if none is reported a new one (*fresh*);
the promises travel with it, and everybody checks them down to ballot 0. t votes in one ballot make a value final.
Any two quorums share 2t − N > c parties, so an honest one: no second value can become final.

Nobody can pull others into a far ballot: a party promises when its own deadline passed, or when c + 1 others did.
"""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Sequence

from coterie.sums.core import Core, Missing
from coterie.sums.messages import (
    HASH,
    NONE,
    BadSumFrame,
    Ballots,
    Step,
    SumFrame,
    cut,
    pack_frames,
    read_frames,
    read_promise,
)
from coterie.sums.store import Key

__all__ = ["Agreeing"]

VALUES = (Step.SET, Step.ROSTER)
JUDGED = 1 << 8  # proposals whose validity is remembered; what is forgotten is judged again


class Agreeing(Core):
    """The part of a party that agrees; what a value means is said by the parts above."""

    def restart_clock(self) -> None:
        """A ballot or an instance begins."""
        self.entered = self.now

    def forget(self) -> None:
        """What was heard in an instance that is over."""
        self._promises: dict[int, SumFrame] = {}  # everybody's last one, so that liars fill no memory
        self._votes: dict[int, SumFrame] = {}
        self._enough: dict[tuple[str, int], float] = {}  # when t promises or votes were there
        self._validity: dict[bytes, bool] = {}
        self.rested = 0
        self._told.clear()
        self.restart_clock()

    # -- what the parts above say --------------------------------------------------------------------------------------

    @abc.abstractmethod
    def check_value(self, frame: SumFrame) -> bool:
        """Whether a SET or ROSTER follows from what it refers to (without its promises)."""

    @abc.abstractmethod
    def check_start(self, frame: SumFrame, promises: Sequence[SumFrame]) -> bool:
        """Whether a START names the slot and a tree that it may."""

    @abc.abstractmethod
    def propose_fresh(self, ballot: int, promises: Sequence[SumFrame]) -> None:
        """Propose a new value in a ballot whose promises report none."""

    @abc.abstractmethod
    def functionals(self, value: SumFrame) -> bytes:
        """What a member adds to its vote."""

    @abc.abstractmethod
    def awaited(self, value: SumFrame) -> set[int]:
        """Whose votes are worth waiting for."""

    @abc.abstractmethod
    def became_final(self, instance: int, value: SumFrame, cert: SumFrame) -> None:
        """A value has t votes."""

    @abc.abstractmethod
    def evidence(self) -> tuple[bytes, bytes]:
        """The STARTs that this party answered, as a promise reports them."""

    # -- validity ------------------------------------------------------------------------------------------------------

    def promised(self) -> int:
        """The ballot below which this party votes no more."""
        return self.row(("promise", self.instance), int) or 0

    def value_of(self, proposal: SumFrame) -> SumFrame:
        """The SET or ROSTER that a proposal stands for."""
        return self.known(proposal.body[:HASH]) if proposal.kind is Step.FINISH else proposal

    def basis(self, promises: Sequence[SumFrame], instance: int, ballot: int) -> tuple[bool, bytes | None]:
        """Whether these promises allow a proposal, and the name of the value that it must have (None: a new one)."""
        if any((p.kind, p.round, p.ballot) != (Step.PROMISE, instance, ballot) for p in promises):
            return False, None
        if len({p.sender for p in promises}) < max(self.terms.threshold, len(promises)):
            return False, None
        reported: list[tuple[int, bytes]] = []
        for promise in promises:
            voted = read_promise(promise.body)[0]
            if voted != NONE:
                proposal = self.known(voted)
                if (proposal.round, proposal.ballot < ballot) == (instance, True) and self.valid(proposal):
                    reported.append((proposal.ballot, self.value_of(proposal).digest))
        if not reported:
            return True, None
        top = max(reported)[0]
        values = {value for b, value in reported if b == top}
        if len(values) > 1:
            two = [self.known(value) for value in sorted(values)]
            self.accuse(self.terms.leader(instance, top), f"signed two proposals in ballot {top} of {instance}", *two)
            return False, None
        return True, values.pop()

    def valid(self, frame: SumFrame) -> bool:
        """Whether a proposal (or START) follows from what it refers to, down to ballot 0."""
        known = self._validity.get(frame.digest)
        if known is None:
            if len(self._validity) >= JUDGED:
                self._validity.clear()
            known = self._validity[frame.digest] = self._judge(frame)
        return known

    def _judge(self, frame: SumFrame) -> bool:
        if frame.sender != self.terms.leader(frame.round, frame.ballot):
            return False
        if frame.kind is Step.SET:
            return self.check_value(frame)
        promises = self.promises_in(frame)
        if frame.kind is Step.FINISH:
            fine, value = self.basis(promises, frame.round, frame.ballot)
            again = self.known(frame.body[:HASH])
            fits = (again.round, again.slot) == (frame.round, frame.slot) and again.kind in VALUES
            return fine and value == again.digest and fits and self.valid(again)
        if frame.ballot == 0:
            free = not promises
        else:
            free = self.basis(promises, frame.round, frame.ballot) == (True, None)
        if frame.kind is Step.START:
            return free and self.check_start(frame, promises)
        return free and self.check_value(frame)

    def promises_in(self, frame: SumFrame) -> Sequence[SumFrame]:
        """The promises that a proposal carries."""
        if frame.kind is Step.FINISH:
            return read_frames(cut(frame.body, HASH)[1], self.terms)
        raise BadSumFrame(f"a {frame.kind.name} carries no promises")

    def refers_to(self, frame: SumFrame) -> list[bytes]:
        """The names of the frames that a proposal or START rests on."""
        names = [name for promise in self.promises_in(frame) for name in read_promise(promise.body) if name != NONE]
        return [frame.body[:HASH], *names] if frame.kind is Step.FINISH else names

    def kept_with(self, frame: SumFrame) -> dict[Key, object]:
        """Rows that keep a proposal with all that it rests on: others will ask for it when it is reported to them."""
        rows: dict[Key, object] = {}
        todo = [frame]
        while todo:
            one = todo.pop()
            key: Key = ("frame", one.digest.hex())
            if key not in rows and self.store.get(key) is None:
                rows[key] = one
                todo += [self.known(name) for name in self.refers_to(one)]
        return rows

    # -- promises ------------------------------------------------------------------------------------------------------

    def promise(self, ballot: int) -> None:
        """Vow to vote in no ballot below this one."""
        if ballot <= self.promised() or self.store.get(("final", self.instance)):
            return
        vote = self.row(("vote", self.instance), tuple)
        first, spare = self.evidence()
        frame = self.frame(Step.PROMISE, self.instance, ballot, body=(vote[1] if vote else NONE) + first + spare)
        self.restart_clock()
        self.commit({("promise", self.instance): ballot}, self.to_all(frame))

    def on_promise(self, frame: SumFrame) -> None:
        """Note a promise, follow c + 1 others, and lead if it is our ballot."""
        read_promise(frame.body)
        last = self._promises.get(frame.sender)
        if last is None or last.ballot < frame.ballot:
            self._promises[frame.sender] = frame
        furthest = sorted((p.ballot for p in self._promises.values()), reverse=True)
        if len(furthest) > self.terms.colluders:  # one of c + 1 is honest, and its clock went there
            self.promise(furthest[self.terms.colluders])
        self.lead(frame.ballot)

    def usable(self, ballot: int) -> list[SumFrame]:
        """The promises whose reports can be judged; a liar may report what nobody can fetch."""
        good = []
        for promise in list(self._promises.values()):
            if promise.ballot != ballot:
                continue
            try:
                self.basis_of_one(promise)
            except Missing as missing:
                self.pass_on(self.frame(Step.FETCH, self.instance, body=missing.digest), promise.sender)
            else:
                good.append(promise)
        return good

    def basis_of_one(self, promise: SumFrame) -> None:
        """Judge what one promise reports; `Missing` if that cannot be."""
        for digest in read_promise(promise.body):
            if digest != NONE:
                self.valid(self.known(digest))

    def lead(self, ballot: int, late: bool = False) -> None:
        """Propose in this ballot if it is ours and enough promised; wait for more until a part of the deadline."""
        instance, terms = self.instance, self.terms
        if terms.leader(instance, ballot) != self.me or ballot == 0 or ballot != self.promised():
            return
        if self.store.get(("proposal", instance, ballot)) or self.store.get(("final", instance)):
            return
        promises = self.usable(ballot)
        if len(promises) < terms.threshold:
            return
        self._enough.setdefault(("promises", ballot), self.now)
        if not late and not {p.sender for p in promises} >= set(self.everybody) - self._absent:
            return
        fine, value = self.basis(promises, instance, ballot)
        if not fine:
            return
        if value is None:
            self.propose_fresh(ballot, promises)
        else:
            again = self.known(value)
            body = value + pack_frames(promises)
            self.propose(self.frame(Step.FINISH, instance, ballot, again.slot, body), extra=[again])

    def propose(self, frame: SumFrame, extra: Sequence[SumFrame] = ()) -> None:
        """Send the one proposal of a ballot to all."""
        for j in self.everybody:
            for other in extra:
                self.pass_on(other, j)
        puts: dict[Key, object] = {("proposal", frame.round, frame.ballot): frame.digest}
        self.commit(puts, self.to_all(frame))

    # -- votes ---------------------------------------------------------------------------------------------------------

    def on_proposal(self, frame: SumFrame) -> None:
        """Vote for a SET, ROSTER or FINISH, at most once in a ballot and in none below the promise."""
        instance, ballot = self.instance, frame.ballot
        if ballot < self.promised():
            mine = self.own(Step.PROMISE, instance, self.promised())
            if mine is not None:
                self.pass_on(mine, frame.sender)
            return
        if not self.valid(frame):
            self.dropped += 1
            return
        value = self.value_of(frame)
        before = self.own(Step.VOTE, instance, ballot, value.slot)
        if before is not None:
            self.pass_on(before, frame.sender)
            return
        voted = self.row(("vote", instance), tuple)
        if voted is not None and voted[0] >= ballot:
            return
        elsewhere = self.row(("voted", value.slot), int)
        if value.kind is Step.SET and elsewhere not in (None, instance):
            return
        vote = self.frame(Step.VOTE, instance, ballot, value.slot, value.digest + self.functionals(value))
        if ballot > self.promised():
            self.restart_clock()
        puts: dict[Key, object] = {
            ("promise", instance): ballot,
            ("vote", instance): (ballot, frame.digest, value.digest),
            **({("voted", value.slot): instance} if value.kind is Step.SET else {}),
            ("voted in", instance, ballot): value.digest,
            **self.kept_with(frame),
        }
        self.commit(puts, [(self.terms.leader(instance, ballot), vote)])

    def on_vote(self, frame: SumFrame) -> None:
        """Note a vote; with t of them there is a certificate."""
        if len(frame.body) != HASH + 16:
            raise BadSumFrame("a vote has another length")
        value = self.known(frame.body[:HASH])
        if value.kind not in VALUES or (value.round, value.slot) != (frame.round, frame.slot):
            raise BadSumFrame("a vote for something else")
        last = self._votes.get(frame.sender)
        if last is None or last.ballot < frame.ballot:
            self._votes[frame.sender] = frame
        elif last.ballot == frame.ballot and last.digest != frame.digest:
            self.accuse(frame.sender, f"voted twice in ballot {frame.ballot} of {frame.round}", last, frame)
        if len(self.votes_for(frame.ballot, value)) >= self.terms.threshold:
            self._enough.setdefault(("votes", frame.ballot), self.now)
            self.count(frame.ballot, value)

    def votes_for(self, ballot: int, value: SumFrame) -> dict[int, SumFrame]:
        """Who voted for a value in a ballot, with the votes."""
        return {i: f for i, f in self._votes.items() if (f.ballot, f.body[:HASH]) == (ballot, value.digest)}

    def count(self, ballot: int, value: SumFrame, late: bool = False) -> None:
        """Make the certificate of a value that has t votes; wait a while for the functionals of all members."""
        got = self.votes_for(ballot, value)
        if len(got) < self.terms.threshold or self.store.get(("final", self.instance)):
            return
        if not late and not self.awaited(value) <= set(got):
            return
        made = self.own(Step.CERT, self.instance, ballot, value.slot)
        if made is not None:
            for j in self.everybody:
                self.pass_on(made, j)
            return
        voters = tuple(sorted(got))
        votes = tuple((got[i].body[HASH:], got[i].signature) for i in voters)
        body = Ballots(value.digest, voters, votes).pack(self.terms)
        self.commit(send=self.to_all(self.frame(Step.CERT, self.instance, ballot, value.slot, body)))

    def check_cert(self, frame: SumFrame) -> tuple[SumFrame, Ballots]:
        """The value that a certificate makes final; a `BadSumFrame` if it does not."""
        ballots = Ballots.read(frame.body, self.terms)
        value = self.known(ballots.value)
        if (value.round, value.slot) != (frame.round, frame.slot) or value.kind not in VALUES:
            raise BadSumFrame("a certificate of something else")
        good = sum(vote.genuine(self.terms) for vote in ballots.vote_frames(frame))
        if good < max(self.terms.threshold, len(ballots.voters)):
            raise BadSumFrame(f"a certificate with {good} good votes")
        return value, ballots

    def on_cert(self, frame: SumFrame) -> None:
        """Take over what a certificate makes final; two different ones stop the party."""
        value, _ = self.check_cert(frame)
        known = self.row(("final", frame.round), bytes)
        if known is not None and known != value.digest:
            self.refusal = f"two values of instance {frame.round} are final: more than c parties lie"
            return
        if known is None:
            self.restart_clock()
            self.became_final(frame.round, value, frame)

    # -- time ----------------------------------------------------------------------------------------------------------

    def tick_agreement(self) -> None:
        """What is due in the ballot under way."""
        instance, ballot = self.instance, self.promised()
        wait = self.terms.deadline(ballot) / 4
        with contextlib.suppress(Missing):
            self.lead(ballot, late=self.now >= self._enough.get(("promises", ballot), self.now) + wait)
        for vote in list(self._votes.values()):
            if self.now < self._enough.get(("votes", vote.ballot), self.now) + wait:
                continue
            with contextlib.suppress(Missing):
                self.count(vote.ballot, self.known(vote.body[:HASH]), late=True)
        waiting = instance == self.instance and not self.store.get(("final", instance))
        gone = self.terms.leader(instance, ballot) in self._absent and self.has_waited()
        if waiting and (gone or self.now >= self.entered + self.terms.deadline(ballot)):
            self.promise(ballot + 1)

    def has_waited(self) -> bool:
        """Whether those who were away had a moment to come back: nobody waits for them for longer."""
        return self.now >= self.entered + self.terms.deadline(self.promised()) / 16
