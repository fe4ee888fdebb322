"""One deployed party whose messages are opened only as sums: compute, mask, charge and store, send, listen; go on.

A round of the algorithm is one secret sum (`coterie.sums`). This file gives its protocol a clock, a ledger and a
network, and the algorithm its vector and the total:

    date      is the agreement still in force?
    utter     the message of this round, in a thread: others are answered meanwhile
    sum       frames in, frames out. In the transaction of a COMMIT the ledger stores charge, masked words, secrets that
              are used up and the state to go on from; only then does anything leave
    told      the total, checked by what its members signed; whoever was missing is back in a later round

Before its first frame the protocol asks the others what they hold from this party; an answer that the ledger does not
know means that it is an old copy, and the party refuses to run.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable

import numpy as np

from coterie.deploy.agent import MEETING, GaveUp, Status, hanging_up
from coterie.deploy.agreement import Agreement
from coterie.deploy.journal import log
from coterie.deploy.kept import LedgerStore
from coterie.deploy.keys import PartyKeys
from coterie.deploy.ledger import DurableLedger, RolledBack
from coterie.deploy.noise import Source
from coterie.deploy.post import PostOffice
from coterie.deploy.shared import SharedCarry, SharedParty
from coterie.deploy.sharing import sealing_key
from coterie.deploy.tally import RoundTimes
from coterie.sums.core import Outgoing
from coterie.sums.messages import BadSumFrame, SumFrame, pack_frames
from coterie.sums.opening import Outcome
from coterie.sums.party import SumParty
from coterie.sums.terms import SharedTerms
from coterie.sums.words import Refused

__all__ = ["Disputed", "SumAgent"]

LOOK = 0.25  # seconds between two looks at the deadlines, at most
GRACE = 0.3  # seconds in which the last word reaches the others
UNCHECKED = 8  # for such a part of a deadline a check of the sum that cannot be made yet is waited for …
SHOWING = 4  # … and for such a part everybody shows what it added, where the sum is wrong


class Disputed(RuntimeError):
    """A sum is wrong, and no step is taken on it: who lied, as far as that can be shown."""


class SumAgent:
    """Runs one party to the end of the plan; arguments as `Agent`, but for the network, which reaches everybody."""

    reuse = False  # a party that is late is left out of a sum; nothing old stands in for it

    def __init__(
        self,
        agreement: Agreement,
        keys: PartyKeys,
        party: SharedParty,
        ledger: DurableLedger,
        transport: PostOffice,
        terms: SharedTerms,
        source: Source,
        note: Callable[..., None] = lambda *_, **__: None,
        evidence: Callable[[str, str, bytes], None] = lambda *_: None,
    ):
        self.agreement, self.keys, self.party, self.ledger = agreement, keys, party, ledger
        self.transport, self.source, self.note, self.evidence = transport, source, note, evidence
        self.name, self.deploy, self.rounds = keys.name, agreement.deploy, party.turns.rounds
        self.status = Status(rounds=self.rounds, budget=ledger.budget.epsilon)
        self.pace, self.leaving, self.refused = RoundTimes(), False, 0
        self._carry = party.begin() if ledger.last < 0 else party.unpack(ledger.state() or b"")
        self._told: set[int] = set()  # liars whose evidence is kept
        self._missing: list[str] = []  # from the last sum
        self._next_look = self._ticked = self._stuck_since = 0.0
        store = LedgerStore(ledger, party.price, lambda: party.pack(self._carry), party.sharing.again)
        self.sums = SumParty(terms, party.node, keys.frame_key, sealing_key(keys), store)

    async def run(
        self, save: Callable[[np.ndarray], None] = lambda _: None, saved: np.ndarray | None = None
    ) -> np.ndarray:
        """Take part until the last round, `save` the model, and stay until the others have theirs, as `Agent.run`."""
        return await hanging_up(self.transport, self._take_part(save, saved))

    async def _take_part(self, save: Callable[[np.ndarray], None], saved: np.ndarray | None) -> np.ndarray:
        await self.transport.start()
        await self._meet()
        self.pace.begin()
        if saved is None or self.sums.outcome(self.rounds - 1) is None:
            for t in range(max(int(self._carry.when), 0), self.rounds):
                await self._round(t)
            saved = self.party.result(self._carry)
            save(saved)
        await self._leave()
        return saved

    async def _meet(self) -> None:
        """Ask the others what they hold from this party, and wait for enough answers."""
        self.status.phase, t = MEETING, self.sums.round
        self._send(self.sums.begin(time.monotonic()))
        await self._within(lambda: self.sums.ready, self.deploy.patience, "no answers from enough parties")
        self._ticked = time.monotonic()
        self.note("joined", round=t, rounds=self.rounds)

    async def _round(self, t: int) -> None:
        self.agreement.check_date()
        self.status.phase = "computing"
        computing = asyncio.create_task(asyncio.to_thread(self.party.utter, t, self._carry, self.source))
        try:
            await self._answer_until(computing.done, computing)
            self._carry = carry = computing.result()
        finally:
            computing.cancel()
        self.status.phase = "listening"
        if self.sums.round == t and self.sums.outcome(t) is None:
            if self.deploy.tick:  # a vector is offered at fixed times, whatever the computation took
                await self._rest()
            self._send(self.sums.give_vector(carry.value, time.monotonic()))
        await self._within(lambda: self.sums.outcome(t) is not None, self.deploy.patience, f"round {t}: no sum")
        self._carry = self._take(t, carry, await self._checked(t))
        self.status.round, self.status.waiting = t + 1, ()

    async def _rest(self) -> None:
        self._ticked = until = max(self._ticked + self.deploy.tick, time.monotonic())
        await self._answer_until(lambda: time.monotonic() >= until)

    def _take(self, t: int, carry: SharedCarry, outcome: Outcome) -> SharedCarry:
        parties = len(self.agreement.parties)
        missing = [p.name for p in self.agreement.parties if p.node not in outcome.members]
        try:
            total = self.sums.terms.code.decode(outcome.total)
        except Refused as error:
            raise Disputed(f"round {t}: {error}; no step is taken") from None
        self.sums.finished.clear()  # the ledger has them
        took = round(self.pace.lap(), 6)
        self.note("opened", round=t, seconds=took, parties=len(outcome.members), of=parties, missing=missing)
        if missing != self._missing:  # once, not in every round from now on
            self._missing = missing
            log.info("round %d: the sum of %d of %d parties is opened, without %s", t, len(outcome.members), parties,
                     ", ".join(missing) or "nobody", extra={"paced": True})  # fmt: skip
        return self.party.told(carry, total, len(outcome.members))

    async def _checked(self, t: int) -> Outcome:
        """The outcome of a round, once it is known whether the words add up, or that nobody can tell."""

        def known() -> bool:
            found = self.sums.outcome(t)
            return found is not None and found.checked is not None

        until = time.monotonic() + self.deploy.deadline / UNCHECKED
        await self._answer_until(lambda: known() or time.monotonic() >= until)
        outcome = self.sums.outcome(t)
        assert outcome is not None
        if outcome.checked is False:
            await self._answer_until(lambda: False)  # until everybody has shown what it added: `_judge` ends it
        if outcome.checked is None:
            log.warning("round %d: a member went before it signed what it had sent: the sum could not be checked", t)
        return outcome

    async def _leave(self) -> None:
        """The model is stored: serve the others until each has said that it is done, or for a deadline."""
        self.status.phase, self.leaving = "waiting for the others to finish", True
        self._send(self.sums.say_done(time.monotonic()))
        until, again = time.monotonic() + self.deploy.deadline, time.monotonic() + 2.0
        others = {p.node for p in self.agreement.parties} - {self.party.node}
        while time.monotonic() < until and (missing := others - self.sums.done):
            self.status.waiting = self._names(missing)
            await self._answer_until(lambda: others <= self.sums.done or time.monotonic() >= min(again, until))  # noqa: B023
            again = time.monotonic() + 2.0
            self._send(self.sums.say_done(time.monotonic()))  # it may have been lost, or somebody has just come back
        if missing := others - self.sums.done:
            self.note("left", missing=list(self._names(missing)))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.transport.flush(), GRACE)
        self.status.phase, self.status.waiting = "done", ()

    # -- frames in, frames out -----------------------------------------------------------------------------------------

    async def _within(self, ready: Callable[[], bool], patience: float, lack: str) -> None:
        """Wait for something, and give up if nothing comes of it."""
        until = time.monotonic() + patience
        await self._answer_until(lambda: ready() or time.monotonic() >= until)
        if not ready():
            trouble = self.transport.trouble
            why = "".join(f"; {name}: {text}" for name, text in trouble.items())
            stuck = f"; {self.sums.stuck}: a person is needed" if self.sums.stuck else ""
            raise GaveUp(f"{lack} for {patience:g} s (deploy.patience){why}{stuck}")

    async def _answer_until(self, ready: Callable[[], bool], wakes: asyncio.Future | None = None) -> None:
        """Answer whatever arrives, and look at the deadlines, until something is so."""
        look = min(LOOK, self.deploy.deadline / 32)
        while not ready():
            if not self.leaving:
                self.agreement.check_date()  # a round waits for others, and may wait beyond the end
            self._judge()
            now = time.monotonic()
            if now >= self._next_look:
                self._next_look = now + look
                self._send(self.sums.tick(now))
                self.status.waiting = () if self.status.phase == "computing" else self._awaited()
                continue
            arriving = asyncio.ensure_future(self.transport.receive())
            waited = {arriving} | ({wakes} if wakes is not None else set())
            try:
                await asyncio.wait(waited, timeout=self._next_look - now, return_when=asyncio.FIRST_COMPLETED)
            finally:
                if not arriving.done():
                    arriving.cancel()
            if arriving.done() and not arriving.cancelled():
                self._hear(arriving.result())
        self._judge()

    def _hear(self, data: bytes) -> None:
        try:
            frame = SumFrame.unpack(data)
        except BadSumFrame as error:
            self.transport.refusals.add("stranger", str(error))
            return
        dropped = self.sums.dropped
        self._send(self.sums.handle(frame, time.monotonic()))
        if self.sums.dropped > dropped:
            self.transport.refusals.add(self._names({frame.sender})[0], f"a {frame.kind.name} that nobody should send")
        self.pace.moved()

    def _send(self, out: Iterable[Outgoing]) -> None:
        """Hand frames to the network: those that leave are stored. One to several parties travels once."""
        whom: dict[bytes, tuple[SumFrame, list[int]]] = {}
        for to, frame in out:
            whom.setdefault(frame.pack(), (frame, []))[1].append(to)
        for data, (_, receivers) in whom.items():
            self.transport.send(receivers, data)

    def _judge(self) -> None:
        """Keep evidence against liars; end where the protocol cannot go on."""
        for liar in set(self.sums.named) - self._told:
            self._told.add(liar)
            (name,) = self._names({liar})
            log.error("%s %s", name, self.sums.named[liar], extra={"about": name})
            self.evidence(name, self.sums.named[liar], pack_frames(self.sums.proof[liar]))
        if self.sums.refusal:
            raise RolledBack(self.sums.refusal)
        if self.sums.stuck and not self._stuck_since:
            self._stuck_since = time.monotonic()
            log.error("%s", self.sums.stuck)
        if self.sums.disputed is not None and time.monotonic() >= self._stuck_since + self.deploy.deadline / SHOWING:
            lies = "; ".join(f"{self._names({i})[0]} {lie}" for i, lie in sorted(self.sums.named.items()))
            raise Disputed(f"{self.sums.stuck}: {lies or 'who lied could not be shown'}")

    def _awaited(self) -> tuple[str, ...]:
        """Who holds this party up, as far as it can tell: those that it cannot reach; else the leader of the round."""
        others = {p.node for p in self.agreement.parties} - {self.party.node}
        if self.status.phase == MEETING:
            return self._names(others - self.sums.met)
        apart = others - self.transport.reachable
        leader = self.sums.terms.leader(self.sums.instance, self.sums.promised())
        return self._names(apart or ({leader} - {self.party.node}))

    def _names(self, nodes: Iterable[int]) -> tuple[str, ...]:
        known = self.agreement.parties
        return tuple(known[i].name if i < len(known) else "stranger" for i in sorted(nodes))
