"""How frames travel, as an agent sees it, whatever the wire: push, pull, receipt.

`Transport` is the interface. `courier.Courier` is all of it except the wire; `grpc_transport` and `memory` are wires.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from coterie.deploy.frames import Frame, Receipt

__all__ = ["AHEAD", "Incoming", "Link", "NeighbourKnowsMore", "Outbox", "Timing", "Transport"]

AHEAD = 4  # rounds beyond the one asked for that are taken in

Outbox = Callable[[int], bytes | None]


class NeighbourKnowsMore(Exception):
    """A neighbour holds a frame that this party signed and its ledger does not know: it must not send anything."""


class Incoming(NamedTuple):
    """A frame as it reaches the agent. `data` is exactly what arrived."""

    sender: str
    round: int
    frame: Frame
    data: bytes


@dataclass(frozen=True)
class Timing:
    """Seconds, all by the monotonic clock.

    Attributes:
        hello: within which a connection must be greeted.
        age: after which a connection is renewed, and with it the check of certificates.
        retry: shortest and longest wait before dialling again.
        receipt: within which news of what was stored goes to the sender; of the last round it goes at once.
        keepalive: between signs of life on an idle connection.
        route: for which a packet waits for a way to its receiver (`post`).
    """

    hello: float = 10.0
    age: float = 600.0
    retry: tuple[float, float] = (0.05, 10.0)
    receipt: float = 0.5
    keepalive: float = 20.0
    route: float = 10.0


class Link(Protocol):
    """A connection to one neighbour: whole messages, in order, until it ends."""

    async def read(self) -> bytes | None:
        """The next message; None when the other end is gone."""

    async def write(self, data: bytes) -> None:
        """Send a message; waits while the other end does not read."""


class Transport(Protocol):
    """What an agent needs of the network."""

    @property
    def alive(self) -> dict[str, bool]:
        """Whether each neighbour is connected and greeted just now."""

    @property
    def trouble(self) -> dict[str, str]:
        """Why each neighbour that is not connected is not, as far as known."""

    async def start(self) -> None:
        """Begin to listen and to dial."""

    async def push(self, round: int, frame: bytes) -> None:
        """Hand the own frame of a round, durable already, to every neighbour; returns once queued."""

    async def pull(self, since: int, now: int | None = None, until: float = math.inf, enough: int = 1) -> Incoming:
        """The next frame of a round ≥ since from any neighbour; each (sender, round) comes at most once.

        One that is here is handed over in any case. If none is, this waits for `enough` of them; at `until`, by the
        monotonic clock, what is here will do, and a TimeoutError says that nothing is.

        `now` is the round that the agent is in (default: since): frames are taken in up to `AHEAD` rounds beyond it.
        An agent that can use late messages asks pull(0, now=t), so that none is passed over.
        """

    async def receipt(self, neighbour: str, kept: int = -1) -> Receipt:
        """What a neighbour has of my frames (round −1: nothing); waits for its hello, or until it kept that round."""

    def kept(self, neighbour: str, round: int) -> None:
        """Say that a neighbour's frames up to this round are stored durably here."""

    async def close(self) -> None:
        """End all connections."""
