"""Secret sums between parties of one process: sealed envelopes over a full mesh, or hop by hop over a sparse graph.

On a graph that is not complete, envelopes follow public shortest routes. A relay sees headers and sealed bodies only;
it can drop an envelope, which ends as a drop-out, but neither read nor change it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coterie.errors import InputError
from coterie.exchange.channels import Channels, Keys
from coterie.exchange.members import member
from coterie.exchange.sums import Aborted, Member, Opened, SumPart, SumTerms
from coterie.exchange.wire import Envelope, Kind
from coterie.graphs import Graph

__all__ = ["Post", "Routes", "Seat", "make_seats", "one_round"]


class Seat:
    """A member with sealed channels to all others: what it says leaves as envelopes, what it hears comes in them."""

    def __init__(self, link: Channels, who: Member) -> None:
        if who.terms.parties != link.parties:
            raise InputError(f"the encoding is for {who.terms.parties} parties, the roster has {link.parties}")
        self.link, self.member = link, who

    def share(self, number: int, values: ArrayLike, noise: NDArray[np.int64] | None = None) -> list[Envelope]:
        """Sum `number` begins with these numbers, and with noise in grid steps on them."""
        return self._sealed(self.member.share(number, self.member.terms.code.encode(values, noise)))

    def proceed(self) -> list[Envelope]:
        """The next message round."""
        return self._sealed(self.member.proceed())

    def receive(self, envelope: Envelope) -> None:
        """Take an envelope in, or raise `Rejected` with the reason."""
        self.member.expects(envelope.round, envelope.sender, envelope.kind)
        self.member.take(envelope.round, envelope.sender, envelope.kind, self.link.open(envelope))

    def result(self) -> Opened:
        """The sum, or `Aborted`."""
        return self.member.result()

    def _sealed(self, parts: Iterable[SumPart]) -> list[Envelope]:
        return [
            self.link.seal(j, self.member.number, part.kind, part.body)
            for part in parts
            for j in (self.member.others if part.receiver is None else (part.receiver,))
        ]


class Routes:
    """Shortest public routes of a connected graph: the same for everybody who knows the graph.

    >>> from coterie.graphs import make_graph
    >>> Routes(make_graph("path", 4)).path(0, 3)
    [0, 1, 2, 3]
    """

    def __init__(self, graph: Graph) -> None:
        if not graph.connected:
            raise InputError(f"the {graph.kind} graph of {graph.size} nodes is not connected: shares cannot be relayed")
        import scipy.sparse as sp
        from scipy.sparse.csgraph import shortest_path

        lengths = np.ones(len(graph.indices))
        links = sp.csr_array((lengths, graph.indices, graph.indptr), shape=(graph.size, graph.size))
        before = shortest_path(links, unweighted=True, return_predecessors=True)[1]
        self._next = before.T  # the graph is undirected: the last step of j → i reversed is the first of i → j

    def next_hop(self, at: int, to: int) -> int:
        """Where an envelope for `to` goes from `at`."""
        return int(self._next[at, to])

    def path(self, start: int, to: int) -> list[int]:
        """All nodes from `start` to `to`."""
        found = [start]
        while found[-1] != to:
            found.append(self.next_hop(found[-1], to))
        return found


class Post:
    """Carries envelopes as bytes between parties. `sent[i]`: bytes that node i put on a link, its own or relayed.

    `lost` parties neither receive nor relay. With `keep`, `views[i]` holds every envelope that node i saw pass or
    received.
    """

    def __init__(self, seats: Sequence[Seat], graph: Graph | None = None, *, keep: bool = False) -> None:
        if graph is not None and graph.size != len(seats):
            raise InputError(f"the graph has {graph.size} nodes but there are {len(seats)} parties")
        self.seats, self.keep, self.lost = seats, keep, set[int]()
        self.routes = None if graph is None else Routes(graph)
        self.sent = np.zeros(len(seats), np.int64)
        self.views: list[list[Envelope]] = [[] for _ in seats]

    def deliver(self, envelopes: Iterable[Envelope]) -> None:
        """Bring every envelope to its receiver, unless it or a relay on the way is lost."""
        for envelope in envelopes:
            data, at = envelope.pack(), envelope.sender
            while at != envelope.receiver:
                step = envelope.receiver if self.routes is None else self.routes.next_hop(at, envelope.receiver)
                self.sent[at] += len(data)
                if step in self.lost:
                    break
                at = step
                if self.keep:
                    self.views[at].append(Envelope.unpack(data))
            else:
                self.seats[at].receive(Envelope.unpack(data))


def make_seats(terms: SumTerms, size: int, *, seeds: bool = True, plan: bytes | None = None) -> list[Seat]:
    """Seats of one process with fresh keys, for sums of `size` numbers."""
    plan = os.urandom(32) if plan is None else plan
    keys = [Keys() for _ in range(terms.parties)]
    roster = [k.public for k in keys]
    return [
        Seat(Channels(plan, i, k, roster), member(terms, i, size, seeds=seeds)) for i, k in enumerate(keys)
    ]  # fmt: skip


def one_round(
    post: Post,
    number: int,
    values: Sequence[ArrayLike],
    *,
    noise: Sequence[NDArray[np.int64]] | None = None,
    lost: Mapping[Kind, Collection[int]] | None = None,
) -> dict[int, Opened | Aborted]:
    """A whole sum: what each party that is still there opened, or why it did not.

    `lost`: who vanishes after which message round, e.g. {Kind.SHARE: [3]} for one that dies between shares and sums.
    """
    ended: dict[int, Opened | Aborted] = {}
    for kind in post.seats[0].member.kinds:
        envelopes: list[Envelope] = []
        for i, seat in enumerate(post.seats):
            if i in post.lost or i in ended:
                continue
            try:
                if kind is Kind.SHARE:
                    envelopes += seat.share(number, values[i], None if noise is None else noise[i])
                else:
                    envelopes += seat.proceed()
            except Aborted as reason:
                ended[i] = reason
        post.deliver(envelopes)
        post.lost.update((lost or {}).get(kind, ()))
    for i, seat in enumerate(post.seats):
        if i not in post.lost and i not in ended:
            try:
                ended[i] = seat.result()
            except Aborted as reason:
                ended[i] = reason
    return dict(sorted(ended.items()))
