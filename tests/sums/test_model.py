"""The abstract protocol: nothing breaks under random and exhaustive schedules, and every planted fault is found."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from tests.sums.model import Broken, Cert, Committed, Finish, Opened, Promise, Set, Start, Vote, World


def one(seed: int, bugs: str = "") -> World:
    n = 4 + seed % 3
    world = World(n, seed // 3 % (n - 1), seed, bugs, lies=seed // 12 % 2 == 0)
    world.run((60, 150, 300)[seed % 3])
    return world


def first_found(bugs: str, most: int) -> str:
    for seed in range(most):
        try:
            one(seed, bugs)
        except Broken as found:
            return str(found)
    pytest.fail(f"{bugs} was not found in {most} schedules")


def test_random_schedules() -> None:
    opened = sum(len(one(seed).opened) for seed in range(600))
    assert opened > 200  # or the schedules would show nothing


@pytest.mark.slow
def test_many_random_schedules() -> None:
    for seed in range(600, 20_000):
        one(seed)


@pytest.mark.parametrize(
    ("bugs", "learned"),
    [
        ("one-slot", "masked two vectors"),  # 5: seeds reused
        ("own-count", "honest noise is left"),  # 6: level from the own count
        ("charge-late", "was not charged"),  # 7: charged at the vote
        ("on-request", "two sums are open"),  # 8: shares on request
        ("mask-twice", "masked two vectors"),  # 9: restart and a second vector
    ],
)
def test_a_planted_fault_is_found_by_random_schedules(bugs: str, learned: str) -> None:
    assert learned in first_found(bugs, 600)


# ---- attacks that a random schedule meets too seldom, as scripts -----------------------------------------------------


def two_sides(world: World) -> None:
    """A lying leader shows each side another set of one START and votes for both (attacks 1 and 2)."""
    start = Start(0, 0, (0, 0), ())
    world.send(start)
    world.hear(Start)
    sets = [Set(start, frozenset(m), tuple((i, start) for i in m)) for m in ((0, 1, 2, 3), (0, 1, 2, 4))]
    for frame, side in zip(sets, ((1, 2), (3, 4)), strict=True):
        if "vote-twice" in world.bugs:
            side = (1, 2, 3, 4)
        for i in side:
            world.receive(i, frame)
    for frame, side in zip(sets, ((1, 2, 3), (2, 3, 4)), strict=True):
        votes = {v.sender: v for v in world.pool[Vote] if v.value is frame} | {0: Vote(0, 0, 0, frame)}
        for i in side if world.t > 3 else side[:2] if frame is sets[0] else side[1:]:
            world.receive(i, Cert(frame, tuple(votes.values())))


def final_then_again(world: World) -> None:
    """t votes reach a lying leader, who opens the sum and is never heard of again (attacks 3 and 4)."""
    start = Start(0, 0, (0, 0), ())
    world.send(start)
    world.hear(Start)
    first = Set(start, frozenset(range(5)), tuple((i, start) for i in range(5)))
    for i in (1, 2, 3):
        world.receive(i, first)
    votes = [v for v in world.pool[Vote] if v.value is first]
    cert = Cert(first, (*votes, Vote(0, 0, 0, first)))
    for i in (1, 2, 3):
        world.receive(i, cert)
    world.net.clear()
    for ballot in range(1, 5):
        world.claim(ballot, range(1, 5))
        for kind in (Promise, Start, Finish, Committed):
            world.hear(kind)
        for node in world.nodes.values():
            world.timeout(node, step=False)
        for kind in (Start, Finish, Committed, Set, Vote, Cert):
            world.hear(kind)
        for node in world.nodes.values():
            world.timeout(node, step=False)
        for kind in (Set, Vote, Cert):
            world.hear(kind)


def old_words(world: World) -> None:
    """A slot left unopened in round 0 is started again in round 1 and filled with its old words (attack 18)."""
    world.nodes[0].alive = False  # ballot 0 of round 0 starts and stops
    world.hear(Start)
    world.claim(1, (0, 2, 3, 4))
    world.net.clear()
    left = Start(0, 1, (1, 0), (*world.pool[Promise], Promise(1, 0, 1, None, ())))
    world.send(left)  # the liar, 1, leads ballot 1: words are made, no set follows
    world.hear(Start)
    world.nodes[0].alive = True
    world.net.clear()
    for ballot in range(2, 7):
        world.claim(ballot, (0, 2, 3, 4))
        for _ in range(3):
            for kind in (Promise, Start, Finish, Committed, Set, Vote, Cert):
                world.hear(kind)
            for node in world.nodes.values():
                world.timeout(node, step=False)
    world.hear(Opened)
    assert {node.round for node in world.nodes.values()} == {1}
    again = Start(1, 0, (1, 0), ())
    if "no-slot-rule" not in world.bugs:
        assert not world.valid(again)
    world.send(again)
    world.hear(Start)
    members = sorted(i for i in range(5) if i == 1 or left in world.words[i, (1, 0)])
    filled = Set(again, frozenset(members), tuple((i, left) for i in members))
    world.send(filled)
    world.hear(Set)
    votes = [v for v in world.pool[Vote] if v.value is filled]
    world.send(Cert(filled, (*votes, Vote(1, 1, 0, filled))))
    world.hear(Cert)


def finished_after_fresh(world: World) -> None:
    """Ballot 0 gets one vote, ballot 1 starts fresh without that voter, ballot 2 finishes ballot 0 (attack 19)."""
    world.hear(Start)
    world.hear(Committed)
    world.hear(Set, to=(3,), drop=True)
    world.claim(1, (0, 1, 2))
    world.hear(Promise)
    world.timeout(world.nodes[1], step=False)
    world.hear(Start)
    world.nodes[1].alive = False
    world.net.clear()
    world.claim(2, (0, 2, 3))
    for _ in range(3):
        for kind in (Promise, Start, Finish, Committed, Set, Vote, Cert, Opened):
            world.hear(kind)
        for node in world.nodes.values():
            world.timeout(node, step=False)
    assert all((world.pool[Finish], world.pool[Cert]))
    if world.nodes[2].round == 0:
        raise Broken("a final set cannot be opened any more")


SCRIPTS = [
    # script, N, c, liars, faults that together let it through, what is then learned
    (two_sides, 5, 1, {0}, "small-quorum", "both secrets"),
    (two_sides, 5, 1, {0}, "vote-twice give-any", "both secrets"),
    (final_then_again, 5, 1, {0}, "vote-unstored per-slot", "two sums are open"),
    (final_then_again, 5, 1, {0}, "never-adopt per-slot", "two sums are open"),
    (old_words, 5, 1, {1}, "no-slot-rule", "two sums are open"),
    (finished_after_fresh, 4, 0, set(), "erase-early", "cannot be opened"),
]


def played(script: Callable[[World], None], n: int, c: int, liars: set[int], bugs: str) -> World:
    world = World(n, c, bugs=bugs, liars=frozenset(liars))
    if script in (two_sides, final_then_again):
        world.net.clear()
    script(world)
    world.check()
    return world


@pytest.mark.parametrize(("script", "n", "c", "liars", "bugs", "learned"), SCRIPTS)
def test_an_attack_succeeds_on_its_twin_only(
    script: Callable[[World], None], n: int, c: int, liars: set[int], bugs: str, learned: str
) -> None:
    with pytest.raises(Broken, match=learned):
        played(script, n, c, liars, bugs)
    played(script, n, c, liars, "")
    for mended in bugs.split():  # where two faults are needed, either rule alone is enough against this attack
        if len(bugs.split()) > 1 and mended != "vote-twice":
            played(script, n, c, liars, mended if mended in ("per-slot", "give-any") else "")


# ---- who hears what in two ballots, exhaustively ---------------------------------------------------------------------


def subsets(of: range, least: int = 0) -> list[tuple[int, ...]]:
    return [s for k in range(least, len(of) + 1) for s in itertools.combinations(of, k)]


def two_ballots(heard_set: tuple, counted: tuple, promised: tuple, heard_start: tuple, heard_last: tuple) -> World:
    world = World(4, 0, liars=frozenset())
    world.hear(Start)
    world.hear(Committed)
    world.hear(Set, heard_set, drop=True)
    world.hear(Vote)
    world.hear(Cert, counted, drop=True)
    world.net = [(j, m) for j, m in world.net if isinstance(m, Opened) and j in counted[:1]]
    for ballot in (1, 2):
        world.claim(ballot, promised if ballot == 1 else range(4))
        world.hear(Promise)
        world.timeout(world.nodes[ballot], step=False)
        for kind in (Start, Finish):
            world.hear(kind, heard_start if ballot == 1 else None, drop=True)
        world.hear(Committed)
        world.timeout(world.nodes[ballot], step=False)
        world.hear(Set, heard_last if ballot == 1 else None, drop=True)
        world.hear(Vote)
        world.check()
    world.quiet()
    return world


def schedules() -> itertools.product:
    four = range(4)
    enough = [(), *subsets(four, 3)]  # fewer than N − D answers are as good as none
    return itertools.product(subsets(four), subsets(four), subsets(four, 3), enough, enough)


@pytest.mark.slow
def test_two_ballots_sampled() -> None:
    opened = {len(two_ballots(*choice).opened) for choice in itertools.islice(schedules(), 0, None, 37)}
    assert min(opened) >= 1


@pytest.mark.slow
def test_two_ballots_exhaustively() -> None:
    for choice in schedules():
        assert len(two_ballots(*choice).opened) >= 1
