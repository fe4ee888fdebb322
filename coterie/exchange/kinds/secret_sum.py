"""Secret sum: nobody gets a message; everybody gets the sum over all agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from coterie import settings
from coterie.exchange.fixed_point import BOUND, FRACTION_BITS
from coterie.exchange.statement import Claim, Statement

if TYPE_CHECKING:
    from coterie.exchange.choice import SecretSum

__all__ = ["Settings", "make", "statement"]


class Settings(settings.Settings):
    """The grid of the sum, who must answer, and what its budget pays for."""

    bound: float = Field(BOUND, gt=0, description="largest absolute value of a number in a message; others are cut")
    fraction_bits: int = Field(FRACTION_BITS, ge=0, le=62, description="the grid of the sum is 2^-fraction_bits")
    threshold: int | None = Field(
        None, ge=3, description="agents that must answer; none: all of them, or the round is lost"
    )
    honest: int | None = Field(
        None, ge=2, description="also say what the opened sums cost if so many agents are honest"
    )
    noise: Literal["local", "central"] = Field(
        "local", description="what the budget pays for: every message, or ('central') the opened sums under `honest`"
    )

    @model_validator(mode="after")
    def _possible(self) -> Settings:
        if self.noise == "central" and self.honest is None:
            raise ValueError("noise = 'central' needs exchange.honest, the number of honest agents")
        return self


def make(settings: Settings, size: int) -> SecretSum:
    """The exchange."""
    from coterie.exchange.central import check_honest
    from coterie.exchange.choice import SecretSum

    exchange = SecretSum(size, settings.fraction_bits, settings.bound, settings.threshold)
    if settings.honest is not None:
        check_honest(settings.honest, exchange)
    return exchange


def statement(settings: Settings, size: int, claim: Claim | None, paid: str | None) -> Statement:
    """What it promises."""
    return make(settings, size).terms.statement(claim, paid=paid)
