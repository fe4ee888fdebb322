"""Callbacks: what a run says of itself while it goes on, and which of that may leave home."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

__all__ = ["COVERED", "Callback", "Moment", "tell_end", "watcher"]

COVERED = ("consensus_gap", "test_score", "time")
"""Curves that are functions of released models and of public records; one on parties' own records is not."""


@dataclass(frozen=True)
class Moment:
    """What was measured after a round.

    `covered` are functions of what was released, which ε pays for (nothing, if the run is not private). `home` is
    computed from the records without noise, as the training loss is: it stays with whoever holds them.
    """

    name: str
    round: int
    rounds: int
    covered: dict[str, float] = field(default_factory=dict)
    home: dict[str, float] = field(default_factory=dict)


Callback = Callable[[Moment], object]


def watcher(
    callbacks: Sequence[Callback], name: str, rounds: int, covered: Collection[str]
) -> Callable[[int, dict[str, float]], None] | None:  # fmt: skip
    """What a driver calls with every measurement; `covered` names those that ε pays for.

    What callbacks return is not looked at: none can end a run.
    """
    if not callbacks:
        return None

    def watch(round: int, curves: dict[str, float]) -> None:
        paid = {key: value for key, value in curves.items() if key in covered}
        home = {key: value for key, value in curves.items() if key not in paid}
        for callback in callbacks:
            callback(Moment(name, round, rounds, paid, home))

    return watch


def tell_end(callbacks: Sequence[Callback], run: object) -> None:
    """Callbacks that have a `finish` are told how it ended."""
    for callback in callbacks:
        finish = getattr(callback, "finish", None)
        if finish is not None:
            finish(run)
