"""The TOML plan of a fairness study: which table, which codings, which methods at which budgets."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, Field, ValidationError, model_validator

from coterie.errors import InputError
from coterie.fair.methods import METHODS
from coterie.fair.printed import Repair
from coterie.settings import Positive, Settings, one_line
from coterie.written import read_tree

__all__ = ["CodingPlan", "FairData", "FairPlan", "FairRunPlan", "read_fair_plan"]


class FairData(Settings):
    """[data] Which table, which attribute is protected."""

    source: Literal["adult", "csv", "parquet"] = "adult"
    path: Path | None = Field(None, description="the table; for adult: where its files lie")
    label: str | None = Field(None, description="label column of a table (adult: income)")
    classes: list[str] | None = Field(None, description="the two labels, the second is the good outcome")
    protected: str = Field("sex", description="the protected attribute")
    bounds: dict[str, list] = Field(
        default_factory=dict, description="public bounds: column = [low, high] or column = [category, …]"
    )
    test_fraction: float = Field(0.2, gt=0, lt=1)

    @model_validator(mode="after")
    def _belongs(self) -> FairData:
        for name in ("label", "classes", "bounds"):
            if self.source == "adult" and getattr(self, name):
                raise ValueError(f"data.{name} belongs to data.source = 'csv' or 'parquet': adult has a code book")
        return self


class CodingPlan(Settings):
    """[codings.NAME] How columns become features."""

    coding: Literal["onehot", "ordinal"] = "onehot"
    norm: Literal["max", "unit"] = "max"
    centre: bool = True
    constant: bool = True
    leave_out: list[str] = Field(default_factory=list, description="columns that are not features")
    log: list[str] = Field(default_factory=list, description="numbers scaled by their logarithm")


class FairRunPlan(Settings):
    """[[runs]] One line of a table: a method with its settings, at every budget (ε and α may be inf)."""

    model_config = ConfigDict(allow_inf_nan=True)

    panel: str = Field("methods", description="table and picture in which it appears")
    label: str | None = None
    method: str = "adfc"
    coding: str = "ours"
    as_printed: bool = False
    repair: Repair = Field("ridge", description="as printed: what bounds a noisy objective")
    attribute: str | None = Field(None, description="column that gets `ratio` times the noise")
    ratio: float = Field(1.0, ge=1)
    penalty: float = Field(1.0, ge=0, description="α of the covariance penalty")
    over: Literal["one", "secret-sum", "consensus"] = Field("one", description="who holds the records")
    epsilons: list[Positive] | None = None
    deltas: list[float] | None = None
    printed: dict[str, list[float]] = Field(
        default_factory=dict, description="risk difference that the source prints: ε = [mean, std]"
    )

    @model_validator(mode="after")
    def _known(self) -> FairRunPlan:
        if self.method not in METHODS:
            raise ValueError(f"unknown method {self.method!r}: expected one of {', '.join(METHODS)}")
        how, given = METHODS[self.method], self.model_fields_set
        if self.attribute is None and self.ratio != 1:
            raise ValueError(f"ratio = {self.ratio:g} is the noise of an attribute, and none is named")
        if how.law is None and (unused := given & {"epsilons", "deltas", "as_printed", "attribute", "over"}):
            raise ValueError(f"{self.method} is not private: remove {', '.join(sorted(unused))}")
        if not how.fair and self.penalty != 1:
            raise ValueError(f"{self.method} has no covariance penalty: remove penalty")
        if self.repair != "ridge" and not self.as_printed:
            raise ValueError(f"repair = {self.repair!r} goes with as_printed only")
        if self.over != "one" and (self.as_printed or self.attribute):
            raise ValueError(f"over = {self.over!r} goes with neither as_printed nor attribute")
        return self

    @property
    def name(self) -> str:
        """What tables and pictures call it."""
        parts = [self.method, *([f"x_s = {self.attribute}"] if self.attribute else [])]
        return self.label or ", ".join([*parts, *(["as printed"] if self.as_printed else [])])


class FairPlan(Settings):
    """A whole fairness study."""

    name: str = "unnamed"
    data: FairData = Field(default_factory=FairData)
    codings: dict[str, CodingPlan] = Field(default_factory=lambda: {"ours": CodingPlan()})
    epsilons: list[Positive] = Field([0.1, 1.0, 10.0])
    delta: float = Field(1e-5, gt=0, lt=1)
    seeds: int = Field(10, ge=1)
    seed: int = Field(0, ge=0)
    holders: int = Field(5, ge=2, description="who shares the records in runs over several")
    runs: list[FairRunPlan] = Field(min_length=1)

    @model_validator(mode="after")
    def _named(self) -> FairPlan:
        for r in self.runs:
            if r.coding not in self.codings:
                raise ValueError(f"run {r.name!r}: unknown coding {r.coding!r}, expected {', '.join(self.codings)}")
        return self


def read_fair_plan(path: Path | None, changes: list[str]) -> FairPlan:
    """Read and check a plan (the embedded Adult study without a path)."""
    tree = read_tree(path, "fair.toml", changes)
    try:
        return FairPlan.model_validate(tree)
    except ValidationError as error:
        raise InputError(f"{path or 'the Adult study'}: {one_line(error, FairPlan)}") from None
