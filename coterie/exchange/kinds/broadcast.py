"""Broadcast: every neighbour gets every message as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie import settings
from coterie.exchange.statement import Claim, Statement

if TYPE_CHECKING:
    from coterie.exchange.choice import Exchange

__all__ = ["Settings", "make", "statement"]


class Settings(settings.Settings):
    """None."""


def make(settings: Settings, size: int) -> Exchange:
    """The exchange."""
    from coterie.exchange.choice import Broadcast

    return Broadcast()


def statement(settings: Settings, size: int, claim: Claim | None, paid: str | None) -> Statement:
    """What it promises: nothing."""
    return Statement("broadcast", None, 0.0, "every neighbour gets every message", "Nothing is hidden", ())
