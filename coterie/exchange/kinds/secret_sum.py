"""Secret sum: nobody gets a message; everybody gets the sum over all agents."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from coterie import settings
from coterie.exchange.fixed_point import FRACTION_BITS, FixedPoint
from coterie.exchange.statement import Claim, Statement

if TYPE_CHECKING:
    from coterie.exchange.choice import SecretSum
    from coterie.exchange.sums import SumTerms

__all__ = ["BOUND", "Settings", "make", "statement", "terms"]

BOUND = 1024.0
"""Far beyond the numbers of a model, and float64 is exact enough below it on a grid of 2^-24."""


class Settings(settings.Settings):
    """The grid of the sum, who must answer, who may collude, and what its budget pays for."""

    bound: float = Field(
        BOUND,
        gt=0,
        json_schema_extra={"earlier": [2.0**20]},
        description="largest absolute value of a number in a message; others are cut",
    )
    fraction_bits: int | None = Field(
        None,
        ge=0,
        le=62,
        json_schema_extra={"earlier": [FRACTION_BITS]},
        description="the grid of the sum is 2^-fraction_bits; default: the finest on which the noise of sums can be "
        f"drawn, {FRACTION_BITS} where none is priced",
    )
    threshold: int | None = Field(
        None, ge=2, description="parties that must answer, more than half of parties and colluders; none: all of them"
    )
    honest: int | None = Field(
        None, ge=2, description="so many parties are honest, the others may collude; default: all but two may"
    )
    noise: Literal["local", "central"] = Field(
        "local", description="what the budget pays for: every message, or ('central') the opened sums under `honest`"
    )
    retries: int | None = Field(
        None,
        ge=0,
        description="with central noise: masked vectors beyond one per round that a party may send in the whole run "
        "before it stops; default: 4 + rounds // 8",
    )

    away: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="simulation only: the chance that a party is left out of a round, of no more parties at once than "
        "the threshold lets be missing",
    )

    @model_validator(mode="after")
    def _possible(self) -> Settings:
        if self.noise == "central" and self.honest is None:
            raise ValueError("noise = 'central' needs exchange.honest, the number of honest parties")
        if self.threshold is not None and self.honest is None:
            raise ValueError(
                f"threshold = {self.threshold} needs exchange.honest: how many may collude decides how many must answer"
            )
        if self.away and self.threshold is None:
            raise ValueError(f"away = {self.away:g} needs exchange.threshold: without one everybody must answer")
        if self.retries is not None and self.noise == "local":
            raise ValueError(
                f"retries = {self.retries} belongs to noise = 'central': with local noise a message that is sent again "
                "is the same, and costs nothing more"
            )
        return self


def terms(settings: Settings, parties: int, rounds: int = 0) -> SumTerms:
    """What the parties agree on, in a run of so many rounds."""
    from coterie.exchange.sums import SumTerms

    shared = settings.noise == "central"
    room = max(0, math.floor(60 - math.log2(parties * settings.bound)))
    bits = min(FRACTION_BITS, room) if settings.fraction_bits is None else settings.fraction_bits
    retries = (4 + rounds // 8 if settings.retries is None else settings.retries) if shared else 0
    code = FixedPoint(parties, bits, settings.bound)
    return SumTerms(code, settings.honest, settings.threshold, retries, shared)


def make(settings: Settings, size: int) -> SecretSum:
    """The exchange."""
    from coterie.exchange.choice import SecretSum

    return SecretSum.of(terms(settings, size), settings.away)


def statement(settings: Settings, size: int, claim: Claim | None, paid: str | None) -> Statement:
    """What it promises."""
    return terms(settings, size).statement(claim, paid=paid)
