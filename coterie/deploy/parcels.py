"""What waits to be handed on: parcels, the room that they take, and the neighbours that they wait for. See `post`."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from coterie.deploy.peers import Peer

__all__ = ["Copy", "Line", "Parcel", "Recalled", "Relay", "Room"]

PACKETS, HASTE = 5000.0, 4.0  # packets that a neighbour may bring in a second, and seconds' worth after a pause
REMEMBERED = 1 << 12  # packets, of each neighbour and of those handed over


@dataclass(eq=False)
class Room:
    """What waits here for one neighbour's sake."""

    most: int = 0  # bytes that may wait to be handed on …
    spare: int = 0  # … and to be received here, before these count too
    freed: Callable[[], None] = lambda: None
    used: int = 0
    mail: int = 0
    held: dict[Parcel, None] = field(default_factory=dict)  # to be handed on, oldest first

    @property
    def left(self) -> int:
        """How much more may come."""
        return self.most - self.used - max(self.mail - self.spare, 0)


@dataclass(eq=False)
class Parcel:
    """A payload on its way, which may have parted into several."""

    identity: bytes
    payload: bytes
    room: Room
    size: int  # what it counts for in its room
    since: float  # when it came
    copies: int = 1


class Copy(NamedTuple):
    """A parcel for some of its receivers."""

    parcel: Parcel
    to: int
    hops: int


@dataclass(eq=False)
class Line:
    """One connection: what was sent and not taken yet, what was received and how much of it the other end knows."""

    flying: deque[Copy] = field(default_factory=deque)
    spent: int = 0  # of the allowance
    allowed: int = 0
    taken: int = 0  # packets
    got: int = 0
    got_size: int = 0
    reads: float = 0.0  # when what was received may all have come
    told: tuple[int, int] = (0, 0)  # packets taken here, and the other's allowance
    due: bool = True  # to tell it …
    rests: bool = False  # … or in a moment

    def pause(self, packets: int) -> float:
        """Seconds after which to read on, now that so many packets more have come."""
        now = time.monotonic()
        self.reads = max(self.reads, now - HASTE) + packets / PACKETS
        return max(self.reads - now, 0.0)


class Recalled(OrderedDict[tuple[bytes, int], int]):
    """Packets that came, and for whom: the last few of them."""

    def recall(self, key: tuple[bytes, int], to: int) -> int:
        """The receivers that this packet has come for before; remembers those that it comes for now."""
        before = self.get(key, 0)
        self[key] = before | to
        while len(self) > REMEMBERED:
            self.popitem(last=False)
        return before


@dataclass(eq=False)
class Relay(Peer):
    """A neighbour to which packets are handed."""

    line: Line = field(default_factory=Line)
    room: Room = field(default_factory=Room)  # of what it brings
    queues: OrderedDict[Room, deque[Copy]] = field(default_factory=OrderedDict)
    seen: Recalled = field(default_factory=Recalled)  # what it brought, and for whom
    news: dict[int, None] = field(default_factory=dict)  # authors of notices that it has not been told
    ready: bool = False  # it has room for packets, or had a while ago

    def allowance(self, line: Line) -> int:
        """How much it may have sent over a connection in all."""
        return max(line.told[1], line.got_size + self.room.left)

    def put(self, copy: Copy) -> None:
        """Let a copy wait for its turn."""
        self.queues.setdefault(copy.parcel.room, deque()).append(copy)
        self.wake.set()

    def pop(self, but: Room | None = None) -> Copy | None:
        """The copy whose turn it is: each room's in turn, but for one."""
        while room := next((room for room in self.queues if room is not but), None):
            copy = self.queues[room].popleft()
            self.queues.move_to_end(room)
            if not self.queues[room]:
                del self.queues[room]
            if copy.parcel in room.held:
                return copy
        return None

    def unpop(self, copy: Copy) -> None:
        """Put a copy back to where it was."""
        room = copy.parcel.room
        self.queues.setdefault(room, deque()).appendleft(copy)
        self.queues.move_to_end(room, last=False)
