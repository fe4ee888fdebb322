"""The door of a party that listens: however many knock, there is room for the neighbours and for the ledger.

gRPC takes every connection that comes and has no limit for those that say nothing, so some thousand of them would use
up the descriptors of the process. Here a thread accepts instead of it and carries the bytes to and from gRPC over a
Unix socket that has lost its name: nobody else can reach it. TLS ends in gRPC; the door sees ciphertext.

A connection is *silent* until a whole first TLS record has come, a *stranger* while gRPC shakes hands, and a
*neighbour's* once its certificate, pin and part are checked (`Door.know`). Silent ones and strangers together are the
crowd, which `hall` bounds. A handshake costs the processor milliseconds before anything is known of the caller, so each
address may begin only so many in a second (`PACE`); who comes faster waits in the crowd, the newest first. A neighbour
has few places; its newest connection takes that of its oldest. What neighbours have is never taken by others.
"""

from __future__ import annotations

import os
import selectors
import socket
import time
from collections.abc import Callable, Iterable

from coterie.deploy.hall import EACH, PER_NEIGHBOUR, SPARE, WANTED, Hall, Visit, crowd_limit, listening_sockets, log

__all__ = ["EACH", "PER_NEIGHBOUR", "SPARE", "WANTED", "Door", "crowd_limit", "listening_sockets"]

AWAY = {"late": "says nothing", "crowded": "made room for others", "replaced": "a newer connection took over"}
LINGER = 1.0  # seconds in which the last word of a refused conversation may be read
CHUNK = 1 << 18
PACE, AT_ONCE = 20.0, 40.0  # TLS handshakes that an address may begin in a second, and after a pause
REMEMBERED = 4096  # addresses whose pace is known


class RateLimit:
    """How often each address may do something: `rate` times in a second, `burst` times after a pause."""

    def __init__(self, rate: float, burst: float):
        self._rate, self._burst = rate, burst
        self._left: dict[str, tuple[float, float]] = {}  # what an address had left, and when

    def take(self, origin: str, now: float) -> bool:
        """Whether it may now; if so, it has done it."""
        left, when = self._left.pop(origin, (self._burst, now))
        left = min(self._burst, left + (now - when) * self._rate)
        self._left[origin] = (left - 1 if left >= 1 else left), now
        if len(self._left) > REMEMBERED:
            del self._left[next(iter(self._left))]  # who has not come for longest
        return left >= 1


class Door(Hall):
    """Accepts connections for a gRPC server in this process. All work is done in one thread of its own.

    Args:
        sockets: listening (`listening_sockets`), or behind a host (`coterie.deploy.host`).
        inner: path of the Unix socket at which gRPC listens; it is removed once it is open here.
        neighbours: how many may call.
        patience: seconds after which an unknown caller must have become known.
        refused: called with the reason when somebody unknown is turned away, in the door's thread.
    """

    def __init__(
        self, sockets: list[socket.socket], inner: str, neighbours: int, patience: float,
        refused: Callable[[str], None] = lambda _: None,
    ):  # fmt: skip
        places, self._refused = crowd_limit(neighbours), refused
        super().__init__(sockets, places, places // 4 + 2 * neighbours, patience)
        self._inner = os.open(inner, os.O_PATH)
        os.unlink(inner)
        self._known: dict[str, list[Visit]] = {}
        self._names: dict[str, Visit] = {}
        self._parting: dict[Visit, None] = {}
        self._waiting: dict[Visit, None] = {}  # for their turn to shake hands
        self._pace = RateLimit(PACE, AT_ONCE)
        self._buffer = memoryview(bytearray(CHUNK))

    def know(self, name: str, neighbour: str) -> None:
        """The connection that gRPC calls `name` (its `peer()`) is this neighbour's."""
        self._order(lambda: self._befriend(name, neighbour))

    def origin(self, name: str) -> str:
        """Where the connection that gRPC calls `name` comes from."""
        visit = self._names.get(name)
        return visit.origin if visit is not None else "somewhere"

    def part(self, name: str) -> None:
        """The conversation on that connection has ended: close it when its last word may have been read."""
        self._order(lambda: self._let_go(name))

    # ---- in the thread ----

    def _run(self) -> None:
        super()._run()
        os.close(self._inner)

    def _guests(self) -> Iterable[Visit]:
        return [*(v for known in self._known.values() for v in known), *self._parting]

    def _idle(self) -> bool:
        return not (self._crowd or self._parting)

    def _late(self, now: float) -> list[Visit]:
        return [visit for visit in (*self._crowd, *self._parting) if visit.deadline <= now]

    def _look_around(self, now: float) -> None:
        super()._look_around(now)
        for visit in reversed([*self._waiting]):
            if self._pace.take(visit.origin, now):
                del self._waiting[visit]
                self._guarded(visit, lambda visit=visit: self._let_in(visit))  # type: ignore[misc]

    def _bring(self, visit: Visit) -> None:
        if self._pace.take(visit.origin, time.monotonic()):
            self._let_in(visit)
        else:
            self._waiting[visit] = None
            self._selector.unregister(visit.outer)

    def _let_in(self, visit: Visit) -> None:
        """Bring a caller to gRPC."""
        visit.inner = inner = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        inner.setblocking(False)
        inner.bind("")  # the system gives it a name, by which gRPC knows it
        visit.name = f"unix-abstract:{inner.getsockname()[1:].decode()}"
        self._names[visit.name] = visit
        inner.connect(f"/proc/self/fd/{self._inner}")
        self._selector.register(inner, selectors.EVENT_READ, visit)
        if visit.outer.fileno() not in self._selector.get_map():
            self._selector.register(visit.outer, selectors.EVENT_READ, visit)
        visit.handshake.said(first := bytes(visit.early), True)
        self._send(visit, inner, first)
        visit.early.clear()

    def _talk(self, visit: Visit, side: socket.socket, mask: int) -> None:
        try:
            if mask & selectors.EVENT_WRITE:
                self._flush(visit, side)
            if mask & selectors.EVENT_READ and not visit.ending:
                self._carry(visit, side)
        except BlockingIOError:
            raise
        except OSError:
            if side is visit.outer:
                self._note_failure(visit, True)
            raise

    def _carry(self, visit: Visit, side: socket.socket) -> None:
        to = visit.other(side)
        assert to is not None
        count = side.recv_into(self._buffer)
        if count:
            if not visit.served:
                visit.handshake.said(self._buffer[:count], side is visit.outer)
            self._send(visit, to, self._buffer[:count])
            return
        self._note_failure(visit, side is visit.outer)
        if to.fileno() in visit.unsent:
            visit.ending = True
            self._selector.unregister(side)
        else:
            self._end(visit)

    def _note_failure(self, visit: Visit, by_caller: bool) -> None:
        """Say why a connection ended before its caller could speak, if that can be known."""
        if not visit.served and (reason := visit.handshake.failure(by_caller)):
            self._refused(reason)
            log.warning("refused a caller from %s: %s", visit.origin, reason)

    def _send(self, visit: Visit, to: socket.socket, data: bytes | memoryview) -> None:
        """Send, or keep the rest and read no more of it until that is sent."""
        try:
            sent = to.send(data)
        except BlockingIOError:
            sent = 0
        if sent < len(data):
            visit.unsent[to.fileno()] = bytes(data[sent:])
            self._interest(visit)

    def _flush(self, visit: Visit, to: socket.socket) -> None:
        data = visit.unsent[to.fileno()]
        sent = to.send(data)
        if sent < len(data):
            visit.unsent[to.fileno()] = data[sent:]
            return
        del visit.unsent[to.fileno()]
        if visit.ending:
            self._end(visit)
        else:
            self._interest(visit)

    def _interest(self, visit: Visit) -> None:
        """Read a side while the other takes what it says; write to it while it has not taken all."""
        for side in (visit.outer, visit.inner):
            assert side is not None
            other = visit.other(side)
            assert other is not None
            mask = selectors.EVENT_READ * (other.fileno() not in visit.unsent and not visit.ending)
            mask |= selectors.EVENT_WRITE * (side.fileno() in visit.unsent)
            registered = side.fileno() in self._selector.get_map()
            if mask and registered:
                self._selector.modify(side, mask, visit)
            elif mask:
                self._selector.register(side, mask, visit)
            elif registered:
                self._selector.unregister(side)

    # ---- places ----

    def _befriend(self, name: str, neighbour: str) -> None:
        visit = self._names.get(name)
        if visit is None or visit not in self._crowd:
            return  # gone already
        self._leave_crowd(visit)
        visit.neighbour = neighbour
        visit.served = True
        places = self._known.setdefault(neighbour, [])
        places.append(visit)
        if len(places) > PER_NEIGHBOUR:
            self._turn_away(places[0], "replaced")

    def _let_go(self, name: str) -> None:
        visit = self._names.get(name)
        if visit is None:
            return
        visit.served = True
        soon = time.monotonic() + LINGER
        if visit in self._crowd:
            visit.deadline = min(visit.deadline, soon)
        else:
            visit.deadline, self._parting[visit] = soon, None

    def _turn_away(self, visit: Visit, reason: str) -> None:
        if not visit.neighbour or reason == "replaced":
            self._refused(AWAY[reason])
        super()._turn_away(visit, reason)

    def _end(self, visit: Visit) -> None:
        super()._end(visit)
        self._parting.pop(visit, None)
        self._waiting.pop(visit, None)
        self._names.pop(visit.name, None)
        if visit in (places := self._known.get(visit.neighbour, [])):
            places.remove(visit)
