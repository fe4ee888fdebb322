"""The door of a party that listens: however many knock, there is room for the neighbours and for the ledger.

gRPC takes every connection that comes and has no limit for those that say nothing, so some thousand of them would use
up the descriptors of the process. Here a thread accepts instead of it and carries the bytes to and from gRPC over a
Unix socket that has lost its name: nobody else can reach it. TLS ends in gRPC; the door sees ciphertext.

A connection is *silent* until a whole first TLS record has come, a *stranger* while gRPC shakes hands, and a
*neighbour's* once its certificate, pin and part are checked (`Door.know`). Silent ones and strangers together are the
crowd. It is bounded, in all and for each address; whoever comes when it is full takes the place of another: of the
address with most in the crowd, silent ones first, the oldest first. So an address can fill only its own share, and a
caller with something to say always gets in. Nobody stays in the crowd beyond a deadline. A neighbour has few places;
its newest connection takes that of its oldest. What neighbours have is never taken by others.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import os
import resource
import selectors
import socket
import struct
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from coterie.deploy.handshake import Handshake
from coterie.errors import InputError
from coterie.names import host_and_port

__all__ = ["Door", "crowd_limit", "listening_sockets"]

SPARE = 128  # descriptors that are nobody's: for the ledger, the log, the compiler, outgoing calls
WANTED = 4096  # descriptors to ask the system for
CROWD = 256  # places of those who are not known, at most
PER_NEIGHBOUR = 4  # connections: the one in use, the one that takes over, a probe, and one to spare
EACH = 3  # descriptors of a connection: its own, and both ends of the Unix socket
BURST = 64  # connections accepted before the others are served
LOOK = 0.25  # seconds between two looks at the deadlines
LINGER = 1.0  # seconds in which the last word of a refused conversation may be read
AWAY = {"late": "says nothing", "crowded": "made room for others", "replaced": "a newer connection took over"}
CHUNK = 1 << 18
RECORD = 5 + (1 << 14)  # header and content of the longest first record
log = logging.getLogger("coterie.deploy")


def crowd_limit(neighbours: int) -> int:
    """Places for unknown callers that leave `SPARE` descriptors, after asking the system for more of them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = WANTED if hard == resource.RLIM_INFINITY else min(hard, WANTED)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        soft = most
    soft = WANTED if soft == resource.RLIM_INFINITY else soft
    room = (soft - SPARE - EACH * PER_NEIGHBOUR * neighbours) // EACH
    if room < 2 * neighbours + 2:
        raise InputError(f"{soft} open files are too few for {neighbours} neighbours: raise the limit (ulimit -n)")
    return min(room, CROWD + 2 * neighbours)


def listening_sockets(address: str) -> list[socket.socket]:
    """Sockets that listen at every address that "host:port" stands for here."""
    host, port = host_and_port(address)
    found: list[socket.socket] = []
    try:
        for family, _, _, _, place in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE):
            found.append(socket.create_server(place[:2], family=family, backlog=1024))
            found[-1].setblocking(False)
    except OSError as error:
        for one in found:
            one.close()
        raise InputError(
            f"cannot listen at {address}: in use, or not an address of this machine ({error.strerror})"
        ) from None
    return found


def _origin(place: tuple) -> str:
    """Whom a connection counts for: an address, and of IPv6 the network that one owner has."""
    address = ipaddress.ip_address(place[0].partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        return str(address.ipv4_mapped or ipaddress.ip_network((address, 64), strict=False))
    return str(address)


def _is_whole(early: bytearray) -> bool:
    """Whether a first TLS record is complete, or will never be one: then gRPC refuses it."""
    if early[0] != 22 or len(early) >= RECORD:
        return True
    return len(early) >= 5 and len(early) >= 5 + struct.unpack_from(">H", early, 3)[0]


@dataclass(eq=False)
class _Visit:
    """One connection and, once it has spoken, its way to gRPC."""

    outer: socket.socket
    origin: str
    deadline: float
    inner: socket.socket | None = None
    name: str = ""  # what gRPC calls it
    neighbour: str = ""
    early: bytearray = field(default_factory=bytearray)
    unsent: dict[int, bytes] = field(default_factory=dict)  # what a side could not take yet, by its descriptor
    ending: bool = False
    served: bool = False  # gRPC has let it speak
    handshake: Handshake = field(default_factory=Handshake)

    def other(self, side: socket.socket) -> socket.socket | None:
        return self.inner if side is self.outer else self.outer


class Door:
    """Accepts connections for a gRPC server in this process. All work is done in one thread of its own.

    Args:
        sockets: listening (`listening_sockets`).
        inner: path of the Unix socket at which gRPC listens; it is removed once it is open here.
        neighbours: how many may call.
        patience: seconds after which an unknown caller must have become known.
        refused: called with the reason when somebody unknown is turned away, in the door's thread.

    Attributes:
        turned_away: how many connections lost their place, by reason.
    """

    def __init__(
        self, sockets: list[socket.socket], inner: str, neighbours: int, patience: float,
        refused: Callable[[str], None] = lambda _: None,
    ):  # fmt: skip
        self._listening, self._patience, self._refused = sockets, patience, refused
        self._crowd_limit = crowd_limit(neighbours)
        self._share = self._crowd_limit // 4 + 2 * neighbours
        self._inner = os.open(inner, os.O_PATH)
        os.unlink(inner)
        self._crowd: dict[_Visit, None] = {}  # oldest first
        self._counts: Counter[str] = Counter()  # of the crowd, by origin
        self._known: dict[str, list[_Visit]] = {}
        self._names: dict[str, _Visit] = {}
        self._parting: dict[_Visit, None] = {}
        self.turned_away: Counter[str] = Counter()
        self._orders: deque[Callable[[], None]] = deque()
        self._bell, self._ear = socket.socketpair()
        self._ear.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._buffer = memoryview(bytearray(CHUNK))
        self._open, self._look = True, 0.0
        self._thread = threading.Thread(target=self._run, name="door", daemon=True)

    def start(self) -> None:
        """Begin to accept."""
        for one in self._listening:
            self._selector.register(one, selectors.EVENT_READ)
        self._selector.register(self._ear, selectors.EVENT_READ)
        self._thread.start()

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

    def close(self) -> None:
        """End everything."""
        self._order(self._stop)
        self._thread.join()

    # ---- in the thread ----

    def _order(self, what: Callable[[], None]) -> None:
        self._orders.append(what)
        with contextlib.suppress(OSError):  # full: it will wake up anyway; or closed
            self._bell.send(b"!", socket.MSG_DONTWAIT)

    def _stop(self) -> None:
        self._open = False

    def _run(self) -> None:
        while self._open:
            try:
                self._turn()
            except Exception:  # whatever it is, it must not close the door
                log.exception("the door")
        for visit in [*self._crowd, *(v for known in self._known.values() for v in known), *self._parting]:
            self._end(visit)
        self._selector.close()
        for one in (*self._listening, self._bell, self._ear):
            one.close()
        os.close(self._inner)

    def _turn(self) -> None:
        for key, mask in self._selector.select(timeout=LOOK if self._crowd or self._parting else None):
            if key.data is None:
                if key.fileobj is self._ear:
                    self._ear.recv(4096)
                else:
                    self._accept(key.fileobj)  # type: ignore[arg-type]
            elif key.data.outer.fileno() >= 0:  # may have lost its place in this very turn
                self._serve(key.data, key.fileobj, mask)  # type: ignore[arg-type]
        while self._orders:
            self._orders.popleft()()
        if (now := time.monotonic()) >= self._look:
            self._look = now + LOOK
            for late in [v for v in (*self._crowd, *self._parting) if v.deadline <= now]:
                self._turn_away(late, "late")

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(BURST):
            try:
                outer, place = listening.accept()
            except BlockingIOError:
                return
            except OSError:  # out of descriptors after all: those who wait go first
                if self._crowd:
                    self._turn_away(next(iter(self._crowd)), "crowded")
                time.sleep(0.01)
                return
            origin = _origin(place)
            while self._counts[origin] >= self._share or len(self._crowd) >= self._crowd_limit:
                self._turn_away(self._weakest(origin), "crowded")
            outer.setblocking(False)
            outer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            visit = _Visit(outer, origin, time.monotonic() + self._patience)
            self._crowd[visit] = None
            self._counts[origin] += 1
            self._selector.register(outer, selectors.EVENT_READ, visit)

    def _weakest(self, origin: str) -> _Visit:
        """Who must make room for a caller from there."""
        most = origin if self._counts[origin] >= self._share else self._counts.most_common(1)[0][0]
        theirs = [visit for visit in self._crowd if visit.origin == most]
        return next((visit for visit in theirs if visit.inner is None), theirs[0])

    def _serve(self, visit: _Visit, side: socket.socket, mask: int) -> None:
        try:
            if mask & selectors.EVENT_WRITE:
                self._flush(visit, side)
            if mask & selectors.EVENT_READ and not visit.ending:
                if visit.inner is None:
                    self._listen_to(visit)
                else:
                    self._carry(visit, side)
        except BlockingIOError:
            pass
        except OSError:
            if side is visit.outer:
                self._note_failure(visit, True)
            self._end(visit)
        except Exception:  # one connection's trouble is not the others'
            log.exception("the door: a connection from %s", visit.origin)
            self._end(visit)

    def _listen_to(self, visit: _Visit) -> None:
        """Wait for a whole TLS record, then bring the caller to gRPC."""
        data = visit.outer.recv(RECORD - len(visit.early))
        visit.early += data
        if not data:
            self._end(visit)
        elif _is_whole(visit.early):
            visit.inner = inner = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            inner.setblocking(False)
            inner.bind("")  # the system gives it a name, by which gRPC knows it
            visit.name = f"unix-abstract:{inner.getsockname()[1:].decode()}"
            self._names[visit.name] = visit
            inner.connect(f"/proc/self/fd/{self._inner}")
            self._selector.register(inner, selectors.EVENT_READ, visit)
            visit.handshake.said(first := bytes(visit.early), True)
            self._send(visit, inner, first)
            visit.early.clear()

    def _carry(self, visit: _Visit, side: socket.socket) -> None:
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

    def _note_failure(self, visit: _Visit, by_caller: bool) -> None:
        """Say why a connection ended before its caller could speak, if that can be known."""
        if not visit.served and (reason := visit.handshake.failure(by_caller)):
            self._refused(reason)
            log.warning("refused a caller from %s: %s", visit.origin, reason)

    def _send(self, visit: _Visit, to: socket.socket, data: bytes | memoryview) -> None:
        """Send, or keep the rest and read no more of it until that is sent."""
        try:
            sent = to.send(data)
        except BlockingIOError:
            sent = 0
        if sent < len(data):
            visit.unsent[to.fileno()] = bytes(data[sent:])
            self._interest(visit)

    def _flush(self, visit: _Visit, to: socket.socket) -> None:
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

    def _interest(self, visit: _Visit) -> None:
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
        visit.served = True
        self._leave_crowd(visit)
        visit.neighbour = neighbour
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

    def _leave_crowd(self, visit: _Visit) -> None:
        if visit in self._crowd:
            del self._crowd[visit]
            self._counts[visit.origin] -= 1
            if not self._counts[visit.origin]:
                del self._counts[visit.origin]

    def _turn_away(self, visit: _Visit, reason: str) -> None:
        if not visit.neighbour or reason == "replaced":
            self.turned_away[reason] += 1
            self._refused(AWAY[reason])
        with contextlib.suppress(OSError):  # at once: what waits in buffers is of no use to anybody
            visit.outer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._end(visit)

    def _end(self, visit: _Visit) -> None:
        self._leave_crowd(visit)
        self._parting.pop(visit, None)
        self._names.pop(visit.name, None)
        if visit in (places := self._known.get(visit.neighbour, [])):
            places.remove(visit)
        for side in (visit.outer, visit.inner):
            if side is not None and side.fileno() >= 0:
                with contextlib.suppress(KeyError, ValueError):
                    self._selector.unregister(side)
                side.close()
