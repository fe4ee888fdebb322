"""[deploy]: between whom, and what happens when a party is late."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from coterie.names import host_and_port, party_name, title_of
from coterie.settings import Positive, Settings

__all__ = ["DeployPlan", "PartyPlan"]


def _reachable(address: str) -> str:
    host_and_port(address)
    return address


class PartyPlan(Settings):
    """One party of a deployment, in the order of the graph's nodes."""

    name: Annotated[str, AfterValidator(party_name)] = Field(description="what the others call it; in its certificate")
    address: Annotated[str, AfterValidator(_reachable)] | None = Field(
        None, description="host:port where it listens; without one it only dials out"
    )
    title: Annotated[str, AfterValidator(title_of)] | None = Field(
        None, description="what people call it (`Klinikum Süd`): in reports and certificates"
    )

    @property
    def shown(self) -> str:
        """What people call it."""
        return self.title or self.name


class DeployPlan(Settings):
    """[deploy] Between whom, and what happens when a party is late. Simulation ignores it."""

    parties: Annotated[list[PartyPlan], Field(min_length=2)] = Field(description="one per node of the graph")
    bound: Positive = Field(
        1e3, description="largest number in a message: a party cuts its own to it, and refuses a larger one"
    )
    deadline: Positive = Field(60.0, description="seconds a round waits for a neighbour that the algorithm can miss")
    patience: Positive = Field(3600.0, description="seconds without a needed message after which the party gives up")
    work: Positive | None = Field(
        None,
        description='seconds for a round\'s batch where it goes by the clock (`scheme = "clock"`): a slow machine '
        "works off less of it; None: all of it",
    )
    tick: float = Field(0.0, ge=0, description="seconds between sends: hides how long a computation took; 0: at once")
    follows: list[Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]] | None = Field(
        None, min_length=1, description="hashes of the agreements that this one amends, the latest last (`plan amend`)"
    )

    @model_validator(mode="after")
    def _distinct(self) -> DeployPlan:
        for names in ([p.name for p in self.parties], [p.shown for p in self.parties], self.follows or []):
            if twice := next((n for n in names if names.count(n) > 1), None):
                raise ValueError(f"deploy.{'follows' if names is self.follows else 'parties'} names {twice!r} twice")
        return self
