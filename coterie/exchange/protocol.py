"""Running secret sums between party objects of one process: a full mesh, or hop by hop over a sparse graph.

On a graph that is not complete, envelopes follow public shortest routes. A relay sees headers and sealed bodies only;
it can drop an envelope, which ends as a drop-out, but neither read nor change it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coterie.errors import InputError
from coterie.exchange.channels import Keys, Link
from coterie.exchange.fixed_point import FixedPoint
from coterie.exchange.masks import ThresholdParty
from coterie.exchange.parties import Aborted, AdditiveParty, Opened, Party
from coterie.exchange.wire import Envelope
from coterie.graphs import Graph

__all__ = ["Post", "Routes", "make_parties", "one_round"]


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

    def __init__(self, parties: Sequence[Party], graph: Graph | None = None, *, keep: bool = False) -> None:
        if graph is not None and graph.size != len(parties):
            raise InputError(f"the graph has {graph.size} nodes but there are {len(parties)} parties")
        self.parties, self.keep, self.lost = parties, keep, set[int]()
        self.routes = None if graph is None else Routes(graph)
        self.sent = np.zeros(len(parties), np.int64)
        self.views: list[list[Envelope]] = [[] for _ in parties]

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
                self.parties[at].receive(Envelope.unpack(data))


def make_parties(
    count: int,
    size: int,
    *,
    fraction_bits: int = 24,
    bound: float = 2.0**20,
    reach: int = 0,
    threshold: int | None = None,
    seeds: bool = True,
    plan: bytes | None = None,
) -> list[Party]:
    """Parties of one process with fresh keys, for sums of `size` numbers."""
    plan, code = os.urandom(32) if plan is None else plan, FixedPoint(count, fraction_bits, bound, reach)
    keys = [Keys() for _ in range(count)]
    roster = [k.public for k in keys]
    links = [Link(plan, i, k, roster) for i, k in enumerate(keys)]
    if threshold is None:
        return [AdditiveParty(link, code, size, seeds=seeds) for link in links]
    return [ThresholdParty(link, code, size, threshold) for link in links]


def one_round(
    post: Post,
    number: int,
    values: Sequence[ArrayLike],
    *,
    noise: Sequence[NDArray[np.int64]] | None = None,
    lost: Mapping[str, Collection[int]] | None = None,
) -> dict[int, Opened | Aborted]:
    """A whole round: what each party that is still there opened, or why it did not.

    `lost`: who vanishes after which step, e.g. {"share": [3]} for a party that dies between shares and sums.
    """
    lost = lost or {}
    if bad := set(lost) - {"share", "sums", "unmask"}:
        raise InputError(f"a party is lost after share, sums or unmask, not after {min(bad)!r}")
    failed: dict[int, Opened | Aborted] = {}

    def step(name: str) -> None:
        envelopes: list[Envelope] = []
        for party in post.parties:
            if party.me in post.lost or party.me in failed:
                continue
            try:
                if name == "share":
                    extra = None if noise is None else noise[party.me]
                    envelopes += party.share(number, values[party.me], extra)
                else:
                    envelopes += getattr(party, name)()
            except Aborted as reason:
                failed[party.me] = reason
        post.deliver(envelopes)
        post.lost.update(lost.get(name, ()))

    for name in ("share", "sums", "unmask"):
        if name != "unmask" or isinstance(post.parties[0], ThresholdParty):
            step(name)
    for party in post.parties:
        if party.me not in post.lost and party.me not in failed:
            try:
                failed[party.me] = party.result()
            except Aborted as reason:
                failed[party.me] = reason
    return dict(sorted(failed.items()))
