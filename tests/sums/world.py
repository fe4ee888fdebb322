"""Parties with the real core in one process, on a network that a test controls."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cache

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.typing import NDArray

from coterie.sums.core import Outgoing
from coterie.sums.messages import Answered, Step, SumFrame
from coterie.sums.noise import Layers, default_levels
from coterie.sums.party import SumParty
from coterie.sums.store import Charge, Key, MemoryStore
from coterie.sums.terms import SharedTerms, least_threshold
from coterie.sums.words import Code, to_signed

FRACTION_BITS = 16


class Killed(Exception):
    """A planned death."""


class Ledger(MemoryStore):
    """A store in memory that kills its party before or after its k-th transaction."""

    fuse: tuple[int, str] | None = None

    def commit(self, puts: Mapping[Key, object], erase: Iterable[Key] = (), charge: Charge | None = None) -> None:
        due = self.fuse is not None and self.commits + 1 == self.fuse[0]
        if due and self.fuse is not None and self.fuse[1] == "before":
            self.fuse = None
            raise Killed
        super().commit(puts, erase, charge)
        if due and self.fuse is not None and self.fuse[1] == "after":
            self.fuse = None
            raise Killed

    def copy(self) -> Ledger:
        other = Ledger()
        other.rows, other.charges, other.commits = dict(self.rows), list(self.charges), self.commits
        return other


@cache
def keys_of(i: int) -> tuple[Ed25519PrivateKey, X25519PrivateKey]:
    return (
        Ed25519PrivateKey.from_private_bytes(bytes([i + 1]) * 32),
        X25519PrivateKey.from_private_bytes(bytes([i + 101]) * 32),
    )


@cache
def terms_of(
    n: int, c: int, dropouts: int | None = None, size: int = 3, rounds: int = 2, spares: int = 4, ring: bool = True
) -> SharedTerms:
    t = least_threshold(n, c) if dropouts != 0 else n
    d = n - t if dropouts is None else dropouts
    layers = Layers(n, c, default_levels(d), Fraction(40_000 * n))
    around = tuple(tuple(sorted({(i - 1) % n, (i + 1) % n})) for i in range(n))
    full = tuple(tuple(j for j in range(n) if j != i) for i in range(n))
    return SharedTerms(
        plan=bytes([n, c]) * 16,
        colluders=c,
        threshold=t,
        dropouts=d,
        neighbours=around if ring else full,
        size=size,
        layers=layers,
        code=Code(n, FRACTION_BITS, 4.0, layers.reach),
        signing=tuple(keys_of(i)[0].public_key().public_bytes_raw() for i in range(n)),
        sealing=tuple(keys_of(i)[1].public_key().public_bytes_raw() for i in range(n)),
        rounds=rounds,
        spares=spares,
    )


def vector_of(i: int, round_: int, size: int) -> NDArray[np.float64]:
    return np.linspace(-1, 1, size) * (i + 1) / 8 + round_


class Watched(SumParty):
    """A party whose vector and noise a test writes down, to know what the sum must be."""

    drawn: dict[tuple[int, int], list[NDArray[np.int64]]]

    def draw_layers(self, round_: int, slot: int, chain: Sequence[bytes]) -> list[NDArray[np.int64]]:
        layers = super().draw_layers(round_, slot, chain)
        assert self.vector is not None
        self.drawn[self.me, slot] = [to_signed(self.terms.code.encode(self.vector)), *layers]
        return layers


Filter = Callable[[int, SumFrame], list[Outgoing]]


class World:
    """N parties; `cross` sees every frame on its way and says what arrives."""

    def __init__(self, terms: SharedTerms, stores: list[Ledger] | None = None, offers: int = 10**6) -> None:
        self.terms, self.now, self.offers = terms, 0.0, offers  # vectors are given for so many rounds
        self.stores = stores or [Ledger() for _ in range(terms.parties)]
        self.parties: list[SumParty | None] = [None] * terms.parties
        self.events: list[tuple[float, int, int, SumFrame]] = []
        self.order = itertools.count()
        self.cross: Filter = lambda to, frame: [(to, frame)]
        self.sent: list[Outgoing] = []
        self.liars: set[int] = set()
        self.half: dict[int, int] = {}  # a party that dies with this many frames of an answer sent
        self.make: Callable[..., SumParty] = Watched
        self.drawn: dict[tuple[int, int], list[NDArray[np.int64]]] = {}
        for i in range(terms.parties):
            self.start(i)

    def start(self, i: int) -> None:
        party = self.make(self.terms, i, *keys_of(i), self.stores[i])
        if isinstance(party, Watched):
            party.drawn = self.drawn
        self.parties[i] = party
        self._do(i, lambda: party.begin(self.now))
        self._offer(i)

    def _offer(self, i: int) -> None:
        party = self.parties[i]
        if party is not None and party.vector is None and party.round < self.offers:
            vector = vector_of(i, party.round, self.terms.size)
            self._do(i, lambda: party.give_vector(vector, self.now))

    def _do(self, i: int, act: Callable[[], list[Outgoing]]) -> None:
        try:
            out = act()
        except Killed:
            self.parties[i] = None
            return
        if i in self.half and self.stores[i].commits >= self.half[i]:
            del self.half[i]
            out = out[: len(out) // 2]
            self.parties[i] = None
        for to, frame in out:
            self.sent.append((to, frame))
            for where, what in self.cross(to, frame):
                heapq.heappush(self.events, (self.now + 0.01, next(self.order), where, what))

    def post(self, to: int, frame: SumFrame) -> None:
        heapq.heappush(self.events, (self.now + 0.01, next(self.order), to, frame))

    def kill(self, i: int) -> None:
        self.parties[i] = None

    def step(self) -> None:
        """Everything that arrives until the next tick, then the tick."""
        until = self.now + 0.25
        while self.events and self.events[0][0] <= until:
            self.now, _, to, frame = heapq.heappop(self.events)
            party = self.parties[to]
            if party is not None:
                self._do(to, lambda: party.handle(frame, self.now))  # noqa: B023
                self._offer(to)
        self.now = until
        for i, party in enumerate(self.parties):
            if party is not None:
                self._do(i, lambda: party.tick(self.now))  # noqa: B023
                self._offer(i)

    def honest_sum(self, party: SumParty, round_: int) -> NDArray[np.int64]:
        """What the total of a round must be: vectors and kept noise of the signed set."""
        value = party.known(party.row(("final", round_), bytes) or b"")
        members = Answered.read(value.body, self.terms).members
        kept = party.level(value) + 2
        return np.sum([part for i in members for part in self.drawn[i, value.slot][:kept]], axis=0)

    def check(self) -> None:
        """What must hold at any time."""
        given: dict[tuple[str, int], set[bytes]] = {}
        for _, frame in self.sent:
            if frame.sender in self.liars:
                continue
            if frame.kind is Step.SHARES:
                given.setdefault(("slot", frame.slot), set()).add(frame.body[:32])
                given.setdefault(("round", frame.round), set()).add(frame.body[:32])
            if frame.kind in (Step.COMMIT, Step.WORDS):
                paid = [c for c in self.stores[frame.sender].charges if c.round == frame.round]
                assert any(c.slot == frame.slot for c in paid), "words left that were not charged"
                assert sum(c.main for c in paid) == 1
        assert all(len(values) == 1 for values in given.values()), "shares under two sets"
        for i, party in enumerate(self.parties):
            for key in self.stores[i].keys("total"):
                if party is not None and self.stores[i].get(("checked", key[1])) is not False:
                    total, outcome = party.total(int(key[1])), party.outcome(int(key[1]))
                    assert total is not None
                    assert outcome is not None
                    assert len(outcome.members) >= self.terms.least, "a sum of fewer than may be summed is open"
                    assert np.array_equal(to_signed(total), self.honest_sum(party, int(key[1])))

    @property
    def live(self) -> list[SumParty]:
        return [party for party in self.parties if party is not None]

    def run(self, done: Callable[[World], bool], most: float = 400.0) -> bool:
        end = self.now + most
        while self.now < end:
            self.step()
            if done(self):
                return True
        return False

    def at(self, round_: int) -> bool:
        return all(party.round >= round_ for party in self.live)
