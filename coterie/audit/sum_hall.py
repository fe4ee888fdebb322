"""All parties of a secret sum in one process, of whom some may be away and some collude. See `coterie.audit.sums`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.typing import NDArray

from coterie.audit.sum_worlds import SumWorlds
from coterie.deploy.sharing import sealing_key
from coterie.sums.core import Outgoing
from coterie.sums.party import SumParty
from coterie.sums.store import Charge, Key, MemoryStore, SumStore
from coterie.sums.terms import SharedTerms

__all__ = ["Hoard", "SumHall", "SumSeat"]

TICKS = 4000  # looks at the clock after which a round counts as stuck


class Hoard(MemoryStore):
    """A ledger that erases no secret and no share: a colluder's."""

    def commit(self, puts: Mapping[Key, object], erase: Iterable[Key] = (), charge: Charge | None = None) -> None:
        """One transaction."""
        super().commit(puts, [key for key in erase if key[0] not in ("secret", "shares", "words", "deal")], charge)


class SumSeat(SumParty):
    """A party whose layers of noise are written down where they are drawn, by slot: what a colluder knows of itself."""

    def __init__(
        self, terms: SharedTerms, me: int, signing: Ed25519PrivateKey, sealing: X25519PrivateKey, store: SumStore
    ) -> None:
        super().__init__(terms, me, signing, sealing, store)
        self.drawn: dict[int, list[NDArray[np.int64]]] = {}

    def draw_layers(self, round_: int, slot: int, chain: Sequence[bytes]) -> list[NDArray[np.int64]]:
        """As ever."""
        self.drawn[slot] = layers = super().draw_layers(round_, slot, chain)
        return layers


class SumHall:
    """All parties on a network that loses everything from and to those who are `away`."""

    def __init__(self, worlds: SumWorlds, runs: int):
        self.terms, self.now = worlds.terms(runs), 0.0
        self.away: set[int] = set()
        self.queue: deque[Outgoing] = deque()
        self.seats = [
            SumSeat(self.terms, i, keys.frame_key, sealing_key(keys), Hoard()) for i, keys in enumerate(worlds.keys)
        ]
        for seat in self.seats:
            self._send(seat.me, seat.begin(self.now))
        self.settle(lambda: all(seat.ready and seat.batch == 0 for seat in self.seats))

    def _send(self, sender: int, out: Iterable[Outgoing]) -> None:
        if sender not in self.away:
            self.queue.extend(out)

    def settle(self, done: Callable[[], bool], look: Callable[[], None] = lambda: None) -> None:
        """Deliver frames and let time pass until something is so."""
        for _ in range(TICKS):
            while self.queue:
                to, frame = self.queue.popleft()
                if to not in self.away:
                    self._send(to, self.seats[to].handle(frame, self.now))
                look()
            if done():
                return
            self.now += self.terms.patience / 64
            for seat in self.seats:
                self._send(seat.me, seat.tick(self.now))
            look()
        stuck = {seat.me: seat.stuck or seat.refusal for seat in self.seats if seat.stuck or seat.refusal}
        raise RuntimeError(f"a sum does not open: {stuck or 'no reason'}")

    def open(self, t: int, vectors: Sequence[NDArray[np.float64]], away: Iterable[int]) -> None:
        """Round t of the sum, without those who are away."""
        self.away = set(away)
        here = [seat for seat in self.seats if seat.me not in self.away]

        def offer() -> None:
            for seat in here:
                if seat.round == t and seat.vector is None and seat.outcome(t) is None:
                    self._send(seat.me, seat.give_vector(vectors[seat.me], self.now))

        offer()
        self.settle(lambda: all(seat.outcome(t) is not None for seat in here), offer)
