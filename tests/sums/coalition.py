"""What a coalition that sees every wire has in hand, and a round for it to attack."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from coterie.sums.messages import Partial, Step, SumFrame
from coterie.sums.secrets import Context, layer_seed, pair_mask, self_mask, walk
from coterie.sums.store import Charge, Key, MemoryStore
from coterie.sums.words import Words, subtract, to_signed
from tests.sums.world import Ledger, Watched, World, terms_of

TERMS = terms_of(5, 1, ring=False)
SLOT = 0


class Loose(Ledger):
    """A ledger that lets anything be written again."""

    def commit(self, puts: Mapping[Key, object], erase: Iterable[Key] = (), charge: Charge | None = None) -> None:
        for key in puts:
            self.rows.pop(key, None)
        MemoryStore.commit(self, puts, [key for key in erase if key[0] != "secret"], charge)


@cache
def dealt_batch() -> tuple[Ledger, ...]:
    world = World(TERMS, offers=0)
    assert world.run(lambda w: all(p.batch == 0 for p in w.live), most=5)
    return tuple(store.copy() for store in world.stores)


def prepared(make: type[Watched] = Watched, loose: bool = False, drop: Sequence[Step] = ()) -> World:
    """A round about to start in which party 0, who leads, belongs to the coalition; its frames `drop` are held back."""
    stores: list[Ledger] = []
    for store in dealt_batch():
        copy = Loose() if loose else Ledger()
        copy.rows, copy.charges, copy.commits = dict(store.rows), [], 0
        stores.append(copy)
    world = World(TERMS, stores, offers=0)
    world.make = make
    for i in range(5):
        world.start(i)
    world.cross = lambda to, frame: [] if frame.kind in drop and frame.sender == 0 else [(to, frame)]
    world.offers = 1
    for i in range(5):
        world._offer(i)
    return world


def wire(world: World, kind: Step) -> dict[int, list[SumFrame]]:
    """What everybody sent of a kind; the coalition sees every wire."""
    found: dict[int, dict[bytes, SumFrame]] = {}
    for _, frame in world.sent:
        if frame.kind is kind:
            found.setdefault(frame.sender, {})[frame.digest] = frame
    return {i: list(frames.values()) for i, frames in found.items()}


def words_of(world: World, i: int) -> list[Words]:
    """The masked vectors that a party showed."""
    return [Partial.read(frame.body, TERMS).words for frame in wire(world, Step.WORDS).get(i, [])]


def strip(world: World, i: int, a: bytes, link: bytes, level: int) -> NDArray[np.int64]:
    """What both secrets make of party i's words: its vector with the noise up to `level`."""
    party, where, last = world.live[0], Context(TERMS.plan, SLOT), TERMS.layers.last
    frame = wire(world, Step.WORDS)[i][0]
    start = Partial.read(frame.body, TERMS).start
    chain = walk(where, i, link, level, last)
    y = subtract(Partial.read(frame.body, TERMS).words, self_mask(where, i, chain[-1], TERMS.size))
    for j in party.members():
        if j != i:
            public = party.deal_of(0, j).public[SLOT][:32]
            y = subtract(y, pair_mask(where, i, a, j, public, start, TERMS.size))
    total = to_signed(y)
    for k in range(level + 1, last + 1):
        total = total - TERMS.layers.read(k, layer_seed(where, i, chain[k - 1 - level], k), TERMS.size)
    return total
