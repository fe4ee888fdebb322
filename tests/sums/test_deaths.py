"""Deaths between any two steps: where enough stay, the sum of the set opens exactly; else nothing does."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from functools import cache

import networkx as nx
import pytest

from coterie.sums.terms import SharedTerms
from tests.sums.world import Ledger, World, terms_of

Death = tuple[int, int, str]  # party, transaction of the round, and whether before it, after it or half sent


@cache
def dealt(n: int, c: int, dropouts: int | None = None) -> tuple[tuple[Ledger, ...], tuple[int, ...]]:
    """Ledgers after a batch was dealt, and how many transactions each party then makes in one round."""
    terms = terms_of(n, c, dropouts)
    world = World(terms, offers=0)
    assert world.run(lambda w: all(p.batch == 0 for p in w.live), most=5)
    stores = tuple(store.copy() for store in world.stores)
    counted = World(terms, [store.copy() for store in stores], offers=1)
    assert counted.run(lambda w: w.at(1), most=5)
    counted.check()
    return stores, tuple(now.commits - before.commits for now, before in zip(counted.stores, stores, strict=True))


def deaths(n: int, c: int, modes: tuple[str, ...] = ("before", "after", "half")) -> list[Death]:
    _, steps = dealt(n, c)
    return [(i, k, mode) for i in range(n) for k in range(1, steps[i] + 1) for mode in modes]


def play(n: int, c: int, plan: tuple[Death, ...], back: bool) -> World:
    """A round in which these parties die; if `back`, they return after a while."""
    stores, _ = dealt(n, c)
    copies = [store.copy() for store in stores]
    world = World(terms_of(n, c), copies, offers=1)
    for i, k, mode in plan:
        if mode == "half":
            world.half[i] = copies[i].commits + k
        else:
            copies[i].fuse = (copies[i].commits + k, mode)
    enough = n - len(plan) >= max(world.terms.threshold, world.terms.least)
    opened = world.run(lambda w: w.at(1), most=150 if enough else 15)
    world.check()
    assert opened or not enough, f"{plan}: enough parties live, and the round does not open"
    if back:
        for store, (i, _, _) in zip([copies[i] for i, _, _ in plan], plan, strict=True):
            store.fuse = None
            world.half.pop(i, None)
            if world.parties[i] is None:
                world.start(i)
        assert world.run(lambda w: w.at(1), most=300), f"{plan}: everybody is back, and the round does not open"
        assert len(world.live) == n
        world.check()
    return world


def test_every_single_death() -> None:
    for death in deaths(5, 1):
        play(5, 1, (death,), back=death[2] != "half")


def test_some_pairs_of_deaths() -> None:
    pairs = [p for p in itertools.combinations(deaths(5, 1, ("after",)), 2) if p[0][0] != p[1][0]]
    for pair in pairs[::29]:
        play(5, 1, pair, back=True)


@pytest.mark.slow
def test_every_pair_of_deaths() -> None:
    for pair in itertools.combinations(deaths(5, 1), 2):
        if pair[0][0] != pair[1][0]:
            play(5, 1, pair, back=True)


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2])
def test_deaths_of_eight(size: int) -> None:
    some = deaths(8, 1, ("before", "after", "half")) if size == 1 else deaths(8, 1, ("after",))
    for plan in itertools.combinations(some, size):
        if len({i for i, _, _ in plan}) == size:
            play(8, 1, plan, back=False)


@pytest.mark.parametrize("seed", range(2))
def test_twenty_parties_lose_five(seed: int) -> None:
    twenty(seed)


@pytest.mark.slow
def test_twenty_parties_lose_five_again_and_again() -> None:
    for seed in range(2, 60):
        twenty(seed)


def twenty(seed: int) -> None:
    """c = 9, t = 15, D = 5 on a random 4-regular graph; five die at random steps, and the sum opens all the same."""
    terms, stores = twenty_dealt()
    rng = random.Random(seed)
    world = World(terms, [store.copy() for store in stores], offers=1)
    for i in rng.sample(range(20), 5):
        world.stores[i].fuse = (world.stores[i].commits + rng.randint(1, 5), rng.choice(["before", "after"]))
    assert world.run(lambda w: w.at(1), most=600)
    world.check()


@cache
def twenty_dealt() -> tuple[SharedTerms, tuple[Ledger, ...]]:
    graph = nx.random_regular_graph(4, 20, seed=1)
    terms = replace(terms_of(20, 9), neighbours=tuple(tuple(sorted(graph[i])) for i in range(20)))
    assert (terms.threshold, terms.dropouts) == (15, 5)
    world = World(terms, offers=0)
    assert world.run(lambda w: all(p.batch == 0 for p in w.live), most=5)
    return terms, tuple(store.copy() for store in world.stores)
