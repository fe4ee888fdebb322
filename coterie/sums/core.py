"""The ground on which one party's protocol stands: frames in and out, the ledger, frames that wait for others.

No sockets, no clock, no threads: `handle` takes a frame and the time and returns frames with their receivers, and
nothing is returned that is not stored. A party that stops anywhere goes on from its store.
"""

from __future__ import annotations

import abc
from collections import deque
from collections.abc import Iterable, Mapping
from typing import TypeVar

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from coterie.errors import InputError
from coterie.sums.messages import HASH, BadSumFrame, Step, SumFrame, pack_frames, read_frames
from coterie.sums.store import Charge, Key, SumStore
from coterie.sums.terms import ROSTER_BIT, SharedTerms

__all__ = ["Core", "Missing", "Outgoing", "latest"]

Outgoing = tuple[int, SumFrame]
T = TypeVar("T")

KEPT = frozenset(
    {
        Step.KEYS,
        Step.DEAL,
        Step.ROSTER,
        Step.START,
        Step.SET,
        Step.FINISH,
        Step.CERT,
        Step.OPENED,
    }
)
"""Frames that others may ask for by name."""

HEARD = 64
"""So many frames of each author are remembered, and so many wait for others that are not here: the oldest give way, so
that no liar fills the memory. What is missed later is asked for by name."""

EARLY = 16
"""So many frames of every party wait until this one is ready."""

CALLS = frozenset({Step.START, Step.SET, Step.FINISH, Step.ROSTER, Step.PROMISE, Step.KEYS})
"""Kinds whose sender, if it is behind, is told how the instance ended."""

QUESTIONS = frozenset({Step.FETCH, Step.ASK, Step.PROVE, Step.KEYS})
ANSWERS, AT_ONCE = 64.0, 256.0
"""So many questions of each party are answered in a second, and so many after a pause: an answer is longer than its
question. Of those that come faster the last one waits."""

REMEMBERED = frozenset({Step.PROMISE, Step.VOTE, Step.COMMIT})
"""Frames of others of which the last one is kept, to be shown to a party that comes back."""


def latest(frames: list[SumFrame], frame: SumFrame) -> list[SumFrame]:
    """Frames that wait, with a new one: of each sender the last, so that no liar fills the memory."""
    return [*(other for other in frames if other.sender != frame.sender), frame]


class Missing(Exception):
    """Something cannot be judged before a frame of this name is here."""

    def __init__(self, digest: bytes) -> None:
        super().__init__(digest.hex())
        self.digest = digest


class Core(abc.ABC):
    """State and transport that the parts of a party share."""

    def __init__(
        self, terms: SharedTerms, me: int, signing: Ed25519PrivateKey, sealing: X25519PrivateKey, store: SumStore
    ) -> None:
        self.terms, self.me, self.store = terms, me, store
        self.signing, self.sealing = signing, sealing
        self.now = 0.0
        self.refusal = ""  # why this party does not run any more
        self.named: dict[int, str] = {}  # who broke the protocol, and how
        self.proof: dict[int, tuple[SumFrame, ...]] = {}  # the signed frames that show it
        self.done: set[int] = set()  # who has the totals of all rounds
        self.dropped = 0  # frames that nobody who follows the protocol sends
        self._out: list[Outgoing] = []
        self._queue: deque[SumFrame] = deque()
        self._seen: dict[bytes, SumFrame] = {}
        self._heard: dict[int, deque[bytes]] = {}  # names of those of others, by author
        self._waiting: dict[int, dict[bytes, tuple[bytes, SumFrame]]] = {}  # by author and name; first what they lack
        self._early: list[SumFrame] = []  # what came before this party was ready
        self._reached: dict[int, set[bytes]] = {}  # frames that left for a party since it asked what is held from it
        self._stands: set[int] = set()
        self._stood = 0.0  # when enough of them were there
        self._fresh: dict[Key, object] = {}  # rows that go into the next transaction
        self._told: dict[tuple[int, int], float] = {}
        self._answers: dict[int, tuple[float, float]] = {}  # that a party may still ask for, and since when
        self._unanswered: dict[int, SumFrame] = {}  # everybody's last question beyond them
        self._ahead: int | None = None  # who knows more than this party
        self._absent: set[int] = set()  # left out of the last sum or without a vote in it, and not heard since
        self.ready = terms.threshold <= 1

    # -- the ledger ----------------------------------------------------------------------------------------------------

    def row(self, key: Key, kind: type[T]) -> T | None:
        """A row of the ledger, if it is there."""
        value = self.store.get(key)
        assert value is None or isinstance(value, kind), key
        return value

    def frame(self, kind: Step, instance: int, ballot: int = 0, slot: int = 0, body: bytes = b"") -> SumFrame:
        """A signed frame of one's own: the stored one where one was made before."""
        known = self.own(kind, instance, ballot, slot)
        bare = SumFrame(self.terms.plan, kind, self.me, instance, ballot, slot, body, b"")
        return known if known is not None and known.body == body else bare.sign(self.signing)

    def own(self, kind: Step, instance: int, ballot: int = 0, slot: int = 0) -> SumFrame | None:
        """The stored frame of one's own at this place."""
        return self.row(("own", int(kind), instance, ballot, slot), SumFrame)

    def commit(
        self,
        puts: Mapping[Key, object] | None = None,
        send: Iterable[Outgoing] = (),
        erase: Iterable[Key] = (),
        charge: Charge | None = None,
    ) -> None:
        """One transaction; what it sends leaves after it."""
        rows: dict[Key, object] = {**self._fresh, **(puts or {})}
        sending = list(send)
        for to, frame in sending:
            where = (int(frame.kind), frame.round, frame.ballot, frame.slot)
            rows["own", *where] = frame
            rows["to", *where, to] = True
            if frame.kind in KEPT:
                rows["frame", frame.digest.hex()] = frame
        self.store.commit(rows, erase, charge)
        self._fresh.clear()
        for to, frame in sending:
            self.pass_on(frame, to)

    def pass_on(self, frame: SumFrame, to: int) -> None:
        """Send what needs no transaction: other parties' frames, stored frames, questions."""
        if frame.kind in KEPT:
            self.remember(frame)
        if to == self.me:
            self._queue.append(frame)
        else:
            self._out.append((to, frame))
            if to in self._reached and frame.sender == self.me:
                self._reached[to].add(frame.digest)

    @property
    def everybody(self) -> range:
        """All parties, this one too."""
        return range(self.terms.parties)

    def to_all(self, frame: SumFrame) -> list[Outgoing]:
        """A frame to everybody, this party too."""
        return [(j, frame) for j in self.everybody]

    def known(self, digest: bytes) -> SumFrame:
        """The frame of this name; `Missing` if it is not here."""
        found = self._seen.get(digest) or self.row(("frame", digest.hex()), SumFrame)
        if found is None:
            raise Missing(digest)
        return found

    # -- frames in and out ---------------------------------------------------------------------------------------------

    def handle(self, frame: SumFrame, now: float) -> list[Outgoing]:
        """What to send after a frame came in. Whoever handed it on may have written it, in this party's name too."""
        self.now = max(now, self.now)
        if frame.genuine(self.terms):
            self._queue.append(frame)
        else:
            self.dropped += 1
        return self._drain()

    def _drain(self) -> list[Outgoing]:
        while self._queue and not self.refusal:
            frame = self._queue.popleft()
            self._one(frame)
        out, self._out = ([] if self.refusal else self._out), []
        return out

    def _one(self, frame: SumFrame) -> None:
        self._absent.discard(frame.sender)
        if not self.ready and frame.kind not in (Step.ASK, Step.STAND, Step.DONE):
            if sum(other.sender == frame.sender for other in self._early) < EARLY:
                self._early.append(frame)
            return  # before it knows that its ledger is no old copy, a party does nothing
        if self._asks_too_much(frame):
            self.dropped += frame.sender in self._unanswered
            self._unanswered[frame.sender] = frame
            return
        try:
            if frame.kind is Step.FETCH:
                self._on_fetch(frame)
            elif frame.kind is Step.ASK:
                self._on_ask(frame)
            elif frame.kind is Step.STAND:
                self._on_stand(frame)
            elif frame.kind is Step.DONE:
                self.done.add(frame.sender)
            else:
                self.dispatch(frame)
        except Missing as missing:
            waiting = self._waiting.setdefault(frame.sender, {})
            waiting.pop(frame.digest, None)
            waiting[frame.digest] = missing.digest, frame
            if len(waiting) > HEARD:
                del waiting[next(iter(waiting))]
            if frame.sender != self.me:
                self.pass_on(self.frame(Step.FETCH, frame.round, body=missing.digest), frame.sender)
            return
        except InputError:
            raise  # the ledger's word, or the owner's: never the fault of who sent a frame
        except (BadSumFrame, ValueError):
            self.dropped += 1
            return
        if frame.kind in REMEMBERED:
            last = self._last(frame.sender, frame.kind)
            if last is None or self._when(frame) > self._when(last):
                self._fresh["held", frame.sender, int(frame.kind)] = frame
        if frame.kind in KEPT:
            self.remember(frame)
            for waiting in self._waiting.values():
                for name in [name for name, (lacks, _) in waiting.items() if lacks == frame.digest]:
                    self._queue.append(waiting.pop(name)[1])

    def _asks_too_much(self, frame: SumFrame) -> bool:
        late = frame.kind in CALLS and self.over(frame.round)
        if frame.sender == self.me or not (late or frame.kind in QUESTIONS):
            return False
        left, since = self._answers.get(frame.sender, (AT_ONCE, self.now))
        left = min(AT_ONCE, left + (self.now - since) * ANSWERS)
        self._answers[frame.sender] = left - (left >= 1), self.now
        return left < 1

    def answer_later(self) -> None:
        """Take up questions that had to wait."""
        waited, self._unanswered = self._unanswered, {}
        self._queue.extend(waited.values())

    def remember(self, frame: SumFrame) -> None:
        """Keep a frame that others may name."""
        if frame.digest not in self._seen:
            self._seen[frame.digest] = frame
            if frame.sender != self.me:
                names = self._heard.setdefault(frame.sender, deque())
                names.append(frame.digest)
                if len(names) > HEARD:
                    self._seen.pop(names.popleft(), None)

    def accuse(self, party: int, reason: str, *proof: SumFrame) -> None:
        """Name a party that broke the protocol; what it signed first against it is kept."""
        if party not in self.named:
            self.named[party], self.proof[party] = reason, proof

    @property
    @abc.abstractmethod
    def instance(self) -> int:
        """What is being agreed on now."""

    @abc.abstractmethod
    def over(self, instance: int) -> bool:
        """Whether an instance is settled here."""

    @abc.abstractmethod
    def dispatch(self, frame: SumFrame) -> None:
        """Hand a frame to the part that it is for."""

    @abc.abstractmethod
    def forgotten(self, instance: int) -> bool:
        """Whether own frames of an instance may be erased: it was over long ago."""

    @abc.abstractmethod
    def closing(self, instance: int) -> list[SumFrame]:
        """The frames that tell a late party how an instance ended."""

    def _on_fetch(self, frame: SumFrame) -> None:
        if len(frame.body) == HASH:
            try:
                self.pass_on(self.known(frame.body), frame.sender)
            except Missing:
                return
        else:
            self.tell(frame.round, frame.sender)

    def tell(self, instance: int, whom: int) -> None:
        """How an instance ended, or what this party said in it so far; not again within a short time."""
        if instance != self.instance and not self.over(instance):
            return
        last = self._told.get((instance, whom))
        if last is None or self.now >= last + self.terms.patience / 8:
            self._told[instance, whom] = self.now
            reached = self._reached.pop(whom, set())  # once: whoever asks again has lost something
            again = [own for _, own in self.frames_for(instance, whom) if own.digest not in reached]
            for told in self.closing(instance) or again:
                self.pass_on(told, whom)

    @abc.abstractmethod
    def frames_for(self, instance: int, whom: int) -> list[Outgoing]:
        """Own frames of an instance that were meant for this party: they leave again, the same bytes."""

    def ask_how_it_ended(self, instance: int, whom: int) -> None:
        """Ask someone who seems to be ahead."""
        if whom != self.me:
            self._ahead = whom
            self.pass_on(self.frame(Step.FETCH, instance), whom)

    # -- after a start: is this ledger an old copy? --------------------------------------------------------------------

    def begin(self, now: float) -> list[Outgoing]:
        """The first thing that a party does, new or come back."""
        self.now = now
        for j in self.everybody:
            if j != self.me:
                self.pass_on(self.frame(Step.ASK, 0), j)
        return self._drain()

    def _when(self, frame: SumFrame) -> tuple[int, bool, int]:
        """Where a frame stands in time: the roster of a batch comes before the first of its rounds."""
        number, roster = frame.round & ~ROSTER_BIT, bool(frame.round & ROSTER_BIT)
        return number * self.terms.rounds if roster else number, not roster, frame.ballot

    def _last(self, sender: int, kind: Step) -> SumFrame | None:
        key: Key = ("held", sender, int(kind))
        found = self._fresh.get(key) or self.store.get(key)
        return found if isinstance(found, SumFrame) else None

    def _on_ask(self, frame: SumFrame) -> None:
        self._reached[frame.sender] = set()
        held = [f for kind in REMEMBERED if (f := self._last(frame.sender, kind))]
        self.pass_on(self.frame(Step.STAND, 0, body=pack_frames(held)), frame.sender)

    def _on_stand(self, frame: SumFrame) -> None:
        if self.ready:
            return
        for held in read_frames(frame.body, self.terms):
            if held.sender != self.me:
                raise BadSumFrame("a stand shows frames of others")
            mine = self.own(held.kind, held.round, held.ballot, held.slot)
            if mine is None and self.forgotten(held.round):
                continue  # erased, since a ledger that is so far on knew all that was said then
            if mine is None or mine.digest != held.digest:
                self.refusal = (
                    f"party {frame.sender} holds a {held.kind.name} of round {held.round} that this ledger does not "
                    "know: it is an old copy, and going on with it could open what was masked; expected a new agreement"
                )
                return
        if frame.sender not in self._stands:
            self._stands.add(frame.sender)
            if len(self._stands) == self.terms.threshold - 1:
                self._stood = self.now
        self.stand_up()

    def stand_up(self) -> None:
        """Go on once everybody answered; t − 1 are enough, but others may know more, and have a moment to say so."""
        answers = len(self._stands)
        waited = answers >= self.terms.threshold - 1 and self.now >= self._stood + self.terms.patience / 16
        if not self.ready and not self.refusal and (waited or answers == self.terms.parties - 1):
            self.ready = True
            self.resume()
            early, self._early = self._early, []
            self._queue.extend(early)

    @property
    def met(self) -> frozenset[int]:
        """Who has said what it holds from this party."""
        return frozenset(self._stands)

    @abc.abstractmethod
    def resume(self) -> None:
        """Go on from the ledger: the frames of what is under way leave again, the same bytes."""
