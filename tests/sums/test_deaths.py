"""Deaths between any two steps: where enough stay, the sum of the set opens exactly; else nothing does."""

from __future__ import annotations

import heapq
import itertools
import random
from dataclasses import replace
from functools import cache

import networkx as nx
import pytest

from coterie.sums.core import Outgoing
from coterie.sums.messages import SumFrame
from coterie.sums.terms import SharedTerms
from tests.sums.world import Filter, Ledger, World, terms_of
from tests.support import mostly_slow

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


def shuffled(world: World, seed: int) -> Filter:
    """A network on which frames overtake each other."""
    rng = random.Random(seed)

    def cross(to: int, frame: SumFrame) -> list[Outgoing]:
        heapq.heappush(world.events, (world.now + rng.choice([0.01, 0.1, 0.6]), next(world.order), to, frame))
        return []

    return cross


def play(n: int, c: int, plan: tuple[Death, ...], back: bool, shuffle: int | None = None) -> World:
    """A round in which these parties die; if `back`, they return after a while."""
    stores, _ = dealt(n, c)
    copies = [store.copy() for store in stores]
    world = World(terms_of(n, c), copies, offers=0)
    if shuffle is not None:
        world.cross = shuffled(world, shuffle)
    for i, k, mode in plan:
        if mode == "half":
            world.half[i] = copies[i].commits + k
        else:
            copies[i].fuse = (copies[i].commits + k, mode)
    world.offers = 1
    for i in range(n):
        world._offer(i)
    die_and_return(world, plan, back)
    return world


def die_and_return(world: World, plan: tuple[Death, ...], back: bool) -> None:
    """The round opens with those who live, if they are enough, and with all when they are back."""
    enough = world.terms.parties - len(plan) >= max(world.terms.threshold, world.terms.least)
    opened = world.run(lambda w: w.at(1), most=150 if enough else 15)
    world.check()
    first = next((party for party in world.live if party.batch >= 0), None)
    members = set(range(world.terms.parties)) if first is None else set(first.members())
    enough = enough and len(members & {party.me for party in world.live}) >= world.terms.least  # others hold no secrets
    assert opened or not enough, f"{plan}: enough parties live, and the round does not open"
    if not back:
        return
    for i, _, _ in plan:
        world.stores[i].fuse = None
        world.half.pop(i, None)
        if world.parties[i] is None:
            world.start(i)
    assert world.run(lambda w: w.at(1), most=300), f"{plan}: everybody is back, and the round does not open"
    assert len(world.live) == world.terms.parties
    world.check()


def pairs(some: list[Death]) -> list[tuple[Death, Death]]:
    return [(one, two) for one, two in itertools.combinations(some, 2) if one[0] != two[0]]


def test_every_single_death() -> None:
    for death in deaths(5, 1):
        play(5, 1, (death,), back=True)


@pytest.mark.parametrize("step", mostly_slow([1, 4], 4))
def test_single_deaths_while_frames_overtake_each_other(step: int) -> None:
    for seed, death in enumerate(deaths(5, 1)):
        if seed % step == 0:
            play(5, 1, (death,), back=True, shuffle=seed)


@pytest.mark.slow
def test_some_pairs_of_deaths() -> None:
    for seed, pair in enumerate(pairs(deaths(5, 1))[::97]):
        play(5, 1, pair, back=True, shuffle=seed if seed % 2 else None)


@pytest.mark.slow
@pytest.mark.parametrize("shuffle", [None, 1])
def test_every_pair_of_deaths(shuffle: int | None) -> None:
    for seed, pair in enumerate(pairs(deaths(5, 1))):
        play(5, 1, pair, back=True, shuffle=None if shuffle is None else seed)


@pytest.mark.slow
def test_some_deaths_of_eight() -> None:
    some = deaths(8, 1)
    for seed, plan in enumerate([*((death,) for death in some[::17]), *pairs(some)[::1200]]):
        play(8, 1, plan, back=True, shuffle=seed if seed % 2 else None)


@pytest.mark.slow
def test_every_single_death_of_eight() -> None:
    for seed, death in enumerate(deaths(8, 1)):
        for shuffle in (None, seed):
            play(8, 1, (death,), back=True, shuffle=shuffle)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(7))
@pytest.mark.parametrize("shuffle", [None, 1])
def test_every_pair_of_deaths_of_eight(first: int, shuffle: int | None) -> None:
    for seed, pair in enumerate(p for p in pairs(deaths(8, 1)) if p[0][0] == first):
        play(8, 1, pair, back=True, shuffle=None if shuffle is None else seed)


@pytest.mark.slow
def test_more_deaths_of_eight_than_may_be_missing() -> None:
    """Four of eight: nothing opens but a set that was agreed on, and all of it once they are back."""
    rng = random.Random(0)
    some = deaths(8, 1)
    for seed in range(300):
        parties = rng.sample(range(8), 4)
        plan = tuple(rng.choice([death for death in some if death[0] == i]) for i in parties)
        play(8, 1, plan, back=True, shuffle=seed if seed % 2 else None)


# ---- while secrets are dealt -----------------------------------------------------------------------------------------


@cache
def dealing(n: int, c: int) -> list[Death]:
    world = World(terms_of(n, c), offers=0)
    assert world.run(lambda w: all(p.batch == 0 for p in w.live), most=5)
    steps = [store.commits for store in world.stores]
    return [(i, k, mode) for i in range(n) for k in range(1, steps[i] + 1) for mode in ("before", "after")]


def deal(n: int, c: int, plan: tuple[Death, ...], shuffle: int | None = None) -> None:
    """These parties die while secrets are dealt, and come back."""
    stores = [Ledger() for _ in range(n)]
    for i, k, mode in plan:
        stores[i].fuse = (k, mode)
    world = World(terms_of(n, c), stores, offers=1)
    if shuffle is not None:
        world.cross = shuffled(world, shuffle)
    die_and_return(world, plan, back=True)


@pytest.mark.slow
def test_some_deaths_while_secrets_are_dealt() -> None:
    for seed, death in enumerate(dealing(5, 1)[::13]):
        deal(5, 1, (death,), seed if seed % 2 else None)


@pytest.mark.slow
def test_every_death_while_secrets_are_dealt() -> None:
    for death in dealing(5, 1):
        deal(5, 1, (death,))


@pytest.mark.slow
def test_many_pairs_of_deaths_while_secrets_are_dealt() -> None:
    for seed, pair in enumerate(pairs(dealing(5, 1))[::29]):
        deal(5, 1, pair, seed if seed % 2 else None)
    for seed, pair in enumerate(pairs(dealing(8, 1))[::601]):
        deal(8, 1, pair, seed if seed % 2 else None)


@pytest.mark.slow
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
