"""[run]: how long, how often, and who is away when."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from coterie.settings import Count, Settings

__all__ = ["RunPlan"]


def _forward(span: tuple[int, int]) -> tuple[int, int]:
    if span[0] > span[1]:
        raise ValueError(f"the span of rounds {list(span)} ends before it begins")
    return span


Span = Annotated[tuple[Count, Count], AfterValidator(_forward)]


class RunPlan(Settings):
    """[run] How long, how often."""

    rounds: int | None = Field(
        None, ge=1, le=10**7, description="rounds; default: the algorithm's own rule from public sizes"
    )
    seeds: int = Field(1, ge=1, le=10**4, description="independent repetitions")
    seed: int = Field(0, ge=0, description="first seed")
    every: int | None = Field(None, ge=1, description="measure every so many rounds; default: about 50 times")
    dtype: Literal["float64", "float32"] = Field("float64", description="float32 is faster and only for trials")
    references: Literal["none", "alone", "pooled", "all"] = Field(
        "all", description="what to compare with: every party alone, all records in one place, both or nothing"
    )
    splits: int = Field(
        1, ge=1, le=10**3, description="train/test splits over which parties are judged, each with all seeds"
    )
    metric: Literal["accuracy", "auc", "log-loss", "r2", "loss"] | None = Field(
        None, description="what parties are judged by; default: accuracy, AUC where one of two classes is rare, R²"
    )
    away: dict[str, Annotated[list[Span], Field(min_length=1)]] = Field(
        default_factory=dict,
        description="who is away when, a public list: by a party's name or number, spans [first, last] of rounds, "
        "counted from 1, in which it neither speaks nor hears; simulation only ([leaving and joining](stragglers.md))",
    )
    covered: bool = Field(
        False,
        description="also release accuracy, AUC and calibration on everybody's held-out records, with noise, at the "
        "plan's budget: a record pays for the run or for these ([covered scores](scores.md))",
    )
    specificity: float = Field(0.9, gt=0, lt=1, description="at which the recall of two classes is reported")
