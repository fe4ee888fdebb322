"""Where callers wait until they have said whom they want: however many come, each address has its share of the room.

A thread accepts connections and reads from each no more than a whole first TLS record. It holds a bounded number of
them, in all and for each address; whoever comes when it is full takes the place of another: of the address with most of
them, silent ones first, the oldest first. So an address can fill only its own share, and a caller with something to say
always gets in. Nobody stays beyond a deadline. What becomes of those who have spoken is for `door` and `host` to say.
"""

from __future__ import annotations

import abc
import contextlib
import errno
import ipaddress
import logging
import resource
import selectors
import socket
import struct
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from coterie.deploy.handshake import Handshake
from coterie.errors import InputError
from coterie.names import host_and_port

__all__ = ["EACH", "LOOK", "PER_NEIGHBOUR", "RECORD", "SPARE", "WANTED", "Hall", "Visit", "crowd_limit",
           "listening_sockets", "server_name"]  # fmt: skip

SPARE = 128  # descriptors that are nobody's: for the ledger, the log, the compiler, outgoing calls
WANTED = 4096  # descriptors to ask the system for
CROWD = 256  # places of those who are not known, at most
PER_NEIGHBOUR = 4  # connections: the one in use, the one that takes over, a probe, and one to spare
EACH = 3  # descriptors of a connection: its own, and both ends of the Unix socket
BURST = 64  # connections accepted before the others are served
LOOK = 0.25  # seconds between two looks at the deadlines
RECORD = 5 + (1 << 14)  # header and content of the longest first record
ABSENT = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}  # a family of addresses that this machine does not have
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
    """Sockets that listen at every address that "host:port" stands for here: of a name with both families, at both.

    One that this machine does not have is passed over, if it has another.
    """
    host, port = host_and_port(address)
    found: list[socket.socket] = []
    missing: OSError | None = None
    try:
        for family, _, _, _, place in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE):
            try:
                found.append(socket.create_server(place, family=family, backlog=1024))  # type: ignore[arg-type]
                found[-1].setblocking(False)
            except OSError as error:
                if error.errno not in ABSENT:
                    raise
                missing = error
        if not found and missing is not None:
            raise missing
    except OSError as error:
        for one in found:
            one.close()
        raise InputError(
            f"cannot listen at {address}: in use, or not an address of this machine ({error.strerror})"
        ) from None
    return found


def origin_of(place: tuple) -> str:
    """Whom a connection counts for: an address, and of IPv6 the network that one owner has."""
    address = ipaddress.ip_address(place[0].partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        return str(address.ipv4_mapped or ipaddress.ip_network((address, 64), strict=False))
    return str(address)


def is_whole(early: bytes | bytearray) -> bool:
    """Whether a first TLS record is complete, or will never be one: then whoever gets it refuses it."""
    if early[0] != 22 or len(early) >= RECORD:
        return True
    return len(early) >= 5 and len(early) >= 5 + struct.unpack_from(">H", early, 3)[0]


def server_name(early: bytes | bytearray) -> str:
    """The name that a TLS client asks for in its first record; empty if it asks for none, or speaks otherwise.

    >>> server_name(b"GET / HTTP/1.1")
    ''
    """
    try:
        if early[0] != 22 or early[5] != 1:
            return ""
        at = 5 + 4 + 2 + 32  # record, handshake, version, random
        at += 1 + early[at]  # session
        at += 2 + struct.unpack_from(">H", early, at)[0]  # ciphers
        at += 1 + early[at]  # compressions
        end = at + 2 + struct.unpack_from(">H", early, at)[0]
        at += 2
        while at + 4 <= end:
            kind, size = struct.unpack_from(">HH", early, at)
            if kind == 0:  # of its list the first name, which is a host's
                length = struct.unpack_from(">H", early, at + 7)[0]
                name = bytes(early[at + 9 : at + 9 + length])
                return name.decode("ascii").lower() if early[at + 6] == 0 and len(name) == length else ""
            at += 4 + size
    except (IndexError, struct.error, UnicodeDecodeError):
        pass
    return ""


@dataclass(eq=False)
class Visit:
    """One connection and, at a door, once it has spoken, its way to gRPC."""

    outer: socket.socket
    origin: str
    deadline: float
    early: bytearray = field(default_factory=bytearray)
    inner: socket.socket | None = None
    name: str = ""  # what gRPC calls it
    neighbour: str = ""
    unsent: dict[int, bytes] = field(default_factory=dict)  # what a side could not take yet, by its descriptor
    ending: bool = False
    served: bool = False  # gRPC has let it speak
    handshake: Handshake = field(default_factory=Handshake)

    def other(self, side: socket.socket) -> socket.socket | None:
        """The other end of what is carried."""
        return self.inner if side is self.outer else self.outer


class Hall(abc.ABC):
    """Accepts connections and hears their first words. All work is done in one thread of its own.

    Args:
        sockets: listening (`listening_sockets`), or of datagrams that hand over connections (`host`).
        places: how many may wait.
        share: how many of them from one address.
        patience: seconds that one may wait.

    Attributes:
        turned_away: how many connections lost their place, by reason.
    """

    def __init__(self, sockets: list[socket.socket], places: int, share: int, patience: float):
        self._listening, self._patience = sockets, patience
        self._crowd_limit, self._share = places, share
        self._crowd: dict[Visit, None] = {}  # oldest first
        self._counts: Counter[str] = Counter()  # of the crowd, by origin
        self.turned_away: Counter[str] = Counter()
        self._orders: deque[Callable[[], None]] = deque()
        self._bell, self._ear = socket.socketpair()
        self._ear.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._open, self._look = True, 0.0
        self._thread = threading.Thread(target=self._run, name="door", daemon=True)

    def start(self) -> None:
        """Begin to accept."""
        for one in self._listening:
            self._selector.register(one, selectors.EVENT_READ)
        self._selector.register(self._ear, selectors.EVENT_READ)
        self._thread.start()

    def close(self) -> None:
        """End everything."""
        self._order(self._stop)
        self._thread.join()

    # ---- what is done with those who have spoken ----

    @abc.abstractmethod
    def _bring(self, visit: Visit) -> None:
        """A whole first record is in `visit.early`: take the caller on, or end the visit."""

    def _talk(self, visit: Visit, side: socket.socket, mask: int) -> None:
        """There is something to read or to write on a side of one that was brought inside; a host brings nobody."""
        self._end(visit)

    def _guests(self) -> Iterable[Visit]:
        """Those outside the crowd."""
        return ()

    def _late(self, now: float) -> list[Visit]:
        return [visit for visit in self._crowd if visit.deadline <= now]

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
        for visit in [*self._crowd, *self._guests()]:
            self._end(visit)
        self._selector.close()
        for one in (*self._listening, self._bell, self._ear):
            one.close()

    def _idle(self) -> bool:
        """Whether there is nothing to look after but what the selector reports."""
        return not self._crowd

    def _turn(self) -> None:
        for key, mask in self._selector.select(timeout=None if self._idle() else LOOK):
            if key.data is None:
                self._knock(key.fileobj)  # type: ignore[arg-type]
            elif key.data.outer.fileno() >= 0:  # may have lost its place in this very turn
                self._serve(key.data, key.fileobj, mask)  # type: ignore[arg-type]
        while self._orders:
            self._orders.popleft()()
        if (now := time.monotonic()) >= self._look:
            self._look = now + LOOK
            self._look_around(now)

    def _look_around(self, now: float) -> None:
        for late in self._late(now):
            self._turn_away(late, "late")

    def _knock(self, listening: socket.socket) -> None:
        if listening is self._ear:
            self._ear.recv(4096)
            return
        take = self._handed if listening.type == socket.SOCK_DGRAM else self._accepted
        for _ in range(BURST):
            try:
                outer, place, early = take(listening)
            except BlockingIOError:
                return
            except OSError:  # out of descriptors after all: those who wait go first
                if self._crowd:
                    self._turn_away(next(iter(self._crowd)), "crowded")
                time.sleep(0.01)
                return
            if outer is not None:
                self._enter(outer, origin_of(place), early)

    @staticmethod
    def _accepted(listening: socket.socket) -> tuple[socket.socket | None, tuple, bytes]:
        return *listening.accept(), b""

    @staticmethod
    def _handed(listening: socket.socket) -> tuple[socket.socket | None, tuple, bytes]:
        """A connection that another process has accepted, and what was said on it."""
        early, descriptors, _, _ = socket.recv_fds(listening, RECORD, 1)
        if not descriptors:
            return None, (), b""
        outer = socket.socket(fileno=descriptors[0])
        try:
            return outer, outer.getpeername(), early
        except OSError:  # has hung up meanwhile
            outer.close()
            return None, (), b""

    def _enter(self, outer: socket.socket, origin: str, early: bytes) -> None:
        while self._counts[origin] >= self._share or len(self._crowd) >= self._crowd_limit:
            self._turn_away(self._weakest(origin), "crowded")
        outer.setblocking(False)
        outer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        visit = Visit(outer, origin, time.monotonic() + self._patience, bytearray(early))
        self._crowd[visit] = None
        self._counts[origin] += 1
        self._selector.register(outer, selectors.EVENT_READ, visit)
        if early:
            self._guarded(visit, lambda: self._hear(visit))

    def _weakest(self, origin: str) -> Visit:
        """Who must make room for a caller from there."""
        most = origin if self._counts[origin] >= self._share else self._counts.most_common(1)[0][0]
        theirs = [visit for visit in self._crowd if visit.origin == most]
        return next((visit for visit in theirs if visit.inner is None), theirs[0])

    def _serve(self, visit: Visit, side: socket.socket, mask: int) -> None:
        if visit.inner is None:
            self._guarded(visit, lambda: self._listen_to(visit))
        else:
            self._guarded(visit, lambda: self._talk(visit, side, mask))

    def _guarded(self, visit: Visit, what: Callable[[], None]) -> None:
        try:
            what()
        except BlockingIOError:
            pass
        except OSError:
            self._end(visit)
        except Exception:  # one connection's trouble is not the others'
            log.exception("the door: a connection from %s", visit.origin)
            self._end(visit)

    def _listen_to(self, visit: Visit) -> None:
        data = visit.outer.recv(RECORD - len(visit.early))
        visit.early += data
        if data:
            self._hear(visit)
        else:
            self._end(visit)

    def _hear(self, visit: Visit) -> None:
        if is_whole(visit.early):
            self._bring(visit)

    # ---- places ----

    def _leave_crowd(self, visit: Visit) -> None:
        if visit in self._crowd:
            del self._crowd[visit]
            self._counts[visit.origin] -= 1
            if not self._counts[visit.origin]:
                del self._counts[visit.origin]

    def _turn_away(self, visit: Visit, reason: str) -> None:
        if not visit.neighbour or reason == "replaced":
            self.turned_away[reason] += 1
        with contextlib.suppress(OSError):  # at once: what waits in buffers is of no use to anybody
            visit.outer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._end(visit)

    def _end(self, visit: Visit) -> None:
        self._leave_crowd(visit)
        for side in (visit.outer, visit.inner):
            if side is not None and side.fileno() >= 0:
                with contextlib.suppress(KeyError, ValueError):
                    self._selector.unregister(side)
                side.close()
