"""The parts of a certificate, and of which type they are."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from coterie.network import ToldSeat
from coterie.privacy.codec import Json
from coterie.privacy.people import Protects

__all__ = [
    "AlikeAgents", "Certified", "CertifiedClaim", "Named", "OpenedSums", "Paid", "PublicFacts", "Sealed", "SentAgain",
    "Shape", "Totals",
]  # fmt: skip


class Totals(TypedDict):
    """ε of some events by every valid accountant, the smallest, and which one proves it; infinity is "inf"."""

    totals: dict[str, float | str]
    epsilon: float | str
    accountant: str


class Paid(Totals):
    """Events with their totals."""

    events: list[dict[str, Json]]


class Named(Paid):
    """What is paid against one adversary."""

    name: str
    adversary: str


class OpenedSums(Named):
    """What opened sums cost."""

    budget: float
    colluders: int
    must_answer: int
    fraction_bits: int


class SentAgain(Named):
    """What a party's vectors cost if all are sent again that may be."""

    sent_again: int


class AlikeAgents(Paid):
    """What agents in like places pay."""

    members: list[list[int]]
    records: int
    neighbours: int
    budget: float | None
    noise_multiplier: float
    rounds: int
    sent_again: int


class CertifiedClaim(TypedDict):
    """A guarantee against one adversary."""

    name: str
    adversary: str
    private: bool
    epsilon: float | str
    delta: float | None
    accountant: str
    adjacency: str


class Shape(TypedDict):
    """The size of a problem."""

    loss: str
    features: int
    classes: int | None
    parameters: int


class PublicFacts(Shape):
    """What a plan may leave to the data."""

    agents: int
    names: list[str] | None
    edges: list[list[int]] | None
    leaks: list[str]


class CertifiedAlgorithm(TypedDict):
    """What ran."""

    name: str
    rounds: int
    settings: dict[str, object]


class Certified(TypedDict):
    """A certificate that is not yet sealed; `coterie.report.form` has the range of every field."""

    schema: int
    claim: CertifiedClaim
    other_claims: list[CertifiedClaim]
    protects: Protects | None
    plan: dict[str, object]
    plan_sha256: str
    public: PublicFacts
    algorithm: CertifiedAlgorithm
    agents: list[AlikeAgents]
    central: OpenedSums | None
    cap: SentAgain | None
    alone: NotRequired[Named]
    observers: NotRequired[list[ToldSeat]]
    statements: list[dict[str, str]]
    run: dict[str, str | int | None]
    files: dict[str, str]
    made_with: dict[str, str]
    other_code: list[dict[str, str | None]]


class Sealed(Certified):
    """A certificate."""

    signer: str | None
    digest: str
    signature: str | None
