"""Quantized: every neighbour gets every message, rounded to few bits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from coterie import settings
from coterie.exchange.statement import Claim, Statement

if TYPE_CHECKING:
    from coterie.exchange.choice import Exchange

__all__ = ["Settings", "make", "statement"]


class Settings(settings.Settings):
    """The grid."""

    bits: int = Field(16, ge=1, le=32, description="bits per number")
    bound: float = Field(8.0, gt=0, description="largest absolute value of a number in a message; others are cut")
    rounding: Literal["stochastic", "nearest"] = Field("stochastic", description="unbiased, or half the worst error")


def make(settings: Settings, size: int) -> Exchange:
    """The exchange."""
    from coterie.exchange.choice import Quantized

    return Quantized(settings.bits, settings.bound, settings.rounding)


def statement(settings: Settings, size: int, claim: Claim | None, paid: str | None) -> Statement:
    """What it promises: nothing, at no price."""
    told = "Quantizing is post-processing: no price changes"
    return Statement("quantized", None, 0.0, "every neighbour gets every message", told, ())
