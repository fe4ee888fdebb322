"""`coterie` as it is, but everything a party hands to a link is written to a file too: $COTERIE_TAP/PID.

The connections themselves are encrypted, so this is where bytes that leave can be read. What it draws is kept in
$COTERIE_DRAWN/PID, where that is set. With $COTERIE_LEAK=state or
=frame it is a broken twin: a party of secret sums whose records go into its ledger, or into a frame. With =key
it is one that logs what it shares with its neighbours.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from coterie.algorithms.base import Law
from coterie.deploy.calls import Calls
from coterie.deploy.party import Party
from coterie.deploy.transport import Link


class Tapped:
    """A link that notes what is written to it."""

    def __init__(self, link: Link):
        self._link = link

    async def read(self) -> bytes | None:
        return await self._link.read()

    async def write(self, data: bytes) -> None:
        with (Path(os.environ["COTERIE_TAP"]) / str(os.getpid())).open("ab") as file:
            file.write(data)
        await self._link.write(data)


def tap() -> None:
    """From now on every link is tapped."""
    plain = Calls.converse

    async def converse(self: Calls[Any], link: Link, peer: Any) -> None:
        await plain(self, Tapped(link), peer)

    Calls.converse = converse  # type: ignore[method-assign]


def note_draws(folder: Path) -> None:
    """From now on every draw is kept in a folder too, so that a test can give a simulation the same ones."""
    from coterie.deploy.noise import SystemSource
    from tests.deploy.recorded_agent import keep_draws

    plain = SystemSource.draw

    def draw(self: SystemSource, round: int, laws: Mapping[str, Law]) -> dict[str, Any]:
        drawn = plain(self, round, laws)
        folder.mkdir(parents=True, exist_ok=True)
        keep_draws(folder, round, drawn)
        return drawn

    SystemSource.draw = draw  # type: ignore[method-assign]


def records_of(party: Party) -> bytes:
    """All that a party holds of its records."""
    return b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(party.shard))


def leak_into_state() -> None:
    """From now on what a party of secret sums goes on from holds its records."""
    from coterie.deploy.shared import SharedCarry, SharedParty

    plain = SharedParty.pack

    def pack(self: SharedParty, carry: SharedCarry) -> list[memoryview]:
        return [*plain(self, carry), memoryview(records_of(self))]

    SharedParty.pack = pack  # type: ignore[method-assign]


def leak_into_frame() -> None:
    """From now on a party of secret sums says with its last word what its records are."""
    from coterie.deploy.sum_agent import SumAgent
    from coterie.sums.core import Outgoing
    from coterie.sums.messages import Step
    from coterie.sums.party import SumParty

    held: dict[int, bytes] = {}
    begin, say = SumAgent.__init__, SumParty.say_done

    def init(self: SumAgent, *arguments: Any, **options: Any) -> None:
        begin(self, *arguments, **options)
        held[self.party.node] = records_of(self.party)

    def say_done(self: SumParty, now: float) -> list[Outgoing]:
        return [(to, self.frame(Step.DONE, 0, body=held[self.me])) for to, _ in say(self, now)]

    SumAgent.__init__ = init  # type: ignore[method-assign]
    SumParty.say_done = say_done  # type: ignore[method-assign]


def log_secrets() -> None:
    """From now on a party says in its log what it shares with its neighbours."""
    from coterie.deploy.journal import log
    from coterie.deploy.pairs import PairSecrets

    plain = PairSecrets.total

    def total(self: PairSecrets, *arguments: Any) -> Any:
        log.warning("secrets: %s", [secret.hex() for secret in self._agreed.values()])
        return plain(self, *arguments)

    PairSecrets.total = total  # type: ignore[method-assign]


LEAKS = {"": lambda: None, "state": leak_into_state, "frame": leak_into_frame}
"""Of records."""

if __name__ == "__main__":
    from coterie.cli import main

    tap()
    if drawn := os.environ.get("COTERIE_DRAWN"):
        note_draws(Path(drawn) / str(os.getpid()))
    (LEAKS | {"key": log_secrets})[os.environ.get("COTERIE_LEAK", "")]()
    sys.exit(main())
