"""[data] and [partition]: which records, and who holds them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from coterie.data.partitions import PARTITIONS, site
from coterie.data.sources import SOURCES
from coterie.found import Kinds
from coterie.settings import Choosing, Count, Naming

__all__ = ["DataPlan", "PartitionPlan"]


class DataPlan(Naming):
    """[data] Which records."""

    table: ClassVar[str] = "data"
    choices: ClassVar[Mapping[str, Kinds]] = {"source": SOURCES}
    source: str = Field("clinics", description="data set, form of a table, or your own, as package.module")
    path: Path | None = Field(
        None,
        description="file, for csv and parquet; folder of a store; or where a named data set lies; "
        "relative to the plan's file",
    )
    label: str | None = Field(None, description="label column, for csv and parquet")
    site: str | None = Field(None, description="column that says which site a record belongs to")
    person: str | None = Field(
        None, description="column that says whose a record is: the person is then the unit of privacy"
    )
    unit: Literal["record", "person"] | None = Field(
        None,
        description="who is protected: one record, or a person with all of its records at a party "
        "([people](people.md)); default: person, where the data say whose a record is",
    )
    records_per_person: Count | None = Field(
        None,
        description="how many records of a person are used at most, its first ones; default: all. A deployment needs "
        "it: nothing that a party does may show how many somebody has",
    )
    test_fraction: float = Field(0.2, gt=0, lt=1, description="share of records held out for testing")
    seed: int = Field(0, ge=0, description="seed of the train/test split and of made data (public)")
    options: dict[str, Any] = Field(
        default_factory=dict,
        description="loader options, e.g. coding = 'onehot'; `data.codebook` may name a file that has some of them",
    )


class PartitionPlan(Choosing):
    """[partition] Who holds which records."""

    table: ClassVar[str] = "partition"
    choices: ClassVar[Mapping[str, Kinds]] = {"kind": PARTITIONS}
    kind: str = Field("site", description="how records are split over parties; or your own, as package.module")
    agents: int | None = Field(None, ge=2, le=10**8, description="number of parties; by site: all sites")
    sizes: list[Count] | None = Field(
        None, description="records of each party (people, where they are the unit): sizes are public and fix the noise"
    )

    @property
    def outsiders(self) -> list[str]:
        """Sites that take no part."""
        found = self.chosen("kind")
        return found.outsiders if isinstance(found, site.Settings) else []
