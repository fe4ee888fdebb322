"""Altered sums and keys: found on the real core, let through by planted twins."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from coterie.sums import opening, rounds
from coterie.sums.core import Outgoing
from coterie.sums.messages import Step, SumFrame
from coterie.sums.words import MODULUS, Words, add, dot, to_signed
from tests.sums.coalition import TERMS, dealt_batch
from tests.sums.test_blame import Liar
from tests.sums.world import Watched, World, keys_of

# ---- altered sums ----------------------------------------------------------------------------------------------------


class Blind(Watched):
    def adds_up(self, value: SumFrame) -> bool | None:
        return True


def with_liar(make: type[Watched], error: Callable[[], NDArray[np.uint64]]) -> World:
    class Adds(Liar):
        def disjoint(self, start: SumFrame, allowed: set[int]) -> tuple[list[SumFrame], Words, set[int]]:
            chosen, total, members = Watched.disjoint(self, start, allowed)
            return chosen, add(total, error()), members

    world = World(TERMS, [store.copy() for store in dealt_batch()], offers=0)
    for i in range(5):
        world.make = Adds if i == 2 else make
        world.start(i)
    world.offers = 1
    for i in range(5):
        world._offer(i)
    assert world.run(lambda w: w.at(1), most=20)
    return world


def test_an_altered_partial_sum_is_found() -> None:
    def error() -> NDArray[np.uint64]:
        return np.array([0, 2**40, 0], np.uint64)

    twin = with_liar(Blind, error)
    wrong = twin.live[0].total(0)
    assert wrong is not None
    assert np.array_equal(to_signed(wrong) - twin.honest_sum(twin.live[0], 0), [0, 2**40, 0])
    assert twin.live[0].finished[0].checked  # and the step is taken
    real = with_liar(Watched, error)
    assert all(set(party.named) == {2} for party in real.live)


def test_the_coin_does_not_exist_before_the_words(monkeypatch: pytest.MonkeyPatch) -> None:
    real_coin = rounds.coin
    one, two = ([int(x) for x in w] for w in real_coin(bytes(32), 3))

    def blind_to_it() -> NDArray[np.uint64]:
        """An error that both functionals of a coin known before miss: their cross product."""
        cross = [
            (one[(k + 1) % 3] * two[(k + 2) % 3] - one[(k + 2) % 3] * two[(k + 1) % 3]) % MODULUS for k in range(3)
        ]
        return np.array(cross, np.uint64)

    for module in (rounds, opening):
        monkeypatch.setattr(module, "coin", lambda value, size: real_coin(bytes(32), size))
    twin = with_liar(Watched, blind_to_it)
    assert twin.live[0].finished[0].checked
    total = twin.live[0].total(0)
    assert total is not None
    assert not np.array_equal(to_signed(total), twin.honest_sum(twin.live[0], 0))
    monkeypatch.undo()
    real = with_liar(Watched, blind_to_it)
    assert all(set(party.named) == {2} for party in real.live)


def test_an_error_of_half_the_modulus_does_not_escape() -> None:
    omega = [rounds.coin(bytes([k]) * 32, 1)[0] for k in range(200)]
    escaped = sum(int(w[0]) * 2**63 % 2**64 == 0 for w in omega)
    assert 60 < escaped < 140  # modulo 2^64, every second functional misses 2^63
    error = np.array([MODULUS // 2], np.uint64)
    assert all(dot(w, error) for w in omega)


# ---- relays ----------------------------------------------------------------------------------------------------------


def test_a_relay_cannot_change_or_replace_keys() -> None:
    world = World(TERMS, offers=1)
    mallory = keys_of(77)[1].public_key().public_bytes_raw()

    def swap(to: int, frame: SumFrame) -> list[Outgoing]:
        if frame.kind is Step.KEYS and frame.sender == 1 and to == 0:
            return [(to, SumFrame(frame.plan, frame.kind, 1, frame.round, 0, frame.slot, mallory, frame.signature))]
        return [(to, frame)]

    world.cross = swap
    assert world.run(lambda w: w.at(1), most=60)
    assert world.parties[0] is not None
    assert world.parties[0].dropped >= 1
    assert all(frame.body != mallory for key in world.stores[0].keys("keys") if (frame := world.stores[0].rows[key]))
    world.check()
