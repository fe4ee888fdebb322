"""One deployed party: draw, compute, charge and store, send, listen; and go on where it stopped.

A round, in the order that makes a crash harmless at every point:

    date      is the agreement still in force?
    draw      fresh noise from the operating system                     nothing has left: a crash costs nothing
              (where neighbours share noise: and their secrets of this round, the same in every process)
    turn      what the last round's messages make of the state, then the next message, on the grid
    release   one transaction in the ledger: charge + exact bytes + state; it returns when the disk has them
    push      the stored bytes go out; after a crash the same bytes go out again, never a second draw
    collect   wait for the neighbours' messages of this round, as the algorithm says

Before its first new message a party asks every neighbour what it last heard from it. An answer that the ledger does
not know means that this ledger is an old copy, or one of two: the party refuses to run.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from coterie.deploy.agreement import Agreement
from coterie.deploy.frames import MESSAGE, SIGNATURE_BYTES, SILENT, seal_hashed
from coterie.deploy.kept_state import Hashed
from coterie.deploy.keys import PartyKeys
from coterie.deploy.ledger import DurableLedger, LedgerFailure
from coterie.deploy.noise import Source
from coterie.deploy.pairs import with_secrets
from coterie.deploy.party import Carry, Party
from coterie.deploy.tally import RoundTimes
from coterie.deploy.transport import Incoming, Transport

__all__ = ["Agent", "GaveUp", "Status", "hanging_up"]

MEETING = "meeting neighbours"
GRACE = 0.3  # seconds in which the news that all is stored reaches the neighbours
LOOK = 1.0  # seconds between two looks at the agreement's end, for a party that waits
T = TypeVar("T")


class GaveUp(RuntimeError):
    """A neighbour stayed silent for longer than the plan's patience. Starting again goes on from here."""


@dataclass
class Status:
    """Where a party stands; shown to its owner, never sent."""

    round: int = 0
    rounds: int = 0
    epsilon: float = 0.0
    budget: float = 0.0
    waiting: tuple[str, ...] = ()
    phase: str = "starting"


async def hanging_up(transport: Closing, part: Awaitable[np.ndarray]) -> np.ndarray:
    """Take part, and close the connections however that ends.

    After a LedgerFailure the process must end at once: the connections are left as they are, since not even a farewell
    may be sent.
    """
    try:
        point = await part
    except LedgerFailure:
        raise
    except BaseException:
        await transport.close()
        raise
    await transport.close()
    return point


class Closing(Protocol):
    """A network that can be left."""

    async def close(self) -> None:
        """End all connections."""


class Agent:
    """Runs one party to the end of the plan.

    Args:
        agreement, keys: who the parties are, and this one's keys.
        party: the compiled half of the round, with the records.
        ledger: this party's ledger, open.
        transport: not started yet.
        source: where noise comes from.
        note: called with the name of an event and its facts, for the owner's log.
    """

    def __init__(
        self,
        agreement: Agreement,
        keys: PartyKeys,
        party: Party,
        ledger: DurableLedger,
        transport: Transport,
        source: Source,
        note: Callable[..., None] = lambda *_, **__: None,
    ):
        self.agreement, self.keys, self.party, self.ledger = agreement, keys, party, ledger
        self.transport, self.note = transport, note
        self.source = with_secrets(source, party.turns.laws, agreement, keys)
        self.held = ledger.held()  # the frames that are in the state, by neighbour
        self.name = keys.name
        self.deploy = agreement.deploy
        self.neighbours = [agreement.parties[int(j)].name for j in party.neighbours]
        self.wire, self.charges, self.rounds = party.wire, party.charges, party.rounds
        self.reuse = party.late == "reuse"
        self.signed: list[Hashed | None] = [None] * len(self.neighbours)  # what they said last, as they signed it
        self.waiting: dict[str, dict[int, Incoming]] = {n: {} for n in self.neighbours}
        self.status = Status(rounds=self.rounds, budget=ledger.budget.epsilon)
        self.pace = RoundTimes()
        self.leaving = False  # the model is stored: what is left is to serve neighbours
        self._tick, self._compiled = time.monotonic(), False

    async def run(
        self, save: Callable[[np.ndarray], None] = lambda _: None, saved: np.ndarray | None = None
    ) -> np.ndarray:
        """Take part until the last round, `save` the model, and stay until the neighbours have theirs.

        `saved` is the model that an earlier process has stored: what is left then is to serve neighbours that need it.
        Whatever is raised, the ledger is consistent and starting again goes on from it.
        """
        return await hanging_up(self.transport, self._take_part(save, saved))

    async def _take_part(self, save: Callable[[np.ndarray], None], saved: np.ndarray | None) -> np.ndarray:
        await self.transport.start()
        if saved is not None and self.ledger.last == self.rounds - 1:
            await self._come_back()
            await self._leave()
            return saved
        carry = await self._resume()
        for t in range(self.ledger.last + 1, self.rounds):
            carry = await self._speak(t, carry)
            carry = await self._collect(t, carry)
        point = self.party.answer(carry)
        save(point)
        await self._leave()
        return point

    async def _resume(self) -> Carry:
        """Ask the neighbours what they hold, then pick up after the last stored message."""
        self.status.phase = MEETING
        for i, name in enumerate(self.neighbours):
            self.status.waiting = tuple(self.neighbours[i:])
            self.ledger.reconcile(name, await self._patiently(self.transport.receipt(name), name))
        last = self.ledger.last
        if last < 0:
            self.note("start", rounds=self.rounds)
            self.pace.begin()
            return self.party.begin()
        return await self._collect(last, await self._push_again())

    async def _push_again(self) -> Carry:
        """Offer the last stored message again; the state that was stored with it."""
        last = self.ledger.last
        (stored, heard), frame = self.ledger.whole_state(), self.ledger.frame(last)
        assert stored is not None
        assert frame is not None
        self.note("resume", round=last)
        await self.transport.push(last, frame)
        self.status.round, self.status.waiting = last + 1, ()
        self.pace.begin()
        carry = self.party.unpack(stored, frame, [part.content for part in heard])
        for slot, part in zip(np.flatnonzero(np.asarray(carry.when) >= 0), heard, strict=True):
            self.signed[slot] = part
        return carry

    async def _come_back(self) -> None:
        """After an end behind the last round: offer the last message again to whoever is still there, for a deadline.

        Nobody need be: neighbours that had this party's word leave at once. Nothing new can be sent either.
        """
        self.leaving = True
        carry = await self._push_again()
        with contextlib.suppress(TimeoutError, GaveUp):
            async with asyncio.timeout(self.deploy.deadline):
                await self._collect(self.ledger.last, carry)  # what a neighbour must know to be stored here

    async def _leave(self) -> None:
        """The model is stored: let go of the neighbours as soon as each has stored its own, or after a deadline.

        The last word never comes: one that has said it must leave without an answer. Hence the moment of grace, and
        hence no party waits here for longer than a deadline.
        """
        self.status.phase, self.leaving = "waiting for the others to finish", True
        self._keep()
        last, until = self.rounds - 1, time.monotonic() + self.deploy.deadline
        for name in self.neighbours:
            self.status.waiting = (name,)
            try:
                left = max(until - time.monotonic(), 0.001)
                await asyncio.wait_for(self.transport.receipt(name, kept=last), left)
            except TimeoutError:
                self.note("left", missing=name)
        await asyncio.sleep(GRACE)
        self.status.phase, self.status.waiting = "done", ()

    async def _speak(self, t: int, carry: Carry) -> Carry:
        self.agreement.check_date()
        if not self._compiled:
            self.status.phase, self._compiled = "compiling", True
            self.note("compiling")
        else:
            self.status.phase = "computing"
        carry, numbers, sent = self.party.speak(t, carry, self.source)
        if self.party.pace < 1:
            self.note("slow", round=t, share=float(self.party.pace))
        payload = self.wire.encode(numbers if sent else np.zeros_like(numbers), self.party.node, t)
        kind = MESSAGE if sent else SILENT
        frame, hashed = seal_hashed(self.keys.frame_key, self.agreement.plan_hash, self.party.node, t, payload, kind)
        heard = [part for part in self.signed if part is not None]
        self.ledger.release(t, self.charges[t], frame, self.party.pack(carry), self.held, None, hashed, heard)
        if self.deploy.tick:  # sends leave at fixed times, whatever the computation took
            self._tick = max(self._tick + self.deploy.tick, time.monotonic())
            await asyncio.sleep(self._tick - time.monotonic())
        await self.transport.push(t, frame)
        self._keep()
        self._sent(t)
        return carry

    def _keep(self) -> None:
        """Tell the neighbours which of their frames will never be asked for again."""
        for name, receipt in self.held.items():
            self.transport.kept(name, receipt.round)

    def _sent(self, t: int) -> None:
        self.status.round, self.status.waiting = t + 1, ()
        self.note("sent", round=t, seconds=round(self.pace.lap(), 6))

    async def _collect(self, t: int, carry: Carry) -> Carry:
        """Every neighbour's message of round t; of a late one its last, if the algorithm can use that."""
        self.status.phase = "listening"
        until = time.monotonic() + (self.deploy.deadline if self.reuse else self.deploy.patience)
        while missing := self._missing(t):
            if (left := self._left(until)) > 0:
                await self._hear(t, left)
            elif self.reuse:
                self.note("late", round=t, parties=missing)
                break
            else:
                raise self._gave_up(missing, t)
        self.status.waiting = ()
        for slot, name in enumerate(self.neighbours):
            came = self.waiting[name]
            for r in sorted(r for r in came if r <= t):
                incoming = came.pop(r)
                self.held[name] = incoming.frame.receipt
                if not incoming.frame.silent:
                    carry = self.party.heard(carry, slot, incoming.round, incoming.frame.stored)
                    self.signed[slot] = Hashed(incoming.frame.digest, memoryview(incoming.data)[:-SIGNATURE_BYTES])
        return carry

    def _missing(self, t: int) -> list[str]:
        """Neighbours whose message of round t has not come."""
        return [name for name in self.neighbours if t not in self.waiting[name]]

    async def _hear(self, t: int, seconds: float) -> None:
        """Take in what the neighbours say, until all have spoken in round t or the time is over."""
        oldest = 0 if self.reuse else t  # a late message is better than none
        until = time.monotonic() + seconds
        with contextlib.suppress(TimeoutError):
            while missing := self._missing(t):
                self.status.waiting = tuple(missing)
                incoming = await self.transport.pull(oldest, now=t, until=until, enough=len(missing))
                self.waiting[incoming.sender][incoming.round] = incoming
                self.pace.moved()

    async def _patiently(self, call: Coroutine[object, object, T], name: str) -> T:
        try:
            return await self._before_the_end(call, time.monotonic() + self.deploy.patience)
        except TimeoutError:
            raise self._gave_up([name], self.ledger.last + 1) from None

    async def _before_the_end(self, call: Coroutine[object, object, T], until: float) -> T:
        """Wait for a call, for so long, and while there is something left to release not beyond the agreement's end."""
        waited = asyncio.ensure_future(call)
        try:
            while not waited.done():
                if (left := self._left(until)) <= 0:
                    raise TimeoutError
                await asyncio.wait({waited}, timeout=left)
            return waited.result()
        finally:
            waited.cancel()

    def _left(self, until: float) -> float:
        """Seconds until the date is checked again; raises `Ended` if the agreement ended with rounds left."""
        if self.ledger.last < self.rounds - 1:
            self.agreement.check_date()
        return min(until - time.monotonic(), LOOK)

    def _gave_up(self, names: list[str], t: int) -> GaveUp:
        trouble = self.transport.trouble
        why = "".join(f"; {name}: {trouble[name]}" for name in names if name in trouble)
        return GaveUp(
            f"round {t}: nothing from {', '.join(names)} for {self.deploy.patience:g} s (deploy.patience){why}"
        )
