"""A neighbour as connections know it and as rounds of frames do, and what neighbours tell each other about a third."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import NamedTuple

from coterie.deploy.agreement import Agreement
from coterie.deploy.frames import BadFrame, Receipt

__all__ = ["Correspondent", "Peer", "Rumour", "Rumours"]

RUMOURS = 256  # that wait to be told to one neighbour; the oldest are dropped
CLAIMS = 1024  # rumours that wait for the frame they are about


class Rumour(NamedTuple):
    """Which frame a party has received from another: the frame's own signature proves it."""

    node: int
    receipt: Receipt


@dataclass(eq=False)
class Peer:
    """A neighbour, whatever is said to it."""

    name: str
    node: int
    wake: asyncio.Event = field(default_factory=asyncio.Event)  # there may be something to write
    tasks: tuple[asyncio.Task, ...] = ()  # of the connection in use
    trouble: str = ""  # why it is not connected
    expires: dt.datetime | None = None  # its certificate, as last shown
    delay: float = 0.0  # before dialling it again
    offences: int = 0
    blocked_until: float = 0.0
    process: bytes = b""  # which of its processes is connected …
    seats: int = 0  # … by how many connections: a new one of the same process takes over from the old

    def sit(self, process: bytes, until: ExitStack) -> bool:
        """Let one process of the neighbour in, until the stack is closed; False while another one is in."""
        if self.seats and self.process != process:
            return False
        self.process, self.seats = process, self.seats + 1
        until.callback(self.rise)
        return True

    def rise(self) -> None:
        """A connection has ended."""
        self.seats -= 1

    def cut(self) -> None:
        """End the connection in use."""
        for task in self.tasks:
            task.cancel()
        self.tasks = ()


@dataclass(eq=False)
class Correspondent(Peer):
    """A neighbour with which rounds of frames are exchanged."""

    news: asyncio.Event = field(default_factory=asyncio.Event)  # a receipt came
    theirs: Receipt | None = None  # what it has of mine
    waiting: int = 0  # its frames that the agent has not pulled yet
    due: bool = False  # it should hear now what is kept here …
    rests: bool = False  # … or in a moment, with what is kept until then
    digests: dict[int, Receipt] = field(default_factory=dict)  # of its latest frames: what it has signed
    rumours: deque[Rumour] = field(default_factory=lambda: deque(maxlen=RUMOURS))  # what to tell it of others' frames
    told: dict[str, int] = field(default_factory=dict)  # the last round that it told of each other neighbour


class Rumours:
    """Compares what neighbours that hear each other have received from a third one.

    Args:
        agreement: who hears whom.
        peers: this party's neighbours.
        accuse: called with a neighbour that has signed two frames for one round, what it did, and both receipts.
    """

    def __init__(self, agreement: Agreement, peers: Mapping[str, Correspondent], accuse: Callable[..., None]):
        self._agreement, self._peers, self._accuse = agreement, peers, accuse
        around = {name: agreement.neighbours(name) for name in peers}
        self._common = {x: [peers[y] for y in peers if y in around[x]] for x in peers}
        self._claims: dict[tuple[str, int], tuple[str, Receipt]] = {}  # about frames that are not here yet

    def arrived(self, peer: Correspondent, receipt: Receipt) -> None:
        """A frame came: those who hear the same neighbour are told with the next message to them."""
        for other in self._common[peer.name]:
            other.rumours.append(Rumour(peer.node, receipt))
        teller, claim = self._claims.pop((peer.name, receipt.round), ("", receipt))
        if claim.digest != receipt.digest and self._is_proven(peer, claim):
            self._name(peer, receipt, claim, teller)

    def hear(self, teller: Correspondent, rumour: Rumour) -> bool:
        """Compare a rumour with what came here; False if its teller has told as much before, BadFrame if it lies."""
        receipt, parties = rumour.receipt, self._agreement.parties
        about = self._peers.get(parties[rumour.node].name) if rumour.node < len(parties) else None
        if about is None or teller not in self._common[about.name]:
            raise BadFrame(f"tells of node {rumour.node}, which is no business of ours")
        if receipt.round <= teller.told.get(about.name, -1):
            return False
        teller.told[about.name] = receipt.round
        mine = about.digests.get(receipt.round)
        if mine is None:
            if receipt.round > next(reversed(about.digests)) and len(self._claims) < CLAIMS:
                self._claims[about.name, receipt.round] = teller.name, receipt
        elif mine.digest != receipt.digest:
            if not self._is_proven(about, receipt):
                raise BadFrame(f"invents a frame of {about.name} for round {receipt.round}")
            self._name(about, mine, receipt, teller.name)
        return True

    def _is_proven(self, about: Correspondent, receipt: Receipt) -> bool:
        return receipt.proven(self._agreement.frame_keys[about.node], self._agreement.plan_hash, about.node)

    def _name(self, liar: Correspondent, mine: Receipt, theirs: Receipt, teller: str) -> None:
        self._accuse(
            liar, f"signed two frames for round {mine.round}: one came here, another to {teller}", mine, theirs
        )
