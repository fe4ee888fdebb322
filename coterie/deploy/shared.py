"""A party whose messages are opened only as the sum over all parties (`coterie.sums`): its turns, and what it keeps.

The plan's graph carries frames; the sum is over everybody. An algorithm's round is one opened sum:

    utter   the next message: with local noise the one that is charged, with shared noise the bare one, to which the
            sum's layers are added where it is rounded to the sum's grid and masked
    told    the opened sum of those who answered, scaled to all: × N/|S|. What the party goes on from is this sum and
            nothing of its own: own message + (sum − own message), equal to it but for the last bits of float64, which
            the price covers

With shared noise a message is a function of records and opened sums alone, so a party that stopped computes it again;
with local noise it is drawn once a round and kept with the first masked vector that it went into.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from coterie.algorithms.base import Law
from coterie.deploy.data import Records
from coterie.deploy.noise import Source
from coterie.deploy.party import Carry, Party
from coterie.deploy.sharing import Sharing
from coterie.deploy.work import Turns
from coterie.privacy.events import Event, Free
from coterie.sums.store import Charge

__all__ = ["SharedCarry", "SharedParty", "join"]


class SharedCarry(NamedTuple):
    """What a party takes from round to round."""

    inner: Carry  # `heard`: the sum of the others' messages
    value: np.ndarray  # the own message of round `when`
    when: np.ndarray  # −1 before the first


class SharedParty(Party):
    """One node of the sums."""

    def __init__(self, turns: Turns, records: Records, sharing: Sharing):
        super().__init__(turns, records)
        self.sharing = sharing

    def begin(self) -> SharedCarry:  # type: ignore[override]
        """Everything before the first round: data-free."""
        return SharedCarry(self.turns.first, np.zeros(self.count), np.array(-1))

    def utter(self, t: int, carry: SharedCarry, source: Source) -> SharedCarry:
        """The message of round t; the one that was made before, if it was."""
        if int(carry.when) == t:
            return carry
        draw = _bare(self.turns.laws) if self.sharing.central else source.draw(t, self.turns.laws)
        inner, values, _ = self.turn(t, carry.inner, draw)
        return SharedCarry(inner, values, np.array(t))

    def told(self, carry: SharedCarry, total: np.ndarray, answered: int) -> SharedCarry:
        """The carry after the sum of this round was opened over so many parties."""
        scaled = total if answered == self.turns.agents else total * (self.turns.agents / answered)
        inner = carry.inner._replace(heard=(scaled - carry.value,), when=carry.when[None])
        return SharedCarry(inner, carry.value, carry.when)

    def result(self, carry: SharedCarry) -> np.ndarray:
        """The model after the last opened sum."""
        return super().answer(carry.inner)

    def price(self, charge: Charge) -> Sequence[Event]:
        """What a masked vector costs: the round's events once; a further attempt opens nothing more."""
        return self.charges[charge.round] if charge.main else [Free()]

    def pack(self, carry: SharedCarry) -> list[memoryview]:  # type: ignore[override]
        """The carry as bytes of a fixed length."""
        return self._pack(carry)

    def unpack(self, data: bytes) -> SharedCarry:  # type: ignore[override]
        """The carry in such bytes."""
        return self._unpack(data, self.begin())


def _bare(laws: Mapping[str, Law]) -> dict[str, np.ndarray]:
    """Draws that put no noise on a message: it is added where the message is masked."""
    return {name: np.zeros(law.shape) for name, law in laws.items()}


def join(turns: Turns, records: Records) -> Party:
    """The party that the plan's exchange asks for."""
    return Party(turns, records) if turns.sharing is None else SharedParty(turns, records, turns.sharing)
